"""onnxruntime's operators on quantized tensors ("QOperator" models): integers in, integers out, its order of steps.

Values follow its CPU kernels (onnxruntime/contrib_ops/cpu/quantization), which the tests run beside these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.activation import leaky_relu
from simdnn.networks.ops.elementwise import sigmoid, where
from simdnn.networks.ops.pool import average_pool_of_whole_windows, max_pool
from simdnn.networks.ops.quantized import (
    bounded,
    dequantize_linear,
    integer_product,
    quantize_linear,
    requantize_sums,
)
from simdnn.networks.ops.registry import MICROSOFT, axis_of, need, operator
from simdnn.networks.ops.shape import concat, transposed, view
from simdnn.networks.types import F32, label, limits


@operator("QLinearAdd", domain=MICROSOFT)
def added(
    k: Kernels,
    node: Node,
    a: Array,
    a_scale: Array,
    a_zero: Array | None,
    b: Array,
    b_scale: Array,
    b_zero: Array | None,
    y_scale: Array,
    y_zero: Array | None = None,
) -> Array:
    """Two fused multiply-adds of the integers onto what their zero points come to; the operand that is one number along
    the last dimension comes first, and else the second.
    """
    zero = _point(y_zero, a)
    x, y = (_Part.of(*each, y_scale) for each in ((a, a_scale, a_zero), (b, b_scale, b_zero)))
    first, last = (x, y) if _is_one_along(a, b) else (y, x)
    fixed = np.float32(zero.item()) - _fma(last.ratio, last.zero, first.ratio * first.zero)

    def formula(v: Element, w: Element, r: Element, s: Element, f: Element) -> Element:
        total = w.to_float().fma(s, v.to_float().fma(r, f))
        return bounded(total, *map(float, limits(zero.dtype))).nearest()

    numbers = [np.float32(v).reshape(1) for v in (first.ratio, last.ratio, fixed)]
    return k.map(formula, first.values, last.values, *numbers, dst=zero.dtype, name="qlinearadd")


@dataclass(frozen=True)
class _Part:
    """An operand of integers, its scale over that of the sum, and its zero point."""

    values: Array
    ratio: np.float32
    zero: np.float32

    @staticmethod
    def of(values: Array, scale: Array, zero: Array | None, y_scale: Array) -> _Part:
        ratio = np.float32(scale.item()) / np.float32(y_scale.item())
        return _Part(values, ratio, np.float32(_point(zero, values).item()))


def _is_one_along(a: Array, b: Array) -> bool:
    """Whether a is one number along the last dimension that has more than one."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    own = (1,) * (len(shape) - a.ndim) + a.shape
    return next((mine == 1 for size, mine in zip(reversed(shape), reversed(own), strict=True) if size > 1), True)


def _fma(x: np.float32, y: np.float32, z: np.float32) -> np.float32:
    """x * y + z, rounded once: y has 8 bits, so the product is exact in f64, and the sum nearly always."""
    return np.float32(np.float64(x) * np.float64(y) + np.float64(z))


@operator("QLinearMul", domain=MICROSOFT)
def multiplied(
    k: Kernels,
    node: Node,
    a: Array,
    a_scale: Array,
    a_zero: Array | None,
    b: Array,
    b_scale: Array,
    b_zero: Array | None,
    y_scale: Array,
    y_zero: Array | None = None,
) -> Array:
    """The product of integers, times one factor, plus the zero point, and then rounded."""
    zero = _point(y_zero, a)
    factor = np.float32(a_scale.item()) * np.float32(b_scale.item()) / np.float32(y_scale.item())

    def formula(v: Element, w: Element, x: Element, y: Element, r: Element, z: Element) -> Element:
        total = (v - x).to_float() * (w - y).to_float() * r + z
        return bounded(total, *map(float, limits(zero.dtype))).nearest()

    points = [_point(point, a).astype(np.int32).reshape(1) for point in (a_zero, b_zero)]
    numbers = [np.float32(v).reshape(1) for v in (factor, zero.item())]
    return k.map(formula, a, b, *points, *numbers, dst=zero.dtype, name="qlinearmul")


