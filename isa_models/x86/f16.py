"""x86 f16: conversions (F16C) and arithmetic (AVX512-FP16)."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define
from isa_models.rounding import MODES, round_to, widen_f16
from isa_models.roundoff import roundoff
from isa_models.x86.widths import AVX512_BW, AVX512_FP16


@define("vcvtph2ps", "f32 <- f16", AVX512_BW, "Intel SDM Vol. 2C, VCVTPH2PS")
def vcvtph2ps(a: Value) -> Value:
    """f16 to floats, exactly, denormals too; a NaN turns quiet.

    >>> from isa_models import instruction
    >>> instruction("vcvtph2ps")([1.5, -2]).tolist()
    [1.5, -2.0]
    """
    wide = widen_f16(a)
    bits = wide.view("u32")
    quiet = ((bits & 0x7FFFFFFF) > 0x7F800000).where(bits | 0x00400000, bits).view("f32")
    return quiet.step("widen to f32", lambda: [a])


@define("vcvtps2ph", "f16 <- f32", AVX512_BW, "Intel SDM Vol. 2C, VCVTPS2PH", memory="store")
def vcvtps2ph(a: Value, imm: int) -> Value:
    """Floats to f16, denormals kept. Immediate bits 1:0: nearest even, down, up, towards zero; bit 2: MXCSR's mode,
    which here is nearest even.

    >>> from isa_models import instruction
    >>> instruction("vcvtps2ph")([1.0009, 1e5], imm=3).tolist()
    [1.0, 65504.0]
    """
    return round_to(a, "f16", "even" if imm & 4 else MODES[imm & 3])


def _quiet(bits: Value) -> Value:
    return bits | 0x0200


def _is_nan(a: Value) -> Value:
    return (a.view("u16") & 0x7FFF) > 0x7C00


@define(
    "vfmadd231ph",
    "f16 <- f16, f16, f16",
    AVX512_FP16,
    "Intel SDM Vol. 2C, VFMADD132PH/VFMADD213PH/VFMADD231PH",
    accumulates=True,
)
def vfmadd231ph(acc: Value, a: Value, b: Value) -> Value:
    """a * b + acc of f16, rounded once; denormals are kept (MXCSR's DAZ and FTZ do not apply to f16).

    Computed in f32: the product is exact there, and the sum is rounded to odd, so that the rounding to f16 is the only
    one that shows (see `arrays._fma32`). Of several NaNs a's wins, then b's, then the accumulator's.

    >>> from isa_models import instruction
    >>> instruction("vfmadd231ph")([1], [2], [3]).tolist()
    [7.0]
    """
    x, y, z = (v.to("f32") for v in (a, b, acc))
    total = _sum_to_odd(x * y, z)

    def first_nan() -> Value:
        bits = acc.view("u16").literal(0xFE00)
        for operand in (acc, b, a):
            bits = _is_nan(operand).where(_quiet(operand.view("u16")), bits)
        return bits

    return total.is_nan().rarely(total.to("f16").view("u16"), first_nan).view("f16")


def _sum_to_odd(a: Value, b: Value) -> Value:
    """a + b of f32: where inexact, the neighbour whose last bit is one; the error is found by Knuth's TwoSum."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view("s32")
    beyond = (bits ^ error.view("s32")) >> 31  # -1 where the total lies farther from zero than the sum
    inexact = error.eq(error) & error.ne(0)  # of infinities it is NaN
    odd = inexact.where((bits + beyond) | 1, bits).view("f32")
    return odd.step("add, rounded to odd", lambda: [a, b], [roundoff("f32", directed=True)])
