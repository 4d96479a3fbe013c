"""Vector instructions of Intel GPUs that the kernels need: one row each, by type.

Source: intel-graphics-compiler, documentation/visa/instructions (ADD.md, MUL.md, MAD.md, MOV.md, SHL.md …). Floats
keep denormals, as with the control register's bits for that set; a mad of floats rounds once (IGC makes it of
llvm.fma). Which NaN comes out is not published: here always the quiet one 7FC00000H. Vectors of any lanes work; the
clock charges each register-sized pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, define, example
from isa_models.intel_gpu.dp4a import CAPS
from isa_models.rounding import round_to, widen_f16

_MANUAL = "IGC documentation/visa/instructions/"


def _quiet(value: Value) -> Value:
    return value.is_nan().rarely(value, lambda: value.is_nan().where(_nan(value), value))


def _nan(value: Value) -> Value:
    return value.view("u32").literal(0x7FC00000).view("f32")


def _row(
    name: str, signature: str, function: Callable[..., Value], text: str, call: str, result: str, **facts: Any
) -> None:
    manual = f"{_MANUAL}{name.split('.')[0].upper()}.md"
    doc = example(name, text, call, result)
    define(name, signature, CAPS, manual, GPU_REGISTRY, doc=doc, native=False, **facts)(function)


_along = functools.partial(_row, ways=("row", "col"))
_MAD_WAYS = ("row", "outer")


def _two(operation: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def apply(a: Value, b: Value) -> Value:
        result = operation(a, b)
        return _quiet(result) if result.dtype == "f32" else result

    return apply


def _one(operation: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def apply(a: Value) -> Value:
        return operation(a)

    return apply


def _mad(acc: Value, a: Value, b: Value) -> Value:
    return _quiet(a.fma(b, acc)) if acc.dtype == "f32" else acc + a * b


for _type, _sum in (("f32", "[3.5]"), ("s32", "[3]")):
    _args = "[2.5], [1]" if _type == "f32" else "[2], [1]"
    _along(f"add.{_type}", f"{_type} <- {_type}, {_type}", _two(lambda a, b: a + b), "Sum; integers wrap.", _args, _sum)


def _mad_function() -> Callable[[Value, Value, Value], Value]:
    def mad(acc: Value, a: Value, b: Value) -> Value:
        return _mad(acc, a, b)

    return mad


for _type, _sum, _rate in (("f32", "[7.0]", "f32"), ("s32", "[7]", "product")):
    _row(
        f"mad.{_type}",
        f"{_type} <- {_type}, {_type}, {_type}",
        _mad_function(),
        "acc + a * b: floats rounded once, integers wrap.",
        "[1], [2], [3]",
        _sum,
        accumulates=True,
        rate=_rate,
        ways=_MAD_WAYS,
    )


_row(
    "mad.f32.apart",
    "f32 <- f32, f32, f32",
    _mad_function(),
    "mad.f32 into a register of its own.",
    "[1], [2], [3]",
    "[7.0]",
)


def _madw(acc: Value, a: Value, b: Value) -> Value:
    return acc + a * b.to("s32")


_row(
    "madw.s32",
    "s32 <- s32, s32, s16",
    _madw,
    "acc + a * b of 32 by 16 bits, wrapping: as fast as an addition, which 32 by 32 bits is not.",
    "[1], [2], [3]",
    "[7]",
    accumulates=True,
    ways=_MAD_WAYS,
)
_along("mul.f32", "f32 <- f32, f32", _two(lambda a, b: a * b), "Product.", "[2.5], [2]", "[5.0]")
_along(
    "mul.f16",
    "f16 <- f16, f16",
    lambda a, b: round_to(_quiet(widen_f16(a) * widen_f16(b)), "f16"),
    "Product, rounded once.",
    "[2.5], [2]",
    "[5.0]",
)
_along(
    "mul.s32",
    "s32 <- s32, s32",
    _two(lambda a, b: a * b),
    "Product, wrapping.",
    "[65536], [65537]",
    "[65536]",
    rate="product",
)
_along("sub.s32", "s32 <- s32, s32", _two(lambda a, b: a - b), "Difference, wrapping.", "[2], [5]", "[-3]")
_along("sub.f32", "f32 <- f32, f32", _two(lambda a, b: a - b), "Difference.", "[2], [5]", "[-3.0]")
_along("sub.s16", "s16 <- s16, s16", _two(lambda a, b: a - b), "Difference, wrapping.", "[2], [5]", "[-3]")
_row("lastbit.s16", "s16 <- s16", _one(lambda a: a & 1), "And with 1 (an immediate operand).", "[-3]", "[1]")
_along(
    "max.f32",
    "f32 <- f32, f32",
    _two(lambda a, b: (a > b).where(a, b)),
    "The greater; b where one is NaN.",
    "[2], [5]",
    "[5.0]",
    chooses=True,
)
_along(
    "max.s32",
    "s32 <- s32, s32",
    _two(lambda a, b: (a > b).where(a, b)),
    "The greater.",
    "[2], [-5]",
    "[2]",
    chooses=True,
)
_along(
    "min.f32",
    "f32 <- f32, f32",
    _two(lambda a, b: (a < b).where(a, b)),
    "The lesser; b where one is NaN.",
    "[2], [5]",
    "[2.0]",
    chooses=True,
)


def _fold(name: str, dtype: str, text: str, result: str) -> None:
    """A row for `name` with the lower half of a register's lanes and the upper: two regions of one operand."""
    whole = GPU_REGISTRY[name]
    basic = whole.function

    def fold(a: Value, lanes: int) -> Value:
        found: Value = basic(a.permute(list(range(lanes))), a.permute(list(range(lanes, 2 * lanes))))
        return found

    define(
        f"{name}.fold",
        f"{dtype} <- {dtype}*2",
        CAPS,
        f"{_MANUAL}{name.split('.')[0].upper()}.md",
        GPU_REGISTRY,
        doc=example(f"{name}.fold", text, "[1, 5, 4, 2], lanes=2", result),
        native=False,
        chooses=whole.chooses,
    )(fold)


