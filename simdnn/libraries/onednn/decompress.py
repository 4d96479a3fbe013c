"""How oneDNN 3.13 takes a matmul over compressed weights (docs/numerics.md, rule 10).

It reads a math mode otherwise than dispatch by cost does: mode bf16 with an f32 source goes to its reference, in f32.
"""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries.model import Form
from simdnn.libraries.onednn.refusals import refuse_float_bias
from simdnn.libraries.onednn.tile_cuts import compressed_copy_is_small

_NIBBLES = ("s4", "u4")
_BLOCK = 32  # k that its copies bring together
_WAY_OUT = "dispatch='fastest' takes it"


def form(p: MatmulProblem, mode: str, scale: Param | None, point: Param | None, caps: frozenset[str]) -> Form:
    """The type that the library computes in under a math mode, and whether its reference does it.

    Raises `Unimplemented` for what it was seen to refuse.
    """
    _refuse(p, mode, scale, point, caps)
    refuse_float_bias(p)
    found = _taken_by(p, mode, scale, point, caps)
    if found.reference and p.epilogue.dst_zero_point:
        raise Unimplemented(
            f"oneDNN's reference takes {p.src}:{p.wei}:{p.epilogue.dst} with fpmath {mode!r} here, and no zero point "
            f"of a destination; {_WAY_OUT}"
        )
    if not found.reference and point and point.dtype in _NIBBLES and p.wei not in _NIBBLES:
        raise Unimplemented(
            f"oneDNN reads zero points of {point.dtype} beside {p.wei} weights wrong, off by some hundredths of the "
            f"largest output; allowed: zero points of s32, s8 and u8; {_WAY_OUT}"
        )
    if not found.reference:
        _refuse_split_groups(p, found.compute, scale, point, caps)
        _refuse_scales_of_a_rest(p, scale)
    return found


def _refuse_scales_of_a_rest(p: MatmulProblem, scale: Param | None) -> None:
    """Raises where weights have k contiguous, 2 to 15 of them beyond 16s, and scales of bf16 in one group of all."""
    if p.wei_tag == "ba" and scale and scale.group == p.k and scale.dtype == "bf16" and p.k % 16 > 1:
        raise Unimplemented(
            f"oneDNN gets {p.src} by {p.wei} (ba) wrong with scales of bf16 in a group of K={p.k}: multiples of 16, "
            f"scales of f32 or f16, and scales by column without groups work; {_WAY_OUT}"
        )


