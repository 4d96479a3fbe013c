"""Blocks of oneDNN 3.13's matmuls on AMX tiles, on one thread.

`matmul_amx_blocking_params_macro_t` of its amx_blocking_heuristics.cpp: a block of 32 x 32 sums at a time, and parts of
K as long as L1 has room for one operand beside the sums. It scores blocks by the products that come of each byte, and
takes those whose operands fit three quarters of L2. Compared with its code (`ONEDNN_JIT_DUMP=1`) for 11 shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isa_models.formats import fmt
from simdnn.kernels.common.spec import MatmulProblem
from simdnn.kernels.common.sums import TileBlocks

_FIRST = 48 * 1024 * 5 // 6  # bytes of L1 that it counts on, of CPUs that have tiles
_SECOND = 2 * 1024 * 1024 * 3 // 4  # of L2
_WAY, _PAGE, _WAYS = 2048 * 64, 4096, 12  # bytes of a way of L2; the ways of 16 that the destination may take
_TILE, _SUM, _LINE = 16, 4, 64  # rows of a tile; bytes
_FEW = 32  # rows or columns that a block has at most
_BOUND_BY_WRITES = 256  # bytes of K


def tile_blocks(p: MatmulProblem) -> TileBlocks | None:
    """The blocks of a matmul of floats or integers as they come; None where another heuristic cuts it."""
    if p.decompression or p.src not in ("bf16", "f16", "u8", "s8") or p.left_to == "gemm":
        return None
    size = fmt(p.src).bits // 8
    step = _LINE // size
    columns = min(p.n, _FEW)
    if p.m <= _FEW:
        return TileBlocks(p.m, columns, p.m, p.n, p.k, 1, False, ("src",))
    tile = -(-p.m // -(-p.m // _TILE))
    if p.k <= step:
        rows = min(p.m, 2 * tile)
        return TileBlocks(rows, columns, rows, p.n, p.k, 1, True, ("src",))
    if p.n <= _FEW:
        rows = -(-p.m // -(-p.m // _FEW))
        return TileBlocks(rows, columns, rows, p.n, p.k, 1, True, ("src",))
    return _Search(p.m, p.n, p.k, size, fmt(p.epilogue.dst).bits // 8, min(p.m, 2 * tile), columns, step).best()


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _groups(length: int, size: int) -> list[int]:
    """The sizes of groups that blocks of a length can be cut into, the largest first."""
    count = -(-length // size)
    return sorted({-(-count // groups) for groups in range(1, count + 1)}, reverse=True)


@dataclass(frozen=True)
class _Search:
    m: int
    n: int
    k: int
    size: int  # bytes of an operand's element
    stored: int  # and of the destination's
    rows: int
    columns: int
    step: int  # elements of a tile's row

    def best(self) -> TileBlocks | None:
        k = self.part_of_k()
        wide, chunk = self.most(self.n, self.columns, k, across=True)
        high, chunk_down = self.most(self.m, self.rows, k, across=False)
        down = high and k * chunk_down >= self.k and not self.destination_crowds()
        if not wide and not down:
            return None
        fits = self.columns * self.rows * 2 * _SUM + self.rows * _up(self.columns * self.stored, _LINE)
        if down and not (wide and self.m >= self.n):
            rows, fetches = min(high * self.rows, self.m), "wei" * (self.n >= 2 * self.columns)
            part = min(k, self.k)
            return TileBlocks(self.rows, self.columns, rows, self.n, part, chunk_down, False, ("src",), fetches)
        apart: tuple[str, ...] = ("wei",)
        if k < self.k and -(-self.k // k) * self.bytes_of_rows(k) + fits > _FIRST:
            wide, chunk = self.most(self.n, self.columns, self.step, across=True, least=k // self.step)
            k, chunk = min(self.step * chunk, self.k), 1
            short = self.k * self.size < _BOUND_BY_WRITES
            apart = ("src", "wei") if short or self.bytes_of_rows(k) + fits > _FIRST else apart
        width, fetches = min(wide * self.columns, self.n), "src" * (self.m >= 2 * self.rows)
        return TileBlocks(self.rows, self.columns, self.rows, width, min(k, self.k), chunk, True, apart, fetches)

    def bytes_of_rows(self, k: int) -> int:
        """Bytes of a block's rows over a part of K."""
        return k * self.rows * self.size

    def part_of_k(self) -> int:
        """The length of even parts of K: L1 has room for a panel of one beside sums and results."""
        sums = self.rows * self.columns * _SUM
        left = _FIRST - 2 * sums - self.rows * _up(self.columns * self.stored, _LINE)
        steps, most = -(-self.k // self.step), left // (_FEW * self.size) // self.step
        return min(-(-steps // -(-steps // most)) * self.step, self.k)

    def most(self, length: int, block: int, k: int, across: bool, least: int = 0) -> tuple[int, int]:
        """Blocks of rows or columns, and parts of K, with the most products a byte; zeros where none fit."""
        scored = [
            (self.products_a_byte(chunk * k, group * block, across), group, chunk)
            for group in _groups(length, block)
            for chunk in _groups(self.k, k)
            if chunk >= least and self.taken(chunk * k, group * block, across) <= _SECOND
        ]
        first: Callable[[tuple[float, int, int]], float] = lambda one: one[0]  # noqa: E731  of equal ones
        _, group, chunk = max(scored, key=first, default=(0.0, 0, 0))
        return group, chunk

    def taken(self, k: int, length: int, across: bool) -> int:
        """Bytes of L2 that a block takes."""
        k, block = min(k, self.k), self.rows if across else self.columns
        results = self.rows * _up(length * self.stored, _LINE) if across else length * _up(block * self.stored, _LINE)
        return (2 * block + length) * k * self.size + 2 * results + 2 * self.rows * self.columns * _SUM

    def products_a_byte(self, k: int, length: int, across: bool) -> float:
        k = min(k, self.k)
        rows, columns = (self.rows, length) if across else (length, self.columns)
        beside = self.m if across else self.n
        kept = 2 * (beside + length) * k * self.size + beside * length * _SUM < _SECOND
        moved = (rows + columns) * k * self.size + (0 if kept or k == self.k else rows * columns * _SUM)
        return rows * k * columns / moved

    def destination_crowds(self) -> bool:
        """Whether lines of the destination's rows meet in too few sets of L2 to go down them."""
        apart = self.n * self.stored % _PAGE or _PAGE
        return _WAY % apart == 0 and -(-apart * self.m // _WAY) >= _WAYS
