"""Networks under dispatch="onnxruntime" beside onnxruntime on this host: what it does with whole graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")
onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn import Unimplemented  # noqa: E402
from simdnn.networks.kernels import Kernels  # noqa: E402
from simdnn.networks.opset import shapes_of  # noqa: E402
from simdnn.networks.passes.common_subexpressions import once  # noqa: E402
from simdnn.networks.passes.qdq_as_onnxruntime import as_run  # noqa: E402
from tests.effort import one_in  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.peer import Arrays, differs, model  # noqa: E402

FLOAT = onnx.TensorProto.FLOAT


# -- products of floats -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "beside"),
    [((6, 40), (6, 24)), ((6, 40), (6, 1)), ((2, 3, 40), (2, 3, 24)), ((2, 3, 40), (1, 1, 24)), ((2, 3, 300), (24,))],
)
def test_what_is_added_to_a_product(source: tuple[int, ...], beside: tuple[int, ...]) -> None:
    """Whether onnxruntime takes it into the product changes nothing where K is one part."""
    rng = np.random.default_rng(1)
    x, w, c = (rng.standard_normal(size).astype(np.float32) for size in (source, (source[-1], 24), beside))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["c", "t"], ["y"])]
    assert not differs(model(nodes, {"x": x}, {"w": w, "c": c}), {"x": x})
    if source[-1] < 256 and len(beside) > 1:
        assert not differs(model(nodes, {"x": x, "c": c}, {"w": w}), {"x": x, "c": c})


def test_a_bias_of_sizes_that_a_model_leaves_open() -> None:
    """There onnxruntime adds it behind the sums, if the source has more than two dimensions."""
    rng = np.random.default_rng(1)
    x, w, c = (rng.standard_normal(size).astype(np.float32) for size in ((2, 3, 300), (300, 24), 24))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "c"], ["y"])]
    assert not differs(model(nodes, {"x": x}, {"w": w, "c": c}, open_sizes=True), {"x": x})
    flat, short = x[0], x[..., :200].copy()
    assert not differs(model(nodes, {"x": flat}, {"w": w, "c": c}, open_sizes=True), {"x": flat})
    assert not differs(model(nodes, {"x": short}, {"w": w[:200], "c": c}, open_sizes=True), {"x": short})


@pytest.mark.parametrize(("channels", "groups", "kernel", "stride"), [(16, 1, 3, 1), (20, 1, 1, 1), (8, 4, 3, 2)])
def test_convolutions_with_weights_that_are_no_constants(channels: int, groups: int, kernel: int, stride: int) -> None:
    """Products of matrices, whatever their channels."""
    rng = np.random.default_rng(2)
    shapes = {"x": (1, channels, 7, 6), "w": (16, channels // groups, kernel, kernel), "b": (16,)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    where: Arrays = {"group": groups, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "kernel_shape": [kernel] * 2}
    assert not differs(model([helper.make_node("Conv", ["x", "w", "b"], ["y"], **where)], feeds, {}), feeds)


@pytest.mark.parametrize("channels", [4, 6, 12, 16])
def test_depthwise_convolutions_of_floats(channels: int) -> None:
    """In blocks of channels where those are a multiple of four; else by a product of a vector each."""
    rng = np.random.default_rng(7)
    w = rng.standard_normal((channels, 1, 3, 3)).astype(np.float32)
    feeds = {"x": rng.standard_normal((1, channels, 6, 7)).astype(np.float32)}
    made = model([helper.make_node("Conv", ["x", "w"], ["y"], group=channels, pads=[1] * 4)], feeds, {"w": w})
    assert not differs(made, feeds)


@pytest.mark.parametrize(("op", "biased"), [("Conv", False), ("Conv", True), ("ConvTranspose", True)])
def test_a_folded_batch_normalization_is_rounded_at_each_step(op: str, biased: bool) -> None:
    """Elsewhere the new weights are computed in f64 and rounded once."""
    rng = np.random.default_rng(5)
    names = ("scale", "shift", "mean", "variance")
    constants: Arrays = {name: rng.random(8).astype(np.float32) + np.float32(0.1) for name in names}
    transposed = op == "ConvTranspose"
    shape, groups = ((4, 4, 3, 3), {"group": 2}) if transposed else ((8, 4, 3, 3), {})
    constants |= {"w": rng.standard_normal(shape).astype(np.float32), "b": constants["shift"] - 1}
    x = rng.standard_normal((1, 4, 6, 6)).astype(np.float32)
    reads = ["x", "w", "b"] if biased else ["x", "w"]
    constants = constants if biased else {name: v for name, v in constants.items() if name != "b"}
    nodes = [helper.make_node(op, reads, ["t"], **groups), helper.make_node("BatchNormalization", ["t", *names], ["y"])]
    made = model(nodes, {"x": x}, constants)
    assert not differs(made, {"x": x})
    if transposed:
        return
    once_rounded = simdnn.load(made).run({"x": x}, machine="icx", dispatch="conv:avx512_core_nchwc")
    assert once_rounded.outputs["y"].tobytes() != peer.output(made, {"x": x}).tobytes()


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "HardSigmoid", "HardSwish"])
def test_functions_of_floats(op: str) -> None:
    """Eight thousand values, and the odd ones: approximations and their roundings are MLAS's."""
    rng = np.random.default_rng(6)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 9, -9, 18, -18, 1e-40, 3e38]
    x = np.concatenate([rng.normal(size=4000) * 4, rng.normal(size=2000) / 100, np.linspace(-20, 20, 2001), odd])
    feeds = {"x": x.astype(np.float32)}
    made = model([helper.make_node(op, ["x"], ["y"])], feeds, {})
    wanted, found = peer.output(made, feeds), simdnn.load(made).run(feeds, **peer.ALIKE).outputs["y"]
    assert np.array_equal(found, wanted, equal_nan=True)
    other = simdnn.load(made).run(feeds, **{**peer.ALIKE, "dispatch": "fastest"}).outputs["y"]
    assert not np.array_equal(other, wanted, equal_nan=True)


