"""Turns of loops, and registers that statements of a stage write: facts for the compiled engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from isa_models.readings.llvm import LlvmValue
from simdnn.program.records import Loop, Op, Register, Statement


def turns(nest: Sequence[Loop]) -> int:
    """Iterations of a nest in all."""
    return math.prod(loop.extent for loop in nest)


def tiles_written(body: Sequence[Statement]) -> list[str]:
    """The tile registers that are written."""
    return [name for name, ops in writers(body).items() if ops[0].definition.tile]


def as_wide(value: LlvmValue, ops: Sequence[Op]) -> LlvmValue:
    """A register's value with as many lanes as the widest of some instructions gives it."""
    bits = max(op.dst.bits for op in ops if isinstance(op.dst, Register))
    return value.pad(max(value.lanes, bits // value.format.bits))


def writers(body: Sequence[Statement]) -> dict[str, list[Op]]:
    """The instructions that write each register, in order of the first."""
    found: dict[str, list[Op]] = {}
    for statement in body:
        if isinstance(statement, Loop):
            for name, ops in writers(statement.body).items():
                found.setdefault(name, []).extend(ops)
        elif isinstance(statement.dst, Register):
            found.setdefault(statement.dst.name, []).append(statement)
    return found
