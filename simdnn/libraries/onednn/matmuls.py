"""Which kernel on vector registers takes a matmul in oneDNN 3.13, of floats of one type or of integers, but for f16 and
bf16 that is emulated (`choice`).
"""

from __future__ import annotations

from isa_models.isa import implied
from simdnn.kernels.common.postops import sums_late
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries.onednn import older_gemm
from simdnn.libraries.onednn.refusals import (
    refuse_dots_of_s8,
    refuse_float_gemm,
    refuse_raw,
    refuse_saturated_groups,
    refuse_scaled_parts,
    refuse_sum_in_gemm,
)
from simdnn.libraries.onednn.sharing import left_to_reference

#: the tiers of integers whose kernels multiply and add in one instruction
VNNI = ("avx512_core_vnni", "avx2_vnni")


def by_width(tier: str) -> str:
    """The cap of the kernels that need no more than registers of a tier's width."""
    return "avx512_core" if "avx512_core" in implied(tier) else "avx2"


def plain(p: MatmulProblem) -> str:
    """How the kernel of a vector is called where lanes run over N, or over M."""
    return "_plain" if (p.wei_tag == "ab" if p.n > 1 else p.layouts.src == "ba") else ""


def is_vector(p: MatmulProblem) -> bool:
    """Whether kernels for a matrix and a vector take floats, which want both dense."""
    return 1 in (p.m, p.n) and p.layouts.wei == "any" and p.layouts.src in ("any", "ba")


def matmul(p: MatmulProblem, tier: str) -> tuple[str, str]:
    """The row and the library's name, of the tier of caps whose kernels take it."""
    vector, how = is_vector(p), plain(p)
    if p.src == "f32":
        wide = by_width(tier)
        if p.epilogue.dst != "f32" or left_to_reference(p):
            return f"gemm:{wide}_ref", "ref:any"
        if p.left_to == "gemm":
            refuse_float_gemm(p, wide == "avx512_core")
            return _older_gemm(p, wide), "gemm:jit:f32"
        if vector:
            return f"gemv:avx2{how}", "brg_matmul:avx2"
        return f"gemm:{wide}", f"brg_matmul:{wide}"
    if p.src == "bf16":
        if p.left_to == "gemm":
            refuse_sum_in_gemm(p)
            refuse_scaled_parts(p)
            dots = older_gemm.in_dots(p)
            return f"gemv:{tier}_pairs" if dots else f"gemm:{tier}", "gemm:jit:bf16"
        kind = f"gemv:{tier}{how and how + '_bf16'}" if vector else f"gemm:{tier}"
        return kind, f"brg_matmul:{tier}"
    reference = p.reference or bool(p.group_scales and p.group_scales.reference)
    if p.wei in ("s4", "u4") and not reference:
        refuse_raw(p)
    library = "ref_int8:any" if reference else "gemm:jit" if p.left_to == "gemm" else f"brg_matmul:{tier}"
    if library == "gemm:jit" and tier == "avx512_core":
        refuse_dots_of_s8(p)
    in_place = p.wei == "u8" and p.wei_tag != "any"  # which the reference reads as they are
    odd = p.group_scales and (p.wei == "u8" or p.scale_period % 4 and p.scale_period != p.k)
    if in_place or p.zero_points or odd:
        refuse_saturated_groups(p, tier)
        return f"ref_int8:{by_width(tier)}", library
    if reference:
        return f"{int8_row('gemm', tier)}{'' if tier in VNNI else '_exact'}", library
    if tier == "avx2":
        if p.epilogue.dst in ("bf16", "f16") or sums_late(p.epilogue.post_ops):
            return "gemm:avx2_int8_exact", "ref_int8:any"
        return ("gemm:avx2_int8_exact" if p.src == "s8" and p.moves_in_s8 else "gemm:avx2_int8"), "gemm:jit"
    return int8_row("gemm", tier), library


def _older_gemm(p: MatmulProblem, isa: str) -> str:
    """The row for the kernel of the older GEMM of f32."""
    wide = isa == "avx512_core"
    if older_gemm.in_dots(p):
        return "gemv:avx2_older"
    if older_gemm.in_rows(p, wide):
        return "gemv:avx512_core_rows"
    return f"gemm:{isa}" if wide or older_gemm.in_chains(p) or older_gemm.copies(p, wide) else "gemm:avx2_older"


def int8_row(family: str, tier: str) -> str:
    """The row of a family's kernel of integers."""
    return f"{family}:{tier}" if tier in VNNI else f"{family}:{tier}_int8"
