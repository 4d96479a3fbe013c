"""Attention nodes of onnxruntime's tools over queries, keys and values that other nodes make (docs/ContribOperators.md
there): MultiHeadAttention, GroupQueryAttention, and the rotations of RotaryEmbedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.heads import (
    AttentionForm,
    attended,
    grouped,
    in_tiles,
    joined,
    of_one_query,
    over_groups,
    scale_of,
    split,
)
from simdnn.networks.ops.in_f32 import HALVES, in_f32, rounded
from simdnn.networks.ops.registry import MICROSOFT, need, operator
from simdnn.networks.ops.shape import view
from simdnn.networks.ops.transformer import outside, refuse_flags
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32


def wanted(node: Node, i: int) -> bool:
    """Whether somebody reads an output."""
    return len(node.outputs) > i and bool(node.outputs[i])


def with_past(k: Kernels, past: Array | None, new: Array) -> Array:
    """Places of earlier steps (images, heads, places, size) ahead of new ones."""
    if past is None:
        return new
    if k.values:
        return k.moved(np.concatenate([past, new], 2))
    return k.moved(shadow((*new.shape[:2], past.shape[2] + new.shape[2], new.shape[3]), F32))


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    k: Kernels,
    node: Node,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    mask: Array | None = None,
    added: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *more: Array | None,
) -> Any:
    """Queries (images, steps, hidden) and keys and values of that form, or (images, heads, places, size)."""
    if key is None or value is None or query.ndim != 3 or key.ndim == 5 or any(a is not None for a in more):
        raise Unimplemented("queries, keys and values in one tensor, and shared buffers; three tensors work")
    heads, batch, steps = node.integer("num_heads"), query.shape[0], query.shape[1]
    hidden = query.shape[2]
    need(heads > 0 and hidden % heads == 0, f"{heads} heads of {hidden}")
    _check_form(key, value, past_value, hidden // heads)
    if bias is not None:
        ends = [hidden, 2 * hidden]
        parts = np.split(bias, ends) if key.ndim == 3 else [bias[:hidden], None, None]
        query, key, value = (
            a if b is None else k.map(lambda v, w: v + w, a, b, name="add")
            for a, b in zip((query, key, value), parts, strict=True)
        )
    of_steps = key.ndim == 3
    query, key, value = (split(k, a, heads) if a.ndim == 3 else a for a in (query, key, value))
    key, value = with_past(k, past_key, key), with_past(k, past_value, value)
    unseen = outside(node, mask, batch, steps, key.shape[2], 0 if past_key is None else past_key.shape[2])
    onto = tuple(over_groups(a, batch, heads, heads) for a in (added, unseen) if a is not None)
    form = AttentionForm(scale_of(node, query.shape[3]), onto)
    plain = of_steps and not onto and past_key is None and not node.integer("unidirectional", 0)
    given = (grouped(k, query, heads), grouped(k, key, heads), grouped(k, value, heads))
    if k.runs_models and plain and not any(wanted(node, i) for i in (1, 2, 3)):
        return joined(k, in_tiles(k, *given, form), batch)
    found, scores = attended(k, *given, form)
    scores = view(k, scores, (batch, heads, steps, key.shape[2]))
    return _outputs(node, joined(k, found, batch), key, value, scores)


def _check_form(key: Array, value: Array, past_value: Array | None, size: int) -> None:
    """`InvalidArgument` for sizes that onnxruntime refuses (multihead_attention_helper.h there)."""
    need(key.ndim == value.ndim, f"keys of {key.ndim} dimensions and values of {value.ndim}")
    need(key.ndim < 4 or key.shape == value.shape, f"keys {key.shape}, values {value.shape}; by heads they are alike")
    need(past_value is None or past_value.shape[-1] == size, f"earlier values of other sizes than {size}")


def _outputs(node: Node, *made: Array) -> tuple[Array | None, ...]:
    return tuple(a if i == 0 or wanted(node, i) else None for i, a in enumerate(made[: len(node.outputs)]))


@operator("GroupQueryAttention", domain=MICROSOFT)
@in_f32
def group_query_attention(
    k: Kernels,
    node: Node,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    lengths: Array,
    longest: Array,
    cosines: Array | None = None,
    sines: Array | None = None,
    places: Array | None = None,
    added: Array | None = None,
    sink: Array | None = None,
    *more: Array | None,
) -> Any:
    """Heads that share keys and values by groups, each step seeing itself and earlier ones, and what was kept of those.

    `lengths`: an image's places less one; `longest`: places in all, as many as steps in a first call.
    """
    refuse_flags(node, ("sliding_window_cache", "kv_cache_bit_width"))
    need(not any(a is not None for a in more), "scales of keys and values, or weights of their norms; none work")
    if wanted(node, 3):
        raise Unimplemented("scores as an output of GroupQueryAttention; outputs of values work")
    batch, steps, _ = query.shape
    query, key, value = _group_heads(k, node, query, key, value)
    groups = key.shape[1]
    if k.runs_models:
        _check_grouped(query, longest if k.values else None, cosines)
    here = ImagePlaces.of(k, lengths, longest, 0 if past_key is None else past_key.shape[2], batch, steps)
    if node.integer("do_rotary", 0):
        assert cosines is not None and sines is not None
        at = places if places is not None else here.before[:, None] + np.arange(steps)
        interleaved = bool(node.integer("rotary_interleaved", 0))
        query, key = (rotated(k, a, at, cosines, sines, interleaved) for a in (query, key))
        if node.get(HALVES):
            query, key = rounded(k, query), rounded(k, key)
    kept = tuple(_with_new(k, past, new, here) for past, new in ((past_key, key), (past_value, value)))
    form = _group_form(node, query, groups, added, sink)
    given = (grouped(k, query, groups), *(view(k, a, (batch * groups, 1, *a.shape[2:])) for a in kept))
    return _outputs(node, joined(k, _by_lengths(k, node, form, given, here, steps), batch), *kept)


def _check_grouped(query: Array, longest: Array | None, cosines: Array | None) -> None:
    """`Unimplemented` for forms that onnxruntime refuses (group_query_attention_helper.h there)."""
    batch, _, steps, size = query.shape
    whole = 8 if cosines is None else 16
    if size % whole:
        raise Unimplemented(f"heads of {size}, which onnxruntime has not here; multiples of {whole} work")
    if batch > 1 and steps > 1 and longest is not None and int(longest.reshape(-1)[0]) != steps:
        raise Unimplemented(f"{steps} steps of {batch} images behind earlier ones; one step, or one image, works")


@dataclass(frozen=True)
class ImagePlaces:
    """The places of each image: `ends` with the new steps, `before` without them; `most` that arrays of keys hold."""

    ends: Array
    before: Array
    most: int
    total: int  # places of the longest image

    @staticmethod
    def of(k: Kernels, lengths: Array, longest: Array, ahead: int, batch: int, steps: int) -> ImagePlaces:
        """The places of `batch` images by a node's inputs, `ahead` in the past arrays; without values all are alike."""
        total = int(longest.reshape(-1)[0]) if k.values else ahead + steps
        ends = lengths.reshape(-1).astype(int) + 1 if k.values else np.full(batch, total)
        first_call = total == steps
        return ImagePlaces(ends, np.zeros(batch, int) if first_call else ends - steps, max(ahead, total), total)

    def alike(self) -> list[tuple[int, int]]:
        """Runs of images that are worked out together: all where they are equally long, else one after the other."""
        if len(set(self.ends.tolist())) == 1:
            return [(0, len(self.ends))]
        return [(i, i + 1) for i in range(len(self.ends))]