def _point(zero: Array | None, like: Array) -> Array:
    """A zero point, which says the type of what it belongs to; where there is none, 0 in the type of another."""
    return np.zeros((), like.dtype) if zero is None else zero


@operator("QLinearLeakyRelu", "QLinearSigmoid", domain=MICROSOFT)
def unary(
    k: Kernels, node: Node, x: Array, scale: Array, zero: Array | None, y_scale: Array, y_zero: Array | None = None
) -> Array:
    given = dequantize_linear(k, node, x, scale, zero)
    found = leaky_relu(k, node, given) if node.op == "QLinearLeakyRelu" else sigmoid(k, given)
    return quantize_linear(k, node, found, y_scale, _point(y_zero, x))


@operator("QLinearConcat", domain=MICROSOFT)
def joined(k: Kernels, node: Node, y_scale: Array, y_zero: Array, *parts: Array) -> Array:
    need(len(parts) % 3 == 0, f"{len(parts)} inputs behind the output's; three a part are needed")
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return concat(k, node, *(_rescaled(k, node, *triple, y_scale, y_zero) for triple in triples))


@operator("QLinearWhere", domain=MICROSOFT)
def chosen(k: Kernels, node: Node, condition: Array, *parts: Array) -> Array:
    need(len(parts) == 8, f"{len(parts)} inputs behind the condition; 8 are needed")
    yes, no = (_rescaled(k, node, *parts[i : i + 3], *parts[6:]) for i in (0, 3))
    return where(k, node, condition, yes, no)


def _rescaled(k: Kernels, node: Node, x: Array, scale: Array, zero: Array, y_scale: Array, y_zero: Array) -> Array:
    """Integers for another scale and zero point; as they are where those are the same."""
    if x.dtype == y_zero.dtype and scale.item() == y_scale.item() and zero.item() == y_zero.item():
        return x
    return quantize_linear(k, node, dequantize_linear(k, node, x, scale, zero), y_scale, y_zero)


def _of_either_layout(pooling: Callable[..., Array]) -> Callable[..., Array]:
    """A pooling of (N, C, …) that takes (N, …, C), too, where a node or its name says so: the values are the same."""

    @functools.wraps(pooling)
    def laid(k: Kernels, node: Node, x: Array, *rest: Array | None) -> Array:
        if not node.integer("channels_last", 0) and node.op != "NhwcMaxPool":
            return pooling(k, node, x, *rest)
        first = np.moveaxis(x, -1, 1)
        found = np.moveaxis(pooling(k, node, np.ascontiguousarray(first) if k.values else first, *rest), 1, -1)
        return np.ascontiguousarray(found) if k.values else found

    return laid


@operator("NhwcMaxPool", domain=MICROSOFT)
@_of_either_layout
def greatest(k: Kernels, node: Node, x: Array) -> Array:
    """MaxPool of bytes whose channels lie last, as models that onnxruntime has optimized have it."""
    found: Array = max_pool(k, node, x)
    return found


