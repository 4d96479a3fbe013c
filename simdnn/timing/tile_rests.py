"""How often a tile is stored, or multiplied, long behind the last one: a unit for tiles has fallen asleep.

A part of a program is what comes before its first use of a unit, behind its last, and between them; parts follow each
other, and a run the run before. What passes between two runs, a library's own code, is known later: `Gap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from isa_models.machines.core_record import TileRests, is_among
from simdnn.program.records import Loop, Op, Program, Straight
from simdnn.timing.cpu.stream import mnemonic
from simdnn.timing.cpu.walk import Iteration


class Use(Enum):
    """A use of a unit by straight code: none, one that keeps it awake, or one for tiles."""

    NONE, AWAKE, TILES = range(3)


class Between(NamedTuple):
    """Cycles of a part, those before its first use of a unit and from its last one on, and how many came late;
    `waits`: whether the first one does, if it is late.
    """

    cycles: float
    before: float
    behind: float
    late: int = 0
    uses: bool = True
    waits: bool = True

    def then(self, other: Between, after: float) -> Between:
        """This part, and another behind it."""
        cycles = self.cycles + other.cycles
        if not self.uses:
            return other._replace(cycles=cycles, before=self.cycles + other.before)
        if not other.uses:
            return self._replace(cycles=cycles, behind=self.behind + other.cycles)
        late = self.late + other.late + (other.waits and self.behind + other.before > after)
        return Between(cycles, self.before, other.behind, late, True, self.waits)

    def repeated(self, times: int, after: float) -> Between:
        """This part so often."""
        late = self.late * times + (times - 1) * self.again(after)
        before = self.before if self.uses else self.cycles * times
        return self._replace(cycles=self.cycles * times, before=before, late=late)

    def again(self, after: float) -> bool:
        """Whether its first use comes late behind its last."""
        return self.uses and self.waits and self.behind + self.before > after


class Gap(NamedTuple):
    """Cycles from the last use of a unit in a run to the first in the next, and after how many that takes `more`."""

    cycles: float
    after: float
    more: float

    def widened(self, cycles: float) -> Gap:
        """The gap with that many more between the runs."""
        return self._replace(cycles=self.cycles + cycles)

    @property
    def late(self) -> bool:
        return self.cycles > self.after


_Uses = Callable[[Op], Use]
_NONE = Between(0.0, 0.0, 0.0, uses=False)


def rested(program: Program, core: Iteration, rests: TileRests, slower: float) -> tuple[float, tuple[Gap, ...]]:
    """Cycles that late stores and products of tiles take more in a program, and the gaps between two runs in which no
    unit falls asleep; its core takes `core`, the whole run `slower` times that, and it was in the same program before.
    """
    after, cycles, gaps = rests.after / slower, 0.0, list[Gap]()
    for use, more in ((functools.partial(_stores, rests), rests.store), (_multiplies, rests.product)):
        found = _parts(program.parts, core, after, use)
        late = found.again(after)
        cycles += (found.late + late) * more
        if found.uses and found.waits and not late:
            gaps.append(Gap((found.behind + found.before) * slower, rests.after, more))
    return cycles, tuple(gaps)


def _stores(rests: TileRests, op: Op) -> Use:
    if op.definition.tile:
        return Use.TILES if op.dst is op.memory else Use.NONE
    return Use.AWAKE if is_among(mnemonic(op), rests.awake) else Use.NONE


def _multiplies(op: Op) -> Use:
    return Use.TILES if op.definition.tile and op.definition.accumulates else Use.NONE


def _parts(parts: Sequence[Straight | Loop], core: Iteration, after: float, use: _Uses) -> Between:
    """The parts in a row that take `core`."""
    loops, found = iter(core.loops), list[Between]()
    extents = [part.extent for part in parts if isinstance(part, Loop)]
    alone = core.cycles - sum(loop.cycles * extent for loop, extent in zip(core.loops, extents, strict=True))
    ops = max(1, sum(len(part) for part in parts if not isinstance(part, Loop)))
    for part in parts:
        if isinstance(part, Loop):
            found.append(_parts(part.parts, next(loops), after, use).repeated(part.extent, after))
            continue
        cycles = max(0.0, alone) * len(part) / ops
        first = next((how for op in part if (how := use(op)) is not Use.NONE), Use.NONE)
        uses = first is not Use.NONE
        found.append(Between(cycles, 0.0 if uses else cycles, cycles if uses else 0.0, 0, uses, first is Use.TILES))
    return functools.reduce(lambda one, other: one.then(other, after), found, _NONE)
