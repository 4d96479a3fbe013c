"""Elements of any storage type into 32-bit lanes: floats become f32, integers keep their value."""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import Unit, broadcast32, load32, load_float
from simdnn.program.records import Affine, Memory, Register

_WIDEN = {"u8": "vpmovzxbd", "s8": "vpmovsxbd", "u16": "vpmovzxwd", "s16": "vpmovsxwd"}
LOADED = ("f32", "f16", "bf16", "s32", *_WIDEN)  # types that can be loaded
STORED = ("f32", "f16", "bf16", "s32", "s8", "u8")  # types that `epilogue.store` can store


def load(unit: Unit, register: str, tensor: str, dtype: str, at: Affine, lanes: int) -> Code:
    """`lanes` neighbouring elements."""
    if fmt(dtype).is_float:
        return load_float(unit, register, tensor, dtype, at, lanes)
    if dtype in _WIDEN:
        return [op(_WIDEN[dtype], _widened(unit, register, dtype), Memory(tensor, at, dtype, lanes))]
    return [load32(unit, unit.reg(register), tensor, at, lanes)]


def broadcast(unit: Unit, register: str, tensor: str, dtype: str, at: Affine) -> Code:
    """One element into every lane."""
    if dtype in ("f32", "s32"):
        return [broadcast32(unit.reg(register, "f32" if dtype == "f32" else "u32"), tensor, at)]
    if dtype in ("u8", "s8"):
        element = Register(register, "u8", max(16, unit.lanes))
        widen = op(_WIDEN[dtype], _widened(unit, register, dtype), Register(register, dtype, unit.lanes))
        return [op("vpbroadcastb", element, Memory(tensor, at, "u8", 1)), widen]
    element = Register(register, "u16", unit.lanes)
    code: Code = [op("vpbroadcastw", element, Memory(tensor, at, "u16", 1))]
    if dtype == "f16":
        return [*code, op("vcvtph2ps", unit.reg(register, "f32"), element.as_("f16"))]
    if dtype == "bf16":
        words = unit.reg(register)
        return [*code, op("vpmovzxwd", words, element), op("vpslld", words, words, imm=16)]
    return [*code, op(_WIDEN[dtype], _widened(unit, register, dtype), element.as_(dtype))]


def _widened(unit: Unit, register: str, dtype: str) -> Register:
    return unit.reg(register, "s32" if fmt(dtype).signed else "u32")
