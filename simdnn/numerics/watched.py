"""A run of a Program to look at: the values that one loop's instructions leave in registers or memory, turn by turn.

The loops around the watched one stand in their first turn, so what is seen is one thread's first tile. Stages before
it run whole, as their results may be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isa_models.readings.arrays import Array
from simdnn.numerics import reference
from simdnn.numerics.buffers import buffers_of
from simdnn.program.records import Loop, Op, Program, Statement

Path = tuple[Loop, ...]  # from the outermost loop in


@dataclass(frozen=True, eq=False)
class Left:
    """An executed instruction: the turn of the watched loop, and the lanes that it left, of its destination's type."""

    turn: int
    op: Op
    lanes: Array


def innermost(body: Sequence[Statement], around: Path = ()) -> Iterator[Path]:
    """The loops that hold instructions alone, each with those around it."""
    for statement in body:
        if isinstance(statement, Loop):
            path = (*around, statement)
            if all(isinstance(inner, Op) for inner in statement.body):
                yield path
            else:
                yield from innermost(statement.body, path)


def watch(program: Program, inputs: Mapping[str, Array], path: Path, turns: int) -> list[Left]:
    """The values that instructions of the loop at the end of `path` leave in its first `turns` turns.

    `inputs`: an array for each tensor of kind input, as `Kernel.prepare` makes them.
    """
    run = _Watched(program, buffers_of(program, inputs))
    return list(run.turns(program.body, path, turns))


class _Watched(reference.Interpreter):
    """The readable engine, on the way to one loop and through its first turns."""

    def turns(self, body: Sequence[Statement], path: Path, count: int) -> Iterator[Left]:
        variables: reference.Variables = {}
        registers: reference.Registers = {}
        for loop in path:
            before = body[: next(i for i, statement in enumerate(body) if statement is loop)]
            self.statements(before, variables, registers, 1)
            variables[loop.var] = 0
            body = loop.body
        for turn in range(min(count, path[-1].extent)):
            variables[path[-1].var] = turn
            for op in body:
                assert isinstance(op, Op)
                result = self.op(op, variables, registers, 1).view(op.dst.dtype)
                yield Left(turn, op, result.array[0])
