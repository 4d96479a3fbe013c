"""Operators by their definitions, in float64: the references of benchdnn's drivers of one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import erf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models.formats import fmt
from isa_models.readings.arrays import Array

Floats = NDArray[np.float64]
_SLACK = 1e-5  # of the largest output: some tens of roundings of f32 on the way

#: functions of elements by oneDNN's names: of x, alpha and beta (oneDNN's developer guide, "Eltwise")
ELTWISE: Mapping[str, Callable[[Floats, float, float], Any]] = {
    "relu": lambda x, a, b: np.where(x > 0, x, a * x),
    "tanh": lambda x, a, b: np.tanh(x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(x)),
    "square": lambda x, a, b: x * x,
    "abs": lambda x, a, b: abs(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "linear": lambda x, a, b: a * x + b,
    "soft_relu": lambda x, a, b: np.logaddexp(0, a * x) / a,
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "hardswish": lambda x, a, b: x * np.clip(a * x + b, 0, 1),
    "logistic": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "mish": lambda x, a, b: x * np.tanh(np.logaddexp(0, x)),
    "exp": lambda x, a, b: np.exp(x),
    "gelu_tanh": lambda x, a, b: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x, a, b: x / 2 * (1 + np.vectorize(erf, [float])(x / np.sqrt(2))),
    "swish": lambda x, a, b: x / (1 + np.exp(-a * x)),
    "log": lambda x, a, b: np.log(x),
    "clip": lambda x, a, b: np.clip(x, a, b),
    "clip_v2": lambda x, a, b: np.clip(x, a, b),
    "pow": lambda x, a, b: a * x**b,
    "round": lambda x, a, b: np.rint(x),
}
BINARY: Mapping[str, Callable[[Floats, Floats], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}


Data = Mapping[str, Any]


def exact(primitive: str, sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    """The outputs of a primitive ahead of post-operations, the destination's scale and its rounding."""
    return np.asarray(_PRIMITIVES[primitive](sources, rows, options), np.float64)


def after(x: Floats, post_ops: Sequence[Any], into: Floats | None) -> Floats:
    """Outputs behind the post-operations, whose arrays are of float64."""
    for op in post_ops:
        name, *given = (op,) if isinstance(op, str) else op
        if name == "sum":
            assert into is not None
            x = x + given[0] * (into - (given[1] if len(given) > 1 else 0))
        elif name == "prelu":
            x = np.where(x > 0, x, x * given[0])
        elif name == "select":
            x = np.where(given[1] != 0, x, given[0])
        elif name in BINARY:
            x = np.asarray(BINARY[name](x, given[0]), np.float64)
        else:
            alpha, beta = (*given, 0.0, 0.0)[:2]
            x = np.asarray(ELTWISE[name](x, alpha, beta), np.float64)
    return x


