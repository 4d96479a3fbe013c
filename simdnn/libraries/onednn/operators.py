"""oneDNN's primitives beside products: what programs here have its bits for (docs/numerics.md, rule 18).

Where one of its vector kernels and its reference differ, only what both compute alike is taken: which of the two runs
hangs on layouts and broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.activations import OWN_POWERS, power_of
from simdnn.libraries.model import OperatorCall
from simdnn.libraries.onednn.narrow import F8

_BYTES, _WIDE = ("s8", "u8"), ("f32", "bf16", "f16")
#: the ISA cap that brings a type
_NEEDS = {
    "bf16": "avx512_core",
    "f16": "avx512_core_fp16",
    "f8_e4m3": "avx512_core_fp16",
    "f8_e5m2": "avx512_core_fp16",
}
#: post-operations that vector kernels and the reference compute alike; others differ in a zero's sign or a rounding
_ALIKE = ("add", "sub", "mul", "div", "max", "min", "ge", "gt", "le", "lt", "eq", "ne", "square", "clip", "clip_v2")
#: functions of elements that an integer kernel has
_OF_INTEGERS = ("relu", "linear", "clip")


def check(call: OperatorCall) -> None:
    """Raises `Unimplemented` where a primitive's bits here are not known to be the library's."""
    every = (*call.types, call.dst)
    known = (*_WIDE, *_BYTES, "s32")
    asking = [dtype for dtype in every if call.primitive != "weighted_sum" or dtype in F8]
    missing = sorted({_NEEDS[dtype] for dtype in asking if dtype in _NEEDS} - call.caps)
    if missing:
        why = f"{':'.join(every)} needs {' and '.join(missing)}"
    elif call.primitive != "conversion" and (other := [dtype for dtype in every if dtype not in known]):
        why = f"{other[0]} is its reference's, whose functions and zeros are not followed"
    else:
        rule = _RULES.get(call.primitive)
        why = rule(call) if rule else "its bits are not known"
    if why:
        raise Unimplemented(
            f"dispatch='onednn' for {call.primitive} of {':'.join(every)}: {why}; what works: dispatch='fastest'"
        )


def _post_ops(call: OperatorCall, functions: Sequence[str] = (), sums: bool = False) -> str:
    """Why post-operations are out, but those of `_ALIKE` and `functions`; `sums`: and a sum that scales nothing."""
    for place, (name, *given) in enumerate(call.post_ops):
        if name == "sqrt" and place + 1 < len(call.post_ops):
            return "a NaN of sqrt behind which operations stand is not followed"
        numbers = [number for number in given if not isinstance(number, tuple)]
        plain = not numbers or (numbers[0] == 1 and not any(numbers[1:]))
        if name == "pow" and power_of((*numbers, 0.0, 0.0)[1]) in OWN_POWERS:
            return "powers other than -1, 0, 1/2, 1 and 2 call C's powf"
        if name not in (*_ALIKE, *functions) and not (name == "sum" and sums and plain):
            return f"the post-operation {name} is not known there"
    if call.dst in (*_BYTES, "s32") and any(op[0] in ("div", "sqrt", "pow") for op in call.post_ops):
        return "a NaN on its way to an integer is not followed"
    return ""


def _broadcast(call: OperatorCall, shape: Sequence[int]) -> str:
    """Why second operands of post-operations are out: its vector kernels take one value, one a channel, or all."""
    for op in call.post_ops:
        for given in (part for part in op if isinstance(part, tuple)):
            shared = tuple(size > 1 for size in given)
            channel = tuple(i == min(1, len(shape) - 1) for i in range(len(shape)))
            if (
                any(shared)
                and tuple(given) != tuple(shape)
                and not all(c or not s for s, c in zip(shared, channel, strict=False))
            ):
                return f"a second operand of shape {given} is its reference's"
    return ""


def _scaled(call: OperatorCall) -> str:
    """Why scales are out: softmax and normalizations have some where a side is of bytes."""
    if call.scales and not {*call.types, call.dst} & {*_BYTES}:
        return "scales come with s8 or u8 on a side alone"
    return ""


def _softmax(call: OperatorCall) -> str:
    if "s32" in (*call.types, call.dst):
        return "it takes no s32"
    return _scaled(call) or _post_ops(call, _VECTOR) or _broadcast(call, call.shapes[0])


def _layer_normalization(call: OperatorCall) -> str:
    if "s32" in (*call.types, call.dst):
        return "it takes no s32"
    shape = call.shapes[0]
    last = (*[1] * (len(shape) - 1), shape[-1])
    for given in (part for op in call.post_ops for part in op if isinstance(part, tuple)):
        if any(size > 1 for size in given) and tuple(given) != last:
            return f"a second operand of shape {given} is its reference's"
    return _scaled(call) or _post_ops(call, _VECTOR)


def _batch_normalization(call: OperatorCall) -> str:
    if "mean" not in call.rows:
        return "statistics of the batch are sums in an order that is not followed"
    if call.types[0] != call.dst or call.types[0] not in _WIDE or call.scales:
        return "it has one type of floats for source and destination here, and no scales"
    return "" if call.post_ops in ((), (("relu",),)) else "nothing but relu stands behind it"


def _eltwise(call: OperatorCall) -> str:
    name, (dtype,) = call.options["algorithm"], call.types
    if call.post_ops:
        return "its reference takes post-operations, whose functions and zeros are not followed"
    if dtype != call.dst:
        return "it has one type for source and destination"
    if call.scales:
        return "it takes no scales"
    if not fmt(dtype).is_float:
        return "" if name in _OF_INTEGERS else f"of integers it computes {', '.join(_OF_INTEGERS)}"
    if name == "round" and dtype != "f32":
        return "it rounds f32 alone"
    if name == "pow" and power_of(call.options.get("beta", 0.0)) in OWN_POWERS:
        return "powers other than -1, 0, 1/2, 1 and 2 call C's powf"
    return ""


def _binary(call: OperatorCall) -> str:
    if "dst" in call.scales:
        return "it takes no scale of the destination"
    if call.options["algorithm"] == "div" and not fmt(call.dst).is_float:
        return "a NaN on its way to an integer is not followed"
    if call.options["algorithm"] == "select" and call.post_ops:
        return "select with post-operations is not known"
    return _post_ops(call, sums=True)


def _prelu(call: OperatorCall) -> str:
    shape, weights = call.shapes
    if call.post_ops or call.scales or call.types[0] != call.dst:
        return "it has one type for source and destination, no post-operations and no scales"
    by_channel = tuple(size if i == 1 else 1 for i, size in enumerate(shape))
    if len(weights) == len(shape) and weights not in (shape, by_channel):
        return f"weights of {weights} for {shape} are its reference's, which gives zeros another sign"
    return ""


def _reduction(call: OperatorCall) -> str:
    name, integers = call.options["algorithm"], not fmt(call.types[0]).is_float
    if name not in ("max", "min") and not (integers and name in ("sum", "mean")):
        return f"{name} of {call.types[0]} is added up in an order that is not followed"
    if call.scales:
        return "it takes no scales"
    return "post-operations are its reference's, whose zeros are not followed" if call.post_ops else ""


def _pooling(call: OperatorCall) -> str:
    if call.scales:
        return "it takes no scales"
    if call.types[0] == "s32" or call.dst == "s32":
        return "s32 is not known"
    return _post_ops(call)


def _resampling(call: OperatorCall) -> str:
    if call.scales:
        return "it takes no scales"
    return _post_ops(call) or _broadcast(call, call.shapes[0])


def _concat(call: OperatorCall) -> str:
    if call.post_ops or "dst" in call.scales:
        return "it takes scales of sources, and nothing behind them"
    if call.types[0] == "s32" and call.dst in ("bf16", "f16"):
        return "it has no reorder between s32 and 16 bits"
    return ""


def _plain(call: OperatorCall) -> str:
    return "it takes no scales and no post-operations" if call.scales or call.post_ops else ""


def _conversion(call: OperatorCall) -> str:
    if "s32" in (*call.types, call.dst) and {"bf16", "f16"} & {*call.types, call.dst}:
        return "it has no reorder between s32 and 16 bits"
    given: list[Mapping[str, object]] = [call.zero_points, call.scales]
    if any(np.ndim(point) for point in call.zero_points.values()):
        return "zero points along a dimension: it reads the first one alone"
    if set(call.types + (call.dst,)) & {"s4", "u4", "f4_e2m1"}:
        return "roundings of its 4-bit types are not followed"
    if call.post_ops:
        return "what it adds to the destination is not followed"
    eights = {"f8_e4m3", "f8_e5m2"} & {*call.types, call.dst}
    if eights and {*_BYTES, "s32"} & {*call.types, call.dst}:
        return "it has no reorder between f8 and integers"
    return "f8 with scales is not followed" if eights and any(given) else ""


def _deconvolution(call: OperatorCall) -> str:
    strides, kernel = np.broadcast_arrays(call.options["strides"], call.shapes[1][2:])
    shifted = call.types[0] == "s8" or call.zero_points.get("src")
    if shifted and (strides.max() > 2 or (strides > kernel).any()):
        return "what it adds for an s8 source or zero point is wrong at strides above 2 or above the kernel"
    if any(np.ndim(point) for point in call.zero_points.values()):
        return "zero points by channel are not known"
    return _post_ops(call, _VECTOR, sums=True) or _broadcast(call, (1, call.shapes[1][0], 2, 2)[: len(call.shapes[0])])


_VECTOR = (
    "relu",
    "elu",
    "tanh",
    "abs",
    "sqrt",
    "linear",
    "hardsigmoid",
    "hardswish",
    "logistic",
    "exp",
    "swish",
    "mish",
)
_RULES: dict[str, Callable[[OperatorCall], str]] = {
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "batch_normalization": _batch_normalization,
    "eltwise": _eltwise,
    "binary": _binary,
    "prelu": _prelu,
    "reduction": _reduction,
    "pooling": _pooling,
    "resampling": _resampling,
    "concat": _concat,
    "weighted_sum": _plain,
    "shuffle": _plain,
    "conversion": _conversion,
    "deconvolution": _deconvolution,  # of integers, exact by VNNI
}
