"""PTX instructions of a warp's CUDA cores for kernels element by element and for stored weights, as `vector` has those
of products: arithmetic, choices, conversions, and bits that are brought where numbers of a wider type have them.

Source: PTX ISA, the sections that `vector` names, and "Logic and Shift Instructions", "Comparison and Selection
Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, define, example
from isa_models.nvidia.platforms import WARP
from isa_models.nvidia.vector import CAPS, MANUAL, canonical, convert, row
from isa_models.rounding import round_to, widen_f16

_F32, _F16, _S32, _U32 = (f"{t} <- {t}, {t}" for t in ("f32", "f16", "s32", "u32"))
_TWO_POW_23 = 0x4B000000  # as f32: an integer below its bits is a number that much above it
_1024 = 0x6400  # as f16, likewise


def _mask(condition: Value, like: Value) -> Value:
    """All ones where a condition holds."""
    bits = like.view("u32")
    return condition.where(bits.literal(0xFFFFFFFF), bits.literal(0))


def _in_turn(parts: list[Value]) -> Value:
    """Lanes of each of one, two, four or eight values in turn."""
    if len(parts) == 1:
        return parts[0]
    return _in_turn(parts[0::2]).interleave(_in_turn(parts[1::2]))


# -- arithmetic -------------------------------------------------------------------------------------------------------
def _half(a: Value) -> Value:
    return round_to(canonical(a), "f16")


def _immediate(
    name: str, dtype: str, text: str, call: str, result: str, function: Callable[[Value, int], Value]
) -> None:
    """An instruction with a number for its last operand, given by its bits."""

    def apply(a: Value, imm: int) -> Value:
        return function(a, imm)

    row(name, f"{dtype} <- {dtype}", apply, text, call, result, immediate_bits=fmt(dtype).bits)


def _times(a: Value, imm: int) -> Value:
    return canonical(a * a.view("u32").literal(imm).view("f32"))


def _times_half(a: Value, imm: int) -> Value:
    return _half(widen_f16(a) * widen_f16(a.view("u16").literal(imm).view("f16")))


row("sub.rn.f32", _F32, lambda a, b: canonical(a - b), "Difference.", "[2.5], [1]", "[1.5]", ways=("row",))
row("mul.rn.f32", _F32, lambda a, b: canonical(a * b), "Product.", "[2.5], [2]", "[5.0]", ways=("row",))
row("or.b32", _U32, lambda a, b: a | b, "Or.", "[12], [10]", "[14]", ways=("row",))
row(
    "sub.rn.f16",
    _F16,
    lambda a, b: _half(widen_f16(a) - widen_f16(b)),
    "Difference (of two at a time: sub.rn.f16x2).",
    "[2.5], [1]",
    "[1.5]",
    ways=("row",),
)
row(
    "mul.rn.f16",
    _F16,
    lambda a, b: _half(widen_f16(a) * widen_f16(b)),
    "Product, rounded once (of two at a time: mul.rn.f16x2).",
    "[2.5], [2]",
    "[5.0]",
    ways=("row",),
)
row("and.b32", _U32, lambda a, b: a & b, "And.", "[12], [10]", "[8]")
row("ptx_add.s32", _S32, lambda a, b: a + b, "Sum, wrapping (PTX: add.s32).", "[2], [5]", "[7]")
row("ptx_sub.s32", _S32, lambda a, b: a - b, "Difference, wrapping (PTX: sub.s32).", "[2], [5]", "[-3]")
row(
    "div.rn.f32",
    _F32,
    lambda a, b: canonical(a / b),
    "Quotient, correctly rounded.",
    "[1], [4]",
    "[0.25]",
    rate="math",
    ways=("row",),
)
row(
    "sqrt.rn.f32",
    "f32 <- f32",
    lambda a: canonical(a.sqrt()),
    "Square root, correctly rounded.",
    "[9]",
    "[3.0]",
    rate="math",
)
_immediate("and.b32.imm", "u32", "And with a number.", "[12], imm=10", "[8]", lambda a, imm: a & imm)
_immediate("ptx_add.u32.imm", "u32", "Sum with a number, wrapping.", "[12], imm=10", "[22]", lambda a, imm: a + imm)
_immediate("mul.rn.f32.imm", "f32", "Product with a number.", "[2.5], imm=0x40000000", "[5.0]", _times)
_immediate(
    "mul.rn.f16.imm",
    "f16",
    "Product with a number, rounded once (of two at a time: mul.rn.f16x2).",
    "[2.5], imm=0x4000",
    "[5.0]",
    _times_half,
)


# -- choices ----------------------------------------------------------------------------------------------------------
def _above(a: Value, imm: int) -> Value:
    return _mask(a > a.view("u32").literal(imm).view("f32"), a)


row(
    "set.gt.u32.f32",
    "u32 <- f32, f32",
    lambda a, b: _mask(a > b, a),
    "All ones where a > b.",
    "[2], [1]",
    "[4294967295]",
    chooses=True,
)
row(
    "set.lt.u32.f32",
    "u32 <- f32, f32",
    lambda a, b: _mask(a < b, a),
    "All ones where a < b.",
    "[2], [1]",
    "[0]",
    chooses=True,
)
row(
    "lop3.b32.select",
    "u32 <- u32, u32, u32",
    lambda m, a, b: (m & a) | ((m ^ 0xFFFFFFFF) & b),
    "Bits of a where those of the first operand are set, else of b (immLut 0xCA).",
    "[12], [10], [7]",
    "[11]",
    chooses=True,
)
row(
    "ptx_max.s32",
    _S32,
    lambda a, b: (a > b).where(a, b),
    "The greater (PTX: max.s32).",
    "[2], [5]",
    "[5]",
    chooses=True,
)
row(
    "set.gt.u32.f32.imm",
    "u32 <- f32",
    _above,
    "All ones where a is greater than a number.",
    "[2], imm=0x3F800000",
    "[4294967295]",
    immediate_bits=32,
)


# -- conversions ------------------------------------------------------------------------------------------------------
def _to_s32(a: Value) -> Value:
    a = a.is_nan().where(a.literal(0.0), a).round_even()
    above, below = a.literal(2.0**31), a.literal(-(2.0**31))
    whole = (a < above).where((a < below).where(below, a), a.literal(0.0)).to("s32")
    return (a < above).where(whole, whole.literal((1 << 31) - 1))


convert("cvt.rn.f32.s32", "f32 <- s32", lambda a: a.to("f32"), "To f32, nearest even.", "[3]", "[3.0]")
convert("cvt.rni.s32.f32", "s32 <- f32", _to_s32, "To the nearest integer, saturated; NaN becomes 0.", "[2.5]", "[2]")
for _type in ("s8", "u8", "s16", "u16"):
    convert(f"cvt.s32.{_type}", f"s32 <- {_type}", lambda a: a.to("s32"), "Widened.", "[3]", "[3]")
convert("cvt.sat.s8.s32", "s8 <- s32", lambda a: a.saturate("s8"), "Saturated.", "[300]", "[127]")
convert("cvt.sat.u8.s32", "u8 <- s32", lambda a: a.saturate("u8"), "Saturated.", "[300]", "[255]")


# -- bits -------------------------------------------------------------------------------------------------------------
def _bytes_as_halves(a: Value) -> Value:
    above = a.literal(_1024 << 16 | _1024)
    low = (a & 0xFF) | ((a & 0xFF00) << 8) | above
    return low.interleave(((a >> 16) & 0xFF) | ((a >> 8) & 0xFF0000) | above)


def _bytes_as_words(a: Value) -> Value:
    return _in_turn([((a >> shift) & 0xFF) | a.literal(_TWO_POW_23) for shift in (0, 8, 16, 24)])


def _shifted(a: Value, count: int) -> Value:
    return _in_turn([a >> 4 * i for i in range(count)])


def _spread(count: int, call: str, result: str) -> None:
    """A word's fields brought to the top of as many words."""

    def apply(a: Value, imm: int) -> Value:
        return _in_turn([a.moved_left(imm * i) for i in range(count)])

    text = f"A word shifted left by {count} multiples of the immediate, from 0 on."
    row(f"shl.b32.x{count}", f"u32 <- u32*{1 / count}", apply, text, call, result)


