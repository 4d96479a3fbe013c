"""GEMM on Intel GPUs in another type than its operands are stored in: weights decompressed, f32 data rounded.

    for each group of K that shares a scale and a zero point:
        for each step of K:   source       rounded, or widened, to the type multiplied
                              weights      integers: less the zero point, as floats, times the scale
                                           f32: rounded here where their layout is plain, else ahead of time
                              multiply

Integers less their zero point are exact in f16 and in f32. A scale by group multiplies them in f32 and the product is
rounded to the type multiplied (two roundings, as on CPUs: docs/numerics.md, rule 10); where scale and type are both f16
one multiplication of f16 gives the same bits. A scale that is common or per channel multiplies the sums.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.elementwise import MapProblem, elementwise
from simdnn.kernels.common.expression import trace
from simdnn.kernels.common.spec import Decompression, Kernel, Parameters, Placing
from simdnn.kernels.gpu.vocabulary import GpuVocabulary
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.intel_gpu.groups import GpuGroupedGemm, by_group, in_pairs, load_narrow, stored, stored_type
from simdnn.kernels.intel_gpu.tile import Budget
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

LARGEST = 2048 - 255  # zero point whose differences from bytes f16 holds all


def group_of(parts: Decompression, k: int) -> int:
    """How many k have their scale and zero point in common."""
    groups = [p.group for p in (parts.scale, parts.zero_point) if p and p.placing == "grouped"]
    return gcd(*groups) if groups else k


def inside(parts: Decompression) -> Placing | None:
    """The scale, where it multiplies the weights and not the sums."""
    return parts.scale if parts.scale and parts.scale.placing == "grouped" else None


def scale_type(parts: Decompression, compute: str) -> str:
    """What weights are multiplied in by their scale."""
    scale = inside(parts)
    return "f16" if compute == "f16" and (scale is None or scale.dtype == "f16") else "f32"


class GpuComputeGemm(GpuGroupedGemm):
    """The generator for one problem that names the type to `compute` in."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine) -> None:
        self.compute, self.parts_of = problem.compute, problem.decompression or Decompression((problem.compute,))
        multiplied = replace(problem, src=self.compute, wei=self.compute)
        size = 4 if problem.src == "f32" else 2
        wide = 16 * 16 * 4 // machine.platform.grf_bytes  # of a block of weights on their way
        budget = Budget(registers=wide, per_row=8 * 16 * size, per_column=16 * 16 * 2)
        super().__init__(multiplied, machine, budget, group_of(self.parts_of, problem.k))
        self.problem = problem

    @property
    def name(self) -> str:
        return f"{super().name}_wdec" if self.problem.decompression else super().name

    @property
    def scale_type(self) -> str:
        return scale_type(self.parts_of, self.compute)

    @property
    def converted(self) -> bool:
        """Whether the weights are in the type multiplied before the kernel runs."""
        return self.problem.wei == self.compute or self.problem.wei == "f32" and self.problem.wei_tag == "any"

    # -- program --------------------------------------------------------------------------------------------------
    def opening(self, g: Affine) -> Code:
        """A group's zero points and scales: a row for each block of columns."""
        code: Code = []
        for j in self.cols:
            if self.parts_of.zero_point:
                code.append(self.row_of("wei_zeros", f"zw_{j}", "s16", j, g, self.parts, self.pairs))
            if inside(self.parts_of):
                code.append(self.row_of("wei_scales", f"ws_{j}", self.scale_type, j, g, self.parts, self.pairs))
        return code

    def load_a(self, i: int, k: Affine) -> tuple[Register, Code]:
        b, src = self.block, self.problem.src
        if src == self.compute:
            return super().load_a(i, k)
        register = Register(f"a_{i}", self.compute, b.m * b.k)
        loaded = Register(f"a_{i}_stored", src, register.lanes)
        place = Memory("src", (self.row(i) * self.steps + k) * loaded.lanes, src, loaded.lanes)
        code: Code = [op(f"load.{src}", loaded, place), op(f"mov.{self.compute}.{src}", register, loaded)]
        return register.as_("u32"), code

    def load_b(self, j: int, k: Affine) -> tuple[Register, Code]:
        b, at = self.block, self.col(j) * self.steps + k
        if self.converted:
            return super().load_b(j, k)
        register = Register(f"b_{j}", self.compute, b.k * b.n)
        if self.problem.wei == "f32":
            wide = Register(f"b_{j}_stored", "f32", register.lanes)
            place = Memory("wei", at * wide.lanes, "f32", wide.lanes)
            return register.as_("u32"), [op("load.f32", wide, place), op(f"mov.{self.compute}.f32", register, wide)]
        name = register.name if fmt(self.compute).bits == 16 else "words"
        words, code = load_narrow(name, "wei", at, self.problem.wei, register.lanes, register.name)
        rows = f"{b.k // self.pairs}x{b.n * self.pairs}.row"
        if self.parts_of.zero_point:
            code.append(op(f"sub.s16.{rows}", words, words, Register(f"zw_{j}", "s16", b.n * self.pairs)))
        wide = register if self.scale_type == self.compute else Register("wide", "f32", register.lanes)
        code.append(op(f"mov.{self.scale_type}.s16", wide, words))
        if inside(self.parts_of):
            scale = Register(f"ws_{j}", self.scale_type, b.n * self.pairs)
            code.append(op(f"mul.{self.scale_type}.{rows}", wide, wide, scale))
        if wide is not register:
            code.append(op(f"mov.{self.compute}.f32", register, wide))
        return register.as_("u32"), code

    def tensors(self) -> list[Tensor]:
        b, p, batch = self.block, self.problem, self.problem.batch
        lines = {"src": self.row_blocks * b.m, "wei": self.col_blocks * b.n}
        sizes = {name: batch.products(name) * n * self.steps * b.k for name, n in lines.items()}
        own = {"src": Tensor("src", p.src, sizes["src"])} if p.src != self.compute else {}
        if not self.converted:
            own["wei"] = (
                Tensor("wei", p.wei, sizes["wei"])
                if p.wei == "f32"
                else Tensor("wei", stored_type(p.wei), sizes["wei"] * fmt(p.wei).bits // 8)
            )
        found = [own.get(tensor.name, tensor) for tensor in super().tensors()]
        table = self.pairs * lines["wei"] * self.parts * batch.products("columns")
        found += [Tensor("wei_zeros", "s16", table)] if self.parts_of.zero_point else []
        return found + ([Tensor("wei_scales", self.scale_type, table)] if inside(self.parts_of) else [])

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        return replace(super().kernel(), compute_dtype=self.compute)

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, inputs = self.problem, super().prepare(src, weights, parameters)
        if self.parts_of.zero_point:
            zeros = self.table(parameters.wei_zero_points)
            inputs["wei_zeros"] = self.rows_of(zeros, "s16", self.pairs)
            if self.group % self.block.k:  # what fills up groups is nothing, or next to it
                nearest = np.clip(zeros, fmt(p.wei).low, fmt(p.wei).high)
                inputs["wei"] = self.arranged(self.grouped_b(weights.astype(np.int16), nearest[:, None]))
        if inside(self.parts_of):
            inputs["wei_scales"] = self.rows_of(self.table(parameters.wei_scale), self.scale_type, self.pairs)
        return inputs

    def table(self, values: Array | None) -> Array:
        """(groups, N) of a parameter however it is given."""
        assert values is not None
        rows = values if values.ndim == 2 else values.reshape(1, -1)
        return by_group(rows, (self.parts, self.problem.n), 0)

    def blocks_of_a(self, src: Array) -> Array:
        if self.problem.src == self.compute:
            return super().blocks_of_a(src)
        return np.ascontiguousarray(self.grouped_a(src)).reshape(-1)

    def blocks_of_b(self, weights: Array) -> Array:
        if self.converted:
            return super().blocks_of_b(weights.astype(fmt(self.compute).dtype))
        return self.arranged(self.grouped_b(weights if self.problem.wei == "f32" else weights.astype(np.int16)))

    def arranged(self, blocks: Array) -> Array:
        """(…, k, columns) as weights lie in memory: rows of B, two side by side where the instruction wants that."""
        blocks = in_pairs(blocks, self.pairs)
        if self.problem.wei == "f32":
            return np.ascontiguousarray(blocks).reshape(-1)
        return stored(blocks, self.problem.wei)


def rounding(size: int, dtype: str, machine: GpuMachine) -> Program:
    """f32 weights brought to the type multiplied, ahead of all runs."""
    problem = MapProblem(trace(lambda x: x, ["f32"]), (size,), ((1,),), dtype)
    return elementwise(problem, GpuVocabulary(machine)).program
