"""The choice of oneDNN 3.13 under an ISA cap: the kernel here that yields its bits, and its own name for it.

Observed over some 70,000 convolution and 27,000 matmul problems (docs/numerics.md, "Which implementation"). The choice
depends on types, groups, kernel size and stride, hardly ever on sizes.
"""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.epilogue import Decompression
from simdnn.kernels.common.layouts import ANY_LAYOUTS
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.postops import sums_differ, sums_first, sums_late
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.libraries.model import Pick
from simdnn.libraries.onednn import in_rows, mixed, narrow, older_gemm
from simdnn.libraries.onednn.layouts import by_gemm_for_layouts, named_last, way
from simdnn.libraries.onednn.matmuls import VNNI, by_width, int8_row, is_vector, matmul, plain
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
from simdnn.libraries.onednn.refusals import (
    refuse_float_attributes,
    refuse_gemm,
    refuse_int8_gemm,
    refuse_later_groups,
    refuse_left_out_planes,
    refuse_lost_constants,
    refuse_lost_zero_point,
    refuse_missing,
    refuse_operand_types,
    refuse_scaled_parts,
    refuse_single_pixel,
    refuse_sum_in_gemm,
)
from simdnn.libraries.onednn.sharing import left_to_reference
from simdnn.libraries.onednn.sums import ends_as_reference
from simdnn.libraries.onednn.tiles import (
    AMX,
    leaves_convolution_to_gemm,
    leaves_tiles,
    on_tiles,
    operands_beyond_blocks,
    refuse_errors,
)

_FP16 = "avx10_1_512"  # oneDNN's name of the cap that avx512_core_fp16 sets
#: the caps that differ in their kernels of floats, and of int8, the strongest first
_FLOAT_TIERS = ("avx512_core_bf16", "avx512_core", "avx2")
_INT8_TIERS = ("avx512_core_vnni", "avx512_core", "avx2_vnni", "avx2")
_BF16_BY_DEPTH = ("brdgmm_dw:avx512_core_bf16", "jit_dw:avx512_core_bf16")


def choose(problem: Problem, isa: str, fpmath: str) -> Pick:
    """The row and oneDNN's implementation name for the cap `isa`, under a math mode for f32 data.

    Raises `Unimplemented` where the library refuses the problem, or falls to an emulation that is not modelled here.
    """
    if isinstance(problem, ConvProblem) and problem.layouts != ANY_LAYOUTS:
        _refuse_layouts(problem, isa)
    pick = _by_pairs(Pick(*_choice(problem, isa, fpmath)), implied(isa))
    refuse_operand_types(problem, pick.name, implied(isa))
    if isinstance(problem, ConvProblem) and "brought" in problem.layouts:
        return Pick(pick.row, in_rows.name(problem, pick.name))
    if isinstance(problem, ConvProblem) and not fmt(problem.src).is_float:
        refuse_lost_zero_point(problem, pick.name)
    if pick.name == "jit_int8:avx512_core_vnni" and problem.epilogue.dst == "bf16":
        if "avx512_core_bf16" in implied(isa):
            return Pick(pick.row, "jit_int8:avx512_core_bf16")
        refuse_lost_constants(problem)
    return pick


def _refuse_layouts(p: ConvProblem, isa: str) -> None:
    """Raises for types whose kernels over layouts that a user names are not known, or none."""
    if not way(p, "avx512_core" in implied(isa)):
        return
    types = f"{p.src}:{p.wei}:{p.epilogue.dst}"
    if is_narrow(p.src) or mixed.of_two_floats(p) or p.src == "f16":
        raise Unimplemented(f"what oneDNN takes for {types} over such layouts is not modelled: any, and axb, work")
    if (p.src, p.epilogue.dst) == ("f32", "bf16"):
        raise Unimplemented(f"oneDNN has no convolution {types} over such layouts: any, and axb, work, and f32")


def _by_pairs(pick: Pick, caps: frozenset[str]) -> Pick:
    """The row of a depthwise convolution of bf16 by vdpbf16ps; `brdgmm_dw` leaves that alone where there are tiles
    (`is_slow_bf16_vnni` in its source).
    """
    widens = ("brdgmm_dw:avx512_core_bf16",) if "avx512_core_amx" in caps else ()
    if pick.name not in _BF16_BY_DEPTH or pick.name in widens:
        return pick
    return Pick(f"{pick.row.removesuffix('_stored')}_pairs", pick.name)