def _refuse_split_groups(
    p: MatmulProblem, compute: str, scale: Param | None, point: Param | None, caps: frozenset[str]
) -> None:
    """Raises where a block of 32 k has two groups, and weights are copied in pairs, which errs: those with k contiguous
    on tiles, or where K has whole blocks alone; others on tiles where K has not.
    """
    if compute == "f32":
        return
    cap = "avx512_core_amx" if compute == "bf16" else "avx512_core_amx_fp16"
    tiles, whole = cap in caps and not compressed_copy_is_small(p, scale, point), p.k % _BLOCK == 0
    if not (tiles or whole) if p.wei_tag == "ba" else whole or not tiles:
        return
    for group in [one.group for one in (scale, point) if one and one.group]:
        if group % _BLOCK and group not in (1, _BLOCK // 2, p.k):
            raise Unimplemented(
                f"oneDNN's sums of {p.src} by {p.wei} ({p.wei_tag}) in groups of {group} of K={p.k} are wrong, and "
                f"others in each run: groups of 16, and multiples of {_BLOCK}, work; {_WAY_OUT}"
            )


def _taken_by(p: MatmulProblem, mode: str, scale: Param | None, point: Param | None, caps: frozenset[str]) -> Form:
    dst = p.epilogue.dst
    if p.left_to in ("gemm", "reference"):  # its GEMMs take no compressed weights
        return Form(True, compute="f32")
    stored = scale.dtype if scale else "f32"
    if scale and point and scale.group and point.group and scale.group != point.group:
        return Form(True, compute="f32")
    if p.src == "f32":
        return Form(not (mode in ("strict", "any") and dst == stored == p.epilogue.bias_stored == "f32"), compute="f32")
    if p.src == "f16":
        return Form(compute="f16" if "avx512_core_amx_fp16" in caps else "f32")
    tiles = "avx512_core_amx" in caps and not compressed_copy_is_small(p, scale, point)
    types = ("f32", "bf16", "f16") if tiles else ("f32", "bf16")  # of scales
    fast = "avx512_core_bf16" in caps and dst in ("f32", "bf16") and stored in types
    fast = fast and p.epilogue.bias_stored in ("f32", "bf16")
    return Form(compute="bf16") if fast else Form(True, compute="f32")


def _refuse(p: MatmulProblem, mode: str, scale: Param | None, point: Param | None, caps: frozenset[str]) -> None:
    types = f"{p.src}:{p.wei}:{p.epilogue.dst} with fpmath {mode!r}"
    what = f"oneDNN refuses {types}"
    if p.src == "f16" and "avx512_core_fp16" in caps:
        if mode not in ("f16", "any") or p.epilogue.dst not in ("f16", "f32"):
            raise Unimplemented(f"{what}: it takes f16 sources in modes 'f16' and 'any', to f16 and f32; {_WAY_OUT}")
    elif p.src == "f16":
        raise Unimplemented(f"{what}: it decompresses for f32 and bf16 sources; {_WAY_OUT}")
    if p.src == "bf16" and mode not in ("bf16", "any"):
        raise Unimplemented(f"{what}: a bf16 source needs 'bf16' or 'any'; {_WAY_OUT}")
    if p.src == "bf16" and "avx512_core" not in caps:
        raise Unimplemented(f"{what} below avx512_core; {_WAY_OUT}")
    if p.src == "f16" and p.epilogue.bias_stored == "bf16":
        raise Unimplemented(
            f"oneDNN's reference takes {types} and a bias of bf16, which is not modelled: biases of f32 and f16 work; "
            f"{_WAY_OUT}"
        )
    if point and point.common and point.dtype in _NIBBLES:
        raise Unimplemented(f"oneDNN refuses a common zero point of {point.dtype}; allowed: s32, s8, u8; {_WAY_OUT}")
    _refuse_shared(p, mode, scale, point, what)
    for group in [one.group for one in (scale, point) if one and one.group]:
        if group % 16 and group not in (1, p.k):
            raise Unimplemented(f"oneDNN refuses groups of {group}; allowed: multiples of 16, 1, or K; {_WAY_OUT}")
    if point and point.group and point.dtype in _NIBBLES and p.k % 2:
        raise Unimplemented(f"{what}, zero points of {point.dtype} in groups, and an odd K={p.k}; {_WAY_OUT}")
    run, along = (p.k, "K") if p.wei_tag == "ba" else (p.n, "N")
    if p.wei in _NIBBLES and run % 2 and p.n > 1 and p.k > 1:
        raise Unimplemented(f"oneDNN refuses rows of an odd number ({along}={run}) of {p.wei}; {_WAY_OUT}")
    if point and point.dtype in _NIBBLES and p.n % 2:
        raise Unimplemented(f"oneDNN refuses zero points of {point.dtype} in odd rows (N={p.n}); {_WAY_OUT}")


def _refuse_shared(p: MatmulProblem, mode: str, scale: Param | None, point: Param | None, what: str) -> None:
    """Raises for values shared by all columns. The library takes one zero point for all of K, where no reference
    computes, and reads others than it was given where there are several.
    """
    shared = [one for one in (scale, point) if one and one.group and not one.by_channel]
    alone = point and shared == [point] and point.group == p.k and point.dtype not in _NIBBLES
    reference = p.src == "f32" and (mode not in ("strict", "any") or p.epilogue.dst != "f32")
    if shared and (not alone or reference or scale and (scale.group or scale.dtype != "f32")):
        raise Unimplemented(f"{what} and values shared by all columns, or answers it otherwise; {_WAY_OUT}")
