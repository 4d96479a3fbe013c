"""The clock of Golden Cove beside loops that compilers made of a hundred C functions, measured on an Emerald Rapids."""

from __future__ import annotations

import statistics

import pytest

from tests.loops import errors, loops_of

LOOPS = loops_of("loops_spr_compiled")


@pytest.mark.parametrize("part", ["seen", "kept out"])
def test_compiled_loops(part: str) -> None:
    """Which half a loop is of was drawn by chance."""
    off = errors("spr", [loop for loop in LOOPS if loop["part"] == part])
    assert len(off) == 50
    assert statistics.median(off) < 0.01
    assert statistics.mean(off) < 0.045
    assert sum(error > 0.05 for error in off) <= 15
