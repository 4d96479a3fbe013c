"""glibc's functions of f32, which a library's reference implementation calls for a post-operation, on x86.

*expf, logf, powf* (from glibc 2.28 on; from Arm's optimized routines: math/expf.c, logf.c, powf.c and their data) are
polynomials of few terms in f64. Here the function is found in pairs of f32, and what the polynomial is off by, some
2**-33, is added to it: the bits are theirs but where f64's own roundings decide (one result in some million).

*expm1f, tanhf, log1pf, erff* are those of glibc up to 2.40, fdlibm's (Sun Microsystems, 1993), in f32 step by step, so
the bits are theirs; 2.41 and later round them right, and others of the last place come of it.
"""

from __future__ import annotations

from math import log as ln

from simdnn.kernels.common import functions, pairs
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.functions import float_of
from simdnn.kernels.common.masks import SIGN, Table, below, lookup, negative, opposite, select, zero
from simdnn.kernels.common.pairs import Pair, added, ordered

_OVERFLOW = 88.72283172607421875  # e**x is infinite beyond


def _hexadecimals(*texts: str) -> list[float]:
    return [float.fromhex(text) for text in texts]


# -- what the polynomials of f64 are off by ---------------------------------------------------------------------------
_LN2 = ln(2)
_PARTS = 32  # of an octave, which expf's table has powers of two for
_CUBIC, _SQUARE, _LINEAR = (
    coefficient / _LN2**power
    for coefficient, power in zip(
        _hexadecimals("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1"), (3, 2, 1), strict=True
    )
)
#: (1 + linear u + square u**2 + cubic u**3) e**-u - 1, divided by u, the highest power first
_OFF_EXP = [
    _CUBIC / 2 - _SQUARE / 6 + _LINEAR / 24 - 1 / 120,
    -_CUBIC + _SQUARE / 2 - _LINEAR / 6 + 1 / 24,
    _CUBIC - _SQUARE + _LINEAR / 2 - 1 / 6,
    _SQUARE - _LINEAR + 1 / 2,
    _LINEAR - 1,
]
#: 1 / c for sixteen c, near which logf and powf expand
_INVERSES: Table = tuple(
    _hexadecimals(
        *("0x1.661ec79f8f3bep+0", "0x1.571ed4aaf883dp+0", "0x1.49539f0f010bp+0", "0x1.3c995b0b80385p+0"),
        *("0x1.30d190c8864a5p+0", "0x1.25e227b0b8eap+0", "0x1.1bb4a4a1a343fp+0", "0x1.12358f08ae5bap+0"),
        *("0x1.0953f419900a7p+0", "0x1p+0", "0x1.e608cfd9a47acp-1", "0x1.ca4b31f026aap-1"),
        *("0x1.b2036576afce6p-1", "0x1.9c2d163a1aa2dp-1", "0x1.886e6037841edp-1", "0x1.767dcf5534862p-1"),
    )
)


def _off_log(*coefficients: float) -> list[float]:
    """A polynomial less log(1 + r), divided by r, the highest power first; coefficients from the first power on."""
    known = (*coefficients, *(0.0,) * (8 - len(coefficients)))
    return [known[k - 1] - (-1) ** (k + 1) / k for k in range(8, 0, -1)]


_OFF_LOGF = _off_log(1.0, *_hexadecimals("-0x1.ffffef20a4123p-2", "0x1.5575b0be00b6ap-2", "-0x1.00ea348b88334p-2"))
_OFF_POWF = _off_log(
    *(
        coefficient * _LN2
        for coefficient in _hexadecimals(
            "0x1.71547652ab82bp0",
            "-0x1.7154748bef6c8p-1",
            "0x1.ec70a6ca7baddp-2",
            "-0x1.71969a075c67ap-2",
            "0x1.27616c9496e0bp-2",
        )
    )
)


def _exp_of_reduced(r: Pair) -> Pair:
    """e**r for |r| up to ln 2 / 2, as expf's polynomial has it."""
    parts = (r.high * (_PARTS / _LN2)).nearest().to_float()
    u = parts.fma(-_LN2 / _PARTS, r.high)
    off = functions.horner(u, _OFF_EXP) * u
    found = pairs.expm1_of_reduced(r).behind(1.0)
    return ordered(found.high, found.high.fma(off, found.low))


