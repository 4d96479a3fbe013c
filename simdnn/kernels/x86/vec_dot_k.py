"""Weights in ggml's blocks of 256 (K-quants) times f32 rows, as ggml multiplies them on AVX2 and above.

The source becomes q8_K: id = 127 / amax, q = x * id to nearest even, d = 1 / id, and the sums of 16 q each. In ggml id
is -127 over the first element of the greatest magnitude: where that is positive q and d have the other sign, which
their product does not show. ggml does it in a plain loop, which takes longer than the vectors here.

for each block:
    sums of products, each group's times its integer scale, all exact: eight s32; acc = fma(d * d, sums, acc)
    q4_K: four sums of minima times sums of q, acc_m = fma(-d * m, those, acc_m) in four lanes; q5_K: one in all
    q2_K: eight sums of minima times sums of q first, acc = fma(-d * m, those, acc)
at the end acc's lanes as of other types, then acc_m's two onto two, one onto one, the two added

VNNI is not used: vpmaddubsw and vpmaddwd multiply under every cap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isa_models.block_formats import UNEVEN, BlockFormat
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.x86.code import typed, zero
from simdnn.kernels.x86.vec_dot_code import Constants256, across, half, nibbles, offset, xmm, ymm
from simdnn.program.records import Affine, Memory, Op, Register

_GROUPS = 256 // 32  # of 32 elements


@dataclass(frozen=True)
class Blocks256:
    """The steps of a product with weights in blocks of 256, `form`, and a source in `acts`."""

    form: BlockFormat
    acts: BlockFormat
    constants: Constants256

    def held(self, name: str, values: Array) -> Memory:
        """A constant of 32 or 16 bytes, which an instruction reads from memory."""
        return self.constants.memory(name, "u8", values)

    def with_held(self, name: str, dst: Register, src: Register, constant: str, values: Array) -> Code:
        """An instruction of a register and a constant in memory."""
        place = self.held(constant, values)
        return [op(name, dst, src, Memory(place.tensor, place.index, dst.dtype, dst.lanes))]

    def load_held(self, dst: Register, constant: str, values: Array) -> Op:
        """A constant in a register of another name."""
        place = self.held(constant, values)
        return op("vmovups", dst, Memory(place.tensor, place.index, dst.dtype, dst.lanes))

    # -- the source -----------------------------------------------------------------------------------------------
    def block(self, start: Affine, at: Affine) -> Code:
        return [*self.greatest(start), *self.inverse(at), *self.codes(start, at)]

    def greatest(self, start: Affine) -> Code:
        """The greatest magnitude, in lane 0 of `amax`."""
        x, amax = ymm("x", "f32"), ymm("amax", "f32")
        code: Code = [*self.constants.load("magnitude", "u32", np.full(8, 0x7FFFFFFF, np.uint32)), zero(amax)]
        body: Code = [op("vmovups", x, Memory("src", start + Affine.var("v") * 8, "f32", 8))]
        body += [typed("vpand", x, x, ymm("magnitude")), op("vmaxps", amax, amax, x)]
        return [*code, *loop("v", 32, body), *across("vmaxps", "amax", "order")]

    def inverse(self, at: Affine) -> Code:
        """ggml's id, 127 / the greatest magnitude, in lanes of `i`, 0 where it is infinite; d, 1 / id, is stored."""
        m, i, d, mask, number = (xmm(name, "f32") for name in ("amax", "i", "ones", "o", "order"))
        code = [self.load_held(number, "n127", np.full(4, 127, np.float32)), op("vdivps", i, number, m)]
        code += [typed("vpand", mask, i, xmm("magnitude"))]
        place = self.held("infinite", np.full(4, 0x7F800000, np.uint32))
        code += [op("vpsubd", mask.as_("s32"), mask.as_("s32"), Memory(place.tensor, place.index, "s32", 4))]
        code += [typed("vpsrad", mask, mask, imm=31), typed("vpand", i, i, mask)]
        code += [self.load_held(number, "unit", np.ones(4, np.float32)), op("vdivps", d, number, i)]
        code += [typed("vpand", d, d, mask)]
        code += [op("vmovd", Memory("acts", at, "u32", 1), d.as_("u32"))]
        return [*code, op("vbroadcastss", ymm("i", "f32"), Register("i", "f32", 1))]

    def codes(self, start: Affine, at: Affine) -> Code:
        """32 codes at a time, and the sums of their halves."""
        x = [ymm(f"x{n}", "f32") for n in range(4)]
        part = start + Affine.var("g") * 32
        code = self.constants.load("order", "u32", np.array([0, 4, 1, 5, 2, 6, 3, 7], np.uint32))
        body: Code = []
        for n, v in enumerate(x):
            body += [op("vmulps", v, ymm("i", "f32"), Memory("src", part + 8 * n, "f32", 8)), typed("vcvtps2dq", v, v)]
        a, b, c, e = (v.as_("u32") for v in x)
        body += [typed("vpackssdw", a, a, b), typed("vpackssdw", c, c, e), typed("vpacksswb", a, a, c)]
        body += [op("vpermd", a, ymm("order"), a)]
        body += [op("vmovdqu", Memory("acts", at + offset(self.acts, "q") + Affine.var("g") * 32, "u32", 8), a)]
        words, sums = ymm("x1", "s16"), ymm("x1", "s32")
        code += [*self.constants.load("bytes1", "u8", np.ones(32, np.uint8)), *self.ones_of_words()]
        body += [
            op("vpmaddubsw", words, ymm("bytes1", "u8"), a.as_("s8")),
            op("vpmaddwd", sums, words, ymm("ones", "s16")),
        ]
        body += [op("vphaddd", sums, sums, sums), op("vphaddd", sums, sums, sums)]
        place = at + offset(self.acts, "sums") + Affine.var("g") * 4
        body += [op("vextracti128", xmm("x2"), ymm("x1"), imm=1)]
        for name, further in (("x1", 0), ("x2", 2)):
            body.append(op("vpextrw", Memory("acts", place + further, "u16", 1), xmm(name, "u16"), imm=0))
        return [*code, *loop("g", _GROUPS, body)]

    def ones_of_words(self) -> Code:
        return self.constants.load("ones", "s16", np.ones(16, np.int16))

    # -- products -------------------------------------------------------------------------------------------------
    @property
    def chains(self) -> tuple[str, ...]:
        """The registers that blocks are added to in turn."""
        return ("acc",)

    def prepared(self) -> Code:
        code = self.constants.load("nibble", "u8", np.full(32, 15, np.uint8))
        return code + (self.constants.load("table", "s8", np.tile(UNEVEN, 2)) if STEPS[self.form.name].table else [])

    def begun(self) -> Code:
        return [zero(xmm("minima"))] if STEPS[self.form.name].minima else []

    def ended(self) -> Code:
        """The sums of minima, added to that of the products."""
        total, other, low = (xmm(name, "f32") for name in ("minima", "y", "acc"))
        chains = STEPS[self.form.name].minima
        code: Code = []
        if chains == 4:
            code += [op("vmovhlps", other, total, total), op("vaddps", total, total, other)]
            code += [op("vmovshdup", other, total), op("vaddps", total, total, other)]
        return [*code, op("vaddps", low, low, total)] if chains else []

    def step(self, w: Affine, a: Affine, acc_name: str) -> Code:
        code = half("dw", "wei", w + offset(self.form, "scale"))
        da = Register("da", "f32", 4)
        code += [
            op("vbroadcastss", da, Memory("acts", a, "f32", 1)),
            op("vmulps", xmm("dw", "f32"), xmm("dw", "f32"), da),
        ]
        code += [op("vbroadcastss", ymm("dw", "f32"), Register("dw", "f32", 1))]
        code += STEPS[self.form.name].sums(self, w, a)
        acc, sums = ymm(acc_name, "f32"), ymm("sums", "f32")
        return [*code, op("vcvtdq2ps", sums, sums.as_("s32")), op("vfmadd231ps", acc, acc, ymm("dw", "f32"), sums)]

    def source(self, part: int, a: Affine) -> Op:
        """32 codes of the source in `y`."""
        return op("vmovdqu", ymm("y"), Memory("acts", a + offset(self.acts, "q") + 32 * part, "u32", 8))

    def take(self, part: int, a: Affine, codes: Register, scale: Register, first: bool, middle: int = 0) -> Code:
        """32 codes times those of the source, times their scales, added to `sums`, and a `middle` is off later."""
        y = ymm("y", "s16")
        code: Code = [self.source(part, a), op("vpmaddubsw", y, codes.as_("u8"), y.as_("s8"))]
        return [*code, *self.added(scale, first)]

    def take_less(self, part: int, a: Affine, codes: Register, less: Register, scale: Register) -> Code:
        """32 codes less others, each times those of the source."""
        y, taken = ymm("y", "s8"), less.as_("s16")
        code: Code = [self.source(part, a), op("vpmaddubsw", taken, less.as_("u8"), y)]
        code += [op("vpmaddubsw", y.as_("s16"), codes.as_("u8"), y), typed("vpsubw", y, y, taken)]
        return [*code, *self.added(scale, part == 0)]

    def take_signed(self, part: int, a: Affine, codes: Register, scale: Register) -> Code:
        """32 codes of both signs: their magnitudes times the source's with their signs."""
        y, magnitude = ymm("y", "s8"), ymm("z", "s8")
        code: Code = [self.source(part, a), typed("vpsignb", y, y, codes), typed("vpsignb", magnitude, codes, codes)]
        code.append(op("vpmaddubsw", y.as_("s16"), magnitude.as_("u8"), y))
        return [*code, *self.added(scale, part == 0)]

    def added(self, scale: Register, first: bool) -> Code:
        """The words in `y`, sums of two products, times their scales, added to `sums`."""
        words, into = ymm("y", "s16"), ymm("sums", "s32")
        if first:
            return [op("vpmaddwd", into, scale.as_("s16"), words)]
        products = words.as_("s32")
        return [op("vpmaddwd", products, scale.as_("s16"), words), op("vpaddd", into, into, products)]

    def scales_by_pairs(self, j: int) -> Op:
        """The lower or the upper eight of 16 scales, words in `sc`, in both halves of `z`."""
        return op("vperm2i128", ymm("z"), ymm("sc"), ymm("sc"), imm=0x11 * j)

    def pair_of(self, n: int) -> Code:
        """Scales 2n and 2n + 1 of those in `z`, each in the words of a half of `s`."""
        order = np.repeat(np.array([[4 * n, 4 * n + 1], [4 * n + 2, 4 * n + 3]], np.uint8), 8, axis=0)
        return self.with_held("vpshufb", ymm("s", "u8"), ymm("z", "u8"), f"pairs{n}", order)

    def six_bits(self, place: Affine, s: Register, t: Register, u: Register) -> Code:
        """12 bytes of weights, eight scales and eight minima of 6 bits, as 16 bytes in t."""
        code: Code = [op("vmovdqu", s, Memory("wei", place, "u32", 4))]
        code += [
            op("vpshufd", t, s, imm=0b10_01_10_00),
            op("vpsrld", u, s, imm=4),
            op("vpshufd", u, u, imm=0b10_10_10_10),
        ]
        code += [op("vpblendd", t, t, u, imm=0b1000)]
        low = np.array([0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F], np.uint32)
        code += self.with_held("vpand", t, t, "low", low)
        code += [op("vpsrld", u, s, imm=2), op("vpshufd", u, u, imm=0b01_01_00_00)]
        code += self.with_held("vpand", u, u, "upper", np.array([0, 0x30303030] * 2, np.uint32))
        code += [op("vpor", t, t, u)]
        return code

    def factors(self, w: Affine, a: Affine) -> Code:
        """The integer scales of 32 elements as words in `sc`, twice, once the minima have been seen to."""
        s, t, u = xmm("sc"), xmm("t"), xmm("u")
        code = [
            *self.six_bits(w + offset(self.form, "scales"), s, t, u),
            op("vpmovzxbw", ymm("sc", "u16"), t.as_("u8")),
        ]
        return [*code, *self.minima_of_32(w, a), op("vinserti128", ymm("sc"), ymm("sc"), xmm("sc"), imm=1)]

    def minima_of_32(self, w: Affine, a: Affine) -> Code:
        """Eight minima, the upper words of `sc`, times sums of the source to `minima`."""
        u = xmm("u")
        code: Code = [op("vmovdqu", ymm("t"), Memory("acts", a + offset(self.acts, "sums"), "u32", 8))]
        code += [
            op("vextracti128", u, ymm("t"), imm=1),
            op("vphaddw", xmm("t", "s16"), xmm("t", "s16"), xmm("u", "s16")),
        ]
        code += [op("vextracti128", u, ymm("sc"), imm=1)]
        products, total = xmm("t", "s32"), xmm("minima", "f32")
        code += [op("vpmaddwd", products, xmm("u", "s16"), xmm("t", "s16"))]
        if STEPS[self.form.name].minima == 1:
            code += [op("vphaddd", products, products, products)] * 2
        code += [op("vcvtdq2ps", products.as_("f32"), products)]
        code += half("u", "wei", w + offset(self.form, "minimum"))
        code += [op("vmulps", xmm("u", "f32"), xmm("u", "f32"), xmm("da", "f32"))]
        code += self.with_held("vpxor", u, u, "sign", np.full(4, 0x80000000, np.uint32))
        return [*code, op("vfmadd231ps", total, total, xmm("u", "f32"), products.as_("f32"))]

    def minima_of_16(self, w: Affine, a: Affine) -> Code:
        """16 minima, words in `t`, times sums of the source, taken off the sums of the products."""
        products = ymm("t", "s32")
        sums = Memory("acts", a + offset(self.acts, "sums"), "s16", 16)
        code: Code = [op("vpmaddwd", products, products.as_("s16"), sums)]
        code += [op("vcvtdq2ps", products.as_("f32"), products)]
        code += half("u", "wei", w + offset(self.form, "minimum"))
        code += [op("vmulps", xmm("u", "f32"), xmm("u", "f32"), xmm("da", "f32"))]
        code += [op("vbroadcastss", ymm("u", "f32"), Register("u", "f32", 1))]
        acc = ymm("acc", "f32")
        return [*code, op("vfnmadd231ps", acc, acc, ymm("u", "f32"), products.as_("f32"))]

    def middle_of(self, a: Affine) -> Code:
        """32 times the sums of the source times their scales, bytes in `sc`: what `middle_off` takes off."""
        minus, words = ymm("u", "s32"), ymm("t", "s16")
        code: Code = [op("vmovdqu", minus.as_("u32"), Memory("acts", a + offset(self.acts, "sums"), "u32", 8))]
        code += [op("vpmovsxbw", words, xmm("sc", "s8")), op("vpmaddwd", minus, minus.as_("s16"), words)]
        return [*code, typed("vpslld", minus, minus, imm=5)]

    def middle_off(self) -> Code:
        sums = ymm("sums", "s32")
        return [op("vpsubd", sums, sums, ymm("u", "s32"))]

    def scale_of(self, part: int) -> Code:
        """The scale of 32 elements in every word of `s`."""
        order = np.tile(np.array([2 * part, 2 * part + 1], np.uint8), 16)
        return self.with_held("vpshufb", ymm("s", "u8"), ymm("sc", "u8"), f"word{part}", order)


