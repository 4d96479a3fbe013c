"""Machines that don't exist: one that does, with some of its figures replaced.

    >>> wide = what_if("zen4", {"core.dispatch_slots": 8, "core.load.512.pipes": 1})
    >>> wide.core.dispatch_slots, wide.core.load(512).pipes, wide.confidence_of("core.dispatch_slots")
    (8, 1, 'estimated')

`differences` tells how figures are named and rows of instructions added. Every replaced figure counts as estimated, and
its source says what it was. The name says what it is made of, and `machine` takes it: "zen4 with cores = 8".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isa_models.errors import InvalidArgument
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine, machine
from isa_models.machines.shipped import machine_file
from isa_models.machines.toml_text import assignment
from isa_models.machines.variants import variant


@keywords
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
    return variant(_real(real), {**real.differs, **figures})


def _real(target: AnyMachine) -> AnyMachine:
    """The parts that a machine of `what_if` is made of."""
    return machine(target.path) if target.differs else target


@keywords
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
