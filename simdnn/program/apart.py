"""Proof that the iterations of a parallel loop keep apart: none touches what another one writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from isa_models import ProgramError
from isa_models.formats import fmt
from simdnn.program.records import Affine, AlikeAccesses, Loop, Memory, Program, Straight

_MAX_ENUMERATED = 1 << 24
_SPARSE = 8  # places for each element that is touched, beyond which they are sorted and not marked
ROW = "row of a tile"  # no identifier, so no loop's variable
Elements = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IterationAccess:
    """`count` elements from `index`, by one iteration of a parallel loop; `inner` are the loops inside it."""

    index: Affine
    count: int
    store: bool
    inner: dict[str, int]

    def stride(self, var: str) -> int:
        return dict(self.index.terms).get(var, 0)

    def around(self, var: str) -> Affine:
        """The part of the index that the loops around the parallel one give: fixed for our purpose."""
        return Affine(0, tuple((n, c) for n, c in self.index.terms if n not in self.inner and n != var))

    def span(self) -> tuple[int, int]:
        """First element and the one behind the last, the loops around and the parallel one at zero."""
        low = high = self.index.const
        for name, coefficient in self.index.terms:
            if name in self.inner:
                reach = coefficient * (self.inner[name] - 1)
                low, high = (low, high + reach) if reach > 0 else (low + reach, high)
        return low, high + self.count

    @property
    def elements(self) -> int:
        """How many elements the access may touch, those met twice counted twice."""
        return self.count * prod(self.inner.get(name, 1) for name, _ in self.index.terms)

    def points(self) -> Elements | None:
        """All elements that the access may touch; None where they are too many to look at."""
        points = np.arange(self.count)
        for name, coefficient in self.index.terms:
            if name in self.inner:
                if points.size * self.inner[name] > _MAX_ENUMERATED:
                    return None
                points = (points[:, None] + coefficient * np.arange(self.inner[name])[None, :]).ravel()
        return points + self.index.const


def access_of(program: Program, memory: Memory, store: bool, inner: dict[str, int]) -> IterationAccess:
    """A memory operand with the loops around it; the rows of a tile are one more."""
    count = memory.bits // memory.rows // fmt(program.tensor[memory.tensor].dtype).bits
    if memory.rows == 1:
        return IterationAccess(memory.index, count, store, inner)
    rows = Affine.var(ROW) * memory.stride
    return IterationAccess(memory.index + rows, count, store, {**inner, ROW: memory.rows})


def verify_apart(program: Program, parts: Sequence[Straight | Loop], nest: bool = True) -> None:
    """`ProgramError` for a parallel loop among `parts`, or below, where iterations may meet.

    `nest`: nothing but parallel loops around, each the only statement of the one around it.
    """
    for part in parts:
        if type(part) is Loop:
            if part.parallel and part.extent > 1:
                _verify_independent(program, part, nest)
            verify_apart(program, part.parts, nest and part.parallel and len(part.body) == 1)


def _verify_independent(program: Program, loop: Loop, nest: bool) -> None:
    operands: dict[str, list[Operand]] = {}
    skipped = ("input", "constant", *["private"] * nest)  # nobody stores to it; each iteration has its own
    kept = {tensor.name for tensor in program.tensors if tensor.kind not in skipped}
    for operand in _operands(loop, {}):
        if (name := operand[0].memory.tensor) in kept:
            operands.setdefault(name, []).append(operand)
    for tensor, found in operands.items():
        stored = any([alike.stores for alike, _ in found])
        if stored and not _far_apart(program, loop, found) and not _keep_apart(loop, _joined(program, found)):
            raise ProgramError(
                f"{program.name}: `parallel for {loop.var} < {loop.extent}`: "
                f"cannot show that its iterations keep apart in {tensor}"
            )


Operand = tuple[AlikeAccesses, dict[str, int]]  # memory operands, and the loops around them with their extents


def _operands(loop: Loop, inner: dict[str, int]) -> Iterator[Operand]:
    """All memory operands below."""
    for part in loop.parts:
        if type(part) is Loop:
            yield from _operands(part, {**inner, part.var: part.extent})
        else:
            for alike in part.alike:  # type: ignore[union-attr]  # ops
                yield alike, inner


def _far_apart(program: Program, loop: Loop, operands: Sequence[Operand]) -> bool:
    """Whether an iteration's step is no less than all that lies between the first element of a tensor that it touches
    and the last: what most loops show, without a look at each access.
    """
    bits = fmt(program.tensor[operands[0][0].memory.tensor].dtype).bits
    lows, highs, moves = list[int](), list[int](), set[tuple[tuple[str, int], ...]]()
    for (memory, _, _, constants, _), inner in operands:
        steps = [(step, inner[name]) for name, step in memory.index.terms if name in inner]
        reaches = [step * (extent - 1) for step, extent in (*steps, (memory.stride, memory.rows))]
        lows.append(min(constants) + sum([reach for reach in reaches if reach < 0]))
        count = memory.bits // memory.rows // bits
        highs.append(max(constants) + sum([reach for reach in reaches if reach > 0]) + count)
        moves.add(tuple([term for term in memory.index.terms if term[0] not in inner]))
    if len(moves) > 1:
        return False
    return abs(dict(moves.pop()).get(loop.var, 0)) >= max(highs) - min(lows)


def _joined(program: Program, operands: Sequence[Operand]) -> list[IterationAccess]:
    """The accesses of a tensor's operands; neighbours that move alike are one, if that may still be enumerated."""
    alike: dict[tuple[object, ...], tuple[IterationAccess, list[tuple[int, int]]]] = {}
    bits = fmt(program.tensor[operands[0][0].memory.tensor].dtype).bits
    for (memory, store, _, constants, _), inner in operands:
        key = memory.index.terms, memory.rows, memory.stride, store, id(inner)
        if key not in alike:
            alike[key] = access_of(program, memory, store, inner), []
        count = memory.bits // memory.rows // bits
        alike[key][1].extend([(const, count) for const in constants])
    joined = list[IterationAccess]()
    for access, runs in alike.values():
        most = _MAX_ENUMERATED // (access.elements // access.count)
        index, ((first, count), *others) = access.index, sorted(runs, key=itemgetter(0))
        for low, more in others:
            whole = max(count, low - first + more)
            if low <= first + count and whole <= most:
                count = whole
                continue
            joined.append(IterationAccess(index + (first - index.const), count, access.store, access.inner))
            first, count = low, more
        joined.append(IterationAccess(index + (first - index.const), count, access.store, access.inner))
    return joined


