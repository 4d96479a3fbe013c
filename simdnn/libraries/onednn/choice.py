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
from simdnn.kernels.common.postops import sums_differ, sums_late
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.libraries.model import Pick
from simdnn.libraries.onednn import in_rows, mixed, narrow, older_gemm
from simdnn.libraries.onednn.convolutions import (
    FLOAT_TIERS,
    FP16,
    INT8_TIERS,
    by_gemm_on_tiles,
    convolution,
    emulated,
    of_f16,
    referred,
)
from simdnn.libraries.onednn.deep_convolutions import deep_convolution
from simdnn.libraries.onednn.layouts import way
from simdnn.libraries.onednn.matmuls import by_width, is_vector, matmul, plain
from simdnn.libraries.onednn.order import by_int8_gemm
from simdnn.libraries.onednn.refusals import (
    refuse_float_attributes,
    refuse_halves,
    refuse_lost_constants,
    refuse_lost_zero_point,
    refuse_missing,
    refuse_operand_types,
    refuse_scaled_parts,
    refuse_sum_in_gemm,
)
from simdnn.libraries.onednn.sharing import left_to_reference
from simdnn.libraries.onednn.sums import ends_as_reference
from simdnn.libraries.onednn.tiles import AMX, leaves_tiles, on_tiles, operands_beyond_blocks, refuse_errors

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
        return deep_convolution(problem, caps, isa, _tiled(problem, caps, fpmath))
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
        refuse_halves(p, caps, isa)
        return "gemm:avx512_core_f16_ref"
    return ""


def _on_vectors(problem: Problem, caps: frozenset[str], isa: str) -> tuple[str, str]:
    """The kernel of a problem that no kernel on tiles takes, or the older GEMM on them."""
    refuse_halves(problem, caps, isa)
    without_bf16 = problem.src == "bf16" and "avx512_core_bf16" not in caps
    if isinstance(problem, ConvProblem) and referred(problem, without_bf16):
        return f"ref_conv:{by_width(isa)}", "ref:any"
    if without_bf16:
        return emulated(problem) if isinstance(problem, ConvProblem) else _emulated(problem)
    if problem.src == "f16":
        return of_f16(problem, caps) if isinstance(problem, ConvProblem) else _f16(problem)
    tier = next(cap for cap in (FLOAT_TIERS if fmt(problem.src).is_float else INT8_TIERS) if cap in caps)
    if isinstance(problem, ConvProblem):
        return by_gemm_on_tiles(problem, caps) or convolution(problem, tier)
    name, library = matmul(problem, tier)
    if library == "brg_matmul:avx512_core_vnni" and "avx512_core_fp16" in caps:
        tiles = "avx512_core_amx" in caps and not leaves_tiles(problem)
        return name, f"brg_matmul:{AMX if tiles else FP16}"
    return name, library


def _emulated(p: MatmulProblem) -> tuple[str, str]:
    """bf16 without AVX512_BF16 (docs/numerics.md, rule 12)."""
    if sums_late(p.epilogue.post_ops):
        return "gemm:avx512_core_bf16_ref", "ref:any"
    refuse_sum_in_gemm(p)
    refuse_scaled_parts(p)
    return f"{'gemv' if older_gemm.in_dots(p) else 'gemm'}:avx512_core_bf16_emulated", "gemm:jit:bf16"


def _f16(p: MatmulProblem) -> tuple[str, str]:
    """Products in f32, in the orders of f32, but that vectors are summed in 16 lanes."""
    return f"gemv:avx512_core_f16{plain(p)}" if is_vector(p) else "gemm:avx512_core_f16", f"brg_matmul:{FP16}"


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
        return "wdec:avx512_core", f"brg_matmul:{FP16}"
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    return (f"wdec:{wide}_ref", "ref:any") if d.reference else (f"wdec:{wide}", f"brg_matmul:{wide}")