def _choice(problem: Problem, isa: str, fpmath: str) -> tuple[str, str]:
    caps = implied(isa)
    if isinstance(problem, ConvProblem) and problem.depth and not _has_own_choice(problem):
        refuse_missing(problem)
        return _deep(problem, caps, isa, _tiled(problem, caps, fpmath))
    if pick := _of_rare_types(problem, caps):
        return pick
    tiled = _tiled(problem, caps, fpmath)
    if isinstance(problem, MatmulProblem) and problem.decompression:
        return tiled or _decompression(problem.decompression, caps, problem.src)
    if isinstance(problem, ConvProblem) and problem.wei_tag != "any":
        raise Unimplemented(f"what oneDNN picks for {problem.wei_tag} weights is not known here: wei_tag='any' works")
    refuse_missing(problem)
    if fmt(problem.src).is_float:
        refuse_float_attributes(problem, caps)
    if isinstance(problem, MatmulProblem) and (row := _by_reference(problem, caps, isa)):
        return row, "ref:any"
    return tiled or _on_vectors(problem, caps, isa)


def _of_rare_types(problem: Problem, caps: frozenset[str]) -> tuple[str, str] | None:
    """The kernel of types that decide alone: narrow ones, and two floating-point types in one product."""
    if isinstance(problem, MatmulProblem) and (problem.narrow or narrow.by_f8(problem)):
        return narrow.choice(problem, caps)
    if isinstance(problem, ConvProblem) and is_narrow(problem.src):
        return narrow.convolution(problem, caps)
    if mixed.of_two_floats(problem):
        refuse_float_attributes(problem, caps)
        return mixed.convolution(problem, caps) if isinstance(problem, ConvProblem) else mixed.choice(problem, caps)
    if isinstance(problem, ConvProblem) and fmt(problem.src).is_float and fmt(problem.wei).bits <= 8:
        raise Unimplemented(
            f"oneDNN refuses convolutions of {problem.src} with {problem.wei} weights under every math "
            "mode: dispatch='fastest' takes them"
        )
    return None


def _by_reference(p: MatmulProblem, caps: frozenset[str], isa: str) -> str:
    """The row of a product that the library leaves to its reference, whatever the core has; "" of another."""
    brgemm = p.src != "bf16" or "avx512_core_bf16" in caps
    by_rows = left_to_reference(p, brgemm)
    if (by_rows or p.epilogue.dst in ("s8", "u8", "f16")) and p.src == "bf16" and "avx512_core" in caps:
        return "gemm:avx512_core_bf16_ref"
    if p.src == "f16" and (by_rows or p.left_to == "gemm"):
        _refuse_halves(p, caps, isa)
        return "gemm:avx512_core_f16_ref"
    return ""


def _on_vectors(problem: Problem, caps: frozenset[str], isa: str) -> tuple[str, str]:
    """The kernel of a problem that no kernel on tiles takes, or the older GEMM on them."""
    _refuse_halves(problem, caps, isa)
    emulated = problem.src == "bf16" and "avx512_core_bf16" not in caps
    if isinstance(problem, ConvProblem) and _referred(problem, emulated):
        return f"ref_conv:{by_width(isa)}", "ref:any"
    if emulated:
        return _emulated(problem)
    if problem.src == "f16":
        return _f16(problem, caps)
    tier = next(c for c in (_FLOAT_TIERS if fmt(problem.src).is_float else _INT8_TIERS) if c in caps)
    if isinstance(problem, MatmulProblem):
        name, library = matmul(problem, tier)
        if library == "brg_matmul:avx512_core_vnni" and "avx512_core_fp16" in caps:
            tiles = "avx512_core_amx" in caps and not leaves_tiles(problem)
            return name, f"brg_matmul:{AMX if tiles else _FP16}"
        return name, library
    return _by_gemm_on_tiles(problem, caps) or _convolution(problem, tier)


def _by_gemm_on_tiles(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str] | None:
    """The older GEMM on AMX tiles, where it takes a convolution."""
    if "avx512_core_amx" not in caps or not leaves_convolution_to_gemm(p):
        return None
    refuse_gemm(p)
    return "conv:avx512_core_amx", "x64:gemm:jit"


