"""The processors of this machine that the process may use: fewer than all where it is bound to some."""

from __future__ import annotations

import os


def processors() -> int:
    """How many there are, at least 1; all of the machine where the system does not tell which are the process's own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
