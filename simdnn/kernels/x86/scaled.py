"""Quantization by blocks on vectors: `simdnn.kernels.common.scaled` states the formulas.

A block along the innermost dimension has its magnitudes met across lanes, and one scale in all of them; a block along
another dimension has a scale in each lane. Codes leave one a byte.
"""

from __future__ import annotations

import functools

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, along, loop
from simdnn.kernels.common.scaled import Scaled
from simdnn.kernels.x86.code import Unit, broadcast32, load_float, store32, typed
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.line_sums import horizontal
from simdnn.kernels.x86.narrow import HIDDEN, INFINITY, MAGNITUDE, magnitude, store
from simdnn.program.check import verify
from simdnn.program.records import SCALES, SOURCE, Affine, Program, Register, Tensor

_SIGN = 0x80000000


@functools.lru_cache(maxsize=512)
def scaled_quantization(problem: Scaled, unit: Unit) -> Program:
    """The program: inputs src and, of NVFP4 unless it is found, tensor_scale; outputs codes, scales, a found one."""
    return _Quantizer(problem, unit).program()


class _Quantizer:
    def __init__(self, problem: Scaled, unit: Unit) -> None:
        self.problem, self.unit = problem, unit
        self.words = Constants(unit)
        self.x, self.amax = self.reg("x", "f32"), self.reg("a0", "f32")
        self.inverse, self.keep, self.sign = self.reg("i", "f32"), self.reg("k"), self.reg("s")

    def reg(self, name: str, dtype: str = "u32") -> Register:
        return self.unit.reg(name, dtype)

    def program(self) -> Program:
        p = self.problem
        part = self.line() if p.rule == "tensor" else loop("b", p.blocks, self.block(), parallel=True)
        body = loop("o", p.outer, part, parallel=True)
        code = (self.find() if p.find else []) + body
        return verify(Program(f"quantize {p}", self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        found = [
            Tensor("src", p.src, p.size, role=SOURCE),
            *self.words.tensors(),
            Tensor("codes", "u8", p.size, "output"),
        ]
        found += [Tensor("scales", "u8", p.scales, "output")] if p.scales else []
        return [
            *found,
            *([Tensor("tensor_scale", "f32", 1, "output" if p.find else "input", role=SCALES)] if p.levels else []),
        ]

    # -- values -----------------------------------------------------------------------------------------------------
    def load(self, at: Affine, lanes: int) -> Code:
        return load_float(self.unit, "x", "src", self.problem.src, at, lanes)

    # -- blocks -----------------------------------------------------------------------------------------------------
    def block(self) -> Code:
        p = self.problem
        number = Affine.var("o") * p.blocks + Affine.var("b")
        start, place = number * (p.group * p.inner), number * p.inner
        if p.inner == 1:
            found = along(p.group, self.unit.lanes, self.met, start)
            across = horizontal(self.unit, "a0", _greater)
            written = along(p.group, self.unit.lanes, self.element, start, "w")
            return [*self.begin(), *found, *across, *self.scale(place, 1), *written]

        def columns(offset: Affine, lanes: int) -> Code:
            row = start + offset + Affine.var("r") * p.inner
            met = loop("r", p.group, self.met(row, lanes))
            written = loop("r", p.group, self.element(row, lanes))
            return [*self.begin(), *met, *self.scale(place + offset, lanes), *written]

        return along(p.inner, self.unit.lanes, columns, var="j")

    def line(self) -> Code:
        """Elements over the scale of all."""
        length = self.problem.size // self.problem.outer
        code: Code = [*self.begin(), broadcast32(self.inverse, "tensor_scale", Affine()), *self.positive(self.inverse)]
        return [*code, *self.kept(True), *along(length, self.unit.lanes, self.element, Affine.var("o") * length, "w")]

    def begin(self) -> Code:
        """No magnitude yet."""
        return [*self.words.word("m", MAGNITUDE), typed("vpxor", *[self.amax] * 3)]

    def met(self, at: Affine, lanes: int) -> Code:
        """Magnitudes of values in memory, as integers, so that NaN is above infinity."""
        bits = self.x
        meet = [typed("vpand", bits, bits, self.reg("m")), typed("vpmaxud", *[self.amax] * 2, bits)]
        return [*self.load(at, lanes), *meet]

    # -- scales -----------------------------------------------------------------------------------------------------
    def scale(self, place: Affine, lanes: int) -> Code:
        return self.two_levels(place, lanes) if self.problem.levels else self.power(place, lanes)

    def power(self, place: Affine, lanes: int) -> Code:
        """The block's power of two: stored, and its inverse; what is kept of values where it is a number."""
        p, a, t, c = self.problem, self.amax, self.reg("t"), self.reg("c")
        number = self.keep  # all bits where amax is finite
        code: Code = [*self.words.word("c", INFINITY), typed("vpsubd", self.keep, a, c)]
        code += [typed("vpsrad", number, number, imm=31), *self.exponent()]
        code += [*self.words.word("c", 254), typed("vpxor", t, t, t)]
        code += [typed("vpmaxsd", a, a, t)]
        code += [typed("vpminsd", a, a, c)]
        inverse = self.inverse
        code += [typed("vpsubd", inverse, c, a), typed("vpslld", inverse, inverse, imm=HIDDEN)]
        code += [*self.words.word("c", 1 << (HIDDEN - 1)), typed("vpmaxud", inverse, inverse, c)]
        code += [*self.words.word("c", 0xFF), typed("vpandn", t, self.keep, c), typed("vpor", a, a, t)]
        code += store(self.words, "scales", a, place, lanes)
        return code + self.kept(fmt(p.dst).is_float)

    def exponent(self) -> Code:
        """The exponent's code in place of the magnitude, before it is brought into its range."""
        p, a, t, c = self.problem, self.amax, self.reg("t"), self.reg("c")
        code: Code = []
        if p.rule == "rceil":
            code += [*self.words.number("c", p.greatest), typed("vdivps", self.amax, self.amax, c)]
        if p.rule in ("rceil", "ceil"):  # f32's own subnormals: those of the upper half lie above the least power
            below, upper = self.reg("y"), self.reg("p")
            code += [*self.words.word("c", 1 << HIDDEN), typed("vpsubd", below, a, c)]
            code += [typed("vpsrad", below, below, imm=31)]
            code += [
                *self.words.word("t", 1 << (HIDDEN - 1)),
                typed("vpmaxud", upper, a, t),
                typed("vpslld", upper, upper, imm=1),
            ]
            code += [typed("vpsubd", upper, upper, c), typed("vpand", upper, upper, below)]
            code += [typed("vpandn", a, below, a), typed("vpor", a, a, upper)]
        add = {"floor": 0, "even": 1 << (HIDDEN - p.mantissa - 1)}.get(p.rule, (1 << HIDDEN) - 1)
        if add:
            code += [*self.words.word("c", add), typed("vpaddd", a, a, c)]
        code.append(typed("vpsrld", a, a, imm=HIDDEN))
        if p.rule != "rceil" and p.top:
            code += [*self.words.word("c", p.top), typed("vpsubd", a, a, c)]
        return code

    def kept(self, magnitudes: bool) -> Code:
        """Bits of the values that stay, none where the block has no scale: of magnitudes and of signs apart."""
        if not magnitudes:
            return []
        code: Code = [*self.words.word("c", _SIGN), typed("vpand", self.sign, self.keep, self.reg("c"))]
        return [*code, typed("vpand", self.keep, self.keep, self.reg("m"))]

    def find(self) -> Code:
        """The tensor's scale, from the greatest magnitude of all."""
        p = self.problem
        met = along(p.size, self.unit.lanes, self.met)
        code = [*self.begin(), *met, *horizontal(self.unit, "a0", _greater), *self.words.number("c", p.most)]
        code.append(typed("vdivps", self.amax, self.amax, self.reg("c")))
        return loop("once", 1, [*code, store32(self.unit, "tensor_scale", Affine(), self.amax, 1)])

    def two_levels(self, place: Affine, lanes: int) -> Code:
        """NVFP4's scale, stored, and what it stands for."""
        a, t, v = self.amax, self.reg("t"), self.reg("y")
        code: Code = [*self.words.number("c", self.problem.greatest), typed("vdivps", v, a, self.reg("c"))]
        code += [
            broadcast32(t.as_("f32"), "tensor_scale", Affine()),
            typed("vdivps", v, v, t),
            *self.positive(t),
            *self.kept(True),
        ]
        code += [typed("vpand", v, v, self.keep), *self.rounded("f8_e4m3", back=True)]
        code += store(self.words, "scales", self.reg("n"), place, lanes)
        code += [broadcast32(t.as_("f32"), "tensor_scale", Affine()), typed("vmulps", self.inverse, v, t)]
        return [*code, *self.positive(self.inverse), *self.kept(True)]

    def positive(self, value: Register) -> Code:
        """All bits kept where a number is above zero, none where it is zero."""
        signed = self.keep
        zero = typed("vpxor", *[self.keep] * 3)
        return [zero, typed("vpsubd", self.keep, self.keep, value), typed("vpsrad", signed, signed, imm=31)]

    # -- elements ---------------------------------------------------------------------------------------------------
    def element(self, at: Affine, lanes: int) -> Code:
        p, x, y = self.problem, self.x, self.reg("y")
        shrink = typed("vdivps" if p.levels else "vmulps", y, x, self.inverse)
        code: Code = [*self.load(at, lanes), shrink, typed("vpand", y, y, self.keep)]
        if not fmt(p.dst).is_float:
            return [*code, *self.integer(), *store(self.words, "codes", self.reg("y"), at, lanes)]
        sign = x
        code += [typed("vpand", sign, sign, self.sign), typed("vpsrld", sign, sign, imm=32 - fmt(p.dst).bits)]
        code += [*self.rounded(p.dst), typed("vpor", self.reg("n"), self.reg("n"), sign)]
        return [*code, *store(self.words, "codes", self.reg("n"), at, lanes)]

    def integer(self) -> Code:
        """y as a whole number of 64ths."""
        y, c, high = self.reg("y"), self.reg("c"), fmt(self.problem.dst).high
        code: Code = [*self.words.number("c", 2.0**self.problem.mantissa), typed("vmulps", y, y, c)]
        code += [
            *self.words.number("c", high),
            typed("vminps", y, y, c),
            *self.words.number("c", -high),
            typed("vmaxps", y, y, c),
        ]
        return [*code, typed("vcvtps2dq", y, y)]

    def rounded(self, name: str, back: bool = False) -> Code:
        """n, the code of a magnitude y in a format, saturating; `back`: y becomes the code's value."""
        y, limit = self.reg("y"), self.reg("c")
        bounded = [*self.words.number("c", fmt(name).greatest), typed("vminps", y, y, limit)]
        return [*bounded, *magnitude(self.words, fmt(name), back)]


def _greater(acc: Register, other: Register) -> Code:
    return [typed("vpmaxud", acc, acc, other)]
