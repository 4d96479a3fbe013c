"""A convolution as a library's kernel goes through it, for the clock alone: the image is not copied, and taps beside it
are left out.

    for each run of lines whose windows reach over the image alike, each panel of columns, each block of pixels:
        for each row of the kernel that lies on the image
            for each column of it            pixels whose tap lies beside the image take no part
                for each step of channels    dot products

Values come from the other form (`gemm`): there a tap beside the image is a product with zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.problems import ConvProblem, SpatialAxis
from simdnn.kernels.common.sums import Options, RegisterTile
from simdnn.kernels.x86.blocking import SECOND_LEVEL, fitting, row_blocks
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, zero
from simdnn.kernels.x86.compensation import Compensation, compensated
from simdnn.kernels.x86.dots import Dot, accumulators, emitted
from simdnn.kernels.x86.epilogue import TileSums, finish_tile
from simdnn.kernels.x86.gemm import Gemm, RegisterTiles, epilogue_of, gemm, tile_of
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.reduction import Chains
from simdnn.kernels.x86.register_blocks import evenly, in_registers
from simdnn.kernels.x86.source import Source
from simdnn.kernels.x86.source_steps import SourceSteps, source_steps
from simdnn.kernels.x86.tile import Panel, Reduction, setup, steps
from simdnn.kernels.x86.weights import weights_of
from simdnn.program.records import Affine, Program, Tensor

_SLACK = 64  # elements: of a register, at most


@dataclass(frozen=True)
class OutputRun:
    """Neighbouring outputs along an axis, whose taps from `tap` on lie on the image, `taps` of them."""

    first: int
    count: int
    tap: int
    taps: int


@dataclass(frozen=True)
class OutputKind:
    """Runs of `count` outputs, `times` of them, that begin at `first` in loop "e"; their taps as an `OutputRun`'s."""

    first: Affine
    count: int
    tap: Affine
    taps: int
    times: int


def runs_along(axis: SpatialAxis) -> list[OutputRun]:
    """The outputs along an axis by the taps that lie on the image.

    >>> found = runs_along(SpatialAxis(i=7, k=3, o=7, stride=1, dilation=1, before=1, behind=1))
    >>> [(some.first, some.count, some.tap, some.taps) for some in found]
    [(0, 1, 1, 2), (1, 5, 0, 3), (6, 1, 0, 2)]
    """
    found = []
    for (tap, taps), outputs in groupby(range(axis.o), lambda o: _taps(axis, o)):
        members = list(outputs)
        found.append(OutputRun(members[0], len(members), tap, taps))
    return found


def blocks_along(axis: SpatialAxis, height: int) -> Iterator[tuple[int, int, int]]:
    """(first output, outputs, how many) of blocks along an axis; those in a row whose taps all lie on the image are
    together.

    >>> list(blocks_along(SpatialAxis(i=40, k=3, o=40, stride=1, dilation=1, before=1, behind=1), 8))
    [(0, 8, 1), (8, 8, 3), (32, 8, 1)]
    """

    def whole(first: int) -> bool:
        last = first + height - 1
        return last < axis.o and all(on_image(axis, o, tap) for o in (first, last) for tap in (0, axis.k - 1))

    at = 0
    while at < axis.o:
        count = 1
        while whole(at) and whole(at + count * height):
            count += 1
        yield at, min(height, axis.o - at), count
        at += count * height


def on_image(axis: SpatialAxis, output: int, tap: int) -> bool:
    """Whether an output's tap lies on the image."""
    return 0 <= output * axis.stride + tap * axis.dilation - axis.before < axis.i


def kinds_along(axis: SpatialAxis) -> list[OutputKind]:
    """The runs along an axis, two of as many outputs with as many taps together.

    >>> found = kinds_along(SpatialAxis(i=7, k=3, o=7, stride=1, dilation=1, before=1, behind=1))
    >>> [(some.count, some.taps, some.times) for some in found]
    [(1, 2, 2), (5, 3, 1)]
    """
    alike: dict[tuple[int, int], list[OutputRun]] = {}
    for run in runs_along(axis):
        alike.setdefault((run.count, run.taps), []).append(run)
    pairs = [runs[i : i + 2] for runs in alike.values() for i in range(0, len(runs), 2)]
    return [_together(pair[0], pair[-1], len(pair)) for pair in pairs]


