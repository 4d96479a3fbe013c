"""Nodes behind products of floats that may change their sums: arithmetic that onnxruntime takes into a product, and
channels in blocks, which decide where it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.qdq import DOMAIN, constants_of

ADDING = ("Add", "Sum")
#: operators of floats that certainly leave channels in no blocks, and some that leave them there
UNBLOCKED = (
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "MatMul", "Gemm", "FusedMatMul"),
    *("InstanceNormalization", "LayerNormalization", "GroupNormalization", "Softmax", "ConvTranspose"),
)
POOLING = ("MaxPool", "AveragePool")  # where those are full
KEEPING = ("Relu", "Sigmoid", *POOLING, *ADDING)


def in_blocks(name: str, makers: Mapping[str, Node], constants: Mapping[str, Array]) -> str:
    """Whether a value lies in blocks of channels, "any" number or "whole" blocks alone; "" where that is not known.

    It does if a convolution with constant weights makes it, and behind what keeps the layout.
    """
    node = makers.get(name)
    if node is None or node.domain not in ("", DOMAIN):
        return ""
    if node.op in ("Conv", "ConvOnto"):
        return "any" if node.inputs[1] in constants else ""
    found = [in_blocks(each, makers, constants) for each in node.inputs] if node.op in KEEPING else [""]
    return "" if "" in found else "whole" if "whole" in found or node.op in POOLING else "any"


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
            if name in makers and (makers[name].get("apart") or _adds_apart(node, name, makers, constants)):
                continue
            if name in makers and (what := _takes_in(makers[name].op, node, name, constants)):
                if uses[name] == 1:  # what two nodes read is added, or multiplied, by itself
                    found[name] = what if found.get(name, what) == what else "other"
            if node.op == "MatMul" and name in makers and makers[name].op in ("Mul", "Div"):
                if any(is_one(constants.get(other)) for other in makers[name].inputs):
                    found[node.outputs[0]] = "other"  # a factor of an operand
    return found


def _adds_apart(node: Node, name: str, makers: Mapping[str, Node], constants: Mapping[str, Array]) -> bool:
    """Whether a sum stays behind a convolution in blocks of channels, since no other summand lies in any."""
    conv, others = makers[name], [each for each in node.inputs if each != name]
    if node.op not in ADDING or conv.op != "Conv" or conv.domain or any(each in constants for each in others):
        return False
    weights, bias = constants.get(conv.inputs[1]), conv.inputs[2] if len(conv.inputs) > 2 else ""
    if weights is None or weights.ndim != 4 or bias and bias not in constants:
        return False
    groups, (filters, channels) = conv.integer("group", 1), weights.shape[:2]
    if groups == 1:
        whole = channels < 8 or channels % 4 == 0  # with AVX2 and with AVX-512
    else:
        whole = channels % 16 == filters // groups % 16 == 0 or channels == 1 and filters == groups and groups % 4 == 0
    return whole and not any(_may_lie_in_blocks(each, makers, constants) for each in others)


def _may_lie_in_blocks(name: str, makers: Mapping[str, Node], constants: Mapping[str, Array]) -> bool:
    """Whether some convolution's blocks may have been kept up to a value: onnxruntime (nchwc_transformer.cc)
    keeps them behind pools, sums, activations and the like.
    """
    seen, asked = set[str](), [name]
    while asked:
        node = makers.get(asked.pop())
        if node is None or node.name in seen or node.op in UNBLOCKED:
            continue
        seen.add(node.name)
        if node.op in ("Conv", "ConvOnto") and node.inputs[1] in constants:
            return True
        if node.op not in ("Conv", "ConvOnto"):
            asked += node.inputs
    return False


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


def is_one(value: Array | None) -> bool:
    """Whether a value is a constant of one element."""
    return value is not None and value.size == 1
