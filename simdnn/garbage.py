"""When Python looks for garbage: seldom in the package's own processes, and never while an estimate is made, or what it
needs is imported and read.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_AFTER = 10_000  # new objects; Python's own 700 are fewer than one program has


def collect_seldom() -> None:
    """Look for cycles of objects less often: estimates leave none behind, and each look walks over all that is kept.

    It holds for the whole process, so it is no business of a library that others import.
    """
    gc.set_threshold(_AFTER)


@contextmanager
def collected_later() -> Iterator[None]:
    """Look for no garbage within, which is some milliseconds that leave none; as it was before behind that."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
