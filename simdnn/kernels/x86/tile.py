"""The register tile: sums of dot products over taps and channels, then the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle

from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.x86.code import Unit, broadcast32, fetch, load32, load_float, store32, zero
from simdnn.kernels.x86.dots import Dot, Emit, accumulators, beside, emitted
from simdnn.kernels.x86.epilogue import Plan, TileSums, add_parts, finish_tile
from simdnn.program.records import Affine, Op, Register, Steps

_TURN = 4  # steps of a turn of a library's innermost loop (`rd_unroll` in its sources)
_MOVES = 3  # instructions around it that keep a general register, and bring a byte there


@dataclass(frozen=True)
class TapLoop:
    """A sequential loop of the reduction around the channels: how far source and weights move with it."""

    var: str
    extent: int
    source: int
    weights: int


@dataclass(frozen=True)
class Panel:
    """Columns that a tile computes: where their weights stand, and how many lanes of each vector are real."""

    tensor: str
    lanes: tuple[int, ...]  # live lanes of each vector
    base: Affine  # first weight
    step: int  # weights from one channel step to the next
    dst: Affine  # first column in a row of dst
    channel: Affine  # the same in the parameter tensors
    plain: bool = False  # weights as the user stores them: nothing stands behind the last column
    number: Affine = Affine()  # of the panel among those that its tensor has

    @property
    def vectors(self) -> int:
        return len(self.lanes)

    def moved(self, var: str, by: Affine) -> Panel:
        """The panel that stands further among those of the loop `var`."""
        places = (self.base, self.dst, self.channel, self.number)
        base, dst, channel, number = (place + by * dict(place.terms).get(var, 0) for place in places)
        return replace(self, base=base, dst=dst, channel=channel, number=number)

    def part(self, first: int, vectors: int, lanes: int, depth: int) -> Panel:
        """Some of its vectors of `lanes` columns, whose weights lie `depth` to a lane."""
        at = first * lanes
        columns = self.dst + at, self.channel + at
        place = self.lanes[first : first + vectors], self.base + at * depth
        return replace(self, lanes=place[0], base=place[1], dst=columns[0], channel=columns[1])


@dataclass(frozen=True)
class Chain:
    """One sum from zero: loops over taps, then `steps` dots over channels, from an element of source and weights."""

    taps: tuple[TapLoop, ...]
    steps: int
    source: int = 0
    weights: int = 0

    @property
    def loops(self) -> list[TapLoop]:
        return [taps for taps in self.taps if taps.extent > 1]

    def at(self, rows: Steps, weights: Affine) -> tuple[Steps, Affine]:
        """Each row's source, and the weights, inside the loops over taps."""
        moved, weights = rows + self.source, weights + self.weights
        for taps in self.loops:
            moved = moved + Affine.var(taps.var) * taps.source
            weights = weights + Affine.var(taps.var) * taps.weights
        return moved, weights

    def around(self, code: Code) -> Code:
        """`code` in the loops over taps."""
        for taps in reversed(self.loops):
            code = loop(taps.var, taps.extent, code)
        return code


@dataclass(frozen=True)
class Repeat:
    """Chains one after the other, `over.extent` times; an extent of 1 is once."""

    chains: tuple[Chain, ...]
    over: TapLoop = TapLoop("part", 1, 0, 0)


