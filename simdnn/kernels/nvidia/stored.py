"""Weights that lie in memory as words of codes, several in each, and become the floats that are multiplied."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Decompression, Parameters
from simdnn.kernels.gpu.compute import inside, scale_type
from simdnn.kernels.gpu.operands import ByGroup
from simdnn.kernels.gpu.stored_codes import codes_type
from simdnn.kernels.nvidia.fragments import Side
from simdnn.program.records import SCALES, Affine, Memory, Register, Tensor


@dataclass(frozen=True)
class StoredFragments(ByGroup):
    """A fragment of codes: made floats by `floats`, times the scale of their group, in the type multiplied."""

    side: Side
    stored: str
    multiplied: str
    decompression: Decompression

    @abstractmethod
    def floats(self, words: Register, wide: Register, number: int) -> Code:
        """The values of a block's codes in `wide`, f16 or f32 lanes."""

    @property
    def bits(self) -> int:
        """How many bits a code takes in memory."""
        return fmt(codes_type(self.stored)).bits

    @property
    def scale_type(self) -> str:
        return scale_type(self.decompression, self.multiplied)

    @property
    def in_memory(self) -> Register:
        return self.loaded

    @property
    def loaded(self) -> Register:
        return Register("", "u32", self.side.lanes * self.bits // 32)

    def load(self, step: Affine, copy: int) -> Code:
        return self.side.load(self.loaded, step, copy)

    def operand(self, step: Affine, number: int, copy: int) -> Register:
        return self.register(number)

    def register(self, number: int) -> Register:
        """The floats that are multiplied."""
        return Register(f"b_{number}", self.multiplied, self.side.lanes)

    @property
    def names(self) -> list[tuple[str, str]]:
        """(tensor, registers) of the tables by group."""
        return [("wei_scales", "s")] if inside(self.decompression) else []

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
        """Words of codes as a fragment of B."""
        block, dtype, operand = self.side.steps.cut.block, self.scale_type, self.register(number)
        words = Register(f"b_{number}_{copy}", "u32", self.loaded.lanes)
        wide = operand if dtype == self.multiplied else Register("wide", "f32", operand.lanes)
        code = self.floats(words, wide, number)
        if inside(self.decompression):
            row = Register(f"s_{number}", dtype, block.n)
            code = [*code, self.side.each(f"mul.rn.{dtype}.{block.k}x{block.n}.row", wide, wide, row)]
        return [*code, *([] if wide is operand else [self.side.each(f"cvt.rn.{self.multiplied}.f32", operand, wide)])]

    def tables(self) -> list[Tensor]:
        cut = self.side.steps.cut
        size = cut.batch.products("columns") * cut.full_columns * self.side.steps.parts
        return [Tensor(tensor, self.scale_type, size, role=SCALES) for tensor, _ in self.names]

    def scales(self, parameters: Parameters) -> dict[str, Array]:
        """The table of scales by group, where there is one."""
        if not inside(self.decompression):
            return {}
        steps = self.side.steps
        return {"wei_scales": steps.rows_of(steps.table(parameters.wei_scale), self.scale_type)}

    def packed(self, codes: Array, shifts: Sequence[int]) -> Array:
        """Codes of (columns, K), filled up, as words; `shifts`: where the elements of a word stand."""
        flat = self.side.blocks(codes).astype(np.uint32)
        words: Array = (flat.reshape(-1, len(shifts)) << np.array(shifts, np.uint32)).sum(axis=1, dtype=np.uint32)
        return words
