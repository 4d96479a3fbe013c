"""Block formats: integers that share a scale, stored with it, as ggml lays them out. One record each; names are ggml's.

A block's bytes are its fields in order, little-endian. What elements stand for is codes * scale + offset, in f32, two
roundings; a group of neighbours shares scale and offset. In blocks of 256 (the K types) scales and offsets are integers
themselves, times two f16 numbers of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, unknown_name
from isa_models.formats import decode

F32 = NDArray[np.float32]
U8 = NDArray[Any]  # bytes
StoredBlocks = NDArray[Any]  # of a record's `layout`
Unpack = Callable[[StoredBlocks], "Unpacked"]


class Unpacked(NamedTuple):
    """Codes (…, elements) of blocks (…,), scales and offsets (…, groups); None where there is no offset."""

    codes: NDArray[np.int8]
    scales: F32
    offsets: F32 | None = None


@dataclass(frozen=True)
class BlockFormat:
    """One type of block. `activations`: the type that the other side of its dot products is brought to, "" of a type
    that no weights have.

    >>> q4_0 = block_format("q4_0")
    >>> q4_0.bytes, q4_0.elements, q4_0.bits
    (18, 32, 4.5)
    """

    name: str
    layout: np.dtype[Any]
    elements: int
    group: int  # elements that share a scale
    codes: str  # the integers that the products are formed of: a number format
    parts: Unpack
    about: str  # how scale and codes come of x, and what they stand for
    activations: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Records pickle and copy by their names."""
        return block_format, (self.name,)

    @property
    def bytes(self) -> int:
        """Bytes of a block."""
        return self.layout.itemsize

    @property
    def bits(self) -> float:
        """Bits of an element, its part of the scales included."""
        return 8 * self.bytes / self.elements

    def of_bytes(self, stored: U8) -> StoredBlocks:
        """StoredBlocks (…, n) of bytes (…, n * bytes). Raises `InvalidArgument` for other bytes than whole blocks."""
        if stored.dtype != np.uint8 or not stored.ndim or stored.shape[-1] % self.bytes:
            met = f"{stored.dtype} of shape {stored.shape}"
            raise InvalidArgument(f"{self.name} blocks from {met}; rows of uint8, {self.bytes} a block, are needed")
        return np.ascontiguousarray(stored).view(self.layout)

    def values(self, blocks: StoredBlocks) -> F32:
        """The f32 values (…, elements) of blocks (…,): the bits that ggml's own dequantization yields."""
        with np.errstate(all="ignore"):
            codes, scales, offsets = self.parts(blocks)
            grouped = codes.reshape(*scales.shape, self.group).astype(np.float32)
            found = grouped * scales[..., None]
            found = found if offsets is None else found + offsets[..., None]
        return found.reshape(*blocks.shape, self.elements)


# -- codes ------------------------------------------------------------------------------------------------------------
def nibbles(q: U8) -> U8:
    """The 2n values of n bytes (…, n): the lower halves first, then the upper ones.

    >>> nibbles(np.array([0x21, 0x43], np.uint8)).tolist()
    [1, 3, 2, 4]
    """
    found: U8 = np.concatenate([q & 15, q >> 4], axis=-1)
    return found


def packed_nibbles(values: U8) -> U8:
    """The n bytes (…, n) of 2n values below 16: the inverse of `nibbles`."""
    half = values.shape[-1] // 2
    found: U8 = values[..., :half] | values[..., half:] << 4
    return found


def _bits(q: U8, count: int) -> U8:
    """Fields of `count` bits of n bytes (…, n): the lowest of all bytes first, then the next ones: (…, n * fields)."""
    fields = [q >> shift & (1 << count) - 1 for shift in range(0, 8, count)]
    found: U8 = np.concatenate(fields, axis=-1)
    return found


def _fifth_bits(blocks: StoredBlocks) -> U8:
    """The 32 upper bits of codes, 16 or 0: bit i of four bytes belongs to element i."""
    found: U8 = np.unpackbits(blocks["high"], axis=-1, bitorder="little") << 4
    return found


