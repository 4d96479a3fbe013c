"""Codes of narrow floats to f32, by arithmetic or by a table, and back, by arithmetic.

A code's magnitude, shifted to where f32 has its fields, is the value but for the exponent's bias: one multiplication
by a power of two makes up for it, and gives subnormals theirs, too.

To round v >= 0 to m bits behind its leading one, a number is added whose last bit is worth what v's last kept bit is:
the sum is rounded there. Its bits less that number's count units, and the exponent is put on top of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from isa_models.formats import Format, decode, fmt
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.narrow_floats import Fields, is_narrow
from simdnn.kernels.x86.code import Unit, load_float, store_bytes, typed, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.program.records import Affine, Memory, Register, Tensor

MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000  # bits of f32's
HIDDEN = 23  # mantissa bits of f32
_QUIET = 0x7FC00000
_F16_INFINITY = 0x7C00
_OR_OF_AND = 0xF8  # a | b & c
TABLE = 64  # codes of one in two registers of 512 bits


def load(c: Constants, register: str, tensor: str, dtype: str, at: Affine, lanes: int) -> Code:
    """`lanes` elements of any stored type, codes one a byte, into a register as f32; scratch: t, c."""
    unit = c.unit
    if not is_narrow(dtype):
        return load_float(unit, register, tensor, dtype, at, lanes)
    if fmt(dtype).infinity:  # the fields of f8_e5m2 are f16's, but for the low byte
        words, source = Register(register, "u16", unit.lanes), _in_memory(unit, register, tensor, at, lanes)
        widened = op("vpmovzxbw", words, source[1])
        shifted = typed("vpsllw", words, words, imm=8)
        return [*source[0], widened, shifted, op("vcvtph2ps", unit.reg(register, "f32"), words.as_("f16"))]
    before, place = _in_memory(unit, register, tensor, at, lanes)
    return [*before, op("vpmovzxbd", unit.reg(register), place), *widen(c, register, fmt(dtype))]


@dataclass(frozen=True)
class Decoding:
    """Codes one a byte made f32 by way of f16, in half as many bits (`kernels.common.narrow_floats`): fields of a code
    are brought to where f16 has its own, and one product makes up for the exponent's bias.

    Constants stay in registers, which `setup` loads.
    """

    words: Constants
    dtype: str

    @property
    def fields(self) -> Fields:
        return Fields(fmt(self.dtype), fmt("f16"))

    @property
    def constants(self) -> list[int]:
        """32 bits of each constant."""
        f = self.fields
        halves = [f.sign | f.magnitude] * bool(f.spare) + [f.to_above, f.above] * f.special
        power = [int(np.float32(2.0 ** (f.wide.bias - f.form.bias)).view(np.uint32))] * bool(f.factor)
        return [bits << 16 | bits for bits in halves] + power

    def tensors(self) -> list[Tensor]:
        """The constants in memory, once all statements are written."""
        return self.words.tensors()

    def setup(self, registers: Sequence[str], scratch: str) -> Code:
        """Loads the constants; scratch, whatever it held, has half as many bits from here on."""
        pairs = zip(registers, self.constants, strict=False)
        code = [instruction for name, bits in pairs for instruction in self.words.word(name, bits)]
        return [*code, *([zero(Register(scratch, "u32", self.words.unit.lanes // 2))] if self.fields.special else [])]

    def load_at(self, register: str, tensor: str, at: Affine, lanes: int, scratch: str, held: Sequence[str]) -> Code:
        """`lanes` codes of a tensor as f32 in a register."""
        before, place = _in_memory(self.words.unit, register, tensor, at, lanes)
        return [*before, *self.load(register, place, scratch, held)]

    def load(self, register: str, place: Memory | Register, scratch: str, held: Sequence[str]) -> Code:
        """Codes in memory, or in a register, as f32 in one; NaN of a format without infinity has any payload."""
        unit, f = self.words.unit, self.fields
        x, t = (Register(name, "u16", unit.lanes) for name in (register, scratch))
        k = [Register(name, "u32", unit.lanes // 2) for name in held]
        if f.form.bits == 8 and f.spare:  # widened by its sign, which so stands above the exponent
            code: Code = [op("vpmovsxbw", x.as_("s16"), _signed(place)), typed("vpsllw", x, x, imm=8 - f.spare)]
        else:
            code = [op("vpmovzxbw", x, place), typed("vpsllw", x, x, imm=16 - f.form.bits)]
            code += [typed("vpsraw", x, x, imm=f.spare)] if f.spare else []
        code += [typed("vpand", x, x, k[0])] if f.spare else []
        if f.special:  # a sum sets the bit above the exponent where there is no number, and all above it follow
            code.append(typed("vpaddw", t, x, k[1]))
            if f.spare > 1:
                code.append(typed("vpand", t, t, k[2]))
                for _ in range(f.spare - 1):
                    code += [typed("vpor", x, x, t), typed("vpsllw", t, t, imm=1)]
                code.append(typed("vpor", x, x, t))
            elif unit.masks:
                code.append(typed("vpternlogd", x, x, t, k[2], imm=_OR_OF_AND))
            else:
                code += [typed("vpand", t, t, k[2]), typed("vpor", x, x, t)]
        wide = unit.reg(register, "f32")
        code.append(op("vcvtph2ps", wide, x.as_("f16")))
        return [*code, *([typed("vmulps", wide, wide, unit.reg(held[len(self.constants) - 1]))] if f.factor else [])]


def in_runs(turns: int) -> int:
    """How many of some turns to take with constants that are loaded once: as many as divide them, up to 64.

    >>> in_runs(2304), in_runs(67)
    (64, 1)
    """
    return max(run for run in range(1, 65) if turns % run == 0) if turns else 1


@dataclass(frozen=True)
class LookUp:
    """Codes of up to six bits, one a byte, made f32 by a table of their upper halves in two registers, which `setup`
    loads.

    An index has the code in its upper word and 0 in its lower one. That finds the value of code 0, which is cut off
    where it is not 0.
    """

    words: Constants
    dtype: str

    @property
    def table(self) -> npt.NDArray[np.uint16]:
        """The upper halves of the values, over and over to 64."""
        values = decode(np.arange(1 << fmt(self.dtype).bits, dtype=np.uint8), self.dtype).view(np.uint32) >> 16
        return np.resize(values.astype(np.uint16), TABLE)

    @property
    def cuts(self) -> bool:
        """Whether lower halves are cut off."""
        return bool(self.table[0])

    @property
    def constants(self) -> tuple[int, ...]:
        return tuple(range(2))

    def tensors(self) -> list[Tensor]:
        return [Tensor.constant("codes_of_six", "u16", self.table.tobytes())]

    def setup(self, registers: Sequence[str], scratch: str) -> Code:
        """Loads the table."""
        unit = self.words.unit
        each = unit.width // 16
        places = [Memory("codes_of_six", Affine(i * each), "u32", unit.lanes) for i in self.constants]
        return [op("vmovdqu", unit.reg(name), place) for name, place in zip(registers, places, strict=False)]

    def load(self, register: str, place: Memory | Register, scratch: str, held: Sequence[str]) -> Code:
        """Codes in memory, or in a register, as f32 in one."""
        x = self.words.unit.reg(register)
        table = [self.words.unit.reg(name) for name in held[:2]]
        code = [op("vpmovzxbd", x, place), typed("vpslld", x, x, imm=16), typed("vpermi2w", x, x, *table)]
        return [*code, *([typed("vpsrld", x, x, imm=16), typed("vpslld", x, x, imm=16)] if self.cuts else [])]


def by_fields(form: Format, wide: Format) -> bool:
    """Whether the fields of codes, brought to a wider type's own, and one product make the values.

    >>> [by_fields(fmt(name), fmt("f16")) for name in ("f8_e4m3", "f8_e4m3fnuz", "e8m0")]
    [True, False, False]
    """
    whole = form.bits == 1 + form.exponent_bits + form.mantissa_bits and form.signed
    room = form.exponent_bits < wide.exponent_bits or form.exponent_bits == wide.exponent_bits and form.infinity
    return not form.values and whole and form.zero and form.negative_zero and room


def undecodable(unit: Unit, dtype: str) -> str:
    """Why no program makes f32 of codes of a format; empty where one does."""
    form = fmt(dtype)
    if form.bits == 4 and unit.masks or by_fields(form, fmt("f32" if form.bits == 4 else "f16")):
        return ""
    pattern = f"decodes {dtype}, which has no fields of sign, exponent of at most 5 bits and mantissa as f16 has them,"
    if not unit.masks:
        return f"{pattern} by no table: avx512_core does"
    if 2**form.bits > TABLE:
        return f"{pattern} by a table of {TABLE} codes: up to 6 bits, not {form.bits}"
    values = decode(np.arange(1 << form.bits, dtype=np.uint8), dtype)
    if not form.nan or form.values:
        odd = values[values.view(np.uint32) % (1 << 16) != 0]
        return f"{pattern} by a table of bf16, and {odd[0]:g} is none" if odd.size else ""
    return ""


def _signed(place: Memory | Register) -> Memory | Register:
    return place.as_("s8") if isinstance(place, Register) else replace(place, dtype="s8")


def _in_memory(unit: Unit, register: str, tensor: str, at: Affine, lanes: int) -> tuple[Code, Memory | Register]:
    """Bytes as an operand: in memory, or put into the register one by one where a part of it has no mask."""
    if unit.masks or lanes == unit.lanes:
        return [], Memory(tensor, at, "u8", lanes)
    piece = Register(register, "u8", 16)
    inserts = [op("vpinsrb", piece, piece, Memory(tensor, at + i, "u8", 1), imm=i) for i in range(lanes)]
    return [zero(piece.as_("u32")), *inserts], Register(register, "u8", unit.lanes)


def widen(c: Constants, register: str, form: Format, scratch: tuple[str, str] = ("t", "c")) -> Code:
    """Codes in the lowest bits of lanes as f32, in their place. NaN of f8_e4m3 is quiet, that of f8_e5m2 any."""
    x, t, k = (c.unit.reg(name) for name in (register, *scratch))
    if not form.zero:
        return _powers(c, x, t, k)
    code: Code = [
        typed("vpslld", x, x, imm=32 - form.bits),
        typed("vpsrld", t, x, imm=31),
        typed("vpslld", t, t, imm=31),
    ]
    code += [typed("vpslld", x, x, imm=1), typed("vpsrld", x, x, imm=9 - form.exponent_bits)]
    code += [*c.number(k.name, 2.0 ** (fmt("f32").bias - form.bias)), typed("vmulps", x, x, k), typed("vpor", x, x, t)]
    if not form.nan:
        return code
    code += [typed("vpslld", t, x, imm=1), typed("vpsrld", t, t, imm=1)]
    code += [*c.number(k.name, form.greatest), typed("vpsubd", t, k, t), typed("vpsrad", t, t, imm=31)]  # ones: beyond
    if form.infinity:
        return [*code, *c.word(k.name, INFINITY), typed("vpand", t, t, k), typed("vpor", x, x, t)]
    code += [*c.word(k.name, MAGNITUDE), typed("vpand", k, k, t), typed("vpandn", x, k, x)]
    return [*code, *c.word(k.name, _QUIET), typed("vpand", t, t, k), typed("vpor", x, x, t)]


def _powers(c: Constants, x: Register, t: Register, k: Register) -> Code:
    """Codes of e8m0: 0 is half of the least normal number, 255 NaN (negative, as oneDNN has it)."""
    code: Code = [typed("vpslld", x, x, imm=HIDDEN), *c.word(k.name, INFINITY), typed("vpsubd", t, x, k)]
    code += [*c.word(k.name, 1 << (HIDDEN - 1)), typed("vpmaxud", x, x, k), typed("vpsrad", t, t, imm=31)]
    code += [*c.word(k.name, 1 << (HIDDEN - 1) | 0x80000000), typed("vpandn", t, t, k)]
    return [*code, typed("vpor", x, x, t)]


def encode(c: Constants, register: str, dtype: str, by_f16: bool, saturate: bool) -> Code:
    """f32 as codes, in register n; scratch: the register itself, half, y, e, t, c.

    `by_f16`: rounded to f16 first, as oneDNN does with types of 8 bits. What is beyond the greatest value becomes it
    where `saturate` says so, else infinity or, without one, NaN; types without both always saturate.
    """
    unit, form = c.unit, fmt(dtype)
    x, y, n, t, k = (unit.reg(name) for name in (register, "y", "n", "t", "c"))
    code: Code = []
    if by_f16 and form.bits == 8:
        half = Register("half", "f16", unit.lanes)
        code.append(op("vcvtps2ph", half, x.as_("f32"), imm=0))
        if form.infinity and not saturate:
            return [*code, op("vpmovzxwd", n, half.as_("u16")), *_high_byte(c)]
        code.append(op("vcvtph2ps", x.as_("f32"), half))
    limit = form.greatest if saturate or not form.nan else _beyond(form)
    code += [*c.word("c", MAGNITUDE), typed("vpand", y, x, k), typed("vpsrld", x, x, imm=31)]
    code += [typed("vpslld", x, x, imm=form.bits - 1)]
    if saturate and form.nan or form.infinity:  # NaN has the bit of NaN beside all others
        nan = unit.reg("n")
        code += [*c.word("c", INFINITY), typed("vpsubd", nan, k, y), typed("vpsrad", nan, nan, imm=31)]
        code += [*c.word("c", form.greatest_code | 7), typed("vpand", nan, nan, k), typed("vpor", x, x, nan)]
    code += [*c.number("c", limit), typed("vpminud", y, y, k), *magnitude(c, form)]
    return [*code, typed("vpor", n, n, x)]


def _beyond(form: Format) -> float:
    """The number that has the code behind the greatest value's, where it goes on."""
    step = 2.0 ** (form.greatest_code // (1 << form.mantissa_bits) - form.bias - form.mantissa_bits)
    return form.greatest + step


def _high_byte(c: Constants) -> Code:
    """f16's bits in n, rounded to their high byte; NaN keeps it, quiet."""
    n, t, e, k = (c.unit.reg(name) for name in ("n", "t", "e", "c"))
    code: Code = [*c.word("c", 0x7FFF), typed("vpand", t, n, k), *c.word("c", _F16_INFINITY)]
    code += [typed("vpsubd", t, k, t), typed("vpsrad", t, t, imm=31)]  # ones where it is NaN
    code += [typed("vpsrld", e, n, imm=8), *c.word("c", 1), typed("vpand", e, e, k)]
    code += [*c.word("c", 0x7F), typed("vpaddd", e, e, k), typed("vpandn", e, t, e), typed("vpaddd", n, n, e)]
    return [*code, typed("vpsrld", n, n, imm=8), *c.word("c", 2), typed("vpand", t, t, k), typed("vpor", n, n, t)]


def magnitude(c: Constants, form: Format, back: bool = False) -> Code:
    """n, the code of y >= 0 within the format's range; `back`: y becomes the code's value; scratch: e, t, c."""
    y, k, n, e, magic = (c.unit.reg(name) for name in ("y", "c", "n", "e", "t"))
    cut = HIDDEN - form.mantissa_bits
    least = (1 - form.bias + fmt("f32").bias) << HIDDEN  # the exponent of its least normal number
    code: Code = [*c.word("c", INFINITY), typed("vpand", e, y, k)]
    code += [*c.word("c", least), typed("vpmaxud", e, e, k), typed("vpsubd", n, e, k)]
    code += [*c.word("c", cut << HIDDEN), typed("vpaddd", magic, e, k), typed("vpsrld", n, n, imm=cut)]
    code += [typed("vaddps", y, y, magic), typed("vpsubd", e, y, magic), typed("vpaddd", n, n, e)]
    return [*code, *([typed("vsubps", y, y, magic)] if back else [])]


def store(c: Constants, tensor: str, value: Register, at: Affine, lanes: int) -> Code:
    """The lowest byte of each lane, whose other bytes may hold anything; scratch: p, c."""
    unit = c.unit
    if unit.masks:
        return [op("vpmovdb", Memory(tensor, at, "u8", lanes), value.as_("u32"))]
    words, packed = unit.reg("p", "s16"), Register("p", "u8", 16)
    return [
        *c.word("c", 0xFF),
        typed("vpand", value, value, unit.reg("c")),
        typed("vpackssdw", words, value, value),
        typed("vpermq", words, words, imm=0b1000),
        op("vpackuswb", packed, Register("p", "s16", 8), Register("p", "s16", 8)),
        *store_bytes(unit, tensor, at, packed, lanes),
    ]