def _group_heads(k: Kernels, node: Node, query: Array, key: Array | None, value: Array | None) -> Iterable[Array]:
    """Queries, keys and values (images, heads or groups, steps, size), from three tensors or from one that has all."""
    heads, groups = node.integer("num_heads"), node.integer("kv_num_heads")
    need(heads > 0 and groups > 0 and heads % groups == 0, f"{heads} heads by {groups} of keys")
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * groups)
        query, key, value = _parted(k, query, [n * size for n in (heads, groups, groups)])
    return split(k, query, heads), split(k, key, groups), split(k, value, groups)


def _group_form(node: Node, query: Array, groups: int, added: Array | None, sink: Array | None) -> AttentionForm:
    """The form of attention over queries by heads: the scale and cap of scores, addends, a sink of the softmax."""
    batch, heads, _, size = query.shape
    onto = () if added is None else (over_groups(added, batch, heads, groups),)
    own = None if sink is None else np.tile(sink.reshape(groups, -1), (batch, 1))[..., None, None]
    if sink is None and node.integer("smooth_softmax", 0):
        own = np.zeros((1, 1, 1, 1), F32)
    return AttentionForm(scale_of(node, size), onto, cap=node.number("softcap", 0.0), sink=own, inverse=True)


def _by_lengths(
    k: Kernels, node: Node, form: AttentionForm, given: tuple[Array, ...], here: ImagePlaces, steps: int
) -> Array:
    """The outputs of all images: of queries, keys and values by groups, those of equal length together."""
    groups = len(given[0]) // len(here.ends)
    window = node.integer("local_window_size", -1)
    plain = not form.cap and form.sink is None and not node.get(HALVES)
    tiled = k.runs_models and here.total > 1 and plain

    def of_images(first: int, last: int) -> Array:
        part, reach, past = slice(first * groups, last * groups), int(here.ends[first]), int(here.before[first])
        one = _part(form, part, reach, _seen(steps, reach, past, window))
        mine = (given[0][part], given[1][part, :, :reach], given[2][part, :, :reach])
        if not tiled:
            return attended(k, *mine, one)[0]
        return of_one_query(k, *mine, one) if steps == 1 else in_tiles(k, *mine, one, past)

    outputs = [of_images(first, last) for first, last in here.alike()]
    return outputs[0] if len(outputs) == 1 else _stacked(k, outputs)


