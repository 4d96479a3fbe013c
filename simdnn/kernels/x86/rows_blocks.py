"""Rows of kernels for weights in ggml's blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from isa_models.block_formats import BLOCK_FORMATS
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import Kernel, KernelKind, Want
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.block_rows import built
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.repacked import Repacked
from simdnn.kernels.x86.repacked_code import COLUMNS
from simdnn.kernels.x86.repacked_steps import TYPES
from simdnn.kernels.x86.tiled_blocks import TiledBlocks
from simdnn.kernels.x86.vec_dot import VecDot
from simdnn.kernels.x86.vec_dot_32 import UNPACKING
from simdnn.kernels.x86.vec_dot_k import STEPS

#: types of blocks that are multiplied
MULTIPLIED = (*UNPACKING, *STEPS)


def vec_dot(isa: str) -> KernelKind:
    """A row of the source times a row of blocks, as ggml multiplies them: 256 bits wide under every cap."""
    name = f"vec_dot:{isa}"
    return _row(name, isa, partial(built, VecDot, name, Unit(isa, 256)), MULTIPLIED, (_known, _sums_alone))


def repacked(isa: str) -> KernelKind:
    """A row of the source times eight rows of blocks, interleaved ahead of time: what llama.cpp does by default."""
    name = f"repacked:{isa}"
    kind = _row(name, isa, partial(built, Repacked, name, Unit(isa, 256)), tuple(TYPES), (_in_eights, _sums_alone))
    return replace(kind, library="ggml-repack")


def tiled(isa: str) -> KernelKind:
    """Rows of the source times rows of blocks that are unpacked first: what ggml does with prompts."""
    name = f"tiled:{isa}"
    kind = _row(name, isa, partial(built, TiledBlocks, name, Unit(isa, 256)), tuple(STEPS), (_of_256, _sums_alone))
    return replace(kind, library="ggml")


def _row(
    name: str, isa: str, generator: Callable[[Any, Any], Kernel], types: Sequence[str], wants: tuple[Want, ...]
) -> KernelKind:
    """A row for f32 sources and weights in blocks of some types."""
    return KernelKind(
        name,
        isa,
        "s8",
        generator,
        sources=("f32",),
        weights=tuple(dict.fromkeys(BLOCK_FORMATS[form].codes for form in types)),
        accumulates=("f32",),
        tags=("any",),
        takes=("blocks",),
        needs="blocks",
        wants=wants,
    )


def _known(problem: MatmulProblem) -> str:
    known = ", ".join(MULTIPLIED)
    return "" if problem.blocks in MULTIPLIED else f"multiplies blocks of {known}, not {problem.blocks}"


def _in_eights(problem: MatmulProblem) -> str:
    if problem.blocks not in TYPES:
        return f"interleaves blocks of {', '.join(TYPES)}, not {problem.blocks}"
    return f"interleaves {COLUMNS} columns; {problem.n} are no multiple" if problem.n % COLUMNS else ""


def _of_256(problem: MatmulProblem) -> str:
    return "" if problem.blocks in STEPS else f"unpacks blocks of {', '.join(STEPS)}, not {problem.blocks}"


def _sums_alone(problem: MatmulProblem) -> str:
    if problem.epilogue != Epilogue("f32"):
        return "computes f32 sums, with nothing after them"
    return "takes one matrix of weights" if problem.batch.count > 1 else ""
