"""A convolution on AMX tiles as a library goes through it, for the clock alone: `amx.py` has the bits.

oneDNN goes on from a line of outputs to the next (`is_os_blocking`, `use_M_mask` in jit_brgemm_conv_utils.cpp):
rows are neighbours in the copied image, and those that lie between two lines are left out, where a tile would begin
with them, or computed. Here rows with a stride are neighbours as well, a line's behind the one before. Sums go to a
buffer, and from there to the destination. It copies the lines of a call at a time, into a buffer of the thread
(`maybe_conv_inp` in brgemm_convolution.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from isa_models.formats import fmt
from isa_models.instruction import TILE_ROWS
from simdnn.kernels.common.code import Code, nest
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.amx import AmxTiles, tiled
from simdnn.kernels.x86.amx_blocks import TwoPanels
from simdnn.kernels.x86.amx_pixels import (
    BufferedTiles,
    ChannelsInPlace,
    PixelLines,
    ShortRows,
    by_lines,
    few_channels,
    in_calls,
    panels_first,
    rows_of_tiles,
    side_by_side,
)
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.gemm import Gemm
from simdnn.kernels.x86.lines import copied
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.source import Source
from simdnn.kernels.x86.source_steps import SourceSteps, source_steps
from simdnn.program.records import Affine, Program, Tensor

_FIRST_LEVEL = 48 * 1024
_BLOCK = 32  # rows and columns of sums at a time


@dataclass(frozen=True, eq=False)
class ShortTwoPanels(TwoPanels, ShortRows):
    """Blocks of two tiles by two in panels of more, of short rows."""


class LinesAtOnce(Product):
    """A product whose rows are those of `together` lines, a block; there are `blocks`. Lines of the image are copied
    for each of them, those that two blocks read for both, into a buffer of the thread (`maybe_conv_inp`).
    """

    def __init__(
        self, name: str, problem: ConvProblem, unit: Unit, dot: Dot, options: Options, together: int, blocks: int
    ) -> None:
        super().__init__(name, problem, unit, dot, options)
        self.image, self.together, c = self.conv, together, self.conv
        self.side_by_side = side_by_side(self.oc, options.columns)
        self.all = rows_of_tiles(c, together)
        down, step = c.strides
        high, wide = (blocks - 1) * down + c.kh, (self.all - 1) * step + c.kw
        self.conv = replace(c, ih=high, iw=wide, padding=(0, 0, 0, 0))

    def stored_rows(self, rows: int) -> int:
        return -(-rows * self.together * self.image.ow // self.all)

    @cached_property
    def source_steps(self) -> SourceSteps:
        c = self.image
        found = source_steps(c, self.unit, self.dot, self.options.order, False)
        s = Source(c.src, self.dot.src, c.mb, c.ih, c.iw, c.groups, self.ic, self.ic)
        pixel = _short(self.ic, self.dot) or found.ic
        lines = PixelLines(s, c, self.together, False, pixel)
        step = c.strides[1] * pixel
        return SourceSteps(s, "lines", 0, 0, step, 0, lines.row, pixel, c.kh, c.kw, found.ic, planes=lines)


@dataclass(frozen=True)
class PixelsTaken:
    """The pixels that a convolution of one tap steps to, each behind the one before."""

    source: Source
    problem: ConvProblem

    def tensor(self) -> Tensor:
        p = self.problem
        return Tensor("lines", self.source.read, p.mb * p.oh * p.ow * p.ic, "scratch")

    def stage(self, unit: Unit) -> Code:
        p, s, (down, step) = self.problem, self.source, self.problem.strides
        n, y, x = (Affine.var(name) for name in "nyx")
        stored = n * s.image + y * (down * s.row) + x * (step * s.pixel)
        at = ((n * p.oh + y) * p.ow + x) * p.ic
        body = copied(unit, f"u{fmt(s.read).bits}", (s.tensor, stored), ("lines", at), p.ic)
        return nest([("n", p.mb), ("y", p.oh), ("x", p.ow)], body, parallel=True)


class StepsOverPixels(Product):
    """A product of one tap that steps over pixels: those that it takes are copied first (`is_rtus` in the library's
    jit_brgemm_conv_utils.cpp).
    """

    def __init__(self, name: str, problem: ConvProblem, unit: Unit, dot: Dot, options: Options) -> None:
        super().__init__(name, problem, unit, dot, options)
        self.image, c = self.conv, self.conv
        self.conv = replace(c, ih=c.oh, iw=c.ow, strides=(1, 1))

    @cached_property
    def source_steps(self) -> SourceSteps:
        c = self.image
        found = source_steps(self.conv, self.unit, self.dot, self.options.order, False)
        s = Source(c.src, self.dot.src, c.mb, c.ih, c.iw, c.groups, self.ic, self.ic)
        return replace(found, source=s, tensor="lines", planes=PixelsTaken(s, c))


def goes_on(p: ConvProblem) -> bool:
    """Whether tiles of a convolution go from a line to the next: of kernels that no padding reaches over. Dilated ones,
    planes, and channels made of taps, stay line by line here.
    """
    fits = all(before < k for before, k in zip(p.padding, (p.kh, p.kw) * 2, strict=True))
    return p.dilation == (1, 1) and p.depth is None and fits and p.kh * p.kw > 1


def _short(ic: int, dot: Dot) -> int:
    """Channels that fill a part of a tile's row, which lie close in the copy; 0 where they fill whole ones."""
    return ic if ic < dot.whole and ic % dot.depth == 0 else 0


