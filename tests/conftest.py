"""Hypothesis profiles: `quick` repeats the same few examples, `thorough` (make test-all) explores many anew each time.

So a change passes or fails `make test` by what it does and not by luck, and what a search finds in `make test-all`
becomes an example of its own. A test's numbers are the same whichever tests ran before it in its process.
"""

from __future__ import annotations

import gc
import linecache
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import haste
from tests.effort import QUICK, THOROUGH, left_out

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("thorough", deadline=None, max_examples=THOROUGH, suppress_health_check=_SLOW)
settings.register_profile("quick", settings.get_profile("thorough"), derandomize=True, max_examples=QUICK)
settings.load_profile("quick")

#: generators of random numbers that the tests of a module share, by module
_GENERATORS: dict[object, list[np.random.BitGenerator]] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases beyond a test's part (`one_in`) are sweeps; the part does not depend on which files are collected."""
    tests = defaultdict[tuple[object, str], list[pytest.Function]](list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if isinstance(item, pytest.Function) and "one_in" in marks and "sweep" not in marks:
            tests[item.parent, item.originalname].append(item)
    for cases in tests.values():
        number, *by = next(cases[0].iter_markers("one_in")).args
        kinds = [(case.name, tuple(repr(case.callspec.params[name]) for name in by)) for case in cases]
        sweeps = left_out(kinds, number)
        for case in cases:
            if case.name in sweeps:
                case.add_marker(pytest.mark.sweep)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collected tests stay to the end, so the garbage collector need not walk it again and again. The sources that were
    read to collect them do not: each doctest would ask the system whether all of them are as they were.

    A quick run draws no constants from the package's modules: which are imported goes by the tests that ran before, and
    one more would change all examples.
    """
    linecache.clearcache()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    if settings.default.max_examples != THOROUGH and hasattr(
        providers, "_get_local_constants"
    ):  # an internal of Hypothesis, which may go
        none = providers.Constants()
        providers._get_local_constants = lambda: none
    for module in {getattr(item, "module", None) for item in session.items} - {None}:
        shared = [value.bit_generator for value in vars(module).values() if isinstance(value, np.random.Generator)]
        _GENERATORS[module] = shared


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A generator that tests share begins anew for each, by its name: caches know the numbers of others."""
    haste.choose(item.nodeid, settings.default.max_examples == THOROUGH)
    for generator in _GENERATORS.get(getattr(item, "module", None), ()):
        generator.state = type(generator)(zlib.crc32(item.nodeid.encode())).state


@pytest.fixture(autouse=True)
def figures_closed() -> Iterator[None]:
    """Figures that a test has drawn are closed behind it: pyplot warns of figures that pile up."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
