"""Which tensors prefetchers follow, by the loads that go through them."""

from __future__ import annotations

import pytest

from isa_models import cpu_machine as machine
from simdnn.program.operands import Affine, Memory, Register, Tensor
from simdnn.program.records import Loop, Op, Program
from simdnn.timing.flows import STREAMED
from simdnn.timing.memory import transfers
from simdnn.timing.prefetched import streamed

ELEMENTS = 1 << 16


def through(index: Affine, turns: int, lanes: int = 16, stored: bool = False) -> Program:
    """Two loads a turn of "a", side by side, four times over; they may go to "b" at once."""
    registers = [Register(f"x{i}", "f32", lanes) for i in range(2)]
    places = [index + lanes * i for i in range(2)]
    loads = [Op("vmovups", x, (Memory("a", at, "f32", lanes),)) for x, at in zip(registers, places, strict=True)]
    stores = [Op("vmovups", Memory("b", Affine(lanes * i), "f32", lanes), (x,)) for i, x in enumerate(registers)]
    tensors = (Tensor("a", "f32", ELEMENTS), Tensor("b", "f32", 64, "output"))
    body = Loop("t", 4, (Loop("i", turns, (*loads, *stores * stored)),))
    return Program("load", "avx512_core" if lanes == 16 else "avx2", tensors, (body,))


@pytest.mark.parametrize(
    ("program", "follows"),
    [
        (through(Affine.var("i") * 32, 33), True),  # 4224 bytes
        (through(Affine.var("i") * 32, 32), False),  # a page
        (through(Affine.var("i") * 48, 999), False),  # with gaps
        (through(Affine.var("i") * 32 + Affine.var("t") * 256, 8), False),  # 1 KiB and on: 4 KiB
        (through(Affine.var("i") * 32 + Affine.var("t") * 512, 16), True),  # 2 KiB and on: 8 KiB
        (through(Affine.var("i") * 32, 99, stored=True), False),
    ],
)
def test_lines_in_order_for_more_than_a_page(program: Program, follows: bool) -> None:
    assert streamed(program) == ({"a"} if follows else set())


def test_stores_near_each_other_leave_lines_in_order() -> None:
    program = through(Affine.var("i") * 32, 99, stored=True)
    assert [streamed(program, near) for near in (3, 4)] == [set(), {"a"}]


def test_a_machine_tells_them_apart_beside_wide_registers() -> None:
    wide, narrow = through(Affine.var("i") * 32, 99), through(Affine.var("i") * 16, 999, lanes=8)
    assert transfers(wide, machine("gnr")).kinds == {"a": STREAMED}
    assert streamed(narrow) == {"a"} and not transfers(narrow, machine("gnr")).kinds
    assert not transfers(wide, machine("spr")).kinds
