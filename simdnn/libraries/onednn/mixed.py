"""The choice of oneDNN 3.13 for products of floats by bf16 or f16 weights on CPUs (docs/numerics.md, rule 8)."""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.postops import sums_differ
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.libraries.onednn.order import (
    as_large_as_outputs,
    brgemm_convolution,
    groups_by_fours,
    is_dilated,
    pointwise,
    shared_by_axes,
    shared_by_pixels,
)


def of_two_floats(p: Problem) -> bool:
    """Whether source and weights are floats of different types."""
    return p.src != p.wei and fmt(p.src).is_float and fmt(p.wei).is_float


def convolution(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str]:
    """The row and oneDNN's name for a convolution of f32 with weights of bf16 or f16, which become f32.

    Raises `Unimplemented` where the order of sums is not known, or the library gets them wrong.
    """
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    dense, dst = p.depthwise and not (is_dilated(p) or p.line), p.epilogue.dst  # in brdgmm_dw
    wrong = f"avx512_core_{'fp16' if p.wei == 'f16' else 'bf16'}" in caps and not (p.wei == "bf16" and p.depthwise)
    bytes_ = dst in ("s8", "u8") and not wrong
    shared = as_large_as_outputs(p) or shared_by_axes(p) or dense and shared_by_pixels(p)
    shared = shared or sums_differ(p.epilogue.post_ops)
    if p.wei_tag == "any" and (bytes_ or dst == "f32" and shared):
        return f"ref_conv:{wide}", "ref:any"
    own = dst == p.wei == "bf16" and wrong  # which it has there alone
    if (dst in ("s8", "u8") or own) and p.wei_tag == "any":
        raise Unimplemented(f"oneDNN gets a convolution {p.src}:{p.wei}:{dst} wrong here: dst f32 works")
    if dst != "f32" or p.wei_tag != "any":
        raise Unimplemented(
            f"oneDNN's order of sums of this convolution {p.src}:{p.wei}:{dst} is not known here: destinations of f32 "
            "work, and dispatch='fastest'"
        )
    _refuse_copied_rest(p, wide)
    if dense:
        return f"{'conv' if p.depth else 'dw'}:{wide}", f"brdgmm_dw:{wide}"
    base = f"{brgemm_convolution(p)}:{wide}"
    in_turn = groups_by_fours(p, 16) or p.ic == p.groups  # where f32 by f32 has another order
    return f"conv:{wide}{'_taps' * in_turn}", base


def _refuse_copied_rest(p: ConvProblem, wide: str) -> None:
    """Raises where the library multiplies a copy of the image by what lies behind the weights: of a single column and
    plane it makes one under AVX-512 (`brgemm_convolution_utils::init_jcp`, `exec_trans`), and errs in the channels that
    fill no block of 16, unless they are fewer.
    """
    ic = p.ic // p.groups
    column = (p.od, p.kw, p.ow) == (1, 1, 1) and not pointwise(p)
    if column and wide == "avx512_core" and ic > 16 and ic % 16:
        raise Unimplemented(
            f"oneDNN gets a convolution {p.src}:{p.wei}:{p.epilogue.dst} of {ic} channels to a single column wrong "
            "here: multiples of 16 work, and dispatch='fastest'"
        )


def choice(p: MatmulProblem, caps: frozenset[str]) -> tuple[str, str]:
    """The row and oneDNN's name: beside an f32 source weights become f32, vectors have no kernel of their own, and the
    rest is left to its reference.

    Raises `Unimplemented` for what it refuses, or is not known to do.
    """
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    of_f16 = "avx512_core_fp16" in caps and p.epilogue.dst in ("f32", "f16")
    lacks = wide == "avx2" or p.src == "f16" and not of_f16
    if p.src != "f32" and lacks:
        raise Unimplemented(
            f"oneDNN refuses a matmul {p.src}:{p.wei}:{p.epilogue.dst} here: dispatch='fastest' takes it"
        )
    half, dst = "avx512_core_fp16" in caps and p.wei == "f16", p.epilogue.dst
    narrow = wide != "avx2" and (p.wei == "bf16" or half)  # a destination of the weights' own type
    columns = wide != "avx2" or p.n % 8 == 0  # it copies whole vectors of weights there
    own = dst == "f32" or dst == p.wei and narrow
    if p.src == "f32" and p.left_to in ("", "brgemm") and columns and own and p.epilogue.bias_stored == "f32":
        return f"gemm:{wide}_by_{p.wei}", f"brg_matmul:{'avx10_1_512' if half else wide}"
    return f"gemm:{wide}_by_{p.wei}_ref", "ref:any"
