"""Bundles of runs of bytes that move alike, and the distinct lines that they touch along loops around them.

Machine code answers (`unions.Unions`) where runs are some thousands at most, arrays where they are more.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isa_models.host.memory import address
from simdnn.timing.translate import fields_of
from simdnn.timing.translated import Translated
from simdnn.timing.unions import MOST_RUNS, ROOM, TOO_MANY, Unions

Ints = npt.NDArray[np.int64]
Extents = tuple[tuple[str, int], ...]  # loops: variable, extent
Dims = tuple[tuple[int, int], ...]  # (stride in bytes, count), strides ascending
_NONE = np.zeros(0, np.int64)


class Accesses(NamedTuple):
    """`size` bytes at each of the bytes `starts` of `tensor` plus `strides` bytes for each loop variable; a tile's
    `rows` are as many such runs, `apart` bytes from one to the next.
    """

    tensor: str
    starts: Sequence[int]
    size: int
    strides: tuple[tuple[str, int], ...]
    stores: bool
    rows: int = 1
    apart: int = 0


class Lines(NamedTuple):
    """Lines that are touched, and those among them that are written."""

    touched: float = 0
    written: float = 0


@dataclass(frozen=True, eq=False)
class Runs:
    """Distinct lines of a tensor: disjoint runs in order, from `starts` to before `ends`, and `more` lines whose
    number alone is known."""

    starts: Ints
    ends: Ints
    more: int = 0

    @property
    def count(self) -> int:
        return int((self.ends - self.starts).sum()) + self.more


class Touched(NamedTuple):
    """Distinct lines of each tensor, and where they lie, of tensors whose lines are not one run."""

    lines: dict[str, Lines]
    strided: dict[str, Runs]


class _Bundle(NamedTuple):
    """Loads from one tensor, or stores to it, whose addresses move alike: the runs of bytes of all of them."""

    tensor: str
    stores: bool
    strides: Mapping[str, int]
    loops: Extents
    begins: Sequence[int]
    ends: Sequence[int]


Query = tuple[int, int, int]  # the first bundle, the one behind the last, how many of the outermost loops stand still
NOBODYS = 0, 0, 0  # of no bundles


@dataclass(frozen=True, eq=False)
class LinesMet:
    """Answers to queries: the tensors of each, one query's behind another's, with the lines that are touched and
    written, and those that lie in a row, one tensor's behind another's (`Runs`).
    """

    names: Sequence[str]  # of tensors by number
    first_met: Ints  # of each query, and behind them the number of all
    met: Ints
    touched: Ints
    written: Ints
    first_run: Ints  # of each tensor met, and behind them the number of all
    more: Ints
    low: Ints
    high: Ints

    def of(self, number: int) -> Touched:
        """The answer to a query."""
        begin, end = self.first_met[number : number + 2].tolist()
        runs = self.first_run[begin : end + 1].tolist()
        columns = (column[begin:end].tolist() for column in (self.met, self.touched, self.written, self.more))
        lines, strided = dict[str, Lines](), dict[str, Runs]()
        for met, touched, written, more, first, last in zip(*columns, runs, runs[1:], strict=False):
            lines[self.names[met]] = Lines(touched, written)
            if last - first > 1:
                strided[self.names[met]] = Runs(self.low[first:last], self.high[first:last], more)
        return Touched(lines, strided)

    @staticmethod
    def joined(tables: Sequence[LinesMet]) -> LinesMet:
        """One of tables of the same tensors, one behind another."""
        columns = ("met", "touched", "written", "more", "low", "high")
        told = {name: np.concatenate([getattr(table, name) for table in tables]) for name in columns}
        counts = (
            np.concatenate([np.diff(getattr(table, name)) for table in tables]) for name in ("first_met", "first_run")
        )
        first_met, first_run = map(firsts, counts)
        return LinesMet(tables[0].names, first_met=first_met, first_run=first_run, **told)


def firsts(counts: Sequence[int] | Ints) -> Ints:
    """Where each of some that stand one behind another begins, and the end."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


