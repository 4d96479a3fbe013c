"""The register tile: sums of dot products over taps and channels, then the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simdnn.kernels.code import Code, Unit, broadcast32, load32, loop, op, store32, zero
from simdnn.kernels.dots import Dot, accumulator
from simdnn.kernels.epilogue import Plan, Tile, finish_tile
from simdnn.program import Affine


@dataclass(frozen=True)
class Taps:
    """A sequential loop of the reduction around the channels: how far source and weights move with it."""

    var: str
    extent: int
    source: int
    weights: int


@dataclass(frozen=True)
class Panel:
    """Columns that a tile computes: where their weights stand, and how many lanes of each vector are real."""

    tensor: str
    vectors: int
    lanes: tuple[int, ...]  # live lanes of each vector
    base: Affine  # first weight
    step: int  # weights from one channel step to the next
    dst: Affine  # first column in a row of dst
    channel: Affine  # the same in the parameter tensors
    plain: bool = False  # weights as the user stores them: nothing stands behind the last column


@dataclass(frozen=True)
class Reduction:
    """The sum that every output is: loops over taps, then `steps` dots over the channels of a group."""

    dot: Dot
    source: str  # tensor
    taps: tuple[Taps, ...]
    steps: int
    shifted: bool  # s8 source for an unsigned unit: add 128
    cut: int = 0  # restart from zero every so many steps and add up the parts (0: never)


def setup(unit: Unit, reduction: Reduction) -> Code:
    """Registers that stay for the whole tile."""
    code: Code = []
    if reduction.dot.ones:
        code.append(broadcast32(unit.reg("ones"), "ones", Affine()))
    if reduction.shifted:
        code.append(broadcast32(unit.reg("shift"), "shift", Affine()))
    return code


def steps(unit: Unit, reduction: Reduction, panel: Panel, rows: Sequence[Affine], start: Affine, count: int) -> Code:
    """The innermost loop: `count` dots from step `start` for every accumulator of the tile."""
    dot = reduction.dot
    at = start + Affine.var("k")
    body: Code = []
    for j in range(panel.vectors):
        weights = panel.base + at * panel.step + j * unit.lanes * dot.depth
        body.append(dot.load_weights(unit, f"b{j}", panel.tensor, weights, panel.lanes[j] if panel.plain else unit.lanes))
    turn = 0
    for i, row in enumerate(rows):
        a = unit.reg("a", "f32" if dot.src == "f32" else "u32")
        body.append(broadcast32(a, reduction.source, row + at * dot.depth))
        if reduction.shifted:
            body.append(op("vpaddb", a.as_("s8"), a.as_("s8"), unit.reg("shift", "s8")))
        for j in range(panel.vectors):
            temporary = f"t{turn % max(1, dot.temporaries)}"
            turn += 1
            body += dot.emit(unit, f"c{i}_{j}", "a", f"b{j}", temporary)
    return loop("k", count, body)


def reduce_(unit: Unit, reduction: Reduction, panel: Panel, rows: Sequence[Affine], start: Affine, count: int) -> Code:
    """Accumulators from zero, over all taps and `count` channel steps from `start`."""
    moved = list(rows)
    base = panel.base
    loops = [taps for taps in reduction.taps if taps.extent > 1]
    for taps in loops:
        moved = [row + Affine.var(taps.var) * taps.source for row in moved]
        base = base + Affine.var(taps.var) * taps.weights
    inside = replace(panel, base=base)
    code = steps(unit, reduction, inside, moved, start, count)
    for taps in reversed(loops):
        code = loop(taps.var, taps.extent, code)
    clear: Code = [
        zero(accumulator(unit, i, j, reduction.dot)) for i in range(len(rows)) for j in range(panel.vectors)
    ]
    return clear + code


def tile(
    unit: Unit,
    reduction: Reduction,
    plan: Plan,
    panel: Panel,
    sources: Sequence[Affine],
    dst_rows: Sequence[Affine],
    total: str,
    position: Sequence[Affine],
    row_number: Sequence[Affine],
    rowsum: bool,
) -> Code:
    """One tile from nothing to memory. `total` names the f32 tensor that keeps partial sums between cuts."""
    dot, cut = reduction.dot, reduction.cut or reduction.steps
    accumulators = [[accumulator(unit, i, j, dot) for j in range(panel.vectors)] for i in range(len(sources))]
    at = [row + panel.dst for row in dst_rows]
    final = Tile(unit, accumulators, panel.lanes, at, panel.channel, [p + panel.channel for p in position], row_number)

    def partial(add: bool, store: bool) -> Code:
        code: Code = []
        for i, row in enumerate(accumulators):
            for j, acc in enumerate(row):
                index = at[i] + j * unit.lanes
                if add:
                    earlier = unit.reg("p", "f32")
                    code.append(load32(unit, earlier, total, index, panel.lanes[j]))
                    code.append(op("vaddps", acc, earlier, acc))
                if store:
                    code.append(store32(unit, total, index, acc, panel.lanes[j]))
        return code

    parts = -(-reduction.steps // cut)
    code = setup(unit, reduction)
    if parts > 1:
        code += reduce_(unit, reduction, panel, sources, Affine(), cut) + partial(add=False, store=True)
        middle = reduce_(unit, reduction, panel, sources, (Affine.var("part") + 1) * cut, cut)
        code += loop("part", parts - 2, middle + partial(add=True, store=True))
    last = (parts - 1) * cut
    code += reduce_(unit, reduction, panel, sources, Affine(last), reduction.steps - last)
    code += partial(add=True, store=False) if parts > 1 else []
    return code + finish_tile(plan, final, rowsum)
