"""The kernel of oneDNN 3.13 for a convolution in one or two spatial dimensions, off tiles, and its own name for it."""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.postops import sums_differ, sums_first
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.layouts import by_gemm_for_layouts, named_last, way
from simdnn.libraries.onednn.matmuls import VNNI, by_width, int8_row
from simdnn.libraries.onednn.order import (
    as_large_as_outputs,
    before_or_behind,
    beyond_older_kernels,
    brgemm_convolution,
    by_gemm,
    by_int8_gemm,
    by_vectors,
    dense_and_pointwise,
    depthwise_by_gemm,
    groups_by_fours,
    is_copied,
    is_dilated,
    jit_takes,
    jit_with_avx_vnni,
    lacks_room,
    odd_bias,
    pointwise,
    sees_padding_alone,
    shared_by_axes,
    shared_by_pixels,
    single_pixel,
    vector_of_f32,
)
from simdnn.libraries.onednn.refusals import refuse_gemm, refuse_int8_gemm, refuse_later_groups, refuse_single_pixel
from simdnn.libraries.onednn.sums import ends_as_reference
from simdnn.libraries.onednn.tiles import AMX, leaves_convolution_to_gemm

FP16 = "avx10_1_512"  # oneDNN's name of the cap that avx512_core_fp16 sets
#: the caps that differ in their kernels of floats, and of int8, the strongest first
FLOAT_TIERS = ("avx512_core_bf16", "avx512_core", "avx2")
INT8_TIERS = ("avx512_core_vnni", "avx512_core", "avx2_vnni", "avx2")


def referred(p: ConvProblem, without_bf16: bool) -> bool:
    """Whether a convolution of floats is left to the reference: its destination, its second operands or a sum is why.

    Older kernels and the GEMM add what the destination held before all else, and as it is; `without_bf16`: bf16 has no
    others.
    """
    ops, dst = p.epilogue.post_ops, p.epilogue.dst
    if not fmt(p.src).is_float or dst not in ("s8", "u8", "f32", p.src):
        return False
    if way(p) == "reference" or _lost_to_gemm(p, without_bf16) or sums_differ(ops):
        return True
    bytes_ = dst in ("s8", "u8")
    alone = p.depthwise and p.src != "f16" and (is_dilated(p) or depthwise_by_gemm(p) or p.line and named_last(p))
    large = as_large_as_outputs(p) and p.src != "bf16" and not (alone and single_pixel(p) or vector_of_f32(p))
    if bytes_ and (as_large_as_outputs(p) or not _stores_bytes(p, without_bf16)) or large:
        refuse_single_pixel(p)
        return True
    if shared_by_axes(p) or p.depthwise and p.src != "f16" and shared_by_pixels(p):
        return True
    planes = p.depth is not None and (without_bf16 or is_dilated(p))
    gemm = planes or depthwise_by_gemm(p) if p.depthwise else by_gemm(p, False)
    older = p.src == "bf16" and (gemm or not p.depthwise and (without_bf16 or groups_by_fours(p, 16)))
    if older and (beyond_older_kernels(p) or not sums_first(ops)):
        return True
    return not sums_first(ops) and (without_bf16 or alone)


def _lost_to_gemm(p: ConvProblem, without_bf16: bool) -> bool:
    """Whether a GEMM would take it, and its own layout of the other image, or of weights, is another one."""
    images = {p.layouts.src, p.layouts.dst}
    if images != {"last", "any"} and not (images == {"last"} and p.layouts.wei == "any" and as_large_as_outputs(p)):
        return False
    return depthwise_by_gemm(p) if p.depthwise else p.src == "bf16" and by_gemm(p, without_bf16)


def _stores_bytes(p: ConvProblem, without_bf16: bool) -> bool:
    """Whether a kernel takes floats to integers: oneDNN's newer ones of f16, and of bf16 but for small groups by fours
    and depthwise ones.
    """
    by_others = p.depthwise or groups_by_fours(p, 16) or by_gemm_for_layouts(p)
    return p.src == "f16" or p.src == "bf16" and not (without_bf16 or by_others)


def emulated(p: ConvProblem) -> tuple[str, str]:
    """bf16 without AVX512_BF16 (docs/numerics.md, rule 12)."""
    isa = "avx512_core"
    gemm = p.line or p.depth or is_copied(p) or as_large_as_outputs(p) or by_gemm_for_layouts(p)
    if p.depthwise and not gemm:
        return f"dw:{isa}_bf16_stored", f"jit_dw:{isa}"
    if by_gemm(p, True):
        refuse_gemm(p)
        return f"conv:{isa}_bf16_emulated{'_pixel' * by_vectors(p)}", "x64:gemm:jit"
    return f"conv:{isa}_bf16_emulated", f"jit_bf16{'_1x1' * dense_and_pointwise(p)}:{isa}"


def of_f16(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str]:
    """Products in f32, in the orders of f32."""
    if not p.depthwise:
        return "conv:avx512_core_f16", f"{brgemm_convolution(p)}:{FP16}"
    name = _depthwise_f16(p)
    if name in ("brgconv_1x1", "brg_conv_fwd"):
        return f16_by_taps(p, caps)
    return "dw:avx512_core_f16", f"{name}:{FP16}"


def f16_by_taps(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str]:
    """Depthwise f16 that a kernel for blocks takes, on tiles where there are some."""
    tiles, name = "avx512_core_amx_fp16" in caps and not before_or_behind(p), brgemm_convolution(p)
    if tiles:
        return "conv:avx512_core_amx_fp16_taps", f"{name}:{AMX}_fp16"
    return "conv:avx512_core_f16_taps", f"{name}:{FP16}"