@operator("QLinearAveragePool", domain=MICROSOFT)
@_of_either_layout
def pooled(
    k: Kernels, node: Node, x: Array, scale: Array, zero: Array | None, y_scale: Array, y_zero: Array | None = None
) -> Array:
    """Means in f32; the zero point is added before the rounding."""
    means = average_pool_of_whole_windows(k, node, dequantize_linear(k, node, x, scale, zero))
    low, high = (0, 255) if label(x.dtype) == "u8" else (-128, 127)

    def formula(v: Element, s: Element, z: Element) -> Element:
        return bounded(v / s + z, low, high).nearest()

    each = [values.astype(F32).reshape((1,) * x.ndim) for values in (y_scale, _point(y_zero, x))]
    return k.map(formula, means, *each, dst=x.dtype, name="quantize")


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
@_of_either_layout
def globally_pooled(
    k: Kernels, node: Node, x: Array, scale: Array, zero: Array, y_scale: Array, y_zero: Array
) -> Array:
    """Sums in s32, scaled once: x_scale / (y_scale * size)."""
    need(x.ndim >= 3, f"an input of shape {x.shape}; (N, C, …) is needed")
    axes = tuple(range(2, x.ndim))
    size = int(np.prod(x.shape[2:]))
    need(0 < size < 1 << 24, f"means of {size} elements; 1 to {(1 << 24) - 1} are taken")
    sums = (x.astype(np.int64).sum(axes, keepdims=True) - size * int(zero.item())).astype(np.int32)
    factor = scale.astype(F32).reshape(()) / (y_scale.astype(F32).reshape(()) * np.float32(size))
    return requantize_sums(k, k.plain(sums, x, steps=2), factor, y_zero)


@operator("QGemm", domain=MICROSOFT)
def gemm(
    k: Kernels,
    node: Node,
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    c: Array | None = None,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
) -> Array:
    """Sums and an s32 bias, scaled to f32, or to 8 bits where there is a scale for that."""
    need(a.ndim == 2 and b.ndim == 2, f"{a.shape} x {b.shape}; two matrices are needed")
    a = transposed(k, a, (1, 0)) if node.integer("transA", 0) else a
    b = np.ascontiguousarray(b.T) if node.integer("transB", 0) else b
    total = integer_product(k, a, b, a_zero, b_zero)
    if c is not None:
        added = np.broadcast_to(c.astype(np.int32), total.shape)
        total = k.plain((total.astype(np.int64) + added).astype(np.int32), total, c)
    left, right = a_scale.astype(F32).reshape(1, 1), b_scale.astype(F32).reshape(1, -1)
    factor = np.float32(node.number("alpha", 1.0)) * left * right
    if y_scale is None:
        return k.map(lambda v, s: v.to_float() * s, total, factor, dst=F32, name="dequantize")
    return requantize_sums(k, total, factor / y_scale.astype(F32).reshape(1, 1), _point(y_zero, a))


@operator("QLinearSoftmax", domain=MICROSOFT)
def softmax(
    k: Kernels, node: Node, x: Array, scale: Array, zero: Array | None, y_scale: Array, y_zero: Array | None = None
) -> Array:
    """Powers of e from a table of f32, added one after the other. The output's scale is taken as 1 / floor(1 / scale),
    as onnxruntime does.
    """
    old = node.integer("opset", 13) < 13
    axis = axis_of(node.integer("axis", 1 if old else -1), x.ndim)
    rows = x.reshape(*x.shape[:axis], -1) if old else np.moveaxis(x, axis, -1)
    if x.size == 0:
        return view(k, x, x.shape)
    wide = rows.astype(np.int16)
    powers = _powers(float(scale.item()), rows.shape[-1])[wide - wide.max(-1, keepdims=True) + 255]
    totals = np.add.accumulate(powers, -1)[..., -1:]  # one after the other, as np.sum would not
    steps = np.floor(np.float32(1) / y_scale.astype(F32).reshape(()))
    shares = np.rint(powers / totals * steps) + np.float32(_point(y_zero, x).item())
    found = np.clip(shares, *limits(x.dtype)).astype(x.dtype)
    result = found.reshape(x.shape) if old else np.moveaxis(found, -1, axis)
    return k.plain(np.ascontiguousarray(result), x, steps=6)


def _powers(scale: float, count: int) -> Array:
    """e to (i - 255) * scale for i from 0 to 255, all as far up as `count` of them can be added in f32."""
    room = np.log(np.finfo(np.float32).max / np.float32(count), dtype=np.float32)
    shift = max(0.0, float(room) - 5) / scale
    found: Array = np.exp((np.arange(256.0) - 255 + shift) * scale).astype(np.float32)
    return found
