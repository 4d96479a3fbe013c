"""oneDNN's reorders of data: which pairs of types it has, with what, and which implementation takes one."""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from simdnn.libraries.model import OperatorCall, OperatorForm
from simdnn.libraries.onednn.endings import BYTES, WHOLE, Refused

_LANES = 4  # of f32, whatever the cap: `process_unroll_generic_step` of jit_uni_reorder.cpp
_NARROW = ("f8_e4m3", "f8_e5m2")
_NIBBLES = ("s4", "u4", "f4_e2m1")
_SIXTEEN = ("bf16", "f16")
#: types by the types that its reorders make of them
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


def form(call: OperatorCall) -> OperatorForm:
    """The implementation that takes a reorder; raises `Refused`."""
    src, dst = call.types[0], call.dst
    if dst in _NIBBLES and src in ("bf16", *WHOLE):
        raise Refused("it accepts that and leaves the destination unwritten")
    by_copy = {src, dst} == {"bf16", "s32"} and "avx512_core_bf16" in call.caps and not _attributes(call)
    if dst not in _PAIRS[src] and not by_copy:
        raise Refused("it has no such reorder")
    for name, dtype in (("src", src), ("dst", dst)):
        if call.zero_points.get(name) is not None and fmt(dtype).is_float:
            raise Refused("zero points are of integers")
    masks = {_mask(tuple(np.shape(scale))) for scale in call.scales.values()}
    if len(masks) > 1 and () not in masks:
        raise Refused("scales of both sides go along the same dimensions")
    if call.post_ops and [kind for kind, *_ in call.post_ops] != ["sum"]:
        raise Refused("a sum alone stands behind it")
    if {src, dst} & {*_NIBBLES}:
        return _of_nibbles(call)
    sixteen = "f16" in (src, dst) or "bf16" in (src, dst) and "avx512_core" not in call.caps
    simple = bool({src, dst} & {*_NARROW}) or sixteen or len(masks) > 1
    if np.ndim(call.zero_points.get("dst", 0)) or np.ndim(call.zero_points.get("src", 0)) and not simple:
        raise Refused("zero points along a dimension: it reads the first one alone")
    if "dst" in call.scales and any(factors and factors[0] != 1 for _, *factors in call.post_ops):
        raise Refused("the roundings of a sum's factor beside the destination's scale are not known")
    return OperatorForm("simple", True) if simple else OperatorForm("jit", lanes=_LANES)


def _attributes(call: OperatorCall) -> bool:
    return bool(call.scales or call.zero_points or call.post_ops)


def _mask(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i, size in enumerate(shape) if size > 1)


def _of_nibbles(call: OperatorCall) -> OperatorForm:
    """Types of 4 bits: to them nothing but values, and scales are forgotten; from them scales and zero points of the
    source, if they go along dimensions.
    """
    to = call.dst in _NIBBLES
    if call.post_ops or "dst" in call.scales or "dst" in call.zero_points or (to and call.scales):
        raise Refused("scales and sums beside 4 bits are forgotten there, or refused")
    if call.types[0] in ("s4", "u4") and np.ndim(call.scales.get("src", np.ones(1))) == 0:
        raise Refused("a common scale of 4 bits")
    return OperatorForm("simple", True)
