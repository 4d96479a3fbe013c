"""Tiles on their way to and from memory, a row each: how long they take, and how fast caches take what they store."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from isa_models.instruction import TILE_ROWS
from isa_models.machines.cpu_record import CacheLevel, Machine
from isa_models.machines.instruction_row import InstructionTiming
from simdnn.program.records import Loop, Program, Straight
from simdnn.timing.cpu.stream import Stream, form, mnemonic
from simdnn.timing.footprint import units_of

_PAGE = 4096  # bytes: the part of an address that a program chooses
_WINDOW = 256  # stored lines that meet each other in a cache's sets

Slower = tuple[str, float]  # a tensor, and how many times as long its stores take
_Loops = tuple[tuple[str, int], ...]


class _Stores(NamedTuple):
    """Stores to a tensor in one turn of the loops around them, which move them alike: tiles wherever they stand in it,
    others in a row.
    """

    tensor: str
    terms: tuple[tuple[str, int], ...]
    stride: int
    rows: int
    bits: int
    loops: _Loops
    times: int
    place: int


class TileRows:
    """The tiles that a program loads and stores on a machine."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine

    @property
    def share(self) -> float:
        """Which part of the bytes that a program loads and stores goes to and from tiles."""
        bytes_ = {True: 0, False: 0}
        for ops, times in self.program.straight:
            for memory, _, op, constants, _ in ops.alike:
                bytes_[op.definition.tile] += times * memory.bits * len(constants)
        return bytes_[True] / max(1, sum(bytes_.values()))

    @property
    def loading(self) -> float:
        """Cycles that loads of tiles take one after the other."""
        cycles, stream, rows = 0.0, Stream(self.program), dict[int, InstructionTiming | None]()
        for op, times in self.program.ops():
            if op.definition.tile and op.memory is not None and op.memory is not op.dst:
                number = op.form.number
                if number not in rows:  # bytes may be asked of a machine without tiles
                    rows[number] = self.machine.instructions.get((mnemonic(op), form(op)))
                row = rows[number]
                longer = self.machine.core.tile_crossing.longer(stream.crossing(op), op.definition.apart, stream.others)
                cycles += times * (row.occupancy * op.memory.rows / TILE_ROWS + longer) if row else 0.0
        return cycles

    def slower(self, cache: CacheLevel) -> tuple[Slower, ...]:
        """How many times as long a cache takes for the lines of tensors that are stored to: in few of the first cache's
        sets they wait for each other.
        """
        if not cache.stores_apart:
            return ()
        of_sets, shares = zip(*cache.stores_apart, strict=True)
        return tuple([(name, 1 / float(np.interp(sets, of_sets, shares))) for name, sets in self._sets.items()])

    @cached_property
    def _sets(self) -> dict[str, float]:
        """The first cache's sets that `_WINDOW` lines in a row of each stored tensor go to, by bytes in the mean."""
        first, units = self.machine.caches[0], units_of(self.program)
        sets = min(_PAGE, first.size_bytes // max(1, first.ways)) // first.line_bytes
        together = defaultdict[_Stores, list[int]](list)
        for ops, loops, times in _within(self.program.parts):
            for memory, stores, _, constants, _ in ops.alike:
                if stores:
                    row, place = (memory.stride, memory.rows, memory.bits), 0 if memory.rows > 1 else id(ops)
                    together[_Stores(memory.tensor, memory.index.terms, *row, loops, times, place)] += constants
        found = defaultdict[str, list[tuple[int, int]]](list)
        for of, constants in together.items():
            unit, terms = units[of.tensor], dict(of.terms)
            moves = tuple([(terms[var] * unit, extent) for var, extent in reversed(of.loops) if terms.get(var)])
            starts = tuple([constant * unit for constant in constants])
            met = _met(starts, (of.stride * unit, of.rows), moves, (sets, first.line_bytes))
            found[of.tensor].append((of.times * of.bits * len(constants), met))
        return {name: sum(x * y for x, y in rows) / sum(x for x, _ in rows) for name, rows in found.items()}


def _within(
    parts: Sequence[Straight | Loop], loops: _Loops = (), times: int = 1
) -> Iterator[tuple[Straight, _Loops, int]]:
    """Straight code with the loops around it, the outermost first, and how often it runs."""
    for part in parts:
        if isinstance(part, Loop):
            yield from _within(part.parts, (*loops, (part.var, part.extent)), times * part.extent)
        else:
            yield part, loops, times


@lru_cache(maxsize=1024)
def _met(
    starts: tuple[int, ...],
    rows: tuple[int, int],
    moves: tuple[tuple[int, int], ...],
    sets: tuple[int, int],
) -> int:
    """How many sets of a cache the lines of rows go to, which loops move, the innermost first.

    >>> down, along = ((_met((0,), (1024, 16), (moves,), (64, 64))) for moves in ((16384, 64), (64, 64)))
    >>> down, along
    (4, 64)
    >>> _met((0, 3), (3, 1), ((21, 230), (4830, 112)), (64, 64))  # a few bytes each, many of them to a line
    64
    """
    (stride, count), (number, line) = rows, sets
    met = {start + stride * row for start in starts for row in range(count)}
    for step, extent in moves:
        lines = len({place // line for place in met})
        turns = min(extent, math.ceil(_WINDOW / lines * max(1.0, line / max(1, abs(step)))))
        met = {place + step * turn for place, turn in itertools.product(met, range(turns))}
    return len({place // line % number for place in met})
