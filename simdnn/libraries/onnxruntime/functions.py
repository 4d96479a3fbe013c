"""Functions of floats as onnxruntime computes them: MLAS's rational approximations, whose coefficients are Eigen's, and
formulas whose steps are rounded one by one.

Coefficients: onnxruntime/core/mlas/lib/logistic.cpp, tanh.cpp, compute.cpp and erf.cpp; with FMA3, so the same on every
CPU from AVX2 up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from simdnn.kernels.common import c_library, masks
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.functions import horner

_LOGISTIC = (
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01),
    (
        *(6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03),
        *(1.16817656904453e-01, 9.93151921023180e-01),
    ),
)
_TANH = (
    (
        *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
        *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)


def _ratio(x: Element, parts: tuple[Sequence[float], Sequence[float]], most: float) -> Element:
    """An odd polynomial over an even one, highest powers first, of x within -most and most."""
    v = x.maximum(-most).minimum(most)
    square = v * v
    found = []
    for coefficients in parts:
        total = square.fma(coefficients[0], coefficients[1])
        for c in coefficients[2:]:
            total = total.fma(square, c)
        found.append(total)
    return (found[0] * v) / found[1]


def logistic(x: Element) -> Element:
    """The sigmoid, 1 / (1 + e**-x)."""
    return (_ratio(x, _LOGISTIC, 18.0) + 0.5).maximum(0.0)


def tanh(x: Element) -> Element:
    """The hyperbolic tangent."""
    return _ratio(x, _TANH, 9.0)


def plain_tanh(x: Element) -> Element:
    """The hyperbolic tangent of a GRU's output, where compilers write it: no step fused."""
    v = x.maximum(-10.0).minimum(10.0)
    square = v * v
    found = []
    for coefficients in _TANH:
        total = square * coefficients[0] + coefficients[1]
        for c in coefficients[2:]:
            total = square * total + c
        found.append(total)
    return (v * found[0]) / found[1]


def plain_logistic(x: Element) -> Element:
    """The sigmoid of a GRU's reset gate, (1 + tanh(x / 2)) / 2."""
    return (plain_tanh(x * 0.5) + 1.0) * 0.5


def logistic_of_c(x: Element) -> Element:
    """The sigmoid of an RNN, by `expf`: 1 / (1 + e**-x), and e**x / (1 + e**x) below 0."""
    power = c_library.exp(-(x.abs()))
    return masks.select(masks.negative(x), power, x.same(1.0)) / (power + 1.0)


def tanh_of_logistic(x: Element) -> Element:
    """The hyperbolic tangent of an RNN, by the sigmoid of 2 x."""
    return logistic_of_c(x * 2.0) * 2.0 - 1.0


def hard_swish(x: Element) -> Element:
    """x by the share (x / 6 + 1 / 2) within 0 and 1, no step fused."""
    return x * (x * (1 / 6) + 0.5).minimum(1.0).maximum(0.0)


def softsign(x: Element) -> Element:
    """x times 1 / (1 + |x|)."""
    return x * (1.0 / (x.abs() + 1.0))


# -- e**x, and what is made of it --------------------------------------------------------------------------------------
_TO_WHOLE = 12582912.0  # 1.5 * 2**23: what it is added to loses all places behind the point
_LN2_HIGH, _LN2_LOW = -6.93145752e-1, -1.42860677e-6
_EXP = ("0x1.694p-10", "0x1.125edcp-7", "0x1.555b5ap-5", "0x1.55545p-3", "0x1.fffff6p-2", "0x1p+0", "0x1p+0")
_LEAST_POWER = -88.3762626647949


def _powers(v: Element, coefficients: Sequence[float], at_once: bool = False) -> Element:
    """e**v as a polynomial of what is left of v beside a whole number of ln 2, times that power of two. `at_once`: its
    exponent is written into a number, which is 0 where that is none of a normal one.
    """
    turns = v.fma(math.log2(math.e), _TO_WHOLE) - _TO_WHOLE
    left = turns.fma(_LN2_LOW, turns.fma(_LN2_HIGH, v))
    n = turns.nearest()
    if at_once:
        return horner(left, coefficients) * (n + 127).shift("shl", 23).read_as("f32")
    half = n.shift("sar", 1)  # in two steps, as 2**n itself may be no normal number
    steps = [(part + 127).shift("shl", 23).read_as("f32") for part in (half, n - half)]
    return horner(left, coefficients) * steps[0] * steps[1]


