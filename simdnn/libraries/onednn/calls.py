"""Cycles of an execution of oneDNN 3.13 beside those of its generated code.

Measured from inside the library (`benchmarks.inside`) on one core of an Emerald Rapids, without the queue and the
threads of a runtime. A product of 2 x 2 x 2 takes 1080 to 1180 cycles under two ISA caps. A product is cut into calls
of a kernel; their own cost was fitted to 217 products in seven pairs of types and caps, whose error goes from 6.2 to
5.8 % with it (docs/validation/libraries.md has halves). Calls of kernels on tiles were not measured, nor those of
convolutions.
"""

from __future__ import annotations

from simdnn.kernels.common.spec import MatmulProblem, Problem

EXECUTION = 1100.0  # cycles: arguments, scratchpad, threads asked for, and back, with one call of a kernel
KERNEL = 150.0  # cycles of a call: its parameters, its registers saved, the last turns of its loops foreseen wrongly
_ROWS, _COLUMNS = 256, 64  # of a call


def around(problem: Problem, threads: int = 1) -> float:
    """Cycles of an execution on a number of threads beside its kernels' own.

    >>> from simdnn.kernels.common.spec import Epilogue
    >>> product = MatmulProblem(16, 768, 768, "u8", "s8", Epilogue(), tiles="onednn")
    >>> around(product) == EXECUTION + 23 * KERNEL
    True
    """
    if not isinstance(problem, MatmulProblem) or not problem.tiles or problem.wei_tag != "any":
        return EXECUTION
    return EXECUTION + KERNEL * (problem.batch.count * _calls(problem) - 1) / threads


def _calls(p: MatmulProblem) -> int:
    at_once = 512 if p.k <= 1024 else 1024
    return -(-p.m // _ROWS) * -(-p.n // _COLUMNS) * -(-p.k // at_once)