def _tiled(p: Problem, caps: frozenset[str], fpmath: str) -> tuple[str, str] | None:
    """The kernel on AMX tiles, where there are any and the library runs the problem on them."""
    several = sums_differ(p.epilogue.post_ops)  # which no kernel takes
    found = on_tiles(p, caps, fpmath) if "avx512_core_amx" in caps and not several else None
    if found and isinstance(p, ConvProblem):
        if _beyond_blocks(p):
            return None
        refuse_errors(p)
    return found


def _beyond_blocks(p: ConvProblem) -> bool:
    """Whether what follows the sums is no kernel's for blocks of a convolution, on tiles or on vectors."""
    if fmt(p.src).is_float:
        return operands_beyond_blocks(p)
    return ends_as_reference(p, "avx512_core_vnni") or by_int8_gemm(p, "avx512_core_vnni")


def _has_own_choice(p: ConvProblem) -> bool:
    """Whether the types of a convolution decide, however many dimensions it has."""
    return is_narrow(p.src) or mixed.of_two_floats(p)


def _decompression(d: Decompression, caps: frozenset[str], src: str) -> tuple[str, str]:
    """The acceptance table, which depends on the math mode, is `simdnn.libraries.onednn.decompress`."""
    if d.computes == ("bf16",):
        return "wdec:avx512_core_bf16", "brg_matmul:avx512_core_bf16"
    if src == "f16":
        return "wdec:avx512_core", f"brg_matmul:{_FP16}"
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    return (f"wdec:{wide}_ref", "ref:any") if d.reference else (f"wdec:{wide}", f"brg_matmul:{wide}")


def _referred(p: ConvProblem, emulated: bool) -> bool:
    """Whether a convolution of floats is left to the reference: its destination, its second operands or a sum is why.

    Older kernels and the GEMM add what the destination held before all else, and as it is; `emulated`: bf16 has no
    others.
    """
    ops, dst = p.epilogue.post_ops, p.epilogue.dst
    if not fmt(p.src).is_float or dst not in ("s8", "u8", "f32", p.src):
        return False
    if way(p) == "reference" or _lost_to_gemm(p, emulated) or sums_differ(ops):
        return True
    bytes_ = dst in ("s8", "u8")
    alone = p.depthwise and p.src != "f16" and (is_dilated(p) or depthwise_by_gemm(p) or p.line and named_last(p))
    large = as_large_as_outputs(p) and p.src != "bf16" and not (alone and single_pixel(p) or vector_of_f32(p))
    if bytes_ and (as_large_as_outputs(p) or not _stores_bytes(p, emulated)) or large:
        refuse_single_pixel(p)
        return True
    if shared_by_axes(p) or p.depthwise and p.src != "f16" and shared_by_pixels(p):
        return True
    planes = p.depth is not None and (emulated or is_dilated(p))
    gemm = planes or depthwise_by_gemm(p) if p.depthwise else by_gemm(p, False)
    older = p.src == "bf16" and (gemm or not p.depthwise and (emulated or groups_by_fours(p, 16)))
    if older and (beyond_older_kernels(p) or not sums_first(ops)):
        return True
    return not sums_first(ops) and (emulated or alone)


def _lost_to_gemm(p: ConvProblem, emulated: bool) -> bool:
    """Whether a GEMM would take it, and its own layout of the other image, or of weights, is another one."""
    images = {p.layouts.src, p.layouts.dst}
    if images != {"last", "any"} and not (images == {"last"} and p.layouts.wei == "any" and as_large_as_outputs(p)):
        return False
    return depthwise_by_gemm(p) if p.depthwise else p.src == "bf16" and by_gemm(p, emulated)


def _stores_bytes(p: ConvProblem, emulated: bool) -> bool:
    """Whether a kernel takes floats to integers: oneDNN's newer ones of f16, and of bf16 but for small groups by fours
    and depthwise ones.
    """
    by_others = p.depthwise or groups_by_fours(p, 16) or by_gemm_for_layouts(p)
    return p.src == "f16" or p.src == "bf16" and not (emulated or by_others)


