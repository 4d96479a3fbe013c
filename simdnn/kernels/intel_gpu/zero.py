"""Integer GEMM with zero points on Intel GPUs, by four strategies with the same bits (`upconvert` has the fifth).

    sum over k of (a - za)(w - zw) = sum a w - sum over groups zw R - correction of za,   R: the group's sum of a

in_kernel    R by the matrix instruction itself, against ones; `mad C -= zw R` after each group of K
precomputed  R is read: the user's, or another kernel's by-product; the same mads
bias         the whole term as an M x N matrix (for each period of scales), made before and added once at its end
direct       w - zw in the loop: it has nine bits, so it goes in as two products, its half and its last bit; weights of
             four bits less their zero points fit in bytes, one product

The source's zero point needs the weights alone: -za sum(w - zw), a value for each column (or each group of it). It is
applied at the end of a period, or of each group where it changes more often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.intel_gpu.packing import pack_b
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.spec import Parameters, ZeroPoints
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.intel_gpu.groups import GpuGroupedGemm, by_group, load_narrow, stored, stored_type
from simdnn.kernels.intel_gpu.tile import Budget, block_of
from simdnn.program.records import Affine, Memory, Register, Tensor

EXACT = ("direct", "in_kernel", "precomputed", "bias")


class GpuZeroGemm(GpuGroupedGemm):
    """The generator for one problem with `zero_points`, whose `strategy` is one of `EXACT`."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine) -> None:
        assert problem.zero_points is not None
        self.zeros: ZeroPoints = problem.zero_points
        self.subtracts = self.zeros.wei and self.zeros.strategy == "direct"
        self.splits = self.subtracts and fmt(problem.wei).bits == 8  # into two products
        multiplied = replace(problem, wei="s8") if self.subtracts else problem
        block = block_of(machine, problem.m, problem.src, multiplied.wei, "")
        grfs = -(-4 * block.m * block.n // machine.platform.grf_bytes)
        spare = {"in_kernel": 10 * grfs, "direct": 6 * grfs}.get(self.zeros.strategy, 12)
        super().__init__(multiplied, machine, Budget(spare, 2 if self.splits else 1))
        self.problem = problem
        self.late_src = self.zeros.src and self.zeros.src_group % self.period == 0
        self.src_parts = self.periods if self.late_src else self.parts

    @property
    def name(self) -> str:
        return f"{super().name}_{self.zeros.strategy}"

    # -- program --------------------------------------------------------------------------------------------------
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
        if self.splits:
            lasts = [self.last(i, j).as_("u32") for i in self.rows for j in self.cols]
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
        if self.strategy == "in_kernel" and self.zeros.wei:
            cleared = [self.sums(i).as_("u32") for i in self.rows]
            return [op("xor.u32", register, register, register) for register in cleared]
        if self.subtracts:
            return [self.row_of("wide_zeros", f"z_{j}", "s16", j, g, self.parts, copies=4) for j in self.cols]
        return []

    def step(self, k: Affine) -> Code:
        if self.splits:
            return self.split_step(k)
        code = super().step(k)
        if self.strategy == "in_kernel" and self.zeros.wei:
            ones = Register("ones", "u32", self.block.b_words)
            for i in self.rows:
                a = Register(f"a_{i}", "u32", self.block.a_words)
                code.append(op(self.block.instruction, self.sums(i), self.sums(i), ones, a))
        return code

    def load_b(self, j: int, k: Affine) -> tuple[Register, Code]:
        """The register of a block of weights, and what loads it: nibbles as bytes less their zero points."""
        if not self.subtracts or self.splits:
            return super().load_b(j, k)
        wide, code = self.difference(j, k)
        register = Register(f"b_{j}", "u32", self.block.b_words)
        return register, [*code, op("mov.s8.s16", register.as_("s8"), wide)]

    def difference(self, j: int, k: Affine) -> tuple[Register, Code]:
        """A block of weights less their zero points as words, in a register that is free again after it."""
        b = self.block
        wide, code = load_narrow("wide", "wei", self.col(j) * self.steps + k, self.problem.wei, b.k * b.n)
        zeros = Register(f"z_{j}", "s16", 4 * b.n)
        return wide, [*code, op(f"sub.s16.{b.k // 4}x{4 * b.n}.row", wide, wide, zeros)]

    def split_step(self, k: Affine) -> Code:
        """w - zw as a half and a last bit, each in eight bits, and the products with both."""
        b, code = self.block, Code()
        for i in self.rows:
            code += self.load_a(i, k)[1]
        low = Register("low", "s16", b.k * b.n)
        halves, bits = Register("b_0", "u32", b.b_words), Register("bits", "u32", b.b_words)
        for j in self.cols:
            wide, difference = self.difference(j, k)
            code += [
                *difference,
                op("lastbit.s16", low, wide),
                op("asr.s16", wide, wide, imm=1),
                op("mov.s8.s16", halves.as_("s8"), wide),
                op("mov.s8.s16", bits.as_("s8"), low),
            ]
            for i in self.rows:
                a = Register(f"a_{i}", "u32", b.a_words)
                code.append(op(b.instruction, self.acc(i, j), self.acc(i, j), halves, a))
                code.append(op(b.instruction, self.last(i, j), self.last(i, j), bits, a))
        return code

    def closing(self, g: Affine) -> Code:
        code: Code = []
        if self.late:
            code += [self.row_of("neg_zeros", f"nz_{j}", "s16", j, g, self.parts) for j in self.cols]
        column = Register("column", "s32", self.block.m)
        for i in self.rows if self.late else ():
            if self.strategy == "precomputed":
                code.append(self.column_of("reductions", column, i, g, self.parts))
            for j in self.cols:
                acc, row = self.acc(i, j), Register(f"nz_{j}", "s16", self.block.n)
                if self.strategy == "precomputed":
                    code.append(op(f"madw.s32.{self.size}.outer", acc, acc, column, row))
                else:
                    code.append(op(f"madw.s32.{self.size}.row", acc, acc, self.sums(i), row))
        return code + ([] if self.late_src else self.source_part(g))

    def source_part(self, g: Affine) -> Code:
        """What the source's zero points take from the sums of a group or period."""
        if not self.zeros.src:
            return []
        parts = self.src_parts
        code: Code = [self.row_of("neg_sums", f"ns_{j}", "s32", j, g, parts) for j in self.cols]
        column = Register("column", "s32", self.block.m)
        for i in self.rows:
            code.append(self.column_of("src_zeros", column, i, g, parts))
            for j in self.cols:
                acc = self.last(i, j) if self.splits else self.acc(i, j)
                row = Register(f"ns_{j}", "s32", self.block.n)
                code.append(op(f"mad.s32.{self.size}.outer", acc, acc, column, row))
        return code

    def joined(self, q: Affine) -> Code:
        """What is left to add to the accumulators of a period."""
        code: Code = self.source_part(q) if self.late_src else []
        for i in self.rows:
            for j in self.cols:
                acc = self.acc(i, j)
                if self.splits:
                    code += [op("add.s32", acc, acc, acc), op("add.s32", acc, acc, self.last(i, j))]
                elif self.strategy == "bias" and self.zeros.wei:
                    at = (self.place(i, j) * self.periods + q) * acc.lanes
                    term = Register("term", "s32", acc.lanes)
                    code += [op("load.s32", term, Memory("term", at, "s32", acc.lanes)), op("add.s32", acc, acc, term)]
        return code

    def tensors(self) -> list[Tensor]:
        b, z = self.block, self.zeros
        batch, rows, columns = self.problem.batch, self.row_blocks * b.m, self.col_blocks * b.n
        by_column = columns * batch.products("columns")
        ones = pack_b(np.ones((b.k, b.n), fmt(b.wei).dtype), b.wei).astype(np.uint32)
        extra: list[tuple[str, str, int, bool]] = [
            ("neg_zeros", "s16", by_column * self.parts, self.late),
            (
                "reductions",
                "s32",
                batch.products("src") * rows * self.parts,
                self.late and self.strategy == "precomputed",
            ),
            ("term", "s32", batch.count * rows * columns * self.periods, z.wei and self.strategy == "bias"),
            ("wide_zeros", "s16", 4 * by_column * self.parts, self.subtracts),
            ("src_zeros", "s32", rows * self.src_parts, z.src),
            ("neg_sums", "s32", batch.products("wei") * columns * self.src_parts, z.src),
        ]
        found = [Tensor(name, dtype, size) for name, dtype, size, used in extra if used]
        if z.wei and self.strategy == "in_kernel":
            found.append(Tensor.constant("ones", "u32", ones.tobytes()))
        tensors = super().tensors()
        if self.subtracts:
            size = batch.products("wei") * columns * self.steps * b.k * fmt(self.problem.wei).bits // 8
            wei = Tensor("wei", stored_type(self.problem.wei), size)
            tensors = [wei if tensor.name == "wei" else tensor for tensor in tensors]
        return [*tensors, *found]

    def blocks_of_b(self, weights: Array) -> Array:
        if not self.subtracts:
            return super().blocks_of_b(weights)
        words = pack_b(self.grouped_b(weights.astype(np.int8)), "s8")  # the order of bytes, whatever they hold
        return stored(words.view(weights.dtype if self.splits else np.int8), self.problem.wei)

    # -- arrays ---------------------------------------------------------------------------------------------------
    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, n = parameters, self.problem.n
        inputs = super().prepare(src, weights, p)
        zw = by_group(p.wei_zero_points, (self.parts, n), 0)
        zs = by_group(p.src_zero_points, (self.problem.m, self.src_parts), 1)
        sums = p.reductions
        if sums is None:
            sums = src.astype(np.int64).reshape(len(src), self.parts, -1).sum(axis=2)
        shifted = (weights.astype(np.int64).reshape(self.parts, -1, n) - zw[:, None]).reshape(self.src_parts, -1, n)
        made: dict[str, Callable[[], Array]] = {
            "neg_zeros": lambda: self.rows_of(-zw, "s16"),
            "reductions": lambda: self.columns_of(sums, "s32"),
            "term": lambda: self.terms(sums.astype(np.int64), zw),
            "wide_zeros": lambda: self.rows_of(zw, "s16", copies=4),
            "src_zeros": lambda: self.columns_of(zs, "s32"),
            "neg_sums": lambda: self.rows_of(-shifted.sum(axis=1), "s32"),
        }
        wanted = {t.name for t in self.program.tensors if t.kind == "input"}
        return inputs | {name: make() for name, make in made.items() if name in wanted}

    def terms(self, sums: Array, zw: Array) -> Array:
        """The weights zero points' term as blocks of C, one behind the other for the periods."""
        b, each = self.block, self.parts // self.periods
        full = np.zeros((self.periods, self.row_blocks * b.m, self.col_blocks * b.n), np.int64)
        for q in range(self.periods):
            part = slice(q * each, (q + 1) * each)
            full[q, : self.problem.m, : self.problem.n] = -(sums[:, part] @ zw[part])
        blocks = full.reshape(self.periods, self.row_blocks, b.m, self.col_blocks, b.n).transpose(1, 3, 0, 2, 4)
        return np.ascontiguousarray(blocks).astype(np.int32).reshape(-1)
