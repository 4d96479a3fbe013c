"""ONNX element types (onnx.proto, TensorProto.DataType) as NumPy element types and oneDNN's names."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from isa_models import InvalidArgument, Unimplemented, UnknownName
from isa_models.formats import name_of
from isa_models.readings.arrays import Array

F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
S32 = np.dtype(np.int32)
_NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "object",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}


def element(number: int) -> np.dtype[Any]:
    """The NumPy type of an ONNX element type; text is `object`."""
    name = _NAMES.get(number)
    if name is None:
        raise InvalidArgument(f"element type {number}; ONNX defines 1 to {max(_NAMES)}")
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise Unimplemented(f"element type {name}: the installed ml_dtypes lacks it") from None


def number(dtype: np.dtype[Any]) -> int:
    """The ONNX element type of a NumPy type.

    >>> number(np.dtype(np.float16))
    10
    """
    for key in _NAMES:
        if _NAMES[key] == np.dtype(dtype).name:
            return key
    raise InvalidArgument(f"{dtype} has no ONNX element type")


def has_number(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy type has an ONNX element type.

    >>> has_number(np.dtype(ml_dtypes.float4_e2m1fn)), has_number(np.dtype(ml_dtypes.float6_e2m3fn))
    (True, False)
    """
    return np.dtype(dtype).name in _NAMES.values()


def label(dtype: np.dtype[Any]) -> str:
    """oneDNN's name of an element type, or NumPy's where there is none.

    >>> label(np.dtype(np.int64)), label(np.dtype(object))
    ('s64', 'text')
    """
    if dtype.kind == "O":
        return "text"
    try:
        return name_of(dtype)
    except UnknownName:
        return str(dtype)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values are real numbers, ml_dtypes' narrow floats among them."""
    return dtype.kind == "f" or dtype.kind == "V" and hasattr(_limits(dtype), "eps")


def is_signed(dtype: np.dtype[Any]) -> bool:
    """Whether values may be negative integers, ml_dtypes' narrow ones among them."""
    return dtype.kind == "i" or dtype.kind == "V" and not is_float(dtype) and bool(_limits(dtype).min < 0)


def bits(dtype: np.dtype[Any]) -> int:
    """Bits of an element as ONNX stores it: 4-bit and 2-bit types are packed.

    >>> bits(np.dtype(ml_dtypes.int4)), bits(np.dtype(np.int8))
    (4, 8)
    """
    return int(_limits(dtype).bits) if dtype.kind == "V" else dtype.itemsize * 8


@functools.cache
def _limits(dtype: np.dtype[Any]) -> Any:
    """Facts that ml_dtypes knows of one of its types: of an integer `bits` and `min`, of a float `bits` and `eps`."""
    try:
        return ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and greatest value of an integer type, ml_dtypes' included."""
    found = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(found.min), int(found.max)


def is_least(zero: Array) -> bool:
    """Whether a zero point is one number, the least of its type: a Relu ahead of its quantizer changes nothing then.

    >>> is_least(np.zeros((), np.uint8)), is_least(np.zeros((), np.int8))
    (True, False)
    """
    return zero.size == 1 and bool(zero.item() == limits(zero.dtype)[0])
