"""Weights in ggml's blocks, eight rows of them interleaved, times f32 rows, as llama.cpp multiplies them by default.

for each row of the source, each block: brought to q8_0 or q8_K, as beside blocks that lie as stored        parallel
for each eight columns, each four rows of the source (of blocks of 256 one), then those left over:           parallel
    for each block:
        s32 sums of each column in a lane of its own; acc = fma(scale * scale, sums, acc)
    q4_K: the same of minima and sums of the source, taken off at the end; in whole groups of four rows of the source
        for each 64 elements of a block by themselves
"""

from __future__ import annotations

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.block_rows import BlockKernel
from simdnn.kernels.x86.code import Unit, zero
from simdnn.kernels.x86.repacked_code import COLUMNS, LANES, EightColumns
from simdnn.kernels.x86.repacked_steps import GROUP, TYPES
from simdnn.program.records import Affine, Memory


class Repacked(BlockKernel):
    """The generator for one problem with `blocks`, one of TYPES, that are interleaved by eight columns."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        super().__init__(name, problem, unit)
        self.columns = EightColumns(self.shared)
        self.steps = TYPES[problem.blocks](self.shared, self.columns)

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        fields = self.shared.form.of_bytes(weights).reshape(-1, COLUMNS, self.shared.count).swapaxes(1, 2)
        groups = fields.shape[:2]  # groups of columns, blocks
        parts = [part.reshape(*groups, -1) for part in self.steps.interleaved(fields)]
        return {"src": src.reshape(-1), "wei": np.concatenate(parts, -1).reshape(-1)}

    def products(self) -> Code:
        m, n, code = self.shared.problem.m, self.shared.problem.n, []
        whole, together = m - m % GROUP, self.steps.together
        for first, rows, each, grouped in ((0, whole, together, True), (whole, m - whole, 1, False)):
            if rows:
                some = self.eight(first + Affine.var("r") * each, Affine.var("g"), each, grouped)
                inner = loop("r", rows // each, some, parallel=True)
                code += loop("g", n // COLUMNS, inner, parallel=True)
        return code

    def eight(self, row: Affine, group: Affine, rows: int, grouped: bool) -> Code:
        """Some rows of the source times eight columns."""
        shared, steps, c = self.shared, self.steps, self.columns
        block = Affine.var("k")
        w = group * (COLUMNS * shared.row) + block * (COLUMNS * shared.form.bytes)
        places = [(row + r) * shared.acts_row + block * shared.acts_block for r in range(rows)]
        code: Code = [zero(c.ymm(f"{name}{r}")) for name in steps.sums for r in range(rows)]
        code += [*steps.prepared(), *loop("k", shared.count, steps.block(w, places, grouped))]
        for r in range(rows):
            acc = c.ymm(f"acc{r}", "f32")
            code += c.constants_in("low", np.argsort(LANES).astype(np.uint32))
            code += [op("vpermps", acc, c.ymm("low"), acc), *steps.ended(r)]
            place = Memory("dst", (row + r) * shared.problem.n + group * COLUMNS, "f32", 8)
            code.append(op("vmovups", place, acc))
        return code
