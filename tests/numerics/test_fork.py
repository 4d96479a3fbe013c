"""A forked child computes, whatever the threads of its parent were at."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

import simdnn
from isa_models import plugins
from isa_models.host import forks, machine_code
from simdnn.numerics import compiled

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
PATIENCE_S = 60.0
SIZES = count(3)  # of problems that nothing has compiled yet


def in_child(work: Callable[[], bool]) -> str:
    """ "done", "wrong", or "hangs" for what became of `work` in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "done" if status == 0 else "wrong"
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"


def product(threads: int = 1) -> bool:
    """Whether a product that needs compiling is right."""
    k = next(SIZES)
    src, weights = np.ones((64, k), np.float32), np.ones((k, 64), np.float32)
    return bool((simdnn.matmul(src, weights, machine="zen4", threads=threads).output == k).all())


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another thread compiles one program after the other; a fork waits for as long as that takes on a busy machine."""
    stop = threading.Event()
    monkeypatch.setattr(forks, "PATIENCE_S", PATIENCE_S)
    product()  # imports what it needs, which a slow machine takes longer for than a fork waits

    def work() -> None:
        while not stop.is_set():
            product()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(work)
        yield
        stop.set()
        job.result()


def test_while_another_thread_compiles(compiling: None) -> None:
    for _ in range(3):
        assert in_child(product) == "done"


def test_while_another_thread_holds_the_lock_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork does not wait for ever: the child has locks of its own."""
    monkeypatch.setattr("isa_models.host.forks.PATIENCE_S", 0.1)
    held, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with compiled._LOCK, machine_code.llvm.ffi.lib._lock:
            held.set()
            enough.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait()
        try:
            assert in_child(product) == "done"
        finally:
            enough.set()
    assert product()


def test_a_lock_that_is_made_while_a_thread_forks() -> None:
    """Its thread did not take it before, and lets it be behind."""
    lock = forks.ForkLock()
    lock._after()
    with lock:
        assert lock._lock.locked()  # type: ignore[union-attr]


def test_after_the_parent_ran_threads() -> None:
    """The parent's team is not in the child, which makes one."""
    assert product(threads=2)
    assert in_child(lambda: product(threads=2)) == "done"


def test_while_another_thread_finds_a_cached_property() -> None:
    lock = getattr(simdnn.program.Program.__dict__["signature"], "lock", None)
    if lock is None:
        pytest.skip("this Python holds no lock there")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock.acquire).result()
        try:
            assert in_child(product) == "done"
        finally:
            pool.submit(lock.release).result()


def test_a_pool_of_processes() -> None:
    k = next(SIZES)
    src, weights = np.ones((2, 8, k), np.float32), np.ones((k, 8), np.float32)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.starmap_async(_on_zen4, [(matrix, weights) for matrix in src]).get(PATIENCE_S)
    assert all((result.output == k).all() for result in found)


def _on_zen4(src: object, weights: object) -> simdnn.Result:
    return simdnn.matmul(src, weights, machine="zen4")


def test_while_another_thread_imports_users_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE_S", 0.05)
    monkeypatch.setattr(plugins, "_done", False)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with plugins._lock:
            entered.set()
            leave.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(hold)
        entered.wait(PATIENCE_S)
        assert in_child(lambda: plugins.load() is None) == "done"
        leave.set()
        job.result()
