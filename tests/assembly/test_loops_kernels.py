"""The clock of Golden Cove beside fresh loops of kernels, measured on an Emerald Rapids."""

from __future__ import annotations

import functools
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from isa_models.machines.loader import cpu_machine as machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.rows import rows

LOOPS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "loops_spr_kernels.json").read_text(encoding="utf-8")
)["loops"]
#: mean errors at most, where they are not within five in a hundred: chains without slack, lanes that are loads, ...
OPEN = {"gemm_f32": 0.065, "gemm_f16": 0.06, "lookup": 0.2, "mask": 0.1}


@functools.cache
def errors() -> dict[str, list[float]]:
    """Relative errors by category."""
    target, found = rows(machine("spr")), defaultdict(list)
    for loop in LOOPS:
        body = read_body("\n".join(loop["body"]))
        predicted = analyze_body(body, target, start=loop["start"]).cycles_per_iteration
        found[loop["category"]].append(abs(predicted / loop["cycles_per_iteration"] - 1))
    return found


def test_all_kernels() -> None:
    every = [error for category in errors().values() for error in category]
    assert len(every) > 190
    assert statistics.median(every) < 0.01
    assert statistics.mean(every) < 0.04


@pytest.mark.parametrize("category", sorted({loop["category"] for loop in LOOPS}))
def test_kernels_of_a_category(category: str) -> None:
    assert statistics.mean(errors()[category]) < OPEN.get(category, 0.055)
