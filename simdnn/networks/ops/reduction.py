"""Reductions, and the operators that are made of reductions and formulas: softmax and the normalizations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.libraries import LineSums
from simdnn.networks.between_products import FLOATS, Formula
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy, has_kernel, lines_of, powers_of, widened
from simdnn.networks.ops.function import by_body
from simdnn.networks.ops.in_f32 import in_f32
from simdnn.networks.ops.registry import MICROSOFT, axis_of, need, operator
from simdnn.networks.ops.shape import ints, transposed, view
from simdnn.networks.passes.nchwc import LAID
from simdnn.networks.types import F32, is_float, label

#: operator -> (reduction kernel, NumPy's values for other types)
_REDUCTIONS: dict[str, tuple[str, Callable[..., Array]]] = {
    "ReduceSum": ("sum", np.sum),
    "ReduceMean": ("sum", np.mean),
    "ReduceMax": ("max", np.max),
    "ReduceMin": ("min", np.min),
    "ReduceProd": ("prod", np.prod),
    "ReduceL1": ("sum_abs", lambda x, **o: np.sum(np.abs(x), **o)),
    "ReduceL2": ("sum_square", lambda x, **o: np.sqrt(np.sum(np.square(x), **o))),
    "ReduceSumSquare": ("sum_square", lambda x, **o: np.sum(np.square(x), **o)),
    "ReduceLogSum": ("sum", lambda x, **o: np.log(np.sum(x, **o))),
    "ReduceLogSumExp": ("sum", lambda x, **o: np.log(np.sum(np.exp(x), **o))),
}


@operator(*_REDUCTIONS)
def reduction(k: Kernels, node: Node, x: Array, axes: Array | None = None) -> Array:
    since = 13 if node.op == "ReduceSum" else 18
    given = node.get("axes") if node.version < since else None if axes is None else ints(axes, "axes")
    if not given and node.integer("noop_with_empty_axes", 0):
        return x
    along = sorted({axis_of(a, x.ndim) for a in given}) if given else list(range(x.ndim))
    result = _reduced(k, node, x, along)
    kept = result.shape if node.integer("keepdims", 1) else [n for i, n in enumerate(result.shape) if i not in along]
    return view(k, result, kept)


def _reduced(k: Kernels, node: Node, x: Array, axes: list[int]) -> Array:
    """The reduction of an array, with the reduced dimensions left as 1."""
    kind, plain = _REDUCTIONS[node.op]
    if not has_kernel(x) or x.size == 0 or x.ndim == 0:
        wide = widened(x)
        if node.op in ("ReduceMax", "ReduceMin") and x.size == 0:
            plain = _extreme_of_nothing(plain, node.op, wide)
        with np.errstate(all="ignore"):
            found = np.asarray(plain(wide, axis=tuple(axes), keepdims=True)).astype(x.dtype)
        return k.plain(found, x, steps=2)
    if (lines := lines_of(k, x)) is not None:
        return _reduced_by_lines(k, node.op, x, axes, lines)
    if node.op == "ReduceLogSumExp":
        top = k.reduce("max", x, axes, dst=F32)
        top = np.where(np.isfinite(top), top, 0).astype(F32) if k.values else top
        total = k.reduce("sum", k.map(lambda v, t: f.exp(v - t), x, top, dst=F32, name="exp"), axes)
        return k.map(lambda s, t: f.log(s) + t, total, top, dst=x.dtype, name="log")
    divisor = prod(x.shape[a] for a in axes) if node.op == "ReduceMean" else 1
    last = {"ReduceL2": lambda v: v.sqrt(), "ReduceLogSum": f.log}.get(node.op)
    total = k.reduce(kind, x, axes, divisor, dst=F32 if last else x.dtype)
    return total if last is None else k.map(last, total, dst=x.dtype, name="map")


def _reduced_by_lines(k: Kernels, op: str, x: Array, axes: list[int], lines: LineSums) -> Array:
    """A reduction of f32 in a library's order."""
    kind, _ = _REDUCTIONS[op]
    if kind in ("max", "min"):
        return k.reduce(kind, x, axes, values=lambda: lines.reduced(kind, x, axes))
    if op == "ReduceLogSumExp":
        top = k.reduce("max", x, axes, values=lambda: _greatest_finite(x, axes))
        powers = k.plain(lines.exponential(x - top) if k.values else x, x, steps=8)
        total = k.reduce("sum", powers, axes, values=lambda: lines.reduced("chain", powers, axes))
        found = k.map(lambda s, t: s + t, _logarithm(k, total, lines), top, name="add")
        if k.values and len(axes) == x.ndim:  # an infinite greatest is the result, a NaN behind it or none
            greatest = lines.reduced("max", x, axes)
            return np.where(np.isinf(greatest), greatest, found)
        return found
    divisor = prod(x.shape[a] for a in axes) if op == "ReduceMean" else 1
    order = {"ReduceMean": "mean", "ReduceLogSum": "sum_log"}.get(op, kind)
    total = k.reduce(kind, x, axes, divisor, values=lambda: lines.reduced(order, x, axes))
    if op == "ReduceLogSum":
        return _logarithm(k, total, lines)
    return k.map(lambda v: v.sqrt(), total, name="sqrt") if op == "ReduceL2" else total


