"""Integer GEMM with zero points on Intel GPUs, by four strategies with the same bits.

    sum over k of (a - za)(w - zw) = sum a w - sum over groups zw R - correction of za,   R: the group's sum of a

in_kernel    R by the matrix instruction itself, against ones; `mad C -= zw R` after each group of K
precomputed  R is read: the user's, or another kernel's by-product; the same mads
bias         the whole term as an M x N matrix, made before and added once at the end
direct       w - zw in the loop: it has nine bits, so it goes in as two products, its half and its last bit

The source's zero point needs the weights alone: -za sum(w - zw), a value for each column (or each group of it).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from isa_models import GpuMachine
from isa_models.arrays import Array
from isa_models.formats import fmt
from isa_models.intel_gpu.packing import pack_a, pack_b
from simdnn.kernels.code import Code, loop, op
from simdnn.kernels.gpu_gemm import GpuGemm, GpuMatmulProblem
from simdnn.kernels.gpu_tile import Budget, block_of
from simdnn.kernels.spec import Parameters, ZeroPoints
from simdnn.program import Affine, Memory, Op, Program, Register, Tensor
from simdnn.verify import verify

EXACT = ("direct", "in_kernel", "precomputed", "bias")


class GpuZeroGemm(GpuGemm):
    """The generator for one problem with `zero_points`, whose `strategy` is one of `EXACT`."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine) -> None:
        assert problem.zero_points is not None
        self.zeros: ZeroPoints = problem.zero_points
        block = block_of(machine, problem.m, problem.src, problem.wei, "")
        grfs = -(-4 * block.m * block.n // machine.platform.grf_bytes)
        direct = self.zeros.strategy == "direct"
        spare = {"in_kernel": 10 * grfs, "direct": 6 * grfs}.get(self.zeros.strategy, 12)
        super().__init__(problem, machine, Budget(spare, 2 if direct else 1))
        self.parts = problem.k // self.zeros.group
        self.inside = -(-self.zeros.group // self.block.k)  # steps of a group, which is filled up with zeros
        self.steps = self.parts * self.inside

    @property
    def name(self) -> str:
        return f"{super().name}_{self.zeros.strategy}"

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        g = Affine.var("g")
        steps = self.k_loop(self.inside, self.step(g * self.inside + Affine.var("k")))
        body = [*self.clear(), *self.before(), *loop("g", self.parts, [*self.opening(g), *steps, *self.closing(g)])]
        p = self.problem
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.wei}:{p.epilogue.dst} {self.zeros}"
        code = self.nest([*body, *self.joined(), *self.epilogue()])
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    @property
    def strategy(self) -> str:
        return self.zeros.strategy

    @property
    def late(self) -> bool:
        """Whether the weights' zero points are applied group by group."""
        return self.zeros.wei and self.strategy in ("in_kernel", "precomputed")

    def sums(self, i: int) -> Register:
        return Register(f"r_{i}", "s32", self.block.m * self.block.n)

    def clear(self) -> Code:
        code = super().clear()
        if self.strategy == "direct":
            lasts = [self.last(i, j).as_("u32") for i in range(self.tile.rows) for j in range(self.tile.cols)]
            code += [op("xor.u32", register, register, register) for register in lasts]
        return code

    def last(self, i: int, j: int) -> Register:
        """The sum of products with the last bits (direct)."""
        return Register(f"l_{i}_{j}", "s32", self.block.m * self.block.n)

    def before(self) -> Code:
        if self.strategy != "in_kernel" or not self.zeros.wei:
            return []
        words = self.block.b_words
        return [op("load.u32", Register("ones", "u32", words), Memory("ones", Affine(), "u32", words))]

    def opening(self, g: Affine) -> Code:
        """What stands before the steps of a group."""
        if self.strategy == "in_kernel" and self.zeros.wei:
            cleared = [self.sums(i).as_("u32") for i in range(self.tile.rows)]
            return [op("xor.u32", register, register, register) for register in cleared]
        if self.strategy == "direct":
            lanes = 4 * self.block.n
            return [
                op("load.s16", Register(f"z_{j}", "s16", lanes),
                   Memory("wide_zeros", (self.col(j) * self.parts + g) * lanes, "s16", lanes))
                for j in range(self.tile.cols)
            ]  # fmt: skip
        return []

    def step(self, k: Affine) -> Code:
        if self.strategy == "direct":
            return self.split_step(k)
        code = super().step(k)
        if self.strategy == "in_kernel" and self.zeros.wei:
            ones = Register("ones", "u32", self.block.b_words)
            for i in range(self.tile.rows):
                a = Register(f"a_{i}", "u32", self.block.a_words)
                code.append(op(self.block.instruction, self.sums(i), self.sums(i), ones, a))
        return code

    def split_step(self, k: Affine) -> Code:
        """w - zw as a half and a last bit, each in eight bits, and the products with both."""
        b, code = self.block, Code()
        for i in range(self.tile.rows):
            code += self.load_a(i, k)[1]
        lanes = b.k * b.n
        wide, low = Register("wide", "s16", lanes), Register("low", "s16", lanes)
        rows = f"{lanes // (4 * b.n)}x{4 * b.n}"
        halves = f"dpas.s8.{b.src}.8.{b.m}.x{b.n}.s32" if b.systolic else f"dp4a.s8.{b.src}.8.{b.m}.x{b.n}.s32"
        for j in range(self.tile.cols):
            weights, load = self.load_b(j, k)
            packed = weights.as_("s8")
            code += [
                *load,
                op(f"mov.s16.{b.wei}", wide, weights.as_(b.wei)),
                op(f"sub.s16.{rows}.row", wide, wide, Register(f"z_{j}", "s16", 4 * b.n)),
                op("lastbit.s16", low, wide),
                op("asr.s16", wide, wide, imm=1),
                op("mov.s8.s16", packed, wide),
                op("mov.s8.s16", Register("bits", "s8", lanes), low),
            ]
            for i in range(self.tile.rows):
                a = Register(f"a_{i}", "u32", b.a_words)
                code.append(op(halves, self.acc(i, j), self.acc(i, j), weights, a))
                bits = Register("bits", "u32", b.b_words)
                code.append(op(halves, self.last(i, j), self.last(i, j), bits, a))
        return code

    def closing(self, g: Affine) -> Code:
        """What a group's end takes from the sums."""
        b, code = self.block, Code()
        if self.late:
            code += [self.row_of("neg_zeros", f"nz_{j}", "s16", j, g) for j in range(self.tile.cols)]
        if self.zeros.src:
            code += [self.row_of("neg_sums", f"ns_{j}", "s32", j, g) for j in range(self.tile.cols)]
        for i in range(self.tile.rows):
            at = (self.row(i) * self.parts + g) * b.m
            column = Register("column", "s32", b.m)
            if self.late and self.strategy == "precomputed":
                code.append(op("load.s32", column, Memory("reductions", at, "s32", b.m)))
            for j in range(self.tile.cols if self.late else 0):
                acc, row = self.acc(i, j), Register(f"nz_{j}", "s16", b.n)
                if self.strategy == "precomputed":
                    code.append(op(f"madw.s32.{self.size}.outer", acc, acc, column, row))
                else:
                    code.append(op(f"madw.s32.{self.size}.row", acc, acc, self.sums(i), row))
            if self.zeros.src:
                code.append(op("load.s32", column, Memory("src_zeros", at, "s32", b.m)))
                for j in range(self.tile.cols):
                    acc = self.acc(i, j) if self.strategy != "direct" else self.last(i, j)
                    code.append(op(f"mad.s32.{self.size}.outer", acc, acc, column, Register(f"ns_{j}", "s32", b.n)))
        return code

    def row_of(self, tensor: str, register: str, dtype: str, j: int, g: Affine) -> Op:
        n = self.block.n
        at = (self.col(j) * self.parts + g) * n
        return op(f"load.{dtype}", Register(register, dtype, n), Memory(tensor, at, dtype, n))

    def joined(self) -> Code:
        """What is left to add to the accumulators before the epilogue."""
        code: Code = []
        for i in range(self.tile.rows):
            for j in range(self.tile.cols):
                acc = self.acc(i, j)
                if self.strategy == "direct":
                    code += [op("add.s32", acc, acc, acc), op("add.s32", acc, acc, self.last(i, j))]
                elif self.strategy == "bias" and self.zeros.wei:
                    at = self.place(i, j) * acc.lanes
                    term = Register("term", "s32", acc.lanes)
                    code += [op("load.s32", term, Memory("term", at, "s32", acc.lanes)), op("add.s32", acc, acc, term)]
        return code

    def tensors(self) -> list[Tensor]:
        b, z = self.block, self.zeros
        batch = self.problem.batch * self.parts
        rows, columns = self.row_blocks * batch * b.m, self.col_blocks * batch * b.n
        ones = pack_b(np.ones((b.k, b.n), fmt(b.wei).dtype), b.wei).astype(np.uint32)
        extra = [
            ("neg_zeros", "s16", columns, self.late),
            ("reductions", "s32", rows, self.late and self.strategy == "precomputed"),
            ("term", "s32", rows * self.col_blocks * b.n // self.parts, z.wei and self.strategy == "bias"),
            ("wide_zeros", "s16", 4 * columns, self.strategy == "direct"),
            ("src_zeros", "s32", rows, z.src),
            ("neg_sums", "s32", columns, z.src),
        ]
        found = [Tensor(name, dtype, size) for name, dtype, size, used in extra if used]
        if z.wei and self.strategy == "in_kernel":
            found.append(Tensor.constant("ones", "u32", ones.tobytes()))
        return [*super().tensors(), *found]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        p_ = self.problem
        inputs = super().prepare(src, weights, p)
        zw = _by_group(p.wei_zero_points, (self.parts, p_.n), 0)
        zs = _by_group(p.src_zero_points, (p_.m, self.parts), 1)
        sums = p.reductions
        if sums is None:
            sums = src.astype(np.int64).reshape(p_.m, self.parts, -1).sum(axis=2)
        shifted = weights.astype(np.int64).reshape(self.parts, -1, p_.n) - zw[:, None]
        term = -(sums.astype(np.int64) @ zw)
        made: dict[str, Callable[[], Array]] = {
            "neg_zeros": lambda: self.rows_of(-zw, np.int16),
            "reductions": lambda: self.columns_of(sums),
            "term": lambda: self.blocks_of_c(term),
            "wide_zeros": lambda: self.rows_of(np.repeat(zw, 4, axis=1), np.int16),
            "src_zeros": lambda: self.columns_of(zs),
            "neg_sums": lambda: self.rows_of(-shifted.sum(axis=1), np.int32),
        }
        wanted = {t.name for t in self.program.tensors if t.kind == "input"}
        return inputs | {name: make() for name, make in made.items() if name in wanted}

    def rows_of(self, values: Array, dtype: object) -> Array:
        """(groups, columns) as (column blocks, groups, block's columns)."""
        width = values.shape[1] // self.problem.n * self.block.n
        full = np.zeros((self.parts, self.col_blocks * width), np.int64)
        full[:, : values.shape[1]] = values
        blocks = full.reshape(self.parts, self.col_blocks, width).swapaxes(0, 1)
        return np.ascontiguousarray(blocks).astype(dtype).reshape(-1)  # type: ignore[no-any-return,call-overload]

    def columns_of(self, values: Array) -> Array:
        """(rows, groups) as (row blocks, groups, block's rows); sums wrap to s32."""
        full = np.zeros((self.row_blocks * self.block.m, self.parts), np.int64)
        full[: self.problem.m] = values
        blocks = full.reshape(self.row_blocks, self.block.m, self.parts).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).astype(np.int32).reshape(-1)

    def blocks_of_c(self, values: Array) -> Array:
        b = self.block
        full = np.zeros((self.row_blocks * b.m, self.col_blocks * b.n), np.int64)
        full[: self.problem.m, : self.problem.n] = values
        blocks = full.reshape(self.row_blocks, b.m, self.col_blocks, b.n).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).astype(np.int32).reshape(-1)

    def blocks_of_a(self, src: Array) -> Array:
        b, p = self.block, self.problem
        full = np.zeros((self.row_blocks * b.m, self.parts, self.inside * b.k), fmt(b.src).dtype)
        full[: p.m, :, : self.zeros.group] = src.reshape(p.m, self.parts, -1)
        return pack_a(full.reshape(self.row_blocks, b.m, self.steps, b.k).swapaxes(1, 2), b.src)

    def blocks_of_b(self, weights: Array) -> Array:
        b, p = self.block, self.problem
        full = np.zeros((self.parts, self.inside * b.k, self.col_blocks * b.n), fmt(b.wei).dtype)
        full[:, : self.zeros.group, : p.n] = weights.reshape(self.parts, -1, p.n)
        return pack_b(full.reshape(self.steps, b.k, self.col_blocks, b.n).transpose(2, 0, 1, 3), b.wei)


def _by_group(values: Array | None, size: tuple[int, int], axis: int) -> Array:
    """A table with fewer groups repeated along them; zeros where there is none."""
    if values is None:
        return np.zeros(size, np.int64)
    repeated = np.repeat(values.astype(np.int64), size[axis] // values.shape[axis], axis=axis)
    return np.broadcast_to(repeated, size)
