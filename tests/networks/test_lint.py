"""simdnn.lint: what each node runs as, proofs about integers, and the command's exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn.cli import main  # noqa: E402
from tests.networks.models import model  # noqa: E402

CAPS = ["avx2", "avx512_core", "avx512_core_vnni"]


def quantized(weights: np.ndarray[Any, Any], conv: bool, src: type = np.uint8, zero: int = 0) -> onnx.ModelProto:
    """One product of dequantized operands: x (1, K) or (1, IC, 6, 6) by s8 weights, f32 out."""
    scale = np.float32(0.1)
    constants = {"s": scale, "z": np.array(zero, src), "w": weights, "ws": scale, "wz": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "d1"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], "d2"),
        helper.make_node("Conv" if conv else "MatMul", ["d", "dw"], ["y"], "product"),
    ]
    shape = [1, weights.shape[1], 6, 6] if conv else [4, weights.shape[0]]
    return model(nodes, {"x": shape}, ["y"], {name: np.asarray(values) for name, values in constants.items()})


def product_of(frame: Any, **where: str) -> Any:
    for name, value in {"node": "product", **where}.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_columns_and_places() -> None:
    net = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        {"x": [4, 16]},
        ["y"],
        {"w": np.eye(16, 32, dtype=np.float32)},
    )
    frame = simdnn.lint(net, isa=CAPS)
    named = "node op machine isa mode implementation reference saturates inexact cycles fastest_mode fastest_cycles"
    assert " ".join(frame.columns).startswith(named)
    assert set(frame["machine"]) == {"zen4"} and list(dict.fromkeys(frame["isa"])) == CAPS
    modes = {isa: set(part["mode"]) for isa, part in frame.groupby("isa")}
    assert modes["avx2"] == modes["avx512_core"] == {"f32", "int8-fast", "int8-exact"}
    assert modes["avx512_core_vnni"] == {"f32", "int8-vnni"}  # what does without VNNI makes no sense there
    for _, place in frame[frame["node"] == "product"].groupby("isa"):
        assert place["fastest_cycles"].eq(place["cycles"].min()).all()
        assert place.set_index("mode").loc[place["fastest_mode"].iloc[0], "cycles"] == place["cycles"].min()
    assert not frame["reference"].any() and frame.attrs["dispatch"] == {"zen4": "onednn"}
    vnni = product_of(frame, mode="int8-vnni")
    assert (vnni["implementation"], vnni["saturates"], vnni["inexact"]) == ("gemm:avx512_core_vnni", False, False)
    assert product_of(frame, isa="avx2", mode="int8-fast")["saturates"] is False  # one weight a column


def test_a_mode_named_is_left_out_where_it_lacks_and_refused_where_all_do() -> None:
    frame = simdnn.lint("digits", isa=["avx2", "avx512_core_vnni"], modes=["int8-vnni"])
    assert set(frame["isa"]) == {"avx512_core_vnni"}
    assert list(frame.attrs["left_out"]) == ["int8-vnni on zen4 under avx2"]
    frame = simdnn.lint("digits", machine=["hsw", "clx"], modes=["int8-vnni", "int8-exact"])
    assert {(row["machine"], row["mode"]) for row in frame.to_dict("records")} == {
        *(("hsw", "int8-exact"), ("clx", "int8-exact"), ("clx", "int8-vnni"))
    }
    assert list(frame.attrs["left_out"]) == ["int8-vnni on hsw"]
    with pytest.raises(simdnn.InvalidArgument, match="isa='avx2' does not include; modes that run: f32, int8-fast"):
        simdnn.lint("digits", isa=["avx2", "avx512_core"], modes=["int8-exact", "int8-vnni"])


def test_a_machine_with_all_caps_is_taken() -> None:
    net = quantized(np.ones((8, 4), np.int8), conv=False)
    assert set(simdnn.lint(net, isa=["avx2_vnni", "avx512_core_amx"])["machine"]).isdisjoint({"zen4"})
    frame = simdnn.lint(net, machine=["skx", "zen4"])
    assert list(dict.fromkeys(frame["machine"])) == ["skx", "zen4"]
    assert set(simdnn.lint(net)["machine"]) == {"zen4"}
    with pytest.raises(simdnn.UnknownName, match="avx512_core"):
        simdnn.lint(net, isa="avx512core")
    with pytest.raises(simdnn.InvalidArgument, match="no machine here has all"):
        simdnn.lint(net, isa=["avx2_vnni_int8", "avx512_core_amx"])


@pytest.mark.parametrize("conv", [False, True])
@pytest.mark.parametrize("cap", ["avx2", "avx512_core"])
def test_saturation_is_proved_or_shown(cap: str, conv: bool) -> None:
    """127 beside 127 exceeds 16 bits, 64 beside 64 does not; the exact kernel and VNNI never saturate."""
    shape = (16, 8, 3, 3) if conv else (16, 16)
    for weight, saturates in ((127, True), (64, False)):
        net = quantized(np.full(shape, weight, np.int8), conv)
        frame = simdnn.lint(net, isa=[cap, "avx512_core_vnni"], machine="icx")
        stored = product_of(frame, isa=cap, mode="as stored")
        assert stored["saturates"] is saturates and stored["inexact"] is saturates
        assert product_of(frame, isa=cap, mode="int8-exact")["saturates"] is False
        vnni = product_of(frame, isa="avx512_core_vnni")
        assert vnni["mode"] == "as stored" and vnni["saturates"] is False and vnni["inexact"] is False
        assert (stored["witness"] is not None) is saturates
        if saturates:  # the witness does what is said of it
            weights = np.full(shape, weight, np.int8)
            run = simdnn.convolution if conv else simdnn.matmul
            met = run(stored["witness"], weights, machine="icx", isa=cap, attr=simdnn.Attr(exact_int8=False))
            assert met.saturation is not None and met.saturation.sum() > 0


def test_halved_weights_are_told() -> None:
    """s8 sources of convolutions without AVX2's VNNI: weights are halved, and odd ones lose their last bit."""
    for weight, inexact in ((3, True), (4, False)):
        frame = simdnn.lint(quantized(np.full((16, 8, 3, 3), weight, np.int8), True, np.int8), isa="avx512_core")
        row = product_of(frame, mode="as stored")
        assert row["saturates"] is False and row["inexact"] is inexact
        assert ("halved" in row["note"]) is inexact


