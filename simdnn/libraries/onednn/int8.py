"""Which form of oneDNN 3.13 takes an integer matmul, by its types, layout and attributes (docs/numerics.md, rule 15).

"brgemm" is brg_matmul without tiles, or below AVX-512 the jit GEMM; "tiles" brg_matmul on AMX; "reference" ref_int8,
which is exact. What follows the sums differs: scales by group and the epilogue of the reference.
"""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.kernels.common.params import Param, Params
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries.model import Form
from simdnn.libraries.onednn.sharing import left_to_reference
from simdnn.libraries.onednn.tiles import leaves_tiles

_NIBBLES = ("s4", "u4")
_FLOATS = ("f32", "bf16")
_WAY_OUT = "dispatch='fastest' takes it"


def form(p: MatmulProblem, params: Params, caps: frozenset[str]) -> Form:
    """How the library takes a matmul of integers with the scales and zero points in `params`.

    Raises `Unimplemented` for what it refuses.
    """
    name = taken_by(p, params, caps)
    if (name, p.wei) != ("brgemm", "s8") or p.wei_tag == "ab":
        _refuse_single_scales(p, params)
    saturates = p.wei == "s8" and name != "reference" and not caps & {"avx512_core_vnni", "avx2_vnni"}
    if saturates and any(not point.common for point in _points(params).values()):
        raise Unimplemented(f"oneDNN adds zero points by group to sums that saturate, not modelled here; {_WAY_OUT}")
    if name == "brgemm":
        _refuse_single_points(params)
    if name in ("brgemm", "tiles"):
        _refuse_stored_scale(params)
    return Form(reference=name == "reference", merged=name == "tiles")


def taken_by(p: MatmulProblem, params: Params, caps: frozenset[str]) -> str:
    """brgemm | gemm | tiles | reference; `Unimplemented` for what the library refuses."""
    _refuse_half_bytes(p, params)
    _refuse_groups(p, params)
    if "avx512_core_fp16" in caps:
        _refuse_half_scales(p, params)
    wide = "avx512_core" in caps
    if _referred_by_bias(p, caps) or left_to_reference(p, bool(caps & {"avx512_core", "avx2_vnni"})):
        return "reference"
    if not wide and "avx2_vnni" not in caps:
        return "reference" if p.wei != "s8" or _left_below_avx512(params) else "brgemm"
    if p.left_to == "gemm":
        return "gemm" if _gemm(p, params) else "reference"
    tiles = "avx512_core_amx" in caps and not leaves_tiles(p)
    if not _common(p, params):
        return "reference"
    if tiles:
        return "tiles" if _tiles(p, params) else "reference"
    if _groups_differ(p, params):
        return "reference"
    if not wide:
        return "brgemm" if _brgemm_of_256_bits(p, params) else "reference"
    return "brgemm" if _brgemm(p, params, "avx512_core_fp16" in caps) else "reference"


def _gemm(p: MatmulProblem, params: Params) -> bool:
    """Whether the older GEMM takes integers where brg_matmul does not take second operands."""
    plain = p.wei == "s8" and not _left_below_avx512(params)
    return plain and not {"f16", "bf16"} & {p.epilogue.dst, p.epilogue.bias_stored}


def _referred_by_bias(p: MatmulProblem, caps: frozenset[str]) -> bool:
    """Whether the type of the bias leaves a matmul to the reference: beside other weights than s8 all but f32 and the
    source's (`check_bias` in brgemm_matmul.cpp), 16 bits below AVX-512, f16 without AVX512_FP16.
    """
    stored = p.epilogue.bias_stored if p.epilogue.bias else "f32"
    if p.wei != "s8":
        return stored not in ("f32", p.src)
    without = stored == "f16" and "avx512_core_fp16" not in caps
    return stored in ("bf16", "f16") and ("avx512_core" not in caps or without)


