"""Products of quantize-dequantize graphs (`networks.passes.qdq`): integers, and what they stand for, in one node."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.networks.calls import Call
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.linear import convolve, products, with_attr
from simdnn.networks.ops.nbits import CODES, INTEGERS, as_library, of_columns
from simdnn.networks.ops.quantized import (
    BYTES,
    dequantize_linear,
    integer_convolution,
    integer_product,
    quantize_linear,
    requantize_sums,
    signed,
)
from simdnn.networks.ops.registry import need, operator
from simdnn.networks.ops.shape import transposed
from simdnn.networks.types import F32, label, limits

Stored = tuple[Array, Array, Array | None]  # integers, their scale, their zero point


@dataclass(frozen=True)
class Pattern:
    """A product between dequantized operands, with what follows it in the graph.

    `integers`: the bias as s32, where the graph has it so. `scale` and `zero`: those of results, which are floats
    without a scale.
    """

    source: Stored
    weights: Stored
    bias: Array | None
    integers: Array | None
    scale: Array | None
    zero: Array | None
    relu: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of quantized results."""
        return np.dtype(np.uint8) if self.zero is None else self.zero.dtype

    @property
    def begins_at(self) -> int:
        """The zero point of results."""
        return 0 if self.zero is None else int(self.zero.item())


@operator("QConv", "QMatMul", domain="simdnn")
def fused_product(
    k: Kernels,
    node: Node,
    x: Array,
    x_scale: Array,
    x_zero: Array | None,
    w: Array,
    w_scale: Array,
    w_zero: Array | None,
    bias: Array | None = None,
    y_scale: Array | None = None,
    y_zero: Array | None = None,
    bias_integers: Array | None = None,
) -> Array:
    """One kernel with scales, zero points and Relu after its sums; in f32, with a `RuntimeWarning` that says why, where
    no int8 kernel takes the problem. A library that runs models does it by its own operators.
    """
    if node.integer("transB", 0):
        w = transposed(k, w, (1, 0))
    if node.op == "QMatMul" and x.ndim == 1:  # a row; the product has no dimension for it
        one = fused_product(k, node, x[None], x_scale, x_zero, w, w_scale, w_zero, bias, y_scale, y_zero, bias_integers)
        return np.asarray(one[0])
    relu = bool(node.integer("relu", 0))
    pattern = Pattern((x, x_scale, x_zero), (w, w_scale, w_zero), bias, bias_integers, y_scale, y_zero, relu)
    if k.runs_models:
        return _by_operators(k, node, pattern)
    if x.ndim == 5 and label(x.dtype) in BYTES:
        return _of_volume(k, node, pattern)
    try:
        return _by_one_kernel(k, node, pattern)
    except (Unimplemented, InvalidArgument) as error:
        reason = str(error) or f"{label(x.dtype)} operands"
        warnings.warn(f"node {node.name!r} ({node.op[1:]}) is computed in f32: {reason}", RuntimeWarning, 2)
        return _fused_in_f32(k, node, pattern)


def _by_one_kernel(k: Kernels, node: Node, p: Pattern) -> Array:
    """The whole pattern in a kernel of integers; `Unimplemented` or `InvalidArgument` where none takes it."""
    (x, x_scale, x_zero), (w, w_scale, w_zero) = p.source, p.weights
    need(label(x.dtype) in BYTES, "")
    weights, point = signed(w, w_zero)
    zeros = {"src": x_zero, "wei": point, "dst": p.zero}
    scales = {"src": x_scale.reshape(1), "wei": w_scale.reshape(-1)}
    scales |= {} if p.scale is None else {"dst": p.scale.reshape(1)}
    attr = with_attr(
        k,
        scales={name: values.astype(F32) for name, values in scales.items()},
        zero_points={n: np.unique(v.astype(np.int32)) for n, v in zeros.items() if v is not None and v.any()},
        post_ops=["relu"] if p.relu else [],
    )
    before, dst = len(k.calls), label(F32 if p.scale is None else p.dtype)
    if node.op == "QConv":
        result = convolve(k, node, x, weights, p.bias, attr=attr, dst=dst)
    else:
        result = k.matmul(x, weights, p.bias, attr=attr, dst=dst)
    if p.scale is not None and p.begins_at == limits(p.dtype)[0]:
        k.calls[before:] = map(_cutting, k.calls[before:])
    return result


def _of_volume(k: Kernels, node: Node, p: Pattern) -> Array:
    """A convolution over three dimensions: integer sums of several kernels, then what one kernel has behind its own."""
    (x, x_scale, x_zero), (w, w_scale, w_zero) = p.source, p.weights
    total = integer_convolution(k, node, x, w, x_zero, w_zero)
    factor = (x_scale.astype(F32).reshape(()) * w_scale.astype(F32)).reshape(1, -1, 1, 1, 1)
    added = [] if p.bias is None else [p.bias.reshape(1, -1, 1, 1, 1)]

    def formula(v: Element, s: Element, *more: Element) -> Element:
        scaled = v.to_float() * s + more[0] if more else v.to_float() * s
        return scaled.maximum(0.0) if p.relu else scaled

    result = k.map(formula, total, factor, *added, dst=F32, name="dequantize")
    return _behind(k, node, result, replace(p, relu=False))