def _log(x: Element, off: list[float], lanes: int) -> Pair:
    """The logarithm of a positive number that is not infinite, off as a polynomial near sixteen points is."""
    usual = select(below(x, 2.0**-126), x * 8388608.0, x)
    bits = usual.read_as("s32")
    place = bits - 0x3F330000
    mantissa = (bits - place.bits("and", 0xFF800000)).read_as("f32")
    r = lookup(place.shift("shr", 19), _INVERSES, lanes).fma(mantissa, -1.0)
    much = functions.horner(r, off) * r
    found = pairs.log(x)
    return Pair(found.high, found.low + much)


# -- functions of f64 -------------------------------------------------------------------------------------------------
def exp(x: Element) -> Element:
    """expf."""
    n, r = pairs.reduced(x.minimum(89.0).maximum(-104.0))
    return _exp_of_reduced(r).scaled(n)


def log(x: Element, lanes: int) -> Element:
    """logf for registers of `lanes` lanes: -infinity at 0, NaN below."""
    found = _log(x, _OFF_LOGF, lanes)
    unsigned = _log_beyond(x).bits("and", opposite(negative(x + 0.0).bits("and", SIGN)))  # NaN of a number below 0
    return select(_regular(x), found.high + found.low, unsigned)


def power(x: Element, exponent: Element, lanes: int) -> Element:
    """powf of x from 0 up, NaN below; exponents are no 0."""
    found, regular = _log(x, _OFF_POWF, lanes), _regular(x)
    first = found.high * exponent
    left = found.high.fma(exponent, -first)
    low = found.low.fma(exponent, left)
    whole = select(regular, first, _log_beyond(x) * exponent)
    inside = below(whole.abs(), 104.0)
    n, r = pairs.reduced(whole.minimum(104.0).maximum(-104.0), low.bits("and", inside))
    return _exp_of_reduced(r).scaled(n)


def _regular(x: Element) -> Element:
    """All ones for positive numbers that are not infinite."""
    bits = x.read_as("s32")
    return (bits - 0x7F800000).shift("sar", 31).bits("and", opposite((bits - 1).shift("sar", 31)))


def _log_beyond(x: Element) -> Element:
    """Logarithms of what is not `_regular`: -infinity, infinity and NaN."""
    root = (x + 0.0).sqrt()
    return root - 1.0 / root


# -- functions of f32, step by step -----------------------------------------------------------------------------------
_LN2_HIGH, _LN2_LOW = 6.9313812256e-01, 9.0580006145e-06
_EXPM1 = (-2.0109921195e-07, 4.0082177293e-06, -7.9365076090e-05, 1.5873016091e-03, -3.3333335072e-02, 1.0)


