"""Lines that wait for each other on their way from and to a cache, as they meet in few of its sets, or of its banks."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from isa_models.machines.cpu_record import CacheLevel, Machine
from simdnn.program.records import Loop, Op, Program, Straight
from simdnn.timing.footprint import crossing, moves_in_lines, units_of

_PAGE = 4096  # bytes: the part of an address that a program chooses
_BLOCK = 64  # lines of a block of two tiles by two
_STORED = 256  # stored lines that meet each other in a cache's sets
BANKS, _LOADED = 4, 190  # of the second cache, which lines lie in by turns, and loaded lines that meet each other there

Slower = tuple[str, float]  # a tensor, and how many times as long its lines take
_Loops = tuple[tuple[str, int], ...]


class _Moves(NamedTuple):
    """Accesses to a tensor in one turn of the loops around them, which move them alike: tiles wherever they stand in
    it, others in a row. `reaches`: whether most of them ask for the next line, too, under a mask.
    """

    tensor: str
    terms: tuple[tuple[str, int], ...]
    stride: int
    rows: int
    bits: int
    loops: _Loops
    times: int
    place: int
    reaches: bool


class _SetsOfLines(NamedTuple):
    """The sets that lines in a row are in, and how many come for one that is touched."""

    sets: int
    lines: float


class Spacing:
    """The lines of a program beside tiles on a machine, by how far apart they lie."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine

    def stored(self, cache: CacheLevel) -> tuple[Slower, ...]:
        """How many times as long a cache takes for the lines of tensors that are stored to: in few of the first cache's
        sets they wait for each other.
        """
        return self._slower(self._stored, cache.stores_apart) if cache.stores_apart else ()

    def lost(self) -> set[str]:
        """Tensors whose lines, asked for ahead, are gone from the first cache before all of a block are stored."""
        first, found = self.machine.caches[0], set[str]()
        for name, rows in self._of_tensors(True, self._sets, _BLOCK).items():
            if _means(rows)[0] * first.ways < _BLOCK:
                found.add(name)
        return found

    def loaded(self, cache: CacheLevel) -> tuple[Slower, ...]:
        """How many times as long it takes for those of tensors that vectors load: in few of its banks they wait for
        each other, and those that a mask leaves out come as well.
        """
        return self._slower(self._loaded, cache.loads_apart) if cache.loads_apart else ()

    def _slower(
        self, accesses: dict[str, list[tuple[int, float, float]]], apart: tuple[tuple[float, float], ...]
    ) -> tuple[Slower, ...]:
        """Tensors with how many times as long their lines take: a cache has a share of its rate, by their sets."""
        of_sets, shares = zip(*apart, strict=True)
        found = list[Slower]()
        for name, rows in accesses.items():
            sets, lines = _means(rows)
            found.append((name, lines / float(np.interp(sets, of_sets, shares))))
        return tuple(found)

    @cached_property
    def _stored(self) -> dict[str, list[tuple[int, float, float]]]:
        return self._of_tensors(True, self._sets, _STORED)

    @property
    def _sets(self) -> int:
        """Sets of the first cache among which a program chooses."""
        first = self.machine.caches[0]
        return max(1, min(_PAGE, first.size_bytes // max(1, first.ways)) // first.line_bytes)

    @cached_property
    def _loaded(self) -> dict[str, list[tuple[int, float, float]]]:
        return self._of_tensors(False, BANKS, _LOADED)

    def _of_tensors(self, stored: bool, number: int, window: int) -> dict[str, list[tuple[int, float, float]]]:
        """Accesses that move alike, by tensor; stores, or else loads by vectors. Each is its bytes, the number of cache
        sets (of `number`) that lines in a row go to, and how many lines come for one that is touched.
        """
        line, units = self.machine.caches[0].line_bytes, units_of(self.program)
        together = defaultdict[_Moves, list[int]](list)
        for ops, loops, times in _within(self.program.parts):
            for memory, stores, op, constants, _ in ops.alike:
                if stores == stored and (stored or not (op.definition.tile or op.definition.ahead)):
                    row, place = (memory.stride, memory.rows, memory.bits), 0 if memory.rows > 1 else id(ops)
                    reaches = not stored and self._reaches(op, loops, units[memory.tensor])
                    moves = _Moves(memory.tensor, memory.index.terms, *row, loops, times, place, reaches)
                    together[moves] += constants
        found = defaultdict[str, list[tuple[int, float, float]]](list)
        for of, constants in together.items():
            unit, terms = units[of.tensor], dict(of.terms)
            moving = [(var, extent) for var, extent in reversed(of.loops) if extent > 1 and terms.get(var)]
            moved = tuple([(terms[var] * unit, extent) for var, extent in moving])
            starts = tuple([constant * unit for constant in constants])
            rows = of.stride * unit, of.rows
            met = _met(starts, rows, moved, (number, line), window, of.reaches)
            found[of.tensor].append((of.times * of.bits * len(constants), *met))
        return found

    def _reaches(self, op: Op, loops: _Loops, unit: int) -> bool:
        """Whether an op's register would mostly go over a line, under a mask that leaves a part out."""
        memory, line = op.memory, self.machine.caches[0].line_bytes
        if memory is None or not (op.masked and self.machine.core.masks_reach):
            return False
        strides = [(var, step * unit) for var, step in memory.index.terms]
        start = memory.index.const * unit % line
        return 2 * crossing(start, op.reach // 8, moves_in_lines(strides, loops, line), line) > 1


def _within(
    parts: Sequence[Straight | Loop], loops: _Loops = (), times: int = 1
) -> Iterator[tuple[Straight, _Loops, int]]:
    """Straight code with the loops around it, the outermost first, and how often it runs."""
    for part in parts:
        if isinstance(part, Loop):
            yield from _within(part.parts, (*loops, (part.var, part.extent)), times * part.extent)
        else:
            yield part, loops, times


def _means(rows: list[tuple[int, float, float]]) -> tuple[float, float]:
    """The sets, and the lines for one that is touched, of accesses with their weights."""
    of_all = sum(weight for weight, *_ in rows)
    sets, lines = (sum(row[0] * row[column] for row in rows) / of_all for column in (1, 2))
    return sets, lines


@lru_cache(maxsize=1024)
def _met(
    starts: tuple[int, ...],
    rows: tuple[int, int],
    moves: tuple[tuple[int, int], ...],
    sets: tuple[int, int],
    window: int,
    reaches: bool = False,
) -> _SetsOfLines:
    """The sets of a cache that the lines of rows go to, which loops move, the innermost first, until they fill a
    window; `reaches`: the next ones come, too.

    >>> down, along = ((_met((0,), (1024, 16), (moves,), (64, 64), 256)) for moves in ((16384, 64), (64, 64)))
    >>> down.sets, along.sets
    (4, 64)
    >>> _met((0, 3), (3, 1), ((21, 230), (4830, 112)), (64, 64), 256).sets  # a few bytes each, many of them to a line
    64
    """
    (stride, count), (number, line) = rows, sets
    met = {start + stride * row for start in starts for row in range(count)}
    for step, extent in moves:
        lines = len({place // line for place in met})
        turns = min(extent, math.ceil(window / lines * max(1.0, line / max(1, abs(step)))))
        met = {place + step * turn for place, turn in itertools.product(met, range(turns))}
    touched = {place // line for place in met}
    found = touched | {one + 1 for one in touched if reaches}
    return _SetsOfLines(len({one % number for one in found}), len(found) / len(touched))
