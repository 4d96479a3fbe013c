"""x86 loads, stores and broadcasts. A memory operand is given and taken as lanes; the engine does the addressing."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define
from isa_models.x86.widths import AVX512_BW


@define("vmovups", "f32 <- f32", AVX512_BW, "Intel SDM Vol. 2B, MOVUPS", moves=True, native=False)
def vmovups(a: Value) -> Value:
    """Move packed floats."""
    return a


@define("vmovdqu", "u32 <- u32", AVX512_BW, "Intel SDM Vol. 2B, MOVDQU,VMOVDQU8/16/32/64", evex="vmovdqu32",
        moves=True, native=False)  # fmt: skip
def vmovdqu(a: Value) -> Value:
    """Move packed integers."""
    return a


@define("vpbroadcastd", "u32 <- u32*0", AVX512_BW, "Intel SDM Vol. 2C, VPBROADCAST", moves=True, native=False)
def vpbroadcastd(a: Value, lanes: int) -> Value:
    """One doubleword into every lane."""
    return a.permute([0] * lanes)


@define("vbroadcastss", "f32 <- f32*0", AVX512_BW, "Intel SDM Vol. 2C, VBROADCAST", moves=True, native=False)
def vbroadcastss(a: Value, lanes: int) -> Value:
    """One float into every lane."""
    return a.permute([0] * lanes)
