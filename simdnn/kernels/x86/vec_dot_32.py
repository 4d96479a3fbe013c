"""Blocks of 32 elements times f32 rows, as ggml multiplies them: what it does with one block of either side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isa_models.block_formats import DOUBLED, UNEVEN, BlockFormat, block_format
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import typed, zero
from simdnn.kernels.x86.vec_dot_code import Constants256, across, fields_of, half, nibbles, offset, xmm, ymm
from simdnn.program.records import Affine, Memory, Register


@dataclass(frozen=True)
class Blocks32:
    """The steps of a product with weights in blocks of 32, `form`, and a source in `acts`."""

    form: BlockFormat
    acts: BlockFormat
    constants: Constants256
    vnni: bool
    rows: int  # of the source

    @property
    def minima(self) -> bool:
        """Whether blocks of weights have a minimum, and those of the source the sum that it is multiplied by."""
        return "sum" in fields_of(self.acts)

    # -- the source -----------------------------------------------------------------------------------------------
    def block(self, start: Affine, at: Affine) -> Code:
        """32 floats to a scale and codes: d = amax / 127, q = x * (127 / amax), halves to even."""
        x = [ymm(f"x{i}", "f32") for i in range(4)]
        code: Code = [op("vmovups", v, Memory("src", start + 8 * i, "f32", 8)) for i, v in enumerate(x)]
        code += self.constants.load("magnitude", "u32", np.full(8, 0x7FFFFFFF, np.uint32))
        amax, other, mask = ymm("amax", "f32"), ymm("o", "f32"), ymm("magnitude")
        code += [typed("vpand", amax, x[0], mask)]
        for v in x[1:]:
            code += [typed("vpand", other, v, mask), op("vmaxps", amax, amax, other)]
        code += across("vmaxps", "amax", "o", upper_first=True)
        low, d, inverse = xmm("amax", "f32"), xmm("d", "f32"), xmm("i", "f32")
        code += self.constants.load("n127", "f32", np.full(4, 127, np.float32))
        n127, found = xmm("n127", "f32"), xmm("m")
        code += [op("vdivps", inverse, n127, low), zero(found), typed("vpcmpeqd", found, found, low)]
        code += [typed("vpandn", inverse, found, inverse), op("vdivps", d, low, n127)]
        code += [op("vbroadcastss", ymm("i", "f32"), Register("i", "f32", 1))]
        for v in x:
            code += [op("vmulps", v, v, ymm("i", "f32")), op("vroundps", v, v, imm=0), typed("vcvtps2dq", v, v)]
        if self.minima:
            code += self.sum_of_codes(at)
        code += self.stored_half("d", at + offset(self.acts, "scale"))
        a, b, c, e = (v.as_("u32") for v in x)
        code += [typed("vpackssdw", a, a, b), typed("vpackssdw", c, c, e), typed("vpacksswb", a, a, c)]
        code += self.constants.load("order", "u32", np.array([0, 4, 1, 5, 2, 6, 3, 7], np.uint32))
        code += [op("vpermd", a, ymm("order"), a)]
        return [*code, op("vmovdqu", Memory("acts", at + offset(self.acts, "q"), "u32", 8), a)]

    def sum_of_codes(self, at: Affine) -> Code:
        """f16(sum of the 32 codes * d), beside them."""
        x, total, other = [ymm(f"x{i}", "s32") for i in range(4)], ymm("t", "s32"), ymm("o", "s32")
        code: Code = [op("vpaddd", total, x[0], x[1]), op("vpaddd", other, x[2], x[3])]
        code += [op("vpaddd", total, total, other), *across("vpaddd", "t", "o")]
        low = xmm("t", "f32")
        code += [op("vcvtdq2ps", low, low.as_("s32")), op("vmulps", low, low, xmm("d", "f32"))]
        return code + self.stored_half("t", at + offset(self.acts, "sum"))

    def stored_half(self, name: str, at: Affine) -> Code:
        """Lane 0 of a register as f16, in memory."""
        half = Register(name, "f16", 4)  # the rest of the register counts as undefined, so it is widened
        return [
            op("vcvtps2ph", half, xmm(name, "f32"), imm=4),
            op("vpmovzxwd", xmm(name), half.as_("u16")),
            op("vpextrw", Memory("acts", at, "u16", 1), Register(name, "u16", 8), imm=0),
        ]

    # -- products -------------------------------------------------------------------------------------------------
    def begun(self) -> Code:
        """Nothing in the sum of minima yet."""
        return [zero(xmm("minima"))] if self.minima else []

    def ended(self) -> Code:
        """The sum of minima, added to that of the products in lane 0."""
        total = xmm("acc", "f32")
        return [op("vaddps", total, total, xmm("minima", "f32"))] if self.minima else []

    @property
    def chains(self) -> tuple[str, ...]:
        """The registers that blocks are added to in turn."""
        two = self.unpacking.looked_up and not (self.unpacking.by_llamafile and self.rows > 1)
        return ("acc", "acc1") if two else ("acc",)

    @property
    def unpacking(self) -> Unpacking:
        return UNPACKING[self.form.name]

    @property
    def by_vnni(self) -> bool:
        """Whether vpdpbusd forms the sums; of codes that are looked up it does not."""
        return self.vnni and not self.unpacking.looked_up

    def prepared(self) -> Code:
        """Constants of the loop over blocks."""
        ones = [] if self.by_vnni else self.constants.load("ones", "s16", np.ones(16, np.int16))
        return [*self.unpacking.prepare(self.constants), *ones]

    def step(self, w: Affine, a: Affine, acc_name: str) -> Code:
        """One block: its scale, its codes, their products with the source's."""
        code = self.scaled(w, a)
        code += [op("vbroadcastss", ymm("dw", "f32"), Register("dw", "f32", 1))]
        if self.minima:
            code += self.minimum(w, a)
        code += self.unpacking.codes(w)
        return [*code, *self.summed(a + offset(self.acts, "q")), *self.taken(acc_name)]

    def last(self, w: Affine, a: Affine) -> Code:
        """A block left over by the chains: its sum as one integer, added in lane 0."""
        sums, total = xmm("p", "f32"), xmm("acc", "f32")
        code = [*self.scaled(w, a), *self.unpacking.codes(w), *self.summed(a + offset(self.acts, "q"))]
        code += [*across("vpaddd", "p", "y"), op("vcvtdq2ps", sums, sums.as_("s32"))]
        return [*code, op("vfmadd231ps", total, total, xmm("dw", "f32"), sums)]

    def scaled(self, w: Affine, a: Affine) -> Code:
        """The product of the two scales in lane 0 of `dw`, exact."""
        code = [
            *self.unpacking.scale(self.constants, w + offset(self.form, "scale")),
            *half("da", "acts", a + offset(self.acts, "scale")),
        ]
        d, da = xmm("dw", "f32"), xmm("da", "f32")
        return [*code, op("vmulps", d, d, da)]

    def summed(self, at: Affine) -> Code:
        """Codes in `x` times those of the source: eight s32 sums in `p`."""
        x, y, words = ymm("x", "s8"), ymm("y", "s8"), ymm("p", "s16")
        code: Code = [op("vmovdqu", y.as_("u32"), Memory("acts", at, "u32", 8))]
        unsigned = ymm("x", "u8")
        if self.unpacking.signed:
            unsigned = ymm("s", "u8")
            code += [typed("vpsignb", y, y, x), typed("vpsignb", unsigned, x, x)]
        sums = words.as_("s32")
        if self.by_vnni:
            return [*code, zero(sums), op("vpdpbusd", sums, sums, unsigned, y)]
        return [*code, op("vpmaddubsw", words, unsigned, y), op("vpmaddwd", sums, words, ymm("ones", "s16"))]

    def taken(self, acc_name: str) -> Code:
        """The sums in `p` times the scale in each lane of `dw`, added to a chain."""
        acc, sums = ymm(acc_name, "f32"), ymm("p", "s32")
        return [
            op("vcvtdq2ps", sums.as_("f32"), sums),
            op("vfmadd231ps", acc, acc, ymm("dw", "f32"), sums.as_("f32")),
        ]

    def minimum(self, w: Affine, a: Affine) -> Code:
        """The weights' minimum times the source's scaled sum, added to their total."""
        m, s, total = xmm("u", "f32"), xmm("da", "f32"), xmm("minima", "f32")
        code = [
            *half("u", "wei", w + offset(self.form, "minimum")),
            *half("da", "acts", a + offset(self.acts, "sum")),
        ]
        return [*code, op("vfmadd231ps", total, total, m, s)]


