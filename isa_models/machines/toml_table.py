"""Typed access to a TOML file whose every figure carries a source and a confidence.

A figure is an inline table ``{value = 6, source = "…", confidence = "documented"}``. A source may start with a key of
the file's ``[sources]`` and a colon, which `content` spells out.
"""

from __future__ import annotations

import hashlib
import marshal
import re
import reprlib
import sys
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from isa_models.errors import MachineFileError, nearest
from isa_models.host.file_cache import keep, kept
from isa_models.host.pipes import no_file
from isa_models.machines.provenance import CONFIDENCES, Confidence, Provenance

_MISSING = object()
MOST_FILE = 1 << 24  # bytes; a table of all instructions has one of 600 KB
_LONG = 1 << 16  # bytes of a file that takes longer to parse than to find again
_MOST_PARTS = 32  # of a dotted key; tomllib's time goes with their square
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*+{_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS}}}", re.MULTILINE)


def broken(path: Path, key: str, expected: str, met: object) -> MachineFileError:
    """The error of one key, or of all of a file where there is none, in one line."""
    shown = "nothing" if met is None or met is _MISSING else _SHOWN.repr(met)
    place = f"key {key[:_LONGEST]!r}: " if key else ""
    return MachineFileError(f"{path}: {place}expected {expected}, met {shown}")


