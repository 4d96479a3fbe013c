"""Reductions, logarithms and normalizations of f32 under dispatch="onnxruntime" beside onnxruntime on this host: their
order is Eigen's, whatever the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn.libraries.onnxruntime import eigen  # noqa: E402
from tests.effort import one_in
from tests.networks import peer  # noqa: E402
from tests.networks.peer import differs, model  # noqa: E402

REDUCTIONS = ["Sum", "Mean", "L1", "L2", "SumSquare", "Prod", "LogSum", "LogSumExp", "Max", "Min"]


@given(
    kind=st.sampled_from(REDUCTIONS),
    sizes=st.lists(st.sampled_from([1, 1, 2, 3, 5, 8, 13, 30]), min_size=1, max_size=5),
    which=st.integers(1, 31),
    keeps=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_reductions(kind: str, sizes: list[int], which: int, keeps: bool, seed: int) -> None:
    """Over any dimensions, those of 1 among them: as lines, rows in fours, or one element after the other."""
    rng = np.random.default_rng(seed)
    axes = [axis for axis in range(len(sizes)) if which >> axis & 1] or [0]
    x = rng.standard_normal(sizes).astype(np.float32)
    feeds = {"x": np.abs(x) + np.float32(0.1) if kind in ("Prod", "LogSum") else x}
    node = helper.make_node(f"Reduce{kind}", ["x", "a"], ["y"], keepdims=int(keeps))
    assert not differs(model([node], feeds, {"a": np.array(axes)}, opset=18), feeds)


def test_a_line_waits_for_its_first_whole_register() -> None:
    """Rows of 9: of the second one three elements are ahead of its registers, which lie at multiples of four."""
    one = np.float32(1 << 24)
    x = np.zeros((2, 9), np.float32)
    x[:, [0, 1, 3]] = 1, one, 1
    assert eigen.reduced("sum", x, [1])[:, 0].tolist() == [float(one), float(one) + 2]


@pytest.mark.parametrize("greatest", [np.inf, -np.inf, 80.0])
def test_a_sum_of_powers_whose_greatest_is_infinite(greatest: float) -> None:
    """Nothing is subtracted then: its logarithm is infinite, and no NaN."""
    x = np.full((2, 9), -np.inf if greatest < 0 else 1, np.float32)
    x[0, 4] = greatest
    made = model([helper.make_node("ReduceLogSumExp", ["x", "a"], ["y"])], {"x": x}, {"a": np.array([1])}, opset=18)
    with np.errstate(all="ignore"):
        assert not differs(made, {"x": x})


def test_denormals_stay_on_their_way_to_bf16() -> None:
    """Where a CPU's instruction has zeros, too."""
    x = (np.float32(2) ** np.arange(-149, -120) * np.float32([[1], [-1.37]])).astype(np.float32)
    nodes = [helper.make_node("Cast", ["x"], ["b"], to=16), helper.make_node("Cast", ["b"], ["y"], to=1)]
    made = model(nodes, {"x": x}, {})
    found = simdnn.load(made).run({"x": x}, machine="gnr", dispatch="onnxruntime").outputs["y"]
    assert found.tobytes() == peer.output(made, {"x": x}).tobytes()


@pytest.mark.parametrize("ends", [(np.inf, 1), (-np.inf, 1), (np.inf, -np.inf)])
def test_a_range_without_end_has_an_infinite_step(ends: tuple[float, float]) -> None:
    """Of -infinity the zero point is the greatest number."""
    x = np.zeros((1, 40), np.float32)
    x[0, :2] = ends
    names = ["y", "s", "z"]
    made = model([helper.make_node("DynamicQuantizeLinear", ["x"], names)], {"x": x}, {})
    with np.errstate(all="ignore"):
        assert not differs(made, {"x": x})


def test_what_is_no_zero_of_the_first_stands_else_the_second() -> None:
    """Where of -0 and anything is 0, of anything and -0 is -0; means of -0 are 0."""
    signs = np.array([[-0.0, 0, 1, -1, np.nan, np.inf]], np.float32)
    feeds = {"c": np.array([[True], [False]]), "a": signs, "b": signs[:, ::-1].copy()}
    assert not differs(model([helper.make_node("Where", ["c", "a", "b"], ["y"])], feeds, {}), feeds)
    x = np.full((1, 2, 4, 4), -0.0, np.float32)
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 1])
    assert not differs(model([node], {"x": x}, {}), {"x": x})