def _softmax(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    axis = options["axis"]
    shifted = sources[0] - sources[0].max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return np.asarray(shifted - np.log(total) if options["logarithm"] else np.exp(shifted) / total)


def _standard(x: Floats, mean: Any, variance: Any, options: Data) -> Floats:
    return np.asarray((x - mean) / np.sqrt(variance + options.get("epsilon", 1e-5)))


def _layer_normalization(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x, rms = sources[0], options.get("rms", False)
    found = 0.0 if rms else x.mean(-1, keepdims=True)
    spread = ((x - found) ** 2).mean(-1, keepdims=True)
    if "variance" in rows:
        found = 0.0 if rms else rows["mean"].reshape(*x.shape[:-1], 1)
        spread = rows["variance"].reshape(*x.shape[:-1], 1)
    return np.asarray(_standard(x, found, spread, options) * rows.get("scale", 1.0) + rows.get("shift", 0.0))


def _by_channel(rows: Data, name: str, usual: float, ndim: int) -> Any:
    return rows[name].reshape(-1, *[1] * (ndim - 2)) if name in rows else usual


def _batch_normalization(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x = sources[0]
    axes = (0, *range(2, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    if "variance" in rows:
        mean, variance = (_by_channel(rows, name, 0.0, x.ndim) for name in ("mean", "variance"))
    scale, shift = _by_channel(rows, "scale", 1.0, x.ndim), _by_channel(rows, "shift", 0.0, x.ndim)
    return np.asarray(_standard(x, mean, variance, options) * scale + shift)


def _group_normalization(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x = sources[0]
    flat = x.reshape(x.shape[0], options["groups"], -1)
    mean, variance = flat.mean(-1, keepdims=True), flat.var(-1, keepdims=True)
    if "variance" in rows:
        mean, variance = (rows[name].reshape(x.shape[0], -1, 1) for name in ("mean", "variance"))
    unit = _standard(flat, mean, variance, options).reshape(x.shape)
    scale, shift = _by_channel(rows, "scale", 1.0, x.ndim), _by_channel(rows, "shift", 0.0, x.ndim)
    return np.asarray(unit * scale + shift)


def _reduction(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x, axes, name = sources[0], tuple(options["axes"]), options["algorithm"]
    plain: dict[str, Any] = {"sum": np.sum, "mul": np.prod, "max": np.max, "min": np.min, "mean": np.mean}
    if name in plain:
        return np.asarray(plain[name](x, axis=axes, keepdims=True))
    p, eps = options["p"], options["eps"]
    total = (abs(x) ** p).sum(axes, keepdims=True)
    total = np.maximum(total, eps) if name.endswith("max") else total + eps
    return np.asarray(total if "power" in name else total ** (1 / p))


def _windows(x: Floats, options: Data, fill: float) -> Floats:
    """Every window of x (N, C, …): (taps, N, C, output…)."""
    kernel, strides, dilation = (options[name] for name in ("kernel", "strides", "dilation"))
    rank, pads = len(kernel), options["padding"]
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x, around, constant_values=fill)
    sides = zip(padded.shape[2:], kernel, strides, dilation, strict=True)
    out = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in sides]
    taps = []
    for tap in np.ndindex(*kernel):
        places = zip(tap, out, strides, dilation, strict=True)
        window = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, o, s, d in places)
        taps.append(padded[(slice(None), slice(None), *window)])
    return np.stack(taps)


def _pooling(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    each = _windows(sources[0], options, np.nan)  # NaN stands for padding
    if options["algorithm"] == "max":
        found: Floats = np.fmax.reduce(each)
        return found
    inside = ~np.isnan(each)
    count = inside.sum(0) if options["algorithm"] == "avg_exclude_padding" else len(each)
    return np.asarray(np.where(inside, each, 0).sum(0) / count)


def _resampling(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x = sources[0]
    for axis, size in enumerate(options["size"], 2):
        place = (np.arange(size) + 0.5) * x.shape[axis] / size - 0.5
        if options["algorithm"] == "nearest":
            x = x.take(np.clip(np.floor(place + 0.5), 0, x.shape[axis] - 1).astype(int), axis)
        else:
            low = np.floor(place).astype(int)
            share = (place - low).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            first, second = (x.take(np.clip(i, 0, x.shape[axis] - 1), axis) for i in (low, low + 1))
            x = first * (1 - share) + second * share
    return x


def _lrn(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x, size = sources[0], options["size"]
    axes = [1] if options["algorithm"] == "across_channels" else [*range(2, x.ndim)]
    around = (size - 1) // 2  # on both sides, of an even size too
    squares = np.pad(x * x, [(around * (axis in axes),) * 2 for axis in range(x.ndim)])
    seen = [2 * around + 1] * len(axes)
    each = np.lib.stride_tricks.sliding_window_view(squares, seen, axis=axes)  # type: ignore[call-overload]
    mean = each.sum(tuple(range(x.ndim, each.ndim))) / size ** len(axes)
    return np.asarray(x / (options["k"] + options["alpha"] * mean) ** options["beta"])


def _shuffle(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x, axis, group = sources[0], options["axis"], options["group"]
    order = np.arange(x.shape[axis]).reshape(-1, group).T.reshape(-1)
    return x.take(order, axis)


def _deconvolution(sources: Sequence[Floats], rows: Data, options: Data) -> Floats:
    x, wei = sources
    rank, groups = x.ndim - 2, options["groups"]
    kernel, strides, gaps, pads = wei.shape[2:], options["strides"], options["dilation"], options["padding"]
    sides = list(zip(x.shape[2:], kernel, strides, gaps, options["output_padding"], strict=True))
    full = [(n - 1) * s + (k - 1) * d + 1 + more for n, k, s, d, more in sides]
    result = np.zeros((x.shape[0], wei.shape[0], *full))
    images = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    weights = wei.reshape(groups, -1, *wei.shape[1:])
    for tap in np.ndindex(*kernel):
        part = np.einsum("ngi...,goi->ngo...", images, weights[(slice(None),) * 3 + tap])
        place = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, (n, _, s, d, _) in zip(tap, sides, strict=True)]
        result[(slice(None), slice(None), *place)] += part.reshape(x.shape[0], -1, *x.shape[2:])
    inner = [slice(pads[i], full[i] - pads[i + rank]) for i in range(rank)]
    result = result[(slice(None), slice(None), *inner)] * _by_channel(rows, "wei_scales", 1.0, x.ndim)
    return np.asarray(result + _by_channel(rows, "bias", 0.0, x.ndim))


def _binary(sources: Sequence[Floats], rows: Data, options: Data) -> Any:
    if options["algorithm"] == "select":
        return np.where(rows["condition"] != 0, *sources)
    return BINARY[options["algorithm"]](*sources)


def _weighted(sources: Sequence[Floats], rows: Data, options: Data) -> Any:
    return sum(factor * source for factor, source in zip(options["factors"], sources, strict=True))


_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "batch_normalization": _batch_normalization,
    "group_normalization": _group_normalization,
    "reduction": _reduction,
    "pooling": _pooling,
    "resampling": _resampling,
    "shuffle": _shuffle,
    "lrn": _lrn,
    "deconvolution": _deconvolution,
    "binary": _binary,
    "weighted_sum": _weighted,
    "eltwise": lambda s, rows, o: ELTWISE[o["algorithm"]](s[0], o["alpha"], o["beta"]),
    "prelu": lambda s, rows, o: np.where(s[0] > 0, s[0], s[0] * s[1]),
    "concat": lambda s, rows, o: np.concatenate(s, o["axis"]),
    "conversion": lambda s, rows, o: s[0],
}


def compared(output: Array, wanted: Floats, dst: str) -> tuple[float, int]:
    """The largest distance from what is wanted, rounded into `dst`; and how many outputs are farther from it than that
    rounding and those of f32 before it explain. Outputs are left out where no finite number is wanted.
    """
    kind = fmt(dst)
    usual = np.isfinite(wanted)
    wide = output.astype(np.float32).astype(np.float64)
    slack = _SLACK * max(1.0, float(abs(wanted[usual]).max(initial=0.0)))
    if kind.is_float:
        usual &= abs(wanted) <= kind.greatest
        twice = 1.01 if kind.bits <= 8 else 1.0  # 8 bits are reached by way of f16
        least = 2.0 ** (1 - kind.bias - kind.mantissa_bits)  # the step below the normal numbers
        allowed = np.maximum(abs(wanted) * 2.0 ** -(kind.mantissa_bits + 1) * twice, least / 2) + slack
        meant = wanted.astype(np.float32).astype(kind.dtype).astype(np.float64)
    else:
        wanted = np.clip(wanted, kind.low, kind.high)
        allowed, meant = np.full(wanted.shape, 0.5 + slack), np.rint(wanted)
    beyond = usual & ~(abs(wide - wanted) <= allowed)
    return float(abs(wide - meant)[usual].max(initial=0.0)), int(beyond.sum())