# -- integers ---------------------------------------------------------------------------------------------------------
def quantized(values: str, name: str, zero: str = "z") -> list[Any]:
    return [
        helper.make_node("QuantizeLinear", [values, "s", zero], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", "s", zero], [name]),
    ]


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_of_floats_with_a_quantizer_behind_them_are_integers(per_channel: bool) -> None:
    """AddQDQPairToWeight in onnxruntime's quantizer, and what training with quantization exports."""
    rng = np.random.default_rng(4)
    w = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    by = (np.abs(w).max((1, 2, 3)) if per_channel else np.abs(w).max()) / np.float32(127)
    constants = {"w": w, "s": np.float32(0.02), "z": np.uint8(128), "ws": by, "wz": np.zeros_like(by, np.int8)}
    nodes = [
        *quantized("x", "a"),
        helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["a", "wd"], ["t"]),
        *quantized("t", "y"),
    ]
    feeds = {"x": (rng.standard_normal((1, 4, 6, 6)) * 2).astype(np.float32)}
    made = model(nodes, feeds, constants)
    assert not differs(made, feeds)
    net = simdnn.load(made)
    assert net.is_integer and [node.op for node in net.graph.nodes] == ["QuantizeLinear", "QConv", "DequantizeLinear"]
    for rule in ("fastest", "onnxruntime"):
        runs = net.run(feeds, machine="hsw", dispatch=rule).nodes
        assert next(run for run in runs if run.node.op == "QConv").implementation.startswith("conv:avx2_int8")


