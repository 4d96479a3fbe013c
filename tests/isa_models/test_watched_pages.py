"""Memory that is watched counts as written whenever it was, by whomever; weights that are watched are never taken for
what they were.
"""

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models.host import watched_pages
from isa_models.host.memory import address
from isa_models.readings.arrays import Array
from simdnn.kernels.common import weight_cache

SIZE = 1 << 18
KNOWS = watched_pages.watch(np.zeros(SIZE, np.uint8)) is not None
needs_the_system = pytest.mark.skipif(not KNOWS, reason="this system does not tell what is written")


def watched(array: Array) -> watched_pages.WatchedPages:
    watch = watched_pages.watch(array)
    assert watch and watch.renew() and not watch.written()
    return watch


def renewed(watch: watched_pages.WatchedPages) -> None:
    assert watch.renew() and not watch.written()


@pytest.fixture
def array() -> Array:
    return np.zeros(SIZE, np.uint8)


@needs_the_system
def test_who_writes_does_not_matter(array: Array) -> None:
    watch = watched(array)
    assert array.sum() == 0 and not watch.written()
    view = array[5::7]
    view[len(view) // 2] = 1
    assert watch.written() and watch.written()
    renewed(watch)
    with open("/dev/zero", "rb") as file:
        file.readinto(memoryview(array)[SIZE // 2 :][:1])  # type: ignore[attr-defined]
    assert watch.written()
    renewed(watch)
    thread = threading.Thread(target=array.fill, args=(3,))
    thread.start()
    thread.join()
    assert watch.written()
    renewed(watch)
    array.setflags(write=False)
    assert not watch.written()
    view[:] = 5  # a view of before may write
    assert watch.written()


@needs_the_system
@given(st.integers(0, SIZE - 1))
def test_any_byte_is_on_a_page_or_beside(place: int) -> None:
    array = np.zeros(SIZE, np.uint8)
    watch = watched(array)
    array[place] = 1
    at = address(array) + place
    assert watch.written() != any(first <= at < end for first, end in watch.beside)
    watched_pages.leave(watch)
    assert watch.written()


@needs_the_system
def test_one_of_two_over_the_same_pages_ends(array: Array) -> None:
    """The pages that one renews would hide earlier writes from the other."""
    first, second = watched(array), watched(array[SIZE // 4 :])
    assert first.ended and first.written() and not first.renew()
    assert not second.written()


@needs_the_system
def test_memory_of_others_is_not_watched(array: Array) -> None:
    assert watched_pages.watch(np.frombuffer(bytearray(SIZE), np.uint8)) is None
    assert watched_pages.watch(array[:100]) is None  # no page is its own
    assert watched_pages.watch(array[SIZE // 2 :]) is not None


@needs_the_system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_none_of_its_parents_notes(array: Array) -> None:
    watch = watched(array)
    if not (child := os.fork()):
        own = watched_pages.watch(array)
        good = own is not None and own.renew() and not own.written() and watch.written() and not watch.renew()
        array[0] = array[-1] = array[SIZE // 2] = 1
        os._exit(0 if good and own is not None and own.written() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not watch.written() and not array.any()


STEPS = st.tuples(st.integers(0, 299), st.integers(0, 511), st.sampled_from([0, 0, 1, 128]), st.integers(0, 7))


@pytest.mark.parametrize("knows", [False, pytest.param(True, marks=needs_the_system)])
@given(steps=st.lists(STEPS, min_size=1, max_size=8))
def test_known_weights_are_what_the_caller_has(knows: bool, steps: list[tuple[int, int, int, int]]) -> None:
    """On a system that tells what is written, and on one that does not."""
    weights = np.random.default_rng(1).integers(0, 256, (300, 512), np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        if not knows:
            patch.setattr(watched_pages, "_system", lambda: None)
        for _ in range(9):
            known = weight_cache.kept(weights)
        assert known.stays and weight_cache.kept(weights) is known and (known._watch is not None) == knows
        for row, column, change, times in steps:
            weights[row, column] ^= change
            for _ in range(times):
                np.testing.assert_array_equal(weight_cache.kept(weights).values, weights)
        np.testing.assert_array_equal(weight_cache.kept(weights.copy()).values, weights)


@needs_the_system
def test_weights_in_memory_that_was_anothers() -> None:
    """Arrays come and go at the same address, and each is known for what it holds."""
    rng = np.random.default_rng(2)
    for number in range(12):
        weights = rng.integers(0, 2, (512, 512), np.uint8) + np.uint8(number)
        for _ in range(7):
            np.testing.assert_array_equal(weight_cache.kept(weights).values, weights)
        if number % 3:
            weights[number, 7] = 99
            np.testing.assert_array_equal(weight_cache.kept(weights).values, weights)
        del weights