class Bundles:
    """Bundles in a row, and what neighbours among them touch."""

    def __init__(self, line_bytes: int) -> None:
        self.line_bytes = line_bytes
        self.all: list[_Bundle] = []
        self.wanted: dict[Query, int] = {}  # queries by number

    def add(self, accesses: Iterable[Accesses], loops: Extents) -> tuple[int, int]:
        """Bundles of accesses within loops, behind those that are there: the first of them, and the one behind."""
        found: dict[tuple[str, tuple[tuple[str, int], ...], bool], tuple[list[int], list[int]]] = {}
        for tensor, starts, size, strides, stores, rows, apart in accesses:
            begins, ends = found.setdefault((tensor, strides, stores), ([], []))
            if rows > 1:
                starts = [start + row * apart for start in starts for row in range(rows)]
            begins += starts
            ends += [start + size for start in starts]
        first = len(self.all)
        self.all += [
            _Bundle(tensor, stores, dict(strides), loops, *runs) for (tensor, strides, stores), runs in found.items()
        ]
        return first, len(self.all)

    def want(self, query: Query) -> int:
        """The number of a query that is answered with others, once all bundles are there."""
        return self.wanted.setdefault(query, len(self.wanted))

    @functools.cached_property
    def table(self) -> LinesMet:
        """The answers to the queries that are wanted."""
        return self.answered([*self.wanted])

    def touched(self, first: int, last: int, outside: int) -> Touched:
        """The lines that bundles touch while the `outside` outermost of the loops around them stand still."""
        query = first, last, outside
        return self.table.of(self.wanted[query]) if query in self.wanted else self.answered([query]).of(0)

    def answered(self, queries: Sequence[Query]) -> LinesMet:
        """Answers by machine code, to a query by itself where it is too many runs beside others; else by arrays."""
        if not self.all:
            return LinesMet((), firsts([0] * len(queries)), _NONE, _NONE, _NONE, firsts([]), _NONE, _NONE, _NONE)
        found = self._asked.answers(queries)
        if found is not None:
            return found
        if len(queries) > 1:
            return LinesMet.joined([self.answered([query]) for query in queries])
        return self._by_arrays(*queries[0])

    @functools.cached_property
    def _asked(self) -> _Asked:
        return _Asked(self.line_bytes, self.all)

    def _by_arrays(self, first: int, last: int, outside: int) -> LinesMet:
        """A query answered by arrays; groups too large to be kept apart are taken as disjoint."""
        groups: dict[str, dict[Dims, list[tuple[Ints, Ints, bool]]]] = {}
        for bundle in self.all[first:last]:
            moves = [(bundle.strides.get(var, 0), extent) for var, extent in bundle.loops[outside:]]
            moves = [(stride, extent) for stride, extent in moves if stride and extent > 1]
            shift = sum([min(0, stride * (extent - 1)) for stride, extent in moves])
            starts, ends = np.array([bundle.begins, bundle.ends], np.int64) + shift
            dims = tuple(sorted([(abs(stride), extent) for stride, extent in moves]))
            groups.setdefault(bundle.tensor, {}).setdefault(dims, []).append((starts, ends, bundle.stores))
        found, written = list[Runs](), list[int]()
        for moving in groups.values():
            runs = _united(moving, self.line_bytes)
            stores = {dims: kept for dims, rows in moving.items() if (kept := [row for row in rows if row[2]])}
            found.append(runs)
            written.append((runs if stores == moving else _united(stores, self.line_bytes)).count)
        names = self._asked.names
        columns = [names.index(tensor) for tensor in groups], [runs.count for runs in found], written
        met, touched, stored = np.array(columns, np.int64)
        more = np.array([runs.more for runs in found], np.int64)
        low, high = (np.concatenate([_NONE, *[getattr(runs, end) for runs in found]]) for end in ("starts", "ends"))
        first_run = firsts([len(runs.starts) for runs in found])
        return LinesMet(names, firsts([len(found)]), met, touched, stored, first_run, more, low, high)


# -- by machine code ---------------------------------------------------------------------------------------------------

_UNIONS = Translated(Unions, {"answer": [ctypes.c_int64]})
_SLOT = {name: place for place, name in enumerate(fields_of(Unions))}
_GIVEN = ("tensor", "stores", "first_run", "deep", "steps", "turns", "begin", "end")
_OF_BUNDLES = ("gathered", "met", "shift", "dims")
_OF_LOOPS = ("dim_step", "dim_turns")
_OF_RUNS = ("low", "high", "other_low", "other_high", "line_low", "line_high")
_OF_ANSWERS = ("found_tensor", "touched", "written", "runs")
_KEPT = ("kept_low", "kept_high")
_SPACE = (*_OF_BUNDLES, *_OF_LOOPS, *_OF_RUNS, "met_by", *_OF_ANSWERS, *_KEPT)
_SLOTS = np.array([_SLOT[name] for name in _SPACE])


