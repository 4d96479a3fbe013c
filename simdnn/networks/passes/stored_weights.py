"""Weights and biases of floats that onnxruntime quantizes as it loads a quantize-dequantize model.

So it does with Conv, ConvTranspose and Gemm between DequantizeLinear and QuantizeLinear (a Relu or Clip before that
may be): weights become s8 with one scale and one zero point, a bias s32 by the scale of the sums, one or one a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.passes.qdq import constants_of, fused
from simdnn.networks.types import F32

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
_BETWEEN = ("Relu", "Clip")


def with_stored_weights(graph: Graph, kept: Sequence[str]) -> Graph:
    """The graph with such weights stored as integers, and products that have both operands so as one node; values
    named in `kept` stay as the model has them.
    """
    found = _Storing(graph, kept)
    nodes = [part for node in graph.nodes for part in found.stored(found.with_rounded_bias(node))]
    if not found.added:
        return graph
    return fused(replace(graph, nodes=tuple(nodes), constants={**graph.constants, **found.added}))


class _Storing:
    def __init__(self, graph: Graph, kept: Sequence[str]) -> None:
        self.makers = {name: node for node in graph.nodes for name in node.outputs if name}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.constants = constants_of(graph)
        self.kept = {port.name for port in graph.outputs} | set(kept)
        self.added: dict[str, Array] = {}

    def stored(self, node: Node) -> list[Node]:
        """The node, behind nodes that dequantize its weights and its bias."""
        if node.op not in _PRODUCTS or node.domain or len(node.inputs) < 2:
            return [node]
        source, weights = (self.scale_of(name) for name in node.inputs[:2])
        floats, bias = (self.floats(name) for name in (*node.inputs[1:3], "")[:2])
        has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
        if source is None or source.size != 1 or not self.is_quantized(node.outputs[0]):
            return [node]
        if has_bias and (bias is None or bias.ndim != 1) or floats is None and not self.fits(node, weights):
            return [node]
        inputs, before = list(node.inputs), []
        if floats is not None:
            codes, weights, zero = _in_s8(floats)
            before.append(self.dequantizing(node, "weights", codes, weights, zero))
            inputs[1] = before[-1].outputs[0]
        if has_bias and bias is not None and weights is not None:
            scale = _scale_of_sums(source, weights)
            before.append(self.dequantizing(node, "bias", np.rint(bias / scale).astype(np.int32), scale))
            inputs[2] = before[-1].outputs[0]
        return [*before, replace(node, inputs=tuple(inputs))] if before else [node]

    def with_rounded_bias(self, node: Node) -> Node:
        """A Conv or Gemm of dequantized operands that is one node already, its bias as such integers."""
        ours = node.op == "QConv" or node.op == "QMatMul" and node.get("of") == "Gemm"
        bias = self.constants.get(node.inputs[6]) if ours and not node.inputs[9] else None
        if bias is None or not (node.get("requantize") or self.is_quantized(node.outputs[0])):
            return node
        scale = _scale_of_sums(*(self.constants[node.inputs[at]] for at in (1, 4)))
        integers = np.rint(bias / scale).astype(np.int32)
        floats, stored = (f"{node.outputs[0]}_bias{end}" for end in ("_floats", ""))
        self.added |= {floats: integers.astype(F32) * scale, stored: integers}
        return replace(node, inputs=(*node.inputs[:6], floats, *node.inputs[7:9], stored))

    def fits(self, node: Node, weights: Array | None) -> bool:
        """Whether scales of dequantized weights are one, or one for each number of a bias."""
        maker = self.makers.get(node.inputs[1])
        if weights is None or weights.size == 1 or maker is None or maker.get("block_size"):
            return weights is not None and weights.size == 1
        bias = self.floats(node.inputs[2]) if len(node.inputs) > 2 else None
        rank = 2 if node.op == "Gemm" else max(1, getattr(self.constants.get(maker.inputs[0]), "ndim", 1))
        columns = 0 if node.op == "Conv" or node.get("transB") else 1
        return bias is not None and weights.shape == bias.shape and maker.integer("axis", 1) % rank == columns

    def scale_of(self, name: str) -> Array | None:
        """The constant scale that a value is dequantized by."""
        maker = self.makers.get(name)
        return self.constants.get(maker.inputs[1]) if maker is not None and maker.op == "DequantizeLinear" else None

    def floats(self, name: str) -> Array | None:
        values = self.constants.get(name)
        return values if values is not None and values.dtype == F32 else None

    def is_quantized(self, name: str) -> bool:
        """Whether a QuantizeLinear alone reads a value, or what a Relu or Clip that alone reads it makes."""
        readers = self.readers.get(name, [])
        if len(readers) != 1 or name in self.kept:
            return False
        last = readers[0]
        return last.op == "QuantizeLinear" or last.op in _BETWEEN and self.is_quantized(last.outputs[0])

    def dequantizing(self, node: Node, what: str, *values: Array) -> Node:
        """A node that dequantizes constants: integers, their scale and zero point."""
        names = []
        for part, value in zip(("", "_scale", "_zero"), values, strict=False):
            names.append(f"{node.outputs[0]}_{what}{part}")
            self.added[names[-1]] = np.asarray(value)
        made = f"{node.outputs[0]}_{what}_floats"
        return Node(f"{node.name}_{what}", "DequantizeLinear", "", node.version, tuple(names), (made,), {"axis": 0})


def _scale_of_sums(source: Array, weights: Array) -> Array:
    """The scale of a product's sums: one, or one a column, as the weights have them."""
    scale = source.astype(F32).reshape(()) * weights.astype(F32)
    return np.asarray(scale.reshape(()) if scale.size == 1 else scale.reshape(-1))


def _in_s8(values: Array) -> tuple[Array, Array, Array]:
    """Numbers over their own range, 0 included: codes, scale, zero point."""
    low, high = np.float32(min(values.min(), 0)), np.float32(max(values.max(), 0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = np.rint(np.clip(np.float32(-128) - low / scale, -128, 127))
    codes = np.clip(np.rint(values / scale) + zero, -128, 127)
    return codes.astype(np.int8), np.asarray(scale), np.asarray(zero, np.int8)
