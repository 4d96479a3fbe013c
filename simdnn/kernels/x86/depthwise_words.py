"""A depthwise convolution of bytes as a library's older kernels go through it, for the clock alone: words of 32 bits.

    for each line, each few vectors of channels, each block of pixels:
        for each row of taps, each vector:
            its pixels, which columns of taps share; for each column its weights, vpmaddwd, vpaddd

As oneDNN's `jit_uni_x8s8s32x_fwd_kernel` and `jit_avx512_core_x8s8s32x_fwd_kernel` have it without VNNI
(`compute_ker_dw`). To pixels of s8 128 is added, and taps beside the image multiply that by their weights.
"""

from __future__ import annotations

from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.x86.code import broadcast32, zero
from simdnn.kernels.x86.depthwise_direct import Walk
from simdnn.kernels.x86.direct import OutputKind
from simdnn.kernels.x86.epilogue import TileSums, finish_tile
from simdnn.program.records import Affine, Memory, Op, Register


class WordsWalk(Walk):
    """One convolution, and the library's tile."""

    def line(self, lines: OutputKind) -> Code:
        """All tiles of a line, vectors of channels one after the other."""
        code: Code = []
        for channel, vectors, times in self.channels():
            body: Code = []
            for first, height, count in self.blocks():
                pixel = Affine.var("r") * height + first
                body += loop("r", count, self.block(lines, pixel, first, height, channel, vectors))
            code += nest([("j", times)], body)
        return code

    def block(self, lines: OutputKind, pixel: Affine, first: int, height: int, channel: Affine, vectors: int) -> Code:
        """One tile from nothing to the destination; `first`: a pixel that reaches over the image as its first does."""
        p, unit = self.problem, self.unit
        (rows, columns), n, y, u = p.axes, Affine.var("n"), Affine.var("y"), Affine.var("u")
        sums = [[unit.reg(f"c{i}_{j}", "s32") for j in range(vectors)] for i in range(height)]
        line = n * p.ih + (y + lines.first) * rows.stride + (u + lines.tap) * rows.dilation + -rows.before
        begin = line * (p.iw * p.ic) + (pixel * columns.stride + -columns.before) * p.ic + channel
        code: Code = [zero(acc) for row in sums for acc in row]
        if self.shifted:
            code.append(broadcast32(unit.reg("shift"), "constants", Affine(1)))
        body: Code = []
        for j in range(vectors):
            loaded: dict[int, str] = {}
            for w in range(p.kw):
                tap = ((u + lines.tap) * p.kw + w) * p.ic + channel + j * unit.lanes
                body += self.weights("b", tap)
                for i in range(height):
                    place = i * columns.stride + w * columns.dilation
                    if not self.inside(first + i, w):
                        body += self.product(sums[i][j], "shift", "b") if self.shifted else []
                        continue
                    if not self.held or place not in loaded:
                        loaded[place] = f"a{len(loaded)}" if self.held else "a"
                        body += self.source(loaded[place], begin + place * p.ic + j * unit.lanes)
                    body += self.product(sums[i][j], loaded[place], "b")
        code += loop("u", lines.taps, body)
        if self.shifted:
            code += loop("u", p.kh - lines.taps, self.beside(sums, p.kw, channel))
        first_row = (n * p.oh + y + lines.first) * p.ow + pixel
        places = [(first_row + i) * p.oc + channel for i in range(height)]
        final = TileSums(unit, sums, [unit.lanes] * vectors, places, channel, places)
        return code + finish_tile(self.plan, final)

    def beside(self, sums: list[list[Register]], taps: int, channel: Affine) -> Code:
        """A row of taps beside the image of a source that is shifted: products of the shift."""
        code: Code = []
        for j in range(len(sums[0])):
            for w in range(taps):
                code += self.weights("b", channel + w * self.problem.ic + j * self.unit.lanes)
                code += [s for row in sums for s in self.product(row[j], "shift", "b")]
        return code

    def weights(self, register: str, at: Affine) -> Code:
        return [op("vpmovsxbd", self.unit.reg(register, "s32"), Memory("wei", at, "s8", self.unit.lanes))]

    def source(self, register: str, at: Affine) -> Code:
        value = self.unit.reg(register)
        code: Code = [op("vpmovzxbd", value, Memory("src", at, "u8", self.unit.lanes))]
        if self.shifted:
            code.append(op("vpaddb", value.as_("s8"), value.as_("s8"), self.unit.reg("shift", "s8")))
        return code

    def product(self, acc: Register, a: str, b: str) -> list[Op]:
        product = self.unit.reg("p", "s32")  # which the end has for itself, too
        factors = self.unit.reg(a, "s16"), self.unit.reg(b, "s16")
        return [op("vpmaddwd", product, *factors), op("vpaddd", acc, acc, product)]
