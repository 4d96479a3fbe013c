"""Which bytes a part of a Program touches: distinct cache lines of each tensor, from the affine addresses.

Each access is a run of bytes, repeated along one dimension (stride, count) for every loop around it within the part;
loops outside the part stand still at 0. Tensors begin on a line. Where the lines lie among a cache's sets follows from
the same runs (`Runs.by_set`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isa_models.formats import fmt
from isa_models.plain import Derived
from simdnn.program.records import Loop, Memory, Program

_MOST_RUNS = 1 << 16  # of one tensor that are kept apart; beyond, dimensions multiply
Ints = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


class Access(NamedTuple):
    """`size` bytes at byte `start` of `tensor` plus `strides` bytes for each loop variable; a tile's `rows` are as many
    such runs, `apart` bytes from one to the next.
    """

    tensor: str
    start: int
    size: int
    strides: tuple[tuple[str, int], ...]
    stores: bool
    rows: int = 1
    apart: int = 0


Extents = tuple[tuple[str, int], ...]  # loops: variable, extent
Repeated = tuple[Access, Extents]  # an access and the loops that it runs through


@dataclass(frozen=True, eq=False)
class _Bundle:
    """Loads from one tensor, or stores to it, whose addresses move alike: the runs of bytes of all of them."""

    tensor: str
    strides: dict[str, int]
    stores: bool
    starts: Ints
    ends: Ints


def _bundled(accesses: Iterable[Access]) -> tuple[_Bundle, ...]:
    found: dict[tuple[str, tuple[tuple[str, int], ...], bool], list[tuple[int, int]]] = {}
    for tensor, start, size, strides, stores, rows, apart in accesses:
        runs = found.setdefault((tensor, strides, stores), [])
        runs += [(start + row * apart, start + row * apart + size) for row in range(rows)]
    bundles = []
    for (tensor, strides, stores), runs in found.items():
        united = np.array(_merged(runs), np.int64)
        bundles.append(_Bundle(tensor, dict(strides), stores, united[:, 0], united[:, 1]))
    return tuple(bundles)


class Lines(NamedTuple):
    """Lines that are touched, and those among them that are written."""

    touched: float = 0
    written: float = 0

    def __add__(self, other: Lines) -> Lines:  # type: ignore[override]  # a pair that adds up, and does not grow
        return Lines(self.touched + other.touched, self.written + other.written)

    def __mul__(self, times: float) -> Lines:  # type: ignore[override]
        return Lines(self.touched * times, self.written * times)


@dataclass(frozen=True, eq=False)
class Runs:
    """Distinct lines of a tensor: disjoint runs in order, from `starts` to before `ends`, and `more` lines whose
    number alone is known."""

    starts: Ints
    ends: Ints
    more: int = 0

    @Derived
    def count(self) -> int:
        if len(self.starts) == 1:
            return int(self.ends[0] - self.starts[0]) + self.more
        return int((self.ends - self.starts).sum()) + self.more

    @property
    def strided(self) -> bool:
        return len(self.starts) > 1

    def by_set(self, sets: int) -> npt.NDArray[np.float64]:
        """Lines in each of a cache's sets, which lines go to in turn.

        >>> Runs(np.array([0, 8, 16]), np.array([1, 9, 18])).by_set(4).tolist()  # every eighth line, and one more
        [3.0, 1.0, 0.0, 0.0]
        """
        whole, rest = np.divmod(self.ends - self.starts, sets)
        first = self.starts % sets
        change = np.bincount(first, minlength=2 * sets) - np.bincount(first + rest, minlength=2 * sets)
        once = np.cumsum(change)
        return once[:sets] + once[sets:] + float(whole.sum()) + self.more / sets


@dataclass(frozen=True, eq=False)
class Region:
    """A loop with what it runs (`loops` and the `accesses` directly in it), or the whole program (extent 1)."""

    var: str
    extent: int
    accesses: tuple[Access, ...]
    loops: tuple[Region, ...]
    line_bytes: int

    @Derived
    def iteration(self) -> dict[str, Lines]:
        """Lines of each tensor in one iteration."""
        return self.loops[0].whole if self._is_a_loop else _counts(self._touched)

    @Derived
    def whole(self) -> dict[str, Lines]:
        """Lines of each tensor in all iterations together."""
        return self.iteration if self.extent == 1 else _counts(self._all)

    @Derived
    def straight(self) -> dict[str, Lines]:
        """Lines of each tensor that the accesses directly in the loop touch in one iteration."""
        if self.accesses and not self.loops:
            return self.iteration
        return _counts(_unions([(bundle, ()) for bundle in self._bundles], self.line_bytes))

    @Derived
    def runs(self) -> dict[str, Runs]:
        """Where the lines of one iteration lie."""
        return {tensor: touched for tensor, (touched, _) in self._touched.items()}

    @property
    def _is_a_loop(self) -> bool:
        """Whether there is nothing in it but one loop."""
        return len(self.loops) == 1 and not self.accesses

    @Derived
    def _touched(self) -> dict[str, tuple[Runs, Runs]]:
        if self._is_a_loop:
            return self.loops[0]._all
        return _unions(self._bundles_below(), self.line_bytes)

    @Derived
    def _all(self) -> dict[str, tuple[Runs, Runs]]:
        if self.extent == 1:
            return self._touched
        return _unions(self._bundles_below(((self.var, self.extent),)), self.line_bytes)

    @Derived
    def _bundles(self) -> tuple[_Bundle, ...]:
        return _bundled(self.accesses)

    def _bundles_below(self, extents: Extents = ()) -> Iterator[tuple[_Bundle, Extents]]:
        """`accesses_below`, those together that differ in where they begin."""
        for part, around in self.parts_below(extents):
            for bundle in part._bundles:
                yield bundle, around

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
    return _part(program, "", 1, units, line_bytes)


def _part(whole: Program | Loop, var: str, extent: int, units: Mapping[str, int], line_bytes: int) -> Region:
    accesses, loops = list[Access](), list[Region]()
    for part in whole.parts:
        if type(part) is Loop:
            loops.append(_part(part, part.var, part.extent, units, line_bytes))
        else:
            accesses += [_access(memory, stores, units) for memory, stores, _ in part.accesses]  # type: ignore[union-attr]  # ops
    return Region(var, extent, tuple(accesses), tuple(loops), line_bytes)


def _access(memory: Memory, stores: bool, units: Mapping[str, int]) -> Access:
    """The access of a memory operand; `units` are the bytes of each tensor's elements."""
    tensor, index, rows = memory.tensor, memory.index, memory.rows
    unit = units[tensor]
    size, strides = memory.bits // rows // 8, _in_bytes(index.terms, unit)
    return Access(tensor, index.const * unit, size, strides, stores, rows, memory.stride * unit)


