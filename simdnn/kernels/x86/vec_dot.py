"""Weights in ggml's blocks times f32 rows, as ggml multiplies them on AVX2 and above (docs/numerics_ggml.md).

for each row of the source, each block: brought to q8_0 or q8_1, as its `quantize_row_*` does             parallel
for 16 rows of the source, 16 columns, each row, each column (rows of blocks):                            parallel
    for each block:
        eight s32 sums of four neighbouring products each, as f32; acc = fma(scale * scale, sums, acc)
        of types whose codes are looked up in two chains, which are added before the next line
    the upper half of acc is added onto the lower, four lanes become two, two one
    of types with minima: the sum of minimum * (the source's scale * sum of its codes), last

All of it is 256 bits wide, under AVX-512 too. A product of two f16 scales is exact in f32.
"""

from __future__ import annotations

from simdnn.kernels.common.code import Code, loop, nest, op, pieces
from simdnn.kernels.x86.block_rows import BlockKernel
from simdnn.kernels.x86.code import zero
from simdnn.kernels.x86.vec_dot_32 import Blocks32
from simdnn.kernels.x86.vec_dot_code import across, xmm, ymm
from simdnn.program.records import Affine, Memory

_TILE = 16  # rows of the source, and columns, that are multiplied with one another before the next ones


class VecDot(BlockKernel):
    """The generator for one problem with `blocks` that lie as stored."""

    def products(self) -> Code:
        p, code = self.shared.problem, []
        for turns, first, size in pieces("i", p.m, _TILE):
            inner: Code = []
            for columns, start, width in pieces("j", p.n, _TILE):
                one = self.product(first + Affine.var("r"), start + Affine.var("c"))
                inner += nest([("j", columns), ("r", size), ("c", width)], one, parallel=True)
            code += loop("i", turns, inner, parallel=True)
        return code

    def product(self, row: Affine, column: Affine) -> Code:
        """One row of the source times one row of blocks."""
        shared, steps, n = self.shared, self.shared.steps, self.shared.problem.n
        a, w = row * shared.acts_row, column * shared.row
        code: Code = [zero(ymm(chain, "f32")) for chain in steps.chains]
        code += [*steps.prepared(), *steps.begun()]
        turns, left = divmod(shared.count, len(steps.chains))
        body: Code = []
        for i, chain in enumerate(steps.chains):
            block = Affine.var("k") * len(steps.chains) + i
            body += steps.step(w + block * shared.form.bytes, a + block * shared.acts_block, chain)
        code += loop("k", turns, body)
        for chain in steps.chains[1:]:
            code.append(op("vaddps", ymm("acc", "f32"), ymm("acc", "f32"), ymm(chain, "f32")))
        code += across("vaddps", "acc", "y", upper_first=True)
        if left:
            assert isinstance(steps, Blocks32)  # others have one chain, which leaves nothing
            last = shared.count - 1
            code += steps.last(w + last * shared.form.bytes, a + last * shared.acts_block)
        code += steps.ended()
        total = xmm("acc", "f32")
        return [*code, op("vmovd", Memory("dst", row * n + column, "u32", 1), total.as_("u32"))]
