"""PTX instructions of a warp's CUDA cores that the kernels need: one row each, by type; a register is 32 lanes.

Source: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions", "Data Movement and
Conversion Instructions". `.rn` rounds to nearest even; subnormals count in full (no `.ftz`). A NaN result is the
canonical one, 7FFFFFFFH of f32 and 7FFFH of f16.

Runs of them over a block of M rows are written as one form, as `isa_models.intel_gpu.blocks` has it:

    fma.rn.f32.8x32.outer   acc + column * row             M instructions of a warp
    add.rn.f32.8x32.row     acc + a row of 32 columns      M instructions of a warp
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isa_models.algebra import Value
from isa_models.instruction import FORMS, GPU_REGISTRY, Instruction, Operand, define, example
from isa_models.intel_gpu.blocks import BlockForm, spread
from isa_models.nvidia.platforms import WARP
from isa_models.rounding import round_to, widen_f16

_MANUAL = "PTX ISA, Instructions: "
CAPS = {WARP * 32: ("volta",)}


def _canonical(value: Value) -> Value:
    """f32 lanes, each NaN the canonical one."""
    nan = value.view("u32").literal(0x7FFFFFFF).view("f32")
    return value.is_nan().rarely(value, lambda: value.is_nan().where(nan, value))


def _row(
    name: str, signature: str, function: Callable[..., Value], text: str, call: str, result: str, **facts: Any
) -> None:
    doc = example(name, text, call, result)
    define(name, signature, CAPS, _MANUAL + name.split(".")[0], GPU_REGISTRY, doc=doc, native=False, **facts)(function)


def _add(a: Value, b: Value) -> Value:
    return _canonical(a + b)


def _fma(acc: Value, a: Value, b: Value) -> Value:
    return _canonical(a.fma(b, acc))


def _max(a: Value, b: Value) -> Value:
    """The one that is a number; +0 is greater than -0."""
    zeros = a.view("u32") & b.view("u32")
    greater = (a > b).where(a, a.eq(b).where(zeros.view("f32"), b))
    return _canonical(a.is_nan().where(b, b.is_nan().where(a, greater)))


def _zero(a: Value, b: Value) -> Value:
    return a ^ b


_row("add.rn.f32", "f32 <- f32, f32", _add, "Sum.", "[2.5], [1]", "[3.5]")
_row("fma.rn.f32", "f32 <- f32, f32, f32", _fma, "acc + a * b, rounded once.", "[1], [2], [3]", "[7.0]",
     accumulates=True)  # fmt: skip
_row("ptx_max.f32", "f32 <- f32, f32", _max, 'The greater, or the one that is a number (PTX: max.f32).', "[2], [5]",
     "[5.0]")  # fmt: skip
_row("cvt.rn.f16.f32", "f16 <- f32", lambda a: round_to(_canonical(a), "f16"), "To f16, nearest even.", "[1.5]",
     "[1.5]")  # fmt: skip
_row("cvt.f32.f16", "f32 <- f16", lambda a: _canonical(widen_f16(a)), "f16 as f32, exactly.", "[1.5]", "[1.5]")
_row("xor.b32", "u32 <- u32, u32", _zero, "Exclusive or.", "[12], [10]", "[6]")


# -- memory -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SharedLoad(Instruction):
    """Loads of a fragment from shared memory; each element goes to the registers of `copies` threads."""

    copies: int = 1


_SHARED = re.compile(r"ld\.shared\.(f32|f16)\.to(\d+)")


@functools.cache
def _shared_load(name: str) -> SharedLoad | None:
    """The form of a name such as "ld.shared.f16.to2"."""
    match = _SHARED.fullmatch(name)
    if match is None:
        return None
    return SharedLoad(
        name, (Operand("a", match[1]),), match[1], _copy(), _MANUAL + "ld", CAPS,
        native=False, moves=True, partial=True, copies=int(match[2]),
    )  # fmt: skip


def _copy() -> Callable[[Value], Value]:
    """A function of its own for each instruction: its docstring belongs to it."""

    def copy(a: Value) -> Value:
        return a

    return copy


for _type in ("f32", "f16"):
    for _way in ("ld.global", "st.global"):
        _row(f"{_way}.{_type}", f"{_type} <- {_type}", _copy(), "A copy.", "[1.5]", "[1.5]", moves=True, partial=True)


# -- blocks -----------------------------------------------------------------------------------------------------------
_BLOCK = re.compile(r"(add\.rn|fma\.rn)\.f32\.(\d+)x(\d+)\.(row|outer)")


@functools.cache
def _block(name: str) -> BlockForm | None:
    """The form of a full name, None where it is none; the block is whole warps."""
    match = _BLOCK.fullmatch(name)
    if match is None or (match[1] == "fma.rn") != (match[4] == "outer") or int(match[2]) * int(match[3]) % WARP:
        return None
    m, n = int(match[2]), int(match[3])
    basic = GPU_REGISTRY[f"{match[1]}.f32"]

    def along(acc: Value, row: Value) -> Value:
        return _add(acc, spread(row, m, n, "row"))

    def outer(acc: Value, column: Value, row: Value) -> Value:
        return _fma(acc, spread(column, m, n, "col"), spread(row, m, n, "row"))

    column, row = (Operand("column", "f32", 1 / n), m), (Operand("row", "f32", 1 / m), n)
    parts = [(Operand("acc", "f32"), m * n), *([row] if match[4] == "row" else [column, row])]
    return BlockForm(
        name, tuple(operand for operand, _ in parts), "f32", outer if match[4] == "outer" else along, basic.manual,
        CAPS, accumulates=match[4] == "outer", native=False, counts=tuple(count for _, count in parts), size=m * n,
        repeats=m * n // WARP, unit=basic.name, each=WARP,
    )  # fmt: skip


FORMS.append(_block)
FORMS.append(_shared_load)
