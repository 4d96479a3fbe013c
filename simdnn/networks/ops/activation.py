"""Activations with parameters; those without are rows of a table in `elementwise`.

Where a formula stands for a definition by cases, or fuses what the definition rounds, other types are computed by the
definition in NumPy (`plain`): zeros would have another sign, or last bits would differ.
"""

from __future__ import annotations

import math

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.kernels.common.expression import Element
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy, computed, formula_of, lines_of, sigmoid
from simdnn.networks.ops.registry import MICROSOFT, need, operator
from simdnn.networks.types import is_float


@operator("LeakyRelu")
def leaky_relu(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 0.01)
    return computed(
        k,
        "leakyrelu",
        lambda v: v.minimum(0.0).fma(alpha, v.maximum(0.0)),
        x,
        plain=lambda v: np.where(v < 0, v * alpha, v),
    )


@operator("PRelu")
def prelu(k: Kernels, node: Node, x: Array, slope: Array) -> Array:
    def formula(v: Element, s: Element) -> Element:
        return v.minimum(0.0).fma(s, v.maximum(0.0))

    def plain(v: Array, s: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.where(v < 0, v * s, v)

    if lines_of(k, x) is not None:  # a library keeps zeros and what is above them, whatever the slope
        return k.map(formula, x, slope, name="prelu", values=lambda: plain(x, slope))
    return computed(k, "prelu", formula, x, slope, plain=plain)


def _elu(k: Kernels, node: Node, x: Array, alpha: float, gamma: float = 1.0, inner: float = 1.0) -> Array:
    """gamma * (max(x, 0) + alpha * (e**(x * inner) - 1 below 0))."""

    def formula(v: Element) -> Element:
        below = f.expm1(v.minimum(0.0) * inner if inner != 1 else v.minimum(0.0))
        total = below.fma(alpha, v.maximum(0.0))
        return total * gamma if gamma != 1 else total

    def plain(v: Array) -> Array:
        result: Array = gamma * np.where(v < 0, alpha * np.expm1(np.minimum(v, 0) * inner), v)
        return result

    if (lines := lines_of(k, x)) is not None:
        numbers = (alpha, gamma) if node.op == "Selu" else (alpha,)
        return k.map(formula, x, name="elu", values=lambda: lines.of_elements(node.op, x, *numbers))
    return computed(k, "elu", formula, x, plain=plain)


@operator("Elu")
def elu(k: Kernels, node: Node, x: Array) -> Array:
    return _elu(k, node, x, node.number("alpha", 1.0))


@operator("Selu")
def selu(k: Kernels, node: Node, x: Array) -> Array:
    old = node.version < 6
    alpha, gamma = (1.6732, 1.0507) if old else (1.67326319217681884765625, 1.05070102214813232421875)
    return _elu(k, node, x, node.number("alpha", alpha), node.number("gamma", gamma))


@operator("Celu")
def celu(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 1.0)
    return _elu(k, node, x, alpha, inner=1 / alpha)


@operator("HardSigmoid")
def hard_sigmoid(k: Kernels, node: Node, x: Array) -> Array:
    alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
    library = k.target.library
    if library is not None and not library.fuses_functions:
        return computed(k, "hardsigmoid", lambda v: (v * alpha + beta).minimum(1.0).maximum(0.0), x)
    return computed(k, "hardsigmoid", lambda v: v.fma(alpha, beta).maximum(0.0).minimum(1.0), x)


@operator("Swish")
def swish(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 1.0)
    if lines_of(k, x) is not None:  # a library that has none: its parts
        return _by_sigmoid(k, x, alpha)
    return computed(
        k, "swish", lambda v: v * f.sigmoid(v * alpha), x, plain=lambda v: v / (1 + np.exp(-alpha * v)), steps=20
    )


def _gelu_erf(x: Element) -> Element:
    return x * f.erf(x * math.sqrt(0.5)).fma(0.5, 0.5)


def _gelu_erf_numpy(x: Array) -> Array:
    result: Array = x * 0.5 * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2)))
    return result


def _gelu_tanh_numpy(x: Array) -> Array:
    result: Array = x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return result


@operator("Gelu")
@operator("Gelu", domain=MICROSOFT)
def gelu(k: Kernels, node: Node, x: Array) -> Array:
    kind = node.text("approximate", "none")
    need(kind in ("none", "tanh"), f"approximate={kind!r}; allowed: none, tanh")
    if kind == "none":
        return computed(k, "gelu_erf", formula_of(k, "Gelu", _gelu_erf), x, plain=_gelu_erf_numpy, steps=20)
    return fast_gelu(k, node, x)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(k: Kernels, node: Node, x: Array, bias: Array) -> Array:
    return gelu(k, node, computed(k, "add", lambda a, b: a + b, x, bias))


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(k: Kernels, node: Node, x: Array, bias: Array | None = None) -> Array:
    total = x if bias is None else computed(k, "add", lambda a, b: a + b, x, bias)
    formula = formula_of(k, "FastGelu", f.gelu_by_tanh)
    return computed(k, "gelu_tanh", formula, total, plain=_gelu_tanh_numpy, steps=20)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(k: Kernels, node: Node, x: Array) -> Array:
    return _by_sigmoid(k, x, node.number("alpha", 1.702))


def _by_sigmoid(k: Kernels, x: Array, alpha: float) -> Array:
    """x times the sigmoid of alpha * x."""
    return computed(k, "mul", lambda v, s: v * s, x, sigmoid(k, computed(k, "mul", lambda v: v * alpha, x)))


@operator("ThresholdedRelu")
def thresholded_relu(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 1.0)
    return by_numpy(k, lambda v: np.where(v > alpha, v, 0), x, steps=2)


@operator("Shrink")
def shrink(k: Kernels, node: Node, x: Array) -> Array:
    lambd, bias = node.number("lambd", 0.5), node.number("bias", 0.0)
    return by_numpy(k, lambda v: np.where(v < -lambd, v + bias, np.where(v > lambd, v - bias, 0)), x, steps=4)


@operator("Clip")
def clip(k: Kernels, node: Node, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    if node.version < 11:
        bounds: list[Array | None] = [
            np.asarray(node.number(n, d), x.dtype) for n, d in (("min", -np.inf), ("max", np.inf))
        ]
    else:
        bounds = []
        for given, name in ((low, "min"), (high, "max")):
            need(
                given is None or given.size == 1,
                f"{name} is a tensor of shape {getattr(given, 'shape', ())}, not a scalar",
            )
            bounds.append(None if given is None else given.reshape(()))
    least, most = (None if b is None else float(b) if is_float(b.dtype) else int(b) for b in bounds)

    def formula(v: Element) -> Element:
        v = v if least is None else v.maximum(least)
        return v if most is None else v.minimum(most)

    return computed(k, "clip", formula, x)
