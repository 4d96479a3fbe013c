"""Post-operations on the accumulators of a tile, in place: the exact ones and those of a multiply-add.

Registers beside the accumulators: `p` holds what is common to them, `a` and `b0` are scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from isa_models.isa import implied
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.postops import ABOVE, BENEATH, COMPARISONS, NAN_WORDS, RELU, PostOp
from simdnn.kernels.x86.code import Unit, broadcast32, zero
from simdnn.program.records import Affine, Memory, Register, Tensor

_ARITHMETIC = {"add": "vaddps", "sub": "vsubps", "mul": "vmulps", "div": "vdivps", "max": "vmaxps", "min": "vminps"}
#: what tells a comparison: the greater or the lesser of both, and whether it holds where that is the second operand
_WANTED = {
    "ge": ("vpmaxsd", False),
    "lt": ("vpmaxsd", True),
    "le": ("vpminsd", False),
    "gt": ("vpminsd", True),
    "eq": ("", False),
    "ne": ("", True),
}
#: constants that an operation reads
_CONSTANTS = {
    "abs": ("magnitude",),
    "hardsigmoid": ("one",),
    "hardswish": ("one",),
    "relu": ("minus_one",),  # with a slope
}
_BITS = {
    "magnitude": np.uint32(0x7FFFFFFF),
    "one": np.float32(1),
    "minus_one": np.int32(-1),
    "nothing": np.float32(0),
    "numbers": np.int32(NAN_WORDS),
    "above": np.int32(ABOVE),
    "beneath": np.int32(BENEATH),
}
_TYPES = {"magnitude": "u32", "one": "f32", "nothing": "f32"}  # all others: s32
#: what a comparison reads
_OF_COMPARISONS = ("nothing", "one", "numbers", "above", "beneath")


def constants(unit: Unit, ops: Sequence[PostOp], reference: bool) -> list[Tensor]:
    """The constant tensors that post-operations read, a register each."""
    kinds = [found.kind for found in ops if found != RELU]
    found = [_OF_COMPARISONS if kind in COMPARISONS else _CONSTANTS.get(kind, ()) for kind in kinds]
    if _multiplied_zeros(unit, reference) != "-0" and "prelu" in kinds:
        found.append(("minus_one",))
    wanted = dict.fromkeys(c for constants_of in found for c in constants_of)
    return [Tensor.constant(name, _TYPES.get(name, "s32"), _BITS[name].tobytes() * unit.lanes) for name in wanted]


def binary(unit: Unit, kind: str, acc: Register, value: Register, reference: bool) -> Code:
    """An accumulator and a register of second operands, which stays; `reference`: as oneDNN's reference has it."""
    if kind in _ARITHMETIC:
        return [op(_ARITHMETIC[kind], acc, acc, value)]
    if kind in COMPARISONS:
        return _compared(unit, kind, acc, value, reference)
    return _multiplied(unit, acc, value, _multiplied_zeros(unit, reference))


def _multiplied_zeros(unit: Unit, reference: bool) -> str:
    """The zeros that prelu multiplies: AVX2 blends by the sign, AVX-512 by a comparison."""
    return "" if reference else "both" if "avx512_core" in implied(unit.isa) else "-0"


def _compared(unit: Unit, kind: str, acc: Register, value: Register, reference: bool) -> Code:
    """1 or 0: the greater of both as ordered integers, or the lesser, is this one of them, or is not.

    A NaN of the accumulator is above all numbers, one of the second operand beneath: ge, gt and ne hold then, as
    oneDNN's kernels ask whether it is not less. In its reference ne alone does, as ge and gt have them the other way.
    """
    x, bits = acc.as_("s32"), acc.as_("u32")
    mine, other, sign = (unit.reg(name, "s32") for name in ("a", "b0", "b0"))

    def word(name: str) -> Memory:
        return Memory(name, Affine(), "s32", unit.lanes)

    def ordered(to: Register, source: Register, scratch: Register, above: bool) -> Code:
        """Bits whose order as integers is that of the floats; -0 becomes 0. NaN of either sign lies beyond one end."""
        there, bound, back = ("vpsubd", "vpminsd", "vpaddd") if above else ("vpaddd", "vpmaxsd", "vpsubd")
        return [
            op("vaddps", to.as_("f32"), source, Memory("nothing", Affine(), "f32", unit.lanes)),
            op("vpsrad", scratch, to, imm=31),
            op("vpsrld", scratch.as_("u32"), scratch.as_("u32"), imm=1),
            op("vpxor", to.as_("u32"), to.as_("u32"), scratch.as_("u32")),
            op(there, to, to, word("numbers")),
            op(bound, to, to, word("above" if above else "beneath")),
            op(back, to, to, word("numbers")),
        ]

    above = not (reference and kind in ("ge", "gt"))
    code = [*ordered(mine, acc, sign, above), *ordered(x, value, other, not above)]
    select, wanted = _WANTED[kind]
    if select:
        code.append(op(select, x, x, mine))
    code.append(op("vpxor", bits, bits, mine.as_("u32")))  # 0 where it is this one
    code += [zero(other.as_("u32")), op("vpsubd", other, other, x), op("vpor", bits, bits, other.as_("u32"))]
    code.append(op("vpsrad", x, x, imm=31))  # all ones where it is not
    one = Memory("one", Affine(), "u32", unit.lanes)
    return [*code, op("vpand" if wanted else "vpandn", bits, bits, one)]


