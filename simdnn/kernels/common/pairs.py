"""Numbers of some 45 bits as sums of two f32, by error-free sums and products (Dekker; Knuth, TAOCP 2, 4.2.2)."""

from __future__ import annotations

import struct
from math import factorial, log2
from typing import NamedTuple

from simdnn.kernels.common import functions
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.functions import horner, power_of_two
from simdnn.kernels.common.masks import below, negative, select, zero

_LN2 = (0.693145751953125, 1.428606765330187e-06, 5.497923e-14)  # 16 bits, 24 bits, and what is left
_LEAST_NORMAL = 0x00800000  # its bits


class Pair(NamedTuple):
    """high + low, not evaluated; |low| is at most half an ulp of high."""

    high: Element
    low: Element

    def times(self, other: Pair) -> Pair:
        """The product."""
        product = self.high * other.high
        left = self.high.fma(other.high, -product)
        return ordered(product, self.low.fma(other.high, self.high.fma(other.low, left)))

    def behind(self, number: float) -> Pair:
        """A number that is no less, plus this."""
        first = _nearest(number)
        whole = ordered(self.high.same(first), self.high)
        return ordered(whole.high, whole.low + (self.low + (number - first)))

    def scaled(self, n: Element) -> Element:
        """This number, from 1/2 to 2, times 2**n as f32, for an s32 n from -150 on; rounded once, denormals too."""
        half = n.shift("sar", 1)
        usual = self.high * power_of_two(half) * power_of_two(n - half)
        return select(negative(usual.abs().read_as("s32") - (_LEAST_NORMAL + 1)), self._as_denormal(n), usual)

    def _as_denormal(self, n: Element) -> Element:
        """This number times 2**n up to 2**-126: how many least denormals it has are the bits of the result."""
        units = self.high * power_of_two(n + 149)
        whole = units.nearest()
        left = units - whole.to_float()
        tie = zero((left.abs() - 0.5).read_as("s32")).bits("and", below(left.same(0.0), left * self.low))
        return (whole + negative(left).bits("or", 1).bits("and", tie)).read_as("f32")

    def chosen(self, mask: Element, other: Pair) -> Pair:
        """This one where the mask is all ones, else the other one."""
        return Pair(select(mask, self.high, other.high), select(mask, self.low, other.low))


def _nearest(number: float) -> float:
    """A number's nearest f32."""
    found: float = struct.unpack("=f", struct.pack("=f", number))[0]
    return found


def ordered(a: Element, b: Element) -> Pair:
    """a + b, |a| being no less than |b|."""
    total = a + b
    return Pair(total, b - (total - a))


def added(a: Element, b: Element) -> Pair:
    """a + b."""
    total = a + b
    back = total - a
    return Pair(total, (a - (total - back)) + (b - back))


def expm1_of_reduced(r: Pair) -> Pair:
    """e**r - 1 for |r| up to ln 2 / 2: Taylor's series, in pairs from the sixth power down."""
    tail = horner(r.high, [1 / factorial(k) for k in range(12, 6, -1)])
    total = Pair(r.high * tail, r.high.same(0.0)).behind(1 / 720)
    for k in range(5, 0, -1):
        total = total.times(r).behind(1 / factorial(k))
    return total.times(r)


def reduced(x: Element, low: Element | None = None) -> tuple[Element, Pair]:
    """n (s32) and r with x, or x + low, being n ln 2 + r."""
    n = (x * log2(2.718281828459045)).nearest()
    turns = n.to_float()
    first = turns.fma(-_LN2[0], x)  # exact
    product = turns * _LN2[1]
    left = turns.fma(_LN2[1], -product)
    r = added(first, -product)
    rest = (r.low - left) - turns * _LN2[2]
    return n, ordered(r.high, rest if low is None else rest + low)


def log(x: Element) -> Pair:
    """The natural logarithm of a positive number that is not infinite; of denormals, too."""
    denormal = below(x, 2.0**-126)
    usual = select(denormal, x * 8388608.0, x)
    bits = usual.read_as("s32")
    exponent = (bits - 0x3F3504F3).shift("sar", 23)
    mantissa = (bits - exponent.shift("shl", 23)).read_as("f32")
    far = _log_of(mantissa, (exponent - denormal.read_as("s32").bits("and", 23)).to_float())
    beyond = usual - 1.0
    return _log_near_one(Pair(beyond, x.same(0.0))).chosen(below(beyond.abs(), 0.015625), far)


def _log_near_one(d: Pair) -> Pair:
    """log(1 + d) for |d| up to 2**-6."""
    tail = horner(d.high, [(-1) ** (k + 1) / k for k in range(9, 4, -1)])
    total = Pair(d.high * tail, d.high.same(0.0))
    total = total.behind(-1 / 4)
    for k in range(3, 0, -1):
        total = total.times(d).behind((-1) ** (k + 1) / k)
    return total.times(d)


def _log_of(mantissa: Element, n: Element) -> Pair:
    """log(mantissa) + n ln 2 away from 0: a step of Newton's method from a rounded one."""
    minus = -functions.log(mantissa)
    back = expm1_of_reduced(Pair(minus, minus.same(0.0))).behind(1.0)
    product = mantissa * back.high
    left = mantissa.fma(back.high, -product)
    z = (product - 1.0) + mantissa.fma(back.low, left)
    turns = n * _LN2[1]
    first = added(n * _LN2[0], -minus)
    total = added(first.high, turns)
    rest = n.fma(_LN2[2], (z - (z * z) * 0.5) + n.fma(_LN2[1], -turns))
    return ordered(total.high, total.low + (first.low + rest))
