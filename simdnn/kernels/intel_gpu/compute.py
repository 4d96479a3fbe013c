"""GEMM on Intel GPUs in another type than its operands are stored in: weights decompressed, f32 data rounded.

    for each group of K that shares a scale and a zero point:
        for each step of K:   source       rounded, or widened, to the type multiplied
                              weights      integers: less the zero point, as floats, times the scale
                                           floats of at most a byte: as f16 (`narrow`), times the scale
                                           f32: rounded here where their layout is plain, else ahead of time
                              multiply

Integers less their zero point are exact in f16 and in f32. A scale by group multiplies them in f32 and the product is
rounded to the type multiplied (two roundings, as on CPUs: docs/numerics.md, rule 10); where scale and type are both f16
one multiplication of f16 gives the same bits. A scale that is common or per channel multiplies the sums.
"""

from __future__ import annotations

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Decompression, Parameters
from simdnn.kernels.common.roles import ARGUMENTS
from simdnn.kernels.gpu.compute import converts, group_of, inside, scale_type
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.stored_codes import codes_type, integers
from simdnn.kernels.gpu.tile import Budget
from simdnn.kernels.intel_gpu.decode_to_f16 import to_f16
from simdnn.kernels.intel_gpu.gemm import BlockGemm
from simdnn.kernels.intel_gpu.groups import partition_of
from simdnn.kernels.intel_gpu.operands import BlockOperand, Multiplied
from simdnn.kernels.intel_gpu.partition import BlockPartition, in_pairs, load_narrow, stored
from simdnn.kernels.intel_gpu.products import BlockProducts
from simdnn.kernels.intel_gpu.sums import GroupedSums
from simdnn.kernels.intel_gpu.zero_parts import ZeroPart
from simdnn.program.records import SCALES, ZEROS, Affine, Memory, Register, Tensor

LARGEST = 2048 - 255  # zero point whose differences from bytes f16 holds all


def GpuComputeGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> BlockGemm:
    """A matmul that names the type to `compute` in."""
    p, compute = problem, problem.compute
    parts = p.decompression or Decompression((compute,))
    wide = 16 * 16 * 4 // machine.platform.grf_bytes  # of a block of weights on their way
    budget = Budget(
        registers=wide, per_row=8 * 16 * (4 if p.src == "f32" else 2), per_column=16 * 16 * 2, converts=converts(p)
    )
    partition = partition_of(p, machine, budget, group_of(parts, p.k), compute, compute)
    source: BlockOperand = Multiplied(partition, "src") if p.src == compute else RoundedFloats(partition, "src", p.src)
    weights: BlockOperand
    if p.wei == compute or p.wei == "f32" and p.wei_tag == "any":  # converted before the kernel runs
        weights = Multiplied(partition, "wei")
    elif p.wei == "f32":
        weights = RoundedFloats(partition, "wei", p.wei)
    else:
        weights = DecompressedColumns(partition, p.wei, compute, parts)
    products = BlockProducts(machine, partition, source, weights)
    sums = GroupedSums(products, p.scale_period, p.group_scales, ZeroPart(products))
    suffix = "_wdec" if p.decompression else ""
    return BlockGemm(p, machine, partition.cut, source, weights, sums, suffix, compute)


class RoundedFloats:
    """Side "src" or "wei" of floats that are rounded, or widened, to the type multiplied."""

    def __init__(self, partition: BlockPartition, side: str, dtype: str) -> None:
        block = partition.cut.block
        self.partition, self.side, self.stored, self.multiplied = partition, side, dtype, block.src
        self.lanes = block.k * (block.m if side == "src" else block.n)

    def load(self, number: int, k: Affine) -> tuple[Register, Code]:
        register = Register(f"{'a' if self.side == 'src' else 'b'}_{number}", self.multiplied, self.lanes)
        loaded = Register(f"{register.name}_stored", self.stored, self.lanes)
        place = Memory(self.side, self.partition.at(self.side, number, k) * self.lanes, self.stored, self.lanes)
        load = op(f"load.{self.stored}", loaded, place)
        return register.as_("u32"), [load, op(f"mov.{self.multiplied}.{self.stored}", register, loaded)]

    def tensor(self) -> Tensor:
        return Tensor(self.side, self.stored, self.partition.elements(self.side), role=ARGUMENTS[self.side])

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p = self.partition
        blocks = p.source(src) if self.side == "src" else in_pairs(p.weights(weights), p.pairs)
        return {self.side: np.ascontiguousarray(blocks).reshape(-1)}


