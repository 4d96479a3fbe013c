"""Sums along a line as onnxruntime forms them, whose order decides their bits: of MLAS's softmax, its means of windows,
and the statistics of normalizations.

Read in onnxruntime/core/mlas/lib (compute.cpp, pooling.cpp, layernorm_kernel_avx2.cpp) and contrib_ops/cpu/bert; what
the compiler makes of a kernel's last elements, and what stands in for kernels on short lines, was found by comparison
with onnxruntime 1.32 (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from isa_models.instruction import instruction
from isa_models.readings.arrays import Array
from simdnn.libraries.onnxruntime.eigen import of_images
from simdnn.libraries.onnxruntime.eigen import reduced as reduced
from simdnn.libraries.onnxruntime.eigen import squares_of_rows as squares_of_rows
from simdnn.libraries.onnxruntime.elements import of_elements as of_elements
from simdnn.libraries.onnxruntime.greatest import MOST_COLUMNS, MOST_TAPS, in_blocks
from simdnn.libraries.onnxruntime.greatest import extreme_of_all as extreme_of_all
from simdnn.libraries.onnxruntime.greatest import greatest_of_images as greatest_of_images
from simdnn.libraries.onnxruntime.greatest import greatest_of_windows as greatest_of_windows
from simdnn.libraries.onnxruntime.libm import exponential as exponential
from simdnn.libraries.onnxruntime.libm import logarithm as logarithm
from simdnn.libraries.onnxruntime.libm import power as power

_LANES = 8
_DOUBLES = 4  # lanes of f64
_SHORT = {True: 8, False: 16}  # lines below this length, around their mean or zero, have no kernel
_FUNCTORS_SINCE = 19  # the opset from which means of windows are plain loops


def sum_of_powers(x: Array, caps: frozenset[str]) -> Array:
    """Sums of a softmax over the last dimension, which stays as 1: in 8 lanes, or in 16 that become 8; then neighbours,
    those sums, and the halves.
    """
    lanes = 16 if "avx512_core" in caps else _LANES
    line = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % lanes)])
    total = np.zeros((*x.shape[:-1], lanes), np.float32)
    for first in range(0, line.shape[-1], lanes):
        total = total + line[..., first : first + lanes]
    if lanes > _LANES:
        total = total[..., :_LANES] + total[..., _LANES:]
    total = total[..., ::2] + total[..., 1::2]
    total = total[..., ::2] + total[..., 1::2]
    return np.asarray(total[..., :1] + total[..., 1:])


def of_channels(around: Sequence[Array], alpha: float, bias: float) -> Array:
    """Sums that LRN raises to a power: the first channel's window is added up in turn, and each later channel's is the
    one before, with its last channel added and the one that it left behind taken away (cpu/nn/lrn.cc).
    """
    share = np.float32(alpha) / np.float32(len(around))
    with np.errstate(all="ignore"):
        first, last = share * around[0], share * around[-1]
        total: Array = np.full(first.shape, bias, np.float32)
        for part in around:
            total[:, 0] += share * part[:, 0]
        for c in range(1, total.shape[1]):
            total[:, c] = total[:, c - 1] + last[:, c] - first[:, c - 1]
    return total


# -- attention of one query -------------------------------------------------------------------------------------------
def dots(query: Array, keys: Array) -> Array:
    """Products (…, 1, places) of a query (…, 1, size) and keys (…, places, size): in 8 lanes, neighbours, those sums,
    the halves; then what is left.
    """
    whole = query.shape[-1] // _LANES * _LANES
    terms = query * keys
    lanes = np.zeros((*terms.shape[:-1], _LANES), np.float32)
    for first in range(0, whole, _LANES):
        lanes = lanes + terms[..., first : first + _LANES]
    for _ in range(3):
        lanes = lanes[..., ::2] + lanes[..., 1::2]
    total = lanes[..., 0]
    for i in range(whole, terms.shape[-1]):
        total = total + terms[..., i]
    return np.asarray(total[..., None, :])


def weighted(shares: Array, values: Array) -> Array:
    """Sums (…, 1, size) of values (…, places, size) by their shares (…, 1, places), one after the other."""
    total = np.zeros((*np.broadcast_shapes(shares.shape[:-2], values.shape[:-2]), 1, values.shape[-1]), np.float32)
    for i in range(values.shape[-2]):
        total = total + shares[..., i : i + 1] * values[..., i : i + 1, :]
    return total


# -- normalizations ---------------------------------------------------------------------------------------------------
def way_of(n: int, centred: bool) -> str:
    """How a normalization of `n` elements finds its statistics: in "lanes", or by "updates" after each element."""
    return "updates" if n < _SHORT[centred] else "lanes"


def statistics(x: Array, centred: bool, way: str) -> tuple[Array, Array]:
    """Means over the last dimension, which stays as 1, and means of squares of what is left without them; of all there
    is where not `centred`. "lanes", "updates" as `way_of` has it; "passes": a sum, then a sum of squares; "images":
    those in registers.
    """
    if way == "images":
        return of_images(x)
    n = x.shape[-1]
    if way == "lanes":
        mean = _mean(x) if centred else np.zeros((*x.shape[:-1], 1), np.float32)
        return mean, np.asarray(_squares(x - mean) / np.float32(n), np.float32)
    if way == "passes":
        mean = (_in_turn(x) / np.float32(n))[..., None]
        apart = x - mean
        return mean, (_in_turn(apart * apart) / np.float32(n))[..., None]
    mean, total = np.zeros((2, *x.shape[:-1]), np.float32)
    for i in range(n):
        value = x[..., i]
        if centred:  # Welford's updates
            apart = value - mean
            mean = mean + apart / np.float32(i + 1)
            total = total + apart * (value - mean)
        else:
            total = total + value * value
    return mean[..., None], np.asarray(total / np.float32(n), np.float32)[..., None]


def _mean(x: Array) -> Array:
    """Means of sums in f64, in four lanes, then what is left."""
    n = x.shape[-1]
    whole = n - n % _DOUBLES
    total = _halved(x[..., :whole].astype(np.float64).reshape(*x.shape[:-1], -1, _DOUBLES).sum(-2))
    for i in range(whole, n):
        total = total + x[..., i : i + 1]
    return np.asarray(total / n, np.float32)


def _squares(x: Array) -> Array:
    """Sums of squares: fused in eight lanes; of what is left four at once, whose squares are rounded; then fused."""
    n, fused = x.shape[-1], instruction("vfmadd231ps")
    whole = n - n % _LANES
    total = np.zeros((*x.shape[:-1], _LANES), np.float32)
    for first in range(0, whole, _LANES):
        part = np.ascontiguousarray(x[..., first : first + _LANES])
        total = fused(total, part, part)
    total = _halved(total)
    for i in range(whole, n):
        value = np.ascontiguousarray(x[..., i : i + 1])
        total = total + value * value if n - whole >= 4 and i < whole + 4 else _fused_square(value, total)
    return total


def _fused_square(value: Array, total: Array) -> Array:
    """value * value + total, rounded once."""
    lanes = [np.broadcast_to(a, (*a.shape[:-1], 4)).copy() for a in (total, value, value)]
    return np.asarray(instruction("vfmadd231ps")(*lanes)[..., :1])


def _halved(total: Array) -> Array:
    """The upper half of some lanes added to the lower half, until one lane is left."""
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return total


# -- means of images --------------------------------------------------------------------------------------------------
def mean_of_images(x: Array, caps: frozenset[str], laid: bool = True) -> Array:
    """Means of (N, C, ...) over all behind C, which stays as ones: one pixel after the other where channels are `laid`
    in whole blocks; else in four lanes, then what is left.
    """
    line = x.reshape(*x.shape[:2], -1)
    n = line.shape[-1]
    whole = 0 if laid and in_blocks(x, caps) else n - n % 4
    lanes = np.zeros((*x.shape[:2], 4), np.float32)
    for first in range(0, whole, 4):
        lanes = lanes + line[..., first : first + 4]
    total = _halved(lanes)[..., 0]
    for i in range(whole, n):
        total = total + line[..., i]
    return np.asarray(total / np.float32(n), np.float32).reshape(*x.shape[:2], *[1] * (x.ndim - 2))


def mean_of_windows(
    x: Array,
    taps: Array,
    counts: Array,
    strides: Sequence[int],
    padding: Sequence[int],
    opset: int,
    caps: frozenset[str],
    laid: bool = True,
) -> Array:
    """Means of windows of images x, whose elements are the last dimensions of `taps`: one after the other; columns by
    themselves first where the kernel of MLAS goes by vectors along rows. Not `laid`: whole blocks of channels lie in
    none either.
    """
    dims = x.ndim - 2
    kernel, reach = taps.shape[-dims:], padding[dims - 1] + padding[-1] + x.shape[-1]
    by_kernels = opset < _FUNCTORS_SINCE and not (laid and in_blocks(x, caps))
    if by_kernels and kernel == x.shape[2:] and {*strides} == {1} and not any(padding):
        return mean_of_images(x, caps, laid)
    inner = taps.reshape(*taps.shape[:-dims], prod(kernel[:-1]), kernel[-1])
    if by_kernels and dims > 1 and strides[-1] <= 2 and max(kernel) <= MOST_TAPS and reach <= MOST_COLUMNS:
        total = _in_turn(_in_turn(np.swapaxes(inner, -1, -2)))
    else:
        total = _in_turn(inner.reshape(*inner.shape[:-2], -1))
    return np.asarray(total / counts, np.float32)


def _in_turn(values: Array) -> Array:
    """Sums over the last dimension, one after the other."""
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = total + values[..., i]
    return total
