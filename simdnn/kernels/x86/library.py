"""What oneDNN 3.13 picks for a problem under an ISA cap: the kernel here that yields its bits, and its own name for it.

Observed over some 70,000 convolution and 27,000 matmul problems (docs/numerics.md, "Which implementation"). The choice
depends on types, groups, kernel size and stride, hardly ever on sizes.
"""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.spec import ConvProblem, Decompression, MatmulProblem, Problem
from simdnn.kernels.x86.amx import even_parts
from simdnn.kernels.x86.order import above_or_behind, groups_by_fours, jit_with_avx_vnni, sees_padding_alone, unpadded

_FP16 = "avx10_1_512"  # oneDNN's name of the cap that avx512_core_fp16 sets
_AMX = f"{_FP16}_amx"
#: the caps that differ in their kernels of floats, and of int8, the strongest first
_FLOAT_TIERS = ("avx512_core_bf16", "avx512_core", "avx2")
_INT8_TIERS = ("avx512_core_vnni", "avx512_core", "avx2_vnni", "avx2")
_VNNI = ("avx512_core_vnni", "avx2_vnni")
_FIRST_LEVEL = 48 * 1024  # bytes of the first cache of the CPUs that have tiles


def library_choice(problem: Problem, isa: str, fpmath: str = "strict") -> tuple[str, str]:
    """(name in `KERNELS`, oneDNN's implementation name) for the cap `isa`, under a math mode for f32 data.

    Raises `Unimplemented` where the library refuses the problem, or falls to an emulation that is not modelled here.
    """
    caps = implied(isa)
    tiled = _tiles(problem, caps, fpmath) if "avx512_core_amx" in caps else None
    if isinstance(problem, MatmulProblem) and problem.decompression:
        return tiled or _decompression(problem.decompression, caps)
    if isinstance(problem, ConvProblem) and fmt(problem.src).is_float and not fmt(problem.wei).is_float:
        raise Unimplemented(
            f"oneDNN refuses convolutions of {problem.src} with {problem.wei} weights under every math "
            "mode: dispatch='fastest' takes them"
        )
    if isinstance(problem, ConvProblem) and problem.wei_tag != "any":
        raise Unimplemented(f"what oneDNN picks for {problem.wei_tag} weights is not known here: wei_tag='any' works")
    _refuse_missing(problem)
    if fmt(problem.src).is_float:
        _refuse_float_attributes(problem, caps)
    if tiled:
        return tiled
    if problem.src == "bf16" and "avx512_core_bf16" not in caps:
        if "avx512_core" in caps:
            return _emulated(problem)
        raise Unimplemented(f"oneDNN has no bf16 under {isa}: use avx512_core_bf16, or f32")
    if problem.src == "f16":
        if "avx512_core_fp16" not in caps:
            raise Unimplemented(f"oneDNN refuses f16 under {isa}: use avx512_core_fp16, or dispatch='fastest'")
        return _f16(problem)
    tier = next(c for c in (_FLOAT_TIERS if fmt(problem.src).is_float else _INT8_TIERS) if c in caps)
    if isinstance(problem, MatmulProblem):
        name, library = _matmul(problem, tier)
        fp16 = "avx512_core_fp16" in caps and library == "brg_matmul:avx512_core_vnni"
        return name, f"brg_matmul:{_FP16}" if fp16 else library
    return _convolution(problem, tier)


def _refuse_missing(p: Problem) -> None:
    """Raises for types that the library has no primitive for, under any cap."""
    matmul, dst = isinstance(p, MatmulProblem), p.epilogue.dst
    has = ""
    if not matmul and dst == "f16" and p.src != "f16":
        has = "convolutions to f16 from f16 alone, and to f32 from all types"
    if matmul and p.src == "f16" and dst in ("s8", "u8"):
        has = "f16 matmuls to f16 and f32"
    if has:
        what = "matmul" if matmul else "convolution"
        raise Unimplemented(f"oneDNN has no {what} {p.src}:{p.wei}:{dst}; it has {has}; dispatch='fastest' takes it")