def by_gemm_on_tiles(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str] | None:
    """The older GEMM on AMX tiles, where it takes a convolution."""
    if "avx512_core_amx" not in caps or not leaves_convolution_to_gemm(p):
        return None
    refuse_gemm(p)
    return "conv:avx512_core_amx", "x64:gemm:jit"


def convolution(p: ConvProblem, tier: str) -> tuple[str, str]:
    if p.depthwise:
        return _depthwise(p, tier)
    base = "brgconv_1x1" if pointwise(p) else "brg_conv_fwd"
    if not fmt(p.src).is_float:
        return _convolution_of_bytes(p, tier, base)
    if p.src == "bf16":
        if by_gemm(p, False):
            refuse_gemm(p)
            return f"conv:{tier}{'_pixel' * by_vectors(p)}", "x64:gemm:jit"
        return f"conv:{tier}", (f"jit_bf16:{tier}" if groups_by_fours(p, 16) else f"{base}:{tier}")
    if by_gemm_for_layouts(p):
        return f"conv:{by_width(tier)}", "x64:gemm:jit"
    if vector_of_f32(p):
        return "conv:avx2_pixel" if by_vectors(p) else f"conv:{by_width(tier)}", "x64:gemm:jit"
    alone = tier != "avx2" and lacks_room(p)
    if alone and p.epilogue.dst != "f32":
        raise Unimplemented(
            f"oneDNN's kernel for a single channel this small makes f32 alone, not {p.epilogue.dst}: dst='f32' "
            "works, larger images, and dispatch='fastest'"
        )
    small = p.groups > 1 and p.ic // p.groups <= 16
    jit = tier != "avx2" and jit_takes(p) or alone and not is_copied(p)
    left = (small or alone) and not jit and p.layouts.wei != "kept"
    wide = "avx2" if tier == "avx2" or left else "avx512_core"
    return f"conv:{wide}", f"jit:{wide}" if jit else f"{base}:{wide}"


def _convolution_of_bytes(p: ConvProblem, tier: str, base: str) -> tuple[str, str]:
    if ends_as_reference(p, tier):
        return f"conv:{by_width(tier)}_int8_exact", "ref:any"
    if by_int8_gemm(p, tier):
        return int8_row("conv", tier), int8_gemm(p)
    if tier == "avx2":
        if p.groups > 1 and (p.ic // p.groups % 4 or p.oc // p.groups % 4):
            return "conv:avx2_int8_exact", "ref:any"
        return "conv:avx2_int8", f"jit_uni_int8{'_1x1' if dense_and_pointwise(p) else ''}:avx2"
    if tier == "avx2_vnni":
        return "conv:avx2_vnni", f"{'jit_uni_int8' if jit_with_avx_vnni(p) else base}:{tier}"
    if groups_by_fours(p, 16):
        base = "jit_int8_1x1" if pointwise(p) and _dense(p) and p.epilogue.bias_stored == "f32" else "jit_int8"
    else:
        refuse_later_groups(p)
    return int8_row("conv", tier), f"{base}:{tier}"


def _dense(p: ConvProblem) -> bool:
    """Whether a kernel looks at every pixel."""
    return p.strides == (1, 1) and (p.depth is None or p.depth.stride == 1)


def _depthwise(p: ConvProblem, tier: str) -> tuple[str, str]:
    if p.src in ("f32", "bf16"):
        isa = "avx2" if tier == "avx2" else tier if p.src == "bf16" else "avx512_core"
        if p.layouts.wei == "kept":
            return f"conv:{isa}_taps", f"{brgemm_convolution(p)}:{isa}"
        if depthwise_by_gemm(p) and p.src == "bf16":
            refuse_gemm(p)
            return f"conv:{isa}_copied", "x64:gemm:jit"
        if named_last(p) and p.line:
            return f"dw:{isa}", f"{'jit_bf16' if p.src == 'bf16' else 'jit'}:{isa}"
        if named_last(p) and p.dilation != (1, 1) and is_copied(p):
            raise refused_by_depth(p)
        if p.dilation == (1, 1) and not (depthwise_by_gemm(p) or odd_bias(p)):
            return f"dw:{isa}", f"brdgmm_dw:{isa}"
        few = named_last(p) and isa == "avx2" and p.groups % 8
        return f"dw:{isa}", "x64:gemm:jit" if depthwise_by_gemm(p) else f"jit{'' if few else '_dw'}:{isa}"
    if ends_as_reference(p, tier):
        return f"dw:{by_width(tier)}_int8_exact", "ref:any"
    if by_int8_gemm(p, tier):
        return f"dw:{tier}_int8", int8_gemm(p)
    jit = "jit_int8" if "avx512_core" in implied(tier) else "jit_uni_int8"
    brdgmm = tier in VNNI and not jit_with_avx_vnni(p)
    return f"dw:{tier}_int8", f"{'brdgmm_dw' if brdgmm else jit}:{tier}"


def _depthwise_f16(p: ConvProblem) -> str:
    """Whose kernel takes a depthwise convolution of f16."""
    others = p.turned or p.line or shared_by_pixels(p) or p.epilogue.dst in ("s8", "u8")
    if others or p.dilation != (1, 1) and sees_padding_alone(p):
        return brgemm_convolution(p)
    return "brdgmm_dw" if p.dilation == (1, 1) else "jit_dw"


def int8_gemm(p: ConvProblem) -> str:
    """oneDNN's name of the GEMM that it leaves integers to."""
    refuse_int8_gemm(p)
    return f"x64:gemm_s8{p.src}s32:jit"


def refused_by_depth(p: ConvProblem) -> Unimplemented:
    return Unimplemented(
        f"oneDNN's kernel for this depthwise convolution of {p.src}, channels last, is not modelled: layouts of any "
        "work, and dispatch='fastest'"
    )
