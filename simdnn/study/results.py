"""Results of a study as they come: one line of JSON a point, in a file that may be cut off anywhere.

The first line says what the file is; of two lines with one key the later one holds, and a row that is null forgets the
key. Lines are only ever appended, each whole and under a lock of its own, so several studies may share a file. A last
line that was cut off, as by a kill or a full disk, is taken off the file and said; another one that is no row is left
out. Either way the point is computed again.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from isa_models import InvalidArgument, SimdnnError
from isa_models.errors import counted
from simdnn.study.points import Outcome, Stamp

try:
    import fcntl
except ImportError:  # Windows: lines are appended without a lock
    fcntl = None  # type: ignore[assignment]

_HEAD = b'{"results": "simdnn study", "format": 1}\n'
_LONGEST_LINE = 1 << 20  # bytes; a row has some hundreds
_PATIENCE_S = 30.0  # for the lock, which a study holds while it writes a line
_TEXTS = ("refused", "implementation", "compute_dtype", "bound", "confidence")  # the others are numbers
_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # which JSON has no words for


class Results:
    """The rows of a file by the keys of their points; `add` appends one. Without a path they are kept nowhere."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, Outcome] = {}
        self.unreadable = self.torn = self.written = 0  # lines that are no rows, bytes cut off, rows of this run
        self._end = 0  # of the file, when it had been read
        self._file: BinaryIO | None = None
        if path is None:
            return
        try:
            self._file = _opened(path)
            with _alone(self._file, path):
                self._begin(self._file, path)
        except OSError as error:
            self.close()
            raise InvalidArgument(
                f"results {str(path)!r} cannot be written: {error.strerror}; "
                "another path can be named (--results FILE.jsonl)"
            ) from None
        except SimdnnError:
            self.close()
            raise

    def _begin(self, file: BinaryIO, path: Path) -> None:
        """Read what is there, up to the last whole line, and write the head where nothing is."""
        if not _regular(file):  # a device, as /dev/null, keeps nothing
            _append(file, _HEAD)
            return
        with os.fdopen(os.dup(file.fileno()), "rb") as reader:
            start = reader.read(len(_HEAD))
            if not _HEAD.startswith(start):
                raise InvalidArgument(
                    f"{str(path)!r} holds something else than results of a study; another path "
                    "can be named (--results FILE.jsonl)"
                )
            end = len(_HEAD) if start == _HEAD else 0
            for line in _lines(reader):
                found = _row(line)
                if found is None and not line.endswith(b"\n"):
                    self.torn = reader.tell() - end
                    break
                end = reader.tell()
                self._note(found)
        if self.torn or not end:
            file.truncate(end)
        if not end:
            _append(file, _HEAD)
        self._end = os.fstat(file.fileno()).st_size

    def _note(self, line: tuple[str, Outcome | None] | None) -> None:
        if line is None:
            self.unreadable += 1
        elif line[1] is None:
            self.known.pop(line[0], None)
        else:
            self.known[line[0]] = line[1]

    @property
    def losses(self) -> list[str]:
        """The lines that the file has lost, one each."""
        found = []
        if self.torn:
            found.append(f"the last line of {self.path} was cut off: {counted(self.torn, 'byte')} dropped")
        if self.unreadable:
            found.append(f"left out: {counted(self.unreadable, 'line')} of {self.path} that cannot be read")
        return found

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the rows of some points, in the file too; those of others stay, and what is written meanwhile."""
        gone = [key for key in keys if self.known.pop(key, None)]
        records = [{"key": key, "row": None} for key in gone]
        self._write(records, clear=0 if self.known else self._end)

    def add(self, key: str, outcome: Outcome, point: Any) -> None:
        """Note a point's outcome; one that failed is for this run alone. `SimdnnError` where it cannot be written."""
        self.known[key] = outcome
        if outcome.failed:
            return
        row = {name: _written(value) for name, value in outcome.row.items()}
        self._write([{"key": key, "stamp": outcome.stamp, "point": point, "row": row}])
        self.written += 1

    def _write(self, records: Iterable[Any], clear: int = 0) -> None:
        """Append records; or drop all lines instead, where the file still ends at `clear`."""
        if self._file is None or self.path is None:
            return
        lines = b"".join(json.dumps(record, allow_nan=False).encode() + b"\n" for record in records)
        try:
            with _alone(self._file, self.path):
                if not os.fstat(self._file.fileno()).st_nlink:
                    raise SimdnnError(
                        f"results {str(self.path)!r} were removed or replaced while the study ran: "
                        f"{self.written} points that it had written are lost"
                    )
                if clear and os.fstat(self._file.fileno()).st_size == clear:
                    self._file.truncate(len(_HEAD))
                elif lines:
                    _append(self._file, lines)
        except OSError as error:
            raise self._full(error) from None

    def _full(self, error: OSError) -> SimdnnError:
        return SimdnnError(
            f"results {str(self.path)!r} cannot be written on: {error.strerror}. {self.written} points of this run "
            "are kept there, the one that has just been computed is lost; what is missing is run the next time"
        )

    def has(self, key: str, stamp: Stamp) -> bool:
        """Whether a point is known as it would be computed now."""
        return key in self.known and self.known[key].stamp == stamp

    def close(self) -> None:
        """Close the file; `SimdnnError` where the disk did not take what was written."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with file:
                if self.written and _regular(file):
                    os.fsync(file.fileno())
        except OSError as error:
            raise SimdnnError(f"results {str(self.path)!r} may lack rows: {error.strerror}") from None


# -- lines -------------------------------------------------------------------------------------------------------------


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file; of a line that is too long to be a row only the first byte and the last part."""
    while line := file.readline(_LONGEST_LINE):
        part = line
        while len(part) == _LONGEST_LINE and not part.endswith(b"\n"):
            part = file.readline(_LONGEST_LINE)
            line = line[:1] + part
        yield line


