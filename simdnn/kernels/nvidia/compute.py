"""GEMM for NVIDIA's SMs in another type than its operands are stored in: weights decompressed, f32 data rounded.

The products are those of `simdnn.kernels.intel_gpu.compute`; the way there is another. A stored integer is kept as what
it is above the least of its type, in an order of the kernel's own, four or eight of them in a word. Put below
the bits of 1024 they are f16, 1024 + u (below those of 2**23 f32), and one subtraction for each column takes that, the
type's least and the zero point from them, exactly: conversions are slow. Threads that hold the same element each do
all of it: `.to2` behind an instruction's name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.spec import Decompression, Parameters
from simdnn.kernels.gpu.compute import group_of, inside, scale_type
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Budget
from simdnn.kernels.nvidia.fragments import FloatFragments, Fragments, Side
from simdnn.kernels.nvidia.gemm import WarpGemm, pairs_of_steps, sm_cut_of
from simdnn.program.records import Affine, Memory, Register, Tensor

LARGEST = 896  # zero point that, with 1024 and 128, f16 holds
_ABOVE = {"f16": 1 << 10, "f32": 1 << 23}  # what stored integers are put below
#: where the elements of a word stand; nibbles, for f16, so that a shift and a mask leave two of them in its halves
_SHIFTS = {
    (8, "f16"): (0, 8, 16, 24),
    (8, "f32"): (0, 8, 16, 24),
    (4, "f16"): (0, 16, 4, 20, 8, 24, 12, 28),
    (4, "f32"): tuple(range(0, 32, 4)),
}


def SmComputeGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> WarpGemm:
    """A matmul that names the type to `compute` in."""
    p, compute = problem, problem.compute
    parts = p.decompression or Decompression((compute,))
    budget = Budget(registers=24, per_row=2 * 4 * 64, per_column=2 * 4 * 64)
    steps = pairs_of_steps(sm_cut_of(p, machine, compute, budget), p.k, group_of(parts, p.k))
    weights: Fragments
    if p.decompression:
        weights = DecompressedFragments(Side("wei", steps), p.wei, compute, parts)
    else:
        ahead = p.wei == "f32" and p.wei_tag == "any"  # weights that are converted before the kernel runs
        weights = FloatFragments(Side("wei", steps), compute if ahead else p.wei, compute)
    suffix = "_wdec" if p.decompression else ""
    return WarpGemm(
        p, machine, steps, FloatFragments(Side("src", steps), p.src, compute), weights, suffix, grouped=True
    )


@dataclass(frozen=True)
class DecompressedFragments(ByGroup):
    """Weights kept as words of integers above the least of their type: less an offset, times their scale."""

    side: Side
    stored: str
    multiplied: str
    decompression: Decompression

    @property
    def scale_type(self) -> str:
        return scale_type(self.decompression, self.multiplied)

    @property
    def in_memory(self) -> Register:
        return self.loaded

    @property
    def loaded(self) -> Register:
        return Register("", "u32", self.side.lanes * fmt(self.stored).bits // 32)

    def operand(self, number: int, copy: int) -> Register:
        return Register(f"b_{number}", self.multiplied, self.side.lanes)

    @property
    def names(self) -> list[tuple[str, str]]:
        """(tensor, registers) of the tables by group: what is taken from halves, and the scales."""
        return [("wei_offsets", "z"), *([("wei_scales", "s")] if inside(self.decompression) else [])]

    def opening(self, g: Affine) -> Code:
        """A group's rows for each block of columns."""
        steps, code = self.side.steps, Code()
        n, dtype = steps.cut.block.n, self.scale_type
        for j in steps.cut.cols:
            for tensor, name in self.names:
                place = Memory(tensor, (steps.cut.col(j, "columns") * steps.parts + g) * n, dtype, n)
                code.append(op(f"ld.global.{dtype}", Register(f"{name}_{j}", dtype, n), place))
        return code

    def convert(self, number: int, copy: int) -> Code:
        """Words of integers as a fragment of B."""
        block, dtype, bits = self.side.steps.cut.block, self.scale_type, fmt(self.stored).bits
        words, operand = Register(f"b_{number}_{copy}", "u32", self.loaded.lanes), self.operand(number, copy)
        wide = operand if dtype == self.multiplied else Register("wide", "f32", operand.lanes)
        below, parts = wide.as_("u32"), "halves" if dtype == "f16" else "words"
        code: Code = [self.side.each(f"{'prmt' if bits == 8 else 'shr'}.b32.{parts}", below, words)]
        code += [self.side.each(f"lop3.b32.{parts}", below, below)] if bits == 4 else []
        for step, (_, name) in zip(("sub", "mul"), self.names, strict=False):
            row = Register(f"{name}_{number}", dtype, block.n)
            code.append(self.side.each(f"{step}.rn.{dtype}.{block.k}x{block.n}.row", wide, wide, row))
        return code + ([] if wide is operand else [self.side.each("cvt.rn.f16.f32", operand, wide)])

    def tables(self) -> list[Tensor]:
        cut = self.side.steps.cut
        size = cut.batch.products("columns") * cut.full_columns * self.side.steps.parts
        return [Tensor(tensor, self.scale_type, size) for tensor, _ in self.names]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        steps = self.side.steps
        zeros = np.zeros((1, 1), np.int32) if parameters.wei_zero_points is None else parameters.wei_zero_points
        low, high = int(fmt(self.stored).low), int(fmt(self.stored).high)
        nearest = np.clip(steps.table(zeros), low, high)  # fills up groups: next to nothing
        inputs = {"wei_offsets": steps.rows_of(steps.table(zeros + _ABOVE[self.scale_type] - low), self.scale_type)}
        inputs["wei"] = self.packed(weights.astype(np.int16), nearest)
        if inside(self.decompression):
            assert parameters.wei_scale is not None
            inputs["wei_scales"] = steps.rows_of(steps.table(parameters.wei_scale), self.scale_type)
        return inputs

    def packed(self, weights: Array, fill: Array) -> Array:
        """Words of integers above the least of their type, in the order that `convert` undoes."""
        form, columns = fmt(self.stored), self.side.steps.filled(weights.T, fill.T)
        flat = self.side.blocks(columns - int(form.low)).astype(np.uint32)
        shifts = _SHIFTS[form.bits, self.scale_type]
        words: Array = (flat.reshape(-1, 32 // form.bits) << np.array(shifts, np.uint32)).sum(axis=1, dtype=np.uint32)
        return words