def _left_below_avx512(params: Params) -> bool:
    return (
        any(p.dtype != "s32" or not p.common for p in _points(params).values())
        or _odd_scales(params)
        or bool(params.along_k)
    )


def _odd_scales(params: Params) -> bool:
    return any(scale.dtype != "f32" for scale in params.scales.values())


def _points(params: Params) -> dict[str, Param]:
    return {name: point for name, point in params.zero_points.items() if name != "dst"}


def _common(p: MatmulProblem, params: Params) -> bool:
    """Whether both forms of brg_matmul take it: no scale a row; where scales or zero points change along K, zero points
    of the types of their data, and beside s8 weights common ones or the weights' alone; by column beside groups.
    """
    if any(found.per_token for found in params.along_k.values()):
        return False
    points = _points(params)
    nibbles, common = p.wei in _NIBBLES, all(found.common for found in points.values())
    if not points or p.wei == "s8" and common and not params.along_k:
        return True
    takes = {"src": nibbles, "wei": p.wei != "u8"}  # several
    own = {"src": p.src, "wei": p.wei}
    by_groups = _by_groups(p, params)
    fits = all(
        found.dtype == own[name]
        and (found.common and (name == "src" or takes[name]) or takes[name] and (found.group or by_groups))
        for name, found in points.items()
    )
    tags = ("any", "ab") if nibbles else ("ab",)
    to = p.epilogue.dst in _FLOATS or common and p.epilogue.dst != "f16"
    return fits and not params.reductions and p.wei_tag in tags and to


def _brgemm(p: MatmulProblem, params: Params, fp16: bool) -> bool:
    """`fp16`: with AVX512_FP16 there are f16 destinations, and 4-bit weights take scales of any type; without it theirs
    are f32, the source's and the destination's of any type. So it is with other weights, where there are groups.
    """
    dst = p.epilogue.dst
    wei = params.scales.get("wei")
    of_weights = wei is not None and wei.dtype != "f32"
    odd = of_weights and not fp16 if _by_groups(p, params) else _odd_scales(params)
    if p.wei == "u8" or odd or dst == "f16" and not fp16:
        return False
    if p.wei == "s8":
        return not (params.along_k and p.src == "s8" and p.wei_tag != "ab")
    by_columns = p.n == 1 or p.wei_tag == "ba" and p.k > 1
    return dst in (*_FLOATS, "f16") and not (p.src == "s8" and by_columns)


def _by_groups(p: MatmulProblem, params: Params) -> bool:
    """Whether a matmul is its "int8 grouped quantization": towards floats, with 4-bit weights or anything in groups."""
    every = [*params.scales.values(), *params.zero_points.values()]
    return p.epilogue.dst in (*_FLOATS, "f16") and (p.wei in _NIBBLES or any(one.group for one in every))


def _groups_differ(p: MatmulProblem, params: Params) -> bool:
    """Whether weights have scales and zero points in groups of different lengths along K."""
    scales, points = params.along_k.get("wei"), _points(params).get("wei")
    if scales is None or points is None or not points.group or not scales.group:
        return False
    return scales.length(p.k) != points.length(p.k)


def _brgemm_of_256_bits(p: MatmulProblem, params: Params) -> bool:
    """Under avx2_vnni no destination has 16 bits; 4-bit weights go from u8 to f32 alone, and have no zero points."""
    dst = p.epilogue.dst
    nibbles = p.wei in _NIBBLES and ((p.src, dst) != ("u8", "f32") or bool(_points(params)))
    return not nibbles and dst not in ("bf16", "f16") and _brgemm(p, params, fp16=False)


def _tiles(p: MatmulProblem, params: Params) -> bool:
    floating, groups = p.epilogue.dst in (*_FLOATS, "f16"), bool(params.along_k)
    wei = params.scales.get("wei")
    if p.wei in _NIBBLES and floating and "src" in params.scales and wei and wei.common and wei.dtype != "f32":
        raise Unimplemented(
            f"oneDNN leaves tiles for a common scale of {wei.dtype} of {p.wei} weights beside one of the source, which "
            f"is not modelled: one by column works, isa='avx512_core_fp16', and {_WAY_OUT}"
        )
    if _odd_scales(params):
        return floating and (groups or p.wei in _NIBBLES)
    return p.wei == "s8" or floating and (groups or p.wei in _NIBBLES)


