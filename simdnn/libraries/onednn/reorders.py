"""oneDNN's reorders of data: the pairs of types that it has, their parameters, and the implementation for each."""

from __future__ import annotations

from math import prod

import numpy as np

from isa_models.formats import fmt
from simdnn.libraries.model import OperatorCall, OperatorForm, ReorderPart
from simdnn.libraries.onednn.endings import BYTES, WHOLE, Refused

_LANES = 4  # of f32, whatever the cap: `process_unroll_generic_step` of jit_uni_reorder.cpp
_NARROW = ("f8_e4m3", "f8_e5m2")
_NIBBLES = ("s4", "u4", "f4_e2m1")
_SIXTEEN = ("bf16", "f16")
#: types by the types that its loops over elements make of them
_PAIRS: dict[str, tuple[str, ...]] = {
    "f32": ("f32", *_SIXTEEN, *WHOLE, *_NARROW, *_NIBBLES),
    "bf16": ("f32", "bf16", *BYTES, *_NARROW),
    "f16": ("f32", "f16", *BYTES, *_NARROW),
    "s32": ("f32", *WHOLE),
    "s8": ("f32", *_SIXTEEN, *WHOLE),
    "u8": ("f32", "bf16", *WHOLE),
    "f8_e4m3": ("f32", *_SIXTEEN, "f8_e4m3"),
    "f8_e5m2": ("f32", *_SIXTEEN, "f8_e5m2"),
    "s4": ("f32", *_SIXTEEN),
    "u4": ("f32", *_SIXTEEN),
    "f4_e2m1": ("f32",),
}
#: the ISA cap that its kernel for any layouts, and that the one for equal layouts, wants for a type
_FOR_KERNEL = {"bf16": "avx512_core", **dict.fromkeys(("f16", *_NARROW), "avx512_core_fp16")}
_FOR_COPY = {"bf16": "avx512_core_bf16", "f16": "avx512_core_fp16", **dict.fromkeys(_NARROW, "avx512_core_amx")}


def implementation(src: str, dst: str, caps: frozenset[str], plain: bool = True, alike: bool = True) -> str:
    """The implementation that takes a reorder: "copy", its kernel for equal layouts, which are `alike`; "kernel" for
    any layouts; "loops" over elements; "" where there is none. `plain`: without attributes.
    """
    both = {src, dst}
    if not both & {*_NIBBLES} and not (both & {*_NARROW} and both & {*BYTES}):
        if plain and alike and both != {"s32"} and {_FOR_COPY[t] for t in both if t in _FOR_COPY} <= caps:
            return "copy"
        whole = "s32" in both and bool(both & {*_FOR_KERNEL})
        if not whole and {_FOR_KERNEL[t] for t in both if t in _FOR_KERNEL} <= caps:
            return "kernel"
    return "loops" if dst in _PAIRS[src] else ""


def form(call: OperatorCall) -> OperatorForm:
    """The implementation that takes a reorder; raises `Refused`."""
    src, dst = call.types[0], call.dst
    if dst in _NIBBLES and src in ("bf16", *WHOLE):
        raise Refused("it accepts that and leaves the destination unwritten")
    for name, dtype in (("src", src), ("dst", dst)):
        if call.zero_points.get(name) is not None and fmt(dtype).is_float:
            raise Refused("zero points are of integers")
    masks = {_mask(tuple(np.shape(scale))) for scale in call.scales.values()}
    if len(masks) > 1 and () not in masks:
        raise Refused("scales of both sides go along the same dimensions")
    if call.post_ops and [kind for kind, *_ in call.post_ops] != ["sum"]:
        raise Refused("a sum alone stands behind it")
    found = implementation(src, dst, call.caps, not _attributes(call))
    if not found:
        raise Refused("it has no such reorder")
    if {src, dst} & {*_NIBBLES}:
        return _of_nibbles(call)
    scaled = any(factors and factors[0] != 1 for _, *factors in call.post_ops)
    simple = found == "loops" or len(masks) > 1 or scaled
    if np.ndim(call.zero_points.get("dst", 0)) or np.ndim(call.zero_points.get("src", 0)) and not simple:
        raise Refused("zero points along a dimension: it reads the first one alone")
    if simple:
        if dst not in _PAIRS[src] or any(_parted(np.shape(scale)) for scale in call.scales.values()):
            raise Refused("it has no such reorder")
        found = "loops"
    unrolled = prod(call.shapes[0]) % _LANES == 0 and masks <= {()}
    if call.post_ops and dst in _NARROW and not unrolled:
        raise Refused("behind whole fours of f8 it adds nothing of what the destination held")
    how = part(src, dst, call.caps, found, not _attributes(call), call.in_rows and len(call.shapes[0]) in (3, 4))
    if simple:
        return OperatorForm("simple", True, integers=how.integers, flushes=how.flushes)
    return OperatorForm("jit", lanes=_LANES, integers=how.integers)


def part(src: str, dst: str, caps: frozenset[str], by: str, plain: bool = True, lines: bool = False) -> ReorderPart:
    """How a reorder by an implementation (`by`, as `implementation` names it) treats numbers. `plain`: without scales,
    zero points and sums. `lines`: of three or four dimensions in rows, which from f32 to bytes goes by a reorder made
    for recurrent layers.
    """
    if by == "loops":
        return ReorderPart(by, "zero" if dst in BYTES else "bounded", dst == "bf16" and "avx512_core" not in caps)
    if by == "copy":
        if lines and src == "f32" and dst in BYTES:
            return ReorderPart(by, "zero")
        return ReorderPart(by, "greatest" if dst == "u8" and "avx512_core" in caps else "bounded")
    return ReorderPart(by, "converted" if plain and src in (*_SIXTEEN, *_NARROW) else "bounded")


def _attributes(call: OperatorCall) -> bool:
    return bool(call.scales or call.zero_points or call.post_ops)


def _mask(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions that scales go along."""
    return tuple(i for i, size in enumerate(shape) if size > 1)


def _parted(shape: tuple[int, ...]) -> bool:
    """Whether dimensions that scales go along have another one between them, which loops over elements do not take."""
    along = _mask(shape)
    return bool(along) and len(along) < along[-1] - along[0] + 1


def _of_nibbles(call: OperatorCall) -> OperatorForm:
    """Types of 4 bits: to them nothing but values, and scales are forgotten; from them scales and zero points of the
    source, if they go along dimensions.
    """
    to = call.dst in _NIBBLES
    if call.post_ops or "dst" in call.scales or "dst" in call.zero_points or (to and call.scales):
        raise Refused("scales and sums beside 4 bits are forgotten there, or refused")
    if call.types[0] in ("s4", "u4") and call.scales and not _mask(np.shape(call.scales["src"])):
        raise Refused("a common scale of 4 bits")
    return OperatorForm("simple", True)
