"""Blocks of oneDNN 3.13's matmuls on AMX tiles, on one thread, as its estimate (`tile_cuts`) has them, and of its
convolutions of one tap.

Compared with its code (`ONEDNN_JIT_DUMP=1`) for 11 shapes, for 9 with compressed weights, and for 6 convolutions.
"""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.common.sums import TileBlocks
from simdnn.libraries.onednn.caches import FIRST_LEVEL, SECOND
from simdnn.libraries.onednn.tile_cuts import BlocksEstimate, compressed_rows, estimate_of, instructions

_FEW = 32  # rows or columns that a block has at most
_TILE, _CALL = 16, 64  # rows of a tile, rows and columns of a call where weights are compressed
_LOW = 12  # rows of a tile, at most, that is no whole one
_FLOAT = 2  # bytes
PIXELS = 251  # of a call of a convolution of one tap, at most: outputs of a thousand bytes, one by one
_FEW_PIXELS = 400  # that meet a panel all at once


def tile_blocks(p: MatmulProblem) -> TileBlocks | None:
    """The blocks of a matmul of floats or integers as they come; None where another heuristic cuts it."""
    if p.decompression or p.src not in ("bf16", "f16", "u8", "s8") or p.left_to == "gemm":
        return None
    return _blocks(p, estimate_of(p, instructions(p.epilogue.post_ops)))


def _blocks(p: MatmulProblem, e: BlocksEstimate) -> TileBlocks | None:
    if p.m == 1:
        return TileBlocks(1, _CALL, 1, p.n, p.k, 1, False, ("wei",) * (_moved_by_one_row(p) >= FIRST_LEVEL))
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
        rows, columns = _low_and_wide(p.n, e.high) or (e.high, e.wide)
        return TileBlocks(rows, columns, e.high, way.columns, way.k, way.chunks, True, apart, fetches, e.copies(way))
    fetches = "wei" * (p.n >= 2 * e.wide)
    return TileBlocks(e.high, e.wide, way.rows, p.n, way.k, way.chunks, False, ("src",), fetches)


def _moved_by_one_row(p: MatmulProblem) -> int:
    """Bytes that a call for one row, which another part of the library cuts, counts on: 64 columns at a time."""
    return fmt(p.src).bits // 8 * p.k * (1 + _CALL) + 4 * _CALL


def _low_and_wide(n: int, high: int) -> tuple[int, int] | None:
    """A tile of rows by three or four of columns, where these are not whole tiles and rows of a call are
    (`brgemm_blocking_tmm`); None: others.
    """
    low = high // 2
    return (low, _CALL) if n % _TILE and _FEW < n <= _CALL and low > _LOW and high % low == 0 else None


def compressed_blocks(p: MatmulProblem) -> TileBlocks:
    """The blocks of a matmul whose weights it decompresses, 64 columns at a time, for up to 256 rows, and once more for
    the next rows.

    They are two tiles by two, or a tile of rows by four of columns: for few rows, and where the first cache holds four
    tiles' columns but not six (`brgemm_blocking_tmm` in its brgemm_utils.cpp). Weights that its code loads past that
    cache come as others here (docs/validation/amx.md).
    """
    rows = compressed_rows(p)
    if p.m > _FEW and p.n >= _CALL and _is_held(_FLOAT * p.k):
        return TileBlocks(_TILE, _CALL, rows, p.n, p.k, 1, False, ("src",))
    return TileBlocks(min(p.m, _FEW), _CALL, rows, p.n, p.k, 1, False, ())


def _is_held(row: int) -> bool:
    """Whether the first cache holds such rows of K, in bytes, for four tiles, but not for six."""
    return (FIRST_LEVEL - 4096) // 96 <= row < (FIRST_LEVEL - 4096) // 64


def pointwise_blocks(p: ConvProblem) -> TileBlocks | None:
    """The blocks of a convolution of one tap whose pixels are a row, or are copied to one: some pixels meet all panels
    of columns before the next pixels do, unless they are few or weights are many (`init_1x1_conf` and `calc_blocks_1x1`
    in its jit_brgemm_conv_utils.cpp). None where a tile has all rows.
    """
    pixels, oc = p.oh * p.ow, p.oc // p.groups
    row = fmt(p.src).bits // 8 * p.ic // p.groups
    if p.kh * p.kw > 1 or any(p.padding) or p.depth or p.groups > 1 or p.mb * pixels <= _FEW:
        return None
    wide = _CALL if oc % _CALL == 0 else _FEW
    low = wide == _CALL and pixels > _FEW and _is_held(row)
    moved = row * (_FEW + wide) + 4 * _FEW * wide
    apart = ("src",) if low else ("wei",) if moved >= FIRST_LEVEL else ()
    across = (p.mb > 1 or pixels >= _FEW_PIXELS) and row * oc <= SECOND * 3 // 4
    return TileBlocks(_TILE if low else _FEW, wide, PIXELS if across else p.mb * pixels, oc, p.ic, 1, across, apart)
