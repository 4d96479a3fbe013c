"""Machines that don't exist: one that does, with some of its figures replaced.

    >>> wide = what_if("zen4", {"core.dispatch_slots": 8, "core.load.512.pipes": 1})
    >>> wide.core.dispatch_slots, wide.core.load(512).pipes, wide.confidence_of("core.dispatch_slots")
    (8, 1, 'estimated')

`differences` tells how figures are named and rows of instructions added. Every replaced figure counts as estimated, and
its source says what it was. `save` writes such a machine as a file, which is its base and what differs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from isa_models.errors import InvalidArgument, MachineFileError
from isa_models.machines.content import content
from isa_models.machines.cpu_schema import machine_of
from isa_models.machines.differences import MOST_KEY, applied
from isa_models.machines.gpu_record import GpuMachine
from isa_models.machines.gpu_schema import gpu_machine_of
from isa_models.machines.loader import AnyMachine, machine
from isa_models.machines.shipped import machine_file
from isa_models.machines.toml_table import table_of
from isa_models.machines.toml_text import assignment

_IDENTITY = ("name", "title", "vendor", "uarch", "platform", "sources", "base")
_ALL_ROWS = ("core.ports", "core.load_ports", "remove")  # figures with which every row of instructions is read again


def what_if(base: str | Path | AnyMachine, figures: Mapping[str, object]) -> AnyMachine:
    """The machine of a name or file with other `figures` (dotted key -> value as its file would write it).

    Rows of instructions are added, or replaced, by ``{"instructions.rows": [{"mnemonic": …, "form": …, …}]}``, figures
    and rows taken away by ``{"remove": ["frequency.avx512_ghz", "instructions.vpdp*"]}``. Equal calls give one object.
    Raises `InvalidArgument` for a key that the machine's file can't have, a pattern that matches no instruction, and a
    value that its schema refuses; errors of `machine` for the base.
    """
    real = machine(base)
    if not isinstance(figures, Mapping):
        raise InvalidArgument(f"figures={figures!r:.80}; a dict is needed, e.g. {{'core.dispatch_slots': 8}}")
    if not figures:
        return real
    for key in figures:
        if not isinstance(key, str) or len(key) > MOST_KEY:
            raise InvalidArgument(f"figure {key!r:.80}; a dotted key of at most {MOST_KEY} characters is needed")
        if (part := key.split(".")[0]) in _IDENTITY:
            raise InvalidArgument(f"figure {key!r} says which machine it is ({part}); change another one")
    try:
        written = json.dumps(dict(sorted({**real.differs, **figures}.items())))
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(f"figures={figures!r:.80}; numbers, texts, and lists of them are needed") from None
    return _what_if(_real(real), written)


def _real(target: AnyMachine) -> AnyMachine:
    """What a machine of `what_if` is made of."""
    return machine(target.path) if target.differs else target


@functools.lru_cache(maxsize=1024)
def _what_if(base: AnyMachine, written: str) -> AnyMachine:
    figures: dict[str, object] = json.loads(written)
    title = ", ".join(f"{key} = {json.dumps(value)}" for key, value in figures.items())
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
        top = table_of(Path(f"{base.name} with {title}"), data)
        if isinstance(base, GpuMachine):
            found: AnyMachine = gpu_machine_of(top, base.path)
        else:
            found = machine_of(top, base.path, known)
    except MachineFileError as error:
        raise InvalidArgument(str(error)) from None
    return replace(found, name=f"{base.name} with {title}").made_of(figures)


def difference_file(target: AnyMachine) -> str:
    """The text of a file that reads as a machine of `what_if`: its base, its name and a line for each difference.

    A machine of a file is a file with nothing but its base.

    >>> print(difference_file(what_if("zen4", {"core.dispatch_slots": 8, "instructions.vpdp*.latency": 3})), end="")
    base = "zen4"
    name = "zen4 with core.dispatch_slots = 8, instructions.vpdp*.latency = 3"
    core.dispatch_slots = 8
    instructions."vpdp*".latency = 3
    """
    shipped = machine_file(_real(target).name)
    base = target.path.stem if shipped == target.path else str(target.path.resolve())
    figures = {"base": base, "name": target.name, **target.differs}
    return "".join(assignment(key, value) for key, value in figures.items())
