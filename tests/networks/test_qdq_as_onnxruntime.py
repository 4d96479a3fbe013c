"""Quantize-dequantize graphs as onnxruntime runs them: types, operators on integers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn.networks.passes.qdq_as_onnxruntime import as_run  # noqa: E402
from tests.effort import one_in  # noqa: E402
from tests.networks import peer  # noqa: E402

SIZES = [2, 4, 6, 6]


def network(nodes: list[Any], constants: dict[str, Any], outputs: tuple[str, ...] = ("y",)) -> simdnn.Network:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    ports = [onnx.ValueInfoProto(name=name) for name in outputs]
    source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SIZES)
    graph = helper.make_graph(nodes, "g", [source], ports, tensors)
    return simdnn.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def through(values: str, name: str) -> list[Any]:
    """A tensor in integers and back."""
    return [
        helper.make_node("QuantizeLinear", [values, "s", "z"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", "s", "z"], [name]),
    ]


def kinds(net: simdnn.Network, *kept: str) -> list[str]:
    return [node.op for node in as_run(net.graph, kept).nodes]


@pytest.mark.parametrize("op", ["AveragePool", "LeakyRelu", "GlobalAveragePool", "Sigmoid", "Softmax", "Add", "Concat"])
def test_an_operator_between_integers_is_one_on_integers(op: str) -> None:
    known: dict[str, Any] = {"AveragePool": {"kernel_shape": [2, 2]}, "Concat": {"axis": 1}}
    reads = ["a"] if op not in ("Add", "Concat") else ["a", "b"]
    sources = [node for name in reads for node in through("x", name)]
    made = helper.make_node(op, reads, ["t"], **known.get(op, {}))
    net = network([*sources, made, *through("t", "y")], {"s": np.float32(0.1), "z": np.uint8(7)})
    wanted = [f"QLinear{op}", "DequantizeLinear"]
    assert kinds(net) == ["QuantizeLinear", *wanted]  # of two that are alike one is left
    assert op in kinds(net, "t")  # whose values somebody asks for
    x = {"x": np.random.default_rng(0).standard_normal(SIZES).astype(np.float32)}
    own, other = (net.run(x, machine="icx", dispatch=rule).outputs["y"] for rule in ("onnxruntime", "fastest"))
    assert own.shape == other.shape and np.abs(own - other).max() < 0.11


def test_a_relu_between_stays_where_it_cuts() -> None:
    relu = helper.make_node("Relu", ["t"], ["r"])
    add = helper.make_node("Add", ["a", "b"], ["t"])
    for zero, wanted in ((0, "QLinearAdd"), (7, "Relu")):
        nodes = [*through("x", "a"), *through("x", "b"), add, relu, *through("r", "y")]
        found = kinds(network(nodes, {"s": np.float32(0.1), "z": np.uint8(zero)}))
        assert wanted in found and ("Relu" in found) == (zero > 0)


def test_what_is_added_to_a_product_need_not_be_a_bias() -> None:
    """A number a row, as many as there are columns; and the product itself."""
    rng = np.random.default_rng(0)
    weights, rows = rng.integers(-3, 4, (144, 2)).astype(np.int8), np.float32([[30], [-70]])
    constants = {"s": np.float32(1), "z": np.uint8(128), "w": weights, "rows": rows}
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), *through("f", "a")]
    nodes.append(helper.make_node("DequantizeLinear", ["w", "s"], ["wd"]))
    nodes += [helper.make_node("Gemm", ["a", "wd", "rows"], ["y"]), helper.make_node("MatMul", ["a", "wd"], ["t"])]
    nodes.append(helper.make_node("Add", ["t", "t"], ["v"]))
    x = rng.integers(-9, 9, SIZES).astype(np.float32)
    made = network(nodes, constants, ("y", "v")).run({"x": x}, machine="icx", dispatch="onnxruntime").outputs
    product = x.reshape(2, -1) @ weights
    assert (made["y"] == product + rows).all() and (made["v"] == 2 * product).all()


def test_signed_integers_that_one_node_reads_become_unsigned() -> None:
    """With two readers they stay, and onnxruntime then multiplies floats: no pair saturates."""
    constants = {"s": np.float32(0.1), "z": np.int8(-3), "w": np.ones((4, 4, 1, 1), np.int8), "ws": np.float32(0.1)}
    weights = helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"])
    conv = helper.make_node("Conv", ["a", "wd"], ["t"], "conv")
    nodes = [*through("x", "a"), weights, conv, *through("t", "y")]
    one = network(nodes, constants, ("y",))
    two = network([*nodes, helper.make_node("Abs", ["a"], ["v"])], constants, ("y", "v"))
    types = []
    for net in (one, two):
        graph = as_run(net.graph)
        types.append([graph.constants[n.inputs[2]].dtype.name for n in graph.nodes if n.op == "QuantizeLinear"])
    assert types == [["uint8"], ["int8"]]
    x = {"x": np.full(SIZES, 12.0, np.float32)}
    made = [net.run(x, machine="hsw", dispatch="onnxruntime") for net in (one, two)]
    kernels = [next(run.implementation for run in r.nodes if run.node.name == "conv") for r in made]
    assert "int8" in kernels[0] and "int8" not in kernels[1]


@pytest.mark.parametrize(("op", "dtype", "block"), [("MatMul", "int8", 0), ("Gemm", "uint8", 0), ("MatMul", "int4", 2)])
def test_floats_by_dequantized_weights_are_another_product(op: str, dtype: str, block: int) -> None:
    """onnxruntime quantizes their sources, too, and never forms a product of floats."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 7, (6, 3)).astype(dtype if dtype != "int4" else np.int8)
    if dtype == "int4":
        import ml_dtypes

        codes = np.resize(codes, (32, 3)).astype(ml_dtypes.int4)
    scale = np.full((2, 3), 0.5, np.float32) if block else np.float32(0.5)
    options: dict[str, Any] = {"axis": 0, "block_size": 16} if block else {}
    flat = helper.make_node("Reshape", ["x", "shape"], ["v"])
    weights = helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], **options)
    product = helper.make_node(op, ["v", "wd"], ["y"])
    shape = np.array([-1, len(codes)])
    net = network([flat, weights, product], {"w": codes, "ws": scale, "shape": shape})
    assert "MatMulNBits" in kinds(net)
    x = rng.standard_normal(SIZES).astype(np.float32)
    r = net.run({"x": x}, machine="hsw", dispatch="onnxruntime")
    assert "nbits:avx2" in str(r.to_frame().implementation.tolist())
    wanted = x.reshape(-1, len(codes)) @ (codes.astype(np.float32) * 0.5)
    assert 0 < np.abs(r.outputs["y"] - wanted).max() < 0.02 * np.abs(wanted).max()
    rewritten = simdnn.Network(as_run(net.graph)).run({"x": x}, machine="hsw", attr=simdnn.Attr(apply_to_int=True))
    np.testing.assert_allclose(rewritten.outputs["y"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm"])
@pytest.mark.parametrize("relu", [False, True])
def test_weights_of_floats_between_integers_are_quantized(op: str, relu: bool) -> None:
    """As onnxruntime does when it loads a model: s8 over their own range, a bias with the scale of the sums."""
    rng = np.random.default_rng(5)
    shape = {"Conv": (6, 4, 3, 3), "ConvTranspose": (4, 6, 2, 2), "Gemm": (144, 6)}[op]
    constants: dict[str, Any] = {"w": (rng.standard_normal(shape) * 0.1 + 0.05).astype(np.float32)}
    constants |= {
        "b": rng.standard_normal(6).astype(np.float32),
        "s": np.float32(0.05),
        "z": np.uint8(0 if relu else 90),
    }
    nodes = through("x", "a")
    if op == "Gemm":
        nodes += [helper.make_node("Flatten", ["a"], ["a2"]), *through("a2", "a3")]
    nodes.append(helper.make_node(op, ["a3" if op == "Gemm" else "a", "w", "b"], ["t"]))
    nodes += [helper.make_node("Relu", ["t"], ["r"])] * relu
    net = network([*nodes, *through("r" if relu else "t", "y")], constants)
    stored = as_run(net.graph)
    assert any(values.dtype == np.int8 for values in stored.constants.values())
    assert all(values.dtype != np.int8 for values in as_run(net.graph, ["t"]).constants.values())
    x = {"x": rng.standard_normal(SIZES).astype(np.float32)}
    place = peer.ALIKE if op != "ConvTranspose" else {"machine": "icx", "dispatch": "onnxruntime"}
    found = net.run(x, **place).outputs["y"]
    wanted = peer.output(net.source, x)
    assert found.tobytes() == wanted.tobytes()
    assert np.abs(net.run(x, machine=place["machine"]).outputs["y"] - wanted).max() < 0.2


@pytest.mark.parametrize(("high", "ops"), [(20.0, ["QConv"]), (2.0, ["QConv", "Clip", "QuantizeLinear"])])
def test_a_clip_that_integers_never_meet_keeps_no_product_from_them(high: float, ops: list[str]) -> None:
    """u8 with a scale of 0.05 and a zero point of 90 ends at 8.25."""
    constants: dict[str, Any] = {"s": np.float32(0.05), "z": np.uint8(90), "lo": np.float32(-5), "hi": np.float32(high)}
    constants |= {"w": np.ones((4, 4, 1, 1), np.int8), "ws": np.float32(0.1), "wz": np.int8(0)}
    weights = helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"])
    nodes = [*through("x", "a"), weights, helper.make_node("Conv", ["a", "wd"], ["t"])]
    net = network([*nodes, helper.make_node("Clip", ["t", "lo", "hi"], ["c"]), *through("c", "y")], constants)
    found = [node.op for node in net.graph.nodes if "Dequantize" not in node.op]
    assert found[1:] == ops
    x = {"x": np.full(SIZES, 30, np.float32)}  # which is cut to 8.25; four of them times 0.1 are 3.3
    assert np.allclose(net.run(x, machine="icx").outputs["y"], min(high, 3.3), atol=1e-5)


#: models of a product with arithmetic behind it (tests/vectors/onnxruntime/behind.npz), named by operator, source,
#: whether weights are constants, what follows, and dimensions; and the operators that onnxruntime makes of them
BEHIND = {
    "gemm_u16_fixed_sumi2_q": "Gemm",
    "gemm_u8_fixed_reluadd12": "Gemm Relu Add",
    "gemm_u8_fixed_sumi2": "Gemm",
    "gemm_u8_open_mul12": "QMatMul Mul",
    "matmul_f32_fixed_addvrelu3_q": "MatMulNBits Relu",
    "matmul_f32_fixed_addvrelumul12": "MatMulBias Relu Mul",
    "matmul_f32_fixed_clip6mul13": "MatMul Clip Mul",
    "matmul_u16_fixed_addb2_q": "MatMulNBits",
    "matmul_u16_fixed_addi2": "Gemm",
    "matmul_u16_open_mul1mul13": "FusedMatMul",
    "matmul_u8_fixed_addi3": "QMatMul Add",
    "matmul_u8_fixed_reluadd12": "MatMul Relu Add",
    "matmul_u8_open_addireluaddv2": "Gemm Relu Add",
    "matmul_u8_open_addv2_q": "QMatMul",
    "matmul_u8_open_div13_q": "QMatMul Div",
    "matmul_u8_open_mul12": "QMatMul Mul",
    "conv_u16_s8_q": "QConv",
    "conv_u8_s4_columns_relu_q": "Conv Relu",
    "convtranspose_s8_s8_columns_q": "ConvTranspose",
    "conv_u8_f32_mul_q": "QConv",
    "gemm_u16_u4_relu_q": "MatMulNBits Relu",
}
STORED = np.load(Path(__file__).parents[1] / "vectors" / "onnxruntime" / "behind.npz")
MOVES = ("QuantizeLinear", "DequantizeLinear", "Identity")


def recorded(name: str) -> simdnn.Network:
    return simdnn.load(onnx.load_from_string(STORED[f"{name}/model"].tobytes()))


def test_what_follows_a_product_decides_how_it_is_computed() -> None:
    for name, wanted in BEHIND.items():
        net = recorded(name)
        found = [node.op for node in as_run(net.graph, (), net._shapes).nodes]
        assert " ".join(op for op in found if op not in MOVES) == wanted, name


@one_in(16)
@pytest.mark.parametrize("name", BEHIND)
def test_recorded_products_with_arithmetic_behind_them(name: str) -> None:
    feeds = {key.split("/")[2]: STORED[key] for key in STORED if key.startswith(f"{name}/feeds/")}
    found = recorded(name).run(feeds, machine="hsw", dispatch="onnxruntime").outputs["y"]
    assert found.tobytes() == STORED[f"{name}/avx2"].tobytes()