class _Asked:
    """The record that the machine code reads, for bundles in a row."""

    def __init__(self, line_bytes: int, bundles: Sequence[_Bundle]) -> None:
        self.names = list(dict.fromkeys([bundle.tensor for bundle in bundles]))
        numbers = {name: number for number, name in enumerate(self.names)}
        deepest = max([len(bundle.loops) for bundle in bundles])
        columns: dict[str, list[int]] = {
            "tensor": [numbers[bundle.tensor] for bundle in bundles],
            "stores": [bundle.stores for bundle in bundles],
            "first_run": list(accumulate([len(bundle.begins) for bundle in bundles], initial=0)),
            "deep": [len(bundle.loops) for bundle in bundles],
            "steps": [],
            "turns": [],
            "begin": list(chain.from_iterable([bundle.begins for bundle in bundles])),
            "end": list(chain.from_iterable([bundle.ends for bundle in bundles])),
        }
        for _, _, strides, loops, *_ in bundles:
            rest = [0] * (deepest - len(loops))
            columns["steps"] += [strides.get(var, 0) for var, _ in loops] + rest
            columns["turns"] += [extent for _, extent in loops] + rest
        self.given = np.array(list(chain.from_iterable([columns[name] for name in _GIVEN])), np.int64)
        starts = accumulate([len(columns[name]) for name in _GIVEN[:-1]], initial=0)
        self.state, at = np.zeros(len(_SLOT), np.int64), address(self.given)
        for name, start in zip(_GIVEN, starts, strict=True):
            self.state[_SLOT[name]] = at + 8 * start
        self.state[_SLOT["line_bytes"]], self.state[_SLOT["deepest"]] = line_bytes, deepest
        self.sizes = [len(bundles)] * len(_OF_BUNDLES) + [len(bundles) * deepest] * len(_OF_LOOPS)

    def answers(self, queries: Sequence[Query]) -> LinesMet | None:
        """The lines that each query's bundles touch; None where they are too many runs."""
        most = sum([last - first for first, last, _ in queries])
        sizes = [*self.sizes, *[ROOM] * len(_OF_RUNS), len(queries), *[most] * len(_OF_ANSWERS), *[ROOM] * len(_KEPT)]
        starts = list(accumulate(sizes, initial=0))
        space, asked = _UNIONS.room(starts[-1]), np.array(queries, np.int64)
        self.state[_SLOTS] = address(space) + 8 * np.array(starts[:-1])
        self.state[_SLOT["asked"]] = address(asked)
        count = int(_UNIONS["answer"](address(self.state), len(queries)))

        def told(name: str, many: int) -> Ints:
            start = starts[_SPACE.index(name)]
            return space[start : start + many].copy()

        met_by = told("met_by", len(queries))
        if (met_by == TOO_MANY).any():
            return None
        met, touched, written, runs = (told(name, count) for name in _OF_ANSWERS)
        low, high = (told(name, int(self.state[_SLOT["kept"]])) for name in _KEPT)
        more = np.zeros(count, np.int64)
        return LinesMet(self.names, firsts(met_by), met, touched, written, firsts(runs), more, low, high)


# -- by arrays ---------------------------------------------------------------------------------------------------------


def _united(groups: Mapping[Dims, Sequence[tuple[Ints, Ints, bool]]], line_bytes: int) -> Runs:
    """Lines of the union of all groups, each repeated along its dimensions."""
    more, gap = 0, line_bytes - 1  # bytes between two runs that hold no whole line
    exact: list[tuple[Ints, Ints]] = []
    for dims, rows in groups.items():
        starts, ends = (np.concatenate([row[end] for row in rows]) for end in (0, 1))
        starts, ends = _merge(starts, ends, gap)
        for position, (stride, count) in enumerate(dims):
            if len(starts) == 1 and ends[0] - starts[0] + gap >= stride:
                ends = ends + stride * (count - 1)
            elif len(starts) * count <= MOST_RUNS and (ends - starts + gap >= stride).all():  # none ends
                starts, ends = _merge(starts, ends + stride * (count - 1), gap)
            elif len(starts) * count <= MOST_RUNS:
                shifts = stride * np.arange(count, dtype=np.int64)
                starts, ends = _merge((starts[:, None] + shifts).ravel(), (ends[:, None] + shifts).ravel(), gap)
            else:
                more += _multiplied(starts, ends, dims[position:], line_bytes)
                break
        else:
            exact.append((starts // line_bytes, -(-ends // line_bytes)))
    if not exact:
        return Runs(_NONE, _NONE, more)
    return Runs(*_merge(np.concatenate([s for s, _ in exact]), np.concatenate([e for _, e in exact])), more)


def _merge(starts: Ints, ends: Ints, gap: int = 0) -> tuple[Ints, Ints]:
    """The union of half-open runs as disjoint runs in order; those no farther apart than a gap become one."""
    if len(starts) == 1:
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], starts[1:] > reach[:-1] + gap])
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
