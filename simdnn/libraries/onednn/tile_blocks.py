"""Blocks of oneDNN 3.13's matmuls on AMX tiles, on one thread, as its estimate (`tile_cuts`) has them.

Compared with its code (`ONEDNN_JIT_DUMP=1`) for 11 shapes, and for 9 with compressed weights.
"""

from __future__ import annotations

from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.common.sums import TileBlocks
from simdnn.libraries.onednn.caches import FIRST_LEVEL
from simdnn.libraries.onednn.tile_cuts import BlocksEstimate, estimate_of, instructions

_FEW = 32  # rows or columns that a block has at most
_TILE, _CALL = 16, 64  # rows of a tile, rows and columns of a call where weights are compressed
_FLOAT = 2  # bytes


def tile_blocks(p: MatmulProblem) -> TileBlocks | None:
    """The blocks of a matmul of floats or integers as they come; None where another heuristic cuts it."""
    if p.decompression or p.src not in ("bf16", "f16", "u8", "s8") or p.left_to == "gemm":
        return None
    return _blocks(p, estimate_of(p, instructions(p.epilogue.post_ops)))


def _blocks(p: MatmulProblem, e: BlocksEstimate) -> TileBlocks | None:
    if p.m <= _FEW:
        return TileBlocks(p.m, e.wide, p.m, p.n, p.k, 1, False, ("src",))
    if p.k <= e.row or p.n <= _FEW:
        rows = e.high if p.k <= e.row else -(-p.m // -(-p.m // _FEW))
        return TileBlocks(rows, e.wide, rows, p.n, p.k, 1, True, ("src",))
    if not (way := e.way):
        return None
    if way.across:
        apart = ("src", "wei") if way.past else ("wei",)
        fetches = "src" * (p.m >= 2 * e.high)
        return TileBlocks(e.high, e.wide, e.high, way.columns, way.k, way.chunks, True, apart, fetches)
    fetches = "wei" * (p.n >= 2 * e.wide)
    return TileBlocks(e.high, e.wide, way.rows, p.n, way.k, way.chunks, False, ("src",), fetches)


def compressed_blocks(p: MatmulProblem) -> TileBlocks:
    """The blocks of a matmul whose weights it decompresses, 64 columns at a time.

    They are two tiles by two, or a tile of rows by four of columns: for few rows, and where the first cache holds four
    tiles' columns but not six (`brgemm_blocking_tmm` in its brgemm_utils.cpp). Weights that its code loads past that
    cache come as others here (docs/validation/amx.md).
    """
    row = _FLOAT * p.k
    least, most = (FIRST_LEVEL - 4096) // 96, (FIRST_LEVEL - 4096) // 64
    if p.m > _FEW and p.n >= _CALL and least <= row < most:
        return TileBlocks(_TILE, _CALL, p.m, p.n, p.k, 1, False, ("src",))
    return TileBlocks(min(p.m, _FEW), _CALL, p.m, p.n, p.k, 1, False, ())
