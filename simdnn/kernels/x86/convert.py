"""Arrays converted to a narrow float or from one, element by element, as oneDNN 3.13's reorders do.

To types of 8 bits by way of f16, to f4_e2m1 at once, to e8m0 by cutting the mantissa off; no conversion saturates but
that to f4_e2m1. Caps without avx512_core_fp16 lose the sign of a zero, but for f4_e2m1 and e8m0.
"""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, along, op
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.x86.code import Unit, store32, typed
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.narrow import HIDDEN, encode, load, store
from simdnn.program.check import verify
from simdnn.program.records import WEIGHTS, Affine, Memory, Program, Register, Tensor

_F8 = ("f8_e4m3", "f8_e5m2")
#: source -> destinations that the library writes rightly
PAIRS: dict[str, tuple[str, ...]] = {
    "f32": (*_F8, "f4_e2m1", "e8m0"),
    "bf16": _F8,
    "f16": _F8,
    **{name: ("f32", "bf16", "f16", name) for name in _F8},
    "f4_e2m1": ("f32", "f4_e2m1"),
    "e8m0": ("f32", "e8m0"),
}
_UNSIGNED_ZERO = frozenset(("f32", "bf16", "f16", *_F8))


def conversion(source: str, target: str, size: int, unit: Unit, signed_zeros: bool) -> Program:
    """The program: input plain, output wei; codes one a byte."""
    words = Constants(unit)
    plain, made = (f"u{8 * fmt(name).dtype.itemsize}" if is_narrow(name) else name for name in (source, target))
    loses = not signed_zeros and {source, target} <= _UNSIGNED_ZERO

    def step(at: Affine, lanes: int) -> Code:
        if source == target and not loses:
            return [*_bytes(unit, at, lanes), *store(words, "wei", unit.reg("n"), at, lanes)]
        return [*load(words, "x", "plain", source, at, lanes), *_written(words, target, at, lanes, loses)]

    code = along(size, unit.lanes, step, parallel=True, tail="tail")
    tensors = (Tensor("plain", plain, size, role=WEIGHTS), Tensor("wei", made, size, "output"), *words.tensors())
    return verify(Program(f"{source} to {target}, {size}", unit.isa, tensors, tuple(code)))


def _bytes(unit: Unit, at: Affine, lanes: int) -> Code:
    """Codes as they are, in register n."""
    n = unit.reg("n")
    if unit.masks or lanes == unit.lanes:
        return [op("vpmovzxbd", n, Memory("plain", at, "u8", lanes))]
    piece = Register("n", "u8", 16)
    inserts = [op("vpinsrb", piece, piece, Memory("plain", at + i, "u8", 1), imm=i) for i in range(lanes)]
    cleared = typed("vpxor", *[Register("n", "u32", 4)] * 3)
    return [cleared, *inserts, op("vpmovzxbd", n, Register("n", "u8", unit.lanes))]


def _written(words: Constants, target: str, at: Affine, lanes: int, loses: bool) -> Code:
    """The f32 value in x as an element in memory."""
    unit = words.unit
    x, n, k = unit.reg("x"), unit.reg("n"), unit.reg("c")
    code: Code = []
    if target == "e8m0":
        shifted = [typed("vpslld", n, x, imm=1), typed("vpsrld", n, n, imm=HIDDEN + 1)]
        return [*shifted, *store(words, "wei", n, at, lanes)]
    if loses:  # -0 + 0 is 0, and what rounds to -0 keeps its sign
        code += [*words.word("c", 0), typed("vaddps", x, x, k)]
    if is_narrow(target):
        return [*code, *encode(words, "x", target, True, False), *store(words, "wei", n, at, lanes)]
    if target == "f32":
        return [*code, store32(unit, "wei", at, x.as_("f32"), lanes)]
    if target == "bf16":
        code += [typed("vpsrld", x, x, imm=16)]
        words16 = x
    else:
        half = Register("half", "f16", unit.lanes)
        code += [op("vcvtps2ph", half, x.as_("f32"), imm=0), op("vpmovzxwd", x, half.as_("u16"))]
        words16 = x
    if unit.masks:
        return [*code, op("vpmovdw", Memory("wei", at, "u16", lanes), words16)]
    quads, low = x.as_("u64"), Register(x.name, "u16", 8)
    code += [typed("vpackusdw", x, x, x), op("vpermq", quads, quads, imm=0b1000)]
    return [*code, *[op("vpextrw", Memory("wei", at + i, "u16", 1), low, imm=i) for i in range(lanes)]]