def _emulated(p: Problem) -> tuple[str, str]:
    """bf16 without AVX512_BF16 (docs/numerics.md, rule 12)."""
    isa = "avx512_core"
    if isinstance(p, MatmulProblem):
        if sums_late(p.epilogue.post_ops):
            return f"gemm:{isa}_bf16_ref", "ref:any"
        refuse_sum_in_gemm(p)
        refuse_scaled_parts(p)
        dots = older_gemm.in_dots(p)
        return f"{'gemv' if dots else 'gemm'}:{isa}_bf16_emulated", "gemm:jit:bf16"
    gemm = p.line or p.depth or is_copied(p) or as_large_as_outputs(p) or by_gemm_for_layouts(p)
    if p.depthwise and not gemm:
        return f"dw:{isa}_bf16_stored", f"jit_dw:{isa}"
    if by_gemm(p, True):
        refuse_gemm(p)
        return f"conv:{isa}_bf16_emulated{'_pixel' * by_vectors(p)}", "x64:gemm:jit"
    return f"conv:{isa}_bf16_emulated", f"jit_bf16{'_1x1' * dense_and_pointwise(p)}:{isa}"


def _f16(problem: Problem, caps: frozenset[str]) -> tuple[str, str]:
    """Products in f32, in the orders of f32, but that vectors are summed in 16 lanes."""
    if isinstance(problem, MatmulProblem):
        vector = f"gemv:avx512_core_f16{plain(problem)}"
        return vector if is_vector(problem) else "gemm:avx512_core_f16", f"brg_matmul:{_FP16}"
    if problem.depthwise:
        name = _depthwise_f16(problem)
        if name in ("brgconv_1x1", "brg_conv_fwd"):
            return _f16_by_taps(problem, caps)
        return "dw:avx512_core_f16", f"{name}:{_FP16}"
    return "conv:avx512_core_f16", f"{brgemm_convolution(problem)}:{_FP16}"


def _f16_by_taps(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str]:
    """Depthwise f16 that a kernel for blocks takes, on tiles where there are some."""
    tiles, name = "avx512_core_amx_fp16" in caps and not before_or_behind(p), brgemm_convolution(p)
    if tiles:
        return "conv:avx512_core_amx_fp16_taps", f"{name}:{AMX}_fp16"
    return "conv:avx512_core_f16_taps", f"{name}:{_FP16}"


def _convolution(p: ConvProblem, tier: str) -> tuple[str, str]:
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
        return int8_row("conv", tier), _int8_gemm(p)
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


def _deep(p: ConvProblem, caps: frozenset[str], isa: str, tiled: tuple[str, str] | None) -> tuple[str, str]:
    """Three spatial dimensions: the choice of two, but for depthwise ones."""
    if p.wei_tag != "any":
        raise _unknown_in_depth(p, isa)
    if fmt(p.src).is_float:
        return _deep_floats(p, caps, isa, tiled)
    tier = next(cap for cap in _INT8_TIERS if cap in caps)
    refuse_missing(p)
    if p.depthwise:
        return _deep_bytes_by_depth(p, tier)
    if tiled:
        return tiled
    if "avx512_core" in caps:
        refuse_left_out_planes(p)
    if (tier, p.src, p.ic) == ("avx512_core", "u8", p.groups) and p.kw > 1 and p.depth and p.depth.i == 1:
        raise _unknown_in_depth(p, isa)  # pairs are made of taps
    return _convolution(p, tier)


def _deep_bytes_by_depth(p: ConvProblem, tier: str) -> tuple[str, str]:
    """Depthwise integers, whose kernels are those of other convolutions here."""
    if tier == "avx2" or ends_as_reference(p, tier) or tier == "avx2_vnni" and is_dilated(p):
        return f"conv:{by_width(tier)}_int8_exact", "ref:any"
    if by_int8_gemm(p, tier):
        return int8_row("conv", tier), _int8_gemm(p)
    return f"conv:{tier}", f"brdgmm_dw:{tier}"


def _int8_gemm(p: ConvProblem) -> str:
    """oneDNN's name of the GEMM that it leaves integers to."""
    refuse_int8_gemm(p)
    return f"x64:gemm_s8{p.src}s32:jit"


def _unknown_in_depth(p: ConvProblem, isa: str) -> Unimplemented:
    return Unimplemented(
        f"what oneDNN picks for this {p.src} in three spatial dimensions under {isa} is not known: wei_tag='any' "
        "works, but for bf16, and u8 that saturates, of one channel a group on a flat image, and dispatch='fastest'"
    )