@lru_cache(maxsize=4096)
def _in_bytes(terms: tuple[tuple[str, int], ...], unit: int) -> tuple[tuple[str, int], ...]:
    return tuple([(name, coefficient * unit) for name, coefficient in terms])


Dims = tuple[tuple[int, int], ...]  # (stride in bytes, count), strides ascending


def crossing(access: Access, loops: Sequence[tuple[str, int]], line_bytes: int) -> float:
    """The share of an access's executions whose bytes lie in two lines.

    >>> rows = Access("a", 0, 64, (("i", 400),), False)  # of 100 floats: all but every fourth
    >>> crossing(rows, [("i", 8)], 64)
    0.75
    """
    return _crossing(access.start % line_bytes, access.size, moving(access, loops, line_bytes), line_bytes)


def crossings(tree: Region) -> Iterator[tuple[Access, int, list[float]]]:
    """Accesses, the times that each is executed, and for each row the share of these whose bytes lie in two lines."""
    line_bytes = tree.line_bytes
    for part, loops in tree.parts_below():
        times = prod([extent for _, extent in loops])
        steps: dict[tuple[tuple[str, int], ...], Dims] = {}  # many accesses move alike
        for access in part.accesses:
            move = steps.get(access.strides)
            if move is None:
                move = steps[access.strides] = moving(access, loops, line_bytes)
            at = access.start % line_bytes
            shares = [_crossing(at, access.size, move, line_bytes)]
            if access.rows > 1:
                rows = [(at + row * access.apart) % line_bytes for row in range(1, access.rows)]
                shares += [_crossing(row, access.size, move, line_bytes) for row in rows]
            yield access, times, shares


