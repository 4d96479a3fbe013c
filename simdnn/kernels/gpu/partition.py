"""How K is cut into groups of whole steps, and tables by group, for both vendors' blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.gpu.cut import Cut


@dataclass(frozen=True)
class Partition:
    """K in groups of `group`, each filled up to whole steps of `step`; one group where nothing changes along K."""

    cut: Cut
    k: int
    group: int
    step: int

    @property
    def parts(self) -> int:
        return self.k // self.group

    @property
    def inside(self) -> int:
        """Steps of a group."""
        return -(-self.group // self.step)

    @property
    def steps(self) -> int:
        return self.parts * self.inside

    def joined(self, every: int) -> tuple[int, int, int]:
        """How many partial sums of `every` products (0: of all) there are, the steps of each, and those of the last one
        where it is shorter.
        """
        each = min(every // self.step or self.steps, self.steps)
        turns, last = divmod(self.steps, each)
        return turns, each, last

    def filled(self, matrix: Array, fill: Array | None = None) -> Array:
        """(lines, K) with each group of K filled up: with zeros, or with a value for each line and group."""
        lines = len(matrix)
        found = np.zeros((lines, self.parts, self.inside * self.step), matrix.dtype)
        if fill is not None:
            found[:] = fill[:, :, None]
        found[:, :, : self.group] = matrix.reshape(lines, self.parts, -1)
        return found.reshape(lines, -1)

    def table(self, values: Array | None) -> Array:
        """(groups, N) of a parameter of the weights however it is given."""
        assert values is not None
        return by_group(values if values.ndim == 2 else values.reshape(1, -1), (self.parts, self.cut.n), 0)

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


def by_group(values: Array | None, size: tuple[int, int], axis: int) -> Array:
    """A table with fewer groups repeated along them; zeros where there is none."""
    if values is None:
        return np.zeros(size, np.int64)
    wide = values if values.dtype.kind == "f" else values.astype(np.int64)
    return np.broadcast_to(np.repeat(wide, size[axis] // values.shape[axis], axis=axis), size)
