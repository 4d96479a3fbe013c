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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.nvidia.mma import Shape
from isa_models.nvidia.platforms import WARP
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import Epilogue, Kernel, Parameters
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.partition import Partition
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.intel_gpu.tile import Block, Budget, choose_tile
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Op, Program, Register, Tensor

SPARE = Budget(registers=20)  # the second copy of the fragments
#: rows and columns of a workgroup, by the operands' type: those in the names of cuDNN 7's implicit GEMM kernels for
#: Volta (volta_scudnn_128x64_relu_interior_nn_v1, volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f… in profiles)
SIZES = {"f32": ((128, 128), (128, 64), (128, 32)), "f16": ((256, 128), (256, 64), (128, 128))}

_CONVERSION = {("f32", "f16"): "cvt.rn.f16.f32", ("f16", "f32"): "cvt.f32.f16"}


@dataclass(frozen=True)
class SmBlock(Block):
    """Rows of a warp's CUDA cores, or the 16x16x4 that four quads of its threads make with one mma.m8n8k4."""

    from_shared: bool = True
    arch: str = "volta"

    @property
    def instruction(self) -> str:
        if self.systolic:
            return Shape("mma", self.arch, self.src, "f32", self.m, self.n, self.k).name
        return f"fma.rn.f32.{self.m}x{self.n}.outer"

    def rate(self, machine: GpuMachine) -> float:
        return super().rate(machine) if self.systolic else machine.vector_ops["f32"]


def block_of(machine: GpuMachine, dtype: str) -> SmBlock:
    """The block for operands of a type: f16 on tensor cores, f32 on CUDA cores.

    Each element of an mma's operands goes to two of the four quads; on CUDA cores 8 x 4 threads share a warp's tile, so
    that an element of A goes to 4 of them and one of B to 8.
    """
    arch = machine.platform.name
    if dtype == "f16":
        return SmBlock(16, 16, 4, "f16", "f16", copies=(2, 2), arch=arch)
    return SmBlock(8, WARP, 1, "f32", "f32", systolic=False, copies=(4, 8), arch=arch)


class Fragments(Protocol):
    """One operand: as stored in a tensor and in the registers it is loaded to, and as it is multiplied."""

    @property
    def stored(self) -> str:
        """The type in memory."""

    @property
    def multiplied(self) -> str:
        """The type of `operand`."""

    @property
    def loaded(self) -> Register:
        """What one block of a step is loaded to, without its name."""

    def operand(self, number: int, copy: int) -> Register:
        """What is multiplied."""

    def opening(self, g: Affine) -> Code:
        """What group `g` needs in registers before its steps."""

    def convert(self, number: int, copy: int) -> Code:
        """From what is loaded to what is multiplied."""

    def tables(self) -> list[Tensor]:
        """What is read beside the tensor."""

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Side:
    """What the two operands differ in: rows of the source, or columns of the weights."""

    name: str  # of the tensor: "src" or "wei"
    steps: Partition

    @property
    def letter(self) -> str:
        return "a" if self.name == "src" else "b"

    @property
    def size(self) -> int:
        """Rows, or columns, of a block."""
        return self.steps.cut.block.m if self.name == "src" else self.steps.cut.block.n

    @property
    def lanes(self) -> int:
        """Elements of a block in a step."""
        return self.size * self.steps.cut.block.k

    @property
    def numbers(self) -> range:
        """A thread's blocks."""
        return self.steps.cut.rows if self.name == "src" else self.steps.cut.cols

    @property
    def count(self) -> int:
        """All blocks along the side."""
        return self.steps.cut.row_blocks if self.name == "src" else self.steps.cut.col_blocks

    @property
    def copies(self) -> int:
        """Threads that hold each element."""
        return self.steps.cut.block.copies[self.name == "wei"]

    def each(self, name: str, *registers: Register) -> Op:
        """An instruction on a fragment, which every thread that has a copy of an element executes."""
        return op(f"{name}.to{self.copies}", *registers)

    def load(self, form: Register, step: Affine, copy: int) -> Code:
        """The fragments of a step of K; the one behind the last belongs to the next block, or is zero."""
        cut, steps, code = self.steps.cut, 2 * self.steps.steps, Code()
        for number in self.numbers:
            block = cut.tile.row(number) if self.name == "src" else cut.tile.col(number)
            behind = cut.batch.at(self.name) * (self.count * steps + 1)
            place = Memory(self.name, (block * steps + step + behind) * form.lanes, form.dtype, form.lanes)
            register = Register(f"{self.letter}_{number}_{copy}", form.dtype, form.lanes)
            code.append(op(f"ld.shared.{form.dtype}.to{self.copies}", register, place))
        return code

    def tensor(self, form: Register) -> Tensor:
        products = self.steps.cut.batch.products(self.name)
        return Tensor(self.name, form.dtype, products * (self.count * 2 * self.steps.steps + 1) * form.lanes)

    def blocks(self, matrix: Array) -> Array:
        """(lines, K) as blocks of a step of K, those of the source by rows, of the weights by columns; and a step."""
        steps, k = 2 * self.steps.steps, self.steps.cut.block.k
        full = np.zeros((self.count * self.size, steps * k), matrix.dtype)
        full[: matrix.shape[0], : matrix.shape[1]] = matrix
        order = (0, 2, 1, 3) if self.name == "src" else (0, 2, 3, 1)
        blocks = full.reshape(self.count, self.size, steps, k).transpose(order)
        return np.concatenate([blocks.reshape(-1), np.zeros(self.size * k, full.dtype)])


