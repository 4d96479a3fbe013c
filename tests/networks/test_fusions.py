"""Patterns of nodes that onnxruntime makes one node of, and biases of sizes that a model leaves open, beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from tests.effort import one_in  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.peer import differs, model  # noqa: E402

N = 24
Nodes = list[Any]
NUMBERS = {"two": 2, "half": 0.5, "one": 1, "eps": 1e-5, "root": np.sqrt(2), "least": 1 / np.sqrt(2)}
NUMBERS |= {"three": 3, "cubic": 0.044715, "tangent": np.sqrt(2 / np.pi)}


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def centred(x: str = "x", y: str = "y", axis: int = -1, square: str = "Pow") -> Nodes:
    """A LayerNormalization as exporters wrote it before opset 17."""
    return [
        node("ReduceMean", x, "m", axes=[axis]),
        node("Sub", f"{x} m", "d"),
        node("Pow", "d two", "p") if square == "Pow" else node("Mul", "d d", "p"),
        node("ReduceMean", "p", "v", axes=[axis]),
        node("Add", "v eps", "ve"),
        node("Sqrt", "ve", "s"),
        node("Div", "d s", "q"),
        node("Mul", "q g", "h"),
        node("Add", "h b", y),
    ]


def around_zero(*, inverted: str = "", gain: str = "q g") -> Nodes:
    head = [
        node("Pow", "x two", "p"),
        node("ReduceMean", "p", "v", axes=[-1]),
        node("Add", "v eps", "ve"),
        node("Sqrt", "ve", "s"),
    ]
    if not inverted:
        return [*head, node("Div", "x s", "q"), node("Mul", gain, "y")]
    inverse = node("Div", "one s", "i") if inverted == "Div" else node("Reciprocal", "s", "i")
    return [*head, inverse, node("Mul", "x i", "q"), node("Mul", gain, "y")]


def gelu(*, early: bool = False, x: str = "x", root: str = "Div") -> Nodes:
    ratio = node("Div", f"{x} root", "r") if root == "Div" else node("Mul", f"{x} least", "r")
    head = [ratio, node("Erf", "r", "n"), node("Add", "n one", "f")]
    if early:
        return [*head, node("Mul", f"{x} half", "h"), node("Mul", "h f", "y")]
    return [*head, node("Mul", f"{x} f", "h"), node("Mul", "h half", "y")]


def gelu_by_tanh(y: str = "t", *, late: bool = False) -> Nodes:
    inner = [node("Pow", "x three", "p"), node("Mul", "p cubic", "u"), node("Add", "x u", "s")]
    sums = [node("Mul", "s tangent", "v"), node("Tanh", "v", "n"), node("Add", "n one", "f")]
    if late:
        return [*inner, *sums, node("Mul", "x f", "h"), node("Mul", "h half", y)]
    return [*inner, *sums, node("Mul", "x half", "h"), node("Mul", "f h", y)]


LAYER = node("LayerNormalization", "a g b", "y", axis=-1)
CASES: dict[str, tuple[Nodes, list[str]]] = {
    "centred": (centred(), ["LayerNormalization"]),
    "centred, the last of three": (centred(axis=2), ["LayerNormalization"]),
    "squares by Mul": (centred(square="Mul"), []),
    "around zero": (around_zero(), ["SimplifiedLayerNormalization"]),
    "around zero, scale first": (around_zero(gain="g q"), ["SimplifiedLayerNormalization"]),
    "around zero, 1 / deviation": (around_zero(inverted="Div"), ["SimplifiedLayerNormalization"]),
    "around zero, by Reciprocal": (around_zero(inverted="Reciprocal"), []),
    "gelu": (gelu(), ["Gelu"]),
    "gelu, halved first": (gelu(early=True), ["Gelu"]),
    "gelu, by 1 / root": (gelu(root="Mul"), []),
    "gelu by tanh": ([*gelu_by_tanh(), node("Relu", "t", "y")], ["FastGelu"]),
    "gelu by tanh, an output": (gelu_by_tanh("y"), []),
    "gelu by tanh, halved last": ([*gelu_by_tanh(late=True), node("Relu", "t", "y")], []),
    "a product's gelu by tanh": ([node("MatMul", "z w", "x"), *gelu_by_tanh(), node("Relu", "t", "y")], ["FastGelu"]),
    "a sum": ([node("Add", "x z", "a"), LAYER], ["SkipLayerNormalization"]),
    "a sum, and its pieces": ([node("Add", "x z", "a"), *centred("a")], ["SkipLayerNormalization"]),
    "a sum, read twice": (
        [node("Add", "x z", "a"), node("LayerNormalization", "a g b", "t"), node("Add", "t a", "y")],
        [],
    ),
    "a sum with a bias": ([node("Add", "x c", "e"), node("Add", "e z", "a"), LAYER], ["SkipLayerNormalization"]),
    "a bias behind": ([node("Add", "x c", "e"), node("Add", "z e", "a"), LAYER], ["SkipLayerNormalization"]),
    "a sum with a constant": ([node("Add", "x c", "a"), LAYER], []),
    "a product's bias": (
        [node("MatMul", "x w", "m"), node("Add", "m c", "e"), node("Add", "e z", "a"), LAYER],
        ["SkipLayerNormalization"],
    ),
    "a product and gelu": ([node("MatMul", "x w", "m"), node("Add", "m c", "e"), *gelu(x="e")], ["Gelu"]),
}


@one_in(2)
@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_patterns(name: str, open_sizes: bool) -> None:
    nodes, made = CASES[name]
    rng = np.random.default_rng(len(name))
    read = {each for one in nodes for each in one.input} - {each for one in nodes for each in one.output}
    feeds = {key: rng.standard_normal((2, 5, N)).astype(np.float32) for key in ("x", "z") if key in read}
    held: dict[str, Any] = {key: rng.standard_normal(N).astype(np.float32) for key in "gbc"}
    held |= {key: np.float32(value) for key, value in NUMBERS.items()}
    held["w"] = rng.standard_normal((N, N)).astype(np.float32) / 5
    given = model(nodes, feeds, {key: value for key, value in held.items() if key in read}, 17, open_sizes)
    r = simdnn.load(given).run(feeds, **peer.ALIKE)
    assert r.outputs["y"].tobytes() == peer.output(given, feeds).tobytes()
    forms = {"LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization", "Gelu", "FastGelu"}
    own = {one.op_type for one in nodes}
    assert [run.node.op for run in r.nodes if run.node.op in forms - own] == made


@pytest.mark.parametrize("rank", [2, 4])
def test_sums_of_other_dimensions_stay_apart(rank: int) -> None:
    rng = np.random.default_rng(rank)
    feeds = {key: rng.standard_normal((2, 3, 4, N)[-rank:]).astype(np.float32) for key in ("x", "z")}
    held = {key: rng.standard_normal(N).astype(np.float32) for key in "gb"}
    given = model([node("Add", "x z", "a"), LAYER], feeds, held)
    r = simdnn.load(given).run(feeds, **peer.ALIKE)
    assert r.outputs["y"].tobytes() == peer.output(given, feeds).tobytes()
    assert [run.node.op for run in r.nodes] == ["Add", "LayerNormalization"]


@one_in(2)
@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("ends", ["", "b", "q", "bq"])
def test_products_of_dequantized_operands(rank: int, ends: str, open_sizes: bool) -> None:
    """A bias and a QuantizeLinear behind: QGemm with a bias of integers, or a product and a sum each by itself."""
    rng = np.random.default_rng(rank)
    held: dict[str, Any] = {"xs": np.float32(0.02), "xz": np.uint8(128), "ys": np.float32(0.05), "yz": np.uint8(120)}
    held |= {"w": rng.integers(-100, 100, (300, N)).astype(np.int8), "ws": np.float32(0.01), "wz": np.int8(0)}
    held["b"] = rng.standard_normal(N).astype(np.float32)
    steps = [("QuantizeLinear", "x xs xz", "xq"), ("DequantizeLinear", "xq xs xz", "xd")]
    steps += [("DequantizeLinear", "w ws wz", "wd"), ("MatMul", "xd wd", "t0")]
    steps += [("Add", "t0 b", "t1")] if "b" in ends else []
    steps += (
        [("QuantizeLinear", f"{steps[-1][2]} ys yz", "yq"), ("DequantizeLinear", "yq ys yz", "t2")]
        if "q" in ends
        else []
    )
    nodes = [node(op, inputs, "y" if at == len(steps) - 1 else out) for at, (op, inputs, out) in enumerate(steps)]
    read = {each for one in nodes for each in one.input}
    held = {key: value for key, value in held.items() if key in read}
    for _ in range(5):
        feeds = {"x": rng.standard_normal((2, 3, 300)[-rank:]).astype(np.float32)}
        given = model(nodes, feeds, held, 17, open_sizes)
        found = simdnn.load(given).run(feeds, **peer.ALIKE).outputs["y"]
        assert found.tobytes() == peer.output(given, feeds).tobytes()


def test_shapes_that_a_model_says() -> None:
    from simdnn.networks.opset import shapes_of

    feeds = {"x": np.zeros((2, 3, 8), np.float32)}
    nodes = [node("Relu", "x", "r"), node("Reshape", "r s", "y")]
    given = model(nodes, feeds, {"s": np.array([6, 8])}, 17, True)
    assert {key: shapes_of(given)[key] for key in "xry"} == {"x": ("N", 3, 8), "r": ("N", 3, 8), "y": (6, 8)}
    given.graph.node[0].op_type = "Nothing"
    assert shapes_of(given).get("y", (6, 8)) == (6, 8)


@pytest.mark.parametrize("rows", [1, 3])
def test_dequantized_weights_are_multiplied_as_they_lie(rows: int) -> None:
    """A Gemm by weights (N, K), whose bias of floats keeps it one of floats: one row has an order of its own."""
    rng = np.random.default_rng(rows)
    held: dict[str, Any] = {"xs": np.float32(0.02), "xz": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0)}
    held |= {"w": rng.integers(-100, 100, (N, 64)).astype(np.int8), "b": rng.standard_normal(N).astype(np.float32)}
    nodes = [node("QuantizeLinear", "x xs xz", "xq"), node("DequantizeLinear", "xq xs xz", "xd")]
    nodes += [node("DequantizeLinear", "w ws wz", "wd"), node("Gemm", "xd wd b", "t", transB=1), node("Tanh", "t", "y")]
    feeds = {"x": rng.standard_normal((rows, 64)).astype(np.float32)}
    given = model(nodes, feeds, held, 17)
    found = simdnn.load(given).run(feeds, **peer.ALIKE).outputs["y"]
    assert found.tobytes() == peer.output(given, feeds).tobytes()


def test_a_bias_by_another_name() -> None:
    """Exporters name equal constants by Identity; such a bias is a constant all the same."""
    rng = np.random.default_rng(4)
    feeds = {"x": rng.standard_normal((2, 5, 300)).astype(np.float32)}
    held = {"w": rng.standard_normal((300, N)).astype(np.float32), "b": rng.standard_normal(N).astype(np.float32)}
    nodes = [node("Identity", "b", "c"), node("MatMul", "x w", "m"), node("Add", "m c", "y")]
    given = model(nodes, feeds, held, 17)
    r = simdnn.load(given).run(feeds, **peer.ALIKE)
    assert r.outputs["y"].tobytes() == peer.output(given, feeds).tobytes()
    assert "MatMulBias" in [run.node.op for run in r.nodes]


@pytest.mark.parametrize("biased", [False, True])
def test_the_bias_of_a_dynamic_product_is_added_to_it(biased: bool, tmp_path: Any) -> None:
    """DynamicQuantizeMatMul takes it; a sum of floats that is normalized adds it behind both."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    rng = np.random.default_rng(5)
    feeds = {key: rng.standard_normal((2, 5, N)).astype(np.float32) for key in "xz"}
    held = {key: rng.standard_normal(N).astype(np.float32) for key in ("gbc" if biased else "gb")}
    held["w"] = rng.standard_normal((N, N)).astype(np.float32) / 5
    nodes = [node("MatMul", "x w", "m"), *([node("Add", "m c", "e")] if biased else [])]
    nodes += [node("Add", f"{nodes[-1].output[0]} z", "a"), LAYER]
    onnx.save(model(nodes, feeds, held, 17), tmp_path / "f.onnx")
    quantization.quantize_dynamic(tmp_path / "f.onnx", tmp_path / "q.onnx")
    given = onnx.load(tmp_path / "q.onnx")
    found = simdnn.load(given).run(feeds, **peer.ALIKE).outputs["y"]
    assert found.tobytes() == peer.output(given, feeds).tobytes()


