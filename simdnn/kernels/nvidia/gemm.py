"""GEMM for NVIDIA's SMs as Programs: FMA on CUDA cores, or mma on tensor cores.

for each workgroup, each warp of it:            parallel
    load the fragments of the first step of K
    for each two steps of K:                    load the next step's fragments while this one's are multiplied
    epilogue: the weights' scale, bias, relu, to the destination's type; store

Where K is split, each workgroup has a part of it and leaves its sums in memory. A second kernel adds them up, part
after part, and has the epilogue.

Rows and columns are filled up with zeros to whole blocks.

Fragments are read with ld.shared. How a workgroup brings them into shared memory is not in the instructions, whose
threads share nothing; the loop over K says that it is done (`staged`), and the clock adds loads, stores and barriers.
The arithmetic of addresses costs nothing here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

from isa_models import GpuMachine, Unimplemented
from isa_models.formats import fmt
from isa_models.gpu.block_forms import BLOCK
from isa_models.gpu.platforms import WarpProduct
from isa_models.nvidia.mma import MmaShape
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.partition import Partition
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Block, Blocks, Budget, Sizes, Tile, choose_tile
from simdnn.kernels.nvidia.epilogue import SmEpilogue
from simdnn.kernels.nvidia.fragments import Fragments, PlainFragments, Side
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

MOST_WARPS = 16  # of a workgroup that adds up parts of K
LEAST_K, MOST_PARTS = 256, 8  # of a part, and parts of K: cuBLASLt has 2 to 6 on an H100 PCIe (rows.MOST_RESULTS)
SPARE = Budget(registers=20)  # the second copy of the fragments


@dataclass(frozen=True)
class SmBlock(Block):
    """A block that a warp multiplies at a time, on CUDA cores or on tensor cores."""

    arch: str = ""

    @property
    def instruction(self) -> str:
        if self.on_tensor_cores:
            wei = self.wei if self.wei != self.src else ""
            return MmaShape(self.unit, self.arch, self.src, self.acc, self.m, self.n, self.k, wei).name
        return BLOCK.of(unit="fma.rn.f32", m=self.m, n=self.n, way="outer")

    def rate(self, machine: GpuMachine) -> float:
        if self.on_tensor_cores:
            return machine.mma_rate(self.src, self.wei, self.acc, self.grouped)
        return machine.vector_ops["f32"]

    @property
    def on_tensor_cores(self) -> bool:
        return self.unit != "fma"

    @property
    def grouped(self) -> bool:
        """Whether warps read the weights that they multiply from shared memory, several from one place."""
        return self.warps > 1


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
    splits: int = 1  # parts of K, each with workgroups of its own

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
        if self.splits > 1:
            return self.verified([*self.part_of_k(acc), *self.joined_parts()])
        if self.joins:
            totals = [[self.total(register) for register in row] for row in acc]
            code = [*cleared(totals), *self.load(Affine(), 0), *self.joined(acc, totals), *self.epilogue.code(totals)]
        else:
            code = [*cleared(acc), *self.load(Affine(), 0), *self.products(), *self.epilogue.code(acc)]
        return self.verified(self.cut.nest(code))

    def verified(self, code: Code) -> Program:
        p = self.problem
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.epilogue.dst}"
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    @property
    def workgroups(self) -> int:
        """Workgroups that multiply, of all parts of K and all batches."""
        return prod(self.cut.groups) * self.problem.batch.count * self.splits

    @property
    def warps(self) -> int:
        """Warps of a workgroup."""
        return prod(self.cut.tile.threads)

    @property
    def sums_cycles(self) -> float:
        """An engine's cycles, by rates alone, that store the sums of a part of K and load those of all parts."""
        engines, block = self.machine.engines_per_core, self.cut.block
        sums = 4 * self.cut.tile.rows * self.cut.tile.cols * block.m * block.n * -(-self.warps // engines)
        return (1 + self.splits) * sums / (self.machine.l1.bytes_per_cycle / engines)

    def part_of_k(self, acc: Sequence[Sequence[Register]]) -> Code:
        """The kernel that leaves the sums of each part of K in memory."""
        first = Affine.var("group_k") * (self.steps.parts // self.splits)
        code = [*cleared(acc), *self.load(first * self.steps.inside * 2, 0), *self.products(first)]
        for i, j in self.cut.pairs:
            code.append(op(f"st.global.{acc[i][j].dtype}", self.partial(self.cut, i, j, "group_k"), acc[i][j]))
        return loop("group_k", self.splits, self.cut.nest(code), parallel=True)

    @cached_property
    def summing(self) -> Cut:
        """The destination by warps of a block each, as few in a workgroup as all SMs at work ask for."""
        cut, cores = self.cut, self.machine.xe_cores * self.machine.stacks
        along = [[n for n in range(1, MOST_WARPS + 1) if count % n == 0] for count in cut.all_blocks]
        counts = [(down, across) for down, across in itertools.product(*along) if down * across <= MOST_WARPS]
        every = prod(cut.all_blocks) * cut.batch.count
        threads = min(counts, key=lambda count: (-(-every // prod(count) // cores), prod(count)))
        return replace(cut, m=cut.full_rows, n=cut.full_columns, tile=Tile(cut.block, 1, 1, threads))

    def joined_parts(self) -> Code:
        """The kernel that adds up all parts, in order, and ends as one of all K does."""
        total, dtype = self.acc(0, 0), self.cut.block.acc
        more = replace(total, name="more")
        code: Code = []
        for part in range(self.splits):
            code.append(op(f"ld.global.{dtype}", more if part else total, self.partial(self.summing, 0, 0, part)))
            code += [op("add.rn.f32" if dtype == "f32" else "ptx_add.s32", total, total, more)] if part else []
        return self.summing.nest([*code, *SmEpilogue(self.problem.epilogue, self.summing).code([[total]])])

    def partial(self, cut: Cut, i: int, j: int, part: int | str) -> Memory:
        """Where the sums of a thread's block over a part of K stand."""
        size, first = cut.block.m * cut.block.n, Affine.var(part) if isinstance(part, str) else Affine(part)
        return Memory("partial", cut.place(i, j) * size + first * cut.outputs, cut.block.acc, size)

    def acc(self, i: int, j: int) -> Register:
        return Register(f"c_{i}_{j}", self.cut.block.acc, self.cut.block.m * self.cut.block.n)

    def total(self, acc: Register) -> Register:
        """The sum in f32 that a block's partial sums are added to."""
        return Register(acc.name.replace("c", "t", 1), "f32", acc.lanes)

    @property
    def joins(self) -> bool:
        """Whether accumulators hold partial sums."""
        return bool(self.problem.promote or self.problem.sums)

    def joined(self, acc: Sequence[Sequence[Register]], totals: Sequence[Sequence[Register]]) -> Code:
        """Partial sums of as many products as the problem says, each added to the totals by CUDA cores."""
        join: Code = []
        for register, total in zip(itertools.chain(*acc), itertools.chain(*totals), strict=True):
            wide = register if register.dtype == "f32" else Register("wide", "f32", register.lanes)
            join += [op(f"cvt.f32.{register.dtype}", wide, register)] if wide is not register else []
            join.append(op("add.rn.f32", total, total, wide))
        turns, each, last = self.steps.joined(self.problem.promote)
        some = loop("q", turns, [*cleared(acc), *self.pairs(Affine.var("q") * each, each), *join])
        return some + ([*cleared(acc), *self.pairs(Affine(turns * each), last), *join] if last else [])

    def load(self, step: Affine, copy: int) -> Code:
        return [found for _, part in self.operands for found in part.load(step, copy)]

    def products(self, first: Affine | None = None) -> Code:
        """All steps of K, or of a part from its `first` group on, two by two; group by group where that is asked."""
        first, groups = first or Affine(), self.steps.parts // self.splits
        if not self.grouped and groups == 1:
            return self.pairs(first * self.steps.inside, self.steps.inside)
        g = first + Affine.var("g")
        opening = [found for part in self.by_group for found in part.opening(g)]
        return loop("g", groups, [*opening, *self.pairs(g * self.steps.inside, self.steps.inside)])

    def pairs(self, first: Affine, count: int) -> Code:
        """A number of pairs of steps of K, from one on."""
        block, step = self.cut.block, (first + Affine.var("k")) * 2
        turns = (self.load(step + 1, 1), self.multiply(step, 0)), (self.load(step + 2, 0), self.multiply(step + 1, 1))
        among = spread if block.asynchronous else before
        body = [found for loads, products in turns for found in among(loads, products)]
        staged = self.cut.tile.staged(2 * block.k * fmt(block.src).bits // 8)
        return loop("k", count, body, staged=staged)

    @property
    def by_group(self) -> list[ByGroup]:
        """The operands that have zero points or scales by groups of K."""
        return [part for part in (self.source, self.weights) if isinstance(part, ByGroup)]

    def multiply(self, step: Affine, copy: int) -> Code:
        code = [found for side, part in self.operands for n in side.numbers for found in part.convert(n, copy)]
        name, rows = self.cut.block.instruction, [self.source.operand(step, i, copy) for i in self.cut.rows]
        for j in self.cut.cols:
            b = self.weights.operand(step, j, copy)
            for i, a in enumerate(rows):
                acc = self.acc(i, j)
                code.append(op(name, acc, acc, a, b))
        return code

    def tensors(self) -> list[Tensor]:
        operands = [side.tensor(part.in_memory) for side, part in self.operands]
        tables = [table for part in self.by_group for table in part.tables()]
        sums = [Tensor("partial", self.cut.block.acc, self.splits * self.cut.outputs, "scratch")]
        return [*operands, *self.epilogue.tensors(), *tables, *(sums if self.splits > 1 else [])]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.cut.finish, self.cut.block.src, ("wei",))

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """Blocks of both matrices, filled up with zeros, and the parameters."""
        found: dict[str, Array] = {}
        for part in (self.source, self.weights, self.epilogue):
            found |= part.arrays(src, weights, parameters)
        return found


def before(loads: Code, products: Code) -> Code:
    """A step's loads, then its products."""
    return [*loads, *products]


def spread(loads: Code, products: Code) -> Code:
    """A step's loads among its products, as compilers place them so that none waits for the one before."""
    every = max(1, len(products) // max(1, len(loads)))
    code: Code = []
    for i, product in enumerate(products):
        code += [*loads[i // every : i // every + 1], product] if i % every == 0 else [product]
    return [*code, *loads[-(-len(products) // every) :]]


def cleared(registers: Sequence[Sequence[Register]]) -> Code:
    """Blocks of registers, which hold zeros then."""
    return [op("xor.b32", *[register.as_("u32")] * 3) for row in registers for register in row]


def sm_cut_of(
    problem: GpuMatmulProblem, machine: GpuMachine, unit: str, types: tuple[str, str], budget: Budget, splits: int = 1
) -> Cut:
    """Blocks and tiles for operands multiplied in these types by a unit: fma | mma | wgmma."""
    p, platform = problem, machine.platform
    warp = platform.cuda_cores
    if unit != "fma":
        warp = dict(platform.warp_groups if unit == "wgmma" else platform.tensor_cores).get(types[0])
    if warp is None:
        raise Unimplemented(f"products of {types[0]} on {machine.name!r}: {platform.title} has no {unit} for them here")
    block = SmBlock(
        *(warp.m, warp.n, warp.k, *types, unit, warp.copies),
        from_shared=True,
        sums=p.sums,
        warps=warp.warps,
        asynchronous=platform.async_copies,
        arch=platform.name,
    )
    if p.promote or p.sums or splits > 1:
        budget = replace(budget, copies=budget.copies + 1)
    budget = replace(budget, registers=budget.registers + p.spare)
    blocks, batch = _by_width(block, warp), p.batch.count * splits
    tile, cycles = choose_tile(machine, blocks, p.m, p.n, p.k // splits, budget, batch)
    return Cut(p.m, p.n, tile, p.batch, cycles)


@lru_cache(maxsize=256)
def _by_width(block: SmBlock, warp: WarpProduct) -> Blocks:
    """The blocks of a unit's widths, each with the workgroups' sizes that it is the widest for."""
    if not warp.sizes:
        return ((block, ()),)
    found: dict[Block, Sizes] = {}
    for size in warp.sizes:
        wide = replace(block, n=warp.columns_for(size[1]))
        found[wide] = (*found.get(wide, ()), size)
    return tuple(found.items())


def pairs_of_steps(cut: Cut, k: int, group: int) -> Partition:
    """K in groups of whole pairs of steps."""
    return Partition(cut, k, group, 2 * cut.block.k)


def unit_of(machine: GpuMachine, dtype: str) -> str:
    """The unit of a warp that multiplies a type: mma, or fma where tensor cores do not."""
    return "mma" if dtype in dict(machine.platform.tensor_cores) else "fma"


def SmGemm(problem: GpuMatmulProblem, machine: GpuMachine, unit: str = "", splits: int = 1) -> WarpGemm:
    """A matmul of operands that are multiplied as they are stored; `unit`: "", or the one to take."""
    p, unit = problem, unit or unit_of(machine, problem.src)
    steps = pairs_of_steps(sm_cut_of(p, machine, unit, (p.src, p.wei), SPARE, splits), p.k, p.k // splits)
    source, weights = (PlainFragments(Side(name, steps), t, t) for name, t in (("src", p.src), ("wei", p.wei)))
    return WarpGemm(problem, machine, steps, source, weights, splits=splits)


def parts_of_k(
    p: GpuMatmulProblem, machine: GpuMachine, made: Callable[[int], WarpGemm], group: int
) -> WarpGemm | None:
    """The kernel whose parts of K, of one `group` or of several, take the least time by rates alone, with one workgroup
    to each SM at most, or None where workgroups that have all of K are enough.
    """
    whole = p.k // group
    counts = [n for n in range(2, p.k // LEAST_K + 1) if p.k % n == 0 and (whole == 1 or whole % n == 0)]
    split = (made(n) for n in counts if n <= MOST_PARTS)
    found = [kernel for kernel in split if kernel.workgroups <= machine.xe_cores * machine.stacks]
    return min(found, key=lambda kernel: kernel.cut.cycles + kernel.sums_cycles, default=None)
