"""Code of 256 bits that every dot product with ggml's blocks has: registers, constants, sums across lanes."""

from __future__ import annotations

import numpy as np

from isa_models.block_formats import BlockFormat
from isa_models.formats import fmt
from isa_models.instruction import instruction
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import typed
from simdnn.program.records import Affine, Memory, Register, Tensor


def ymm(name: str, dtype: str = "u32") -> Register:
    return Register(name, dtype, 256 // fmt(dtype).bits)


def xmm(name: str, dtype: str = "u32") -> Register:
    return Register(name, dtype, 128 // fmt(dtype).bits)


class Constants256:
    """Bytes that a program reads whole or broadcasts, by name; those used become one tensor each."""

    def __init__(self) -> None:
        self.used: dict[str, Tensor] = {}

    def load(self, name: str, dtype: str, values: Array) -> Code:
        """A register `name` that holds 32 bytes, or 16."""
        data = np.ascontiguousarray(values).tobytes()
        self.used[name] = Tensor.constant(f"of_{name}", dtype, data)
        lanes = len(data) // 4
        return [op("vmovdqu", Register(name, "u32", lanes), Memory(f"of_{name}", Affine(), "u32", lanes))]

    def memory(self, name: str, dtype: str, values: Array) -> Memory:
        """32 bytes, or 16, that an instruction reads from memory as `dtype`."""
        data = np.ascontiguousarray(values).tobytes()
        self.used[name] = Tensor.constant(f"of_{name}", "u8", data)
        return Memory(f"of_{name}", Affine(), dtype, 8 * len(data) // fmt(dtype).bits)


def fields_of(form: BlockFormat) -> tuple[str, ...]:
    return form.layout.names or ()


def offset(form: BlockFormat, field: str) -> int:
    """The byte of a block at which a field begins."""
    assert form.layout.fields
    return int(form.layout.fields[field][1])


def across(name: str, register: str, other: str, upper_first: bool = False) -> Code:
    """All lanes of a register combined by halves, into lane 0; the upper half first where it is an operand's place."""
    dtype = instruction(name).result
    low, high = xmm(register, dtype), xmm(other, dtype)
    code: Code = [op("vextractf128", high.as_("f32"), ymm(register, "f32"), imm=1)]
    code.append(op(name, low, *((high, low) if upper_first else (low, high))))
    for move in (
        op("vmovhlps", high.as_("f32"), *[low.as_("f32")] * 2),
        op("vmovshdup", high.as_("f32"), low.as_("f32")),
    ):
        code += [move, op(name, low, low, high)]
    return code


def half(name: str, tensor: str, at: Affine) -> Code:
    """An f16 in memory, in lane 0 of a register as f32."""
    return [
        op("vpbroadcastw", xmm(name, "u16"), Memory(tensor, at, "u16", 1)),
        op("vcvtph2ps", xmm(name, "f32"), Register(name, "f16", 4)),
    ]


def nibbles(place: Affine) -> Code:
    """32 nibbles of 16 bytes of weights as bytes in `x`: the lower ones, then the upper ones; `nibble` holds 15s."""
    low, high, x = xmm("x"), xmm("u"), ymm("x")
    return [
        op("vinserti128", x, ymm("nibble"), Memory("wei", place, "u32", 4), imm=0),
        typed("vpsrlw", high, low, imm=4),
        op("vinserti128", x, x, high, imm=1),
        op("vpand", x, x, ymm("nibble")),
    ]
