"""Work spread over processes of this machine, or over the workers of a Dask cluster."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, connection, get_context, parent_process
from pathlib import Path
from typing import Any, Generic, TypeVar

from isa_models import InvalidArgument, SimdnnError
from isa_models.errors import how_to_install, shortly
from isa_models.host.processors import processors
from simdnn.garbage import collect_seldom

T = TypeVar("T")
R = TypeVar("R")
Lost = Callable[[str], R]  # what stands for the result of a task whose worker died, from the reason
Each = Callable[[Sequence[T]], Iterator[tuple[T, R]]]  # tasks, done by somebody

MOST_WORKERS = 8  # each holds the tensors of a layer
MOST_ASKED = 256  # whoever asks for more has mistyped it
WORTH_WORKERS = 16  # fewer tasks are done before worker processes have started
DIED = "its worker process died, perhaps out of memory"
_ANSWERS_WITHIN = "10s"


def usual(tasks: int) -> int:
    """How many processes suit a number of tasks: one where they are done before others have started, or where others
    would run the user's script again.
    """
    return most() if tasks >= WORTH_WORKERS and not _unguarded() else 1


def most() -> int:
    """How many processes this machine has processors for, up to `MOST_WORKERS`."""
    return min(processors(), MOST_WORKERS)


def check_jobs(jobs: object) -> None:
    """`InvalidArgument` for what is no number of worker processes, and for several where each would run the user's
    script again; None leaves it open.
    """
    if jobs is None:
        return
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= MOST_ASKED:
        raise InvalidArgument(f"jobs={shortly(jobs)}; a whole number from 1 to {MOST_ASKED} is needed")
    if jobs > 1 and (script := _unguarded()):
        raise InvalidArgument(
            f"jobs={jobs}: each worker process would run all of {script} again, and start others; what works: "
            "the call under if __name__ == '__main__':, or jobs=1"
        )


def _unguarded() -> str:
    """The name of the script that runs, where nothing in it tells that from an import, as workers do it; else empty."""
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    if script.stem in ("__main__", "ipython"):  # which multiprocessing leaves alone
        return ""
    try:
        return "" if "__name__" in script.read_text(errors="replace") else script.name
    except OSError:  # a prompt, a notebook, a frozen program
        return ""


@contextmanager
def crew(function: Callable[[T], R], lost: Lost[R], *, jobs: int = 1, dask: str = "") -> Iterator[Each[T, R]]:
    """Who does tasks: this process one after the other, worker processes, or the workers of a Dask scheduler.

    What it gives takes a lot of tasks, and yields each with its result in the order in which they end; it may be called
    again. The function goes to every worker once, whatever it holds, and keeps there what it learns. `dask` is the
    scheduler's address ("tcp://host:8786"): its workers must have this package, and read files under the same paths.
    Raises `SimdnnError` where dask.distributed is not installed or no scheduler answers.
    """
    if dask:
        with _cluster(dask) as client:
            yield _OnDask(client, function, lost).each
    elif jobs > 1:
        with ExitStack() as stack:
            yield _Team(stack, function, jobs, lost).each
    else:
        yield lambda tasks: ((task, function(task)) for task in tasks)


@dataclass(eq=False)
class _Team(Generic[T, R]):
    """Worker processes, started with the first task; those of a broken team are replaced."""

    stack: ExitStack
    function: Callable[[T], R]
    jobs: int
    lost: Lost[R]
    workers: ProcessPoolExecutor | None = None

    def each(self, tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        """Each task with its answer; those under way when a worker process died run once more, each in its own."""
        waiting = deque(tasks)
        while waiting:
            running: dict[Future[R], T] = {}
            if self.workers is None:
                self.workers = self.stack.enter_context(_processes(self.jobs, self.function))
            try:
                while waiting or running:
                    while waiting and len(running) < 2 * self.jobs:
                        running[self.workers.submit(_done_here, waiting[0])] = waiting[0]
                        waiting.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        yield running.pop(future), result
            except BrokenProcessPool:
                self.workers = None
                self.stack.pop_all().close()
            for task in running.values():
                with _processes(1, self.function) as alone:
                    try:
                        result = alone.submit(_done_here, task).result()
                    except BrokenProcessPool:
                        result = self.lost(DIED)
                yield task, result


@dataclass(eq=False)
class _OnDask(Generic[T, R]):
    """The workers of a cluster."""

    client: Any
    function: Callable[[T], R]
    lost: Lost[R]
    shared: Any = None

    def each(self, tasks: Sequence[T]) -> Iterator[tuple[T, R]]:
        if self.shared is None:
            self.shared = self.client.scatter([self.function], broadcast=True, hash=False)[0]
        made = self.client.map(_called, [self.shared] * len(tasks), tasks, pure=False)
        futures = dict(zip(made, tasks, strict=True))
        for future in importlib.import_module("distributed").as_completed(futures):
            try:
                result = future.result()
            except Exception as error:  # a worker lost too often, or without this package
                result = self.lost(f"on the cluster: {error!r:.300}")
            yield futures[future], result


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """A client of a scheduler."""
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
        yield client


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes; the death of one is an error."""
    try:
        with _processes(workers) as executor:
            yield executor
    except BrokenProcessPool:
        raise SimdnnError("a worker process died, perhaps out of memory; fewer layers at once need less") from None


@contextmanager
def _processes(count: int, function: Callable[[Any], Any] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, which end with this one, also where it is killed or interrupted."""
    # spawn: forking a process that has threads (BLAS, engines) may leave their locks held
    executor = _Workers(count, get_context("spawn"), _begin, (function,))
    others = set(active_children())
    try:
        yield executor
    except (KeyboardInterrupt, SystemExit):  # nobody waits for what is under way
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


class _Workers(ProcessPoolExecutor):
    """Processes that hear Ctrl-C once they have begun: before, it would print a traceback of what they import."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        with _deaf():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C waits, here and in processes that are started meanwhile, until each lets it through; so does SIGTERM here.

    The mask is inherited. It is not enough here: a signal reaches another thread, and its handler runs in this one,
    perhaps where a process has been started and has not been told yet what it is for.
    """
    if sys.platform == "win32":
        yield
        return
    held: list[int] = []
    handlers = {}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        if threading.current_thread() is threading.main_thread():  # handlers run in no other
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, lambda number, _: held.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if held:  # also where the work failed, as where another process heard the signal and ended
            signal.raise_signal(held[0])


_here: list[Any] = []  # what a worker process is for


def _begin(function: Callable[[Any], Any] | None) -> None:
    _here[:] = [function]
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _done_here(task: Any) -> Any:
    return _called(_here[0], task)


def _called(function: Callable[[T], R], task: T) -> R:
    return function(task)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
