"""Native code a slice of its iterations at a time, on this thread or on a team, so that an interrupt is heard.

Python hears of Ctrl-C between two native calls only, and always in the main thread. So a call is made short: few
iterations at first, then as many as take a fiftieth of a second. What is small is one call as before.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import parent_process

from isa_models.host.forks import at_fork
from isa_models.host.processors import processors

FIRST_OPS = 1 << 20  # instructions of a program in the first call: about a millisecond of native code
SLICE_S = 0.02
_GROWTH = 16  # of a slice to the next, so that one disturbed measurement does no harm

_VARIABLE = "OMP_NUM_THREADS"  # where libraries of numbers look how many threads they may have

Work = Callable[[int, int], int]  # iterations from .. to; nonzero for an alarm
_idle: dict[int, list[ThreadPoolExecutor]] = {}  # teams by their size


def host_threads() -> int:
    """How many threads native code may take: a core each of those that this process may use, at most $OMP_NUM_THREADS.

    One in a worker process, since the others have theirs.
    """
    if parent_process() is not None:
        return 1
    cores = processors()
    try:
        return max(1, min(cores, int(os.environ.get(_VARIABLE, ""))))
    except ValueError:  # not set, or a list for nested teams
        return cores


def in_turns(work: Work, start: int, stop: int, count: int, halt: threading.Event | None = None) -> bool:
    """Run iterations start .. stop-1, `count` of them first; True, and at once, where a call raises the alarm.

    With `halt`: it is set with an alarm, and where somebody sets it the rest is left out.
    """
    while start < stop and not (halt and halt.is_set()):
        until = min(stop, start + count)
        began = time.perf_counter()
        if work(start, until):
            if halt:
                halt.set()
            return True
        spent = max(time.perf_counter() - began, 1e-9)
        count = max(1, int(count * min(_GROWTH, SLICE_S / spent)))
        start = until
    return False


def shared(works: Sequence[Work], cuts: Sequence[tuple[int, int]], count: int) -> bool:
    """Run all cuts, each work taking one after the other on a thread of its own; True where one raises the alarm."""
    halt, left = threading.Event(), deque(cuts)

    def run(work: Work) -> bool:
        while not halt.is_set():
            try:
                cut = left.popleft()
            except IndexError:
                return False
            if in_turns(work, *cut, count, halt):
                return True
        return False

    with _team(len(works), halt) as team:
        jobs = [team.submit(run, work) for work in works]
        return any([_result(job) for job in jobs])


def _result(job: Future[bool]) -> bool:
    """A job's answer. A signal that another thread receives does not end this one's wait, so it looks up at times."""
    while not job.done():
        with suppress(TimeoutError):
            return job.result(SLICE_S)
    return job.result()


@contextmanager
def _team(size: int, halt: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """Threads that nobody else uses meanwhile; after an error or an interrupt they end, else they wait for more."""
    idle = _idle.setdefault(size, [])
    try:
        team = idle.pop()
    except IndexError:
        team = ThreadPoolExecutor(size, thread_name_prefix="simdnn")
    try:
        yield team
    except BaseException:
        halt.set()
        team.shutdown(cancel_futures=True)
        raise
    idle.append(team)


at_fork(after_in_child=_idle.clear)  # whose threads are not there
