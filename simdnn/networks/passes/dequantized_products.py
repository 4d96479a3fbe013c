"""Products of dequantized operands as onnxruntime leaves them: on integers with or without a bias, or of floats.

Such a product is one node (`simdnn.networks.passes.qdq`). onnxruntime first makes a Gemm of a MatMul and what is added
to it, then looks for quantizers around products. So it depends on what follows a product whether its sums are integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Node
from simdnn.networks.passes.convolution_constants import Convolutions
from simdnn.networks.passes.graph_rewriting import first_of
from simdnn.networks.passes.qdq import BYTES, DOMAIN
from simdnn.networks.types import is_least


class DequantizedProducts(Convolutions):
    """Products with what stands behind them, floats and dequantized ones."""

    def fixed(self, name: str) -> int:
        """Whether the model fixes all sizes of a value: its own, or all sizes of the model's inputs."""
        ports = [port for port in self.graph.inputs if port.name not in self.graph.constants]
        known = self.shapes.get(name, ("",))
        inputs = [size for port in ports for size in port.dims or ["?"]]
        return int(any(all(isinstance(size, int) for size in sizes) for sizes in (inputs, known)))

    def with_bias(self, node: Node) -> Node | None:
        """A product to which a constant of a number a column is added, as one that begins with a bias."""
        last, value = self.followed_by(node, "Add")
        if last is None or value is None or value.ndim != 1 or not _multiplies(node):
            return None
        weights = node.inputs[3 if node.domain else 1]
        shape = self.shape_of(weights) if node.domain or weights in self.constants else None
        if shape is None or len(shape) != 2 or len(value) != shape[1] or value.dtype != np.float32:
            return None
        bias = next(name for name in last.inputs if name in self.constants)
        fixed = {"fixed": self.fixed(node.inputs[0])}
        del self.nodes[first_of(node)]
        if node.domain:  # of dequantized operands, in floats from now on
            inputs = (*node.inputs[:6], bias, *node.inputs[7:])
            found = {**node.attributes, "of": "Gemm", "added": 1, "apart": 1, **fixed}
            made = replace(node, inputs=inputs, outputs=last.outputs, attributes=found)
            return self.requantized(made, value) or self.with_quantizers(made)
        return Node(node.name, "MatMulBias", DOMAIN, node.version, (*node.inputs, bias), last.outputs, fixed)

    def requantized(self, node: Node, bias: Array) -> Node | None:
        """A product of dequantized operands with a bias, to integers where one QuantizeLinear alone reads it, that of a
        matrix through a Relu that it makes needless, too: its bias, floats in the model, is integers then.
        """
        last, cut = self.only_reader(node.outputs[0]), False
        if last is not None and last.op == "Relu" and (reader := self.only_reader(last.outputs[0])) is not None:
            zero = self.zero_of(reader)
            cut = zero is not None and zero.dtype in BYTES and is_least(zero)
            last = reader if cut else last
        if last is None or last.op != "QuantizeLinear" or len(last.inputs) < 3 or not self.common(*last.inputs[1:3]):
            return None
        source, weights, zero = (self.constants.get(node.inputs[at]) for at in (1, 4, 2))
        if source is None or source.size != 1 or weights is None or zero is None:
            return None
        if self.constants[last.inputs[2]].dtype != zero.dtype:
            return None
        for name in {node.outputs[0], last.inputs[0]}:
            del self.nodes[name]
        scale = np.float32(source.reshape(())) * weights.reshape(-1).astype(np.float32)  # one, or one a column
        integers = self.hold(f"{node.outputs[0]}_bias", np.rint(bias / scale).astype(np.int32))
        inputs = (*node.inputs[:7], *last.inputs[1:3], integers)
        return replace(node, inputs=inputs, outputs=last.outputs, attributes={**node.attributes, "flat": int(cut)})

    def crowded(self, name: str) -> bool:
        """Whether a QuantizeLinear reads a value and others do, too: patterns with quantizers take no such product."""
        return self.uses(name) > 1 and any(node.op == "QuantizeLinear" for node in self.readers(name))

    def with_quantizers(self, node: Node) -> Node:
        """A product of dequantized operands that a QuantizeLinear reads: one on integers where that is alone, which an
        equal one hid until both were one, and gives the source's type of 8 bits; else one of floats. Of 16 bits
        MatMulNBits takes what is quantized to the same type alone. A Relu between that this makes needless is none.
        """
        if node.get("requantize"):
            return node
        name, relu = node.outputs[0], node.get("relu")
        readers = self.readers(name)
        if len(readers) == 1 and readers[0].op == "Relu" and self.only_reader(name):
            behind = self.only_reader(readers[0].outputs[0])
            readers, relu = ([] if behind is None else [behind]), 1
        last = next((reader for reader in readers if reader.op == "QuantizeLinear"), None)
        if last is None or relu and self.only_reader(last.inputs[0]) is None:
            return node
        source = self.constants[node.inputs[2]].dtype if node.inputs[2] else np.dtype(np.uint8)
        zeros = [self.zero_of(each) for each in readers]
        least = zeros[0] is not None and is_least(zeros[0])
        alike = last.inputs[0] not in self.kept and all(zero is not None and zero.dtype == source for zero in zeros)
        alike = alike and all(reader.op == "QuantizeLinear" for reader in readers)
        if relu and not least and source in BYTES or alike and source not in BYTES and (least or not relu):
            return node
        more: dict[str, int | str] = {"floats": 1}
        if alike and source in BYTES and len(readers) == 1 and self.common(*last.inputs[1:3]):
            if last.inputs[0] != name:  # behind a Relu of its own
                return node
            node = replace(node, inputs=(*node.inputs[:7], *last.inputs[1:3], *node.inputs[9:]), outputs=last.outputs)
            more = {"requantize": 1, "quantizes": name}
            del self.nodes[name]
        return self.put(replace(node, attributes={**node.attributes, **more}))

    def selected(self, node: Node) -> Node:
        """A product of dequantized operands that no QuantizeLinear reads, as onnxruntime's patterns leave it: on
        integers, so that what follows is by itself, or one of floats. Of floats are those whose types it does not take,
        whose sum with something becomes a Gemm first (`MatMulAddFusion`), and those that a Relu or Clip alone reads
        which one node alone reads (`GetQDQSelection` looks for a QuantizeLinear behind it).
        """
        name = node.outputs[0]
        ends = node.op != "QMatMul" or node.get("requantize") or node.get("floats")
        if ends or any(reader.op == "QuantizeLinear" for reader in self.readers(name)):
            return node
        cut = self.goes_on(name) if node.get("relu") else self.cut_behind(name)
        source, weights = (self.type_of(node.inputs[at], node.inputs[at + 2]) for at in (0, 3))
        gemm = node.get("of") == "Gemm"
        integers = weights in BYTES and (source == np.uint8 or gemm and source == weights)
        summed = self.added_to(node, "Sum") if gemm and not node.inputs[6] else None
        if cut or not integers or summed:
            return self.of_floats(node)
        if gemm:
            return self.put(replace(node, attributes={**node.attributes, "apart": 1}))
        added = self.added_to(node)
        if added is None:
            last = self.only_reader(name)
            beside = (*node.inputs[0:4:3], *last.inputs) if last is not None and last.op == "Add" else ()
            known = None not in map(self.shape_of, beside)
            return self.put(replace(node, attributes={**node.attributes, "apart": 1})) if known else node
        value = self.constants.get(added)
        return node if value is not None and value.ndim == 1 else self.of_floats(node)

    def type_of(self, integers: str, zero: str) -> np.dtype[Any]:
        """The type of quantized values: that of their zero point, else of their constant; u8 where neither says it."""
        known = self.constants.get(zero or integers)
        return np.dtype(np.uint8) if known is None else known.dtype

    def cut_behind(self, name: str) -> bool:
        """Whether a Relu or Clip alone reads a value, and one node alone what that gives."""
        last = self.only_reader(name)
        return last is not None and last.op in ("Relu", "Clip") and self.goes_on(last.outputs[0])

    def goes_on(self, name: str) -> bool:
        """Whether one node alone reads a value; a copy that is an output of the model is none."""
        last = self.only_reader(name)
        return last is not None and (last.op != "Identity" or last.outputs[0] not in self.kept)

    def of_floats(self, node: Node) -> Node:
        """A product of dequantized operands as the model has it: DequantizeLinear, MatMul or Gemm, and Relu."""
        name, version = node.outputs[0], node.version
        product = self.new_name(f"{name}_product") if node.get("relu") else name
        operands = []
        for at in (0, 3):
            stored = node.text("stored") if at and node.get("turned") else node.inputs[at]
            floats = self.new_name(f"{product}_{at}")
            rank = 1 if node.get("turned") else len(self.shape_of(stored) or ())
            axis = {"axis": rank - 1} if self.constants[node.inputs[at + 1]].size > 1 else {}
            given = (stored, *filter(None, node.inputs[at + 1 : at + 3]))
            made = Node(floats, "DequantizeLinear", "", version, given, (floats,), axis)
            operands.append(first_of(self.put_ahead(name, made)))
        inputs = (*operands, *filter(None, node.inputs[6:7]))
        found = {"transB": 1} if node.get("turned") else {}
        multiplied = Node(node.name, node.text("of"), "", version, inputs, (product,), found)
        self.reading |= {floats: [product] for floats in operands}
        if product == name:
            return self.put(multiplied)
        self.reading[product] = [name]
        self.ahead[name].append(product)
        self.put(Node(f"{node.name}_relu", "Relu", "", version, (product,), (name,), {}))
        return self.put(multiplied)

    def added_to(self, node: Node, op: str = "Add") -> str | None:
        """The name of a summand behind a product by a matrix that may be the bias of a Gemm: a line, or beside a source
        of two dimensions one that broadcasts to the product; None where sizes are not known or others.
        """
        last = self.only_reader(node.outputs[0])
        if last is None or last.op != op or last.domain or len(last.inputs) != 2:
            return None
        other = next((name for name in last.inputs if name != node.outputs[0]), None)
        if other is None:  # it is added to itself
            return None
        operands = node.inputs[0:4:3] if node.domain else node.inputs
        a, b, c = (self.shape_of(name) for name in (*operands, other))
        if a is None or b is None or c is None or len(b) != 2:
            return None
        flat = len(a) == 2
        if len(c) == 1:
            return other if c == b[1:] and (flat or all(isinstance(size, int) for size in a)) else None
        fits = flat and len(c) == 2 and (c == (1, b[1]) or c[0] == a[0] and c[1] in (1, b[1]))
        return other if fits else None

    def with_sum(self, node: Node) -> Node | None:
        """A product of f32 by a matrix, and what is added to it and may be its bias."""
        other = self.added_to(node) if node.op == "MatMul" and not node.domain else None
        if other is None:
            return None
        last = self.readers(node.outputs[0])[0]
        del self.nodes[first_of(node)]
        inputs, line = (*node.inputs, other), len(self.shape_of(other) or ()) == 1
        if line:
            return Node(node.name, "MatMulBias", DOMAIN, node.version, inputs, last.outputs, {"fixed": 1})
        return Node(node.name, "Gemm", "", node.version, inputs, last.outputs, {})

    def beside_sum(self, node: Node) -> Node | None:
        """A product of f32 that something is added to which cannot be its bias: it is added by itself."""
        last = self.only_reader(node.outputs[0]) if node.op == "MatMul" and not node.domain else None
        if last is None or last.op != "Add" or last.domain or None in map(self.shape_of, (*node.inputs, *last.inputs)):
            return None
        return replace(node, attributes={**node.attributes, "apart": 1})

    def with_gemm_sum(self, node: Node) -> Node | None:
        """A Gemm without a bias, and the Sum of two that alone reads it, as one with a bias (`GemmSumFusion`)."""
        alone = node.op == "Gemm" and not node.domain and not any(node.inputs[2:])
        other = self.added_to(node, "Sum") if alone else None
        if other is None:
            return None
        del self.nodes[first_of(node)]
        made = replace(node, inputs=(*node.inputs[:2], other), outputs=self.readers(node.outputs[0])[0].outputs)
        return self.put(made)


def _multiplies(node: Node) -> bool:
    """Whether a node is a product without a bias, whose sums are floats."""
    if node.domain == DOMAIN:
        return node.op == "QMatMul" and node.get("of") == "MatMul" and not node.inputs[6] and not node.get("requantize")
    return node.op == "MatMul" and not node.domain
