"""Instructions, number formats and machines, each written once and readable in several ways."""

from isa_models import intel_gpu as _intel_gpu  # noqa: F401  # importing a family registers its instructions
from isa_models import nvidia as _nvidia  # noqa: F401
from isa_models import x86 as _x86  # noqa: F401
from isa_models.errors import (
    InvalidArgument,
    MachineFileError,
    ProgramError,
    SimdnnError,
    Unimplemented,
    UnknownName,
    UnknownTiming,
)
from isa_models.instruction import GPU_REGISTRY, REGISTRY, Family, Instruction, instruction
from isa_models.machines import pickled as _pickled  # noqa: F401  # importing it registers how they pickle
from isa_models.machines.cpu_record import Machine
from isa_models.machines.gpu_record import GpuMachine
from isa_models.machines.loader import cpu_machine, machine
from isa_models.machines.shipped import gpu_machine_names, machine_names
from isa_models.machines.what_if import difference_file, what_if

__all__ = [
    "GPU_REGISTRY",
    "REGISTRY",
    "Family",
    "Instruction",
    "InvalidArgument",
    "GpuMachine",
    "Machine",
    "MachineFileError",
    "ProgramError",
    "SimdnnError",
    "Unimplemented",
    "UnknownName",
    "UnknownTiming",
    "cpu_machine",
    "difference_file",
    "gpu_machine_names",
    "instruction",
    "machine",
    "machine_names",
    "what_if",
]