@pytest.mark.parametrize(
    ("steps", "zero", "rows", "integers"),
    [
        (["Add"], 128, (3, 40), True),
        (["Add", "Identity"], 128, (3, 40), True),
        (["Add", "Relu"], 0, (3, 40), True),
        (["Add", "Relu"], 0, (2, 3, 40), False),  # a Reshape stands between
        (["Add", "Relu"], 128, (3, 40), False),
        (["Relu"], 128, (3, 40), False),
        (["Relu", "to floats"], 128, (3, 40), True),
    ],
)
def test_products_by_column_are_of_integers_where_a_quantizer_follows(
    steps: list[str], zero: int, rows: tuple[int, ...], integers: bool
) -> None:
    """Weights with a scale a column, what is added floats; without VNNI their pairs saturate."""
    rng = np.random.default_rng(len(steps) + zero)
    held: Arrays = {"w": rng.choice([-128, 127, 126], (40, 6)).astype(np.int8), "b": np.float32(rng.standard_normal(6))}
    held |= {"s": np.float32(0.02), "z": np.uint8(128), "ws": np.float32(rng.uniform(0.01, 0.05, 6))}
    held |= {"wz": np.zeros(6, np.int8), "ys": np.float32(0.7), "yz": np.uint8(zero)}
    nodes = [*quantized("x", "a"), helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1)]
    nodes.append(helper.make_node("MatMul", ["a", "wd"], ["0"]))
    ops = [op for op in steps if op != "to floats"]
    nodes += [helper.make_node(op, [str(i), *["b"] * (op == "Add")], [str(i + 1)]) for i, op in enumerate(ops)]
    if "to floats" not in steps:
        nodes.append(helper.make_node("QuantizeLinear", [str(len(ops)), "ys", "yz"], ["q"]))
        nodes.append(helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["y"]))
    else:
        nodes[-1].output[0] = "y"
    feeds = {"x": np.float32(rng.standard_normal(rows) * 3)}
    made = model(nodes, feeds, held)
    assert not differs(made, feeds)
    runs = simdnn.load(made).run(feeds, machine="hsw", dispatch="onnxruntime").nodes
    assert any("int8" in run.implementation for run in runs) == integers


def test_quantizers_that_repeat_one_another_are_one() -> None:
    """DedicatedQDQPair: both convolutions then read one tensor of s8, which stays so: they are ones of floats."""
    nodes = [*quantized("x", "a"), *quantized("x", "b"), helper.make_node("Identity", ["a"], ["u"])]
    nodes += [helper.make_node("Sub", ["u", "b"], ["y"])]
    net = simdnn.load(model(nodes, {"x": np.ones(2, np.float32)}, {"s": np.float32(0.1), "z": np.int8(3)}))
    assert [node.op for node in once(net.graph).nodes] == ["QuantizeLinear", "DequantizeLinear", "Identity", "Sub"]
    assert len(once(net.graph, ["b_q", "b"]).nodes) == len(net.graph.nodes)
    assert [node.op for node in as_run(net.graph).nodes].count("QuantizeLinear") == 1
    assert not net.run({"x": np.ones(2, np.float32)}, machine="hsw", dispatch="onnxruntime").outputs["y"].any()


@pytest.mark.parametrize("zeros", [(0, 0), (3, 3), (3, -5)])
def test_zero_points_of_their_own_take_exactness_from_one_channel_a_group(zeros: tuple[int, int]) -> None:
    """Two taps of 255 by 127 saturate as a pair where channels differ in their zero points, as a product does."""
    x, w = np.full((1, 2, 1, 3), 255, np.uint8), np.full((2, 1, 1, 2), 127, np.int8)
    constants = {
        "w": w,
        **dict.fromkeys(("s", "ws", "ys"), np.float32(1)),
        "xz": np.uint8(0),
        "wz": np.array(zeros, np.int8),
        "yz": np.uint8(0),
    }
    constants["ws"], constants["ys"] = np.ones(2, np.float32), np.float32(500)
    node = helper.make_node("QLinearConv", ["x", "s", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], group=2)
    made = model([node], {"x": x}, constants)
    assert not differs(made, {"x": x})
    net = simdnn.load(made)
    for machine, most in (("icx", 2 * 255 * 127), ("hsw", 32767 if zeros[0] != zeros[1] else 2 * 255 * 127)):
        found = net.run({"x": x}, machine=machine, dispatch="onnxruntime").outputs["y"]
        assert found[0, :, 0, 0].tolist() == [round((most - 2 * 255 * zero) / 500) for zero in zeros]