@dataclass(frozen=True)
class Group:
    """How the s32 sum of one group of K becomes an f32 term: `comp` added, converted, scaled in the order given.

    The tensors hold values by group and channel, the source's by row and group.
    """

    channels: int  # from one group to the next, in tensors by channel
    groups: int  # from one row to the next, in the source's
    compensate: bool
    scales: tuple[str, ...]  # "wei", "src", in order

    def term(self, unit: Unit, final: TileSums, group: Affine) -> Code:
        """For one group; `final` names the tile's registers, channels and rows."""
        code: Code = []
        p = unit.reg("p")
        columns = range(len(final.lanes))
        for j in columns if self.compensate else ():
            at = group * self.channels + final.channel + j * unit.lanes
            code.append(load32(unit, p, "group_comp", at, unit.lanes))
            code += [op("vpaddd", row[j].as_("s32"), row[j].as_("s32"), p.as_("s32")) for row in final.registers]
        for row in final.registers:
            code += [op("vcvtdq2ps", acc.as_("f32"), acc.as_("s32")) for acc in row]
        for scale in self.scales:
            value = p.as_("f32")
            if scale == "wei":
                for j in columns:
                    at = group * self.channels + final.channel + j * unit.lanes
                    code.append(load32(unit, value, "wei_group_scale", at, unit.lanes))
                    code += [op("vmulps", row[j].as_("f32"), row[j].as_("f32"), value) for row in final.registers]
                continue
            for i, row in enumerate(final.registers):
                code.append(broadcast32(value, "src_group_scale", final.row_number[i] * self.groups + group))
                code += [op("vmulps", acc.as_("f32"), acc.as_("f32"), value) for acc in row]
        return code


@dataclass(frozen=True)
class Reduction:
    """The sum that every output is: the sums of its chains, added up in order."""

    dot: Dot
    source: str  # tensor
    shifted: bool  # s8 source for an unsigned unit: add 128
    sums: tuple[Repeat, ...]
    group: Group | None = None  # what makes an integer chain an f32 term
    first: tuple[str, ...] = ()  # what the first chain's sum gets, instead of the total: "sum", "bias"
    starts: bool = False  # it gets that ahead of its products
    one_load: bool = False  # the source's rows are broadcast first, and one vector of weights is loaded at a time
    fetches: bool = False  # a line of each vector of weights is fetched ahead in a step, as far as there are rows
    apart: bool = False  # parts of the sums do not follow each other at once, and the epilogue's registers hold weights
    again: bool = False  # the shift is brought anew in each turn of a loop

    @property
    def joined(self) -> str:
        """The type in which the sums of chains are added up."""
        return "f32" if self.group else self.dot.joined

    @property
    def chains(self) -> int:
        return sum(len(r.chains) * r.over.extent for r in self.sums)


Moves = tuple[Affine, Affine]  # in source, in weights


def setup(unit: Unit, reduction: Reduction, panel: Panel, by_channel: bool) -> Code:
    """Registers that stay for the whole tile; `by_channel`: the weights' scales, where each product is scaled."""
    code: Code = []
    if reduction.dot.ones:
        code.append(broadcast32(unit.reg("ones"), "ones", Affine()))
    if reduction.dot.scaled:
        code.append(broadcast32(unit.reg("scale", "f32"), "src_scale", Affine()))
    for j in range(panel.vectors if reduction.dot.scaled_weights else 0):
        value, at = unit.reg(f"s{j}", "f32"), panel.channel + j * unit.lanes
        scale = (
            load32(unit, value, "wei_scale", at, unit.lanes)
            if by_channel
            else broadcast32(value, "wei_scale", Affine())
        )
        code.append(scale)
    if reduction.shifted:
        code.append(broadcast32(unit.reg("shift"), "shift", Affine()))
    return code


def steps(
    unit: Unit,
    reduction: Reduction,
    panel: Panel,
    rows: Steps,
    weights: Affine,
    count: int,
    first: int = 0,
) -> Code:
    """The innermost loop: `count` dots for the accumulators of a tile's rows from `first` on."""

    def step(at: Affine) -> Code:
        return _step(unit, reduction, panel, rows, weights, at, first)

    if reduction.shifted and reduction.again:
        return _in_turns(unit, count, step)
    return loop("k", count, step(Affine.var("k")))


def _in_turns(unit: Unit, count: int, step: Callable[[Affine], Code]) -> Code:
    """Steps as a library's loop has them, four a turn, which begins with the shift of s8 sources, brought from a
    general register: shuffles stand for that.
    """
    shift = unit.reg("shift")
    spread: Code = [op("vpermd", shift, shift, shift)] * (1 if unit.masks else 2)
    moved: Code = [*[zero(unit.reg("p"))] * _MOVES, *spread]
    whole, rest = divmod(count, _TURN)
    code = loop("k", whole, moved + [s for u in range(_TURN) for s in step(Affine.var("k") * _TURN + u)])
    return code + (moved if rest else []) + [s for u in range(count - rest, count) for s in step(Affine(u))]


