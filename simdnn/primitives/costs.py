"""Kernels of kinds made for problems, and what they cost: kept, so that a second call builds and estimates nothing."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from isa_models import GpuMachine, InvalidArgument, Machine, UnknownTiming
from isa_models.host import large_pages
from simdnn.garbage import collected_later
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.batched import repeated
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.program.check import drafts
from simdnn.program.records import Program

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

_TIMED = itertools.count(1)
_MANY = frozenset([128, 512, 2048])  # kernels timed: fewer end before it pays
Estimator = Callable[..., "Cost"]  # as `estimate_program`; one that is told of no threads counts one core


def estimate_program(program: Program, machine: Machine, cold: tuple[str, ...], threads: int = 1) -> Cost:
    """`simdnn.timing`'s, imported at first use."""
    from simdnn.timing import estimate

    return estimate.estimate_program(program, machine, cold=cold, threads=threads)


def estimate_on_gpu(
    program: Program, machine: GpuMachine, cold: tuple[str, ...], copies: tuple[tuple[str, float], ...] = ()
) -> Cost:
    """`simdnn.timing.gpu`'s, imported at first use; `cold`: weights and all else come from memory."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    return estimate_gpu(program, machine, cold=bool(cold), copies=dict(copies))


def warm_cost(program: Program, machine: Machine | GpuMachine, threads: int) -> Cost:
    """The cost of a program whose data lie in the caches, on a number of a CPU's cores or on a GPU."""
    if isinstance(machine, GpuMachine):
        return estimate_on_gpu(program, machine, ())
    return estimate_program(program, machine, (), threads)


def least_cycles(kind: KernelKind, problem: Problem, machine: Machine) -> float:
    """The cycles that the multiply-accumulates take at the peak rate of the kind's unit; 0 where no unit is known."""
    from simdnn.timing.cpu.peak import peak_macs_per_cycle

    if kind.narrow_sums:  # the peak of a unit is that of sums of 32 bits
        return 0.0
    try:
        return problem.macs / peak_macs_per_cycle(machine, kind.compute_dtype, kind.isa)
    except (InvalidArgument, UnknownTiming):
        return 0.0


def clock_at_peak(kind: KernelKind, machine: Machine) -> float:
    """GHz of code that uses the kind's unit; infinite where no unit is known."""
    from simdnn.timing.cpu.peak import peak_ghz

    try:
        return peak_ghz(machine, kind.compute_dtype, kind.isa)
    except InvalidArgument:
        return math.inf


def no_floor(kind: KernelKind, problem: Problem, machine: object) -> float:
    """No least time is known: every kind that may run is timed."""
    return 0.0


@functools.lru_cache(maxsize=256)
def built(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Kernel:
    """The kind's kernel for a problem, kept for who runs it again."""
    return just_built(kind, problem, machine)


def build(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Kernel:
    """The kind's kernel for a problem; those of CPUs know one product, whose program is repeated for a batch."""
    if not isinstance(problem, MatmulProblem) or problem.batch.count == 1 or isinstance(machine, GpuMachine):
        return kind.build(problem, machine)
    with drafts():  # all products' program is proved
        one = kind.build(replace(problem, batch=Batch()), machine)
    return repeated(one, problem.batch, problem.epilogue.post_ops)


@functools.lru_cache(maxsize=2)
def just_built(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Kernel:
    """The kind's kernel for a problem, kept for who asks it several things."""
    return build(kind, problem, machine)


class Outlives(NamedTuple):
    """Facts of a kernel that is gone: the type that it forms products in, and the bytes of its program's inputs and
    outputs, each once.
    """

    compute_dtype: str
    nbytes: int

    @staticmethod
    def of(kernel: Kernel) -> Outlives:
        moved = sum(t.nbytes for t in kernel.program.tensors if t.kind in ("input", "output"))
        return Outlives(kernel.compute_dtype, moved)


class Timed(NamedTuple):
    """The cost of a kernel, and its other facts, without its program, which is made where it is asked for: it is
    thousands of objects, which Python's collection of garbage would walk over again and again.
    """

    cost: Cost
    told: Outlives


@functools.lru_cache(maxsize=512)
@collected_later()
def timed(
    kind: KernelKind,
    problem: Problem,
    machine: Machine | GpuMachine,
    cold_weights: bool,
    estimator: Estimator,
    threads: int,
) -> Timed:
    """The kind's kernel for a problem, timed on a number of a machine's cores."""
    if next(_TIMED) in _MANY:
        large_pages.gather()  # what has been kept so far is asked for again and again
    kernel = build(kind, problem, machine)
    told: dict[str, Any] = {"threads": threads} if threads > 1 else {}
    told |= {"copies": kernel.copies} if kernel.copies else {}
    cold = (*kernel.weights, *kernel.beside) if cold_weights else ()
    cost = estimator(kernel.timed or kernel.program, machine, cold, **told)
    return Timed(cost.without_program(functools.partial(_timed, kind, problem, machine)), Outlives.of(kernel))


def _timed(kind: KernelKind, problem: Problem, machine: Machine | GpuMachine) -> Program:
    """The program that the kind's cost for a problem was found from."""
    kernel = just_built(kind, problem, machine)
    return kernel.timed or kernel.program


@functools.lru_cache(maxsize=512)
def priced_program(program: Program, machine: Machine, cold: tuple[str, ...] = ()) -> Cost:
    """The cost of a program on one core of a machine."""
    return estimate_program(program, machine, cold)
