"""Attention by heads, over queries, keys and values that other nodes have made.

Queries are (images by shared heads, heads that share keys, steps, size), keys and values (images by shared heads, 1,
places, size). onnxruntime has three ways (contrib_ops/cpu/bert and core/mlas/lib/flashattn.cpp, flashattn_gqa.cpp
there): a softmax of all scores; in tiles of keys, whose sums and results are scaled again as a greater score comes; and
of one query by dot products of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.libraries import LineSums
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import formula_of, lines_of, powers_of
from simdnn.networks.ops.linear import in_parts, products
from simdnn.networks.ops.reduction import softmax_kernel
from simdnn.networks.ops.shape import transposed, view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32

LEAST = np.finfo(np.float32).min


@dataclass(frozen=True)
class AttentionForm:
    """The parameters of a node beside its queries, keys and values."""

    scale: float
    added: tuple[
        Array, ...
    ] = ()  # to the scores, one after the other, (images by shared heads or 1, heads or 1, steps, places)
    seen: Array | None = None  # truth values (steps, places); None: all
    cap: float = 0.0  # scores are cap * tanh(scores / cap)
    sink: Array | None = None  # scores that take their share and find nothing, as `added` with one step and place
    inverse: bool = False  # whether a library multiplies by 1 / sum behind tiles


def attended(k: Kernels, query: Array, key: Array, value: Array, form: AttentionForm) -> tuple[Array, Array]:
    """Values that queries find, (images by shared heads, heads, steps, size), and the scores ahead of their softmax."""
    k = of_layers(k)
    scores = scores_of(k, query, key, form.scale)
    if form.cap:
        scores = capped(k, scores, form.cap)
    scores = _raised(k, scores, form.added)
    return found_by(k, _shares(k, scores, form), value), scores


def capped(k: Kernels, scores: Array, cap: float) -> Array:
    """Scores as cap * tanh(scores / cap)."""
    tanh = formula_of(k, "softcap", f.tanh)
    return k.map(lambda v: tanh(v / cap) * cap, scores, name="tanh")


def of_layers(k: Kernels) -> Kernels:
    """Kernels of products whose second operand is no constant."""
    return replace(k, constant_weights=False, followed="")


def scores_of(k: Kernels, query: Array, key: Array, scale: float, first: Array | None = None) -> Array:
    """Products of queries and keys, scaled; a library that runs models adds them to what is `first`."""
    if k.runs_models:
        turned = np.swapaxes(_of_each_head(k, key, query), -1, -2)
        return in_parts(replace(k, transposed=("wei",)), query, turned, scale, first)
    turned = np.swapaxes(key, -1, -2)
    return k.map(lambda v: v * scale, products(k, query, turned), name="mul")


def found_by(k: Kernels, shares: Array, value: Array) -> Array:
    """Sums of values by their shares."""
    return products(k, shares, _of_each_head(k, value, shares))


def _of_each_head(k: Kernels, shared: Array, rows: Array) -> Array:
    """Keys or values for each head that shares them, where rows are single steps: those are a product each in a
    library. Heads with keys and values of their own are so already.
    """
    heads = rows.shape[1]
    if not k.runs_models or rows.shape[2] > 1 or shared.shape[1] == heads:
        return shared
    return np.repeat(shared, heads, 1) if k.values else shadow((len(shared), heads, *shared.shape[2:]), F32)


def _shares(k: Kernels, scores: Array, form: AttentionForm) -> Array:
    """The softmax of scores, of those that are to be seen, a sink's among them."""
    seen, sink = form.seen, form.sink
    if seen is None and sink is None:
        return softmax_kernel(k, scores, 3)
    lines, power = lines_of(k, scores), powers_of(k)
    top = k.reduce("max", _hidden(k, scores, seen), [3])
    if sink is not None:
        top = k.map(lambda t, s: t.maximum(s), top, sink, name="max")
    powers = k.map(lambda v, t: power(v - t), scores, top, name="exp")
    if seen is not None and k.values:
        powers = np.where(seen, powers, np.float32(0))
    values = None if lines is None else partial(lines.sum_of_powers, _from_first(powers, seen), k.target.caps)
    total = k.reduce("sum", powers, [3], values=values)
    if sink is not None:
        apart = k.map(lambda t, s: s - t, top, sink, name="sub")
        own = None if lines is None else partial(lines.exponential, apart)
        total = k.map(lambda v, s: v + s, total, k.map(f.exp, apart, name="exp", values=own), name="add")
    if lines is None:
        return k.map(lambda v, t: v / t, powers, total, name="div")
    return k.map(lambda v, t: v * t, powers, k.map(lambda t: 1.0 / t, total, name="div"), name="mul")


