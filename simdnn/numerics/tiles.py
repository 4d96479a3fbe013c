"""Tile instructions in LLVM: tiles lie in memory, and each instruction of a program is one function over pointers.

Rows do not know each other, so an instruction's function is applied a row at a time. The first row is emitted by itself
and the others as a loop: what depends on `b` alone is then computed once, before the loop.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from isa_models import Instruction, instruction
from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS
from isa_models.llvm import Carried, Emitter, LlvmValue, vector_type
from simdnn.tiles import configuration

_ROW_BYTES = TILE_ROW_BITS // 8
COPY = f"""define internal void @tile.copy(ptr %to, i64 %to.stride, ptr %from, i64 %from.stride, i64 %rows) nounwind {{
entry:
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next, %row ]
  %at = mul i64 %i, %from.stride
  %source = getelementptr i8, ptr %from, i64 %at
  %bits = load <{_ROW_BYTES} x i8>, ptr %source, align 1
  %to.at = mul i64 %i, %to.stride
  %target = getelementptr i8, ptr %to, i64 %to.at
  store <{_ROW_BYTES} x i8> %bits, ptr %target, align 1
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %rows
  br i1 %more, label %row, label %done
done:
  ret void
}}"""


@dataclass(frozen=True)
class Dot:
    """A tile dot product as `i1 @name(ptr acc, ptr a, ptr b, i64 rows)`, true for an alarm."""

    name: str
    text: str
    declarations: tuple[str, ...]


@functools.cache
def dot_function(mnemonic: str, choices: tuple[tuple[str, str], ...], several: bool, optimistic: bool) -> Dot:
    """The function of a dot product with its choices, for one row or for more."""
    name = ".".join([mnemonic, *(value for _, value in choices), "rows" if several else "row"])
    definition, emit = instruction(mnemonic), Emitter(optimistic)
    acc, a, b = definition.operands
    second = _load(emit, "%b", b.dtype, b.count)

    def row(number: str) -> Carried:
        offset = emit.value(f"mul i64 {number}, {_ROW_BYTES}")
        places = [emit.value(f"getelementptr i8, ptr %{p}, i64 {offset}") for p in ("acc", "a")]
        first = [
            _load(emit, place, operand.dtype, Instruction.row_lanes(operand.dtype))
            for place, operand in zip(places, (acc, a), strict=True)
        ]
        result = definition.apply(*first, second, lanes=first[0].lanes, **dict(choices))
        emit.line(f"store {result.type} {result.name}, ptr {places[0]}, align 64")
        return []

    row("0")
    if several:
        emit.loop("1", "%rows", row)
    emit.line(f"ret i1 {emit.alarms.finish() if emit.alarms else 'false'}")
    lines = "\n".join(emit.lines)
    head = f"define internal i1 @{name}(ptr noalias %acc, ptr noalias %a, ptr noalias %b, i64 %rows)"
    return Dot(name, f"{head} nounwind alignstack(64) {{\nentry:\n{lines}\n}}", tuple(emit.declarations))


def is_native(definition: Instruction, caps: frozenset[str], choices: tuple[tuple[str, str], ...]) -> bool:
    """Whether the host has the instruction, and it does what the choices say: the first of each is the hardware's."""
    here = any(caps.intersection(names) for names in definition.caps.values())
    return definition.native and here and all(value == definition.choices[name][0] for name, value in choices)


_WHOLE = "".join(f"\\{byte:02X}" for byte in configuration([TILE_ROWS] * 3))


@functools.cache
def native_dot(mnemonic: str) -> Dot:
    """The host's own instruction between loads of its tiles and a store. Tiles are whole in memory, so all rows go
    along; nothing stays in a tile register.
    """
    name = f"{mnemonic}.native"
    assembly = "; ".join(
        [
            "ldtilecfg ($0)",
            *(f"tileloadd (${i + 1},$4), %tmm{i}" for i in range(3)),
            f"{mnemonic} %tmm2, %tmm1, %tmm0",
            "tilestored %tmm0, ($1,$4)",
            "tilerelease",
        ]
    )
    text = f"""@{name}.config = private constant [64 x i8] c"{_WHOLE}", align 64
define internal i1 @{name}(ptr noalias %acc, ptr noalias %a, ptr noalias %b, i64 %rows) nounwind {{
  call void asm sideeffect "{assembly}", "r,r,r,r,r,~{{memory}}"(
      ptr @{name}.config, ptr %acc, ptr %a, ptr %b, i64 {_ROW_BYTES})
  ret i1 false
}}"""
    return Dot(name, text, ())


def _load(emit: Emitter, place: str, dtype: str, lanes: int) -> LlvmValue:
    name = emit.name()
    emit.line(f"{name} = load {vector_type(dtype, lanes)}, ptr {place}, align 64")
    return LlvmValue(emit, name, dtype, lanes)
