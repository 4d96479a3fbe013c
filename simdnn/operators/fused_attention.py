"""Attention in one kernel, whose scores stay in registers, beside the three kernels of `attention`: where a GPU has it,
what it costs, its values, and which of the two runs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isa_models import GpuMachine, Unimplemented
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.nvidia.attention import FlashAttention
from simdnn.kernels.nvidia.attention_tiles import NAME, flash_tile, name_of, parts_of, refused, units_on, unsplit
from simdnn.late import frames, pd
from simdnn.primitives.costs import estimate_on_gpu
from simdnn.primitives.result import Priced, sources
from simdnn.primitives.run import Target
from simdnn.program.records import Program

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

THREE = "three kernels"


@functools.lru_cache(maxsize=64)
def kernel_of(problem: AttentionProblem, machine: GpuMachine, unit: str, split: bool) -> FlashAttention:
    """The kernel of a problem that multiplies by a unit, or that of parts of the keys; `Unimplemented` where the GPU
    has none.
    """
    p = problem.by_keys()
    parts = parts_of(p, machine, unit) if split else 0
    return FlashAttention(p, machine, flash_tile(p, machine, unit, parts), parts)


@functools.lru_cache(maxsize=256)
def _cost(problem: AttentionProblem, machine: GpuMachine, unit: str, split: bool) -> Cost:
    return estimate_on_gpu(kernel_of(problem, machine, unit, split).timed, machine, ())


@dataclass(frozen=True, eq=False, repr=False)
class FusedAttention(Alike, Priced):
    """The one kernel as a step of attention: what it costs, its program, where the numbers are from."""

    problem: AttentionProblem
    machine: GpuMachine
    unit: str
    split: bool = False  # whether workgroups have parts of the keys

    @property
    def cost(self) -> Cost:
        return _cost(self.problem, self.machine, self.unit, self.split)

    @property
    def kernel(self) -> FlashAttention:
        """The kernel of the problem."""
        return kernel_of(self.problem, self.machine, self.unit, self.split)

    @property
    def program(self) -> Program:
        """The kernel's program."""
        return self.kernel.program

    @property
    def implementation(self) -> str:
        return self.kernel.name

    @property
    def provenance(self) -> dict[str, str]:
        """The sources of the numbers: machine and digest of its file, package version, the program's signature."""
        return sources(self.machine) | {"program": self.program.signature}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._summary().items())})"

    def _summary(self) -> dict[str, Any]:
        return {"implementation": self.implementation, "machine": self.machine.name} | self._cost_summary()

    def values(self, arrays: Mapping[str, Array], engine: str, threads: int) -> Array:
        """(heads of all, queries, size) of q, k and v."""
        from simdnn import numerics  # brings LLVM, which a cost alone doesn't need

        kernel = self.kernel
        with np.errstate(all="ignore"):  # NaN, Inf and overflow are values like others here
            left = numerics.run(kernel.program, kernel.prepare(arrays), engine=engine, threads=threads)
        return kernel.finish(left)


class Lasting(Protocol):
    """Something that has a time."""

    @property
    def cycles(self) -> float: ...
    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True, eq=False)
class Ways(Alike):
    """The ways on a target: three kernels, and those that do all at once; by name, why others are `refused`."""

    three: Lasting
    alone: tuple[FusedAttention, ...]
    refused: Mapping[str, str]
    dispatch: str

    @property
    def fused(self) -> FusedAttention | None:
        """The one kernel that runs: it is asked for, or takes the least time; None where three run."""
        if self.dispatch != "fastest":
            return next((one for one in self.alone if one.implementation == self.dispatch), None)
        best = min(self.alone, key=lambda one: one.seconds, default=None)
        return best if best and best.seconds < self.three.seconds else None

    def frame(self) -> pd.DataFrame:
        """A row each: implementation, cycles, time_us, chosen, and the reason."""
        ways: list[tuple[str, Lasting]] = [(THREE, self.three), *((one.implementation, one) for one in self.alone)]
        chosen, asked = self.fused.implementation if self.fused else THREE, f"dispatch={self.dispatch!r}"
        least = min(way.seconds for _, way in ways)
        rows: list[tuple[str, float, float, bool, str]] = []
        for name, way in ways:
            runs = name == chosen
            if self.dispatch != "fastest":
                reason = asked if runs else f"{asked} is asked for"
            else:
                reason = "least time" if runs else f"{way.seconds / least:.2f} times as long"
            rows.append((name, way.cycles, way.seconds * 1e6, runs, reason if self.alone else "the only way"))
        rows.sort(key=lambda row: (not row[3], row[1]))
        rows += [(name, math.nan, math.nan, False, reason) for name, reason in self.refused.items()]
        found = pd.DataFrame(rows, columns=["implementation", "cycles", "time_us", "chosen", "reason"])
        return frames.shown(found, ["implementation", "cycles", "reason"])


def names_on(target: Target) -> tuple[str, ...]:
    """The words that `dispatch` of attention may be on a target."""
    machine = target.machine
    if not isinstance(machine, GpuMachine):
        return ("fastest", "onednn", THREE)
    alone = [name_of(machine, unit, split) for unit in units_on(machine) for split in (False, True)]
    return ("fastest", "onednn", THREE, *alone)


def fused_on(
    target: Target, problem: AttentionProblem, masked: bool
) -> tuple[tuple[FusedAttention, ...], Mapping[str, str]]:
    """The kernels that do all at once for a problem, and by name why others do not."""
    machine = target.machine
    if not isinstance(machine, GpuMachine):
        return (), {NAME: "no kernel of CPUs keeps scores in registers here"}
    if not machine.nvidia:
        return (), {NAME: "no kernel of Intel's GPUs keeps scores in registers here"}
    if reason := refused(problem, machine) or ("takes no masks, as FlashAttention-2" if masked else ""):
        return (), {NAME: reason}
    units, packed = units_on(machine), problem.by_keys()
    whole = {unit: unsplit(packed, machine, unit) for unit in units}
    split = [FusedAttention(problem, machine, unit, True) for unit in units if not whole[unit]]
    told = {name_of(machine, unit, True): reason for unit, reason in whole.items() if reason}
    return (*(FusedAttention(problem, machine, unit) for unit in units), *split), told


def check_asked(dispatch: str, refused: Mapping[str, str]) -> None:
    """`Unimplemented` where a kernel is asked for that does not take the problem."""
    if dispatch.startswith(NAME) and (reason := refused.get(dispatch) or refused.get(NAME)):
        raise Unimplemented(f"attention by {dispatch!r}: {reason}; what works: dispatch='fastest'")
