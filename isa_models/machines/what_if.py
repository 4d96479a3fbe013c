"""Machines that don't exist: one that does, with some of its figures replaced.

    >>> wide = what_if("zen4", {"core.dispatch_slots": 8, "core.load.512.pipes": 1})
    >>> wide.core.dispatch_slots, wide.core.load(512).pipes, wide.confidence_of("core.dispatch_slots")
    (8, 1, 'estimated')

A figure is named by its dotted key in the machine's file. Rows of a table go by what tells them apart: ``caches.L3.…``,
``dram.gb_s_core``, ``core.load.512.pipes``, ``core.store.general.64.commit_cycles``, ``core.scheduler.FP.size``. Of
instructions a pattern of mnemonics (as in a shell), or of mnemonic and form, names all that match:
``instructions.vpdp*.uops``, ``instructions.* zmm,*.occupancy``. Every replaced figure counts as estimated, and its
source says what it was.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from isa_models.errors import InvalidArgument, MachineFileError, UnknownName, unknown_name
from isa_models.machines.cpu_record import Machine
from isa_models.machines.cpu_schema import machine_of
from isa_models.machines.gpu_record import GpuMachine
from isa_models.machines.gpu_schema import gpu_machine_of
from isa_models.machines.loader import AnyMachine, machine
from isa_models.machines.toml_table import read_toml, table_of

_LONGEST_KEY = 200  # characters; the time of a pattern may grow as a power of its length
_IDENTITY = ("name", "title", "vendor", "uarch", "platform", "sources")
_PORTS = ("core.ports", "core.load_ports")  # which rows of instructions are checked against
_OPTIONAL = ("numerics", "launch")  # tables that a file may leave out
_ROW_FIELDS = ("latency", "slots", "uops", "occupancy", "interval", "accumulator_latency", "eliminated")


def what_if(base: str | Path, figures: Mapping[str, object]) -> AnyMachine:
    """The machine of a name or file with other `figures` (dotted key -> value as its file would write it).

    Equal calls give one object. Raises `InvalidArgument` for a key that the machine's file can't have, a pattern that
    matches no instruction, and a value that its schema refuses; errors of `machine` for the base.
    """
    real = machine(base)
    if not isinstance(figures, Mapping):
        raise InvalidArgument(f"figures={figures!r:.80}; a dict is needed, e.g. {{'core.dispatch_slots': 8}}")
    if not figures:
        return real
    for key in figures:
        if not isinstance(key, str) or len(key) > _LONGEST_KEY:
            raise InvalidArgument(f"figure {key!r:.80}; a dotted key of at most {_LONGEST_KEY} characters is needed")
    try:
        written = json.dumps(dict(sorted(figures.items())))
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(f"figures={figures!r:.80}; numbers, texts, and lists of them are needed") from None
    return _what_if(real, written)


@functools.lru_cache(maxsize=1024)
def _what_if(base: AnyMachine, written: str) -> AnyMachine:
    figures: dict[str, object] = json.loads(written)
    title = ", ".join(f"{key} = {json.dumps(value)}" for key, value in figures.items())
    data = _copied(base.path)
    rows: list[dict[str, Any]] = data["instructions"]["rows"] if isinstance(base, Machine) else []
    changed: dict[int, dict[str, Any]] = {}
    for key, value in figures.items():
        if key.startswith("instructions.") and rows:
            _change_rows(base, rows, changed, key, value)
        else:
            _change(base, data, key, value)
    if rows:
        # reading all rows takes most of the time, so only those that changed are read, unless ports have changed
        every = any(key in _PORTS for key in figures)
        data["instructions"] = {"rows": [changed.get(i, row) for i, row in enumerate(rows) if every or i in changed]}
        if not data["instructions"]["rows"]:
            del data["instructions"]
    try:
        top = table_of(Path(f"{base.name} with {title}"), data)
        if isinstance(base, GpuMachine):
            found: AnyMachine = gpu_machine_of(top, base.path)
        else:
            found = machine_of(top, base.path, base)
    except MachineFileError as error:
        raise InvalidArgument(str(error)) from None
    return replace(found, name=f"{base.name} with {title}")


@functools.lru_cache(maxsize=16)
def _content(path: Path, changed_ns: int) -> dict[str, Any]:
    return read_toml(path)


def _copied(path: Path) -> dict[str, Any]:
    """A file's content, of which the tables may be changed but for the rows of instructions."""
    data = _content(path, path.stat().st_mtime_ns)
    return {key: value if key == "instructions" else deepcopy(value) for key, value in data.items()}