def _q4_k(k: Blocks256, w: Affine, a: Affine) -> Code:
    code = k.factors(w, a)
    for j in range(_GROUPS // 2):
        code += _halves(k, w, j)
        for part, codes in ((2 * j, ymm("x")), (2 * j + 1, ymm("z"))):
            code += [*k.scale_of(part), *k.take(part, a, codes, ymm("s"), part == 0)]
    return code


def _halves(k: Blocks256, w: Affine, j: int) -> Code:
    """The lower nibbles of 32 bytes in `x`, the upper ones in `z`."""
    x, z, nibble = ymm("x"), ymm("z"), ymm("nibble")
    load = op("vmovdqu", x, Memory("wei", w + offset(k.form, "q") + 32 * j, "u32", 8))
    return [load, typed("vpsrlw", z, x, imm=4), op("vpand", z, z, nibble), op("vpand", x, x, nibble)]


def _q5_k(k: Blocks256, w: Affine, a: Affine) -> Code:
    code = [*k.factors(w, a), op("vmovdqu", ymm("hb"), Memory("wei", w + offset(k.form, "high"), "u32", 8))]
    for j in range(_GROUPS // 2):
        code += _halves(k, w, j)
        for part, codes in ((2 * j, ymm("x")), (2 * j + 1, ymm("z"))):
            bit = ymm("t")
            code += k.with_held("vpand", bit, ymm("hb"), f"bit{part}", np.full(32, 1 << part, np.uint8))
            code += [typed("vpsrlw", bit, bit, imm=part), typed("vpsllw", bit, bit, imm=4)]
            code += [typed("vpaddb", codes, codes, bit)]
            code += [*k.scale_of(part), *k.take(part, a, codes, ymm("s"), part == 0)]
    return code


def _q6_k(k: Blocks256, w: Affine, a: Affine) -> Code:
    """Codes less 32: 32 times the scaled sums of the source are taken off."""
    scales = xmm("sc")
    code: Code = [op("vmovdqu", scales, Memory("wei", w + offset(k.form, "scales"), "u32", 4)), *k.middle_of(a)]
    shifts = (("vpsllw", 4, 3), ("vpsllw", 2, 12), ("", 0, 48), ("vpsrlw", 2, 192))
    for j in range(2):
        code += [op("vmovdqu", ymm("hb"), Memory("wei", w + offset(k.form, "high") + 32 * j, "u32", 8))]
        for n, (shift, count, mask) in enumerate(shifts):
            x, t, part = ymm("x"), ymm("t"), 4 * j + n
            code += [op("vmovdqu", x, Memory("wei", w + offset(k.form, "q") + 64 * j + 32 * (n % 2), "u32", 8))]
            code += [typed("vpsrlw", x, x, imm=4)] if n > 1 else []
            code += [op("vpand", x, x, ymm("nibble"))]
            code += k.with_held("vpand", t, ymm("hb"), f"of{mask}", np.full(32, mask, np.uint8))
            code += [typed(shift, t, t, imm=count)] if shift else []
            code += [op("vpor", x, x, t)]
            pair = np.repeat(np.array([2 * part, 2 * part + 1], np.uint8), 8)
            code += k.with_held("vpshufb", xmm("s", "u8"), xmm("sc", "u8"), f"pair{part}", pair)
            code += [
                op("vpmovsxbw", ymm("s", "s16"), xmm("s", "s8")),
                *k.take(part, a, x, ymm("s"), part == 0, middle=32),
            ]
    return [*code, *k.middle_off()]


def _q2_k(k: Blocks256, w: Affine, a: Affine) -> Code:
    """Each byte of `scales` has a scale and, above, a minimum."""
    scales, minima = xmm("sc"), xmm("t")
    code: Code = [op("vmovdqu", scales, Memory("wei", w + offset(k.form, "scales"), "u32", 4))]
    code += [typed("vpsrlw", minima, scales, imm=4), op("vpand", minima, minima, xmm("nibble"))]
    code += [op("vpand", scales, scales, xmm("nibble")), op("vpmovzxbw", ymm("t", "u16"), minima.as_("u8"))]
    code += k.minima_of_16(w, a)
    code += [op("vpmovzxbw", ymm("sc", "u16"), scales.as_("u8"))]
    for j in range(2):
        code += [
            k.scales_by_pairs(j),
            op("vmovdqu", ymm("hb"), Memory("wei", w + offset(k.form, "q") + 32 * j, "u32", 8)),
        ]
        for n in range(4):
            code += [*_two_bits(k, n), *k.pair_of(n), *k.take(4 * j + n, a, ymm("x"), ymm("s"), j == n == 0)]
    return code


def _two_bits(k: Blocks256, n: int) -> Code:
    """The nth pair of bits of each byte in `hb`, in `x`."""
    shifted: Code = [typed("vpsrlw", ymm("x"), ymm("hb"), imm=2 * n)] if n else []
    return shifted + k.with_held("vpand", ymm("x"), ymm("x" if n else "hb"), "threes", np.full(32, 3, np.uint8))


def _q3_k(k: Blocks256, w: Affine, a: Affine) -> Code:
    """Codes of two bits, times the source's, less 4 times those whose third bit is not set."""
    code: Code = [
        *_signed_six_bits(k, w),
        op("vmovdqu", ymm("third"), Memory("wei", w + offset(k.form, "high"), "u32", 8)),
    ]
    for j in range(2):
        code += [
            k.scales_by_pairs(j),
            op("vmovdqu", ymm("hb"), Memory("wei", w + offset(k.form, "q") + 32 * j, "u32", 8)),
        ]
        for n in range(4):
            bit, t = 4 * j + n, ymm("t")
            code += [*_two_bits(k, n), *k.pair_of(n)]
            code += k.with_held("vpandn", t, ymm("third"), f"bit{bit}", np.full(32, 1 << bit, np.uint8))
            code += [typed("vpsrlw", t, t, imm=bit)] if bit else []
            code += [typed("vpsllw", t, t, imm=2), *k.take_less(bit, a, ymm("x"), t, ymm("s"))]
    return code


def _signed_six_bits(k: Blocks256, w: Affine) -> Code:
    """12 bytes of weights, nibbles of eight and pairs of bits of four, as 16 words from -32 to 31 in `sc`."""
    s, t, u = xmm("sc"), xmm("t"), xmm("u")
    eight, four = np.arange(4, 12, dtype=np.uint8), np.arange(12, 16, dtype=np.uint8)
    #: 16 bytes that end with the 12, since a block may end soon behind them
    code: Code = [op("vmovdqu", s, Memory("wei", w + (offset(k.form, "scales") - 4), "u32", 4))]
    code += k.with_held("vpshufb", t.as_("u8"), s.as_("u8"), "eight", np.tile(eight, 2))
    code += [typed("vpsrlw", u, t, imm=4), op("vpblendd", t, t, u, imm=0b1100), op("vpand", t, t, xmm("nibble"))]
    code += k.with_held("vpshufb", u.as_("u8"), s.as_("u8"), "four", np.tile(four, 4))
    code += k.with_held("vpsrlvd", u, u, "down", np.arange(0, 8, 2, dtype=np.uint32))
    code += k.with_held("vpand", u, u, "pairs", np.full(16, 3, np.uint8))
    code += [op("vpslld", u, u, imm=4), op("vpor", t, t, u)]
    code += k.with_held("vpsubb", t.as_("s8"), t.as_("s8"), "middle", np.full(16, 32, np.int8))
    return [*code, op("vpmovsxbw", ymm("sc", "s16"), t.as_("s8"))]


def _iq4_xs(k: Blocks256, w: Affine, a: Affine) -> Code:
    """Codes that are looked up, both signs; ggml finds the scales one by one."""
    t, u = ymm("t"), ymm("u")
    code: Code = [op("vpbroadcastd", t, Memory("wei", w + offset(k.form, "low"), "u32", 1))]
    code += k.with_held("vpsrlvd", t, t, "nibbles", np.arange(0, 32, 4, dtype=np.uint32))
    code += k.with_held("vpand", t, t, "one15", np.full(8, 15, np.uint32))
    code += [op("vpbroadcastd", u, Memory("wei", w + offset(k.form, "scale"), "u32", 1))]
    code += k.with_held("vpsrlvd", u, u, "uppers", np.arange(16, 32, 2, dtype=np.uint32))
    code += k.with_held("vpand", u, u, "one3", np.full(8, 3, np.uint32))
    code += [op("vpslld", u, u, imm=4), op("vpor", t, t, u)]
    code += k.with_held("vpsubd", t.as_("s32"), t.as_("s32"), "one32", np.full(8, 32, np.int32))
    code += [typed("vpackssdw", ymm("sc"), t, t), typed("vpermq", ymm("sc"), ymm("sc"), imm=0b10_00_10_00)]
    for part in range(_GROUPS):
        code += [*nibbles(w + offset(k.form, "q") + 16 * part), typed("vpshufb", ymm("x"), ymm("table"), ymm("x"))]
        code += [*k.scale_of(part), *k.take_signed(part, a, ymm("x"), ymm("s"))]
    return code


@dataclass(frozen=True)
class ScaledSums:
    """How the sums of one block are formed, and how many chains of f32 its minima have beside those of the products."""

    sums: Callable[[Blocks256, Affine, Affine], Code]
    minima: int = 0
    table: bool = False  # whether codes are looked up


STEPS = {
    "q2_K": ScaledSums(_q2_k),
    "q3_K": ScaledSums(_q3_k),
    "q4_K": ScaledSums(_q4_k, minima=4),
    "q5_K": ScaledSums(_q5_k, minima=1),
    "q6_K": ScaledSums(_q6_k),
    "iq4_xs": ScaledSums(_iq4_xs, table=True),
}
