"""x86 packed floating point: arithmetic with the manuals' rules for NaN, and the bf16 and f16 conversions and dots."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define
from isa_models.x86.widths import AVX512_BF16, AVX512_BW

_QUIET = 0x00400000
_DEFAULT_NAN = 0xFFC00000
_LEAST_NORMAL = 0x00800000


def choose_nan(result: Value, *operands: Value) -> Value:
    """`result`, but where it is NaN: the first operand that is NaN, quieted, or the default NaN.

    Intel SDM Vol. 1, 4.8.3.5 and Table 4-7; the operands come in the order of priority.
    """

    def fixed() -> Value:
        bits = result.view("u32").literal(_DEFAULT_NAN)
        for operand in reversed(operands):
            bits = operand.is_nan().where(operand.view("u32") | _QUIET, bits)
        return bits.view("f32")

    return result.is_nan().rarely(result, fixed)


@define("vaddps", "f32 <- f32, f32", AVX512_BW, "Intel SDM Vol. 2A, ADDPS")
def vaddps(a: Value, b: Value) -> Value:
    """Add floats."""
    return choose_nan(a + b, a, b)


@define("vfmadd231ps", "f32 <- f32, f32, f32", AVX512_BW, "Intel SDM Vol. 2C, VFMADD132PS/VFMADD213PS/VFMADD231PS",
        accumulates=True)  # fmt: skip
def vfmadd231ps(acc: Value, a: Value, b: Value) -> Value:
    """a * b + acc, rounded once. Of several NaNs the accumulator's wins, then a's."""
    return choose_nan(a.fma(b, acc), acc, a, b)


def daz(x: Value) -> Value:
    """Denormal f32 to zero of the same sign."""
    bits = x.view("u32")
    return ((bits & 0x7F800000).eq(0)).where(bits & 0x80000000, bits).view("f32")


def _fma_flushed(a: Value, b: Value, c: Value) -> Value:
    """fma(a, b, c) of operands without denormals, a tiny result flushed to zero of its sign.

    Tiny is judged after rounding as if the exponent had no bound. Scaling by 2**32 makes that rounding visible: where
    the plain result is tiny, neither the scaled operands nor their result leave the normal range.
    """
    result = a.fma(b, c)
    small = (result.view("u32") << 1) <= (_LEAST_NORMAL << 1)

    def flushed() -> Value:
        scaled = (a * 2.0**32).fma(b, c * 2.0**32).view("u32")
        tiny = (scaled << 1) < ((_LEAST_NORMAL + (32 << 23)) << 1)
        bits = result.view("u32")
        return tiny.where(bits & 0x80000000, bits).view("f32")

    nonzero = (result.view("u32") << 1).ne(0)
    return (small & nonzero).rarely(result, flushed)


@define("vdpbf16ps", "f32 <- f32, bf16*2, bf16*2", AVX512_BF16, "Intel SDM Vol. 2C, VDPBF16PS", accumulates=True)
def vdpbf16ps(acc: Value, a: Value, b: Value) -> Value:
    """Two products of bf16 added to an f32 accumulator, the odd elements first, each step a fused multiply-add.

    Denormal inputs count as zero and tiny results become zero; MXCSR is not consulted. Of several NaNs a's wins, then
    b's, then the accumulator's.
    """
    total = daz(acc)
    words_a, words_b = a.view("u32"), b.view("u32")
    for take in (lambda w: w & 0xFFFF0000, lambda w: w << 16):
        x, y = daz(take(words_a).view("f32")), daz(take(words_b).view("f32"))
        total = choose_nan(_fma_flushed(x, y, total), x, y, total)
    return total
