"""The clock of Zen 3 beside loops of kernels, compilers and generators, every third of those that are stable."""

from __future__ import annotations

import statistics

import pytest

from tests.loops import errors, loops_of

LOOPS = loops_of("loops_zen3")


@pytest.mark.parametrize("part", ["seen", "kept out"])
def test_stable_loops(part: str) -> None:
    found = errors("zen3", [loop for loop in LOOPS if loop["part"] == part][::3], memory=0)
    assert len(found) >= 70
    assert statistics.median(found) < 0.005
    assert statistics.mean(found) < 0.08
