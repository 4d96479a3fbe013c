"""The sum that every output is: chains of dot products, cut and ordered as the options say."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.sums import Part
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.source_steps import SourceSteps
from simdnn.kernels.x86.tile import Chain, Repeat, TapLoop
from simdnn.program.records import Tensor


class _TapChains:
    """Chains through the taps of a window and the steps of their channels, as source and weights have them."""

    def __init__(self, source: SourceSteps, depth: int, step: int, cut: int) -> None:
        """`depth`: elements that a step takes; `step`: from one to the next in the weights; `cut`: those of a sum."""
        self.source, self.depth, self.step = source, depth, step
        self.steps = source.ic // depth
        self.cut = min(cut // depth or self.steps, self.steps)
        self.tap = self.steps * step
        self.row = 0, source.kw
        self.rows = TapLoop("u", source.kh, source.down, source.kw * self.tap)
        self.planes = TapLoop("z", source.kd, source.behind, source.kh * source.kw * self.tap)

    def chain(self, columns: tuple[int, int], *outside: TapLoop, first: int = 0, most: int = 0) -> Chain:
        """Over a run of columns, and up to `most` steps of channels (0: as many as are cut) from `first`."""
        across = self.source.across
        taps = (*outside, TapLoop("w", columns[1], across, self.tap))
        at = columns[0] * across + first * self.depth, columns[0] * self.tap + first * self.step
        return Chain(taps, min(most or self.cut, self.steps - first), *at)

    def part(self, part: Part, first: int) -> Repeat:
        """The chains of a part, row by row or plane by plane where it says so."""
        rows, planes = self.rows, self.planes
        if part.plane_by_plane and part.row_by_row:
            some = [(row, self.chain(c, first=first)) for row in range(rows.extent) for c in part.columns]
            moved = [
                replace(c, source=c.source + row * rows.source, weights=c.weights + row * rows.weights)
                for row, c in some
            ]
            return Repeat(tuple(moved), replace(planes, var="part"))
        if part.plane_by_plane:
            return Repeat(tuple(self.chain(c, rows, first=first) for c in part.columns), replace(planes, var="part"))
        if part.row_by_row:
            return Repeat(tuple(self.chain(c, planes, first=first) for c in part.columns), replace(rows, var="part"))
        return Repeat(tuple(self.chain(c, planes, rows, first=first) for c in part.columns))

    def blocks(self, block: int) -> Repeat:
        """One chain, block of channels by block outside the taps."""
        some = block // self.depth
        blocks = TapLoop("block", self.steps // some, block, some * self.step)
        return Repeat((replace(self.chain(self.row, blocks, self.planes, self.rows), steps=some),))

    def halves(self, last: tuple[int, ...]) -> tuple[Repeat, ...]:
        """Whole sums of K, and what is left of it in two halves of these steps."""
        begin = self.steps - sum(last)
        halves = [self.chain(self.row, first=begin + i * last[0], most=n) for i, n in enumerate(last)]
        whole = TapLoop("part", begin // self.cut, self.cut * self.depth, self.cut * self.step)
        return (*((Repeat((self.chain(self.row),), whole),) if begin else ()), Repeat(tuple(halves)))


class Chains:
    """Chains over taps and channels, whose sums are added up as they are."""

    group = None

    def __init__(self, product: Product, in_place: bool = False, one_by_one: bool = False) -> None:
        """`in_place`: each chain's weights take the place of the last one's; `one_by_one`: in no loop."""
        self.product, self.in_place, self.one_by_one = product, in_place, one_by_one

    @cached_property
    def chained(self) -> bool:
        """Whether an output is more than one sum."""
        return sum(len(repeat.chains) * repeat.over.extent for repeat in self.sums(0)) > 1

    def sums(self, step: int) -> tuple[Repeat, ...]:
        """The chains of a sum: cut between channels, or as the order of a convolution has it; `step` in weights."""
        p, o = self.product, self.product.options
        w = _TapChains(p.source_steps, p.dot.depth, step, o.cut)
        if o.order.parts:
            return tuple(w.part(part, first) for first in range(0, w.steps, w.cut) for part in o.order.parts)
        if o.order.block and not o.order.fold:
            return (w.blocks(o.order.block),)
        if o.last:
            return w.halves(o.last)
        times = -(-w.steps // w.cut) - 1
        last = w.chain(w.row, w.planes, w.rows, first=times * w.cut)
        if o.order.columns_outside:
            last = replace(last, taps=last.taps[::-1])
        if not times:
            return (Repeat((last,)),)
        if self.one_by_one:
            each = [w.chain(w.row, w.planes, w.rows, first=part * w.cut) for part in range(times + 1)]
            return tuple(Repeat((replace(one, weights=0),)) for one in each)
        over = TapLoop("part", times, w.cut * w.depth, 0 if self.in_place else w.cut * step)
        last = replace(last, weights=0) if self.in_place else last
        return Repeat((w.chain(w.row, w.planes, w.rows),), over), Repeat((last,))

    def tensors(self) -> list[Tensor]:
        return []

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {}
