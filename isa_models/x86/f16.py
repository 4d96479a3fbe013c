"""x86 f16: conversions to and from f32 (F16C)."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define
from isa_models.rounding import MODES, round_to, widen_f16
from isa_models.x86.widths import AVX512_BW


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
