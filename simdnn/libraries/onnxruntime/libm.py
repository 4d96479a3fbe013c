"""glibc's functions of f32 that onnxruntime calls on Linux, bit for bit: computed in f64, rounded at the end.

Constants: math/logf_data.c, exp2f_data.c, powf_log2_data.c and sincosf_data.c of Arm's optimized routines, which glibc
has in sysdeps/ieee754/flt-32 (e_logf.c, e_expf.c, e_powf.c, s_sinf.c, s_cosf.c) from 2.28 on; log1pf is that of glibc
up to 2.40, fdlibm's (Sun Microsystems, 1993).
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


# -- powers -----------------------------------------------------------------------------------------------------------
_LOG2 = [
    float.fromhex(v)
    for v in ("0x1.27616c9496e0bp-2", "-0x1.71969a075c67ap-2", "0x1.ec70a6ca7baddp-2", "-0x1.7154748bef6c8p-1")
] + [float.fromhex("0x1.71547652ab82bp0")]
_EXP2 = [float.fromhex(v) for v in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1")]
_LOG2_OF = -np.log2(_TABLE[:, 0].astype(np.longdouble)).astype(np.float64)


def power(x: Array, exponent: Array) -> Array:
    """x**exponent of f32, as glibc's powf has it; what is no power of a positive number, as C defines it.

    >>> power(np.array([2, 0, -8], np.float32), np.array([0.5, -1, 3], np.float32)).tolist()
    [1.4142135381698608, inf, -512.0]
    """
    x, exponent = np.broadcast_arrays(np.asarray(x, np.float32), np.asarray(exponent, np.float32))
    size = np.abs(x)
    small = size < np.finfo(np.float32).tiny
    bits = np.where(small, size * np.float32(1 << 23), size).view(np.int32).astype(np.int64) - np.where(
        small, 23 << 23, 0
    )
    places = bits - 0x3F330000
    whole = (places << 32 >> 32) >> 23
    z = (bits - (whole << 23)).astype(np.int32).view(np.float32).astype(np.float64)
    part = (places >> 19) % 16
    with np.errstate(all="ignore"):
        r = z * _TABLE[part, 0] - 1.0
        square, first = r * r, _LOG2_OF[part] + whole
        low = (_LOG2[2] * r + _LOG2[3]) * square + (_LOG2[4] * r + first)
        log = (_LOG2[0] * r + _LOG2[1]) * (square * square) + low
        scaled = exponent.astype(np.float64) * log
        found = _exp2(scaled) * np.where((x < 0) & (np.mod(exponent, 2) == 1), -1.0, 1.0)
        usual = (size > 0) & np.isfinite(x) & np.isfinite(exponent) & ((x > 0) | (exponent == np.rint(exponent)))
        return np.where(usual, found.astype(np.float32), np.power(x, exponent))


def _exp2(x: Array) -> Array:
    """2**x in f64, of what becomes an f32."""
    bounded = np.clip(np.nan_to_num(x), -200, 200)
    whole = np.rint(bounded * _PARTS)
    k, r = whole.astype(np.int64), bounded - whole / _PARTS
    bits = _OCTAVE[k % _PARTS] + ((k - k % _PARTS) << 47)
    y = (_EXP2[0] * r + _EXP2[1]) * (r * r) + (_EXP2[2] * r + 1.0)
    return np.asarray(y * bits.view(np.float64))


# -- logarithms near 1 ------------------------------------------------------------------------------------------------
_LOG1P = (
    1.4798198640e-01,
    1.5313838422e-01,
    1.8183572590e-01,
    2.2222198546e-01,
    2.8571429849e-01,
    4.0000000596e-01,
) + (6.6666668653e-01,)
_LN2_HIGH, _LN2_LOW = np.float32(6.9313812256e-01), np.float32(9.0580006145e-06)


def log1p(x: Array) -> Array:
    """log(1 + x) of f32 from 0 up, as glibc's log1pf has it.

    >>> log1p(np.array([0, 1, 1e-9], np.float32)).tolist()
    [0.0, 0.6931471824645996, 9.999999717180685e-10]
    """
    f32, x = np.float32, np.asarray(x, np.float32)
    above = x + f32(1)
    bits = above.view(np.int32)
    k = np.where(x < np.int32(0x3ED413D7).view(f32), 0, ((bits + 0x004AFB09) >> 23) - 127)
    rest = np.where(above < 2, x - (above - f32(1)), f32(1) - (above - x)) / above
    f = np.where(k == 0, x, (bits - (k << 23)).astype(np.int32).view(f32) - f32(1))
    half = f32(0.5) * f * f
    s = f / (f + f32(2))
    z = s * s
    series: Array = np.full(x.shape, f32(_LOG1P[0]))
    for c in _LOG1P[1:]:
        series = series * z + f32(c)
    series = z * series
    n = k.astype(f32)
    far = n * _LN2_HIGH - ((half - (s * (half + series) + (n * _LN2_LOW + rest))) - f)
    near = f - (half - s * (half + series))
    return np.where(x < f32(2.0**-29), x, np.where(k == 0, near, far))


# -- sines ------------------------------------------------------------------------------------------------------------
_COS = [float.fromhex(v) for v in ("0x1p0", "-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5", "-0x1.6c087e89a359dp-10")]
_COS.append(float.fromhex("0x1.99343027bf8c3p-16"))
_SIN = [float.fromhex(v) for v in ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13")]
_HALF_PI = float.fromhex("0x1.921fb54442d18p0")


def sine(x: Array) -> Array:
    """The sine of f32, as glibc's sinf has it.

    >>> sine(np.array([0, 1, -3], np.float32)).tolist()
    [0.0, 0.8414709568023682, -0.14112000167369843]
    """
    return _of_quarters(x, 0)


def cosine(x: Array) -> Array:
    """The cosine of f32, as glibc's cosf has it."""
    return _of_quarters(x, 1)


def _of_quarters(x: Array, ahead: int) -> Array:
    wide = np.asarray(x, np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(wide), wide, 0)
        angle = np.where(np.abs(finite) < 120, finite, np.arctan2(np.sin(finite), np.cos(finite)))
        quarter = np.rint(angle / _HALF_PI)
        left = angle - quarter * _HALF_PI
        quarter = quarter.astype(np.int64) + ahead
        square = left * left
        odd = left + left * square * _SIN[0] + left * square * square * (_SIN[1] + square * _SIN[2])
        even = (_COS[0] + square * _COS[1] + square * square * _COS[2]) + square * square * square * (
            _COS[3] + square * _COS[4]
        )
        found = np.where(quarter % 2 == 0, odd, even) * np.where(quarter % 4 >= 2, -1, 1)
        return np.where(np.isfinite(wide), found, np.nan).astype(np.float32)
