"""Paths that are no ordinary files: what they are, and pipes to which nobody writes."""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path

_WAIT_S = 5.0  # that a writer of a pipe has to come


def no_file(path: Path) -> str:
    """Words for a path that is no file to read: a folder, a device or a pipe, or not there.

    >>> no_file(Path("/dev/null")), no_file(Path("/")), no_file(Path("/nobody/here"))
    ('a device or a pipe', 'a folder', 'not there')
    """
    return "a folder" if path.is_dir() else "a device or a pipe" if path.exists() else "not there"


def refuse(path: Path) -> None:
    """Raises `OSError` for a device or a pipe, which may never end; what is not there, or a folder, others tell."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, f"it is {no_file(path)}")


def content(path: Path, most: int) -> bytes:
    """Up to `most` bytes of a file or a pipe; `OSError` for a pipe by which nobody has come to write."""
    if not (hasattr(os, "O_NONBLOCK") and stat.S_ISFIFO(path.stat().st_mode)):
        with path.open("rb") as file:
            return file.read(most)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # where open would wait for a writer
    first = b""
    with os.fdopen(pipe, "rb") as file:
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        if not ready.poll(_WAIT_S * 1000):
            try:
                first = os.read(pipe, 1)
            except BlockingIOError:  # a writer is there and takes its time
                pass
            else:
                if not first:
                    raise OSError(errno.EPIPE, f"it is a pipe, and nobody has written to it for {_WAIT_S:g} s")
        os.set_blocking(pipe, True)
        return first + file.read(most - len(first))
