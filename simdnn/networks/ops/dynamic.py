"""onnxruntime's operators that quantize their source as they run: products of floats on integer kernels.

A source becomes u8 over the range that it has, 0 included (`quantized.dynamic_quantize_linear`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.quantized import dynamic_quantize_linear, integer_product
from simdnn.networks.ops.recurrent import LSTM, Layer, long_short
from simdnn.networks.ops.registry import MICROSOFT, need, operator
from simdnn.networks.types import F32


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    k: Kernels,
    node: Node,
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero: Array | None = None,
    b_zero: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Sums times the product of both scales, and then the bias."""
    total = integer_product(k, a, b, a_zero, b_zero)
    factor = a_scale.astype(F32).reshape(()) * b_scale.astype(F32)
    factor = factor.reshape((1,) * max(0, total.ndim - factor.ndim) + factor.shape)

    def formula(v: Element, s: Element, *added: Element) -> Element:
        scaled = v.to_float() * s
        return scaled + added[0] if added else scaled

    return k.map(formula, total, factor, *([] if bias is None else [bias]), dst=F32, name="dequantize")


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    k: Kernels, node: Node, a: Array, b: Array, b_scale: Array, b_zero: Array | None = None, bias: Array | None = None
) -> Array:
    source, scale, zero = dynamic_quantize_linear(k, node, a)
    return matmul_integer_to_float(k, node, source, b, scale, b_scale, zero, b_zero, bias)


class _DynamicLayer(Layer):
    """A recurrent layer with weights (directions, inputs, gates) of integers, each direction or gate with a scale."""

    def quantized(self, node: Node, w: tuple[Array, Array, Array], r: tuple[Array, Array, Array]) -> None:
        """Takes the node and the weights of inputs and state, with their scales and zero points."""
        self.node, self.of = node, (w, r)

    def met(self, t: int, states: list[Array]) -> list[Array]:
        """Rows that have ended are quantized with the others: where all steps are an output, as the zeros there."""
        if not self.node.outputs[0]:
            return states
        return [np.where((t > self.lengths)[:, None], 0, state) for state in states]

    def times(self, x: Array, which: int, d: int, rows: slice, first: Array | None = None) -> Array:
        weights, scale, zero = (values[d] for values in self.of[which])
        scale, zero = (values[rows] if values.ndim else values for values in (scale, zero))
        columns = np.ascontiguousarray(weights[:, rows])
        return dynamic_quantize_matmul(self.k, self.node, x, columns, scale, zero, first)

    def of_inputs(self, x: Array, d: int) -> Array:
        return self.times(x, 0, d, slice(None))

    def of_state(self, state: Array, d: int, rows: slice, first: Array | None = None) -> Array:
        return self.times(state, 1, d, rows, first)


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    k: Kernels,
    node: Node,
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None,
    lengths: Array | None,
    start: Array | None,
    cell: Array | None,
    peepholes: Array | None,
    w_scale: Array,
    w_zero: Array,
    r_scale: Array,
    r_zero: Array,
) -> Any:
    """An LSTM whose products quantize the inputs of all steps that the longest row has, and then the state of each
    step, of all rows together.

    So does onnxruntime on one thread; on several each quantizes its rows.
    """
    need(w.ndim == 3 and r.ndim == 3, f"weights {w.shape} and {r.shape}; (directions, inputs, gates) are needed")
    for zero in (w_zero, r_zero):  # by gate onnxruntime takes one of u8 and none of s8
        one = zero.ndim < 2 or zero.size and (zero == (0 if zero.dtype == np.int8 else zero.flat[0])).all()
        need(bool(one), "zero points by gate that differ, or of s8 other than 0")
    turned = (w.transpose(0, 2, 1), r.transpose(0, 2, 1))
    layer = _DynamicLayer(k, node, 4, LSTM, x, *turned, bias, lengths, [start, cell])
    layer.quantized(node, (w, w_scale, w_zero), (r, r_scale, r_zero))
    return long_short(layer, k, node, peepholes)