def _greatest_finite(x: Array, axes: Sequence[int]) -> Array:
    """The greatest finite number, or 0 where there is none; one search begins at 0 in place of an infinity."""
    first = x[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(x.ndim))]
    found = np.max(np.where(np.isfinite(x), x, -np.inf), tuple(axes), keepdims=True)
    found = np.where(np.isinf(first), np.maximum(found, 0), found)
    return np.where(np.isinf(found), 0, found).astype(F32)


def _logarithm(k: Kernels, x: Array, lines: LineSums) -> Array:
    """The logarithm of sums, as the system's library has it."""
    return k.plain(lines.logarithm(x) if k.values else x, x, steps=8)


def _extreme_of_nothing(plain: Callable[..., Array], op: str, x: Array) -> Callable[..., Array]:
    if is_float(x.dtype):
        start: Any = -np.inf if op == "ReduceMax" else np.inf
    elif x.dtype == bool:
        start = op != "ReduceMax"
    else:
        limits = np.iinfo(x.dtype)
        start = limits.min if op == "ReduceMax" else limits.max
    return lambda v, **o: np.asarray(plain(v, initial=start, **o))


# -- softmax ----------------------------------------------------------------------------------------------------------
@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(k: Kernels, node: Node, x: Array) -> Array:
    """Over one axis since opset 13; before, over all dimensions from `axis` on, taken as one."""
    if node.version < 13:
        axis = axis_of(node.integer("axis", 1), x.ndim) if x.ndim else 0
        flat = view(k, x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return view(k, _softmax(k, node.op, flat, 1), x.shape)
    return _softmax(k, node.op, x, axis_of(node.integer("axis", -1), x.ndim))


def _softmax(k: Kernels, op: str, x: Array, axis: int) -> Array:
    if op == "Hardmax":
        if k.runs_models and k.values and np.isnan(x).any():
            raise Unimplemented(
                "Hardmax of NaN: in onnxruntime some lanes forget one, and a line whose greatest is NaN has no 1 at all"
            )
        places = np.expand_dims(np.argmax(x, axis), axis)
        result = np.zeros_like(x)
        np.put_along_axis(result, places, 1, axis)
        return k.plain(result, x, steps=4)
    if x.size == 0:
        return x
    if not has_kernel(x):

        def plain(v: Array) -> Any:
            shifted = v - v.max(axis=axis, keepdims=True)
            total = np.exp(shifted).sum(axis=axis, keepdims=True)
            return np.exp(shifted) / total if op == "Softmax" else shifted - np.log(total)

        return by_numpy(k, plain, x, steps=20)
    return softmax_kernel(k, x, axis, op == "LogSoftmax")


def softmax_kernel(k: Kernels, x: Array, axis: int, logarithm: bool = False) -> Array:
    """Four passes: the greatest, e**(x - greatest), their sum, the quotient; in f32 between the passes."""
    top = k.reduce("max", x, [axis], dst=F32)
    if (lines := lines_of(k, x)) is not None:
        power = powers_of(k)
        powers = k.map(lambda v, t: power(v - t), x, top, name="exp")

        def sums() -> Array:
            return np.moveaxis(lines.sum_of_powers(np.moveaxis(powers, axis, -1), k.target.caps), -1, axis)

        total = k.reduce("sum", powers, [axis], values=sums)
        if logarithm:
            return k.map(lambda v, t, s: v - t - s, x, top, _logarithm(k, total, lines), name="logsoftmax")
        return k.map(lambda v, s: v * s, powers, k.map(lambda s: 1.0 / s, total, name="div"), name="mul")
    if logarithm:
        total = k.reduce("sum", k.map(lambda v, t: f.exp(v - t), x, top, dst=F32, name="exp"), [axis])
        return k.map(lambda v, t, s: v - t - f.log(s), x, top, total, name="logsoftmax")
    powers = k.map(lambda v, t: f.exp(v - t), x, top, dst=F32, name="exp")
    total = k.reduce("sum", powers, [axis])
    return k.map(lambda v, s: v / s, powers, total, dst=x.dtype, name="div")


# -- normalizations ---------------------------------------------------------------------------------------------------
def normalized(
    k: Kernels, x: Array, axes: Sequence[int], epsilon: float, dst: np.dtype[Any] | None = None
) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, the mean, and 1 / sqrt(…); statistics in f32."""
    count = prod(x.shape[a] for a in axes)
    mean = k.reduce("sum", x, axes, count, dst=F32)
    centred = k.map(lambda v, m: v - m, x, mean, dst=F32, name="sub")
    variance = k.reduce("sum_square", centred, axes, count, dst=F32)
    inverse = k.map(lambda v: 1.0 / (v + epsilon).sqrt(), variance, name="rsqrt")
    return k.map(lambda c, i: c * i, centred, inverse, dst=dst or x.dtype, name="mul"), mean, inverse


def normalized_by_lines(
    k: Kernels,
    x: Array,
    axes: Sequence[int],
    epsilon: float,
    scale: Array,
    bias: Array | None,
    lines: LineSums,
    centred: bool = True,
    way: str = "",
) -> tuple[Array, Array, Array]:
    """A normalization over the last `axes` by a library's statistics, scale and bias with it: the result, the mean and
    1 / deviation. `centred`: around the mean, not zero; `way`: how statistics are found, in place of the line's own.
    """
    count = prod(x.shape[a] for a in axes)
    way = way or lines.way_of(count, centred)
    mean, variance = _statistics(k, x, axes, lines, centred, way)
    apart = k.map(lambda v, m: v - m, x, mean, name="sub") if centred else x
    deviation = k.map(lambda v: (v + epsilon).sqrt(), variance, name="sqrt")
    inverse = k.map(lambda d: 1.0 / d, deviation, name="div")
    if way != "lanes":
        by, formula = deviation, lambda c, d, s, *b: c / d * s + b[0] if b else c / d * s
    else:
        by, formula = inverse, lambda c, i, s, *b: (c * i).fma(s, b[0]) if b else c * i * s
    return k.map(formula, apart, by, scale, *([] if bias is None else [bias]), name="scale"), mean, inverse


def _statistics(
    k: Kernels, x: Array, axes: Sequence[int], lines: LineSums, centred: bool, way: str
) -> tuple[Array, Array]:
    """A library's mean and variance over the last `axes`."""
    count = prod(x.shape[a] for a in axes)
    found = functools.cache(lambda: lines.statistics(np.ascontiguousarray(x).reshape(-1, count), centred, way))
    mean = np.zeros([1] * x.ndim, F32)
    if centred:
        mean = k.reduce("sum", x, axes, count, values=lambda: found()[0])
    return mean, k.reduce("sum_square", x, axes, count, values=lambda: found()[1])


def _wide(k: Kernels, x: Array) -> Array:
    """f64 and the like have no kernel here: they are computed in f32."""
    return x if label(x.dtype) in FLOATS else by_numpy(k, lambda v: v, x, dst=F32)


@operator("LayerNormalization")
@in_f32
def layer_normalization(k: Kernels, node: Node, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, ...]:
    axis = axis_of(node.integer("axis", -1), x.ndim)
    dtype, x = x.dtype, _wide(k, x)
    axes, epsilon = range(axis, x.ndim), node.number("epsilon", 1e-5)
    if (lines := lines_of(k, x)) is not None:
        return normalized_by_lines(k, x, axes, epsilon, scale, bias, lines)
    unit, mean, inverse = normalized(k, x, axes, epsilon, F32)
    if bias is None:
        result = k.map(lambda u, s: u * s, unit, _wide(k, scale), dst=x.dtype, name="scale")
    else:
        result = k.map(lambda u, s, b: u.fma(s, b), unit, _wide(k, scale), _wide(k, bias), dst=x.dtype, name="scale")
    return _narrow(k, result, dtype), mean, inverse


def _narrow(k: Kernels, x: Array, dtype: np.dtype[Any]) -> Array:
    return x if x.dtype == dtype else by_numpy(k, lambda v: v, x, dst=dtype)


@operator("RMSNormalization")
@operator("SimplifiedLayerNormalization")
@in_f32
def rms_normalization(k: Kernels, node: Node, x: Array, scale: Array) -> Array:
    axis = axis_of(node.integer("axis", -1), x.ndim)
    dtype, x, epsilon = x.dtype, _wide(k, x), node.number("epsilon", 1e-5)
    axes = range(axis, x.ndim)
    count = prod(x.shape[a] for a in axes)
    if (lines := lines_of(k, x)) is not None:
        return normalized_by_lines(k, x, axes, epsilon, scale, None, lines, centred=False)[0]
    mean = k.reduce("sum_square", x, list(axes), count, dst=F32)
    inverse = k.map(lambda v: 1.0 / (v + epsilon).sqrt(), mean, name="rsqrt")
    result = k.map(lambda v, i, s: v * i * s, x, inverse, _wide(k, scale), dst=x.dtype, name="scale")
    return _narrow(k, result, dtype)


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
@in_f32
def skip_layer_normalization(
    k: Kernels, node: Node, x: Array, skip: Array, gamma: Array, *more: Array | None
) -> tuple[Any, ...]:
    total, epsilon = k.map(lambda a, b: a + b, x, skip, name="add"), node.number("epsilon", 1e-12)
    node = replace(node, attributes={**node.attributes, "epsilon": epsilon})  # not the default of what it ends with
    simple = node.op == "SkipSimplifiedLayerNormalization"
    beta, bias = (
        (None if simple else (more[0] if more else None)),
        (more[-1] if len(more) > (0 if simple else 1) else None),
    )
    if bias is not None:
        total = k.map(lambda a, b: a + b, total, bias, name="add")
    if (lines := lines_of(k, total)) is not None:
        axes = [total.ndim - 1]
        found = normalized_by_lines(k, total, axes, epsilon, gamma, beta, lines, centred=not simple, way="updates")
        return found[0], None, None, total
    if simple:
        return rms_normalization(k, node, total, gamma), None, None, total
    return layer_normalization(k, node, total, gamma, beta)[0], None, None, total


def by_channel(values: Array, rank: int) -> Array:
    """(C,) as it broadcasts over (N, C, …)."""
    return values.reshape((1, -1) + (1,) * (rank - 2)) if rank > 1 else values


@operator("BatchNormalization")
def batch_normalization(
    k: Kernels, node: Node, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Any:
    """Inference: one multiply-add an element, its factor and addend computed for each channel before."""
    epsilon = node.number("epsilon", 1e-5)
    training = (
        node.integer("training_mode", 0)
        if node.version >= 14
        else not node.integer("is_test", 1)
        if node.version < 7
        else 0
    )
    channels = x.shape[1] if x.ndim > 1 else 1
    need(all(v.size == channels for v in (scale, bias, mean, variance)), f"parameters do not have {channels} values")
    if not has_kernel(x, scale, bias, mean, variance) or x.ndim < 2:
        return by_numpy(
            k,
            lambda v, s, b, m, w: (v - m) / np.sqrt(w + epsilon) * s + b,
            x,
            *(by_channel(p, x.ndim) for p in (scale, bias, mean, variance)),
            steps=2,
        )
    extra: tuple[Array, ...] = ()
    if training:
        axes = [a for a in range(x.ndim) if a != 1]
        count = prod(x.shape[a] for a in axes)
        seen = k.reduce("sum", x, axes, count, dst=F32)
        centred = k.map(lambda v, m: v - m, x, seen, dst=F32, name="sub")
        spread = k.reduce("sum_square", centred, axes, count)
        momentum = node.number("momentum", 0.9)
        old = mean, variance
        mean, variance = seen.reshape(-1), spread.reshape(-1)
        extra = tuple(
            k.map(lambda r, s: r * momentum + s * (1 - momentum), r, s)
            for r, s in zip(old, (mean, variance), strict=True)
        )
    unfused = lines_of(k, x) is not None
    if unfused and not node.get(LAID):
        factor = k.map(lambda s, w: (1.0 / (w + epsilon).sqrt()) * s, scale, variance, name="scale")
    else:
        factor = k.map(lambda s, w: s / (w + epsilon).sqrt(), scale, variance, dst=F32, name="scale")
    addend = k.map(lambda b, m, g: b - m * g, bias, mean, factor, dst=F32, name="shift")
    formula: Formula = (lambda v, g, a: v * g + a) if unfused else (lambda v, g, a: v.fma(g, a))
    result = k.map(formula, x, by_channel(factor, x.ndim), by_channel(addend, x.ndim), name="batchnorm")
    return (result, *extra) if extra else result


@operator("InstanceNormalization")
def instance_normalization(k: Kernels, node: Node, x: Array, scale: Array, bias: Array) -> Array:
    epsilon = node.number("epsilon", 1e-5)
    if (lines := lines_of(k, x)) is not None:
        mean, variance = _statistics(k, x, range(2, x.ndim), lines, True, "images")
        scale, bias = (by_channel(p, x.ndim) for p in (scale, bias))
        factor = k.map(lambda v, s: (1.0 / (v + epsilon).sqrt()) * s, variance, scale, name="scale")
        addend = k.map(lambda b, m, g: b - m * g, bias, mean, factor, name="shift")
        return k.map(lambda v, g, a: v * g + a, x, factor, addend, name="scale")
    dtype, x = x.dtype, _wide(k, x)
    unit, _, _ = normalized(k, x, range(2, x.ndim), epsilon, F32)
    parts = [by_channel(_wide(k, p), x.ndim) for p in (scale, bias)]
    return _narrow(k, k.map(lambda u, s, b: u.fma(s, b), unit, *parts, dst=x.dtype, name="scale"), dtype)


@operator("GroupNormalization")
def group_normalization(k: Kernels, node: Node, x: Array, scale: Array, bias: Array) -> Any:
    """Scale and bias are one a group until opset 20, one a channel from 21 on."""
    groups, channels = node.integer("num_groups"), x.shape[1]
    need(groups > 0 and channels % groups == 0, f"num_groups={groups} does not divide {channels} channels")
    if lines_of(k, x) is not None:  # a library that has ONNX's own body of it
        return by_body(k, node, [x, scale, bias])[0]
    dtype, x = x.dtype, _wide(k, x)
    flat = view(k, x, (x.shape[0], groups, prod(x.shape[1:]) // groups))
    unit, _, _ = normalized(k, flat, [2], node.number("epsilon", 1e-5), F32)
    parts = [_wide(k, p) for p in (scale, bias)]
    if node.version < 21 and scale.size == groups != channels:
        parts = [np.repeat(p, channels // groups) for p in parts]
    parts = [by_channel(p, x.ndim) for p in parts]
    return _narrow(
        k, k.map(lambda u, s, b: u.fma(s, b), view(k, unit, x.shape), *parts, dst=x.dtype, name="scale"), dtype
    )


@operator("MeanVarianceNormalization")
def mean_variance_normalization(k: Kernels, node: Node, x: Array) -> Array:
    axes = sorted({axis_of(a, x.ndim) for a in node.integers("axes", [0, 2, 3])})
    if (lines := lines_of(k, x)) is None:
        return normalized(k, x, axes, 1e-9)[0]
    order = [a for a in range(x.ndim) if a not in axes] + axes
    turned = transposed(k, x, order)  # a library has these axes last
    mean, variance = _statistics(k, turned, range(x.ndim - len(axes), x.ndim), lines, True, "images")
    found = k.map(lambda v, m, w: (v - m) / w.sqrt(), turned, mean, variance, name="scale")
    return transposed(k, found, np.argsort(order).tolist())


@operator("LpNormalization")
def lp_normalization(k: Kernels, node: Node, x: Array) -> Array:
    axis, p = axis_of(node.integer("axis", -1), x.ndim), node.integer("p", 2)
    need(p in (1, 2), f"p={p}; allowed: 1, 2")
    kind, lines = "sum_abs" if p == 1 else "sum_square", lines_of(k, x)
    if lines is None:
        total = k.reduce(kind, x, [axis], dst=F32)
    else:
        each = np.abs(x) if p == 1 else x * x
        total = k.reduce(kind, x, [axis], values=lambda: lines.reduced("chain", each, [axis]))
    nothing = total == 0
    if k.values:
        total = np.where(nothing, np.float32(1), total)
    found = k.map((lambda v, t: v / t) if p == 1 else (lambda v, t: v / t.sqrt()), x, total, name="div")
    return np.where(nothing, np.zeros((), found.dtype), found) if k.values else found


@operator("LRN")
def lrn(k: Kernels, node: Node, x: Array) -> Array:
    """x / (bias + alpha / size * sum of squares of the channels around) ** beta; the sum is NumPy's, or a library's."""
    size, alpha = node.integer("size"), node.number("alpha", 1e-4)
    beta, bias = node.number("beta", 0.75), node.number("bias", 1.0)
    need(0 < size < 1 << 16, f"size={size}")
    squares = k.map(lambda v: v * v, x, dst=F32, name="square")
    before = (size - 1) // 2
    window = np.pad(squares, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.ndim - 2))
    around = [window[:, i : i + x.shape[1]] for i in range(size)]
    values: Callable[[], Array] | None = None
    if (lines := lines_of(k, x)) is not None:
        need(x.ndim == 4 and size % 2 == 1, f"{x.ndim} dimensions, size={size}: onnxruntime takes 4, and odd sizes")
        divisor = lines.of_channels(around, alpha, bias) if k.values else squares
        values = functools.partial(_divided, lines, x, divisor, beta)
    total = k.plain(np.asarray(np.sum(around, axis=0, dtype=F32)), squares, steps=size)
    return k.map(lambda v, t: v * f.exp(f.log(t.fma(alpha / size, bias)) * -beta), x, total, name="lrn", values=values)


def _divided(lines: LineSums, x: Array, divisor: Array, exponent: float) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(x * lines.of_elements("degree", divisor, -exponent))


@operator("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(k: Kernels, node: Node, scores: Array, labels: Array, weights: Array | None = None) -> Any:
    """Minus the log-probability of each label, weighted, then their mean, sum, or each."""
    logs = scores
    if node.op == "SoftmaxCrossEntropyLoss":
        logs = softmax_kernel(k, scores, 1, True)
    kind, ignored = node.text("reduction", "mean"), node.get("ignore_index")
    need(kind in ("mean", "sum", "none"), f"reduction={kind!r}; allowed: mean, sum, none")
    kept = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    safe = np.where(kept, labels, 0)
    need(bool(((safe >= 0) & (safe < scores.shape[1])).all()), f"labels beyond {scores.shape[1]} classes")
    weight = kept.astype(np.float32) * (1 if weights is None else np.asarray(weights, F32)[safe])
    each: Any = -np.take_along_axis(logs, np.expand_dims(safe, 1), 1).squeeze(1) * weight
    if kind == "sum":
        each = np.sum(each, dtype=F32)
    elif kind == "mean":
        each = np.sum(each, dtype=F32) / np.sum(weight, dtype=F32)
    result = k.plain(np.asarray(each).astype(scores.dtype), scores, steps=4)
    return (result, logs) if node.op == "SoftmaxCrossEntropyLoss" else result
