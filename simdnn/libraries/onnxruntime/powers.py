"""Powers of f32 by one exponent as onnxruntime has them from Eigen, compiled for SSE: registers of four lanes, no step
fused; the last elements of a tensor by the C library's `powf`.

Read in Eigen/src/Core/arch/Default/GenericPacketMathFunctions.h (1d8b82b0, the commit that onnxruntime is built with),
compared with onnxruntime 1.32 (docs/numerics_onnxruntime.md). A pair of numbers is a sum that no f32 holds: the greater
part, and what is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.libraries.onnxruntime import libm
from simdnn.libraries.onnxruntime.eigen import polynomial

F32 = np.float32
Number = Array | np.float32
Pair = tuple[Any, Any]
_SQUARED = (-3, 7)  # whole exponents from one to the other are products
_HALF = F32((1 << 12) + 1)  # which cuts the digits of an f32 in two halves
_HIGHER = (
    0.097010828554630279541,
    -0.16896486282348632813,
    0.17200836539268493652,
    -0.17892272770404815674,
    0.20505344867706298828,
    -0.24046677350997924805,
    0.28857553005218505859,
    -0.36067414283752441406,
    0.48089790344238281250,
)
_BELOW_HALF = np.nextafter(F32(0.5), F32(0))


def power(exponent: float, x: Array) -> Array:
    """x**exponent of whole registers.

    >>> with np.errstate(all="ignore"):
    ...     power(-0.75, np.array([16, 0, np.inf, -1], np.float32)).tolist()
    [0.125, inf, 0.0, nan]
    """
    whole = exponent == np.rint(exponent)
    if whole and _SQUARED[0] <= exponent <= _SQUARED[1]:
        return _products(int(exponent), x)
    size = np.abs(x)
    found = _of_positive(size, F32(exponent))
    grows = exponent > 0
    found = np.where(size == 0, F32(0 if grows else np.inf), found)
    found = np.where(size == np.inf, F32(np.inf if grows else 0), found)
    found = np.where(np.isnan(x), x, np.where(x == 1, F32(1), found))
    if whole:
        return np.asarray(np.where(np.signbit(x) & (exponent % 2 == 1), -found, found), F32)
    return np.asarray(np.where((x < 0) & (size != np.inf), np.nan, found), F32)


def power_alone(exponent: float, x: Array) -> Array:
    """x**exponent of what is left behind the registers."""
    return libm.power(x, np.full(x.shape, exponent, F32))


def _products(exponent: int, x: Array) -> Array:
    """A whole power by repeated squaring, of 1 / x where it is negative."""
    left, square, found = abs(exponent), x if exponent >= 0 else F32(1) / x, np.ones_like(x)
    while left:
        found = found * square if left & 1 else found
        square, left = square * square, left >> 1
    return found


def _of_positive(x: Array, exponent: np.float32) -> Array:
    """2**(exponent * log2(x)) of positive numbers: the logarithm in pairs, its whole part apart."""
    share, places = np.frexp(x)
    low = share < F32(0.70710678118654752440)
    share = np.where(low, share * F32(2), share)
    places = places.astype(F32) - low
    turns = _added(_product(places, exponent), _scaled(_logarithm(share), exponent))
    whole = _nearest(turns[0])
    rest = (turns[0] - whole) + turns[1]
    more = _nearest(rest)
    return np.asarray(
        np.ldexp(_power_of_two(rest - more), np.nan_to_num(whole + more, posinf=999, neginf=-999).astype(np.int32))
    )


def _logarithm(x: Array) -> Pair:
    """log2 of numbers between the roots of 1/2 and 2, by a polynomial whose last two steps are pairs."""
    x = x - F32(1)
    found = _product(x, polynomial(x, _HIGHER))
    for coefficient in (-0.72134751588152684066, 1.44269504174211027347):
        first = F32(coefficient)
        found = _scaled(_added((first, F32(coefficient - float(first))), found), x)
    return found


def _power_of_two(x: Array) -> Array:
    """2**x between -1/2 and 1/2: e**(x ln 2), what a product of f32 loses of x ln 2 as a factor beside it."""
    power, lost = _product(F32(np.log(2)), x)
    whole = np.floor(power * F32(1.44269504088896341) + F32(0.5))
    r = whole * F32(2.12194440e-4) + (whole * F32(-0.693359375) + power)
    square = r * r
    even = polynomial(square, (1.37449637986719608e-3, 4.16696518659591675e-2, 0.499999880790710449))
    odd = polynomial(square, (8.36894474923610687e-3, 0.166665181517601013))
    found = square * (r * odd + even) + (r + F32(1))
    return np.asarray(np.ldexp(found, np.nan_to_num(whole).astype(np.int32)) * (F32(1) + lost))


def _nearest(x: Array) -> Array:
    """The nearest whole number, of two the greater in size."""
    return np.asarray(np.trunc(x + np.copysign(_BELOW_HALF, x)))


# -- pairs ------------------------------------------------------------------------------------------------------------
def _sum(a: Number, b: Number) -> Pair:
    """a + b where a is the greater in size."""
    found = a + b
    return found, b - (found - a)


def _added(a: Pair, b: Pair) -> Pair:
    found, lost = _sum(a[0], b[0])
    return _sum(found, (b[1] + lost) + a[1])


def _halves(x: Number) -> Pair:
    far = _HALF * x
    high = (x - far) + far
    return high, x - high


def _product(a: Number, b: Number) -> Pair:
    (a_high, a_low), (b_high, b_low), found = _halves(a), _halves(b), a * b
    return found, a_low * b_low + (a_low * b_high + (a_high * b_low + (a_high * b_high - found)))


def _scaled(a: Pair, b: Number) -> Pair:
    found, lost = _product(a[0], b)
    high, low = _sum(found, a[1] * b)
    return _sum(high, low + lost)
