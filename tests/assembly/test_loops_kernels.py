"""The clock of Golden Cove beside fresh loops of kernels, measured on an Emerald Rapids."""

from __future__ import annotations

import functools
import statistics

import pytest

from tests.loops import errors, loops_of

LOOPS = loops_of("loops_spr_kernels")
CATEGORIES = sorted({loop["category"] for loop in LOOPS})
#: mean errors at most, where they are not within five in a hundred: chains without slack, lanes that are loads, ...
OPEN = {"gemm_f32": 0.065, "gemm_f16": 0.06, "lookup": 0.2, "mask": 0.1}


@functools.cache
def off(category: str) -> list[float]:
    return errors("spr", [loop for loop in LOOPS if loop["category"] == category])


def test_all_kernels() -> None:
    every = [error for category in CATEGORIES for error in off(category)]
    assert len(every) > 190
    assert statistics.median(every) < 0.01
    assert statistics.mean(every) < 0.04


@pytest.mark.parametrize("category", CATEGORIES)
def test_kernels_of_a_category(category: str) -> None:
    assert statistics.mean(off(category)) < OPEN.get(category, 0.055)
