"""A plain statement of the order in which oneDNN 3.13 sums a convolution (docs/numerics.md), one product after another.

Nothing here is shared with the kernels: orders are lists of taps, arithmetic is NumPy's on whole output images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels import ConvProblem

Tap = tuple[int, int, int] | None  # kh, kw, input channel; None: a place in a pair that stays empty
Chain = list[Tap]


def chains(p: ConvProblem, implementation: str) -> list[Chain]:
    """The taps of one output in order. Each chain is summed from zero; their sums are added up in order.

    `implementation` is oneDNN's own name. Pairs (bf16, and u8 without VNNI) are neighbours in a chain.
    """
    ic, together = p.ic // p.groups, 1 if p.src == "f32" else 2
    rows, columns = range(p.kh), range(p.kw)
    order = one_channel_order(p) if ic == 1 and implementation.startswith("brg_conv_fwd:avx512") else ""
    if order == "window":
        return [filled([(i, j, 0) for j in columns for i in rows], together)]
    if order == "row":
        return [[tap for i in rows for tap in filled([(i, j, 0) for j in columns], together)]]
    most = cut_after(p, implementation)
    found: list[Chain] = []
    for channels in (range(first, min(ic, first + most)) for first in range(0, ic, most)):

        def line(i: int, part: list[int], channels: range = channels) -> Chain:
            return [tap for j in part for tap in filled([(i, j, c) for c in channels], together)]

        if not (implementation.startswith("brg_conv_fwd") and padding_is_wide(p)):
            found.append([tap for i in rows for tap in line(i, list(columns))])
            continue
        full = full_columns(p)
        for part_group in runs(column_parts(p, full), full):
            if p.kh > p.kw and part_group[0][0] not in full:
                found += [line(i, part) for i in rows for part in part_group]
            else:
                found += [[tap for i in rows for tap in line(i, part)] for part in part_group]
    return found


def cut_after(p: ConvProblem, implementation: str) -> int:
    """Channels after which an f32 sum restarts."""
    channels = p.ic // p.groups
    if p.src != "f32" or not implementation.startswith("brg"):
        return channels
    if "avx512" in implementation:
        return 1280
    return 320 if channels > 2048 else channels


def filled(taps: list[Tap], together: int) -> list[Tap]:
    return [*taps, *[None] * (-len(taps) % together)]


def reach(p: ConvProblem, axis: int) -> int:
    """Rows or columns behind the image that taps touch; negative where some of the image is left over."""
    size, out, kernel = ((p.ih, p.oh, p.kh), (p.iw, p.ow, p.kw))[axis]
    return (out - 1) * p.strides[axis] + (kernel - 1) * p.dilation[axis] + 1 - size - p.padding[axis]


def one_channel_order(p: ConvProblem) -> str:
    """Rule 9 for one input channel a group on AVX-512."""
    if p.src == "f32" and p.groups == 1 and columns_folded(p):
        return ""
    edge = p.padding[0] > 0 or reach(p, 0) > 0
    if p.kh > 1 and p.ow > 4 and p.dilation == (1, 1) and not (p.src == "s8" and edge):
        return "window"
    return "row" if p.kw > 1 and p.dilation[1] == 1 else ""


def columns_folded(p: ConvProblem) -> bool:
    """Whether oneDNN folds neighbouring columns into channels, which leaves the order as it was."""
    if p.strides[1] == 1 or p.dilation[1] != 1 or p.padding[1] > 0 or reach(p, 1) > 0:
        return False
    most = min(p.kw, p.strides[1], p.iw)
    return any(p.iw % n == p.kw % n == p.strides[1] % n == 0 for n in range(2, most + 1))


def padding_is_wide(p: ConvProblem) -> bool:
    """Whether the columns of the kernel are summed apart from each other."""
    left, right = max(0, p.padding[1]), max(0, reach(p, 1))
    step = p.strides[1]
    narrow = -(-left // step) < p.kw and -(-right // step) < p.kw and (p.ow - 1) * step + 1 <= p.iw
    return not narrow or max(left, right) > p.ow


def column_parts(p: ConvProblem, full: list[int]) -> list[list[int]]:
    """Runs of columns that share a chain: those that are on the image for every output; of the others each alone."""
    parts: list[list[int]] = []
    for j in range(p.kw):
        if j in full and parts and parts[-1][-1] in full:
            parts[-1].append(j)
        elif any(columns_inside(p, j)):
            parts.append([j])
    return parts


def columns_inside(p: ConvProblem, j: int) -> list[bool]:
    """For each output column: whether the kernel's column j falls on the image."""
    first = j * p.dilation[1] - p.padding[1]
    return [0 <= x * p.strides[1] + first < p.iw for x in range(p.ow)]


def full_columns(p: ConvProblem) -> list[int]:
    return [j for j in range(p.kw) if all(columns_inside(p, j))]


