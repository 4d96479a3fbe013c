"""Problems that oneDNN 3.13 runs on AMX tiles, and those left to the vector unit there (docs/numerics.md, rule 14)."""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.spec import ConvProblem, MatmulProblem, Problem
from simdnn.libraries.onednn.order import above_or_behind, brgemm_convolution, pointwise
from simdnn.libraries.onednn.refusals import refuse_raw
from simdnn.libraries.onednn.sums import FIRST_LEVEL, even_parts

_AMX = "avx10_1_512_amx"  # oneDNN's name of the cap


def on_tiles(p: Problem, caps: frozenset[str], fpmath: str) -> tuple[str, str] | None:
    """The kernel that runs on AMX tiles. None where it takes another unit: depthwise and small groups, scales along K,
    vectors and small problems (rule 14), f32 computed in f32.
    """
    isa = "avx512_core_amx"
    if isinstance(p, MatmulProblem):
        family, base = "gemm", "brg_matmul"
        if fmt(p.src).is_float and (p.layouts.src, p.layouts.wei) != ("any", "any"):
            raise Unimplemented("how oneDNN cuts K for tiles over such layouts is not modelled: any, and ab, work")
        if p.group_scales or p.zero_points or p.reference:
            return None
        if p.decompression:
            in_bf16 = p.decompression.computes == ("bf16",)
            return (f"wdec:{isa}", f"{base}:{_AMX}") if in_bf16 and not _decompressed_on_vectors(p) else None
        if _too_small_for_tiles(p):
            return None
        if p.src == "bf16" and p.n >= 96 and p.k >= 128 and even_parts(p.k):
            raise Unimplemented(f"how oneDNN cuts K = {p.k} for tiles depends on its caches there: N below 96 works")
    else:
        if p.depthwise or p.wei_tag != "any" or _not_for_tiles(p):
            return None
        family, base = "conv", brgemm_convolution(p)
        if p.src == "f32" and fpmath in ("bf16", "any"):
            ic = p.ic // p.groups
            if pointwise(p) and ic < 64 and ic % 32:
                return None
            raise Unimplemented("oneDNN rounds f32 to bf16 here, for tiles in an order not known: bf16 data works")
    if p.src == "f16":
        isa = "avx512_core_amx_fp16"
        return (f"{family}:{isa}", f"{base}:{_AMX}_fp16") if isa in caps else None
    if p.src == "f32" and fpmath not in ("bf16", "any"):
        return None
    if isinstance(p, MatmulProblem) and p.wei in ("s4", "u4"):
        refuse_raw(p, tiles=True)
    suffix = {"f32": "_down", "bf16": ""}.get(p.src, "_int8")
    return f"{family}:{isa}{suffix}", f"{base}:{_AMX}"


def _decompressed_on_vectors(p: MatmulProblem) -> bool:
    """Whether the library leaves compressed weights beside a bf16 source to the vector unit: a single row, and plain
    weights of a product that is too small.
    """
    return p.m == 1 or p.wei_tag != "any" and _too_small_for_tiles(p)


def _too_small_for_tiles(p: MatmulProblem) -> bool:
    """Whether the library leaves a matmul to the vector unit (rule 14)."""
    if p.src == "s8":
        return False
    if p.src == "bf16":
        tiles = -(-p.m // 16)  # blocks are of two tiles of rows
        rows = p.m if p.m <= 32 else 2 * -(-p.m // tiles)
        return 1 in (p.m, p.n) or (p.k < 32 and 2 * rows * p.k <= 126)
    if p.src == "f32" and (1 in (p.m, p.n) or p.epilogue.dst != "f32" or (p.m < 8 and p.wei_tag == "any")):
        return True
    return leaves_tiles(p.src, p.m, p.n, p.k)


def leaves_tiles(src: str, m: int, n: int, k: int) -> bool:
    """Whether a matmul of integers, or of f32, is too small for tiles (rule 14)."""
    return src != "s8" and ((m == 1 and k == 256) or (m <= 32 and m * n <= 256) or k <= 16)


def _not_for_tiles(p: ConvProblem) -> bool:
    """Whether the library leaves a convolution to the vector unit: few outputs, or a kernel in the padding above or
    behind the image (rule 14).
    """
    ic, oc = p.ic // p.groups, p.oc // p.groups
    most = FIRST_LEVEL // 2 if pointwise(p) else FIRST_LEVEL
    if above_or_behind(p) or (p.oh * p.ow <= 4 and ic <= 512 and p.mb * p.groups * ic * oc <= most):
        return True
    row = 512 // fmt(p.src).bits
    if not pointwise(p) or p.src == "f32":
        return False
    return (p.groups > 1 and ic > row and ic % row > 0) or (p.src != "bf16" and ic % 4 > 0 and p.strides == (1, 1))
