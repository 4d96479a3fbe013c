"""Proof that nothing is read of a private tensor that the same iteration has not stored before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from isa_models import ProgramError
from simdnn.program.apart import ROW, Elements, IterationAccess, access_of, distinct
from simdnn.program.records import Affine, Loop, Op, Program, Straight, parts

_Itself = tuple[tuple[int, ...], Affine, int]  # a body's place, an index, the rows of a tile


@dataclass(frozen=True)
class _Step:
    """An access with its place in the text: the position in the body of each loop around it, outermost first."""

    op: Op
    tensor: str
    access: IterationAccess
    place: tuple[int, ...]
    loops: tuple[str, ...]

    def shared(self, later: _Step) -> tuple[str, ...]:
        """The loops around both."""
        count = next(i for i, (a, b) in enumerate(zip(self.place, later.place, strict=False)) if a != b)
        return self.loops[:count]

    @property
    def itself(self) -> _Itself:
        """Equal for accesses of one body that go the same way from the same element."""
        return self.place[:-1], self.access.index, self.access.inner.get(ROW, 1)

    def moved_by(self, loops: tuple[str, ...]) -> tuple[int, ...]:
        """How far a step of each loop moves it."""
        strides = dict(self.access.index.terms)
        return tuple([strides.get(name, 0) for name in loops])

    def standing(self, fixed: tuple[str, ...]) -> IterationAccess:
        """The access while the loops named stand still, at their variables' zero."""
        inner = {name: extent for name, extent in self.access.inner.items() if name not in fixed}
        return IterationAccess(self.access.index, self.access.count, self.access.store, inner)

    def elements(self, fixed: tuple[str, ...]) -> Elements | None:
        """The elements that are touched while the loops named stand still."""
        return self.standing(fixed).points()


def verify_private(program: Program) -> None:
    """Each load of a private tensor must be covered by stores that stand before it in the same statement of the
    program, under the same loops' variables.
    """
    private = {tensor.name for tensor in program.tensors if tensor.kind == "private"}
    private -= _covered_at_once(program, private)
    for statement in program.body if private else ():
        stored = {name: _Stored() for name in private}
        for step in _steps_below(program, private, parts((statement,)), (), {}):
            if step.access.store:
                stored[step.tensor].add(step)
            elif not stored[step.tensor].covers(step):
                raise ProgramError(f"{program.name}: `{step.op}`: cannot show that it reads what was stored before")


def _covered_at_once(program: Program, private: Collection[str]) -> set[str]:
    """Private tensors whose loads each read what a store before them in the same straight code wrote from the same
    element on, as where registers wait in memory: no steps need be made for that.
    """
    covered = set(private)
    for ops, _ in program.straight if covered else ():
        written: dict[tuple[object, ...], tuple[int, int]] = {}  # the first store from an element on: its place, bits
        of_private = [alike for alike in ops.alike if alike.memory.tensor in covered]
        for memory, stores, _, constants, places in of_private:
            for const, place in zip(constants, places, strict=True) if stores else ():
                key = memory.tensor, memory.index.terms, memory.rows, memory.stride, const
                written[key] = min((place, memory.bits), written.get(key, (place, memory.bits)))
        for memory, stores, _, constants, places in of_private:
            for const, place in zip(constants, places, strict=True) if not stores else ():
                key = memory.tensor, memory.index.terms, memory.rows, memory.stride, const
                first, bits = written.get(key, (place, 0))
                if place <= first or bits < memory.bits:
                    covered.discard(memory.tensor)
                    break
    return covered


def _steps_below(
    program: Program,
    private: Collection[str],
    body: Sequence[Straight | Loop],
    place: tuple[int, ...],
    around: dict[str, int],
) -> Iterator[_Step]:
    """The accesses of private tensors below a body at a place, with the loops around it and their extents."""
    loops, position = tuple(around), 0
    for part in body:
        if type(part) is Loop:
            inside = {**around, part.var: part.extent}
            yield from _steps_below(program, private, part.parts, (*place, position), inside)
            position += 1
        elif any([memory.tensor in private for memory, *_ in part.alike]):  # type: ignore[union-attr]  # ops
            for memory, stores, op in part.accesses:  # type: ignore[union-attr]
                if memory.tensor in private:
                    access = access_of(program, memory, stores, around)
                    yield _Step(op, memory.tensor, access, (*place, position), loops)
                    position += 1


