"""Files that one process makes and others can use, in the user's cache folder under a digest of their sources.

They are bounded in number: those that nobody has asked for the longest go first.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_CHECK = 32  # bytes of a digest behind the data: a file that was cut off is none
_MOST = 64  # files; a machine's table takes 300 KB, and who edits one makes another each time


def kept(name: str) -> bytes | None:
    """The data that was kept under a name, if they are whole."""
    try:
        data = (file := _folder() / name).read_bytes()
        with suppress(OSError):
            os.utime(file)  # asked for just now
    except (OSError, RuntimeError):  # no home
        return None
    found, check = data[:-_CHECK], data[-_CHECK:]
    return found if hashlib.sha256(found).digest() == check else None


def keep(name: str, data: bytes) -> None:
    """Keep data for the next process, where there is a place to write to."""
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data + hashlib.sha256(data).digest())
        Path(file.name).replace(folder / name)
        files = [one for one in folder.iterdir() if one.is_file()]  # what is fetched lies in a folder beside them
        for old in sorted(files, key=lambda one: one.stat().st_mtime_ns)[:-_MOST]:
            old.unlink(missing_ok=True)
    except (OSError, RuntimeError):  # no home, or another process that makes room at the same time
        pass


def _folder() -> Path:
    """Where programs of a user keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simdnn"
