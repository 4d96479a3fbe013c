"""GEMM for NVIDIA's SMs as Programs: FMA on CUDA cores, or mma on tensor cores.

for each workgroup, each warp of it:            parallel
    load the fragments of the first step of K
    for each two steps of K:                    load the next step's fragments while this one's are multiplied
    epilogue: the weights' scale, bias, relu, to the destination's type; store

Rows and columns are filled up with zeros to whole blocks.

Fragments are read with ld.shared. How a workgroup brings them into shared memory is not in the instructions, whose
threads share nothing; the loop over K says that it is done (`staged`), and the clock adds loads, stores and barriers.
The arithmetic of addresses costs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from isa_models import GpuMachine, Unimplemented
from isa_models.formats import fmt
from isa_models.gpu.blocks import BLOCK
from isa_models.nvidia.mma import Shape
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import Kernel, Parameters
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.partition import Partition
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Block, Budget, choose_tile
from simdnn.kernels.nvidia.epilogue import SmEpilogue
from simdnn.kernels.nvidia.fragments import FloatFragments, Fragments, Side
from simdnn.program.check import verify
from simdnn.program.records import Affine, Program, Register, Tensor

SPARE = Budget(registers=20)  # the second copy of the fragments


@dataclass(frozen=True)
class SmBlock(Block):
    """A block that a warp multiplies at a time, on CUDA cores or on tensor cores."""

    arch: str = ""

    @property
    def instruction(self) -> str:
        if self.unit == "mma":
            return Shape("mma", self.arch, self.src, "f32", self.m, self.n, self.k).name
        return BLOCK.of(unit="fma.rn.f32", m=self.m, n=self.n, way="outer")

    def rate(self, machine: GpuMachine) -> float:
        return machine.systolic_rate(self.src, self.wei)[0] if self.unit == "mma" else machine.vector_ops["f32"]


@dataclass(frozen=True, eq=False)
class WarpGemm:
    """The nest of one problem on one machine, and the parts that it is made of."""

    problem: GpuMatmulProblem
    machine: GpuMachine
    steps: Partition
    source: Fragments
    weights: Fragments
    suffix: str = ""
    grouped: bool = False  # with a loop over groups of K, even where one is all there is

    @property
    def cut(self) -> Cut:
        return self.steps.cut

    @property
    def name(self) -> str:
        return f"gemm:{self.machine.platform.name}_{self.cut.block.unit}{self.suffix}"

    @property
    def operands(self) -> tuple[tuple[Side, Fragments], tuple[Side, Fragments]]:
        return (Side("src", self.steps), self.source), (Side("wei", self.steps), self.weights)

    @cached_property
    def epilogue(self) -> SmEpilogue:
        return SmEpilogue(self.problem.epilogue, self.cut)

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        acc = [[self.acc(i, j) for j in self.cut.cols] for i in self.cut.rows]
        clear = [op("xor.b32", *[register.as_("u32")] * 3) for row in acc for register in row]
        code = [*clear, *self.load(Affine(), 0), *self.products(), *self.epilogue.code(acc)]
        p = self.problem
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.epilogue.dst}"
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(self.cut.nest(code))))

    def acc(self, i: int, j: int) -> Register:
        return Register(f"c_{i}_{j}", "f32", self.cut.block.m * self.cut.block.n)

    def load(self, step: Affine, copy: int) -> Code:
        return [
            found for side, part in self.operands for found in side.load(part.loaded, step, copy, part.in_memory.dtype)
        ]

    def products(self) -> Code:
        """All steps of K, two by two; group by group where something changes along K."""
        block, k = self.cut.block, Affine.var("k")
        first = (Affine.var("g") * self.steps.inside + k) * 2 if self.grouped else k * 2
        body = [*self.load(first + 1, 1), *self.multiply(0), *self.load(first + 2, 0), *self.multiply(1)]
        staged = self.cut.tile.staged(2 * block.k * fmt(block.src).bits // 8)
        steps = loop("k", self.steps.inside, body, staged=staged)
        if not self.grouped:
            return steps
        g = Affine.var("g")
        opening = [found for part in self.by_group for found in part.opening(g)]
        return loop("g", self.steps.parts, [*opening, *steps])

    @property
    def by_group(self) -> list[ByGroup]:
        """The operands that have zero points or scales by groups of K."""
        return [part for part in (self.source, self.weights) if isinstance(part, ByGroup)]

    def multiply(self, copy: int) -> Code:
        code = [found for side, part in self.operands for n in side.numbers for found in part.convert(n, copy)]
        for j in self.cut.cols:
            for i in self.cut.rows:
                a, b = self.source.operand(i, copy), self.weights.operand(j, copy)
                code.append(op(self.cut.block.instruction, self.acc(i, j), self.acc(i, j), a, b))
        return code

    def tensors(self) -> list[Tensor]:
        operands = [side.tensor(part.in_memory) for side, part in self.operands]
        tables = [table for part in self.by_group for table in part.tables()]
        return [*operands, *self.epilogue.tensors(), *tables]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.cut.finish, self.cut.block.src, ("wei",))

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """Blocks of both matrices, filled up with zeros, and the parameters."""
        found: dict[str, Array] = {}
        for part in (self.source, self.weights, self.epilogue):
            found |= part.arrays(src, weights, parameters)
        return found


def sm_cut_of(problem: GpuMatmulProblem, machine: GpuMachine, dtype: str, budget: Budget) -> Cut:
    """Blocks and tiles for operands multiplied in a type."""
    p, platform = problem, machine.platform
    if (warp := platform.warp_product(dtype)) is None:
        raise Unimplemented(f"products of {dtype} on {machine.name!r}: {platform.title} has no unit for them here")
    unit = "mma" if dtype in dict(platform.tensor_cores) else "fma"
    block = SmBlock(warp.m, warp.n, warp.k, dtype, dtype, unit, warp.copies, from_shared=True, arch=platform.name)
    tile = choose_tile(machine, block, p.m, p.n, p.k, budget, p.batch.count, warp.sizes)
    return Cut(p.m, p.n, tile, p.batch)


def pairs_of_steps(cut: Cut, k: int, group: int) -> Partition:
    """K in groups of whole pairs of steps."""
    return Partition(cut, k, group, 2 * cut.block.k)


def SmGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> WarpGemm:
    """A matmul of operands that are multiplied as they are stored."""
    steps = pairs_of_steps(sm_cut_of(problem, machine, problem.src, SPARE), problem.k, problem.k)
    source, weights = (FloatFragments(Side(name, steps), problem.src, problem.src) for name in ("src", "wei"))
    return WarpGemm(problem, machine, steps, source, weights)
