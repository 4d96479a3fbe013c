"""Which bytes a part of a Program touches: distinct cache lines of each tensor, from the affine addresses.

Each access is a run of bytes, repeated along one dimension (stride, count) for every loop around it within the part;
loops outside the part stand still at 0. Tensors begin on a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from isa_models.formats import fmt
from simdnn.program import Loop, Op, Program, Statement

_MOST_RUNS = 1 << 16  # of one tensor that are kept apart; beyond, dimensions multiply
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Access:
    """`size` bytes at byte `start` of `tensor` plus `strides` bytes for each loop variable."""

    tensor: str
    start: int
    size: int
    strides: tuple[tuple[str, int], ...]
    stores: bool


@dataclass(frozen=True)
class Lines:
    """Lines that are touched, and those among them that are written."""

    touched: int = 0
    written: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.touched + other.touched, self.written + other.written)

    def __mul__(self, times: int) -> Lines:
        return Lines(self.touched * times, self.written * times)


@dataclass(frozen=True, eq=False)
class Part:
    """A loop with what it runs (`loops` and the `accesses` directly in it), or the whole program (extent 1)."""

    var: str
    extent: int
    accesses: tuple[Access, ...]
    loops: tuple[Part, ...]
    line_bytes: int

    @cached_property
    def iteration(self) -> dict[str, Lines]:
        """Lines of each tensor in one iteration."""
        return self._lines(False)

    @cached_property
    def whole(self) -> dict[str, Lines]:
        """Lines of each tensor in all iterations together."""
        return self._lines(True)

    @cached_property
    def straight(self) -> dict[str, Lines]:
        """Lines of each tensor that the accesses directly in the loop touch in one iteration."""
        return distinct_lines([(access, ()) for access in self.accesses], self.line_bytes)

    def _lines(self, whole: bool) -> dict[str, Lines]:
        extents: tuple[tuple[str, int], ...] = ((self.var, self.extent),) if whole and self.extent > 1 else ()
        return distinct_lines(list(self._accesses(extents)), self.line_bytes)

    def _accesses(self, extents: tuple[tuple[str, int], ...]) -> Iterator[tuple[Access, tuple[tuple[str, int], ...]]]:
        """Every access below, with the loops (variable, extent) that it runs through."""
        yield from ((access, extents) for access in self.accesses)
        for loop in self.loops:
            yield from loop._accesses((*extents, (loop.var, loop.extent)))


def parts(program: Program, line_bytes: int = 64) -> Part:
    """The program as a tree of parts."""

    def part(var: str, extent: int, body: Sequence[Statement]) -> Part:
        accesses = tuple(a for s in body if isinstance(s, Op) for a in _access(program, s))
        loops = tuple(part(s.var, s.extent, s.body) for s in body if isinstance(s, Loop))
        return Part(var, extent, accesses, loops, line_bytes)

    return part("", 1, program.body)


def _access(program: Program, op: Op) -> Iterator[Access]:
    memory = op.memory
    if memory is not None:
        unit = fmt(program.tensor[memory.tensor].dtype).bits // 8
        strides = tuple((name, c * unit) for name, c in memory.index.terms)
        size = memory.bits // memory.rows // 8
        for row in range(memory.rows):
            start = (memory.index.const + row * memory.stride) * unit
            yield Access(memory.tensor, start, size, strides, memory is op.dst)


Dims = tuple[tuple[int, int], ...]  # (stride in bytes, count), strides ascending


def distinct_lines(found: Sequence[tuple[Access, tuple[tuple[str, int], ...]]], line_bytes: int) -> dict[str, Lines]:
    """Distinct lines of each tensor."""
    groups: dict[str, dict[Dims, list[tuple[int, int, bool]]]] = {}
    for access, extents in found:
        strides, start = dict(access.strides), access.start
        dims = []
        for var, extent in extents:
            stride = strides.get(var, 0)
            if stride and extent > 1:
                start += min(0, stride * (extent - 1))
                dims.append((abs(stride), extent))
        key = tuple(sorted(dims))
        groups.setdefault(access.tensor, {}).setdefault(key, []).append((start, start + access.size, access.stores))
    return {
        tensor: Lines(
            _distinct(runs, line_bytes), _distinct({d: [r for r in rs if r[2]] for d, rs in runs.items()}, line_bytes)
        )
        for tensor, runs in groups.items()
    }


def _distinct(groups: dict[Dims, list[tuple[int, int, bool]]], line_bytes: int) -> int:
    """Lines of the union of all groups; groups too large to be kept apart are taken as disjoint."""
    total = 0
    exact: list[tuple[Ints, Ints]] = []
    for dims, rows in groups.items():
        if not rows:
            continue
        starts, ends = _merge(np.array([r[0] for r in rows], np.int64), np.array([r[1] for r in rows], np.int64))
        for position, (stride, count) in enumerate(dims):
            if len(starts) == 1 and ends[0] - starts[0] >= stride:
                ends = ends + stride * (count - 1)
            elif len(starts) * count <= _MOST_RUNS:
                shifts = stride * np.arange(count, dtype=np.int64)
                starts, ends = _merge((starts[:, None] + shifts).ravel(), (ends[:, None] + shifts).ravel())
            else:
                total += _multiplied(starts, ends, dims[position:], line_bytes)
                break
        else:
            exact.append((starts // line_bytes, -(-ends // line_bytes)))
    if exact:
        starts, ends = _merge(np.concatenate([s for s, _ in exact]), np.concatenate([e for _, e in exact]))
        total += int((ends - starts).sum())
    return total


def _merge(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The union of half-open runs as disjoint runs in order."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return starts[first], reach[last]


def _multiplied(starts: Ints, ends: Ints, dims: Dims, line_bytes: int) -> int:
    """Lines of runs repeated along `dims`: a product, but no more than the lines of the whole span."""
    first, last = _merge(starts // line_bytes, -(-ends // line_bytes))
    lines, span = int((last - first).sum()), int(ends[-1] - starts[0])
    for stride, count in dims:
        span += stride * (count - 1)
        lines = min(lines * count, -(-span // line_bytes) + 1)
    return lines
