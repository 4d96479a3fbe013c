"""Arrays as manifests of recorded outputs of oneDNN store them: bf16, f8 as bits, 4-bit integers one a byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import pytest

from isa_models.readings.arrays import Array

STORED = {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
BITS = {"bf16": ml_dtypes.bfloat16, "f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}


def typed(array: Array, dtype: str) -> Array:
    if dtype in BITS:
        return array.view(BITS[dtype])
    return array.astype(STORED[dtype]) if dtype in STORED else array


def runs(cases: Sequence[dict[str, Any]]) -> list[Any]:
    """A case at each of its ISA caps, by name; `make test` takes one cap a case, in turn, `make test-all` takes all."""
    return [
        pytest.param(
            case, cap, id=f"{case['name']}-{cap}", marks=[pytest.mark.sweep] * (turn != number % len(case["runs"]))
        )
        for number, case in enumerate(cases)
        for turn, cap in enumerate(case["runs"])
    ]
