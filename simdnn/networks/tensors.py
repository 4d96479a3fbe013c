"""TensorProto to arrays, with every size checked before anything is allocated.

Raw and typed fields as onnx.proto describes them; external data only from regular files inside the model's folder.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array, memory_bytes
from simdnn.networks import large_tensors
from simdnn.networks.types import bits, element, is_float, is_signed

_MOST = 1 << 33  # elements of one tensor


def array_of(tensor: Any, folder: Path | None) -> Array:
    """The array of a TensorProto. `folder` is where external data may lie; None: nowhere."""
    what = f"tensor {tensor.name!r:.60}"
    dtype = element(tensor.data_type) if tensor.data_type else None
    if dtype is None:
        raise InvalidArgument(f"{what} has no element type")
    shape = tuple(tensor.dims)
    count = size_of(what, shape)
    if tensor.HasField("segment"):
        raise Unimplemented(f"{what} is stored in segments; whole tensors work")
    if dtype.kind == "O":
        return _text(tensor, what, shape, count)
    if (shelved := large_tensors.lying(tensor)) is not None:
        return shelved
    if tensor.data_location == 1:  # EXTERNAL
        return _unpacked(_external(tensor, what, folder, _bytes(count, dtype)), dtype, count).reshape(shape)
    if tensor.HasField("raw_data"):
        _check(what, shape, len(tensor.raw_data), _bytes(count, dtype), "bytes")
        return _unpacked(tensor.raw_data, dtype, count).reshape(shape)
    return _typed(tensor, what, dtype, shape, count)


def check_text(*names: object) -> None:
    """Protobuf hands over as bytes what is no text."""
    if bad := [name for name in names if not isinstance(name, str)]:
        raise InvalidArgument(f"a name that is no UTF-8 text: {bad[0]!r:.60}")


def size_of(what: str, shape: tuple[int, ...]) -> int:
    """Elements of a shape that a file states; `InvalidArgument` where it is absurd."""
    if any(n < 0 for n in shape) or len(shape) > 64 or prod(n for n in shape if n) > _MOST:  # NumPy counts so, too
        raise InvalidArgument(f"{what} of shape {list(shape)!s:.80}; at most {_MOST} elements are allowed")
    return prod(shape)


def _bytes(count: int, dtype: np.dtype[Any]) -> int:
    return -(-count * bits(dtype) // 8)


def _check(what: str, shape: tuple[int, ...], met: int, needed: int, unit: str) -> None:
    if met != needed:
        stated = f"{what} of shape {list(shape)!s:.80}"
        raise InvalidArgument(f"{stated} holds {met} {unit}; its shape and type need {needed}")


def _text(tensor: Any, what: str, shape: tuple[int, ...], count: int) -> Array:
    _check(what, shape, len(tensor.string_data), count, "strings")
    return np.array([s.decode("utf-8", "replace") for s in tensor.string_data], object).reshape(shape)


def _unpacked(data: bytes, dtype: np.dtype[Any], count: int) -> Array:
    """Little-endian elements; those of less than a byte lie packed, the first one lowest."""
    width = bits(dtype)
    if width >= 8:
        return np.frombuffer(data, dtype.newbyteorder("<"), count).astype(dtype)
    packed = np.frombuffer(data, np.uint8)
    fields = [(packed >> shift) & ((1 << width) - 1) for shift in range(0, 8, width)]
    values: Array = np.stack(fields, 1).reshape(-1)[:count]
    if is_signed(dtype):
        values = ((values.astype(np.int8) ^ (1 << (width - 1))) - (1 << (width - 1))).astype(np.int8)
    return values.view(dtype) if is_float(dtype) else values.astype(dtype)


def _typed(tensor: Any, what: str, dtype: np.dtype[Any], shape: tuple[int, ...], count: int) -> Array:
    """The elements of a tensor, from the field that holds the type's values."""
    fields = {
        "float32": "float_data",
        "complex64": "float_data",
        "float64": "double_data",
        "complex128": "double_data",
        "int64": "int64_data",
        "uint64": "uint64_data",
        "uint32": "uint64_data",
    }
    values = getattr(tensor, fields.get(dtype.name, "int32_data"))
    width = bits(dtype)
    needed = _bytes(count, dtype) if width < 8 else count * (2 if dtype.kind == "c" else 1)
    _check(what, shape, len(values), needed, "values")
    if width < 8:
        return _unpacked(np.array(values, np.int64).astype(np.uint8).tobytes(), dtype, count).reshape(shape)
    if dtype.kind == "c":
        return np.array(values, f"f{dtype.itemsize // 2}").view(dtype).reshape(shape)
    if is_float(dtype) and width <= 16:  # their bits, as integers
        words = np.array(values, np.int64).astype(f"u{dtype.itemsize}")
        return words.view(dtype).reshape(shape)
    return np.array(values, np.int64 if dtype.kind in "ib" else None).astype(dtype).reshape(shape)


def _external(tensor: Any, what: str, folder: Path | None, needed: int) -> bytes:
    """The bytes of a tensor that lies in a file of its own."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    location = given.get("location", "")
    check_text(location)
    if folder is None:
        raise InvalidArgument(f"{what} lies in {location!r:.60}: a model in memory has no folder; load it by its path")
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        inside = path.is_relative_to(root) and not Path(location).is_absolute()
        there = path.is_file()
    except (OSError, ValueError, RuntimeError):
        inside = there = False
    if not location or not inside or ".." in Path(location).parts:
        raise InvalidArgument(f"{what} lies in {location!r:.60}; only files inside the model's folder are read")
    if not there:
        raise InvalidArgument(
            f"{what} lies in {location!r:.60}, which is not there: keep the model's two files together, as "
            "only files inside the model's folder are read"
        )
    try:
        offset, length = int(given.get("offset", 0)), int(given.get("length", needed))
    except ValueError:
        raise InvalidArgument(f"{what}: offset and length of external data are no integers") from None
    size = os.path.getsize(path)
    if needed > memory_bytes() // 2:
        raise InvalidArgument(f"{what} takes {needed:.3g} bytes, more than half of this host's memory")
    if length != needed or offset < 0 or offset + length > size:
        raise InvalidArgument(
            f"{what} takes {needed} bytes; its external data names {length} at {offset} of a file with {size}"
        )
    with path.open("rb") as file:
        file.seek(offset)
        data: bytes = file.read(length)
        return data


def packed(values: Array) -> bytes:
    """The raw bytes of an array as ONNX stores them."""
    width = bits(values.dtype)
    if width >= 8:
        return values.astype(values.dtype.newbyteorder("<")).tobytes()
    kind = values.view(np.uint8) if is_float(values.dtype) else values.astype(np.int8).view(np.uint8)
    per = 8 // width
    flat = np.zeros(-(-values.size // per) * per, np.uint8)
    flat[: values.size] = kind.reshape(-1) & ((1 << width) - 1)
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(width)
    joined: Array = np.bitwise_or.reduce(flat.reshape(-1, per) << shifts, axis=1).astype(np.uint8)
    return joined.tobytes()


FLOAT16 = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
