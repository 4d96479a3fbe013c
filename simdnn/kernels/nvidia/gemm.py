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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.nvidia.mma import Shape
from isa_models.nvidia.platforms import WARP
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import Kernel, Parameters
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.intel_gpu.tile import Block, Budget, Tile, choose_tile
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

SPARE = Budget(registers=20)  # the second copy of the fragments
#: rows and columns of a workgroup, by the operands' type: those in the names of cuDNN 7's implicit GEMM kernels for
#: Volta (volta_scudnn_128x64_relu_interior_nn_v1, volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f… in profiles)
SIZES = {"f32": ((128, 128), (128, 64), (128, 32)), "f16": ((256, 128), (256, 64), (128, 128))}


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


class SmGemm:
    """The generator for one problem on one machine."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine, budget: Budget = SPARE) -> None:
        self.problem, self.machine = problem, machine
        p = problem
        self.block = block_of(machine, p.src)
        self.tile: Tile = choose_tile(machine, self.block, p.m, p.n, p.k, budget, p.batch.count, SIZES[p.src])
        self.groups = self.tile.groups(p.m, p.n)
        self.row_blocks, self.col_blocks = self.tile.blocks(p.m, p.n)
        self.pairs = -(-p.k // (2 * self.block.k))  # of steps

    @property
    def name(self) -> str:
        return f"gemm:{self.machine.platform.name}_{'mma' if self.block.systolic else 'fma'}"

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        code = [*self.clear(), *self.load(Affine(), 0), *self.products(), *self.epilogue()]
        code = self.tile.nest(code, self.groups, self.problem.batch)
        p = self.problem
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.epilogue.dst}"
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    def acc(self, i: int, j: int) -> Register:
        return Register(f"c_{i}_{j}", "f32", self.block.m * self.block.n)

    def clear(self) -> Code:
        zeros = [self.acc(i, j).as_("u32") for i in range(self.tile.rows) for j in range(self.tile.cols)]
        return [op("xor.b32", register, register, register) for register in zeros]

    def fragment(self, side: str, number: int, copy: int) -> Register:
        size = self.block.m if side == "a" else self.block.n
        return Register(f"{side}_{number}_{copy}", self.block.src, size * self.block.k)

    def operand(self, side: str, number: int, copy: int) -> Register:
        """What is multiplied."""
        return self.fragment(side, number, copy)

    def load(self, step: Affine, copy: int) -> Code:
        """The fragments of a step of K; the one behind the last belongs to the next block, or is zero."""
        code: Code = []
        for side, tensor, count, copies, blocks in (
            ("a", "src", self.tile.rows, self.block.copies[0], self.row_blocks),
            ("b", "wei", self.tile.cols, self.block.copies[1], self.col_blocks),
        ):
            for number in range(count):
                register = self.fragment(side, number, copy)
                block = self.tile.row(number) if side == "a" else self.tile.col(number)
                behind = self.problem.batch.at(tensor) * (blocks * 2 * self.pairs + 1)
                at = (block * (2 * self.pairs) + step + behind) * register.lanes
                place = Memory(tensor, at, register.dtype, register.lanes)
                code.append(op(f"ld.shared.{register.dtype}.to{copies}", register, place))
        return code

    def products(self) -> Code:
        """All steps of K, two by two."""
        first = Affine.var("k") * 2
        body = [*self.load(first + 1, 1), *self.multiply(0), *self.load(first + 2, 0), *self.multiply(1)]
        staged = self.tile.staged(2 * self.block.k * fmt(self.block.src).bits // 8)
        return loop("k", self.pairs, body, staged=staged)

    def multiply(self, copy: int) -> Code:
        return [
            op(
                self.block.instruction,
                self.acc(i, j),
                self.acc(i, j),
                self.operand("a", i, copy),
                self.operand("b", j, copy),
            )
            for j in range(self.tile.cols)
            for i in range(self.tile.rows)
        ]

    def epilogue(self) -> Code:
        e, b = self.problem.epilogue, self.block
        code: Code = []
        zero = Register("zero", "f32", b.m * b.n)
        if "relu" in e.post_ops:
            code.append(op("xor.b32", *[zero.as_("u32")] * 3))
        for j in range(self.tile.cols):
            scale, bias = (Register(name, "f32", b.n) for name in ("wei_scale", "bias"))
            column = self.tile.col(j) + self.problem.batch.at("columns") * self.col_blocks
            for register in (*([scale] if e.wei_scale else []), *([bias] if e.bias else [])):
                code.append(op("ld.global.f32", register, Memory(register.name, column * b.n, "f32", b.n)))
            for i in range(self.tile.rows):
                x = result = self.acc(i, j)
                if e.wei_scale:
                    code.append(op(f"mul.rn.f32.{b.m}x{b.n}.row", x, x, scale))
                if e.bias:
                    code.append(op(f"add.rn.f32.{b.m}x{b.n}.row", x, x, bias))
                if "relu" in e.post_ops:
                    code.append(op("ptx_max.f32", x, x, zero))
                if e.dst == "f16":
                    result = Register("narrow", "f16", x.lanes)
                    code.append(op("cvt.rn.f16.f32", result, x))
                row = self.tile.row(i) + self.problem.batch.at() * self.row_blocks
                at = (row * self.col_blocks + self.tile.col(j)) * x.lanes
                code.append(op(f"st.global.{e.dst}", Memory("dst", at, e.dst, x.lanes), result))
        return code

    def tensors(self) -> list[Tensor]:
        b, steps, batch, e = self.block, 2 * self.pairs, self.problem.batch, self.problem.epilogue
        rows, columns = (self.fragment(side, 0, 0) for side in "ab")
        by_column = [
            Tensor(name, "f32", batch.products("columns") * self.col_blocks * b.n)
            for name, given in (("wei_scale", e.wei_scale), ("bias", e.bias))
            if given
        ]
        return [
            Tensor("src", rows.dtype, batch.products("src") * (self.row_blocks * steps + 1) * rows.lanes),
            Tensor("wei", columns.dtype, batch.products("wei") * (self.col_blocks * steps + 1) * columns.lanes),
            *by_column,
            Tensor("dst", e.dst, batch.count * self.row_blocks * self.col_blocks * b.m * b.n, "output"),
        ]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.finish, self.problem.src, ("wei",))

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """Blocks of both matrices, filled up with zeros, and the bias."""
        found = {
            "src": self.blocks(src, self.row_blocks, self.block.m, False),
            "wei": self.blocks(weights.T, self.col_blocks, self.block.n, True),
        }
        n, e = self.problem.n, self.problem.epilogue
        for name, values, given in (
            ("wei_scale", parameters.wei_scale, e.wei_scale),
            ("bias", parameters.bias, e.bias),
        ):
            if given and values is not None:
                found[name] = np.pad(np.broadcast_to(values, (n,)), (0, self.col_blocks * self.block.n - n))
        return found

    def blocks(self, matrix: Array, count: int, size: int, turned: bool) -> Array:
        """(count * size, K) as blocks of `size` rows and a step of K, each by rows (turned: by columns), and a step."""
        steps, k = 2 * self.pairs, self.block.k
        full = np.zeros((count * size, steps * k), matrix.dtype)
        full[: matrix.shape[0], : matrix.shape[1]] = matrix
        blocks = full.reshape(count, size, steps, k).transpose((0, 2, 3, 1) if turned else (0, 2, 1, 3))
        return np.concatenate([blocks.reshape(-1), np.zeros(size * k, full.dtype)])

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        b, p = self.block, self.problem
        blocks = outputs["dst"].reshape(self.row_blocks, self.col_blocks, b.m, b.n)
        matrix = blocks.swapaxes(1, 2).reshape(self.row_blocks * b.m, -1)[: p.m, : p.n]
        return np.ascontiguousarray(matrix)
