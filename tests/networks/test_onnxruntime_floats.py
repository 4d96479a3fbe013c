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
from tests.networks import peer  # noqa: E402
from tests.networks.test_as_onnxruntime import differs, model  # noqa: E402

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
def test_grids_by_the_modes_of_their_opset(mode: str, opset: int) -> None:
    rng = np.random.default_rng(2)
    feeds = {"x": rng.standard_normal((1, 2, 6, 7)).astype(np.float32)}
    feeds["g"] = (rng.random((1, 4, 5, 2)) * 1.4 - 0.7).astype(np.float32)
    made = model([helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode)], feeds, {}, opset=opset)
    found = simdnn.load(made).run(feeds, **peer.ALIKE).outputs["y"]
    np.testing.assert_allclose(found, peer.output(made, feeds), atol=1e-6)
