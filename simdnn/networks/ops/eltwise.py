"""Functions of elements that graphs of primitives are written with: oneDNN's formulas, with its roundings.

ONNX's operators of these names have formulas of their own (`activation`, `elementwise`); last places may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.kernels.common.activations import by_tables, function_of, power_of
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.postops import ELTWISE, PostOp
from simdnn.networks.kernels import Formula, Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.activation import gelu_by_tanh
from simdnn.networks.ops.registry import OWN, operator


def _bounded(x: Element, alpha: float, beta: float) -> Element:
    return (x * alpha + beta).minimum(1.0).maximum(0.0)


#: functions of one rounding or two, of x, alpha and beta
_PLAIN: Mapping[str, Callable[[Element, float, float], Element]] = {
    "linear": lambda x, alpha, beta: x.fma(alpha, beta),
    "hardsigmoid": _bounded,
    "hardswish": lambda x, alpha, beta: x * _bounded(x, alpha, beta),
}
_ON_GPUS: Mapping[str, Formula] = {"tanh": f.tanh, "gelu_tanh": gelu_by_tanh}


def formula(name: str, alpha: float, beta: float, lanes: int) -> Formula:
    """A function by oneDNN's name for registers of `lanes` lanes; 0 on GPUs, which look nothing up in registers."""
    if name in _PLAIN:
        return lambda x: _PLAIN[name](x, alpha, beta)
    op = PostOp(name, len(ELTWISE[name]), power=power_of(beta) if name == "pow" else "")
    if not lanes and by_tables(op):
        return _ON_GPUS[name]
    found, numbers = function_of(op, lanes), (alpha, beta)[: op.numbers]
    return lambda x: found(x, *(x.same(number) for number in numbers))


@operator("Eltwise", domain=OWN)
def eltwise(k: Kernels, node: Node, x: Array) -> Array:
    name = node.text("function")
    lanes = 0 if k.target.gpu else k.words.lanes
    return k.map(formula(name, node.number("alpha"), node.number("beta"), lanes), x, name=name)


@operator("Accumulate", domain=OWN)
def accumulate(k: Kernels, node: Node, x: Array, held: Array) -> Array:
    """x + scale * held, rounded once."""
    scale = node.number("scale")
    return k.map(lambda a, b: b.fma(scale, a), x, held, name="sum")
