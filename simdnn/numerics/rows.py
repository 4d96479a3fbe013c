"""Matrix instructions in LLVM whose rows do not know each other: one function for each, a loop over the rows.

Without it a program would hold the text of every row of every such instruction, and a compiler would take minutes.
"""

from __future__ import annotations

import functools

from isa_models import instruction
from isa_models.formats import fmt
from isa_models.machine_code import LinkedFunction
from isa_models.readings.llvm import Carried, Emitter, LlvmValue, vector_type


@functools.cache
def row_function(mnemonic: str, lanes: int) -> LinkedFunction:
    """`void @name(ptr result, ptr …operands)`: an instruction that has a form of one row, for a result of `lanes`."""
    definition, emit = instruction(mnemonic), Emitter()
    found = definition.row()
    assert found is not None
    one, rows = found
    wide = lanes // rows
    counts = [one.operand_lanes(operand, wide) for operand in one.operands]

    def load(position: int, place: str) -> LlvmValue:
        name, dtype = emit.name(), one.operands[position].dtype
        emit.line(f"{name} = load {vector_type(dtype, counts[position])}, ptr {place}, align 2")
        return LlvmValue(emit, name, dtype, counts[position])

    def at(pointer: str, row: str, bytes_: int) -> str:
        return emit.value(f"getelementptr i8, ptr {pointer}, i64 {emit.value(f'mul i64 {row}, {bytes_}')}")

    moves = [count < definition.operand_lanes(o, lanes) for count, o in zip(counts, definition.operands, strict=True)]
    whole = {i: load(i, f"%p{i}") for i, by_row in enumerate(moves) if not by_row}

    def body(row: str) -> Carried:
        operands = [
            whole[i] if i in whole else load(i, at(f"%p{i}", row, count * fmt(one.operands[i].dtype).bits // 8))
            for i, count in enumerate(counts)
        ]
        result = one.apply(*operands, lanes=wide)
        place = at("%result", row, wide * fmt(one.result).bits // 8)
        emit.line(f"store {result.type} {result.name}, ptr {place}, align 2")
        return []

    body("0")  # ahead of the others, which find there what they all take from the whole operands
    if rows > 1:
        emit.loop("1", str(rows), body)
    emit.line("ret void")
    parameters = ("ptr noalias %result", *(f"ptr noalias %p{i}" for i in range(len(counts))))
    return LinkedFunction(f"rows.{mnemonic}", "void", parameters, tuple(emit.lines), tuple(emit.declarations))
