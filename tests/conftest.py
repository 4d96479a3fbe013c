"""Hypothesis profiles: `quick` repeats the same few examples, `thorough` (make test-all) explores many anew each time.

So a change passes or fails `make test` by what it does and not by luck, and what a search finds in `make test-all`
becomes an example of its own.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from simdnn.numerics import compiled
from tests.effort import QUICK, THOROUGH

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("thorough", deadline=None, max_examples=THOROUGH, suppress_health_check=_SLOW)
settings.register_profile("quick", settings.get_profile("thorough"), derandomize=True, max_examples=QUICK)
settings.load_profile("quick")


def pytest_collection_finish() -> None:
    """Collected tests stay to the end, so the garbage collector need not walk it again and again.

    A thorough run tries the code that long runs get: tests are short, and have code made in haste.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    if settings.default.max_examples == THOROUGH:
        compiled.HASTY_OPS = 0


@pytest.fixture(autouse=True)
def figures_closed() -> Iterator[None]:
    """Figures that a test has drawn are closed behind it: pyplot warns of figures that pile up."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
