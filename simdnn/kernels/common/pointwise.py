"""Post-operations as formulas, for targets that look nothing up in registers: GPUs, and graphs of primitives there.

What oneDNN's kernels on CPUs compute by tables (`simdnn.kernels.common.activations`) is a polynomial here; the rest has
the roundings that it has there, products and comparisons among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simdnn.kernels.common import functions as f
from simdnn.kernels.common.activations import by_tables, function_of
from simdnn.kernels.common.expression import Element, Expression, trace
from simdnn.kernels.common.masks import nonzero, opposite, zero
from simdnn.kernels.common.postops import BENEATH, COMPARISONS, NAN_WORDS, PostOp

_SIGNS = 0x7FFFFFFF


def bounded(x: Element, alpha: Element | float, beta: Element | float) -> Element:
    """min(1, max(0, alpha x + beta))."""
    return (x * alpha + beta).minimum(1.0).maximum(0.0)


def _scaled_below(x: Element, factor: Element) -> Element:
    """x above zero, else x * factor; a zero is multiplied, a NaN is not."""
    left = (x.read_as("s32") + -1).bits("or", x).shift("sar", 31)
    return x.bits("xor", x.bits("xor", x * factor).bits("and", left))


#: functions of one rounding or two, of x and its numbers
PLAIN: Mapping[str, Callable[..., Element]] = {
    "relu": _scaled_below,
    "abs": lambda x: x.abs(),
    "square": lambda x: x * x,
    "sqrt": lambda x: x.sqrt(),
    "linear": lambda x, alpha, beta: x.fma(alpha, beta),
    "clip": lambda x, low, high: x.maximum(low).minimum(high),
    "clip_v2": lambda x, low, high: x.maximum(low).minimum(high),
    "hardsigmoid": bounded,
    "hardswish": lambda x, alpha, beta: x * bounded(x, alpha, beta),
}
#: those of kernels on CPUs that differ: of a NaN and a number theirs take the number
OF_KERNELS: Mapping[str, Callable[..., Element]] = {
    **PLAIN,
    "hardsigmoid": lambda x, alpha, beta: (x * alpha + beta).bounded_by(1.0).maximum(0.0),
}
#: those of oneDNN's reference that differ: no multiply-add is fused, and zeros have other signs
OF_REFERENCE: Mapping[str, Callable[..., Element]] = {
    **PLAIN,
    "abs": lambda x: (-x).maximum(x),
    "linear": lambda x, alpha, beta: x * alpha + beta,
    "clip": lambda x, low, high: low.maximum(x).minimum(high),
    "clip_v2": lambda x, low, high: high.minimum(low.maximum(x)),
    "hardsigmoid": lambda x, alpha, beta: bounded(x, alpha, beta) + 0.0,
    "hardswish": lambda x, alpha, beta: x * (bounded(x, alpha, beta) + 0.0),
}
#: functions that oneDNN computes by tables
BY_POLYNOMIALS: Mapping[str, Callable[[Element], Element]] = {
    "tanh": f.tanh,
    "gelu_tanh": f.gelu_by_tanh,
    "log": f.log,
}


def _ordered(x: Element) -> Element:
    """Bits whose order as integers is that of the floats; -0 becomes 0."""
    whole = (x + 0.0).read_as("s32")
    return whole.bits("xor", whole.shift("sar", 31).bits("and", _SIGNS))


def _beneath(x: Element) -> Element:
    """`_ordered` with every NaN beneath -infinity."""
    return (x + NAN_WORDS).at_least(BENEATH) - NAN_WORDS


def _above(x: Element) -> Element:
    """`_ordered` with every NaN above infinity."""
    return opposite(_beneath(opposite(x)))


def _compared(kind: str, x: Element, y: Element) -> Element:
    """1 where it holds, else 0: the greater of both is this one (ge), the other one is not this one (lt), and so on.

    As C compares, so of a NaN ne alone holds: it is beneath all that must not be less, above all that must be.
    """
    mine, other = _ordered(x), _ordered(y)
    mine, other = (_beneath(mine), _above(other)) if kind in ("ge", "gt") else (_above(mine), _beneath(other))
    if kind in ("le", "gt"):  # the lesser is the greater of the complements
        mine, other = opposite(mine), opposite(other)
    if kind not in ("eq", "ne"):
        other = mine.at_least(other)
    apart = mine.bits("xor", other)
    holds = nonzero(apart) if kind in ("lt", "gt", "ne") else zero(apart)
    return holds.read_as("f32").bits("and", x.same(1.0))


_BINARY: Mapping[str, Callable[[Element, Element], Element]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": lambda x, y: y.maximum(x),
    "min": lambda x, y: y.minimum(x),
    "prelu": _scaled_below,
}


def function_on_gpus(op: PostOp) -> Callable[..., Element]:
    """The formula of x and what a post-operation reads beside it: its numbers, or the second operand; not of `sum`."""
    if op.second is not None:
        if op.kind in COMPARISONS:
            return lambda x, y: _compared(op.kind, x, y)
        return _BINARY[op.kind]
    if op.kind in PLAIN:
        return PLAIN[op.kind]
    return BY_POLYNOMIALS[op.kind] if by_tables(op) else function_of(op, 0)


def formula_on_gpus(op: PostOp) -> Expression:
    """`function_on_gpus`, traced.

    >>> formula_on_gpus(PostOp("linear", 2)).steps[-1].op
    'fma'
    """
    beside = op.numbers if op.second is None else 1
    return trace(function_on_gpus(op), ["f32"] * (1 + beside))
