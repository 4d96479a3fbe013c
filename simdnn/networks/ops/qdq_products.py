"""Products of quantize-dequantize graphs (`networks.passes.qdq`): integers, and what they stand for, in one node."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import replace

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
from simdnn.networks.types import F32, label, limits

Stored = tuple[Array, Array, Array | None]  # integers, their scale, their zero point
Target = tuple[Array | None, Array | None]  # the scale and zero point that the pattern ends with; no scale: in floats


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
    if node.op == "QMatMul" and x.ndim == 1:  # a row; the product has no dimension for it
        one = fused_product(k, node, x[None], x_scale, x_zero, w, w_scale, w_zero, bias, y_scale, y_zero, bias_integers)
        return np.asarray(one[0])
    relu = bool(node.integer("relu", 0))
    if k.runs_models:
        given = (x, x_scale, x_zero), (w, w_scale, w_zero), bias, bias_integers, (y_scale, y_zero)
        return _by_operators(k, node, *given, relu)
    dtype = (np.dtype(np.uint8) if y_zero is None else y_zero.dtype) if y_scale is not None else F32
    if x.ndim == 5 and label(x.dtype) in BYTES:
        return _of_volume(k, node, (x, x_scale, x_zero), (w, w_scale, w_zero), bias, (y_scale, y_zero), relu)
    try:
        need(label(x.dtype) in BYTES, "")
        weights, point = signed(w, w_zero)
        zero = {"src": x_zero, "wei": point, "dst": y_zero}
        scales = {"src": x_scale.reshape(1), "wei": w_scale.reshape(-1)}
        attr = with_attr(
            k,
            scales={
                n: v.astype(F32)
                for n, v in (scales | ({"dst": y_scale.reshape(1)} if y_scale is not None else {})).items()
            },
            zero_points={n: np.unique(v.astype(np.int32)) for n, v in zero.items() if v is not None and v.any()},
            post_ops=["relu"] if relu else [],
        )
        before = len(k.calls)
        if node.op == "QConv":
            found = convolve(k, node, x, weights, bias, attr=attr, dst=label(dtype))
        else:
            found = k.matmul(x, weights, bias, attr=attr, dst=label(dtype))
        if y_scale is not None and int(0 if y_zero is None else y_zero.item()) == limits(dtype)[0]:
            k.calls[before:] = map(_cutting, k.calls[before:])
        return found
    except (Unimplemented, InvalidArgument) as error:
        reason = str(error) or f"{label(x.dtype)} operands"
        warnings.warn(f"node {node.name!r} ({node.op[1:]}) is computed in f32: {reason}", RuntimeWarning, 2)
        return _fused_in_f32(k, node, (x, x_scale, x_zero), (w, w_scale, w_zero), bias, (y_scale, y_zero), relu)


def _of_volume(
    k: Kernels,
    node: Node,
    source: Stored,
    weights: Stored,
    bias: Array | None,
    target: Target,
    relu: bool,
) -> Array:
    """A convolution over three dimensions: integer sums of several kernels, then what one kernel has behind its own."""
    x, x_scale, x_zero = source
    w, w_scale, w_zero = weights
    total = integer_convolution(k, node, x, w, x_zero, w_zero)
    factor = (x_scale.astype(F32).reshape(()) * w_scale.astype(F32)).reshape(1, -1, 1, 1, 1)
    added = [] if bias is None else [bias.reshape(1, -1, 1, 1, 1)]

    def formula(v: Element, s: Element, *more: Element) -> Element:
        scaled = v.to_float() * s + more[0] if more else v.to_float() * s
        return scaled.maximum(0.0) if relu else scaled

    result = k.map(formula, total, factor, *added, dst=F32, name="dequantize")
    return _behind(k, node, result, target, False)


def _cutting(call: Call) -> Call:
    """A product whose integers begin at 0: what is below is cut, as by the Relu that tools take out of such a model."""
    return call if call.departed is None else replace(call, departed=replace(call.departed, above=True))


def _by_operators(
    k: Kernels,
    node: Node,
    source: Stored,
    weights: Stored,
    bias: Array | None,
    bias_integers: Array | None,
    target: Target,
    relu: bool,
) -> Array:
    """The pattern as onnxruntime runs it: QLinearConv, QLinearMatMul or QGemm, with an s32 bias, where a QuantizeLinear
    to the source's type follows and no Relu that cuts; MatMulIntegerToFloat or QGemm where none does; else in f32.
    Of sources of s8 it takes Gemm's alone, with s8 weights (`passes.qdq_as_onnxruntime` makes u8 of most).
    """
    y_scale, y_zero = target
    x, x_scale, x_zero = source
    w, w_scale, w_zero = weights
    dtype = np.dtype(np.uint8) if y_zero is None else y_zero.dtype
    cuts = relu and (y_scale is None or (0 if y_zero is None else int(y_zero.item())) != limits(dtype)[0])
    floating = bias is not None and bias_integers is None
    left = y_scale is None and (node.op == "QConv" or floating or bool(k.followed))
    other = label(x.dtype) not in BYTES or label(w.dtype) not in BYTES
    signed_source = label(x.dtype) == "s8" and (node.text("of") != "Gemm" or label(w.dtype) != "s8")
    blocked = label(x.dtype) not in BYTES and label(w.dtype) in CODES and w.ndim == 2 and not node.integer("shared", 0)
    if blocked and node.op == "QMatMul":
        rows = dequantize_linear(k, node, *source)
        result = as_library(k, rows.reshape(-1, w.shape[0]), of_columns(w, w_scale, w_zero), bias, INTEGERS)
        return _behind(k, node, result.reshape(*rows.shape[:-1], w.shape[1]), target, relu)
    if y_scale is None and k.followed:  # floats or integers, by the shape of what is added
        k = replace(k, followed="other")
    if bias is not None and not node.integer("fixed", 1) and x.ndim != 2:  # which is added by itself
        alone = replace(k, followed="")
        found = _by_operators(alone, node, source, weights, None, None, (None, None), False)
        return _behind(k, node, k.map(lambda v, b: v + b, found, bias, name="add"), target, relu)
    if cuts or left or other or signed_source or y_scale is not None and dtype != x.dtype:
        return _fused_in_f32(k, node, source, weights, bias, target, relu)
    convolves = node.op == "QConv"
    total = (
        integer_convolution(k, node, x, w, x_zero, w_zero) if convolves else integer_product(k, x, w, x_zero, w_zero)
    )
    channel = [1, -1] + [1] * (total.ndim - 2) if convolves else [-1]
    factor = (x_scale.astype(F32).reshape(()) * w_scale.astype(F32)).reshape(channel)
    if bias is not None:
        integers = np.rint(bias.reshape(channel) / factor) if bias_integers is None else bias_integers.reshape(channel)
        total = k.plain((total.astype(np.int64) + integers.astype(np.int64)).astype(np.int32), total, integers)
    if y_scale is None:
        return k.map(lambda v, s: v.to_float() * s, total, factor, dst=F32, name="dequantize")
    return requantize_sums(
        k, total, factor / y_scale.astype(F32).reshape(()), np.zeros((), dtype) if y_zero is None else y_zero
    )


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


def _fused_in_f32(
    k: Kernels,
    node: Node,
    source: Stored,
    weights: Stored,
    bias: Array | None,
    target: Target,
    relu: bool,
) -> Array:
    """The pattern as it is written."""
    by_channel = Node("", "", "", 13, (), (), {"axis": 0 if node.op == "QConv" else weights[0].ndim - 1})
    x, w = dequantize_linear(k, node, *source), dequantize_linear(k, by_channel, *weights)
    if k.runs_models:  # which dequantizes weights as it runs, as they lie, and so packs none ahead
        k = replace(k, constant_weights=False, transposed=("wei",) if node.integer("turned", 0) else ())
    result = convolve(k, node, x, w, bias) if node.op == "QConv" else products(k, x, w, bias)
    return _behind(k, node, result, target, relu)


def _behind(k: Kernels, node: Node, x: Array, target: Target, relu: bool) -> Array:
    """Floats as the pattern ends: cut at 0 where it has a Relu, quantized where it has a scale for that."""
    x = k.map(lambda v: v.maximum(0.0), x, name="relu") if relu else x
    return x if target[0] is None else quantize_linear(k, node, x, target[0], target[1])
