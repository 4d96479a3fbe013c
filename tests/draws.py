"""Random operands by oneDNN's names of types."""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array


def whole(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Integers of the type's whole range."""
    return rng.integers(fmt(dtype).low, fmt(dtype).high + 1, shape).astype(fmt(dtype).dtype)


def drawn(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Floats by the standard normal distribution, or integers of the whole range."""
    if fmt(dtype).is_float:
        return rng.standard_normal(shape).astype(fmt(dtype).dtype)
    return whole(dtype, shape, rng)
