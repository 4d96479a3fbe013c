"""Work spread over processes of this machine, or over the workers of a Dask cluster."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, connection, get_context, parent_process
from typing import Any, TypeVar

from isa_models import SimdnnError
from isa_models.errors import how_to_install

T = TypeVar("T")
R = TypeVar("R")
Lost = Callable[[str], R]  # what stands for the result of a task whose worker died, from the reason

MOST_WORKERS = 8  # each holds the tensors of a layer
WORTH_WORKERS = 16  # fewer tasks are done before worker processes have started
DIED = "its worker process died, perhaps out of memory"
_ANSWERS_WITHIN = "10s"


def usual(tasks: int) -> int:
    """How many processes suit a number of tasks: one where they are done before others have started."""
    return min(os.cpu_count() or 1, MOST_WORKERS) if tasks >= WORTH_WORKERS else 1


def spread(function: Callable[[T], R], tasks: Sequence[T], jobs: int, lost: Lost[R]) -> Iterator[tuple[T, R]]:
    """Each task with its result, in the order in which they end; one after the other where `jobs` is 1.

    What was under way when a worker process died is done once more, each task in a process of its own.
    """
    if jobs == 1:
        yield from ((task, function(task)) for task in tasks)
        return
    waiting = deque(tasks)
    while waiting:
        running: dict[Future[R], T] = {}
        with _processes(min(jobs, len(waiting))) as workers:
            try:
                while waiting or running:
                    while waiting and len(running) < 2 * jobs:
                        running[workers.submit(function, waiting[0])] = waiting[0]
                        waiting.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        yield running.pop(future), result
            except BrokenProcessPool:
                pass
        for task in running.values():
            with _processes(1) as alone:
                try:
                    result = alone.submit(function, task).result()
                except BrokenProcessPool:
                    result = lost(DIED)
            yield task, result


def on_dask(function: Callable[[T], R], tasks: Sequence[T], address: str, lost: Lost[R]) -> Iterator[tuple[T, R]]:
    """Each task with its result, by the workers of the Dask scheduler at an address ("tcp://host:8786").

    They must have this package; files are read under the same paths there. Raises `SimdnnError` where
    dask.distributed is not installed or no scheduler answers.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise SimdnnError(f"scheduler {address!r} needs dask.distributed: {how_to_install('dask')}") from None
    try:
        client = distributed.Client(address, timeout=_ANSWERS_WITHIN, set_as_default=False)
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise SimdnnError(f"no Dask scheduler answers at {address!r}, e.g. 'tcp://host:8786': {said}") from None
    with client, client.as_current():
        futures = dict(zip(client.map(function, tasks, pure=False), tasks, strict=True))
        for future in distributed.as_completed(futures):
            try:
                result = future.result()
            except Exception as error:  # a worker lost too often, or without this package
                result = lost(f"on the cluster: {error!r:.300}")
            yield futures[future], result


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes; the death of one is an error."""
    try:
        with _processes(workers) as executor:
            yield executor
    except BrokenProcessPool:
        raise SimdnnError("a worker process died, perhaps out of memory; fewer layers at once need less") from None


@contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, which end with this one, also where it is killed or interrupted."""
    # spawn: forking a process that has threads (BLAS, engines) may leave their locks held
    executor = ProcessPoolExecutor(count, get_context("spawn"), _begin)
    others = set(active_children())
    try:
        yield executor
    except (KeyboardInterrupt, SystemExit):  # nobody waits for what is under way
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