@dataclass(frozen=True)
class Blocks64(Blocks32):
    """Steps of blocks of 64, whose scales are one for 16 elements: halves of 32, each with a block of the source."""

    @property
    def chains(self) -> tuple[str, ...]:
        return ("acc",)

    def step(self, w: Affine, a: Affine, acc_name: str) -> Code:
        code: Code = []
        for half_block in range(2):
            at = a + half_block * self.acts.bytes
            code += half("da", "acts", at + offset(self.acts, "scale"))
            code += self.of_sixteen("dw", w + offset(self.form, "scale") + 2 * half_block)
            code += self.of_sixteen("v", w + offset(self.form, "scale") + 2 * half_block + 1)
            code.append(op("vinsertf128", ymm("dw", "f32"), ymm("dw", "f32"), xmm("v", "f32"), imm=1))
            code += [*nibbles(w + offset(self.form, "q") + 16 * half_block)]
            code.append(typed("vpshufb", ymm("x"), ymm("table"), ymm("x")))
            quarters = ymm("x", "u64")
            code.append(op("vpermq", quarters, quarters, imm=0xD8))  # lower and upper nibbles of eight bytes together
            code += [*self.summed(at + offset(self.acts, "q")), *self.taken(acc_name)]
        return code

    def of_sixteen(self, name: str, at: Affine) -> Code:
        """An f8_e4m3 without a sign, times 1 / 2 and the source's scale, in all lanes: as f16 it is 2**-8 of itself."""
        e, none, d = xmm(name), xmm("u"), xmm(name, "f32")
        code: Code = [op("vpbroadcastb", e.as_("u8"), Memory("wei", at, "u8", 1))]
        code += [op("vpmovzxbd", e, Register(name, "u8", 4)), typed("vpcmpeqd", none, e, xmm("largest"))]
        code += [op("vpand", e, e, xmm("largest")), op("vpandn", e, none, e), typed("vpslld", e, e, imm=7)]
        code += [op("vcvtph2ps", d, Register(name, "f16", 4)), op("vmulps", d, d, xmm("wide", "f32"))]
        code += [op("vmulps", d, d, xmm("da", "f32"))]
        return [*code, op("vbroadcastss", ymm(name, "f32"), Register(name, "f32", 1))]


