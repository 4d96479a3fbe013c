"""The code that each strategy for zero points adds to the loops over groups of K (see zero.py)."""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from isa_models.intel_gpu.packing import pack_b
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.partition import by_group
from simdnn.kernels.intel_gpu.partition import BlockPartition, load_narrow, stored
from simdnn.kernels.intel_gpu.products import BlockProducts, cleared
from simdnn.program.records import ZEROS, Affine, Memory, Register, Tensor


class ZeroPart:
    """Code of zero points in the loops over groups: none, where operands have lost them or never had any."""

    def __init__(self, products: BlockProducts) -> None:
        self.products, self.partition, self.cut = products, products.partition, products.partition.cut
        self.block = self.cut.block

    def clear(self) -> Code:
        return self.products.clear()

    def before(self) -> Code:
        """Code before all loops."""
        return []

    def opening(self, g: Affine) -> Code:
        """Code before the steps of a group."""
        return []

    def step(self, k: Affine) -> Code:
        return self.products.step(k)

    def closing(self, g: Affine) -> Code:
        """Code that takes a group's part from the sums, at its end."""
        return []

    def joined(self, q: Affine) -> Code:
        """Code that is left to do to the sums of a period."""
        return []

    def corrected(self, i: int, j: int) -> Register:
        """The accumulator that the source's zero points change."""
        return self.products.acc(i, j)

    def tensors(self) -> list[Tensor]:
        return []

    def constants(self) -> list[Tensor]:
        return []

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {}


class Differences(ByGroup):
    """Weights that lose their zero points in registers: bytes, or nibbles, to words, and those that fit to bytes."""

    def __init__(self, partition: BlockPartition, dtype: str) -> None:
        self.partition, self.cut, self.block = partition, partition.cut, partition.cut.block
        self.stored, self.multiplied = dtype, "s8"

    def opening(self, g: Affine) -> Code:
        p = self.partition
        return [p.row_of("wide_zeros", f"z_{j}", "s16", j, g, p.parts, copies=4) for j in self.cut.cols]

    def load(self, j: int, k: Affine) -> tuple[Register, Code]:
        """The weights of a step; nibbles become bytes that have lost their zero points."""
        wide, code = self.words(j, k)
        register = Register(f"b_{j}", "u32", self.block.b_words)
        return register, [*code, op("mov.s8.s16", register.as_("s8"), wide)]

    def words(self, j: int, k: Affine) -> tuple[Register, Code]:
        """A block of weights less their zero points as words, in a register that is free again after it."""
        b = self.block
        wide, code = load_narrow("wide", "wei", self.partition.at("wei", j, k), self.stored, b.k * b.n)
        zeros = Register(f"z_{j}", "s16", 4 * b.n)
        return wide, [*code, op(f"sub.s16.{b.k // 4}x{4 * b.n}.row", wide, wide, zeros)]

    def tensor(self) -> Tensor:
        return self.partition.tensor("wei", self.stored)

    def tables(self) -> list[Tensor]:
        columns = self.cut.full_columns * self.cut.batch.products("columns")
        return [Tensor("wide_zeros", "s16", 4 * columns * self.partition.parts, role=ZEROS)]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p = self.partition
        words = pack_b(p.weights(weights.astype(np.int8)), "s8")  # the order of bytes, whatever they hold
        elements = words.view(weights.dtype if fmt(self.stored).bits == 8 else np.int8)
        zeros = by_group(parameters.wei_zero_points, (p.parts, self.cut.n), 0)
        return {"wei": stored(elements, self.stored), "wide_zeros": p.rows_of(zeros, "s16", copies=4)}


