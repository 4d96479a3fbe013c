"""Arrays as manifests of recorded outputs of oneDNN store them: bf16, f8 as bits, 4-bit integers one a byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import pytest

from isa_models.readings.arrays import Array
from tests.effort import left_out

STORED = {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
BITS = {"bf16": ml_dtypes.bfloat16, "f8_e4m3": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}

ONE_IN = 12  # runs of a kind, `make test` takes one


def typed(array: Array, dtype: str) -> Array:
    if dtype in BITS:
        return array.view(BITS[dtype])
    return array.astype(STORED[dtype]) if dtype in STORED else array


def runs(cases: Sequence[dict[str, Any]]) -> list[Any]:
    """A case at each of its ISA caps, by name. `make test` takes one run in `ONE_IN` of each call
    and implementation that the library named; `make test-all` takes all.
    """
    named = [(f"{case['name']}-{cap}", case, cap) for case in cases for cap in case["runs"]]
    sweeps = left_out([(name, _kind(case, case["runs"][cap])) for name, case, cap in named], ONE_IN)
    return [pytest.param(case, cap, id=name, marks=[pytest.mark.sweep] * (name in sweeps)) for name, case, cap in named]


def _kind(case: dict[str, Any], run: dict[str, str]) -> tuple[str, str]:
    return case.get("op") or case["call"], run.get("impl") or run["implementation"]
