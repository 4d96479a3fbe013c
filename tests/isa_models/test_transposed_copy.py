"""Arrays with turned axes copied into C order: the elements are NumPy's, whichever way they move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models.host.memory import LINE
from isa_models.readings import transposed_copy
from tests.effort import one_in

SIZES = st.sampled_from([1, 2, 4, 8, 3])  # no compiled code moves three bytes


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code from the first copy on, however small."""
    monkeypatch.setattr(transposed_copy, "_SOON", 0)
    monkeypatch.setattr(transposed_copy, "_LEAST", 1)
    transposed_copy._turn.cache_clear()


def elements(shape: tuple[int, ...], size: int) -> transposed_copy.Array:
    count = int(np.prod(shape))
    numbers = np.random.default_rng(count).integers(0, 256, count * size, np.uint8)
    return numbers.view(f"V{size}" if size == 3 else f"u{size}").reshape(shape)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda s: np.prod(s) < 1 << 16), SIZES, st.data())
def test_elements_of_any_view(shape: list[int], size: int, data: st.DataObject) -> None:
    array = elements(tuple(shape), size).transpose(data.draw(st.permutations(range(len(shape)))))
    cut = [
        data.draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2)]))
        for _ in shape
    ]
    array = array[tuple(cut)]
    copy = transposed_copy.copied_in_order(array)
    assert copy.tobytes() == array.tobytes() and copy.shape == array.shape and copy.dtype == array.dtype
    assert copy.flags.c_contiguous and copy.ctypes.data % LINE == 0 and not np.shares_memory(copy, array)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [7, 8, 16, 17, 33])
@pytest.mark.parametrize("columns", [7, 8, 16, 17, 33])
def test_blocks_that_reach_back(size: int, rows: int, columns: int) -> None:
    """Of both dimensions with a part of a block at the end, in two images."""
    array = np.moveaxis(elements((2, rows, 3, columns), size), 1, -1)
    assert (transposed_copy.in_order(array) == array).all()


@one_in(3)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("channels", [2, 3, 5, 6, 7, 9, 12, 15])
def test_images_of_few_channels(size: int, channels: int) -> None:
    """There and back: few columns lie side by side in the copy, few rows in the original."""
    nchw = elements((2, channels, 5, 7), size)
    nhwc = transposed_copy.in_order(np.moveaxis(nchw, 1, -1))
    assert (nhwc == np.moveaxis(nchw, 1, -1)).all()
    assert (transposed_copy.in_order(np.moveaxis(nhwc, -1, 1)) == nchw).all()
    side = transposed_copy._SIDES[size]
    for array, block in ((np.moveaxis(nchw, 1, -1), (side, channels)), (np.moveaxis(nhwc, -1, 1), (channels, side))):
        turn = transposed_copy._turn(array.shape, array.strides, size)
        assert turn is not None and turn.block == (size, *(min(side, number) for number in block))


def test_few_of_many_channels_are_left_to_numpy() -> None:
    """Those of a group do not lie side by side."""
    array = np.moveaxis(elements((1, 8, 8, 24), 4)[..., :3], -1, 1)
    assert transposed_copy._turn(array.shape, array.strides, 4) is None
    assert (transposed_copy.in_order(array) == array).all()


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("near", [0, 1 << 19])
def test_columns_of_several_chunks(size: int, near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk is not whole, and its last block reaches back."""
    monkeypatch.setattr(transposed_copy, "_NEAR", near)
    transposed_copy._turn.cache_clear()
    columns = 2 * transposed_copy._CHUNK * transposed_copy._SIDES[size] + transposed_copy._SIDES[size] + 3
    array = np.moveaxis(elements((2, columns, 40), size), 1, -1)
    turn = transposed_copy._turn(array.shape, array.strides, size)
    assert turn is not None and (turn.sizes[-1] == transposed_copy._CHUNK) == bool(near)
    assert (transposed_copy.in_order(array) == array).all()
    transposed_copy._turn.cache_clear()


def test_blocks_are_taken() -> None:
    """Neither the shape that a convolution brings, nor its way back, is left to NumPy."""
    nchw = elements((2, 64, 14, 14), 4)
    for array in (np.moveaxis(nchw, 1, -1), np.moveaxis(nchw.reshape(2, 14, 14, 64), -1, 1)):
        assert transposed_copy._turn(array.shape, array.strides, 4) is not None


def test_what_is_in_order_stays() -> None:
    array = transposed_copy.in_order(elements((4, 5), 4))
    assert transposed_copy.in_order(array) is array


def test_few_elements_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is compiled once so much was turned that it had been worth it."""
    monkeypatch.setattr(transposed_copy, "_SOON", 1 << 12)
    monkeypatch.setattr(transposed_copy, "_waited", {})
    compiled: list[tuple[int, ...]] = []

    def function(block: tuple[int, ...]) -> Callable[..., None]:
        compiled.append(block)
        return lambda *_: None

    monkeypatch.setattr(transposed_copy, "_function", function)
    array = elements((32, 32), 2).T
    for _ in range(3):  # 2048 bytes each
        transposed_copy.copied_in_order(array)
    assert compiled == [(2, 8, 8)]
