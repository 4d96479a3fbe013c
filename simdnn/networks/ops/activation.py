"""Activations with parameters; those without are rows of a table in `elementwise`."""

from __future__ import annotations

import math

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.kernels.common.expression import Element
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy, computed, has_kernel
from simdnn.networks.ops.registry import need, operator


@operator("LeakyRelu")
def leaky_relu(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 0.01)
    return computed(
        k, "leakyrelu", lambda v: v.minimum(0.0).fma(alpha, v.maximum(0.0)), lambda v: np.where(v < 0, v * alpha, v), x
    )


@operator("PRelu")
def prelu(k: Kernels, node: Node, x: Array, slope: Array) -> Array:
    return computed(
        k, "prelu", lambda v, s: v.minimum(0.0).fma(s, v.maximum(0.0)), lambda v, s: np.where(v < 0, v * s, v), x, slope
    )


def _elu(k: Kernels, x: Array, alpha: float, gamma: float = 1.0, inner: float = 1.0) -> Array:
    """gamma * (max(x, 0) + alpha * (e**(x * inner) - 1 below 0))."""

    def formula(v: Element) -> Element:
        below = f.expm1(v.minimum(0.0) * inner if inner != 1 else v.minimum(0.0))
        total = below.fma(alpha, v.maximum(0.0))
        return total * gamma if gamma != 1 else total

    return computed(
        k, "elu", formula, lambda v: gamma * np.where(v < 0, alpha * np.expm1(np.minimum(v, 0) * inner), v), x
    )


@operator("Elu")
def elu(k: Kernels, node: Node, x: Array) -> Array:
    return _elu(k, x, node.number("alpha", 1.0))


@operator("Selu")
def selu(k: Kernels, node: Node, x: Array) -> Array:
    old = node.version < 6
    alpha, gamma = (1.6732, 1.0507) if old else (1.67326319217681884765625, 1.05070102214813232421875)
    return _elu(k, x, node.number("alpha", alpha), node.number("gamma", gamma))


@operator("Celu")
def celu(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 1.0)
    return _elu(k, x, alpha, inner=1 / alpha)


@operator("HardSigmoid")
def hard_sigmoid(k: Kernels, node: Node, x: Array) -> Array:
    alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
    return computed(
        k,
        "hardsigmoid",
        lambda v: v.fma(alpha, beta).maximum(0.0).minimum(1.0),
        lambda v: np.clip(v * alpha + beta, 0, 1),
        x,
    )


@operator("Swish")
def swish(k: Kernels, node: Node, x: Array) -> Array:
    alpha = node.number("alpha", 1.0)
    return computed(k, "swish", lambda v: v * f.sigmoid(v * alpha), lambda v: v / (1 + np.exp(-alpha * v)), x, steps=20)


def _gelu_tanh(x: Element) -> Element:
    inner = (x * x).fma(0.044715, 1.0) * x * math.sqrt(2 / math.pi)
    return x * f.tanh(inner).fma(0.5, 0.5)


def _gelu_erf(x: Element) -> Element:
    return x * f.erf(x * math.sqrt(0.5)).fma(0.5, 0.5)


def _gelu_erf_numpy(x: Array) -> Array:
    result: Array = x * 0.5 * (1 + np.vectorize(math.erf, otypes=[x.dtype])(x / math.sqrt(2)))
    return result


@operator("Gelu")
@operator("Gelu", domain="com.microsoft")
def gelu(k: Kernels, node: Node, x: Array) -> Array:
    kind = node.text("approximate", "none")
    need(kind in ("none", "tanh"), f"approximate={kind!r}; allowed: none, tanh")
    if kind == "none":
        return computed(k, "gelu_erf", _gelu_erf, _gelu_erf_numpy, x, steps=20)
    return computed(
        k,
        "gelu_tanh",
        _gelu_tanh,
        lambda v: v * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        x,
        steps=20,
    )


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
    least, most = bounds
    if not has_kernel(x):
        return by_numpy(k, lambda v: _clipped(v, least, most), x)

    def formula(v: Element) -> Element:
        v = v if least is None else v.maximum(float(least))
        return v if most is None else v.minimum(float(most))

    return k.map(formula, x, name="clip")


def _clipped(x: Array, low: Array | None, high: Array | None) -> Array:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)
