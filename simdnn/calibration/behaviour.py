"""Behaviour that tells cores apart which CPUID may call alike: loops of nine slots, caches, and what executes unseen.

A guest's CPUID may be masked: a Granite Rapids was met that gave the model of an Emerald Rapids, without its f16 tiles.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from isa_models.errors import SimdnnError
from isa_models.isa import host_caps
from isa_models.machines.cpu_record import Machine
from simdnn.assembly.analysis import analyze
from simdnn.calibration import timer

SLOTS = 9  # just above a line of eight in the uop cache, which some cores end with the loop
#: cap -> an instruction of it, on tiles; executing one that a core lacks ends the process, so another one tries
TRIED = {"avx512_core_amx_fp16": "tdpfp16ps tmm0, tmm1, tmm2"}
_TRY = """import sys; from simdnn.calibration.sampler import Sampler, data
Sampler([sys.argv[1]], tiles=True).run(1, 1, *data()[1:])"""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class Behaviour(NamedTuple):
    """Cycles of a loop of nine slots (None: not seen undisturbed), caches, caps that execute though CPUID hides
    them.
    """

    nine_slots: float | None = None
    l1i_kib: int | None = None
    last_cache_mib: float | None = None
    hidden: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = [f"a loop of {SLOTS} slots takes {self.nine_slots:.2f} cycles"] if self.nine_slots else []
        said += [f"L1I {self.l1i_kib} KiB"] if self.l1i_kib else []
        said += [f"last cache {self.last_cache_mib:g} MiB"] if self.last_cache_mib else []
        said += [f"executes what CPUID hides: {', '.join(self.hidden)}"] if self.hidden else []
        return ", ".join(said) or "not seen undisturbed"


def behaviour() -> Behaviour:
    """This host's."""
    loop = timer.measure(["nop"] * (SLOTS - 1))
    l1i, last = _cache_kib("Instruction"), max((_cache_kib(kind) or 0 for kind in ("Unified", "Data")), default=0)
    return Behaviour(loop.cycles if loop else None, l1i, last / 1024 or None, tuple(filter(_executes_hidden, TRIED)))


def nine_slots_of(target: Machine) -> float | None:
    """The cycles that a machine's clock predicts for the loop of nine slots; None where it lacks the rows."""
    return predicted(target, ["nop"] * (SLOTS - 1))


def predicted(target: Machine, body: Sequence[str]) -> float | None:
    """The cycles that a machine's clock predicts for a loop as `timer.measure` runs it; None where it lacks rows."""
    loop = "\n".join(["1:", *body, "dec rcx", "jnz 1b"])
    try:
        return analyze(loop, machine=target).cycles_per_iteration
    except SimdnnError:
        return None


def _cache_kib(kind: str) -> int | None:
    """KiB of the largest cache of a kind; None where the system does not tell."""
    sizes = []
    for index in _CACHES.glob("index*"):
        try:
            if (index / "type").read_text().strip() == kind:
                sizes.append(int((index / "size").read_text().strip().removesuffix("K")))
        except (OSError, ValueError):
            continue
    return max(sizes, default=None)


def _executes_hidden(cap: str) -> bool:
    """Whether an instruction of a cap that CPUID does not show executes all the same."""
    return cap not in host_caps() and "avx512_core" in host_caps() and executes(TRIED[cap])


def executes(instruction: str) -> bool:
    """Whether this host executes an instruction on tiles, in a process of its own."""
    try:
        tried = subprocess.run([sys.executable, "-c", _TRY, instruction], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0
