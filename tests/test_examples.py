"""The same examples and numbers every time, whichever tests ran before in the same process."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests.effort import examples

RNG = np.random.default_rng(0)
CONSTANTS = [*range(987_000_001, 987_000_400)]


def found() -> list[int]:
    """What a property is tried on."""
    tried: list[int] = []

    @examples(600)
    @given(st.lists(st.integers(), min_size=20, max_size=20))
    def asks(numbers: list[int]) -> None:
        tried.extend(numbers)

    asks()
    return tried


def test_examples_do_not_go_by_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not settings.default.derandomize or not hasattr(providers, "_get_local_constants"):
        pytest.skip("examples are new each time, or this Hypothesis goes by no module")
    before = found()
    path = tmp_path / "constants.py"
    path.write_text(f"NUMBERS = {CONSTANTS}\n")
    module = ModuleType("constants")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "constants", module)
    assert found() == before and len(before) > 1000


@pytest.mark.parametrize("turn", range(2))
def test_a_shared_generator_begins_anew(turn: int, request: pytest.FixtureRequest) -> None:
    """For each test with other numbers."""
    expected = np.random.default_rng(zlib.crc32(request.node.nodeid.encode())).integers(1 << 40)
    assert RNG.integers(1 << 40) == expected