class Split(ZeroPart):
    """Weights of bytes less their zero points as a half and a last bit, each in eight bits, and products with both."""

    def __init__(self, products: BlockProducts, weights: Differences) -> None:
        super().__init__(products)
        self.weights = weights

    def last(self, i: int, j: int) -> Register:
        """The sum of products with the last bits."""
        return Register(f"l_{i}_{j}", "s32", self.block.m * self.block.n)

    def corrected(self, i: int, j: int) -> Register:
        return self.last(i, j)

    def clear(self) -> Code:
        return super().clear() + cleared([self.last(i, j) for i, j in self.cut.pairs])

    def step(self, k: Affine) -> Code:
        b, acc = self.block, self.products.acc
        rows = [self.products.source.load(i, k) for i in self.cut.rows]
        code = [instruction for _, part in rows for instruction in part]
        low = Register("low", "s16", b.k * b.n)
        halves, bits = Register("b_0", "u32", b.b_words), Register("bits", "u32", b.b_words)
        for j in self.cut.cols:
            wide, difference = self.weights.words(j, k)
            code += [
                *difference,
                op("lastbit.s16", low, wide),
                op("asr.s16", wide, wide, imm=1),
                op("mov.s8.s16", halves.as_("s8"), wide),
                op("mov.s8.s16", bits.as_("s8"), low),
            ]
            for i, (a, _) in enumerate(rows):
                code.append(op(b.instruction, acc(i, j), acc(i, j), halves, a))
                code.append(op(b.instruction, self.last(i, j), self.last(i, j), bits, a))
        return code

    def joined(self, q: Affine) -> Code:
        code: Code = []
        for i, j in self.cut.pairs:
            acc = self.products.acc(i, j)
            code += [op("add.s32", acc, acc, acc), op("add.s32", acc, acc, self.last(i, j))]
        return code


class InKernel(ZeroPart):
    """The source's sums by the matrix instruction, against ones; taken from the accumulators after each group."""

    def sums(self, i: int) -> Register:
        return Register(f"r_{i}", "s32", self.block.m * self.block.n)

    @property
    def ones(self) -> Register:
        return Register("ones", "u32", self.block.b_words)

    def before(self) -> Code:
        return [op("load.u32", self.ones, Memory("ones", Affine(), "u32", self.ones.lanes))]

    def opening(self, g: Affine) -> Code:
        return cleared([self.sums(i) for i in self.cut.rows])

    def step(self, k: Affine) -> Code:
        code = super().step(k)
        for i in self.cut.rows:
            a = Register(f"a_{i}", "u32", self.block.a_words)
            code.append(op(self.block.instruction, self.sums(i), self.sums(i), self.ones, a))
        return code

    def closing(self, g: Affine) -> Code:
        code, size = negative_rows(self.partition, g), f"{self.block.m}x{self.block.n}"
        for i, j in self.cut.pairs:
            acc, row = self.products.acc(i, j), Register(f"nz_{j}", "s16", self.block.n)
            code.append(op(f"madw.s32.{size}.row", acc, acc, self.sums(i), row))
        return code

    def tensors(self) -> list[Tensor]:
        return [negative_table(self.partition)]

    def constants(self) -> list[Tensor]:
        b = self.block
        ones = pack_b(np.ones((b.k, b.n), fmt(b.wei).dtype), b.wei).astype(np.uint32)
        return [Tensor.constant("ones", "u32", ones.tobytes())]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {"neg_zeros": self.partition.rows_of(-points(self.partition, parameters), "s16")}


class Precomputed(ZeroPart):
    """The source's sums are read, and taken from the accumulators after each group."""

    def closing(self, g: Affine) -> Code:
        code, size = negative_rows(self.partition, g), f"{self.block.m}x{self.block.n}"
        column = Register("column", "s32", self.block.m)
        for i in self.cut.rows:
            code.append(self.partition.column_of("reductions", column, i, g, self.partition.parts))
            for j in self.cut.cols:
                acc, row = self.products.acc(i, j), Register(f"nz_{j}", "s16", self.block.n)
                code.append(op(f"madw.s32.{size}.outer", acc, acc, column, row))
        return code

    def tensors(self) -> list[Tensor]:
        size = self.cut.batch.products("src") * self.cut.full_rows * self.partition.parts
        return [negative_table(self.partition), Tensor("reductions", "s32", size, role=ZEROS)]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        sums = reductions(self.partition, src, parameters)
        negative = self.partition.rows_of(-points(self.partition, parameters), "s16")
        return {"neg_zeros": negative, "reductions": self.partition.columns_of(sums, "s32")}


