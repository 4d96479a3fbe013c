"""Types of ggml's blocks whose rows are interleaved by eight: how bytes lie, and the steps of one block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from isa_models.block_formats import DOUBLED, UNEVEN, packed_six_bits, six_bits
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.block_rows import BlockRows
from simdnn.kernels.x86.code import zero
from simdnn.kernels.x86.repacked_code import COLUMNS, LANES, LINE, EightColumns
from simdnn.kernels.x86.vec_dot_code import half, offset
from simdnn.kernels.x86.vec_dot_k import Blocks256
from simdnn.program.records import Affine, Memory, Register

GROUP = 4  # rows of the source that ggml multiplies together
_HEAD = 4 * COLUMNS + 12 * COLUMNS  # bytes of eight blocks of 256 before their codes


class Interleaved(Protocol):
    """Layout and steps of a type of blocks whose rows are interleaved by eight."""

    together: int  # rows of the source that share unpacked weights
    sums: tuple[str, ...]  # registers of each row of the source that start at zero; the first holds the result

    def prepared(self) -> Code:
        """Constants of the loop over blocks."""

    def block(self, w: Affine, places: Sequence[Affine], grouped: bool) -> Code:
        """One block of each of eight columns at `w`, and of each row of the source."""

    def ended(self, row: int) -> Code:
        """The steps after all blocks."""

    def interleaved(self, fields: Any) -> list[Array]:
        """The bytes of eight blocks (groups, blocks, 8) side by side."""


class InterleavedNibbles:
    """Blocks of 32 nibbles that are looked up: eight scales, then lines of eight bytes of each column."""

    together = GROUP
    sums: tuple[str, ...] = ("acc",)

    def __init__(self, shared: BlockRows, columns: EightColumns) -> None:
        self.shared, self.columns = shared, columns

    def prepared(self) -> Code:
        return self.columns.constants_in("signed", np.tile(TABLES[self.shared.form.name], 2))

    def block(self, w: Affine, places: Sequence[Affine], grouped: bool) -> Code:
        c, scale = self.columns, self.shared.form.layout["scale"]
        code: Code = [zero(c.ymm(f"sums{r}")) for r in range(len(places))]
        for line in range(2):
            code += c.lines(w + COLUMNS * scale.itemsize + LINE * line)
            for upper in range(2):
                for source, into in (("low", "a"), ("high", "b")):
                    x = c.ymm(into, "u8")
                    code += c.nibbles(source, into, bool(upper))
                    code.append(op("vpshufb", x, c.ymm("signed", "u8"), x))
                for odd in range(2):
                    v, size = c.ymm("v", "s8"), c.ymm("size", "s8")
                    code += [*c.blended(bool(odd)), op("vpsignb", size, v, v)]
                    for r, place in enumerate(places):
                        code += self.dot(r, place + offset(self.shared.acts, "q") + 16 * upper + 8 * line + 4 * odd)
        code += c.column_scales("a", w) if scale.kind == "f" else c.column_powers("a", w)
        for r, place in enumerate(places):
            code += half(c.ymm("b").name, "acts", place + offset(self.shared.acts, "scale"))
            code.append(op("vbroadcastss", c.ymm("v", "f32"), Register(c.ymm("b").name, "f32", 1)))
            code.append(op("vmulps", c.ymm("v", "f32"), c.ymm("a", "f32"), c.ymm("v", "f32")))
            code += c.scaled(f"sums{r}", "v", f"acc{r}")
        return code

    def dot(self, r: int, at: Affine) -> Code:
        """Four codes of the source in every lane times those of the columns, with their signs, onto the sums."""
        c = self.columns
        y, size, sums = c.ymm("y", "s8"), c.ymm("size", "u8"), c.ymm(f"sums{r}", "s32")
        code: Code = [op("vpbroadcastd", y.as_("u32"), Memory("acts", at, "u32", 1))]
        code.append(op("vpsignb", y, y, c.ymm("v", "s8")))
        if self.shared.vnni:
            return [*code, op("vpdpbusd", sums, sums, size, y)]
        words, ones = y.as_("s16"), c.constants.memory("ones16", "s16", np.ones(16, np.int16))
        code += [op("vpmaddubsw", words, size, y), op("vpmaddwd", words.as_("s32"), words, ones)]
        return [*code, op("vpaddd", sums, sums, words.as_("s32"))]

    def ended(self, row: int) -> Code:
        return []

    def interleaved(self, fields: Any) -> list[Array]:
        codes = fields["q"].reshape(*fields.shape, 2, 8).swapaxes(-2, -3)
        return [np.ascontiguousarray(fields["scale"]).view(np.uint8), np.ascontiguousarray(codes)]


class InterleavedQ4K:
    """Blocks of 256 nibbles in eight parts: scales, minima, their integer factors by parts, then lines of codes."""

    together = 1
    sums: tuple[str, ...] = ("acc", "minima")

    def __init__(self, shared: BlockRows, columns: EightColumns) -> None:
        self.shared, self.columns = shared, columns
        self.steps = Blocks256(shared.form, shared.acts, shared.constants)

    def prepared(self) -> Code:
        return []

    def block(self, w: Affine, places: Sequence[Affine], grouped: bool) -> Code:
        c = self.columns
        (place,), q = places, offset(self.shared.acts, "q")
        code = self.sums_of_source(place + offset(self.shared.acts, "sums"))
        code += [] if grouped else [zero(c.ymm("whole")), zero(c.ymm("whole_minima"))]
        for pair in range(4):
            for line in range(4):
                code += c.lines(w + _HEAD + 4 * LINE * pair + LINE * line)
                for upper in range(2):
                    code += [*c.nibbles("low", "a", bool(upper)), *c.nibbles("high", "b", bool(upper))]
                    for odd in range(2):
                        at = place + q + 64 * pair + 32 * upper + 8 * line + 4 * odd
                        code += [*c.blended(bool(odd)), *self.dot(f"sums{upper}", at, line + odd == 0)]
            code += self.factors(w + 4 * COLUMNS + 24 * pair, pair)
            if grouped:
                code += [*self.scales(w, place), *c.scaled("sums0", "a", "acc0")]
                code += c.scaled("v", "b", "minima0")
            else:
                for total, part in (("whole", "sums0"), ("whole_minima", "v")):
                    into = c.ymm(total, "s32")
                    code.append(op("vpaddd", into, into, c.ymm(part, "s32")))
        if not grouped:
            code += [*self.scales(w, place), *c.scaled("whole", "a", "acc0")]
            code += c.scaled("whole_minima", "b", "minima0")
        return code

    def sums_of_source(self, at: Affine) -> Code:
        """The sums of 32 codes of the source each, as words, twice."""
        c = self.columns
        s, low, high = c.ymm("of_source"), c.xmm("of_source"), c.xmm("a")
        code: Code = [op("vmovdqu", s, Memory("acts", at, "u32", 8)), op("vextracti128", high, s, imm=1)]
        code.append(op("vphaddw", high.as_("s16"), low.as_("s16"), high.as_("s16")))
        return [*code, *(op("vinserti128", s, s, high, imm=side) for side in range(2))]

    def dot(self, sums: str, at: Affine, first: bool) -> Code:
        """Four codes of the source in every lane times those of the columns, as words, onto the sums."""
        c = self.columns
        y, v, into = c.ymm("y"), c.ymm("v", "u8"), c.ymm(sums, "s16")
        words = into if first else y.as_("s16")
        code: Code = [op("vpbroadcastd", y, Memory("acts", at, "u32", 1)), op("vpmaddubsw", words, v, y.as_("s8"))]
        return code if first else [*code, op("vpaddw", into, into, words)]

    def factors(self, at: Affine, pair: int) -> Code:
        """Sums of two parts times their integer factors in `sums0`, those of minima in `v`."""
        c = self.columns
        low, t, u = c.xmm("low"), c.xmm("a"), c.xmm("b")
        twice = c.constants.memory("twice", "u8", np.repeat(LANES, 2).astype(np.uint8))
        code: Code = []
        for part in range(2):
            sums = c.ymm(f"sums{part}", "s32")
            code += self.steps.six_bits(at + 12 * part, low, t, u)
            code.append(op("vpshufd", c.xmm("yv"[part]), t, imm=0b01_00_11_10))  # minima
            code += [op("vpshufb", t.as_("u8"), t.as_("u8"), twice), op("vpmovzxbw", c.ymm("a", "u16"), t.as_("u8"))]
            code.append(op("vpmaddwd", sums, sums.as_("s16"), c.ymm("a", "s16")))
        code.append(op("vpaddd", c.ymm("sums0", "s32"), c.ymm("sums0", "s32"), c.ymm("sums1", "s32")))
        minima, v = c.xmm("v", "u8"), c.ymm("v", "s16")
        code += [op("vpunpcklbw", minima, c.xmm("y", "u8"), minima), op("vpmovzxbw", v.as_("u16"), minima)]
        code.append(op("vpshufd", c.ymm("y"), c.ymm("of_source"), imm=0b01010101 * pair))
        return [*code, op("vpmaddwd", v.as_("s32"), c.ymm("y", "s16"), v)]

    def scales(self, w: Affine, place: Affine) -> Code:
        """Scales of columns times the source's in `a`, minima times it in `b`."""
        c = self.columns
        a, b, y = (c.ymm(name, "f32") for name in "aby")
        code: Code = [op("vbroadcastss", y, Memory("acts", place, "f32", 1)), *c.column_scales("a", w)]
        code += [op("vmulps", a, a, y), op("vcvtph2ps", b, Memory("wei", w + 2 * COLUMNS, "f16", COLUMNS))]
        return [*code, op("vmulps", b, b, y)]

    def ended(self, row: int) -> Code:
        c = self.columns
        acc = c.ymm(f"acc{row}", "f32")
        return [op("vsubps", acc, acc, c.ymm(f"minima{row}", "f32"))]

    def interleaved(self, fields: Any) -> list[Array]:
        scales, minima = six_bits(fields["scales"])  # (groups, blocks, 8 columns, 8 parts)
        codes = fields["q"].reshape(*fields.shape, 16, 8).swapaxes(-2, -3)
        numbers = [np.ascontiguousarray(fields[name]).view(np.uint8) for name in ("scale", "minimum")]
        return [
            *numbers,
            packed_six_bits(scales.swapaxes(-1, -2), minima.swapaxes(-1, -2)),
            np.ascontiguousarray(codes),
        ]


#: what nibbles stand for
TABLES = {"q4_0": np.arange(-8, 8, dtype=np.int8), "iq4_nl": UNEVEN, "mxfp4": DOUBLED}
TYPES: dict[str, Callable[[BlockRows, EightColumns], Interleaved]] = {
    **dict.fromkeys(TABLES, InterleavedNibbles),
    "q4_K": InterleavedQ4K,
}
