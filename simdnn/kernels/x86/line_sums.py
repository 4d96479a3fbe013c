"""Sums, products and extremes along lines of a vector unit: accumulators, and how their lanes become one.

Orders are those of `simdnn.kernels.common.reduce.ReduceProblem`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.x86.code import Unit
from simdnn.program.records import Affine, Memory, Register, Tensor

ACCUMULATORS = 4  # registers c0 to c3 along a line
_NEIGHBOURS, _HALVES = (
    ((0, 1), (2, 3), (0, 2)),
    ((0, 2), (1, 3), (0, 1)),
)  # how four are joined, the result in the first
Combine = Callable[[Register, Register], Code]  # of two, into the first


def line_sum(
    unit: Unit,
    order: str,
    line: int,
    value: Callable[[Affine, int], tuple[Code, Register]],
    take: Combine,
    combine: Combine,
    inner: Sequence[tuple[str, int]] = (),
) -> Code:
    """`line` values brought together in an order of `ReduceProblem`, the result in every lane of c0.

    Registers c0 to c3 are used, and p in the order "register". `value` of a place and of lanes that count is code and a
    register, whose other lanes do no harm; `take` adds one to an accumulator, `combine` one accumulator to another. The
    accumulators begin empty. `inner`: loops around the line.
    """
    if order == "register":
        return _onto_one_register(unit, line, value, take, combine, inner)
    accumulators = [unit.reg(f"c{i}", "f32") for i in range(ACCUMULATORS)]
    step, by_rounds = ACCUMULATORS * unit.lanes, order == "rounds"
    rounds, left = divmod(line, step)
    turns, rest = divmod(left, unit.lanes)

    def one(at: Affine, lanes: int, acc: Register) -> Code:
        code, register = value(at, lanes)
        return code + take(acc, register)

    def joint(pairs: Sequence[tuple[int, int]]) -> Code:
        return [s for a, b in pairs for s in combine(accumulators[a], accumulators[b])]

    places = [Affine.var("r") * step + i * unit.lanes for i in range(ACCUMULATORS)]
    whole = [s for at, acc in zip(places, accumulators, strict=True) for s in one(at, unit.lanes, acc)]
    body = loop("r", rounds, whole)
    body += joint(_HALVES) if by_rounds else []
    for turn in range(turns):
        acc = accumulators[0 if by_rounds else turn]
        body += one(Affine(rounds * step + turn * unit.lanes), unit.lanes, acc)
    if rest:
        body += one(Affine(line - rest), rest, accumulators[-1 if order == "turns" else 0])
    return [*nest(inner, body), *([] if by_rounds else joint(_NEIGHBOURS)), *horizontal(unit, "c0", combine, "c1")]


def first_lane(unit: Unit) -> Tensor:
    """The constant that a line in a "register" reads whose last elements fill none: ones in the first lane."""
    ones = np.array([0xFFFFFFFF] + [0] * (unit.lanes - 1), np.uint32)
    return Tensor.constant("first", "u32", ones.tobytes())


def _onto_one_register(
    unit: Unit,
    line: int,
    value: Callable[[Affine, int], tuple[Code, Register]],
    take: Combine,
    combine: Combine,
    inner: Sequence[tuple[str, int]],
) -> Code:
    """Order "register", as oneDNN's `jit_uni_reduction_kernel_t` has it: what fills no register is joined by itself,
    and goes onto the first lane.
    """
    total, turns = unit.reg("c0", "f32"), line // unit.lanes
    whole, register = value(Affine.var("r") * unit.lanes, unit.lanes)
    code = nest(inner, loop("r", turns, whole + take(total, register)))
    if rest := line % unit.lanes:
        last, register = value(Affine(turns * unit.lanes), rest)
        sum_, bits = unit.reg("c1", "f32"), total.as_("u32")
        code += [*last, *_joined(register.name, rest, unit.lanes, combine, ("c2", "c3"))]
        code += [op("vbroadcastss", register, Register(register.name, "f32", 1))]
        code += [op("vmovups", sum_, total), *combine(sum_, register)]
        code += [op("vpxor", sum_.as_("u32"), sum_.as_("u32"), bits)]
        code += [op("vpand", sum_.as_("u32"), sum_.as_("u32"), Memory("first", Affine(), "u32", unit.lanes))]
        code += [op("vpxor", bits, bits, sum_.as_("u32"))]
    code += _joined("c0", unit.lanes, unit.lanes, combine, ("c1",)) if turns else []
    return [*code, op("vbroadcastss", total, Register("c0", "f32", 1))]


def _joined(name: str, count: int, lanes: int, combine: Combine, spare: Sequence[str]) -> Code:
    """`count` of a register's lanes into its first: upper halves onto lower ones while all are filled, else each half
    by itself; four and fewer one after the other.
    """
    if lanes == 4:
        return _one_after_the_other(name, count, combine)
    half = lanes // 2
    if count <= half:
        return _joined(name, count, half, combine, spare)
    extract = "vextractf64x4" if lanes == 16 else "vextractf128"
    low, high = Register(name, "f32", half), Register(spare[0], "f32", half)
    code: Code = [op(extract, high, Register(name, "f32", lanes), imm=1)]
    if count == lanes:
        return [*code, *combine(low, high), *_joined(name, half, half, combine, spare)]
    code += _joined(name, half, half, combine, spare[1:]) + _joined(spare[0], count - half, half, combine, spare[1:])
    return [*code, *combine(Register(name, "f32", 4), Register(spare[0], "f32", 4))]


def _one_after_the_other(name: str, count: int, combine: Combine) -> Code:
    """The first lanes of four, the first one growing."""
    total, lane, held = (Register(register, "f32", 4) for register in (name, "p", "held"))
    code: Code = [op("vmovups", held, total)] if count > 1 else []  # zeros of other lanes are no part of a product
    for i in range(1, count):
        code += [op("vinsertps", lane, held, held, imm=i << 6 | 0b1110), *combine(total, lane)]
    return code


def horizontal(unit: Unit, name: str, combine: Combine, spare: str = "h") -> Code:
    """All lanes of a register combined by halves, the result in every lane; the register `spare` is used on the way."""
    code: Code = []
    widths = [16, 8, 4] if unit.width == 512 else [8, 4]
    for lanes in widths[:-1]:
        extract = "vextractf64x4" if lanes == 16 else "vextractf128"
        half = Register(name, "f32", lanes // 2)
        upper = Register(spare, "f32", lanes // 2)
        code += [op(extract, upper, Register(name, "f32", lanes), imm=1), *combine(half, upper)]
    low, other = Register(name, "f32", 4), Register(spare, "f32", 4)
    code += [op("vmovhlps", other, low, low), *combine(low, other)]
    code += [op("vmovshdup", other, low), *combine(low, other)]
    return [*code, op("vbroadcastss", unit.reg(name, "f32"), Register(name, "f32", 1))]