def _together(one: OutputRun, other: OutputRun, times: int) -> OutputKind:
    """A run, or two of as many outputs with as many taps."""
    which = Affine.var("e") if times > 1 else Affine()
    first, tap = which * (other.first - one.first) + one.first, which * (other.tap - one.tap) + one.tap
    return OutputKind(first, one.count, tap, one.taps, times)


def _taps(axis: SpatialAxis, output: int) -> tuple[int, int]:
    """(the first tap of an output that lies on the image, how many do)."""
    on = [tap for tap in range(axis.k) if on_image(axis, output, tap)]
    return (on[0], len(on)) if on else (0, 0)


class InPlace(Source):
    """An image whose last pixel is read to the end of a dot product, against weights of zero."""

    def tensors(self) -> list[Tensor]:
        src, *others = super().tensors()
        return [replace(src, size=src.size + _SLACK), *others]


class OnImage(Product):
    """The facts of a convolution whose source is read where it is."""

    @cached_property
    def source_steps(self) -> SourceSteps:
        """The source without the padding around it: a tap beside the image has no place in it. Channels that fill no
        whole dot product are not filled up in a copy.
        """
        c = self.conv
        found = source_steps(replace(c, padding=(0, 0, 0, 0)), self.unit, self.dot, self.options.order, False)
        s = found.source
        if s.converted or s.ic == s.icp:
            return found
        s = InPlace(s.stored, s.read, s.mb, s.ih, s.iw, s.groups, s.ic, s.ic)
        across = c.dilation[1] * s.pixel
        moved = replace(found, source=s, tensor=s.tensor, image=s.image, group=s.ic, across=across)
        (down, right), line = c.strides, s.row
        return replace(moved, line=down * line, column=right * s.pixel, down=c.dilation[0] * line)


