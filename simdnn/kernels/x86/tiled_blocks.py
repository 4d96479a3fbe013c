"""Weights in ggml's blocks of 256 times eight f32 rows and more, as ggml multiplies prompts from 0.25 on: in tiles.

for each row of the source, each block: brought to q8_K                                                      parallel
for each 16 columns:                                                                                         parallel
    each column, each block: its codes as bytes, the scale of each as words, its minima as words
    for each eight rows of the source, each column:                                                          parallel
        for each block:
            an s32 sum of all 256 products, scaled, for each of the rows; r = d_w * sum
            of types with minima: the s32 sum of minima times sums of q; r = fma(-m_w, it, r)
            acc = fma(r, d_a, acc), a row in each lane

Codes of both signs are multiplied with those of the source plus 128, and 128 times their scaled sum is taken off; those
of iq4_xs are too large for that. ggml writes tiles of 256 by 256, computes rows up to the next sixteen, and adds lanes
one row after the other; builds for AVX-512 with VNNI have vpdpbusd and 512 bits, and the same bits.
"""

from __future__ import annotations

import numpy as np

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, nest, op, pieces
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.block_rows import BlockKernel
from simdnn.kernels.x86.code import Unit, typed, zero
from simdnn.kernels.x86.repacked_code import registers_of
from simdnn.kernels.x86.vec_dot_code import fields_of, half, offset, xmm, ymm
from simdnn.kernels.x86.vec_dot_k import STEPS, Blocks256
from simdnn.program.records import Affine, Memory, Register, Tensor

_ROWS, _COLUMNS, _PARTS = 8, 16, 8
_MORE = ("acc", "s1", *(f"sums{r}" for r in range(_ROWS)))
# where a block's scales, words beside, d and m lie; its bytes
_SCALES, _BESIDE, _D, _M, _BLOCK = 256, 512, 544, 548, 576


class Unpacked256(Blocks256):
    """A block of weights whose codes are stored as bytes: what `STEPS` multiply is stored here."""

    @property
    def signed(self) -> bool:
        """Whether codes have both signs."""
        return fmt(self.form.codes).signed

    @property
    def biased(self) -> bool:
        """Whether 128 is added to codes of the source, so that signed codes of weights meet unsigned ones."""
        return self.signed and not STEPS[self.form.name].table

    def unpacked(self, w: Affine, at: Affine) -> Code:
        """One block at `w`, unpacked at `at`."""
        self.at = at
        code = self.number("scale", w, _D) + ([zero(ymm("beside"))] if self.biased else [])
        code += self.number("minimum", w, _M) if self.has_minima else []
        code += STEPS[self.form.name].sums(self, w, Affine())
        return code + (self.stored(ymm("beside"), _BESIDE) if self.biased else [])

    @property
    def has_minima(self) -> bool:
        return "minimum" in fields_of(self.form)

    def number(self, field: str, w: Affine, further: int) -> Code:
        """One of a block's f16 numbers as f32."""
        place = Memory("unpacked", self.at + further, "u32", 1)
        return [*half("y", "wei", w + offset(self.form, field)), op("vmovd", place, xmm("y"))]

    def stored(self, register: Register, further: int) -> Code:
        return [op("vmovdqu", Memory("unpacked", self.at + further, "u32", 8), register.as_("u32"))]

    def take(self, part: int, a: Affine, codes: Register, scale: Register, first: bool, middle: int = 0) -> Code:
        code: Code = []
        if middle:
            code += self.with_held(
                "vpsubb", codes.as_("s8"), codes.as_("s8"), f"of{middle}s", np.full(32, middle, np.int8)
            )
        if self.biased:
            y, words = ymm("y", "s32"), ymm("y", "s16")
            code += [op("vpmaddubsw", words, ymm("bias", "u8"), codes.as_("s8"))]
            code += [op("vpmaddwd", y, scale.as_("s16"), words), typed("vpsubd", ymm("beside"), ymm("beside"), y)]
        return [*code, *self.stored(codes, 32 * part), *self.stored(scale, _SCALES + 32 * part)]

    def take_less(self, part: int, a: Affine, codes: Register, less: Register, scale: Register) -> Code:
        return [typed("vpsubb", codes, codes, less), *self.take(part, a, codes, scale, part == 0)]

    def take_signed(self, part: int, a: Affine, codes: Register, scale: Register) -> Code:
        return self.take(part, a, codes, scale, part == 0)

    def minima_of_32(self, w: Affine, a: Affine) -> Code:
        t, u = xmm("t", "u16"), xmm("u", "u16")
        code: Code = [op("vextracti128", u.as_("u32"), ymm("sc"), imm=1), op("vpunpcklwd", t, u, u)]
        code += [op("vpunpckhwd", u, u, u), op("vinserti128", ymm("t"), ymm("beside"), xmm("t"), imm=0)]
        return [*code, op("vinserti128", ymm("t"), ymm("t"), xmm("u"), imm=1), *self.stored(ymm("t"), _BESIDE)]

    def minima_of_16(self, w: Affine, a: Affine) -> Code:
        return self.stored(ymm("t"), _BESIDE)

    def middle_of(self, a: Affine) -> Code:
        return []

    def middle_off(self) -> Code:
        return []

    def prepared(self) -> Code:
        bias = self.constants.load("bias", "u8", np.full(32, 128, np.uint8)) if self.biased else [zero(ymm("beside"))]
        return [*super().prepared(), *bias]