@dataclass(frozen=True)
class Unpacking:
    """How a type's codes come into a register: what is held ready, and the way of one block at `w`.

    `looked_up`: codes are places in a table; their blocks are added to two chains in turn, but to one where
    llamafile's kernel multiplies several rows of the source (`by_llamafile`). `scale` brings the scale that lies at a
    place to lane 0 of `dw`, as f32.
    """

    signed: bool
    prepare: Callable[[Constants256], Code]
    codes: Callable[[Affine], Code]
    looked_up: bool = False
    by_llamafile: bool = False
    scale: Callable[[Constants256, Affine], Code] = lambda c, at: half("dw", "wei", at)


def _bytes(w: Affine, form: str) -> Code:
    return [op("vmovdqu", ymm("x"), Memory("wei", w + offset(block_format(form), "q"), "u32", 8))]


def _nibbles(w: Affine, form: str) -> Code:
    return nibbles(w + offset(block_format(form), "q"))


def _low_nibbles(c: Constants256) -> Code:
    return c.load("nibble", "u8", np.full(32, 15, np.uint8))


def _eights(c: Constants256) -> Code:
    return [*_low_nibbles(c), *c.load("eight", "u8", np.full(32, 8, np.uint8))]


def _q4_0(w: Affine) -> Code:
    return [*_nibbles(w, "q4_0"), typed("vpsubb", ymm("x"), ymm("x"), ymm("eight"))]


