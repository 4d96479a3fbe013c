"""Arrays as manifests of recorded outputs of oneDNN store them: bf16, f8 as bits, 4-bit integers one a byte."""

from __future__ import annotations

import ml_dtypes

from isa_models.readings.arrays import Array

STORED = {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
BITS = {"bf16": ml_dtypes.bfloat16, "f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}


def typed(array: Array, dtype: str) -> Array:
    if dtype in BITS:
        return array.view(BITS[dtype])
    return array.astype(STORED[dtype]) if dtype in STORED else array
