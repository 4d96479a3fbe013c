"""Post-operations on GPUs: formulas beside the CPUs' kernels, operands of every extent, convolutions, integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn import Attr, Quant, Unimplemented
from simdnn.kernels.common.postops import BINARY, ELTWISE
from tests.effort import one_in

COMPARE: dict[str, np.ufunc] = {
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}
GPUS = ("b580", "v100", "dg1", "h100", "a770", "a100")
NUMBERS = {"clip": (-1, 1), "clip_v2": (-1, 1), "pow": (2, 3), "relu": (0.25,), "linear": (0.5, 1)}
SIZES = (11, 16, 37)
RNG = np.random.default_rng(5)
SRC = RNG.integers(-3, 4, SIZES[:2]).astype(np.float32)
WEI = (RNG.integers(-2, 3, SIZES[1:]) / 16).astype(np.float32)
COLUMN, FULL = (RNG.standard_normal((rows, SIZES[2])).astype(np.float32) for rows in (1, SIZES[0]))


def beside_a_cpu(machine: str, ops: list[Any], into: Array | None = None) -> None:
    """f16 data whose sums are exact, by both engines, beside f32 on a CPU."""
    given: dict[str, Any] = {"attr": Attr(post_ops=ops), "into": into, "dst": "f32"}
    expected = simdnn.matmul(SRC, WEI, machine="hsw", **given).output
    halves = SRC.astype(np.float16), WEI.astype(np.float16)
    found, again = (simdnn.matmul(*halves, machine=machine, engine=e, **given) for e in ("compiled", "reference"))
    assert found.output.tobytes() == again.output.tobytes() and found.cycles > 0
    np.testing.assert_allclose(found.output, expected, 4e-6, 4e-6)


@one_in(3)
@pytest.mark.parametrize(("number", "name"), list(enumerate(ELTWISE)))
def test_functions_of_one_operand(number: int, name: str) -> None:
    """Behind another one, so that a block goes through the registers twice."""
    op = (name, *NUMBERS.get(name, (default for default in ELTWISE[name] if default is not None)))
    beside_a_cpu(GPUS[number % len(GPUS)], [("linear", 1, 0.0625), op, ("add", COLUMN)])


CASES = itertools.product(BINARY, ("common", "column", "full"))


@one_in(4)
@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)))
def test_second_operands(number: int, case: tuple[str, str]) -> None:
    name, extent = case
    second = {"common": np.full((1, 1), 0.5, np.float32), "column": COLUMN, "full": FULL}[extent]
    beside_a_cpu(GPUS[number % len(GPUS)], [(name, second), "relu"])


@one_in(2)
@pytest.mark.parametrize("machine", ["b580", "a100"])
def test_comparisons_of_numbers_that_are_none(machine: str) -> None:
    """Zeros, infinities and NaN on both sides compare as in C; on CPUs "not less" holds of a NaN."""
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1, 3.5, -3e38, 3e38], np.float32)
    few = len(special)
    src, weights = np.ones((few, 1), np.float32), np.zeros((1, few), np.float32)
    x, y = np.broadcast_arrays(special[:, None] + weights, special)
    for kind, compare in COMPARE.items():
        attr = Attr(post_ops=[("add", np.ascontiguousarray(x)), (kind, np.ascontiguousarray(y))])
        expected = compare(x, y)
        found = simdnn.matmul(src, weights, machine=machine, attr=attr, engine="reference").output
        np.testing.assert_array_equal(found, expected, err_msg=kind)
        of_nan = kind in ("ge", "gt", "ne")
        for cpu in ("hsw", "zen4"):
            found = simdnn.matmul(src, weights, machine=cpu, attr=attr).output
            np.testing.assert_array_equal(found, np.where(np.isnan(x) | np.isnan(y), of_nan, expected), err_msg=kind)


@one_in(3, "machine")
@pytest.mark.parametrize("machine", ["b580", "dg1", "v100", "h100"])
@pytest.mark.parametrize(("groups", "ic", "oc"), [(1, 8, 20), (2, 8, 12), (12, 12, 12)])
def test_convolutions(machine: str, groups: int, ic: int, oc: int) -> None:
    """Products, grouped ones, and depthwise: operands by channel and as large as the output, and what it held."""
    rng = np.random.default_rng(groups)
    src, weights = rng.integers(-3, 4, (2, ic, 4, 5)), rng.integers(-2, 3, (oc, ic // groups, 3, 3))
    column, full = (rng.integers(-4, 5, shape).astype(np.float32) / 2 for shape in ((1, oc, 1, 1), (2, oc, 4, 5)))
    given: dict[str, Any] = {"padding": 1, "groups": groups, "dst": "f32", "into": full}
    for ops in (["sum", ("mul", column), ("clip", -6, 6)], [("prelu", column), ("add", full), ("sum", 0.5)]):
        attr = Attr(post_ops=ops)
        expected = simdnn.convolution(
            *(v.astype(np.float32) for v in (src, weights)), machine="hsw", attr=attr, **given
        )
        halves = (v.astype(np.float16) for v in (src, weights))
        r = simdnn.convolution(*halves, machine=machine, attr=attr, **given)
        assert r.implementation.endswith("depthwise") == (groups == oc)
        np.testing.assert_array_equal(r.output, expected.output)


@pytest.mark.parametrize("machine", ["a770", "dg1", "h100"])
def test_integers_and_what_their_destination_held(machine: str) -> None:
    """Scales ahead, a held value of another type with a zero point, the destination's own ones behind: as on a CPU."""
    rng = np.random.default_rng(6)
    src, weights = (rng.integers(-9, 9, shape).astype(np.int8) for shape in ((19, 48), (48, 37)))
    scales = {"src": 0.5, "wei": np.float32(2.0) ** rng.integers(-6, -3, 37).astype(np.float32), "dst": 0.25}
    attr = Attr(scales=scales, zero_points={"dst": 2}, post_ops=[("sum", 0.5, 3, "u8"), ("clip", 0, 40)])
    given: dict[str, Any] = {"attr": attr, "dst": "s8", "into": rng.integers(0, 200, (19, 37)).astype(np.uint8)}
    found, expected = (simdnn.matmul(src, weights, machine=m, **given).output for m in (machine, "zen4"))
    np.testing.assert_array_equal(found, expected)


