"""Arrays as manifests of recorded outputs of oneDNN store them: bf16 as its bits, 4-bit integers one a byte."""

from __future__ import annotations

import ml_dtypes

from isa_models.readings.arrays import Array

STORED = {"bf16": ml_dtypes.bfloat16, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}


def typed(array: Array, dtype: str) -> Array:
    if dtype == "bf16":
        return array.view(ml_dtypes.bfloat16)
    return array.astype(STORED[dtype]) if dtype in STORED else array
