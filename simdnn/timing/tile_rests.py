"""How often a tile is stored, or multiplied, long behind the last one: a unit for tiles has fallen asleep.

A part of a program is what comes before its first use of a unit, behind its last, and between them; parts follow each
other, and a run the run before. What passes between two runs, a library's own code, is known later, and so is what a
library does before it calls a kernel behind a stage of other work, a copy: `Gap`.
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


class Rest(NamedTuple):
    """Cycles in which a unit is not used, and whether a stage of other work is among them: a library then calls the
    kernel that uses it next.
    """

    cycles: float
    staged: bool = False

    def then(self, other: Rest) -> Rest:
        return Rest(self.cycles + other.cycles, self.staged or other.staged)


class Between(NamedTuple):
    """Cycles of a part, those before its first use of a unit and from its last one on, and the rests that it has, by
    how often; `waits`: whether the first use does, if it is late.
    """

    cycles: float
    before: Rest
    behind: Rest
    rests: tuple[tuple[Rest, int], ...] = ()
    uses: bool = True
    waits: bool = True

    def then(self, other: Between) -> Between:
        """This part, and another behind it."""
        cycles = self.cycles + other.cycles
        if not self.uses:
            return other._replace(cycles=cycles, before=self.before.then(other.before))
        if not other.uses:
            return self._replace(cycles=cycles, behind=self.behind.then(other.before))
        met = ((self.behind.then(other.before), 1),) if other.waits else ()
        return Between(cycles, self.before, other.behind, (*self.rests, *met, *other.rests), True, self.waits)

    def repeated(self, times: int) -> Between:
        """This part so often."""
        rests = [(rest, count * times) for rest, count in self.rests]
        if times > 1 and (again := self.again) is not None:
            rests.append((again, times - 1))
        before = self.before if self.uses else self.before._replace(cycles=self.cycles * times)
        return self._replace(cycles=self.cycles * times, before=before, rests=tuple(rests))

    @property
    def again(self) -> Rest | None:
        """The rest between its last use and its first, where that may be late."""
        return self.behind.then(self.before) if self.uses and self.waits else None


class Gap(NamedTuple):
    """Cycles from the last use of a unit in a run to the first in the next, and after how many that takes `more`; or
    from one to the next in each run, as often as `within`, behind a stage: a library calls a kernel there.
    """

    cycles: float
    after: float
    more: float
    within: int = 0

    def widened(self, between: float, before_call: float) -> Gap:
        """The gap with that many more between the runs, or before the call."""
        return self._replace(cycles=self.cycles + (before_call if self.within else between))

    @property
    def all(self) -> float:
        """Cycles that all such gaps take more."""
        return self.more * max(1, self.within)

    @property
    def late(self) -> bool:
        return self.cycles > self.after


_Uses = Callable[[Op], Use]
_NONE = Between(0.0, Rest(0.0), Rest(0.0), uses=False)


def rested(
    program: Program, core: Iteration, rests: TileRests, slower: tuple[float, float], stage: int
) -> tuple[float, tuple[Gap, ...]]:
    """Cycles that late stores and products of tiles take more in a program, and the gaps in which no unit falls asleep:
    between two runs, and those with a stage, of that many instructions and more. Its core takes `core`, the whole run
    `slower` times that, stages the second, and it was in the same program before.
    """
    after, cycles, gaps = rests.after, 0.0, list[Gap]()
    for use, more in ((functools.partial(_stores, rests), rests.store), (_multiplies, rests.product)):
        found = _parts(program.parts, core, use, stage, slower)
        cycles += more * sum(count for rest, count in found.rests if rest.cycles > after)
        near = [(rest, count) for rest, count in found.rests if rest.staged and rest.cycles <= after]
        gaps += [Gap(rest.cycles, rests.after, more, count) for rest, count in near]
        if (again := found.again) is not None and again.cycles > after:
            cycles += more
        elif again is not None:
            gaps.append(Gap(again.cycles, rests.after, more))
    return cycles, tuple(gaps)


def _stores(rests: TileRests, op: Op) -> Use:
    if op.definition.tile:
        return Use.TILES if op.dst is op.memory else Use.NONE
    return Use.AWAKE if is_among(mnemonic(op), rests.awake) else Use.NONE


def _multiplies(op: Op) -> Use:
    return Use.TILES if op.definition.tile and op.definition.accumulates else Use.NONE


def _parts(
    parts: Sequence[Straight | Loop], core: Iteration, use: _Uses, stage: int, slower: tuple[float, float]
) -> Between:
    """The parts in a row that take `core`, and `slower` times that; loops without a use are stages where they are as
    long as a `stage`.
    """
    loops, found = iter(core.loops), list[Between]()
    extents = [part.extent for part in parts if isinstance(part, Loop)]
    alone = core.cycles - sum(loop.cycles * extent for loop, extent in zip(core.loops, extents, strict=True))
    ops = max(1, sum(len(part) for part in parts if not isinstance(part, Loop)))
    for part in parts:
        if isinstance(part, Loop):
            within = next(loops)
            one = _parts(part.parts, within, use, stage, slower).repeated(part.extent)
            staged = not one.uses and within.instructions * part.extent >= stage
            if staged:
                one = one._replace(before=Rest(within.cycles * part.extent * slower[1], True))
            found.append(one)
            continue
        cycles = max(0.0, alone) * len(part) / ops * slower[0]
        first = next((how for op in part if (how := use(op)) is not Use.NONE), Use.NONE)
        uses, none, rest = first is not Use.NONE, Rest(0.0), Rest(cycles)
        found.append(Between(cycles, none if uses else rest, rest, (), uses, first is Use.TILES))
    return functools.reduce(Between.then, found, _NONE)
