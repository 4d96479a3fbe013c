"""Instructions, number formats and machines, each written once and readable in several ways."""

from isa_models import x86 as _x86  # noqa: F401  # importing a family registers its instructions
from isa_models.errors import (
    InvalidArgument,
    MachineFileError,
    ProgramError,
    SimdnnError,
    Unimplemented,
    UnknownName,
    UnknownTiming,
)
from isa_models.instruction import REGISTRY, Instruction, instruction
from isa_models.machine import Machine, machine, machine_names

__all__ = [
    "REGISTRY",
    "Instruction",
    "InvalidArgument",
    "Machine",
    "MachineFileError",
    "ProgramError",
    "SimdnnError",
    "Unimplemented",
    "UnknownName",
    "UnknownTiming",
    "instruction",
    "machine",
    "machine_names",
]