def _polynomial(x: Element, coefficients: tuple[float, ...]) -> Element:
    """A polynomial, the highest power first, every product rounded."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def expm1(x: Element) -> Element:
    """expm1f: e**x - 1 as 2**k (1 + (r - error)) - 1 with x = k ln 2 + r."""
    size = x.abs()
    near = size * 1.4426950216 + 0.5
    turns = near.nearest()
    turns = turns + negative(near - turns.to_float())  # the integer at or below
    turns = select(below(size, float_of(0x3F851592)), turns.same(1), turns)
    turns = turns.bits("and", below(size.same(float_of(0x3EB17218)), size))
    sign = negative(x).read_as("s32")
    k = turns.bits("xor", sign) - sign
    n = k.to_float()
    high, low = x - n * _LN2_HIGH, n * _LN2_LOW
    r = high - low
    rest = (high - r) - low
    half = r * 0.5
    square = r * half
    ratio = _polynomial(square, _EXPM1)
    t = 3.0 - ratio * half
    error = square * ((ratio - t) / (6.0 - r * t))
    error = (r * (error - rest) - rest) - square
    return _put_together(x, k, r, error)


def _put_together(x: Element, k: Element, r: Element, error: Element) -> Element:
    """2**k (1 + (r - error)) - 1 by the ways that fdlibm has for k, and what x itself decides."""
    part = r - error

    def scaled(y: Element) -> Element:
        return (y.read_as("s32") + k.shift("shl", 23)).read_as("f32")

    few = k.at_least(0) - 23  # below 0: 2**-k is subtracted from 1 first
    inverse = (127 - k.at_least(0)).shift("shl", 23).read_as("f32")
    large = scaled(select(negative(few), (1.0 - inverse) - (error - r), (r - (error + inverse)) + 1.0))
    apart = negative(k - 2).bits("or", opposite(negative(k - 57)))  # k is at most 1, or above 56
    found = select(apart, scaled(1.0 - (error - r)) - 1.0, large)
    one = select(below(r, -0.25), (error - (r + 0.5)) * -2.0, part * 2.0 + 1.0)
    found = select(_equal(k, 1), one, found)
    found = select(_equal(k, 0), part, found)
    found = select(_equal(k, -1), part * 0.5 - 0.5, found)
    found = select(below(x, -float_of(0x4195B844)), x.same(-1.0), found)
    most = float_of(0x42B17217)
    found = select(below(x.same(most), x.maximum(most)), x.same(float("inf")), found)
    return (found + _not_finite(x)).bits("or", x.bits("and", SIGN))


def _not_finite(x: Element) -> Element:
    """0, but infinity and NaN of themselves."""
    return x.maximum(functions.LARGEST) - functions.LARGEST


def _equal(x: Element, number: int) -> Element:
    """All ones where an s32 is a number."""
    return zero(x - number)


def tanh(x: Element) -> Element:
    """tanhf by `expm1` of 2 |x|, or of -2 |x| below 1."""
    size = x.abs()
    small = below(size, 1.0)
    t = expm1(size.minimum(22.0) * select(small, x.same(-2.0), x.same(2.0)))
    found = select(small, -t, t.same(2.0)) / (t + 2.0)
    return select(small, found, 1.0 - found).bits("or", x.bits("and", SIGN))


_LOG1P = (1.4798198640e-01, 1.5313838422e-01, 1.8183572590e-01, 2.2222198546e-01, 2.8571429849e-01, 4.0000000596e-01)


def log1p(x: Element) -> Element:
    """log1pf of numbers from 0 up that are not infinite, as k ln 2 + log(1 + f)."""
    small = below(x, float_of(0x3ED413D7))
    u = x + 1.0
    bits = u.read_as("s32")
    k = (bits + 0x004AFB09).shift("sar", 23) - 127  # a mantissa from sqrt(2) on counts as half of it
    f = (bits - k.shift("shl", 23)).read_as("f32") - 1.0
    rest = select(below(u, 2.0), x - (u - 1.0), 1.0 - (u - x)) / u
    f, whole = select(small, x, f), k.bits("and", opposite(small))
    n = whole.to_float()
    squared = (f * 0.5) * f
    s = f / (f + 2.0)
    z = s * s
    series = z * _polynomial(z, (*_LOG1P, 6.6666668653e-01))
    inner = s * (squared + series)
    near = f - (squared - inner)
    far = n * _LN2_HIGH - ((squared - (inner + (n * _LN2_LOW + rest))) - f)
    return select(zero(whole), near, far)


#: P and Q of erf, the highest power first: x + x P / Q of x**2 up to 27/32, then 0.845 + P / Q of |x| - 1 up to 5/4
_ERF_NEAR = (
    (-2.3763017452e-05, -5.7702702470e-03, -2.8481749818e-02, -3.2504209876e-01, 1.2837916613e-01),
    (-3.9602282413e-06, 1.3249473704e-04, 5.0813062117e-03, 6.5022252500e-02, 3.9791721106e-01, 1.0),
)
_ERF_MIDDLE = (
    (-2.1663755178e-03, 3.5478305072e-02, -1.1089469492e-01, 3.1834661961e-01, -3.7220788002e-01, 4.1485610604e-01)
    + (-2.3621185683e-03,),
    (1.1984500103e-02, 1.3637083583e-02, 1.2617121637e-01, 7.1828655899e-02, 5.4039794207e-01, 1.0642088205e-01, 1.0),
)
#: and those of 1 / x**2 in erfc(|x|) = e**(-x**2 - 0.5625 + P / Q) / |x|, up to 1 / 0.35 and beyond
_ERFC_NEAR = (
    (-9.8143291473e00, -8.1287437439e01, -1.8460508728e02, -1.6239666748e02, -6.2375331879e01, -1.0558626175e01)
    + (-6.9385856390e-01, -9.8649440333e-03),
    (-6.0424413532e-02, 6.5702495575e00, 1.0863500214e02, 4.2900814819e02, 6.4538726807e02, 4.3456588745e02)
    + (1.3765776062e02, 1.9651271820e01, 1.0),
)
_ERFC_FAR = (
    (-4.8351919556e02, -1.0250950928e03, -6.3756646729e02, -1.6063638306e02, -1.7757955551e01, -7.9928326607e-01)
    + (-9.8649431020e-03,),
    (-2.2440952301e01, 4.7452853394e02, 2.5530502930e03, 3.1998581543e03, 1.5367296143e03, 3.2579251099e02)
    + (3.0338060379e01, 1.0),
)
_Quotient = tuple[tuple[float, ...], tuple[float, ...]]


def _quotient(x: Element, of: _Quotient) -> Element:
    over, under = of
    return _polynomial(x, over) / _polynomial(x, under)


def erf(x: Element) -> Element:
    """erff of numbers from 0 up, by four quotients of polynomials."""
    size = x.minimum(6.0)  # beyond, it is 1
    found = 1.0 - _erfc(size)
    found = select(below(size, 1.25), _quotient(size - 1.0, _ERF_MIDDLE) + 8.4506291151e-01, found)
    more = size * 16.0  # no denormal on the way
    near = (more + more * _quotient(size * size, _ERF_NEAR)) * 0.0625
    return select(below(size, 0.84375), near, found)


def _erfc(x: Element) -> Element:
    """erfc of 5/4 to 6."""
    inverse = 1.0 / (x * x)
    far = _quotient(inverse, _ERFC_FAR)
    ratio = select(below(x, float_of(0x4036DB6E)), _quotient(inverse, _ERFC_NEAR), far)
    z = x.bits("and", 0xFFFFF000)
    second = exp((z - x) * (z + x) + ratio)
    return exp(-(z * z) - 0.5625) * second / x


# -- post-operations of these, in the order in which oneDNN's reference computes them ---------------------------------
def elu(x: Element, alpha: Element) -> Element:
    """x where it is above 0, else alpha (e**x - 1)."""
    return select(below(x.same(0.0), x), x, expm1(x.minimum(0.0)) * alpha)


def logistic(x: Element) -> Element:
    """1 / (1 + e**-x), 0 where that overflows."""
    usual = 1.0 / (exp(-x) + 1.0)
    return select(below(x.same(1e38).minimum(-x), _OVERFLOW), usual, x.same(0.0))  # of a NaN, too, it is 0


def swish(x: Element, alpha: Element) -> Element:
    """x / (1 + e**(-alpha x))."""
    return x * logistic(x * alpha)


def _soft_plus(x: Element) -> Element:
    return select(below(x, _OVERFLOW), log1p(exp(x)), x)


def soft_relu(x: Element, alpha: Element) -> Element:
    """log(1 + e**(alpha x)) / alpha."""
    return _soft_plus(x * alpha) / alpha


def mish(x: Element) -> Element:
    """x tanh(log(1 + e**x))."""
    return x * tanh(_soft_plus(x))


def gelu_tanh(x: Element) -> Element:
    """x / 2 (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x**2))), the outer product rounded once."""
    inner = (x * 0.79788458347320556640625) * ((x * 0.044715) * x + 1.0)
    total = added(x.same(1.0), tanh(inner))
    half = x * 0.5
    some = half.minimum(1e38).maximum(-1e38)  # what is left of an infinity is nothing
    left = some.fma(total.low, some.fma(total.high, -(some * total.high)))
    return (half * total.high + left).bits("or", x.bits("and", SIGN))


def gelu_erf(x: Element) -> Element:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    found = erf((x * 0.707106769084930419921875).abs()).bits("or", x.bits("and", SIGN))
    return (x * 0.5) * (found + 1.0)
