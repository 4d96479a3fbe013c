"""Long programs run on the cores that this process may use, with the same values."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from threading import Barrier, get_ident

import numpy as np
import pytest

import simdnn
from isa_models.host.processors import processors
from simdnn.numerics import compiled, turns
from simdnn.numerics.turns import host_threads, shared


def test_as_many_as_the_environment_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = processors()
    assert host_threads() == cores
    assert cores == (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    for text, threads in (("1", 1), ("0", 1), ("4096", cores), ("2,1", cores)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert host_threads() == threads


def test_one_in_a_worker() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as workers:
        assert workers.submit(host_threads).result() == 1


def test_values_are_those_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product whose panels are cut into parts: all of them run once, each on one of the threads."""
    rng = np.random.default_rng(0)
    src, weights = (rng.standard_normal(shape, dtype=np.float32) for shape in ((37, 65), (65, 200)))
    one = simdnn.matmul(src, weights, machine="zen4", engine="compiled").output
    told: list[Sequence[tuple[int, int]]] = []

    def noted(works: Sequence[turns.Work], cuts: Sequence[tuple[int, int]], count: int) -> bool:
        told.append(cuts)
        return shared(works, cuts, count)

    monkeypatch.setattr(compiled, "shared", noted)
    monkeypatch.setattr(compiled, "SHARED_OPS", 1)
    monkeypatch.setattr(compiled, "host_threads", lambda: 3)
    assert (simdnn.matmul(src, weights, machine="zen4", engine="compiled").output == one).all()
    assert told and all(a[1] == b[0] for cuts in told for a, b in zip(cuts, cuts[1:], strict=False))


def test_each_part_is_taken_once() -> None:
    """Two works that wait for each other take all of eight parts, whichever takes which."""
    both = Barrier(2)
    took: list[tuple[int, int, int]] = []

    def work(start: int, stop: int) -> int:
        if start < 2:  # the first part of each
            both.wait(30)
        took.append((get_ident(), start, stop))
        return 0

    assert not shared([work, work], [(n, n + 1) for n in range(8)], 1)
    assert sorted((start, stop) for _, start, stop in took) == [(n, n + 1) for n in range(8)]
    assert len(Counter(thread for thread, _, _ in took)) == 2


def test_nothing_begins_behind_an_alarm() -> None:
    ran: list[int] = []

    def work(start: int, stop: int) -> int:
        ran.append(start)
        return int(start == 3)

    assert shared([work], [(n, n + 1) for n in range(64)], 1) and ran == [0, 1, 2, 3]
