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


def exact(primitive: str, sources: Sequence[Floats], rows: Mapping[str, Array], options: Mapping[str, Any]) -> Floats:
    """The outputs of a primitive before the destination's scale and its rounding."""
    with np.errstate(all="ignore"):
        return np.asarray(_PRIMITIVES[primitive](sources, rows, options), np.float64)


def _softmax(sources: Sequence[Floats], rows: Mapping[str, Array], options: Mapping[str, Any]) -> Floats:
    axis = options["axis"]
    shifted = sources[0] - sources[0].max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return np.asarray(shifted - np.log(total) if options["logarithm"] else np.exp(shifted) / total)


def _layer_normalization(sources: Sequence[Floats], rows: Mapping[str, Array], options: Mapping[str, Any]) -> Floats:
    centred = sources[0] - sources[0].mean(-1, keepdims=True)
    found = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + options.get("epsilon", 1e-5))
    return np.asarray(found * rows.get("scale", 1.0) + rows.get("shift", 0.0))


def _pooling(sources: Sequence[Floats], rows: Mapping[str, Array], options: Mapping[str, Any]) -> Floats:
    (kh, kw), (sh, sw), (dh, dw) = (options[name] for name in ("kernel", "strides", "dilation"))
    top, left, bottom, right = options["padding"]
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(sources[0], around, constant_values=np.nan)
    oh = (padded.shape[2] - (kh - 1) * dh - 1) // sh + 1
    ow = (padded.shape[3] - (kw - 1) * dw - 1) // sw + 1
    taps = [
        padded[:, :, y * dh : y * dh + (oh - 1) * sh + 1 : sh, x * dw : x * dw + (ow - 1) * sw + 1 : sw]
        for y in range(kh)
        for x in range(kw)
    ]
    each = np.stack(taps)
    if options["algorithm"] == "max":
        found: Floats = np.fmax.reduce(each)  # NaN stands for padding
        return found
    inside = ~np.isnan(each)
    count = inside.sum(0) if options["algorithm"] == "avg_exclude_padding" else kh * kw
    return np.asarray(np.where(inside, each, 0).sum(0) / count)


_PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "pooling": _pooling,
    "eltwise": lambda s, rows, o: ELTWISE[o["algorithm"]](s[0], o["alpha"], o["beta"]),
    "binary": lambda s, rows, o: BINARY[o["algorithm"]](*s),
}


def compared(found: Array, wanted: Floats, dst: str) -> tuple[float, int]:
    """The largest distance from what is wanted, rounded into `dst`; and how many outputs are farther from it than that
    rounding and those of f32 before it explain. Outputs are left out where no finite number is wanted.
    """
    kind = fmt(dst)
    usual = np.isfinite(wanted)
    wide = found.astype(np.float32).astype(np.float64)
    slack = _SLACK * max(1.0, float(abs(wanted[usual]).max(initial=0.0)))
    if kind.is_float:
        usual &= abs(wanted) <= kind.greatest
        allowed = abs(wanted) * 2.0 ** -(kind.mantissa_bits + 1) + slack
        meant = wanted.astype(np.float32).astype(kind.dtype).astype(np.float64)
    else:
        wanted = np.clip(wanted, kind.low, kind.high)
        allowed, meant = np.full(wanted.shape, 0.5 + slack), np.rint(wanted)
    beyond = usual & ~(abs(wide - wanted) <= allowed)
    return float(abs(wide - meant)[usual].max(initial=0.0)), int(beyond.sum())
