"""Lines of outputs, and columns, that a convolution of oneDNN 3.13 on AMX tiles takes in a call, on one thread.

It estimates for up to four tiles of columns, where the image is copied, how well tiles are used and what source,
weights and outputs cost as they come from caches and memory, and takes the best (`est_eff` and `iterate_ker_block` of
its jit_brgemm_conv_utils.cpp, `brgemm_blocking_tmm` of brgemm_utils.cpp). Lines are what half of the second cache
holds, then fewer where the first one has room for a few. Columns and calls are those of the library at work for all of
49 shapes in bf16 and int8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.blocks import considers
from simdnn.libraries.onednn.caches import FIRST, FIRST_LEVEL, SECOND
from simdnn.libraries.onednn.convolution_estimates import CALL, FAR, NEAR, ConvolutionEstimate, mean
from simdnn.libraries.onednn.order import order_on_tiles
from simdnn.libraries.onednn.rounded_up import over, up

_LEAST = 128  # pixels of a block that is made smaller for the first cache
_TILE, _TILES = 16, 8  # rows or columns of one, and registers
_FEW = 64  # blocks of 64 by 64 outputs that are few
_SMALL = 8 * 1024  # bytes of a pixel's channels up to which they are cut by registers
_Loop = tuple[int, int, tuple[int, int, int]]  # turns, as it counts them and as it adds them up; elements of one


def lines_at_once(p: ConvProblem) -> int:
    """The lines of outputs of a call: one where all taps are made channels of, and where nothing is copied."""
    return _call_of(p).lines if copies(p) else 1


def columns_of(p: ConvProblem) -> int:
    """Columns of outputs of a call."""
    return _call_of(p).columns


def copies(p: ConvProblem) -> bool:
    """Whether lines of the image are copied: all but wide ones that fill whole rows of tiles, without padding."""
    row, dword = 512 // fmt(p.src).bits, 32 // fmt(p.src).bits
    ic = p.ic // p.groups
    whole = ic % row == 0 if ic > row else ic % dword == 0
    return bool(p.padding[1] or p.padding[3]) or not whole or p.ow <= 50 or order_on_tiles(p).fold != ""


@lru_cache(maxsize=1024)
def _call_of(p: ConvProblem) -> _CallChoice:
    oc = p.oc // p.groups
    few = p.mb * over(p.od * p.oh * p.ow, 64) * p.groups * over(oc, 64) < _FEW
    most = min(over(oc, _TILE), 2 if few or oc < 256 else 4)
    candidates = (_CallChoice(p, tiles * _TILE) for tiles in range(most, 0, -1) if considers(p, tiles, _TILE))
    return max(candidates, key=lambda one: one.score)


@dataclass(frozen=True)
class _CallChoice(ConvolutionEstimate):
    """One choice of columns."""

    columns: int

    @property
    def stored(self) -> int:
        """Bytes of an output."""
        return fmt(self.p.epilogue.dst).bits // 8

    @property
    def taps(self) -> int:
        """Taps that are channels."""
        p = self.p
        return {"window": p.tap_rows * p.kw, "row": p.kw}.get(order_on_tiles(p).fold, 1)

    @cached_property
    def channels(self) -> int:
        """Channels of a block (`select_ic_block`)."""
        ic, row = self.ic, self.register
        if self.size * ic * self.p.tap_rows > _SMALL:
            most, least = over(1024, self.p.tap_rows * self.size), row // 2
            return next((n for n in range(up(most, 4 // self.size), least - 1, -(4 // self.size)) if ic % n == 0), ic)
        return up(ic, 4 // self.size if ic * self.taps <= row else row)

    @cached_property
    def lines(self) -> int:
        p = self.p
        if order_on_tiles(p).fold == "window":
            return 1
        wide, out = p.iw + p.padding[1] + p.padding[3], self.stored * p.ow * self.columns
        line = 2 * self.size * self.channels * wide + out
        other = self.size * p.tap_rows * p.kw * self.channels * self.columns + 8 * _TILE * self.columns
        room = min(SECOND // 2, max(0, SECOND - other))
        lines = p.oh
        if (p.ih + p.padding[0] + p.padding[2]) * line > room:
            lines = min(p.oh, max(1, room // line))
        short = self.size * self.ic * wide + out
        most = min(p.oh, max(1, FIRST // short)) if short < FIRST else lines
        fitting = (n for n in range(most, 0, -1) if p.oh > 0.9 * up(p.oh, n) and n * wide > _LEAST)
        return next(fitting, lines)

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Rows of a block of tiles as it counts on them, and tiles of columns beside each other."""
        return _tiles(self.pixels, self.columns if self.oc >= self.columns else self.oc, self.size * self.summed)

    @property
    def summed(self) -> int:
        """Elements of a sum, of one step."""
        row, dword = self.register, 4 // self.size
        found = up(self.taps * (self.ic if self.taps > 1 else self.channels), dword)
        return up(found, row) if self.taps > 1 and found > row else found

    @property
    def pixels(self) -> int:
        """Outputs of a call, by columns."""
        return self.p.ow * self.lines

    @cached_property
    def score(self) -> float:
        """The number that the library maximizes."""
        p, pixels, (rows, wide) = self.p, self.pixels, self.tiles
        every, high = p.oh * p.ow, over(rows, _TILE)
        registers = wide * high / ((wide + high) * _TILES)
        long = (1 + rows * (2 - min(1.9, rows / pixels)) / 64) / 2
        filled = self.filled(self.columns, pixels, rows, every)
        return filled * registers * long * every * self.ic * self.oc / (self.repeated * self.cost)

    @property
    def repeated(self) -> float:
        """How much more outputs all calls have, as the library counts these: lines twice."""
        p, blocks = self.p, over(self.oc, self.columns) * self.p.groups
        turns, rest = divmod(self.calls, blocks)
        parts = over(p.oh, self.lines)
        images, at = divmod(turns, parts)
        first = at * self.pixels
        groups, columns = divmod(rest, over(self.oc, self.columns))
        part = (self.oc * groups + columns * self.columns) * (min(p.oh * p.ow, first + self.pixels) - first)
        area = p.groups * self.oc * (images * p.oh * p.ow + first) + part
        return area / (p.mb * p.oh * p.ow * p.groups * self.oc)

    @property
    def calls(self) -> int:
        """Calls, as the library counts them: lines twice."""
        p = self.p
        return over(p.oh, self.lines) ** 2 * p.mb * p.groups * over(self.oc, self.columns)

    # -- what is read and written -----------------------------------------------------------------------------------
    @property
    def cost(self) -> float:
        """The library's estimate of what source, weights, outputs and calls cost, of an image."""
        p, rows, every = self.p, self.tiles[0], self.p.oh * self.p.ow
        vectors, blocks, steps = over(self.oc, self.register), over(self.oc, self.columns), self.steps
        kernel, block = p.tap_rows * p.kw, self.channels * self.columns
        outputs, weights = self.register * vectors, kernel * vectors * self.register * self.ic
        of_tile, of_call = self.image(rows, self.channels), p.tap_rows * self.image(self.pixels, self.channels)
        of_lines, of_image = (p.tap_rows * self.image(pixels, self.ic) for pixels in (self.pixels, every))
        call, image = (of_lines, weights, self.pixels * outputs), (of_image, weights, every * outputs)
        source: list[_Loop] = [
            (blocks, blocks, (of_lines, kernel * self.columns * self.ic, self.pixels * self.columns)),
            (p.kw, 1, (of_tile, block, 0)),
            (_TILE, 1, (self.reach(rows) * self.register, self.columns, 0)),
        ]
        turns = over(self.pixels, rows)
        loaded: list[_Loop] = [
            (p.mb, p.mb, image),
            (over(p.oh, self.lines), over(p.oh, self.lines), call),
            (turns, turns, (p.tap_rows * of_tile, kernel * block, rows * self.columns)),
        ]
        written: list[_Loop] = [(steps, steps, (of_call, kernel * block, self.pixels * self.columns))]
        elements = p.mb * every
        cost = self.through(source, True) * elements * kernel * self.ic
        cost += self.through(loaded) * kernel * vectors * self.ic + self.through(written) * elements * vectors
        return (cost + CALL * self.calls * steps) / p.mb

    @property
    def steps(self) -> int:
        return over(self.ic, self.channels)

    def through(self, loops: list[_Loop], of_source: bool = False) -> float:
        """The cost of an element that loops, the outermost first, come back to, and how often they do."""
        each, times = FAR, 1
        for turns, again, sizes in loops:
            source, weights, outputs = sizes
            bytes_ = source * self.size + weights * fmt(self.p.wei).bits // 8 + outputs * self.stored
            near = of_source and source * self.size < FIRST
            other = 1.0 if near else NEAR if bytes_ < SECOND else FAR
            each, times = mean(each, other, turns), times * again
        return each * times


