"""4-bit integers and floats as they are stored: two to a byte, the element of even index in the low nibble.

Elements are counted over the whole array in C order, so where a row has an odd number of them, a byte holds the last
of one row and the first of the next. An odd total leaves the last high nibble 0.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod

import ml_dtypes
import numpy as np
import numpy.typing as npt

from isa_models import InvalidArgument
from isa_models.errors import counted
from isa_models.formats import fmt
from isa_models.keywords import keywords
from isa_models.readings.arrays import Array, held

_LONGEST = 1 << 40  # elements along an axis
_TYPES = {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "f4_e2m1": ml_dtypes.float4_e2m1fn}


@keywords
def pack_nibbles(array: Array) -> npt.NDArray[np.uint8]:
    """The stored bytes, (size + 1) // 2 of them, of an array of ml_dtypes int4, uint4 or float4_e2m1fn.

    >>> pack_nibbles(np.array([1, -2, 7], ml_dtypes.int4)).tolist()  # 0xe1, 0x07
    [225, 7]

    Raises `InvalidArgument` for an array of another type.
    """
    if not isinstance(held("array", array), np.ndarray) or array.dtype not in _TYPES.values():
        met = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise InvalidArgument(f"array of {met}; float4_e2m1fn, int4 or uint4 is needed: .astype(ml_dtypes.int4)")
    nibbles = np.zeros(array.size + array.size % 2, np.uint8)
    flat = np.ascontiguousarray(array).reshape(-1)
    nibbles[: array.size] = (flat if array.dtype == _TYPES["f4_e2m1"] else flat.astype(np.int8)).view(np.uint8) & 15
    packed: npt.NDArray[np.uint8] = np.bitwise_or(nibbles[0::2], nibbles[1::2] << 4, dtype=np.uint8)
    return packed


@keywords
def unpack_nibbles(packed: npt.NDArray[np.uint8], dtype: str, shape: int | Sequence[int]) -> Array:
    """The array of `shape` and `dtype`, "s4", "u4" or "f4_e2m1", that `pack_nibbles` stored.

    >>> unpack_nibbles(np.array([225, 7], np.uint8), "s4", 3).astype(int).tolist()
    [1, -2, 7]

    Raises `InvalidArgument` for another type, and where the bytes are not those of the shape.
    """
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise InvalidArgument(f"dtype {dtype!r}; allowed: {', '.join(_TYPES)}")
    if not isinstance(packed, np.ndarray) or packed.dtype != np.uint8 or packed.ndim != 1:
        met = f"{packed.dtype} {packed.shape}" if isinstance(packed, np.ndarray) else type(packed).__name__
        raise InvalidArgument(f"packed is {met}; one dimension of uint8 is needed")
    try:
        sizes = [operator.index(size) for size in (shape if isinstance(shape, Sequence) else (shape,))]
    except TypeError:
        raise InvalidArgument(f"shape={shape!r}; integers are needed") from None
    count = prod(sizes)
    if max(sizes, default=0) > _LONGEST:
        raise InvalidArgument(f"shape={shape!r:.80}; sizes up to {_LONGEST} are allowed")
    if min(sizes, default=0) < 0 or packed.size != (count + 1) // 2:
        raise InvalidArgument(
            f"{counted(packed.size, 'byte')} for shape {tuple(sizes)} of {dtype}; {(count + 1) // 2} are needed"
        )
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[:count]
    if fmt(dtype).is_float:
        return nibbles.reshape(sizes).view(_TYPES[dtype])
    if fmt(dtype).signed:
        nibbles = ((nibbles ^ 8) - 8).view(np.int8)
    return nibbles.reshape(sizes).astype(_TYPES[dtype])