def _step(unit: Unit, reduction: Reduction, panel: Panel, rows: Steps, weights: Affine, at: Affine, first: int) -> Code:
    """One dot for the accumulators of a tile's rows."""
    dot = reduction.dot
    columns = [*(weights + at * panel.step).steps(unit.lanes * dot.depth, panel.vectors)]
    moving = [*(rows + at * dot.depth)]

    def load(j: int, register: str) -> Code:
        lanes = panel.lanes[j] if panel.plain else unit.lanes
        return dot.load_weights(unit, register, panel.tensor, columns[j], lanes)

    def broadcast(i: int, register: str) -> Code:
        if dot.src == "f16" and dot.acc == "f32":
            return load_float(unit, register, reduction.source, "f16", rows[i] + at, 1)
        a = unit.reg(register, "f32" if dot.src == "f32" else "u32")
        code: Code = [broadcast32(a, reduction.source, moving[i])]
        if reduction.shifted:
            code.append(op("vpaddb", a.as_("s8"), a.as_("s8"), unit.reg("shift", "s8")))
        return code

    # The library names lines some steps on; so do these but for the place, which no cycle depends on: behind the last
    # line an address would leave its tensor.
    ahead = range(min(len(rows), panel.vectors) if reduction.fetches else 0)
    body: Code = [fetch("prefetcht0", panel.tensor, columns[j], dot.wei) for j in ahead]
    if reduction.one_load:
        sources = ["a", "b0", *(f"a{i}" for i in range(2, len(rows)))][: len(rows)]  # two are the epilogue's later
        for i, a in enumerate(sources):
            body += broadcast(i, a)
        temporaries = cycle(_temporaries(dot))
        for j in range(panel.vectors):
            body += load(j, "p")
            for i, a in enumerate(sources):
                body += emitted(dot.emit, unit, f"c{first + i}_{j}", a, "p", next(temporaries))
        return body
    registers = weights_of(panel.vectors) if reduction.apart else [f"b{j}" for j in range(panel.vectors)]
    for j, register in enumerate(registers):
        body += load(j, register)
    for i in range(len(rows)):
        body += broadcast(i, "a")
        body += _products(dot.emit, unit, first + i, tuple(registers), _temporaries(dot), i * len(registers))
    return body


def _temporaries(dot: Dot) -> tuple[str, ...]:
    """Registers that products take in turn."""
    return tuple([f"t{t}" for t in range(max(1, dot.temporaries))])


@lru_cache(maxsize=1 << 12)
def _products(
    emit: Emit, unit: Unit, row: int, registers: tuple[str, ...], temporaries: tuple[str, ...], before: int
) -> tuple[Op, ...]:
    """The products of a row of a tile, whose element is in `a`, by weights in `registers`; `before`: how many stand
    before them, as temporaries are taken in turn.
    """
    found = list[Op]()
    for j, register in enumerate(registers):
        found += emitted(emit, unit, f"c{row}_{j}", "a", register, temporaries[(before + j) % len(temporaries)])
    return tuple(found)


def weights_of(vectors: int) -> list[str]:
    """Registers of weights in a library's tile: its epilogue wants the first of them later."""
    return ["p", *(f"b{j}" for j in range(vectors - 1))]


def reduce_(
    unit: Unit,
    reduction: Reduction,
    panel: Panel,
    rows: Steps,
    chain: Chain,
    at: Moves,
    start: Code,
) -> Code:
    """Accumulators from zero and what `start` adds, over one chain; `at`: how far source and weights are on already."""
    moved, weights = chain.at(rows + at[0], panel.base + at[1])
    code = chain.around(steps(unit, reduction, panel, moved, weights, chain.steps))
    sums = [acc for row in accumulators(unit, len(rows), panel.vectors, reduction.dot) for acc in row]
    if reduction.dot.beside:
        sums += [beside(unit, acc.name) for acc in sums]
    clear: Code = [zero(acc) for acc in sums]
    return [*clear, *start, *code]


