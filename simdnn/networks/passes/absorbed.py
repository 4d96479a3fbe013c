"""Nodes behind products of floats that may change their sums: arithmetic that onnxruntime takes into a product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.passes.nchwc import ADDING
from simdnn.networks.passes.qdq import constants_of


def joined(graph: Graph) -> dict[str, str]:
    """Outputs of products of floats with the arithmetic behind them that onnxruntime may take into the product: "sum"
    where it is an addition alone, which changes nothing but where K is cut, "other" for the rest.
    """
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    constants = constants_of(graph)
    uses = Counter(name for node in graph.nodes for name in node.inputs)
    uses.update(port.name for port in graph.outputs)
    fixed = _fixed(graph, constants)
    found: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.inputs:
            maker = makers.get(name)
            if maker is None or maker.get("apart") or _is_by_itself(makers, maker, fixed):
                continue
            if what := _takes_in(maker.op, node, name, constants, fixed):
                if uses[name] == 1:  # what two nodes read is added, or multiplied, by itself
                    found[name] = what if found.get(name, what) == what else "other"
            if node.op == "MatMul" and maker.op in ("Mul", "Div"):
                if any(is_one(constants.get(other)) for other in maker.inputs):
                    found[node.outputs[0]] = "other"  # a factor of an operand
    return found


def _fixed(graph: Graph, constants: Mapping[str, Array]) -> set[str]:
    """Constants, and what hangs on them alone."""
    fixed = {"", *constants}
    for node in graph.nodes:
        if fixed.issuperset(node.reads):
            fixed.update(node.outputs)
    return fixed


def _takes_in(product: str, node: Node, name: str, constants: Mapping[str, Array], fixed: set[str]) -> str:
    """How onnxruntime may take a node that reads a product's output into that product; "" where it does not."""
    beside = [constants.get(other) for other in node.inputs if other != name]
    one = any(map(is_one, beside))
    if node.op == "BatchNormalization":
        return "other" if name == node.inputs[0] and fixed.issuperset(node.inputs[1:]) else ""
    if product in ("Conv", "StoredConv"):
        scales = node.op == "Mul" and any(value is not None for value in beside)
        return "other" if node.op in ADDING or scales else ""
    if product not in ("MatMul", "QMatMul"):
        return ""
    if node.op in ("Mul", "Div"):
        return "other" if one else ""
    return "sum" if node.op == "Sum" or node.op == "Add" and not one else ""


def _is_by_itself(makers: Mapping[str, Node], node: Node, fixed: set[str]) -> bool:
    """Whether a convolution's weights or bias vary, or are dequantized as a model runs: nothing to put others into."""
    if node.op not in ("Conv", "StoredConv") or len(node.inputs) < 2:
        return False
    weights = makers.get(node.inputs[1])
    dequantized = node.op == "Conv" and weights is not None and weights.op == "DequantizeLinear"
    return dequantized or not fixed.issuperset(node.inputs[1:3])


def is_one(value: Array | None) -> bool:
    """Whether a value is a constant of one element."""
    return value is not None and value.size == 1
