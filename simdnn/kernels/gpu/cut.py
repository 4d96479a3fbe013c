"""How a GPU's destination is cut into blocks and threads' tiles, and how matrices are brought there and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.code import Code
from simdnn.kernels.gpu.tile import Block, Tile
from simdnn.program.records import Affine


@dataclass(frozen=True)
class Cut:
    """An m x n destination, or a batch of them, by workgroups of `tile`, filled up to whole ones."""

    m: int
    n: int
    tile: Tile
    batch: Batch
    cycles: float = 0.0  # of its products, by rates alone (`choose_tile`)

    @property
    def block(self) -> Block:
        return self.tile.block

    @property
    def groups(self) -> tuple[int, int]:
        return self.tile.groups(self.m, self.n)

    @cached_property
    def all_blocks(self) -> tuple[int, int]:
        """Blocks along M and N, those beyond the matrix among them."""
        return self.tile.blocks(self.m, self.n)

    @property
    def row_blocks(self) -> int:
        return self.all_blocks[0]

    @property
    def col_blocks(self) -> int:
        return self.all_blocks[1]

    @property
    def full_rows(self) -> int:
        return self.row_blocks * self.block.m

    @property
    def full_columns(self) -> int:
        return self.col_blocks * self.block.n

    @property
    def outputs(self) -> int:
        """Elements of all destinations."""
        return self.batch.count * self.full_rows * self.full_columns

    # -- blocks of a thread -------------------------------------------------------------------------------------------
    @property
    def rows(self) -> range:
        return range(self.tile.rows)

    @property
    def cols(self) -> range:
        return range(self.tile.cols)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i in self.rows for j in self.cols]

    def row(self, i: int, side: str = "src") -> Affine:
        """A thread's i-th block row of the source, or of another side of the batch."""
        return self.tile.row(i) + self.batch.at(side) * self.row_blocks

    def col(self, j: int, side: str = "wei") -> Affine:
        """A thread's j-th block column of the weights, or of another side of the batch."""
        return self.tile.col(j) + self.batch.at(side) * self.col_blocks

    def place(self, i: int, j: int) -> Affine:
        """Where a thread's block (i, j) stands in the destination, counted in blocks."""
        return self.row(i, "dst") * self.col_blocks + self.tile.col(j)

    def nest(self, body: Code) -> Code:
        """`body` for every thread of every workgroup."""
        return self.tile.nest(body, self.groups, self.batch)

    # -- arrays ---------------------------------------------------------------------------------------------------
    def per_column(self, values: Array) -> Array:
        """One value a column, or a common one, in f32, with the columns that fill up."""
        full = np.broadcast_to(values.astype(np.float32).reshape(-1), (self.n,))
        return np.pad(full, (0, self.full_columns - self.n))

    def blocks_of(self, values: Array) -> Array:
        """A matrix of the destination's shape, block by block."""
        b = self.block
        full = np.zeros((self.full_rows, self.full_columns), values.dtype)
        full[: self.m, : self.n] = values
        blocks = full.reshape(self.row_blocks, b.m, self.col_blocks, b.n).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).reshape(-1)

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """(m, n) of tensor `dst`."""
        blocks = outputs["dst"].reshape(self.row_blocks, self.col_blocks, self.block.m, self.block.n)
        return np.ascontiguousarray(blocks.swapaxes(1, 2).reshape(self.full_rows, -1)[: self.m, : self.n])
