"""x86 packed integer arithmetic, logic, conversions and shuffles."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define
from isa_models.x86.widths import AVX512_BW


@define("vpaddd", "s32 <- s32, s32", AVX512_BW, "Intel SDM Vol. 2B, PADDB/PADDW/PADDD/PADDQ")
def vpaddd(a: Value, b: Value) -> Value:
    """Add doublewords; the sum wraps."""
    return a + b


@define("vpxor", "u32 <- u32, u32", AVX512_BW, "Intel SDM Vol. 2B, PXOR", evex="vpxord")
def vpxor(a: Value, b: Value) -> Value:
    """Exclusive or."""
    return a ^ b
