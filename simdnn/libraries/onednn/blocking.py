"""Tiles of vector registers in oneDNN 3.13's matmuls with 16 registers: how many rows and vectors of sums it keeps.

Its kernel (brgemm) takes up to four vectors of a block of 64 columns, and as many rows as registers are left for; among
fewer rows it takes those that waste fewest at the end and load least: two of four rows. With four vectors it broadcasts
all rows of the source first and loads one vector of weights at a time.

With 32 registers the tiles of this package are as good a guess: with the library's six rows by four vectors its
speed-ups on a Zen 4 come out no nearer (docs/validation/libraries.md).
"""

from __future__ import annotations

from simdnn.kernels.common.spec import MatmulProblem, Problem
from simdnn.kernels.common.sums import RegisterTile

_COLUMNS, _LANES, _REGISTERS = 64, 8, 16  # of a block of weights; of a register; of AVX2


def knows_tile(problem: Problem, row: str) -> bool:
    """Whether the row that stands for the library's kernel is cut into its tiles: f32 and VNNI with 16 registers."""
    return isinstance(problem, MatmulProblem) and row in ("gemm:avx2", "gemm:avx2_vnni") and problem.wei_tag == "any"


def register_tile(problem: MatmulProblem) -> RegisterTile:
    """The tile of a matmul whose weights are in the library's own layout."""
    vectors = max(1, min(4, min(_COLUMNS, problem.n) // _LANES))
    one_load = vectors == 4
    shift = problem.wei == problem.src == "s8"  # what is added to the source
    left = _REGISTERS - shift - (1 if one_load else vectors + 1)

    def score(rows: int) -> float:
        filled = problem.m / (-(-problem.m // rows) * rows)
        return filled * vectors * rows / (vectors + rows)

    most = left // (vectors + one_load)
    return RegisterTile(max(range(most, 0, -1), key=lambda rows: round(score(rows), 6)), vectors, one_load)
