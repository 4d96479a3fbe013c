"""The sum that every output is: chains of dot products, cut and ordered as the options say."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.sums import Part
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.tile import Chain, Repeat, TapLoop
from simdnn.program.records import Tensor


class Chains:
    """Chains over taps and channels, whose sums are added up as they are."""

    group = None

    def __init__(self, product: Product, in_place: bool = False, one_by_one: bool = False) -> None:
        """`in_place`: the weights of each chain lie where those of the one before did; `one_by_one`: in no loop."""
        self.product, self.in_place, self.one_by_one = product, in_place, one_by_one

    @cached_property
    def chained(self) -> bool:
        """Whether an output is more than one sum."""
        return sum(len(repeat.chains) * repeat.over.extent for repeat in self.sums(0)) > 1

    def sums(self, step: int) -> tuple[Repeat, ...]:
        """The chains of a sum: cut between channels, or as the order of a convolution has it; `step` in weights."""
        o, r, depth = self.product.options, self.product.reading, self.product.dot.depth
        order = o.order
        steps = r.ic // depth
        tap = steps * step
        cut = min(o.cut // depth or steps, steps)
        rows = TapLoop("u", r.kh, r.down, r.kw * tap)
        planes = TapLoop("z", r.kd, r.behind, r.kh * r.kw * tap)

        def chain(columns: tuple[int, int], *outside: TapLoop, first: int = 0, most: int = cut) -> Chain:
            """Over a run of columns, and up to `most` steps of channels from `first`."""
            taps = (*outside, TapLoop("w", columns[1], r.across, tap))
            at = columns[0] * r.across + first * depth, columns[0] * tap + first * step
            return Chain(taps, min(most, steps - first), *at)

        def turns(part: Part, first: int) -> Repeat:
            """The chains of a part, row by row or plane by plane where it says so."""
            if part.plane_by_plane and part.row_by_row:
                some = [(row, chain(c, first=first)) for row in range(r.kh) for c in part.columns]
                moved = [
                    replace(c, source=c.source + row * rows.source, weights=c.weights + row * rows.weights)
                    for row, c in some
                ]
                return Repeat(tuple(moved), replace(planes, var="part"))
            if part.plane_by_plane:
                return Repeat(tuple(chain(c, rows, first=first) for c in part.columns), replace(planes, var="part"))
            if part.row_by_row:
                return Repeat(tuple(chain(c, planes, first=first) for c in part.columns), replace(rows, var="part"))
            return Repeat(tuple(chain(c, planes, rows, first=first) for c in part.columns))

        if order.parts:
            return tuple(turns(part, first) for first in range(0, steps, cut) for part in order.parts)
        if order.block and not order.fold:
            some = order.block // depth
            blocks = TapLoop("block", steps // some, order.block, some * step)
            return (Repeat((replace(chain((0, r.kw), blocks, planes, rows), steps=some),)),)
        if o.last:
            begin = steps - sum(o.last)
            halves = [chain((0, r.kw), first=begin + i * o.last[0], most=n) for i, n in enumerate(o.last)]
            whole = TapLoop("part", begin // cut, cut * depth, cut * step)
            return (*((Repeat((chain((0, r.kw)),), whole),) if begin else ()), Repeat(tuple(halves)))
        times = -(-steps // cut) - 1
        last = chain((0, r.kw), planes, rows, first=times * cut)
        if order.columns_outside:
            last = replace(last, taps=last.taps[::-1])
        if not times:
            return (Repeat((last,)),)
        if self.one_by_one:
            each = [chain((0, r.kw), planes, rows, first=part * cut) for part in range(times + 1)]
            return tuple(Repeat((replace(one, weights=0),)) for one in each)
        over = TapLoop("part", times, cut * depth, 0 if self.in_place else cut * step)
        last = replace(last, weights=0) if self.in_place else last
        return Repeat((chain((0, r.kw), planes, rows),), over), Repeat((last,))

    def tensors(self) -> list[Tensor]:
        return []

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {}