def _refuse_float_attributes(problem: Problem, caps: frozenset[str]) -> None:
    """Raises for what may follow floating-point sums here and oneDNN refuses, or does in an order not known."""
    e, types = problem.epilogue, f"{problem.src}:{problem.wei}:{problem.epilogue.dst}"
    if e.dst_zero_point:
        raise Unimplemented(f"oneDNN refuses a destination zero point for {types}: dispatch='fastest' takes it")
    if isinstance(problem, MatmulProblem):
        if problem.src == "bf16" and e.dst in ("s8", "u8"):
            raise Unimplemented(f"oneDNN takes its reference for a matmul {types}, not modelled: use dst f32 or bf16")
        return
    if e.src_scale or e.wei_scale or e.dst_scale:
        raise Unimplemented(f"oneDNN refuses scales of a convolution {types}: dispatch='fastest' takes them")
    if e.dst in ("s8", "u8"):
        raise Unimplemented(f"oneDNN takes its reference for a convolution {types}, not modelled: use dst f32")
    small = problem.groups > 1 and problem.ic // problem.groups <= 16
    if (problem.src, e.dst) == ("f32", "bf16") and (small or "avx512_core" not in caps):
        raise Unimplemented(f"oneDNN refuses {types} below avx512_core, and groups of up to 16 channels: use dst f32")


def _tiles(p: Problem, caps: frozenset[str], fpmath: str) -> tuple[str, str] | None:
    """What runs on AMX tiles. None where it takes another unit: depthwise and small groups, scales along K, vectors and
    small problems (rule 14), f32 computed in f32.
    """
    isa = "avx512_core_amx"
    if isinstance(p, MatmulProblem):
        family, base = "gemm", "brg_matmul"
        if p.group_scales or p.zero_points or p.reference:
            return None
        if p.decompression:
            return (f"wdec:{isa}", f"{base}:{_AMX}") if p.decompression.computes == ("bf16",) else None
        if _too_small_for_tiles(p):
            return None
        if p.src == "bf16" and p.n >= 96 and p.k >= 128 and even_parts(p.k):
            raise Unimplemented(f"how oneDNN cuts K = {p.k} for tiles depends on its caches there: N below 96 works")
    else:
        if p.depthwise or p.wei_tag != "any" or _not_for_tiles(p):
            return None
        family, base = "conv", "brgconv_1x1" if _pointwise(p) else "brg_conv_fwd"
        if p.src == "bf16":
            _refuse_gathered(p)
        if p.src == "f32" and fpmath in ("bf16", "any"):
            ic = p.ic // p.groups
            if _pointwise(p) and ic < 64 and ic % 32:
                return None
            raise Unimplemented("oneDNN rounds f32 to bf16 here, for tiles in an order not known: bf16 data works")
    if p.src == "f16":
        isa = "avx512_core_amx_fp16"
        return (f"{family}:{isa}", f"{base}:{_AMX}_fp16") if isa in caps else None
    if p.src == "f32" and fpmath not in ("bf16", "any"):
        return None
    if isinstance(p, MatmulProblem) and p.wei in ("s4", "u4"):
        _refuse_raw(p, tiles=True)
    suffix = {"f32": "_down", "bf16": ""}.get(p.src, "_int8")
    return f"{family}:{isa}{suffix}", f"{base}:{_AMX}"


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
    most = _FIRST_LEVEL // 2 if _pointwise(p) else _FIRST_LEVEL
    if above_or_behind(p) or (p.oh * p.ow <= 4 and ic <= 512 and p.mb * p.groups * ic * oc <= most):
        return True
    row = 512 // fmt(p.src).bits
    if not _pointwise(p) or p.src == "f32":
        return False
    return (p.groups > 1 and ic > row and ic % row > 0) or (p.src != "bf16" and ic % 4 > 0 and p.strides == (1, 1))


