"""GEMM for NVIDIA's SMs in another type than its operands are stored in: weights decompressed, f32 data rounded.

What is multiplied is what `kernels.intel_gpu.compute` tells; the way there is another. Stored integers are kept as
what they are above the least of their type, in an order of the kernel's own, four or eight of them in a word. Put below
the bits of 1024 they are f16, 1024 + u (below those of 2**23 f32), and one subtraction for each column takes that, the
type's least and the zero point from them, exactly: conversions are slow. Threads that hold the same element each do
all of it: `.to2` behind an instruction's name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import Decompression, Kernel, Parameters
from simdnn.kernels.intel_gpu.compute import group_of, inside, scale_type
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.intel_gpu.groups import by_group
from simdnn.kernels.intel_gpu.tile import Budget
from simdnn.kernels.nvidia.gemm import SmGemm
from simdnn.program.records import Affine, Memory, Op, Register, Tensor

LARGEST = 896  # zero point that, with 1024 and 128, f16 holds
_ABOVE = {"f16": 1 << 10, "f32": 1 << 23}  # what stored integers are put below
_CONVERSION = {("f32", "f16"): "cvt.rn.f16.f32", ("f16", "f32"): "cvt.f32.f16"}
#: where the elements of a word stand; nibbles, for f16, so that a shift and a mask leave two of them in its halves
_SHIFTS = {
    (8, "f16"): (0, 8, 16, 24),
    (8, "f32"): (0, 8, 16, 24),
    (4, "f16"): (0, 16, 4, 20, 8, 24, 12, 28),
    (4, "f32"): tuple(range(0, 32, 4)),
}


class SmComputeGemm(SmGemm):
    """The generator for one problem that names the type to `compute` in."""

    def __init__(self, problem: GpuMatmulProblem, machine: GpuMachine) -> None:
        self.compute, self.parts_of = problem.compute, problem.decompression or Decompression((problem.compute,))
        multiplied = replace(problem, src=self.compute, wei=self.compute)
        super().__init__(multiplied, machine, Budget(registers=24, per_row=2 * 4 * 64, per_column=2 * 4 * 64))
        self.problem = problem
        group, step = group_of(self.parts_of, problem.k), 2 * self.block.k
        self.group, self.parts, self.inside = group, problem.k // group, -(-group // step)
        self.pairs = self.parts * self.inside

    @property
    def name(self) -> str:
        return f"{super().name}_wdec" if self.problem.decompression else super().name

    @property
    def scale_type(self) -> str:
        return scale_type(self.parts_of, self.compute)

    @property
    def stored_as(self) -> dict[str, str]:
        """Each side's type in memory; of weights that are converted ahead of time the type multiplied."""
        p = self.problem
        return {"a": p.src, "b": self.compute if p.wei == "f32" and p.wei_tag == "any" else p.wei}

    # -- program --------------------------------------------------------------------------------------------------
    def products(self) -> Code:
        """Group by group of K, and in each all steps, two by two."""
        first = (Affine.var("g") * self.inside + Affine.var("k")) * 2
        body = [*self.load(first + 1, 1), *self.convert(0), *self.multiply(0)]
        body += [*self.load(first + 2, 0), *self.convert(1), *self.multiply(1)]
        staged = self.tile.staged(2 * self.block.k * fmt(self.block.src).bits // 8)
        steps = loop("k", self.inside, body, staged=staged)
        return loop("g", self.parts, [*self.opening(Affine.var("g")), *steps])

    def opening(self, g: Affine) -> Code:
        """A group's rows for each block of columns: what is taken from halves, and the scales."""
        code, n = Code(), self.block.n
        tables = [("wei_offsets", "z", self.scale_type)] if self.problem.decompression else []
        tables += [("wei_scales", "s", self.scale_type)] if inside(self.parts_of) else []
        for j in range(self.tile.cols):
            column = self.tile.col(j) + self.problem.batch.at("columns") * self.col_blocks
            for tensor, name, dtype in tables:
                place = Memory(tensor, (column * self.parts + g) * n, dtype, n)
                code.append(op(f"ld.global.{dtype}", Register(f"{name}_{j}", dtype, n), place))
        return code

    def fragment(self, side: str, number: int, copy: int) -> Register:
        """The register that a fragment is loaded into: floats as they are stored, integers in words."""
        found, dtype = super().fragment(side, number, copy), self.stored_as[side]
        if fmt(dtype).is_float:
            return replace(found, dtype=dtype)
        return Register(found.name, "u32", found.lanes * fmt(dtype).bits // 32)

    def operand(self, side: str, number: int, copy: int) -> Register:
        if self.stored_as[side] == self.compute:
            return self.fragment(side, number, copy)
        return Register(f"{side}_{number}", self.compute, super().fragment(side, number, copy).lanes)

    def convert(self, copy: int) -> Code:
        """Fragments of a step brought to the type multiplied."""
        code: Code = []
        for side, count in (("a", self.tile.rows), ("b", self.tile.cols)):
            stored = self.stored_as[side]
            for number in range(count if stored != self.compute else 0):
                raw, operand = self.fragment(side, number, copy), self.operand(side, number, copy)
                if fmt(stored).is_float:
                    code.append(self.each(side, _CONVERSION[stored, self.compute], operand, raw))
                else:
                    code += self.decompress(number, raw, operand, fmt(stored).bits)
        return code

    def each(self, side: str, name: str, *registers: Register) -> Op:
        """An instruction on a fragment, which every thread that has a copy of an element executes."""
        return op(f"{name}.to{self.block.copies[side == 'b']}", *registers)

    def decompress(self, j: int, words: Register, operand: Register, bits: int) -> Code:
        """Words of integers as a fragment of B."""
        dtype, rows = self.scale_type, f"{self.block.k}x{self.block.n}.row"
        wide = operand if dtype == self.compute else Register("wide", "f32", operand.lanes)
        below, parts = wide.as_("u32"), "halves" if dtype == "f16" else "words"
        code: Code = [self.each("b", f"{'prmt' if bits == 8 else 'shr'}.b32.{parts}", below, words)]
        code += [self.each("b", f"lop3.b32.{parts}", below, below)] if bits == 4 else []
        for step, name in (("sub", f"z_{j}"), *([("mul", f"s_{j}")] if inside(self.parts_of) else [])):
            row = Register(name, dtype, self.block.n)
            code.append(self.each("b", f"{step}.rn.{dtype}.{rows}", wide, wide, row))
        return code + ([] if wide is operand else [self.each("b", "cvt.rn.f16.f32", operand, wide)])

    def tensors(self) -> list[Tensor]:
        table = self.problem.batch.products("columns") * self.col_blocks * self.block.n * self.parts
        found = [Tensor("wei_offsets", self.scale_type, table)] if self.problem.decompression else []
        found += [Tensor("wei_scales", self.scale_type, table)] if inside(self.parts_of) else []
        return [*super().tensors(), *found]

    # -- between the user's arrays and the program's -----------------------------------------------------------------
    def kernel(self) -> Kernel:
        return replace(super().kernel(), compute_dtype=self.compute)

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, inputs = self.problem, super().prepare(src, weights, parameters)
        if p.decompression:
            zeros = np.zeros((1, 1), np.int32) if parameters.wei_zero_points is None else parameters.wei_zero_points
            inputs["wei_offsets"] = self.rows_of(zeros + _ABOVE[self.scale_type] - int(fmt(p.wei).low), self.scale_type)
            nearest = np.clip(self.table(zeros), fmt(p.wei).low, fmt(p.wei).high)  # fills up groups: next to nothing
            inputs["wei"] = self.packed(weights.astype(np.int16), nearest)
        if inside(self.parts_of):
            assert parameters.wei_scale is not None
            inputs["wei_scales"] = self.rows_of(parameters.wei_scale, self.scale_type)
        return inputs

    def table(self, values: Array) -> Array:
        """(groups, N) of a parameter however it is given."""
        return by_group(values if values.ndim == 2 else values.reshape(1, -1), (self.parts, self.problem.n), 0)

    def rows_of(self, values: Array, dtype: str) -> Array:
        """A parameter as (column blocks, groups, columns)."""
        full = np.zeros((self.parts, self.col_blocks * self.block.n), np.float32)
        full[:, : self.problem.n] = self.table(values)
        blocks = full.reshape(self.parts, self.col_blocks, -1).swapaxes(0, 1)
        return np.ascontiguousarray(blocks).astype(fmt(dtype).dtype).reshape(-1)

    def blocks(self, matrix: Array, count: int, size: int, turned: bool) -> Array:
        """A matrix in blocks of its stored type, each group of K filled up to whole pairs of steps."""
        stored = self.stored_as["b" if turned else "a"]
        if not fmt(stored).is_float:
            return np.zeros(0, np.uint32)  # `packed` makes them, which knows what fills them up
        return super().blocks(self.filled(matrix).astype(fmt(stored).dtype), count, size, turned)

    def filled(self, matrix: Array, fill: Array | None = None) -> Array:
        """(rows, K) with each group of K filled up, with a value for each row and group."""
        rows, full = len(matrix), self.inside * 2 * self.block.k
        found = np.zeros((rows, self.parts, full), matrix.dtype)
        if fill is not None:
            found[:] = fill[:, :, None]
        found[:, :, : self.group] = matrix.reshape(rows, self.parts, -1)
        return found.reshape(rows, -1)

    def packed(self, weights: Array, fill: Array) -> Array:
        """Words of integers above the least of their type, in the order that `decompress` undoes."""
        form, columns = fmt(self.problem.wei), self.filled(weights.T, fill.T)
        flat = super().blocks(columns - int(form.low), self.col_blocks, self.block.n, True).astype(np.uint32)
        each = flat.reshape(-1, 32 // form.bits)
        shifts = _SHIFTS[form.bits, self.scale_type]
        words: Array = (each << np.array(shifts, np.uint32)).sum(axis=1, dtype=np.uint32)
        return words
