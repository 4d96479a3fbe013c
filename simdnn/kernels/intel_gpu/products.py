"""Products of blocks: the instructions of a step of K, for the systolic array and for the vector pipe."""

from __future__ import annotations

from dataclasses import dataclass

from isa_models import GpuMachine
from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.intel_gpu.operands import BlockOperand
from simdnn.kernels.intel_gpu.partition import BlockPartition
from simdnn.program.records import Affine, Register


@dataclass(frozen=True)
class BlockProducts:
    """Every pair of a step's blocks, added to the accumulators."""

    machine: GpuMachine
    partition: BlockPartition
    source: BlockOperand
    weights: BlockOperand

    @property
    def by_group(self) -> list[ByGroup]:
        """The operands that have zero points or scales by groups of K."""
        return [operand for operand in (self.weights, self.source) if isinstance(operand, ByGroup)]

    def acc(self, i: int, j: int, dtype: str = "") -> Register:
        block = self.partition.cut.block
        return Register(f"c_{i}_{j}", dtype or block.acc, block.m * block.n)

    def clear(self) -> Code:
        return cleared([self.acc(i, j) for i, j in self.partition.cut.pairs])

    def k_loop(self, steps: int, body: Code) -> Code:
        """Steps of K. Where no message reads blocks of a matrix, operands go through shared memory."""
        cut = self.partition.cut
        row_bytes = cut.block.k * fmt(cut.block.src).bits // 8
        staged = 0 if self.machine.platform.block_loads else cut.tile.staged(row_bytes)
        return loop("k", steps, body, staged=staged)

    def step(self, k: Affine) -> Code:
        """One step of K: all loads, then every pair of blocks."""
        cut = self.partition.cut
        sides = [self.source.load(i, k) for i in cut.rows], [self.weights.load(j, k) for j in cut.cols]
        code: Code = [instruction for side in sides for _, part in side for instruction in part]
        rows, cols = ([register for register, _ in side] for side in sides)
        if cut.block.unit == "mad":
            return code + self.mads(rows, cols)
        name = cut.block.instruction
        for j, b in enumerate(cols):  # columns outside: neighbours share B, which the array keeps
            for i, a in enumerate(rows):
                acc = self.acc(i, j)
                code.append(op(name, acc, acc, b, a))
        return code

    def mads(self, rows: list[Register], cols: list[Register]) -> Code:
        """Every pair of blocks on the vector pipe, operands widened where they are narrower than f32."""
        block, code = self.partition.cut.block, Code()
        sides = [[register.as_(block.src) for register in side] for side in (rows, cols)]
        if block.widened:
            for side in sides:
                for number, narrow in enumerate(side):
                    side[number] = Register(f"wide_{narrow.name}", "f32", narrow.lanes)
                    code.append(op(f"mov.f32.{block.src}", side[number], narrow))
        for j, b in enumerate(sides[1]):
            for i, a in enumerate(sides[0]):
                code.append(op(block.instruction, self.acc(i, j), self.acc(i, j), a, b))
        return code


def cleared(registers: list[Register]) -> Code:
    words = [register.as_("u32") for register in registers]
    return [op("xor.u32", word, word, word) for word in words]
