"""4-bit integers in bytes, all of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn

TYPES = {"s4": (ml_dtypes.int4, range(-8, 8)), "u4": (ml_dtypes.uint4, range(16))}


@pytest.mark.parametrize("dtype", TYPES)
def test_every_pair(dtype: str) -> None:
    kind, values = TYPES[dtype]
    pairs = np.array([(low, high) for high in values for low in values])
    packed = simdnn.pack_nibbles(pairs.astype(kind))
    assert packed.dtype == np.uint8
    assert packed.tolist() == [low % 16 + 16 * (high % 16) for low, high in pairs.tolist()]
    back = simdnn.unpack_nibbles(packed, dtype, (256, 2))
    assert back.dtype == kind and (back.astype(int) == pairs).all()
    every = np.arange(256, dtype=np.uint8)
    assert (simdnn.pack_nibbles(simdnn.unpack_nibbles(every, dtype, 512)) == every).all()


def test_floats_of_four_bits_keep_their_codes() -> None:
    every = np.arange(256, dtype=np.uint8)
    codes = simdnn.unpack_nibbles(every, "f4_e2m1", (2, 256))
    assert codes.dtype == ml_dtypes.float4_e2m1fn and codes[0, 30:34].view(np.uint8).tolist() == [15, 0, 0, 1]
    assert (simdnn.pack_nibbles(codes) == every).all()
    odd = np.array([[1.5], [-0.0], [-6]], ml_dtypes.float4_e2m1fn)
    assert simdnn.pack_nibbles(odd).tolist() == [0x83, 0x0F]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (3, 5), (2, 0), (0,), (2, 3, 4)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    array = (np.arange(count) % 16).reshape(shape).astype(ml_dtypes.uint4)
    packed = simdnn.pack_nibbles(array)
    assert len(packed) == (count + 1) // 2
    assert count % 2 == 0 or packed[-1] < 16  # nothing in the last high nibble
    back = simdnn.unpack_nibbles(packed, "u4", shape)
    assert back.shape == shape and (back.astype(int) == array.astype(int)).all()


def test_order_in_memory_does_not_matter() -> None:
    array = np.arange(12).reshape(3, 4).astype(ml_dtypes.int4)
    assert (simdnn.pack_nibbles(array.T) == simdnn.pack_nibbles(np.ascontiguousarray(array.T))).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(2, np.uint8), "s8", 4), "allowed: s4, u4, f4_e2m1"),
        ((np.ones(2, np.int8), "s4", 4), "uint8"),
        (([1, 2], "s4", 4), "list"),
        ((np.ones((1, 2), np.uint8), "s4", 4), "one dimension"),
        ((np.ones(2, np.uint8), "s4", 5), "3 are needed"),
        ((np.ones(2, np.uint8), "s4", 2), "1 are needed"),
        ((np.ones(1, np.uint8), "s4", (-1, -2)), "for shape"),
        ((np.ones(1, np.uint8), "s4", 1.5), "integers"),
    ],
)
def test_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(simdnn.InvalidArgument, match=message):
        simdnn.unpack_nibbles(*arguments)


@pytest.mark.parametrize("array", [np.ones(3, np.int8), [1, 2], np.ones(3)])
def test_only_four_bit_arrays_are_packed(array: Any) -> None:
    with pytest.raises(simdnn.InvalidArgument, match="int4 or uint4"):
        simdnn.pack_nibbles(array)
