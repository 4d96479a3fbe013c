"""Machines of every kind by name: CPUs (`isa_models.machine`) and GPUs (`isa_models.gpu_machine`)."""

from __future__ import annotations

import functools
from pathlib import Path

from isa_models.errors import MachineFileError
from isa_models.gpu_machine import GpuMachine, gpu_machine, gpu_machine_names
from isa_models.gpu_machine_schema import read_gpu_machine
from isa_models.machine import (
    GPU_MACHINES_DIR,
    HOST,
    MACHINES_DIR,
    Machine,
    can_be_a_file,
    machine_names,
    shipped_name,
    unknown_machine,
)
from isa_models.machine import machine as cpu_machine
from isa_models.toml_table import read_toml

AnyMachine = Machine | GpuMachine


def machine(name_or_path: str | Path | AnyMachine) -> AnyMachine:
    """The machine of a name or of a TOML file: a `Machine` (CPU) or a `GpuMachine` (its file names a `platform`).

    Raises `UnknownName` for a name that doesn't exist and `MachineFileError` for a file that breaks its schema.

    >>> machine("zen4").cores, machine("a770").engines
    (96, 512)
    """
    if isinstance(name_or_path, GpuMachine):
        return name_or_path
    if isinstance(name_or_path, Machine):
        return name_or_path
    name = str(name_or_path)
    if not isinstance(name_or_path, Path):
        name = name_or_path = shipped_name(name)
    if name == HOST:
        return cpu_machine(name)
    if not isinstance(name_or_path, Path):
        if name in gpu_machine_names():
            return gpu_machine(name)
        if name not in machine_names() and not can_be_a_file(Path(name)):
            raise unknown_machine(name)
    path = Path(name)
    return read_gpu_machine(path) if _names_a_platform(path) else cpu_machine(name_or_path)


def machine_file(name: str) -> Path | None:
    """The file of a machine that ships; None for any other name.

    >>> path = machine_file("SKX")
    >>> path.name if path else None
    'skx.toml'
    """
    name = shipped_name(name)
    if name in machine_names():
        return MACHINES_DIR / f"{name}.toml"
    return GPU_MACHINES_DIR / f"{name}.toml" if name in gpu_machine_names() else None


def _names_a_platform(path: Path) -> bool:
    """Whether a file is a GPU's; what cannot be read is left to the schema to refuse."""
    try:
        return path.suffix == ".toml" and _has_platform(path, path.stat().st_mtime_ns)
    except (MachineFileError, OSError):
        return False


@functools.lru_cache(maxsize=32)
def _has_platform(path: Path, changed_ns: int) -> bool:
    return "platform" in read_toml(path)
