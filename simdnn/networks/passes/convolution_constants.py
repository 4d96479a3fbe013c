"""Constants behind convolutions of floats, which onnxruntime puts into their weights and bias as it loads a model.

Each step is rounded to the type that the model has; a normalization behind a convolution of f32 is folded by
`simdnn.networks.fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.passes.graph_rewriting import Rewriting, Shapes, first_of
from simdnn.networks.types import F16, F32


def with_constants_behind(graph: Graph, kept: Sequence[str], shapes: Shapes) -> Graph:
    """The graph with such convolutions of other weights."""
    return Convolutions(graph, kept, shapes).run()


class Convolutions(Rewriting):
    """Convolutions with the constants that follow them, each step rounded to the type that they have."""

    def run(self) -> Graph:
        for node in list(self.nodes.values()):
            made = self.of_normalized(node) or node
            made = self.of_convolution(made) or made
            if made is not node:
                self.put(made)
        return self.rewritten()

    def of_normalized(self, node: Node) -> Node | None:
        """A convolution of f16 and the BatchNormalization that alone reads it, as one of other weights."""
        last = self.only_reader(first_of(node)) if node.op == "Conv" and not node.domain else None
        if last is None or last.op != "BatchNormalization" or last.domain or any(last.outputs[1:]):
            return None
        parts = [self.constants.get(name) for name in (*node.inputs[1:], *last.inputs[1:5])]
        if any(a is None or a.dtype != F16 for a in parts) or last.get("training_mode"):
            return None
        weights, *bias, scale, shift, mean, variance = (a for a in parts if a is not None)
        factor = scale / np.sqrt((variance.astype(F32) + np.float32(last.number("epsilon", 1e-5))).astype(F16))
        name = first_of(node)
        inputs = [node.inputs[0], self.hold(f"{name}_weights", weights * factor.reshape(-1, *[1] * (weights.ndim - 1)))]
        moved = (bias[0] - mean) * factor + shift if bias else shift - mean * factor
        inputs.append(self.hold(f"{name}_bias", moved))
        del self.nodes[name]
        return replace(node, inputs=tuple(inputs), outputs=last.outputs[:1])

    def of_convolution(self, node: Node) -> Node | None:
        """A convolution of floats whose output a constant of a number a channel, the second operand, is added to or
        multiplied with, as one of other weights; beside other constants of a number it is by itself.
        """
        if node.op != "Conv" or node.domain:
            return None
        weights, bias = ((*map(self.constants.get, node.inputs[1:3]), None) + (None,))[:2]
        last, value = next(
            ((n, v) for n, v in (self.followed_by(node, op) for op in ("Add", "Mul")) if n is not None), (None, None)
        )
        if last is None or value is None or weights is None or value.dtype != weights.dtype:
            return None
        if weights.dtype not in (F16, F32):
            return None
        multiplies, channels = last.op == "Mul", len(weights)
        row = value.shape in ((channels, *(1,) * (weights.ndim - 2)), (1, channels, *(1,) * (weights.ndim - 2)))
        second = last.inputs[1] in self.constants
        if not second or not (row or multiplies and value.ndim == 0) or len(node.inputs) > 2 and bias is None:
            alone = multiplies or row or value.size == 1
            return replace(node, attributes={**node.attributes, "apart": 1}) if alone else None
        by, name = np.broadcast_to(value.reshape(-1), channels), node.outputs[0]
        inputs = [node.inputs[0], node.inputs[1]]
        if multiplies:
            inputs[1] = self.hold(f"{name}_weights", weights * by.reshape(-1, *[1] * (weights.ndim - 1)))
            inputs += [] if bias is None else [self.hold(f"{name}_bias", bias * by)]
        else:
            inputs += [self.hold(f"{name}_bias", by.copy() if bias is None else bias + by)]
        del self.nodes[first_of(node)]
        made = Node(node.name, "Conv", "", node.version, tuple(inputs), last.outputs, node.attributes)
        return self.of_convolution(made) or made

    def followed_by(self, node: Node, op: str) -> tuple[Node | None, Array | None]:
        """The one reader of a node's output, if that is an operator `op` with a constant beside, and the constant."""
        last = self.only_reader(node.outputs[0]) if node.outputs else None
        if last is None or last.op != op or last.domain or len(last.inputs) != 2:
            return None, None
        return last, next((self.constants[name] for name in last.inputs if name in self.constants), None)
