"""Weights in ggml's blocks, eight rows of them interleaved, times f32 rows, as llama.cpp multiplies them by default.

for each row of the source, each block: brought to q8_0 or q8_K, as beside blocks that lie as stored        parallel
for each eight columns, each four rows of the source (of blocks of 256 one), then those left over:           parallel
    for each block:
        s32 sums of each column in a lane of its own; acc = fma(scale * scale, sums, acc)
    q4_K: the same of minima and sums of the source, taken off at the end; in whole groups of four rows of the source
        for each 64 elements of a block by themselves

A line of weights holds eight bytes of each of four columns. Even dwords of one line and odd ones of the next are
blended, so that each lane meets four neighbouring codes of a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from isa_models.block_formats import packed_six_bits, six_bits
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import MatmulProblem, Parameters
from simdnn.kernels.x86.code import Unit, typed, zero
from simdnn.kernels.x86.vec_dot import VecDot
from simdnn.kernels.x86.vec_dot_code import half, offset
from simdnn.kernels.x86.vec_dot_k import Blocks256
from simdnn.program.records import Affine, Loop, Memory, Register

COLUMNS = 8
_GROUP = 4  # rows of the source that ggml multiplies together
_LANES = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # the column of each lane of sums
_TURN, _ODD = 0b10_11_00_01, 0b10101010  # neighbours change places; odd dwords
_LINE = 64  # bytes of eight columns


class Repacked(VecDot):
    """The generator for one problem with `blocks`, one of TYPES."""

    together = 1  # rows of the source that share unpacked weights
    sums: tuple[str, ...] = ("acc",)

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        super().__init__(name, problem, unit)
        self.pool = dict.fromkeys(_registers(self.quantized()))  # to be used again: a program has few names
        self.own: dict[str, str] = {}

    # -- registers ------------------------------------------------------------------------------------------------
    def ymm(self, name: str, dtype: str = "u32") -> Register:
        """A register of the products by a name of their own."""
        if name not in self.own:
            free = [known for known in self.pool if known not in self.own.values()]
            self.own[name] = free[0] if free else f"v{len(self.own)}"
        return Register(self.own[name], "u32", 8).as_(dtype)

    def xmm(self, name: str, dtype: str = "u32") -> Register:
        return Register(self.ymm(name).name, "u32", 4).as_(dtype)

    # -- products -------------------------------------------------------------------------------------------------
    def products(self) -> Code:
        m, code = self.problem.m, []
        whole = m - m % _GROUP
        for first, rows, each, grouped in ((0, whole, self.together, True), (whole, m - whole, 1, False)):
            if rows:
                some = self.eight(first + Affine.var("r") * each, Affine.var("g"), each, grouped)
                inner = loop("r", rows // each, some, parallel=True)
                code += loop("g", self.problem.n // COLUMNS, inner, parallel=True)
        return code

    def eight(self, row: Affine, group: Affine, rows: int, grouped: bool) -> Code:
        """Some rows of the source times eight columns."""
        block, size = Affine.var("k"), self.acts.bytes * self.form.elements // self.acts.elements
        w = group * (COLUMNS * self.row) + block * (COLUMNS * self.form.bytes)
        places = [(row + r) * self.acts_row + block * size for r in range(rows)]
        code: Code = [zero(self.ymm(f"{name}{r}")) for name in self.sums for r in range(rows)]
        code += [*self.prepared(), *loop("k", self.count, self.block(w, places, grouped))]
        for r in range(rows):
            acc = self.ymm(f"acc{r}", "f32")
            code += self.constants_in("low", np.argsort(_LANES).astype(np.uint32))
            code += [op("vpermps", acc, self.ymm("low"), acc), *self.ended(r)]
            code.append(op("vmovups", Memory("dst", (row + r) * self.problem.n + group * COLUMNS, "f32", 8), acc))
        return code

    def constants_in(self, register: str, values: Array) -> Code:
        """A register that holds 32 bytes."""
        return [op("vmovdqu", self.ymm(register), self.constants.memory(f"in_{register}", "u32", values))]

    def prepared(self) -> Code:
        """Constants of the loop over blocks."""
        return []

    def block(self, w: Affine, places: Sequence[Affine], grouped: bool) -> Code:
        """One block of each of eight columns at `w`, and of each row of the source."""
        raise NotImplementedError

    def ended(self, row: int) -> Code:
        """The steps after all blocks."""
        return []

    def nibbles(self, source: str, into: str, upper: bool) -> Code:
        """Half of the bits of a line of weights."""
        x, code = self.ymm(into), []
        if upper:
            code.append(typed("vpsrlw", x, self.ymm(source), imm=4))
        low = self.constants.memory("low_nibbles", "u32", np.full(32, 15, np.uint8))
        return [*code, op("vpand", x, x if upper else self.ymm(source), low)]

    def blended(self, odd: bool) -> Code:
        """Codes of all eight columns in `v`, their even dwords of two lines or the odd ones."""
        a, b, v = self.ymm("a"), self.ymm("b"), self.ymm("v")
        turned, other = (a, b) if odd else (b, a)
        blend = (v, b) if odd else (other, v)
        return [op("vpshufd", v, turned, imm=_TURN), op("vpblendd", v, *blend, imm=_ODD)]

    def lines(self, at: Affine) -> Code:
        """Eight bytes of each column, in `low` and `high`."""
        return [
            op("vmovdqu", self.ymm(name), Memory("wei", at + further, "u32", 8))
            for name, further in (("low", 0), ("high", _LINE // 2))
        ]

    def column_scales(self, name: str, at: Affine) -> Code:
        """Eight f16 numbers as f32, by the column of each lane."""
        place = self.constants.memory("halves", "u8", (2 * _LANES[:, None] + [0, 1]).astype(np.uint8))
        d = self.xmm(name)
        return [
            op("vmovdqu", d, Memory("wei", at, "u32", 4)),
            op("vpshufb", d.as_("u8"), d.as_("u8"), place),
            op("vcvtph2ps", self.ymm(name, "f32"), d.as_("f16")),
        ]

    def scaled(self, sums: str, scale: str, into: str) -> Code:
        """Integer sums times a scale, added."""
        s, acc = self.ymm(sums, "f32"), self.ymm(into, "f32")
        return [op("vcvtdq2ps", s, s.as_("s32")), op("vfmadd231ps", acc, acc, self.ymm(scale, "f32"), s)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs; `weights` are the stored bytes (n, bytes of a row)."""
        fields = self.form.of_bytes(weights).reshape(-1, COLUMNS, self.count).swapaxes(1, 2)  # (groups, blocks, 8)
        groups = fields.shape[:2]
        parts = [part.reshape(*groups, -1) for part in self.interleaved(fields)]
        return {"src": src.reshape(-1), "wei": np.concatenate(parts, -1).reshape(-1)}

    def interleaved(self, fields: Any) -> list[Array]:
        """The bytes of eight blocks (groups, blocks, 8) side by side."""
        raise NotImplementedError


