"""The choice of oneDNN 3.13 for floats of 8 bits and fewer on CPUs (docs/numerics.md, rule 16), and its refusals.

Nearly all is left to its reference implementation; bf16 by f8 weights alone has a kernel, on tiles.
"""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem

_INTEGERS = ("s8", "u8", "s4", "u4")
F8 = ("f8_e4m3", "f8_e5m2")
_FASTEST = "dispatch='fastest' takes it"
_WIDE = ("f32", "bf16", "f16")


def convolution(p: ConvProblem, caps: frozenset[str]) -> tuple[str, str]:
    """The row and oneDNN's name for a convolution of narrow floats."""
    types = f"{p.src}:{p.wei}:{p.epilogue.dst}"
    if p.src not in F8:
        raise Unimplemented(f"oneDNN refuses a convolution {types}: f8 it has with avx512_core_fp16; {_FASTEST}")
    if "avx512_core_fp16" not in caps:
        raise Unimplemented(f"oneDNN refuses a convolution {types}: f8 needs avx512_core_fp16")
    if p.epilogue.dst not in ("f32", p.src, "s8", "u8"):
        raise Unimplemented(f"oneDNN's convolution {types} is not known here: dst f32, {p.src}, s8 or u8 works")
    if p.epilogue.bias_stored not in ("f32", p.src):
        raise Unimplemented(f"oneDNN refuses a bias of {p.epilogue.bias_stored} of a convolution {types}: f32 works")
    return "ref_conv:avx512_core", "ref:any"


def by_f8(p: MatmulProblem) -> bool:
    """Whether bf16 meets f8 weights."""
    return p.src == "bf16" and p.wei in F8


def choice(p: MatmulProblem, caps: frozenset[str]) -> tuple[str, str]:
    """The row and oneDNN's name for a problem with `narrow`; raises `Unimplemented` for what it refuses."""
    types = f"{p.src}:{p.wei}:{p.epilogue.dst}"
    if by_f8(p):
        return _on_tiles(p, types, caps)
    assert p.narrow
    if reason := _refused(p, caps):
        raise Unimplemented(f"oneDNN refuses a matmul {types}: {reason}; {_FASTEST}")
    for name, param in (("src", p.narrow.src), ("wei", p.narrow.wei)):
        if param and (reason := _refused_scale(param, p.k)):
            raise Unimplemented(f"oneDNN refuses scales[{name!r}] of a matmul {types}: {reason}; {_FASTEST}")
    if p.narrow.dynamic and p.epilogue.dst in _WIDE:
        raise Unimplemented(f"{p.narrow.dynamic} scales of a destination of {p.epilogue.dst}: not known here; f8 works")
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    return f"ref_float:{wide}", "ref:any"


def _refused(p: MatmulProblem, caps: frozenset[str]) -> str:
    """Why the library has no such product; empty where it has."""
    if fmt(p.src).is_float and fmt(p.src).bits < 8 or fmt(p.wei).is_float and fmt(p.wei).bits < 8:
        return "it takes no floats of fewer than 8 bits as source or weights"
    if p.src in F8:
        if "avx512_core_fp16" not in caps:
            return "f8 sources need avx512_core_fp16"
        if p.wei not in (p.src, "bf16", "f16", *_INTEGERS):
            return f"f8 sources go with weights of their own type, bf16, f16 and integers, not {p.wei}"
        return ""
    if p.wei in F8:
        return f"f8 weights go with sources of f8 and bf16, not {p.src}"
    if p.src == "f16":
        return "f16 sources have no destination of fewer bits"
    if p.wei in _WIDE and p.epilogue.bias_stored not in ("f32", p.wei):
        return f"a bias is of f32 or of the type of {p.wei} weights"
    if p.src == "bf16" and ("avx512_core" not in caps or p.wei not in ("bf16", *_INTEGERS)):
        return "bf16 sources need avx512_core, and weights of bf16 or integers"
    return ""


def _refused_scale(param: Param, k: int) -> str:
    """Why a scale of a source or of weights cannot be had; empty where it can."""
    if param.per_token:
        return "by row without groups; groups=(1, K) it has"
    if param.group % 16 and param.group != k:
        return f"groups of {param.group}, no multiple of 16"
    if param.common and fmt(param.dtype).bits == 8:
        return f"a common one of {param.dtype}"
    return ""


def _on_tiles(p: MatmulProblem, types: str, caps: frozenset[str]) -> tuple[str, str]:
    """bf16 by f8 weights, which become bf16."""
    scale, reason = p.decompression and p.decompression.scale, ""
    if "avx512_core_amx" not in caps:
        reason = "bf16 by f8 needs avx512_core_amx"
    elif p.wei_tag != "any":
        reason = "bf16 by f8 wants weights in its own layout (wei_tag='any')"
    elif p.epilogue.dst not in _WIDE or p.narrow:
        reason = "bf16 by f8 has destinations of f32, bf16 and f16 alone"
    elif scale and (scale.along_k or scale.dtype != "f32"):
        reason = "bf16 by f8 has common scales of f32, and of weights one a column"
    if not reason and p.batch.count > 1:
        raise Unimplemented(
            f"a batch of matmuls {types} on tiles: its bits were compared for single ones; one matrix of weights "
            "works, or dispatch='fastest'"
        )
    if reason:
        raise Unimplemented(f"oneDNN refuses a matmul {types}: {reason}; {_FASTEST}")
    return "wdec:avx512_core_amx", "brg_matmul:avx10_1_512_amx"