@pytest.mark.parametrize(("heads", "steps"), [(1, 5), (3, 4), (2, 1)])
@pytest.mark.parametrize("ends", ["", "q"])
def test_attention_by_dequantized_weights(heads: int, steps: int, ends: str) -> None:
    """Weights that are no constants are multiplied head by head; a QuantizeLinear behind shows each last bit."""
    rng = np.random.default_rng(heads)
    width = 8 * heads
    held: dict[str, Any] = {"w": rng.integers(-127, 128, (width, 3 * width)).astype(np.int8), "ws": np.float32(0.007)}
    held |= {"wz": np.int8(3), "b": rng.standard_normal(3 * width).astype(np.float32), "ys": np.float32(0.01)}
    nodes = [node("DequantizeLinear", "w ws wz", "wd")]
    nodes.append(node("Attention", "x wd b", "a" if ends else "y", domain="com.microsoft", num_heads=heads))
    nodes += [node("QuantizeLinear", "a ys", "y")] if ends else []
    feeds = {"x": rng.standard_normal((2, steps, width)).astype(np.float32)}
    read = {each for one in nodes for each in one.input}
    given = model(nodes, feeds, {key: value for key, value in held.items() if key in read}, 17)
    given.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = simdnn.load(given).run(feeds, **peer.ALIKE).outputs["y"]
    assert found.tobytes() == peer.output(given, feeds).tobytes()


