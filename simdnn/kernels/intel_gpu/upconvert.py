"""Integer GEMM with zero points on Intel GPUs by conversion to f16: the fifth strategy, "upconvert".

    sum over k of f16(a - za) f16(w - zw), in f32

Differences are formed in 16-bit integers and converted in registers, which is exact up to 2048; so are the products.
Sums are DPAS's in f32: the other strategies' integers as long as they stay below 2**24, else rounded on the way as the
float model says. Where there is no DPAS f16 is widened once more, and multiplied and added up by `mad` in f32. Scales
come after the sums, in f32, as everywhere.

Bytes, or nibbles, lie in memory in the order of f16 blocks: widening them lane by lane makes DPAS's operands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.spec import Kernel, Parameters, ZeroPoints
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.intel_gpu.groups import GpuGroupedGemm, by_group, in_pairs, load_narrow, stored, stored_type
from simdnn.kernels.intel_gpu.tile import Budget, block_of
from simdnn.program.records import Affine, Register, Tensor

STEP = 16  # k of a DPAS of f16, of two steps of the vector pipe
LARGEST = 2048 - 255  # zero point whose differences from bytes f16 holds all


class GpuUpconvertGemm(GpuGroupedGemm):
    """The generator for one problem with `zero_points`; operands are bytes or nibbles."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine) -> None:
        assert problem.zero_points is not None
        self.zeros: ZeroPoints = problem.zero_points
        multiplied = replace(problem, src="f16", wei="f16")
        block = block_of(machine, problem.m, "f16", "f16", problem.float_model)
        size = 8 * 16 * 16 if block.systolic else 2 * block.k * (block.m + block.n)
        words = -(-size // machine.platform.grf_bytes)  # of a block's bytes, and its zero points
        super().__init__(multiplied, machine, Budget(2 * words + 12))
        self.problem = problem

    @property
    def name(self) -> str:
        return f"{super().name}_upconvert"

    # -- program --------------------------------------------------------------------------------------------------
    def opening(self, g: Affine) -> Code:
        """Zero points of a group: a row for each block of columns, a column for each block of rows."""
        code: Code = []
        if self.zeros.wei:
            code += [self.row_of("wei_zeros", f"zw_{j}", "s16", j, g, self.parts, self.pairs) for j in self.cols]
        if self.zeros.src:
            columns = [Register(f"za_{i}", "s16", self.block.m) for i in self.rows]
            code += [self.column_of("src_zeros", column, i, g, self.parts) for i, column in enumerate(columns)]
        return code

    def converted(self, wide: Register, code: Code, zeros: Register | None, form: str) -> tuple[Register, Code]:
        """Loaded words less their zero points, as f16 in the register."""
        code = [*code, *([op(form, wide, wide, zeros)] if zeros else []), op("mov.f16.s16", wide.as_("f16"), wide)]
        return wide.as_("u32"), code

    def load_a(self, i: int, k: Affine) -> tuple[Register, Code]:
        b = self.block
        loaded = load_narrow(f"a_{i}", "src", self.row(i) * self.steps + k, self.problem.src, b.m * b.k)
        zeros = Register(f"za_{i}", "s16", b.m) if self.zeros.src else None
        return self.converted(*loaded, zeros, f"sub.s16.{b.m}x{b.k}.col")

    def load_b(self, j: int, k: Affine) -> tuple[Register, Code]:
        b = self.block
        loaded = load_narrow(f"b_{j}", "wei", self.col(j) * self.steps + k, self.problem.wei, b.k * b.n)
        zeros = Register(f"zw_{j}", "s16", self.pairs * b.n) if self.zeros.wei else None
        return self.converted(*loaded, zeros, f"sub.s16.{b.k // self.pairs}x{self.pairs * b.n}.row")

    def tensors(self) -> list[Tensor]:
        b, z = self.block, self.zeros
        batch, rows, columns = self.problem.batch, self.row_blocks * b.m, self.col_blocks * b.n
        sides = ("src", self.problem.src, rows), ("wei", self.problem.wei, columns)
        operands = {
            name: Tensor(name, stored_type(dtype), batch.products(name) * n * self.steps * b.k * fmt(dtype).bits // 8)
            for name, dtype, n in sides
        }
        extra = [("wei_zeros", self.pairs * columns * batch.products("columns"), z.wei), ("src_zeros", rows, z.src)]
        found = [operands.get(tensor.name, tensor) for tensor in super().tensors()]
        return [*found, *(Tensor(name, "s16", size * self.parts) for name, size, used in extra if used)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        return replace(super().kernel(), compute_dtype="f16")

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, inputs = self.problem, super().prepare(src, weights, parameters)
        zw = by_group(parameters.wei_zero_points, (self.parts, p.n), 0)
        za = by_group(parameters.src_zero_points, (p.m, self.parts), 1)
        if self.zeros.wei:
            inputs["wei_zeros"] = self.rows_of(zw, "s16", self.pairs)
        if self.zeros.src:
            inputs["src_zeros"] = self.columns_of(za, "s16")
        if self.group % self.block.k and self.zeros.wei and self.zeros.src:  # what fills up must be a zero on one side
            if within(zw, p.wei):
                inputs["wei"] = self.arranged(self.grouped_b(weights.astype(np.int16), zw[:, None]))
            else:
                inputs["src"] = stored(self.grouped_a(src.astype(np.int16), za[:, :, None]), p.src)
        return inputs

    def blocks_of_a(self, src: Array) -> Array:
        return stored(self.grouped_a(src.astype(np.int16)), self.problem.src)

    def blocks_of_b(self, weights: Array) -> Array:
        return self.arranged(self.grouped_b(weights.astype(np.int16)))

    def arranged(self, blocks: Array) -> Array:
        """Words (…, k, columns) as the weights are stored, in the matrix instruction's order of 16-bit elements."""
        return stored(in_pairs(blocks, self.pairs), self.problem.wei)


def within(values: Array, dtype: str) -> bool:
    """Whether a type holds all of them."""
    return bool((values >= fmt(dtype).low).all() and (values <= fmt(dtype).high).all())


def unfillable(problem: GpuMatmulProblem, parameters: Parameters) -> bool:
    """Whether groups must be filled up to whole steps, and neither side has its zero points among its elements."""
    zeros, tables = problem.zero_points, (parameters.wei_zero_points, parameters.src_zero_points)
    if zeros is None or not zeros.group % STEP:
        return False
    sides = zip(tables, (problem.wei, problem.src), strict=True)
    return all(table is not None and not within(table, dtype) for table, dtype in sides)
