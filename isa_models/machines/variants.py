"""Machines made of others: one machine's content with other figures, and names that say so.

>>> split("zen4 with core.dispatch_slots = 8, core.load.512.pipes = 1")
('zen4', {'core.dispatch_slots': 8, 'core.load.512.pipes': 1})
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isa_models.errors import InvalidArgument, MachineFileError
from isa_models.machines.content import content
from isa_models.machines.cpu_record import Machine
from isa_models.machines.cpu_schema import machine_of
from isa_models.machines.differences import MOST_KEY, applied
from isa_models.machines.gpu_record import GpuMachine
from isa_models.machines.gpu_schema import gpu_machine_of
from isa_models.machines.toml_table import table_of

AnyMachine = Machine | GpuMachine
_IDENTITY = ("name", "title", "vendor", "uarch", "platform", "sources", "base")
_ALL_ROWS = ("core.ports", "core.load_ports", "remove")  # figures with which every row of instructions is read again
_WITH, _IS, _AND = " with ", " = ", ", "


def named(base: str, figures: Mapping[str, object]) -> str:
    """The name of a machine with other figures, which `split` takes apart again.

    >>> named("zen4 with cores = 4", {"dram.gb_s_core": 60})
    'zen4 with cores = 4, dram.gb_s_core = 60'
    """
    base, had = split(base) or (base, {})
    said = _AND.join(f"{key}{_IS}{json.dumps(value)}" for key, value in {**had, **figures}.items())
    return f"{base}{_WITH}{said}" if said else base


def split(name: str) -> tuple[str, dict[str, Any]] | None:
    """The base and the figures that a name tells; None where it isn't such a name."""
    base, found, rest = name.partition(_WITH)
    figures: dict[str, Any] = {}
    while found:
        key, found, rest = rest.partition(_IS)
        if not found:
            return None
        try:
            figures[key], end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        if not rest[end:]:
            return base, figures
        found, rest = _AND if rest.startswith(_AND, end) else "", rest[end + len(_AND) :]
    return None


def variant(base: AnyMachine, figures: Mapping[str, object]) -> AnyMachine:
    """The machine with other figures, by their dotted keys; equal calls give one object."""
    for key in figures:
        if not isinstance(key, str) or len(key) > MOST_KEY:
            raise InvalidArgument(f"figure {key!r:.80}; a dotted key of at most {MOST_KEY} characters is needed")
        if (part := key.split(".")[0]) in _IDENTITY:
            raise InvalidArgument(f"figure {key!r} says which machine it is ({part}); change another one")
    try:
        written = json.dumps(dict(sorted(figures.items())))
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(f"figures={figures!r:.80}; numbers, texts, and lists of them are needed") from None
    return _made(base, written)


@functools.lru_cache(maxsize=1024)
def _made(base: AnyMachine, written: str) -> AnyMachine:
    figures: dict[str, object] = json.loads(written)
    name = named(base.name, figures)
    before = content(base.path)
    data = applied(base.name, before, ((tuple(key.split(".")), value) for key, value in figures.items()))
    known = None
    if not isinstance(base, GpuMachine) and not any(key in _ALL_ROWS for key in figures):
        # reading all rows takes most of the time, so only those that changed are read
        known, old = base, {id(row) for row in before["instructions"]["rows"]}
        rows = [row for row in data["instructions"]["rows"] if id(row) not in old]
        data = {key: value for key, value in data.items() if key != "instructions"}
        data |= {"instructions": {"rows": rows}} if rows else {}
    try:
        top = table_of(Path(name), data)
        if isinstance(base, GpuMachine):
            found: AnyMachine = gpu_machine_of(top, base.path)
        else:
            found = machine_of(top, base.path, known)
    except MachineFileError as error:
        raise InvalidArgument(str(error)) from None
    return replace(found, name=name).made_of(figures)
