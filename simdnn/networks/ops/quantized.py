"""Integer operators: sums by the machine's int8 kernels, and the conversions around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.networks.between_products import FLOATS
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import cast_to, has_kernel, lines_of, narrowed
from simdnn.networks.ops.linear import checked_conv, convolve, image_windows, with_attr
from simdnn.networks.ops.registry import MICROSOFT, axis_of, need, operator
from simdnn.networks.ops.shape import view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F16, F32, element, is_float, label, limits
from simdnn.primitives import Attr

#: operators, whatever their domain, that multiply integers, and which input their weights are
INTEGER_PRODUCTS = {"ConvInteger": 1, "MatMulInteger": 1, "QLinearConv": 3, "QLinearMatMul": 3}
INTEGER_PRODUCTS |= {"QConv": 3, "QMatMul": 3, "QGemm": 3}
BYTES = {"u8": (0, 255), "s8": (-128, 127)}
S32_IN_F32 = (-2147483648.0, 2147483520.0)  # what f32 has of it
#: operators that give integers, and which inputs are the scale and the zero point of those
_SCALED = {"QuantizeLinear": (1, 2), "QLinearConv": (6, 7), "QLinearMatMul": (6, 7)}
_SCALED |= dict.fromkeys(("QConv", "QMatMul", "QGemm"), (7, 8))


def stands_for(node: Node, value: Any, constants: Mapping[str, Array]) -> tuple[str, Array] | None:
    """The tensor that a node's first output is, and its real numbers: floats are themselves, integers with one constant
    scale are those of the tensor that they quantize. None where neither is so.
    """
    if not isinstance(value, np.ndarray):
        return None
    if is_float(value.dtype):
        return node.outputs[0], value
    names = [node.inputs[i] for i in _SCALED.get(node.op, ()) if i < len(node.inputs) and node.inputs[i]]
    found = [constants.get(name) for name in names]
    if not names or any(a is None or a.size != 1 for a in found):
        return None
    scale, zero = float(found[0].reshape(())), int(found[1].reshape(())) if len(found) > 1 else 0  # type: ignore[union-attr]
    name = node.inputs[0] if node.op == "QuantizeLinear" else node.get("quantizes", node.outputs[0])
    return name, (value.astype(np.float32) - np.float32(zero)) * np.float32(scale)


# -- to and from integers ---------------------------------------------------------------------------------------------
def placed(node: Node, values: Array, x: Array, what: str) -> Array:
    """A scale or zero point as it broadcasts over x: one, one for each index of `axis`, or one a block of it."""
    if values.size == 1:
        return values.reshape((1,) * x.ndim)
    axis, block = axis_of(node.integer("axis", 1), x.ndim), node.integer("block_size", 0)
    if values.ndim == x.ndim and block:
        need(values.shape[axis] * block >= x.shape[axis], f"{what} of shape {values.shape} with blocks of {block}")
        return np.repeat(values, block, axis).take(np.arange(x.shape[axis]), axis)
    need(
        values.ndim == 1 and values.size == x.shape[axis],
        f"{what} of shape {values.shape} for axis {axis} of {x.shape}",
    )
    return values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


@operator("QuantizeLinear")
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(k: Kernels, node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """saturate(nearest even of x / scale + zero point); to 8-bit floats the quotient is rounded once."""
    dtype = zero.dtype if zero is not None else element(node.integer("output_dtype", 0) or 2)
    precision = element(node.integer("precision", 0) or 1)
    if precision != F32 and precision != np.float64:  # the quotient in a narrower type
        x = cast_to(k, cast_to(k, x, precision), F32)
    if k.runs_models and x.dtype == F16:  # the quotient is of f16
        x = k.map(lambda v, s: v / s, x, placed(node, scale, x, "scale"), dst=F16, name="divide")
        scale = np.ones((), F32)
    step = placed(node, scale, x, "scale").astype(F32)
    offset = None if zero is None else placed(node, zero, x, "zero point")
    if label(dtype) == "s32" and offset is not None and not offset.any() and label(x.dtype) == "f32":
        return k.map(lambda v, s: bounded(v / s, *S32_IN_F32).nearest(), x, step, dst=dtype, name="quantize")
    if label(dtype) in BYTES and has_kernel(x):
        return requantized(k, x, step, offset, dtype)
    if k.shadows(x):
        return k.plain(shadow(x.shape, dtype), x, steps=4)
    with np.errstate(all="ignore"):
        quotient = x.astype(np.float32) / step
    if is_float(dtype):
        return k.plain(narrowed(quotient, dtype, bool(node.integer("saturate", 1))), x, steps=3)
    low, high = limits(dtype)
    total = np.rint(quotient) + (0 if offset is None else offset.astype(np.int64))
    return k.plain(np.clip(total, low, high).astype(np.int64).astype(dtype), x, steps=4)


def requantized(k: Kernels, x: Array, step: Array, zero: Array | None, dtype: np.dtype[Any]) -> Array:
    """x / step to the nearest integer, plus the zero point, saturated, as a kernel."""
    low, high = BYTES[label(dtype)]
    if zero is None or not zero.any():
        return k.map(lambda v, s: bounded(v / s, low, high).nearest(), x, step, dst=dtype, name="quantize")

    def formula(v: Element, s: Element, z: Element) -> Element:
        q = bounded(v / s, -512.0, 512.0).nearest() + z
        return q.at_least(low)

    return k.map(formula, x, step, zero.astype(np.int32), dst=dtype, name="quantize")


def bounded(v: Element, low: float, high: float) -> Element:
    """Between bounds, so that the conversion to s32 cannot overflow; what is NaN becomes the lower one."""
    return _floor(v, low).minimum(float(high))


def _floor(v: Element, low: float) -> Element:
    return v._apply("max", v._lift(float(low)))  # the second operand survives where the first is NaN


@operator("DequantizeLinear")
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(k: Kernels, node: Node, x: Array, scale: Array, zero: Array | None = None) -> Array:
    dtype = element(node.integer("output_dtype", 0)) if node.get("output_dtype") else scale.dtype
    step = placed(node, scale, x, "scale")
    offset = None if zero is None or is_float(x.dtype) else placed(node, zero, x, "zero point")
    if label(x.dtype) in ("u8", "s8", "s32") and label(dtype) in FLOATS and step.dtype == F32:
        if offset is None or not offset.any():
            return k.map(lambda v, s: v.to_float() * s, x, step, dst=dtype, name="dequantize")
        if label(x.dtype) != "s32":
            offset = offset.astype(np.int32)
            return k.map(lambda v, s, z: (v - z).to_float() * s, x, step, offset, dst=dtype, name="dequantize")
    if k.shadows(x):
        return k.plain(shadow(x.shape, dtype), x, steps=2)
    wide = (
        x.astype(np.float32)
        if is_float(x.dtype)
        else x.astype(np.int64) - (0 if offset is None else offset.astype(np.int64))
    )
    result = (wide.astype(np.float32) * step.astype(np.float32)).astype(dtype)
    return k.plain(result, x, steps=2)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(k: Kernels, node: Node, x: Array) -> tuple[Array, Array, Array]:
    """u8 over the range that the data has, 0 included."""
    flat = view(k, x, (1, x.size)) if x.ndim == 0 else x
    every = list(range(flat.ndim))
    low, high = (k.reduce(kind, flat, every, values=_extreme(k, kind, flat)) for kind in ("min", "max"))
    bottom, top = (float(found.reshape(-1)[0]) for found in (low, high))
    bottom, top = min(bottom, 0.0), max(top, 0.0)  # a NaN stays
    scale = np.float32((np.float32(top) - np.float32(bottom)) / np.float32(255))
    if k.runs_models and top == bottom:  # zeros alone, for which ONNX has a scale of 0
        scale = np.float32(1)
    with np.errstate(invalid="ignore"):
        point = np.rint(np.clip(-np.float32(bottom) / scale, 0, 255)) if scale else np.float32(0)
    if np.isnan(point):  # of -infinity over infinity
        point = np.float32(255 if k.runs_models else 0)
    zero = np.array(point, np.uint8)
    step = np.full((1,) * flat.ndim, scale or 1, F32)
    q = requantized(k, flat, step, zero.reshape((1,) * flat.ndim), np.dtype(np.uint8))
    return view(k, q, x.shape), np.asarray(scale), zero


def _extreme(k: Kernels, kind: str, x: Array) -> Callable[[], Array] | None:
    """A library's own search for the greatest or the least, where a NaN or an infinity shows how it goes."""
    lines = lines_of(k, x) if k.values and not np.isfinite(x).all() else None
    return None if lines is None else lambda: lines.extreme_of_all(kind, x)


