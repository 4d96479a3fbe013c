"""Functions of elements that graphs of primitives are written with: oneDNN's formulas, with its roundings.

ONNX's operators of these names have formulas of their own (`activation`, `elementwise`); last places may differ.
"""

from __future__ import annotations

from isa_models.readings.arrays import Array
from simdnn.kernels.common.activations import function_of, power_of
from simdnn.kernels.common.pointwise import PLAIN, function_on_gpus
from simdnn.kernels.common.postops import ELTWISE, PostOp
from simdnn.networks.kernels import Formula, Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import OWN, operator


def formula(name: str, alpha: float, beta: float, lanes: int) -> Formula:
    """A function by oneDNN's name for registers of `lanes` lanes; 0 on GPUs, which look nothing up in registers."""
    op = PostOp(name, len(ELTWISE[name]), power=power_of(beta) if name == "pow" else "")
    found = PLAIN.get(name) or (function_of(op, lanes) if lanes else function_on_gpus(op))
    numbers = (alpha, beta)[: op.numbers]
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