def _fifth(c: Constants256) -> Code:
    """Instructions that spread 32 bits over 32 bytes."""
    spread = np.repeat(np.arange(4, dtype=np.uint8), 8)
    others = np.tile(~(np.uint8(1) << np.arange(8, dtype=np.uint8)), 4)
    code = [*_low_nibbles(c), *c.load("spread", "u8", spread), *c.load("others", "u8", others)]
    return code


def _with_fifth(form: str, above: int, where_set: bool) -> Callable[[Affine], Code]:
    """Nibbles, and the byte `above` put on top of those whose fifth bit is set, or is not."""

    def codes(w: Affine) -> Code:
        bits, x = ymm("u"), ymm("x")
        place = Memory("wei", w + offset(block_format(form), "high"), "u32", 1)
        code: Code = [*_nibbles(w, form), op("vpbroadcastd", bits, place), typed("vpshufb", bits, bits, ymm("spread"))]
        code += [op("vpor", bits, bits, ymm("others")), typed("vpcmpeqb", bits, bits, ymm("all"))]
        code.append(op("vpand" if where_set else "vpandn", bits, bits, ymm("above")))
        return [*code, op("vpor", x, x, bits)]

    return codes


def _fifth_bits(above: int) -> Callable[[Constants256], Code]:
    def prepare(c: Constants256) -> Code:
        code = [*_fifth(c), *c.load("all", "u8", np.full(32, 255, np.uint8))]
        return [*code, *c.load("above", "u8", np.full(32, above, np.uint8))]

    return prepare


def _table(values: Array) -> Callable[[Constants256], Code]:
    return lambda c: [*_low_nibbles(c), *c.load("table", "s8", np.tile(values, 2))]


def _looked_up(form: str) -> Callable[[Affine], Code]:
    return lambda w: [*_nibbles(w, form), typed("vpshufb", ymm("x"), ymm("table"), ymm("x"))]


def _half_power(c: Constants256, at: Affine) -> Code:
    """2**(e - 128) of a byte e, which ggml looks up: min(e, 2) moves the bit of 2**-128, the rest is an exponent."""
    e, low, d = xmm("da"), xmm("u"), xmm("dw")
    code: Code = [op("vpbroadcastb", e.as_("u8"), Memory("wei", at, "u8", 1))]
    code.append(op("vpmovzxbd", e, Register("da", "u8", 4)))
    code.append(op("vpminud", low, e, c.memory("twos", "u32", np.full(4, 2, np.uint32))))
    code += [typed("vpsubd", e, e, low), typed("vpslld", e, e, imm=23)]
    return [*code, op("vpsllvd", d, xmm("smallest"), low), typed("vpaddd", d, d, e)]


def _powers(c: Constants256) -> Code:
    return [*_table(DOUBLED)(c), *c.load("smallest", "u32", np.full(4, 1 << 21, np.uint32))]


def _of_sixteen(c: Constants256) -> Code:
    code = [*_table(DOUBLED)(c), *c.load("largest", "u32", np.full(4, 0x7F, np.uint32))]  # which stands for 0
    return [*code, *c.load("wide", "f32", np.full(4, 128, np.float32))]


UNPACKING: dict[str, Unpacking] = {
    "q4_0": Unpacking(True, _eights, _q4_0, by_llamafile=True),
    "q4_1": Unpacking(False, _low_nibbles, lambda w: _nibbles(w, "q4_1")),
    "q5_0": Unpacking(True, _fifth_bits(0xF0), _with_fifth("q5_0", 0xF0, False), by_llamafile=True),
    "q5_1": Unpacking(False, _fifth_bits(0x10), _with_fifth("q5_1", 0x10, True)),
    "q8_0": Unpacking(True, lambda c: [], lambda w: _bytes(w, "q8_0"), by_llamafile=True),
    "iq4_nl": Unpacking(True, _table(UNEVEN), _looked_up("iq4_nl"), looked_up=True, by_llamafile=True),
    "mxfp4": Unpacking(True, _powers, _looked_up("mxfp4"), looked_up=True, scale=_half_power),
    "nvfp4": Unpacking(True, _of_sixteen, _looked_up("nvfp4"), looked_up=True),
}