def _change_rows(
    base: AnyMachine, rows: list[dict[str, Any]], changed: dict[int, dict[str, Any]], key: str, value: object
) -> None:
    """Replace one field in all rows that the key's pattern matches."""
    _, _, rest = key.partition(".")
    pattern, _, name = rest.rpartition(".")
    if name not in _ROW_FIELDS or not pattern:
        known = ", ".join(_ROW_FIELDS)
        raise InvalidArgument(f"figure {key!r}; instructions.PATTERN.FIELD is needed, FIELD of {known}")
    names = ["mnemonic", "form"] if " " in pattern else ["mnemonic"]
    matched = [i for i, row in enumerate(rows) if fnmatchcase(" ".join(row[name] for name in names), pattern)]
    if not matched:
        raise UnknownName(
            f"figure {key!r}: no instruction of {base.name} matches {pattern!r}; a mnemonic as 'vpdp*', "
            "or mnemonic and form as 'vpdp* zmm,*', is needed"
        )
    for i in matched:
        row = changed.get(i, rows[i])
        changed[i] = row | {name: value} | _standing(row, name, row.get(name))


def _change(base: AnyMachine, data: dict[str, Any], key: str, value: object) -> None:
    """Replace one figure; whether the schema knows it and takes the value is found when the table is read."""
    parts = key.split(".")
    if parts[0] in _IDENTITY:
        raise InvalidArgument(f"figure {key!r} says which machine it is; change another one")
    inner: Any = data
    while len(parts) > 1:
        inner, parts = _inside(base, inner, parts, key)
    last, old = parts[0], inner.get(parts[0])
    if isinstance(old, dict) and "value" not in old or isinstance(old, list) and isinstance(old[0], dict):
        names = old if isinstance(old, dict) else map(_identity, old)
        allowed = ", ".join(f"{key}.{name}" for name in names if name not in ("source", "confidence"))
        raise InvalidArgument(f"figure {key!r} of {base.name} is a table; allowed: {allowed}")
    if "source" in inner:  # a row, whose values have one source
        inner |= {last: value} | _standing(inner, last, old)
    elif inner is data and last == "isa":
        inner[last] = value
    else:
        old = old or {}
        inner[last] = {"value": value} | _standing(old, "", old.get("value"))


def _inside(base: AnyMachine, outer: Any, parts: list[str], key: str) -> tuple[Any, list[str]]:
    """One step along a dotted key: what lies there, and the rest of the key."""
    found = outer.get(parts[0])
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        for row in found:
            name = _identity(row).split(".")
            if parts[1 : 1 + len(name)] == name and len(parts) > 1 + len(name):
                return row, parts[1 + len(name) :]
        raise InvalidArgument(
            f"figure {key!r} of {base.name}: {parts[0]!r} is an array of tables; what follows names "
            f"one, and a figure of it: {', '.join(map(_identity, found))}"
        )
    if found is None and parts[0] in _OPTIONAL:
        found = outer[parts[0]] = {}
    if isinstance(found, dict) and "value" in found:
        raise InvalidArgument(f"figure {key!r} of {base.name}: {parts[0]!r} is a figure itself, without {parts[1]!r}")
    if not isinstance(found, dict):
        tables = [name for name, inner in outer.items() if isinstance(inner, (dict, list)) and name != "sources"]
        raise unknown_name(f"part of the figure {key!r} of {base.name}:", parts[0], tables)
    return found, parts[1:]


def _identity(row: Mapping[str, Any]) -> str:
    """What tells a row of an array of tables from the others."""
    return str(row["name"]) if "name" in row else f"{'general.' if row.get('general') else ''}{row['bits']}"


def _standing(old: Mapping[str, Any], name: str, value: object) -> dict[str, str]:
    """The source and confidence of a figure, or of a row in which `name` was replaced."""
    was = "not there" if value is None else json.dumps(value)
    before = f"{old['source']}; " if "source" in old else ""
    return {"source": f"{before}what if: {name or 'it'} was {was}", "confidence": "estimated"}
