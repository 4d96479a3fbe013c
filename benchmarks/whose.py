"""Whose clock stands beside what is measured on this host."""

from __future__ import annotations

from isa_models.machines.cpu_record import Machine
from isa_models.machines.loader import cpu_machine
from simdnn.calibration.identity import identify
from simdnn.progress import silent


def clock(name: str | None) -> Machine:
    """The machine of a name; without one the one that this host behaves like, which is printed."""
    if name:
        return cpu_machine(name)
    host = identify(silent)
    print(host)
    return host.machine
