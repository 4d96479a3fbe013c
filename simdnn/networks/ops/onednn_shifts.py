"""Shifts and zero points of a source in a transposed convolution's sums of bytes, by oneDNN's roundings
(docs/numerics.md, rule 18).
"""

from __future__ import annotations

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import OWN, operator
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32

_LEAST = -(1 << 31)  # s32 of what has no place there


@operator("LiftedSums", domain=OWN)
def lifted_sums(k: Kernels, node: Node, x: Array, w: Array) -> Array:
    """f32 of doubled sums x (N, OC, …) by halves of weights w, as a kernel of 256 bits makes them: those of the shifted
    source first, then what the shift of all taps, those beside the source too, has added is taken off.
    """
    if not k.values:
        return k.plain(shadow(x.shape, F32), x)
    halves = np.rint(w * np.float32(0.5)).astype(np.int64)
    shift = 128 * halves.sum(axis=tuple(range(1, w.ndim))).reshape(-1, *[1] * (x.ndim - 2))
    lifted = (x // 2 + shift).astype(F32) - shift.astype(F32)
    return k.plain(lifted * np.float32(2), x)


@operator("SumsLessPoint", domain=OWN)
def sums_less_point(k: Kernels, node: Node, x: Array, seen: Array, w: Array, point: Array) -> Array:
    """f32 of s32 sums x (N, OC, …) less what a source's zero `point` (IC,) adds to them (`seen`, of one image), as the
    reference finds it: x as f32, less the part of all taps, to s32; then the part of those beside the source is added.
    """
    if not k.values:
        return k.plain(shadow(x.shape, F32), x, seen)
    groups = len(point) // w.shape[1]
    taps = w.astype(np.int64).reshape(*w.shape[:2], -1).sum(2).reshape(groups, -1, w.shape[1])
    every = np.einsum("goi,gi->go", taps, point.astype(np.int64).reshape(groups, -1)).astype(np.int32)
    every = every.reshape(-1, *[1] * (x.ndim - 2))
    rest = (x.astype(F32) - every.astype(F32)).astype(np.float64)
    whole = np.where(np.abs(rest) < -_LEAST, rest, _LEAST).astype(np.int64)
    return k.plain((whole + every - seen).astype(np.int32).astype(F32), x, seen)
