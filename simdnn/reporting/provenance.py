"""The grounds of figures: the package's version and code, and the tables of the machines, each told by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from isa_models import Machine, SimdnnError, machine
from isa_models.machines.gpu_record import GpuMachine
from simdnn.study.points import package_digest, table_digest
from simdnn.version import version


def provenance(machines: Iterable[str]) -> dict[str, Any]:
    """A file's account of where its results come from; `machines` are names or files.

    `code` is a digest of all code that a figure may depend on, `machines` those of each machine's table and of the
    tables that it inherits from; null for one that only a study knows.
    """
    found = {name: known(name) for name in dict.fromkeys(machines)}
    digests = {name: table_digest(one.path) if one else None for name, one in found.items()}
    return {"simdnn": version(), "code": package_digest(), "machines": digests}


def unchanged(machine: Machine | GpuMachine, digest: str) -> bool:
    """Whether a machine's table has the digest that was recorded: of commands, or of results in Python."""
    return digest in (table_digest(machine.path), hashlib.sha256(machine.path.read_bytes()).hexdigest())


def known(name: str) -> Machine | GpuMachine | None:
    """The machine of a name or file, where there is one."""
    try:
        return machine(name)
    except (SimdnnError, OSError):
        return None


def recorded(content: Mapping[str, Any]) -> dict[str, Any]:
    """A result's account of itself, in `provenance`'s form: files of commands say it so, results of Python flatly."""
    said = content.get("provenance")
    if not isinstance(said, dict):
        return {"machines": dict.fromkeys(machines_of(content))}
    if isinstance(said.get("machines"), dict):
        return said
    rest = {key: value for key, value in said.items() if key not in ("machine", "machine_sha256")}
    return {**rest, "machines": {str(said.get("machine", "")): said.get("machine_sha256")}}


def machines_of(content: Mapping[str, Any]) -> list[str]:
    """The machines that a result names, at its top or in its rows."""
    rows = (row for rows in content.values() if isinstance(rows, list) for row in rows if isinstance(row, dict))
    names = [content.get("machine"), *(row.get("machine") for row in rows)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
