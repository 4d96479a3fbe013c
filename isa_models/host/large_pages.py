"""Python's objects in large pages of memory, where Linux has such: who walks over many kept ones finds them sooner.

An object takes some hundred bytes, and those that a search asks for lie anywhere among a hundred megabytes. In pages of
4 KiB the processor looks up nearly each of their addresses anew, in a guest of another system in two tables at once.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_COLLAPSE = 25  # MADV_COLLAPSE, from Linux 6.1 on; what knows it not refuses it
_STEP = 8  # from one object that is looked at to the next
_CROWDED = 64  # of those in a large page that is worth its room: a twentieth of what it holds
_MOST = 64  # pages that are made at once: each is copied, and a caller may have gigabytes of objects of its own
_LONGEST = 0.2  # seconds: where memory is in small pieces Linux first moves what others have (2 s for 55 pages)


def gather() -> int:
    """Move the blocks of memory with most of Python's objects, up to 64, into large pages: how many are there now.

    Nothing else changes: an object stays at its address. Where the system is set to have no such pages, none are made.
    """
    size = _size()
    if not size:
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    blocks = Counter([id(one) // size for one in gc.get_objects()[::_STEP]])
    crowded = [block for block, objects in blocks.most_common(_MOST) if objects >= _CROWDED]
    moved, end = 0, time.monotonic() + _LONGEST
    for block in crowded:
        if time.monotonic() > end:
            break
        moved += advise(block * size, size, _COLLAPSE) == 0
    return moved


def _size() -> int:
    """Bytes of a large page; 0 where there are none."""
    with suppress(OSError, ValueError):
        if sys.platform == "linux" and "[never]" not in (_SETTINGS / "enabled").read_text():
            return int((_SETTINGS / "hpage_pmd_size").read_text())
    return 0