def _keep_apart(loop: Loop, accesses: list[IterationAccess]) -> bool:
    """Whether no element that one iteration stores is touched by another one."""
    alike = {(access.index.terms, id(access.inner)): access for access in accesses}.values()
    strides = {access.stride(loop.var) for access in alike}
    if len(strides) != 1 or len({access.around(loop.var) for access in alike}) != 1:
        return False
    stride = abs(strides.pop())
    if stride == 0:
        return False
    if any(_places_apart(loop, accesses, stride, row) for row in _rows(accesses, stride)):
        return True
    return _differences_apart(loop, accesses, stride)


def _rows(accesses: Sequence[IterationAccess], stride: int) -> set[int]:
    """Distances beyond an iteration's stride: an iteration may take some columns of rows so far apart. They are steps
    of other loops, and the least between the first access and another.
    """
    first = min([access.index.const for access in accesses])
    beyond = [far for access in accesses if (far := access.index.const - first) > stride]
    steps = {abs(step) for access in accesses for _, step in access.index.terms if abs(step) > stride}
    return steps | ({min(beyond)} if beyond else set())


def _places_apart(loop: Loop, accesses: Sequence[IterationAccess], stride: int, row: int) -> bool:
    """Whether iterations keep to places of their own in rows of `row` elements, so that they can't meet in any."""
    lows, highs = [], []
    for access in accesses:
        low = high = access.index.const % row
        for name, step in access.index.terms:
            if name in access.inner and step % row:
                reach = step * (access.inner[name] - 1)
                low, high = (low, high + reach) if reach > 0 else (low + reach, high)
        lows.append(low)
        highs.append(high + access.count)
    width = max(highs) - min(lows)
    return stride >= width and stride * (loop.extent - 1) + width <= row


def _differences_apart(loop: Loop, accesses: list[IterationAccess], stride: int) -> bool:
    """The exact answer: iterations meet where elements differ by one of the stride's first `extent` multiples.

    Among elements of one remainder it is enough to look at neighbours: those further apart differ by more. Where they
    are too many to look at, it is not shown.
    """
    every = [(access.points(), access.store) for access in accesses]
    found = [(points, store) for points, store in every if points is not None]
    if len(found) < len(every):
        return False
    touched, stored = _touched(found)
    order = np.argsort(touched % stride, kind="stable")
    touched, stored = touched[order], stored[order]
    difference = touched[1:] - touched[:-1]
    near = (difference % stride == 0) & (difference > 0) & (difference < stride * loop.extent)
    return not (near & (stored[1:] | stored[:-1])).any()


def _touched(accesses: Sequence[tuple[Elements, bool]]) -> tuple[Elements, npt.NDArray[np.bool_]]:
    """The elements that accesses (their elements, whether they store) touch, in order, and which of them are stored."""
    low = min(int(points.min()) for points, _ in accesses)
    span = max(int(points.max()) for points, _ in accesses) - low + 1
    if span > _SPARSE * sum(points.size for points, _ in accesses):
        touched = distinct([points for points, _ in accesses])
        stored = np.zeros(touched.size, bool)
        for points, store in accesses:
            if store:
                stored[np.searchsorted(touched, points)] = True
        return touched, stored
    marks = np.zeros(span, np.uint8)
    for wanted, mark in ((False, 1), (True, 2)):
        for points, store in accesses:
            if store == wanted:
                marks[points - low] = mark
    near = np.flatnonzero(marks)
    return near + low, marks[near] == 2


def distinct(groups: Sequence[Elements]) -> Elements:
    """The elements of all groups, each once and in order: sorted, since NumPy's `unique` hashes, which takes longer."""
    every = np.sort(np.concatenate(groups))
    each: Elements = every[np.concatenate([[True], every[1:] != every[:-1]])]
    return each