_fold("max.f32", "f32", "The greater of each lane and that half a register further.", "[4.0, 5.0]")
_fold("min.f32", "f32", "The lesser of each lane and that half a register further.", "[1.0, 2.0]")
_fold("add.s32", "s32", "The sum of each lane and that half a register further, wrapping.", "[5, 7]")
_fold("add.f32", "f32", "The sum of each lane and that half a register further.", "[5.0, 7.0]")
_fold("mul.f32", "f32", "The product of each lane and that half a register further.", "[4.0, 10.0]")
_row("or.u16", "u16 <- u16, u16", _two(lambda a, b: a | b), "Or.", "[12], [10]", "[14]")
_along("or.u32", "u32 <- u32, u32", _two(lambda a, b: a | b), "Or.", "[12], [10]", "[14]")
_row("and.u32", "u32 <- u32, u32", _two(lambda a, b: a & b), "And.", "[12], [10]", "[8]")
_row("xor.u32", "u32 <- u32, u32", _two(lambda a, b: a ^ b), "Exclusive or.", "[12], [10]", "[6]", clears=True)
_row(
    "inv.f32",
    "f32 <- f32",
    _one(lambda a: _quiet(a.literal(1.0) / a)),
    "1 / x, correctly rounded here; the unit's own error (1 ulp) is not modelled.",
    "[4]",
    "[0.25]",
    rate="math",
)

_along(
    "div.f32",
    "f32 <- f32, f32",
    _two(lambda a, b: a / b),
    "Quotient, correctly rounded here; the unit's own error (1 ulp) is not modelled.",
    "[1], [4]",
    "[0.25]",
    rate="math",
)
_row(
    "sqrt.f32",
    "f32 <- f32",
    _one(lambda a: _quiet(a.sqrt())),
    "Square root, correctly rounded here; the unit's own error (1 ulp) is not modelled.",
    "[9]",
    "[3.0]",
    rate="math",
)


def _shift(name: str, dtype: str, text: str, result: str, function: Callable[[Value, int], Value]) -> None:
    def shift(a: Value, imm: int) -> Value:
        return function(a, imm & 31)

    _row(name, f"{dtype} <- {dtype}", shift, text, "[13], imm=2", result)


_shift("shl.u32", "u32", "Left, by the immediate's five low bits.", "[52]", lambda a, imm: a << imm)
_shift("shr.u32", "u32", "Right, zeros in.", "[3]", lambda a, imm: a >> imm)
_shift("asr.s32", "s32", "Right, signs in.", "[3]", lambda a, imm: a >> imm)
_shift("asr.s16", "s16", "Right by the immediate's four low bits, signs in.", "[3]", lambda a, imm: a >> (imm & 15))
_shift("shl.u16", "u16", "Left, by the immediate's four low bits.", "[52]", lambda a, imm: a << (imm & 15))