def over_lines(name: str, problem: ConvProblem, unit: Unit, dot: Dot, accumulation: str, options: Options) -> Program:
    """Such a convolution. Weights come past the first cache where that does not hold what a block of sums takes."""
    size, ic = fmt(problem.src).bits // 8, problem.ic // problem.groups
    moved = size * _BLOCK * ic * problem.kh * (1 + problem.kw) + 4 * _BLOCK * _BLOCK
    options = replace(options, apart=("wei",) * (moved > _FIRST_LEVEL), ahead=True)

    def call(together: int, count: int) -> Program:
        product = LinesAtOnce(name, problem, unit, dot, options, together, count)
        return by_lines(panels_first(tiled(product, accumulation, BufferedTiles)).program, dwords)

    dwords = (_short(ic, dot) or dot.whole) // dot.depth
    return in_calls(problem, options.lines, call)


def as_library(name: str, problem: ConvProblem, unit: Unit, dot: Dot, accumulation: str, options: Options) -> Program:
    """The library's way: line by line, and a panel meets all rows."""
    options = replace(options, line_by_line=True)
    if options.order.fold in ("row", "window") and options.order.together <= 1 and not problem.depth:
        return few_channels(name, problem, unit, dot, accumulation, options)
    if not options.order.fold and goes_on(problem):
        return over_lines(name, problem, unit, dot, accumulation, options)
    if not options.order.fold and problem.kh * problem.kw == 1:
        return pointwise(name, problem, unit, dot, accumulation, options).program
    return tiled(Product(name, problem, unit, dot, options), accumulation).program


def pointwise(name: str, problem: ConvProblem, unit: Unit, dot: Dot, accumulation: str, options: Options) -> Gemm:
    """A convolution of one tap. The pixels of a call meet all panels, of a wide one two tiles at a time; lines of
    outputs are asked for.
    """
    short, taken = in_place(problem, dot), takes_pixels(problem, dot)
    if problem.strides != (1, 1) and not taken:  # line by line
        options = replace(options, blocks=None, apart=())
    options, blocks = replace(options, ahead=True), options.blocks
    kind = ChannelsInPlace if short else StepsOverPixels if taken else Product
    product = kind(name, problem, unit, dot, options)
    wide = blocks and blocks.rows > TILE_ROWS and blocks.columns > _BLOCK
    tiles = (ShortTwoPanels if short else TwoPanels) if wide else ShortRows if short else AmxTiles
    gemm = tiled(product, accumulation, tiles)
    if not blocks:
        return gemm
    size = fmt(product.source_steps.source.read).bits // 8
    second_level = blocks.block_rows * product.source_steps.column * size
    return replace(gemm, blocks=replace(gemm.blocks, second_level=second_level))


def takes_pixels(p: ConvProblem, dot: Dot) -> bool:
    """Whether it copies the pixels that it takes; rests of channels stay as they are here."""
    apart = p.strides != (1, 1) and not any(p.padding) and p.depth is None and p.groups == 1
    return apart and p.ic % dot.whole == 0


def in_place(p: ConvProblem, dot: Dot) -> bool:
    """Whether channels fill a part of a tile's row, and lie as the library takes them."""
    ic, alone = p.ic // p.groups, p.kh * p.kw == 1 and not any(p.padding) and p.depth is None
    return alone and ic < dot.whole and ic % dot.depth == 0
