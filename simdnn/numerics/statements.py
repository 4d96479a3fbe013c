"""Turns of loops and their variables, and registers that statements of a stage write: facts for the compiled engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from isa_models.readings.llvm import Emitter, LlvmValue
from simdnn.program.records import Loop, Op, Register, Statement


def turns(nest: Sequence[Loop]) -> int:
    """Iterations of a nest in all."""
    return math.prod(loop.extent for loop in nest)


def cut(emit: Emitter, counter: str, turns: int, iterations: int, width: int) -> tuple[str, str]:
    """The turn and the iteration of a flat counter where blocks of `width` iterations are taken through all turns; the
    last block may be narrower.
    """
    first = emit.value(f"mul i64 {emit.value(f'udiv i64 {counter}, {turns * width}')}, {width}")
    within = emit.value(f"urem i64 {counter}, {turns * width}")
    left = emit.value(f"sub i64 {iterations}, {first}")
    own = emit.call("i64", "llvm.umin.i64", ("i64", left), ("i64", str(width)))
    inner = emit.value(f"add i64 {first}, {emit.value(f'urem i64 {within}, {own}')}")
    return emit.value(f"udiv i64 {within}, {own}"), inner


def spread(emit: Emitter, counter: str, nest: Sequence[Loop]) -> dict[str, str]:
    """The variables of a nest at a number of its iterations, the innermost loop's counting fastest."""
    variables = {}
    for loop in reversed(nest[1:]):
        variables[loop.var] = emit.value(f"urem i64 {counter}, {loop.extent}")
        counter = emit.value(f"udiv i64 {counter}, {loop.extent}")
    return variables | {loop.var: counter for loop in nest[:1]}


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
