"""Integer weights of other types in the matmul kernels for s8: they become s8 on the way to the kernel's own layout.

What 4 bits hold s8 holds, too. u8 weights are stored less 128, which a zero point makes up for:
sum a (w - z) = sum a ((w - 128) - (z - 128)).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel, Prepare
from simdnn.kernels.common.problems import MatmulProblem

WIDENED = ("u8", "s4", "u4")
_MIDDLE = 128


def as_s8(problem: MatmulProblem) -> MatmulProblem:
    """The problem that a kernel for s8 weights is given."""
    shifted = problem.wei == "u8"
    return replace(problem, wei="s8", epilogue=replace(problem.epilogue, zp_wei=problem.epilogue.zp_wei or shifted))


def stored_as_s8(weights: Array) -> Array:
    """u8 less 128, others as they are.

    >>> stored_as_s8(np.array([0, 255], np.uint8)).tolist()
    [-128, 127]
    """
    if weights.dtype == np.uint8:
        return (weights ^ np.uint8(_MIDDLE)).view(np.int8)
    return weights.astype(np.int8)


def fed(kernel: Kernel, problem: MatmulProblem) -> Kernel:
    """The kernel of `as_s8(problem)`, fed with weights of the problem's type; no reorder makes its layout of them."""
    prepare = partial(_prepared, kernel.prepare, _MIDDLE if problem.wei == "u8" else 0)
    return replace(kernel, prepare=prepare, blocked=None).with_others(partial(fed, problem=problem))


def _prepared(prepare: Prepare, shift: int, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
    return prepare(src, stored_as_s8(weights), replace(parameters, zp_wei=parameters.zp_wei - shift))