def _refuse_groups(p: MatmulProblem, params: Params) -> None:
    """The library's groups along K are of 1, of K, or of multiples of 16; for zero points of the source of 32."""
    for kind, given in (("scales", params.along_k), ("zero_points", _points(params))):
        for name, found in given.items():
            least = 32 if (kind, name) == ("zero_points", "src") else 16
            length = found.group or p.k
            if length % least and length not in (1, p.k):
                asked = f"{kind}[{name!r}] in groups of {length} along K={p.k}"
                has = f"it has groups of 1, K and multiples of {least}"
                raise Unimplemented(f"oneDNN has no primitive with {asked}; {has}; {_WAY_OUT}")


def _refuse_single_points(params: Params) -> None:
    """Beside scales in groups its brgemm scales what each group of zero points adds up to; in which order it goes where
    these are of one k is not known.
    """
    for name, point in _points(params).items():
        if params.along_k and point.group == 1:
            raise Unimplemented(
                f"oneDNN cuts sums by zero_points[{name!r}] in groups of 1 beside scales in groups, which is not "
                f"modelled here: groups of 16 work; {_WAY_OUT}"
            )


def _refuse_stored_scale(params: Params) -> None:
    """The library's brgemm reads a scale of the destination as f32, however it is stored."""
    found = params.scales.get("dst")
    if found and found.dtype != "f32":
        raise Unimplemented(
            f"oneDNN reads a destination's scale of {found.dtype} as f32 here, an error of its: f32 works; {_WAY_OUT}"
        )


def _refuse_single_scales(p: MatmulProblem, params: Params) -> None:
    """The library takes groups of one k for none at all, but for those of its own layout of s8 beside vectors."""
    if names := [name for name, found in params.along_k.items() if found.group == 1 and p.k > 1]:
        raise Unimplemented(
            f"oneDNN multiplies whole sums by the last of scales[{names[0]!r}] in groups of 1 along K, or reads past "
            f"them, an error of its; it has groups of multiples of 16; {_WAY_OUT}"
        )


def _refuse_half_scales(p: MatmulProblem, params: Params) -> None:
    """Raise where the library lacks a kernel with AVX512_FP16 that it has under weaker caps."""
    scale, points = params.scales.get("wei"), _points(params).values()
    by_column = scale is not None and (scale.by_channel, scale.group, scale.dtype) == (True, 0, "f16")
    grouped = any(point.group and point.dtype == "s32" for point in points)
    if by_column and grouped and p.epilogue.dst == "f16":
        raise Unimplemented(
            "oneDNN has no primitive with zero points of s32 in groups, scales of f16 by column and an "
            f"f16 destination; it has scales of f32, or other destinations; {_WAY_OUT}"
        )


def _refuse_half_bytes(p: MatmulProblem, params: Params) -> None:
    """The library has no rows with half a byte more, and no single one."""
    run, what = (p.k, "K") if p.wei_tag == "ba" else (p.n, "N")
    if p.wei in _NIBBLES and run % 2 and p.k > 1 and p.n > 1:
        raise Unimplemented(f"oneDNN refuses rows of an odd number ({what}={run}) of {p.wei}; {_WAY_OUT}")
    for name, found in _points(params).items():
        dtype = found.dtype
        if dtype in _NIBBLES and (found.common or name == "wei" and (p.n % 2 or found.group and p.k % 2)):
            raise Unimplemented(
                f"oneDNN refuses zero_points[{name!r}] of {dtype} that are one, odd rows of them (N={p.n}), or groups "
                f"of an odd K={p.k}; {_WAY_OUT}"
            )
