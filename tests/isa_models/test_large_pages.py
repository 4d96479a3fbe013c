"""Blocks of memory with many of Python's objects are moved into large pages, and none elsewhere."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections import Counter
from pathlib import Path

import pytest

import simdnn
from isa_models.host import large_pages
from simdnn.primitives import costs

SIZE = 1 << 21


class Advised:
    """`madvise`, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int]] = []

    def __call__(self, address: int, size: int, advice: int) -> int:
        self.told.append((address, size, advice))
        return 0 if len(self.told) > 1 else -1  # the first is refused


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "hpage_pmd_size").write_text(f"{SIZE}\n")
    monkeypatch.setattr(large_pages, "_SETTINGS", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def advised(monkeypatch: pytest.MonkeyPatch) -> Advised:
    found = Advised()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: type("Library", (), {"madvise": found}))
    return found


def test_blocks_that_are_crowded_are_moved(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects: list[list[int]] = []
    crowded: list[int] = []
    while not crowded and len(objects) < 5_000_000:  # the first ones may fill gaps that other tests have left
        objects += [[one] for one in range(100_000)]
        crowded = [block for block, many in Counter(id(one) // SIZE for one in objects).items() if many > 8000]
    found = advised(monkeypatch)
    assert large_pages.gather() == len(found.told) - 1
    assert crowded and {(block * SIZE, SIZE, large_pages._COLLAPSE) for block in crowded} <= {*found.told}
    assert objects[7] == [7]


def test_moving_ends_where_it_takes_long(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is in small pieces Linux may take long for each: what is there by then is all."""
    found = advised(monkeypatch)
    monkeypatch.setattr(large_pages, "_CROWDED", 0)
    monkeypatch.setattr(large_pages, "_LONGEST", -1.0)
    assert large_pages.gather() == 0 and not found.told


def test_none_are_moved_where_the_system_has_none(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = advised(monkeypatch)
    (settings / "enabled").write_text("always madvise [never]\n")
    assert large_pages.gather() == 0
    (settings / "enabled").unlink()
    assert large_pages.gather() == 0 and not found.told


def test_who_times_many_kernels_has_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []
    monkeypatch.setattr(large_pages, "gather", lambda: met.append(1))
    monkeypatch.setattr(costs, "_TIMED", itertools.count(127))
    for m in (3, 4, 5):
        costs.timed.cache_clear()
        simdnn.estimate("matmul", m=m, n=16, k=16, isa="avx2", machine="zen4")
    assert met == [1]
