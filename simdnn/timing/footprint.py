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

from simdnn.program.records import AlikeAccesses, Loop, Program
from simdnn.timing.bundles import NOBODYS, Accesses, Bundles, Dims, Extents, Lines, Runs

Repeated = tuple[Accesses, Extents]  # accesses and the loops that they run through


@dataclass(eq=False, slots=True)
class Region:
    """A loop with what it runs (`loops` and the `accesses` directly in it), or the whole program (extent 1).

    `places`, of each of these, tell where in the order of the text they stand. `bundles` are those of the whole
    program, and know by number which lines are touched: by the accesses directly in it, in one iteration, in all.
    """

    var: str
    extent: int
    accesses: tuple[Accesses, ...]
    places: tuple[Sequence[int], ...]
    loops: tuple[Region, ...]
    bundles: Bundles
    of_own: int
    of_one: int
    of_all: int

    @property
    def line_bytes(self) -> int:
        return self.bundles.line_bytes

    @property
    def iteration(self) -> dict[str, Lines]:
        """Lines of each tensor in one iteration."""
        return self.bundles.table.of(self.of_one).lines

    @property
    def whole(self) -> dict[str, Lines]:
        """Lines of each tensor in all iterations together."""
        return self.bundles.table.of(self.of_all).lines

    @property
    def strided(self) -> dict[str, Runs]:
        """Where the lines of one iteration lie, of tensors whose lines are not one run."""
        return self.bundles.table.of(self.of_one).strided

    def accesses_below(self) -> Iterator[Repeated]:
        """All accesses of an iteration, with the loops that they run through."""
        for part, around in self.parts_below():
            for accesses in part.accesses:
                yield accesses, around

    def parts_below(self, extents: Extents = ()) -> list[tuple[Region, Extents]]:
        """This part and those within, with the loops that each runs through behind those of `extents`."""
        found = [(self, extents)]
        for loop in self.loops:
            found += loop.parts_below((*extents, (loop.var, loop.extent)))
        return found


def parts(program: Program, line_bytes: int = 64) -> Region:
    """The program as a tree of parts."""
    return _part(program, "", 1, (), units_of(program), Bundles(line_bytes))


def units_of(program: Program) -> dict[str, int]:
    """The bytes of each tensor's elements, by its name."""
    return {tensor.name: tensor.element_bytes for tensor in program.tensors}


def _part(
    whole: Program | Loop, var: str, extent: int, loops: Extents, units: Mapping[str, int], bundles: Bundles
) -> Region:
    """A part, `loops` around what it runs; its bundles, and those of its loops, are added."""
    accesses, places, count = list[Accesses](), list[Sequence[int]](), 0
    inner: list[Loop] = []
    for part in whole.parts:
        if type(part) is Loop:
            inner.append(part)
            continue
        for alike in part.alike:  # type: ignore[union-attr]  # ops
            accesses.append(_accesses(alike, units))
            places.append([count + place for place in alike.places] if count else alike.places)
        count += len(part)  # type: ignore[arg-type]
    first, own = bundles.add(accesses, loops) if accesses else (len(bundles.all), 0)
    inside = tuple(
        [_part(part, part.var, part.extent, (*loops, (part.var, part.extent)), units, bundles) for part in inner]
    )
    last, deep = len(bundles.all), len(loops)
    only_a_loop = len(inside) == 1 and not accesses
    of_one = inside[0].of_all if only_a_loop else bundles.want((first, last, deep))
    of_all = of_one if extent == 1 else bundles.want((first, last, deep - 1))
    of_own = bundles.want((first, own, deep) if accesses else NOBODYS) if inside else of_one
    return Region(var, extent, tuple(accesses), tuple(places), inside, bundles, of_own, of_one, of_all)


def _accesses(alike: AlikeAccesses, units: Mapping[str, int]) -> Accesses:
    """The accesses of memory operands that move alike; `units` are the bytes of each tensor's elements."""
    memory, stores, _, constants, _ = alike
    unit, rows = units[memory.tensor], memory.rows
    starts, strides = [const * unit for const in constants], _in_bytes(memory.index.terms, unit)
    return Accesses(memory.tensor, starts, memory.bits // rows // 8, strides, stores, rows, memory.stride * unit)


@lru_cache(maxsize=4096)
def _in_bytes(terms: tuple[tuple[str, int], ...], unit: int) -> tuple[tuple[str, int], ...]:
    return tuple([(name, coefficient * unit) for name, coefficient in terms])


def moves_in_lines(strides: Sequence[tuple[str, int]], loops: Sequence[tuple[str, int]], line_bytes: int) -> Dims:
    """How loops move an access within its line, and how often."""
    steps = dict(strides)
    return tuple([(step, extent) for var, extent in loops if extent > 1 and (step := steps.get(var, 0) % line_bytes)])


def keep_to_lines(starts: Sequence[int], size: int, moves: Dims, line_bytes: int) -> bool:
    """Whether accesses lie in one line each, as they do at first, and move by multiples of their own size."""
    steps = [step for step, _ in moves]
    return line_bytes % size == 0 and not any([place % size for place in (*starts, *steps)])


@lru_cache(maxsize=4096)
def crossing(start: int, size: int, moves: Dims, line_bytes: int) -> float:
    """The share of executions whose bytes lie in two lines, by where in its line an access begins.

    >>> moves = moves_in_lines([("i", 400)], [("i", 8)], 64)  # by rows of 100 floats
    >>> crossing(0, 64, moves, 64), crossing(8, 64, moves, 64)  # all but every fourth, and all
    (0.75, 1.0)
    """
    if not moves:
        return float(start + size > line_bytes)
    if keep_to_lines([start], size, moves, line_bytes):
        return 0.0
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
    alike: dict[Extents, list[Accesses]] = {}
    for accesses, extents in found:
        alike.setdefault(extents, []).append(accesses)
    bundles = Bundles(line_bytes)
    for extents, of_loops in alike.items():
        bundles.add(of_loops, extents)
    return bundles.touched(0, len(bundles.all), 0).lines
