"""GEMM for NVIDIA's SMs in another type than its operands are stored in: weights decompressed, f32 data rounded.

The products are those of `simdnn.kernels.intel_gpu.compute`; the way there is another. A stored integer is kept as what
it is above the least of its type, in an order of the kernel's own, four or eight of them in a word. Put below
the bits of 1024 they are f16, 1024 + u (below those of 2**23 f32), and one subtraction for each column takes that, the
type's least and the zero point from them, exactly: conversions are slow. Narrow floats are decoded
(`narrow`). Threads that hold the same element each do all of it: `.to2` behind an instruction's name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code
from simdnn.kernels.common.epilogue import Decompression, Parameters
from simdnn.kernels.gpu.compute import converts, group_of
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Budget
from simdnn.kernels.nvidia.decoded_fragments import DecodedFragments
from simdnn.kernels.nvidia.fragments import Fragments, PlainFragments, Side
from simdnn.kernels.nvidia.gemm import WarpGemm, pairs_of_steps, sm_cut_of, unit_of
from simdnn.kernels.nvidia.stored import StoredFragments
from simdnn.program.records import Register

LARGEST = 896  # zero point that, with 1024 and 128, f16 holds
_ABOVE = {"f16": 1 << 10, "f32": 1 << 23}  # what stored integers are put below
#: where the elements of a word stand; nibbles, for f16, so that a shift and a mask leave two of them in its halves
_SHIFTS = {
    (8, "f16"): (0, 8, 16, 24),
    (8, "f32"): (0, 8, 16, 24),
    (4, "f16"): (0, 16, 4, 20, 8, 24, 12, 28),
    (4, "f32"): tuple(range(0, 32, 4)),
}


def SmComputeGemm(problem: GpuMatmulProblem, machine: GpuMachine, unit: str = "", splits: int = 1) -> WarpGemm:
    """A matmul that names the type to `compute` in; `unit`: "", or the one to take."""
    p, compute, unit = problem, problem.compute, unit or unit_of(machine, problem.compute)
    parts = p.decompression or Decompression((compute,))
    budget = Budget(registers=24, per_row=2 * 4 * 64, per_column=2 * 4 * 64, converts=converts(p))
    group = min(group_of(parts, p.k), p.k // splits)
    steps = pairs_of_steps(sm_cut_of(p, machine, unit, (compute, compute), budget, splits), p.k, group)
    weights: Fragments
    if p.decompression:
        made = DecodedFragments if fmt(p.wei).is_float else DecompressedFragments
        weights = made(Side("wei", steps), p.wei, compute, parts)
    else:
        ahead = p.wei == "f32" and p.wei_tag == "any"  # weights that are converted before the kernel runs
        weights = PlainFragments(Side("wei", steps), compute if ahead else p.wei, compute)
    suffix = "_wdec" if p.decompression else ""
    source = PlainFragments(Side("src", steps), p.src, compute)
    return WarpGemm(p, machine, steps, source, weights, suffix, grouped=True, splits=splits)


@dataclass(frozen=True)
class DecompressedFragments(StoredFragments):
    """Weights kept as words of integers above the least of their type: less an offset, times their scale."""

    @property
    def names(self) -> list[tuple[str, str]]:
        return [("wei_offsets", "z"), *super().names]

    def floats(self, words: Register, wide: Register, number: int) -> Code:
        """Words of integers as what they stand for."""
        block, below = self.side.steps.cut.block, wide.as_("u32")
        bits, parts = fmt(self.stored).bits, "halves" if wide.dtype == "f16" else "words"
        code: Code = [self.side.each(f"{'prmt' if bits == 8 else 'shr'}.b32.{parts}", below, words)]
        code += [self.side.each(f"lop3.b32.{parts}", below, below)] if bits == 4 else []
        row = Register(f"z_{number}", wide.dtype, block.n)
        return [*code, self.side.each(f"sub.rn.{wide.dtype}.{block.k}x{block.n}.row", wide, wide, row)]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        steps = self.side.steps
        zeros = np.zeros((1, 1), np.int32) if parameters.wei_zero_points is None else parameters.wei_zero_points
        low, high = int(fmt(self.stored).low), int(fmt(self.stored).high)
        nearest = np.clip(steps.table(zeros), low, high)  # fills up groups: next to nothing
        offsets = steps.rows_of(steps.table(zeros + _ABOVE[self.scale_type] - low), self.scale_type)
        codes = steps.filled(weights.astype(np.int16).T, nearest.T) - low
        words = self.packed(codes, _SHIFTS[fmt(self.stored).bits, self.scale_type])
        return {"wei": words, "wei_offsets": offsets} | self.scales(parameters)