def _refuse_gathered(p: ConvProblem) -> None:
    """Raises where the library makes channels of kernel columns, or of whole kernels, for tiles of bf16 (rule 14)."""
    ic = p.ic // p.groups

    def gathers(taps: int) -> bool:
        k, row = taps * ic, 32
        whole = ic % 2 == 0 and (k <= row or k % row == 0)  # weights need not be brought into another order
        light = p.oc // p.groups * p.kh * p.kw <= 4 * p.mb * p.ih * p.iw
        filled = -(-k // row) / (taps * -(-ic // row))
        return taps > 1 and (ic < row // 2 or (k > row and filled < 0.5 and (whole or light)))

    columns = p.kw > 1 and p.dilation[1] == 1 and gathers(p.kw)
    windows = p.kh > 1 and p.dilation == (1, 1) and gathers(p.kh * p.kw) and (p.ow > 48 or p.ow % 16 == 0)
    if columns or windows:
        raise Unimplemented(
            f"oneDNN makes channels of kernel columns where tiles meet {ic} channels, which is not modelled: "
            "16 channels or more work, or isa='avx512_core_bf16'"
        )


def _pointwise(p: ConvProblem) -> bool:
    return (p.kh, p.kw) == (1, 1) and unpadded(p)


def _decompression(d: Decompression, caps: frozenset[str]) -> tuple[str, str]:
    """The acceptance table, which depends on the math mode, is `simdnn.primitives.decompress.library`."""
    if d.computes == ("bf16",):
        return "wdec:avx512_core_bf16", "brg_matmul:avx512_core_bf16"
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    return (f"wdec:{wide}_ref", "ref:any") if d.reference else (f"wdec:{wide}", f"brg_matmul:{wide}")


def _emulated(p: Problem) -> tuple[str, str]:
    """bf16 without AVX512_BF16 (docs/numerics.md, rule 12)."""
    isa = "avx512_core"
    if isinstance(p, MatmulProblem):
        dots = p.m > 1 if p.n == 1 else p.m == 1 and p.wei_tag == "ba"
        return f"{'gemv' if dots else 'gemm'}:{isa}_bf16_emulated", "gemm:jit:bf16"
    _refuse_copied(p)
    if p.depthwise:
        return f"dw:{isa}_bf16_stored", f"jit_dw:{isa}"
    return f"conv:{isa}_bf16_emulated", f"jit_bf16{'_1x1' if _pointwise(p) else ''}:{isa}"


def _refuse_copied(p: ConvProblem) -> None:
    """Raises where the kernels that take no tap window wholly in the padding leave a problem to a GEMM."""
    if sees_padding_alone(p):
        raise Unimplemented("oneDNN takes a GEMM over a copy of the image, in an order not known: less padding works")


def _f16(problem: Problem) -> tuple[str, str]:
    """Products in f32, in the orders of f32, but that vectors are summed in 16 lanes."""
    if isinstance(problem, MatmulProblem):
        vector = f"gemv:avx512_core_f16{_plain(problem)}"
        return vector if 1 in (problem.m, problem.n) else "gemm:avx512_core_f16", f"brg_matmul:{_FP16}"
    if problem.depthwise:
        copied = problem.dilation != (1, 1) and sees_padding_alone(problem)
        base = "brg_conv_fwd" if copied else "brdgmm_dw" if problem.dilation == (1, 1) else "jit_dw"
        return "dw:avx512_core_f16", f"{base}:{_FP16}"
    return "conv:avx512_core_f16", f"{'brgconv_1x1' if _pointwise(problem) else 'brg_conv_fwd'}:{_FP16}"


def _wide(tier: str) -> str:
    """The cap of the kernels that need no more than registers of a tier's width."""
    return "avx512_core" if "avx512_core" in implied(tier) else "avx2"


def _plain(p: MatmulProblem) -> str:
    """How the kernel of a vector is called where lanes run over N."""
    return "_plain" if p.n > 1 and p.wei_tag == "ab" else ""


def _matmul(p: MatmulProblem, tier: str) -> tuple[str, str]:
    vector = 1 in (p.m, p.n)
    plain = _plain(p)
    if p.src == "f32":
        if p.epilogue.dst != "f32":
            return f"gemm:{'avx2' if tier == 'avx2' else 'avx512_core'}_ref", "ref:any"
        if vector:
            return f"gemv:avx2{plain}", "brg_matmul:avx2"
        wide = "avx2" if tier == "avx2" else "avx512_core"
        return f"gemm:{wide}", f"brg_matmul:{wide}"
    if p.src == "bf16":
        kind = f"gemv:{tier}{plain and plain + '_bf16'}" if vector else f"gemm:{tier}"
        return kind, f"brg_matmul:{tier}"
    reference = p.reference or bool(p.group_scales and p.group_scales.reference)
    if p.wei in ("s4", "u4") and not reference:
        _refuse_raw(p)
    library = "ref_int8:any" if reference else f"brg_matmul:{tier}"
    if p.zero_points or (p.group_scales and (p.wei == "u8" or p.epilogue.dst == "s32" or p.group_scales.group % 4)):
        return f"ref_int8:{_wide(tier)}", library
    if reference:
        return f"{_int8('gemm', tier)}{'' if tier in _VNNI else '_exact'}", library
    if tier == "avx2":
        if p.epilogue.dst == "bf16":
            return "gemm:avx2_int8_exact", "ref_int8:any"
        exact = p.src == "s8" and (p.epilogue.zp_src or p.epilogue.zp_wei)
        return ("gemm:avx2_int8_exact" if exact else "gemm:avx2_int8"), "gemm:jit"
    return _int8("gemm", tier), library


def _refuse_raw(p: MatmulProblem, tiles: bool = False) -> None:
    """Raises where the library leaves the bits of s32 sums in an f32 destination."""
    e = p.epilogue
    later = e.bias or e.post_ops or e.src_scale or e.wei_scale or e.dst_scale or p.group_scales
    if e.dst == "f32" and not later and (p.src == "u8" or tiles):
        raise Unimplemented(
            f"oneDNN 3.13 leaves bits of s32 in the f32 output of {p.src} x {p.wei} without scales; "
            "with scales, dst='s32' or dispatch='fastest' it works"
        )


def _int8(family: str, tier: str) -> str:
    return f"{family}:{tier}" if tier in _VNNI else f"{family}:{tier}_int8"


def _convolution(p: ConvProblem, tier: str) -> tuple[str, str]:
    ic, oc = p.ic // p.groups, p.oc // p.groups
    pointwise = _pointwise(p)
    small, by_fours = p.groups > 1 and ic <= 16, groups_by_fours(p, 16)
    integer = not fmt(p.src).is_float
    if p.depthwise:
        return _depthwise(p, tier)
    base = "brgconv_1x1" if pointwise else "brg_conv_fwd"
    if not integer:
        if p.src == "bf16":
            if by_fours:
                _refuse_copied(p)
            return f"conv:{tier}", (f"jit_bf16:{tier}" if by_fours else f"{base}:{tier}")
        wide = "avx2" if tier == "avx2" or (small and not by_fours) else "avx512_core"
        jit = by_fours and wide != "avx2"
        return f"conv:{wide}", f"jit:{wide}" if jit else f"{base}:{wide}"
    if _wide(tier) == "avx2" and p.epilogue.dst == "bf16":
        return "conv:avx2_int8_exact", "ref:any"
    if tier == "avx2":
        if p.groups > 1 and (ic % 4 or oc % 4):
            return "conv:avx2_int8_exact", "ref:any"
        one = pointwise and p.strides == (1, 1) and p.groups == 1
        return "conv:avx2_int8", "jit_uni_int8_1x1:avx2" if one else "jit_uni_int8:avx2"
    if tier == "avx2_vnni":
        return "conv:avx2_vnni", f"{'jit_uni_int8' if jit_with_avx_vnni(p) else base}:{tier}"
    if by_fours:
        base = "jit_int8_1x1" if pointwise and p.strides == (1, 1) else "jit_int8"
    return _int8("conv", tier), f"{base}:{tier}"


def _depthwise(p: ConvProblem, tier: str) -> tuple[str, str]:
    if p.src in ("f32", "bf16"):
        isa = "avx2" if tier == "avx2" else tier if p.src == "bf16" else "avx512_core"
        if p.dilation == (1, 1):
            return f"dw:{isa}", f"brdgmm_dw:{isa}"
        _refuse_copied(p)
        return f"dw:{isa}", f"jit_dw:{isa}"
    if _wide(tier) == "avx2" and p.epilogue.dst == "bf16":
        return "dw:avx2_int8_exact", "ref:any"
    jit = "jit_int8" if tier == "avx512_core" else "jit_uni_int8"
    brdgmm = tier == "avx512_core_vnni" or tier == "avx2_vnni" and not jit_with_avx_vnni(p)
    return f"dw:{tier}_int8", f"{'brdgmm_dw' if brdgmm else jit}:{tier}"
