"""Worker processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process

from isa_models import SimdnnError


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """So many worker processes, which end with this one, also where it is killed or interrupted."""
    # spawn: forking a process that has threads (BLAS, engines) may leave their locks held
    executor = ProcessPoolExecutor(workers, get_context("spawn"), _begin)
    try:
        yield executor
    except BrokenProcessPool:
        raise SimdnnError("a worker process died, perhaps out of memory; fewer layers at once need less") from None
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
