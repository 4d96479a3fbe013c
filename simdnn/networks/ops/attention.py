"""ONNX's own Attention and RotaryEmbedding (since opset 23) as onnxruntime computes them
(onnxruntime/core/providers/cpu/llm/attention.cc and rotary_embedding.cc); elsewhere their bodies run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.by_heads import rotated, wanted, with_past
from simdnn.networks.ops.elementwise import lines_of
from simdnn.networks.ops.function import by_body
from simdnn.networks.ops.heads import (
    LEAST,
    capped,
    found_by,
    grouped,
    joined,
    of_layers,
    over_groups,
    scale_of,
    scores_of,
    split,
)
from simdnn.networks.ops.in_f32 import HALVES, in_f32, rounded
from simdnn.networks.ops.reduction import softmax_kernel
from simdnn.networks.ops.registry import need, operator
from simdnn.networks.ops.shape import view
from simdnn.networks.types import F32

#: what the fourth output holds, by `qk_matmul_output_mode`
_SCALED, _CAPPED, _MASKED, _SHARES = range(4)


@operator("Attention")
@in_f32
def attention(
    k: Kernels,
    node: Node,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
) -> tuple[Any, ...]:
    """Queries, keys and values (images, heads, steps, size), or of three dimensions, whose heads attributes tell."""
    given = [query, key, value, mask, past_key, past_value, lengths][: len(node.inputs)]
    if lines_of(k, query) is None:
        return by_body(k, node, given)
    flat, batch = query.ndim == 3, len(query)
    if flat:
        heads = [node.integer(f"{name}_num_heads") for name in ("q", "kv", "kv")]
        query, key, value = (split(k, a, n) for a, n in zip((query, key, value), heads, strict=True))
    key, value = with_past(k, past_key, key), with_past(k, past_value, value)
    groups, (_, count, steps, size), places = key.shape[1], query.shape, key.shape[2]
    need(groups > 0 and count % groups == 0, f"{count} heads by {groups} of keys")
    parts = [grouped(k, a, groups) for a in (query, key, value)]
    ahead = 0 if past_key is None else past_key.shape[2]
    before = np.full(1, ahead) if lengths is None else lengths.reshape(-1) - steps
    causal = bool(node.integer("is_causal", 0)) and not (steps == 1 and ahead)
    unseen = _unseen(mask, before if causal else None, steps, places)
    onto = None if unseen is None else over_groups(unseen, batch, count, groups)
    mode = node.integer("qk_matmul_output_mode", 0) if wanted(node, 3) else None
    k = of_layers(k)
    shown: dict[int, Array] = {}
    ended = (lambda a: rounded(k, a)) if node.get(HALVES) else (lambda a: a)  # each step's values are of f16, too
    cap, scale = node.number("softcap", 0.0), scale_of(node, size)
    if cap or mode in (_SCALED, _CAPPED):
        scores = shown[_SCALED] = ended(scores_of(k, parts[0], parts[1], scale))
        if cap:
            scores = ended(capped(k, scores, cap))
        shown[_CAPPED] = scores
        scores = scores if onto is None else ended(k.map(lambda v, a: v + a, scores, onto, name="add"))
    else:
        scores = ended(scores_of(k, parts[0], parts[1], scale, onto))
    if lengths is not None and k.values:
        outside = np.arange(places) >= lengths.reshape(-1, 1, 1, 1)
        scores = k.plain(np.where(np.repeat(outside, groups, 0), LEAST, scores), scores)
    shown[_MASKED], shares = scores, ended(softmax_kernel(k, scores, 3))
    if k.values and not (any_seen := scores.max(3, keepdims=True) > LEAST).all():  # a step that sees nothing finds 0
        shares = k.plain(np.where(any_seen, shares, np.float32(0)), shares)
    shown[_SHARES] = shares
    found = found_by(k, shares, parts[2])
    whole_found = joined(k, found, batch) if flat else view(k, found, (batch, count, steps, value.shape[3]))
    last = None if mode is None else view(k, shown[mode], (batch, count, steps, places))
    return whole_found, key, value, last


def _unseen(mask: Array | None, before: Array | None, steps: int, places: int) -> Array | None:
    """The summand of the scores, (images or 1, heads or 1, steps, places): a mask's floats, or the least number
    where nothing is to be seen; with places `before` the first step, of all images or of each, later ones are not.
    """
    if mask is not None:
        mask = np.where(mask, np.float32(0), LEAST) if mask.dtype == bool else mask
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    if before is None:
        return mask
    last = before.reshape(-1, 1, 1, 1) + np.arange(steps)[:, None]
    return np.where(np.arange(places) > last, LEAST, np.zeros((1, 1, steps, places), F32) if mask is None else mask)


@operator("RotaryEmbedding")
@in_f32
def rotary_embedding(
    k: Kernels, node: Node, x: Array, cosines: Array, sines: Array, places: Array | None = None
) -> tuple[Any, ...]:
    """Heads turned by the angles of their places; without places tables are of each image (images, steps, half)."""
    if lines_of(k, x) is None:
        return by_body(k, node, [x, cosines, sines, places][: len(node.inputs)])
    flat, heads = x.ndim == 3, node.integer("num_heads", 0)
    need(not flat or heads > 0 and x.shape[2] % heads == 0, f"{heads} heads of {x.shape}")
    rows = split(k, x, heads) if flat else x
    batch, _, steps, _ = rows.shape
    if places is None:
        places = np.arange(batch * steps).reshape(batch, steps)
    cosines, sines = (t.reshape(-1, t.shape[-1]) for t in (cosines, sines))
    found = rotated(k, rows, places, cosines, sines, bool(node.integer("interleaved", 0)))
    return (joined(k, found, batch) if flat else found,)