def moving(access: Access, loops: Sequence[tuple[str, int]], line_bytes: int) -> Dims:
    """For each loop that moves an access within its line: how far, and how often it runs."""
    strides = dict(access.strides)
    return tuple([(step, extent) for var, extent in loops if (step := strides.get(var, 0) % line_bytes)])


@lru_cache(maxsize=4096)
def _crossing(start: int, size: int, moves: Dims, line_bytes: int) -> float:
    if not moves:
        return float(start + size > line_bytes)
    if line_bytes % size == 0 and all([place % size == 0 for place in (start, *(step for step, _ in moves))]):
        return 0.0  # as it lies in a line at first, and moves by its own size
    places = np.zeros(line_bytes)
    places[start] = 1
    for step, extent in moves:
        spread = np.convolve(places, _shares(step, extent, line_bytes))
        places = spread[:line_bytes]
        places[:-1] += spread[line_bytes:]
    return float(places[max(0, line_bytes - size + 1) :].sum())


@lru_cache(maxsize=1024)
def _shares(step: int, extent: int, line_bytes: int) -> npt.NDArray[np.float64]:
    """The share of a loop's turns in which it has moved an access by each number of bytes, within its line."""
    whole, rest = divmod(extent, line_bytes)
    turns = step * np.arange(line_bytes) % line_bytes
    steps = whole * np.bincount(turns, minlength=line_bytes) + np.bincount(turns[:rest], minlength=line_bytes)
    shares: npt.NDArray[np.float64] = steps / extent
    return shares


def distinct_lines(found: Sequence[Repeated], line_bytes: int) -> dict[str, Lines]:
    """Distinct lines of each tensor."""
    alike: dict[Extents, list[Access]] = {}
    for access, extents in found:
        alike.setdefault(extents, []).append(access)
    pairs = ((bundle, extents) for extents, accesses in alike.items() for bundle in _bundled(accesses))
    return _counts(_unions(pairs, line_bytes))


def _counts(unions: dict[str, tuple[Runs, Runs]]) -> dict[str, Lines]:
    return {tensor: Lines(touched.count, written.count) for tensor, (touched, written) in unions.items()}


_Group = tuple[Ints, Ints, bool]  # first bytes, ends, whether they are stored


def _unions(found: Iterable[tuple[_Bundle, Extents]], line_bytes: int) -> dict[str, tuple[Runs, Runs]]:
    """Lines of each tensor that are touched, and those that are written."""
    groups: dict[str, dict[Dims, list[_Group]]] = {}
    for bundle, extents in found:
        shift, dims = 0, []
        for var, extent in extents:
            stride = bundle.strides.get(var, 0)
            if stride and extent > 1:
                shift += min(0, stride * (extent - 1))
                dims.append((abs(stride), extent))
        dims.sort()
        group = bundle.starts + shift if shift else bundle.starts, bundle.ends + shift if shift else bundle.ends
        groups.setdefault(bundle.tensor, {}).setdefault(tuple(dims), []).append((*group, bundle.stores))
    return {tensor: _touched_and_written(groups_, line_bytes) for tensor, groups_ in groups.items()}


def _touched_and_written(groups: dict[Dims, list[_Group]], line_bytes: int) -> tuple[Runs, Runs]:
    touched = _union([(dims, *_joined(rows)) for dims, rows in groups.items()], line_bytes)
    stores = {stores for rows in groups.values() for *_, stores in rows}
    if len(stores) == 1:
        return touched, touched if stores.pop() else Runs(_NONE, _NONE)
    written = [(dims, *_joined(some)) for dims, rows in groups.items() if (some := [row for row in rows if row[2]])]
    return touched, _union(written, line_bytes)


