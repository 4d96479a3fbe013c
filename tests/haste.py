"""Which code a test's programs get: runs of tests are short, and have code made in haste unless they ask otherwise."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from simdnn.numerics import compiled

_OPS = compiled.HASTY_OPS
_PLACES = "tests/numerics/", "tests/kernels/"  # whose tests are of programs' values
_ONE_IN = 8


@contextmanager
def code_of_long_runs() -> Iterator[None]:
    """Programs have the code that long runs get."""
    before, compiled.HASTY_OPS = compiled.HASTY_OPS, 0
    try:
        yield
    finally:
        compiled.HASTY_OPS = before


def choose(test: str, thorough: bool) -> None:
    """The code for programs of a test, by its name: one in eight of those that are of programs' values has that of long
    runs, and all have it in a thorough run.
    """
    better = thorough or test.startswith(_PLACES) and zlib.crc32(test.encode()) % _ONE_IN == 0
    compiled.HASTY_OPS = 0 if better else _OPS
