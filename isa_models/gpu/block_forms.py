"""Runs of vector instructions over a block of M rows by N lanes, written as one.

An instruction that is declared with `ways` runs over a block: operands differ by a row from one to the next, and a row
of N lanes, or one lane for all of a row, is read again and again. A block form stands for them, by the instruction's
name, the block's sizes and the way:

    add.f32.8x16.row      acc + a row of N lanes (bias)
    mul.f32.8x16.col      acc * one lane for each row (tokens)
    mad.s32.8x16.outer    acc + column * row
    madw.s32.8x16.row     acc + x * row (of 16 bits), x of M x N

On Intel GPUs that is an instruction for each row. On NVIDIA's, whose registers have the lanes of a warp, it is as many
as the block has warps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from isa_models.algebra import Value
from isa_models.gpu.naming import NAME, Naming
from isa_models.instruction import FORMS, GPU_REGISTRY, Instruction, Operand, Pieces, instruction

WAYS = ("row", "col", "outer")
BLOCK = Naming("{unit}.{m}x{n}.{way}", unit=NAME, way=WAYS)


@dataclass(frozen=True, repr=False)
class BlockForm(Instruction):
    """A run of instructions as one, over operands of fixed sizes."""

    counts: tuple[int, ...] = field(kw_only=True)  # lanes of each operand
    size: int = field(kw_only=True)  # lanes of the result
    repeats: int = field(kw_only=True)
    unit: Instruction = field(kw_only=True)  # what is repeated, by which the clock charges
    each: int = field(kw_only=True)  # lanes of each of them
    piece: str = field(default="", kw_only=True)  # the form of some rows of a product of matrices, of one at least

    def lanes(self, width: int) -> int:
        return self.size

    def operand_lanes(self, operand: Operand, lanes: int) -> int:
        return self.counts[self.operands.index(operand)]

    def pieces(self) -> Pieces | None:
        if not self.piece:
            return None
        one = instruction(self.piece)
        return Pieces(one, self.size // one.lanes(0))


def block_of(
    name: str,
    unit: Instruction,
    function: Callable[..., Value],
    size: int,
    operands: tuple[tuple[str, str, int], ...],
    repeats: int,
    each: int,
    piece: str = "",
) -> BlockForm:
    """`repeats` times `unit` of `each` lanes; `operands`: name, type and lanes of each."""
    return BlockForm(
        name,
        tuple(Operand(label, dtype, count / size) for label, dtype, count in operands),
        unit.result,
        function,
        unit.manual,
        unit.caps,
        accumulates=unit.accumulates,
        chooses=unit.chooses,
        native=False,
        rate=unit.rate,
        warp=unit.warp,
        counts=tuple(count for _, _, count in operands),
        size=size,
        repeats=repeats,
        unit=unit,
        each=each,
        piece=piece,
    )


def spread(value: Value, m: int, n: int, way: str) -> Value:
    """N lanes in each of M rows, or each of M lanes along its row."""
    return value.permute(list(range(n)) * m if way == "row" else [r for r in range(m) for _ in range(n)])


@functools.cache
def block_form(name: str) -> BlockForm | None:
    """The form of a full name; None where it is none, or where the block is not whole warps."""
    fields = BLOCK.read(name)
    unit = GPU_REGISTRY.get(fields["unit"]) if fields else None
    if fields is None or unit is None or fields["way"] not in unit.ways:
        return None
    m, n, way = fields["m"], fields["n"], fields["way"]
    if unit.warp and m * n % unit.warp:
        return None

    def one(acc: Value, x: Value) -> Value:
        result: Value = unit.function(acc, spread(x, m, n, way))
        return result

    def scaled(acc: Value, x: Value, row: Value) -> Value:
        result: Value = unit.function(acc, x, spread(row, m, n, "row"))
        return result

    def two(acc: Value, column: Value, row: Value) -> Value:
        result: Value = unit.function(acc, spread(column, m, n, "col"), spread(row, m, n, "row"))
        return result

    dtype, last, size = unit.result, unit.operands[-1].dtype, m * n
    column, row = ("column", dtype, m), ("row", last, n)
    function: Callable[..., Value] = one
    others = [column if way == "col" else row]
    if way == "outer":
        function, others = two, [column, row]
    elif unit.accumulates:
        function, others = scaled, [("x", dtype, size), row]
    repeats, each = (size // unit.warp, unit.warp) if unit.warp else (m, n)
    return block_of(name, unit, function, size, (("acc", dtype, size), *others), repeats, each)


FORMS.append(block_form)
