"""A model on two CPUs: what differs, by how much, what helps, and what `simdnn run` says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import InvalidArgument
from simdnn.cli import main

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.effort import one_in  # noqa: E402


def model(weights: Any, floats: bool = False) -> Any:
    """QLinearMatMul by a matrix, and a Conv of floats behind it, normalized twice."""
    nodes = [helper.make_node("QLinearMatMul", "x s z b s zb s z".split(), ["y"], "fc")]
    constants = {"s": np.float32(1), "z": np.uint8(0), "b": weights, "zb": np.zeros((), weights.dtype)}
    if floats:
        nodes += [
            helper.make_node("DequantizeLinear", ["y", "s", "z"], ["d"]),
            helper.make_node("Reshape", ["d", "shape"], ["r"]),
            helper.make_node("Conv", ["r", "w"], ["v"], "conv"),
            helper.make_node("BatchNormalization", ["v", "e", "e", "e", "e"], ["n"], "first"),
            helper.make_node("BatchNormalization", ["n", "e", "e", "e", "e"], ["c"], "second"),
        ]
        constants |= {"shape": np.array([1, 1, 2, -1]), "e": np.ones(1, np.float32)}
        constants["w"] = np.ones((1, 1, 1, 1), np.float32)
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "ported",
        [port("x", TensorProto.UINT8, (2, 3))],
        [port("c" if floats else "y", TensorProto.FLOAT if floats else TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


#: 255 * (127 + 127) exceeds 16 bits, so 32767 stands in its place; less 255 * 128 that is 127, and 32130 exactly
WEIGHTS = np.array([[127, 1], [127, 0], [-128, 3]], np.int8)
SOURCE = np.array([[255, 255, 255], [1, 2, 3]], np.uint8)


def test_nodes_that_saturate_on_one_cpu_are_told_with_what_helps() -> None:
    frame = simdnn.porting(model(WEIGHTS), {"x": SOURCE}, machines=["hsw", "icx"])
    row, reference = frame.iloc[0], frame.iloc[1]
    assert (row.node, row.op, row["types"], row.machine) == ("fc", "QLinearMatMul", "u8:s8", "hsw")
    assert (row.saturated, row.differs, row.max_difference) == (0.25, 0.25, 255 - 127)
    assert "weights of 7 bits" in row.helps and f"exact, {row.exact_cycles:,.0f} cycles in place of" in row.helps
    assert (reference.saturated, reference.differs, reference.helps) == (0, 0, "")
    assert frame.attrs["outputs"]["hsw"]["max_difference"] == 128 and not frame.attrs["outputs"]["icx"]["differs"]


def test_types_of_operands_that_are_quantized_on_the_way_are_told() -> None:
    """By zero points, by what quantized them, and through nodes that only move elements."""
    scale = {"s": np.float32(0.02), "z": np.int8(3), "t": np.float32(0.01), "u": np.uint8(7)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        helper.make_node("MatMulInteger", ["q", "w", "qz"], ["i"], "dynamic"),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("Transpose", ["a"], ["at"]),
        helper.make_node("QLinearMatMul", ["a", "s", "z", "at", "s", "z", "s", "z"], ["y"], "both"),
        helper.make_node("QuantizeLinear", ["x", "t"], ["e"]),
        helper.make_node("QLinearMatMul", ["e", "t", "u", "e", "t", "u", "t", "u"], ["v"], "bytes"),
    ]
    x, port = np.eye(3, dtype=np.float32), helper.make_tensor_value_info
    held = {"w": WEIGHTS, **scale}
    graph = helper.make_graph(
        nodes,
        "types",
        [port("x", TensorProto.FLOAT, (3, 3))],
        [onnx.ValueInfoProto(name=name) for name in ("i", "y", "v")],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in held.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    frame = simdnn.porting(made, {"x": x}, machines=["hsw", "icx"])
    assert dict(zip(frame.node, frame["types"], strict=True)) == {"dynamic": "u8:s8", "both": "s8:s8", "bytes": "u8:u8"}


def test_weights_of_u8_and_of_seven_bits_part_nowhere() -> None:
    for weights in (WEIGHTS.view(np.uint8), np.clip(WEIGHTS, -64, 64)):
        frame = simdnn.porting(model(weights), {"x": SOURCE}, machines=["hsw", "skx", "icx"])
        assert not frame.saturated.any() and not frame.differs.any() and not frame.helps.any()


def test_floats_of_an_unknown_order_are_told_and_go_on() -> None:
    frame = simdnn.porting(model(WEIGHTS, floats=True), {"x": SOURCE}, machines=["hsw", "icx"])
    (told,) = frame.attrs["unclaimed"]
    assert "may take arithmetic that follows" in told and frame.node.tolist() == ["fc", "conv", "fc", "conv"]
    with pytest.raises(simdnn.Unimplemented, match="node 'conv'.*arithmetic that follows"):
        simdnn.load(model(WEIGHTS, floats=True)).run({"x": SOURCE}, machine="hsw", dispatch="onnxruntime")


def network_of_floats(kind: np.dtype[Any]) -> Any:
    """A Conv of 12 channels, one block of 16 or two of 8; and a Softmax of 40, sums in 16 lanes or 8."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "conv"),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["g"], "fc"),
        helper.make_node("Softmax", ["g"], ["y"], "softmax", axis=-1),
    ]
    held = {"k": rng.standard_normal((8, 12, 3, 3)), "w": rng.standard_normal((32, 40))}
    tensors = [numpy_helper.from_array(values.astype(kind), name) for name, values in held.items()]
    ports = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(kind), (1, 12, 4, 4))]
    graph = helper.make_graph(nodes, "floats", ports, [onnx.ValueInfoProto(name="y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@one_in(2)
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_nodes_of_floats_that_part_by_themselves_are_told_from_those_that_read_what_parted(kind: Any) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 12, 4, 4)).astype(kind)}
    frame = simdnn.porting(network_of_floats(np.dtype(kind)), feeds, machines=["hsw", "skx", "icx"])
    rows = frame.set_index(["machine", "node"])
    assert not frame.saturated.any() and not rows.loc["skx", "differs"].any()  # the same kernels of floats as icx
    own = rows.loc["hsw"].own
    assert own["conv"] > 0 and own["fc"] == 0 < rows.loc[("hsw", "fc"), "differs"]
    assert rows.loc[("hsw", "conv"), "max_difference"] < 1e-5 and frame.attrs["outputs"]["hsw"]["sqnr_db"] > 60
    assert "ORT_ENABLE_EXTENDED" in rows.loc[("hsw", "conv"), "helps"]
    if kind is np.float32:  # in f16 Softmax is its body, whose sums are the same everywhere
        assert own["softmax"] > 0 and not rows.loc[("hsw", "softmax"), "helps"]


