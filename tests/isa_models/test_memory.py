"""Memory of large arrays comes back with the last array over it, and never before; zeros are zeros each time."""

import pickle
import sys

import numpy as np
import pytest

import simdnn
from isa_models.host import memory
from isa_models.readings.arrays import copied_to_a_line, on_a_line

SIZE = 3 << 20


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_kept", {})


def test_pages_are_used_again() -> None:
    first = on_a_line(SIZE // 4, np.float32)
    first[:] = np.nan
    place = first.ctypes.data
    view = first[5:]
    del first
    assert on_a_line(SIZE // 4, np.float32).ctypes.data != place  # which the view still shows
    assert np.isnan(view).all()
    del view
    again = on_a_line(SIZE // 4 - 100, np.float32)  # nearly as large
    assert again.ctypes.data == place and again.size == SIZE // 4 - 100
    assert not again.any()


def test_copies_have_their_values_and_shape() -> None:
    for number in range(3):
        array = np.full((3, 1 << 17), number, np.int16)
        copy = copied_to_a_line(array.T)
        assert copy.shape == (1 << 17, 3) and (copy == number).all() and copy.ctypes.data % memory.LINE == 0


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST", 4 << 20)
    several = [memory.empty(1 << 20) for _ in range(9)] + [memory.empty(1 << 19)]
    del several
    assert len(memory._kept[1 << 20]) == 4
    memory.empty(1 << 18)
    assert 3 << 20 < sum(home.memory.nbytes for kept in memory._kept.values() for home in kept) <= 4 << 20


@pytest.mark.parametrize("size", [1 << 10, 1 << 13, 3 << 16])
def test_who_asks_again_and_again_has_memory_that_was_used(size: int) -> None:
    take = memory.taker(size, np.dtype("f4"), (4, size // 16))
    first, second = take(), take()
    assert first.shape == (4, size // 16) and not np.shares_memory(first, second)
    assert first.ctypes.data % memory.LINE == second.ctypes.data % memory.LINE == 0
    place, view = first.ctypes.data, first[1:]
    del first
    assert take().ctypes.data != place  # which the view still shows
    del view, second
    many = [take() for _ in range(40)]
    assert len({array.ctypes.data for array in many}) == 40
    del many
    kept = sum(map(len, memory._kept.values()))
    assert kept == (0 if size == 1 << 10 else 16 if size == 1 << 13 else 40)


@pytest.mark.parametrize("elements", [10, 2000, 1 << 16])
def test_memory_of_two_arrays_is_used_again_once_both_are_gone(elements: int) -> None:
    take = memory.taker_of_two(np.zeros((3, elements), np.int8), np.zeros(elements, "f4"))
    first, second = take()
    second[...], first[...] = 2, 1
    assert first.ctypes.data % memory.LINE == second.ctypes.data % memory.LINE == 0
    del first
    others = [take() for _ in range(3)]
    for other, another in others:
        other[...], another[...] = 3, 4
    assert (second == 2).all() and all((one == 3).all() for one, _ in others)


def test_an_interrupt_is_never_lost() -> None:
    """Memory comes back without a line of Python, whose exceptions a destructor would swallow."""
    lines: list[str] = []
    block = memory.empty(1 << 20)
    sys.setprofile(lambda frame, event, _: lines.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del block
    finally:
        sys.setprofile(None)
    assert not lines and len(memory._kept[1 << 20]) == 1


def test_outputs_of_two_products_are_apart() -> None:
    """One that is held keeps its numbers, whatever runs after it; so does its pickle."""
    rng = np.random.default_rng(0)
    src = rng.integers(0, 256, (300, 8), np.uint8)
    weights = rng.integers(-128, 128, (2, 8, 400)).astype(np.int8)
    outputs = [simdnn.matmul(src, wei, machine="zen4").output for wei in weights]
    copy = pickle.loads(pickle.dumps(outputs[0]))
    for _ in range(3):
        simdnn.matmul(src, weights[1], machine="zen4")
    for wei, output in zip(weights, outputs, strict=True):
        np.testing.assert_array_equal(output, src.astype(int) @ wei.astype(int))
    np.testing.assert_array_equal(copy, outputs[0])
