"""Weights stored as floats of at most a byte on GPUs: how their codes lie in memory.

Kernels decode by the fields of a wider float (`simdnn.kernels.common.narrow_floats`).
"""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.narrow_floats import NARROW


def codes_type(dtype: str) -> str:
    """The integers that stored elements lie in memory as: codes of floats one a byte, or two.

    >>> codes_type("f6_e3m2"), codes_type("f4_e2m1"), codes_type("s8")
    ('u8', 'u4', 's8')
    """
    if dtype not in NARROW:
        return dtype
    return "u4" if fmt(dtype).bits == 4 else "u8"


def integers(elements: Array, dtype: str) -> Array:
    """Stored elements as words: integers by their values, narrow floats by their codes."""
    return (elements.view(np.uint8) if dtype in NARROW else elements).astype(np.int16)
