"""Numbers to blocks: the bits of ggml's `quantize_row_*_ref`, and of what quantizes activations on AVX and above.

All of it in f32, each step rounded, none fused. x is an element of a block, id the inverse of its scale d:

q8_0, q8_1  d = amax / 127; q = x id, halves away from zero. q8_1 keeps f16(sum of q * d) beside.
  on AVX    id = 127 / amax, halves to even
q4_0, q5_0  d = m / -8 or m / -16, m the first element of the greatest magnitude with its sign: it has the least code.
            q = x id + 8.5 or 16.5, cut off, at most 15 or 31
q4_1, q5_1  d = (greatest - least) / 15 or 31; q = (x - least) id + 0.5, cut off
mxfp4       2**(floor(log2 amax) - 2), in e8m0; the code of the nearest of its 15 numbers, the first of two as near
nvfp4       amax / 6 of 16 in ue4m3, halves up; codes as mxfp4's
q8_K        id = -127 / m; q = x id, halves to even; d = 1 / id, in f32, and the sums of 16 q each

Scales are stored in f16; codes come of the scale before that. Where 1 / d is infinite, what a C compiler makes of
infinity is kept: codes of zero, and on AVX -128.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from isa_models.block_formats import (
    DOUBLED,
    F32,
    HALF_UE4M3,
    U8,
    StoredBlocks,
    block_format,
    half_power,
    packed_nibbles,
)
from isa_models.errors import InvalidArgument, Unimplemented

_ONE, _LIMIT = np.float32(1), np.float32(2**31)
Encode = Callable[[F32, StoredBlocks], None]  # elements (n, elements) -> blocks (n,), which it fills


def encode_blocks(values: NDArray[np.float32], name: str, *, by_avx: bool = False) -> StoredBlocks:
    """The blocks (…, n) of f32 (…, n * elements): neighbours along the last axis share one.

    `by_avx`: q8_0 and q8_1 as ggml brings activations to them on AVX and above, another rounding. Raises
    `Unimplemented` for types that are only read, `InvalidArgument` for other arrays, NaN and infinity, and rows of no
    whole blocks.

    >>> blocks = encode_blocks(np.arange(32, dtype=np.float32), "q8_0")
    >>> float(blocks["scale"][0]), blocks["q"][0, :4].tolist()
    (0.244140625, [0, 4, 8, 12])
    """
    form = block_format(name)
    if name not in _ENCODERS:
        raise Unimplemented(f"{name} blocks are read, not made; made: {', '.join(_ENCODERS)}")
    if values.dtype != np.float32 or not values.ndim or values.shape[-1] % form.elements:
        met = f"{values.dtype} of shape {values.shape}"
        raise InvalidArgument(f"{name} blocks of {met}; rows of f32, a multiple of {form.elements} long, are needed")
    if not np.isfinite(values).all():
        raise InvalidArgument("NaN or infinity among the values; finite ones are needed to find scales")
    found = np.zeros((*values.shape[:-1], values.shape[-1] // form.elements), form.layout)
    encode = _ON_AVX.get(name, _ENCODERS[name]) if by_avx else _ENCODERS[name]
    with np.errstate(all="ignore"):
        encode(values.reshape(-1, form.elements), found.reshape(-1))
    return found


def extreme(x: F32) -> F32:
    """The first element of the greatest magnitude of each row, with its sign: (n, 1)."""
    return _first(x, np.abs(x).argmax(axis=1))


def _first(x: F32, places: NDArray[np.intp]) -> F32:
    """The element of each row at a place: (n, 1)."""
    return np.take_along_axis(x, places[:, None], axis=1)


def _inverse(d: F32) -> F32:
    return np.where(d != 0, _ONE / d, np.float32(0)).astype(np.float32)


def _cut(x: F32, high: int) -> U8:
    """Floats cut off to integers, at most `high`; what no s32 holds becomes 0, as the low byte of its conversion."""
    inside = np.abs(x) < _LIMIT
    return np.minimum(np.where(inside, x, np.float32(0)).astype(np.int32).astype(np.uint8), np.uint8(high))


def _away(x: F32) -> NDArray[np.int8]:
    """The nearest integer, halves away from zero."""
    whole = np.trunc(x)
    rounded = whole + np.where(np.abs(x - whole) >= np.float32(0.5), np.copysign(_ONE, x), np.float32(0))
    return np.where(np.isfinite(x), rounded, np.float32(0)).astype(np.int8)


def _even(x: F32, infinite: int = 0) -> NDArray[np.int8]:
    return np.where(np.isfinite(x), np.rint(x), np.float32(infinite)).astype(np.int8)


def _store_codes(blocks: StoredBlocks, codes: U8) -> None:
    """Nibbles, and the fifth bits where blocks have them."""
    blocks["q"] = packed_nibbles(codes & 15)
    if "high" in (blocks.dtype.names or ()):
        blocks["high"] = np.packbits(codes >> 4, axis=-1, bitorder="little")


def _around_zero(bits: int) -> Encode:
    middle = 1 << bits - 1

    def encode(x: F32, blocks: StoredBlocks) -> None:
        d = (extreme(x) + np.float32(0)) / np.float32(-middle)  # of a block of zeros it is 0 whatever their signs
        blocks["scale"] = d[:, 0]
        _store_codes(blocks, _cut(x * _inverse(d) + np.float32(middle + 0.5), 2 * middle - 1))

    return encode


def _from_least(bits: int) -> Encode:
    high = (1 << bits) - 1

    def encode(x: F32, blocks: StoredBlocks) -> None:
        least, most = (_first(x, found) for found in (x.argmin(axis=1), x.argmax(axis=1)))  # zeros have signs
        d = (most - least) / np.float32(high)
        blocks["scale"], blocks["minimum"] = d[:, 0], least[:, 0]
        _store_codes(blocks, _cut((x - least) * _inverse(d) + np.float32(0.5), high))

    return encode


def _bytes(x: F32, blocks: StoredBlocks) -> None:
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    _store_bytes(blocks, d, _away(x * _inverse(d)))


def _bytes_on_avx(x: F32, blocks: StoredBlocks) -> None:
    amax = np.abs(x).max(axis=1, keepdims=True)
    inverse = np.where(amax != 0, np.float32(127) / amax, np.float32(0)).astype(np.float32)
    _store_bytes(blocks, amax / np.float32(127), _even(x * inverse, -128), np.isfinite(inverse)[:, 0])


def _store_bytes(
    blocks: StoredBlocks, d: F32, codes: NDArray[np.int8], counted: bool | NDArray[np.bool_] = True
) -> None:
    """Scale and codes, and their sum where blocks have one: that of 32 times the least s32, which wraps, is 0."""
    blocks["scale"], blocks["q"] = d[:, 0], codes
    if "sum" in (blocks.dtype.names or ()):
        blocks["sum"] = (codes.sum(axis=1, dtype=np.int32) * counted).astype(np.float32) * d[:, 0]


def _bytes_k(x: F32, blocks: StoredBlocks) -> None:
    inverse = np.where((m := extreme(x)) != 0, np.float32(-127) / m, np.float32(0)).astype(np.float32)
    blocks["q"] = np.minimum(_even(x * inverse), np.int8(127))
    blocks["scale"] = np.where(inverse != 0, _ONE / inverse, np.float32(0))[:, 0]
    blocks["sums"] = blocks["q"].reshape(-1, 16, 16).sum(axis=2, dtype=np.int16)


def _nearest(x: F32, step: F32) -> U8:
    """Codes of 4-bit floats times `step` (n, 1): the first of those that are nearest in f32."""
    off = np.abs(DOUBLED.astype(np.float32) * step[..., None] - x[..., None])
    found: U8 = off.argmin(axis=-1).astype(np.uint8)
    return found


def _mxfp4(x: F32, blocks: StoredBlocks) -> None:
    amax = np.abs(x).max(axis=1)
    power = np.floor(np.log2(amax.astype(np.float64)).astype(np.float32)) + np.float32(127 - 2)
    blocks["scale"] = np.where(amax > 0, power, np.float32(0)).astype(np.int32).astype(np.uint8)
    blocks["q"] = packed_nibbles(_nearest(x, half_power(blocks)))


def _nvfp4(x: F32, blocks: StoredBlocks) -> None:
    groups = x.reshape(-1, 4, 16)
    blocks["scale"] = _ue4m3(np.abs(groups).max(axis=2) / np.float32(6))
    step = HALF_UE4M3[blocks["scale"]]
    blocks["q"] = packed_nibbles(_nearest(groups, step[..., None]))


def _ue4m3(x: F32) -> U8:
    """f8_e4m3 of f32 from zero on, as ggml rounds it: the highest dropped bit is added, and 15 is the last exponent."""
    bounded = np.minimum(x, np.float32(448))
    bits = bounded.view(np.uint32).astype(np.int64)
    exponent, mantissa = (bits >> 23) - 120, (bits >> 20 & 7) + (bits >> 19 & 1)
    exponent, mantissa = exponent + (mantissa > 7), mantissa & 7
    small = np.minimum((bounded * np.float32(512) + np.float32(0.5)).astype(np.int64), 7)
    normal = np.where(exponent >= 15, 0x7E, exponent << 3 | mantissa)
    return np.where(x > 0, np.where((bits >> 23) <= 120, small, normal), 0).astype(np.uint8)


_ENCODERS: dict[str, Encode] = {
    "q4_0": _around_zero(4),
    "q4_1": _from_least(4),
    "q5_0": _around_zero(5),
    "q5_1": _from_least(5),
    "q8_0": _bytes,
    "q8_1": _bytes,
    "q8_K": _bytes_k,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
}
_ON_AVX: dict[str, Encode] = {"q8_0": _bytes_on_avx, "q8_1": _bytes_on_avx}
ENCODED = tuple(_ENCODERS)  # the types that are made here
