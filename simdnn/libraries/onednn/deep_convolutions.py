"""The kernel of oneDNN 3.13 for a convolution in three spatial dimensions, and its own name for it."""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.convolutions import (
    FLOAT_TIERS,
    FP16,
    INT8_TIERS,
    by_gemm_on_tiles,
    convolution,
    emulated,
    f16_by_taps,
    int8_gemm,
    referred,
    refused_by_depth,
)
from simdnn.libraries.onednn.layouts import named_last
from simdnn.libraries.onednn.matmuls import by_width, int8_row
from simdnn.libraries.onednn.order import (
    brgemm_convolution,
    by_gemm,
    by_int8_gemm,
    depthwise_by_gemm,
    is_copied,
    is_dilated,
)
from simdnn.libraries.onednn.refusals import (
    refuse_float_attributes,
    refuse_halves,
    refuse_left_out_planes,
    refuse_missing,
)
from simdnn.libraries.onednn.sums import ends_as_reference


def deep_convolution(p: ConvProblem, caps: frozenset[str], isa: str, tiled: tuple[str, str] | None) -> tuple[str, str]:
    """Three spatial dimensions: the choice of two, but for depthwise ones."""
    if p.wei_tag != "any":
        raise _unknown(p, isa)
    if fmt(p.src).is_float:
        return _floats(p, caps, isa, tiled)
    tier = next(cap for cap in INT8_TIERS if cap in caps)
    refuse_missing(p)
    if p.depthwise:
        return _bytes_by_depth(p, tier)
    if tiled:
        return tiled
    if "avx512_core" in caps:
        refuse_left_out_planes(p)
    if (tier, p.src, p.ic) == ("avx512_core", "u8", p.groups) and p.kw > 1 and p.depth and p.depth.i == 1:
        raise _unknown(p, isa)  # pairs are made of taps
    return convolution(p, tier)


def _bytes_by_depth(p: ConvProblem, tier: str) -> tuple[str, str]:
    """Depthwise integers, whose kernels are those of other convolutions here."""
    if tier == "avx2" or ends_as_reference(p, tier) or tier == "avx2_vnni" and is_dilated(p):
        return f"conv:{by_width(tier)}_int8_exact", "ref:any"
    if by_int8_gemm(p, tier):
        return int8_row("conv", tier), int8_gemm(p)
    return f"conv:{tier}", f"brdgmm_dw:{tier}"


def _floats(p: ConvProblem, caps: frozenset[str], isa: str, tiled: tuple[str, str] | None) -> tuple[str, str]:
    """Floats: tiles, one chain over planes of the kernel, rows, columns, channels, or what a GEMM or the reference
    does.
    """
    refuse_float_attributes(p, caps)
    refuse_halves(p, caps, isa)
    if tiled:
        return tiled
    without_bf16 = p.src == "bf16" and "avx512_core_bf16" not in caps
    if referred(p, without_bf16):
        return f"ref_conv:{by_width(isa)}", "ref:any"
    tier = next(c for c in FLOAT_TIERS if c in caps)
    if p.depthwise:
        return _floats_by_depth(p, caps, tier, without_bf16)
    if without_bf16:
        return emulated(p)
    if _pairs_of_taps(p):
        raise _unknown(p, isa)  # pairs are made of taps
    if p.src == "f16":
        return "conv:avx512_core_f16", f"{brgemm_convolution(p)}:{FP16}"
    return by_gemm_on_tiles(p, caps) or convolution(p, tier)


def _floats_by_depth(p: ConvProblem, caps: frozenset[str], tier: str, without_bf16: bool) -> tuple[str, str]:
    """Depthwise floats, whose kernels are those of other convolutions here."""
    dense = not (p.turned or is_dilated(p) or depthwise_by_gemm(p) or p.epilogue.dst in ("s8", "u8"))
    if p.src == "f16":
        return ("conv:avx512_core_f16", f"brdgmm_dw:{FP16}") if dense else f16_by_taps(p, caps)
    if p.layouts.wei == "kept":
        return "conv:avx512_core", f"{brgemm_convolution(p)}:avx512_core"
    if named_last(p) and not dense:
        if p.src != "f32" or tier == "avx2" or is_copied(p):
            raise refused_by_depth(p)
        return f"conv:{by_width(tier)}", "jit:avx512_core"
    if without_bf16:
        return emulated(p)
    if p.src == "bf16":
        return (
            ("conv:avx512_core_bf16_stored", f"brdgmm_dw:{tier}") if dense else (f"conv:{tier}_copied", "x64:gemm:jit")
        )
    return f"conv:{by_width(tier)}", f"brdgmm_dw:{by_width(tier)}" if dense else "x64:gemm:jit"


def _pairs_of_taps(p: ConvProblem) -> bool:
    """Whether the library makes pairs of a flat image's taps."""
    flat = p.depth is not None and p.depth.i == 1 and p.kw > 1 and not p.turned
    return p.src == "bf16" and p.ic == p.groups and flat and not by_gemm(p, False)


def _unknown(p: ConvProblem, isa: str) -> Unimplemented:
    return Unimplemented(
        f"what oneDNN picks for this {p.src} in three spatial dimensions under {isa} is not known: wei_tag='any' "
        "works, but for bf16, and u8 that saturates, of one channel a group on a flat image, and dispatch='fastest'"
    )
