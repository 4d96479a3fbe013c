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
    found: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.inputs:
            if name in makers and (makers[name].get("apart") or _has_dequantized_weights(makers, makers[name])):
                continue
            if name in makers and (what := _takes_in(makers[name].op, node, name, constants)):
                if uses[name] == 1:  # what two nodes read is added, or multiplied, by itself
                    found[name] = what if found.get(name, what) == what else "other"
            if node.op == "MatMul" and name in makers and makers[name].op in ("Mul", "Div"):
                if any(is_one(constants.get(other)) for other in makers[name].inputs):
                    found[node.outputs[0]] = "other"  # a factor of an operand
    return found


def _takes_in(product: str, node: Node, name: str, constants: Mapping[str, Array]) -> str:
    """How onnxruntime may take a node that reads a product's output into that product; "" where it does not."""
    beside = [constants.get(other) for other in node.inputs if other != name]
    one = any(map(is_one, beside))
    if node.op == "BatchNormalization":
        return "other" if name == node.inputs[0] else ""
    if product in ("Conv", "StoredConv"):
        scales = node.op == "Mul" and any(value is not None for value in beside)
        return "other" if node.op in ADDING or scales else ""
    if product not in ("MatMul", "QMatMul"):
        return ""
    if node.op in ("Mul", "Div"):
        return "other" if one else ""
    return "sum" if node.op == "Sum" or node.op == "Add" and not one else ""


def _has_dequantized_weights(makers: Mapping[str, Node], node: Node) -> bool:
    """Whether the weights of a convolution are dequantized as a model runs, and so no constants to put others into."""
    weights = makers.get(node.inputs[1]) if node.op == "Conv" and len(node.inputs) > 1 else None
    return weights is not None and weights.op == "DequantizeLinear"


def is_one(value: Array | None) -> bool:
    """Whether a value is a constant of one element."""
    return value is not None and value.size == 1
