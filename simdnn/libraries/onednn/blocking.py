"""Tiles of vector registers in oneDNN 3.13's matmuls: how many rows and vectors of sums it keeps.

Its kernel (brgemm) takes up to four vectors of a block of 64 columns, and as many rows as registers are left for; among
fewer rows it takes those that waste fewest at the end and load least: six of 16 rows with 32 registers, two of four
with 16. With four vectors in 16 registers it broadcasts all rows of the source first and loads one vector of weights at
a time; else a step fetches a line of each vector ahead, as far as it has rows.
"""

from __future__ import annotations

from dataclasses import replace

from simdnn.kernels.common.activations import is_formula
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.sums import DotProduct, RegisterTile
from simdnn.libraries.onednn.convolution_blocks import tile_of_block
from simdnn.libraries.onednn.order import by_int8_gemm, odd_bias, shared_by_pixels
from simdnn.libraries.onednn.tiles import leaves_convolution_to_gemm

_FORMULA = 9  # registers that a post-operation of a depthwise convolution takes beside sums, where it is a formula
_COLUMNS = 64  # of a block of weights
_FEWEST_ROWS, _MOST_ROWS, _MANY_ROWS = 32, 256, 512  # of a block of the source; the last of small ones of f32
CONVOLUTIONS = {  # rows, and the cap of each
    "conv:avx2": "avx2",
    "conv:avx2_int8": "avx2",
    "conv:avx2_taps": "avx2",
    "conv:avx2_vnni": "avx2_vnni",
    "conv:avx512_core": "avx512_core",
    "conv:avx512_core_bf16": "avx512_core_bf16",
    "conv:avx512_core_bf16_emulated": "avx512_core",
    "conv:avx512_core_f16": "avx512_core",
    "conv:avx512_core_int8": "avx512_core",
    "conv:avx512_core_taps": "avx512_core",
    "conv:avx512_core_vnni": "avx512_core_vnni",
}
BYTES_WITHOUT_VNNI = ("dw:avx2_int8", "dw:avx512_core_int8")
BY_LINES = (  # depthwise rows that brdgmm stands behind
    "dw:avx2",
    "dw:avx2_vnni_int8",
    "dw:avx512_core",
    "dw:avx512_core_bf16",
    "dw:avx512_core_bf16_pairs",
    "dw:avx512_core_f16",
    "dw:avx512_core_vnni_int8",
)
_DEPTHWISE = (*BYTES_WITHOUT_VNNI, *BY_LINES, "dw:avx512_core_bf16_stored")
ON_TILES = "gemm:avx512_core_amx", "gemm:avx512_core_amx_fp16", "gemm:avx512_core_amx_int8"
CONVOLUTIONS_ON_TILES = "conv:avx512_core_amx", "conv:avx512_core_amx_fp16", "conv:avx512_core_amx_int8"
_KNOWN = (
    "gemm:avx2",
    "gemm:avx2_by_bf16",
    "gemm:avx2_by_f16",
    "gemm:avx2_vnni",
    "gemm:avx512_core",
    "gemm:avx512_core_amx_int8",
    "gemm:avx512_core_bf16",
    "gemm:avx512_core_by_bf16",
    "gemm:avx512_core_by_f16",
    "gemm:avx512_core_f16",
    "gemm:avx512_core_int8",
    "gemm:avx512_core_vnni",
    "gemv:avx2",
    "wdec:avx2",
    "wdec:avx512_core",
    "wdec:avx512_core_bf16",
)


#: rows on AMX tiles whose sums the library cuts by its caches, or in blocks of channels
_CUT = frozenset(f"{kind}:avx512_core_amx{of}" for kind in ("gemm", "wdec") for of in ("", "_fp16")) | {
    "conv:avx512_core_amx_down"
}


def knows_tile(problem: Problem, row: str) -> bool:
    """Whether the row that stands for the library's kernel is cut into its tiles, or goes its way over the image."""
    if row in _CUT:
        return True
    if isinstance(problem, ConvProblem):
        if row == "conv:avx512_core_amx" and leaves_convolution_to_gemm(problem):
            return True
        if problem.wei_tag != "any" or problem.depth is not None:
            return False
        return row in CONVOLUTIONS or row in CONVOLUTIONS_ON_TILES or row in _DEPTHWISE and _by_brdgmm(problem)
    return row in _KNOWN and problem.wei_tag == "any" or packs(problem, row)


def packs(problem: MatmulProblem, row: str) -> bool:
    """Whether the row stands for the library's older GEMM, which packs weights of s8 or bf16 in every call. Of bf16
    packing here wants more than half of the last vector of columns.
    """
    emulated = row == "gemm:avx512_core_bf16_emulated" and problem.m > 1 and not 0 < problem.n % 16 <= 8
    return emulated or row == "gemm:avx2_int8" and problem.wei == "s8"