@pytest.mark.parametrize(("source", "weights"), [(np.uint16, np.int8), (np.uint8, "int4")])
@pytest.mark.parametrize("shared", [0.1, 0.11])
def test_weights_that_become_blocks(source: Any, weights: Any, shared: float) -> None:
    """Beside sources of 16 bits they are those of MatMulNBits, which quantizes its source again; not beside such of 8,
    nor where their scale is the value of another constant.
    """
    rng = np.random.default_rng(4)
    kind = getattr(ml_dtypes, weights) if isinstance(weights, str) else weights
    codes = rng.integers(-7, 8, (45, 6)).astype(np.int8).astype(kind)
    constants = {"w": codes, "s": np.float32(0.1), "ws": np.float32(shared), "z": np.array(3, source)}
    read = helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"])
    nodes = [*quantized("x", "a"), read, helper.make_node("MatMul", ["a", "wd"], ["t"]), *quantized("t", "y")]
    x = {"x": (3 * rng.standard_normal((3, 45))).astype(np.float32)}
    assert not differs(model(nodes, x, constants, opset=21), x)


@one_in(2)
@pytest.mark.parametrize(("bits", "block", "level"), [(4, 32, 4), (4, 128, 0), (8, 64, 4), (8, 16, 0), (4, 1024, 4)])
@pytest.mark.parametrize("rows", [1, 4])
def test_weights_in_blocks(bits: int, block: int, level: int, rows: int) -> None:
    rng = np.random.default_rng(bits * block + level)
    k, n = block + 37, 6
    count = -(-k // block)
    constants = {
        "b": rng.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8),
        "s": rng.random(n * count).astype(np.float32),
        "z": rng.integers(0, 256, n * -(-count * bits // 8)).astype(np.uint8),
    }
    where = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "b", "s", "z"], ["y"], domain="com.microsoft", **where)
    x = {"x": rng.standard_normal((2, rows, k)).astype(np.float32)[: 2 if rows > 1 else 1]}
    made = model([node], x, constants)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not differs(made, x)


def test_a_nan_that_some_lanes_forget_is_refused() -> None:
    """Beside it, where no lane decides, the bits are the library's."""
    x = np.ones((2, 32), np.float32)
    blocks = {"b": np.full((6, 1, 16), 0x59, np.uint8), "s": np.ones(6, np.float32)}
    where: dict[str, Any] = {"K": 32, "N": 6, "bits": 4, "block_size": 32, "accuracy_level": 4}
    product = model(
        [helper.make_node("MatMulNBits", ["x", *blocks], ["y"], domain="com.microsoft", **where)], {"x": x}, blocks
    )
    product.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for made in (product, model([helper.make_node("Hardmax", ["x"], ["y"])], {"x": x}, {})):
        assert not differs(made, {"x": x})
        broken = np.where(np.arange(64).reshape(2, 32) == 5, np.float32("nan"), x)
        with pytest.raises(Unimplemented, match="lanes"):
            simdnn.load(made).run({"x": broken}, machine="icx", dispatch="onnxruntime")
        assert simdnn.load(made).run({"x": broken}, machine="icx").outputs["y"].size


@pytest.mark.parametrize("perm", [(0, 2, 1), (1, 2, 0), (1, 0, 2), (2, 0, 1)])
@pytest.mark.parametrize("rows", [1, 3])
def test_transposed_operands(perm: tuple[int, ...], rows: int) -> None:
    """onnxruntime reads them as they lie, which another kernel for one row does."""
    rng = np.random.default_rng(5)
    wanted = (2, 40, 6)
    shape = [0, 0, 0]
    for axis, place in enumerate(perm):
        shape[place] = wanted[axis]
    x = {"x": rng.standard_normal((2, rows, 40)).astype(np.float32), "w": rng.standard_normal(shape).astype(np.float32)}
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=list(perm)),
        helper.make_node("MatMul", ["x", "t"], ["p"]),
    ]
    nodes.append(helper.make_node("Mul", ["p", "c"], ["y"]))
    assert not differs(model(nodes, x, {"c": np.float32(0.3)}), x)


