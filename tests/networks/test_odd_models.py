"""Models that are small and unusual: what run, lint and tune answer, or say in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import InvalidArgument, SimdnnError
from simdnn.cli import main

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from simdnn.networks.feeds import random_feeds  # noqa: E402
from tests.effort import one_in  # noqa: E402

RNG = np.random.default_rng(17)
WEIGHTS = RNG.normal(0, 0.2, (16, 8)).astype(np.float32)
MODES = ["f32", "int8-vnni"]


def held(name: str, values: Any) -> Any:
    return numpy_helper.from_array(np.asarray(values), name)


def model(
    nodes: list[Any],
    constants: list[Any],
    shape: Sequence[Any] = (3, 16),
    to: int = 1,
    of: int = 1,
) -> Any:
    x, y = helper.make_tensor_value_info("x", of, shape), helper.make_tensor_value_info("y", to, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(more: list[Any], constants: list[Any], **about: Any) -> Any:
    """x times "w"."""
    return model([*more, helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], constants, **about)


def classes(labels: bool = False) -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"], "mm"),
        helper.make_node("ArgMax", ["z"], ["y"], axis=1, keepdims=0),
    ]
    return model(nodes, [held("w", WEIGHTS)], [32, 16], TensorProto.INT64)


COMPUTED = {
    "a Constant node": lambda: product([helper.make_node("Constant", [], ["w"], value=held("", WEIGHTS))], []),
    "a transposed initializer": lambda: product(
        [helper.make_node("Transpose", ["v"], ["w"], perm=[1, 0])], [held("v", WEIGHTS.T.copy())]
    ),
    "a shared one": lambda: product([helper.make_node("Identity", ["v"], ["w"])], [held("v", WEIGHTS)]),
    "arithmetic of two": lambda: product(
        [helper.make_node("Mul", ["v", "s"], ["u"]), helper.make_node("Reshape", ["u", "n"], ["w"])],
        [held("v", WEIGHTS.reshape(-1) / 2), held("s", np.float32(2)), held("n", np.array([16, 8]))],
    ),
}


@one_in(2)
@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("mode", ["int8-vnni", "s8-weights"])
def test_weights_that_come_of_constants_are_quantized(name: str, mode: str) -> None:
    """As the initializer that they come to: the same recipe, cycles and bits."""
    made, plain = COMPUTED[name](), product([], [held("w", WEIGHTS)])
    found, wanted = (simdnn.tune(one, machine="zen4", modes=["f32", mode]) for one in (made, plain))
    assert found.runs.drop(columns="time_us").equals(wanted.runs.drop(columns="time_us")) and len(found.runs) == 2
    whole = simdnn.quantize_onnx(made, [{"x": RNG.normal(size=(3, 16)).astype(np.float32)}])
    assert [node.op_type for node in whole.graph.node][-1] == "MatMul" and simdnn.load(whole).is_integer
    assert not {"Constant", "Transpose", "Identity", "Mul"} & {node.op_type for node in whole.graph.node}


def test_a_row_times_a_matrix_is_quantized() -> None:
    found = simdnn.tune(product([], [held("w", WEIGHTS)], shape=[16]), machine="zen4", modes=MODES)
    assert len(found.runs) == 2 and found.runs["sqnr_db"].min() > 30


HALF = {"of": TensorProto.FLOAT16, "to": TensorProto.FLOAT16}
BODY = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 1, None)]
)
LEFT = [
    (lambda: product([], [held("w", WEIGHTS.astype(np.float16))], **HALF), "'mm' has weights of f16; those of f32"),
    (lambda: product([], [held("w", np.ones((2, 16, 8), np.float32))]), "shape (2, 16, 8); a matrix is needed"),
    (lambda: model([helper.make_node("Relu", ["x"], ["y"])], []), "there is no Conv, MatMul or Gemm"),
    (
        lambda: product(
            [helper.make_node("DequantizeLinear", ["q", "s"], ["w"])],
            [held("q", np.ones((16, 8), np.int8)), held("s", np.float32(0.1))],
        ),
        "stored in integers already",
    ),
    (lambda: product([helper.make_node("Transpose", ["x"], ["w"], perm=[1, 0])], []), "not known before it runs"),
    (
        lambda: model(
            [helper.make_node("If", ["c"], ["y"], then_branch=BODY, else_branch=BODY)],
            [held("c", np.array(True)), held("w", WEIGHTS)],
        ),
        "bodies of control flow stay",
    ),
]


@pytest.mark.parametrize(("make", "said"), LEFT)
def test_why_nothing_is_quantized_is_told(
    make: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `run` in the mode's row, by `lint` among what is left out."""
    onnx.save(make(), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--modes", "f32,int8-vnni"]) == 1
    assert said in capsys.readouterr().out
    left_out = simdnn.lint(make(), machine="zen4").attrs["left_out"]
    assert said in left_out["int8-vnni"]


def test_a_mode_that_nothing_fits_says_so_of_16_bits() -> None:
    left_out = simdnn.lint(LEFT[0][0](), machine="zen4").attrs["left_out"]
    assert left_out["bf16"] == "nothing here can be bf16: nothing is computed in f32"


def test_outputs_without_floats_have_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither of layers, which were compared with themselves; labels judge integers."""
    path = tmp_path / "m.onnx"
    onnx.save(classes(), path)
    command = ["run", str(path), "--modes", "f32,int8-vnni", "--layers", "mm"]
    assert main(command) == 0 and "no output holds floats" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    (row,) = (r for r in json.loads(capsys.readouterr().out)["layers"] if r["mode"] == "int8-vnni")
    assert 30 < row["sqnr_db"] < 60
    with pytest.raises(InvalidArgument, match="no output holds floats.*labels or a metric"):
        simdnn.tune(str(path), machine="zen4", modes=MODES)
    x = RNG.normal(size=(32, 16)).astype(np.float32)
    labels = (x @ WEIGHTS).argmax(axis=1)
    tuned = simdnn.tune(str(path), machine="zen4", modes=MODES, feeds={"x": x}, labels=labels)
    assert tuned.measure == "accuracy" and tuned.runs["quality"].between(0.8, 1).all()
    with pytest.raises(InvalidArgument, match="a class for each row"):
        simdnn.tune(str(path), machine="zen4", modes=MODES, feeds={"x": x}, labels=labels[1:])


def test_an_input_that_no_memory_holds_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    network = simdnn.load(product([], [held("w", WEIGHTS)], shape=["N", 16]))
    monkeypatch.setattr("simdnn.networks.feeds.memory_bytes", lambda: 1 << 20)
    with pytest.raises(InvalidArgument, match="of 4096x16: a run with values.*run --no-values"):
        random_feeds(network, {"N": [4096]}, 0)
    assert random_feeds(network, {"N": [1024]}, 0)["x"].shape == (1024, 16)


def test_nothing_to_multiply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(product([], [held("w", WEIGHTS)], shape=[0, 16]), path)
    assert main(["run", str(path), "--modes", "f32"]) == 0 and "no output holds floats" in capsys.readouterr().out
    assert main(["tune", str(path)]) == 2 and "no output holds floats" in capsys.readouterr().err
    assert main(["lint", str(path), "--isa", "avx2"]) == 0 and re.search(r"mm +MatMul", capsys.readouterr().out)
    tensor = helper.make_tensor_type_proto(1, [2, 8])
    several = helper.make_value_info("s", helper.make_sequence_type_proto(tensor))
    joined = [helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1)]
    onnx.save(helper.make_model(helper.make_graph(joined, "g", [several], [helper.make_value_info("y", tensor)])), path)
    assert main(["run", str(path), "--modes", "f32"]) == 2 and "'s' is a sequence" in capsys.readouterr().err
    constant = [helper.make_node("MatMul", ["a", "w"], ["y"])]
    graph = helper.make_graph(constant, "g", [], [helper.make_tensor_value_info("y", 1, None)])
    graph.initializer.extend([held("a", WEIGHTS.T), held("w", WEIGHTS)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(InvalidArgument, match="no inputs"):
        simdnn.tune(made, machine="zen4")


def test_nodes_without_names_are_known_by_one_in_every_mode() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "v"], ["y"])]
    made = model(nodes, [held("w", WEIGHTS), held("v", WEIGHTS.T.copy())])
    frame = simdnn.lint(made, machine="zen4", modes=["f32", "bf16", "int8-vnni"])
    rows = frame[frame["op"] == "MatMul"]
    assert rows["node"].value_counts().to_dict() == {"MatMul_0": 3, "MatMul_1": 3}
    fastest = rows.loc[rows.groupby("node")["cycles"].idxmin()].set_index("node")["mode"]
    assert (rows["fastest_mode"] == rows["node"].map(fastest)).all()


def test_lint_does_without_calibration_that_fails() -> None:
    nodes = [helper.make_node("Log", ["x"], ["l"]), helper.make_node("MatMul", ["l", "w"], ["y"], "mm")]
    made = model(nodes, [held("w", WEIGHTS)])
    frame = simdnn.lint(made, machine="zen4")
    assert set(frame["mode"]) == {"f32", "bf16"} and "--feeds" in frame.attrs["left_out"]["int8-vnni"]
    good = simdnn.lint(made, machine="zen4", feeds={"x": np.ones((3, 16), np.float32)}, modes=["int8-vnni"])
    assert "gemm:avx512_core_vnni" in set(good["implementation"])


def test_sizes_that_were_taken_as_1_are_told() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "c")]
    made = model(nodes, [held("w", np.ones((8, 3, 1, 1), np.float32))], ["N", "C", 4, 4])
    for call in (simdnn.lint, simdnn.tune):
        with pytest.raises(SimdnnError, match="1 channel,.*N = C = 1, which the model leaves open: feeds"):
            call(made, machine="zen4")
    notes = simdnn.tune(product([], [held("w", WEIGHTS)], shape=["N", 16]), machine="zen4", modes=["f32"]).notes
    assert "N = 1, which the model leaves open: feeds or shapes say what it is" in notes


def test_a_node_whose_cost_is_not_known_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = {"of": TensorProto.DOUBLE, "to": TensorProto.DOUBLE}
    onnx.save(product([], [held("w", WEIGHTS.astype(np.float64))], **wide), tmp_path / "m.onnx")
    assert main(["lint", str(tmp_path / "m.onnx"), "--isa", "avx512_core"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"mm +MatMul .* unknown", text) and "product of f64 has no kernel" in text


def test_names_of_any_length_and_kind_leave_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "block/" * 500 + "one"),
        helper.make_node("MatMul", ["a", "v"], ["y"], "two\nlines"),
    ]
    onnx.save(model(nodes, [held("w", WEIGHTS), held("v", WEIGHTS.T.copy())]), tmp_path / "m.onnx")
    path = str(tmp_path / "m.onnx")
    for command in (["lint", path, "--isa", "avx512_core_vnni"], ["tune", path, "--modes", "int8-vnni", "--jobs", "1"]):
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) < 400 and any("/one" in line and "…" in line for line in lines)
        assert any("two\\nlines" in line for line in lines)


def test_what_a_relu_would_cut_is_not_clipped() -> None:
    """A tool takes it out of the model where integers begin at 0; above they are clipped all the same."""

    def made(zero: int) -> Any:
        ends = [("x", 0.02, 128), ("w", 0.01, 0), ("y", 0.04, zero)]
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
            helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"]),
            helper.make_node("MatMul", ["xd", "wd"], ["a"], "mm"),
            helper.make_node("QuantizeLinear", ["a", "ys", "yz"], ["yq"]),
            helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
        ]
        weights = np.random.default_rng(0).integers(-127, 128, (16, 8)).astype(np.int8)
        parts = [held(f"{name}s", np.float32(scale)) for name, scale, _ in ends]
        parts += [held(f"{name}z", (np.int8 if name == "w" else np.uint8)(zero)) for name, _, zero in ends]
        return model(nodes, [*parts, held("wq", weights)], [32, 16])

    x = np.random.default_rng(1).normal(0, 1, (32, 16)).astype(np.float32)
    shares = {
        (zero, scale): simdnn.load(made(zero)).run({"x": scale * x}, machine="icx").departures.attrs["clipped_share"]
        for zero in (0, 1)
        for scale in (1, 4)
    }
    assert shares[0, 1] == 0 and shares[1, 1] > 0.3 and 0 < shares[0, 4] < 0.3


def test_an_axis_that_is_no_number_is_refused() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], "dx"),
        helper.make_node("DequantizeLinear", ["w", "t"], ["v"], "dw", axis=[1]),
        helper.make_node("MatMul", ["d", "v"], ["y"], "mm"),
    ]
    scales = [held("s", np.float32(0.1)), held("t", np.full(8, 0.1, np.float32))]
    made = model(nodes, [*scales, held("w", np.ones((16, 8), np.uint8))])
    with pytest.raises(InvalidArgument, match=r"'dw'.*attribute axis=\[1\]; int is needed"):
        simdnn.load(made)


def test_open_sizes_go_by_their_names_and_absurd_ones_are_refused() -> None:
    net = simdnn.load(product([], [held("w", WEIGHTS)], shape=["N", 16]))
    assert net.sizes({"N": [8]}) == ({"x": (8, 16)}, []) and net.sizes() == ({"x": (1, 16)}, ["N"])
    for shapes in ({"N": [10**30]}, {"x": [10**30, 0]}):
        with pytest.raises(InvalidArgument, match="up to .* elements are taken"):
            net.sizes(shapes)
    with pytest.raises(InvalidArgument, match="up to .* elements are taken"):
        net.estimate({"x": (10**18, 16)}, machine="zen4")


MIXED: list[tuple[str, str, dict[str, Any], str]] = [
    ("", "Add", {"b": np.ones((3, 16), np.int64)}, "inconsistent type"),
    ("", "MatMul", {"b": np.ones((16, 2), np.float16)}, "inconsistent type"),
    ("", "Where", {"a": np.ones((3, 16), np.int64), "b": np.ones((3, 16), np.float32)}, "unsupported type"),
    ("", "Mod", {"b": np.ones(16, np.float32)}, "fmod=1"),
    ("com.microsoft", "QLinearSigmoid", {"s": np.float32(1), "z": np.int8(0), "t": np.float32(1)}, "input 2 of s8"),
]


@pytest.mark.parametrize(("domain", "op", "operands", "said"), MIXED)
def test_types_that_no_runtime_joins_are_refused(domain: str, op: str, operands: dict[str, Any], said: str) -> None:
    """NumPy would promote them."""
    of = TensorProto.UINT8 if domain else TensorProto.FLOAT
    nodes = [helper.make_node(op, ["x", *operands], ["y"], domain=domain)]
    made = model(nodes, [held(*each) for each in operands.items()], of=of, to=of)
    x = {"x": np.ones((3, 16), np.uint8 if domain else np.float32)}
    with pytest.raises(InvalidArgument, match=said):
        simdnn.load(made).run(x, machine="hsw")


@pytest.mark.parametrize(("src", "wei", "dst"), [("u8", "s8", "s8"), ("s8", "u8", "s8"), ("s8", "s8", "u8")])
def test_pairs_of_integers_that_onnxruntime_lacks(src: str, wei: str, dst: str) -> None:
    """ONNX has them, and so have kernels here."""
    of = {"u8": np.uint8, "s8": np.int8}
    numbers = {"a": np.float32(1), "p": of[src](1), "b": np.ones((16, 4), of[wei]), "c": np.float32(1), "q": of[wei](1)}
    numbers |= {"d": np.float32(1), "r": of[dst](1)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(of[src]))
    node = helper.make_node("QLinearMatMul", ["x", *numbers], ["y"])
    to = helper.np_dtype_to_tensor_dtype(np.dtype(of[dst]))
    net = simdnn.load(model([node], [held(*each) for each in numbers.items()], of=kind, to=to))
    feeds = {"x": np.full((3, 16), 2, of[src])}
    assert (net.run(feeds, machine="icx").outputs["y"] == 1).all()
    with pytest.raises(simdnn.Unimplemented, match=f"no QLinearMatMul of {src} by {wei} to {dst}"):
        net.run(feeds, machine="icx", dispatch="onnxruntime")
