"""Which instructions of a Program made one element: the last store to it, and what that store's registers depend on.

The *time* of an executed instruction is its place in the order of execution: statement number, turn of the loop that it
names, statement number in the body, and so on. Times compare as tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from isa_models.formats import fmt
from simdnn.program.records import Loop, Memory, Op, Program, Register, Statement

Time = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """An instruction of the text that stores: the loops around it and the statement number at each depth."""

    op: Op
    loops: tuple[Loop, ...]
    path: tuple[int, ...]
    elements: int  # of the tensor, that one execution stores to each of its rows

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """For each depth, what the loops from there on can add to the index at least and at most."""
        terms = dict(self.memory.index.terms)
        spans = [(0, (self.memory.rows - 1) * self.memory.stride)]
        for loop in reversed(self.loops):
            reach = terms.get(loop.var, 0) * (loop.extent - 1)
            low, high = spans[-1]
            spans.append((low + min(0, reach), high + max(0, reach)))
        return spans[::-1]

    @property
    def memory(self) -> Memory:
        assert isinstance(self.op.dst, Memory)
        return self.op.dst

    def time(self, turns: Sequence[int]) -> Time:
        """The time at which the store is executed in these turns of the loops around it."""
        pairs = zip(self.path, (*turns, -1), strict=True)
        return tuple(number for pair in pairs for number in pair)[:-1]

    def row(self, index: int, first: int, count: int) -> int | None:
        """The row of a store to `index` that holds one of `count` elements from `first`."""
        starts = ((r, index + r * self.memory.stride) for r in range(self.memory.rows))
        return next((r for r, at in starts if first - self.elements < at < first + count), None)

    def latest(self, first: int, count: int, before: Time | None) -> tuple[int, ...] | None:
        """The turns of the last execution before a time that stores one of `count` elements from `first`."""
        terms = dict(self.memory.index.terms)

        def search(depth: int, at: int, bound: Time | None) -> tuple[int, ...] | None:
            if bound is not None:
                here, there = self.path[depth], bound[2 * depth]
                if here > there or (here == there and len(bound) == 2 * depth + 1):
                    return None
                if here < there:
                    bound = None
            if depth == len(self.loops):
                return () if self.row(at, first, count) is not None else None
            loop = self.loops[depth]
            step = terms.get(loop.var, 0)
            low, high = self.spans[depth + 1]
            top = loop.extent - 1 if bound is None else min(loop.extent - 1, bound[2 * depth + 1])
            for turn in _turns(step, first - self.elements + 1 - at - high, first + count - 1 - at - low, top):
                tight = bound is not None and turn == bound[2 * depth + 1]
                found = search(depth + 1, at + step * turn, bound if tight else None)
                if found is not None:
                    return (turn, *found)
                if not step and not tight:
                    return None  # earlier turns store the same elements
            return None

        return search(0, self.memory.index.const, before)


def _turns(step: int, low: int, high: int, top: int) -> range:
    """Turns from `top` down for which step * turn lies in low .. high."""
    if step == 0:
        return range(top, -1, -1) if low <= 0 <= high else range(0)
    if step < 0:
        step, low, high = -step, -high, -low
    return range(min(top, high // step), max(0, -(-low // step)) - 1, -1)


@dataclass(frozen=True)
class Kept:
    """A statement of a slice with its number in the body that it comes from."""

    number: int
    statement: Op | Loop
    body: tuple[Kept, ...] = ()  # of a loop


@dataclass(frozen=True)
class SlicePart:
    """A part of a slice: statements, or `turns` of a loop whole, at a depth of the site's loops."""

    depth: int
    kept: tuple[Kept, ...]
    turns: bool = False  # of the loop at this depth: all before the site's own


class Slices:
    """Where a program stores each tensor, and the slice that leads to each store."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sites: dict[str, list[Site]] = {}
        self._stages: dict[int, list[SlicePart]] = {}
        for op, loops, path in _ops(program.body, (), ()):
            if isinstance(op.dst, Memory):
                elements = op.dst.bits // op.dst.rows // fmt(program.tensor[op.dst.tensor].dtype).bits
                self.sites.setdefault(op.dst.tensor, []).append(Site(op, loops, path, elements))

    def last_store(
        self, tensor: str, first: int, count: int, before: Time | None = None
    ) -> tuple[Site, tuple[int, ...]] | None:
        """The last execution before a time (None: in all) that stores one of these elements, or None."""
        best: tuple[Time, Site, tuple[int, ...]] | None = None
        for site in self.sites.get(tensor, ()):
            turns = site.latest(first, count, before)
            if turns is not None and (best is None or site.time(turns) > best[0]):
                best = site.time(turns), site, turns
        return best and (best[1], best[2])

    def stages(self, site: Site) -> list[SlicePart]:
        """The statements that have to be executed for a store, in order."""
        key = id(site)
        if key not in self._stages:
            self._stages[key] = self._sliced(site)
        return self._stages[key]

    def _sliced(self, site: Site) -> list[SlicePart]:
        live = _reads(site.op)
        stages: list[SlicePart] = []
        for depth in range(len(site.loops), -1, -1):
            body = site.loops[depth - 1].body if depth else self.program.body
            kept, live = _backwards(body[: site.path[depth]], live)
            stages.append(SlicePart(depth, kept))
            if depth and live & _written(body):  # carried from turn to turn
                whole, live = _loop(site.loops[depth - 1], live)
                stages.append(SlicePart(depth - 1, whole, turns=True))
        return stages[::-1]


def _ops(
    body: Sequence[Statement], loops: tuple[Loop, ...], path: tuple[int, ...]
) -> Iterator[tuple[Op, tuple[Loop, ...], tuple[int, ...]]]:
    for number, statement in enumerate(body):
        if isinstance(statement, Loop):
            yield from _ops(statement.body, (*loops, statement), (*path, number))
        else:
            yield statement, loops, (*path, number)


def _reads(op: Op) -> frozenset[str]:
    return frozenset() if op.is_zero_idiom else frozenset(p.name for p in op.srcs if isinstance(p, Register))


def _written(body: Sequence[Statement]) -> frozenset[str]:
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, Loop):
            names |= _written(statement.body)
        elif isinstance(statement.dst, Register):
            names.add(statement.dst.name)
    return frozenset(names)


def _backwards(body: Sequence[Statement], live: frozenset[str]) -> tuple[tuple[Kept, ...], frozenset[str]]:
    """The statements that registers live behind `body` depend on, and the registers live before it."""
    kept: list[Kept] = []
    for number in range(len(body) - 1, -1, -1):
        statement = body[number]
        if isinstance(statement, Loop):
            if live & _written(statement.body):
                inner, live = _loop(statement, live)
                kept.append(Kept(number, statement, inner))
        elif isinstance(statement.dst, Register) and statement.dst.name in live:
            live = (live - {statement.dst.name}) | _reads(statement)
            kept.append(Kept(number, statement))
    return tuple(reversed(kept)), live


def _loop(loop: Loop, live: frozenset[str]) -> tuple[tuple[Kept, ...], frozenset[str]]:
    """`_backwards` of a loop that runs at least once: a turn may need what the last one left."""
    wanted = live
    while True:
        kept, before = _backwards(loop.body, wanted)
        if before <= wanted:
            return kept, wanted - (_written(loop.body) - before)
        wanted = wanted | before
