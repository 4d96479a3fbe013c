"""Differences from a machine's content: other figures, rows of instructions added or replaced, anything removed.

A figure is named by its dotted key. Rows of a table go by what tells them apart: ``caches.L3.…``, ``dram.gb_s_core``,
``core.load.512.pipes``, ``core.store.general.64.commit_cycles``, ``core.scheduler.FP.size``. Of instructions a pattern
of mnemonics (as in a shell), or of mnemonic and form, names all that match: ``instructions.vpdp*.uops``,
``instructions.* zmm,*.occupancy``; ``instructions.rows`` is a list of rows to add, or to put in place of those of the
same forms; ``remove`` is a list of keys. Removals come first, rows second, then all else by the alphabet.

A value stands alone, or with its source: ``{value = 8, source = "…", confidence = "documented"}``, of a row with one
source ``{pipes = 1, source = "…", confidence = "…"}``. One that stands alone counts as estimated, and its source says
what it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

from isa_models.errors import InvalidArgument, UnknownName, unknown_name
from isa_models.machines.rows import Key, keys, single

Content = dict[str, Any]
Parts = tuple[str, ...]

MOST_KEY = 200  # characters; the time of a pattern may grow as a power of its length
_PLAIN = ("isa",)  # keys of a file whose values are no figures
_OPTIONAL = ("numerics", "launch", "systolic_ops", "full_load_ghz")  # tables that a file may leave out
_STANDING = ("source", "confidence")
_ROW_FIELDS = ("latency", "slots", "uops", "occupancy", "interval", "accumulator_latency", "eliminated")
_REMOVE, _INSTRUCTIONS, _ROWS = "remove", "instructions", "rows"


def differences(tree: Mapping[str, Any], parts: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """The dotted keys of tables in each other, with their values.

    >>> list(differences({"core": {"load": {"512": {"pipes": 1}}}}))
    [(('core', 'load', '512', 'pipes'), 1)]
    """
    for name, value in tree.items():
        key = (*parts, str(name))
        if isinstance(value, Mapping) and not {"value", *_STANDING} & value.keys():
            yield from differences(value, key)
        else:
            yield key, value


def applied(base: str, content: Content, changes: Iterable[tuple[Parts, Any]]) -> Content:
    """A copy of machine `base`'s content with other figures.

    Raises `InvalidArgument` or `UnknownName` for a key that the machine doesn't have and for a pattern that matches no
    instruction. Whether the schema knows the key and takes the value is found when the content is read.
    """
    found = {key: value if key == _INSTRUCTIONS else deepcopy(value) for key, value in content.items()}
    change = _Change(base, found)
    for parts, value in sorted(changes, key=_turn):
        if len(key := ".".join(parts)) > MOST_KEY:
            raise InvalidArgument(f"figure {key!r:.80}; a dotted key of at most {MOST_KEY} characters is needed")
        if parts == (_REMOVE,):
            change.remove(value)
        elif parts[0] == _INSTRUCTIONS and isinstance(found.get(_INSTRUCTIONS), dict):
            change.instructions(parts, value)
        else:
            change.figure(parts, value)
    return found


def _turn(change: tuple[Parts, Any]) -> tuple[bool, bool, Parts]:
    parts = change[0]
    return parts != (_REMOVE,), parts != (_INSTRUCTIONS, _ROWS), parts


class _Change:
    """Changes one content in place; its rows of instructions, which others may share, are replaced."""

    def __init__(self, base: str, content: Content) -> None:
        self.base, self.content = base, content

    # -- figures and tables

    def figure(self, parts: Parts, value: Any) -> None:
        """Replace one figure, or a row's values with one source."""
        holder, last, key = *self._place(parts), ".".join(parts)
        old = holder[last] if isinstance(holder, list) else holder.get(last)
        stated = isinstance(value, Mapping)
        if _is_rows(old) and _is_rows(value):
            for row in value:
                self._row(parts, old, row)
        elif stated and "value" not in value and isinstance(old, dict) and "source" in old and "value" not in old:
            holder[last] = {name: inner for name, inner in old.items() if name not in _STANDING} | value
        elif old is None and _is_rows(value):
            holder[last] = value
        elif isinstance(old, dict) and "value" not in old or _is_rows(old):
            inner = old if isinstance(old, dict) else map(_identity, old)
            allowed = ", ".join(f"{key}.{name}" for name in inner if name not in _STANDING)
            raise InvalidArgument(f"figure {key!r} of {self.base} is a table; allowed: {allowed}")
        elif stated or holder is self.content and last in _PLAIN:
            holder[last] = value
        elif "source" in holder:  # a row, whose values have one source
            holder |= {last: value} | _standing(holder, str(last), old)
        else:
            old = old if isinstance(old, dict) else {}
            holder[last] = {"value": value} | _standing(old, "", old.get("value"))

    def _row(self, parts: Parts, rows: list[Any], row: Mapping[str, Any]) -> None:
        """A row of a table: what differs in the one of its name, or one more."""
        name = _identity(row)
        if name not in map(_identity, rows):
            rows.append(row)
            return
        own = {key: value for key, value in row.items() if key not in ("name", "bits", "general")}
        for inner, value in differences({name: own}):
            self.figure((*parts, *name.split("."), *inner[1:]), value)

    def _place(self, parts: Parts) -> tuple[Any, Any]:
        """The table in which a dotted key's figure lies, and its name there; of a row its list and index."""
        inner: Any = self.content
        rest, key = parts, ".".join(parts)
        while len(rest) > 1 or isinstance(inner, list):
            if isinstance(inner, list):
                index, count = self._index(inner, rest, parts)
                if len(rest) == count:
                    return inner, index
                inner, rest = inner[index], rest[count:]
                continue
            found = inner.get(rest[0])
            if found is None and rest[0] in _OPTIONAL:
                found = inner[rest[0]] = {}
            if isinstance(found, dict) and "value" in found:
                raise InvalidArgument(
                    f"figure {key!r} of {self.base}: {rest[0]!r} is a figure itself, without {rest[1]!r}"
                )
            if not isinstance(found, dict) and not _is_rows(found):
                tables = [name for name, one in inner.items() if isinstance(one, (dict, list)) and name != "sources"]
                raise unknown_name(f"part of the figure {key!r} of {self.base}:", rest[0], tables)
            inner, rest = found, rest[1:]
        return inner, rest[0]

    def _index(self, rows: list[Any], rest: Parts, parts: Parts) -> tuple[int, int]:
        """Which row the rest of a key names, and how many of its parts do so."""
        for index, row in enumerate(rows):
            name = tuple(_identity(row).split("."))
            if rest[: len(name)] == name:
                return index, len(name)
        raise InvalidArgument(
            f"figure {'.'.join(parts)!r} of {self.base}: {parts[-len(rest) - 1]!r} is an array of tables; what follows "
            f"names one, and a figure of it: {', '.join(map(_identity, rows))}"
        )

    def remove(self, names: object) -> None:
        """Take figures, tables, and rows away."""
        if not isinstance(names, list) or not all(isinstance(name, str) and len(name) <= MOST_KEY for name in names):
            raise InvalidArgument(
                f"remove={names!r:.80}; a list of dotted keys is needed, e.g. ['frequency.avx512_ghz']"
            )
        for name in names:
            parts = tuple(name.split("."))
            if parts[0] == _INSTRUCTIONS and len(parts) > 1:
                self._each(".".join(parts[1:]), name, lambda row: None)
                continue
            holder, last = self._place(parts)
            if isinstance(holder, dict) and last not in holder:
                raise unknown_name(f"figure to remove from {self.base}:", name, holder)
            del holder[last]

    # -- rows of instructions

    @property
    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.content[_INSTRUCTIONS].get(_ROWS, [])
        return found

    @rows.setter
    def rows(self, rows: list[dict[str, Any]]) -> None:
        self.content[_INSTRUCTIONS] = {_ROWS: rows}

    def instructions(self, parts: Parts, value: Any) -> None:
        """Rows of their own, one field of all rows that a pattern matches, or several fields with their source."""
        if parts == (_INSTRUCTIONS, _ROWS):
            self._add(value)
            return
        stated = isinstance(value, Mapping)
        pattern, name = ".".join(parts[1:] if stated else parts[1:-1]), parts[-1]
        fields = [field for field in value if field not in _STANDING] if stated else [name]
        key = ".".join(parts)
        if not pattern or not set(fields) <= set(_ROW_FIELDS):
            known = ", ".join(_ROW_FIELDS)
            raise InvalidArgument(f"figure {key!r}; instructions.PATTERN.FIELD is needed, FIELD of {known}")

        def change(row: Mapping[str, Any]) -> dict[str, Any]:
            if stated:
                return {field: old for field, old in row.items() if field not in _STANDING} | dict(value)
            return {**row, name: value} | _standing(row, name, row.get(name))

        self._each(pattern, key, change)

    def _add(self, rows: Any) -> None:
        if not _is_rows(rows) or not all(keys(row) for row in rows):
            raise InvalidArgument(
                f"instructions.rows={rows!r:.80}; a list of rows is needed, e.g. {{mnemonic = 'vpdpbssd', "
                "form = 'ymm,ymm,ymm', latency = 4, slots = 1, uops = [['FP0']]}"
            )
        said = {"source": "what if: a row of its own", "confidence": "estimated"}
        own = [dict(row) if set(_STANDING) & row.keys() else {**row, **said} for row in rows]
        taken = {key for row in own for key in keys(row)}
        self.rows = [*_split(self.rows, taken.__contains__, lambda row: None), *own]

    def _each(self, pattern: str, key: str, change: Callable[[Mapping[str, Any]], dict[str, Any] | None]) -> None:
        def matches(key: Key) -> bool:
            return fnmatchcase(" ".join(key) if " " in pattern else key[0], pattern)

        rows = self.rows
        self.rows = _split(rows, matches, change)
        if len(self.rows) == len(rows) and all(one is other for one, other in zip(self.rows, rows, strict=True)):
            raise UnknownName(
                f"figure {key!r}: no instruction of {self.base} matches {pattern!r}; a mnemonic as 'vpdp*', "
                "or mnemonic and form as 'vpdp* zmm,*', is needed"
            )