def register_tile(problem: MatmulProblem, dot: DotProduct, wide: bool) -> RegisterTile:
    """The tile of a matmul whose weights are in the library's own layout; `wide`: AVX-512."""
    return _tile_of_columns(problem, dot, wide, min(_COLUMNS, problem.n))


def tile_in_columns(problem: MatmulProblem, dot: DotProduct, wide: bool) -> RegisterTile:
    """The tile of a matmul, with the vectors of a block of columns, which some rows meet tile by tile before the next
    rows do, and the tile of the last block where that is narrower.
    """
    lanes, columns = 16 if wide else 8, min(_COLUMNS, problem.n)
    tile, every = register_tile(problem, dot, wide), -(-columns // lanes)
    last = problem.n % _COLUMNS if problem.n > _COLUMNS else 0
    narrower = _tile_of_columns(problem, dot, wide, last) if last else None
    return replace(tile, together=every * (every > tile.vectors), last=narrower)


def _tile_of_columns(problem: MatmulProblem, dot: DotProduct, wide: bool, columns: int) -> RegisterTile:
    vectors = max(1, min(4, columns // (16 if wide else 8)))
    shifted = problem.wei == problem.src == "s8"
    return tile_of_block(dot, wide, block_rows(problem, wide), vectors, shifted)


def block_rows(p: MatmulProblem, wide: bool) -> int:
    """Rows of a block: of up to 256 the most of those that leave fewest missing in the last one (`get_imbalance` and
    `compute_blocking_heuristic_avx512` in brgemm_matmul_utils.cpp).

    >>> from simdnn.kernels.common.epilogue import Epilogue
    >>> [block_rows(MatmulProblem(m, 768, 768, "u8", "s8", Epilogue()), True) for m in (100, 803, 1024, 1021)]
    [100, 73, 256, 146]
    """
    few = p.m <= 768 and p.k <= 128 or p.m * p.k <= 49152
    most = _MANY_ROWS if wide and p.src == p.wei == "f32" and few and p.n <= 14528 else _MOST_ROWS
    heights = range(min(p.m, most), min(p.m, _FEWEST_ROWS) - 1, -1)
    return min(heights, key=lambda rows: rows * -(-p.m // rows) % p.m)


def _by_brdgmm(problem: ConvProblem) -> bool:
    """Whether a depthwise convolution is brdgmm's, the library's kernel of them."""
    left = problem.line or problem.dilation != (1, 1) or shared_by_pixels(problem) or odd_bias(problem)
    return not (left or by_int8_gemm(problem, "avx512_core_vnni"))


def depthwise_tile(problem: ConvProblem, wide: bool, emulated: bool = False) -> RegisterTile:
    """Pixels by vectors of channels in brdgmm. With AVX-512 and a stride of 1, columns of taps share the pixels that
    they have in registers. `emulated`: in `jit_dw`, which takes bf16 without AVX512_BF16.
    """
    if emulated:
        return RegisterTile(min(4, problem.ow), min(4, -(-problem.ic // 16)))
    lanes, integer = 16 if wide else 8, problem.wei == "s8"
    vectors = min(4, -(-problem.ic // lanes))
    formula = _FORMULA * any(map(is_formula, problem.epilogue.post_ops))
    others = (integer and wide and problem.ic % lanes == 0) + (problem.src == "s8")  # how lanes go, what is added
    shares = wide and problem.strides[1] == 1 and problem.kw > 1
    apart = vectors if shares else 1 + (0 if wide and problem.src == "f32" else vectors)  # pixels and weights
    left = (32 if wide else 16) - max(apart + others, formula)
    if shares and (left // 2 - problem.kw + 1) // 2 >= 1:  # else no registers for all columns (brgemm_utils.cpp)
        vectors = 2 - vectors % 2
        return RegisterTile(max(1, min((left // vectors - problem.kw + 1) // 2, problem.ow)), vectors, held=True)
    return RegisterTile(min(left // vectors, problem.ow), vectors)


def words_tile(problem: ConvProblem, wide: bool) -> RegisterTile:
    """Pixels by vectors of channels of bytes without VNNI, in its older kernels (`init_conf` of
    jit_uni_x8s8s32x_conv_kernel.cpp and jit_avx512_core_x8s8s32x_conv_kernel.cpp).
    """
    p, stride = problem, problem.strides[1]
    count = -(-p.ic // (16 if wide else 8))
    vectors = next(most for most in (4, 3, 2, 1) if count % most == 0)
    shares, signed = stride < p.kw < 4 and p.dilation[1] == 1, p.src == "s8"
    saturates = p.epilogue.dst in ("s8", "u8", "s32")
    left = (30 if wide else 14) - (not shares) - signed - (wide and (signed or saturates))
    if p.epilogue.zp_src or p.epilogue.dst_zero_point:
        left = 25 if wide else 9
    rows = (left - p.kw + stride) // (vectors + stride) if shares else left // vectors
    return RegisterTile(max(1, min(rows, p.ow)), vectors, held=shares)
