"""The weights' way into what a GPU's kernel reads, ahead of the runs, where that takes a kernel."""

from __future__ import annotations

from isa_models import GpuMachine
from simdnn.kernels.gpu.compute import rounding
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.intel_gpu.copy import copy_alone, is_copied
from simdnn.primitives.costs import estimate_on_gpu
from simdnn.primitives.result import Conversion
from simdnn.program.records import Program


def conversion(problem: GpuMatmulProblem, machine: GpuMachine, program: Program, cold: bool) -> Conversion | None:
    """The conversion of weights that come with wei_tag="any" into blocks, or to the type that `program` multiplies."""
    if problem.wei_tag != "any":
        return None
    if problem.compute and problem.wei == "f32":
        size = problem.batch.products("wei") * problem.k * problem.n
        program = rounding(size, problem.compute, machine)
        read, written = (next(t.nbytes for t in program.tensors if t.kind == kind) for kind in ("input", "output"))
    elif is_copied(machine, problem):
        program = copy_alone(program, machine, "wei")
        read = written = program.tensor["wei"].nbytes
    else:
        return None
    cost = estimate_on_gpu(program, machine, ("wei",) if cold else ())
    return Conversion(cost.cycles, cost.seconds, read, written, cost.confidence)