def _with_number(name: str, dtype: str, text: str, call: str, result: str, function: Callable[..., Value]) -> None:
    """A row whose second operand is a number in the instruction, given by its bits."""

    def apply(a: Value, imm: int) -> Value:
        return function(a, imm)

    _row(name, f"{dtype} <- {dtype}", apply, text, call, result, immediate_bits=16)


_with_number("and.u16.imm", "u16", "And with a number.", "[12], imm=10", "[8]", lambda a, imm: a & imm)
_with_number("add.u16.imm", "u16", "Sum with a number, wrapping.", "[12], imm=10", "[22]", lambda a, imm: a + imm)
_with_number(
    "mul.f16.imm",
    "f16",
    "Product with a number, rounded once.",
    "[2.5], imm=0x4000",
    "[5.0]",
    lambda a, imm: round_to(_quiet(widen_f16(a) * widen_f16(a.view("u16").literal(imm).view("f16"))), "f16"),
)


# -- conversions ------------------------------------------------------------------------------------------------------
_convert = functools.partial(_row, rate="conversion")


def _to_integer(a: Value, dtype: str) -> Value:
    """An integral float clamped into an integer type; NaN becomes 0."""
    low, high = {"s8": (-128.0, 127.0), "u8": (0.0, 255.0)}[dtype]
    a = a.is_nan().where(a.literal(0.0), a)
    a = (a < low).where(a.literal(low), a)
    return (a > high).where(a.literal(high), a).to("s32").to(dtype)


_row(
    "rnde.f32",
    "f32 <- f32",
    _one(lambda a: _quiet(a.round_even())),
    "To the nearest integer, ties to even.",
    "[2.5]",
    "[2.0]",
)
_convert("mov.f32.s32", "f32 <- s32", _one(lambda a: a.to("f32")), "Integers to floats, nearest even.", "[3]", "[3.0]")
_convert("mov.s32.s8", "s32 <- s8", _one(lambda a: a.to("s32")), "Bytes widened by their sign.", "[-3]", "[-3]")
_convert("mov.s32.u8", "s32 <- u8", _one(lambda a: a.to("s32")), "Bytes widened with zeros.", "[253]", "[253]")
_convert("mov.s32.s16", "s32 <- s16", _one(lambda a: a.to("s32")), "Words widened by their sign.", "[-3]", "[-3]")
_convert("mov.s32.u16", "s32 <- u16", _one(lambda a: a.to("s32")), "Words widened with zeros.", "[65533]", "[65533]")
_convert("mov.s16.s8", "s16 <- s8", _one(lambda a: a.to("s16")), "Bytes widened by their sign.", "[-3]", "[-3]")
_convert("mov.s16.u8", "s16 <- u8", _one(lambda a: a.to("s16")), "Bytes widened with zeros.", "[253]", "[253]")


def _nibbles(signed: bool) -> Callable[[Value], Value]:
    def widen(a: Value) -> Value:
        wide = (a & 15).interleave(a >> 4).to("s16")
        return (wide ^ 8) - 8 if signed else wide

    return widen


