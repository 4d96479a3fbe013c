"""The reading that bounds errors: what each way to make a number leaves beside it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from isa_models import instruction
from isa_models.readings.arrays import ArrayValue
from isa_models.readings.bounds import BoundedValue
from isa_models.readings.shades import COUNTS, EXACT, SIZE, WORST, beside_exact, regrouped
from isa_models.rounding import round_to


def value(numbers: list[float], dtype: str = "f32") -> BoundedValue:
    return BoundedValue(ArrayValue(np.array(numbers, np.float32), "f32").array, dtype)


def test_numbers_are_those_of_numpy() -> None:
    for name in ("vaddps", "vmulps", "vdivps", "vmaxps"):
        x, y = (np.random.default_rng(i).normal(size=16).astype(np.float32) for i in (0, 1))
        found = instruction(name).apply(BoundedValue(x, "f32"), BoundedValue(y, "f32"))
        assert (found.array[0] == instruction(name)(x, y)).all()


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "sqrt"])
def test_one_rounding_loses_half_a_unit_at_most(operation: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(0.5, 4, 200).astype(np.float32) for _ in range(2))
    a, b = BoundedValue(x, "f32"), BoundedValue(y, "f32")
    found = (a.sqrt() if operation == "sqrt" else a._binary(operation, b)).settled()
    for i, (one, other) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        p, q = Fraction(one), Fraction(other)
        exact = {"add": p + q, "sub": p - q, "mul": p * q, "div": p / q}.get(operation)
        got = Fraction(float(found[5, 0, i]))
        if exact is None:
            assert abs(got * got - p) <= 2 * got * Fraction(float(found[WORST, 0, i])) + Fraction(1, 2**60)
        else:
            assert abs(got - exact) <= Fraction(float(found[WORST, 0, i]))
    assert found[WORST].max() < 2.0**-20 and found[COUNTS][0].max() == 1


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
def test_errors_of_both_operands_are_carried_on(operation: str) -> None:
    """Of sums that were rounded: what became of them lies no farther from the true number than the bound says."""
    x = np.random.default_rng(4).uniform(0.5, 4, (4, 200)).astype(np.float32)
    one, other, third, last = (BoundedValue(row, "f32") for row in x)
    found = (one + other)._binary(operation, third + last).settled()
    for i, (a, b, c, d) in enumerate(zip(*x.tolist(), strict=True)):
        p, q = Fraction(a) + Fraction(b), Fraction(c) + Fraction(d)
        exact = {"add": p + q, "sub": p - q, "mul": p * q, "div": p / q}[operation]
        assert abs(Fraction(float(found[5, 0, i])) - exact) <= Fraction(float(found[WORST, 0, i]))


def test_what_a_type_holds_costs_nothing() -> None:
    x = value([3.0, -1.5, 2.0**20])
    assert not (x * x + x).settled()[WORST][0, :2].any()
    assert not round_to(value([1.5, 0.0]), "bf16").settled()[WORST].any()
    assert round_to(value([1.0 + 2**-9]), "bf16").settled()[WORST, 0, 0] == 2.0**-8 * (1 + 2**-9)


def test_underflow_and_overflow_count() -> None:
    tiny = value([2.0**-100])
    assert (tiny * tiny).settled()[WORST, 0, 0] >= 2.0**-200
    assert np.isinf((value([2.0**127]) + 2.0**127).settled()[WORST, 0, 0])


def test_bits_that_round_are_measured() -> None:
    numbers = np.array([1.0 + 2**-20, -3.0], np.float32)
    x = BoundedValue(numbers, "f32", beside_exact(numbers))
    cut = ((x.view("u32") >> 16) << 16).view("f32").settled()
    assert cut[WORST, 0].tolist() == [2.0**-20, 0.0]
    assert cut[EXACT, 0].tolist() == [1.0 + 2**-20, -3.0]


def test_a_choice_that_errors_may_turn_counts_with_both_outcomes() -> None:
    near = value([1.0]) + 2.0**-30  # rounded away: below 1 or above it nobody knows
    chosen = (near > 1.0).where(value([5.0]), value([7.0])).settled()
    assert chosen[WORST, 0, 0] >= 2 and chosen[SIZE, 0, 0] == 7
    far = (near > 0.5).where(value([5.0]), value([7.0])).settled()
    assert far[WORST, 0, 0] == 0


def test_saturation_is_an_error_and_a_wrap_only_where_it_is_read() -> None:
    words = BoundedValue(np.array([300, -5], np.int16), "s16")
    assert words.saturate("s8").settled()[WORST, 0].tolist() == [173, 0]
    octets = BoundedValue(np.array([-128, 100], np.int8), "s8") + -128
    assert octets.settled()[WORST, 0].tolist() == [256, 0]
    assert octets.view("u8").settled()[WORST].max() == 0  # shifted on purpose, to be read as u8


def test_parts_are_put_together_again() -> None:
    x = value([1.0, 2.0, 3.0]) + 2.0**-30
    shade = x.settled()
    parts = regrouped(shade, 12)
    assert np.array_equal(regrouped(parts, 3), shade)
    mixed = parts[..., [0, 1, 6, 7]]
    assert np.isinf(regrouped(mixed, 1)[WORST]).all()


def test_a_sign_that_is_set_by_bits_is_no_error() -> None:
    numbers = value([1.5, 2.0, 3.0]) + value([2.0**-30, 0.0, 0.0])  # the first one is rounded
    signs = BoundedValue(np.array([1 << 31, 1 << 31, 0], np.uint32), "u32")
    for bits in (numbers.view("u32") | signs, signs | numbers.view("u32"), numbers.view("u32") ^ signs):
        found = bits.view("f32").settled()
        assert found[EXACT, 0].tolist() == [-1.5 - 2**-30, -2.0, 3.0]
        assert 0 < found[WORST, 0, 0] < 2.0**-22 and found[WORST, 0, 1:].tolist() == [0, 0]
