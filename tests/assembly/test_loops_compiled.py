"""The clock of Golden Cove beside loops that compilers made of a hundred C functions, measured on an Emerald Rapids."""

from __future__ import annotations

import functools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from isa_models.machines.loader import cpu_machine as machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.rows import rows

LOOPS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "loops_spr_compiled.json").read_text(encoding="utf-8")
)["loops"]


@functools.cache
def errors(part: str) -> list[float]:
    """Relative errors of one half; which half a loop is of was drawn by chance."""
    target, found = rows(machine("spr")), []
    for loop in LOOPS:
        if loop["part"] == part:
            body = read_body("\n".join(loop["body"]))
            predicted = analyze_body(body, target, start=loop["start"]).cycles_per_iteration
            found.append(abs(predicted / loop["cycles_per_iteration"] - 1))
    return found


@pytest.mark.parametrize(("part", "mean"), [("seen", 0.045), ("kept out", 0.045)])
def test_compiled_loops(part: str, mean: float) -> None:
    off = errors(part)
    assert len(off) == 50
    assert statistics.median(off) < 0.01
    assert statistics.mean(off) < mean
    assert sum(error > 0.05 for error in off) <= 15
