"""x86 loads, stores and broadcasts. A memory operand is given and taken as lanes; the engine does the addressing."""

from __future__ import annotations

from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import AVX2, AVX512_BW, AVX512_ONLY, AVX512_WIDE, CROSSING, SSE_128, Widths


def _move(name: str, dtype: str, caps: Widths, manual: str, text: str, **facts: Any) -> None:
    @define(
        name,
        f"{dtype} <- {dtype}",
        caps,
        f"Intel SDM Vol. 2, {manual}",
        moves=True,
        native=False,
        **facts,
        doc=example(name, text, "[1, 2]", "[1.0, 2.0]" if fmt(dtype).is_float else "[1, 2]"),
    )
    def move(a: Value) -> Value:
        return a


_MOVDQU = "MOVDQU, VMOVDQU8/16/32/64"
_move("vmovups", "f32", AVX512_BW, "MOVUPS", "Move packed floats.")
_move("vmovdqu", "u32", AVX512_BW, _MOVDQU, "Move packed doublewords.", evex="vmovdqu32")
_move("vmovdqu8", "u8", AVX512_ONLY, _MOVDQU, "Move packed bytes, as many as the mask has.")
_move("vmovdqu16", "u16", AVX512_ONLY, _MOVDQU, "Move packed words, as many as the mask has.")
_MASKED: dict[str, Any] = {"memory": "masked", "registers": False}
_move("vmaskmovps", "f32", AVX2, "VMASKMOV", "Move packed floats, as many as the mask register has.", **_MASKED)
_move("vpmaskmovd", "u32", AVX2, "VPMASKMOV", "Move packed doublewords, as many as the mask register has.", **_MASKED)


def _broadcast(name: str, dtype: str, caps: Widths, manual: str, text: str) -> None:
    @define(
        name,
        f"{dtype} <- {dtype}*0",
        caps,
        f"Intel SDM Vol. 2, {manual}",
        moves=True,
        native=False,
        doc=example(name, text, "[7], lanes=4", "[7.0, 7.0, 7.0, 7.0]" if fmt(dtype).is_float else "[7, 7, 7, 7]"),
    )
    def broadcast(a: Value, lanes: int) -> Value:
        return a.permute([0] * lanes)


_broadcast("vpbroadcastb", "u8", AVX512_BW, "VPBROADCAST", "One byte into every lane.")
_broadcast("vpbroadcastw", "u16", AVX512_BW, "VPBROADCAST", "One word into every lane.")
_broadcast("vpbroadcastd", "u32", AVX512_BW, "VPBROADCAST", "One doubleword into every lane.")
_broadcast("vpbroadcastq", "u64", AVX512_BW, "VPBROADCAST", "One quadword into every lane.")
_broadcast("vbroadcastss", "f32", AVX512_BW, "VBROADCAST", "One float into every lane.")
_broadcast("vbroadcastsd", "f64", CROSSING, "VBROADCAST", "One double into every lane.")


@define(
    "vbroadcasti32x4",
    "u32 <- u32[4]",
    AVX512_WIDE,
    "Intel SDM Vol. 2, VBROADCAST",
    moves=True,
    native=False,
    registers=False,
)
def vbroadcasti32x4(a: Value, lanes: int) -> Value:
    """Four doublewords into every 128 bits.

    >>> from isa_models import instruction
    >>> instruction("vbroadcasti32x4")([1, 2, 3, 4], lanes=8).tolist()
    [1, 2, 3, 4, 1, 2, 3, 4]
    """
    return a.permute([i % 4 for i in range(lanes)])


def _extract(letter: str, bits: int) -> None:
    per = 128 // bits
    name = f"vpextr{letter}"

    @define(
        name,
        f"u{bits} <- u{bits}*{per}",
        SSE_128,
        "Intel SDM Vol. 2B, PEXTRB/PEXTRW/PEXTRD/PEXTRQ",
        moves=True,
        native=False,
        whole=True,
        memory="store",
        registers=False,
        doc=example(name, "Store the lane that the immediate names.", f"{list(range(per))}, imm=1", "[1]"),
    )
    def extract(a: Value, imm: int) -> Value:
        return a.permute([imm % per])


for _letter, _bits in (("b", 8), ("w", 16), ("d", 32), ("q", 64)):
    _extract(_letter, _bits)
