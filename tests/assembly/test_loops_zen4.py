"""The clock of Zen 4 beside loops of kernels and compilers that were first recorded on other cores."""

from __future__ import annotations

import functools
import json
import statistics
from typing import Any

import pytest

from benchmarks.loops import START, VECTORS, whole
from isa_models.machines.loader import cpu_machine as machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.rows import rows

LOOPS: list[dict[str, Any]] = json.loads((VECTORS / "loops_zen4_others.json").read_text(encoding="utf-8"))["loops"]


@functools.cache
def errors(part: str) -> list[float]:
    """Relative errors of the stable loops of a part."""
    target, found = rows(machine("zen4")), []
    for loop in (whole(loop) for loop in LOOPS if loop["stable"] and loop["part"] == part):
        body = read_body("\n".join(loop["body"]))
        predicted = analyze_body(body, target, start=loop.get("start", START)).cycles_per_iteration
        found.append(abs(predicted / loop["cycles_per_iteration"] - 1))
    return found


@pytest.mark.parametrize("part", ["seen", "kept out"])
def test_stable_loops(part: str) -> None:
    found = errors(part)
    assert len(found) >= 200
    assert statistics.median(found) < 0.002
    assert statistics.mean(found) < 0.02
