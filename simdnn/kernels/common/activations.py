"""Functions that follow a product, as oneDNN's elementwise kernels on CPUs have them (docs/numerics.md, rule 17).

Each is a formula over `Element`s, of x and the numbers alpha and beta that it takes; `formula_of` finds it for a
post-operation. Roundings and their order are the library's, so a kernel has its bits; coefficients are its, too (Apache
License 2.0, Intel Corporation). For powers other than -1, 0, 1/2, 1 and 2 the library calls C's powf (`c_library`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from simdnn.kernels.common import c_library, functions
from simdnn.kernels.common.activation_tables import ERF, LOG, TANH, Table
from simdnn.kernels.common.expression import Element, Expression, trace
from simdnn.kernels.common.functions import float_of, horner
from simdnn.kernels.common.masks import SIGN, below, lookup, negative, select, zero
from simdnn.kernels.common.postops import PostOp


def _floats(*words: int) -> list[float]:
    return [float_of(word) for word in words]


_LOG2E, _LN2 = _floats(0x3FB8AA3B, 0x3F317218)
_EXP_MOST, _EXP_LEAST = _floats(0x42B17218, 0xC2AEAC50)  # beyond: infinity is near, and 0
_EXP = [*_floats(0x3C07CFCE, 0x3D2B9D0D, 0x3E2AAD40, 0x3EFFFEE3, 0x3F7FFFFB), 1.0]
_LOG1P = _floats(
    0xBFC4D30E, 0xBFE1E812, 0xBFA8F1E6, 0xBE361D04, 0xBEA3D7BF, 0x3EA70608, 0xBF001759, 0x3F7FFF8E, 0xB2B4637D
)
_LOG_TAIL = [*_floats(0x3E4CC8A3, 0xBE8004AB, 0x3EAAAAAB, 0xBF000000), 1.0]
_ERFC = _floats(0x3F87DC22, 0xBFBA00E3, 0x3FB5F0E3, 0xBE91A98E, 0x3E827906)  # Abramowitz and Stegun, 7.1.26


def _clear(mask: Element, x: Element) -> Element:
    """0 where the mask is all ones, else x."""
    return x.bits("and", mask.bits("xor", 0xFFFFFFFF))


def _floor(x: Element) -> Element:
    """The integer at or below x, as s32."""
    near = x.nearest()
    return near + negative(x - near.to_float())


def _power_of_two(n: Element) -> Element:
    """2**(n - 127) for an s32 n."""
    return n.shift("shl", 23).read_as("f32")


def _reduced(x: Element) -> Element:
    """n (s32) of x = n ln 2 + r."""
    return _floor(x * _LOG2E + 0.5)


def exp(x: Element) -> Element:
    """e**x as 2 * 2**(n - 1) * e**r; 0 below -87.3, and infinity of a NaN."""
    return _exp(x.bounded_by(_EXP_MOST))


def _exp_or_nan(x: Element) -> Element:
    """e**x, of a NaN that NaN: what becomes of an infinity in its place is a NaN, or not taken."""
    return _exp(x.minimum(_EXP_MOST))


def _exp(bounded: Element) -> Element:
    usual = bounded.maximum(_EXP_LEAST)
    n = _reduced(usual)
    r = n.to_float().fma(-_LN2, usual)
    scale = _clear(below(bounded, _EXP_LEAST), _power_of_two(n + 126))
    return horner(r, _EXP) * scale * 2.0


def elu(x: Element, alpha: Element) -> Element:
    """x where it is above 0, else alpha (e**x - 1)."""
    return select(below(x.same(0.0), x), x, (_exp_or_nan(x) - 1.0) * alpha)


def logistic(x: Element) -> Element:
    """1 / (1 + e**-x), found for -|x|."""
    e = _exp_or_nan(x.bits("or", SIGN))
    below = e / (e + 1.0)
    return select(negative(x), below, 1.0 - below)


def swish(x: Element, alpha: Element) -> Element:
    """x / (1 + e**(-alpha x))."""
    return logistic(x * alpha) * x


def mish(x: Element) -> Element:
    """x tanh(log(1 + e**x)) as x (s - 1) / (s + 1), s being (e**x + 1)**2."""
    more = _exp_or_nan(x.minimum(float_of(0x42317217))) + 1.0
    square = more * more
    return (square - 1.0) / (square + 1.0) * x


def soft_relu(x: Element, alpha: Element) -> Element:
    """log(1 + e**(alpha x)) / alpha as n ln 2 + log(2**-n + e**r)."""
    scaled = x * alpha
    usual = scaled.minimum(_EXP_MOST).maximum(_EXP_LEAST)
    n = _reduced(usual)
    turns = n.to_float() * _LN2
    r = usual - turns
    total = (horner(r, _EXP) * 2.0 + _power_of_two(128 - n)) / 2.0
    exponent = total.shift("shr", 23).to_float() - 126.0
    mantissa = total.bits("and", 0x807FFFFF).bits("or", 0x3F000000) - 1.0
    found = exponent * _LN2 + horner(mantissa, _LOG1P) + turns
    found = found + (scaled.maximum(functions.LARGEST) - functions.LARGEST)  # infinity and NaN
    return select(below(x.same(_EXP_MOST), scaled), scaled, found) / alpha


def _piecewise(x: Element, index: Element, coefficients: tuple[Table, ...], lanes: int) -> Element:
    """A polynomial in x whose coefficients depend on the index."""
    total = lookup(index, coefficients[-1], lanes)
    for table in reversed(coefficients[:-1]):
        total = total.fma(x, lookup(index, table, lanes))
    return total


def tanh(x: Element, lanes: int) -> Element:
    """x near 0, a polynomial for each half binade, 1 beyond 9.01; with the sign of x."""
    size = x.abs()
    start = (size.read_as("s32") - 0x39800000).bits("and", 0xFFC00000)
    low = size.bits("and", 0xFFC00000)
    found = _piecewise(size - low, start.shift("shr", 22), TANH, lanes)
    found = select(below(size, float_of(0x41102CB3)), found, x.same(1.0))
    small = (size - float_of(0x39DDB3D7)).bits("or", size.read_as("s32").same(0x7F800000) - size.read_as("s32"))
    return select(negative(small), size, found).bits("xor", x.bits("and", SIGN))  # small ones, and NaN


def gelu_tanh(x: Element, lanes: int) -> Element:
    """x / 2 (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x**2)))."""
    square = x * x
    inner = square.fma(float_of(0x3D372713), 1.0) * x * float_of(0x3F4C422A)
    return (tanh(inner, lanes) + 1.0) * 0.5 * x


def gelu_erf(x: Element, lanes: int) -> Element:
    """x / 2 (1 + erf(x / sqrt(2))); registers of 16 lanes take a polynomial for each quarter of a binade."""
    if lanes < 16:
        return _gelu_by_exp(x)
    size = x.abs()
    index = (size.read_as("s32") + 0xC21FFFFF).shift("sar", 21)
    index = index.at_least(1).at_most(24)
    beyond = below(x.same(float_of(0x40B15CEE)), size)
    index = select(beyond, index.same(23), index)
    found = _piecewise(size, index, ERF, lanes).bits("xor", x.bits("and", SIGN))
    return x * (found + 1.0) * 0.5


def _gelu_by_exp(x: Element) -> Element:
    """erf by e**(-x**2) times a polynomial of 1 / (1 + p |x|)."""
    scaled = x * float_of(0x3F3504F3)
    t = 1.0 / scaled.abs().fma(float_of(0x3EA7BA05), 1.0)
    tail = (-_exp_or_nan(-(scaled * scaled))) * t
    erf = tail.fma(horner(t, _ERFC), 1.0).bits("xor", x.bits("and", SIGN))
    half = x * 0.5
    return erf.fma(half, half)


def log(x: Element, lanes: int) -> Element:
    """E ln 2 - log r + log(1 + z), z being the mantissa times r less 1; -infinity at 0, NaN below."""
    bits = x.read_as("s32")
    index = bits.shift("shr", 18).bits("and", 0x1F)
    upper = index.shift("shr", 4)  # mantissas from 1.5 on count as halves
    exponent = (bits.shift("shr", 23) + upper).to_float()
    mantissa = x.bits("and", 0x007FFFFF).bits("or", _power_of_two(127 - upper))
    reciprocals, logarithms = LOG
    z = lookup(index, reciprocals, lanes).fma(mantissa, -1.0)
    tail = horner(z, _LOG_TAIL) * z
    head = exponent.fma(_LN2, lookup(index, logarithms, lanes))
    total = tail + head
    found = total + ((total - head) - tail)
    found = found + (x.maximum(functions.LARGEST) - functions.LARGEST)  # infinity and NaN
    found = select(zero((x - 1.0).read_as("s32")), x.same(0.0), found)
    found = select(below(x, 0.0), x.same(float("nan")), found)
    return select(zero(x.abs().read_as("s32")), x.same(float("-inf")), found)


def round_even(x: Element) -> Element:
    """The nearest integer, ties to even, with the sign of x."""
    sign = x.bits("and", SIGN)
    magic = sign.bits("or", 0x4B000000)  # 2**23
    near = ((x + magic) - magic).bits("or", sign)
    return select(below(x.abs(), 8388608.0), near, x)


_POWERS: dict[str, Callable[[Element, Element, Element], Element]] = {
    "reciprocal": lambda x, alpha, beta: alpha / x,
    "zero": lambda x, alpha, beta: alpha,
    "half": lambda x, alpha, beta: x.sqrt() * alpha,
    "one": lambda x, alpha, beta: x * alpha,
    "two": lambda x, alpha, beta: (x * x) * alpha,
}
_NEGATIVE_INFINITY = 0xFF800000
_KNOWN_POWERS = {-1.0: "reciprocal", 0.0: "zero", 0.5: "half", 1.0: "one", 2.0: "two"}
#: powers as C's powf has them, by whether the exponent is odd, even or no integer
_POWERS_OF_C: dict[str, Callable[..., Element]] = {
    "odd": lambda x, beta, raised: raised(x.abs(), beta).bits("xor", x.bits("and", SIGN)),
    "even": lambda x, beta, raised: raised(x.abs(), beta),
    "any": lambda x, beta, raised: raised(x, beta),
}


def power_of(beta: float) -> str:
    """The way to compute x**beta, which is `PostOp.power`.

    >>> power_of(0.5), power_of(3), power_of(-1.5)
    ('half', 'odd', 'any')
    """
    return _KNOWN_POWERS.get(beta) or ("any" if beta % 1 else "odd" if beta % 2 else "even")


_FORMULAS: dict[str, Callable[..., Element]] = {
    "exp": exp,
    "elu": elu,
    "logistic": logistic,
    "swish": swish,
    "mish": mish,
    "soft_relu": soft_relu,
    "round": round_even,
}
_BY_TABLES: dict[str, Callable[..., Element]] = {
    "tanh": tanh,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "log": log,
}


#: the same operations of a reference implementation that calls C's library
_OF_C: dict[str, Callable[..., Element]] = {
    "elu": c_library.elu,
    "exp": c_library.exp,
    "gelu_erf": c_library.gelu_erf,
    "gelu_tanh": c_library.gelu_tanh,
    "logistic": c_library.logistic,
    "mish": c_library.mish,
    "soft_relu": c_library.soft_relu,
    "swish": c_library.swish,
    "tanh": c_library.tanh,
}


def is_formula(op: PostOp) -> bool:
    """Whether a post-operation is one of these."""
    return bool(op.power) or op.kind in _FORMULAS or op.kind in _BY_TABLES


def by_tables(op: PostOp) -> bool:
    """Whether a formula looks up numbers among the lanes of a register, as no GPU here does."""
    return op.kind in _BY_TABLES and op.kind != "gelu_erf"


def function_of(op: PostOp, lanes: int, reference: bool = False) -> Callable[..., Element]:
    """The formula of x and the numbers of a post-operation, for registers of `lanes` lanes (0: that look nothing up);
    `reference`: what a library that calls C's functions gives.
    """
    if op.power:
        return _power(op.power, lanes, reference)
    if reference and op.kind == "log":
        return partial(c_library.log, lanes=lanes)
    if reference and op.kind in _OF_C:
        return _OF_C[op.kind]
    return _FORMULAS.get(op.kind) or partial(_BY_TABLES[op.kind], lanes=lanes)


def _power(power: str, lanes: int, reference: bool) -> Callable[[Element, Element, Element], Element]:
    """alpha x**beta for a `power` of `power_of`."""
    called = {"reciprocal": "odd", "half": "any", "two": "even"}.get(power, power) if reference else power
    if called in _POWERS:
        return _POWERS[called]
    raised = partial(c_library.power, lanes=lanes) if lanes else _by_logarithm
    found = _POWERS_OF_C[called]
    if called == "any" and lanes:
        return lambda x, alpha, beta: found(_without_negative_infinity(x), beta, raised) * alpha
    return lambda x, alpha, beta: found(x, beta, raised) * alpha


def _without_negative_infinity(x: Element) -> Element:
    """x, or infinity in place of the negative one, whose powers it has by an exponent that is no integer."""
    return x.bits("xor", zero(x.bits("xor", _NEGATIVE_INFINITY).read_as("s32")).bits("and", SIGN))


def _by_logarithm(x: Element, beta: Element) -> Element:
    return functions.exp(functions.log(x) * beta)


@lru_cache(maxsize=256)
def formula_of(op: PostOp, lanes: int, reference: bool = False) -> Expression:
    """The formula of x and the numbers of a post-operation, traced."""
    return trace(function_of(op, lanes, reference), ["f32"] * (1 + op.numbers))