@pytest.mark.parametrize("shape", [(300,), (2, 300, 5), (1, 300, 5)])
def test_constants_that_are_no_matrix_are_not_packed(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    x = {"x": rng.standard_normal((2, 3, 300)).astype(np.float32)}
    w = rng.standard_normal(shape).astype(np.float32)
    assert not differs(model([helper.make_node("MatMul", ["x", "w"], ["y"])], x, {"w": w}), x)


@one_in(2)
@pytest.mark.parametrize("where", [{"alpha": 0.3}, {"alpha": 0.3, "beta": 0.7}, {"transA": 1}, {"beta": 0.5}])
@pytest.mark.parametrize("constant", [True, False])
def test_factors_of_products_of_several_parts(where: dict[str, Any], constant: bool) -> None:
    rng = np.random.default_rng(7)
    a = rng.standard_normal((600, 3) if "transA" in where else (3, 600)).astype(np.float32)
    others = {
        "b": rng.standard_normal((600, 5)).astype(np.float32),
        "c": rng.standard_normal((3, 1)).astype(np.float32),
    }
    feeds = {"x": a} if constant else {"x": a, **others}
    node = helper.make_node("Gemm", ["x", "b", "c"], ["y"], **where)
    assert not differs(model([node], feeds, others if constant else {}), feeds)


# -- sums in the library's order --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("op", "attributes"), [("GlobalAveragePool", {}), ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1]})]
)
def test_means_in_its_order_run_no_kernel_and_cost_what_one_does(
    monkeypatch: pytest.MonkeyPatch, op: str, attributes: Arrays
) -> None:
    x = np.random.default_rng(8).standard_normal((2, 5, 7, 6)).astype(np.float32)
    made = model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": x}, {}, opset=17)
    ours = simdnn.load(made).run({"x": x}, **{**peer.ALIKE, "dispatch": "fastest"})
    monkeypatch.setattr(Kernels, "_run", lambda *given: pytest.fail("a kernel ran"))
    r = simdnn.load(made).run({"x": x}, **peer.ALIKE)
    assert r.outputs["y"].tobytes() == peer.output(made, {"x": x}).tobytes()
    assert r.cycles == ours.cycles and r.outputs["y"].tobytes() != ours.outputs["y"].tobytes()


# -- what exporters write ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dequantized", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_bias_of_weights_in_blocks_comes_ahead_of_their_zero_points(dequantized: bool, rows: int) -> None:
    rng = np.random.default_rng(rows)
    x = {"x": rng.standard_normal((1, rows, 64)).astype(np.float32)}
    held: Arrays = {"s": rng.random((2, 6)).astype(np.float32), "c": rng.standard_normal(6).astype(np.float32)}
    if dequantized:
        held["w"] = rng.integers(-8, 8, (64, 6)).astype(ml_dtypes.int4)
        nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["wd"], axis=0, block_size=32)]
        nodes.append(helper.make_node("MatMul", ["x", "wd"], ["t"]))
    else:
        held |= {"w": rng.integers(0, 256, (6, 2, 16)).astype(np.uint8), "s": held["s"].reshape(-1)}
        where = {"K": 64, "N": 6, "bits": 4, "block_size": 32, "accuracy_level": 4}
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["t"], domain="com.microsoft", **where)]
    made = model([*nodes, helper.make_node("Add", ["c", "t"], ["y"])], x, held, opset=21)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not differs(made, x)
    (node,) = as_run(simdnn.load(made).graph).nodes
    assert not any(node.inputs[3:5])  # zero points: the operator's own


