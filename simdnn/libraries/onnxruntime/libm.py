"""glibc's functions of f32 that onnxruntime calls on Linux, bit for bit: computed in f64, rounded at the end.

Constants: math/logf_data.c and math/exp2f_data.c of Arm's optimized routines, which glibc has as
sysdeps/ieee754/flt-32/e_logf.c and e_expf.c.
"""

from __future__ import annotations

import numpy as np

from isa_models.readings.arrays import Array

#: 1 / c and log(c) for sixteen c
_LOGF = """
    1.661ec79f8f3be -1.57bf7808caade-2 1.571ed4aaf883d -1.2bef0a7c06ddb-2 1.49539f0f010b -1.01eae7f513a67-2
    1.3c995b0b80385 -1.b31d8a68224e9-3 1.30d190c8864a5 -1.6574f0ac07758-3 1.25e227b0b8ea -1.1aa2bc79c81-3
    1.1bb4a4a1a343f -1.a4e76ce8c0e5e-4 1.12358f08ae5ba -1.1973c5a611ccc-4 1.0953f419900a7 -1.252f438e10c1e-5
    1 0 1.e608cfd9a47ac-1 1.aa5aa5df25984-5 1.ca4b31f026aa-1 1.c5e53aa362eb4-4 1.b2036576afce6-1 1.526e57720db08-3
    1.9c2d163a1aa2d-1 1.bc2860d22477-3 1.886e6037841ed-1 1.1058bc8a07ee1-2 1.767dcf5534862-1 1.4043057b6ee09-2
"""
_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_POLYNOMIAL = [float.fromhex(v) for v in ("-0x1.00ea348b88334p-2", "0x1.5575b0be00b6ap-2", "-0x1.ffffef20a4123p-2")]


def _hexadecimal(text: str) -> float:
    """
    >>> _hexadecimal("-1.8-2"), _hexadecimal("1.8")
    (-0.375, 1.5)
    """
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    fraction, _, power = digits.partition("-")
    return float.fromhex(f"{sign}0x{fraction}p{-int(power or 0)}")


_TABLE = np.array([_hexadecimal(text) for text in _LOGF.split()]).reshape(16, 2)


def logarithm(x: Array) -> Array:
    """The natural logarithm of f32, as glibc's logf has it, which onnxruntime calls.

    >>> logarithm(np.array([1, 2.5, 0], np.float32)).tolist()
    [0.0, 0.9162907600402832, -inf]
    """
    x = np.asarray(x, np.float32)
    small = x < np.finfo(np.float32).tiny  # and subnormal, where it is above 0
    bits = np.where(small, x * np.float32(1 << 23), x).view(np.int32).astype(np.int64) - np.where(small, 23 << 23, 0)
    places = bits - 0x3F330000
    inverse, log = np.moveaxis(_TABLE[(places >> 19) % 16], -1, 0)
    power = (places << 32 >> 32) >> 23
    z = (bits - (power << 23)).astype(np.int32).view(np.float32).astype(np.float64)
    r = z * inverse - 1.0
    y = (_POLYNOMIAL[0] * (r * r) + (_POLYNOMIAL[1] * r + _POLYNOMIAL[2])) * (r * r)
    found = np.where(x == np.inf, np.inf, y + (log + power * _LN2 + r))
    return np.asarray(np.where(x > 0, found, np.where(x == 0, -np.inf, np.nan)), np.float32)


_PARTS = 32  # of an octave
_SCALED = float.fromhex("0x1.71547652b82fep+0") * _PARTS
_POWERS = [
    float.fromhex(text) / _PARTS**power
    for text, power in (("0x1.c6af84b912394p-5", 3), ("0x1.ebfce50fac4f3p-3", 2), ("0x1.62e42ff0c52d6p-1", 1))
]
_OCTAVE = np.exp2(np.arange(_PARTS) / np.longdouble(_PARTS)).astype(np.float64).view(np.int64)


def exponential(x: Array) -> Array:
    """e**x of f32, as glibc's expf has it.

    >>> exponential(np.array([0, 1, -2.5], np.float32)).tolist()
    [1.0, 2.7182817459106445, 0.08208499848842621]
    """
    scaled = np.clip(np.asarray(x, np.float32).astype(np.float64), -104, 89) * _SCALED  # beyond which it is 0, or inf
    whole = np.rint(scaled)
    k, r = np.nan_to_num(whole).astype(np.int64), scaled - whole
    bits = _OCTAVE[k % _PARTS] + ((k - k % _PARTS) << 47)
    y = (_POWERS[0] * r + _POWERS[1]) * (r * r) + (_POWERS[2] * r + 1.0)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(y * bits.view(np.float64), np.float32)
