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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.intel_gpu.packing import pack_a, pack_b
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import Kernel, MatmulProblem, Parameters
from simdnn.kernels.intel_gpu.copy import is_copied, with_copies
from simdnn.kernels.intel_gpu.tile import Budget, Tile, block_of, choose_tile
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

#: a step of the destination's type out of f32: instruction, and whether the value is rounded to an integer before
_NARROW = {
    "bf16": ("mov.bf16.f32", False),
    "f16": ("mov.f16.f32", False),
    "s8": ("mov.s8.f32.sat", True),
    "u8": ("mov.u8.f32.sat", True),
    "s32": ("mov.s32.f32.sat", True),
}


@dataclass(frozen=True)
class GpuMatmulProblem(MatmulProblem):
    """A matmul on a GPU: `batch` of this size at once.

    `src` and `wei` are the types multiplied (tf32: of f32 data), or, with `compute`, those that operands are stored in.
    """

    float_model: str = ""
    batch: Batch = Batch()
    compute: str = ""

    @property
    def macs(self) -> int:
        return super().macs * self.batch.count


class GpuGemm:
    """The generator for one problem on one machine."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine, budget: Budget | None = None) -> None:
        self.problem, self.machine = problem, machine
        p = problem
        self.block = block_of(machine, p.m, p.src, p.wei, p.float_model)
        if set(p.epilogue.post_ops) - {"relu"}:  # what they read, and it in f32, and a common factor
            budget, size = budget or Budget(), 4 * self.block.m * self.block.n
            budget = replace(budget, registers=budget.registers + 4 * -(-size // machine.platform.grf_bytes))
        self.tile: Tile = choose_tile(machine, self.block, p.m, p.n, p.k, budget, p.batch.count)
        self.groups = self.tile.groups(p.m, p.n)
        self.row_blocks, self.col_blocks = self.tile.blocks(p.m, p.n)
        self.steps = -(-p.k // self.block.k)

    @property
    def name(self) -> str:
        return f"gemm:{self.machine.platform.name}_{self.block.unit}"

    # -- registers and places -------------------------------------------------------------------------------------
    def acc(self, i: int, j: int, dtype: str = "") -> Register:
        return Register(f"c_{i}_{j}", dtype or self.block.acc, self.block.m * self.block.n)

    def row(self, i: int) -> Affine:
        """The block row of a thread's i-th, of the source."""
        return self.tile.row(i) + self.problem.batch.at("src") * self.row_blocks

    def col(self, j: int) -> Affine:
        """The block column of a thread's j-th, of the weights."""
        return self.tile.col(j) + self.problem.batch.at("wei") * self.col_blocks

    def column(self, j: int) -> Affine:
        """The block column of a thread's j-th, of tables that have a value for each column."""
        return self.tile.col(j) + self.problem.batch.at("columns") * self.col_blocks

    def place(self, i: int, j: int) -> Affine:
        """The block of the destination."""
        row = self.tile.row(i) + self.problem.batch.at() * self.row_blocks
        return row * self.col_blocks + self.tile.col(j)

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        code = self.nest([*self.clear(), *self.k_loop(self.steps, self.step(Affine.var("k"))), *self.epilogue()])
        p = self.problem
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.wei}:{p.epilogue.dst}"
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    def nest(self, body: Code) -> Code:
        """`body` for every thread of every workgroup."""
        return self.tile.nest(body, self.groups, self.problem.batch)

    def k_loop(self, steps: int, body: Code) -> Code:
        """Steps of K. Where no message reads blocks of a matrix, operands go through shared memory."""
        row_bytes = self.block.k * fmt(self.block.src).bits // 8
        staged = 0 if self.machine.platform.block_loads else self.tile.staged(row_bytes)
        return loop("k", steps, body, staged=staged)

    def clear(self) -> Code:
        zeros = [self.acc(i, j, "u32") for i in range(self.tile.rows) for j in range(self.tile.cols)]
        return [op("xor.u32", register, register, register) for register in zeros]

    def load_a(self, i: int, k: Affine) -> tuple[Register, Code]:
        words = self.block.a_words
        at = (self.row(i) * self.steps + k) * words
        register = Register(f"a_{i}", "u32", words)
        return register, [op("load.u32", register, Memory("src", at, "u32", words))]

    def load_b(self, j: int, k: Affine) -> tuple[Register, Code]:
        words = self.block.b_words
        at = (self.col(j) * self.steps + k) * words
        register = Register(f"b_{j}", "u32", words)
        return register, [op("load.u32", register, Memory("wei", at, "u32", words))]

    def step(self, k: Affine) -> Code:
        """One step of K: all loads, then every pair of blocks."""
        loads = [self.load_a(i, k) for i in range(self.tile.rows)], [self.load_b(j, k) for j in range(self.tile.cols)]
        code: Code = [instruction for side in loads for _, part in side for instruction in part]
        if self.block.unit == "mad":
            return code + self.mads([a for a, _ in loads[0]], [b for b, _ in loads[1]])
        for j, (b, _) in enumerate(loads[1]):  # columns outside: neighbours share B, which the array keeps
            for i, (a, _) in enumerate(loads[0]):
                code.append(op(self.block.instruction, self.acc(i, j), self.acc(i, j), b, a))
        return code

    def mads(self, rows: list[Register], cols: list[Register]) -> Code:
        """Every pair of blocks on the vector pipe, operands widened where they are narrower than f32."""
        dtype, code = self.block.src, Code()
        sides = [[register.as_(dtype) for register in side] for side in (rows, cols)]
        if self.block.widened:
            for side in sides:
                for number, narrow in enumerate(side):
                    side[number] = Register(f"wide_{narrow.name}", "f32", narrow.lanes)
                    code.append(op(f"mov.f32.{dtype}", side[number], narrow))
        for j, b in enumerate(sides[1]):
            for i, a in enumerate(sides[0]):
                code.append(op(self.block.instruction, self.acc(i, j), self.acc(i, j), a, b))
        return code

    # -- epilogue -------------------------------------------------------------------------------------------------
    def epilogue(self) -> Code:
        code: Code = []
        rows = [("bias", "bias"), ("scale", "wei_scale")]
        splats = ["src_scale", "dst_scale", "dst_zero_point", "zero"]
        for i, name in enumerate(self.problem.epilogue.post_ops):
            rows += [(f"post{i}", f"post{i}")] if name == "add:per_oc" else []
            splats += [f"post{i}"] if name in ("sum", "add:common") else []
        for name, tensor in rows:
            if tensor in self.parameters:
                for j in range(self.tile.cols):
                    at = self.column(j) * self.block.n
                    code.append(op("load.f32", self.vector(f"{name}_{j}"), Memory(tensor, at, "f32", self.block.n)))
        for tensor in splats:
            if tensor in self.parameters:
                register = self.splat(tensor)
                code.append(op(f"load_splat.{register.dtype}", register, Memory(tensor, Affine(), register.dtype, 1)))
        for i in range(self.tile.rows):
            for j in range(self.tile.cols):
                code += self.finish_block(i, j)
        return code

    def splat(self, tensor: str) -> Register:
        """One parameter in all lanes of a row, which instructions read for every row of a block."""
        return Register(tensor, self.parameters[tensor].dtype, self.block.n)

    def vector(self, name: str) -> Register:
        return Register(name, "f32", self.block.n)

    @property
    def size(self) -> str:
        return f"{self.block.m}x{self.block.n}"

    def result(self, i: int, j: int) -> Register:
        """Where the sums stand before the epilogue."""
        return self.acc(i, j)

    def finish_block(self, i: int, j: int) -> Code:
        """One accumulator on its way to the destination."""
        e, dst, acc = self.problem.epilogue, self.problem.epilogue.dst, self.result(i, j)
        x, code = acc.as_("f32"), Code()
        floating = acc.dtype == "f32" or e.in_float
        if acc.dtype == "s32" and floating:
            code.append(op("mov.f32.s32", x, acc))
        if "src_scale" in self.parameters:
            code.append(op(f"mul.f32.{self.size}.row", x, x, self.splat("src_scale")))
        if "wei_scale" in self.parameters:
            code.append(op(f"mul.f32.{self.size}.row", x, x, self.vector(f"scale_{j}")))
        if "bias" in self.parameters:
            code.append(op(f"add.f32.{self.size}.row", x, x, self.vector(f"bias_{j}")))
        place = self.place(i, j)
        for number, name in enumerate(e.post_ops):
            code += self.post_op(name, f"post{number}", x if floating else acc, j, place)
        if "dst_scale" in self.parameters:
            code.append(op(f"mul.f32.{self.size}.row", x, x, self.splat("dst_scale")))
        if "dst_zero_point" in self.parameters:
            code.append(op(f"add.f32.{self.size}.row", x, x, self.splat("dst_zero_point")))
        result = x if floating else acc
        if dst != result.dtype:
            name, whole = _NARROW[dst]
            if whole:
                code.append(op("rnde.f32", x, x))
            result = Register("narrow", dst, x.lanes)
            code.append(op(name, result, x))
        return [*code, op(f"store.{dst}", Memory("dst", place * result.lanes, dst, result.lanes), result)]

    def post_op(self, name: str, tensor: str, x: Register, j: int, place: Affine) -> Code:
        """relu; add; sum: x + scale times what the destination held, fused."""
        if name == "relu":
            return [op(f"max.{x.dtype}.{self.size}.row", x, x, self.splat("zero"))]
        if name == "add:common":
            return [op(f"add.f32.{self.size}.row", x, x, self.splat(tensor))]
        if name == "add:per_oc":
            return [op(f"add.f32.{self.size}.row", x, x, self.vector(f"{tensor}_{j}"))]
        dst = "f32" if name == "add:full" else self.problem.epilogue.dst
        other, wide = Register("other", dst, x.lanes), Register("wide_other", "f32", x.lanes)
        source = tensor if name == "add:full" else "previous"
        code: Code = [op(f"load.{dst}", other, Memory(source, place * x.lanes, dst, x.lanes))]
        if dst in ("s8", "u8"):
            code.append(op(f"mov.s32.{dst}", wide.as_("s32"), other))
            other = wide.as_("s32")
        if other.dtype != "f32":
            code.append(op(f"mov.f32.{other.dtype}", wide, other))
            other = wide
        return [
            *code,
            op("add.f32", x, x, other)
            if name == "add:full"
            else op(f"mad.f32.{self.size}.row", x, x, other, self.splat(tensor)),
        ]

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The run-time arguments that the program reads: f32, but for what an s32 or the destination's type needs."""
        e, b, batch = self.problem.epilogue, self.block, self.problem.batch
        columns = batch.products("columns") * self.col_blocks * b.n
        outputs = batch.count * self.row_blocks * b.m * self.col_blocks * b.n
        sizes = {
            "bias": columns if e.bias else 0,
            "wei_scale": columns if e.wei_scale else 0,
            "src_scale": int(e.src_scale),
            "dst_scale": int(e.dst_scale),
            "dst_zero_point": int(e.dst_zero_point),
            "zero": int("relu" in e.post_ops),
            "previous": outputs if "sum" in e.post_ops else 0,
        }
        lengths = {"sum": 1, "add:common": 1, "add:per_oc": columns, "add:full": outputs}
        sizes |= {f"post{i}": lengths[name] for i, name in enumerate(e.post_ops) if name in lengths}
        floating = self.result(0, 0).dtype == "f32" or e.in_float
        types = {"previous": e.dst, "zero": "f32" if floating else "s32"}
        return {name: Tensor(name, types.get(name, "f32"), size) for name, size in sizes.items() if size}

    def tensors(self) -> list[Tensor]:
        b, p = self.block, self.problem
        return [
            Tensor("src", "u32", p.batch.products("src") * self.row_blocks * self.steps * b.a_words),
            Tensor("wei", "u32", p.batch.products("wei") * self.col_blocks * self.steps * b.b_words),
            *self.parameters.values(),
            Tensor("dst", p.epilogue.dst, p.batch.count * self.row_blocks * self.col_blocks * b.m * b.n, "output"),
        ]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        dtype = "f32" if self.block.widened else self.problem.src
        timed = with_copies(self.program, self.machine, self.copied) if self.copied else None
        return Kernel(self.name, self.program, self.prepare, self.finish, dtype, ("wei",), timed=timed)

    @property
    def copied(self) -> tuple[str, ...]:
        """Tensors that the user has plain and a kernel brings into blocks before this one runs."""
        p = self.problem
        if not is_copied(self.machine, p.src, p.m, p.n):
            return ()
        return ("src", "wei") if p.wei_tag != "any" else ("src",)

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """Blocks of both matrices, filled up with zeros, and the parameters in f32."""
        p, columns = self.problem, self.col_blocks * self.block.n

        def per_column(values: Array) -> Array:
            full = np.broadcast_to(values.astype(np.float32).reshape(-1), (self.problem.n,))
            return np.pad(full, (0, columns - self.problem.n))

        found = {"src": self.blocks_of_a(src), "wei": self.blocks_of_b(weights)}
        values: dict[str, Callable[[], Array]] = {
            "bias": lambda: per_column(_given(parameters.bias)),
            "wei_scale": lambda: per_column(_given(parameters.wei_scale)),
            "src_scale": lambda: np.array([parameters.src_scale], np.float32),
            "dst_scale": lambda: np.array([1], np.float32) / np.float32(parameters.dst_scale),
            "dst_zero_point": lambda: np.array([parameters.dst_zero_point], np.float32),
            "zero": lambda: np.zeros(1, fmt(self.parameters["zero"].dtype).dtype),
            "previous": lambda: self.blocks_of_c(_given(parameters.previous).reshape(p.m, p.n)),
        }
        for i, (name, operand) in enumerate(zip(p.epilogue.post_ops, parameters.operands, strict=False)):
            if name == "add:full":
                found[f"post{i}"] = self.blocks_of_c(operand.reshape(p.m, p.n))
            elif name != "relu":
                found[f"post{i}"] = per_column(operand) if name == "add:per_oc" else operand
        return found | {name: values[name]() for name in self.parameters if name not in found}

    def blocks_of_a(self, src: Array) -> Array:
        b, dtype = self.block, self.block.src
        full = _padded(src, self.row_blocks * b.m, self.steps * b.k, dtype)
        return pack_a(full.reshape(self.row_blocks, b.m, self.steps, b.k).swapaxes(1, 2), dtype)

    def blocks_of_b(self, weights: Array) -> Array:
        b, dtype = self.block, self.block.wei
        full = _padded(weights, self.steps * b.k, self.col_blocks * b.n, dtype)
        blocks = full.reshape(self.steps, b.k, self.col_blocks, b.n).transpose(2, 0, 1, 3)
        return pack_a(blocks, dtype) if b.unit == "mad" else pack_b(blocks, dtype)

    def blocks_of_c(self, values: Array) -> Array:
        """A matrix of the output's shape in the program's order."""
        b = self.block
        full = np.zeros((self.row_blocks * b.m, self.col_blocks * b.n), values.dtype)
        full[: self.problem.m, : self.problem.n] = values
        blocks = full.reshape(self.row_blocks, b.m, self.col_blocks, b.n).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).reshape(-1)

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        b, p = self.block, self.problem
        blocks = outputs["dst"].reshape(self.row_blocks, self.col_blocks, b.m, b.n)
        return np.ascontiguousarray(blocks.swapaxes(1, 2).reshape(self.row_blocks * b.m, -1)[: p.m, : p.n])


def _given(values: Array | None) -> Array:
    assert values is not None
    return values


def _padded(matrix: Array, rows: int, columns: int, dtype: str) -> Array:
    full = np.zeros((rows, columns), fmt(dtype).dtype)
    full[: matrix.shape[0], : matrix.shape[1]] = matrix
    return full