def _split(
    rows: Iterable[dict[str, Any]],
    concerns: Callable[[Key], bool],
    change: Callable[[Mapping[str, Any]], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """The rows, with each form that `concerns` names changed, or left out where `change` gives None."""
    found: list[dict[str, Any]] = []
    for row in rows:
        mine = [key for key in keys(row) if concerns(key)]
        if not mine:
            found.append(row)
            continue
        parts = [row] if len(mine) == len(keys(row)) else [one for _, one in single(row)]
        changed = [change(one) if concerns(keys(one)[0]) else one for one in parts]
        found += [one for one in changed if one is not None]
    return found


def _is_rows(value: object) -> bool:
    """Whether a value is an array of tables."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _identity(row: Mapping[str, Any]) -> str:
    """A key that tells a row of an array of tables from the others."""
    return str(row["name"]) if "name" in row else f"{'general.' if row.get('general') else ''}{row.get('bits')}"


def _standing(old: Mapping[str, Any], name: str, value: object) -> dict[str, str]:
    """The source and confidence of a figure, or of a row in which `name` was replaced."""
    was = "not there" if value is None else json.dumps(value)
    before = f"{old['source']}; " if "source" in old else ""
    return {"source": f"{before}what if: {name or 'it'} was {was}", "confidence": "estimated"}