def test_the_report_of_floats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(network_of_floats(np.dtype(np.float32)), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--machine", "hsw,icx", "--modes", "f32"]) == 0
    shown = capsys.readouterr().out
    assert "conv on hsw: session.graph_optimization_level=ORT_ENABLE_EXTENDED on both: no blocks of channels, " in shown
    assert "softmax on hsw: other kernels of onnxruntime for that CPU" in shown and "saturated  own" not in shown


def test_a_model_that_the_library_refuses_is_no_end_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], "relu")],
        "bf16",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, (2, 3))],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx"), "--machine", "hsw,icx", "--modes", "f32"]) == 0
    assert "Porting: not answered, " in capsys.readouterr().out


def test_lint_of_what_onnxruntime_does_in_floats() -> None:
    frame = simdnn.lint(model(WEIGHTS, floats=True), machine="hsw", modes=["as stored"], dispatch="onnxruntime")
    rows = frame.set_index("node")
    assert rows.loc["fc", "implementation"].startswith("gemm:avx2_int8_line") and rows.loc["fc", "saturates"]
    assert rows.loc["conv", "implementation"] == "conv:avx2" and "arithmetic that follows" in rows.loc["conv", "note"]


def test_zeros_alone_have_a_scale_of_one_in_onnxruntime() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    ports = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("x", 1), ("y", 2), ("s", 1), ("z", 2))]
    network = simdnn.load(helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:])))
    for dispatch, scale in (("onnxruntime", 1.0), ("fastest", 0.0)):
        r = network.run({"x": np.zeros((2, 3), np.float32)}, machine="icx", dispatch=dispatch)
        assert float(r.outputs["s"]) == scale and not r.outputs["y"].any()


@pytest.mark.parametrize("machines", [["hsw"], ["hsw", "b580"]])
def test_two_cpus_are_needed(machines: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        simdnn.porting(model(WEIGHTS), {"x": SOURCE}, machines=machines, dispatch="fastest")


def test_run_shows_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, feeds = tmp_path / "model.onnx", tmp_path / "feeds.npz"
    onnx.save(model(WEIGHTS), path)
    np.savez(feeds, x=SOURCE)
    command = ["run", str(path), "--machine", "hsw,icx", "--modes", "int8-exact", "--feeds", str(feeds)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Porting, by onnxruntime's bits" in shown and "reduce_range" in shown
    assert "outputs of hsw beside those of icx: 25.00% differ, by up to 128" in shown
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["porting"]
    assert found["reference"] == "icx" and found["nodes"][0]["helps"] and found["outputs"]["hsw"]["differs"] == 0.25
    assert main([*command[:3], "icx", *command[4:]]) == 0
    assert "Porting" not in capsys.readouterr().out


def test_products_that_are_stored_in_integers_and_multiplied_in_floats(capsys: Any, tmp_path: Path) -> None:
    """A Conv behind DequantizeLinear nodes and without a QuantizeLinear: the product after it differs, it does not."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["k", "s", "zb"], ["kd"]),
        helper.make_node("Conv", ["d", "kd"], ["c"], "conv"),
        helper.make_node("QuantizeLinear", ["c2", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", "q s z b s zb s z".split(), ["y"], "fc"),
    ]
    nodes.insert(3, helper.make_node("Flatten", ["c"], ["c2"], axis=3))
    held = {"s": np.float32(1), "z": np.uint8(0), "zb": np.int8(0), "k": np.ones((1, 1, 1, 1), np.int8), "b": WEIGHTS}
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in held.items()]
    ports = [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 1, 2, 3))]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": SOURCE.reshape(1, 1, 2, 3)}
    frame = simdnn.porting(made, feeds, machines=["hsw", "icx"]).set_index(["node", "machine"])
    assert frame["computes"].to_dict() == {
        ("conv", "hsw"): "f32",
        ("conv", "icx"): "f32",
        ("fc", "hsw"): "s8",
        ("fc", "icx"): "s8",
    }
    onnx.save(made, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", **feeds)
    main(["run", str(tmp_path / "m.onnx"), "--machine", "hsw,icx", "--feeds", str(tmp_path / "x.npz")])
    told = capsys.readouterr().out
    assert "1 of 2 nodes are the same on all machines" in told
    assert "1 of 2 nodes (33% of the MACs) are multiplied in floats by onnxruntime" in told