def runs(parts: list[list[int]], full: list[int]) -> list[list[list[int]]]:
    """Neighbouring parts of one sort together: those left of the full columns, those, and those right of them."""
    return [list(group) for _, group in groupby(parts, key=lambda part: part[0] in full)]


# -- arithmetic -----------------------------------------------------------------------------------------------------
def gather(src: Array, p: ConvProblem) -> Callable[[int, int, int], Array]:
    """tap -> (mb, groups, 1, oh, ow) of the source, zeros outside the image."""
    top, left, bottom, right = p.padding
    padded = np.pad(src, ((0, 0), (0, 0), (top, bottom), (left, right)))
    images = padded.reshape(p.mb, p.groups, -1, 1, *padded.shape[2:])

    def at(i: int, j: int, c: int) -> Array:
        y, x = i * p.dilation[0], j * p.dilation[1]
        rows = slice(y, y + (p.oh - 1) * p.strides[0] + 1, p.strides[0])
        columns = slice(x, x + (p.ow - 1) * p.strides[1] + 1, p.strides[1])
        found: Array = images[:, :, c, :, rows, columns]
        return found

    return at


def fused(a: Array, b: Array, total: Array) -> Array:
    """a * b + total in f32 with one rounding: the exact sum of two f64 rounded to odd first."""
    product = a.astype(np.float64) * b.astype(np.float64)
    wide = total.astype(np.float64)
    s = product + wide
    t = s - product
    error = (product - (s - t)) + (wide - t)
    even = (s.view(np.int64) & 1) == 0
    toward = np.where((error > 0) == (s > 0), 1, -1)
    odd = np.where((error != 0) & even & np.isfinite(s), s.view(np.int64) + toward, s.view(np.int64)).view(np.float64)
    return odd.astype(np.float32)


def flushed(a: Array) -> Array:
    """Denormals to zero."""
    return np.where(np.abs(a) < np.float32(2) ** -126, np.copysign(np.float32(0), a), a).astype(np.float32)


def pairs(chain: Chain) -> Iterator[tuple[Tap, Tap]]:
    return zip(chain[::2], chain[1::2], strict=True)


def sum_floats(src: Array, weights: Array, p: ConvProblem, order: list[Chain]) -> Array:
    """f32 accumulators (mb, oc, oh, ow): fused multiply-adds; of a pair of bf16 the second comes first."""
    at = gather(src.astype(np.float32), p)
    taps = weights.astype(np.float32).reshape(1, p.groups, p.oc // p.groups, p.ic // p.groups, p.kh, p.kw, 1, 1)
    shape = (p.mb, p.groups, p.oc // p.groups, p.oh, p.ow)
    total: Array | None = None
    for chain in order:
        acc = np.zeros(shape, np.float32)
        steps = chain if p.src == "f32" else [tap for first, second in pairs(chain) for tap in (second, first)]
        for tap in steps:
            if tap is None:
                continue
            i, j, c = tap
            acc = fused(at(i, j, c), taps[:, :, :, c, i, j], acc)
            acc = acc if p.src == "f32" else flushed(acc)
        total = acc if total is None else (total + acc).astype(np.float32)
    total = np.zeros(shape, np.float32) if total is None else total  # where every tap sees padding alone
    return total.reshape(p.mb, p.oc, p.oh, p.ow)


def sum_saturating(src: Array, weights: Array, p: ConvProblem, order: list[Chain]) -> Array:
    """s32 accumulators: the products of each pair saturate to 16 bits together."""
    at = gather(src.astype(np.int64), p)
    taps = weights.astype(np.int64).reshape(1, p.groups, p.oc // p.groups, p.ic // p.groups, p.kh, p.kw, 1, 1)
    total = np.zeros((p.mb, p.groups, p.oc // p.groups, p.oh, p.ow), np.int64)
    for chain in order:
        for pair in pairs(chain):
            products = [at(i, j, c) * taps[:, :, :, c, i, j] for i, j, c in filter(None, pair)]
            total = total + np.clip(sum(products), -32768, 32767)
    return total.reshape(p.mb, p.oc, p.oh, p.ow).astype(np.int32)


def sum_exact(src: Array, weights: Array, p: ConvProblem) -> Array:
    """s32 accumulators without a rounding or saturation anywhere."""
    at = gather(src.astype(np.int64), p)
    taps = weights.astype(np.int64).reshape(1, p.groups, p.oc // p.groups, p.ic // p.groups, p.kh, p.kw, 1, 1)
    every = [(i, j, c) for i in range(p.kh) for j in range(p.kw) for c in range(p.ic // p.groups)]
    total = sum(at(i, j, c) * taps[:, :, :, c, i, j] for i, j, c in every)
    return np.asarray(total).reshape(p.mb, p.oc, p.oh, p.ow).astype(np.int32)