def _runs(q: U8, length: int, unpack: Callable[..., U8], *more: int) -> Any:
    """`unpack` of each run of `length` neighbouring bytes (…, n), its values one after the other."""
    runs = q.reshape(*q.shape[:-1], -1, length)
    return unpack(runs, *more).reshape(*q.shape[:-1], -1)


def _f32(field: NDArray[Any]) -> F32:
    """A number of a block, (…, 1)."""
    wide: F32 = field.astype(np.float32)[..., None]
    return wide


def _signed(codes: U8, middle: int = 0) -> NDArray[np.int8]:
    return (codes.astype(np.int16) - middle).astype(np.int8)


def _q5(blocks: StoredBlocks) -> U8:
    return nibbles(blocks["q"]) | _fifth_bits(blocks)


# -- blocks of 256 ----------------------------------------------------------------------------------------------------
def six_bits(packed: U8) -> tuple[U8, U8]:
    """Scales and minima (…, 8), of 6 bits each, of 12 bytes: four of each with their upper bits above, then nibbles."""
    first, second, last = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, last & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=-1)
    return scales, minima


def packed_six_bits(scales: U8, minima: U8) -> U8:
    """The 12 bytes of eight scales and eight minima: the inverse of `six_bits`.

    >>> given = np.arange(8, dtype=np.uint8) * 9, np.arange(8, dtype=np.uint8) * 7
    >>> [bool((part == own).all()) for part, own in zip(six_bits(packed_six_bits(*given)), given, strict=True)]
    [True, True]
    """
    uppers = [part[..., :4] | part[..., 4:] >> 4 << 6 for part in (scales, minima)]
    found: U8 = np.concatenate([*uppers, scales[..., 4:] & 15 | (minima[..., 4:] & 15) << 4], axis=-1)
    return found


def _six_bit_scales(packed: U8) -> NDArray[np.int8]:
    """16 scales from -32 to 31 of 12 bytes: nibbles of eight bytes, the upper two bits of all in the last four."""
    low = nibbles(packed[..., :8])
    high = _bits(packed[..., 8:], 2)
    return _signed(low | high << 4, 32)


def _q2_k(blocks: StoredBlocks) -> Unpacked:
    scales, d, m = blocks["scales"], _f32(blocks["scale"]), _f32(blocks["minimum"])
    codes = _runs(blocks["q"], 32, _bits, 2)
    return Unpacked(_signed(codes), d * (scales & 15), -(m * (scales >> 4)))


def _q3_k(blocks: StoredBlocks) -> Unpacked:
    above = _bits(blocks["high"], 1) << 2
    codes = _signed(_runs(blocks["q"], 32, _bits, 2) | above, 4)
    return Unpacked(codes, _f32(blocks["scale"]) * _six_bit_scales(blocks["scales"]))


def _with_minima(blocks: StoredBlocks, codes: U8) -> Unpacked:
    scales, minima = six_bits(blocks["scales"])
    return Unpacked(_signed(codes), _f32(blocks["scale"]) * scales, -(_f32(blocks["minimum"]) * minima))


def _q4_k(blocks: StoredBlocks) -> Unpacked:
    return _with_minima(blocks, _runs(blocks["q"], 32, nibbles))


def _q5_k(blocks: StoredBlocks) -> Unpacked:
    return _with_minima(blocks, _runs(blocks["q"], 32, nibbles) | _bits(blocks["high"], 1) << 4)


def _q6_k(blocks: StoredBlocks) -> Unpacked:
    low, high = _runs(blocks["q"], 64, nibbles), _runs(blocks["high"], 32, _bits, 2)
    return Unpacked(_signed(low | high << 4, 32), _f32(blocks["scale"]) * blocks["scales"])


