"""How often a tile is stored long behind the last one: the unit that stores tiles has fallen asleep.

A part of a program is what comes before its first store, behind its last, and between them; parts follow each other,
and a run the run before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from simdnn.program.records import Loop, Program, Straight
from simdnn.timing.cpu.walk import Iteration


class Between(NamedTuple):
    """Cycles of a part, those before its first store of a tile and from its last one on, and how many came late."""

    cycles: float
    before: float
    behind: float
    late: int = 0
    stores: bool = True

    def then(self, other: Between, after: float) -> Between:
        """This part, and another behind it."""
        cycles = self.cycles + other.cycles
        if not self.stores:
            return other._replace(cycles=cycles, before=self.cycles + other.before)
        if not other.stores:
            return self._replace(cycles=cycles, behind=self.behind + other.cycles)
        late = self.late + other.late + (self.behind + other.before > after)
        return Between(cycles, self.before, other.behind, late)

    def repeated(self, times: int, after: float) -> Between:
        """This part so often."""
        late = self.late * times + (times - 1) * self.again(after)
        before = self.before if self.stores else self.cycles * times
        return self._replace(cycles=self.cycles * times, before=before, late=late)

    def again(self, after: float) -> bool:
        """Whether its first store comes late behind its last."""
        return self.stores and self.behind + self.before > after


_NONE = Between(0.0, 0.0, 0.0, stores=False)


def late_stores(program: Program, core: Iteration, after: float) -> int:
    """How many runs of stores of tiles come later than `after` cycles behind the last in a program; its core takes
    `core`, and was in the same program before.
    """
    found = _parts(program.parts, core, after)
    return found.late + found.again(after)


def _parts(parts: Sequence[Straight | Loop], core: Iteration, after: float) -> Between:
    """The parts in a row that take `core`."""
    loops, found = iter(core.loops), list[Between]()
    extents = [part.extent for part in parts if isinstance(part, Loop)]
    alone = core.cycles - sum(loop.cycles * extent for loop, extent in zip(core.loops, extents, strict=True))
    ops = max(1, sum(len(part) for part in parts if not isinstance(part, Loop)))
    for part in parts:
        if isinstance(part, Loop):
            found.append(_parts(part.parts, next(loops), after).repeated(part.extent, after))
            continue
        cycles = max(0.0, alone) * len(part) / ops
        stores = any([op.definition.tile and op.dst is op.memory for op in part])
        found.append(Between(cycles, 0.0, cycles) if stores else Between(cycles, cycles, 0.0, stores=False))
    return functools.reduce(lambda one, other: one.then(other, after), found, _NONE)
