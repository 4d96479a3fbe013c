"""Weights decompressed panel by panel: each is brought to floating point just before its tiles, in a buffer that stays
in the cache; then the products are those of any floating-point GEMM.

    for each panel of columns, or some of them:
        for each group of K:                 decompressed in registers (decompressor.py)
            for each pair of rows            into the buffer, as the dot product wants it
        for each block of rows, each of these panels: a tile over the buffer
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from isa_models.instruction import TILE_ROWS
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.x86.blocking import row_blocks
from simdnn.kernels.x86.code import fill_zero, zero
from simdnn.kernels.x86.decompressor import Decompressor, lengths, nest
from simdnn.kernels.x86.product import PanelBlocks, Product
from simdnn.kernels.x86.rounding import round_f32
from simdnn.kernels.x86.tile import Panel
from simdnn.program.records import Affine, Memory, Tensor

_MOST_AT_ONCE = 4  # panels
_LEAST_TURNS = 12  # for threads to share

#: the tensors that may hold the user's weights
GIVEN = ("stored", "stored_tail", "plain")


class PanelWeights:
    """Compressed weights: each panel is brought into a buffer before its tiles."""

    given = GIVEN
    blocked = None

    def __init__(self, product: Product, blocks: PanelBlocks) -> None:
        self.decompressor = Decompressor(product, blocks.layout)
        self.layout, self.most = blocks.layout, most_at_once(product, blocks)
        self.rows = self.column = blocks.layout.icp
        self.unit, self.dot, self.k = product.unit, product.dot, product.k
        self.stored, self.multiplied = self.decompressor.stored, self.decompressor.multiplied

    def stage(self) -> Code:
        return self.decompressor.rows.stage()

    def panels(self) -> list[tuple[int, Panel]]:
        return self.decompressor.panels()

    def at_once(self) -> list[tuple[int, int, Panel]]:
        """(how often, how many panels, the panel `j` of them) for the panels that a buffer has at a time."""
        found = []
        for panels, panel in self.panels():
            for start, some, turns in row_blocks(panels, self.most if panel.tensor == "wei" else 1):
                j = Affine.var("j") if some > 1 else Affine()
                moved = panel.moved("panel", Affine.var("panel") * (some - 1) + j + start)
                found.append((turns, some, replace(moved, base=j * (self.layout.icp * self.layout.width))))
        return found

    def tensors(self) -> list[Tensor]:
        sizes = ("wei", min(self.most, self.layout.full) * self.layout.width), ("wei_tail", self.layout.tail)
        buffers = [Tensor(name, self.multiplied, self.rows * width, "private") for name, width in sizes if width]
        return [*self.decompressor.rows.tensors(), *buffers, *self.decompressor.parameter_tensors()]

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return self.decompressor.arrays(weights, parameters)

    def expand(self, panel: Panel, first: Affine, count: int, highest: int) -> Code:
        """`count` rows of the panel's weights from `first` on into its buffer, and zeros from their last pair on.

        The accumulators of the highest tile, and its weights, are free until the tiles begin.
        """
        rows = self.decompressor.rows
        sums = [f"c{i}_{j}" for j in range(panel.vectors) for i in range(highest)]
        r = [*sums[:7], *(f"d{i}" for i in range(7 - len(sums)))]
        more = [*sums[7:], *(f"b{j}" for j in range(panel.vectors)), "d7", "d8", "d9"]
        r += more[: rows.held - 1]
        code = self.clear(panel) + self.decompressor.interleaving(r[4]) + rows.setup(r[6:], r[5])
        code += self.expand_vectors(r, panel, first, count)
        return code + ([zero(self.unit.reg(r[5]))] if rows.halves else [])  # tiles find whole registers

    def expand_vectors(self, r: list[str], panel: Panel, first: Affine, count: int) -> Code:
        """All vectors of columns, of all rows."""
        return [s for j in range(panel.vectors) for s in self.expand_vector(r, panel, j, first, count)]

    def clear(self, panel: Panel) -> Code:
        """Zeros in the buffer, which an AMX tile reads to its last row."""
        row = panel.vectors * self.unit.lanes * self.dot.depth
        filled = -(-self.k // self.dot.depth)
        missing = self.layout.icp // self.dot.depth - filled
        if not missing:
            return []
        start = panel.base + filled * row
        return [
            zero(self.unit.reg("z")),
            *fill_zero(self.unit, panel.tensor, self.multiplied, start, missing * row, "f", "z"),
        ]

    def expand_vector(self, r: list[str], panel: Panel, j: int, first: Affine, count: int) -> Code:
        """One vector of columns: a loop over groups, or over as many rows as groups of odd length take for pairs."""
        step, large = lengths(self.decompressor.compressed, count)
        nested = nest(self.decompressor.compressed, count)
        turns, rest = divmod(count, large)
        outer, last = first + Affine.var("outer") * large, first + turns * large
        if step % 2 == 0 or step == count or not (self.dot.depth == 2 or self.decompressor.rows.paired):
            if nested:
                body = self.group_rows(r, panel, j, outer + Affine.var("group") * step, step)
                code = loop("outer", turns, loop("group", large // step, body))
            else:
                parts = (self.group_rows(r, panel, j, outer + at, step) for at in range(0, large, step))
                code = loop("outer", turns, [statement for part in parts for statement in part])
            return code + (self.group_rows(r, panel, j, last, rest) if rest else [])  # of a group that a part cuts
        if nested and large % (2 * step) == 0:
            body = self.unrolled(r, panel, j, outer + Affine.var("group") * (2 * step), 2 * step)
            code = loop("outer", turns, loop("group", large // (2 * step), body))
            return code + loop("outer", 1, self.unrolled(r, panel, j, last, rest))
        large = lcm(2, large)
        turns, rest = divmod(count, large)
        code = loop("outer", turns, self.unrolled(r, panel, j, first + Affine.var("outer") * large, large))
        return code + loop("outer", 1, self.unrolled(r, panel, j, first + turns * large, rest))  # as in the loop

    def group_rows(self, r: list[str], panel: Panel, j: int, row: Affine, count: int) -> Code:
        """`count` rows from `row` on that share their parameters."""
        turns, rest = divmod(count, 2)
        code = self.decompressor.parameters_of(r, panel, j, row, 0)
        code += loop("k", turns, self.pair(r, panel, j, row + Affine.var("k") * 2, True))
        return code + (self.pair(r, panel, j, row + (count - 1), False) if rest else [])

    def unrolled(self, r: list[str], panel: Panel, j: int, row: Affine, count: int) -> Code:
        """`count` rows, pair by pair, with each row's own parameters."""
        step, _ = lengths(self.decompressor.compressed, self.k)
        code: Code = []
        for at in range(0, count, 2):
            both = at + 1 < count
            code += self.decompressor.parameters_of(r, panel, j, row, at) if at == 0 or at % step == 0 else []
            second = self.decompressor.parameters_of(r, panel, j, row, at + 1) if both and (at + 1) % step == 0 else []
            code += self.pair(r, panel, j, row + at, both, second)
        return code

    def pair(self, r: list[str], panel: Panel, j: int, row: Affine, both: bool, second: Code | None = None) -> Code:
        """Rows `row` and `row + 1` (or the first alone) of one vector of columns, from storage to the buffer.

        `second` loads the second row's parameters where they are not the first one's.
        """
        unit, width = self.unit, panel.vectors * self.unit.lanes
        code = self.decompressor.rows.load(r[: 1 + both], r[5], r[6:], panel, j, row)
        code += self.decompressor.dequantize(r[0], r[2], r[3])
        code += [*(second or ()), *self.decompressor.dequantize(r[1], r[2], r[3])] if both else []
        base = panel.base + j * unit.lanes * self.dot.depth
        if self.dot.depth == 1:
            for i, register in enumerate(r[: 1 + both]):
                at, value = base + (row + i) * width, unit.reg(register, "f32")
                if self.multiplied == "f16":
                    code.append(op("vcvtps2ph", Memory(panel.tensor, at, "f16", unit.lanes), value, imm=0))
                else:
                    code += round_f32(unit, self.dot.rounds, value, (r[2], r[3], r[4])) if self.dot.rounds else []
                    code.append(op("vmovups", Memory(panel.tensor, at, "f32", unit.lanes), value))
            return code
        if not both:
            code.append(zero(unit.reg(r[1])))
        code += self.decompressor.interleaved(r)
        store = Memory(panel.tensor, base + row * width, "u32", unit.lanes)
        return [*code, op("vmovdqu", store, unit.reg(r[0]))]


def most_at_once(product: Product, blocks: PanelBlocks) -> int:
    """How many panels a buffer has, where blocks of rows go along them: few enough for threads to share the rest."""
    if not blocks.near or product.rows <= TILE_ROWS:
        return 1
    panel = product.panel_bytes(blocks.layout.width)
    return max(1, min(_MOST_AT_ONCE, blocks.near // panel, blocks.layout.full // _LEAST_TURNS))
