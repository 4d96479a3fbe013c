"""GEMM for Intel GPUs as a Program: DPAS; DP4A and mad where the systolic array lacks the type, or is lacking.

for each workgroup, each thread of it:          parallel
    for each step of K:                         load blocks of A and of B, multiply every pair
    epilogue: to f32, scales, bias, relu, to the destination's type; store

Matrices lie in memory block by block as the registers want them: a block of A is rows of a step of K, a block of B is
VNNI (`isa_models.intel_gpu.packing`), or rows for the vector pipe, which multiplies floats in f32: narrower ones are
widened in registers. On Xe-HPC and Xe2 a 2D block message reads such a block out of a plain matrix, from L1; on those
before, the threads of a workgroup bring blocks into shared memory, some steps at a time between barriers, and read them
from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from isa_models import GpuMachine
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Budget, Tile, choose_tile
from simdnn.kernels.intel_gpu.block import block_of
from simdnn.kernels.intel_gpu.copy import is_copied, with_copies
from simdnn.kernels.intel_gpu.epilogue import BlockEpilogue
from simdnn.kernels.intel_gpu.operands import BlockOperand, Multiplied
from simdnn.kernels.intel_gpu.partition import BlockPartition
from simdnn.kernels.intel_gpu.products import BlockProducts
from simdnn.kernels.intel_gpu.sums import BlockSums, JoinedSums, PlainSums
from simdnn.program.check import verify
from simdnn.program.records import Program, Tensor


@dataclass(frozen=True, eq=False)
class BlockGemm:
    """The nest of one problem on one machine, and the parts that it is made of."""

    problem: GpuMatmulProblem
    machine: GpuMachine
    cut: Cut
    source: BlockOperand
    weights: BlockOperand
    sums: BlockSums
    suffix: str = ""
    compute: str = ""  # the type that products are formed in, where it is not the stored one

    @property
    def name(self) -> str:
        return f"gemm:{self.machine.platform.name}_{self.cut.block.unit}{self.suffix}"

    @property
    def tile(self) -> Tile:
        return self.cut.tile

    @property
    def groups(self) -> tuple[int, int]:
        """Workgroups along M and N."""
        return self.cut.groups

    @cached_property
    def epilogue(self) -> BlockEpilogue:
        return BlockEpilogue(self.problem.epilogue, self.cut, self.sums)

    @cached_property
    def program(self) -> Program:
        p, code = self.problem, self.cut.nest([*self.sums.code(), *self.epilogue.code()])
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.wei}:{p.epilogue.dst} {p.zero_points or ''}".strip()
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        operands = [self.source.tensor(), self.weights.tensor()]
        return [*operands, *self.epilogue.tensors(), *self.sums.tensors()]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        dtype = self.compute or ("f32" if self.cut.block.widened else self.problem.src)
        timed = with_copies(self.program, self.machine, self.copied) if self.copied else None
        return Kernel(self.name, self.program, self.prepare, self.cut.finish, dtype, ("wei",), timed=timed)

    @property
    def copied(self) -> tuple[str, ...]:
        """Tensors that the user has plain and a kernel brings into blocks before this one runs."""
        p = self.problem
        if not is_copied(self.machine, p):
            return ()
        return ("src", "wei") if p.wei_tag != "any" else ("src",)

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """Blocks of both matrices, filled up with zeros, and the parameters."""
        found: dict[str, Array] = {}
        for part in (self.source, self.weights, self.sums, self.epilogue):
            found |= part.arrays(src, weights, parameters)
        return found


def cut_of(problem: GpuMatmulProblem, machine: GpuMachine, budget: Budget, src: str, wei: str) -> Cut:
    """Blocks and tiles for operands multiplied in these types."""
    p, block = problem, block_of(machine, problem.m, src, wei, problem.float_model, problem.sums)
    if any(op.kind == "sum" or op.second for op in p.epilogue.post_ops):  # what they read, and it in f32, and a factor
        size = 4 * block.m * block.n
        budget = replace(budget, registers=budget.registers + 4 * -(-size // machine.platform.grf_bytes))
    budget = replace(budget, registers=budget.registers + p.spare)
    tile, cycles = choose_tile(machine, ((block, ()),), p.m, p.n, p.k, budget, p.batch.count)
    return Cut(p.m, p.n, tile, p.batch, cycles)


def GpuGemm(problem: GpuMatmulProblem, machine: GpuMachine, registers: int = 0) -> BlockGemm:
    """A matmul of operands that are multiplied as they are stored, without anything that changes along K.

    `registers` of each thread stay free.
    """
    joined = bool(problem.promote or problem.sums)
    cut = cut_of(problem, machine, Budget(registers, copies=1 + joined), problem.src, problem.wei)
    partition = BlockPartition.of(cut, problem.k, problem.k)
    source, weights = Multiplied(partition, "src"), Multiplied(partition, "wei")
    products = BlockProducts(machine, partition, source, weights)
    sums = JoinedSums(products, problem.promote) if joined else PlainSums(products)
    return BlockGemm(problem, machine, cut, source, weights, sums)
