"""Matrices and tables as Intel's blocks read them: operands packed or narrow, rows and columns of tables by group."""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import SIDES
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.partition import Partition
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Memory, Op, Register, Tensor


class BlockPartition(Partition):
    """K in groups of whole steps of a block."""

    @staticmethod
    def of(cut: Cut, k: int, group: int) -> BlockPartition:
        return BlockPartition(cut, k, group, cut.block.k)

    @property
    def pairs(self) -> int:
        """Rows of B that lie side by side where its elements have 16 bits: two of DPAS's, one of the vector pipe's."""
        return 1 if self.cut.block.unit == "mad" else 2

    def elements(self, side: str) -> int:
        """Elements of all of a side's matrices, "src" or "wei"."""
        lines = self.cut.full_rows if side == "src" else self.cut.full_columns
        return self.cut.batch.products(side) * lines * self.steps * self.cut.block.k

    def tensor(self, side: str, dtype: str) -> Tensor:
        """All of a side's matrices as they are stored: bytes, or nibbles two in a byte."""
        size, role = self.elements(side) * fmt(dtype).bits // 8, SOURCE if side == "src" else WEIGHTS
        return Tensor(side, _stored_type(dtype), size, role=role)

    def at(self, side: str, number: int, k: Affine) -> Affine:
        """Step `k` of a thread's block of a side."""
        return (self.cut.row(number) if side == "src" else self.cut.col(number)) * self.steps + k

    def row_of(self, tensor: str, register: str, dtype: str, j: int, g: Affine, parts: int, copies: int = 1) -> Op:
        """Group `g`'s values for the columns of a block."""
        n = self.cut.block.n * copies
        product = self.cut.batch.at(SIDES.get(tensor, "columns"))
        block = self.cut.tile.col(j) + product * self.cut.col_blocks
        place = Memory(tensor, (block * parts + g) * n, dtype, n)
        return op(f"load.{dtype}", Register(register, dtype, n), place)

    def column_of(self, tensor: str, register: Register, i: int, g: Affine, parts: int) -> Op:
        """Group `g`'s values for the rows of a block."""
        product, dtype = self.cut.batch.at(SIDES.get(tensor, "rows")), register.dtype
        block = self.cut.tile.row(i) + product * self.cut.row_blocks
        return op(
            f"load.{dtype}", register, Memory(tensor, (block * parts + g) * self.cut.block.m, dtype, self.cut.block.m)
        )

    def source(self, src: Array, fill: Array | None = None) -> Array:
        """The source as (row blocks, steps, rows, k); groups are filled up with `fill` (rows, groups), or zeros."""
        b, cut = self.cut.block, self.cut
        full = np.zeros((cut.full_rows, self.steps * b.k), src.dtype)
        full[: cut.m] = self.filled(src, fill)
        return full.reshape(cut.row_blocks, b.m, self.steps, b.k).swapaxes(1, 2)

    def weights(self, weights: Array, fill: Array | None = None) -> Array:
        """The weights as (column blocks, steps, k, columns); groups are filled up with `fill` (groups, columns)."""
        b, cut = self.cut.block, self.cut
        full = np.zeros((self.steps * b.k, cut.full_columns), weights.dtype)
        full[:, : cut.n] = self.filled(weights.T, None if fill is None else fill.T).T
        return full.reshape(self.steps, b.k, cut.col_blocks, b.n).transpose(2, 0, 1, 3)


def load_narrow(
    name: str, tensor: str, block: Affine, dtype: str, lanes: int, first: str = ""
) -> tuple[Register, Code]:
    """A block of bytes or nibbles as words: the register with `name`, and its code. `first`: what bytes go to."""
    wide = Register(name, "s16", lanes)
    stored = Register(f"{first or name}_stored", _stored_type(dtype), lanes * fmt(dtype).bits // 8)
    place = Memory(tensor, block * stored.lanes, stored.dtype, stored.lanes)
    return wide, [op(f"load.{stored.dtype}", stored, place), op(f"mov.s16.{dtype}", wide, stored)]


def in_pairs(blocks: Array, pairs: int) -> Array:
    """(…, k, columns) with each `pairs` rows side by side."""
    *outer, k, n = blocks.shape
    return blocks.reshape(*outer, k // pairs, pairs, n).swapaxes(-1, -2)


def _stored_type(dtype: str) -> str:
    """The type of the elements of a tensor: u8 for nibbles, two in a byte."""
    return dtype if fmt(dtype).bits == 8 else "u8"


def stored(elements: Array, dtype: str) -> Array:
    """Integers one behind the other, as they lie in memory: of 4 bits two in a byte, the first one low."""
    flat = np.ascontiguousarray(elements).reshape(-1).astype(np.int64)
    if fmt(dtype).bits == 8:
        return flat.astype(fmt(dtype).dtype)
    return ((flat[0::2] & 15) | ((flat[1::2] & 15) << 4)).astype(np.uint8)
