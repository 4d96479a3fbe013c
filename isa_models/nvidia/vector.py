"""PTX instructions of a warp's CUDA cores that the kernels need: one row each, by type; a register is 32 lanes.

Source: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Data Movement and
Conversion Instructions". `.rn` rounds to nearest even; subnormals count in full (no `.ftz`). A NaN result is the
canonical one, 7FFFFFFFH of f32 and 7FFFH of f16.

Runs of them over a block of M rows are written as one form (`isa_models.gpu.blocks`): "fma.rn.f32.8x32.outer",
"add.rn.f32.8x32.row".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.gpu.blocks import block_form
from isa_models.gpu.naming import NAME, Naming
from isa_models.instruction import FORMS, GPU_REGISTRY, Instruction, Operand, define, example
from isa_models.nvidia.platforms import PLATFORMS, WARP
from isa_models.rounding import round_to, widen_f16

_MANUAL = "PTX ISA, Instructions: "
CAPS = {WARP * 32: tuple(PLATFORMS)}
_BF16 = {WARP * 32: tuple(name for name, p in PLATFORMS.items() if p.warp_product("bf16"))}  # sm_80 and later


def _canonical(value: Value) -> Value:
    """f32 lanes, each NaN the canonical one."""
    nan = value.view("u32").literal(0x7FFFFFFF).view("f32")
    return value.is_nan().rarely(value, lambda: value.is_nan().where(nan, value))


def _row(
    name: str,
    signature: str,
    function: Callable[..., Value],
    text: str,
    call: str,
    result: str,
    caps: dict[int, tuple[str, ...]] = CAPS,
    **facts: Any,
) -> None:
    doc = example(name, text, call, result)
    manual = _MANUAL + name.split(".")[0]
    define(name, signature, caps, manual, GPU_REGISTRY, doc=doc, native=False, warp=WARP, **facts)(function)


def _add(a: Value, b: Value) -> Value:
    return _canonical(a + b)


def _fma(acc: Value, a: Value, b: Value) -> Value:
    return _canonical(a.fma(b, acc))


def _max(a: Value, b: Value) -> Value:
    """The one that is a number; +0 is greater than -0."""
    zeros = a.view("u32") & b.view("u32")
    greater = (a > b).where(a, a.eq(b).where(zeros.view("f32"), b))
    return _canonical(a.is_nan().where(b, b.is_nan().where(a, greater)))


def _quotient(a: Value, b: Value) -> Value:
    return _canonical(a / b)


def _zero(a: Value, b: Value) -> Value:
    return a ^ b


def mask(condition: Value, like: Value) -> Value:
    """All ones where a condition holds."""
    bits = like.view("u32")
    return condition.where(bits.literal(0xFFFFFFFF), bits.literal(0))


def in_turn(parts: list[Value]) -> Value:
    """Lanes of each of one, two, four or eight values in turn."""
    if len(parts) == 1:
        return parts[0]
    return in_turn(parts[0::2]).interleave(in_turn(parts[1::2]))


_row("add.rn.f32", "f32 <- f32, f32", _add, "Sum.", "[2.5], [1]", "[3.5]", ways=("row",))
_row(
    "fma.rn.f32",
    "f32 <- f32, f32, f32",
    _fma,
    "acc + a * b, rounded once.",
    "[1], [2], [3]",
    "[7.0]",
    accumulates=True,
    ways=("row", "outer"),
)
_row(
    "fma.rn.f32.apart",
    "f32 <- f32, f32, f32",
    lambda acc, a, b: _fma(acc, a, b),
    "fma.rn.f32 into a register of its own.",
    "[1], [2], [3]",
    "[7.0]",
)
_row(
    "ptx_max.f32",
    "f32 <- f32, f32",
    _max,
    "The greater, or the one that is a number (PTX: max.f32).",
    "[2], [5]",
    "[5.0]",
    chooses=True,
)
_convert = functools.partial(_row, rate="conversion")
_convert(
    "cvt.rn.f16.f32", "f16 <- f32", lambda a: round_to(_canonical(a), "f16"), "To f16, nearest even.", "[1.5]", "[1.5]"
)
_convert("cvt.f32.f16", "f32 <- f16", lambda a: _canonical(widen_f16(a)), "f16 as f32, exactly.", "[1.5]", "[1.5]")
_convert(
    "cvt.rn.bf16.f32",
    "bf16 <- f32",
    lambda a: round_to(_canonical(a), "bf16"),
    "To bf16, nearest even.",
    "[1.5]",
    "[1.5]",
    caps=_BF16,
)
_row(
    "mov.b32.bf16",
    "f32 <- bf16",
    lambda a: (a.view("u16").to("u32") << 16).view("f32"),
    "bf16 as f32: its bits above 16 zeros (PTX: mov.b32 d, {0, a}).",
    "[1.5]",
    "[1.5]",
    caps=_BF16,
)
_row("xor.b32", "u32 <- u32, u32", _zero, "Exclusive or.", "[12], [10]", "[6]", clears=True)


def _steps() -> None:
    """Arithmetic of element-by-element kernels."""

    def to_s32(a: Value) -> Value:
        a = a.is_nan().where(a.literal(0.0), a).round_even()
        above, below = a.literal(2.0**31), a.literal(-(2.0**31))
        whole = (a < above).where((a < below).where(below, a), a.literal(0.0)).to("s32")
        return (a < above).where(whole, whole.literal((1 << 31) - 1))

    def half(a: Value) -> Value:
        return round_to(_canonical(a), "f16")

    def bytes_as_halves(a: Value) -> Value:
        above = a.literal(0x64006400)
        low = (a & 0xFF) | ((a & 0xFF00) << 8) | above
        return low.interleave(((a >> 16) & 0xFF) | ((a >> 8) & 0xFF0000) | above)

    def bytes_as_words(a: Value) -> Value:
        parts = [((a >> shift) & 0xFF) | a.literal(0x4B000000) for shift in (0, 8, 16, 24)]
        return in_turn(parts)

    def shifted(a: Value, count: int) -> Value:
        return in_turn([a >> 4 * i for i in range(count)])

    f32, s32, u32 = (f"{t} <- {t}, {t}" for t in ("f32", "s32", "u32"))
    along: list[tuple[str, str, Callable[..., Value], str, str, str]] = [
        ("sub.rn.f32", f32, lambda a, b: _canonical(a - b), "Difference.", "[2.5], [1]", "[1.5]"),
        ("mul.rn.f32", f32, lambda a, b: _canonical(a * b), "Product.", "[2.5], [2]", "[5.0]"),
        ("or.b32", u32, lambda a, b: a | b, "Or.", "[12], [10]", "[14]"),
        (
            "sub.rn.f16",
            "f16 <- f16, f16",
            lambda a, b: half(widen_f16(a) - widen_f16(b)),
            "Difference (of two at a time: sub.rn.f16x2).",
            "[2.5], [1]",
            "[1.5]",
        ),
        (
            "mul.rn.f16",
            "f16 <- f16, f16",
            lambda a, b: half(widen_f16(a) * widen_f16(b)),
            "Product, rounded once (of two at a time: mul.rn.f16x2).",
            "[2.5], [2]",
            "[5.0]",
        ),
    ]
    for row in along:
        _row(*row, ways=("row",))
    rows: list[tuple[str, str, Callable[..., Value], str, str, str]] = [
        (
            "prmt.b32.halves",
            "u32 <- u32*0.5",
            bytes_as_halves,
            "A word's bytes below the bits of 1024, as halves: two byte permutes with 64H.",
            "[0x04030201], lanes=2",
            "[1677878273, 1678009347]",
        ),
        (
            "prmt.b32.words",
            "u32 <- u32*0.25",
            bytes_as_words,
            "A word's bytes below the bits of 2^23, as f32: four byte permutes with 4B00H.",
            "[0x04030201], lanes=4",
            "[1258291201, 1258291202, 1258291203, 1258291204]",
        ),
        (
            "shr.b32.halves",
            "u32 <- u32*0.25",
            lambda a: shifted(a, 4),
            "A word shifted right by 0, 4, 8 and 12.",
            "[0x43210], lanes=4",
            "[274960, 17185, 1074, 67]",
        ),
        (
            "shr.b32.words",
            "u32 <- u32*0.125",
            lambda a: shifted(a, 8),
            "A word shifted right by 0, 4, 8 and so on.",
            "[0x43210], lanes=8",
            "[274960, 17185, 1074, 67, 4, 0, 0, 0]",
        ),
        (
            "lop3.b32.words",
            "u32 <- u32",
            lambda a: (a & 15) | a.literal(0x4B000000),
            "The lowest four bits below the bits of 2^23 (immLut 0xEA).",
            "[0x13]",
            "[1258291203]",
        ),
        (
            "lop3.b32.halves",
            "u32 <- u32",
            lambda a: (a & 0x000F000F) | a.literal(0x64006400),
            "The lowest four bits of each half below the bits of 1024 (immLut 0xEA).",
            "[0x00130012]",
            "[1677943810]",
        ),
        ("and.b32", u32, lambda a, b: a & b, "And.", "[12], [10]", "[8]"),
        ("ptx_add.s32", s32, lambda a, b: a + b, "Sum, wrapping (PTX: add.s32).", "[2], [5]", "[7]"),
        ("ptx_sub.s32", s32, lambda a, b: a - b, "Difference, wrapping (PTX: sub.s32).", "[2], [5]", "[-3]"),
    ]
    for row in rows:
        _row(*row)
    choices: list[tuple[str, str, Callable[..., Value], str, str, str]] = [
        (
            "set.gt.u32.f32",
            "u32 <- f32, f32",
            lambda a, b: mask(a > b, a),
            "All ones where a > b.",
            "[2], [1]",
            "[4294967295]",
        ),
        ("set.lt.u32.f32", "u32 <- f32, f32", lambda a, b: mask(a < b, a), "All ones where a < b.", "[2], [1]", "[0]"),
        (
            "lop3.b32.select",
            "u32 <- u32, u32, u32",
            lambda m, a, b: (m & a) | ((m ^ 0xFFFFFFFF) & b),
            "Bits of a where those of the first operand are set, else of b (immLut 0xCA).",
            "[12], [10], [7]",
            "[11]",
        ),
        ("ptx_max.s32", s32, lambda a, b: (a > b).where(a, b), "The greater (PTX: max.s32).", "[2], [5]", "[5]"),
    ]
    for row in choices:
        _row(*row, chooses=True)
    root = "Square root, correctly rounded."
    quotient = "Quotient, correctly rounded."
    _row("div.rn.f32", f32, _quotient, quotient, "[1], [4]", "[0.25]", rate="math", ways=("row",))
    _row("sqrt.rn.f32", "f32 <- f32", lambda a: _canonical(a.sqrt()), root, "[9]", "[3.0]", rate="math")
    conversions: list[tuple[str, str, Callable[..., Value], str, str, str]] = [
        ("cvt.rn.f32.s32", "f32 <- s32", lambda a: a.to("f32"), "To f32, nearest even.", "[3]", "[3.0]"),
        ("cvt.rni.s32.f32", "s32 <- f32", to_s32, "To the nearest integer, saturated; NaN becomes 0.", "[2.5]", "[2]"),
        *(
            (f"cvt.s32.{t}", f"s32 <- {t}", lambda a: a.to("s32"), "Widened.", "[3]", "[3]")
            for t in ("s8", "u8", "s16", "u16")
        ),
        ("cvt.sat.s8.s32", "s8 <- s32", lambda a: a.saturate("s8"), "Saturated.", "[300]", "[127]"),
        ("cvt.sat.u8.s32", "u8 <- s32", lambda a: a.saturate("u8"), "Saturated.", "[300]", "[255]"),
    ]
    for row in conversions:
        _convert(*row)

    def shift(name: str, dtype: str, function: Callable[[Value, int], Value], text: str, result: str) -> None:
        def shifted(a: Value, imm: int) -> Value:
            return function(a, imm)

        _row(name, f"{dtype} <- {dtype}", shifted, text, "[13], imm=2", result)

    shift("shl.b32", "u32", lambda a, imm: a << imm, "Left.", "[52]")
    shift("ptx_shr.u32", "u32", lambda a, imm: a >> imm, "Right, zeros in (PTX: shr.u32).", "[3]")
    shift("ptx_shr.s32", "s32", lambda a, imm: a >> imm, "Right, signs in (PTX: shr.s32).", "[3]")

    def down(a: Value, lanes: int) -> Value:
        return a.permute(list(range(lanes, 2 * lanes)))

    define(
        "shfl.down.f32",
        "f32 <- f32*2",
        CAPS,
        _MANUAL + "shfl.sync",
        GPU_REGISTRY,
        native=False,
        warp=WARP,
        doc=example("shfl.down.f32", "The lanes half a register further.", "[1, 5, 4, 2], lanes=2", "[4.0, 2.0]"),
    )(down)


_steps()


def _decoding() -> None:
    """Instructions that decode codes of narrow floats: with numbers for operands, given by their bits, and one that
    brings fields of words to the top of wider ones.
    """

    def spread(count: int) -> Callable[[Value, int], Value]:
        def apply(a: Value, imm: int) -> Value:
            return in_turn([a << imm * i for i in range(count)])

        return apply

    def number(name: str, dtype: str, text: str, call: str, result: str, function: Callable[..., Value]) -> None:
        def apply(a: Value, imm: int) -> Value:
            return function(a, imm)

        _row(name, f"{dtype} <- {dtype}", apply, text, call, result, immediate_bits=fmt(dtype).bits)

    for count, call, result in (
        (2, "[0x4321], imm=8, lanes=2", "[17185, 4399360]"),
        (4, "[0x4321], imm=4, lanes=4", "[17185, 274960, 4399360, 70389760]"),
        (8, "[1], imm=4, lanes=8", "[1, 16, 256, 4096, 65536, 1048576, 16777216, 268435456]"),
    ):
        text = f"A word shifted left by {count} multiples of the immediate, from 0 on."
        _row(f"shl.b32.x{count}", f"u32 <- u32*{1 / count}", spread(count), text, call, result)
    number("and.b32.imm", "u32", "And with a number.", "[12], imm=10", "[8]", lambda a, imm: a & imm)
    number("ptx_add.u32.imm", "u32", "Sum with a number, wrapping.", "[12], imm=10", "[22]", lambda a, imm: a + imm)
    number(
        "mul.rn.f32.imm",
        "f32",
        "Product with a number.",
        "[2.5], imm=0x40000000",
        "[5.0]",
        lambda a, imm: _canonical(a * a.view("u32").literal(imm).view("f32")),
    )
    number(
        "mul.rn.f16.imm",
        "f16",
        "Product with a number, rounded once (of two at a time: mul.rn.f16x2).",
        "[2.5], imm=0x4000",
        "[5.0]",
        lambda a, imm: round_to(_canonical(widen_f16(a) * widen_f16(a.view("u16").literal(imm).view("f16"))), "f16"),
    )

    def above(a: Value, imm: int) -> Value:
        return mask(a > a.view("u32").literal(imm).view("f32"), a)

    def joined(a: Value, b: Value, imm: int) -> Value:
        return (a & imm) | b

    text = "All ones where a is greater than a number."
    _row("set.gt.u32.f32.imm", "u32 <- f32", above, text, "[2], imm=0x3F800000", "[4294967295]", immediate_bits=32)
    text = "Bits of a that a number has, and all of b (immLut 0xEA)."
    _row("lop3.b32.join", "u32 <- u32, u32", joined, text, "[12], [1], imm=10", "[9]", immediate_bits=32)


_decoding()


# -- memory -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class SharedLoad(Instruction):
    """Loads of a fragment from shared memory; each element goes to the registers of `copies` threads.

    Shared memory holds what was in global memory, or (`widened`) that in a wider type: the threads that brought it
    there converted it, each element once.
    """

    @property
    def widened(self) -> bool:
        return self.operands[0].dtype != self.result


_LOADED = ("f32", "f16", "bf16", "u32", "s8", "u8", "f8_e4m3", "f8_e5m2")
SHARED = Naming("ld.shared.{dtype}.to{copies}", dtype=_LOADED)
WIDENED = Naming("ld.shared.{dtype}.{stored}.to{copies}", dtype=("f32",), stored=("f16",))


@functools.cache
def _shared_load(name: str) -> SharedLoad | None:
    """The form of a name such as "ld.shared.f16.to2", or "ld.shared.f32.f16.to2"."""
    if (fields := SHARED.read(name) or WIDENED.read(name)) is None:
        return None
    stored, dtype = fields.get("stored", fields["dtype"]), fields["dtype"]
    return SharedLoad(
        name,
        (Operand("a", stored),),
        dtype,
        _copy() if stored == dtype else _widen(),
        _MANUAL + "ld",
        CAPS,
        native=False,
        moves=True,
        partial=True,
        copies=fields["copies"],
        warp=WARP,
    )


def _widen() -> Callable[[Value], Value]:
    """f16 as f32, exactly."""

    def widen(a: Value) -> Value:
        return _canonical(widen_f16(a))

    return widen


def _copy() -> Callable[[Value], Value]:
    """A function of its own for each instruction: its docstring belongs to it."""

    def copy(a: Value) -> Value:
        return a

    return copy


for _type in ("f32", "f16", "bf16", "s32", "u32", "s16", "u16", "s8", "u8"):
    _call, _result = ("[1.5]", "[1.5]") if fmt(_type).is_float else ("[7]", "[7]")
    for _way in ("ld.global", "st.global"):
        _row(f"{_way}.{_type}", f"{_type} <- {_type}", _copy(), "A copy.", _call, _result, moves=True, partial=True)

    def _same(a: Value, lanes: int) -> Value:
        return a.permute([0] * lanes)

    define(
        f"ld.global.{_type}.same",
        f"{_type} <- {_type}*0",
        CAPS,
        _MANUAL + "ld",
        GPU_REGISTRY,
        moves=True,
        native=False,
        warp=WARP,
        doc=example(
            f"ld.global.{_type}.same",
            "One address for all lanes.",
            f"{_call}, lanes=2",
            f"[{_result[1:-1]}, {_result[1:-1]}]",
        ),
    )(_same)


# -- copies -----------------------------------------------------------------------------------------------------------
COPIED = Naming("{unit}.to{copies}", unit=NAME)


@functools.cache
def _copied(name: str) -> Instruction | None:
    """An instruction that each of several threads executes on the same elements, as "cvt.f32.f16.to2"."""
    if (fields := COPIED.read(name)) is None:
        return None
    found = GPU_REGISTRY.get(fields["unit"]) or block_form(fields["unit"])
    return replace(found, name=name, copies=fields["copies"]) if found and found.warp and not found.moves else None


FORMS.append(_copied)
FORMS.append(_shared_load)