def test_formulas_cost_their_steps() -> None:
    """More of them take longer, and a GPU does not run them one by one for each slice of a block."""
    sizes: dict[str, Any] = {"m": 256, "n": 256, "k": 64, "dt": "f16:f16:f32"}
    for machine in ("b580", "h100"):
        bare, short, long = (
            simdnn.estimate("matmul", machine=machine, attr=Attr(post_ops=ops), **sizes).cycles
            for ops in ([], [("linear", 2, 1)], ["tanh"])
        )
        assert bare < short < long < 3 * bare


def test_the_longest_formulas_fit_every_tile() -> None:
    """A tile leaves the registers that they take."""
    for machine in ("b580", "a770", "v100", "h100"):
        for ops in ([("pow", 1, 3)], ["gelu_erf"], ["tanh", ("ge", Quant(None, mask="per_oc")), ("sum", 0.5), "mish"]):
            attr = Attr(post_ops=ops)
            e = simdnn.estimate("matmul", m=512, n=512, k=64, dt="f16:f16:f16", machine=machine, attr=attr)
            assert e.cycles > 0
    many = Attr(post_ops=["tanh", ("prelu", Quant(None, mask="per_oc")), ("ge", Quant(None, mask=0)), "sum", "mish"])
    with pytest.raises(Unimplemented, match="more than the registers of a thread"):
        simdnn.estimate("matmul", m=512, n=512, k=64, dt="f16:f16:f16", machine="dg1", attr=many)
