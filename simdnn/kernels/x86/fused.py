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

from dataclasses import dataclass
from functools import cached_property

from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Code, loop
from simdnn.kernels.common.epilogue import Decompression, Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.blocking import row_blocks
from simdnn.kernels.x86.code import Unit, broadcast32, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.decompress import GIVEN
from simdnn.kernels.x86.decompressor import Decompressor, lengths, nest, scale_inside
from simdnn.kernels.x86.dots import Dot, accumulators
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.kernels.x86.product import PanelBlocks, Product, panels_of
from simdnn.kernels.x86.stored import decoding_of, held_of
from simdnn.kernels.x86.tile import Panel
from simdnn.program.check import verify
from simdnn.program.records import Affine, Program, Register, Tensor, walk

MOST_ROWS = 16  # of the source: beyond, decompressing again for each block is sure to lose
_HEIGHT = 4
_KEPT = ("table", *(f"kept{i}" for i in range(1, 4)))  # what decoding keeps: a table, or constants
_SINGLE = 5  # registers: two rows of weights, scratch, the order of pairs, one more of an epilogue's


def fused_gemm(name: str, problem: MatmulProblem, unit: Unit, dot: Dot) -> Fused:
    """A matmul with a `Decompression` and at most `MOST_ROWS` rows."""
    assert problem.decompression is not None
    product = Product(name, problem, unit, dot, Options())
    held = held_of(decoding_of(Constants(unit), problem.wei, problem.decompression.by))
    blocks = fitting(product, problem.decompression, held)
    decompressor = Decompressor(product, blocks.layout)
    return Fused(product, blocks, decompressor, decompressor.epilogue())


def fitting(product: Product, d: Decompression, held: int) -> PanelBlocks:
    """Blocks of all rows, or of few as even as can be; panels whose sums, scales and zero points fit the registers
    beside those `held` to decode.
    """
    unit, dot = product.unit, product.dot
    constants = (scale_inside(d, dot) is not None) + (d.zero_point is not None)

    def vectors(height: int) -> int:
        """Vectors of columns that the registers hold beside the source's."""
        free = unit.registers - _SINGLE - held - height * (2 // dot.depth)
        return max(0, free // (height + constants))

    most = next(h for h in range(_HEIGHT, 0, -1) if vectors(h))
    height = -(-product.rows // -(-product.rows // most))
    columns = min(vectors(height), -(-product.oc // unit.lanes))
    return PanelBlocks(row_blocks(product.rows, height), panels_of(product, columns))


@dataclass(frozen=True, eq=False)
class Fused:
    """The nest of one problem, and the parts that it is made of."""

    product: Product
    blocks: PanelBlocks
    decompressor: Decompressor
    plan: Plan

    @cached_property
    def program(self) -> Program:
        p = self.product
        code = p.source_steps.stage(p.unit) + self.decompressor.rows.stage()
        for panels, panel in self.decompressor.panels():
            for first, height, count in self.blocks.rows:
                body = loop("r", count, self.block(panel, first, height), parallel=True)
                code += loop("panel", panels, body, parallel=True)
        return verify(Program(f"{p.name} {p.problem}", p.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.product
        return [
            *p.source_steps.tensors(),
            *self.decompressor.rows.tensors(),
            *self.decompressor.parameter_tensors(),
            *self.plan.tensors(p.unit, self.blocks.layout.channels, 1, p.outputs),
            Tensor("dst", p.conv.epilogue.dst, p.outputs, "output"),
        ]

    def block(self, panel: Panel, first: int, height: int) -> Code:
        """`height` rows by one panel, from nothing to memory."""
        p, d = self.product, self.decompressor
        rows = [Affine.var("r") * height + (first + i) for i in range(height)]
        sums = accumulators(p.unit, height, panel.vectors, p.dot)
        code: Code = [zero(acc) for row in sums for acc in row]
        code += d.rows.setup(_KEPT[: d.rows.held], _registers(0)[5]) + d.interleaving("order")
        step, large = lengths(d.compressed, p.k)
        row = Affine.var("outer") * large + Affine.var("group") * step
        turns, rest = divmod(step, 2)
        body: Code = []
        for j in range(panel.vectors):
            body += d.parameters_of(_registers(j), panel, j, row, 0)
        body += loop("k", turns, self.pairs(panel, rows, row + Affine.var("k") * 2, 2))
        body += self.pairs(panel, rows, row + (step - 1), 1) if rest else []
        code += loop("outer", p.k // large, loop("group", large // step, body))
        at = [number * p.oc + panel.dst for number in rows]
        free = tuple(dict.fromkeys(one.dst.name for one, _ in walk(code) if isinstance(one.dst, Register)))
        tile = TileSums(p.unit, sums, panel.lanes, at, panel.channel, rows, rows, free)
        return code + finish_tile(self.plan, tile)

    def pairs(self, panel: Panel, rows: list[Affine], k: Affine, count: int) -> Code:
        """`count` rows of weights from `k` on, one or two, with every row of the source."""
        unit, dot, source, d = self.product.unit, self.product.dot, self.product.source_steps, self.decompressor
        steps = range(-(-count // dot.depth))
        code: Code = []
        for i, row in enumerate(rows):
            for step in steps:
                a = unit.reg(f"a{i}_{step}", "f32" if dot.src == "f32" else "u32")
                code.append(broadcast32(a, source.tensor, row * source.column + k + step * dot.depth))
        for j in range(panel.vectors):
            r = _registers(j)
            code += d.rows.load(r[:count], r[5], _KEPT, panel, j, k)
            for register in r[:count]:
                code += d.dequantize(register, r[2], r[3])
            if dot.depth == 2:
                code += [zero(unit.reg(r[1]))] if count == 1 else []
                code += d.interleaved(r)
            for i in range(len(rows)):
                for step in steps:
                    code += dot.emit(unit, f"c{i}_{j}", f"a{i}_{step}", r[step], "")
        return code

    # -- between the user's arrays and the program's tensors --------------------------------------------------------
    def kernel(self) -> Kernel:
        p = self.product
        inputs = p.inputs(self.program, self.decompressor.arrays, self.epilogue_arrays)
        return Kernel(p.name, self.program, inputs, p.finish, p.dot.compute, GIVEN)

    def epilogue_arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return self.plan.inputs(parameters, lambda values: pack.per_channel(values, self.blocks.layout))


def _registers(j: int) -> list[str]:
    """Two rows of weights, vector j's zero points and scales, the order of pairs, scratch; rows and scratch are
    registers that epilogues use, after them.
    """
    return ["a", "b0", f"z{j}", f"s{j}", "order", "p"]


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
