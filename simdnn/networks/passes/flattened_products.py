"""Quantizers that products have for themselves where onnxruntime flattens their source.

A MatMul of three dimensions and more, to which a line is added, becomes a Gemm between two Reshapes
(`MatMulAddFusion`), and each of these gets a QuantizeLinear and a DequantizeLinear on its other side, too
(`QDQPropagation`). So nobody else reads the integers around the Gemm, and s8 among them becomes u8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simdnn.networks.model import Graph, Node
from simdnn.networks.passes.dequantized_products import DequantizedProducts
from simdnn.networks.passes.graph_rewriting import Shapes, first_of
from simdnn.networks.passes.moved_quantizers import check_told_type
from simdnn.networks.passes.qdq import DOMAIN


def with_own_quantizers(graph: Graph, kept: Sequence[str], shapes: Shapes) -> Graph:
    """The graph with copies of s8 integers for each such product, and of its own before others read them."""
    return _Flattened(graph, kept, shapes).run()


class _Flattened(DequantizedProducts):
    def run(self) -> Graph:
        for node in list(self.nodes.values()):
            if node.domain == DOMAIN and node.op == "QMatMul" and self.flattens(node):
                check_told_type(node)
                self.quantized_before(node)
                self.quantized_behind(node)
        return self.rewritten()

    def flattens(self, node: Node) -> bool:
        """Whether a Gemm between two Reshapes comes of a product of s8 and the line behind it."""
        last, line = self.followed_by(node, "Add")
        source, zero = self.shape_of(node.inputs[0]), self.constants.get(node.inputs[2])
        weights = self.shape_of(node.inputs[3])
        whole = source is not None and len(source) > 2 and bool(self.fixed(node.inputs[0]))
        matrix = weights is not None and len(weights) == 2 and node.inputs[3] in self.constants
        signed = zero is not None and zero.dtype == np.int8
        return last is not None and line is not None and line.ndim == 1 and whole and matrix and signed

    def quantized_before(self, node: Node) -> None:
        """The product on a copy of its source, where others read that."""
        name = node.inputs[0]
        if self.uses(name) > 1:
            inputs = (self.again(name, node.inputs[1:3], first_of(node)), *node.inputs[1:])
            self.put(replace(node, inputs=inputs))

    def quantized_behind(self, node: Node) -> None:
        """A QuantizeLinear of the product, whose integers more than one value, or none of the graph, is made of, behind
        one of its own.
        """
        total = self.readers(node.outputs[0])[0].outputs[0]
        last = self.only_reader(total)
        if last is None or last.op != "QuantizeLinear" or len(last.inputs) < 3 or not self.common(*last.inputs[1:3]):
            return
        zero, name = self.constants[last.inputs[2]], last.outputs[0]
        if zero.dtype != np.int8:
            return
        own, back = f"{name}, its product's", f"{name}, back"
        self.put_ahead(name, replace(last, outputs=(own,)))
        plain = Node("", "DequantizeLinear", "", last.version, (own, *last.inputs[1:3]), (back,), {})
        self.put_ahead(name, plain)
        self.put(replace(last, inputs=(back, *last.inputs[1:])))

    def again(self, name: str, numbers: tuple[str, ...], ahead: str) -> str:
        """Integers dequantized and quantized again, ahead of a node."""
        floats, copy = f"{name}, of {ahead}", f"{name}, for {ahead}"
        self.put_ahead(ahead, Node("", "DequantizeLinear", "", 13, (name, *numbers), (floats,), {}))
        self.put_ahead(ahead, Node("", "QuantizeLinear", "", 13, (floats, *numbers), (copy,), {}))
        return copy
