"""f32 data rounded to what a narrower unit would hold, and kept as f32: in a register, and ahead of time in NumPy.

Kinds: "f16" to nearest even; "tf32" to nearest even, as Intel's units round (TMMULTF32PS, Instruction Set Extensions
Programming Reference); "tf32_cut" with the 13 bits that do not fit cut off, as NVIDIA's tensor cores read their
operands. Denormals are kept. Cutting bits off can make infinity of a NaN, as it does in a unit.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from isa_models import instruction
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.rounding import round_to
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import Unit, broadcast32
from simdnn.program.records import Affine, Register, Tensor

TF32_BITS = 13  # of an f32's significand that tf32 lacks


def rounding_constants(cut: int) -> Tensor:
    """Constants of `nearest_even` for `cut` bits: magnitude, infinity, one, just below half an ulp, the quiet bit."""
    values = (0x7FFFFFFF, 0x7F800000, 1, (1 << (cut - 1)) - 1, 0x00400000)
    return Tensor.constant(f"rounding{cut}", "u32", np.array(values, np.uint32).tobytes())


def constants(kind: str) -> list[Tensor]:
    """The tensors that `round_f32` reads."""
    if kind == "tf32":
        return [rounding_constants(TF32_BITS)]
    if kind == "tf32_cut":
        mask = np.uint32(0xFFFFFFFF << TF32_BITS & 0xFFFFFFFF)
        return [Tensor.constant("kept_bits", "u32", mask.tobytes())]
    return []


def round_f32(unit: Unit, kind: str, value: Register, scratch: tuple[str, str, str]) -> Code:
    """`value`, f32 lanes, rounded in place."""
    first = unit.reg(scratch[0])
    if kind == "f16":
        half = Register(scratch[0], "f16", unit.lanes)
        return [op("vcvtps2ph", half, value, imm=0), op("vcvtph2ps", value, half)]
    bits = value.as_("u32")
    if kind == "tf32_cut":
        return [broadcast32(first, "kept_bits", Affine()), op("vpand", bits, bits, first)]
    cleared = [op("vpsrld", bits, bits, imm=TF32_BITS), op("vpslld", bits, bits, imm=TF32_BITS)]
    return [*nearest_even(unit, bits, scratch, TF32_BITS), *cleared]


def nearest_even(unit: Unit, x: Register, scratch: tuple[str, str, str], cut: int) -> Code:
    """f32 bits rounded to nearest even at bit `cut` by integer arithmetic; the bits below it are left to the caller.

    Half an ulp is added, ties to even. A NaN is quieted instead; what tells it is its magnitude, above infinity's.
    """
    rounded, constant, is_nan = (unit.reg(name) for name in scratch)
    signed = is_nan.as_("s32")
    magnitude, infinity, one, half, quiet = (broadcast32(constant, f"rounding{cut}", Affine(i)) for i in range(5))
    return [
        magnitude,
        op("vpand", rounded, x, constant),
        infinity,
        op("vpsubd", signed, constant.as_("s32"), rounded.as_("s32")),
        op("vpsrad", signed, signed, imm=31),
        op("vpsrld", rounded, x, imm=cut),
        one,
        op("vpand", rounded, rounded, constant),
        half,
        op("vpaddd", rounded.as_("s32"), rounded.as_("s32"), constant.as_("s32")),
        op("vpaddd", rounded.as_("s32"), rounded.as_("s32"), x.as_("s32")),
        op("vpandn", rounded, is_nan, rounded),
        quiet,
        op("vpor", x, x, constant),
        op("vpand", x, x, is_nan),
        op("vpor", x, x, rounded),
    ]


def without_denormals(unit: Unit, x: Register, scratch: tuple[str, str], cut: int) -> Code:
    """x with zeros of their sign in place of denormals, by a constant of `nearest_even`."""
    tiny, one = (unit.reg(name) for name in scratch)
    exponent = tiny.as_("s32")
    return [
        op("vpslld", tiny, x, imm=1),
        op("vpsrld", tiny, tiny, imm=24),
        broadcast32(one, f"rounding{cut}", Affine(2)),
        op("vpsubd", exponent, exponent, one.as_("s32")),
        op("vpsrad", exponent, exponent, imm=31),
        op("vpsrld", tiny, tiny, imm=1),
        op("vpandn", x, tiny, x),
    ]


def ahead(values: Array, dtype: str, kind: str) -> Array:
    """f32 weights as they are kept: rounded to `dtype` or, where that is f32, to `kind`; what the program would do.

    >>> ahead(np.array([1.00048828125, 1.0009765625], np.float32), "f32", "tf32").tolist()
    [1.0, 1.0009765625]
    """
    if dtype == "f32" and not kind:
        return values
    flat = values.reshape(1, -1)
    if dtype == "bf16":
        flat = instruction("vcvtneps2bf16")(flat)
    elif dtype == "f16":
        flat = instruction("vcvtps2ph")(flat, imm=0)
    elif kind == "tf32":
        flat = cast(ArrayValue, round_to(ArrayValue(flat, "f32"), "tf32")).array
    elif kind == "tf32_cut":
        flat = (flat.view(np.uint32) >> TF32_BITS << TF32_BITS).view(np.float32)
    return np.ascontiguousarray(flat).reshape(values.shape)