class OfQ40(Repacked):
    """Blocks of 32 signed nibbles: eight scales, then lines of eight bytes of each column."""

    together = _GROUP

    def prepared(self) -> Code:
        signed = np.tile(np.array([*range(8), *range(-8, 0)], np.int8), 2)
        return self.constants_in("signed", signed)

    def block(self, w: Affine, places: Sequence[Affine], grouped: bool) -> Code:
        code: Code = [zero(self.ymm(f"sums{r}")) for r in range(len(places))]
        for line in range(2):
            code += self.lines(w + 2 * COLUMNS + _LINE * line)
            for upper in range(2):
                for source, into in (("low", "a"), ("high", "b")):
                    x = self.ymm(into, "u8")
                    code += self.nibbles(source, into, bool(upper))
                    code.append(op("vpshufb", x, self.ymm("signed", "u8"), x))
                for odd in range(2):
                    v, size = self.ymm("v", "s8"), self.ymm("size", "s8")
                    code += [*self.blended(bool(odd)), op("vpsignb", size, v, v)]
                    for r, place in enumerate(places):
                        code += self.dot(r, place + offset(self.acts, "q") + 16 * upper + 8 * line + 4 * odd)
        code += self.column_scales("a", w)
        for r, place in enumerate(places):
            code += half(self.ymm("b").name, "acts", place + offset(self.acts, "scale"))
            code.append(op("vbroadcastss", self.ymm("v", "f32"), Register(self.ymm("b").name, "f32", 1)))
            code.append(op("vmulps", self.ymm("v", "f32"), self.ymm("a", "f32"), self.ymm("v", "f32")))
            code += self.scaled(f"sums{r}", "v", f"acc{r}")
        return code

    def dot(self, r: int, at: Affine) -> Code:
        """Four codes of the source in every lane times those of the columns, with their signs, onto the sums."""
        y, size, sums = self.ymm("y", "s8"), self.ymm("size", "u8"), self.ymm(f"sums{r}", "s32")
        code: Code = [op("vpbroadcastd", y.as_("u32"), Memory("acts", at, "u32", 1))]
        code.append(op("vpsignb", y, y, self.ymm("v", "s8")))
        if self.vnni:
            return [*code, op("vpdpbusd", sums, sums, size, y)]
        words, ones = y.as_("s16"), self.constants.memory("ones16", "s16", np.ones(16, np.int16))
        code += [op("vpmaddubsw", words, size, y), op("vpmaddwd", words.as_("s32"), words, ones)]
        return [*code, op("vpaddd", sums, sums, words.as_("s32"))]

    def interleaved(self, fields: Any) -> list[Array]:
        codes = (fields["q"] ^ 0x88).reshape(*fields.shape, 2, 8).swapaxes(-2, -3)
        return [np.ascontiguousarray(fields["scale"]).view(np.uint8), np.ascontiguousarray(codes)]


