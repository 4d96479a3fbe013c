"""The sum of a tensor core (`fused_sum`) in 32 bits, where operands, accumulator and result are of moderate size.

A product of two operands of at most eleven digits is an f32, unless it is too small or too large. Times a power of two
that brings the last digit that is kept in front of the point, it becomes an integer by cutting off what is behind that:
below 2**27 for a product that has the greatest exponent, and sixteen of these, each at most (2 - 2**-10)**2 * 2**25,
are below 2**31. The sum is exact, then, and rounded once as `fused_sum` does.

Exponents are words, those of two neighbours along K beside each other, so that a register compares twice as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.rounding import round_to, widen_codes

_F32 = fmt("f32")
_TOP = 0x7F800000  # of f32: the field of exponents
_DIGITS = _F32.mantissa_bits
_LEAST, _MOST = -50, 62  # exponents of operands with f32's range: those of products are then -100 to 124
_LARGE = 90  # exponent from which on a result may be too large
_ZERO = -(1 << 14)  # exponent of a zero: with any other below all that are met
_ROOM = 1 << 27  # between the greatest sum of products and 2**31: an accumulator, and what f32 rounds up


class Moderate(NamedTuple):
    """Operands as f32, with the exponent of each as s16; and which are too small or large, or no numbers."""

    value: Value
    exponent: Value
    beyond: Value


def moderate(value: Value, dtype: str) -> Moderate:
    """Lanes of a float format of at most eleven digits; of tf32 the 13 low bits are not read."""
    form, stored = fmt(dtype), value.format.bits
    codes = value.view(f"u{stored}")
    codes = codes.to("u16") if stored < 16 else codes
    unread = fmt(form.lanes).mantissa_bits - form.mantissa_bits
    magnitude = (codes & ((1 << (stored - 1)) - 1)) >> unread
    field = (magnitude >> form.mantissa_bits).maximum(1)
    exponent = magnitude.eq(0).where(field.literal(_ZERO + form.bias & (1 << field.format.bits) - 1), field)
    exponent = exponent.to("s16") - form.bias
    if form.exponent_bits == _F32.exponent_bits:
        words = codes.to("u32") << (32 - stored)
        words = words & (0xFFFFFFFF << (_DIGITS - form.mantissa_bits) & 0xFFFFFFFF)
        least, most = _field(_LEAST), _field(_MOST + 1)
        beyond = ((words & 0x7FFFFFFF) - least >= most - least) & (words << 1).ne(0)
        return Moderate(words.view("f32"), exponent, beyond)
    wide = value.to("f32") if dtype == "f16" else widen_codes(codes.to("u32"), form)
    return Moderate(wide, exponent, magnitude > form.greatest_code)


def _field(exponent: int) -> int:
    """The bits of 2**exponent as f32."""
    return (exponent + _F32.bias) << _DIGITS


def fits(products: int, fraction_bits: int) -> bool:
    """Whether the sum of so many products is below 2**31."""
    return products << (fraction_bits + 2) <= 1 << 31


class MatrixProduct(NamedTuple):
    """Matrices by rows, of `m` x `k` and `k` x `n`."""

    a: Moderate
    b: Moderate
    m: int
    n: int
    k: int

    def lanes(self, i: int) -> tuple[list[int], list[int]]:
        """The lanes of either matrix that give each sum its product `i`."""
        return (
            [row * self.k + i for row in range(self.m) for _ in range(self.n)],
            [i * self.n + column for _ in range(self.m) for column in range(self.n)],
        )

    def product(self, i: int) -> Value:
        rows, columns = self.lanes(i)
        return self.a.value.permute(rows) * self.b.value.permute(columns)

    def exponents(self, i: int) -> Value:
        """The exponents of products `i` and `i` + 1 of each sum in turn; `i` is even."""
        (rows, columns), (_, further) = self.lanes(i), self.lanes(i + 1)
        both = [lane for pair in zip(columns, further, strict=True) for lane in pair]
        pairs = self.a.exponent.view("u32").permute([lane // 2 for lane in rows]).view("s16")
        return pairs + self.b.exponent.permute(both)


def moderate_sum(
    acc: Value, product: MatrixProduct, elements: Sequence[int], fraction_bits: int, kept_bits: int
) -> tuple[Value, Value]:
    """acc (f32 or f16) + the products of `elements`, cut off to f32 with `kept_bits` digits or rounded to f16; and
    where that may be wrong.
    """
    addend = acc if acc.dtype == "f32" else acc.to("f32")
    bits = addend.view("s32")
    magnitude, lowest = bits & 0x7FFFFFFF, fraction_bits + 1 - _F32.bias
    greatest = _greatest(product, elements, lowest).maximum(_aligned(magnitude, acc.dtype))
    power = greatest.view("u32")
    scale = (power.literal(_field(fraction_bits) + _field(0)) - power).view("f32")
    products = [(product.product(i) * scale).to("s32") for i in elements]
    total = products[0]
    for one in products[1:]:
        total = total + one
    beyond = (greatest > _field(_LARGE)) | (magnitude.ne(0) & (magnitude < _field(lowest)))
    if len(elements) << (fraction_bits + 2) > (1 << 31) - _ROOM:
        beyond = beyond | (_absolute(total) > (1 << 31) - _ROOM)
    found = _in_f32(total + (addend * scale).to("s32"), acc.dtype == "f16")
    found = found * (power - (fraction_bits << _DIGITS)).view("f32")
    if acc.dtype == "f16":
        return round_to(found, "f16"), beyond
    if kept_bits < _DIGITS:
        found = (found.view("u32") & (0xFFFFFFFF << (_DIGITS - kept_bits) & 0xFFFFFFFF)).view("f32")
    return found, beyond


def _greatest(product: MatrixProduct, elements: Sequence[int], lowest: int) -> Value:
    """2**e for the greatest exponent e of the products, `lowest` at least, as the bits of an f32."""
    pairs = [product.exponents(i) for i in elements if i % 2 == 0]
    most = pairs[0]
    for pair in pairs[1:]:
        most = most.maximum(pair)
    most = most.maximum((most.view("s32") << 16).view("s16"))
    return ((most.view("s32") >> 16).maximum(lowest) << _DIGITS) + _field(0)


def _aligned(magnitude: Value, dtype: str) -> Value:
    """2**e for the exponents e that accumulators count with, as the bits of an f32 (of zeros: 0)."""
    power = magnitude & _TOP
    if dtype == "f32":
        return power
    return magnitude.eq(0).where(magnitude, power.maximum(_field(1 - fmt(dtype).bias)))


def _absolute(integer: Value) -> Value:
    return integer.maximum(integer.literal(0) - integer)


def _in_f32(integer: Value, odd: bool) -> Value:
    """s32 as f32, cut off; or rounded to odd, so that a later rounding to f16 is the only one that shows."""
    magnitude = _absolute(integer)
    near = magnitude.to("f32")
    back, bits = near.to("s32"), near.view("s32")
    bits = bits - (back > magnitude).where(bits.literal(1), bits.literal(0))
    if odd:
        bits = bits | back.ne(magnitude).where(bits.literal(1), bits.literal(0))
    return (bits | (integer & (-1 << 31))).view("f32")
