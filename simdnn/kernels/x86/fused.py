"""Few rows over compressed weights: each pair of weights' rows is decompressed in registers and multiplied at once.

    for each panel of columns, each block of rows:
        for each group of K:                       its zero points and scales in registers
            for each pair of rows of K:
                (w - zero point) * scale           as in decompress.py, but nothing goes through memory
                for each row of the block:         its dot product with them

What a buffer would save, decompressing once for all rows, is not worth its way through the caches for a few of them.
A sum is one chain over K.
"""

from __future__ import annotations

from functools import cached_property

from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, broadcast32, load32, loop, zero
from simdnn.kernels.common.spec import MatmulProblem
from simdnn.kernels.x86.blocking import row_blocks
from simdnn.kernels.x86.decompress import CompressedGemm, lengths, nest
from simdnn.kernels.x86.dots import accumulator
from simdnn.kernels.x86.epilogue import Tile, finish_tile
from simdnn.kernels.x86.tile import Panel
from simdnn.program.check import verify
from simdnn.program.records import Affine, Program, Tensor

MOST_ROWS = 16  # of the source: beyond, decompressing again for each block is sure to lose
_HEIGHT = 4
_SINGLE = 6  # registers: two rows of weights, scratch, the order of pairs, the table of nibbles, the epilogue's


class FusedGemm(CompressedGemm):
    """The generator for one matmul with a `Decompression` and at most `MOST_ROWS` rows."""

    @property
    def height(self) -> int:
        """Rows of a block: all, or shared out evenly among as few blocks as the registers allow."""
        most = next(h for h in range(_HEIGHT, 0, -1) if self.fitting(h))
        return -(-self.rows // -(-self.rows // most))

    def fitting(self, height: int) -> int:
        """Vectors of columns whose sums, scales and zero points fit the registers beside the source's."""
        constants = (self.in_weights is not None) + (self.compressed.zero_point is not None)
        free = self.unit.registers - _SINGLE - height * (2 // self.dot.depth)
        return max(0, free // (height + constants))

    @property
    def vectors(self) -> int:
        return min(self.fitting(self.height), -(-self.oc // self.unit.lanes))

    @cached_property
    def layout(self) -> pack.Layout:
        lanes = self.unit.lanes
        width = self.vectors * lanes
        tail = -(-(self.oc % width) // lanes) * lanes
        return pack.Layout(1, self.oc, width, tail, self.dot.depth, self.reading.ic)

    @cached_property
    def program(self) -> Program:
        code = self.reading.stage(self.unit) + self.stored.stage()
        for panels, panel, number in self.expanded():
            for first, height, count in row_blocks(self.rows, self.height):
                body = loop("r", count, self.block(panel, number, first, height), parallel=True)
                code += loop("panel", panels, body, parallel=True)
        return verify(Program(f"{self.name} {self.matmul}", self.unit.isa, tuple(self.tensors()), tuple(code)))

    def buffers(self) -> list[Tensor]:
        return []

    def block(self, panel: Panel, number: Affine, first: int, height: int) -> Code:
        """`height` rows by one panel, from nothing to memory."""
        rows = [Affine.var("r") * height + (first + i) for i in range(height)]
        sums = [[accumulator(self.unit, i, j, self.dot) for j in range(panel.vectors)] for i in range(height)]
        code: Code = [zero(acc) for row in sums for acc in row]
        code += self.stored.setup("table")
        if self.dot.wei == "bf16":
            code.append(load32(self.unit, self.unit.reg("order"), "interleave", Affine(), self.unit.lanes))
        step, large = lengths(self.compressed, self.matmul.k)
        row = Affine.var("outer") * large + Affine.var("group") * step
        turns, rest = divmod(step, 2)
        body: Code = []
        for j in range(panel.vectors):
            body += self.parameters_of(_registers(j), panel, j, row, 0)
        body += loop("k", turns, self.pairs(panel, number, rows, row + Affine.var("k") * 2, 2))
        body += self.pairs(panel, number, rows, row + (step - 1), 1) if rest else []
        code += loop("outer", self.matmul.k // large, loop("group", large // step, body))
        at = [number_ * self.oc + panel.dst for number_ in rows]
        return code + finish_tile(self.plan, Tile(self.unit, sums, panel.lanes, at, panel.channel, rows, rows))

    def pairs(self, panel: Panel, number: Affine, rows: list[Affine], k: Affine, count: int) -> Code:
        """`count` rows of weights from `k` on, one or two, with every row of the source."""
        unit, dot = self.unit, self.dot
        steps = range(-(-count // dot.depth))
        code: Code = []
        for i, row in enumerate(rows):
            for step in steps:
                a = unit.reg(f"a{i}_{step}", "f32" if dot.src == "f32" else "u32")
                code.append(broadcast32(a, self.reading.tensor, row * self.reading.column + k + step * dot.depth))
        for j in range(panel.vectors):
            r = _registers(j)
            code += self.stored.load(r[:count], r[5], r[6], panel, number, j, k)
            for register in r[:count]:
                code += self.dequantize(register, r[2], r[3])
            if dot.depth == 2:
                code += [zero(unit.reg(r[1]))] if count == 1 else []
                code += self.interleaved(r)
            for i in range(len(rows)):
                for step in steps:
                    code += dot.emit(unit, f"c{i}_{j}", f"a{i}_{step}", r[step], "")
        return code


def _registers(j: int) -> list[str]:
    """Two rows of weights, vector j's zero points and scales, the order of pairs, scratch, the table of nibbles."""
    return ["w0", "w1", f"z{j}", f"s{j}", "order", "scratch", "table"]


def refuses_fusion(problem: MatmulProblem) -> str:
    """Why a problem is not for this kernel; empty where it is."""
    d = problem.decompression
    assert d
    if problem.m > MOST_ROWS:
        return f"decompresses weights for each block of rows anew: up to {MOST_ROWS} rows, not {problem.m}"
    step, _ = lengths(d, problem.k)
    if not nest(d, problem.k) or (step % 2 and step < problem.k):
        return f"takes rows in pairs: groups of an even length that nest, not {step}"
    return ""