def _parted(k: Kernels, packed: Array, widths: list[int]) -> Iterable[Array]:
    """Arrays that lie beside each other in the last dimension, by their widths."""
    if k.values:
        return np.split(packed, np.cumsum(widths[:-1]), 2)
    return [shadow((*packed.shape[:2], width), F32) for width in widths]


def _stacked(k: Kernels, parts: list[Array]) -> Array:
    """Images behind each other."""
    if k.values:
        return np.concatenate(parts)
    return shadow((sum(len(part) for part in parts), *parts[0].shape[1:]), F32)


def _part(form: AttentionForm, part: slice, reach: int, seen: Array) -> AttentionForm:
    """The form of some images, of the places that they have."""
    added = tuple((a if len(a) == 1 else a[part])[..., :reach] for a in form.added)
    sink = form.sink if form.sink is None or len(form.sink) == 1 else form.sink[part]
    return replace(form, added=added, seen=seen, sink=sink)


def _seen(steps: int, reach: int, past: int, window: int) -> Array:
    """Truth values (steps, reach): places up to each step's own, and of those the last `window`, if that is not -1."""
    own = past + np.arange(steps)[:, None]
    places = np.arange(reach)
    return (places <= own) & ((places > np.minimum(own, reach - 1) - window) if window >= 0 else True)


def _with_new(k: Kernels, past: Array | None, new: Array, here: ImagePlaces) -> Array:
    """Keys or values for later steps, (images, groups, places, size): of each image earlier places, then new ones."""
    batch, groups, steps, size = new.shape
    if not k.values:
        return k.moved(shadow((batch, groups, here.most, size), F32))
    found = np.zeros((batch, groups, here.most, size), F32)
    for image, start in enumerate(here.before):
        if past is not None:
            found[image, :, :start] = past[image, :, :start]
        found[image, :, start : start + steps] = new[image]
    return k.moved(found)