def test_costs_are_those_of_kernels_that_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((4, 40), np.float32)
    made = model([helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])], {"x": x}, {}, opset=17)
    plain, theirs = (simdnn.load(made).estimate(machine="zen4", dispatch=d).cycles for d in ("fastest", "onnxruntime"))
    monkeypatch.setattr(simdnn.networks.kernels.Kernels, "_run", lambda *given: pytest.fail("a kernel ran"))
    r = simdnn.load(made).run({"x": x}, machine="zen4", dispatch="onnxruntime")
    assert r.cycles == plain == theirs


@pytest.mark.parametrize("size", [1, 3, 4, 54, 171, 1000])
def test_logarithms(size: int) -> None:
    """Whole registers by a ratio of polynomials, the last elements by the C library's function."""
    rng = np.random.default_rng(size)
    x = np.exp(rng.standard_normal(size) * 9).astype(np.float32)
    x[: min(size, 8)] = [1, 0, np.inf, -1, np.nan, 1e-40, 0.70710677, 2][: min(size, 8)]
    made = model([helper.make_node("Log", ["x"], ["y"])], {"x": x}, {})
    with np.errstate(all="ignore"):
        found = simdnn.load(made).run({"x": x}, **peer.ALIKE).outputs["y"]
    assert np.array_equal(found, peer.output(made, {"x": x}), equal_nan=True)


@pytest.mark.parametrize("op", ["BatchNormalization", "InstanceNormalization"])
@pytest.mark.parametrize("shape", [(1, 3, 5, 6), (3, 12, 7), (2, 8, 3, 3, 2)])
def test_normalizations_of_images(op: str, shape: tuple[int, ...]) -> None:
    """One factor and one addend a channel, no step fused."""
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    names = ("scale", "shift", "mean", "variance")[: 4 if op == "BatchNormalization" else 2]
    held: dict[str, Any] = {name: rng.random(shape[1]).astype(np.float32) + np.float32(0.1) for name in names}
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node(op, ["r", *names], ["y"])]
    assert not differs(model(nodes, {"x": x}, held), {"x": x})


@pytest.mark.parametrize(("op", "count"), [("Mean", 3), ("Mean", 2), ("Softsign", 1), ("Sum", 3)])
def test_elements(op: str, count: int) -> None:
    """A mean multiplies by 1 / count, and Softsign by 1 / (1 + |x|)."""
    rng = np.random.default_rng(count)
    feeds = {name: rng.standard_normal((7, 9)).astype(np.float32) for name in "abc"[:count]}
    assert not differs(model([helper.make_node(op, list(feeds), ["y"])], feeds, {}), feeds)


def test_boxes_are_suppressed_by_numbers_that_are_scalars() -> None:
    rng = np.random.default_rng(1)
    feeds = {"b": np.sort(rng.random((1, 30, 2, 2)), 2).astype(np.float32).reshape(1, 30, 4)}
    feeds["s"] = rng.random((1, 2, 30)).astype(np.float32)
    held = {"m": np.int64(5), "i": np.float32(0.4), "t": np.float32(0.2)}
    assert not differs(model([helper.make_node("NonMaxSuppression", [*feeds, *held], ["y"])], feeds, held), feeds)