def _joined(rows: Sequence[_Group]) -> tuple[Ints, Ints]:
    if len(rows) == 1:
        return rows[0][:2]
    starts, ends, _ = zip(*rows, strict=True)
    return np.concatenate(starts), np.concatenate(ends)


_KNOWN: dict[tuple[object, ...], Runs] = {}  # tiles touch the same lines in many shapes, and beside other panels
_MOST_KNOWN, _FEW = 1 << 13, 256  # unions, and runs of one
_FEW_RUNS = 48  # that are plain numbers


def _union(groups: Sequence[tuple[Dims, Ints, Ints]], line_bytes: int) -> Runs:
    """Lines of the union of all groups; groups too large to be kept apart are taken as disjoint."""
    key = line_bytes, *[(dims, starts.tobytes(), ends.tobytes()) for dims, starts, ends in groups]
    if key not in _KNOWN:
        runs = _united(groups, line_bytes)
        if len(runs.starts) > _FEW:
            return runs
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = runs
    return _KNOWN[key]


def _united(groups: Sequence[tuple[Dims, Ints, Ints]], line_bytes: int) -> Runs:
    more = 0
    exact: list[tuple[Ints, Ints]] = []
    for dims, first, last in groups:
        starts, ends, taken = _few_runs(first, last, dims)
        for position, (stride, count) in enumerate(dims[taken:], taken):
            if len(starts) == 1 and ends[0] - starts[0] >= stride:
                ends = ends + stride * (count - 1)
            elif len(starts) * count <= _MOST_RUNS and (ends - starts >= stride).all():  # each run goes on without gaps
                starts, ends = _merge(starts, ends + stride * (count - 1))
            elif len(starts) * count <= _MOST_RUNS:
                shifts = stride * np.arange(count, dtype=np.int64)
                starts, ends = _merge((starts[:, None] + shifts).ravel(), (ends[:, None] + shifts).ravel())
            else:
                more += _multiplied(starts, ends, dims[position:], line_bytes)
                break
        else:
            exact.append((starts // line_bytes, -(-ends // line_bytes)))
    if not exact:
        return Runs(_NONE, _NONE, more)
    return Runs(*_merge(np.concatenate([s for s, _ in exact]), np.concatenate([e for _, e in exact])), more)


def _few_runs(first: Ints, last: Ints, dims: Dims) -> tuple[Ints, Ints, int]:
    """The union of runs repeated along the first dimensions, while it is few runs: and how many dimensions these are.

    Plain numbers are some times as fast as arrays of so few.
    """
    if len(first) > _FEW_RUNS:
        return *_merge(first, last), 0
    runs, taken = _merged(zip(first.tolist(), last.tolist(), strict=True)), 0
    for stride, count in dims:
        reach = stride * (count - 1)
        if len(runs) == 1 and runs[0][1] - runs[0][0] >= stride:
            runs = [(runs[0][0], runs[0][1] + reach)]
        elif len(runs) * count > _MOST_RUNS:
            break
        elif all([end - start >= stride for start, end in runs]):
            runs = _merged([(start, end + reach) for start, end in runs])
        elif len(runs) * count <= _FEW_RUNS:
            steps = [stride * turn for turn in range(count)]
            runs = _merged([(start + step, end + step) for start, end in runs for step in steps])
        else:
            break
        taken += 1
    starts, ends = zip(*runs, strict=True)
    return np.array(starts, np.int64), np.array(ends, np.int64), taken


def _merged(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of half-open runs as disjoint runs in order."""
    found: list[tuple[int, int]] = []
    low = high = -1
    for start, end in sorted(runs):
        if start <= high and found:
            if end > high:
                high = end
                found[-1] = low, high
        else:
            low, high = start, end
            found.append((low, high))
    return found


def _merge(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """`_merged` of arrays."""
    if len(starts) == 1:
        return starts, ends
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