class Bias(ZeroPart):
    """The weights zero points' part of each period's sums, made before as blocks of the destination."""

    def __init__(self, products: BlockProducts, periods: int) -> None:
        super().__init__(products)
        self.periods = periods

    def joined(self, q: Affine) -> Code:
        code: Code = []
        for i, j in self.cut.pairs:
            acc = self.products.acc(i, j)
            at = (self.cut.place(i, j) * self.periods + q) * acc.lanes
            term = Register("term", "s32", acc.lanes)
            code += [op("load.s32", term, Memory("term", at, "s32", acc.lanes)), op("add.s32", acc, acc, term)]
        return code

    def tensors(self) -> list[Tensor]:
        return [Tensor("term", "s32", self.cut.outputs * self.periods, role=ZEROS)]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """The term as blocks of C, one behind the other for the periods."""
        cut, b, each = self.cut, self.block, self.partition.parts // self.periods
        sums = reductions(self.partition, src, parameters).astype(np.int64)
        zeros = points(self.partition, parameters)
        full = np.zeros((self.periods, cut.full_rows, cut.full_columns), np.int64)
        for q in range(self.periods):
            part = slice(q * each, (q + 1) * each)
            full[q, : cut.m, : cut.n] = -(sums[:, part] @ zeros[part])
        blocks = full.reshape(self.periods, cut.row_blocks, b.m, cut.col_blocks, b.n).transpose(1, 3, 0, 2, 4)
        return {"term": np.ascontiguousarray(blocks).astype(np.int32).reshape(-1)}


class SourceZeros:
    """The source's zero points: for each column the weights' sum less their zero points, times the row's zero point.

    Taken at the end of a period (`late`), or of each group where zero points change more often.
    """

    def __init__(self, partition: BlockPartition, period: int, src_group: int) -> None:
        self.partition, self.cut = partition, partition.cut
        self.late = src_group % period == 0
        self.parts = partition.k // period if self.late else partition.parts

    def code(self, sums: ZeroPart, g: Affine) -> Code:
        b, p = self.cut.block, self.partition
        code: Code = [p.row_of("neg_sums", f"ns_{j}", "s32", j, g, self.parts) for j in self.cut.cols]
        column = Register("column", "s32", b.m)
        for i in self.cut.rows:
            code.append(p.column_of("src_zeros", column, i, g, self.parts))
            for j in self.cut.cols:
                acc, row = sums.corrected(i, j), Register(f"ns_{j}", "s32", b.n)
                code.append(op(f"mad.s32.{b.m}x{b.n}.outer", acc, acc, column, row))
        return code

    def tensors(self) -> list[Tensor]:
        cut = self.cut
        by_column = cut.batch.products("wei") * cut.full_columns * self.parts
        return [
            Tensor("src_zeros", "s32", cut.full_rows * self.parts, role=ZEROS),
            Tensor("neg_sums", "s32", by_column, role=ZEROS),
        ]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, n = self.partition, self.cut.n
        table = by_group(parameters.src_zero_points, (self.cut.m, self.parts), 1)
        narrow = weights if weights.dtype.kind in "iu" else weights.astype(np.int8)  # types of 4 bits
        groups = narrow.reshape(p.parts, -1, n)
        less = groups.sum(axis=1, dtype=np.int64) - groups.shape[1] * points(p, parameters).astype(np.int64)
        sums = less.reshape(self.parts, -1, n).sum(axis=1)
        return {"src_zeros": p.columns_of(table, "s32"), "neg_sums": p.rows_of(-sums, "s32")}


def points(partition: BlockPartition, parameters: Parameters) -> Array:
    """The weights' zero points, (groups, N)."""
    return by_group(parameters.wei_zero_points, (partition.parts, partition.cut.n), 0)


def reductions(partition: BlockPartition, src: Array, parameters: Parameters) -> Array:
    """The source's sums over each group, (M, groups): the user's, or made here."""
    if parameters.reductions is not None:
        return parameters.reductions
    sums: Array = src.astype(np.int64).reshape(len(src), partition.parts, -1).sum(axis=2)
    return sums


def negative_rows(partition: BlockPartition, g: Affine) -> Code:
    """Group `g`'s zero points of the weights, negated, for each block of columns."""
    return [partition.row_of("neg_zeros", f"nz_{j}", "s16", j, g, partition.parts) for j in partition.cut.cols]


def negative_table(partition: BlockPartition) -> Tensor:
    cut = partition.cut
    return Tensor("neg_zeros", "s16", cut.full_columns * cut.batch.products("columns") * partition.parts, role=ZEROS)
