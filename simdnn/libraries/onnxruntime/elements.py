"""Functions of f32 that onnxruntime has from Eigen and from the system: whole registers of four by Eigen's polynomials,
no step fused, since it is compiled for SSE; the last elements of a tensor by the C library.

Formulas: onnxruntime/core/providers/cpu/activation/activations.h; polynomials: Eigen's
Core/arch/Default/GenericPacketMathFunctions.h; all compared with onnxruntime 1.32 (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.libraries.onnxruntime import libm, powers
from simdnn.libraries.onnxruntime.eigen import in_registers, logarithm_by_ratio, polynomial

F32 = np.float32
Function = Callable[[Array], Array]


# -- powers of e ------------------------------------------------------------------------------------------------------
_EXP_ODD, _EXP_EVEN = (
    (8.36894474923610687255859375e-3, 0.16666518151760101318359375),
    (1.37449637986719608306884765625e-3, 4.166965186595916748046875e-2, 0.49999988079071044921875),
)


def _exp(x: Array) -> Array:
    """e**x: the powers of what is left of x beside a whole number of ln 2, odd and even ones apart."""
    bounded = np.minimum(x, F32(88.723))
    whole = np.floor(bounded * F32(1.44269504088896341) + F32(0.5))
    left = whole * F32(2.12194440e-4) + (whole * F32(-0.693359375) + bounded)
    square = left * left
    inner = left * polynomial(square, _EXP_ODD) + polynomial(square, _EXP_EVEN)
    found = np.ldexp(square * inner + (left + F32(1)), np.nan_to_num(whole).astype(np.int32))
    return np.asarray(np.where(x < F32(-104), F32(0), np.maximum(found, x)), F32)


def _log1p(x: Array) -> Array:
    """log(1 + x), whose rounding error of 1 + x is made good (W. Kahan)."""
    above = x + F32(1)
    log = logarithm_by_ratio(above)
    same = (above == F32(1)) | (log == above)
    return np.asarray(np.where(same, x, x * (log / (above - F32(1)))), F32)


def _elu(alpha: float, exp: Function, x: Array) -> Array:
    return np.where(x >= 0, x, F32(alpha) * (exp(x) - F32(1)))


def _selu(alpha: float, gamma: float, exp: Function, x: Array) -> Array:
    return np.where(x > 0, F32(gamma) * x, (F32(gamma) * F32(alpha)) * (exp(x) - F32(1)))


def _celu(alpha: float, exp: Function, x: Array) -> Array:
    below = F32(alpha) * (exp(x / F32(alpha)) - F32(1))
    return np.asarray(np.maximum(x, F32(0)) + np.minimum(below, F32(0)))


def _softplus(exp: Function, log1p: Function, x: Array) -> Array:
    return np.where(x > 0, x + log1p(exp(-x)), log1p(exp(x)))


# -- sines ------------------------------------------------------------------------------------------------------------
_HALF_PI = (
    -1.5703125,
    -0.000483989715576171875,
    1.62865035235881805419921875e-07,
    5.5644315144167710640977020375430583953857421875e-11,
)
_COS = (
    2.4372266125283204019069671630859375e-05,
    -0.00138865201734006404876708984375,
    0.041666619479656219482421875,
    -0.5,
    1.0,
)
_SIN = (-0.00019592341140837028, 0.00833268736556716516, -0.16666662039822982)
_HUGE = {True: 25966.0, False: 18838.0}  # quarters of a turn go off such numbers, and larger ones, in fixed point
_PER_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E41  # 1 / 2 pi
_PER_TURN_BITS = 188


def _sine(sine: bool, x: Array) -> Array:
    """The sine, or the cosine: quarters of a turn off |x|, then one of two polynomials."""
    size = np.abs(x)
    placed = size * F32(0.636619746685028076171875) + F32(12582912)
    quarter = placed.view(np.int32).copy()
    turns = placed - F32(12582912)
    left = size
    for part in _HALF_PI:
        left = turns * F32(part) + left
    for i in np.flatnonzero(np.isfinite(size) & (size >= F32(_HUGE[sine]))):
        left[i], quarter[i] = _reduced(size[i])
    bits = x.view(np.int32) ^ (quarter << 30) if sine else (quarter + 1) << 30
    square = left * left
    even = polynomial(square, _COS)
    odd = (polynomial(square, _SIN) * square) * left + left
    found = np.where(((quarter & 1) == 0) == sine, odd, even)
    return (found.view(np.int32) ^ (bits & np.int32(-(1 << 31)))).view(F32)


def _reduced(size: float) -> tuple[float, int]:
    """The rest of a large number beside quarters of a turn, and these modulo 4, by 64 bits of its turns."""
    bits = int(np.asarray(size, F32).view(np.int32))
    exponent, mantissa = (bits >> 23) - 150, (bits & 0x7FFFFF) | 0x800000
    place = (mantissa * _PER_TURN >> _PER_TURN_BITS - 64 - exponent) & ((1 << 64) - 1)
    quarter = ((place + (1 << 61)) & ((1 << 64) - 1)) >> 62
    rest = (place - (quarter << 62)) & ((1 << 64) - 1)
    rest -= (rest >> 63) << 64
    return float(F32(float(rest) * 3.4061215800865545e-19)), quarter


# -- by operator ------------------------------------------------------------------------------------------------------
#: by ONNX's name, what takes the numbers of a node: functions of whole registers, and of what is left
_FUNCTIONS: Mapping[str, Callable[..., tuple[Function, Function]]] = {
    "Elu": lambda alpha: (partial(_elu, alpha, _exp), partial(_elu, alpha, libm.exponential)),
    "Selu": lambda alpha, gamma: (partial(_selu, alpha, gamma, _exp), partial(_selu, alpha, gamma, libm.exponential)),
    "Celu": lambda alpha: (partial(_celu, alpha, _exp), partial(_celu, alpha, libm.exponential)),
    "Softplus": lambda: (partial(_softplus, _exp, _log1p), partial(_softplus, libm.exponential, libm.log1p)),
    "Sin": lambda: (partial(_sine, True), libm.sine),
    "Cos": lambda: (partial(_sine, False), libm.cosine),
    "degree": lambda degree: (partial(powers.power, degree), partial(powers.power_alone, degree)),
    "Log": lambda: (logarithm_by_ratio, libm.logarithm),
}


def of_elements(op: str, x: Array, *numbers: float) -> Array:
    """A tensor's elements, as the operator `op` has them, or powers of a "degree"."""
    with np.errstate(all="ignore"):
        return in_registers(x, *_FUNCTIONS[op](*numbers))
