"""Transcendental functions as libraries compute them: a range reduction and a polynomial in multiply-adds.

Each is a formula over `Element`s; over arrays (`HostValues`) it is NumPy's own function. Coefficients are Taylor's,
or least-squares fits that `tools/fit_functions.py` makes and checks. Errors against correctly rounded values, over all
finite arguments, are in the docstrings; the tests hold them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import wraps
from math import factorial, log2
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.values import HostValues

LARGEST = 3.4028234663852886e38  # of f32


def float_of(bits: int) -> float:
    """The f32 of these bits."""
    return float(struct.unpack("=f", struct.pack("=I", bits))[0])


Function = Callable[[Element], Element]


def _known(plain: Callable[[Array], Any]) -> Callable[[Function], Function]:
    """The decorated formula; over arrays, whose type it does not know, the function that NumPy knows."""

    def decorate(formula: Function) -> Function:
        @wraps(formula)
        def function(x: Any) -> Any:
            return HostValues(np.asarray(plain(x.array))) if isinstance(x, HostValues) else formula(x)

        return function

    return decorate


_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.428606765330187e-06  # their sum is ln 2; the first has 16 bits


def horner(x: Element, coefficients: Sequence[float]) -> Element:
    """The polynomial with these coefficients, the highest power's first."""
    total = x.fma(coefficients[0], coefficients[1])
    for c in coefficients[2:]:
        total = total.fma(x, c)
    return total


def power_of_two(n: Element) -> Element:
    """2**n for an s32 n from -126 to 128, which gives infinity."""
    return (n + 127).shift("shl", 23).read_as("f32")


def _reduced(x: Element) -> tuple[Element, Element]:
    """n (s32) and r with x = n ln 2 + r, |r| at most ln 2 / 2."""
    n = (x * log2(2.718281828459045)).nearest()
    turns = n.to_float()
    return n, turns.fma(-_LN2_LOW, turns.fma(-_LN2_HIGH, x))


_EXPM1 = [1 / factorial(k) for k in range(7, 0, -1)]  # of (e**r - 1) / r


@_known(np.exp)
def exp(x: Element) -> Element:
    """e**x; error up to 1 ulp, overflow to infinity and gradual underflow as IEEE has them."""
    n, r = _reduced(x.minimum(89.0).maximum(-104.0))
    half = n.shift("sar", 1)  # in two steps, as 2**n itself may be no normal number
    return horner(r, [*_EXPM1, 1.0]) * power_of_two(half) * power_of_two(n - half)


@_known(np.expm1)
def expm1(x: Element) -> Element:
    """e**x - 1 for x up to 88; error up to 2 ulp."""
    n, r = _reduced(x.minimum(88.0).maximum(-40.0))
    scale = power_of_two(n)
    return scale.fma(r * horner(r, _EXPM1), scale - 1.0)


@_known(np.tanh)
def tanh(x: Element) -> Element:
    """Hyperbolic tangent as expm1(2x) / (expm1(2x) + 2); error up to 4 ulp."""
    e = expm1(x.minimum(10.0).maximum(-10.0) * 2.0)
    return e / (e + 2.0)


def gelu_by_tanh(x: Element) -> Element:
    """x / 2 (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x**2)))."""
    inner = (x * x).fma(0.044715, 1.0) * x * math.sqrt(2 / math.pi)
    return x * tanh(inner).fma(0.5, 0.5)


def sigmoid(x: Element) -> Element:
    """1 / (1 + e**-x); error up to 3 ulp above x = -87."""
    return 1.0 / (exp(-x) + 1.0)


_SQRT_HALF_BITS = 0x3F3504F3
#: (log(1 + t) - t + t**2 / 2) / t**3 on sqrt(1/2) - 1 .. sqrt(2) - 1, highest power first
_LOG1P = (
    0.0674660131,
    -0.116756409,
    0.118881747,
    -0.124055915,
    0.142195508,
    -0.166679963,
    0.200021192,
    -0.250000089,
    0.333333135,
)


@_known(np.log)
def log(x: Element) -> Element:
    """Natural logarithm; error up to 1 ulp. Denormals count as zero."""
    bits = (x + 0.0).read_as("s32")  # -0 becomes 0
    shifted = bits - _SQRT_HALF_BITS
    exponent = shifted.shift("sar", 23)
    t = (bits - exponent.shift("shl", 23)).read_as("f32") - 1.0
    n = exponent.to_float()
    square = t * t
    tail = n.fma(_LN2_LOW, (t * square) * horner(t, _LOG1P))
    usual = n.fma(_LN2_HIGH, square.fma(-0.5, tail) + t)
    usual = usual + (x.maximum(LARGEST) - LARGEST)  # infinity and NaN
    below = bits.bits("or", bits - 0x00800000).shift("sar", 31)  # all ones: zero, a denormal, or negative
    other = bits.shift("sar", 31).bits("and", 0x00400000).bits("or", 0xFF800000)  # NaN below zero, else -infinity
    return usual.bits("and", below.bits("xor", 0xFFFFFFFF)).bits("or", other.bits("and", below))


#: erf(x) / x on 0 .. 3.92 squared as P / Q, highest power first
_ERF_P = (-1.27975657e-08, 4.60879664e-06, 0.000376742828, 0.00383858779, 0.0542436577, 0.185135633, 1.12837923)
_ERF_Q = (6.23950255e-05, 0.00130149606, 0.0154299233, 0.113873571, 0.497405589, 1)
_ERF_ONE = 3.92


@_known(lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x))
def erf(x: Element) -> Element:
    """The error function as x P(x**2) / Q(x**2); error up to 4e-7 of the value."""
    t = x.minimum(_ERF_ONE).maximum(-_ERF_ONE)
    square = t * t
    return (t * horner(square, _ERF_P) / horner(square, _ERF_Q)).minimum(1.0).maximum(-1.0)
