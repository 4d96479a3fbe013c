"""oneDNN's primitives beside products: which implementation takes one, and whether its bits are known here
(docs/numerics.md, rule 18). What stands behind a primitive is `simdnn.libraries.onednn.endings`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.activations import OWN_POWERS, power_of
from simdnn.libraries.model import OperatorCall, OperatorForm
from simdnn.libraries.onednn import deconvolution, reorders
from simdnn.libraries.onednn.endings import BYTES, Refused, by_kernel, refuse_ending, refuse_function
from simdnn.libraries.onednn.narrow import F8

_WIDE = ("f32", "bf16", "f16")
#: the ISA cap that brings a type
_NEEDS = {
    "bf16": "avx512_core",
    "f16": "avx512_core_fp16",
    "f8_e4m3": "avx512_core_fp16",
    "f8_e5m2": "avx512_core_fp16",
}
#: functions of elements that an integer kernel has
_OF_INTEGERS = ("relu", "linear", "clip")
_ROOTS = ("norm_lp_max", "norm_lp_sum")
_NORMS = (*_ROOTS, "norm_lp_power_p_max", "norm_lp_power_p_sum")
JIT, REFERENCE = OperatorForm("jit"), OperatorForm("ref", True)


def form(call: OperatorCall) -> OperatorForm:
    """The implementation that takes a primitive. Raises `Unimplemented` where the library has none, and where its bits
    are not known here.
    """
    every = (*call.types, call.dst)
    known = (*_WIDE, *BYTES, "s32")
    try:
        asking = [
            dtype
            for dtype in every
            if call.primitive not in ("weighted_sum", "concat", "conversion")
            or (dtype in F8 and call.primitive != "conversion")
        ]
        if call.primitive == "deconvolution":
            asking = list(call.types)  # its reference's end writes any
        if missing := sorted({_NEEDS[dtype] for dtype in asking if dtype in _NEEDS} - call.caps):
            raise Refused(f"{':'.join(every)} needs {' and '.join(missing)}")
        if call.primitive != "conversion" and (other := [dtype for dtype in every if dtype not in known]):
            raise Refused(f"{other[0]} is its reference's, whose functions and zeros are not followed")
        rule = _RULES.get(call.primitive)
        if rule is None:
            raise Refused("its bits are not known")
        return rule(call)
    except Refused as why:
        raise Unimplemented(
            f"dispatch='onednn' for {call.primitive} of {':'.join(every)}: {why}; what works: dispatch='fastest'"
        ) from None


def _refuse_scales(call: OperatorCall) -> None:
    if call.scales:
        raise Refused("it takes no scales")


def _refuse_scaled(call: OperatorCall) -> None:
    """Softmax and normalizations have scales where a side is of bytes."""
    if call.scales and not {*call.types, call.dst} & {*BYTES}:
        raise Refused("scales come with s8 or u8 on a side alone")


def _refuse_s32(call: OperatorCall) -> None:
    if "s32" in (*call.types, call.dst):
        raise Refused("it takes no s32")


def _ended(call: OperatorCall, shape: tuple[int, ...], jit: bool, other: OperatorForm = REFERENCE) -> OperatorForm:
    """The kernel, or another implementation; refused where the ending is not known."""
    found = JIT if jit else other
    refuse_ending(call, shape, found.by_reference)
    return found


def _softmax(call: OperatorCall) -> OperatorForm:
    _refuse_s32(call)
    _refuse_scaled(call)
    if not by_kernel(call, call.shapes[0], ("scalar", "channel", "none")):
        raise Refused("its reference takes what stands behind, whose e**x is C's")
    return _ended(call, call.shapes[0], True)


def _layer_normalization(call: OperatorCall) -> OperatorForm:
    _refuse_s32(call)
    _refuse_scaled(call)
    shape = call.shapes[0]
    if not by_kernel(call, shape, ("scalar", "channel" if len(shape) == 2 else "last")):
        if "variance" not in call.rows:
            raise Refused("statistics of its simple kernel, which takes what stands behind, are not followed")
        return _ended(call, shape, False, OperatorForm("simple", True))
    return _ended(call, shape, True)


def _batch_normalization(call: OperatorCall) -> OperatorForm:
    _refuse_scales(call)
    dtype = call.types[0]
    if dtype != call.dst or dtype not in (*_WIDE, "s8"):
        raise Refused("it has one type for source and destination, of floats or s8")
    if call.post_ops not in ((), (("relu",),), (("relu", 0.0),)):
        raise Refused("nothing but relu stands behind it")
    shape = call.shapes[0]
    if dtype == "s8":
        if "mean" not in call.rows:
            raise Refused("it has no statistics of s8")
        return JIT if call.channels_last and len(shape) in (4, 5) else REFERENCE
    lanes = 4 if dtype == "f32" else 16
    if call.channels_last and shape[1] % lanes == 0:
        return OperatorForm("tbb")
    if call.in_rows and len(shape) > 2:
        return OperatorForm("ncsp", True)
    return OperatorForm("nspc", True)


def _group_normalization(call: OperatorCall) -> OperatorForm:
    _refuse_s32(call)
    if any(dtype not in BYTES for name, dtype in (("src", call.types[0]), ("dst", call.dst)) if name in call.scales):
        raise Refused("a side of bytes alone has a scale")
    shape, last = call.shapes[0], call.channels_last
    if last and by_kernel(call, shape, ("scalar",)):
        return _ended(call, shape, True)
    if call.in_rows and not call.post_ops:
        return OperatorForm("ncsp", True)
    return _ended(call, shape, False)


def _eltwise(call: OperatorCall) -> OperatorForm:
    name, (dtype,) = call.options["algorithm"], call.types
    _refuse_scales(call)
    if dtype != call.dst:
        raise Refused("it has one type for source and destination")
    if not fmt(dtype).is_float and name not in _OF_INTEGERS:
        raise Refused(f"of integers it computes {', '.join(_OF_INTEGERS)}")
    if name == "round" and dtype != "f32":
        raise Refused("it rounds f32 alone")
    if name == "pow" and power_of(call.options.get("beta", 0.0)) in OWN_POWERS:
        raise Refused("powers other than -1, 0, 1/2, 1 and 2 call C's powf")
    if not call.post_ops:
        return JIT
    _ended(call, call.shapes[0], False)
    refuse_function(call, (name, *_numbers(call)))
    return REFERENCE


def _numbers(call: OperatorCall) -> tuple[float, float]:
    return call.options.get("alpha", 0.0), call.options.get("beta", 0.0)


def _binary(call: OperatorCall) -> OperatorForm:
    if "dst" in call.scales:
        raise Refused("it takes no scale of the destination")
    if call.options["algorithm"] == "div" and not fmt(call.dst).is_float:
        raise Refused("a NaN on its way to an integer is not followed")
    first, second = call.shapes
    shape = tuple(np.broadcast_shapes(first, second))
    jit = (call.dst in BYTES or call.types[0] == call.dst) and tuple(first) == shape and 1 < len(shape) < 6
    jit = jit and by_kernel(call, shape, ("scalar", "channel", "last", "none"))
    if "sum" in [kind for kind, *_ in call.post_ops] and call.types[0] != call.dst:
        jit = False
    shared = tuple(size > 1 for size in second)
    plain = second == first or not any(shared) or shared == tuple(i == 1 for i in range(len(shape)))
    if jit and not plain:
        for by_reference in (False, True):  # which of them takes other broadcasts is not known
            refuse_ending(call, shape, by_reference, alike=True)
    return _ended(call, shape, jit)


def _prelu(call: OperatorCall) -> OperatorForm:
    shape, weights = call.shapes
    if call.post_ops or call.scales or call.types[0] != call.dst:
        raise Refused("it has one type for source and destination, no post-operations and no scales")
    by_channel = tuple(size if i == 1 else 1 for i, size in enumerate(shape))
    jit = weights == shape or (len(weights) == len(shape) > 1 and weights == by_channel)
    return JIT if jit else REFERENCE


def _reduction(call: OperatorCall) -> OperatorForm:
    name, integers, (shape,) = call.options["algorithm"], not fmt(call.types[0]).is_float, call.shapes
    _refuse_scales(call)
    reduced = {axis % len(shape) for axis in call.options["axes"]}
    out = tuple(1 if i in reduced else size for i, size in enumerate(shape))
    if out == shape:
        raise Refused("it reduces nothing")
    norm = name in _NORMS
    inner = len(shape)
    while inner and shape[inner - 1] > 1 and inner - 1 in reduced:
        inner -= 1
    along = inner < len(shape) and out[:inner] == tuple(shape[:inner])
    jit = along and call.in_rows and len(shape) < 6 and not norm
    jit = jit and by_kernel(call, out, ("scalar", "channel", "none"))
    if norm and integers:
        raise Refused("norms are of floats")
    if norm:
        _refuse_norm(call)
    if name == "mul" and integers and not jit:
        raise Refused("products of integers, which wrap there")
    return _ended(call, out, jit)


def _refuse_norm(call: OperatorCall) -> None:
    """Raises `Refused` where the reference calls C's powf: known are the first power, and others of numbers of eight
    bits, whose power no rounding touches.
    """
    name, p = call.options["algorithm"], call.options.get("p", 1.0)
    if p != 1 and (p not in (2, 3) or call.types[0] == "f32" and (p == 3 or call.dst in ("f32", "s32"))):
        raise Refused(f"p={p:g} of {call.types[0]} calls C's powf")
    if name in _ROOTS and p != 1 and (p != 2 or call.dst in ("f32", "s32")):
        raise Refused(f"a root of order {p:g} towards {call.dst} calls C's powf")


def _pooling(call: OperatorCall) -> OperatorForm:
    _refuse_scales(call)
    (dtype,), (shape,), options = call.types, call.shapes, call.options
    spatial = len(shape) - 2
    dilated = bool(np.max(options.get("dilation", 1)) > 1)
    floats = fmt(dtype).is_float
    out_ops = by_kernel(call, (*shape[:2], *[2] * spatial), ("scalar", "channel", "none"))
    same = dtype == call.dst and not dilated
    if floats:
        wide = "avx512_core" in call.caps
        two = spatial < 2 or (shape[-1] > 1 and shape[-2] > 1)
        rows = wide and shape[1] > 3 and (dtype != "f32" or (spatial > 1 and two))
        jit = same and (call.channels_last or call.in_rows and rows)
    else:
        jit = same and call.channels_last
        if jit and dtype == "s32" and (options["algorithm"] != "max" or call.post_ops):
            raise Refused("its kernel's sums of s32 are not followed")
        if jit and call.post_ops and "avx512_core" not in call.caps:
            raise Refused("its kernel of integers at 256 bits may leave small images to its reference")
    return _ended(call, (*shape[:2], *[2] * spatial), jit and out_ops)


def _resampling(call: OperatorCall) -> OperatorForm:
    _refuse_scales(call)
    (shape,) = call.shapes
    out = (*shape[:2], *[2] * (len(shape) - 2))
    jit = by_kernel(call, out, ("scalar", "channel"))
    if not jit and call.options.get("algorithm", "nearest") == "linear":
        raise Refused("what stands behind is its simple kernel's, whose blend is not followed")
    return _ended(call, out, jit)


def _concat(call: OperatorCall) -> OperatorForm:
    if call.post_ops or "dst" in call.scales:
        raise Refused("it takes scales of sources, and nothing behind them")
    if len({*call.types}) > 1:
        raise Refused("it takes sources of one type")
    if call.types[0] == "s32" and call.dst in ("bf16", "f16"):
        raise Refused("it has no reorder between s32 and 16 bits")
    if "bf16" in (call.types[0], call.dst) and call.types[0] != call.dst and "avx512_core" not in call.caps:
        raise Refused("bf16 to other types needs avx512_core")
    if {"f16", "f8_e4m3", "f8_e5m2"} & {call.types[0], call.dst} and "avx512_core_fp16" not in call.caps:
        raise Refused(f"{call.types[0]}:{call.dst} needs avx512_core_fp16")
    return JIT


def _plain(call: OperatorCall) -> OperatorForm:
    if call.scales or call.post_ops:
        raise Refused("it takes no scales and no post-operations")
    return JIT


_RULES: dict[str, Callable[[OperatorCall], OperatorForm]] = {
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "batch_normalization": _batch_normalization,
    "group_normalization": _group_normalization,
    "eltwise": _eltwise,
    "binary": _binary,
    "prelu": _prelu,
    "reduction": _reduction,
    "pooling": _pooling,
    "resampling": _resampling,
    "concat": _concat,
    "weighted_sum": _plain,
    "shuffle": _plain,
    "conversion": reorders.form,
    "deconvolution": deconvolution.form,
}
