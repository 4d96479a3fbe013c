"""Codes of narrow floats in 32-bit lanes, to f32 and back, by arithmetic.

A code's magnitude, shifted to where f32 has its fields, is the value but for the exponent's bias: one multiplication
by a power of two makes up for it, and gives subnormals theirs, too.

To round v >= 0 to m bits behind its leading one, a number is added whose last bit is worth what v's last kept bit is:
the sum is rounded there. Its bits less that number's count units, and the exponent is put on top of them.
"""

from __future__ import annotations

from isa_models.formats import Format, fmt
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import Unit, load_float, store_bytes, typed, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.program.records import Affine, Memory, Register

MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000  # bits of f32's
HIDDEN = 23  # mantissa bits of f32
_QUIET = 0x7FC00000
_F16_INFINITY = 0x7C00


def is_narrow(dtype: str) -> bool:
    """Whether elements of a type are floats of at most a byte."""
    return fmt(dtype).is_float and fmt(dtype).bits <= 8


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