class _Shown(reprlib.Repr):
    """Values cut to a line's part; a number with thousands of digits has no repr of its own."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 4 * _LONGEST else f"a number of {x.bit_length()} bits"


_LONGEST = 80
_SHOWN = _Shown()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = _LONGEST


class Table:
    """One TOML table under its dotted key: typed access; `close` refuses keys that nobody asked for."""

    def __init__(self, reader: Reader, key: str, data: object) -> None:
        self.reader, self.key = reader, key
        if not isinstance(data, dict):
            raise broken(reader.path, key, "a table", data)
        self.data: dict[str, object] = data
        self.asked: set[str] = set()
        self.inside: list[Table] = []

    def path(self, key: str) -> str:
        return f"{self.key}.{key}" if self.key else key

    def error(self, key: str, expected: str, met: object) -> MachineFileError:
        return broken(self.reader.path, self.path(key), expected, met)

    def raw(self, key: str) -> object:
        self.asked.add(key)
        return self.data.get(key, _MISSING)

    def has(self, key: str) -> bool:
        return self.raw(key) is not _MISSING

    def text(self, key: str) -> str:
        value = self.raw(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, "a non-empty string", value)
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where the key is left out."""
        value = self.raw(key) if self.has(key) else False
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def number(self, key: str, least: float = 0.0, most: float = 1e15, default: float | None = None) -> float:
        """A number; `default`, where one is given, for a key that is left out. So with the other kinds."""
        if default is not None and not self.has(key):
            return default
        return self.number_of(key, self.raw(key), least, most)

    def number_of(self, key: str, value: object, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.error(key, f"a number from {least:g} to {most:g}", value)
        return value

    def integer(self, key: str, least: int = 0, most: int = 10**15, default: int | None = None) -> int:
        if default is not None and not self.has(key):
            return default
        return self.integer_of(key, self.raw(key), least, most)

    def integer_of(self, key: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"a whole number from {least} to {most}", value)
        return value

    def strings(self, key: str, allowed: Sequence[str] | None = None) -> tuple[str, ...]:
        return self.strings_of(key, self.raw(key), allowed)

    def strings_of(self, key: str, value: object, allowed: Sequence[str] | None) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, "a list of non-empty strings", value)
        for item in value:
            if allowed is not None and item not in allowed:
                raise self.error(key, f"only names among {', '.join(allowed)}", item)
        return tuple(value)

    def table(self, key: str) -> Table:
        return self._opened(self.path(key), self.raw(key))

    def tables(self, key: str) -> list[Table]:
        """A non-empty array of tables, each under the key `KEY[i]`."""
        value = self.raw(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, "a non-empty array of tables", value)
        return [self._opened(self.path(f"{key}[{i}]"), item) for i, item in enumerate(value)]

    def _opened(self, key: str, data: object) -> Table:
        found = Table(self.reader, key, data)
        self.inside.append(found)
        return found

    def confidence(self) -> Confidence:
        """How far this table's own figures are to be trusted."""
        met = self.raw("confidence")
        for known in CONFIDENCES:
            if met == known:
                return known
        raise self.error("confidence", f"one of {', '.join(CONFIDENCES)}", met)

    def provenance(self, key: str | None = None) -> Provenance:
        """This table's own source and confidence; noted under `key` (its own key where None)."""
        confidence = self.confidence()
        found = self.reader.cite(self.text("source"), confidence)
        self.reader.provenance[self.key if key is None else key] = found
        return found

    def figure(self, key: str) -> object:
        """The value of a figure, its source and confidence noted."""
        if not isinstance(met := self.raw(key), dict):
            raise self.error(key, 'a figure {value = …, source = "…", confidence = "…"}', met)
        inner = self.table(key)
        inner.provenance()
        return inner.raw("value")

    def figure_number(self, key: str, least: float = 0.0, most: float = 1e15, default: float | None = None) -> float:
        if default is not None and not self.has(key):
            return default
        return self.number_of(f"{key}.value", self.figure(key), least, most)

    def figure_integer(self, key: str, least: int = 1, most: int = 10**15, default: int | None = None) -> int:
        if default is not None and not self.has(key):
            return default
        return self.integer_of(f"{key}.value", self.figure(key), least, most)

    def figure_strings(
        self, key: str, allowed: Sequence[str] | None = None, default: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        if default is not None and not self.has(key):
            return default
        return self.strings_of(f"{key}.value", self.figure(key), allowed)

    def figure_flag(self, key: str) -> bool:
        value = self.figure(key)
        if not isinstance(value, bool):
            raise self.error(f"{key}.value", "true or false", value)
        return value

    def figure_among(self, key: str, names: Sequence[str]) -> str:
        """One of the names; the first where nothing is said."""
        value = self.figure(key) if self.has(key) else names[0]
        if value not in names:
            raise self.error(f"{key}.value", f"one of {', '.join(names)}", value)
        return str(value)

    def close_all(self) -> None:
        """Refuse keys that the schema doesn't know, here and in all tables that were read from here."""
        for table in self.inside:
            table.close_all()
        self.close()

    def close(self) -> None:
        """Refuse keys that the schema doesn't know; the tables inside are their readers' own matter."""
        for key in self.data:
            if key not in self.asked:
                near = nearest(key, self.asked)
                hint = f"{near[0]!r}" if near else f"one of {', '.join(sorted(self.asked))}"
                raise broken(self.reader.path, self.path(key), f"a key of the schema ({hint})", key)


class Reader:
    """The state that the tables of one file share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.provenance: dict[str, Provenance] = {}
        self._cited: dict[tuple[str, Confidence], Provenance] = {}

    def cite(self, source: str, confidence: Confidence) -> Provenance:
        """The `Provenance` of a source; equal ones are one object."""
        key = (source, confidence)
        if key not in self._cited:
            self._cited[key] = Provenance(source, confidence)
        return self._cited[key]


def table_of(path: Path, data: dict[str, object]) -> Table:
    """A machine file's content, read already, as a table with its ``[sources]`` checked; `path` stands in errors."""
    top = Table(Reader(path), "", data)
    sources = top.table("sources")
    for key in sources.data:
        sources.text(key)
    return top


def read_toml(path: Path) -> dict[str, object]:
    """A TOML file's content; `MachineFileError` for a file that is not TOML."""
    try:
        if not path.is_file():
            raise MachineFileError(f"{path} is {no_file(path)}; a TOML file is needed")
        if (size := path.stat().st_size) > MOST_FILE:
            raise broken(path, "", f"at most {MOST_FILE} bytes", size)
        return _parsed(path, path.read_bytes())
    except MachineFileError:
        raise
    except OSError as error:
        raise broken(path, "", "a readable file", error.strerror) from error
    except RecursionError as error:
        raise broken(path, "", "TOML", "tables too deep in each other") from error
    except UnicodeDecodeError as error:
        met = f"byte {error.start} is {error.object[error.start]:#04x}"
        raise broken(path, "", "TOML, which is text in UTF-8", met) from error
    except ValueError as error:  # no TOML, or a number that Python does not read
        raise broken(path, "", "TOML", str(error)) from error


def _parsed(path: Path, raw: bytes) -> dict[str, object]:
    """The content of a file's bytes; that of a long file is kept for other processes, as Python's bytecode is."""
    name = f"{hashlib.sha256(raw).hexdigest()[:32]}.toml.{sys.implementation.cache_tag}"
    if len(raw) >= _LONG and (data := kept(name)) is not None:
        found: dict[str, object] = marshal.loads(data)
        return found
    text = raw.decode("utf-8-sig")
    if met := _LONG_KEY.search(text):
        raise broken(path, met[0], f"at most {_MOST_PARTS} parts of a dotted key", "more")
    found = tomllib.loads(text)
    if len(raw) >= _LONG:
        with suppress(ValueError):  # marshal takes no date and no time
            keep(name, marshal.dumps(found))
    return found
