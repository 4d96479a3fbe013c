"""Iterations that keep to columns of their own are shown to keep apart without a look at every element."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from simdnn.program import apart
from simdnn.program.apart import (
    IterationAccess,
    _differences_apart,
    _far_apart,
    _joined,
    _places_apart,
    _rows,
    access_of,
)
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Straight, Tensor
from tests.effort import examples

SMALL = st.integers(0, 12)


@st.composite
def accesses(draw: st.DrawFn) -> tuple[Loop, list[IterationAccess], int]:
    stride, row = draw(st.integers(1, 12)), draw(st.integers(4, 40))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        terms = (("c", draw(st.sampled_from((1, 2, 3)))), ("p", stride), ("r", row * draw(st.sampled_from((1, 1, 2)))))
        inner = {"r": draw(st.integers(1, 4)), "c": draw(st.integers(1, 4))}
        found.append(IterationAccess(Affine(draw(SMALL), terms), draw(st.integers(1, 5)), True, inner))
    return Loop("p", draw(st.integers(2, 5)), (), True), found, stride


@examples(300)
@given(accesses())
def test_what_is_shown_so_is_so(given_: tuple[Loop, list[IterationAccess], int]) -> None:
    loop, found, stride = given_
    if any(_places_apart(loop, found, stride, row) for row in _rows(found, stride)):
        assert _differences_apart(loop, found, stride)


def test_panels_of_a_matmul_are_shown_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination of an odd shape, whose panels of columns interleave."""
    monkeypatch.setattr(apart, "_differences_apart", lambda *_: pytest.fail("every element was looked at"))
    simdnn.estimate("matmul", m=37, n=150, k=41, machine="icx", dt="u8:s8:s32")


def test_outputs_too_large_to_look_at_are_shown_so() -> None:
    """Tiles of int8 and bf16 that share the columns of more than a thousand million outputs."""
    for dt in ("u8:s8:s32", "bf16"):
        assert simdnn.estimate("matmul", m=40000, n=40001, k=16, machine="spr", dt=dt).cycles > 0


@examples(100)
@given(st.lists(st.tuples(SMALL, st.integers(1, 8), st.integers(1, 3), st.booleans()), min_size=1, max_size=8))
def test_neighbours_that_move_alike_are_one(places: list[tuple[int, int, int, bool]]) -> None:
    """Accesses that are joined touch and store the elements that they touch and store one by one."""
    x, inner, ops = Register("x", "f32", 8), {"r": 4}, list[Op]()
    for at, lanes, step, stored in places:
        memory = Memory("a", Affine(at, (("r", step),)), "f32", lanes)
        ops.append(Op("vmovups", memory, (x,)) if stored else Op("vmovups", x, (memory,)))
    program, straight = Program("p", "avx2", (Tensor("a", "f32", 99),), ()), Straight(ops)
    each = [access_of(program, memory, stored, inner) for memory, stored, _ in straight.accesses]
    joined = _joined(program, [(alike, inner) for alike in straight.alike])
    assert len(joined) <= len(each)
    for stored in (False, True):
        found = [{n for a in some if a.store is stored for n in a.points().tolist()} for some in (each, joined)]  # type: ignore[union-attr]
        assert found[0] == found[1]


@examples(200)
@given(
    st.lists(
        st.tuples(SMALL, st.integers(1, 8), st.integers(-9, 9), st.sampled_from([1, 1, 3])), min_size=1, max_size=4
    ),
    st.integers(-40, 40),
)
def test_what_is_far_apart_does_not_meet(places: list[tuple[int, int, int, int]], stride: int) -> None:
    """Where an iteration's step is as large as all that it touches, no element is touched by two."""
    inner, loop, x = {"r": 4}, Loop("i", 3, (), parallel=True), Register("x", "f32", 8)
    ops = []
    for at, lanes, step, rows in places:
        index = Affine(at, tuple([(name, by) for name, by in (("i", stride), ("r", step)) if by]))
        ops.append(Op("vmovups", x, (Memory("a", index, "f32", lanes * rows, rows, 11 if rows > 1 else 0),)))
    program = Program("p", "avx2", (Tensor("a", "f32", 999),), ())
    far = _far_apart(program, loop, [(alike, inner) for alike in Straight(ops).alike])
    points = [access_of(program, memory, stored, inner).points() for memory, stored, _ in Straight(ops).accesses]
    one = {n for some in points if some is not None for n in some.tolist()}
    width = max(one) - min(one) + 1
    assert far == (abs(stride) >= width)
    if far:
        assert not any(one & {n + turn * stride for n in one} for turn in (1, 2))