def test_weights_that_come_as_it_runs_are_not_told() -> None:
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["y"], "product")]
    types = {"a": TensorProto.UINT8, "b": TensorProto.INT8}
    ports = [helper.make_tensor_value_info(name, dtype, [16, 16]) for name, dtype in types.items()]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("y", TensorProto.INT32, [16, 16])])
    net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    frame = simdnn.lint(net, isa=["avx512_core", "avx512_core_vnni"])
    assert product_of(frame, isa="avx512_core", mode="as stored")["saturates"] is None
    assert product_of(frame, isa="avx512_core_vnni")["saturates"] is False


def test_large_sums_may_round() -> None:
    frame = simdnn.lint(quantized(np.full((1024, 16), 127, np.int8), conv=False), isa="avx512_core_vnni")
    assert product_of(frame)["inexact"] is None and "round or wrap" in product_of(frame)["note"]


def test_a_reference_is_named() -> None:
    """Of f32 sources by compressed weights, with bf16 allowed inside, oneDNN leaves all to its reference."""
    weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    net = model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], {"x": [4, 64]}, ["y"], {"w": weights})
    where: dict[str, Any] = {"isa": ["avx2", "avx512_core"], "modes": ["f32", "s4-weights"]}
    frame = simdnn.lint(net, **where)
    assert frame.set_index("mode")["reference"].to_dict() == {"f32": False, "s4-weights": True}
    assert "ref:any" in product_of(frame, isa="avx2", mode="s4-weights")["note"]
    fastest = simdnn.lint(net, **where, dispatch="fastest")
    assert not fastest["reference"].any() and fastest.attrs["dispatch"] == {"zen4": "fastest"}


def test_groups_that_a_library_has_no_kernel_for() -> None:
    """Channels that four does not divide, in groups: oneDNN's reference below AVX-512."""
    net = quantized(np.ones((8, 2, 3, 3), np.int8), conv=True)
    net.graph.node[-1].attribute.append(helper.make_attribute("group", 2))
    net.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    frame = simdnn.lint(net, isa=["avx2", "avx512_core"])
    assert product_of(frame, isa="avx2", mode="as stored")["reference"]
    assert not product_of(frame, isa="avx512_core", mode="as stored")["reference"]


def test_what_a_library_refuses_is_left_to_the_fastest() -> None:
    """Rows of an odd number of nibbles are refused by oneDNN: the row says so, and what runs in its place."""
    weights = np.random.default_rng(0).normal(size=(64, 31)).astype(np.float32)
    net = model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], {"x": [4, 64]}, ["y"], {"w": weights})
    row = product_of(simdnn.lint(net, isa="avx512_core", modes=["s4-weights"]))
    assert "oneDNN refuses rows of an odd number (N=31)" in row["note"] and row["cycles"] > 0
    table = simdnn.lint("digits", isa="avx2", modes=["f16"])
    assert set(table["implementation"]) == {"refused"} and table["cycles"].isna().all()
    assert table["note"].str.contains("oneDNN refuses f16").all()


