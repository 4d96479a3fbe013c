"""Integer GEMM with zero points on Intel GPUs by conversion to f16: the fifth strategy, "upconvert".

    sum over k of f16(a - za) f16(w - zw), in f32

Differences are formed in 16-bit integers and converted in registers, which is exact up to 2048; so are the products.
Sums are DPAS's in f32: the other strategies' integers as long as they stay below 2**24, else rounded on the way as the
float model says. Where there is no DPAS f16 is widened once more, and multiplied and added up by `mad` in f32. Scales
come after the sums, in f32, as everywhere.

Bytes, or nibbles, lie in memory in the order of f16 blocks: widening them lane by lane makes DPAS's operands.
"""

from __future__ import annotations

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.partition import by_group
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Budget
from simdnn.kernels.intel_gpu.block import block_of
from simdnn.kernels.intel_gpu.gemm import BlockGemm
from simdnn.kernels.intel_gpu.groups import partition_of
from simdnn.kernels.intel_gpu.partition import BlockPartition, in_pairs, load_narrow, stored
from simdnn.kernels.intel_gpu.products import BlockProducts
from simdnn.kernels.intel_gpu.sums import GroupedSums
from simdnn.kernels.intel_gpu.zero_parts import ZeroPart
from simdnn.program.records import ZEROS, Affine, Register, Tensor

STEP = 16  # k of a DPAS of f16, of two steps of the vector pipe
LARGEST = 2048 - 255  # zero point whose differences from bytes f16 holds all


def GpuUpconvertGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> BlockGemm:
    """A matmul of bytes or nibbles with `zero_points`, multiplied in f16."""
    zeros = problem.zero_points
    assert zeros is not None
    block = block_of(machine, problem.m, "f16", "f16", problem.float_model)
    size = 8 * 16 * 16 if block.unit == "dpas" else 2 * block.k * (block.m + block.n)
    words = -(-size // machine.platform.grf_bytes)  # of a block's bytes, and its zero points
    partition = partition_of(problem, machine, Budget(2 * words + 12), zeros.group, "f16", "f16")
    fills = partition.group % block.k and zeros.wei and zeros.src  # what fills up must be a zero on one side
    source = UpconvertedRows(partition, problem, zeros.src is not None, bool(fills))
    weights = UpconvertedColumns(partition, problem, zeros.wei is not None, bool(fills))
    products = BlockProducts(machine, partition, source, weights)
    sums = GroupedSums(products, problem.scale_period, problem.group_scales, ZeroPart(products))
    return BlockGemm(problem, machine, partition.cut, source, weights, sums, "_upconvert", "f16")


class UpconvertedRows(ByGroup):
    """The source, stored as integers and multiplied as f16 less its zero points."""

    def __init__(self, partition: BlockPartition, problem: GpuMatmulProblem, zeros: bool, fills: bool) -> None:
        self.partition, self.cut, self.block = partition, partition.cut, partition.cut.block
        self.stored, self.multiplied, self.other = problem.src, "f16", problem.wei
        self.zeros, self.fills = zeros, fills

    def opening(self, g: Affine) -> Code:
        """Zero points of a group: a column for each block of rows."""
        columns = [Register(f"za_{i}", "s16", self.block.m) for i in self.cut.rows] if self.zeros else []
        return [self.partition.column_of("src_zeros", c, i, g, self.partition.parts) for i, c in enumerate(columns)]

    def load(self, i: int, k: Affine) -> tuple[Register, Code]:
        b = self.block
        loaded = load_narrow(f"a_{i}", "src", self.partition.at("src", i, k), self.stored, b.m * b.k)
        zeros = Register(f"za_{i}", "s16", b.m) if self.zeros else None
        return converted(*loaded, zeros, f"sub.s16.{b.m}x{b.k}.col")

    def tensor(self) -> Tensor:
        return self.partition.tensor("src", self.stored)

    def tables(self) -> list[Tensor]:
        return [Tensor("src_zeros", "s16", self.cut.full_rows * self.partition.parts, role=ZEROS)] if self.zeros else []

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        za = by_group(parameters.src_zero_points, (self.cut.m, self.partition.parts), 1)
        zw = by_group(parameters.wei_zero_points, (self.partition.parts, self.cut.n), 0)
        fill = za if self.fills and not within(zw, self.other) else None
        found = {"src": stored(self.partition.source(src.astype(np.int16), fill), self.stored)}
        return found | ({"src_zeros": self.partition.columns_of(za, "s16")} if self.zeros else {})


class UpconvertedColumns(ByGroup):
    """The weights, stored as integers and multiplied as f16 less their zero points."""

    def __init__(self, partition: BlockPartition, problem: GpuMatmulProblem, zeros: bool, fills: bool) -> None:
        self.partition, self.cut, self.block = partition, partition.cut, partition.cut.block
        self.stored, self.multiplied = problem.wei, "f16"
        self.zeros, self.fills = zeros, fills

    def opening(self, g: Affine) -> Code:
        """Zero points of a group: a row for each block of columns."""
        p = self.partition
        cols = self.cut.cols if self.zeros else ()
        return [p.row_of("wei_zeros", f"zw_{j}", "s16", j, g, p.parts, p.pairs) for j in cols]

    def load(self, j: int, k: Affine) -> tuple[Register, Code]:
        b, pairs = self.block, self.partition.pairs
        loaded = load_narrow(f"b_{j}", "wei", self.partition.at("wei", j, k), self.stored, b.k * b.n)
        zeros = Register(f"zw_{j}", "s16", pairs * b.n) if self.zeros else None
        return converted(*loaded, zeros, f"sub.s16.{b.k // pairs}x{pairs * b.n}.row")

    def tensor(self) -> Tensor:
        return self.partition.tensor("wei", self.stored)

    def tables(self) -> list[Tensor]:
        size = self.partition.pairs * self.cut.full_columns * self.cut.batch.products("columns")
        return [Tensor("wei_zeros", "s16", size * self.partition.parts, role=ZEROS)] if self.zeros else []

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p = self.partition
        zw = by_group(parameters.wei_zero_points, (p.parts, self.cut.n), 0)
        fill = zw if self.fills and within(zw, self.stored) else None
        blocks = in_pairs(p.weights(weights.astype(np.int16), fill), p.pairs)
        found = {"wei": stored(blocks, self.stored)}  # in the matrix instruction's order of 16-bit elements
        return found | ({"wei_zeros": p.rows_of(zw, "s16", p.pairs)} if self.zeros else {})


def converted(wide: Register, code: Code, zeros: Register | None, form: str) -> tuple[Register, Code]:
    """Loaded words less their zero points, as f16 in the register."""
    code = [*code, *([op(form, wide, wide, zeros)] if zeros else []), op("mov.f16.s16", wide.as_("f16"), wide)]
    return wide.as_("u32"), code


def within(values: Array, dtype: str) -> bool:
    """Whether a type holds all of the values."""
    return bool((values >= fmt(dtype).low).all() and (values <= fmt(dtype).high).all())
