"""Functions of C's library, rounded right: what a library's reference implementation calls for a post-operation.

A value in the making is a `Pair` of f32, some 45 bits, by error-free sums and products (Dekker; Knuth, TAOCP 2, 4.2.2).
Over all f32 no function here is known to be off; an error of 2**-45 leaves one in about a million to chance.
"""

from __future__ import annotations

import struct
from math import factorial, log2
from typing import NamedTuple

from simdnn.kernels.common import functions
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.functions import horner

_LN2 = (0.693145751953125, 1.428606765330187e-06, 5.497923e-14)  # 16 bits, 24 bits, and what is left
_OVERFLOW = 88.72283172607421875  # e**x is infinite beyond


class Pair(NamedTuple):
    """high + low, not evaluated; |low| is at most half an ulp of high."""

    high: Element
    low: Element

    def times(self, other: Pair) -> Pair:
        """The product."""
        product = self.high * other.high
        left = self.high.fma(other.high, -product)
        return _ordered(product, self.low.fma(other.high, self.high.fma(other.low, left)))

    def behind(self, number: float) -> Pair:
        """A number that is no less, plus this."""
        first = _nearest(number)
        whole = _ordered(self.high.same(first), self.high)
        return _ordered(whole.high, whole.low + (self.low + (number - first)))

    @property
    def rounded(self) -> Element:
        """The nearest f32."""
        return self.high + self.low


def _nearest(number: float) -> float:
    """A number's nearest f32."""
    found: float = struct.unpack("=f", struct.pack("=f", number))[0]
    return found


def _ordered(a: Element, b: Element) -> Pair:
    """a + b, |a| being no less than |b|."""
    total = a + b
    return Pair(total, b - (total - a))


def _sum(a: Element, b: Element) -> Pair:
    """a + b."""
    total = a + b
    back = total - a
    return Pair(total, (a - (total - back)) + (b - back))


def _power_of_two(n: Element) -> Element:
    """2**n for an s32 n from -126 to 127."""
    return (n + 127).shift("shl", 23).read_as("f32")


def _expm1_of_reduced(r: Pair) -> Pair:
    """e**r - 1 for |r| up to ln 2 / 2: Taylor's series, in pairs from the sixth power down."""
    tail = horner(r.high, [1 / factorial(k) for k in range(12, 6, -1)])
    total = Pair(r.high * tail, r.high.same(0.0)).behind(1 / 720)
    for k in range(5, 0, -1):
        total = total.times(r).behind(1 / factorial(k))
    return total.times(r)


def _reduced(x: Element) -> tuple[Element, Pair]:
    """n (s32) and r with x = n ln 2 + r."""
    n = (x * log2(2.718281828459045)).nearest()
    turns = n.to_float()
    first = turns.fma(-_LN2[0], x)  # exact
    product = turns * _LN2[1]
    left = turns.fma(_LN2[1], -product)
    r = _sum(first, -product)
    return n, _ordered(r.high, (r.low - left) - turns * _LN2[2])


def exp(x: Element) -> Element:
    """e**x, denormal results apart, which are rounded twice."""
    n, r = _reduced(x.minimum(89.0).maximum(-104.0))
    half = n.shift("sar", 1)
    return _expm1_of_reduced(r).behind(1.0).rounded * _power_of_two(half) * _power_of_two(n - half)


def _expm1(x: Element) -> Pair:
    """e**x - 1 for x up to 0."""
    n, r = _reduced(x.maximum(-40.0))
    scale = _power_of_two(n)
    part, less = _expm1_of_reduced(r), _sum(scale, scale.same(-1.0))
    total = _sum(less.high, scale * part.high)
    return _ordered(total.high, total.low + (less.low + scale * part.low))


def tanh(x: Element) -> Element:
    """Hyperbolic tangent as (1 - e) / (1 + e), e being e**(-2|x|)."""
    less = _expm1(x.abs().minimum(10.0) * -2.0)
    below = less.behind(2.0)
    first = less.high / below.high
    rest = (-first).fma(below.high, less.high) + (-first).fma(below.low, less.low)
    size = (first + rest / below.high).bits("and", 0x7FFFFFFF)
    return size.bits("or", x.bits("and", 0x80000000))


def _log_near_one(d: Pair) -> Pair:
    """log(1 + d) for |d| up to 2**-6."""
    tail = horner(d.high, [(-1) ** (k + 1) / k for k in range(9, 4, -1)])
    total = Pair(d.high * tail, d.high.same(0.0))
    total = total.behind(-1 / 4)
    for k in range(3, 0, -1):
        total = total.times(d).behind((-1) ** (k + 1) / k)
    return total.times(d)


