"""Ctrl-C in the midst of a product: heard soon, and the engine is as good as before."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simdnn import numerics
from simdnn.numerics import compiled, turns
from simdnn.numerics.turns import in_turns, shared
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor
from tests.effort import one_in

_PRODUCT = """
import signal, sys, threading
from dataclasses import replace
import numpy as np
import simdnn
from simdnn import numerics
from simdnn.numerics import compiled

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs behind
threads = int(sys.argv[1])
kernel = simdnn.estimate("matmul", m=4000, n=4000, k=4000, machine="zen4").kernel
inputs = {t.name: np.zeros(t.size, np.float32) for t in kernel.program.tensors if t.kind == "input"}
begun, midst, rung = [], threading.Event(), threading.Event()
def noted(function, extent):
    def call(pointers, start, stop):
        begun.append((extent, stop - start))
        if len(begun) > 4 * threads:
            midst.set()
        if len(begun) > 4 * threads + 2:  # others may have the cores for as long as the rest takes
            rung.wait(60)
        return function(pointers, start, stop)
    return call, extent
def ring():
    midst.wait()
    signal.raise_signal(signal.SIGINT)
    rung.set()
run = compiled._run
compiled._run = lambda code, *rest: run(replace(code, stages=[noted(*stage) for stage in code.stages]), *rest)
threading.Thread(target=ring, daemon=True).start()
try:
    numerics.run(kernel.program, inputs, threads=threads)
    print("ran to its end")
except KeyboardInterrupt:
    extent = begun[-1][0]
    print("heard", sum(count for own, count in begun if own == extent) < 0.5 * extent)
compiled._run = run
print("threads", sorted(t.name for t in threading.enumerate() if t.name.startswith("simdnn")))
one = np.ones((64, 64), np.float32)
print("right", bool((simdnn.matmul(one, one, machine="zen4", threads=threads).output == 64).all()))
"""


@one_in(2)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_product_is_interrupted(threads: int) -> None:
    """In a process of its own, as the signal goes to the main thread. It rings in the midst of a slice, early on: most
    of the product's iterations are never begun."""
    done = subprocess.run(
        [sys.executable, "-c", _PRODUCT, str(threads)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines() == ["heard True", "threads []", "right True"], done.stderr[-2000:]


class Clock:
    """Time that passes only where work says so."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(turns, "time", found)
    return found


def work(clock: Clock, seconds: float, calls: list[tuple[int, int]]) -> Callable[[int, int], int]:
    """Iterations that take so many seconds each."""

    def run(start: int, stop: int) -> int:
        calls.append((start, stop))
        clock.now += seconds * (stop - start)
        return 0

    return run


@pytest.mark.parametrize("seconds", [1e-9, 1e-4, 0.01, 0.2])
def test_slices_are_short_and_cover_all(clock: Clock, seconds: float) -> None:
    calls: list[tuple[int, int]] = []
    assert not in_turns(work(clock, seconds, calls), 3, 5000, 1)
    assert calls[0] == (3, 4) and calls[-1][1] == 5000
    assert all(before[1] == after[0] for before, after in zip(calls, calls[1:], strict=False))
    lengths = [stop - start for start, stop in calls]
    assert all(n == 1 or n * seconds <= turns.SLICE_S * (1 + 1e-9) for n in lengths)
    assert max(b / a for a, b in zip(lengths, lengths[1:], strict=False)) <= 16
    assert max(lengths) >= min(1000, turns.SLICE_S / seconds - 1)


def test_what_is_small_is_one_call(clock: Clock) -> None:
    calls: list[tuple[int, int]] = []
    assert not in_turns(work(clock, 1.0, calls), 0, 7, 7)
    assert calls == [(0, 7)]


def test_an_alarm_ends_the_run_at_once() -> None:
    calls: list[int] = []

    def raises(start: int, stop: int) -> int:
        calls.append(start)
        return start == 2

    assert in_turns(raises, 0, 3, 1) and calls[-1] == 2 or in_turns(raises, 2, 9, 1)
    assert calls[-1] == 2
    halt = threading.Event()
    assert in_turns(raises, 2, 9, 1, halt) and halt.is_set()
    assert not in_turns(raises, 0, 2, 1, halt)


@pytest.mark.parametrize("loud", [0, 1])
def test_an_alarm_of_one_thread_is_heard(loud: int) -> None:
    assert shared([lambda start, stop: int(start // 4 == loud)] * 2, [(0, 4), (4, 8)], 1)
    assert not shared([lambda start, stop: 0] * 2, [(0, 4), (4, 8)], 1)


def test_an_error_ends_the_team() -> None:
    """Others of the team stop at their next slice, and no thread is left."""
    started = threading.Event()

    def fails(start: int, stop: int) -> int:
        started.wait(10)
        raise ValueError("broken")

    def endless(start: int, stop: int) -> int:
        started.set()
        return 0

    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="broken"):
        shared([fails, endless], [(0, 1), (0, 1 << 60)], 1)
    assert not [t for t in threading.enumerate() if t not in before and t.name.startswith("simdnn")]


def test_memory_outlives_who_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C may end the wait for a thread at work: what it works on, private tensors too, stays its own."""
    works: list[Callable[[int, int], int]] = []
    monkeypatch.setattr(compiled, "shared", lambda given, cuts, count: works.extend(given) is not None)
    x = Register("x", "f32", 16)
    at = Affine.var("p") * 16
    places = [Memory(name, index, "f32", 16) for name, index in (("a", at), ("own", Affine()), ("o", at))]
    moves = [(Op("vmovups", x, (places[i],)), Op("vmovups", places[i + 1], (x,))) for i in (0, 1)]
    tensors = (Tensor("a", "f32", 64), Tensor("own", "f32", 16, "private"), Tensor("o", "f32", 64, "output"))
    program = Program("p", "avx512_core", tensors, (Loop("p", 4, (*moves[0], *moves[1]), True),))
    watched = {}
    buffers = compiled.own_buffers

    def noted(*arguments: Any) -> Any:
        found = buffers(*arguments)
        watched[id(found["own"])] = weakref.ref(found["own"])
        return found

    monkeypatch.setattr(compiled, "own_buffers", noted)
    gc.freeze()  # what other tests have left is none of this one's garbage
    numerics.run(program, {"a": np.zeros(64, np.float32)}, engine="compiled", threads=2)
    gc.collect()
    assert len(watched) == len(works) == 2 and all(ref() is not None for ref in watched.values())
    works.clear()
    gc.collect()
    assert all(ref() is None for ref in watched.values())
