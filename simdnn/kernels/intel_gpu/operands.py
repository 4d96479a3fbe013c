"""Operands of a matrix instruction that lie in memory as they are multiplied: words of whole blocks."""

from __future__ import annotations

from typing import Protocol

from isa_models.formats import fmt
from isa_models.intel_gpu.packing import pack_a, pack_b
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.roles import ARGUMENTS
from simdnn.kernels.intel_gpu.partition import BlockPartition
from simdnn.program.records import Affine, Memory, Register, Tensor


class BlockOperand(Protocol):
    """The source or the weights: as stored in a tensor, and on the way to what is multiplied."""

    def load(self, number: int, k: Affine) -> tuple[Register, Code]:
        """Step `k` of a thread's block as it is multiplied."""

    def tensor(self) -> Tensor: ...

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]: ...


class Multiplied:
    """Side "src" or "wei" in the type multiplied."""

    def __init__(self, partition: BlockPartition, side: str) -> None:
        block = partition.cut.block
        self.partition, self.side = partition, side
        self.stored = self.multiplied = block.src if side == "src" else block.wei
        self.words = block.a_words if side == "src" else block.b_words

    def load(self, number: int, k: Affine) -> tuple[Register, Code]:
        register = Register(f"{'a' if self.side == 'src' else 'b'}_{number}", "u32", self.words)
        at = self.partition.at(self.side, number, k) * self.words
        return register, [op("load.u32", register, Memory(self.side, at, "u32", self.words))]

    def tensor(self) -> Tensor:
        size = self.partition.elements(self.side) * fmt(self.stored).bits // 32
        return Tensor(self.side, "u32", size, role=ARGUMENTS[self.side])

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        matrix = (src if self.side == "src" else weights).astype(fmt(self.stored).dtype)
        if self.side == "src":
            return {"src": pack_a(self.partition.source(matrix), self.stored)}
        blocks = self.partition.weights(matrix)
        vector = self.partition.cut.block.unit == "mad"
        return {"wei": pack_a(blocks, self.stored) if vector else pack_b(blocks, self.stored)}
