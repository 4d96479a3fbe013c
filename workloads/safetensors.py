"""Reads and writes safetensors files: eight bytes with the length of a JSON header, the header, the tensors' bytes.

Format: the `safetensors` package's README, section "Format". Tensors lie without gaps, and nothing is behind the last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, Unimplemented
from workloads import untrusted

_MOST_HEADER = 100_000_000  # bytes, as the package allows
_TYPES: dict[str, Any] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "<u1",
    "BOOL": "?",
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F4": ml_dtypes.float4_e2m1fn,  # two to a byte, the first one lower
}


def read(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """All tensors by name, as arrays that cannot be written to; F4 is a copy, one code a byte, others are views.

    Raises `InvalidArgument` for a broken file, `Unimplemented` for an element type that is not known here.
    """
    file = Path(path)
    data = untrusted.content(file)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_MOST_HEADER, len(data) - 8):
        raise InvalidArgument(
            f"{file.name} has {len(data)} bytes and states a header of {length}: no safetensors "
            "file, or it is truncated"
        )
    header = untrusted.json_object(data[8 : 8 + length], f"the header of {file.name}")
    body = memoryview(data)[8 + length :]
    places = {name: _place(name, entry) for name, entry in header.items() if name != "__metadata__"}
    end = 0
    for name, (_, _, start, stop) in sorted(places.items(), key=lambda item: item[1][2:]):
        if start != end:
            raise InvalidArgument(f"tensor {name!r:.60} starts at byte {start}; the one before it ends at {end}")
        end = stop
    if end != len(body):
        raise InvalidArgument(f"{file.name} holds {len(body)} bytes of tensors; its header states {end}")
    return {
        name: _elements(body[start:stop], kind).reshape(shape) for name, (kind, shape, start, stop) in places.items()
    }


def write(path: str | PathLike[str], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays by name, in their order; of F4 two elements share a byte.

    Raises `InvalidArgument` for an element type that the format lacks, an odd number of elements of half a byte, and a
    name that the format keeps for itself.
    """
    stated = {np.dtype(kind): name for name, kind in _TYPES.items()}
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0
    for name, values in tensors.items():
        kind = values.dtype.newbyteorder("<") if values.dtype.kind in "fiu" else values.dtype
        if kind not in stated or name == "__metadata__":
            raise InvalidArgument(f"tensor {name!r:.60} of type {values.dtype}; allowed: {', '.join(_TYPES)}")
        if values.size % _per_byte(kind):
            raise InvalidArgument(
                f"tensor {name!r:.60} of shape {values.shape}: an even number of elements fills bytes"
            )
        parts.append(_bytes(np.ascontiguousarray(values, kind)))
        start, end = end, end + len(parts[-1])
        header[name] = {"dtype": stated[kind], "shape": list(values.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors begin at a multiple of eight bytes
    Path(path).write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *parts]))


def _bytes(values: NDArray[Any]) -> bytes:
    """The stored bytes of a tensor's elements."""
    if _per_byte(values.dtype) == 1:
        return values.tobytes()
    codes = values.reshape(-1).view(np.uint8)
    return ((codes[::2] & 15) | (codes[1::2] & 15) << 4).astype(np.uint8).tobytes()


def _elements(stored: memoryview, kind: np.dtype[Any]) -> NDArray[Any]:
    """The elements of a tensor's bytes; those of half a byte are a copy, one a byte."""
    if _per_byte(kind) == 1:
        return np.frombuffer(stored, kind)
    octets = np.frombuffer(stored, np.uint8)
    codes = np.stack([octets & 15, octets >> 4], axis=-1).reshape(-1).view(kind)
    codes.setflags(write=False)
    return codes


def _per_byte(kind: np.dtype[Any]) -> int:
    """Elements that share a byte."""
    return 2 if kind == ml_dtypes.float4_e2m1fn else 1


def _place(name: str, entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """A tensor's type and shape, and where it starts and ends."""
    what = f"tensor {name!r:.60}"
    stated = untrusted.field(entry, "dtype", str, what)
    if stated not in _TYPES:
        raise Unimplemented(f"{what} has type {stated!r:.40}; what works: {', '.join(_TYPES)}")
    kind, shape = np.dtype(_TYPES[stated]), untrusted.shape(entry.get("shape"), what)
    offsets = untrusted.field(entry, "data_offsets", list, what)
    if len(offsets) != 2 or not all(type(n) is int for n in offsets) or not 0 <= offsets[0] <= offsets[1]:
        raise InvalidArgument(f"{what}: data_offsets are {str(offsets):.60}; a start and an end are needed")
    if prod(shape) % _per_byte(kind):
        raise InvalidArgument(f"{what} of shape {shape} and {stated}; an even number of elements fills bytes")
    needed = prod(shape) * kind.itemsize // _per_byte(kind)
    if offsets[1] - offsets[0] != needed:
        raise InvalidArgument(f"{what} lies in {offsets[1] - offsets[0]} bytes; its shape and type need {needed}")
    return kind, shape, offsets[0], offsets[1]
