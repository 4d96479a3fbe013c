"""One point of a design space: its key, what its row depends on, and the row."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import isa_models
import simdnn
import workloads
from isa_models import SimdnnError, machine, what_if
from isa_models.machines.content import lineage
from isa_models.machines.shipped import machine_file
from simdnn.networks.runner import NOTHING
from simdnn.primitives.mathmode import EXACT_INT8, FPMATH, as_shipped
from simdnn.study.kinds import FILES, KINDS, Row
from simdnn.version import version

Stamp = dict[str, str]
_SHOWING = ("cli", "plot", "plot_study.py", "reporting", "teach")  # show figures, make none
FAILED = "failed: "  # how the reason begins where a point was not refused
_DIGITS = 16  # of a digest in hexadecimal


@dataclass(frozen=True)
class Point:
    """A point to measure; values as the study's file has them.

    `machine` names the machine, or the one that `figures` (dotted key -> value) change; files are found from `folder`.
    """

    kind: str
    values: bool
    machine: str
    figures: Mapping[str, object] = field(repr=False)
    parameters: Mapping[str, Any]
    folder: Path = field(repr=False)

    @functools.cached_property
    def key(self) -> str:
        """A digest of all that tells it from other points; where the files lie is no part of it."""
        own = {
            "kind": self.kind,
            "values": self.values,
            "machine": self.machine,
            "figures": dict(self.figures),
            "parameters": dict(self.parameters),
        }
        return _digest(json.dumps(own, sort_keys=True).encode())

    def path(self, name: str) -> Path | None:
        """The file that a parameter names, or None."""
        value = self.machine if name == "machine" else self.parameters.get(name, "")
        return self.folder / value if value and str(value).lower().endswith(FILES[name]) else None

    def stamp(self) -> Stamp:
        """Digests of what else the row depends on: the package's code, the machine's table, a file that is read.

        Raises the machine's errors.
        """
        table = self.path("machine") or machine_file(self.machine) or machine(self.machine).path
        files = {"simdnn": package_digest(), "machine": table_digest(table)}
        for name in FILES:
            if name != "machine" and (path := self.path(name)):
                files[name] = _file_digest(path)
        return files

    def measured(self) -> Row:
        """The measures; raises what the primitives do."""
        found = {name: str(path) for name in FILES if (path := self.path(name))}
        target = what_if(self.path("machine") or self.machine, self.figures)
        with as_shipped(FPMATH), as_shipped(EXACT_INT8):  # whatever the environment says
            return KINDS[self.kind].measure(target, {**self.parameters, **found}, self.values)


@dataclass(frozen=True)
class Outcome:
    """A point's measures, or why there are none; `failed`: not for a reason that holds the next time, too."""

    row: Row
    stamp: Stamp
    failed: bool = False


def outcome(point: Point) -> Outcome:
    """A point's outcome; it raises nothing but `KeyboardInterrupt`."""
    try:
        stamp = point.stamp()
        try:
            return Outcome({"refused": "", **point.measured()}, stamp)
        except SimdnnError as error:
            return Outcome(refused(str(error)), stamp)
    except MemoryError:
        return lost("out of memory")
    except Exception as error:  # one bad point must not end a study of thousands
        return lost(str(error) if isinstance(error, (SimdnnError, OSError)) else f"internal error: {error!r}")


def refused(reason: str) -> Row:
    return {"refused": " ".join(reason.removeprefix(NOTHING).split())}


def lost(reason: str) -> Outcome:
    """The outcome of a point that failed."""
    return Outcome(refused(f"{FAILED}{reason}"), {}, failed=True)


@functools.cache
def package_digest() -> str:
    """Digest of the version and the code of the package: what any figure may depend on."""
    return _digest(version().encode(), *(path.read_bytes() for path in _sources()))


def _sources() -> Iterator[Path]:
    for package in (isa_models, simdnn, workloads):
        root = Path(str(package.__file__)).parent
        found = sorted(root.rglob("*.py"))
        yield from (path for path in found if path.relative_to(root).parts[0] not in _SHOWING)


def table_digest(table: Path) -> str:
    """Digests of a machine's file, of its base's and so on."""
    return "".join(_file_digest(file) for file, _ in lineage(table))


def _file_digest(path: Path) -> str:
    return _digest_of(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _digest_of(path: Path, changed_ns: int) -> str:
    return _digest(path.read_bytes())


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:_DIGITS]
