"""The greatest number of windows and images of f32 as MLAS finds it for onnxruntime: of a number and a NaN a register
keeps the later one, a single element the earlier one.

Read in onnxruntime/core/mlas/lib/pooling.cpp; how blocks of channels and dilated windows go was found by comparison
with onnxruntime 1.32 (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.libraries.onnxruntime.sums import block_of

_LANES, _WIDE = 4, 8
_LEAST = np.finfo(np.float32).min  # what a search begins with: an infinity below it is not found
#: kernels of windows up to this size, and rows of an image up to this one, are taken a column of a window at a time
MOST_TAPS, MOST_COLUMNS = 32, 2045
Step = Callable[[Array, Array], Array]


def _in_register(a: Array, b: Array) -> Array:
    return np.where(a > b, a, b)


def _alone(a: Array, b: Array) -> Array:
    return np.where(b > a, b, a)


def _chain(step: Step, values: Array, inside: Array, from_least: bool = True) -> Array:
    """The greatest along the last dimension of what lies `inside`, one after the other."""
    total = np.full(values.shape[:-1], _LEAST if from_least else np.nan, np.float32)
    begun = np.full(values.shape[:-1], from_least)
    for i in range(values.shape[-1]):
        value, holds = values[..., i], np.broadcast_to(inside[..., i], begun.shape)
        total = np.where(holds, np.where(begun, step(total, value), value), total)
        begun = begun | holds
    return total


def extreme_of_all(kind: str, x: Array) -> Array:
    """The greatest ("max") or the least ("min") of a tensor as the range of what is quantized is found: registers of
    eight go to four accumulators in turn while there are four, then to the first; then halves, and what is left.
    """
    sign = np.float32(1 if kind == "max" else -1)
    line = sign * x.reshape(-1)
    n = line.size
    four, eight = n - n % (4 * _WIDE), n - n % _WIDE
    total = np.full((4, _WIDE), _LEAST, np.float32)
    for first in range(0, four, 4 * _WIDE):
        total = _in_register(total, line[first : first + 4 * _WIDE].reshape(4, _WIDE))
    lanes = _in_register(_in_register(total[0], total[1]), _in_register(total[2], total[3]))
    for first in range(four, eight, _WIDE):
        lanes = _in_register(lanes, line[first : first + _WIDE])
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = _in_register(lanes[:half], lanes[half:])
    found = lanes[0]
    for value in line[eight:]:
        found = _alone(found, value)
    return sign * np.asarray(found, np.float32)


def greatest_of_images(x: Array, caps: frozenset[str], laid: bool = True) -> Array:
    """The greatest of (N, C, ...) over all behind C, which stays as ones: one pixel after the other where channels are
    `laid` in whole blocks; else in four lanes, then what is left.
    """
    line = x.reshape(*x.shape[:2], -1)
    n = line.shape[-1]
    if laid and in_blocks(x, caps):
        total = _chain(_in_register, line, np.ones(n, bool))
    else:
        whole = n - n % _LANES
        lanes = line[..., :whole].reshape(*x.shape[:2], -1, _LANES).swapaxes(-1, -2)
        four = _chain(_in_register, lanes, np.ones(whole // _LANES, bool))
        two = _in_register(four[..., :2], four[..., 2:])
        total = _in_register(two[..., 0], two[..., 1])
        for i in range(whole, n):
            total = _alone(total, line[..., i])
    return total.reshape(*x.shape[:2], *[1] * (x.ndim - 2))


def in_blocks(x: Array, caps: frozenset[str]) -> bool:
    """Whether images lie in whole blocks of channels there."""
    return x.ndim == 4 and x.shape[1] % block_of(caps) == 0


def greatest_of_windows(
    x: Array,
    taps: Array,
    inside: Array,
    strides: Sequence[int],
    padding: Sequence[int],
    plain: bool,
    caps: frozenset[str],
) -> Array:
    """The greatest of windows of images x, whose elements are the last dimensions of `taps`, among those `inside`;
    `plain`: not dilated, and nobody asks for their places.
    """
    dims = x.ndim - 2
    kernel, reach = taps.shape[-dims:], padding[dims - 1] + padding[-1] + x.shape[-1]
    flat, flat_inside = (a.reshape(*a.shape[:-dims], -1) for a in (taps, inside))
    if in_blocks(x, caps):
        return _chain(_in_register, flat, flat_inside)
    if not plain:
        return _chain(_alone, flat, flat_inside, from_least=False)
    if kernel == x.shape[2:] and {*strides} == {1} and not any(padding):
        return greatest_of_images(x, caps, laid=False)
    if dims == 1 or strides[-1] > 2 or max(kernel) > MOST_TAPS or reach > MOST_COLUMNS:
        return _chain(_alone, flat, flat_inside)
    return _by_columns(x, taps, inside, strides[-1], padding[dims - 1])


def _by_columns(x: Array, taps: Array, inside: Array, stride: int, before: int) -> Array:
    """Each column of a window by itself, in registers but for the last columns of an image; then from left to right,
    the padding beside the image among them.
    """
    dims, width = x.ndim - 2, x.shape[-1]
    columns, held = (np.moveaxis(a, -1, -dims).reshape(*a.shape[:-dims], a.shape[-1], -1) for a in (taps, inside))
    found = [_chain(step, columns, held, from_least=dims == 3) for step in (_in_register, _alone)]
    place = np.arange(taps.shape[-dims - 1])[:, None] * stride + np.arange(taps.shape[-1]) - before
    values = np.where(place < width // _LANES * _LANES, *found)
    values = np.where((place >= 0) & (place < width), values, np.float32(_LEAST))
    return _chain(_in_register, values, np.ones(values.shape[-1], bool), from_least=False)
