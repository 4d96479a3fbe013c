"""How machines pickle: by content, and as the machine of their name where a process has one that is alike."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from isa_models.machines.cpu_record import Machine
from isa_models.machines.gpu_record import GpuMachine
from isa_models.machines.identity import alive, content
from isa_models.machines.loader import AnyMachine, machine
from isa_models.machines.shipped import machine_file


def _reduced(made: AnyMachine) -> tuple[Any, ...]:
    return _restored, (type(made), content(made), made.differs)


def _restored(kind: type[Any], values: tuple[Any, ...], differs: Mapping[str, object]) -> Any:
    name = values[[field.name for field in fields(kind)].index("name")]
    known = [machine(name)] if machine_file(name) else []
    known += alive(kind, name)
    return next((one for one in known if content(one) == values), None) or kind(*values).made_of(differs)


copyreg.pickle(Machine, _reduced)
copyreg.pickle(GpuMachine, _reduced)
