"""How oneDNN 3.13 cuts K of a matmul of 16-bit floats on AMX tiles, on one thread (docs/numerics_products.md, rule 14).

The library estimates blocks: it goes through the output in strips of rows or of columns, and adds up as much of K at a
time as leaves room in the first or the second cache (`matmul_amx_blocking_params_macro_t` in its
amx_blocking_heuristics.cpp). Sums that become narrower than f32 start from zero in each block; to f32 they go on in the
destination itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from isa_models.formats import fmt
from simdnn.kernels.common.activations import is_formula
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import PostOp
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries.onednn.caches import FIRST_BESIDE_TILES, SECOND, SECOND_LEVEL
from simdnn.libraries.onednn.rounded_up import over, up
from simdnn.libraries.onednn.tile_cuts_compressed import Compressed, ProductSizes, chain_of, rows_together

_WAYS, _PAGE = 16, 4096
_WORD = 4  # bytes of a sum
_LINE = 64
_FEW = 126  # bytes of a block's rows that leave a product to vectors
_ROWS, _COLUMNS = 16, 16  # of a tile of sums; a block has two by two
#: bytes a cycle that it counts on: from the first cache, on a miss of it, for stores there, last level, memory
_HIT, _MISS, _STORED, _LAST, _MEMORY = 106.41, 106.41 / 2.28, 106.41 / 2.85, 6.0, 2.28
_PER_CYCLE = 1.2  # instructions of post-operations
#: instructions of a post-operation a register, as the library's choice shows them; the others' are formulas, or many
_INSTRUCTIONS = {"abs": 1.8, "square": 1.8, "sqrt": 1.8, "linear": 3.25, "clip": 2.7, "hardsigmoid": 4.2, "prelu": 5.5}
_INSTRUCTIONS |= dict.fromkeys(("add", "sub", "mul", "div", "max", "min"), 1.6) | {"hardswish": 7, "sum": 0}
_MANY = 99.0


class TileCut(NamedTuple):
    """`chain`: products after which a sum starts anew, 0: none; `even`: length of the equal parts of K that tiles take,
    0: rows of 64 bytes; `unlike`: what is left behind the last block is in equal parts of its own.
    """

    chain: int
    even: int
    unlike: bool = False


class _Way(NamedTuple):
    """Blocks of a way through the output: in strips of rows (`across`) or of columns; `past`: the operand that is
    used again is loaded past the first cache.
    """

    across: bool
    k: int
    chunks: int  # blocks of K that stay in the second cache
    rows: int
    columns: int
    strips: int
    past: bool


def cut_of(p: MatmulProblem) -> TileCut:
    """How the library cuts K of a product of bf16 or f16, by its usual count of post-operations; under other names than
    its own one chain, in even parts.
    """
    if not p.tiles:
        return TileCut(0, even_parts(p.k))
    return _cut(p, instructions(p.epilogue.post_ops))


def copy_is_small(p: MatmulProblem) -> bool:
    """Whether a block's rows of the source are so few bytes that the library leaves a product to vectors."""
    if d := p.decompression:
        return compressed_copy_is_small(p, d.scale, d.zero_point)
    e = estimate_of(p, instructions(p.epilogue.post_ops))
    return e.block * e.k * e.size <= _FEW


def compressed_copy_is_small(p: MatmulProblem, scale: Param | None, point: Param | None) -> bool:
    """Whether products with compressed weights are left to vectors; an odd K is copied, or read beyond its end."""
    on = p.k % 32 != 0 and p.k > 32 and _reads_on(p, scale, point)
    length = 32 if p.k % 2 and not on else p.k
    return 2 * min(p.m, 64) * length <= _FEW


def _reads_on(p: MatmulProblem, scale: Param | None, point: Param | None) -> bool:
    """Whether tiles may read beyond the end of K, as weights are not scaled ahead of them and have no zero point."""
    return not point and not (scale is not None and scale.group > 0 and p.n * p.k != 1)


def compressed_chain(p: MatmulProblem) -> int:
    """Products after which a sum over compressed weights starts anew; 0: none."""
    return chain_of(_compressed(p)) if p.decompression and p.tiles else 0


