"""Number formats: one record each, with derived properties. Names are oneDNN's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from isa_models.errors import unknown_name
from isa_models.plugins import Registry, with_failures


@dataclass(frozen=True)
class Format:
    """A lane's type: an integer (`exponent_bits` 0) or a binary float with an implicit leading one.

    >>> FORMATS["bf16"].mantissa_bits, FORMATS["s8"].low, FORMATS["s8"].high
    (7, -128, 127)
    """

    name: str
    bits: int
    signed: bool = True
    exponent_bits: int = 0
    mantissa_bits: int = 0
    storage: str = ""  # NumPy or ml_dtypes name of the array element
    infinity: bool = True  # a float's: whether it has infinities; without, its one NaN has all bits set but the sign
    container: str = ""  # the format whose lanes hold values of this one, their low bits unused

    @property
    def lanes(self) -> str:
        """The format of the lanes that hold values: its own, or the container's.

        >>> FORMATS["tf32"].lanes, FORMATS["bf16"].lanes
        ('f32', 'bf16')
        """
        return self.container or self.name

    @property
    def is_truth(self) -> bool:
        """Whether a lane is true or false, as of a mask."""
        return self.bits == 1

    @property
    def is_float(self) -> bool:
        return self.exponent_bits > 0

    @property
    def is_integer(self) -> bool:
        """Whether a lane is a whole number; truths are none.

        >>> FORMATS["s4"].is_integer, FORMATS["b1"].is_integer, FORMATS["f16"].is_integer
        (True, False, False)
        """
        return not (self.is_float or self.is_truth)

    @property
    def low(self) -> int:
        """Least value of an integer format."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Greatest value of an integer format."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def bias(self) -> int:
        """Exponent bias of a float format."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def bytes(self) -> float:
        """Size of one stored element in bytes (4-bit formats are stored in nibbles: 0.5)."""
        return self.bits / 8

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy element type that holds one value."""
        return np.dtype(getattr(ml_dtypes, self.storage) if hasattr(ml_dtypes, self.storage) else self.storage)


FORMATS: Registry[str, Format] = Registry("data type")
_BY_DTYPE: Registry[np.dtype[Any], str] = Registry("element type")


def register(*formats: Format) -> None:
    """Add formats by their names. One whose elements NumPy stores as another's has that one as its `container`."""
    for form in formats:
        FORMATS[form.name] = form
        if not form.container:
            _BY_DTYPE[form.dtype] = form.name


register(
    Format("b1", 1, False, storage="bool"),
    Format("s2", 2, True, storage="int2"),
    Format("u2", 2, False, storage="uint2"),
    Format("s4", 4, True, storage="int4"),
    Format("u4", 4, False, storage="uint4"),
    Format("s8", 8, True, storage="int8"),
    Format("u8", 8, False, storage="uint8"),
    Format("s16", 16, True, storage="int16"),
    Format("u16", 16, False, storage="uint16"),
    Format("s32", 32, True, storage="int32"),
    Format("u32", 32, False, storage="uint32"),
    Format("s64", 64, True, storage="int64"),
    Format("u64", 64, False, storage="uint64"),
    Format("f8_e4m3", 8, True, 4, 3, "float8_e4m3fn", infinity=False),  # OCP 8-bit floating point specification
    Format("f8_e5m2", 8, True, 5, 2, "float8_e5m2"),
    Format("f16", 16, True, 5, 10, "float16"),
    Format("bf16", 16, True, 8, 7, "bfloat16"),
    Format("tf32", 32, True, 8, 10, "float32", container="f32"),  # 19 bits of its 32
    Format("f32", 32, True, 8, 23, "float32"),
    Format("f64", 64, True, 11, 52, "float64"),
)


def fmt(name: str) -> Format:
    """The format called `name`; `UnknownName` with the nearest one otherwise."""
    try:
        return FORMATS[name]
    except (KeyError, TypeError):  # TypeError: what cannot be a key is no name
        raise with_failures(unknown_name("data type", name, FORMATS)) from None


def name_of(dtype: np.dtype[Any]) -> str:
    """oneDNN's name for a NumPy element type (byte order is not part of it).

    >>> name_of(np.dtype(">f4"))
    'f32'
    """
    try:
        return _BY_DTYPE[np.dtype(dtype).newbyteorder("=")]
    except (KeyError, TypeError):  # TypeError: what cannot be a key is no name
        raise with_failures(unknown_name("data type", str(dtype), FORMATS)) from None
