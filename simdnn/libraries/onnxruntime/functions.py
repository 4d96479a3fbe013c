"""Functions of floats as onnxruntime computes them: MLAS's rational approximations, whose coefficients are Eigen's, and
formulas whose steps are rounded one by one.

Coefficients: onnxruntime/core/mlas/lib/logistic.cpp and tanh.cpp; with FMA3, so the same on every CPU from AVX2 up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simdnn.kernels.common.expression import Element

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


def hard_swish(x: Element) -> Element:
    """x by the share (x / 6 + 1 / 2) within 0 and 1, no step fused."""
    return x * (x * (1 / 6) + 0.5).minimum(1.0).maximum(0.0)


#: by their operator in ONNX
FUNCTIONS: dict[str, Callable[[Element], Element]] = {"Sigmoid": logistic, "Tanh": tanh, "HardSwish": hard_swish}
