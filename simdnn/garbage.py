"""How often Python looks for garbage, in processes that are the package's own: the command, and workers."""

from __future__ import annotations

import gc

_AFTER = 10_000  # new objects; Python's own 700 are fewer than one program has


def collect_seldom() -> None:
    """Look for cycles of objects less often: estimates leave none behind, and each look walks over all that is kept.

    It holds for the whole process, so it is no business of a library that others import.
    """
    gc.set_threshold(_AFTER)