def test_sources_of_s8_saturate_in_matmuls() -> None:
    """They are shifted to u8, whose pairs meet the same 16 bits."""
    weights = np.full((16, 16), 127, np.int8)
    row = product_of(simdnn.lint(quantized(weights, False, np.int8), isa="avx512_core"), mode="as stored")
    assert row["saturates"] is True and row["witness"].dtype == np.int8
    met = simdnn.matmul(row["witness"], weights, machine="skx", attr=simdnn.Attr(exact_int8=False))
    assert met.saturation is not None and met.saturation.sum() > 0


def test_an_estimate_tells_the_library_and_its_reference() -> None:
    sizes: dict[str, Any] = {"m": 16, "n": 16, "k": 16, "machine": "zen4", "dispatch": "onednn"}
    left = simdnn.estimate("matmul", dt="f32:f32:s8", **sizes)
    assert (left.library, left.reference) == ("ref:any", True)
    plain = simdnn.estimate("matmul", dt="f32", **sizes)
    assert (plain.library, plain.reference) == ("brg_matmul:avx512_core", False)
    assert simdnn.estimate("matmul", dt="f32:f32:s8", **{**sizes, "dispatch": "fastest"}).library == ""
    bytes_of_bf16 = simdnn.estimate("matmul", dt="bf16:bf16:s8", **sizes)
    assert (bytes_of_bf16.library, bytes_of_bf16.reference) == ("ref:any", True)
    taps = {"ih": 8, "iw": 8, "kh": 3, "kw": 3, "ic": 16, "oc": 16}
    options: dict[str, Any] = {"dt": "f32:f32:s8", "machine": "zen4", "dispatch": "onednn"} | taps
    convolved = simdnn.estimate("convolution", **options)
    assert (convolved.library, convolved.reference) == ("ref:any", True)
    with_a_function = simdnn.estimate("convolution", attr=simdnn.Attr(post_ops=["gelu_erf"]), **options)
    assert (with_a_function.library, with_a_function.reference) == ("ref:any", True)


def test_layer_tables_and_gpus() -> None:
    frame = simdnn.lint("digits", machine=["b580", "skx"], modes=["f32"])
    assert frame.attrs["dispatch"] == {"b580": "fastest", "skx": "onednn"}
    assert set(frame["op"]) == {"Conv", "MatMul"} and frame["cycles"].notna().all()
    for name, known in (("digits", True), ("minilm", False)):  # a table has no weights, a trained network has its own
        fast = simdnn.lint(name, isa="avx2", modes=["int8-fast"])
        assert fast["saturates"].map(lambda value: value is not None).any() == known


# -- the command -------------------------------------------------------------------------------------------------------
@pytest.fixture
def path(tmp_path: Path) -> str:
    net = quantized(np.full((16, 8, 3, 3), 127, np.int8), conv=True)
    (tmp_path / "net.onnx").write_bytes(net.SerializeToString())
    return str(tmp_path / "net.onnx")


