"""The sum of a tensor core (`fused_sum`) in 32 bits, where operands, accumulator and result are of moderate size.

A product of two operands of at most eleven digits is an f32, unless it is too small or too large. Times a power of two
that brings the last digit that is kept in front of the point, it becomes an integer by cutting off what is behind that:
below 2**27 for a product that has the greatest exponent, and sixteen of these, each at most (2 - 2**-10)**2 * 2**25,
are below 2**31. The sum is exact, then, and rounded once as `fused_sum` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.rounding import widen_codes

_F32 = fmt("f32")
_TOP = 0x7F800000  # of f32: the field of exponents
_DIGITS = _F32.mantissa_bits
_LEAST, _MOST = -51, 62  # exponents of operands with f32's range: those of products are then -102 to 124
_LARGE = 90  # exponent of an addend from which on a result may be too large


class Moderate(NamedTuple):
    """Operands as f32, with 2**exponent of each (zero of a zero); and which are too small or large, or no numbers."""

    value: Value
    power: Value
    beyond: Value

    def at(self, lanes: Sequence[int]) -> tuple[Value, Value]:
        """Values and powers of some lanes."""
        return self.value.permute(lanes), self.power.permute(lanes)


def moderate(value: Value, dtype: str) -> Moderate:
    """Lanes of a float format of at most eleven digits; of tf32 the 13 low bits are not read."""
    form = fmt(dtype)
    if form.exponent_bits == _F32.exponent_bits:
        words = value.view(f"u{value.format.bits}").to("u32") << (32 - value.format.bits)
        words = words & (0xFFFFFFFF << (_DIGITS - form.mantissa_bits) & 0xFFFFFFFF)
        power = words & _TOP
        least, most = _field(_LEAST), _field(_MOST + 1)
        beyond = ((words & 0x7FFFFFFF) - least >= most - least) & (words << 1).ne(0)
        return Moderate(words.view("f32"), power.view("f32"), beyond)
    codes = value.view(f"u{form.bits}").to("u32")
    wide = value.to("f32") if dtype == "f16" else widen_codes(codes, form)
    magnitude = codes & ((1 << (form.bits - 1)) - 1)
    power = ((magnitude >> form.mantissa_bits).maximum(1) << _DIGITS) + _field(-form.bias)
    power = magnitude.eq(0).where(power.literal(0), power)
    return Moderate(wide, power.view("f32"), magnitude > form.greatest_code)


def _field(exponent: int) -> int:
    """The bits of 2**exponent as f32."""
    return (exponent + _F32.bias) << _DIGITS


def fits(products: int, fraction_bits: int) -> bool:
    """Whether the sum of so many products is below 2**31."""
    return products << (fraction_bits + 2) <= 1 << 31


def moderate_sum(
    acc: Value, pairs: Sequence[tuple[tuple[Value, Value], tuple[Value, Value]]], fraction_bits: int, kept_bits: int
) -> tuple[Value, Value]:
    """acc (f32) + the products, cut off to f32 with `kept_bits` digits; and where that may be wrong."""
    bits = acc.view("s32")
    magnitude = bits & 0x7FFFFFFF
    greatest = (magnitude & _TOP).maximum(_field(-126))
    products = []
    for (x, x_power), (y, y_power) in pairs:
        products.append(x * y)
        greatest = greatest.maximum((x_power * y_power).view("s32"))
    greatest = greatest.maximum(_field(fraction_bits - _F32.bias))
    power = greatest.view("u32")
    scale = (power.literal(_field(fraction_bits) + _field(0)) - power).view("f32")
    total = (products[0] * scale).to("s32")
    for product in products[1:]:
        total = total + (product * scale).to("s32")
    exact = total.to("f64") + (acc * scale).to("s32").to("f64")
    result = _towards_zero(exact * (greatest.view("f32").to("f64") * 2.0**-fraction_bits))
    if kept_bits < _DIGITS:
        result = (result.view("u32") & (0xFFFFFFFF << (_DIGITS - kept_bits) & 0xFFFFFFFF)).view("f32")
    tiny = magnitude.ne(0) & (magnitude < _field(fraction_bits - _F32.bias))
    return result, tiny | (greatest > _field(_LARGE)) | (magnitude > _field(_LARGE))


def _towards_zero(exact: Value) -> Value:
    """f64 as f32, cut off; of numbers that f32 holds the first digit of."""
    near = exact.to("f32")
    rest = (1 << 63) - 1
    farther = (near.to("f64").view("s64") & rest) > (exact.view("s64") & rest)
    bits = near.view("s32")
    return farther.where(bits - 1, bits).view("f32")
