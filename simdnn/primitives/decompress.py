"""Integer weights with a floating source: what is computed in floating point, in which type, and by which form.

Such a problem is ambiguous, as it could also be computed in integers, so a call says `Attr(apply_to_int=True)` and the
math mode in force then says which types may be used. "fastest" and "onednn" read the mode differently:

* "fastest": mode bf16 with an f32 source computes in bf16 where there is a unit for it. Otherwise every type that the
  mode allows is a candidate, f32 among them always. An f16 source is widened to f32, or multiplied as it is where the
  mode allows f16. Mode bf16 for it, or f16 for a bf16 source, asks for a conversion between types of one size, and is
  refused.
* "onednn": what oneDNN 3.13 was seen to do (docs/numerics.md, rule 10), refusals included. It takes mode bf16 with
  an f32 source to its reference, which computes in f32.
"""

from __future__ import annotations

from isa_models import InvalidArgument, Unimplemented
from simdnn.kernels.common.spec import Decompression, Placing
from simdnn.primitives import compatible
from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.mathmode import FPMATH
from simdnn.primitives.resolve import Shape, group_of, placed

_COMPUTES = ("f32", "bf16", "f16")  # what kernels here decompress to
_NIBBLES = ("s4", "u4")
_WAY_OUT = "dispatch='fastest' takes it"


def decompression(attr: Attr, shape: Shape, dst: str, dispatch: str, caps: frozenset[str]) -> Decompression | None:
    """What a problem says of its compressed weights; None where they are not compressed.

    Raises `InvalidArgument` and `Unimplemented`, also for what oneDNN refuses where its choice is asked for.
    """
    if not shape.compressed:
        return None
    mode = FPMATH.effective(attr.fpmath)
    scale = placing("scales", attr.scales.get("wei"), shape)
    point = placing("zero_points", attr.zero_points.get("wei"), shape)
    if dispatch == "onednn":
        compute, reference = library(shape, mode, scale, point, dst, caps)
        return Decompression((compute,), scale, point, reference)
    return Decompression(computes(shape.src, mode, "avx512_core_bf16" in caps), scale, point)


def computes(src: str, mode: str, has_bf16: bool) -> tuple[str, ...]:
    """The types that "fastest" may compute in, on a machine with a unit for bf16 or without one.

    >>> computes("f32", "any", False), computes("f16", "any", False)
    (('f32', 'bf16', 'f16'), ('f32', 'f16'))
    """
    if src == "f32" and mode == "bf16" and has_bf16:
        return ("bf16",)
    narrow = {"f16": "bf16", "bf16": "f16"}.get(src)  # would be a conversion between types of one size
    if mode == narrow:
        raise Unimplemented(
            f"{src} source with fpmath {mode!r}: a conversion between types of one size; what works: fpmath={src!r}, "
            "'any', 'tf32' or 'strict'"
        )
    return tuple(dtype for dtype in _COMPUTES if compatible.allowed(mode, dtype) and dtype != narrow)


def library(
    shape: Shape, mode: str, scale: Placing | None, point: Placing | None, dst: str, caps: frozenset[str]
) -> tuple[str, bool]:
    """(type that oneDNN 3.13 computes in, whether its reference does it); raises for what it refuses."""
    _refused_by_library(shape, mode, scale, point, dst, caps)
    stored = scale.dtype if scale else "f32"
    if scale and point and scale.placing == point.placing == "grouped" and scale.group != point.group:
        return "f32", True
    if shape.src == "f32":
        return "f32", not (mode in ("strict", "any") and dst == stored == "f32")
    fast = "avx512_core_bf16" in caps and dst in ("f32", "bf16") and stored in ("f32", "bf16")
    return ("bf16", False) if fast else ("f32", True)


def _refused_by_library(
    shape: Shape, mode: str, scale: Placing | None, point: Placing | None, dst: str, caps: frozenset[str]
) -> None:
    """Raises for what oneDNN 3.13 was seen to refuse."""
    what = f"oneDNN refuses {shape.src}:{shape.wei}:{dst} with fpmath {mode!r}"
    if shape.src == "f16" and "avx512_core_fp16" in caps:
        raise Unimplemented(f"oneDNN's {shape.src}:{shape.wei}:{dst} with fpmath {mode!r} is not modelled; {_WAY_OUT}")
    if shape.src == "f16":
        raise Unimplemented(f"{what}: it decompresses for f32 and bf16 sources; {_WAY_OUT}")
    if shape.src == "bf16" and mode not in ("bf16", "any"):
        raise Unimplemented(f"{what}: a bf16 source needs 'bf16' or 'any'; {_WAY_OUT}")
    if shape.src == "bf16" and "avx512_core" not in caps:
        raise Unimplemented(f"{what} below avx512_core; {_WAY_OUT}")
    if point and point.placing == "common" and point.dtype in _NIBBLES:
        raise InvalidArgument(f"oneDNN refuses a common zero point of {point.dtype}; allowed: s32, s8, u8; {_WAY_OUT}")
    if any(p and p.shared for p in (scale, point)):
        raise Unimplemented(f"{what} and values shared by all columns, or answers it otherwise; {_WAY_OUT}")
    for group in [p.group for p in (scale, point) if p and p.placing == "grouped"]:
        if group % 16 and group not in (1, shape.k):
            raise Unimplemented(f"oneDNN refuses groups of {group}; allowed: multiples of 16, 1, or K; {_WAY_OUT}")
    if point and point.placing == "grouped" and point.dtype in _NIBBLES and shape.k % 2:
        raise Unimplemented(f"{what}, zero points of {point.dtype} in groups, and an odd K={shape.k}; {_WAY_OUT}")
    point_rows = point.dtype if point else ""
    for stored, odd in ((shape.wei, shape.n > 1 and shape.k > 1), (point_rows, True)):
        if stored in _NIBBLES and shape.n % 2 and odd:
            raise Unimplemented(f"oneDNN refuses rows of an odd number (N={shape.n}) of {stored}; {_WAY_OUT}")


def placing(attribute: str, quant: Quant | None, shape: Shape) -> Placing | None:
    """Where a parameter of compressed weights belongs."""
    if quant is None:
        return None
    granularity = placed(attribute, "wei", quant, shape).granularity
    assert quant.dtype is not None  # Attr has filled it in
    if granularity != "grouped":
        return Placing(granularity, quant.dtype)
    along_k, along_n = group_of("wei", quant, shape) if quant.groups else (0, shape.n if quant.mask == 1 else 1)
    if along_n not in (1, shape.n):
        raise Unimplemented(
            f"{attribute}['wei']: groups={quant.groups}; along N no kernel here shares a value but for all columns: "
            f"what works: groups=({along_k}, 1) with a (K/{along_k}, N) array, or groups=({along_k}, {shape.n})"
        )
    if not along_k and quant.values is None:
        raise InvalidArgument(f"{attribute}['wei']: mask {quant.mask!r} has groups; say which: groups=(32, 1)")
    return Placing(granularity, quant.dtype, along_k or shape.k // quant.values.shape[0], along_n > 1)
