"""Tile dot products against their manual's loops, one element at a time in exact fractions, and wrong use."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from isa_models import InvalidArgument, instruction
from isa_models.formats import fmt
from tests.effort import one_in
from tests.isa_models.test_instructions import f32_of

Array = npt.NDArray[Any]
LEAST = 2.0**-126


def step(x: float, y: float, total: float) -> float:
    """x * y + total rounded once, denormals in and out as zeros of their sign; NaN where IEEE 754 has one."""
    x, y, total = (v if not abs(v) < LEAST else v * 0.0 for v in (x, y, total))
    if not np.isfinite([x, y, total]).all():
        with np.errstate(all="ignore"):
            return float(np.float64(x) * np.float64(y) + np.float64(total))
    exact = Fraction(x) * Fraction(y) + Fraction(total)
    if not exact:  # the sign of an exact zero: both addends', or plus
        return -0.0 if np.signbit(total) and np.signbit(x) != np.signbit(y) else 0.0
    return f32_of(exact, True)


def manual(acc: float, a: list[float], b: list[float], accumulation: str) -> float:
    """One element of TDPBF16PS or TDPFP16PS: a's row and b's column, as in the pseudocode."""
    if accumulation == "sequential":
        for x, y in zip(a, b, strict=True):
            acc = step(x, y, acc)
        return acc
    halves = [0.0, 0.0]
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        halves[i % 2] = step(x, y, halves[i % 2])
    return step(step(halves[0], 1.0, halves[1]), 1.0, acc)


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, kind: str) -> Array:
    form = fmt(dtype)
    if kind == "bits":  # infinities, NaNs and denormals among them
        return rng.integers(0, 1 << form.bits, shape, np.uint64).astype(f"u{form.bits // 8}").view(form.dtype)
    low, high = {"like": (-2, 3), "tiny": (-21, -18), "wide": (-8, 5)}[kind]
    if kind == "tiny" and dtype == "f16":
        low, high = -9, -4
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(low, high, shape)
    if kind == "like":  # few digits: sums cancel
        values = np.rint(values * 4) / 4
    return values.astype(np.float32).astype(form.dtype)


@one_in(2)
@pytest.mark.parametrize("kind", ["like", "wide", "tiny", "bits"])
@pytest.mark.parametrize("accumulation", ["even_odd", "sequential"])
@pytest.mark.parametrize(("name", "dtype"), [("tdpbf16ps", "bf16"), ("tdpfp16ps", "f16")])
def test_float_products_against_the_manual(name: str, dtype: str, accumulation: str, kind: str) -> None:
    rng = np.random.default_rng([len(kind), len(accumulation), len(dtype)])
    rows = 3
    acc = draw(rng, (rows, 16), "f32", kind)
    if kind == "tiny":
        acc *= np.float32(1e-18)
    a, b = draw(rng, (rows, 32), dtype, kind), draw(rng, (16, 32), dtype, kind)
    if kind == "bits":  # so few specials that numbers are left
        a[0], b[:, ::4] = draw(rng, (32,), dtype, "wide"), draw(rng, (16, 8), dtype, "wide")
        b[:, 1::4] = b[:, ::4]
    with np.errstate(all="ignore"):
        met = instruction(name)(acc, a, b, accumulation=accumulation)
    assert met.shape == (rows, 16) and met.dtype == np.float32
    for m in range(rows):
        for n in range(16):
            with np.errstate(invalid="ignore"):
                column = b[:, 2 * n : 2 * n + 2].astype(np.float64).reshape(-1)
            expected = manual(float(acc[m, n]), a[m].astype(np.float64).tolist(), column.tolist(), accumulation)
            with np.errstate(invalid="ignore"):
                same = np.float32(expected).tobytes() == met[m, n].tobytes()
            assert same or (np.isnan(expected) and np.isnan(met[m, n])), (m, n, expected, met[m, n])
    if kind == "bits":
        assert np.isnan(met).any() and not np.isnan(met).all()
    if kind == "tiny":
        assert dtype == "f16" or (met == 0).any()


def test_bf16_denormals_are_zeros_and_f16_ones_are_not() -> None:
    acc = np.full((1, 16), 1e-39, np.float32)
    for name, dtype, expected in (("tdpbf16ps", "bf16", 0.0), ("tdpfp16ps", "f16", 32 * 2.0**-24)):
        form = fmt(dtype).dtype
        tiny = np.full((1, 32), 1, np.uint16).view(form)
        assert (instruction(name)(acc, tiny, np.ones((16, 32), form)) == np.float32(expected)).all()


def test_the_default_order_is_the_manuals() -> None:
    rng = np.random.default_rng(5)
    acc, a, b = (draw(rng, s, t, "wide") for s, t in (((16, 16), "f32"), ((16, 32), "bf16"), ((16, 32), "bf16")))
    dot = instruction("tdpbf16ps")
    assert (dot(acc, a, b) == dot(acc, a, b, accumulation="even_odd")).all()
    assert (dot(acc, a, b) != dot(acc, a, b, accumulation="sequential")).any()


@pytest.mark.parametrize("name", ["tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"])
def test_integer_products_wrap(name: str) -> None:
    rng = np.random.default_rng(7)
    definition = instruction(name)
    types = [fmt(o.dtype) for o in definition.operands[1:]]
    assert [t.name[0] for t in types] == [name[4], name[5]]
    a, b = (
        rng.choice([t.low, t.high, *rng.integers(t.low, t.high, 5)], s).astype(t.dtype)
        for t, s in zip(types, ((2, 5, 64), (2, 16, 64)), strict=True)
    )
    acc = rng.choice([2**31 - 1, -(2**31)], (2, 5, 16)).astype(np.int32)
    spread = b.astype(np.int64).reshape(2, 16, 16, 4).transpose(0, 1, 3, 2).reshape(2, 64, 16)
    exact = acc + a.astype(np.int64) @ spread
    assert (definition(acc, a, b) == exact.astype(np.int32)).all() and (exact != exact.astype(np.int32)).any()


def test_rows_do_not_know_each_other() -> None:
    rng = np.random.default_rng(9)
    acc, a, b = (draw(rng, s, t, "wide") for s, t in (((16, 16), "f32"), ((16, 32), "bf16"), ((16, 32), "bf16")))
    dot = instruction("tdpbf16ps")
    assert all((dot(acc[i : i + 1], a[i : i + 1], b) == dot(acc, a, b)[i]).all() for i in range(16))


@pytest.mark.parametrize(
    ("shapes", "choice", "message"),
    [
        (((17, 16), (17, 32), (16, 32)), {}, r"tile of 1 to 16 rows of 16 f32, met shape \(17, 16\)"),
        (((4, 16), (4, 16), (16, 32)), {}, r"operand a is a tile of 1 to 16 rows of 32 bf16"),
        (((4, 16), (3, 32), (16, 32)), {}, "operand a has 96 lanes"),
        (((4, 16), (4, 32), (4, 32)), {}, "operand b has 128 lanes; 512 are needed"),
        (((4, 16), (4, 32), (16, 32)), {"accumulation": "pairwise"}, "one of even_odd, sequential"),
        (((4, 16), (4, 32), (16, 32)), {"imm": 1}, "not known"),
    ],
)
def test_wrong_use(shapes: Any, choice: dict[str, Any], message: str) -> None:
    types = (np.float32, ml_dtypes.bfloat16, ml_dtypes.bfloat16)
    with pytest.raises(InvalidArgument, match=message):
        instruction("tdpbf16ps")(*(np.zeros(s, t) for s, t in zip(shapes, types, strict=True)), **choice)