@one_in(3, "source")
@pytest.mark.parametrize("source", [(2, 5, 300), (5, 300), (300,)])
@pytest.mark.parametrize("beside", [(2, 5, 7), (5, 7), (1, 1, 7), (1, 7), (7,), (1,)])
@pytest.mark.parametrize("constant", [False, True])
def test_sums_behind_products_of_two_parts(source: tuple[int, ...], beside: tuple[int, ...], constant: bool) -> None:
    """A line begins the sums, and so does a matrix beside one of two dimensions; others are added to them."""
    rng = np.random.default_rng(len(source))
    feeds = {"x": rng.standard_normal(source).astype(np.float32)}
    held = {"w": rng.standard_normal((300, 7)).astype(np.float32)}
    (held if constant else feeds)["c"] = rng.standard_normal(beside).astype(np.float32)
    given = model([node("MatMul", "x w", "m"), node("Add", "m c", "y")], feeds, held, 17)
    r = simdnn.load(given).run(feeds, **peer.ALIKE)
    assert r.outputs["y"].tobytes() == peer.output(given, feeds).tobytes()
    begins = len(beside) == 1 and beside != (1,) or len(source) == len(beside) == 2
    assert (len(r.nodes) == 1) == begins


def test_sizes_that_constants_are_expanded_to_are_known() -> None:
    """As exporters write token types: what runtimes compute ahead, and what its sizes hang on."""
    rng = np.random.default_rng(0)
    held = {
        **{
            "one": np.array([1]),
            "wanted": np.array([1, 5]),
            "least": np.array([-1, -1]),
            "zeros": np.zeros((1, 1), int),
        },
        **{"table": rng.standard_normal((2, 16)).astype(np.float32), "two": np.array([2])},
        **{name: rng.standard_normal(16).astype(np.float32) for name in ("scale", "bias")},
    }
    parts = [
        helper.make_node("ConstantOfShape", ["two"], ["filled"], value=helper.make_tensor("", 7, [1], [1])),
        helper.make_node("Equal", ["wanted", "least"], ["same"]),
        helper.make_node("Where", ["same", "filled", "wanted"], ["sizes"]),
        helper.make_node("Expand", ["zeros", "sizes"], ["types"]),
        helper.make_node("Gather", ["table", "types"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "scale", "bias"], ["y"]),
    ]
    x = {"x": rng.standard_normal((1, 5, 16)).astype(np.float32)}
    assert not differs(model(parts, x, held), x)
