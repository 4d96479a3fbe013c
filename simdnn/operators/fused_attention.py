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
from simdnn.kernels.nvidia.attention_tiles import NAME, flash_tile, name_of, refused, units_on
from simdnn.late import frames, pd
from simdnn.primitives.costs import estimate_on_gpu
from simdnn.primitives.result import Priced, sources
from simdnn.primitives.run import Target
from simdnn.program.records import Program

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

THREE = "three kernels"


@functools.lru_cache(maxsize=64)
def kernel_of(problem: AttentionProblem, machine: GpuMachine, unit: str) -> FlashAttention:
    """The kernel of a problem that multiplies by a unit; `Unimplemented` where the GPU has none."""
    return FlashAttention(problem, machine, flash_tile(problem, machine, unit))


@functools.lru_cache(maxsize=256)
def _cost(problem: AttentionProblem, machine: GpuMachine, unit: str) -> Cost:
    return estimate_on_gpu(kernel_of(problem, machine, unit).timed, machine, ())


@dataclass(frozen=True, eq=False, repr=False)
class FusedAttention(Alike, Priced):
    """The one kernel as a step of attention: what it costs, its program, where the numbers are from."""

    problem: AttentionProblem
    machine: GpuMachine
    unit: str

    @property
    def cost(self) -> Cost:
        return _cost(self.problem, self.machine, self.unit)

    @property
    def program(self) -> Program:
        """The kernel's program."""
        return kernel_of(self.problem, self.machine, self.unit).program

    @property
    def implementation(self) -> str:
        return kernel_of(self.problem, self.machine, self.unit).name

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

        spread = kernel_of(self.problem, self.machine, self.unit).spread()
        with np.errstate(all="ignore"):  # NaN, Inf and overflow are values like others here
            left = numerics.run(spread.program, spread.prepare(arrays), engine=engine, threads=threads)
        found: Array = spread.finish(left)
        return found


class Lasting(Protocol):
    """Something that has a time."""

    @property
    def cycles(self) -> float: ...
    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True, eq=False)
class Ways(Alike):
    """The ways on a target: three kernels, and those that do all at once, or the `reason` why there is none."""

    three: Lasting
    alone: tuple[FusedAttention, ...]
    reason: str
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
        if not self.alone:
            rows.append((NAME, math.nan, math.nan, False, self.reason))
        found = pd.DataFrame(rows, columns=["implementation", "cycles", "time_us", "chosen", "reason"])
        return frames.shown(found, ["implementation", "cycles", "reason"])


def names_on(target: Target) -> tuple[str, ...]:
    """The words that `dispatch` of attention may be on a target."""
    machine = target.machine
    alone = [name_of(machine, unit) for unit in units_on(machine)] if isinstance(machine, GpuMachine) else []
    return ("fastest", "onednn", THREE, *alone)


def fused_on(target: Target, problem: AttentionProblem, masked: bool) -> tuple[tuple[FusedAttention, ...], str]:
    """The kernels that do all at once for a problem, or why there is none."""
    machine = target.machine
    if not isinstance(machine, GpuMachine):
        return (), "no kernel of CPUs keeps scores in registers here"
    if not machine.nvidia:
        return (), "no kernel of Intel's GPUs keeps scores in registers here"
    if reason := refused(problem, machine) or ("takes no masks, as FlashAttention-2" if masked else ""):
        return (), reason
    return tuple(FusedAttention(problem, machine, unit) for unit in units_on(machine)), ""


def check_asked(dispatch: str, reason: str) -> None:
    """`Unimplemented` where the one kernel is asked for and there is none."""
    if reason and dispatch.startswith(NAME):
        raise Unimplemented(f"attention by {dispatch!r}: {reason}; what works: dispatch='fastest'")