def exp(x: Element) -> Element:
    """e**x."""
    return _powers(x.maximum(-103.9720840454).minimum(88.7762626647950), [float.fromhex(c) for c in _EXP])


def exp_without_subnormals(x: Element) -> Element:
    """e**x for x up to 0, as sums of such powers have it with AVX2 (x86_64/TransKernelFma3.S): 0 below 2**-126.5."""
    return _powers(x.maximum(_LEAST_POWER), [float.fromhex(c) for c in _EXP], at_once=True)


_ERF_SPLIT = 0.921875
_ERF_SMALL = (-5.99104969e-4, 4.99339588e-3, -2.67667342e-2, 1.12818025e-1, -3.76124859e-1, 1.28379151e-1)
_ERF_BIG = (1.72948930e-5, -3.83208680e-4, 3.88393435e-3, -2.42545605e-2, 1.06777847e-1, 6.34846687e-1, 1.28717512e-1)
_ERF_EXP = (1.38319808e-3, 8.37550033e-3, 4.16689515e-2, 1.66664466e-1, 4.99999851e-1, 1.0, 1.0)


def erf(x: Element) -> Element:
    """The error function: a polynomial near zero, and 1 - e**-p beyond; a mask of bits takes one of the two."""
    size = x.abs().minimum(3.925)
    square = size * size
    near = horner(square, _ERF_SMALL).fma(size, size)
    number, split = size.read_as("s32"), int(np.float32(_ERF_SPLIT).view(np.int32))
    beyond = (number.same(split) - number).shift("sar", 31)
    far = size.bits("and", beyond)
    power = (-horner(far, _ERF_BIG).fma(far, far)).maximum(_LEAST_POWER)
    rest = 1.0 - _powers(power, _ERF_EXP)
    found = near.bits("and", (number - (split + 1)).shift("sar", 31)).bits("or", rest)
    return found.bits("or", x.bits("and", 0x80000000))


def gelu(x: Element) -> Element:
    """x / 2 times (erf(x / sqrt(2)) + 1)."""
    return (x * 0.5) * (erf(x * math.sqrt(0.5)) + 1.0)


def fast_gelu(x: Element) -> Element:
    """x / 2 times (tanh(x (0.0356774 x**2 + 0.797885)) + 1)."""
    inner = x * ((x * 0.035677408136300125) * x + 0.7978845608028654)
    return (x * 0.5) * (tanh(inner) + 1.0)


#: by their operator in ONNX; "powers" of a softmax are e**(x - greatest), in registers of 16 lanes or of 8, "softcap"
#: the tangent that bounds scores
FUNCTIONS: dict[str, Callable[[Element], Element]] = {
    "Sigmoid": logistic,
    "Tanh": tanh,
    "HardSwish": hard_swish,
    "Softsign": softsign,
    "Exp": exp,
    "Erf": erf,
    "Gelu": gelu,
    "FastGelu": fast_gelu,
    "powers": exp,
    "powers in 8 lanes": exp_without_subnormals,
    "softcap": c_library.tanh,
}

#: of recurrent layers: onnxruntime/core/providers/cpu/rnn/rnn_helpers.cc
GATES: dict[str, Callable[[Element], Element]] = {
    "sigmoid": logistic,
    "tanh": tanh,
    "sigmoid, then times": plain_logistic,
    "tanh, then times": plain_tanh,
}

#: of an RNN: onnxruntime/core/providers/cpu/rnn/rnn_activation_functors.h
PLAIN_GATES: dict[str, Callable[[Element], Element]] = {"sigmoid": logistic_of_c, "tanh": tanh_of_logistic}