def turns(sums: Sequence[Repeat]) -> list[tuple[Repeat, int, int]]:
    """(repeat, first turn, turns): the very first and the very last turn apart, because their sums go elsewhere."""
    found = []
    for r, repeat in enumerate(sums):
        extent = repeat.over.extent
        cuts = {0, extent} | ({1} if r == 0 else set()) | ({extent - 1} if r == len(sums) - 1 else set())
        edges = sorted(cuts)
        found += [(repeat, low, high - low) for low, high in zip(edges, edges[1:], strict=False)]
    return found


@dataclass(frozen=True)
class TilePart:
    """Some chains of a tile's sums, for `extent` turns of loop `var`; the last part ends with the destination."""

    var: str
    extent: int
    code: Code

    @property
    def whole(self) -> Code:
        """The part's code with its loop around it."""
        return loop(self.var, self.extent, self.code) if self.extent > 1 else self.code


def partial_sums(
    unit: Unit,
    registers: Sequence[Sequence[Register]],
    panel: Panel,
    joined: str,
    total: str,
    at: Steps,
    opening: bool,
    closing: bool,
) -> Code:
    """The sums of chains before these, which the tensor `total` keeps, added to a tile's accumulators but for the
    `opening` chain; and these put there but for the `closing` one.
    """
    code: Code = []
    for i, row in enumerate(registers):
        for j, acc in enumerate(row):
            index = at[i] + j * unit.lanes
            if not opening:
                earlier, add = unit.reg("p", joined), "vaddps" if joined == "f32" else "vpaddd"
                code.append(load32(unit, earlier, total, index, panel.lanes[j]))
                code.append(op(add, acc.as_(joined), earlier, acc.as_(joined)))
            if not closing:
                code.append(store32(unit, total, index, acc.as_(joined), panel.lanes[j]))
    return code


def tile(
    unit: Unit,
    reduction: Reduction,
    plan: Plan,
    panel: Panel,
    sources: Steps,
    dst_rows: Steps,
    total: str,
    position: Steps,
    row_number: Steps,
    rowsum: bool,
    beside: tuple[str, ...] = (),
) -> list[TilePart]:
    """One tile from nothing to memory. `total` names the tensor that keeps the sum of chains so far, so that parts need
    not follow each other at once; `beside` registers that other tiles have and formulas behind this one may use.
    """
    dot, joined = reduction.dot, reduction.joined
    registers = accumulators(unit, len(sources), panel.vectors, dot)
    at = dst_rows + panel.dst
    in_comp, free = position + panel.channel, (*_temporaries(dot)[: dot.temporaries], *beside)
    final = TileSums(unit, registers, panel.lanes, at, panel.channel, in_comp, row_number, free)

    parts: list[TilePart] = []
    pieces = turns(reduction.sums)
    for p, (repeat, first, count) in enumerate(pieces):
        over, turn = repeat.over, Affine.var(repeat.over.var) + first if count > 1 else Affine(first)
        body = setup(unit, reduction, panel, plan.scale_by_channel) if p == 0 or reduction.apart else []
        for c, chain in enumerate(repeat.chains):
            opening = p == 0 and c == 0
            early: Code = add_parts(plan, final, reduction.first) if opening else []
            start = early if reduction.starts else Code()
            at_turn = turn * over.source, turn * over.weights
            body += reduce_(unit, reduction, panel, sources, chain, at_turn, start)
            for row in registers:
                for acc in row:
                    body += dot.promote(unit, acc.name)
            if reduction.group:
                body += reduction.group.term(unit, final, turn)
            body += [] if reduction.starts else early
            closing = p == len(pieces) - 1 and c == len(repeat.chains) - 1
            if reduction.chains > 1:
                body += partial_sums(unit, registers, panel, joined, total, at, opening, closing)
        if p == len(pieces) - 1:
            body += finish_tile(plan.without(reduction.first), final, rowsum)
        parts.append(TilePart(over.var, count, body))
    return parts
