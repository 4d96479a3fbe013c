"""Rows of kernels for weights in ggml's blocks."""

from __future__ import annotations

from functools import partial

from isa_models import Machine
from isa_models.block_formats import BLOCK_FORMATS
from simdnn.kernels.common.spec import Epilogue, Kernel, KernelKind, MatmulProblem
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.vec_dot import VecDot
from simdnn.kernels.x86.vec_dot_32 import UNPACKING
from simdnn.kernels.x86.vec_dot_k import STEPS

#: types of blocks that are multiplied
MULTIPLIED = (*UNPACKING, *STEPS)


def vec_dot(isa: str) -> KernelKind:
    """A row of the source times a row of blocks, as ggml multiplies them: 256 bits wide under every cap."""
    name, unit = f"vec_dot:{isa}", Unit(isa, 256)
    return KernelKind(
        name,
        isa,
        "s8",
        partial(_kernel, name, unit),
        sources=("f32",),
        weights=tuple(dict.fromkeys(BLOCK_FORMATS[form].codes for form in MULTIPLIED)),
        accumulates=("f32",),
        tags=("any",),
        takes=("blocks",),
        needs="blocks",
        wants=(_known, _sums_alone),
    )


def _known(problem: MatmulProblem) -> str:
    known = ", ".join(MULTIPLIED)
    return "" if problem.blocks in MULTIPLIED else f"multiplies blocks of {known}, not {problem.blocks}"


def _sums_alone(problem: MatmulProblem) -> str:
    if problem.epilogue != Epilogue("f32"):
        return "computes f32 sums, with nothing after them"
    return "takes one matrix of weights" if problem.batch.count > 1 else ""


def _kernel(name: str, unit: Unit, problem: MatmulProblem, machine: Machine) -> Kernel:
    return VecDot(name, problem, unit).kernel()
