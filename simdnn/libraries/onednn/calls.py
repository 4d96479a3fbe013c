"""Cycles of an execution of oneDNN 3.13 beside those of its generated code.

Measured from inside the library (`benchmarks.inside`) on one core of an Emerald Rapids, without the queue and the
threads of a runtime. A product of 2 x 2 x 2 takes 1080 to 1180 cycles under two ISA caps. A product is cut into calls
of a kernel; their own cost was fitted to 217 products in seven pairs of types and caps, whose error goes from 6.2 to
5.8 % with it (docs/validation/libraries.md has halves). Calls of kernels on tiles were not measured, nor those of
convolutions.
"""

from __future__ import annotations

from math import gcd

from simdnn.kernels.common.spec import MatmulProblem, Problem
from simdnn.libraries.onednn.blocking import packs

EXECUTION = 1100.0  # cycles: arguments, scratchpad, threads asked for, and back, with one call of a kernel
KERNEL = 150.0  # cycles of a call: its parameters, its registers saved, the last turns of its loops foreseen wrongly
#: cycles a weight of the older GEMM's copy, where lines of 16 columns are gone before the next 16 come, which are in
#: the same lines: 0.21 to 0.24 at five such strides of rows, 0.10 at three others (its loop, timed by itself)
COLLIDING = 0.14
_ROWS, _COLUMNS = 256, 64  # of a call
_TOGETHER = 384  # rows of weights that are packed before the next
_LINE, _SETS, _WAYS = 64, 64, 12  # of the first cache


def around(problem: Problem, row: str, threads: int = 1) -> float:
    """Cycles of an execution on a number of threads beside its kernels' own; `row` stands for them.

    >>> from simdnn.kernels.common.spec import Epilogue
    >>> product = MatmulProblem(16, 768, 768, "u8", "s8", Epilogue(), tiles="onednn")
    >>> around(product, "gemm:avx512_core_vnni") == EXECUTION + 23 * KERNEL
    True
    """
    if not isinstance(problem, MatmulProblem) or not problem.tiles or problem.wei_tag != "any":
        return EXECUTION
    calls = KERNEL * (problem.batch.count * _calls(problem) - 1)
    copies = COLLIDING * problem.k * problem.n * problem.batch.count if _collides(problem, row) else 0.0
    return EXECUTION + (calls + copies) / threads


def _collides(p: MatmulProblem, row: str) -> bool:
    """Whether rows of weights that are packed lie so that few of the first cache's sets have their lines."""
    if not packs(p, row) or p.n % _LINE:
        return False
    return _SETS // gcd(p.n // _LINE, _SETS) * _WAYS < min(p.k, _TOGETHER)


def _calls(p: MatmulProblem) -> int:
    at_once = 512 if p.k <= 1024 else 1024
    return -(-p.m // _ROWS) * -(-p.n // _COLUMNS) * -(-p.k // at_once)