@pytest.mark.parametrize(("mode", "opset"), [("nearest", 16), ("bilinear", 16), ("linear", 20), ("bicubic", 16)])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grids_by_the_modes_of_their_opset(mode: str, opset: int, padding: str, aligned: int) -> None:
    """Places beyond the image among them; inside, ONNX's reference gives these values to float rounding."""
    rng = np.random.default_rng(2)
    feeds = {"x": rng.standard_normal((1, 2, 6, 7)).astype(np.float32)}
    feeds["g"] = (rng.random((1, 4, 5, 2)) * 3 - 1.5).astype(np.float32)
    where: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    made = model([helper.make_node("GridSample", ["x", "g"], ["y"], **where)], feeds, {}, opset=opset)
    assert not differs(made, feeds)
    assert simdnn.load(made).estimate(machine="zen4", dispatch="onnxruntime").cycles > 0
    feeds["g"] *= np.float32(0.4)
    near = simdnn.load(made).run(feeds, machine="zen4").outputs["y"]
    np.testing.assert_allclose(near, peer.output(made, feeds), atol=2e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grids_over_three_dimensions(mode: str) -> None:
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal((2, 3, 4, 5, 3)).astype(np.float32)}
    feeds["g"] = (rng.random((2, 2, 3, 4, 3)) * 3 - 1.5).astype(np.float32)
    assert not differs(
        model([helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode)], feeds, {}, opset=20), feeds
    )


@one_in(2)
@pytest.mark.parametrize("act", ["Tanh", "Relu", "Sigmoid"])
@pytest.mark.parametrize(("batch", "width", "sides"), [(3, 20, 2), (1, 300, 1), (1, 5, 2)])
def test_plain_recurrent_layers(act: str, batch: int, width: int, sides: int) -> None:
    """Biases ahead of the inputs' product, of weights that are not packed; the tangent is made of a sigmoid."""
    rng = np.random.default_rng(width)
    hidden, shapes = 17, {"w": (sides, 17, width), "r": (sides, 17, 17), "b": (sides, 34)}
    held = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}
    feeds = {"x": rng.standard_normal((4, batch, width)).astype(np.float32)}
    direction = {"direction": "bidirectional"} if sides == 2 else {}
    where: dict[str, Any] = {"hidden_size": hidden, "activations": [act] * sides, **direction}
    assert not differs(model([helper.make_node("RNN", ["x", *held], ["y"], **where)], feeds, held), feeds)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
@pytest.mark.parametrize("skip", [(2, 3, 24), (1, 3, 24), (3, 24)])
def test_sums_that_are_normalized_have_an_epsilon_of_their_own(op: str, skip: tuple[int, ...]) -> None:
    """1e-12 where a node says none, which small values show, by each rule."""
    rng = np.random.default_rng(4)
    feeds = {
        name: (rng.standard_normal(shape) * 1e-3).astype(np.float32) for name, shape in (("x", (2, 3, 24)), ("s", skip))
    }
    held = {name: rng.standard_normal(24).astype(np.float32) for name in ("g", "b")[: 1 if "Simplified" in op else 2]}
    made = model([helper.make_node(op, ["x", "s", *held], ["y"], domain="com.microsoft")], feeds, held)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not differs(made, feeds)
    near = simdnn.load(made).run(feeds, machine="zen4").outputs["y"]
    np.testing.assert_allclose(near, peer.output(made, feeds), atol=2e-5)


@pytest.mark.parametrize(
    ("act", "numbers"),
    [("Relu", []), ("Sigmoid", []), ("LeakyRelu", [0.1]), ("HardSigmoid", [0.2, 0.5]), ("Clip", [0.0, 6.0])],
)
def test_activations_within_products(act: str, numbers: list[float]) -> None:
    rng = np.random.default_rng(5)
    feeds = {"x": rng.standard_normal((1, 8, 7, 6)).astype(np.float32)}
    held = {"w": rng.standard_normal((16, 8, 3, 3)).astype(np.float32), "b": rng.standard_normal(16).astype(np.float32)}
    where: dict[str, Any] = {"activation": act, "pads": [1] * 4, "domain": "com.microsoft"}
    where |= {"activation_params": numbers} if numbers else {}
    made = model([helper.make_node("FusedConv", ["x", "w", "b"], ["y"], **where)], feeds, held)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert not differs(made, feeds)
    rows, held = {"x": feeds["x"].reshape(6, 56)}, {"w": held["w"].reshape(-1)[:504].reshape(56, 9), "b": held["b"][:9]}
    if act in ("Relu", "Sigmoid"):
        layer = helper.make_node("FusedGemm", ["x", "w", "b"], ["y"], domain="com.microsoft", activation=act)
        made = model([layer], rows, held)
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        assert not differs(made, rows)
