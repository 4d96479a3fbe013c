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
_MOST = 64  # files of a folder; a machine's table takes 300 KB, and who edits one makes another each time
_MOST_CODE = 512  # of machine code of kernels
_LEFT, _OF = 7, 8  # the part of the files that stays where there is one too many: the age of all takes 5 ms to find
CODE = "code"  # the folder of that


def kept(name: str, folder: str = "") -> bytes | None:
    """The data that was kept under a name, if they are whole and nobody else may have written them."""
    try:
        file = _folder() / folder / name
        if not _own(file.stat()):
            return None
        data = file.read_bytes()
        with suppress(OSError):
            os.utime(file)  # asked for just now
    except (OSError, RuntimeError):  # no home
        return None
    found, check = data[:-_CHECK], data[-_CHECK:]
    return found if hashlib.sha256(found).digest() == check else None


def keep(name: str, data: bytes, folder: str = "") -> None:
    """Keep data for the next process, where there is a place to write to."""
    most = _MOST_CODE if folder == CODE else _MOST
    try:
        place = _folder() / folder
        place.mkdir(parents=True, exist_ok=True)
        _write(place / name, data + hashlib.sha256(data).digest())
        if len(os.listdir(place)) > most:
            files = [one for one in place.iterdir() if one.is_file()]  # other folders lie beside them
            for old in sorted(files, key=lambda one: one.stat().st_mtime_ns)[: -most * _LEFT // _OF]:
                old.unlink(missing_ok=True)
    except (OSError, RuntimeError):  # no home, or another process that makes room at the same time
        pass


def _write(path: Path, data: bytes) -> None:
    """A file at once, or none: another process may write the same one, and a disk may be full."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        written = Path(file.name)
        try:
            file.write(data)
            file.close()
            written.replace(path)
        except BaseException:
            file.close()
            written.unlink(missing_ok=True)
            raise


def _own(status: os.stat_result) -> bool:
    """Whether a file is this user's, who alone may write to it: machine code of another one is not run."""
    return not hasattr(os, "getuid") or status.st_uid == os.getuid() and not status.st_mode & 0o022


def _folder() -> Path:
    """Where programs of a user keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simdnn"
