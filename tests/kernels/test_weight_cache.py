"""Weights of recent products and their panels: used again where the bytes are the same, and only there."""

import gc
import importlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack, weight_cache
from tests.effort import one_in

RNG = np.random.default_rng(0)
SRC = RNG.integers(0, 256, (9, 200), np.uint8)
WEIGHTS = RNG.integers(-128, 128, (200, 150)).astype(np.int8)


@pytest.fixture(autouse=True)
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Array]]:
    """The weights that are packed, with nothing known ahead."""
    seen: list[Array] = []
    own = pack.pack

    def noted(weights: Array, layout: pack.Layout) -> tuple[Array, Array]:
        seen.append(weights)
        return own(weights, layout)

    monkeypatch.setattr(pack, "pack", noted)
    monkeypatch.setattr(weight_cache, "_LEAST", 1 << 13)
    monkeypatch.setattr(importlib.import_module("simdnn.primitives.reorder"), "_LEAST", 1 << 16)  # NumPy packs fewer
    for name in ("_known", "_met"):
        monkeypatch.setattr(weight_cache, name, OrderedDict())
    monkeypatch.setattr(weight_cache, "_held", 0)
    yield seen


def product(weights: Array, src: Array = SRC, dispatch: str = "fastest") -> Array:
    return simdnn.matmul(src, weights, machine="clx", dispatch=dispatch).output


def test_weights_that_are_known_are_packed_once(packed: list[Array]) -> None:
    weights = WEIGHTS.copy()
    first = product(weights)
    np.testing.assert_array_equal(first, SRC.astype(int) @ weights)
    assert not weight_cache._known  # met once
    for _ in range(3):
        np.testing.assert_array_equal(first, product(weights.copy()))
    assert len(packed) == 2
    product(weights, dispatch="gemm:avx512_core_int8_exact")  # whose panels are others
    assert len(packed) == 3
    for place in ((0, 0), (57, 80), (-1, -1), (120, 3)):  # a caller may change the array
        weights[place] ^= 1
        for _ in range(3):
            np.testing.assert_array_equal(product(weights), SRC.astype(int) @ weights)


def test_numbers_that_are_equal_are_other_bits(packed: list[Array]) -> None:
    ones, zeros = np.ones((4, 64), np.float32), np.zeros((64, 80), np.float32)
    for weights in (zeros, zeros, -zeros, -zeros, zeros, -zeros):
        product(weights, ones)
    assert len(packed) == 4
    nan = np.full((64, 80), np.nan, np.float32)
    assert all(np.isnan(product(nan, ones)).all() for _ in range(4))
    assert len(packed) == 6


def test_sums_of_weights_are_those_of_the_weights() -> None:
    """A source of s8 on VNNI wants them, zero points too."""
    src = SRC.view(np.int8)
    for zero in (None, 3, -5):
        for weights in (WEIGHTS, WEIGHTS // 2, WEIGHTS, WEIGHTS // 2):
            attr = None if zero is None else simdnn.Attr(zero_points={"src": np.int32(zero)})
            found = simdnn.matmul(src, weights, machine="clx", attr=attr).output
            np.testing.assert_array_equal(found, (src.astype(int) - (zero or 0)) @ weights.astype(int))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_cache, "_MOST", 100_000)
    monkeypatch.setattr(weight_cache, "_FEW", 5)
    for number in range(6):
        for _ in range(2):
            product(np.roll(WEIGHTS, number))
        assert weight_cache._held == sum(known.nbytes for known in weight_cache._known.values()) <= 100_000
    assert len(weight_cache._known) == 1 and len(weight_cache._met) == 5


