"""Work that is counted, not timed: calls of functions, as many on a slow machine as on a fast one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import pytest


@dataclass
class Work:
    """Counts of the work done so far."""

    calls: int = 0


@contextmanager
def at_most(calls: int = sys.maxsize) -> Iterator[Work]:
    """Count calls of functions (of Python and of C) on this thread; one more than `calls` ends the test as failed.

    So what would take hours fails soon. Loops within C are not seen: what they must not be given, they are not called
    with.
    """
    done = Work()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            done.calls += 1
            if done.calls > calls:
                sys.setprofile(None)
                pytest.fail(f"more than {calls} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield done
    finally:
        sys.setprofile(before)