def _tiles(rows: int, columns: int, row: int) -> tuple[int, int]:
    """Rows of the tiles of a block, one below the other, and how many are beside each other, of a call whose rows are
    all outputs (`brgemm_blocking_tmm`); `row` is the bytes of a row of the source.

    >>> _tiles(224, 16, 64), _tiles(280, 16, 64), _tiles(280, 32, 64), _tiles(71, 32, 64)
    ((80, 1), (48, 1), (28, 2), (16, 2))
    """
    (whole, odd), many = divmod(columns, _TILE), over(rows, _TILE)
    height = next(h for h in range(_TILE, 0, -1) if rows % h == 0)
    high, wide = _beside(min(2, rows // height), whole, bool(odd), min(3, rows // height))
    rest = 0
    if (wide == 1 or high == 1 or height < _TILE // 2) and not odd and many in (2, 3) and rows % _TILE:
        height, rest, (high, wide) = _TILE, rows % _TILE, _beside(many, whole, False, 0)
    uneven, low = height <= 12 or rest > 0, rest > 0 or height < _TILE // 2
    if odd and not uneven and whole < 4 and whole:
        return (2 * height, 2) if whole == 1 else (height, whole + 1)
    if not odd and not uneven and (found := _long(rows, columns, row)):
        high, wide = found
    if rows <= _TILE:
        return rows, min((3 if whole > 3 else 4) if odd else 5, whole + (odd > 0))
    if not odd and uneven and low:
        if rows > 64:
            return _TILE, 2
        if many > 2 or columns % 32 == 0:
            return many * _TILE, 1 if many > 2 else 2
    if columns <= _TILE:
        return min((3 if many > 4 else 4) if rows % _TILE else 5, many) * _TILE, 1
    if odd and uneven and many == 2 and whole == 1:
        return 2 * _TILE, 2
    return high * height, wide


def _beside(high: int, whole: int, odd: bool, most: int) -> tuple[int, int]:
    """Tiles one below the other, at most `most` where they are one beside the other, and those beside each other."""
    if odd or (high > 2 or whole % 2) and (high > 1 or whole % 3):
        return most if not odd and most else high, 1
    return high, 3 if high == 1 and whole % 3 == 0 else 2


def _long(rows: int, columns: int, row: int) -> tuple[int, int] | None:
    """Tiles one below the other, and beside each other, where rows are so long that the first cache holds few of them;
    None: as those of others.
    """
    held, four, five = (FIRST_LEVEL - 4096) // 96, (FIRST_LEVEL - 4096) // 64, (FIRST_LEVEL - 5120) // 80
    if columns % 64 == 0 and rows > 32 and held <= row < four:
        return 1, 4
    if columns > 32 and rows % 80 == 0 and held <= row < five:
        return 5, 1
    return (4, 1) if columns > 32 and rows % 64 == 0 and held <= row < four else None