def test_reordered_weights_are_unpacked_once(packed: list[Array], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = simdnn.estimate("matmul", m=9, n=150, k=200, dt="u8:s8:s32", machine="clx").weights_desc
    weights = simdnn.reorder(WEIGHTS, wanted, machine="clx")
    unpacked: list[object] = []
    own = pack.unpack

    def noted(*given: Any) -> Array:
        unpacked.append(given)
        return own(*given)

    monkeypatch.setattr(pack, "unpack", noted)
    outputs = [simdnn.matmul(SRC, weights, machine="clx").output for _ in range(3)]
    assert len(unpacked) == 1 and not packed
    for output in outputs:
        np.testing.assert_array_equal(output, SRC.astype(int) @ WEIGHTS)
    own_values = weights.plain()
    own_values[:] = 0  # a copy
    np.testing.assert_array_equal(weights.plain(), WEIGHTS)
    with pytest.raises(ValueError, match="read-only"):
        next(iter(weights.tensors.values()))[0] = 1


def test_weights_that_change_are_packed_by_a_program_in_time(packed: list[Array]) -> None:
    """The first times NumPy is faster than to compile it; then no number changes."""
    shape = 130, 515  # columns beyond whole panels
    for _ in range(5):
        weights = RNG.integers(-128, 128, shape, np.int8)
        found = product(weights, SRC[:, :130].copy())
        np.testing.assert_array_equal(found, SRC[:, :130].astype(int) @ weights)
    assert len(packed) == 2


def test_weights_of_a_model_are_known_however_they_are_turned(packed: list[Array]) -> None:
    """They are not compared, and a view is another matrix than what it views."""
    stored, before = WEIGHTS.T.copy(), set(weight_cache._fixed.values())
    weight_cache.fix(stored)
    own = set(weight_cache._fixed.values()) - before
    with pytest.raises(ValueError, match="read-only"):
        stored[0, 0] = 1
    for _ in range(4):
        np.testing.assert_array_equal(product(stored.T), SRC.astype(int) @ WEIGHTS)
    assert len(packed) == 2  # met once, then kept
    half = stored.T[:, 75:]
    for _ in range(3):
        np.testing.assert_array_equal(product(half), SRC.astype(int) @ WEIGHTS[:, 75:])
    assert len(packed) == 4
    del stored, half  # its memory may be another array's next
    gc.collect()
    assert own and own.isdisjoint(weight_cache._fixed.values())


def test_weights_in_bytes_are_not_compared(packed: list[Array], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody changes them; others may lie in their memory once they are gone."""
    for number in range(2):
        weights = np.frombuffer((WEIGHTS + number).tobytes(), np.int8).reshape(WEIGHTS.shape)
        with monkeypatch.context() as patch:
            patch.setattr(weight_cache, "_compare", None)
            for _ in range(3):
                np.testing.assert_array_equal(product(weights[:, 1:]), SRC.astype(int) @ weights[:, 1:])
        del weights
    assert len(packed) == 4  # met once each, then kept


@one_in(2)
@pytest.mark.parametrize("src", ["f32", "u8", "s8"])
def test_what_goes_with_new_weights_is_that_of_the_call(src: str) -> None:
    """Their sums are made anew, and so is what a bias has become."""
    wei = fmt("f32" if src == "f32" else "s8").dtype
    attr = simdnn.Attr() if src == "f32" else simdnn.Attr(scales={"wei": np.float32(0.5)}, zero_points={"src": 3})
    values = RNG.integers(0, 100, (5, 64)).astype(fmt(src).dtype)
    for number in range(6):
        weights = RNG.integers(-9, 9, (64, 70)).astype(wei)
        bias = None if number % 2 else np.full(70, number, np.float32)
        found = [
            simdnn.matmul(values, weights, bias, machine="zen4", attr=attr, engine=engine)
            for engine in ("auto", "reference")
        ]
        np.testing.assert_array_equal(found[0].output, found[1].output)


@pytest.mark.parametrize("dtypes", ["f32:f32", "bf16:bf16", "s8:s8"])
@pytest.mark.parametrize(("m", "k", "n"), [(5, 70, 50), (1, 64, 96), (4, 1, 2200)])
def test_a_result_has_weights_that_were_new_as_they_were(m: int, k: int, n: int, dtypes: str) -> None:
    """They are read where the caller has them, and are the caller's again when the product is there."""
    src_type, wei_type = (fmt(name).dtype for name in dtypes.split(":"))
    src = RNG.integers(0, 100, (m, k)).astype(src_type)
    for _ in range(4):  # the last ones are packed by a program
        weights = RNG.integers(-100, 100, (k, n)).astype(wei_type)
        before, result = weights.copy(), simdnn.matmul(src, weights, machine="zen4")
        weights[...] = 0
        np.testing.assert_array_equal(result._operands.weights.view(np.uint8), before.view(np.uint8))
    assert result.explain(0, 0).value == result.output[0, 0]


@pytest.mark.parametrize(("groups", "spatial"), [(1, 1), (1, 2), (1, 3), (2, 2), (32, 2)])
def test_a_convolution_has_weights_that_were_new_as_they_were(groups: int, spatial: int) -> None:
    src = RNG.standard_normal((1, 32, *(6,) * spatial), dtype=np.float32)
    for _ in range(4):
        weights = RNG.standard_normal((32, 32 // groups, *(3,) * spatial), dtype=np.float32)
        before, result = weights.copy(), simdnn.convolution(src, weights, groups=groups, machine="zen4")
        weights[...] = np.nan
        np.testing.assert_array_equal(result._operands.weights.reshape(before.shape), before)
