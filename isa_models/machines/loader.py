"""Machines by name or from a file: CPUs (`Machine`) and GPUs (`GpuMachine`), parsed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TypeVar

from isa_models.errors import InvalidArgument, MachineFileError, Unimplemented, UnknownName, unknown_name
from isa_models.gpu.platforms import Platform
from isa_models.host.pipes import no_file
from isa_models.intel_gpu.platforms import platform
from isa_models.keywords import keywords
from isa_models.machines.content import Lineage, lineage, names_a_platform
from isa_models.machines.cpu_record import Machine
from isa_models.machines.cpu_schema import read_machine
from isa_models.machines.gpu_record import GpuMachine
from isa_models.machines.gpu_schema import read_gpu_machine
from isa_models.machines.shipped import (
    HOST,
    can_be_a_file,
    gpu_machine_names,
    host_path,
    is_gpu,
    machine_file,
    machine_names,
    shipped_name,
    unknown_machine,
)
from isa_models.machines.variants import AnyMachine as AnyMachine
from isa_models.machines.variants import split, variant
from isa_models.plugins import with_failures

Known = TypeVar("Known", Machine, GpuMachine)


@keywords
def machine(name_or_path: str | Path | AnyMachine) -> AnyMachine:
    """The machine of a name, a TOML file, or a what-if's name.

    A `Machine` (CPU), or a `GpuMachine` where its file names a `platform`.

    Raises `UnknownName` for a name that doesn't exist and `MachineFileError` for a file that breaks its schema.

    >>> machine("zen4").cores, machine("a770").engines
    (96, 512)
    """
    if isinstance(name_or_path, Machine | GpuMachine):
        return name_or_path
    if not isinstance(name_or_path, Path):
        if made := _made_of(name := _text(name_or_path)):
            return made
        name_or_path = name = shipped_name(name)
        if is_gpu(name):
            return gpu_machine(name)
        if machine_file(name):
            return cpu_machine(name)
    path = Path(name_or_path)
    if can_be_a_file(path) and path.is_file() and _names_a_platform(path.resolve()):
        return _load_gpu(lineage(path.resolve()))
    return cpu_machine(name_or_path)


@keywords
def cpu_machine(name_or_path: str | Path | Machine) -> Machine:
    """The CPU of a name (see `machine_names`; "host": measured by `simdnn calibrate`) or of a TOML file; parsed once.

    Compilers' names are taken as well (`COMPILERS_NAMES`). Raises `UnknownName` for a name or a file that doesn't exist
    and `MachineFileError` for a file that breaks the schema.
    """
    if isinstance(name_or_path, Machine):
        return name_or_path
    text = _text(name_or_path)
    if not isinstance(name_or_path, Path):
        if isinstance(made := _made_of(text), Machine):
            return made
        text = name_or_path = shipped_name(text)
    if text == HOST:
        if not host_path().is_file():
            raise UnknownName(f"machine 'host' is not measured yet: run `simdnn calibrate`, which writes {host_path()}")
        name_or_path = host_path()
    if is_gpu(text) and not isinstance(name_or_path, Path):
        raise Unimplemented(f"machine {text!r} is a GPU; here a CPU is needed: {', '.join(machine_names())}")
    if not isinstance(name_or_path, Path) and (named := machine_file(text)):
        return _named(named)
    path = Path(name_or_path)
    if not can_be_a_file(path):
        raise unknown_machine(text)
    if not path.is_file():
        names = ", ".join([*machine_names(), *gpu_machine_names()])
        raise UnknownName(f"no machine file {text!r}: it is {no_file(path)}; machines that ship have names: {names}")
    return _load(lineage(path.resolve()))


def _text(given: object) -> str:
    """A name or a path as text; `InvalidArgument` for what is neither."""
    if isinstance(given, str | PathLike):
        return str(given)
    raise InvalidArgument(f"machine={given!r:.80}; a name such as 'zen4', a path of a TOML file or a Machine is needed")


def _made_of(name: str) -> AnyMachine | None:
    """The machine of a name that tells other figures (`named`); None for any other name."""
    if (found := split(name)) is None:
        return None
    if can_be_a_file(path := Path(name)) and path.is_file():
        return None
    base, figures = found
    return variant(machine(base), figures)


@functools.cache
def _named(path: Path) -> Machine:
    return _load(lineage(path))


@functools.cache
def gpu_machine(name: str) -> GpuMachine:
    """The GPU of a name; `UnknownName` where there is none, `MachineFileError` for a file that breaks the schema."""
    if not is_gpu(name) or (path := machine_file(name)) is None:
        raise with_failures(unknown_name("GPU", name, gpu_machine_names()))
    return _load_gpu(lineage(path))


def platform_of(name: str) -> Platform:
    """The platform of a name, or of a GPU's name.

    >>> platform_of("b580").name
    'xe2'
    """
    return gpu_machine(name).platform if is_gpu(name) else platform(name)


@functools.lru_cache(maxsize=64)
def _load(files: Lineage) -> Machine:
    return _read(read_machine, files)


@functools.lru_cache(maxsize=64)
def _load_gpu(files: Lineage) -> GpuMachine:
    return _read(read_gpu_machine, files)


def _read(read: Callable[[Path], Known], files: Lineage) -> Known:
    """The machine of a file; what is wrong in a base is said of the base."""
    try:
        return read(files[0][0])
    except MachineFileError:
        for base, _ in reversed(files[1:]):
            read(base)
        raise


def _names_a_platform(path: Path) -> bool:
    """Whether a file is a GPU's; what cannot be read is left to the schema to refuse."""
    try:
        return path.suffix == ".toml" and names_a_platform(lineage(path))
    except (MachineFileError, OSError):
        return False