def _deep_floats(p: ConvProblem, caps: frozenset[str], isa: str, tiled: tuple[str, str] | None) -> tuple[str, str]:
    """Floats: tiles, one chain over planes of the kernel, rows, columns, channels, or what a GEMM or the reference
    does.
    """
    refuse_float_attributes(p, caps)
    _refuse_halves(p, caps, isa)
    if tiled:
        return tiled
    emulated = p.src == "bf16" and "avx512_core_bf16" not in caps
    if _referred(p, emulated):
        return f"ref_conv:{by_width(isa)}", "ref:any"
    tier = next(c for c in _FLOAT_TIERS if c in caps)
    if p.depthwise:
        return _deep_floats_by_depth(p, caps, tier, emulated)
    if emulated:
        return _emulated(p)
    if _pairs_of_taps(p):
        raise _unknown_in_depth(p, isa)  # pairs are made of taps
    if p.src == "f16":
        return "conv:avx512_core_f16", f"{brgemm_convolution(p)}:{_FP16}"
    return _by_gemm_on_tiles(p, caps) or _convolution(p, tier)


def _pairs_of_taps(p: ConvProblem) -> bool:
    """Whether the library makes pairs of a flat image's taps."""
    flat = p.depth is not None and p.depth.i == 1 and p.kw > 1 and not p.turned
    return p.src == "bf16" and p.ic == p.groups and flat and not by_gemm(p, False)


def _deep_floats_by_depth(p: ConvProblem, caps: frozenset[str], tier: str, emulated: bool) -> tuple[str, str]:
    """Depthwise floats, whose kernels are those of other convolutions here."""
    dense = not (p.turned or is_dilated(p) or depthwise_by_gemm(p) or p.epilogue.dst in ("s8", "u8"))
    if p.src == "f16":
        return ("conv:avx512_core_f16", f"brdgmm_dw:{_FP16}") if dense else _f16_by_taps(p, caps)
    if p.layouts.wei == "kept":
        return "conv:avx512_core", f"{brgemm_convolution(p)}:avx512_core"
    if named_last(p) and not dense:
        if p.src != "f32" or tier == "avx2" or is_copied(p):
            raise _refused_by_depth(p)
        return f"conv:{by_width(tier)}", "jit:avx512_core"
    if emulated:
        return _emulated(p)
    if p.src == "bf16":
        return (
            ("conv:avx512_core_bf16_stored", f"brdgmm_dw:{tier}") if dense else (f"conv:{tier}_copied", "x64:gemm:jit")
        )
    return f"conv:{by_width(tier)}", f"brdgmm_dw:{by_width(tier)}" if dense else "x64:gemm:jit"


def _refused_by_depth(p: ConvProblem) -> Unimplemented:
    return Unimplemented(
        f"oneDNN's kernel for this depthwise convolution of {p.src}, channels last, is not modelled: layouts of any "
        "work, and dispatch='fastest'"
    )


def _refuse_halves(p: Problem, caps: frozenset[str], isa: str) -> None:
    """Raises for floats of 16 bits where the library has no products of them."""
    if p.src == "bf16" and "avx512_core" not in caps:
        raise Unimplemented(f"oneDNN has no bf16 under {isa}: use avx512_core_bf16, or f32")
    if p.src == "f16" and "avx512_core_fp16" not in caps:
        raise Unimplemented(f"oneDNN refuses f16 under {isa}: use avx512_core_fp16, or dispatch='fastest'")


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
            raise _refused_by_depth(p)
        if p.dilation == (1, 1) and not (depthwise_by_gemm(p) or odd_bias(p)):
            return f"dw:{isa}", f"brdgmm_dw:{isa}"
        few = named_last(p) and isa == "avx2" and p.groups % 8
        return f"dw:{isa}", "x64:gemm:jit" if depthwise_by_gemm(p) else f"jit{'' if few else '_dw'}:{isa}"
    if ends_as_reference(p, tier):
        return f"dw:{by_width(tier)}_int8_exact", "ref:any"
    if by_int8_gemm(p, tier):
        return f"dw:{tier}_int8", _int8_gemm(p)
    jit = "jit_int8" if "avx512_core" in implied(tier) else "jit_uni_int8"
    brdgmm = tier in VNNI and not jit_with_avx_vnni(p)
    return f"dw:{tier}_int8", f"{'brdgmm_dw' if brdgmm else jit}:{tier}"


def _depthwise_f16(p: ConvProblem) -> str:
    """Whose kernel takes a depthwise convolution of f16."""
    others = p.turned or p.line or shared_by_pixels(p) or p.epilogue.dst in ("s8", "u8")
    if others or p.dilation != (1, 1) and sees_padding_alone(p):
        return brgemm_convolution(p)
    return "brdgmm_dw" if p.dilation == (1, 1) else "jit_dw"
