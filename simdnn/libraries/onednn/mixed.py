"""The choice of oneDNN 3.13 for matmuls of floats by bf16 or f16 weights on CPUs (docs/numerics.md, rule 8)."""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.spec import MatmulProblem


def of_two_floats(p: MatmulProblem) -> bool:
    """Whether source and weights are floats of different types."""
    return p.src != p.wei and fmt(p.src).is_float and fmt(p.wei).is_float


def choice(p: MatmulProblem, caps: frozenset[str]) -> tuple[str, str]:
    """The row and oneDNN's name: beside an f32 source weights become f32, vectors have no kernel of their own, and the
    rest is left to its reference.

    Raises `Unimplemented` for what it refuses, or is not known to do.
    """
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    if p.src == "f16" or p.src == "bf16" and wide == "avx2":
        why = "refuses" if wide == "avx2" or "avx512_core_fp16" not in caps else "is not known to take"
        raise Unimplemented(f"oneDNN {why} a matmul {p.src}:{p.wei}:{p.epilogue.dst} here: dispatch='fastest' takes it")
    half, dst = "avx512_core_fp16" in caps and p.wei == "f16", p.epilogue.dst
    narrow = wide != "avx2" and (p.wei == "bf16" or half)  # a destination of the weights' own type
    columns = wide != "avx2" or p.n % 8 == 0  # it copies whole vectors of weights there
    if p.src == "f32" and columns and (dst == "f32" or dst == p.wei and narrow):
        return f"gemm:{wide}_by_{p.wei}", f"brg_matmul:{'avx10_1_512' if half else wide}"
    return f"gemm:{wide}_by_{p.wei}_ref", "ref:any"
