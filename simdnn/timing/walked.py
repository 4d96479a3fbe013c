"""Tensors that are read down a column, a part of a line of each row: what their lines, and their pages, are waited for.

Where rows are farther apart than any prefetcher follows, all of the outer caches' time shows
(`CacheLevel.exposed_walked`). Where no more than two of them lie in a page nothing asks for a line before its load
does, which waits for all of its way: as many are under way as the scheduler holds what is made of a row
(`ColumnWalk.of_scheduler`), and what the core does meanwhile hides as much (`flows.Flows.awaiting`). Where a column has
as many pages as the core keeps the places of, and other data want some, each costs a walk through the tables of pages,
in every column (`Translation`).

    >>> pages([(4096, 64), (262144, 32), (32, 64)])  # 64 columns of 2048 rows, 4096 bytes apart
    (2048, 64)
    >>> pages([(2048, 100), (0, 3)])
    (50, 3)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from isa_models.machines.core_record import Core
from simdnn.program.records import Loop, Op, Program
from simdnn.timing.footprint import units_of
from simdnn.timing.prefetched import FOLLOWED, PAGE, WALK, straight

_LINE = 64  # bytes
_PART_OF_A_LINE = 128  # bits
_FEW = 2  # rows of a page: a third one would show a prefetcher where they lead


class ColumnWalk(NamedTuple):
    """A tensor: operations that wait for a row, 0 where a page has more of them; pages of a column, and columns."""

    waiting: float
    pages: int
    columns: int

    def below(self, earlier: ColumnWalk) -> ColumnWalk:
        """The walk of columns whose first rows are `earlier`'s."""
        return self._replace(pages=earlier.pages + self.pages)

    def of_scheduler(self, core: Core) -> float:
        """The share of the core's largest scheduler that waits for a row."""
        return self.waiting / max([scheduler.size for scheduler in core.schedulers])

    def translating(self, core: Core) -> float:
        """Cycles for addresses that the core has not at hand."""
        walks = self.pages * self.columns if self.pages >= core.translation.pages else 0
        return walks * core.translation.cycles


def walked(program: Program) -> Mapping[str, ColumnWalk]:
    """Tensors whose loads take a part of a line, row after row, farther apart than any prefetcher follows."""
    found, units = dict[str, ColumnWalk](), units_of(program)
    around = dict[str, Loop]()  # the outermost loop of each: parts of a column that follow each other share it
    for ops, loops in straight(program.parts, ()):
        if not loops or len(loops[-1].parts) > 1 or loops[-1].extent < WALK:
            continue
        here = dict[str, ColumnWalk]()
        for memory, stores, _, constants, _ in ops.alike:
            if stores or memory.bits > _PART_OF_A_LINE:
                continue
            unit, moves = units[memory.tensor], dict(memory.index.terms)
            steps = [(abs(moves.get(loop.var, 0)) * unit, loop.extent) for loop in reversed(loops)]
            if steps[0][0] > FOLLOWED:
                rows = len({constant * unit // _LINE for constant in constants})
                alone = steps[0][0] / rows >= PAGE / _FEW
                waiting = sum([not _is_plain(op) for op in ops]) / rows if alone else 0.0
                here[memory.tensor] = ColumnWalk(waiting, *pages(steps))
        for tensor, walk in here.items():
            found[tensor] = walk.below(found[tensor]) if around.get(tensor) is loops[0] else walk
            around[tensor] = loops[0]
    return found


def pages(steps: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The pages of a column, and how many columns loops go through: their steps in bytes with their turns, the
    innermost first.
    """
    reach, columns, down = 0, 1, True
    for step, turns in steps:
        down = down and (step > reach or turns == 1)
        if down:
            reach += step * (turns - 1)
        else:
            columns *= turns
    return reach // PAGE + 1, columns


def _is_plain(op: Op) -> bool:
    """Whether an op is a load or a store and nothing else, which waits elsewhere."""
    return op.memory is not None and op.definition.moves
