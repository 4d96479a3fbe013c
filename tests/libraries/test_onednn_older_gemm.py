"""Which kernel of oneDNN's older GEMM takes a matmul of f32: its own checker's answers (`nocopy_checker_avx512`, and
`nocopy_checker_avx2`, in gemm_driver.cpp of oneDNN 3.13.2), compiled and asked.
"""

from __future__ import annotations

import pytest

from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.layouts import ANY_LAYOUTS
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries.onednn.older_gemm import copies

_ANSWERS = [  # layouts of the source and the weights; M, N and K; whether it copies under AVX-512, and AVX2
    ("ab", "ab", (1020, 1020, 300), False, True),
    ("ab", "ab", (1021, 1021, 2), True, False),
    ("ab", "ab", (1021, 1021, 1), False, False),
    ("ab", "ab", (101, 1024, 501), True, False),
    ("ab", "ab", (100, 1024, 501), False, False),
    ("ab", "ab", (101, 1024, 500), False, False),
    ("ab", "ab", (101, 1000, 501), False, False),
    ("ab", "ab", (526, 526, 64), False, False),
    ("ab", "ab", (527, 527, 3), False, True),
    ("ab", "ab", (527, 527, 2), False, False),
    ("ab", "ba", (199, 101, 1199), True, False),
    ("ab", "ba", (199, 100, 1199), False, False),
    ("ab", "ba", (200, 101, 1199), False, False),
    ("ab", "ba", (199, 1200, 1024), True, False),
    ("ab", "ba", (300, 101, 512), True, False),
    ("ab", "ba", (300, 100, 512), False, False),
    ("ba", "ab", (16, 4096, 300), True, False),
    ("ba", "ab", (16, 2048, 300), False, False),
    ("ba", "ab", (17, 1024, 300), True, False),
    ("ba", "ab", (16, 1024, 377), False, False),
    ("ba", "ab", (16, 1024, 378), True, False),
    ("ba", "ab", (15, 4096, 300), False, False),
    ("ba", "ab", (17, 1000, 300), False, False),
    ("ba", "ba", (300, 300, 512), False, False),
    ("ba", "ba", (1100, 1100, 300), True, True),
]


@pytest.mark.parametrize(("source", "weights", "sizes", "wide", "narrow"), _ANSWERS)
def test_the_older_gemm_copies_where_its_checker_says(
    source: str, weights: str, sizes: tuple[int, int, int], wide: bool, narrow: bool
) -> None:
    p = MatmulProblem(*sizes, "f32", "f32", Epilogue(), weights, layouts=ANY_LAYOUTS._replace(src=source))
    assert (copies(p, True), copies(p, False)) == (wide, narrow)
