"""Blocks of oneDNN 3.13's convolutions on vectors (`brg_conv_fwd`, `brgconv_1x1`): columns, pixels and tiles.

It estimates for up to four vectors of columns, and for lines of outputs in equal parts, how well registers are used and
what source, weights and outputs cost as they come from two caches and from memory, and takes the best
(`est_eff`, `est_eff_1x1` and `calc_blocks` in jit_brgemm_conv_utils.cpp, `brgemm_blocking_vmm` in brgemm_utils.cpp).
Here stands that estimate for one thread and images of two dimensions. The sums that a tile keeps are those of the code
that the library made for all of 40 to 42 shapes under each of eight pairs of types and caps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.sums import DotProduct, RegisterTile
from simdnn.libraries.onednn.blocks import MOST_ROWS, channels_of_block, considers
from simdnn.libraries.onednn.caches import counted_on
from simdnn.libraries.onednn.convolution_estimates import CALL, FAR, NEAR, ConvolutionEstimate, mean
from simdnn.libraries.onednn.rounded_up import up

_Loop = tuple[int, tuple[int, int, int]]  # turns; elements of source, weights and outputs of one
_POINTWISE_ROWS = 251  # pixels of a block of one tap, at most, with sums of four bytes


def rows_of_tile(dot: DotProduct, wide: bool, vectors: int, shifted: bool) -> int:
    """The rows of a tile that there are registers for beside what a step wants."""
    one_load = vectors == 4 and not wide
    left = (32 if wide else 16) - shifted - 2 * dot.saturates  # a register of ones, and one for sums of pairs
    return (left - (1 if one_load else vectors + 1)) // (vectors + one_load)


def tile_of_block(
    dot: DotProduct,
    wide: bool,
    block: int,
    columns: int,
    shifted: bool,
    padding: int = 0,
    source: int = 0,
    first: int = 0,
) -> RegisterTile:
    """The tile for blocks of `block` pixels by `columns` vectors: as wide as it can be where the last tile's pixels are
    no fewer than the padding, and among its heights that which wastes fewest pixels and loads least; its pixels of
    `source` bytes are no more than the `first` cache has.
    """
    for most in range(4, 0, -1):
        vectors = min(most, columns)
        highest = rows_of_tile(dot, wide, vectors, shifted)
        if (block % highest or highest) >= padding:
            break
    one_load = vectors == 4 and not wide

    def score(rows: int) -> float:
        return round(block / (-(-block // rows) * rows) * vectors * rows / (vectors + rows), 6)

    heights = [rows for rows in range(highest, max(1, padding) - 1, -1) if rows * source <= first]
    rows = max(heights, key=score, default=highest)
    return RegisterTile(rows, vectors, one_load, block, fetches=not one_load, together=columns * (columns > vectors))


def convolution_tile(problem: ConvProblem, dot: DotProduct, wide: bool) -> RegisterTile:
    """The tile of a convolution, and the blocks of pixels and columns that it is in."""
    best = max(_candidates(problem, dot, wide), key=lambda one: one.score)
    left = -(-best.oc // best.lanes) % best.vectors
    return replace(best.whole, last=best.tile(left)) if left and best.oc > best.columns else best.whole


def _candidates(p: ConvProblem, dot: DotProduct, wide: bool) -> Iterator[_Candidate]:
    lanes = 16 if wide else 8
    count = min(4, -(-(p.oc // p.groups) // lanes))
    if not wide and p.oh * p.ow >= 150 * 150 and not _pointwise(p):
        count = min(2, count)
    for vectors in range(count, 0, -1):
        if not (_considers_pointwise(p, vectors, lanes) if _pointwise(p) else considers(p, vectors, lanes)):
            continue
        for rows, pixels in product(sorted({p.kh, 1}, reverse=True), _parts(_pixels(p))):
            yield _Candidate(p, dot, wide, vectors, rows, pixels)


def _pointwise(p: ConvProblem) -> bool:
    return p.kh == p.kw == 1


def _in_a_row(p: ConvProblem) -> bool:
    """Whether the pixels of an image are one line."""
    return _pointwise(p) and p.strides[0] == 1 and p.iw % p.strides[1] == 0


def _pixels(p: ConvProblem) -> int:
    return p.oh * p.ow if _in_a_row(p) else p.ow


def _parts(pixels: int) -> list[int]:
    """The sizes of equal parts of some pixels, but for the last."""
    most = pixels if pixels <= _POINTWISE_ROWS else _POINTWISE_ROWS
    return [size for size in dict.fromkeys(-(-pixels // n) for n in range(1, pixels + 1)) if size <= most]


def _considers_pointwise(p: ConvProblem, vectors: int, lanes: int) -> bool:
    """Whether blocks of this many vectors are among those estimated, of one tap."""
    columns, block = -(-(p.oc // p.groups) // lanes) * lanes, vectors * lanes
    if block == 64:
        return columns % 64 == 0 and p.oh * p.ow >= 64 * p.strides[0] * p.strides[1]
    oc = p.oc // p.groups
    return block != 48 or oc >= 0.95 * (-(-oc // 48) * 48)


@dataclass(frozen=True)
class _Candidate(ConvolutionEstimate):
    """One choice: vectors of columns in a block, rows of the kernel that a call takes, pixels of a block."""

    dot: DotProduct
    wide: bool
    vectors: int
    taps: int  # rows of them
    pixels: int

    @property
    def lanes(self) -> int:
        return 16 if self.wide else 8

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def stored(self) -> int:
        """Bytes of a weight."""
        return fmt(self.p.read or self.p.wei).bits // 8

    @property
    def register(self) -> int:
        """Elements of the source that a register holds, by which the library rounds sizes up."""
        return (64 if self.wide else 32) // self.size

    @property
    def padding(self) -> int:
        return 0 if _pointwise(self.p) else max(self.p.padding[1], self.p.padding[3])

    @cached_property
    def whole(self) -> RegisterTile:
        return self.tile(self.vectors)

    def tile(self, vectors: int) -> RegisterTile:
        """The tile of a block of some vectors of columns."""
        shifted = self.p.wei == self.p.src == "s8"
        line, (first, _) = self.channels * self.size, self.p.caches
        found = tile_of_block(self.dot, self.wide, self.pixels, vectors, shifted, self.padding, line, first)
        return replace(found, by_panel=not self.columns_first)

    @cached_property
    def caches(self) -> tuple[int, int]:
        """Bytes of the first and the second cache that the library counts on."""
        return counted_on(*self.p.caches)

    @cached_property
    def channels(self) -> int:
        """Channels of the source that a call takes."""
        rows = min(self.pixels, MOST_ROWS[self.wide][self.vectors - 1])
        return channels_of_block(self.p, self.wide, self.columns, rows, *self.caches, self.taps)

    @cached_property
    def score(self) -> float:
        """The number that the library maximizes."""
        rows, vectors, pixels = self.whole.rows, min(self.whole.vectors, self.vectors), self.pixels
        every = _pixels(self.p)
        filled = self.filled(self.columns, pixels, rows, every)
        registers = vectors * rows / ((vectors + rows) * (32 if self.wide else 16))
        long = (1 + rows * (2 - min(1.9, rows / pixels)) / 64) / 2
        return filled * registers * long * self.p.mb * self.lines * every * self.ic * self.oc / self.cost

    @property
    def columns_first(self) -> bool:
        """Whether all blocks of columns meet the same pixels before the next ones come (`loop_ndhwgc`)."""
        p = self.p
        source, weights = p.ih * p.iw * self.size, self.oc * self.stored
        if not _pointwise(p):
            source, weights = source * self.ic, weights * p.kh * p.kw * self.ic
        return source >= weights

    def image(self, pixels: int, channels: int) -> int:
        return pixels * up(channels, self.register) if _pointwise(self.p) else super().image(pixels, channels)

    # -- how often each loop turns ---------------------------------------------------------------------------------
    @property
    def lines(self) -> int:
        """Lines of outputs, of an image."""
        return 1 if _in_a_row(self.p) else self.p.oh

    @property
    def spans(self) -> int:
        """Blocks of pixels of a line."""
        return -(-_pixels(self.p) // self.pixels)

    @property
    def heights(self) -> int:
        """Tiles of a block, one below the other."""
        return -(-self.pixels // self.whole.rows)

    @property
    def blocks(self) -> int:
        """Blocks of columns."""
        return -(-self.oc // self.columns)

    @property
    def calls(self) -> int:
        """Parts of the sums of a block: steps of channels by steps of rows of taps."""
        return self.steps * -(-self.p.kh // self.taps)

    @property
    def steps(self) -> int:
        return -(-self.ic // self.channels)

    # -- and what is read and written in it ------------------------------------------------------------------------
    @cached_property
    def cost(self) -> float:
        """The library's estimate of what source, weights, outputs and calls cost."""
        calls = self.lines * self.spans * self.p.mb * self.p.groups * self.blocks * self.calls
        return self.of_source + self.of_outputs + self.of_weights + CALL * calls

    @property
    def of_source(self) -> float:
        p, alone, tile = self.p, _pointwise(self.p), self.whole.rows
        span = p.kh * self.image(self.pixels, self.ic), self.weights(self.columns, self.ic), self.pixels * self.columns
        row = tile if alone else self.reach(tile)
        loops: list[_Loop] = [(self.blocks, span)]
        if not self.columns_first:
            every = self.lines * p.kh * self.image(_pixels(p), self.channels if alone else self.ic)
            loops = [(self.blocks, (every, span[1], self.columns * self.lines * _pixels(p)))]
        loops.append((p.kw, (self.image(tile, self.channels), self.columns * self.channels, 0)))
        loops.append((self.lanes, (row * self.register, self.columns, 0)))
        each = FAR
        for times, sizes in loops:
            near = sizes[0] * self.size < self.caches[0]
            each = mean(each, 1.0 if near else self.behind_first(sizes), times)
        channels = self.channels if alone else self.ic
        return each * p.mb * self.lines * _pixels(p) * p.kh * p.kw * channels * self.blocks

    @property
    def of_outputs(self) -> float:
        p, block, outputs = self.p, self.channels, self.pixels * self.columns
        loops: list[_Loop] = [
            (self.steps, (p.kh * self.image(self.pixels, block), self.weights(self.columns, block), outputs)),
            (-(-p.kh // self.taps), (*self.of_call(self.pixels), outputs)),
        ]
        return self.through(loops) * p.mb * self.lines * _pixels(p) * self.registers * self.calls

    @property
    def of_weights(self) -> float:
        p, every, alone = self.p, _pixels(self.p), _pointwise(self.p)
        together = (self.registers if self.columns_first else self.whole.vectors) * self.register
        line = p.kh * self.image(every, self.channels if alone else self.ic)
        span = p.kh * self.image(self.pixels, self.channels if alone else self.ic)
        weights, all_columns = self.weights(together, self.ic), self.registers * self.register
        loops: list[_Loop] = [
            (p.mb, (self.lines * line, self.weights(all_columns, self.ic), self.lines * every * all_columns)),
            (self.lines, (line, weights, every * together)),
            (self.spans, (span, weights, self.pixels * together)),
            (self.heights, (*self.of_call(self.whole.rows), self.whole.rows * self.columns)),
        ]
        loaded = p.kh * p.kw * self.registers * self.ic
        return self.through(loops) * loaded * self.heights * self.spans * self.lines * p.mb

    @property
    def registers(self) -> int:
        """Registers of columns, as the library counts them: of as many elements as those of the source."""
        return -(-min(self.oc, self.blocks * self.columns) // self.register)

    def of_call(self, pixels: int) -> tuple[int, int]:
        """Elements of the source and of weights that a call takes for some pixels."""
        taps = self.taps * self.p.kw
        return self.taps * self.image(pixels, self.channels), taps * self.columns * self.channels

    def weights(self, columns: int, channels: int) -> int:
        return self.p.kh * self.p.kw * columns * channels

    def through(self, loops: list[_Loop]) -> float:
        """The cost of an element that loops, the outermost first, come back to."""
        each = FAR
        for times, sizes in loops:
            each = mean(each, self.behind_first(sizes), times)
        return each

    def behind_first(self, sizes: tuple[int, int, int]) -> float:
        """The cost of an element where this much lies between two uses of it."""
        source, weights, outputs = sizes
        bytes_ = source * self.size + weights * self.stored + outputs * fmt(self.p.epilogue.dst).bits // 8
        return NEAR if bytes_ < self.caches[1] else FAR