# -- integer products -------------------------------------------------------------------------------------------------
def signed(w: Array, zero: Array | None) -> tuple[Array, Array | None]:
    """u8 weights as s8 ones: they and their zero point become 128 less, since kernels multiply by s8."""
    if label(w.dtype) == "s8":
        return w, zero
    need(label(w.dtype) == "u8", f"weights of {label(w.dtype)}; u8 and s8 have kernels")
    shifted = (w.astype(np.int16) - 128).astype(np.int8)
    point = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64)
    return shifted, point - 128


def _common(zero: Array | None) -> int | None:
    """A zero point that is one number; None where it is several."""
    if zero is None:
        return 0
    values = np.unique(zero.astype(np.int64))
    return int(values[0]) if values.size == 1 else None


def exactly(k: Kernels) -> Kernels:
    """The kernels whose sums of integers are exact; their calls are noted together with those of `k`."""
    return replace(k, attr=replace(k.attr, exact_int8=True))


def _as_stored(k: Kernels, a: Array, w: Array) -> Kernels:
    """The kernels for two operands as they are stored: a library that runs models saturates u8 x s8 at most."""
    return exactly(k) if k.runs_models and (label(a.dtype), label(w.dtype)) != ("u8", "s8") else k


def _with_own_zeros(k: Kernels, node: Node, x: Array, w: Array, w_zero: Array | None) -> Kernels:
    """The kernels for a convolution of one channel a group whose weights have a zero point of their own each: a library
    may take that as a product of matrices, which saturates.
    """
    library = k.target.library
    alone = x.shape[1] == w.shape[0] == node.integer("group", 1) and (label(x.dtype), label(w.dtype)) == ("u8", "s8")
    if library is None or not k.runs_models or not alone or _common(w_zero) is not None:
        return k
    row = library.row_for("own zeros", k.target.caps)
    return replace(k, target=replace(k.target, dispatch=row)) if row else k