def test_a_scale_made_of_a_size_is_a_constant() -> None:
    """As exporters write attention: queries and keys times sqrt(1 / sqrt(the last size)), which the model says."""
    rng = np.random.default_rng(8)
    feeds = {name: rng.standard_normal((1, 3, 5, 8)).astype(np.float32) for name in "qk"}
    held = {"last": np.array([-1]), "end": np.array([2**63 - 1]), "one": np.array([1], np.float32)}
    steps = [("Shape", ["q"], "n"), ("Slice", ["n", "last", "end"], "m"), ("Cast", ["m"], "f"), ("Sqrt", ["f"], "r")]
    steps += [("Div", ["one", "r"], "i"), ("Sqrt", ["i"], "h"), ("Mul", ["q", "h"], "a")]
    steps += [("Transpose", ["k"], "t"), ("Mul", ["t", "h"], "b"), ("MatMul", ["a", "b"], "y")]
    more: Arrays = {"Cast": {"to": FLOAT}, "Transpose": {"perm": [0, 1, 3, 2]}}
    made = model([helper.make_node(op, reads, [name], **more.get(op, {})) for op, reads, name in steps], feeds, held)
    assert not differs(made, feeds)
    net = simdnn.load(made)

    assert [node.op for node in as_run(net.graph, (), shapes_of(made)).nodes] == ["FusedMatMul"]
    # queries that are cut out, between places that are computed of sizes, and keys that are all of it
    cut = [
        ("Shape", ["w"], "d"),
        ("Gather", ["d", "last"], "e"),
        ("Div", ["e", "two"], "o"),
        ("Slice", "w z o last", "q"),
    ]
    held |= {"two": np.array([2]), "z": np.array([0])}
    steps = [*((op, reads.split() if isinstance(reads, str) else reads, made) for op, reads, made in cut), *steps]
    nodes = [helper.make_node(op, reads, [name], **more.get(op, {})) for op, reads, name in steps]
    wide = {"w": rng.standard_normal((1, 3, 5, 16)).astype(np.float32), "k": feeds["k"]}
    assert not differs(model(nodes, wide, held), wide)
    opened = model([helper.make_node("Shape", ["q"], ["y"])], {"q": feeds["q"]}, {}, open_sizes=True)
    assert simdnn.load(opened).run({"q": feeds["q"]}, **peer.ALIKE).outputs["y"].tolist() == [1, 3, 5, 8]