def compressed_rows(p: MatmulProblem) -> int:
    """Rows for which compressed weights are brought into order, once again for the next ones."""
    return rows_together(_compressed(p))


def _compressed(p: MatmulProblem) -> Compressed:
    d, e = p.decompression, estimate_of(p, 0)
    read_on = d is not None and _reads_on(p, d.scale, d.zero_point)
    return Compressed(e.m, e.k, e.n, e.out, e.tag, e.products, read_on)


def is_unsure(p: MatmulProblem) -> bool:
    """Whether the cut depends on how many instructions post-operations are, which is known within some per cent, or
    has parts that no kernel here takes; beside compressed weights, what is left behind whole rows of tiles.
    """
    if d := p.decompression:
        cut = compressed_chain(replace(p, tiles="onednn")) > 0
        return cut and p.k % 32 > 0 and not _reads_on(p, d.scale, d.zero_point)
    count = instructions(p.epilogue.post_ops)
    found = {_cut(p, n) for n in (0.85 * count - 1, count, 1.15 * count + 1)}
    return len(found) > 1 or any(cut.unlike for cut in found)


def instructions(ops: tuple[PostOp, ...]) -> float:
    """Instructions that the library counts for post-operations on a register of sums."""
    return sum(_MANY if is_formula(op) else _one(op) for op in ops)


def _one(op: PostOp) -> float:
    if op.kind == "relu":
        return 4.9 if op.numbers else 1.8
    return _INSTRUCTIONS.get(op.kind, _MANY)


