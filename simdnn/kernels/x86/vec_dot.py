"""Weights in ggml's blocks times f32 rows, as ggml multiplies them on AVX2 and above (docs/numerics.md).

for each row of the source, each block: brought to q8_0 or q8_1, as its `quantize_row_*` does             parallel
for 16 rows of the source, 16 columns, each row, each column (rows of blocks):                            parallel
    for each block:
        eight s32 sums of four neighbouring products each, as f32; acc = fma(scale * scale, sums, acc)
    the upper half of acc is added onto the lower, four lanes become two, two one
    of types with minima: the sum of minimum * (the source's scale * sum of its codes), last

All of it is 256 bits wide, under AVX-512 too. A product of two f16 scales is exact in f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from isa_models.block_formats import block_format
from isa_models.instruction import instruction
from isa_models.isa import implied
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, nest, op, pieces
from simdnn.kernels.common.spec import Kernel, MatmulProblem, Parameters
from simdnn.kernels.x86.code import Unit, zero
from simdnn.kernels.x86.vec_dot_32 import Blocks32
from simdnn.kernels.x86.vec_dot_code import Constants256, across, xmm, ymm
from simdnn.kernels.x86.vec_dot_k import STEPS, Blocks256
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Tensor

_TILE = 16  # rows of the source, and columns, that are multiplied with one another before the next ones


class VecDot:
    """The generator for one problem with `blocks`."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        self.name, self.problem, self.unit = name, problem, unit
        self.form = block_format(problem.blocks)
        self.acts = block_format(self.form.activations)
        self.count = problem.k // self.form.elements
        self.constants = Constants256()
        self.vnni = not implied(unit.isa).isdisjoint(instruction("vpdpbusd").caps[256])
        self.steps = (
            Blocks256(self.form, self.acts, self.constants)
            if problem.blocks in STEPS
            else Blocks32(self.form, self.acts, self.constants, self.vnni)
        )

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = [*self.quantized(), *self.products()]
        tensors = [
            Tensor("src", "f32", p.m * p.k),
            Tensor("wei", "u8", p.n * self.row),
            *self.constants.used.values(),
            Tensor("acts", "u8", p.m * self.acts_row, "scratch"),
            Tensor("dst", "f32", p.m * p.n, "output"),
        ]
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(tensors), tuple(code)))

    @property
    def row(self) -> int:
        """Bytes of a row of weights."""
        return self.count * self.form.bytes

    @property
    def acts_row(self) -> int:
        """Bytes of a row of the source, quantized."""
        return self.problem.k // self.acts.elements * self.acts.bytes

    # -- the source -----------------------------------------------------------------------------------------------
    def quantized(self) -> Code:
        p = self.problem
        blocks = p.k // self.acts.elements
        start = Affine.var("r") * p.k + Affine.var("b") * self.acts.elements
        at = Affine.var("r") * self.acts_row + Affine.var("b") * self.acts.bytes
        body = loop("b", blocks, self.steps.block(start, at), parallel=True)
        return loop("r", p.m, body, parallel=True)

    # -- products -------------------------------------------------------------------------------------------------
    def products(self) -> Code:
        p, code = self.problem, []
        for turns, first, size in pieces("i", p.m, _TILE):
            inner: Code = []
            for columns, start, width in pieces("j", p.n, _TILE):
                one = self.product(first + Affine.var("r"), start + Affine.var("c"))
                inner += nest([("j", columns), ("r", size), ("c", width)], one, parallel=True)
            code += loop("i", turns, inner, parallel=True)
        return code

    def product(self, row: Affine, column: Affine) -> Code:
        """One row of the source times one row of blocks."""
        p = self.problem
        acc = ymm("acc", "f32")
        a, w = row * self.acts_row, column * self.row
        code: Code = [zero(acc), *self.steps.prepared(), *self.steps.begun()]
        block = Affine.var("k")
        body = self.steps.step(
            w + block * self.form.bytes, a + block * (self.acts.bytes * self.form.elements // self.acts.elements)
        )
        code += [*loop("k", self.count, body), *across("vaddps", "acc", "y", upper_first=True)]
        code += self.steps.ended()
        total = xmm("acc", "f32")
        return [*code, op("vmovd", Memory("dst", row * p.n + column, "u32", 1), total.as_("u32"))]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.finish, "s8", ("wei",))

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs; `weights` are the stored bytes (n, bytes of a row)."""
        return {"src": src.reshape(-1), "wei": weights.reshape(-1)}

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """dst (m, n)."""
        return outputs["dst"].reshape(self.problem.m, self.problem.n)
