"""Results of a study as they come: one line of JSON a point, in a file that may be cut off anywhere.

The first line says what the file is. A line that is no JSON, as the last one of a run that was killed, is left out and
its point computed again; of two lines with one key the later one holds.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, BinaryIO

from isa_models import InvalidArgument
from simdnn.study.points import Outcome, Stamp

_HEAD = b'{"results": "simdnn study", "format": 1}\n'
_TEXTS = ("refused", "implementation", "compute_dtype", "bound", "confidence")  # the others are numbers
_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # which JSON has no words for


class Results:
    """The rows of a file by the keys of their points; `add` appends one. Without a path they are kept nowhere."""

    def __init__(self, path: Path | None, fresh: bool = False) -> None:
        self.path = path
        self.known: dict[str, Outcome] = {}
        self.unreadable = 0
        self._file: BinaryIO | None = None
        if path is None:
            return
        try:
            self._open(path, fresh)
        except OSError as error:
            raise InvalidArgument(f"results {str(path)!r} cannot be written: {error.strerror}; "
                                  "another path can be named (--results FILE.jsonl)") from None  # fmt: skip

    def _open(self, path: Path, fresh: bool) -> None:
        content = path.read_bytes() if path.exists() else b""
        if not content.startswith(_HEAD) and not _HEAD.startswith(content):
            raise InvalidArgument(f"{str(path)!r} holds something else than results of a study; another path "
                                  "can be named (--results FILE.jsonl)")  # fmt: skip
        begun = len(content) >= len(_HEAD) and not fresh
        if begun:
            lines = content.split(b"\n")[1:]
            for line in filter(None, lines):
                self._read(line)
        self._file = path.open("ab" if begun else "wb", buffering=0)
        self._file.write((b"" if content.endswith(b"\n") else b"\n") if begun else _HEAD)

    def _read(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            key, stamp, row = record["key"], record["stamp"], record["row"]
        except (ValueError, KeyError, TypeError, RecursionError):
            self.unreadable += 1
            return
        good = isinstance(key, str) and isinstance(stamp, dict) and isinstance(row, dict) and "refused" in row
        found = {name: _NUMBERS.get(str(value), value) for name, value in row.items()} if good else {}
        if not good or not all(map(_fits, found, found.values())):
            self.unreadable += 1
            return
        self.known[key] = Outcome(found, stamp)

    def add(self, key: str, found: Outcome, point: Any) -> None:
        """Note a point's outcome; one that failed is for this run alone."""
        self.known[key] = found
        if self._file is None or found.failed:
            return
        row = {name: _written(value) for name, value in found.row.items()}
        record = {"key": key, "stamp": found.stamp, "point": point, "row": row}
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")

    def has(self, key: str, stamp: Stamp) -> bool:
        """Whether a point is known as it would be computed now."""
        return key in self.known and self.known[key].stamp == stamp

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _fits(name: str, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    return value is None or isinstance(value, (int, float))


def _written(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