# -- 4-bit floats -----------------------------------------------------------------------------------------------------
#: f4_e2m1 doubled, which is whole; there is no -0
DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
#: half of what a scale of NVFP4 stands for: f8_e4m3 without its sign, 0 in place of NaN
HALF_UE4M3 = np.nan_to_num(decode(np.arange(256, dtype=np.uint8) & 0x7F, "f8_e4m3"), nan=0) / np.float32(2)
HALF_UE4M3[255] = 240  # ggml looks for 0x7f alone


def half_power(blocks: StoredBlocks) -> F32:
    """Half of an MXFP4 block's power of two; 0xff is 2**128 as any other code, and no NaN."""
    power: F32 = np.ldexp(np.float32(1), blocks["scale"].astype(np.int32) - 128)[..., None]
    return power


def _nvfp4(blocks: StoredBlocks) -> Unpacked:
    codes = DOUBLED[nibbles(blocks["q"])]
    return Unpacked(codes.reshape(*blocks.shape, 64), HALF_UE4M3[blocks["scale"]])


# -- a table of 16 integers --------------------------------------------------------------------------------------------
#: what the codes of IQ4_NL and IQ4_XS stand for, closer together around zero
UNEVEN = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


def _iq4_xs(blocks: StoredBlocks) -> Unpacked:
    """Scales of 6 bits less 32: nibbles of four bytes, neighbours in one, and pairs of bits of two."""
    low = np.stack([blocks["low"] & 15, blocks["low"] >> 4], axis=-1).reshape(*blocks.shape, 8)
    high = blocks["high"][..., None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = _signed(low | high.astype(np.uint8) << 4, 32)
    return Unpacked(UNEVEN[_runs(blocks["q"], 16, nibbles)], _f32(blocks["scale"]) * scales)


# -- the records ------------------------------------------------------------------------------------------------------
_HALF_FLOAT, _BYTES32 = ("scale", "<f2"), ("q", "i1", (32,))
#: nibbles that are places in a table; the title tells such blocks from q4_0's where a layout says what they are
_PLACES = ("places", "q"), "u1", (16,)
_MINIMUM, _NIBBLES, _FIFTH = ("minimum", "<f2"), ("q", "u1", (16,)), ("high", "u1", (4,))


_SIX_BITS = ("scales", "u1", (12,))


def _small(name: str, fields: list[Any], codes: str, about: str, parts: Unpack) -> BlockFormat:
    activations = "" if name == "q8_1" else "q8_1" if _MINIMUM in fields else "q8_0"
    return BlockFormat(name, np.dtype(fields), 32, 32, codes, parts, about, activations)


def _large(name: str, fields: list[Any], group: int, codes: str, about: str, parts: Unpack) -> BlockFormat:
    return BlockFormat(name, np.dtype(fields), 256, group, codes, parts, about, "" if name == "q8_K" else "q8_K")


_RECORDS = (
    _small(
        "q4_0",
        [_HALF_FLOAT, _NIBBLES],
        "s4",
        "q * d; the element of the greatest magnitude is -8 * d",
        lambda b: Unpacked(_signed(nibbles(b["q"]), 8), _f32(b["scale"])),
    ),
    _small(
        "q4_1",
        [_HALF_FLOAT, _MINIMUM, _NIBBLES],
        "u4",
        "q * d + m; the least element is m, the greatest 15 * d + m",
        lambda b: Unpacked(_signed(nibbles(b["q"])), _f32(b["scale"]), _f32(b["minimum"])),
    ),
    _small(
        "q5_0",
        [_HALF_FLOAT, _FIFTH, _NIBBLES],
        "s8",
        "q * d; the element of the greatest magnitude is -16 * d",
        lambda b: Unpacked(_signed(_q5(b), 16), _f32(b["scale"])),
    ),
    _small(
        "q5_1",
        [_HALF_FLOAT, _MINIMUM, _FIFTH, _NIBBLES],
        "u8",
        "q * d + m; the least element is m, the greatest 31 * d + m",
        lambda b: Unpacked(_signed(_q5(b)), _f32(b["scale"]), _f32(b["minimum"])),
    ),
    _small(
        "q8_0",
        [_HALF_FLOAT, _BYTES32],
        "s8",
        "q * d; the greatest magnitude is 127 * d",
        lambda b: Unpacked(b["q"], _f32(b["scale"])),
    ),
    _small(
        "q8_1",
        [_HALF_FLOAT, ("sum", "<f2"), _BYTES32],
        "s8",
        "q * d; the greatest magnitude is 127 * d; the sum of all q * d beside",
        lambda b: Unpacked(b["q"], _f32(b["scale"])),
    ),
    _large(
        "q2_K",
        [("scales", "u1", (16,)), ("q", "u1", (64,)), _HALF_FLOAT, _MINIMUM],
        16,
        "u2",
        "q * (s * d) - n * m, with s and n of 4 bits for 16 elements",
        _q2_k,
    ),
    _large(
        "q3_K",
        [("high", "u1", (32,)), ("q", "u1", (64,)), _SIX_BITS, _HALF_FLOAT],
        16,
        "s8",
        "q * (s * d), with s of 6 bits for 16 elements",
        _q3_k,
    ),
    _large(
        "q4_K",
        [_HALF_FLOAT, _MINIMUM, _SIX_BITS, ("q", "u1", (128,))],
        32,
        "u4",
        "q * (s * d) - n * m, with s and n of 6 bits for 32 elements",
        _q4_k,
    ),
    _large(
        "q5_K",
        [_HALF_FLOAT, _MINIMUM, _SIX_BITS, ("high", "u1", (32,)), ("q", "u1", (128,))],
        32,
        "u8",
        "q * (s * d) - n * m, with s and n of 6 bits for 32 elements",
        _q5_k,
    ),
    _large(
        "q6_K",
        [("q", "u1", (128,)), ("high", "u1", (64,)), ("scales", "i1", (16,)), _HALF_FLOAT],
        16,
        "s8",
        "q * (s * d), with s of 8 bits for 16 elements",
        _q6_k,
    ),
    _large(
        "q8_K",
        [("scale", "<f4"), ("q", "i1", (256,)), ("sums", "<i2", (16,))],
        256,
        "s8",
        "q * d; the element of the greatest magnitude is -127 * d; sums of 16 q beside",
        lambda b: Unpacked(b["q"], _f32(b["scale"])),
    ),
    _small(
        "iq4_nl",
        [_HALF_FLOAT, _PLACES],
        "s8",
        "one of 16 integers from -127 to 113, closer around zero, times d",
        lambda b: Unpacked(UNEVEN[nibbles(b["q"])], _f32(b["scale"])),
    ),
    _large(
        "iq4_xs",
        [_HALF_FLOAT, ("high", "<u2"), ("low", "u1", (4,)), ("q", "u1", (128,))],
        32,
        "s8",
        "one of 16 integers from -127 to 113 times (s * d), with s of 6 bits for 32 elements",
        _iq4_xs,
    ),
    _small(
        "mxfp4",
        [("scale", "u1"), _NIBBLES],
        "s8",
        "f4_e2m1 times a power of two",
        lambda b: Unpacked(DOUBLED[nibbles(b["q"])], half_power(b)),
    ),
    BlockFormat(
        "nvfp4",
        np.dtype([("scale", "u1", (4,)), ("q", "u1", (4, 8))]),
        64,
        16,
        "s8",
        _nvfp4,
        "f4_e2m1 times an f8_e4m3 for 16 elements",
        "q8_0",
    ),
)
BLOCK_FORMATS: dict[str, BlockFormat] = {record.name: record for record in _RECORDS}


def block_format(name: str) -> BlockFormat:
    """The block format called `name`; `UnknownName` with the nearest one otherwise."""
    if name not in BLOCK_FORMATS:
        raise unknown_name("block format", name, BLOCK_FORMATS)
    return BLOCK_FORMATS[name]