@dataclass(frozen=True)
class FloatFragments:
    """Floats, which are rounded, or widened, where they are not stored in the type multiplied."""

    side: Side
    stored: str
    multiplied: str

    @property
    def loaded(self) -> Register:
        return Register("", self.stored, self.side.lanes)

    def operand(self, number: int, copy: int) -> Register:
        name = f"{self.side.letter}_{number}" + f"_{copy}" * (self.stored == self.multiplied)
        return Register(name, self.multiplied, self.side.lanes)

    def opening(self, g: Affine) -> Code:
        return []

    def convert(self, number: int, copy: int) -> Code:
        if self.stored == self.multiplied:
            return []
        raw = Register(f"{self.side.letter}_{number}_{copy}", self.stored, self.side.lanes)
        return [self.side.each(_CONVERSION[self.stored, self.multiplied], self.operand(number, copy), raw)]

    def tables(self) -> list[Tensor]:
        return []

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        matrix = (src if self.side.name == "src" else weights.T).astype(fmt(self.stored).dtype)
        return {self.side.name: self.side.blocks(self.side.steps.filled(matrix))}


@dataclass(frozen=True)
class SmEpilogue:
    """What happens to blocks of sums on their way to memory: the weights' scale, bias, relu, narrowing."""

    epilogue: Epilogue
    cut: Cut

    def code(self, acc: Sequence[Sequence[Register]]) -> Code:
        e, cut, b = self.epilogue, self.cut, self.cut.block
        code: Code = []
        zero = Register("zero", "f32", b.m * b.n)
        if "relu" in e.post_ops:
            code.append(op("xor.b32", *[zero.as_("u32")] * 3))
        for j in cut.cols:
            scale, bias = (Register(name, "f32", b.n) for name in ("wei_scale", "bias"))
            for register in (*([scale] if e.wei_scale else []), *([bias] if e.bias else [])):
                place = Memory(register.name, cut.col(j, "columns") * b.n, "f32", b.n)
                code.append(op("ld.global.f32", register, place))
            for i in cut.rows:
                x = result = acc[i][j]
                if e.wei_scale:
                    code.append(op(f"mul.rn.f32.{b.m}x{b.n}.row", x, x, scale))
                if e.bias:
                    code.append(op(f"add.rn.f32.{b.m}x{b.n}.row", x, x, bias))
                if "relu" in e.post_ops:
                    code.append(op("ptx_max.f32", x, x, zero))
                if e.dst == "f16":
                    result = Register("narrow", "f16", x.lanes)
                    code.append(op("cvt.rn.f16.f32", result, x))
                at = cut.place(i, j) * x.lanes
                code.append(op(f"st.global.{e.dst}", Memory("dst", at, e.dst, x.lanes), result))
        return code

    def tensors(self) -> list[Tensor]:
        e, columns = self.epilogue, self.cut.batch.products("columns") * self.cut.full_columns
        given = [name for name, wanted in (("wei_scale", e.wei_scale), ("bias", e.bias)) if wanted]
        return [*(Tensor(name, "f32", columns) for name in given), Tensor("dst", e.dst, self.cut.outputs, "output")]

    def arrays(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        e = self.epilogue
        given = ("wei_scale", p.wei_scale, e.wei_scale), ("bias", p.bias, e.bias)
        return {name: self.cut.per_column(values) for name, values, wanted in given if wanted and values is not None}


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
        return f"gemm:{self.machine.platform.name}_{'mma' if self.cut.block.systolic else 'fma'}{self.suffix}"

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
        return [found for side, part in self.operands for found in side.load(part.loaded, step, copy)]

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
        return loop("g", self.steps.parts, [*self.source.opening(g), *self.weights.opening(g), *steps])

    def multiply(self, copy: int) -> Code:
        code = [found for side, part in self.operands for n in side.numbers for found in part.convert(n, copy)]
        for j in self.cut.cols:
            for i in self.cut.rows:
                a, b = self.source.operand(i, copy), self.weights.operand(j, copy)
                code.append(op(self.cut.block.instruction, self.acc(i, j), self.acc(i, j), a, b))
        return code

    def tensors(self) -> list[Tensor]:
        operands = [side.tensor(part.loaded) for side, part in self.operands]
        return [*operands, *self.epilogue.tensors(), *self.source.tables(), *self.weights.tables()]

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
    p = problem
    tile = choose_tile(machine, block_of(machine, dtype), p.m, p.n, p.k, budget, p.batch.count, SIZES[dtype])
    return Cut(p.m, p.n, tile, p.batch)


def pairs_of_steps(cut: Cut, k: int, group: int) -> Partition:
    """K in groups of whole pairs of steps."""
    return Partition(cut, k, group, 2 * cut.block.k)


def SmGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> WarpGemm:
    """A matmul of operands that are multiplied as they are stored."""
    steps = pairs_of_steps(sm_cut_of(problem, machine, problem.src, SPARE), problem.k, problem.k)
    source, weights = (FloatFragments(Side(name, steps), problem.src, problem.src) for name in ("src", "wei"))
    return WarpGemm(problem, machine, steps, source, weights)