def _cutting(call: Call) -> Call:
    """A product whose integers begin at 0: what is below is cut, as by the Relu that tools take out of such a model."""
    return call if call.departed is None else replace(call, departed=replace(call.departed, above=True))


def _by_operators(k: Kernels, node: Node, p: Pattern) -> Array:
    """The pattern as onnxruntime runs it: QLinearConv, QLinearMatMul or QGemm, with an s32 bias, where a QuantizeLinear
    to the source's type follows and no Relu that cuts; MatMulIntegerToFloat or QGemm where none does; else in f32.
    Of sources of s8 it takes Gemm's alone, with s8 weights (`passes.qdq_as_onnxruntime` makes u8 of most).
    """
    (x, x_scale, x_zero), (w, w_scale, w_zero) = p.source, p.weights
    bias, integers = p.bias, p.integers
    if p.relu and p.scale is None and node.op == "QMatMul":  # of the floats that it gives
        return _behind(k, node, _by_operators(k, node, replace(p, relu=False)), p)
    cuts = p.relu and (p.scale is None or p.begins_at != limits(p.dtype)[0])
    cuts = cuts or bool(node.integer("flat", 0)) and x.ndim != 2
    floating = bias is not None and integers is None
    left = p.scale is None and (node.op == "QConv" or floating or bool(k.followed))
    other = label(x.dtype) not in BYTES or label(w.dtype) not in BYTES
    signed_source = label(x.dtype) == "s8" and (node.text("of") != "Gemm" or label(w.dtype) != "s8")
    blocked = label(x.dtype) not in BYTES and label(w.dtype) in CODES and w.ndim == 2 and node.op == "QMatMul"
    blocked = blocked and (p.scale is None or p.dtype == x.dtype)
    if blocked and not any(node.integer(name, 0) for name in ("shared", "turned", "floats")):
        rows = dequantize_linear(k, node, *p.source)
        result = as_library(k, rows.reshape(-1, w.shape[0]), of_columns(w, w_scale, w_zero), bias, INTEGERS)
        return _behind(k, node, result.reshape(*rows.shape[:-1], w.shape[1]), p)
    if p.scale is None and k.followed:  # floats or integers, by the shape of what is added
        k = replace(k, followed="other")
    if bias is not None and not node.integer("fixed", 1) and x.ndim != 2:  # which is added by itself
        alone = replace(p, bias=None, integers=None, scale=None, zero=None, relu=False)
        result = _by_operators(replace(k, followed=""), node, alone)
        return _behind(k, node, k.map(lambda v, b: v + b, result, bias, name="add"), p)
    left = left or bool(node.integer("floats", 0))
    if cuts or left or other or signed_source or p.scale is not None and p.dtype != x.dtype:
        return _fused_in_f32(k, node, p)
    convolves = node.op == "QConv"
    total = (
        integer_convolution(k, node, x, w, x_zero, w_zero) if convolves else integer_product(k, x, w, x_zero, w_zero)
    )
    channel = [1, -1] + [1] * (total.ndim - 2) if convolves else [-1]
    factor = (x_scale.astype(F32).reshape(()) * w_scale.astype(F32)).reshape(channel)
    if bias is not None:
        added = np.rint(bias.reshape(channel) / factor) if integers is None else integers.reshape(channel)
        total = k.plain((total.astype(np.int64) + added.astype(np.int64)).astype(np.int32), total, added)
    if p.scale is None:
        return k.map(lambda v, s: v.to_float() * s, total, factor, dst=F32, name="dequantize")
    zero = np.zeros((), p.dtype) if p.zero is None else p.zero
    return requantize_sums(k, total, factor / p.scale.astype(F32).reshape(()), zero)


@operator("StoredConv", domain="simdnn")
def stored_convolution(
    k: Kernels, node: Node, x: Array, floats: Array, bias: Array | None, integers: Array, scale: Array
) -> Array:
    """A convolution of floats with weights stored as integers: read as such where integers may be computed in
    floats and a kernel takes them; else what they stand for, made ahead of time.
    """
    attr = replace(k.attr, scales={"wei": scale.reshape(-1).astype(F32)})
    if k.attr.apply_to_int and label(x.dtype) == "f32":
        with contextlib.suppress(Unimplemented):
            return convolve(k, node, x, integers, bias, attr=attr)
    return convolve(k, node, x, floats, bias)


def _fused_in_f32(k: Kernels, node: Node, p: Pattern) -> Array:
    """The pattern as it is written."""
    by_channel = Node("", "", "", 13, (), (), {"axis": 0 if node.op == "QConv" else p.weights[0].ndim - 1})
    x, w = dequantize_linear(k, node, *p.source), dequantize_linear(k, by_channel, *p.weights)
    if k.runs_models:  # which dequantizes weights as it runs, as they lie, and so packs none ahead
        k = replace(k, constant_weights=False, transposed=("wei",) if node.integer("turned", 0) else ())
    result = convolve(k, node, x, w, p.bias) if node.op == "QConv" else products(k, x, w, p.bias)
    return _behind(k, node, result, p)


def _behind(k: Kernels, node: Node, x: Array, p: Pattern) -> Array:
    """Floats as the pattern ends: cut at 0 where it has a Relu, quantized where it has a scale for that."""
    x = k.map(lambda v: v.maximum(0.0), x, name="relu") if p.relu else x
    return x if p.scale is None else quantize_linear(k, node, x, p.scale, p.zero)