def _multiplied(unit: Unit, acc: Register, factor: Register, zeros: str) -> Code:
    """acc where it is above zero, else acc * factor; `zeros` that are multiplied, too: "both", those of a sign ("-0"),
    or none ("").
    """
    product, sign = unit.reg("a", "f32"), unit.reg("b0", "s32")
    bits, x, left = product.as_("u32"), acc.as_("u32"), acc.as_("s32")
    code = [op("vmulps", product, acc, factor), op("vpxor", bits, bits, x)]
    if zeros != "-0":  # one less is negative for 0, too, and positive for -0
        code.append(op("vpaddd", sign, left, Memory("minus_one", Affine(), "s32", unit.lanes)))
        code.append(op("vpor" if zeros else "vpand", sign.as_("u32"), sign.as_("u32"), x))
        left = sign
    code.append(op("vpsrad", sign, left, imm=31))
    return [*code, op("vpand", bits, bits, sign.as_("u32")), op("vpxor", x, x, bits)]


def eltwise(unit: Unit, kind: str, tensor: str, accumulators: list[Register], fused: bool) -> Code:
    """One of a single operand, relu with a slope; `tensor` has its numbers.

    `fused`: alpha x + beta is rounded once, unlike in oneDNN's reference, which has an abs of its own.
    """
    alpha, beta = unit.reg("p", "f32"), unit.reg("a", "f32")
    first = broadcast32(alpha, tensor, Affine())

    def each(step: Callable[[Register], Code]) -> Code:
        return [instruction for acc in accumulators for instruction in step(acc)]

    if kind == "relu":
        return [first, *each(lambda x: _multiplied(unit, x, alpha, "both"))]
    if kind == "square":
        return each(lambda x: [op("vmulps", x, x, x)])
    if kind == "sqrt":
        return each(lambda x: [op("vsqrtps", x, x)])
    if kind == "abs":
        mask = unit.reg("p")
        load = broadcast32(mask, "magnitude", Affine())
        if not fused:
            return [load, *_greater_of_both_signs(unit, mask, accumulators)]
        return [load, *each(lambda x: [op("vpand", x.as_("u32"), x.as_("u32"), mask)])]
    second = broadcast32(beta, tensor, Affine(1))
    if kind in ("clip", "clip_v2"):
        return [first, second, *each(lambda x: [op("vmaxps", x, x, alpha), op("vminps", x, x, beta)])]
    if kind == "linear":
        return [first, second, *each(lambda x: _linear(x, x, alpha, beta, fused))]
    return [first, second, *each(lambda x: _hard(unit, kind, x, alpha, beta, tensor, not fused))]


def _greater_of_both_signs(unit: Unit, magnitude: Register, accumulators: list[Register]) -> Code:
    """x > 0 ? x : -x as oneDNN's reference has it: a zero changes its sign."""
    sign, other = unit.reg("a"), unit.reg("b0")
    code: Code = [op("vpslld", sign, magnitude, imm=31)]
    for x in accumulators:
        code += [op("vpxor", other, x.as_("u32"), sign), op("vmaxps", x, x, other.as_("f32"))]
    return code


def _linear(to: Register, x: Register, alpha: Register, beta: Register, fused: bool) -> Code:
    if fused:
        return [op("vfmadd213ps", to, to, alpha, beta)]
    return [op("vmulps", to, x, alpha), op("vaddps", to, to, beta)]


def _hard(unit: Unit, kind: str, x: Register, alpha: Register, beta: Register, tensor: str, nan_stays: bool) -> Code:
    """min(1, max(0, alpha x + beta)), for hardswish times x. Where a NaN stays, -0 becomes 0 by an addition: of two
    zeros the second one is the greater.
    """
    part = unit.reg("b0", "f32") if kind == "hardswish" else x
    bound, stays = unit.reg("a", "f32"), nan_stays and kind == "hardsigmoid"
    ends = (bound, part) if stays else (part, bound)  # of a NaN and a number the second one is taken
    code = [op("vmulps", part, x, alpha), op("vaddps", part, part, beta)]
    code += [broadcast32(bound, "one", Affine()), op("vminps", part, *ends)]
    code += [op("vpxor", bound.as_("u32"), bound.as_("u32"), bound.as_("u32")), op("vmaxps", part, *ends)]
    code += [op("vaddps", part, part, bound)] if stays else []
    code += [op("vmulps", x, x, part)] if kind == "hardswish" else []
    return [*code, broadcast32(beta, tensor, Affine(1))]
