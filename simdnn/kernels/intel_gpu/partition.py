"""How K is cut into groups of whole steps, and tables by group: matrices and tables as a program reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import SIDES
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.gpu.cut import Cut
from simdnn.program.records import Affine, Memory, Op, Register


@dataclass(frozen=True)
class Partition:
    """K in groups of `group`, each filled up with zeros to whole steps of the block; one group where nothing changes
    along K.
    """

    cut: Cut
    k: int
    group: int

    @property
    def parts(self) -> int:
        return self.k // self.group

    @property
    def inside(self) -> int:
        """Steps of a group."""
        return -(-self.group // self.cut.block.k)

    @property
    def steps(self) -> int:
        return self.parts * self.inside

    @property
    def pairs(self) -> int:
        """Rows of B that lie side by side where its elements have 16 bits: two of DPAS's, one of the vector pipe's."""
        return 1 if self.cut.block.unit == "mad" else 2

    def elements(self, side: str) -> int:
        """Elements of all of a side's matrices, "src" or "wei"."""
        lines = self.cut.full_rows if side == "src" else self.cut.full_columns
        return self.cut.batch.products(side) * lines * self.steps * self.cut.block.k

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

    def rows_of(self, values: Array, dtype: str, copies: int = 1) -> Array:
        """(groups, columns) as (column blocks, groups, block's columns, copies)."""
        parts, width = len(values), self.cut.block.n
        full = np.zeros((parts, self.cut.full_columns), values.dtype)
        full[:, : values.shape[1]] = values
        blocks = full.reshape(parts, self.cut.col_blocks, width).swapaxes(0, 1)
        return np.repeat(blocks.reshape(-1), copies).astype(fmt(dtype).dtype)

    def columns_of(self, values: Array, dtype: str) -> Array:
        """(rows, groups) as (row blocks, groups, block's rows); sums wrap to s32."""
        parts = values.shape[1]
        full = np.zeros((self.cut.full_rows, parts), values.dtype)
        full[: self.cut.m] = values
        blocks = full.reshape(self.cut.row_blocks, self.cut.block.m, parts).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).astype(fmt(dtype).dtype).reshape(-1)

    def source(self, src: Array, fill: Array | int = 0) -> Array:
        """The source as (row blocks, steps, rows, k); groups are filled up with `fill` (rows, groups, 1)."""
        b, p = self.cut.block, self.cut
        full = np.zeros((self.cut.full_rows, self.parts, self.inside * b.k), src.dtype)
        full[: p.m] = fill
        full[: p.m, :, : self.group] = src.reshape(p.m, self.parts, -1)
        return full.reshape(self.cut.row_blocks, b.m, self.steps, b.k).swapaxes(1, 2)

    def weights(self, weights: Array, fill: Array | int = 0) -> Array:
        """The weights as (column blocks, steps, k, columns); groups are filled up with `fill` (groups, 1, columns)."""
        b, p = self.cut.block, self.cut
        full = np.zeros((self.parts, self.inside * b.k, self.cut.full_columns), weights.dtype)
        full[:, :, : p.n] = fill
        full[:, : self.group, : p.n] = weights.reshape(self.parts, -1, p.n)
        return full.reshape(self.steps, b.k, self.cut.col_blocks, b.n).transpose(2, 0, 1, 3)


def load_narrow(
    name: str, tensor: str, block: Affine, dtype: str, lanes: int, first: str = ""
) -> tuple[Register, Code]:
    """A block of bytes or nibbles as words: the register with `name`, and its code. `first`: what bytes go to."""
    wide = Register(name, "s16", lanes)
    stored = Register(f"{first or name}_stored", stored_type(dtype), lanes * fmt(dtype).bits // 8)
    place = Memory(tensor, block * stored.lanes, stored.dtype, stored.lanes)
    return wide, [op(f"load.{stored.dtype}", stored, place), op(f"mov.s16.{dtype}", wide, stored)]


def in_pairs(blocks: Array, pairs: int) -> Array:
    """(…, k, columns) with so many rows side by side."""
    *outer, k, n = blocks.shape
    return blocks.reshape(*outer, k // pairs, pairs, n).swapaxes(-1, -2)


def stored_type(dtype: str) -> str:
    """Nibbles lie in bytes."""
    return dtype if fmt(dtype).bits == 8 else "u8"


def stored(elements: Array, dtype: str) -> Array:
    """Integers one behind the other, as they lie in memory: of 4 bits two in a byte, the first one low."""
    flat = np.ascontiguousarray(elements).reshape(-1).astype(np.int64)
    if fmt(dtype).bits == 8:
        return flat.astype(fmt(dtype).dtype)
    return ((flat[0::2] & 15) | ((flat[1::2] & 15) << 4)).astype(np.uint8)


def by_group(values: Array | None, size: tuple[int, int], axis: int) -> Array:
    """A table with fewer groups repeated along them; zeros where there is none."""
    if values is None:
        return np.zeros(size, np.int64)
    wide = values if values.dtype.kind == "f" else values.astype(np.int64)
    return np.broadcast_to(np.repeat(wide, size[axis] // values.shape[axis], axis=axis), size)