@dataclass(frozen=True, eq=False)
class _Together:
    """Stores that share the same `loops` with a body: how these move each, and the elements that they write while the
    loops stand still (None where they are too many to look at).
    """

    loops: tuple[str, ...]
    moves: set[tuple[int, ...]]
    written: Elements | None
    reaches: dict[object, tuple[int, int] | None] = field(default_factory=dict)

    @cached_property
    def whole(self) -> bool:
        """Whether no element between the first and the last one is left out."""
        return self.written is not None and int(self.written[-1] - self.written[0]) == len(self.written) - 1

    def covers(self, load: _Step) -> bool:
        """Whether a load reads nothing else, wherever the loops stand."""
        reach = self.reach(load)
        if self.written is None or reach is None:
            return False
        low, high = (load.access.index.const + end for end in reach)
        if self.whole:
            return bool(self.written[0] <= low and high <= self.written[-1] + 1)
        if high - low == load.access.count:  # one behind the other
            first = int(np.searchsorted(self.written, low))
            met = self.written[first : first + high - low]
            return len(met) == high - low and bool(met[0] == low and met[-1] == high - 1)
        read = load.elements(self.loops)
        if read is None:
            return False
        found = self.written[np.minimum(np.searchsorted(self.written, read), len(self.written) - 1)]
        return bool((found == read).all())

    def reach(self, load: _Step) -> tuple[int, int] | None:
        """How far a load goes from the constant of its index while the loops stand still: to its first element, and
        behind its last; None where the loops move it in another way than the stores. Rows of a tile have it in common.
        """
        access = load.access
        key = access.index.terms, access.count, tuple(access.inner.items())
        if key not in self.reaches:
            low, high = load.standing(self.loops).span()
            const, moves = access.index.const, {load.moved_by(self.loops)}
            self.reaches[key] = (low - const, high - const) if self.moves == moves else None
        return self.reaches[key]


class _Stored:
    """The stores to a private tensor so far, and the elements that those under the same loops' variables write."""

    def __init__(self) -> None:
        self.stores = list[_Step]()
        self.longest: dict[_Itself, int] = {}  # the elements that a store writes from its index on
        self.around: dict[tuple[int, ...], list[_Together]] = {}  # by the place of a body
        self.written: dict[tuple[tuple[str, ...], tuple[int, ...]], Elements | None] = {}  # by loops and stores

    def add(self, store: _Step) -> None:
        self.stores.append(store)
        self.around.clear()
        self.longest[store.itself] = max(store.access.count, self.longest.get(store.itself, 0))

    def covers(self, load: _Step) -> bool:
        """Whether stores that share the same loops with the load cover it, wherever those loops stand: most often one
        of the same body, at the same index.
        """
        if self.longest.get(load.itself, 0) >= load.access.count:
            return True
        body = load.place[:-1]
        if body not in self.around:
            found: dict[tuple[str, ...], list[_Step]] = {}
            for store in self.stores:
                found.setdefault(store.shared(load), []).append(store)
            self.around[body] = [self._together(loops, stores) for loops, stores in found.items()]
        return any(stores.covers(load) for stores in self.around[body])

    def _together(self, loops: tuple[str, ...], stores: Sequence[_Step]) -> _Together:
        key = loops, tuple([id(step) for step in stores])
        if key not in self.written:
            every = [step.elements(loops) for step in stores]
            points_of = [points for points in every if points is not None]
            self.written[key] = distinct(points_of) if len(points_of) == len(every) else None
        return _Together(loops, {step.moved_by(loops) for step in stores}, self.written[key])
