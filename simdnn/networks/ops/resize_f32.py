"""Resize as onnxruntime computes it: positions, shares and sums in f32, integers cut towards zero.

ONNX leaves the precision open, and `simdnn.networks.ops.resize` goes by f64; what falls on a tie lands elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import need
from simdnn.networks.passes.nchwc import LAID
from simdnn.networks.types import is_float, label

F32 = np.float32
_ONE = 1 << 10  # what a share of integers whose channels lie last is counted in
_TIE = 1e-6  # of a half, within which a place is one: 0.954e-6 was seen to be, 1.13e-6 not


class ResizedAxis(NamedTuple):
    """One axis: its old and new size, the scale, and where a region of interest begins and ends."""

    size: int
    out: int
    scale: float
    ends: tuple[float, float] = (0.0, 1.0)


def resized(node: Node, mode: str, x: Array, axes: Sequence[ResizedAxis]) -> Array:
    """x with every axis resized; `axes` tells all of them.

    Raises `Unimplemented` for what onnxruntime's CPU provider refuses, and what of it is not followed.
    """
    if all(axis.size == axis.out for axis in axes):
        return x
    if node.integer("antialias", 0):
        raise Unimplemented("onnxruntime's Resize with antialias is not followed; what works: dispatch='fastest'")
    places = [_places(node, axis) for axis in axes]
    if mode == "nearest":
        found = x
        for i, (axis, place) in enumerate(zip(axes, places, strict=True)):
            found = np.take(found, _nearest(node, axis, place), i)
    elif mode == "linear":
        found = _linear_in_blocks(x, axes, places) if node.get(LAID) else _linear(node, x, axes, places)
    else:
        found = _cubic(node, x, axes, places)
    if node.text("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return found
    outside = np.zeros((1,) * x.ndim, bool)
    for i, (axis, place) in enumerate(zip(axes, places, strict=True)):
        beyond = (place < 0) | (place > axis.size - 1)
        outside = outside | beyond.reshape([-1 if j == i else 1 for j in range(x.ndim)])
    return np.where(outside, np.asarray(node.number("extrapolation_value", 0.0)).astype(x.dtype), found)


def _places(node: Node, axis: ResizedAxis) -> Array:
    """Where each output element lies in the input, each step rounded to f32."""
    i, one, half = np.arange(axis.out, dtype=F32), F32(1), F32(0.5)
    size, out, scale = F32(axis.size), F32(axis.out), F32(axis.scale)
    if scale == 1:
        return i
    where = node.text("coordinate_transformation_mode", "half_pixel") if node.version >= 11 else "asymmetric"
    first, last = map(F32, axis.ends)
    wide = i.astype(np.float64)  # np.float64 of a single element is a scalar in NumPy 2.3
    ways: dict[str, Callable[[], Any]] = {
        "asymmetric": lambda: i / scale,
        "half_pixel": lambda: (i + half) / scale - half,
        "pytorch_half_pixel": lambda: (i + half) / scale - half if axis.out > 1 else np.zeros(axis.out, F32),
        "tf_half_pixel_for_nn": lambda: (i + half) / scale,
        "align_corners": lambda: i * (size - one) / (out - one) if axis.out > 1 else np.zeros(axis.out, F32),
        "tf_crop_and_resize": lambda: (
            first * (size - one) + i * (last - first) * (size - one) / (out - one)
            if axis.out > 1
            else np.full(1, 0.5 * np.float64(first + last) * np.float64(size - one))
        ),
        "half_pixel_symmetric": lambda: (
            np.float64(size / F32(2) * (one - out / (scale * size))) + (wide + 0.5) / np.float64(scale) - 0.5
        ),
    }
    need(where in ways, f"coordinate_transformation_mode={where!r} is not known")
    return np.asarray(ways[where](), F32)


def _nearest(node: Node, axis: ResizedAxis, place: Array) -> Array:
    """The input element of each output."""
    if axis.scale == 1:
        return np.arange(axis.out)
    kind = node.text("nearest_mode", "round_prefer_floor") if node.version >= 11 else ""
    rest = place.astype(np.float64) - np.floor(place) - 0.5
    rest = np.where(np.abs(rest) < _TIE, 0, rest)
    ways: dict[str, Callable[[], Array]] = {
        "": lambda: np.ceil(place) if axis.scale < 1 else np.trunc(place),
        "floor": lambda: np.floor(place),
        "ceil": lambda: np.ceil(place),
        "round_prefer_ceil": lambda: np.floor(place) + (rest >= 0),
        "round_prefer_floor": lambda: np.floor(place) + (rest > 0),
    }
    need(kind in ways, f"nearest_mode={kind!r}; allowed: {', '.join(filter(None, ways))}")
    return np.clip(ways[kind](), 0, axis.size - 1).astype(int)


class _Pair(NamedTuple):
    """The two neighbours of each output along one axis, and what part each has."""

    low: Array
    high: Array
    of_low: Array
    of_high: Array


def _pair(axis: ResizedAxis, place: Array, whole: bool) -> _Pair:
    """Parts in f32; `whole`: in units of 1 / 1024, cut."""
    inside = np.clip(place, F32(0), F32(axis.size - 1))
    low = np.minimum(inside.astype(np.int64), axis.size - 1)
    high = np.minimum(low + 1, axis.size - 1)
    if whole:
        units = (inside * F32(_ONE)).astype(np.int64)
        parts = [np.where(low == high, _ONE // 2, np.abs(units - at * _ONE)) for at in (high, low)]
    else:
        parts = [np.where(low == high, F32(0.5), np.abs(inside - at.astype(F32))) for at in (high, low)]
    return _Pair(low, high, *parts)


def _linear(node: Node, x: Array, axes: Sequence[ResizedAxis], places: Sequence[Array]) -> Array:
    """Two or three neighbouring axes: the products of parts, the innermost axis' first, times elements, in order."""
    last = x.ndim == 4 and axes[1].scale != 1 and axes[3].scale == 1 and axes[0].scale == 1
    inner = (1, 2) if last else _spatial(x, axes, "linear")
    whole = last and not is_float(x.dtype)
    pairs = [_pair(axes[i], places[i], whole) for i in reversed(inner)]
    total = np.zeros((), np.int64 if whole else F32)
    for corner in product((0, 1), repeat=len(inner)):  # of the outermost axis first
        sides = list(reversed(corner))
        part, taken = np.ones((), total.dtype), x
        for i, pair, side in zip(reversed(inner), pairs, sides, strict=True):
            taken = np.take(taken, pair.high if side else pair.low, i)
            own = (pair.of_high if side else pair.of_low).reshape([-1 if j == i else 1 for j in range(x.ndim)])
            part = part * own
        total = total + part * taken.astype(total.dtype)
    cut = np.sign(total) * (np.abs(total) // _ONE**2) if whole else total
    return np.asarray(cut).astype(x.dtype)


def _linear_in_blocks(x: Array, axes: Sequence[ResizedAxis], places: Sequence[Array]) -> Array:
    """Images whose channels lie in blocks: the sum of the upper two products and that of the lower two. Beyond the last
    element both neighbours are that.
    """
    corners = []
    for axis, place in zip(axes[2:], places[2:], strict=True):
        inside = np.maximum(place, F32(0))
        low = np.minimum(inside.astype(np.int64), axis.size - 1)
        share = inside - low.astype(F32)
        corners.append(((low, F32(1) - share), (np.minimum(low + 1, axis.size - 1), share)))
    rows, columns = corners
    sums = []
    for row, of_row in rows:
        left, right = (x[:, :, row][..., at] * (of_row[:, None] * of_column) for at, of_column in columns)
        sums.append(left + right)
    return np.asarray(sums[0] + sums[1])


def _spatial(x: Array, axes: Sequence[ResizedAxis], mode: str) -> tuple[int, ...]:
    """The axes that are resized, all that are not a batch or channels in front."""
    ranks = {2: 2, 4: 2} | ({3: 3, 5: 3} if mode == "linear" else {})
    count = ranks.get(x.ndim, 0)
    if not count or any(axis.scale != 1 for axis in axes[: x.ndim - count]):
        scales, most = [round(axis.scale, 4) for axis in axes], "two or three" if mode == "linear" else "two"
        raise Unimplemented(
            f"onnxruntime has no {mode} Resize of {x.shape} by {scales}; what works: "
            f"{' or '.join(map(str, sorted(ranks)))} dimensions, the last {most} resized, and dispatch='fastest'"
        )
    return tuple(range(x.ndim - count, x.ndim))


def _cubic(node: Node, x: Array, axes: Sequence[ResizedAxis], places: Sequence[Array]) -> Array:
    """Four neighbours along the last axis, and four of those sums along the one before."""
    if x.dtype != F32:
        raise Unimplemented(f"onnxruntime's cubic Resize of {label(x.dtype)}: what works: f32, and dispatch='fastest'")
    _spatial(x, axes, "cubic")
    a = F32(node.number("cubic_coeff_a", -0.75))
    planes = x.reshape(-1, *x.shape[-2:])
    rows, columns = (_four(node, axes[i], places[i], a) for i in (-2, -1))
    found = np.zeros((len(planes), axes[-2].out, axes[-1].out), F32)
    for at, share in zip(rows.taps.T, rows.shares.T, strict=True):
        line = np.zeros_like(found)
        for x_at, x_share in zip(columns.taps.T, columns.shares.T, strict=True):
            line += x_share / columns.whole * planes[:, at][:, :, x_at]
        found += line * share[:, None] / rows.whole[:, None]
    return found.reshape(*x.shape[:-2], *found.shape[1:])


class _Four(NamedTuple):
    """The neighbours of each output along an axis (out, 4), their shares, and by what those are divided."""

    taps: Array
    shares: Array
    whole: Array


def _four(node: Node, axis: ResizedAxis, place: Array, a: np.float32) -> _Four:
    low = np.floor(place)
    s = np.abs(place - low)
    one, two = F32(1), F32(2)

    def far(d: Array) -> Array:
        return ((a * d - F32(5) * a) * d + F32(8) * a) * d - F32(4) * a

    def near(d: Array) -> Array:
        return ((a + two) * d - (a + F32(3))) * d * d + one

    shares = np.stack([far(s + one), near(s), near(one - s), far(two - s)], 1)
    taps = low.astype(np.int64)[:, None] + np.arange(-1, 3)
    whole = np.ones(axis.out, F32)
    if node.integer("exclude_outside", 0):
        shares = np.where((taps < 0) | (taps >= axis.size), F32(0), shares)
        whole = np.add.accumulate(shares, 1, dtype=F32)[:, -1]
    return _Four(np.clip(taps, 0, axis.size - 1), shares, whole)
