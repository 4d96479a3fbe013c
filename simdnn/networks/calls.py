"""One call of a kernel by an operator of a network, and what its program costs on a machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from isa_models import GpuMachine, Machine, Unimplemented
from isa_models.machines.provenance import Confidence
from isa_models.records.alike import Alike
from isa_models.records.display import Brief
from simdnn.kernels.common.scaled import Scaled
from simdnn.kernels.common.vocabulary import Spread, Vocabulary
from simdnn.kernels.gpu.vocabulary import GpuVocabulary
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.scaled import scaled_quantization
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.networks.narrow_weights import NarrowForm
from simdnn.primitives.costs import warm_cost
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.explanations.departures import Departures
    from simdnn.timing.estimate import Cost

Build = Callable[[Any, Vocabulary], Spread]


@dataclass(frozen=True, eq=False, repr=False)
class Call(Alike, Brief):
    """One kernel call: its name and how to find its cost."""

    implementation: str
    find_cost: Callable[[], Cost]
    macs: int = 0
    confidence: Confidence = "measured"  # of the choice of the program; its figures have their own
    departed: Departures | None = None  # of a product that ran: how it departed from exact integers
    compute_dtype: str = ""  # of a product
    task: str = ""  # of all else, by which its kernel is named: "softmax", "convert"


@functools.lru_cache(maxsize=4096)
def kernel_cost(build: Build, problem: Any, words: Vocabulary, machine: Machine | GpuMachine, threads: int) -> Cost:
    """The clock's answer for a kernel's program."""
    return warm_cost(build(problem, words).program, machine, threads)


@functools.lru_cache(maxsize=64)
def behind(machine: Machine | GpuMachine) -> Machine | GpuMachine:
    """The machine as a pass of an operator finds it behind another one: on a GPU one kernel does both, and is launched
    once.
    """
    return replace(machine, launch_us=0.0) if isinstance(machine, GpuMachine) and machine.launch_us else machine


def quantization(form: NarrowForm, m: int, k: int, src: str, target: Target) -> Call:
    """The call of the kernel that quantizes a source (M, K) as it comes; `Unimplemented` on GPUs."""
    machine = target.machine
    if isinstance(machine, GpuMachine):
        raise Unimplemented(
            f"sources of {form.dtype} on {machine.name!r}: no GPU here multiplies them; what works: a CPU"
        )
    isa = words_for(machine, target.caps).isa
    problem = form.problem(m, k, src)
    return Call(f"quantize:{isa}", functools.partial(_quantization_cost, problem, isa, machine, target.threads))


@functools.lru_cache(maxsize=4096)
def _quantization_cost(problem: Scaled, isa: str, machine: Machine, threads: int) -> Cost:
    """The clock's answer for the kernel that quantizes a source by blocks."""
    return warm_cost(scaled_quantization(problem, unit_of(isa)), machine, threads)


def words_for(machine: Machine | GpuMachine, caps: frozenset[str]) -> Vocabulary:
    """The vocabulary of a machine under ISA caps, for everything but products."""
    if isinstance(machine, GpuMachine):
        return GpuVocabulary(machine)
    for isa in ("avx512_core_bf16", "avx512_core", "avx2"):
        if isa in caps:
            return X86Vocabulary(unit_of(isa))
    raise Unimplemented(f"networks on {machine.name} up to {max(caps)}: needs avx2")
