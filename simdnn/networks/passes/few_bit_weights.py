"""MatMulNBits, which onnxruntime makes of floats times constant weights that are dequantized."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import MICROSOFT
from simdnn.networks.passes.dequantized_products import DequantizedProducts
from simdnn.networks.passes.graph_rewriting import first_of
from simdnn.networks.passes.qdq import BYTES
from simdnn.networks.types import bits, is_least, label, limits

_CODES = ("s8", "u8", "s4", "u4")
_BLOCK = 32  # of weights that have no blocks


class FewBits(DequantizedProducts):
    """Products of floats with weights of few bits."""

    def shared(self, name: str) -> bool:
        """Whether a number is the value of another input in the graph, too: onnxruntime makes one constant of both."""
        value = self.constants.get(name)
        if value is None or value.size != 1:
            return False
        found = (self.constants.get(each) for node in self.graph.nodes for each in node.inputs)
        numbers = (a for a in found if a is not None and a.size == 1 and a.dtype == value.dtype)
        return sum(bool(a.item() == value.item()) for a in numbers) > 1

    def of_bytes(self, name: str) -> bool:
        """Whether a value was dequantized from integers of 8 bits."""
        node = self.nodes.get(name)
        if node is None or node.op != "DequantizeLinear":
            return False
        zero = self.zero_of(node)
        return zero is None or zero.dtype in BYTES

    def of_few_bits(self, node: Node) -> Node | None:
        """MatMulNBits for floats times constant weights (K, N) that are dequantized by blocks, columns, or as one."""
        if node.op not in ("MatMul", "Gemm") or node.domain or len(node.inputs) < 2:
            return None
        weights = self.nodes.get(node.inputs[1])
        if weights is None or weights.op != "DequantizeLinear" or self.only_reader(node.inputs[1]) is None:
            return None
        if not all(name in self.constants for name in weights.inputs) or not _is_plain(node):
            return None
        codes, scale = (self.constants[name] for name in weights.inputs[:2])
        block, axis = int(weights.get("block_size", 0)), int(weights.get("axis", 1))
        blocked = block >= 16 and block & (block - 1) == 0 and axis == 0
        if codes.ndim != 2 or label(codes.dtype) not in _CODES or scale.dtype != np.float32:
            return None
        shared = self.shared(weights.inputs[1]) or self.several_read(weights.inputs[0])
        if shared or self.of_bytes(node.inputs[0]) or self.crowded(node.outputs[0]):
            return None
        added = self.added_to(node) if node.op == "MatMul" else None  # which makes a Gemm of it before
        behind = node.outputs[0] if added is None else first_of(self.readers(node.outputs[0])[0])
        behind = self.past_needless_relu(behind)
        beside = added or next(iter(node.inputs[2:3]), "")
        rows = bool(beside) and len(self.shape_of(beside) or ()) != 1
        shaped = added is not None and len(self.shape_of(node.inputs[0]) or ()) != 2  # by a Reshape behind the Gemm
        cut = self.cut_behind(behind) and not shaped
        if rows or cut or self.quantized_otherwise(behind, node.inputs[0]):
            return None
        if block and not blocked or not block and scale.size > 1 and (axis % 2 != 1 or scale.ndim != 1):
            return None
        zero = self.constants[weights.inputs[2]] if len(weights.inputs) > 2 else None
        if added is not None:
            del self.nodes[first_of(node)]
            node = replace(node, inputs=(*node.inputs, added), outputs=self.readers(node.outputs[0])[0].outputs)
        made = self.packed(node, codes, scale, zero, block or _BLOCK)
        return self.of_few_bits_with_bias(made, own=False) or made

    def past_needless_relu(self, name: str) -> str:
        """The value itself, or that of a Relu which alone reads it and is needless ahead of its one QuantizeLinear."""
        relu = self.only_reader(name)
        last = self.only_reader(relu.outputs[0]) if relu is not None and relu.op == "Relu" else None
        if relu is None or last is None or last.op != "QuantizeLinear":
            return name
        zero = self.zero_of(last) if len(last.inputs) > 2 else np.zeros((), np.uint8)
        return relu.outputs[0] if zero is not None and is_least(zero) else name

    def quantized_otherwise(self, name: str, source: str) -> bool:
        """Whether a QuantizeLinear reads a value, but one alone to the type that a product's source comes from."""
        readers, maker = self.readers(name), self.nodes.get(source)
        if all(reader.op != "QuantizeLinear" for reader in readers):
            return False
        quantizing = ("QuantizeLinear", "DequantizeLinear")
        ends = [each.inputs[2:3] for each in (maker, *readers) if each is not None and each.op in quantizing]
        zeros = [self.constants.get(end[0]) if end else None for end in ends]
        return len(zeros) != 2 or zeros[0] is None or zeros[1] is None or zeros[0].dtype != zeros[1].dtype

    def of_few_bits_with_bias(self, node: Node, own: bool = True) -> Node | None:
        """MatMulNBits to which a constant of a number a column is added, as one with a bias. The model's `own` leaves
        it to a Gelu behind it, and a normalized sum may ask back what was "taken".
        """
        if node.op != "MatMulNBits" or node.domain != MICROSOFT or len(node.inputs) > 5 and node.inputs[5]:
            return None
        last, _ = self.followed_by(node, "Add")
        bias = next((name for name in last.inputs if name != node.outputs[0]), "") if last is not None else ""
        scale = self.constants.get(node.inputs[2])
        if last is None or self.shape_of(bias) != (node.integer("N"),) or scale is None or scale.dtype != np.float32:
            return None
        reader = self.only_reader(last.outputs[0])
        if own and reader is not None and reader.op in ("Gelu", "FastGelu"):
            return None
        del self.nodes[first_of(node)]
        inputs, attributes = (*(*node.inputs, "", "", "")[:5], bias), {**node.attributes, "taken": int(own)}
        return replace(node, inputs=inputs, outputs=last.outputs, attributes=attributes)

    def packed(self, node: Node, codes: Array, scale: Array, zero: Array | None, block: int) -> Node:
        """The node, and its constants: codes of a column side by side, and scales and zero points of their blocks;
        signed codes without zero points have the operator's own.
        """
        of_middle = zero is None and limits(codes.dtype)[0] < 0
        zero = np.zeros(1, codes.dtype) if zero is None else zero
        k, n = codes.shape
        width, half, blocks = bits(codes.dtype), -limits(codes.dtype)[0], -(-k // block)
        spread = {"s": np.float32, "z": np.int16}
        columns = {"w": np.zeros((n, blocks * block), np.uint8)}
        columns["w"][:, :k] = (codes.astype(np.int16) + half).T
        for what, values in (("s", scale), ("z", zero)):
            each = np.broadcast_to(values if values.ndim == 2 else values.reshape(1, -1), (blocks, n))
            columns[what] = each.T.astype(spread[what])
        columns["z"] = (columns["z"] + half).astype(np.uint8)
        names = []
        for what, values in columns.items():
            stored = _nibbles(values) if width == 4 and what != "s" else values
            names.append(self.hold(f"{node.outputs[0]}_{what}", np.ascontiguousarray(stored)))
        attributes = {"K": k, "N": n, "bits": width, "block_size": block, "accuracy_level": 4}
        inputs = (node.inputs[0], names[0], names[1], "" if of_middle else names[2], "", *node.inputs[2:3])
        return Node(node.name, "MatMulNBits", MICROSOFT, 1, inputs, node.outputs, attributes)


def _is_plain(node: Node) -> bool:
    factors = node.get("alpha", 1.0) == node.get("beta", 1.0) == 1.0
    return factors and not node.get("transA", 0) and not node.get("transB", 0)


def _nibbles(values: Array) -> Array:
    """Two values a byte, the first one in the lower half."""
    even = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
    packed: Array = (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)
    return packed
