"""The engine's order of a stage's independent iterations: in blocks, where they share operands that no cache holds.

A program's nest is the way of the modelled machine, and the clock's. Values are the same on any way. Where every turn
of the outer loops reads all of an operand that caches do not hold, a block of the inner loops' iterations, whose part
of it they do hold, is taken through all turns of the outer loops before the next block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from simdnn.program.records import Loop, Memory, Op, Program, Statement

BLOCK = 1 << 21  # bytes of an operand that a block's iterations read: what any host's caches have for one core
LARGE = 1 << 23  # bytes of an operand that they have not


@dataclass(frozen=True)
class EngineOrder:
    """The loops of a stage's independent iterations, outermost first, and what each iteration runs."""

    nest: Sequence[Loop]
    body: Sequence[Statement]
    blocks: InBlocks | None = None  # how the nest is cut; None: it is not


def order_of_program(statement: Statement) -> EngineOrder:
    """A top-level statement's own order: the parallel loops that it begins with."""
    nest: list[Loop] = []
    body: Sequence[Statement] = (statement,)
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].parallel:
        nest.append(body[0])
        body = body[0].body
    return EngineOrder(nest, body)


def order_of(program: Program, statement: Statement) -> EngineOrder:
    """The engine's order."""
    order = order_of_program(statement)
    return replace(order, blocks=blocks_of(program, order.nest, order.body))


@dataclass(frozen=True)
class InBlocks:
    """The loops of a nest behind the first `depth` are taken `width` iterations at a time through those `depth`."""

    depth: int
    width: int


def blocks_of(program: Program, nest: Sequence[Loop], body: Sequence[Statement]) -> InBlocks | None:
    """How the iterations of a nest of parallel loops are best cut; None where the nest's own order is as good."""
    reads = dict(_reads(body, {}))
    for depth in range(len(nest) - 1, 0, -1):
        turns, iterations = (prod(loop.extent for loop in loops) for loops in (nest[:depth], nest[depth:]))
        outer, inner = ({loop.var for loop in loops} for loops in (nest[:depth], nest[depth:]))
        again = sum(size for memory, size in reads.items() if _varies(memory, inner) and not _varies(memory, outer))
        if again * iterations <= LARGE:
            continue
        width = max(1, BLOCK // again)
        once = {m.tensor for m in reads if _varies(m, outer) and not _varies(m, inner)}
        more = sum(program.tensor[name].nbytes for name in once) * (-(-iterations // width) - 1)
        return InBlocks(depth, width) if more < again * iterations * (turns - 1) else None
    return None


def _reads(body: Sequence[Statement], around: Mapping[str, int]) -> Iterator[tuple[Memory, int]]:
    """The operands in memory that are read, and the bytes of each in all turns of the loops within."""
    for statement in body:
        if isinstance(statement, Loop):
            yield from _reads(statement.body, {**around, statement.var: statement.extent})
            continue
        assert isinstance(statement, Op)
        for place in statement.srcs:
            if isinstance(place, Memory):
                yield place, place.bits // 8 * prod(around.get(name, 1) for name, _ in place.index.terms)


def _varies(memory: Memory, variables: set[str]) -> bool:
    return any(name in variables for name, _ in memory.index.terms)
