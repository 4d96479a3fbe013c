"""Sums of s8 sources times weights of 4 or 8 bits in blocks, as MLAS, onnxruntime's library, forms them
(docs/numerics_onnxruntime.md).

for two rows of the source, each four columns of weights:                                             parallel
    for each two registers of codes, which are a number of blocks or a part of one:
        products to s32 lanes, lanes of the two registers met, as f32; acc = fma(scales, sums, acc)
    for each block left: its products to s32 lanes, as f32; acc = fma(scale, sums, acc)
    lanes are added up, and the bias comes last

Which lanes meet, and how lanes are added up at the end, depends on the block, the width and the dot product.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from isa_models.formats import fmt
from isa_models.instruction import instruction
from isa_models.isa import implied
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, nest, op, pieces
from simdnn.kernels.common.nbits import IntegerDots, nibbles
from simdnn.kernels.common.vocabulary import Spread, Vocabulary
from simdnn.kernels.x86 import folds
from simdnn.kernels.x86.code import Unit, load32, store32, typed, unit_of, zero
from simdnn.program.check import verify
from simdnn.program.records import SCALES, SOURCE, WEIGHTS, ZEROS, Affine, Memory, Op, Program, Register, Tensor

_ROWS, _COLUMNS = 2, 4
_XMM = Unit("avx2", 128)
#: lanes that have each scale of a step, by how many it has
_SPREAD = {
    (512, 8): (0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7),
    (512, 4): (0, 0, 2, 2, 0, 0, 2, 2, 1, 1, 3, 3, 1, 1, 3, 3),
    (256, 4): (0, 0, 2, 2, 1, 1, 3, 3),
}


def integer_dots(problem: IntegerDots, words: Vocabulary) -> Spread:
    """Inputs codes (m, k) of s8, scales (m, blocks), w (n, k) of u8, w_scales (n, blocks), zeros as those, bias; output
    dst.
    """
    made = _Dots(problem, unit_of(words.isa))
    return Spread(_program(problem, made.unit), made.prepare, lambda found: found["dst"])


@functools.lru_cache(maxsize=256)
def _program(problem: IntegerDots, unit: Unit) -> Program:
    return _Dots(problem, unit).program()


class _Dots:
    def __init__(self, problem: IntegerDots, unit: Unit) -> None:
        self.problem, self.unit, self.w = problem, unit, problem.weights
        self.constants: dict[str, Tensor] = {}
        self.vnni = not implied(unit.isa).isdisjoint(instruction("vpdpbusd").caps[unit.width]) and not problem.signed
        self.part = unit.width // 4  # codes of a step: two registers of bytes
        self.blocks = max(1, self.part // self.w.block)  # of a step
        self.parts = max(1, self.w.block // self.part)  # steps of a block
        apart = problem.signed and self.w.zeros and self.blocks > 1  # blocks go by themselves then
        self.groups, self.left = (0, self.w.count) if apart else divmod(self.w.count, self.blocks)
        wide = unit.width == 512
        self.narrow = Unit(unit.isa, 256) if wide and self.w.block <= 32 else unit  # for blocks that are left
        #: pairs of rows have another sum of lanes than a row that is left
        self.pairs_apart = wide and self.w.block >= (64 if self.w.bits == 4 else 128)

    # -- layout -----------------------------------------------------------------------------------------------------
    def bytes_of(self, codes: int) -> int:
        return codes * self.w.bits // 8

    def prepare(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays, flat, weights in the program's own layout."""
        names = {tensor.name for tensor in _program(self.problem, self.unit).tensors}
        found = {name: np.ascontiguousarray(a).reshape(-1) for name, a in inputs.items() if name in names}
        codes = inputs["w"]
        if self.w.bits == 4:
            whole = self.groups * self.parts * self.part
            parts = [nibbles(codes[:, :whole], self.part // 2), nibbles(codes[:, whole:], self.w.block // 2)]
            found["w"] = np.concatenate(parts, 1).reshape(-1)
        return found

    # -- the program ------------------------------------------------------------------------------------------------
    def program(self) -> Program:
        p, w = self.problem, self.w
        code: Code = []
        for turns, first, rows in pieces("i", p.m, _ROWS):
            for count, start, columns in pieces("j", w.n, _COLUMNS):
                loops = [("i", turns), ("j", count)]
                if columns < _COLUMNS:  # those left go one by one
                    loops, start, columns = [*loops, ("c", columns)], start + Affine.var("c"), 1
                code += nest(loops, self.tile(first, start, rows, columns), parallel=True)
        tensors = [
            Tensor("codes", "s8", p.m * w.k, role=SOURCE),
            Tensor("scales", "f32", p.m * w.count, role=SCALES),
            Tensor("w", "u8", w.n * self.bytes_of(w.k), role=WEIGHTS),
            Tensor("w_scales", "f32", w.n * w.count, role=SCALES),
            *([Tensor("zeros", "u8", w.n * w.count, role=ZEROS)] if p.signed else []),
            *([Tensor("bias", "f32", w.n)] if p.bias else []),
            *self.constants.values(),
            Tensor("dst", "f32", p.m * w.n, "output"),
        ]
        return verify(Program(f"nbits {p}", self.unit.isa, tuple(tensors), tuple(code)))

    def tile(self, row: Affine, column: Affine, rows: int, columns: int) -> Code:
        """A tile of the destination from its first row and column."""
        each = [(r, c) for c in range(columns) for r in range(rows)]
        code: Code = [zero(self.unit.reg(f"r{r}c{c}", "f32")) for r, c in each]
        number = Affine.var("g") * self.parts + (Affine.var("h") if self.parts > 1 else 0)
        step: Code = []
        for c in range(columns):
            step += self.codes((column + c) * self.bytes_of(self.w.k) + number * self.bytes_of(self.part))
            step += self.zeros_off((column + c) * self.w.count + Affine.var("g") * self.blocks)
            for r in range(rows):
                step += self.met((row + r) * self.w.k + number * self.part)
                step += self.scaled(row + r, column + c, Affine.var("g") * self.blocks, self.blocks, self.unit)
                step += self.taken(f"r{r}c{c}", self.unit)
        code += loop("g", self.groups, loop("h", self.parts, step) if self.parts > 1 else step)
        if self.narrow is not self.unit:
            code += [s for r, c in each for s in folds.down_to(8, f"r{r}c{c}", 16, "d0")]
        block = self.groups * self.blocks + Affine.var("l")
        step = []
        for c in range(columns):
            step += self.codes_left((column + c) * self.bytes_of(self.w.k) + block * self.bytes_of(self.w.block))
            step += self.zeros_off((column + c) * self.w.count + block, 1)
            for r in range(rows):
                step += self.met_left((row + r) * self.w.k + block * self.w.block)
                step += self.scaled(row + r, column + c, block, 1, self.narrow)
                step += self.taken(f"r{r}c{c}", self.narrow)
        code += loop("l", self.left, step)
        for r in range(rows):
            code += self.finished(row + r, column, [f"r{r}c{c}" for c in range(columns)], rows)
        return code

    def constant(self, name: str, dtype: str, values: Array, unit: Unit) -> Memory:
        """A register's bytes in memory."""
        name = f"{name}{unit.width}"
        data = np.ascontiguousarray(values).tobytes() * (unit.width // 8 // values.nbytes)
        self.constants[name] = Tensor.constant(name, dtype, data)
        return Memory(name, Affine(), dtype, unit.width // fmt(dtype).bits)

    # -- weights ----------------------------------------------------------------------------------------------------
    def codes(self, at: Affine) -> Code:
        """The codes of a step to w0 and w1."""
        unit, size = self.unit, self.unit.width // 8
        w0, w1 = unit.reg("w0", "u8"), unit.reg("w1", "u8")
        if self.w.bits == 8:
            return [op("vmovdqu", w.as_("u32"), _dwords("w", at + i * size, size)) for i, w in enumerate((w0, w1))]
        return [op("vmovdqu", w1.as_("u32"), _dwords("w", at, size)), *self.split(unit)]

    def split(self, unit: Unit) -> Code:
        """Bytes of w1 to their lower halves in w0 and their upper ones in w1."""
        w0, w1 = unit.reg("w0"), unit.reg("w1")
        code: Code = [op("vpand", w0, w1, self.constant("fifteen", "u32", np.full(1, 0x0F0F0F0F, np.uint32), unit))]
        return [*code, typed("vpsubb", w1, w1, w0), typed("vpsrlw", w1, w1, imm=4)]

    def codes_left(self, at: Affine) -> Code:
        """The codes of a block that is left to w0: bytes, or words of blocks of 16."""
        block, size = self.w.block, self.bytes_of(self.w.block)
        if self.w.bits == 8:
            if block == 16 and not self.of_four:
                return [op("vpmovzxbw", Register("w0", "u16", 16), Memory("w", at, "u8", 16))]
            return [op("vmovdqu", Register("w0", "u32", block // 4), _dwords("w", at, size))]
        if block == 64:
            half, whole = Unit(self.unit.isa, 256), Register("w0", "u32", 16)
            code = [op("vmovdqu", Register("w1", "u32", 8), _dwords("w", at, size)), *self.split(half)]
            base = Register("t", "u32", 16)
            code += [zero(base), op("vinserti64x4", base, base, Register("w0", "u32", 8), imm=0)]
            return [*code, op("vinserti64x4", whole, base, Register("w1", "u32", 8), imm=1)]
        low, high = Register("w0", "u32", 4), Register("w1", "u32", 4)
        load = (
            op("vmovq", high.as_("u64"), Memory("w", at, "u64", 1))
            if block == 16
            else op("vmovdqu", high, _dwords("w", at, size))
        )
        code = [load, *self.split(_XMM)]
        if block == 16:
            code.append(typed("vpunpcklqdq", low, low, high))
            return [*code, op("vpmovzxbw", Register("w0", "u16", 16), Register("w0", "u8", 16))]
        base = Register("t", "u32", 8)
        code += [zero(base), op("vinserti128", base, base, low, imm=0)]
        return [*code, op("vinserti128", Register("w0", "u32", 8), base, high, imm=1)]

    def zeros_off(self, at: Affine, registers: int = 2) -> Code:
        """Codes less the zero point of their block, where that is done ahead."""
        if not self.problem.signed:
            return []
        t = self.unit.reg("t", "u8")
        code: Code = [op("vpbroadcastb", t, Memory("zeros", at, "u8", 1))]
        return [*code, *(typed("vpsubb", w, w, t) for w in (self.unit.reg(f"w{i}") for i in range(registers)))]

    # -- products ---------------------------------------------------------------------------------------------------
    @property
    def in_words(self) -> bool:
        """Whether products of a register are pairs of s16: of 4 bits without VNNI."""
        return self.w.bits == 4 and not self.vnni

    @property
    def of_four(self) -> bool:
        """Whether a block of 16 that is left is four sums of four: AVX-VNNI's of 8 bits."""
        return self.w.bits == 8 and self.vnni and self.unit.width == 256

    def products(self, unit: Unit, i: int, at: Affine, into: str = "") -> Code:
        """Codes of w{i} times those of the source at a place: to d{i}, in pairs or in fours."""
        w, t, size = unit.reg(f"w{i}", "u8"), unit.reg("t", "u8"), unit.width // 8
        d, a = unit.reg(into or f"d{i}", "s32"), Memory("codes", at, "s8", size)
        if self.vnni:
            return [*([] if into else [zero(d)]), op("vpdpbusd", d, d, w, a)]
        pairs = d.as_("s16")
        if self.problem.signed:
            code: Code = [op("vmovdqu", t.as_("u32"), _dwords("codes", at, size)), typed("vpsignb", t, t, w)]
            return [*code, typed("vpsignb", d, w, w), typed("vpmaddubsw", pairs, d, t)]
        if self.w.bits == 4:
            return [op("vpmaddubsw", pairs, w, a)]
        code = []  # two products of 8 bits may pass 16: even bytes by themselves, then odd ones
        for number, (name, mask) in enumerate((("even", 0x00FF00FF), ("odd", 0xFF00FF00))):
            here = t if number else d
            code.append(
                op(
                    "vpand",
                    here.as_("u32"),
                    w.as_("u32"),
                    self.constant(name, "u32", np.full(1, mask, np.uint32), unit),
                )
            )
            code += [op("vpmaddubsw", here.as_("s16"), here.as_("u8"), a), self.summed(here, unit)]
        return [*code, typed("vpaddd", d, d, t)]

    def summed(self, pairs: Register, unit: Unit) -> Op:
        """Sums of two neighbouring words, in place."""
        ones = self.constant("ones", "s16", np.ones(1, np.int16), unit)
        return op("vpmaddwd", pairs.as_("s32"), pairs.as_("s16"), ones)

    def met(self, at: Affine) -> Code:
        """The products of a step, lanes of its two registers met, in d0."""
        unit, words = self.unit, self.in_words
        d0, d1, t, size = unit.reg("d0"), unit.reg("d1"), unit.reg("t"), unit.width // 8
        chained = self.parts * self.part == self.w.block and not words  # a block fills both registers
        if chained and self.vnni:
            return [*self.products(unit, 0, at), *self.products(unit, 1, at + size, "d0")]
        code = [*self.products(unit, 0, at), *self.products(unit, 1, at + size)]
        if chained:
            return [*code, typed("vpaddd", d0, d0, d1)]
        if unit.width == 256:
            code.append(typed("vphaddw" if words else "vphaddd", d0, d0, d1))
        else:
            kind = "qdq" if self.w.block <= 32 else "dq"
            code += [typed(f"vpunpckl{kind}", t, d0, d1), typed(f"vpunpckh{kind}", d0, d0, d1)]
            code.append(typed("vpaddw" if words else "vpaddd", d0, d0, t))
        return [*code, self.summed(d0, unit)] if words else code

    def met_left(self, at: Affine) -> Code:
        """The products of a block that is left, in d0."""
        unit = self.narrow
        if self.w.block == 16 and self.of_four:
            four = Register("d0", "s32", 4)
            a = Memory("codes", at, "s8", 16)
            code: Code = [zero(four), op("vpdpbusd", four, four, Register("w0", "u8", 16), a)]
            return [*code, op("vpmovzxdq", Register("d0", "u64", 4), four.as_("u32"))]
        if self.w.block == 16:
            wide = Register("d0", "s16", 16)
            code = [op("vpmovsxbw", wide, Memory("codes", at, "s8", 16))]
            return [*code, op("vpmaddwd", wide.as_("s32"), wide, Register("w0", "s16", 16))]
        code = self.products(unit, 0, at)
        return [*code, self.summed(unit.reg("d0"), unit)] if self.in_words else code

    def scaled(self, row: Affine, column: Affine, block: Affine, count: int, unit: Unit) -> Code:
        """The products of `count` scales of either side, each in the lanes of its block, in s."""
        s, t = unit.reg("s", "f32"), unit.reg("t", "f32")
        places = [("scales", row * self.w.count + block, s), ("w_scales", column * self.w.count + block, t)]
        if count == 1:
            code: Code = [op("vbroadcastss", r, Memory(tensor, at, "f32", 1)) for tensor, at, r in places]
        elif count == 2:
            code = [op("vpbroadcastq", r.as_("u64"), Memory(tensor, at, "u64", 1)) for tensor, at, r in places]
        else:
            code = [load32(unit, r, tensor, at, count) for tensor, at, r in places]
        code.append(op("vmulps", s, s, t))
        if count == 2 and unit.width == 256:
            code.append(op("vpermilps", s, s, imm=0b01010000))
        if count > 2:
            self.constants["spread"] = Tensor.constant(
                "spread", "u32", np.array(_SPREAD[unit.width, count], np.uint32).tobytes()
            )
            code += [load32(unit, t.as_("u32"), "spread", Affine(), unit.lanes), op("vpermps", s, t.as_("u32"), s)]
        return code

    def taken(self, name: str, unit: Unit) -> Code:
        """Sums in d0 times the scales in s, added to an accumulator."""
        acc, d = unit.reg(name, "f32"), unit.reg("d0", "s32")
        return [op("vcvtdq2ps", d.as_("f32"), d), op("vfmadd231ps", acc, acc, d.as_("f32"), unit.reg("s", "f32"))]

    def finished(self, row: Affine, column: Affine, names: list[str], rows: int) -> Code:
        """Lanes added up, and the bias: a row of the tile to dst."""
        lanes, at = self.narrow.lanes, row * self.w.n + column
        together = len(names) == _COLUMNS and not (self.pairs_apart and rows == _ROWS)
        code = folds.four(names, lanes, ("d0", "d1")) if together else []
        for i, name in enumerate(names[:1] if together else names):
            count, total = len(names) if together else 1, Register(name, "f32", 4)
            code += [] if together else folds.by_halves(name, lanes, "d0")
            if self.problem.bias:
                other = Register("d0", "f32", 4)
                code += [load32(_XMM, other, "bias", column + i, count), op("vaddps", total, total, other)]
            code.append(store32(_XMM, "dst", at + i, total, count))
        return code


def _dwords(tensor: str, at: Affine, size: int) -> Memory:
    """Bytes of a tensor of bytes, as a move takes them."""
    return Memory(tensor, at, "u32", size // 4)
