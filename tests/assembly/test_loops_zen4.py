"""The clock of Zen 4 beside loops of kernels and compilers that were first recorded on other cores."""

from __future__ import annotations

import statistics

import pytest

from tests.loops import errors, loops_of

LOOPS = loops_of("loops_zen4_others")


@pytest.mark.parametrize("part", ["seen", "kept out"])
def test_stable_loops(part: str) -> None:
    found = errors("zen4", [loop for loop in LOOPS if loop["part"] == part])
    assert len(found) >= 200
    assert statistics.median(found) < 0.002
    assert statistics.mean(found) < 0.017
