"""The sum of a tensor core: all products and the accumulator aligned, cut off, added exactly, rounded once.

MMA-Sim (arXiv:2511.10909, section 4) finds this one rule with a few parameters for every generation: each addend is
aligned to the greatest exponent among them and truncated at `fraction_bits` digits behind the point; the sum is exact;
f32 results are truncated, f16 results rounded to nearest even. Subnormals count in full. Fasi et al. (PeerJ Computer
Science 7:e330) find the same for V100, T4 and A100. Khattak and Mikaitis ("Accurate Models of NVIDIA Tensor Cores",
ACM TACO 2026, doi:10.1145/3830409) recorded results of eight GPUs, and this rule gives each of them.

Those results hold numbers of moderate size alone. What they don't decide is others' word:
- Zeros. Here each counts with the exponent -126 (MMA-Sim, which calls that a to-do). Khattak and Mikaitis let zeros
  take no part, and let the alignment go down to 2**-132 (f32 results; Ampere, Ada) or 2**-133 (Hopper, Blackwell),
  and of f16 results to 2**-19 (Volta), 2**-20 or 2**-21 alone. The two differ where all addends are tiny: by the second
  rule 2**-25 + 2**-46 is 0 in f16 on Ampere, here 2**-24.
- A sum in f32 that is cut off to zero is +0 (recorded on an RTX 4060 by mmaemu 0.1.0, not by us).
- NaN is 0x7FFFFFFF, in f16 0x7FFF, and infinities are those of ordinary arithmetic (MMA-Sim, mmaemu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from isa_models.algebra import Value
from isa_models.formats import Format, fmt
from isa_models.rounding import round_to
from isa_models.roundoff import Roundoff, cut, roundoff

_LOWEST = -126  # the exponent that a zero counts with
_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF}


class Parts(NamedTuple):
    """Lanes of numbers, sign * magnitude * 2**(exponent - digits), and the same in f64 (infinity and NaN included)."""

    magnitude: Value  # s64
    exponent: Value  # s64
    negative: Value  # b1
    real: Value  # f64
    digits: int  # behind the magnitude's point


def parts(value: Value, dtype: str) -> Parts:
    """A number taken apart; of tf32 the 13 low bits are not read."""
    form = fmt(dtype)
    word = value.view(f"u{form.bits}").to("s64")
    cut = fmt(form.lanes).mantissa_bits - form.mantissa_bits
    digits = form.mantissa_bits
    field = (word >> (cut + digits)) & ((1 << form.exponent_bits) - 1)
    fraction = (word >> cut) & ((1 << digits) - 1)
    negative = ((word >> (form.bits - 1)) & 1).ne(0)
    magnitude = field.ne(0).where(fraction | (1 << digits), fraction)
    exponent = field.maximum(1) - form.bias
    exponent = magnitude.eq(0).where(exponent.literal(_LOWEST), exponent)
    real = _real(form, field, fraction, magnitude, exponent, negative).step(f"read as {dtype}", lambda: [value])
    return Parts(magnitude, exponent, negative, real, digits)


def _real(form: Format, field: Value, fraction: Value, magnitude: Value, exponent: Value, negative: Value) -> Value:
    top = (1 << form.exponent_bits) - 1
    finite = magnitude.to("f64") * power_of_two(exponent - form.mantissa_bits)
    special = field.eq(top)
    if not form.infinity:
        special = special & fraction.eq((1 << form.mantissa_bits) - 1)
    infinity = finite.literal(float("inf"))
    beyond = fraction.eq(0).where(infinity, infinity - infinity)
    found = special.where(beyond, finite)
    return negative.where(found * -1.0, found)


def power_of_two(exponent: Value) -> Value:
    """2**exponent of s64 lanes, as f64; exponents of normal numbers."""
    return ((exponent + 1023) << 52).view("f64")


def fused_sum(acc: Value, pairs: Sequence[tuple[Parts, Parts]], fraction_bits: int, kept_bits: int = 23) -> Value:
    """acc + the products: in the accumulator's format, f16, or f32 with `kept_bits` digits left."""
    addend = parts(acc, acc.dtype)
    terms = [(addend.magnitude, addend.exponent, addend.negative, addend.digits)]
    exact, products = addend.real, []
    for a, b in pairs:
        magnitude, exponent = a.magnitude * b.magnitude, a.exponent + b.exponent
        exponent = magnitude.eq(0).where(exponent.literal(_LOWEST), exponent)
        terms.append((magnitude, exponent, a.negative ^ b.negative, a.digits + b.digits))
        products.append(a.real * b.real)
        exact = exact + products[-1]
    most = terms[0][1]
    for _, exponent, _, _ in terms[1:]:
        most = most.maximum(exponent)
    total = most.literal(0)
    for magnitude, exponent, negative, digits in terms:
        away = (most - exponent + digits).minimum(63)
        kept = (magnitude << fraction_bits) >> away
        total = total + negative.where(kept.literal(0) - kept, kept)
    result = _rounded(total.to("f64") * power_of_two(most - fraction_bits), exact, acc.dtype, kept_bits)
    return as_one_step(result, acc, lambda: products, len(pairs), fraction_bits, kept_bits)


def as_one_step(
    result: Value,
    acc: Value,
    products: Callable[[], Sequence[Value]],
    count: int,
    fraction_bits: int,
    kept_bits: int,
) -> Value:
    """The sum of an accumulator and `count` products, under its name, with what it loses."""
    loss = [cut(count + 1, fraction_bits, _LOWEST), _loss(acc.dtype, kept_bits)]
    return result.step(f"fused sum to {fraction_bits} digits", lambda: [acc, *products()], loss)


def _loss(dtype: str, kept_bits: int) -> Roundoff:
    """The most that `_rounded` may lose."""
    return roundoff("f16") if dtype == "f16" else roundoff("f32", directed=True, digits=kept_bits + 1)


def added(total: Value, addend: Value) -> Value:
    """total + addend, both f32 or both f16: an ordinary addition, to nearest even.

    The sum in f64 has more than twice the digits of either type, and two more, so that rounding it once again gives
    what one rounding would (Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995).
    """
    exact = parts(total, total.dtype).real + parts(addend, addend.dtype).real
    return _special(round_to(exact, total.dtype), exact).step(
        "to nearest even", lambda: [total, addend], [roundoff(total.dtype)]
    )


def _rounded(total: Value, exact: Value, dtype: str, kept_bits: int) -> Value:
    """The exact sum in the result's format; NaN and infinity are those of the sum in f64."""
    if dtype == "f16":
        result = round_to(total, "f16")
    else:
        result = round_to(total, "f32", "zero")
        if kept_bits < 23:
            result = (result.view("u32") & (0xFFFFFFFF << (23 - kept_bits) & 0xFFFFFFFF)).view("f32")
        result = result.eq(0.0).where(result.literal(0.0), result)
        result = ((total >= 2.0**128) | (total <= -(2.0**128))).where(_infinity(result, total), result)
    return _special(result, exact)


def _special(result: Value, exact: Value) -> Value:
    """A result, infinite or the one NaN where the sum in f64 is."""
    dtype = result.dtype
    infinite = exact.eq(float("inf")) | exact.eq(float("-inf"))
    result = infinite.where(_infinity(result, exact), result)
    nan = result.view(f"u{fmt(dtype).bits}").literal(_NAN[dtype]).view(dtype)
    return exact.is_nan().where(nan, result)


def _infinity(like: Value, sign: Value) -> Value:
    """Infinity of a value's sign, in another one's type."""
    return (sign > 0.0).where(like.literal(float("inf")), like.literal(float("-inf")))