class DecompressedColumns(ByGroup):
    """Weights stored as integers, less their zero point as floats, or as narrow floats: times their scale, in the type
    multiplied.
    """

    def __init__(self, partition: BlockPartition, dtype: str, compute: str, parts: Decompression) -> None:
        self.partition, self.cut, self.block = partition, partition.cut, partition.cut.block
        self.dtype, self.stored = dtype, codes_type(dtype)  # of an element, and as it lies in memory
        self.multiplied, self.zero_point = compute, parts.zero_point
        self.scale, self.scale_type = inside(parts), scale_type(parts, compute)

    def opening(self, g: Affine) -> Code:
        """A group's zero points and scales: a row for each block of columns."""
        p, code = self.partition, Code()
        for j in self.cut.cols:
            if self.zero_point:
                code.append(p.row_of("wei_zeros", f"zw_{j}", "s16", j, g, p.parts, p.pairs))
            if self.scale:
                code.append(p.row_of("wei_scales", f"ws_{j}", self.scale_type, j, g, p.parts, p.pairs))
        return code

    def load(self, j: int, k: Affine) -> tuple[Register, Code]:
        b, pairs = self.block, self.partition.pairs
        register = Register(f"b_{j}", self.multiplied, b.k * b.n)
        name = register.name if fmt(self.multiplied).bits == 16 else "words"
        at = self.partition.at("wei", j, k)
        words, code = load_narrow(name, "wei", at, self.stored, register.lanes, register.name)
        rows = f"{b.k // pairs}x{b.n * pairs}.row"
        if self.zero_point:
            code.append(op(f"sub.s16.{rows}", words, words, Register(f"zw_{j}", "s16", b.n * pairs)))
        wide = register if self.scale_type == self.multiplied else Register("wide", "f32", register.lanes)
        if fmt(self.dtype).is_float:
            code += to_f16(words, self.dtype)
            code += [op("mov.f32.f16", wide, words.as_("f16"))] if self.scale_type == "f32" else []
        else:
            code.append(op(f"mov.{self.scale_type}.s16", wide, words))
        if self.scale:
            scale = Register(f"ws_{j}", self.scale_type, b.n * pairs)
            code.append(op(f"mul.{self.scale_type}.{rows}", wide, wide, scale))
        if wide is not register:
            code.append(op(f"mov.{self.multiplied}.f32", register, wide))
        return register.as_("u32"), code

    def tensor(self) -> Tensor:
        return self.partition.tensor("wei", self.stored)

    def tables(self) -> list[Tensor]:
        p, cut = self.partition, self.cut
        size = p.pairs * cut.full_columns * p.parts * cut.batch.products("columns")
        found = [Tensor("wei_zeros", "s16", size, role=ZEROS)] if self.zero_point else []
        return found + ([Tensor("wei_scales", self.scale_type, size, role=SCALES)] if self.scale else [])

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, inputs, fill = self.partition, {}, None
        if self.zero_point:
            zeros = p.table(parameters.wei_zero_points)
            inputs["wei_zeros"] = p.rows_of(zeros, "s16", p.pairs)
            form = fmt(self.stored)
            fill = np.clip(zeros, form.low, form.high)  # what fills up groups is nothing, or next to it
        if self.scale:
            inputs["wei_scales"] = p.rows_of(p.table(parameters.wei_scale), self.scale_type, p.pairs)
        blocks = in_pairs(p.weights(integers(weights, self.dtype), fill), p.pairs)
        return inputs | {"wei": stored(blocks, self.stored)}