#: pairs of neighbours that onnxruntime turns together; of those that are left the first is fused, too, the others are
#: not (rotary_embedding_kernel_avx2.cpp, as its compiler made it)
_TURNED = 8


# -- rotations --------------------------------------------------------------------------------------------------------
@operator("RotaryEmbedding", domain=MICROSOFT)
@in_f32
def rotary_embedding(k: Kernels, node: Node, x: Array, places: Array, cosines: Array, sines: Array) -> Array:
    """Pairs of elements of each head turned by the angle of their place: x (images, steps, hidden), or by heads
    (images, heads, steps, size). One place is that of the first step.
    """
    refuse_flags(node, ("is_packed_batching",))
    flat, heads = x.ndim == 3, node.integer("num_heads", 0)
    rows = x
    if flat:
        size = x.shape[2] // heads if heads else 2 * cosines.shape[1]
        need(size > 0 and x.shape[2] % size == 0, f"{x.shape[2]} elements of heads of {size}")
        rows = split(k, x, x.shape[2] // size)
    batch, _, steps, _ = rows.shape
    at = places.reshape(-1)[0] + np.arange(steps)[None] if places.size == 1 else places.reshape(-1, steps)
    found = rotated(k, rows, np.broadcast_to(at, (batch, steps)), cosines, sines, bool(node.integer("interleaved", 0)))
    return joined(k, found, batch) if flat else found


def rotated(k: Kernels, x: Array, at: Array, cosines: Array, sines: Array, interleaved: bool) -> Array:
    """x (images, heads, steps, size) whose first elements, twice as many as the tables have columns, are turned by
    pairs: neighbours, or those half of them apart.
    """
    half = cosines.shape[1]
    need(2 * half <= x.shape[3], f"tables of {half} columns for heads of {x.shape[3]}")
    need(not k.values or bool(((at >= 0) & (at < len(cosines))).all()), f"places beyond {len(cosines)}")
    shape = (len(at), 1, x.shape[2], half)
    tables = [k.moved(t[at][:, None] if k.values else shadow(shape, F32)) for t in (cosines, sines)]
    turning = x[..., : 2 * half]
    pair = (turning[..., ::2], turning[..., 1::2]) if interleaved else (turning[..., :half], turning[..., half:])
    fused = half if not (interleaved and k.runs_models) else half // _TURNED * _TURNED + 1
    parts = [_turned(k, pair, tables, slice(start, stop), i == 0) for i, (start, stop) in enumerate(_cuts(half, fused))]
    if not k.values:
        return k.moved(shadow(x.shape, F32))
    first, second = (np.concatenate(both, -1) for both in zip(*parts, strict=True))
    found = x.copy()
    if interleaved:
        found[..., : 2 * half : 2], found[..., 1 : 2 * half : 2] = first, second
    else:
        found[..., :half], found[..., half : 2 * half] = first, second
    return k.moved(found)


def _cuts(half: int, fused: int) -> list[tuple[int, int]]:
    """Pairs whose multiply-adds are fused, and those where each step is rounded."""
    return [(0, min(half, fused)), *([(fused, half)] if fused < half else [])]


def _turned(
    k: Kernels, pair: Sequence[Array], tables: Sequence[Array], part: slice, fused: bool
) -> tuple[Array, Array]:
    """Pairs turned: real * cosine - imaginary * sine, and real * sine + imaginary * cosine."""
    given = [
        np.ascontiguousarray(a[..., part]) if k.values else shadow(a[..., part].shape, F32) for a in (*pair, *tables)
    ]
    if fused:
        return (
            k.map(lambda r, i, c, s: r.fma(c, -(i * s)), *given, name="rotate"),
            k.map(lambda r, i, c, s: r.fma(s, i * c), *given, name="rotate"),
        )
    return (
        k.map(lambda r, i, c, s: r * c - i * s, *given, name="rotate"),
        k.map(lambda r, i, c, s: r * s + i * c, *given, name="rotate"),
    )