def even_parts(k: int, row: int = 32) -> int:
    """The length of equal, even parts of K that are as few as parts of `row` would be; 0 where K has no such parts.

    >>> even_parts(52), even_parts(80), even_parts(64)
    (26, 0, 0)
    """
    parts = -(-k // row)
    return k // parts if parts > 1 and k % row and k % (2 * parts) == 0 else 0


def _cut(p: MatmulProblem, count: float) -> TileCut:
    return _found(estimate_of(p, count))


def estimate_of(p: MatmulProblem, count: float) -> BlocksEstimate:
    out = fmt(p.epilogue.dst).bits // 8
    together = p.batch.products("wei") == 1
    rows, products = (p.m * p.batch.count, 1) if together else (p.m, p.batch.count)
    size, whole = fmt(p.src).bits // 8, p.epilogue.dst == ("f32" if fmt(p.src).is_float else "s32")
    narrow = p.decompression and fmt(p.wei).is_float  # brought into order on the way, as plain rows are
    return BlocksEstimate(rows, p.k, p.n, out, "ab" if narrow else p.wei_tag, products, max(count, 0), size, whole)


@cache
def _found(e: BlocksEstimate) -> TileCut:
    way = None if e.is_small else e.way
    copied = way is not None and e.copies(way)
    if way is None or way.k == e.k:
        return TileCut(0, 0 if copied else even_parts(e.k))
    return TileCut(0 if e.whole else way.k, 0, not copied and bool(even_parts(e.k % way.k)))


def _groups(size: int, unit: int) -> Iterator[int]:
    """How many units a group may have, where all groups have as many, the largest first."""
    units = over(size, unit)
    return iter(sorted({over(units, groups) for groups in range(1, units + 1)}, reverse=True))


@dataclass(frozen=True)
class BlocksEstimate(ProductSizes):
    """A product, and the library's estimate of its blocks; `size`: bytes of an element, `whole`: outputs are of the
    sums' type.
    """

    instructions: float
    size: int
    whole: bool

    @property
    def row(self) -> int:
        """Elements of a tile's row."""
        return 64 // self.size

    @property
    def is_small(self) -> bool:
        """Whether few rows, columns or products leave K whole."""
        if self.products > 1:
            return False
        return (self.m <= 32 and self.tag != "ab") or self.k <= self.row or self.n <= 32

    @property
    def block(self) -> int:
        """Rows of the source that are multiplied together."""
        if not self.is_small:
            return self.way.rows if self.way else self.high
        if self.m <= 32 and self.tag != "ab":
            return self.m
        return self.high if self.k <= self.row else over(self.m, over(self.m, 2 * _ROWS))

    @cached_property
    def high(self) -> int:
        """Rows of a block: two tiles, as equal as they can be."""
        return min(self.m, 2 * over(self.m, over(self.m, _ROWS)))

    @cached_property
    def wide(self) -> int:
        return min(self.n, 2 * _COLUMNS)

    @cached_property
    def line(self) -> int:
        """Bytes of a row of a block of results, in whole lines of a cache."""
        return up(self.wide * self.out, _LINE)

    @property
    def results(self) -> int:
        """Bytes of a block of sums, twice, and of its results."""
        return 2 * self.high * self.wide * _WORD + self.high * self.line

    def in_first(self, side: int) -> int:
        """Products of a block whose `side` rows or columns of an operand stay in the first cache."""
        tile = min(self.row, self.k)
        most = (FIRST_BESIDE_TILES - self.results) // (side * self.size) // tile
        tiles = over(self.k, tile)
        return min(over(tiles, over(tiles, most)) * tile, self.k)

    def in_second(self, across: bool, k: int, chunks: int, long: int, twice: bool = False) -> int:
        """Bytes of a strip's way in the second cache; `long`: rows or columns that stay there, of an operand that is
        brought into order there where `twice`.
        """
        short, held = self.high if across else self.wide, min(k * chunks, self.k) * self.size
        done = self.high * up(long * self.out, _LINE) if across else self.line * long
        kept = self.high * self.wide if k == self.k or self.whole else short * long
        return 2 * short * held + long * held + twice * long * k * chunks * self.size + 2 * kept * _WORD + 2 * done

    def with_sums(self, across: bool, k: int, chunks: int, long: int) -> int:
        """Bytes of all operands and sums of what stays there."""
        other, held = self.m if across else self.n, min(k * chunks, self.k) * self.size
        return 2 * other * held + 2 * long * held + other * long * _WORD

    def worth(self, across: bool, k: int, chunks: int, long: int, twice: bool) -> float:
        """Products a byte of such a strip; 0 where it does not fit."""
        if self.in_second(across, k, chunks, long, twice) > SECOND:
            return 0
        rows, columns = (self.high, long) if across else (long, self.wide)
        deep = min(k * chunks, self.k)
        stays = self.with_sums(across, k, chunks, long) < SECOND or deep == self.k
        return rows * deep * columns / ((rows + columns) * deep * self.size + (not stays) * rows * columns * _WORD)

    def best(self, across: bool, k: int, twice: bool = False, least: int = 0) -> tuple[int, int]:
        """Blocks of K and blocks along a strip, in the second cache, that are worth most; (0, 0): none fit."""
        unit, length = (self.wide, self.n) if across else (self.high, self.m)
        found, most = (0, 0), 0.0
        for along in _groups(length, unit):
            for chunks in _groups(self.k, k):
                worth = self.worth(across, k, chunks, along * unit, twice)
                if worth > most and chunks >= least:
                    found, most = (chunks, along), worth
        return found

    def is_bound(self, k: int) -> bool:
        """Whether post-operations take longer than products."""
        return self.instructions / _PER_CYCLE > over(k, min(self.row, self.k))

    @cached_property
    def way(self) -> _Way | None:
        """The way that the library takes; None where none of these fit."""
        found = self.direction(False, False)
        if not found or found.across or self.tag != "ab":
            return found
        for twice in (False, True):  # weights that are brought into order on the way, in strips of rows
            other = self.direction(True, twice)
            if other and self.prefers(other, found):
                found = other
        return found

    def direction(self, only_across: bool, twice: bool) -> _Way | None:
        k_across, k_down = self.in_first(self.high), self.in_first(self.wide)
        across = self.best(True, k_across, twice)
        down = (0, 0) if only_across else self.best(False, k_down)
        if down[1] and not self.goes_down(k_down, down[0]):
            down = (0, 0)
        if not across[1] and not down[1]:
            return None
        tall = self.m >= 2 * over(self.m, over(self.m, _ROWS))
        if across[1] and (not down[1] or not tall or (self.n >= 2 * _COLUMNS and self.m >= self.n)):
            return self.strips_of_rows(k_across, across, twice)
        return self.strips_of_columns(k_down, down)

    def goes_down(self, k: int, chunks: int) -> bool:
        """Whether strips of columns have all of K, and results that do not meet in few sets of the second cache."""
        step = self.n * self.out % _PAGE or _PAGE
        way = SECOND_LEVEL // _WAYS
        crowded = way % step == 0 and over(step * self.m, way) >= _WAYS * 3 // 4
        return over(self.k, k * chunks) == 1 and not crowded

    def strips_of_rows(self, k: int, found: tuple[int, int], twice: bool) -> _Way:
        source, past = k * self.high * self.size, False
        crowded = k < self.k and over(self.k, k) * source + self.results > FIRST_BESIDE_TILES
        chunks, along = found
        if crowded or self.is_bound(k):  # the first cache is given up
            chunks, along = self.best(True, self.row, twice, k // self.row)
            k, chunks, past = min(self.row * chunks, self.k), 1, True
        if k * self.high * self.size + self.results <= FIRST_BESIDE_TILES and self.k >= 256 // self.size:
            past = False
        return _Way(True, k, chunks, self.high, min(along * self.wide, self.n), over(self.m, self.high), past)

    def strips_of_columns(self, k: int, found: tuple[int, int]) -> _Way:
        chunks, along = found
        if self.is_bound(k):
            again = self.best(False, self.row, least=k // self.row)
            chunks, along = again if again[1] else found
            k, chunks = min(self.row * chunks, self.k), 1
        return _Way(False, k, chunks, min(along * self.high, self.m), self.wide, over(self.n, self.wide), True)

    def copies(self, way: _Way) -> bool:
        """Whether rows of a K that leaves a rest are copied with the first products (`use_fused_copy_a_`)."""
        return way.across and way.columns >= 3 * self.wide and way.k * self.size >= 256

    def prefers(self, a: _Way, b: _Way) -> bool:
        """Whether strips of rows `a` are estimated to be faster than another way."""
        one, other = self.cycles(a), self.cycles(b)
        if one != other or b.across:
            return one < other or (one == other and a.strips > b.strips)
        return not (self.m * (self.k + self.n) < SECOND and a.past)

    def cycles(self, w: _Way) -> float:
        """Cycles of one product, as `calculate_blocking_scores` has them."""
        short, long, steps = (self.high, self.n, self.m) if w.across else (self.wide, self.m, self.n)
        all_long, all_short = long * self.k * self.size, short * self.k * self.size
        results = short * long * self.out
        tiles = short * self.k * long // (over(self.m, over(self.m, _ROWS)) * min(self.row, self.k) * _COLUMNS)
        again = over(w.columns, self.wide) if w.across else over(w.rows, self.high)
        sums, blocks = w.rows * w.columns * _WORD, w.rows * over(w.columns, self.wide)
        missed, stored = blocks * self.line, blocks * over(self.wide, 16) * _LINE
        first = 2 * all_short / _MISS + all_short * (again - 1) / _HIT + all_long / _MISS
        first += missed / _STORED + (stored - missed) / _HIT + sums / _HIT
        first += sums * w.chunks / (_HIT if w.k == self.k else _STORED)
        brought = self.tag == "ab"
        read = results if brought and not w.across else all_short + results
        lines = short * over(long, _COLUMNS) if w.across else long * over(short, _COLUMNS)
        products = tiles * (over(self.m, over(self.m, _ROWS)) * 64 * 16 // 1024)
        each = max(read / _MEMORY, read / _LAST, first, products, self.instructions * lines / _PER_CYCLE)
        strips = over(steps, short)
        if not (brought and w.across):
            each += brought * all_short / _MEMORY
            return (all_long + all_short + results) / _MEMORY + (strips - 1) * each
        fits = self.in_second(True, w.k, w.chunks, w.columns, True) < SECOND
        return all_long / _MEMORY + (each if fits else all_long / _LAST) + (strips - 1) * each
