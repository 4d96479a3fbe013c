"""Which bytes a part of a Program touches: distinct cache lines of each tensor, from the affine addresses.

Each access is a run of bytes, repeated along one dimension (stride, count) for every loop around it within the part;
loops outside the part stand still at 0. Tensors begin on a line. Where the lines lie among a cache's sets follows from
the same runs (`Runs.by_set`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from isa_models.formats import fmt
from isa_models.plain import Derived
from simdnn.program.records import Loop, Memory, Program
from simdnn.timing.bundles import Access, Bundles, Dims, Extents, Lines, Runs, Touched

Repeated = tuple[Access, Extents]  # an access and the loops that it runs through


@dataclass(frozen=True, eq=False)
class Region:
    """A loop with what it runs (`loops` and the `accesses` directly in it), or the whole program (extent 1).

    `bundles` are those of the whole program; from `first` to before `own` those of the accesses, to before `last` those
    of the loops as well. `deep` counts the loops around an access, this one included.
    """

    var: str
    extent: int
    accesses: tuple[Access, ...]
    loops: tuple[Region, ...]
    bundles: Bundles
    first: int
    own: int
    last: int
    deep: int

    @property
    def line_bytes(self) -> int:
        return self.bundles.line_bytes

    @property
    def iteration(self) -> dict[str, Lines]:
        """Lines of each tensor in one iteration."""
        return self._touched.lines

    @property
    def whole(self) -> dict[str, Lines]:
        """Lines of each tensor in all iterations together."""
        return self._all.lines

    @Derived
    def straight(self) -> dict[str, Lines]:
        """Lines of each tensor that the accesses directly in the loop touch in one iteration."""
        return self.bundles.touched(self.first, self.own, self.deep).lines if self.loops else self.iteration

    @property
    def strided(self) -> dict[str, Runs]:
        """Where the lines of one iteration lie, of tensors whose lines are not one run."""
        return self._touched.strided

    @Derived
    def _touched(self) -> Touched:
        if len(self.loops) == 1 and not self.accesses:  # nothing in it but one loop
            return self.loops[0]._all
        return self.bundles.touched(self.first, self.last, self.deep)

    @Derived
    def _all(self) -> Touched:
        return self._touched if self.extent == 1 else self.bundles.touched(self.first, self.last, self.deep - 1)

    def accesses_below(self, extents: Extents = ()) -> Iterator[Repeated]:
        """Every access of an iteration, with the loops that it runs through behind those of `extents`."""
        for part, around in self.parts_below(extents):
            for access in part.accesses:
                yield access, around

    def parts_below(self, extents: Extents = ()) -> list[tuple[Region, Extents]]:
        """This part and those within, with the loops that each runs through behind those of `extents`."""
        found = [(self, extents)]
        for loop in self.loops:
            found += loop.parts_below((*extents, (loop.var, loop.extent)))
        return found


def parts(program: Program, line_bytes: int = 64) -> Region:
    """The program as a tree of parts."""
    units = {tensor.name: fmt(tensor.dtype).bits // 8 for tensor in program.tensors}
    return _part(program, "", 1, (), units, Bundles(line_bytes))


def _part(
    whole: Program | Loop, var: str, extent: int, loops: Extents, units: Mapping[str, int], bundles: Bundles
) -> Region:
    """A part, `loops` around what it runs; its bundles, and those of its loops, are added."""
    parts, accesses = whole.parts, list[Access]()
    for part in parts:
        if type(part) is not Loop:
            accesses += [_access(memory, stores, units) for memory, stores, _ in part.accesses]  # type: ignore[union-attr]  # ops
    first, own = bundles.add(accesses, loops)
    inside = [
        _part(part, part.var, part.extent, (*loops, (part.var, part.extent)), units, bundles)
        for part in parts
        if type(part) is Loop
    ]
    last = len(bundles.all)
    return Region(var, extent, tuple(accesses), tuple(inside), bundles, first, own, last, len(loops))


def _access(memory: Memory, stores: bool, units: Mapping[str, int]) -> Access:
    """The access of a memory operand; `units` are the bytes of each tensor's elements."""
    tensor, index, rows = memory.tensor, memory.index, memory.rows
    unit = units[tensor]
    size, strides = memory.bits // rows // 8, _in_bytes(index.terms, unit)
    return Access(tensor, index.const * unit, size, strides, stores, rows, memory.stride * unit)


@lru_cache(maxsize=4096)
def _in_bytes(terms: tuple[tuple[str, int], ...], unit: int) -> tuple[tuple[str, int], ...]:
    return tuple([(name, coefficient * unit) for name, coefficient in terms])


def crossing(access: Access, loops: Sequence[tuple[str, int]], line_bytes: int) -> float:
    """The share of an access's executions whose bytes lie in two lines.

    >>> rows = Access("a", 0, 64, (("i", 400),), False)  # of 100 floats: all but every fourth
    >>> crossing(rows, [("i", 8)], 64)
    0.75
    """
    return _crossing(access.start % line_bytes, access.size, moving(access, loops, line_bytes), line_bytes)


def crossings(access: Access, loops: Sequence[tuple[str, int]], line_bytes: int) -> list[float]:
    """`crossing` of each row of an access, from its first one on."""
    at, moves = access.start % line_bytes, moving(access, loops, line_bytes)
    places = [(at + row * access.apart) % line_bytes for row in range(access.rows)]
    share = {place: _crossing(place, access.size, moves, line_bytes) for place in dict.fromkeys(places)}
    return [share[place] for place in places]


def moving(access: Access, loops: Sequence[tuple[str, int]], line_bytes: int) -> Dims:
    """For each loop that moves an access within its line: how far, and how often it runs."""
    strides = dict(access.strides)
    return tuple([(step, extent) for var, extent in loops if extent > 1 and (step := strides.get(var, 0) % line_bytes)])


@lru_cache(maxsize=4096)
def _crossing(start: int, size: int, moves: Dims, line_bytes: int) -> float:
    if not moves:
        return float(start + size > line_bytes)
    if line_bytes % size == 0 and all([place % size == 0 for place in (start, *(step for step, _ in moves))]):
        return 0.0  # as it lies in a line at first, and moves by its own size
    first, *others = moves
    places = _shares(*first, line_bytes)[line_bytes - start : 2 * line_bytes - start]
    for step, extent in others:
        spread = np.convolve(places, _shares(step, extent, line_bytes)[:line_bytes])
        places = spread[:line_bytes]
        places[:-1] += spread[line_bytes:]
    return float(places[max(0, line_bytes - size + 1) :].sum())


@lru_cache(maxsize=1024)
def _shares(step: int, extent: int, line_bytes: int) -> npt.NDArray[np.float64]:
    """The share of a loop's turns in which it has moved an access by each number of bytes, within its line: twice, one
    behind the other.
    """
    whole, rest = divmod(extent, line_bytes)
    turns = step * np.arange(line_bytes) % line_bytes
    steps = whole * np.bincount(turns, minlength=line_bytes) + np.bincount(turns[:rest], minlength=line_bytes)
    shares = steps / extent
    return np.concatenate([shares, shares])


def distinct_lines(found: Sequence[Repeated], line_bytes: int) -> dict[str, Lines]:
    """Distinct lines of each tensor."""
    alike: dict[Extents, list[Access]] = {}
    for access, extents in found:
        alike.setdefault(extents, []).append(access)
    bundles = Bundles(line_bytes)
    for extents, accesses in alike.items():
        bundles.add(accesses, extents)
    return bundles.touched(0, len(bundles.all), 0).lines