def _from_first(powers: Array, seen: Array | None) -> Array:
    """Lines that begin with the first place that is seen, as libraries add them up; what lies ahead goes to the end."""
    if seen is None or bool(seen[:, 0].all()):
        return powers
    at = (np.arange(seen.shape[1]) + seen.argmax(1)[:, None]) % seen.shape[1]
    return np.take_along_axis(powers, at[None, None], 3)


def _raised(k: Kernels, scores: Array, added: Sequence[Array]) -> Array:
    for summand in added:
        scores = k.map(lambda v, a: v + a, scores, summand, name="add")
    return scores


def _hidden(k: Kernels, scores: Array, seen: Array | None) -> Array:
    """Scores with the least number where nothing is to be seen."""
    if seen is None or bool(seen.all()):
        return scores
    return k.plain(np.where(seen, scores, LEAST) if k.values else scores, scores)


# -- in tiles ---------------------------------------------------------------------------------------------------------
def block_of_keys(k: Kernels, sizes: int) -> int:
    """Keys of a tile: a quarter of the second cache holds them and their values, of `sizes` elements together."""
    level = next((level for level in k.target.machine.caches if level.name == "L2"), None)
    return max(1, (level.size_bytes if level else 1 << 18) // (16 * sizes))


def in_tiles(k: Kernels, query: Array, key: Array, value: Array, form: AttentionForm, past: int | None = None) -> Array:
    """Values that queries find, tile by tile; with `past` places ahead of the first query, what is later than the last
    query of a tile is left out.
    """
    k, lines, sizes = of_layers(k), lines_of(k, query), key.shape[3] + value.shape[3]
    assert lines is not None
    columns, steps = block_of_keys(k, sizes), query.shape[2]
    rows = min(columns, sizes, steps)
    found = []
    for start in range(0, steps, rows):
        stop = min(start + rows, steps)
        reach = key.shape[2] if past is None else min(key.shape[2], past + stop)
        cuts = [(first, min(first + columns, key.shape[2])) for first in range(0, reach, columns)]
        found.append(_tile(k, lines, query[:, :, start:stop], key, value, _rows(form, start, stop), cuts))
    return found[0] if len(found) == 1 else _behind(k, found)


def _rows(form: AttentionForm, start: int, stop: int) -> AttentionForm:
    added = tuple(a[..., start:stop, :] for a in form.added)
    return replace(form, added=added, seen=None if form.seen is None else form.seen[start:stop])


def _behind(k: Kernels, parts: Sequence[Array]) -> Array:
    """Steps behind each other."""
    if k.values:
        return np.concatenate(parts, 2)
    first = parts[0].shape
    return shadow((*first[:2], sum(part.shape[2] for part in parts), first[3]), F32)


def _tile(
    k: Kernels,
    lines: LineSums,
    query: Array,
    key: Array,
    value: Array,
    form: AttentionForm,
    cuts: Sequence[tuple[int, int]],
) -> Array:
    """Values that a tile's queries find among tiles of keys."""
    power = powers_of(k)
    top = np.full((*query.shape[:3], 1), LEAST) if k.values else shadow((*query.shape[:3], 1), F32)
    total: Array | None = None
    found: Array | None = None
    for start, stop in cuts:
        seen = None if form.seen is None else form.seen[:, start:stop]
        scores = scores_of(k, query, key[:, :, start:stop], form.scale)
        scores = _raised(k, scores, [a[..., start:stop] for a in form.added])
        scores = _hidden(k, scores, seen)
        greatest = k.map(lambda a, b: a.maximum(b), top, k.reduce("max", scores, [3]), name="max")
        powers = k.map(lambda v, t: power(v - t), scores, greatest, name="exp")
        if k.values and seen is not None:
            powers = np.where(seen.any(-1, keepdims=True), powers, np.float32(0))
        sums = k.reduce("sum", powers, [3], values=partial(lines.sum_of_powers, powers, k.target.caps))
        block = value[:, :, start:stop]
        if found is None or total is None:
            total, found = sums, found_by(k, powers, block)
        else:
            shrunk = k.plain(lines.exponential(top - greatest) if k.values else top, top, steps=8)
            total = k.map(lambda s, t, n: s * t + n, shrunk, total, sums, name="add")
            found = _onto(k, k.map(lambda v, s: v * s, found, shrunk, name="mul"), powers, block)
        top = greatest
    assert found is not None and total is not None
    if not form.inverse:
        return k.map(lambda v, t: v / t, found, total, name="div")
    return k.map(lambda v, t: v * t, found, k.map(lambda t: 1.0 / t, total, name="div"), name="mul")


def _onto(k: Kernels, found: Array, powers: Array, block: Array) -> Array:
    """Products added to what was found; of one row as the kernel of a vector does it, from there on."""
    if powers.shape[2] > 1 or not k.values:
        return in_parts(k, powers, block, 1.0, found)
    rows = [
        [products(k, powers[i, j], block[i, 0], found[i, j, 0])[None] for j in range(powers.shape[1])]
        for i in range(len(powers))
    ]
    return np.array(rows, F32).reshape(found.shape)


def of_one_query(k: Kernels, query: Array, key: Array, value: Array, form: AttentionForm) -> Array:
    """Values that queries of a single step find: dot products in lanes, values added up one after the other."""
    lines = lines_of(k, query)
    assert lines is not None
    costs = replace(of_layers(k), values=False)
    scores_of(costs, query, key, form.scale)
    scores = shadow((*query.shape[:3], key.shape[2]), F32)
    if k.values:
        scores = lines.dots(query, key) * np.float32(form.scale)
    scores = _raised(k, scores, form.added)
    scores = _hidden(k, scores, form.seen)
    top, power = k.reduce("max", scores, [3]), powers_of(k)
    powers = k.map(lambda v, t: power(v - t), scores, top, name="exp")
    total = k.reduce("sum", powers, [3], values=partial(lines.sum_of_powers, powers, k.target.caps))
    found = products(costs, powers, value)
    if k.values:
        found = lines.weighted(powers, value)
    return k.map(lambda v, t: v * t, found, k.map(lambda t: 1.0 / t, total, name="div"), name="mul")


# -- heads and steps --------------------------------------------------------------------------------------------------
def scale_of(node: Node, size: int) -> float:
    """The factor of a node's scores, by default 1 over the root of a head's size."""
    return node.number("scale", 0.0) or float(np.float32(1) / np.sqrt(np.float32(size)))


def split(k: Kernels, x: Array, heads: int) -> Array:
    """(images, steps, heads by size) as (images, heads, steps, size)."""
    batch, steps, width = x.shape
    x = np.ascontiguousarray(x) if k.values else x
    return transposed(k, view(k, x, (batch, steps, heads, width // heads)), (0, 2, 1, 3))


def joined(k: Kernels, x: Array, batch: int) -> Array:
    """(images by shared heads, heads, steps, size) as (images, steps, heads by size)."""
    _, _, steps, size = x.shape
    heads = x.size // (batch * steps * size)
    return view(k, transposed(k, view(k, x, (batch, heads, steps, size)), (0, 2, 1, 3)), (batch, steps, heads * size))


def grouped(k: Kernels, x: Array, groups: int) -> Array:
    """(images, heads, steps, size) by groups of heads that share keys."""
    batch, heads, steps, size = x.shape
    return view(k, x, (batch * groups, heads // groups, steps, size))


def over_groups(added: Array, batch: int, heads: int, groups: int) -> Array:
    """Summands of the scores, (images or 1, heads or 1, steps, places), as it broadcasts over groups."""
    if added.shape[:2] == (1, 1):
        return added
    whole = np.broadcast_to(added, (batch, heads, *added.shape[2:]))
    return whole.reshape(batch * groups, heads // groups, *added.shape[2:])
