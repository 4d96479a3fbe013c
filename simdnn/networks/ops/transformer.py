"""Nodes that onnxruntime's optimizer of transformers writes: attention in one node, embeddings with their
normalization. Inputs are those of its operators (docs/ContribOperators.md there).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.dynamic import matmul_integer_to_float
from simdnn.networks.ops.elementwise import lines_of
from simdnn.networks.ops.heads import of_layers, scale_of, scores_of, split
from simdnn.networks.ops.linear import products
from simdnn.networks.ops.quantized import dequantize_linear
from simdnn.networks.ops.reduction import normalized, normalized_by_lines, softmax_kernel
from simdnn.networks.ops.registry import MICROSOFT, need, operator
from simdnn.networks.ops.shape import transposed, view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32

_LEAST = float(np.finfo(np.float32).min)


@operator("Attention", domain=MICROSOFT)
def attention(
    k: Kernels,
    node: Node,
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    past: Array | None = None,
    added: Array | None = None,
) -> Any:
    """x (batch, steps, hidden) by weights of queries, keys and values side by side, and what they attend to.

    `added` (batch or 1, heads or 1, steps, steps in all) goes onto the scores.
    """
    need(x.ndim == 3 and weights.ndim == 2, f"{x.shape} x {weights.shape}; (batch, steps, hidden) and a matrix work")
    refuse_flags(node, ("do_rotary", "past_present_share_buffer"))
    sizes = node.integers("qkv_hidden_sizes", [weights.shape[1] // 3] * 3)
    by_heads = k.runs_models and not k.constant_weights
    joined = _by_heads(k, node, x, weights, bias, sizes) if by_heads else products(k, x, weights, bias)
    return _attended(k, node, joined, sizes, mask, past, added)


def _by_heads(k: Kernels, node: Node, x: Array, weights: Array, bias: Array | None, sizes: list[int]) -> Array:
    """Queries, keys and values by weights that are packed as the node runs: a product a batch and a head each."""
    k, heads = replace(k, followed=""), max(1, node.integer("num_heads"))
    found, first = [], 0
    for size in (size // heads for size in sizes for _ in range(heads)):
        part = slice(first, first + size)
        own = np.ascontiguousarray(weights[:, part]) if k.values else shadow((len(weights), size), F32)
        found.append([products(k, lines, own, None if bias is None else bias[part]) for lines in x])
        first += size
    return np.concatenate([np.stack(each) for each in found], -1) if k.values else shadow((*x.shape[:2], first), F32)


@operator("QAttention", domain=MICROSOFT)
def quantized_attention(
    k: Kernels,
    node: Node,
    x: Array,
    weights: Array,
    bias: Array,
    x_scale: Array,
    w_scale: Array,
    mask: Array | None = None,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    past: Array | None = None,
) -> Any:
    """Attention whose queries, keys and values are sums of integers, scaled, with their bias in floats."""
    refuse_flags(node, ("do_rotary", "past_present_share_buffer"))
    found = matmul_integer_to_float(k, node, x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    return _attended(k, node, found, [weights.shape[1] // 3] * 3, mask, past, None)


def refuse_flags(node: Node, flags: tuple[str, ...]) -> None:
    if set_ := [flag for flag in flags if node.integer(flag, 0)]:
        raise Unimplemented(f"{node.op} with {set_[0]}={node.integer(set_[0])}; 0 works")


def _attended(
    k: Kernels,
    node: Node,
    joined: Array,
    sizes: list[int],
    mask: Array | None,
    past: Array | None,
    added: Array | None,
) -> Any:
    """The values that queries find, from queries, keys and values side by side (batch, steps, sizes)."""
    batch, steps, width = joined.shape
    heads = node.integer("num_heads")
    need(
        sum(sizes) == width and sizes[0] == sizes[1] and heads > 0 and not any(n % heads for n in sizes),
        f"{heads} heads of {sizes} out of {width}",
    )
    with_present = len(node.outputs) > 1 and bool(node.outputs[1])
    if with_present and sizes[2] != sizes[0]:
        raise Unimplemented(
            f"keys of {sizes[0]} and values of {sizes[2]} in one output, which onnxruntime writes over one another; "
            "sizes that are alike, or the first output alone, work"
        )
    if past is not None and added is not None:
        raise Unimplemented("numbers added to scores beside a past, which onnxruntime has not; one of the two works")
    ends = np.cumsum(sizes)[:-1]
    query, key, value = (
        split(k, part, heads)
        for part in (np.split(joined, ends, -1) if k.values else [shadow((batch, steps, n), F32) for n in sizes])
    )
    if past is not None:
        key, value = (k.moved(np.concatenate([old, new], 2)) for old, new in zip(past, (key, value), strict=True))
    unseen = outside(node, mask, batch, steps, key.shape[2], key.shape[2] - steps)
    scores = scores_of(of_layers(k), query, key, scale_of(node, query.shape[-1]))
    for summand in (added, unseen):
        scores = scores if summand is None else k.map(lambda v, a: v + a, scores, summand, name="add")
    shares = softmax_kernel(k, scores, 3)
    found = products(of_layers(k), shares, value)
    result = view(k, transposed(k, found, (0, 2, 1, 3)), (batch, steps, sizes[2]))
    if not with_present:
        return result
    return result, k.moved(np.stack([key, value])) if k.values else shadow((2, *key.shape), F32)


def outside(node: Node, mask: Array | None, batch: int, steps: int, reach: int, past: int) -> Array | None:
    """Numbers added to the scores (batch, 1, steps, reach) of places that are not to be seen; None where all are.

    A causal step sees `past` places, those of the steps ahead and its own; the last one sees all. A mask has ones for
    what is to be seen, (batch, reach) or (batch, steps, reach), or says where that ends in each line, and behind those
    ends where it begins.
    """
    causal = bool(node.integer("unidirectional", 0)) and steps > 1
    if mask is None and not causal:
        return None
    filled = np.float32(node.number("mask_filter_value", -10000.0))
    seen = np.ones((batch, 1, reach), bool)
    if mask is not None and mask.ndim == 1:
        need(mask.size in (batch, 2 * batch), f"a mask of {mask.size} ends for {batch} lines")
        places = np.arange(reach)
        seen = (places < mask[:batch, None])[:, None]
        if mask.size > batch:
            seen = seen & (places >= mask[batch:, None])[:, None]
    elif mask is not None:
        need(mask.ndim in (2, 3) and mask.shape[-1] == reach, f"a mask of shape {mask.shape} for {reach} places")
        seen = (mask > 0).reshape(mask.shape[0], -1, reach)
    outside = np.where(np.broadcast_to(seen, (batch, steps, reach)), np.float32(0), filled)
    if causal:
        own = np.arange(steps)[:, None]
        later = (np.arange(reach) > own + past) & (own < steps - 1)
        outside = np.where(later, np.float32(_LEAST), outside)
    return np.asarray(outside[:, None], F32)


# -- embeddings -------------------------------------------------------------------------------------------------------
@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    k: Kernels,
    node: Node,
    words: Array,
    segments: Array | None,
    of_words: Array,
    of_places: Array,
    of_segments: Array | None,
    scale: Array,
    bias: Array,
    mask: Array | None = None,
    places: Array | None = None,
) -> tuple[Any, ...]:
    """Rows of up to three tables, added up and normalized; how many words of each line count; and the sums."""
    need(words.ndim == 2, f"words of shape {words.shape}; (batch, steps) works")
    at = np.arange(words.shape[1]) if places is None else places
    rows = [k.moved(of_words[words], of_words.shape[1]), k.moved(of_places[at], of_places.shape[1])]
    if of_segments is not None and segments is not None:
        rows.append(k.moved(of_segments[segments], of_segments.shape[1]))
    total = k.map(lambda a, b, *c: a + b + c[0] if c else a + b, *rows, dst=F32, name="add")
    total = view(k, total, (*words.shape, of_words.shape[1]))
    epsilon = node.number("epsilon", 1e-12)
    if (lines := lines_of(k, total)) is not None:
        result, _, _ = normalized_by_lines(k, total, [2], epsilon, scale, bias, lines, way="passes")
    else:
        unit, _, _ = normalized(k, total, [2], epsilon)
        result = k.map(lambda u, s, b: u.fma(s, b), unit, scale, bias, name="scale")
    counts = np.zeros(len(words), np.int32) if mask is None else (mask == 1).sum(1).astype(np.int32)
    return result, counts, total


@operator("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(
    k: Kernels, node: Node, words: Array, segments: Array | None, *given: Array | None
) -> tuple[Any, ...]:
    """Embeddings and their normalization, whose tables, scale and bias are integers with a scale and a zero point."""
    mask, scales, zeros = given[5], given[6:11], given[11:16]
    need(len(given) == 16, f"{len(given) + 2} inputs; 18 are needed")
    plain = Node(node.name, "DequantizeLinear", "", 13, (), (), {})
    of_words, of_places, of_segments, scale, bias = [
        None if values is None or step is None else dequantize_linear(k, plain, values, step, zero)
        for values, step, zero in zip(given[:5], scales, zeros, strict=True)
    ]
    need(all(a is not None for a in (of_words, of_places, scale, bias)), "a table without values or a scale")
    assert of_words is not None and of_places is not None and scale is not None and bias is not None
    found = embed_layer_normalization(k, node, words, segments, of_words, of_places, of_segments, scale, bias, mask)
    return found[:2]