def integer_product(k: Kernels, a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """(a - a_zero) x (b - b_zero) in s32. Zero points that are not common are corrected after the kernel's sums."""
    k = _as_stored(k, a, b)
    need(label(a.dtype) in BYTES, f"a source of {label(a.dtype)}; u8 and s8 have kernels")
    need(a.ndim >= 2 and b.ndim >= 2, f"{a.shape} x {b.shape}; matrices are needed")
    need(a.shape[-1] == b.shape[-2], f"{a.shape} x {b.shape}: {a.shape[-1]} columns meet {b.shape[-2]} rows")
    b, b_zero = signed(b, b_zero)
    source, weights = _common(a_zero), _common(b_zero)
    points = {name: np.array([v], np.int32) for name, v in (("src", source), ("wei", weights)) if v}
    total = k.matmul(a, b, attr=with_attr(k, zero_points=points))
    if source is not None and weights is not None:
        return total
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    za = np.zeros(1, np.int64) if a_zero is None else a_zero.astype(np.int64).reshape(_rows(a_zero))
    zb = np.zeros(1, np.int64) if b_zero is None else b_zero.astype(np.int64).reshape(_columns(b_zero))
    with_source = wide_a - za if source is None else wide_a - source
    exact = total.astype(np.int64)
    if weights is None:
        exact = exact - with_source.sum(-1, keepdims=True) * zb
    if source is None:
        exact = exact - za * (wide_b.sum(-2, keepdims=True) - wide_b.shape[-2] * (weights or 0))
        if weights is None:
            exact = exact + za * 0
    return k.plain(exact.astype(np.int32), total, steps=4)


def _rows(zero: Array) -> tuple[int, ...]:
    return (-1, 1) if zero.ndim == 1 and zero.size > 1 else zero.shape


def _columns(zero: Array) -> tuple[int, ...]:
    return (1, -1) if zero.ndim == 1 and zero.size > 1 else zero.shape


@operator("MatMulInteger")
def matmul_integer(
    k: Kernels, node: Node, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    return integer_product(k, a, b, a_zero, b_zero)


@operator("QLinearMatMul")
@operator("QLinearMatMul", domain=MICROSOFT)
def qlinear_matmul(
    k: Kernels,
    node: Node,
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    total = integer_product(k, a, b, a_zero, b_zero)
    left = a_scale.astype(F32).reshape(_rows(a_scale)) if a_scale.size > 1 else a_scale.astype(F32).reshape(1)
    right = b_scale.astype(F32).reshape(_columns(b_scale)) if b_scale.size > 1 else b_scale.astype(F32).reshape(1)
    factor = np.float32(1) * left * right / y_scale.astype(F32)
    return requantize_sums(k, total, factor, y_zero)


def requantize_sums(k: Kernels, total: Array, factor: Array, zero: Array | None) -> Array:
    """saturate(nearest even of sum * factor + zero point)."""
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    low, _ = BYTES[label(dtype)]
    point = np.zeros((1,) * total.ndim, np.int32) if zero is None else zero.astype(np.int32)
    point = point.reshape((1,) * total.ndim) if point.size == 1 else point
    factor = np.asarray(factor, F32)
    factor = factor.reshape((1,) * (total.ndim - factor.ndim) + factor.shape)
    need(
        np.broadcast_shapes(point.shape, factor.shape, total.shape) == total.shape, "scales and zero points do not fit"
    )

    def formula(v: Element, s: Element, z: Element) -> Element:
        return (bounded(v.to_float() * s, -512.0, 512.0).nearest() + z).at_least(low)

    return k.map(formula, total, factor, point, dst=dtype, name="requantize")


def integer_convolution(
    k: Kernels, node: Node, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None
) -> Array:
    """The s32 sums. Weights' zero points, one a channel or one in all, are taken off after the kernel's sums."""
    k = _with_own_zeros(_as_stored(k, x, w), node, x, w, w_zero)
    need(label(x.dtype) in BYTES, f"a source of {label(x.dtype)}; u8 and s8 have kernels")
    checked_conv(k, node, x, w)
    w, w_zero = signed(w, w_zero)
    source = _common(x_zero)
    need(source is not None, "several source zero points; one is needed")
    points = {"src": np.array([source], np.int32)} if source else {}
    attr = with_attr(k, zero_points=points)
    if k.runs_models and x.ndim == 5:
        total = _volume_sums(k, node, x, w, attr, source or 0)
    else:
        total = convolve(k, node, x, w, attr=attr)
    if w_zero is None or not w_zero.any():
        return total
    need(
        w_zero.size in (1, w.shape[0]),
        f"{counted(w_zero.size, 'weight zero point')} for {counted(w.shape[0], 'channel')}",
    )
    ones = np.ones((1, *w.shape[1:]), np.int8)
    groups = node.integer("group", 1)
    every = np.repeat(ones, groups, 0)
    sums = convolve(k, node, x, every, attr=with_attr(k, zero_points=points))  # of the source under each window
    sums = np.repeat(sums, w.shape[0] // groups, 1).astype(np.int64)
    exact = total.astype(np.int64) - sums * w_zero.astype(np.int64).reshape([1, -1] + [1] * (x.ndim - 2))
    return k.plain(exact.astype(np.int32), total, sums.astype(np.int32), steps=2)


def _volume_sums(k: Kernels, node: Node, x: Array, w: Array, attr: Attr, padding: int) -> Array:
    """A convolution over three dimensions by a library that runs models: each window is one line of a product, taps
    outside and channels inside; with one channel a group sums are exact.
    """
    window = image_windows(node, x, w)
    if window.channels == window.filters == 1:
        return convolve(exactly(k), node, x, w, attr=attr)
    images, groups, inner, pixels = window.lines
    channels = window.channels
    columns = window.columns(x, padding) if k.values else shadow(window.lines, x.dtype)
    lines = columns.reshape(images, groups, channels, -1, pixels).transpose(0, 1, 4, 3, 2)
    lines = k.moved(np.ascontiguousarray(lines.reshape(images, groups, pixels, inner)))
    filters = w.reshape(groups, window.filters, channels, -1).transpose(0, 3, 2, 1).reshape(groups, inner, -1)
    sums = [
        [k.matmul(lines[i, g], np.ascontiguousarray(filters[g]), attr=attr) for g in range(groups)]
        for i in range(images)
    ]
    made: Array = np.array(sums).transpose(0, 1, 3, 2).reshape(images, len(w), *window.out)
    return np.ascontiguousarray(made) if k.values else shadow(made.shape, made.dtype)


@operator("ConvInteger")
def conv_integer(
    k: Kernels, node: Node, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    if k.runs_models:  # which multiplies the weights by the windows, not the windows by the weights
        if (label(x.dtype), label(w.dtype)) == ("s8", "u8"):
            raise Unimplemented("ConvInteger of s8 with u8 weights: its pairs are not modelled; what works: s8 weights")
        k = exactly(k)
    return integer_convolution(k, node, x, w, x_zero, w_zero)


@operator("QLinearConv")
def qlinear_conv(
    k: Kernels,
    node: Node,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
) -> Array:
    total = integer_convolution(k, node, x, w, x_zero, w_zero)
    channel = [1, -1] + [1] * (x.ndim - 2)
    if bias is not None:
        added = bias.astype(np.int32).reshape(channel)
        total = k.plain((total.astype(np.int64) + added).astype(np.int32), total, added)
    factor = x_scale.astype(F32) * w_scale.astype(F32) / y_scale.astype(F32)
    return requantize_sums(k, total, factor.reshape(channel), y_zero)
