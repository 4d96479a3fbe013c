"""Tiles of vector registers in oneDNN 3.13's matmuls: how many rows and vectors of sums it keeps.

Its kernel (brgemm) takes up to four vectors of a block of 64 columns, and as many rows as registers are left for; among
fewer rows it takes those that waste fewest at the end and load least: six of 16 rows with 32 registers, two of four
with 16. With four vectors in 16 registers it broadcasts all rows of the source first and loads one vector of weights at
a time; else a step fetches a line of each vector ahead, as far as it has rows.
"""

from __future__ import annotations

from simdnn.kernels.common.spec import MatmulProblem, Problem
from simdnn.kernels.common.sums import DotProduct, RegisterTile

_COLUMNS, _ROWS = 64, 256  # of a block of weights, and of one of the source at most
_KNOWN = (
    "gemm:avx2",
    "gemm:avx2_vnni",
    "gemm:avx512_core",
    "gemm:avx512_core_bf16",
    "gemm:avx512_core_int8",
    "gemm:avx512_core_vnni",
)


def knows_tile(problem: Problem, row: str) -> bool:
    """Whether the row that stands for the library's kernel is cut into its tiles."""
    if not isinstance(problem, MatmulProblem):
        return False
    return row in _KNOWN and problem.wei_tag == "any" or packs(problem, row)


def packs(problem: MatmulProblem, row: str) -> bool:
    """Whether the row stands for the library's older GEMM, which packs s8 weights in every call."""
    return row == "gemm:avx2_int8" and problem.wei == "s8"


def register_tile(problem: MatmulProblem, dot: DotProduct, wide: bool) -> RegisterTile:
    """The tile of a matmul whose weights are in the library's own layout; `wide`: AVX-512."""
    lanes, registers = (16, 32) if wide else (8, 16)
    vectors = max(1, min(4, min(_COLUMNS, problem.n) // lanes))
    one_load = vectors == 4 and not wide
    shift = problem.wei == problem.src == "s8"  # what is added to the source
    pairs = 2 * dot.saturates  # a register of ones, and one for sums of pairs
    left = registers - shift - pairs - (1 if one_load else vectors + 1)
    block = min(problem.m, _ROWS)

    def score(rows: int) -> float:
        filled = block / (-(-block // rows) * rows)
        return filled * vectors * rows / (vectors + rows)

    most = left // (vectors + one_load)
    rows = max(range(most, 0, -1), key=lambda rows: round(score(rows), 6))
    return RegisterTile(rows, vectors, one_load, block, fetches=not one_load)
