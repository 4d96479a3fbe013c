"""Registers that hold matrices: where they lie, and which instructions go strip by strip."""

from __future__ import annotations

from isa_models.readings.llvm import Emitter
from simdnn.numerics.matrices import Matrices
from simdnn.program.records import Affine, Memory, Op, Register

SUMS = [Register(f"c{i}", "f32", 128) for i in range(9)]
A, B, HALVES = Register("a", "u32", 64), Register("b", "u32", 128), Register("h", "bf16", 128)
PRODUCTS = [Op("dpas.bf16.bf16.8.8.x16.f32.sequential", c, (c, B, A)) for c in SUMS]


def test_places_come_in_the_order_of_the_program() -> None:
    """Text that differed from process to process would be compiled in each."""
    lines = Matrices(Emitter(), PRODUCTS).allocations
    names = [line.split()[0].strip('%"').removeprefix("space.") for line in lines]
    assert names == [SUMS[0].name, "b", "a", *(c.name for c in SUMS[1:])]


def test_what_goes_strip_by_strip() -> None:
    narrow = Op("mov.bf16.f32", HALVES, (SUMS[0],))
    within = Op("mov.bf16.f32", Register("c0", "bf16", 128), (SUMS[0],))
    wide = Op("mov.f32.bf16", SUMS[0], (Register("c0", "bf16", 128),))
    rows = Op("add.f32.8x16.row", SUMS[0], (SUMS[0], Register("r", "f32", 16)))
    short = Op("add.f32.8x16.row", SUMS[0], (SUMS[0], Memory("bias", Affine(), "f32", 10)))
    ops = (narrow, within, wide, rows, short)
    matrices = Matrices(Emitter(), [*PRODUCTS, *ops])
    counts = [strips.count if (strips := matrices.strips(op)) else 0 for op in ops]
    assert counts == [8, 8, 0, 8, 0]
    moved = matrices.strips(rows)
    assert moved and (moved.lanes, moved.steps) == (16, [16, 16, 0])
