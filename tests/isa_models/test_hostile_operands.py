"""Instructions with operands, immediates and lanes that nobody would give: a typed error, by call and by `explain`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import SimdnnError, instruction

BYTES, ROW = np.ones(8, np.int8), np.ones(4, np.float32)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("vpdpbusd", ([[1], [1, 2]], [1] * 4, [1] * 4), {}, r"operand acc: met \[\[1\], \[1, 2\]\]; a number or an array"),
    ("vpdpbusd", ([], [1] * 4, [1] * 4), {}, r"operand acc: met \[\]; a number"),
    ("vpdpbusd", ([1], ["a"] * 4, [1] * 4), {}, r"operand a: met \['a', 'a', .*; a number"),
    ("vpdpbusd", ([1], [None] * 4, [1] * 4), {}, "operand a: met .None, .*; a number"),
    ("vpdpbusd", ([1], range(10**13), [1] * 4), {}, r"operand a: met range\(0, 10000000000000\); a number"),
    ("tdpfp16ps", ("add", np.ones((8, 16), np.int32), "x"), {}, "met 'add'; a number"),
    ("vroundpd", (np.ones(4),), {"imm": 1.5}, "immediate imm is 1.5"),
    ("vroundpd", (np.ones(4),), {"imm": None}, "immediate imm is None"),
    ("vroundpd", (np.ones(4),), {"imm": np.ones(2)}, "immediate imm is array"),
    ("vpbroadcastd", ([1],), {"lanes": "a"}, "lanes='a'; a whole number from 1 to 4096"),
    ("vpbroadcastd", ([1],), {"lanes": 10**9}, "lanes=1000000000; a whole number from 1 to 4096"),
    ("max.f32.fold", (ROW,), {"lanes": 3}, "lanes=3; operands make 2"),
]


@pytest.mark.parametrize(("name", "operands", "named", "said"), CALLS)
def test_what_is_no_operand(name: str, operands: tuple[Any, ...], named: dict[str, Any], said: str) -> None:
    for call in (instruction(name), lambda *given, **more: simdnn.explain(name, *given, **more)):
        with pytest.raises(SimdnnError, match=said):
            call(*operands, **named)


@pytest.mark.parametrize("array", [np.ones((8, 16), np.float64), np.ones((2, 8), np.int8)])
def test_several_vectors_are_not_explained(array: np.ndarray) -> None:
    with pytest.raises(SimdnnError, match="one vector for each operand is explained, not shapes"):
        simdnn.explain("vinsertf64x4", array, BYTES, imm=1)


def test_a_fold_has_half_the_lanes_that_it_is_given() -> None:
    fold = instruction("max.f32.fold")
    for lanes in (1, 2, 8, 32):
        numbers = np.arange(2 * lanes, dtype=np.float32)
        assert (
            fold(numbers).tolist()
            == simdnn.explain("max.f32.fold", numbers).value.tolist()
            == [*range(lanes, 2 * lanes)]
        )