class TiledBlocks(BlockKernel):
    """The generator for one problem with `blocks` of 256."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        super().__init__(name, problem, unit)
        self.weights = Unpacked256(self.shared.form, self.shared.acts, self.shared.constants)
        before = registers_of([*self.weights.prepared(), *self.weights.unpacked(Affine(), Affine())])
        self.held = [name for name in dict.fromkeys(before) if name not in "xyzs"]

    def scratch(self) -> list[Tensor]:
        p, count = self.shared.problem, self.shared.count
        unpacked = Tensor("unpacked", "u8", p.n * count * _BLOCK, "scratch")
        return [unpacked, *([Tensor("above", "u8", p.m * p.k, "scratch")] if self.weights.biased else [])]

    def ymm(self, name: str, dtype: str = "u32") -> Register:
        """A register of the products by a name that the unpacking has, too, as far as those go: names are few."""
        place = _MORE.index(name) if name in _MORE else len(self.held)
        return ymm(self.held[place] if place < len(self.held) else name, dtype)

    def xmm(self, name: str, dtype: str = "u32") -> Register:
        return xmm(self.ymm(name).name, dtype)

    def biased_source(self) -> Code:
        """The source's codes plus 128 in `above`, where weights have both signs."""
        if not self.weights.biased:
            return []
        shared, x = self.shared, ymm("x")
        row, block, part = Affine.var("r"), Affine.var("b"), Affine.var("v") * 32
        a = row * shared.acts_row + block * shared.acts_block + offset(shared.acts, "q") + part
        above = Memory("above", row * shared.problem.k + block * 256 + part, "u32", 8)
        body: Code = shared.constants.load("bias", "u8", np.full(32, 128, np.uint8))
        body += [op("vpxor", x, ymm("bias"), Memory("acts", a, "u32", 8)), op("vmovdqu", above, x)]
        return nest([("r", shared.problem.m), ("b", shared.count), ("v", _PARTS)], body, parallel=True)

    def products(self) -> Code:
        p, shared, code = self.shared.problem, self.shared, self.biased_source()
        for turns, first, width in pieces("j", p.n, _COLUMNS):
            column, block = first + Affine.var("c"), Affine.var("k")
            w = column * shared.row + block * shared.form.bytes
            unpack = self.weights.unpacked(w, self.place(column, block))
            inner = loop("c", width, [*self.weights.prepared(), *loop("k", shared.count, unpack)], parallel=True)
            for groups, start, rows in pieces("i", p.m, _ROWS):
                inner += nest([("i", groups), ("c", width)], self.product(start, column, rows), parallel=True)
            code += loop("j", turns, inner, parallel=True)
        return code

    def place(self, column: Affine, block: Affine) -> Affine:
        """Where a block of weights lies unpacked."""
        return column * (self.shared.count * _BLOCK) + block * _BLOCK

    def product(self, row: Affine, column: Affine, rows: int) -> Code:
        """Some rows of the source, a lane each, times one row of blocks."""
        acc, n = self.ymm("acc", "f32"), self.shared.problem.n
        code: Code = [zero(acc), *loop("k", self.shared.count, self.block(row, column, rows))]
        low = self.xmm("acc")
        for r in range(rows):
            place = Memory("dst", (row + r) * n + column, "u32", 1)
            if r == 4:
                code.append(op("vextracti128", low, self.ymm("acc"), imm=1))
            code.append(op("vpextrd", place, low, imm=r % 4) if r % 4 else op("vmovd", place, low))
        return code

    def block(self, row: Affine, column: Affine, rows: int) -> Code:
        """One block of weights times one of each row, added to the lanes of `acc`."""
        shared, at = self.shared, self.place(column, Affine.var("k"))
        places = [(row + r) * shared.acts_row + Affine.var("k") * shared.acts_block for r in range(rows)]
        d, s1, acc, da = (self.ymm(name, "f32") for name in ("z", "s1", "acc", "sums0"))
        code = [*self.sums(row, places, at), *self.lanes(rows, "s1"), typed("vcvtdq2ps", s1, s1)]
        code += [op("vbroadcastss", d, Memory("unpacked", at + _D, "f32", 1)), op("vmulps", s1, s1, d)]
        if self.weights.has_minima:
            s2 = self.ymm("x", "f32")
            code += [op("vmovdqu", self.ymm("x"), Memory("unpacked", at + _BESIDE, "u32", 8))]
            for r, place in enumerate(places):
                sums = Memory("acts", place + offset(shared.acts, "sums"), "s16", 16)
                code.append(op("vpmaddwd", self.ymm(f"sums{r}", "s32"), self.ymm("x", "s16"), sums))
            code += [*self.lanes(rows, "x"), typed("vcvtdq2ps", s2, s2)]
            code += [op("vbroadcastss", d, Memory("unpacked", at + _M, "f32", 1)), op("vfnmadd231ps", s1, s1, d, s2)]
        return [*code, *self.scales_of_source(places), op("vfmadd231ps", acc, acc, s1, da)]

    def sums(self, row: Affine, places: list[Affine], at: Affine) -> Code:
        """Products of each row, times their scales: eight s32 sums each."""
        code: Code = []
        for r in range(len(places)):
            into = self.ymm(f"sums{r}")
            beside = Memory("unpacked", at + _BESIDE, "u32", 8)
            code.append(op("vmovdqu", into, beside) if self.weights.biased else zero(into))
        q, part = offset(self.shared.acts, "q"), Affine.var("v") * 32
        x, s, y = self.ymm("x", "s8"), self.ymm("s", "s16"), self.ymm("y", "s8")
        body: Code = [op("vmovdqu", x.as_("u32"), Memory("unpacked", at + part, "u32", 8))]
        body.append(op("vmovdqu", s.as_("u32"), Memory("unpacked", at + part + _SCALES, "u32", 8)))
        if self.weights.signed and not self.weights.biased:
            body.append(typed("vpsignb", self.ymm("z"), x, x))
        for r, place in enumerate(places):
            source = Memory("acts", place + q + part, "s8", 32)
            if self.weights.biased:
                above = (row + r) * self.shared.problem.k + Affine.var("k") * 256 + part
                body += [op("vmovdqu", y.as_("u32"), Memory("above", above, "u32", 8))]
                body += [op("vpmaddubsw", y.as_("s16"), y.as_("u8"), x)]
            elif self.weights.signed:
                body += [
                    op("vmovdqu", y.as_("u32"), Memory("acts", place + q + part, "u32", 8)),
                    typed("vpsignb", y, y, x),
                ]
                body += [op("vpmaddubsw", y.as_("s16"), self.ymm("z", "u8"), y)]
            else:
                body += [op("vpmaddubsw", y.as_("s16"), x.as_("u8"), source)]
            into = self.ymm(f"sums{r}", "s32")
            body += [op("vpmaddwd", y.as_("s32"), s, y.as_("s16")), op("vpaddd", into, into, y.as_("s32"))]
        return [*code, *loop("v", _PARTS, body)]

    def scales_of_source(self, places: list[Affine]) -> Code:
        """The scale of each row's block, in its lane of `sums0`; lanes without a row have another's."""
        code: Code = []
        for name, side in (("sums1", places[4:]), ("sums0", places[:4])):
            for r, place in enumerate(side):
                into = self.xmm(name)
                number = Memory("acts", place, "u32", 1)
                code.append(op("vpinsrd", into, into, number, imm=r) if r else op("vpbroadcastd", into, number))
        upper = "sums1" if len(places) > 4 else "sums0"
        code.append(op("vinserti128", self.ymm("sums0"), self.ymm("s1"), self.xmm("sums0"), imm=0))
        return [*code, op("vinserti128", self.ymm("sums0"), self.ymm("sums0"), self.xmm(upper), imm=1)]

    def lanes(self, rows: int, into: str) -> Code:
        """The sum of all lanes of each `sums`, row by row, in the lanes of a register."""
        s = [self.ymm(f"sums{min(r, rows - 1)}", "s32") for r in range(_ROWS)]
        pairs = [self.ymm(name, "s32") for name in ("y", "x", "s", "z")]
        code: Code = [op("vphaddd", pair, *s[2 * i : 2 * i + 2]) for i, pair in enumerate(pairs)]
        code += [op("vphaddd", pairs[0], *pairs[:2]), op("vphaddd", pairs[2], *pairs[2:])]
        low, high, total = self.ymm("y"), self.ymm("s"), self.ymm(into)
        code += [op("vperm2i128", total, low, high, imm=0x20), op("vperm2i128", high, low, high, imm=0x31)]
        return [*code, typed("vpaddd", total, total, high)]
