"""Post-operations on the accumulators of a tile, in place: the exact ones and those of a multiply-add.

Registers beside the accumulators: `p` holds what is common to them, `a` and `b0` are scratch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import Unit, broadcast32
from simdnn.program.records import Affine, Memory, Register, Tensor

_ARITHMETIC = {"add": "vaddps", "sub": "vsubps", "mul": "vmulps", "div": "vdivps", "max": "vmaxps", "min": "vminps"}
#: constants that an operation reads
_CONSTANTS = {"abs": ("magnitude",), "hardsigmoid": ("one",), "hardswish": ("one",), "relu:alpha": ("minus_one",)}
_BITS = {"magnitude": np.uint32(0x7FFFFFFF), "one": np.float32(1), "minus_one": np.int32(-1)}
_TYPES = {"magnitude": "u32", "one": "f32", "minus_one": "s32"}


def constants(unit: Unit, names: tuple[str, ...]) -> list[Tensor]:
    """The constant tensors that post-operations read, a register each."""
    found = [_CONSTANTS.get(name, ("minus_one",) if name.startswith("prelu") else ()) for name in names]
    wanted = dict.fromkeys(c for constants_of in found for c in constants_of)
    return [Tensor.constant(name, _TYPES[name], _BITS[name].tobytes() * unit.lanes) for name in wanted]


def binary(unit: Unit, kind: str, acc: Register, value: Register) -> Code:
    """An accumulator and a register of second operands, which stays."""
    if kind in _ARITHMETIC:
        return [op(_ARITHMETIC[kind], acc, acc, value)]
    return _below_zero(unit, acc, value)


def _below_zero(unit: Unit, acc: Register, factor: Register) -> Code:
    """acc where it is above zero, else acc * factor: a zero gets the factor's sign."""
    product, sign = unit.reg("a", "f32"), unit.reg("b0", "s32")
    bits, x = product.as_("u32"), acc.as_("u32")
    return [
        op("vmulps", product, acc, factor),
        op("vpxor", bits, bits, x),
        op("vpaddd", sign, acc.as_("s32"), Memory("minus_one", Affine(), "s32", unit.lanes)),
        op("vpor", sign.as_("u32"), sign.as_("u32"), x),
        op("vpsrad", sign, sign, imm=31),
        op("vpand", bits, bits, sign.as_("u32")),
        op("vpxor", x, x, bits),
    ]


def eltwise(unit: Unit, name: str, tensor: str, accumulators: list[Register], fused: bool) -> Code:
    """One of a single operand; `tensor` has its numbers. `fused`: alpha x + beta is rounded once."""
    alpha, beta = unit.reg("p", "f32"), unit.reg("a", "f32")
    first = broadcast32(alpha, tensor, Affine())

    def each(step: Callable[[Register], Code]) -> Code:
        return [instruction for acc in accumulators for instruction in step(acc)]

    if name == "relu:alpha":
        return [first, *each(lambda x: _below_zero(unit, x, alpha))]
    if name == "square":
        return each(lambda x: [op("vmulps", x, x, x)])
    if name == "sqrt":
        return each(lambda x: [op("vsqrtps", x, x)])
    if name == "abs":
        mask = unit.reg("p")
        load = broadcast32(mask, "magnitude", Affine())
        return [load, *each(lambda x: [op("vpand", x.as_("u32"), x.as_("u32"), mask)])]
    second = broadcast32(beta, tensor, Affine(1))
    if name in ("clip", "clip_v2"):
        return [first, second, *each(lambda x: [op("vmaxps", x, x, alpha), op("vminps", x, x, beta)])]
    if name == "linear":
        return [first, second, *each(lambda x: _linear(x, x, alpha, beta, fused))]
    return [first, second, *each(lambda x: _hard(unit, name, x, alpha, beta, tensor))]


def _linear(to: Register, x: Register, alpha: Register, beta: Register, fused: bool) -> Code:
    if fused:
        return [op("vfmadd213ps", to, to, alpha, beta)]
    return [op("vmulps", to, x, alpha), op("vaddps", to, to, beta)]


def _hard(unit: Unit, name: str, x: Register, alpha: Register, beta: Register, tensor: str) -> Code:
    """min(1, max(0, alpha x + beta)), for hardswish times x."""
    part = unit.reg("b0", "f32") if name == "hardswish" else x
    bound = unit.reg("a", "f32")
    code = [op("vmulps", part, x, alpha), op("vaddps", part, part, beta)]
    code += [broadcast32(bound, "one", Affine()), op("vminps", part, part, bound)]
    code += [op("vpxor", bound.as_("u32"), bound.as_("u32"), bound.as_("u32")), op("vmaxps", part, part, bound)]
    code += [op("vmulps", x, x, part)] if name == "hardswish" else []
    return [*code, broadcast32(beta, tensor, Affine(1))]
