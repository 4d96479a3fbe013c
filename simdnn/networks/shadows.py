"""Shadows: arrays that have the shape and type of values and take no memory, where only a cost is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.types import is_float


def shadow(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


def shaded(array: Array) -> Array:
    """A shadow in place of float values, where they are many; integers may be sizes that somebody reads."""
    is_shadow = not any(array.strides)
    return shadow(array.shape, array.dtype) if is_float(array.dtype) and array.size > 64 and not is_shadow else array
