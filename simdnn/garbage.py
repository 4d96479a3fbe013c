"""When Python looks for garbage: seldom in the package's own processes, and never while an estimate is made, or what it
needs is imported and read.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_put_aside = False  # whether a user of `gc.freeze` was met
_AFTER = 10_000  # new objects; Python's own 700 are fewer than one program has


def collect_seldom() -> None:
    """Look for cycles of objects less often: estimates leave none behind, and each look walks over all that is kept.

    It holds for the whole process, so it is no business of a library that others import.
    """
    gc.set_threshold(_AFTER)


@contextmanager
def collected_later() -> Iterator[None]:
    """Look for no garbage within, which is some milliseconds that leave none; as it was before behind that.

    What is kept of it counts as old from then on, without a look at each object: Python would walk over all of them
    several times, and find nothing. What others have made before is looked at first.
    """
    if not gc.isenabled():
        yield
        return
    if alone := _is_alone():
        gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if alone and _is_alone():
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.enable()


def _is_alone() -> bool:
    """Whether all young objects are this thread's, and nobody has put any aside for good."""
    global _put_aside
    if _put_aside or threading.active_count() > 1:
        return False
    _put_aside = gc.get_freeze_count() > 0  # which walks over them
    return not _put_aside
