"""f16 models under dispatch="onnxruntime": where its casts stand, and its bits beside the library on this host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")
pytest.importorskip("onnx")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn.networks.opset import shapes_of  # noqa: E402
from simdnn.networks.passes.f16_casts import PREFIX, RUNNING  # noqa: E402
from simdnn.networks.passes.qdq_as_onnxruntime import as_run  # noqa: E402
from tests.networks.peer import differs, model  # noqa: E402

F16 = np.float16
X = {"x": np.linspace(-2, 2, 12, dtype=F16).reshape(3, 4)}


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def casts(nodes: list[Any], constants: dict[str, Any], opset: int = 17, feeds: Any = X) -> list[str]:
    """The casts of a model as it runs: the nodes that were put in, less those that constants are cast by."""
    made = model(nodes, feeds, constants, opset)
    graph = as_run(simdnn.load(made).graph, (), shapes_of(made))
    assert not differs(made, feeds)
    return [n.name.removeprefix(PREFIX) for n in graph.nodes if n.op == "Cast" and RUNNING not in n.attributes]


def test_nodes_in_a_row_are_of_f32_between_one_pair() -> None:
    nodes = [node("Add", "x c", "a"), node("Sqrt", "a", "b"), node("Mul", "b b", "y")]
    assert casts(nodes, {"c": F16(3)}) == ["x_up", "y"]


def test_what_has_a_kernel_stays_unless_it_stands_alone_among_others() -> None:
    first, last = node("Mul", "x c", "a"), node("Mul", "b c", "y")
    turned, flat = node("Transpose", "a", "b", perm=[1, 0]), node("Transpose", "a", "t", perm=[1, 0])
    assert casts([first, turned, last], {"c": F16(1.1)}) == ["x_up", "y"]
    two = [first, flat, node("Reshape", "t s", "b"), last]
    assert casts(two, {"c": F16(1.1), "s": np.array([2, 6])}) == ["x_up", "a", "b_up", "y"]
    assert casts([node("Transpose", "x", "y")], {}) == []


def test_a_cast_of_the_model_to_f16_rounds_nothing_ahead_of_one_that_is_put_in() -> None:
    """As converters leave a model that takes and returns f32; what is moved as f16 is rounded."""
    feeds = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    edges = node("Cast", "x", "h", to=10), node("Cast", "q", "y", to=1)
    assert casts([edges[0], node("Mul", "h h", "q"), edges[1]], {}, feeds=feeds) == ["y"]
    moved = [edges[0], node("Transpose", "h", "t"), node("Mul", "t t", "q"), edges[1]]
    assert casts(moved, {}, feeds=feeds) == ["h", "t_up", "y"]


def test_constants_that_several_nodes_read_are_cast_as_the_model_runs() -> None:
    """Equal numbers are one, and a Clip by such takes part in no convolution."""
    nodes = [node("Mul", "x c", "a"), node("Add", "a d", "y")]
    graphs = [as_run(simdnn.load(model(nodes, X, {"c": F16(2), "d": F16(v)})).graph) for v in (2, 3)]
    assert [sum(RUNNING in n.attributes for n in graph.nodes) for graph in graphs] == [1, 0]


@pytest.mark.parametrize(("op", "opset", "kept"), [("Elu", 18, False), ("Elu", 20, True), ("Softmax", 17, False)])
def test_a_body_stands_in_for_what_has_no_kernel(op: str, opset: int, kept: bool) -> None:
    """Where no operator of it has changed since it was written."""
    made = model([node(op, "x", "y")], X, {}, opset)
    assert (op in [n.op for n in as_run(simdnn.load(made).graph).nodes]) is kept
    assert not differs(made, X)


@pytest.mark.parametrize(("opset", "kept"), [(18, False), (19, True), (21, True)])
def test_nodes_of_a_body_have_the_opset_of_the_model(opset: int, kept: bool) -> None:
    """Mish is written with a Softplus, which has a body in turn at opset 18 alone."""
    feeds = {"x": np.linspace(-12, 3, 1500).astype(np.float16)}
    made = model([node("Mish", "x", "y")], feeds, {}, opset)
    assert ("Softplus" in [n.op for n in as_run(simdnn.load(made).graph).nodes]) is kept
    assert not differs(made, feeds)


@pytest.mark.parametrize(
    ("op", "biased"), [("Gelu", False), ("FastGelu", False), ("FastGelu", True), ("QuickGelu", False)]
)
def test_functions_of_onnxruntime_are_their_bodies_with_numbers_of_f16(op: str, biased: bool) -> None:
    made = helper.make_node(op, ["a", "b"] if biased else ["a"], ["g"], name="g", domain="com.microsoft")
    nodes = [node("Mul", "x x", "a"), made, node("MatMul", "g w", "y")]
    held = {"b": np.linspace(-1, 1, 4, dtype=F16), "w": np.linspace(-1, 1, 8, dtype=F16).reshape(4, 2)}
    whole = model(nodes, X, held)
    whole.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not differs(whole, X)


@settings(max_examples=12)
@given(st.data())
def test_random_chains(data: st.DataObject) -> None:
    """Nodes with kernels and without, in any order, values read twice, at several opsets."""
    draw = data.draw
    ops = st.sampled_from(
        ["Mul", "Add", "Sigmoid", "Transpose", "Reshape", "Clip", "Max", "LeakyRelu", "Concat", "Relu"]
    )
    values, nodes = ["x"], []
    for i, op in enumerate(draw(st.lists(ops, min_size=2, max_size=7))):
        one, other = (values[draw(st.integers(0, len(values) - 1))] for _ in range(2))
        given_ = {"Reshape": "s", "Clip": "l", "Mul": other, "Add": "c", "Max": other}.get(op, "")
        if op == "Concat":
            nodes += [node(op, f"{one} {other}", f"w{i}", axis=0), node("Slice", f"w{i} o p", f"v{i}")]
        else:
            more = {"Transpose": {"perm": [1, 0]}}.get(op, {})
            nodes.append(node(op, f"{one} {given_}", f"v{i}", **more))
        values.append(f"v{i}")
    nodes.append(node(draw(st.sampled_from(["Exp", "Identity"])), values[-1], "y"))
    x = {"x": np.random.default_rng(len(nodes)).standard_normal((4, 4)).astype(F16)}
    held = {"s": np.array([4, 4]), "l": F16(-0.5), "c": F16(1.1), "o": np.array([2]), "p": np.array([6])}
    assert not differs(model(nodes, x, held, draw(st.sampled_from([13, 16, 18, 20]))), x)


def test_bf16_gets_no_casts() -> None:
    x = {"x": np.ones((3, 4), ml_dtypes.bfloat16)}
    made = model([node("Transpose", "x", "t"), node("Mul", "t t", "y")], x, {})
    with pytest.raises(simdnn.Unimplemented, match=r"'y' \(Mul\): .* no kernel of bf16"):
        simdnn.load(made).run(x, machine="zen4", dispatch="onnxruntime")


def test_casts_are_counted() -> None:
    nodes = [node("Transpose", "x", "t"), node("Mul", "t t", "y")]
    found = simdnn.load(model(nodes, X, {})).run(X, machine="zen4", dispatch="onnxruntime")
    costs = {run.node.name: run.cost.cycles for run in found.nodes}
    assert costs.keys() == {"t", f"{PREFIX}t_up", "y", f"{PREFIX}y"} and min(costs.values()) > 0