@dataclass(frozen=True, eq=False)
class Direct:
    """The nest of a convolution over the image as it is, of the parts of a GEMM."""

    gemm: Gemm

    @cached_property
    def program(self) -> Program:
        return self.gemm.program_of(self.nests(), self.tensors())

    def nests(self) -> Code:
        p = self.gemm.product
        c, r = p.conv, p.source_steps
        around = [("n", c.mb), ("g", c.groups)]
        code = self.lacking() if self.lacks else []
        if r.weights * c.oc * fmt(p.dot.wei).bits // 8 > 2 * SECOND_LEVEL:  # each panel is read for all lines at once
            for panels, parts, tile in self.panels():
                body: Code = []
                for some in kinds_along(c.axes[0]):
                    body += nest([("e", some.times), ("y", some.count)], self.line(parts, tile, some))
                code += nest([*around, ("j", panels)], body, parallel=True)
            return code
        for some in kinds_along(c.axes[0]):
            for panels, parts, tile in self.panels():
                loops = [*around, ("j", panels), ("e", some.times), ("y", some.count)]
                code += nest(loops, self.line(parts, tile, some), parallel=True)
        return code

    def panels(self) -> Iterator[tuple[int, list[Panel], RegisterTile]]:
        """(how many, the columns of each tile in one of some panels, the tile)."""
        product, widest = self.gemm.product, self.gemm.blocks
        given = product.options.tile
        for panels, panel in self.gemm.weights.panels():
            tile = RegisterTile(widest.highest, panel.vectors)
            if given:
                cut = tile_of(given, panel)
                rows = fitting(cut, product.unit, product.dot, product.shifted).rows
                tile = replace(cut, rows=min(rows, widest.highest) if cut is given else rows)
            firsts = range(0, panel.vectors, tile.vectors)
            parts = [panel.part(at, tile.vectors, product.unit.lanes, product.dot.depth) for at in firsts]
            yield panels, parts, tile

    def tensors(self) -> list[Tensor]:
        size = len(runs_along(self.gemm.product.conv.axes[0])) * self.gemm.product.conv.ow * self.sums_of_line
        return [*self.gemm.tensors(), *([Tensor("edges", "s32", size, "scratch")] if self.lacks else [])]

    @property
    def lacks(self) -> bool:
        """Whether sums lack what was added to the source, times weights whose taps lie on the image."""
        return self.gemm.product.shifted and self.gemm.product.conv.padded

    @property
    def sums_of_line(self) -> int:
        """Sums of weights for a pixel: all columns with the padding of panels."""
        return self.gemm.product.conv.groups * self.gemm.blocks.layout.channels

    def lacking(self) -> Code:
        """Sums of the weights that lie on the image, for each pixel of a line of each kind: made in every run."""
        p = self.gemm.product
        c, r, unit = p.conv, p.source_steps, p.unit
        dot, ones = p.dot, broadcast32(unit.reg("a"), "shift", Affine())
        code: Code = []
        number = 0
        for some in kinds_along(c.axes[0]):
            for panels, panel in self.gemm.weights.panels():
                tap, at = r.ic // dot.depth * panel.step, Affine.var("u") + some.tap
                weights = panel.base + at * (r.kw * (r.ic // dot.depth * panel.step)) + Affine.var("w") * tap
                body: Code = []
                for j in range(panel.vectors):
                    index = weights + Affine.var("k") * panel.step + j * unit.lanes * dot.depth
                    body += dot.load_weights(unit, f"b{j}", panel.tensor, index, unit.lanes)
                    body += emitted(dot.emit, unit, f"c0_{j}", "a", f"b{j}", "t0")
                (sums,) = accumulators(unit, 1, panel.vectors, dot)
                one = [*(zero(acc) for acc in sums), ones, *self.once()]
                one += loop("u", some.taps, loop("k", r.ic // dot.depth, body))
                which = (Affine.var("e") if some.times > 1 else Affine()) + number
                place = (Affine.var("x") + which * c.ow) * self.sums_of_line + panel.channel
                added: Code = []
                for j, acc in enumerate(sums):
                    total, where = unit.reg("p", "s32"), place + j * unit.lanes
                    added += [load32(unit, total, "edges", where, unit.lanes), op("vpaddd", total, total, acc)]
                    added.append(store32(unit, "edges", where, total, unit.lanes))
                one += loop("x", c.ow, added)
                loops = [("g", c.groups), ("j", panels), ("e", some.times)]
                code += nest(loops, loop("w", r.kw, one), parallel=True)
            number += some.times
        return code

    def once(self) -> Code:
        """The register of ones that a dot product wants."""
        return [broadcast32(self.gemm.product.unit.reg("ones"), "ones", Affine())] if self.gemm.product.dot.ones else []

    def line(self, parts: Sequence[Panel], tile: RegisterTile, lines: OutputKind) -> Code:
        """All tiles of a line: some pixels meet all columns of a panel before the next do."""
        c, r = self.gemm.product.conv, self.gemm.product.source_steps
        axis, pixels = c.axes
        y = Affine.var("y") + lines.first
        source = Affine.var("n") * r.image + Affine.var("g") * r.group + y * r.line
        source = source + (lines.tap * axis.dilation + -axis.before) * r.source.row
        number = Affine.var("n") * (c.oh * c.ow) + y * c.ow
        code: Code = []
        for first, height, count, columns in self.pixels(pixels, tile):
            tiles = (self.tile(panel, tile, source, number, lines, first, height, columns) for panel in parts)
            code += loop("r", count, [s for one in tiles for s in one])
        return code

    def pixels(self, axis: SpatialAxis, tile: RegisterTile) -> list[tuple[int, int, int, list[tuple[int, int, range]]]]:
        """Blocks of pixels of a line, those alike together: (first, height, how many, `taps_of` each)."""
        most = tile.block or axis.o
        blocks = [
            (begin + first + i * height, height)
            for begin in range(0, axis.o, most)
            for first, height, count in row_blocks(min(most, axis.o - begin), tile.rows, evenly(self.gemm.product))
            for i in range(count)
        ]
        alike = groupby(blocks, lambda block: (block[1], taps_of(axis, *block)))
        return [
            (members[0][0], height, len(members), taps) for (height, taps), found in alike for members in [[*found]]
        ]

    def tile(
        self,
        panel: Panel,
        shape: RegisterTile,
        source: Affine,
        number: Affine,
        lines: OutputKind,
        first: int,
        height: int,
        columns: list[tuple[int, int, range]],
    ) -> Code:
        """Tile `r` of `height` pixels from `first` on, of `shape` at most; `columns`: (first, how many, pixels) of taps
        alike.
        """
        p = self.gemm.product
        c, r, unit = p.conv, p.source_steps, p.unit
        axis = c.axes[1]
        given, one_load, fetches = bool(p.options.tile), shape.one_load, shape.fetches
        reduction = Reduction(
            p.dot, r.tensor, p.shifted, (), one_load=one_load, fetches=fetches, apart=given, again=given
        )
        channels = r.ic // p.dot.depth
        tap = channels * panel.step
        pixel = Affine.var("r") * height + first
        begin = source + (pixel * axis.stride + -axis.before) * r.source.pixel + Affine.var("u") * r.down
        weights = panel.base + (Affine.var("u") + lines.tap) * (r.kw * tap)
        sums = [acc for row in accumulators(unit, height, panel.vectors, p.dot) for acc in row]
        code: Code = [*setup(unit, reduction, panel, self.gemm.plan.scale_by_channel), *(zero(acc) for acc in sums)]
        body: Code = []
        for column, many, members in columns:
            at = Affine.var("w") + column
            each = axis.stride * r.source.pixel
            rows = (begin + members.start * each + at * r.across).steps(each, len(members))
            body += loop("w", many, steps(unit, reduction, panel, rows, weights + at * tap, channels, members.start))
        code += loop("u", lines.taps, body)
        numbers = (number + pixel).steps(1, height)
        beside = c.groups * self.gemm.blocks.layout.channels
        places = ((numbers[0] + Affine.var("n") * -(c.oh * c.ow)) * beside + panel.channel).steps(beside, height)
        registers = [sums[i : i + panel.vectors] for i in range(0, len(sums), panel.vectors)]
        final = TileSums(
            unit,
            registers,
            panel.lanes,
            (numbers[0] * c.oc + panel.dst).steps(c.oc, height),
            panel.channel,
            places,
            numbers,
        )
        return code + finish_tile(self.gemm.plan, final, c.epilogue.zp_wei)


def taps_of(axis: SpatialAxis, first: int, height: int) -> list[tuple[int, int, range]]:
    """(first, how many, pixels) of the columns of a kernel that lie on the image for the same pixels of a block.

    >>> taps_of(SpatialAxis(i=7, k=3, o=7, stride=1, dilation=1, before=1, behind=1), 0, 7)
    [(0, 1, range(1, 7)), (1, 1, range(0, 7)), (2, 1, range(0, 6))]
    """

    def on_image(tap: int) -> range:
        places = [(first + i) * axis.stride - axis.before + tap * axis.dilation for i in range(height)]
        on = [i for i, place in enumerate(places) if 0 <= place < axis.i]
        return range(on[0], on[-1] + 1) if on else range(0)

    found = [(pixels, [*taps]) for pixels, taps in groupby(range(axis.k), on_image)]
    return [(taps[0], len(taps), pixels) for pixels, taps in found if pixels]


def direct(name: str, problem: ConvProblem, unit: Unit, dot: Dot, options: Options) -> Program:
    """The program of a library's kernel, in its tiles; blocks of channels that go through all taps by turns are one."""
    options = replace(options, order=replace(options.order, block=0))
    if Product(name, problem, unit, dot, options).flat:
        return gemm(name, problem, unit, dot, options).program
    product = OnImage(name, problem, unit, dot, options)
    blocks = in_registers(product, product.oc)
    compensation = Compensation(product, blocks.layout, compensated(product))
    plan, sums = epilogue_of(product, compensation.by), Chains(product)
    weights = weights_of(product, blocks.layout)
    parts = Gemm(product, blocks, weights, sums, compensation, plan, RegisterTiles(product, sums, plan, blocks))
    return Direct(parts).program