def _row(line: bytes) -> tuple[str, Outcome | None] | None:
    """A line's key and row, which is None where the key is forgotten; None for what is neither."""
    try:
        record = json.loads(line)
        key, row = record["key"], record["row"]
        if isinstance(key, str) and row is None:
            return key, None
        stamp = record["stamp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(key, str) and isinstance(stamp, dict) and isinstance(row, dict) and "refused" in row):
        return None
    found = {name: _NUMBERS.get(str(value), value) for name, value in row.items()}
    return (key, Outcome(found, stamp)) if all(map(_fits, found, found.values())) else None


def _fits(name: str, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    return value is None or isinstance(value, (int, float))


def _written(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# -- the file ----------------------------------------------------------------------------------------------------------


def _opened(path: Path) -> BinaryIO:
    """The file for reading, and for appending at its end whoever else writes; it is made where there is none."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a NUL character in its name")
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISDIR(mode)):  # of a folder, open says it
            raise OSError(errno.EINVAL, "it is a pipe, a socket or a disk; a file is needed")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)


@contextmanager
def _alone(file: BinaryIO, path: Path) -> Iterator[None]:
    """Hold the file's lock, so that no other study writes meanwhile; without one where the system has none."""
    held = _locked(file, path)
    try:
        yield
    finally:
        if held:
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)


def _locked(file: BinaryIO, path: Path) -> bool:
    """Whether there is a lock, which this process has now. `SimdnnError` where another one keeps it."""
    if fcntl is None:
        return False
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                raise SimdnnError(
                    f"results {str(path)!r} have been locked by another process for {_PATIENCE_S:g} "
                    "seconds; another path can be named (--results FILE.jsonl)"
                ) from None
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return False


def _append(file: BinaryIO, content: bytes) -> None:
    """All of some lines at the end of the file, or nothing of them and the `OSError`."""
    end = os.fstat(file.fileno()).st_size
    if _regular(file) and end:
        file.seek(end - 1)
        if file.read(1) != b"\n":  # another study was killed at its line
            content = b"\n" + content
    left = memoryview(content)
    try:
        while left:  # a disk that is nearly full takes a part
            if not (taken := file.write(left)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left = left[taken:]
    except BaseException:
        if _regular(file):
            file.truncate(end)
        raise


def _regular(file: BinaryIO) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