def _log_of(x: Element) -> Pair:
    """log(x) of a normal number away from 1: a step of Newton's method from a rounded one."""
    shifted = x.read_as("s32") - 0x3F3504F3
    exponent = shifted.shift("sar", 23)
    mantissa = (x.read_as("s32") - exponent.shift("shl", 23)).read_as("f32")
    minus = -functions.log(mantissa)
    back = _expm1_of_reduced(Pair(minus, minus.same(0.0))).behind(1.0)
    product = mantissa * back.high
    left = mantissa.fma(back.high, -product)
    z = (product - 1.0) + mantissa.fma(back.low, left)
    n = exponent.to_float()
    turns = n * _LN2[1]
    first = _sum(n * _LN2[0], -minus)
    total = _sum(first.high, turns)
    rest = n.fma(_LN2[2], (z - (z * z) * 0.5) + n.fma(_LN2[1], -turns))
    return _ordered(total.high, total.low + (first.low + rest))


def log1p_of_positive(y: Element) -> Element:
    """log(1 + y) for y from 0 up."""
    near = _log_near_one(Pair(y, y.same(0.0))).rounded.bits("and", _below(y, 0.015625))
    chosen = near + (y.maximum(3.4028234663852886e38) - 3.4028234663852886e38)  # infinity and NaN are themselves
    total = _sum(y.same(1.0), y)
    rest = total.low / total.high
    found = _log_of(total.high)
    far = found.high + (found.low + rest)
    is_zero = (chosen.read_as("s32") - 1).shift("sar", 31)
    return chosen + far.bits("and", is_zero)


def log(x: Element) -> Element:
    """Natural logarithm; denormals count as zero, whose logarithm is -infinity; NaN below."""
    beyond = x - 1.0
    near = _log_near_one(Pair(beyond, x.same(0.0))).rounded
    usual = _select(_below(beyond.abs(), 0.015625), near, _log_of(x).rounded)
    below = (x + 0.0).shift("sar", 31).bits("and", 0x80000000)
    rough = functions.log(x).bits("and", below.bits("xor", 0xFFFFFFFF))  # what is no number
    bits = x.read_as("s32")
    denormal = (bits - 0x00800000).shift("sar", 31)
    regular = (bits - 0x7F800000).shift("sar", 31).bits("and", denormal.bits("xor", 0xFFFFFFFF))
    return _select(regular, usual, rough)


def _below(x: Element, y: Element | float) -> Element:
    """All ones where x < y."""
    return (x - y).read_as("s32").shift("sar", 31)


def _select(mask: Element, yes: Element, no: Element) -> Element:
    """`yes` where the mask is all ones, else `no`."""
    return no.bits("xor", no.bits("xor", yes).bits("and", mask))


# -- post-operations of these, in the order in which oneDNN's reference computes them ---------------------------------
def elu(x: Element, alpha: Element) -> Element:
    """x where it is above 0, else alpha (e**x - 1)."""
    below = _expm1(x.minimum(0.0)).rounded.bits("or", x.bits("and", 0x80000000))  # of -0 it is -0
    return _select(_below(x.same(0.0), x), x, below * alpha)


def logistic(x: Element) -> Element:
    """1 / (1 + e**-x), 0 where that overflows."""
    usual = 1.0 / (exp(-x) + 1.0)
    return _select(_below(x.same(1e38).minimum(-x), _OVERFLOW), usual, x.same(0.0))  # of a NaN, too, it is 0


def swish(x: Element, alpha: Element) -> Element:
    """x / (1 + e**(-alpha x))."""
    return x * logistic(x * alpha)


def _soft_plus(x: Element) -> Element:
    return _select(_below(x, _OVERFLOW), log1p_of_positive(exp(x)), x)


def soft_relu(x: Element, alpha: Element) -> Element:
    """log(1 + e**(alpha x)) / alpha."""
    return _soft_plus(x * alpha) / alpha


def mish(x: Element) -> Element:
    """x tanh(log(1 + e**x))."""
    return x * tanh(_soft_plus(x))


def gelu_tanh(x: Element) -> Element:
    """x / 2 (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x**2))), the outer product rounded once."""
    inner = (x * 0.79788458347320556640625) * ((x * 0.044715) * x + 1.0)
    total = _sum(x.same(1.0), tanh(inner))
    half = x * 0.5
    some = half.minimum(1e38).maximum(-1e38)  # what is left of an infinity is nothing
    left = some.fma(total.low, some.fma(total.high, -(some * total.high)))
    return (half * total.high + left).bits("or", x.bits("and", 0x80000000))
