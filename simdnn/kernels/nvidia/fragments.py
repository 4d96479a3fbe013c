"""Operands of a warp's products: as they lie in shared memory and in registers, and as they are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.roles import ARGUMENTS
from simdnn.kernels.gpu.partition import Partition
from simdnn.program.records import Affine, Memory, Op, Place, Register, Tensor

_CONVERSION = {
    ("f32", "f16"): "cvt.rn.f16.f32",
    ("f32", "bf16"): "cvt.rn.bf16.f32",
    ("f16", "f32"): "cvt.f32.f16",
    ("bf16", "f32"): "mov.b32.bf16",
}


class Fragments(Protocol):
    """One operand: as stored in a tensor and in the registers it is loaded to, and as it is multiplied."""

    @property
    def stored(self) -> str:
        """The type in memory."""

    @property
    def multiplied(self) -> str:
        """The type of `operand`."""

    @property
    def in_memory(self) -> Register:
        """One block of a step in memory, without a name."""

    @property
    def loaded(self) -> Register:
        """The register that a block is loaded to."""

    def load(self, step: Affine, copy: int) -> Code:
        """The blocks of a step of K, to one of two copies of their registers."""

    def operand(self, step: Affine, number: int, copy: int) -> Place:
        """The operand of a step of K."""

    def convert(self, number: int, copy: int) -> Code:
        """From what is loaded to what is multiplied."""

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Side:
    """The side of an operand: rows of the source, or columns of the weights."""

    name: str  # of the tensor: "src" or "wei"
    steps: Partition

    @property
    def letter(self) -> str:
        return "a" if self.name == "src" else "b"

    @property
    def size(self) -> int:
        """Rows, or columns, of a block."""
        return self.steps.cut.block.m if self.name == "src" else self.steps.cut.block.n

    @property
    def lanes(self) -> int:
        """Elements of a block in a step."""
        return self.size * self.steps.cut.block.k

    @property
    def numbers(self) -> range:
        """A thread's blocks."""
        return self.steps.cut.rows if self.name == "src" else self.steps.cut.cols

    @property
    def count(self) -> int:
        """All blocks along the side."""
        return self.steps.cut.row_blocks if self.name == "src" else self.steps.cut.col_blocks

    @property
    def copies(self) -> int:
        """Threads that hold each element."""
        return self.steps.cut.block.copies[self.name == "wei"]

    def each(self, name: str, result: Register, *sources: Register, **immediates: int) -> Op:
        """An instruction on a fragment, which every thread that has a copy of an element executes."""
        return op(f"{name}.to{self.copies}", result, *sources, **immediates)

    def load(self, form: Register, step: Affine, copy: int, stored: str = "") -> Code:
        """The fragments of a step of K; the one behind the last belongs to the next block, or is zero.

        `stored`: the type in memory, where it is another one than that of the registers.
        """
        kept = stored or form.dtype
        way = form.dtype if kept == form.dtype else f"{form.dtype}.{kept}"
        code = Code()
        for number in self.numbers:
            register = Register(f"{self.letter}_{number}_{copy}", form.dtype, form.lanes)
            place = self.place(Register("", kept, form.lanes), step, number)
            code.append(op(f"ld.shared.{way}.to{self.copies}", register, place))
        return code

    def place(self, form: Register, step: Affine, number: int) -> Memory:
        """Where a thread's block of a step of K lies."""
        cut, steps = self.steps.cut, 2 * self.steps.steps
        block = cut.tile.row(number) if self.name == "src" else cut.tile.col(number)
        behind = cut.batch.at(self.name) * (self.count * steps + 1)
        return Memory(self.name, (block * steps + step + behind) * form.lanes, form.dtype, form.lanes)

    def tensor(self, form: Register) -> Tensor:
        products = self.steps.cut.batch.products(self.name)
        size = products * (self.count * 2 * self.steps.steps + 1) * form.lanes
        return Tensor(self.name, form.dtype, size, role=ARGUMENTS[self.name])

    def blocks(self, matrix: Array) -> Array:
        """(lines, K) as blocks of a step of K, those of the source by rows, of the weights by columns; and a step."""
        steps, k = 2 * self.steps.steps, self.steps.cut.block.k
        full = np.zeros((self.count * self.size, steps * k), matrix.dtype)
        full[: matrix.shape[0], : matrix.shape[1]] = matrix
        order = (0, 2, 1, 3) if self.name == "src" else (0, 2, 3, 1)
        blocks = full.reshape(self.count, self.size, steps, k).transpose(order)
        return np.concatenate([blocks.reshape(-1), np.zeros(self.size * k, full.dtype)])


@dataclass(frozen=True)
class PlainFragments:
    """Elements that are multiplied as they are stored, or floats that are rounded, or widened, to it.

    f16 is widened as it is brought into shared memory, each element once; threads that multiply round what they load.
    Weights that several warps multiply by together stay in shared memory.
    """

    side: Side
    stored: str
    multiplied: str

    @property
    def in_memory(self) -> Register:
        return Register("", fmt(self.stored).lanes, self.side.lanes)

    @property
    def loaded(self) -> Register:
        widened = self.stored == "f16" and self.multiplied == "f32" and self.side.steps.cut.tile.is_staged
        return Register("", "f32", self.side.lanes) if widened else self.in_memory

    @property
    def stays(self) -> bool:
        """Whether instructions read it where it lies."""
        return self.side.name == "wei" and self.side.steps.cut.block.warps > 1

    @property
    def as_loaded(self) -> bool:
        return self.loaded.dtype == fmt(self.multiplied).lanes

    def load(self, step: Affine, copy: int) -> Code:
        return [] if self.stays else self.side.load(self.loaded, step, copy, self.in_memory.dtype)

    def operand(self, step: Affine, number: int, copy: int) -> Place:
        return self.side.place(self.in_memory, step, number) if self.stays else self.register(number, copy)

    def register(self, number: int, copy: int) -> Register:
        """The register that is multiplied."""
        name = f"{self.side.letter}_{number}" + f"_{copy}" * self.as_loaded
        return Register(name, fmt(self.multiplied).lanes, self.side.lanes)

    def convert(self, number: int, copy: int) -> Code:
        if self.as_loaded:
            return []
        raw = Register(f"{self.side.letter}_{number}_{copy}", self.stored, self.side.lanes)
        return [self.side.each(_CONVERSION[self.stored, self.multiplied], self.register(number, copy), raw)]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        matrix = (src if self.side.name == "src" else weights.T).astype(fmt(self.stored).dtype)
        return {self.side.name: self.side.blocks(self.side.steps.filled(matrix))}