def _shift(name: str, dtype: str, function: Callable[[Value, int], Value], text: str, result: str) -> None:
    def apply(a: Value, imm: int) -> Value:
        return function(a, imm)

    row(name, f"{dtype} <- {dtype}", apply, text, "[13], imm=2", result)


def _joined(a: Value, b: Value, imm: int) -> Value:
    return (a & imm) | b


def _down(a: Value, lanes: int) -> Value:
    return a.permute(list(range(lanes, 2 * lanes)))


row(
    "prmt.b32.halves",
    "u32 <- u32*0.5",
    _bytes_as_halves,
    "A word's bytes below the bits of 1024, as halves: two byte permutes with 64H.",
    "[0x04030201], lanes=2",
    "[1677878273, 1678009347]",
)
row(
    "prmt.b32.words",
    "u32 <- u32*0.25",
    _bytes_as_words,
    "A word's bytes below the bits of 2^23, as f32: four byte permutes with 4B00H.",
    "[0x04030201], lanes=4",
    "[1258291201, 1258291202, 1258291203, 1258291204]",
)
row(
    "shr.b32.halves",
    "u32 <- u32*0.25",
    lambda a: _shifted(a, 4),
    "A word shifted right by 0, 4, 8 and 12.",
    "[0x43210], lanes=4",
    "[274960, 17185, 1074, 67]",
)
row(
    "shr.b32.words",
    "u32 <- u32*0.125",
    lambda a: _shifted(a, 8),
    "A word shifted right by 0, 4, 8 and so on.",
    "[0x43210], lanes=8",
    "[274960, 17185, 1074, 67, 4, 0, 0, 0]",
)
row(
    "lop3.b32.words",
    "u32 <- u32",
    lambda a: (a & 15) | a.literal(_TWO_POW_23),
    "The lowest four bits below the bits of 2^23 (immLut 0xEA).",
    "[0x13]",
    "[1258291203]",
)
row(
    "lop3.b32.halves",
    "u32 <- u32",
    lambda a: (a & 0x000F000F) | a.literal(_1024 << 16 | _1024),
    "The lowest four bits of each half below the bits of 1024 (immLut 0xEA).",
    "[0x00130012]",
    "[1677943810]",
)
row(
    "lop3.b32.join",
    "u32 <- u32, u32",
    _joined,
    "Bits of a that a number has, and all of b (immLut 0xEA).",
    "[12], [1], imm=10",
    "[9]",
    immediate_bits=32,
)
_shift("shl.b32", "u32", Value.moved_left, "Left; 32 or more leave zero.", "[52]")
_shift("ptx_shr.u32", "u32", Value.moved_right, "Right, zeros in (PTX: shr.u32); 32 or more leave zero.", "[3]")
_shift("ptx_shr.s32", "s32", Value.moved_right, "Right, signs in (PTX: shr.s32).", "[3]")
_spread(2, "[0x4321], imm=8, lanes=2", "[17185, 4399360]")
_spread(4, "[0x4321], imm=4, lanes=4", "[17185, 274960, 4399360, 70389760]")
_spread(8, "[1], imm=4, lanes=8", "[1, 16, 256, 4096, 65536, 1048576, 16777216, 268435456]")
define(
    "shfl.down.f32",
    "f32 <- f32*2",
    CAPS,
    MANUAL + "shfl.sync",
    GPU_REGISTRY,
    native=False,
    warp=WARP,
    doc=example("shfl.down.f32", "The lanes half a register further.", "[1, 5, 4, 2], lanes=2", "[4.0, 2.0]"),
)(_down)
