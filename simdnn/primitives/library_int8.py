"""Which form of oneDNN 3.13 takes an integer matmul, by its types, layout and attributes (docs/numerics.md, rule 15).

"brgemm" is brg_matmul without tiles, or below AVX-512 the jit GEMM; "tiles" brg_matmul on AMX; "reference" ref_int8,
which is exact. What follows the sums differs: `groups.group_scales` and the epilogue's `reference` read the form.
"""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.kernels.x86.library import leaves_tiles
from simdnn.primitives.attr import Attr
from simdnn.primitives.groups import along_k, length_of
from simdnn.primitives.resolve import Placed, Shape, placed

_NIBBLES = ("s4", "u4")
_FLOATS = ("f32", "bf16")
_WAY_OUT = "dispatch='fastest' takes it"


def form(attr: Attr, shape: Shape, dst: str, tag: object, caps: frozenset[str]) -> str:
    """brgemm | tiles | reference; `Unimplemented` for what the library refuses."""
    _refuse_half_bytes(attr, shape, tag)
    _refuse_groups(attr, shape)
    if "avx512_core_fp16" in caps:
        _refuse_half_scales(attr, shape, dst)
    wide = "avx512_core" in caps
    if not wide and "avx2_vnni" not in caps:
        return "reference" if shape.wei != "s8" or _left_below_avx512(attr, shape) else "brgemm"
    tiles = "avx512_core_amx" in caps and not leaves_tiles(shape.src, shape.m, shape.n, shape.k)
    if not _common(attr, shape, dst, tag):
        return "reference"
    if tiles:
        return "tiles" if _tiles(attr, shape, dst) else "reference"
    if not wide:
        return "brgemm" if _brgemm_of_256_bits(attr, shape, dst, tag) else "reference"
    return "brgemm" if _brgemm(attr, shape, dst, tag, "avx512_core_fp16" in caps) else "reference"


def _left_below_avx512(attr: Attr, shape: Shape) -> bool:
    points = [attr.zero_points[name].dtype for name in ("src", "wei") if name in attr.zero_points]
    return any(dtype != "s32" for dtype in points) or _odd_scales(attr) or bool(along_k(attr, shape))


def _odd_scales(attr: Attr) -> bool:
    return any(attr.scales[name].dtype != "f32" for name in ("src", "wei", "dst") if name in attr.scales)


def _points(attr: Attr, shape: Shape) -> dict[str, Placed]:
    given = [name for name in ("src", "wei") if name in attr.zero_points]
    return {name: placed("zero_points", name, attr.zero_points[name], shape) for name in given}


def _common(attr: Attr, shape: Shape, dst: str, tag: object) -> bool:
    """What both forms of brg_matmul ask: no scale a row; where scales or zero points change along K, zero points of the
    types of their data, and beside s8 weights common ones or the weights' alone.
    """
    if any(found.granularity == "per_token" for found in along_k(attr, shape).values()):
        return False
    points = _points(attr, shape)
    nibbles, common = shape.wei in _NIBBLES, all(found.granularity == "common" for found in points.values())
    if not points or shape.wei == "s8" and common and not along_k(attr, shape):
        return True
    both = ("common", "grouped")
    allowed = {"src": both if nibbles else both[: int(common)], "wei": () if shape.wei == "u8" else both}
    own = {"src": shape.src, "wei": shape.wei}
    fits = all(p.granularity in allowed[name] and p.quant.dtype == own[name] for name, p in points.items())
    tags = ("any", "ab") if nibbles else ("ab",)
    return fits and not attr.precomputed_reductions and tag in tags and dst in _FLOATS


def _brgemm(attr: Attr, shape: Shape, dst: str, tag: object, fp16: bool) -> bool:
    """`fp16`: with AVX512_FP16 4-bit weights take scales of any type, and f16 destinations."""
    further = fp16 and shape.wei in _NIBBLES
    if shape.wei == "u8" or not further and (_odd_scales(attr) or dst == "f16"):
        return False
    if shape.wei == "s8":
        return not (along_k(attr, shape) and shape.src == "s8" and tag != "ab")
    by_columns = shape.n == 1 or tag == "ba" and shape.k > 1
    return dst in (*_FLOATS, "f16") and not (shape.src == "s8" and by_columns)


def _brgemm_of_256_bits(attr: Attr, shape: Shape, dst: str, tag: object) -> bool:
    """Under avx2_vnni no destination has 16 bits; 4-bit weights go from u8 to f32 alone, and have no zero points."""
    nibbles = shape.wei in _NIBBLES and ((shape.src, dst) != ("u8", "f32") or bool(_points(attr, shape)))
    return not nibbles and dst not in ("bf16", "f16") and _brgemm(attr, shape, dst, tag, fp16=False)


def _tiles(attr: Attr, shape: Shape, dst: str) -> bool:
    floating, odd = dst in (*_FLOATS, "f16"), _odd_scales(attr)
    if shape.wei in _NIBBLES and floating and odd:
        raise Unimplemented(
            f"oneDNN leaves tiles for scales that are not f32 beside {shape.wei} weights, which is not "
            f"modelled; isa='avx512_core_fp16' works, and {_WAY_OUT}"
        )
    if odd:
        return False
    return shape.wei == "s8" or floating and (shape.wei in _NIBBLES or bool(along_k(attr, shape)))


def _refuse_groups(attr: Attr, shape: Shape) -> None:
    """The library's groups along K are of 1, of K, or of multiples of 16; for zero points of the source of 32."""
    for kind, given in (("scales", along_k(attr, shape)), ("zero_points", _points(attr, shape))):
        for name, found in given.items():
            least = 32 if (kind, name) == ("zero_points", "src") else 16
            length = length_of(name, found, shape)
            if length % least and length not in (1, shape.k):
                asked = f"{kind}[{name!r}] in groups of {length} along K={shape.k}"
                has = f"it has groups of 1, K and multiples of {least}"
                raise Unimplemented(f"oneDNN has no primitive with {asked}; {has}; {_WAY_OUT}")


def _refuse_half_scales(attr: Attr, shape: Shape, dst: str) -> None:
    """With AVX512_FP16 the library has not all that it has below."""
    scale, points = attr.scales.get("wei"), _points(attr, shape).values()
    by_column = scale is not None and placed("scales", "wei", scale, shape).granularity == "per_oc"
    grouped = any(found.granularity == "grouped" and found.quant.dtype == "s32" for found in points)
    if scale is not None and by_column and grouped and (scale.dtype, dst) == ("f16", "f16"):
        raise Unimplemented(
            "oneDNN has no primitive with zero points of s32 in groups, scales of f16 by column and an "
            f"f16 destination; it has scales of f32, or other destinations; {_WAY_OUT}"
        )


def _refuse_half_bytes(attr: Attr, shape: Shape, tag: object) -> None:
    """The library has no rows with half a byte more, and no single one."""
    run, what = (shape.k, "K") if tag == "ba" else (shape.n, "N")
    if shape.wei in _NIBBLES and run % 2 and shape.k > 1 and shape.n > 1:
        raise Unimplemented(f"oneDNN refuses rows of an odd number ({what}={run}) of {shape.wei}; {_WAY_OUT}")
    for name, found in _points(attr, shape).items():
        dtype = found.quant.dtype
        if dtype in _NIBBLES and (found.granularity == "common" or name == "wei" and shape.n % 2):
            raise Unimplemented(
                f"oneDNN refuses zero_points[{name!r}] of {dtype} that are one, or odd rows of them "
                f"(N={shape.n}); {_WAY_OUT}"
            )