@one_in(3)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1, 1), (), (1,), (1, 1, 1, 1)])
@pytest.mark.parametrize("first", [False, True])
def test_constants_behind_a_convolution(biased: bool, op: str, shape: tuple[int, ...], first: bool) -> None:
    """A number a channel goes into weights or bias where it stands second, one without dimensions into weights."""
    rng = np.random.default_rng(len(shape))
    x = {"x": rng.standard_normal((1, 3, 6, 5)).astype(np.float32)}
    held: Arrays = {"w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "c": rng.standard_normal(shape)}
    held |= {"c": held["c"].astype(np.float32), "b": rng.standard_normal(8).astype(np.float32)}
    reads = ["x", "w", "b"] if biased else ["x", "w"]
    nodes = [helper.make_node("Conv", reads, ["t"], pads=[1] * 4)]
    nodes += [helper.make_node(op, ["c", "t"] if first else ["t", "c"], ["u"]), helper.make_node("Relu", ["u"], ["y"])]
    made = model(nodes, x, {name: value for name, value in held.items() if name != "b" or biased})
    assert not differs(made, x)
    folds = not first and (max(shape, default=1) == 8 or op == "Mul" and not shape)
    assert (len(as_run(simdnn.load(made).graph).nodes) == 2) is folds


def test_constants_behind_one_another_go_into_one_convolution() -> None:
    rng = np.random.default_rng(9)
    x = {"x": rng.standard_normal((1, 5, 9)).astype(np.float32)}
    held = {"w": rng.standard_normal((4, 5, 3)).astype(np.float32)}
    held |= {name: rng.standard_normal((4, 1)).astype(np.float32) for name in "abc"}
    nodes = [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "a"], ["u"])]
    nodes += [helper.make_node("Add", ["u", "b"], ["v"]), helper.make_node("Mul", ["v", "c"], ["y"])]
    made = model(nodes, x, held)
    assert not differs(made, x) and len(as_run(simdnn.load(made).graph).nodes) == 1


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("behind", ["Gelu", "sum"])
def test_a_bias_of_weights_in_blocks_goes_to_what_is_behind_it(own: bool, behind: str) -> None:
    """To a BiasGelu, and to a normalized sum, where the model itself has blocks: ahead of zero points else."""
    rng = np.random.default_rng(7)
    held: Arrays = {"b": rng.standard_normal(16).astype(np.float32), "g": np.ones(16, np.float32)}
    feeds: Arrays = {"x": rng.standard_normal((1, 5, 32)).astype(np.float32)}
    if own:
        held |= {"w": rng.integers(0, 256, (16, 2, 8)).astype(np.uint8), "s": np.full((16, 2), 0.03, np.float32)}
        sizes = {"K": 32, "N": 16, "bits": 4, "block_size": 16, "accuracy_level": 4}
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["p"], domain="com.microsoft", **sizes)]
    else:
        held |= {"w": rng.integers(0, 16, (32, 16)).astype(ml_dtypes.uint4), "s": np.full((2, 16), 0.03, np.float32)}
        held["z"] = rng.integers(0, 16, (2, 16)).astype(ml_dtypes.uint4)
        nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=16)]
        nodes += [helper.make_node("MatMul", ["x", "d"], ["p"])]
    nodes += [helper.make_node("Add", ["p", "b"], ["a"])]
    if behind == "Gelu":
        nodes += [helper.make_node("Gelu", ["a"], ["y"])]
    else:
        feeds["r"] = rng.standard_normal((1, 5, 16)).astype(np.float32)
        nodes += [
            helper.make_node("Add", ["a", "r"], ["t"]),
            helper.make_node("LayerNormalization", ["t", "g", "b"], ["y"]),
        ]
    made = model(nodes, feeds, held, opset=21)
    made.ir_version = 10
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not differs(made, feeds)


def test_casts_round_and_go_as_its_own() -> None:
    """Recorded of onnxruntime 1.32.0: to 4 bits what is rounded, f64 to f16 by way of f32, and no cast to bf16 that
    another follows, but one to integers ahead of truth values.
    """
    number = onnx.TensorProto
    cases: list[tuple[Any, list[int], list[float]]] = [
        (np.float32([0.5, 1.5, -2.5, -0.49, 7.5]), [number.INT4, number.FLOAT], [1, 2, -3, 0, -8]),
        (
            np.float64([5.4448842973897627e-05, 212.8125001192093]),
            [number.FLOAT16, number.DOUBLE],
            [5.447864532470703e-05, 212.75],
        ),
        (np.float32([4.9968, -0.9987]), [number.BFLOAT16, number.INT8, number.FLOAT], [4, 0]),
        (np.float32([0.38, -0.7, 1]), [number.INT32, number.BOOL, number.FLOAT], [0, 0, 1]),
    ]
    for x, kinds, wanted in cases:
        names = ["x", *(f"t{i}" for i in range(len(kinds) - 1)), "y"]
        nodes = [helper.make_node("Cast", [a], [b], to=to) for a, b, to in zip(names, names[1:], kinds, strict=False)]
        made = model(nodes, {"x": x}, {}, opset=21)
        found = simdnn.load(made).run({"x": x}, machine="hsw", dispatch="onnxruntime").outputs["y"]
        assert found.tolist() == wanted
    astray = model([helper.make_node("Cast", ["x"], ["y"], to=number.FLOAT8E4M3FN, saturate=0)], {"x": x}, {})
    with pytest.raises(simdnn.Unimplemented, match="480 to 496 to a wrong f8_e4m3"):
        simdnn.load(astray).run({"x": np.float32([1, 485, 2])}, machine="hsw", dispatch="onnxruntime")