class OfQ4K(Repacked):
    """Blocks of 256 nibbles in eight parts: scales, minima, their integer factors by parts, then lines as above."""

    sums = ("acc", "minima")

    def block(self, w: Affine, places: Sequence[Affine], grouped: bool) -> Code:
        (place,), q = places, offset(self.acts, "q")
        code = self.sums_of_source(place + offset(self.acts, "sums"))
        code += [] if grouped else [zero(self.ymm("whole")), zero(self.ymm("whole_minima"))]
        for pair in range(4):
            for line in range(4):
                code += self.lines(w + _HEAD + 4 * _LINE * pair + _LINE * line)
                for upper in range(2):
                    code += [*self.nibbles("low", "a", bool(upper)), *self.nibbles("high", "b", bool(upper))]
                    for odd in range(2):
                        at = place + q + 64 * pair + 32 * upper + 8 * line + 4 * odd
                        code += [*self.blended(bool(odd)), *self.dot(f"sums{upper}", at, line + odd == 0)]
            code += self.factors(w + 4 * COLUMNS + 24 * pair, pair)
            if grouped:
                code += [*self.scales(w, place), *self.scaled("sums0", "a", "acc0")]
                code += self.scaled("v", "b", "minima0")
            else:
                for total, part in (("whole", "sums0"), ("whole_minima", "v")):
                    into = self.ymm(total, "s32")
                    code.append(op("vpaddd", into, into, self.ymm(part, "s32")))
        if not grouped:
            code += [*self.scales(w, place), *self.scaled("whole", "a", "acc0")]
            code += self.scaled("whole_minima", "b", "minima0")
        return code

    def sums_of_source(self, at: Affine) -> Code:
        """The sums of 32 codes of the source each, as words, twice."""
        s, low, high = self.ymm("of_source"), self.xmm("of_source"), self.xmm("a")
        code: Code = [op("vmovdqu", s, Memory("acts", at, "u32", 8)), op("vextracti128", high, s, imm=1)]
        code.append(op("vphaddw", high.as_("s16"), low.as_("s16"), high.as_("s16")))
        return [*code, *(op("vinserti128", s, s, high, imm=side) for side in range(2))]

    def dot(self, sums: str, at: Affine, first: bool) -> Code:
        """Four codes of the source in every lane times those of the columns, as words, onto the sums."""
        y, v, into = self.ymm("y"), self.ymm("v", "u8"), self.ymm(sums, "s16")
        words = into if first else y.as_("s16")
        code: Code = [op("vpbroadcastd", y, Memory("acts", at, "u32", 1)), op("vpmaddubsw", words, v, y.as_("s8"))]
        return code if first else [*code, op("vpaddw", into, into, words)]

    def factors(self, at: Affine, pair: int) -> Code:
        """Sums of two parts times their integer factors in `sums0`, those of minima in `v`."""
        assert isinstance(self.steps, Blocks256)
        low, t, u = self.xmm("low"), self.xmm("a"), self.xmm("b")
        twice = self.constants.memory("twice", "u8", np.repeat(_LANES, 2).astype(np.uint8))
        code: Code = []
        for part in range(2):
            sums = self.ymm(f"sums{part}", "s32")
            code += self.steps.six_bits(at + 12 * part, low, t, u)
            code.append(op("vpshufd", self.xmm("yv"[part]), t, imm=0b01_00_11_10))  # minima
            code += [op("vpshufb", t.as_("u8"), t.as_("u8"), twice), op("vpmovzxbw", self.ymm("a", "u16"), t.as_("u8"))]
            code.append(op("vpmaddwd", sums, sums.as_("s16"), self.ymm("a", "s16")))
        code.append(op("vpaddd", self.ymm("sums0", "s32"), self.ymm("sums0", "s32"), self.ymm("sums1", "s32")))
        minima, v = self.xmm("v", "u8"), self.ymm("v", "s16")
        code += [op("vpunpcklbw", minima, self.xmm("y", "u8"), minima), op("vpmovzxbw", v.as_("u16"), minima)]
        code.append(op("vpshufd", self.ymm("y"), self.ymm("of_source"), imm=0b01010101 * pair))
        return [*code, op("vpmaddwd", v.as_("s32"), self.ymm("y", "s16"), v)]

    def scales(self, w: Affine, place: Affine) -> Code:
        """Scales of columns times the source's in `a`, minima times it in `b`."""
        a, b, y = (self.ymm(name, "f32") for name in "aby")
        code: Code = [op("vbroadcastss", y, Memory("acts", place, "f32", 1)), *self.column_scales("a", w)]
        code += [op("vmulps", a, a, y), op("vcvtph2ps", b, Memory("wei", w + 2 * COLUMNS, "f16", COLUMNS))]
        return [*code, op("vmulps", b, b, y)]

    def ended(self, row: int) -> Code:
        acc = self.ymm(f"acc{row}", "f32")
        return [op("vsubps", acc, acc, self.ymm(f"minima{row}", "f32"))]

    def interleaved(self, fields: Any) -> list[Array]:
        scales, minima = six_bits(fields["scales"])  # (groups, blocks, 8 columns, 8 parts)
        codes = fields["q"].reshape(*fields.shape, 16, 8).swapaxes(-2, -3)
        numbers = [np.ascontiguousarray(fields[name]).view(np.uint8) for name in ("scale", "minimum")]
        return [
            *numbers,
            packed_six_bits(scales.swapaxes(-1, -2), minima.swapaxes(-1, -2)),
            np.ascontiguousarray(codes),
        ]


_HEAD = 4 * COLUMNS + 12 * COLUMNS  # bytes of eight blocks before their codes
TYPES: dict[str, type[Repacked]] = {"q4_0": OfQ40, "q4_K": OfQ4K}


def _registers(code: Code) -> Iterator[str]:
    """The names of the registers in some code."""
    for part in code:
        if isinstance(part, Loop):
            yield from _registers(list(part.body))
        else:
            yield from (place.name for place in (part.dst, *part.srcs) if isinstance(place, Register))