def test_exit_status(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lint = ["lint", path, "--isa"]
    assert main([*lint, "avx512_core"]) == 0
    text = capsys.readouterr().out
    assert "on zen4 (dispatch onednn)" in text and "exceed 16 bits" in text and "int8-exact" in text
    assert main([*lint, "avx512_core", "--fail-on", "saturates"]) == 1
    assert "failures" in capsys.readouterr().out
    assert main([*lint, "avx512_core_vnni", "--fail-on", "reference,saturates,inexact,refused"]) == 0
    assert main([*lint, "avx512_core", "--slower-than", "1.01"]) == 1
    assert main([*lint, "avx512_core", "--slower-than", "100"]) == 0
    capsys.readouterr()
    assert main([*lint, "avx512_core", "--fail-on", "saturates", "--json", "-o", str(tmp_path / "out.csv")]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["failures"][0] | {"machine": ""} == {
        "node": "product",
        "machine": "",
        "isa": "avx512_core",
        "mode": "as stored",
        "finding": "saturates",
    }
    assert {row["node"] for row in content["rows"]} >= {"product", "quantize"}
    assert (tmp_path / "out.csv").read_text().startswith("node,op,machine,isa,mode,implementation,reference")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fail-on", "saturate", "--isa", "avx2"], "did you mean 'saturates'"),
        (["--slower-than", "0.5", "--isa", "avx2"], "at least 1"),
        (["--machine", "skx", "--isa", "avx512_core_vnni"], "machine 'skx' has"),
        (["--isa", "avx2", "--force"], "--force is for files"),
    ],
)
def test_wrong_usage(path: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", path, *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_a_cap_and_a_layout_would_change() -> None:
    """By hand: the same problem under each cap, and with weights in each plain layout."""
    weights = np.linspace(-1, 1, 64 * 48, dtype=np.float32).reshape(64, 48)
    net = model([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], {"x": [4, 64]}, ["y"], {"w": weights})
    frame = simdnn.lint(net, isa=["avx2", "avx512_core"], modes=["f32"], dispatch="fastest")
    where: dict[str, Any] = {"m": 4, "n": 48, "k": 64, "dt": "f32", "machine": "zen4"}
    for row in frame[frame["node"] == "product"].to_dict("records"):
        cost = {isa: simdnn.estimate("matmul", **where, isa=isa).cycles for isa in ("avx2", "avx512_core")}
        assert row["cycles"] == cost[row["isa"]]
        assert (row["fastest_isa_cycles"], row["fastest_isa"]) == min((cycles, isa) for isa, cycles in cost.items())
        plain = {t: simdnn.estimate("matmul", **where, isa=row["isa"], wei_tag=t).cycles for t in ("ab", "ba")}
        assert (row["plain_cycles"], row["plain_tag"]) == min((cycles, tag) for tag, cycles in plain.items())
        assert row["plain_cycles"] >= row["cycles"]


def test_what_plain_weights_cost_where_no_kernel_takes_them() -> None:
    """A convolution has one plain layout; what oneDNN does with it is not known here, and nodes without products have
    none.
    """
    frame = simdnn.lint("digits", machine="zen4", modes=["f32", "s4-weights"], dispatch="fastest")
    rows = frame[frame["mode"] == "f32"].set_index("node")
    assert rows.loc["conv2", "plain_tag"] == "oihw" and rows.loc["conv2", "plain_cycles"] > rows.loc["conv2", "cycles"]
    frame = simdnn.lint("digits", machine="zen4", modes=["f32"]).set_index("node")
    assert frame.loc[["conv1", "conv2"], "plain_tag"].isna().all() and frame["plain_cycles"].notna().sum() == 1


def test_layouts_of_a_table_and_on_a_gpu() -> None:
    frame = simdnn.lint("bert-base", machine=["zen4", "b580"], modes=["f32"], dispatch="fastest")
    assert set(frame["plain_tag"]) <= {"ab", "ba"} and (frame["plain_cycles"] >= frame["cycles"]).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shapes": [1]}, "shapes="),
        ({"feeds": 3}, "feeds=3"),
        ({"feeds": []}, r"feeds=\[\]"),
        ({"modes": []}, "no mode"),
    ],
)
def test_what_cannot_be_linted_is_told(given: dict[str, Any], said: str) -> None:
    net = model([helper.make_node("Relu", ["x"], ["y"], "act")], {"x": [4]}, ["y"], {})
    with pytest.raises(simdnn.SimdnnError, match=said):
        simdnn.lint(net, machine="zen4", **given)


def _small() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, n]) for name, n in (("x", 8), ("y", 16)))
    weights = helper.make_tensor("w", TensorProto.FLOAT, [8, 16], np.ones(128, np.float32).tolist())
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Sqrt", ["a"], ["y"], "root")]
    graph = helper.make_graph(nodes, "small", [x], [y], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_loaded_network_is_linted_as_its_model(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(_small().SerializeToString())
    for source in (_small(), path):
        network = simdnn.load(source)
        told, wanted = (simdnn.lint(one, machine="zen4", modes=["f32"]) for one in (network, source))
        assert told.drop(columns="witness").equals(wanted.drop(columns="witness"))
        assert simdnn.load(network) == network
    made = type(network)(network.graph)
    with pytest.raises(simdnn.InvalidArgument, match="loaded from no model"):
        simdnn.lint(made, machine="zen4")


@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
@pytest.mark.parametrize("remove", ["instructions.vfmadd231ps", "instructions.vsqrtps"])
def test_a_node_of_unknown_cost_is_a_row_of_its_own(dispatch: str, remove: str) -> None:
    machine = simdnn.what_if("zen4", {"remove": [remove]})
    frame = simdnn.lint(_small(), machine=machine, modes=["f32"], dispatch=dispatch)
    lacks = "product" if "fmadd" in remove else "root"
    assert frame["node"].tolist() == ["product", "root"]
    for node, cycles, note in frame[["node", "cycles", "note"]].values.tolist():
        assert (cycles != cycles) == (node == lacks) and ("has no timing for" in note) == (node == lacks)
    if lacks == "product":
        table = simdnn.lint("digits", machine=machine, modes=["f32"], dispatch=dispatch)
        assert table["cycles"].isna().all() and table["note"].str.contains("has no timing for").all()
