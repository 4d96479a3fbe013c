"""Sums along a line as onnxruntime forms them, whose order decides their bits: of MLAS's softmax, and the statistics of
its normalizations. Found by comparison with onnxruntime 1.32 (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

import numpy as np

from isa_models.instruction import instruction
from isa_models.readings.arrays import Array

_LANES = 8


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


def has_statistics(n: int, centred: bool) -> bool:
    """Whether the order is known in which the statistics of `n` elements are found, around their mean or zero."""
    return n % _LANES == 0 and n >= (_LANES if centred else 2 * _LANES)


def mean(x: Array) -> Array:
    """Means over the last dimension, which stays as 1, of a sum in f64."""
    return np.asarray(x.astype(np.float64).sum(-1, keepdims=True) / x.shape[-1], np.float32)


def mean_square(x: Array) -> Array:
    """Means of squares, of values less their mean or as they are, over the last dimension, which stays as 1: fused
    multiply-adds in eight lanes, which are added up by halves.
    """
    n = x.shape[-1]
    total = np.zeros((*x.shape[:-1], _LANES), np.float32)
    for first in range(0, n, _LANES):
        part = np.ascontiguousarray(x[..., first : first + _LANES])
        total = instruction("vfmadd231ps")(total, part, part)
    while total.shape[-1] > 1:
        half = total.shape[-1] // 2
        total = total[..., :half] + total[..., half:]
    return np.asarray(total / np.float32(n), np.float32)