_row(
    "mov.s16.u4",
    "s16 <- u8*0.5",
    _nibbles(False),
    "Nibbles as words, the low one first (And and Shr into every second word).",
    "[33], lanes=2",
    "[1, 2]",
)
_row(
    "mov.s16.s4",
    "s16 <- u8*0.5",
    _nibbles(True),
    "Nibbles as words by their sign, the low one first (Shl and Asr into every second word).",
    "[47], lanes=2",
    "[-1, 2]",
)
_convert("mov.s8.s16", "s8 <- s16", _one(lambda a: a.to("s8")), "The low bytes of words.", "[-3]", "[-3]")
_convert(
    "mov.f16.s16",
    "f16 <- s16",
    _one(lambda a: round_to(a.to("s32").to("f32"), "f16")),
    "Words to floats, nearest even; exact up to 2048.",
    "[-3]",
    "[-3.0]",
)
_convert(
    "mov.f32.s16", "f32 <- s16", _one(lambda a: a.to("s32").to("f32")), "Words to floats, exactly.", "[-3]", "[-3.0]"
)
_convert(
    "mov.f32.bf16",
    "f32 <- bf16",
    _one(lambda a: _quiet((a.view("u16").to("u32") << 16).view("f32"))),
    "bf16 as f32, exactly.",
    "[1.5]",
    "[1.5]",
)
_convert("mov.f32.f16", "f32 <- f16", _one(lambda a: _quiet(widen_f16(a))), "f16 as f32, exactly.", "[1.5]", "[1.5]")
_convert(
    "mov.bf16.f32",
    "bf16 <- f32",
    _one(lambda a: round_to(_quiet(a), "bf16")),
    "Rounded to nearest even.",
    "[1.00390625]",
    "[1.0]",
)
_convert(
    "mov.f16.f32",
    "f16 <- f32",
    _one(lambda a: round_to(_quiet(a), "f16")),
    "Rounded to nearest even.",
    "[1.5]",
    "[1.5]",
)
_convert(
    "mov.tf32.f32",
    "f32 <- f32",
    _one(lambda a: round_to(_quiet(a), "tf32")),
    "Rounded to 10 digits, nearest even, in f32's place (the tf32 conversion of the compiler's intrinsic).",
    "[1.5]",
    "[1.5]",
)
for _type, _range in (("s8", "[127]"), ("u8", "[255]")):
    _convert(
        f"mov.{_type}.f32.sat",
        f"{_type} <- f32",
        _one(lambda a, dtype=_type: _to_integer(a, dtype)),  # type: ignore[misc]
        "An integral float, saturated; NaN becomes 0.",
        "[300]",
        _range,
        saturates=True,
    )


def _to_s32(a: Value) -> Value:
    """An integral float clamped into s32; NaN becomes 0."""
    a = a.is_nan().where(a.literal(0.0), a)
    above, below = a.literal(2.0**31), a.literal(-(2.0**31))
    whole = (a < above).where((a < below).where(below, a), a.literal(0.0)).to("s32")
    return (a < above).where(whole, whole.literal((1 << 31) - 1))


_convert(
    "mov.s32.f32.sat",
    "s32 <- f32",
    _one(_to_s32),
    "An integral float, saturated; NaN becomes 0.",
    "[3e9]",
    "[2147483647]",
    saturates=True,
)


for _type, _range in (("s8", "[127]"), ("u8", "[255]")):
    _convert(
        f"mov.{_type}.s32.sat",
        f"{_type} <- s32",
        _one(lambda a, dtype=_type: a.saturate(dtype)),  # type: ignore[misc]
        "Integers, saturated.",
        "[300]",
        _range,
        saturates=True,
    )


# -- moves and messages -----------------------------------------------------------------------------------------------
def _move() -> Callable[[Value], Value]:
    def move(a: Value) -> Value:
        return a

    return move


for _type in ("u32", "s32", "f32", "u16", "s16", "u8", "s8", "bf16", "f16"):
    _call, _result = ("[1.5]", "[1.5]") if fmt(_type).is_float else ("[7]", "[7]")
    _row(f"mov.{_type}", f"{_type} <- {_type}", _move(), "A copy.", _call, _result, moves=True)
    for _way in ("load", "store"):
        define(
            f"{_way}.{_type}",
            f"{_type} <- {_type}",
            CAPS,
            f"{_MANUAL}LSC_{_way.upper()}.md",
            GPU_REGISTRY,
            moves=True,
            native=False,
            partial=True,
            doc=example(f"{_way}.{_type}", f"A block {_way} (LSC message).", _call, _result),
        )(_move())


def _broadcast(a: Value, lanes: int) -> Value:
    return a.permute([0] * lanes)


for _type in ("s32", "f32", "u32", "f16", "bf16", "u8", "s8", "u16", "s16"):
    _call, _result = ("[1.5], lanes=2", "[1.5, 1.5]") if fmt(_type).is_float else ("[7], lanes=2", "[7, 7]")

    def _spread(a: Value, lanes: int) -> Value:
        return _broadcast(a, lanes)

    define(
        f"load_splat.{_type}",
        f"{_type} <- {_type}*0",
        CAPS,
        _MANUAL + "LSC_LOAD.md",
        GPU_REGISTRY,
        moves=True,
        native=False,
        doc=example(f"load_splat.{_type}", "One element in every lane.", _call, _result),
    )(_spread)
