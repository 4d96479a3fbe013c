"""Parts of kernels that multiply in another type than operands are stored in."""

from __future__ import annotations

from math import gcd

from isa_models import GpuMachine
from isa_models.formats import fmt
from simdnn.kernels.common.elementwise import MapProblem, elementwise
from simdnn.kernels.common.epilogue import Decompression
from simdnn.kernels.common.expression import trace
from simdnn.kernels.common.params import Param
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.vocabulary import GpuVocabulary
from simdnn.program.records import Program


def group_of(parts: Decompression, k: int) -> int:
    """How many k have their scale and zero point in common."""
    groups = [p.group for p in (parts.scale, parts.zero_point) if p and p.group]
    return gcd(*groups) if groups else k


def converts(p: GpuMatmulProblem) -> tuple[float, float]:
    """Operations on f32 lanes, about, for an element of the source, and for one of the weights.

    f32 is rounded, stored integers are moved, narrow floats taken apart.
    """
    of_source = 1.0 if p.src == "f32" != p.compute else 0.0
    if not p.decompression:
        return of_source, of_source if p.wei_tag != "any" else 0.0
    return of_source, 2.5 if fmt(p.wei).is_float else 1.0


def inside(parts: Decompression) -> Param | None:
    """The scale, where it multiplies the weights and not the sums."""
    return parts.scale if parts.scale and parts.scale.group else None


def scale_type(parts: Decompression, compute: str) -> str:
    """The type that weights are multiplied in by their scale."""
    scale = inside(parts)
    return "f16" if compute == "f16" and (scale is None or scale.dtype == "f16") else "f32"


def rounding(size: int, dtype: str, machine: GpuMachine) -> Program:
    """f32 weights brought to the type multiplied, ahead of all runs."""
    problem = MapProblem(trace(lambda x: x, ["f32"]), (size,), ((1,),), dtype)
    return elementwise(problem, GpuVocabulary(machine)).program
