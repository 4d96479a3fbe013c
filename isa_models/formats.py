"""Number formats: one record each, with derived properties. Names are oneDNN's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from isa_models.errors import InvalidArgument, shortly, unknown_name
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
    infinity: bool = True  # a float's: whether it has infinities, and NaN where the exponent is as theirs
    container: str = ""  # the format whose lanes hold values of this one, their low bits unused
    nan: bool = True  # whether it has NaN; without infinities that is all bits set but the sign
    negative_zero: bool = True  # without it, its code is the one NaN, and the bias is one more
    zero: bool = True  # without it, the least exponent is a power of two as the others are
    values: tuple[float, ...] = ()  # of each code, where no pattern of sign, exponent and mantissa says them

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
        return self.exponent_bits > 0 or bool(self.values)

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
        return (1 << (self.exponent_bits - 1)) - int(self.negative_zero)

    @property
    def greatest_code(self) -> int:
        """The code of a float format's greatest finite value.

        >>> [hex(FORMATS[name].greatest_code) for name in ("f8_e4m3", "f8_e5m2", "f4_e2m1", "f8_e4m3fnuz")]
        ['0x7e', '0x7b', '0x7', '0x7f']
        """
        ones = (1 << self.exponent_bits + self.mantissa_bits) - 1
        if self.infinity:
            return ones - (1 << self.mantissa_bits)
        return ones - int(self.nan and self.negative_zero)

    @property
    def greatest(self) -> float:
        """The greatest finite value.

        >>> [FORMATS[name].greatest for name in ("f8_e4m3", "f6_e3m2", "f4_e2m1", "f16", "s8")]
        [448.0, 28.0, 6.0, 65504.0, 127.0]
        """
        if not self.is_float:
            return float(self.high)
        if self.values:
            return max(map(abs, self.values))
        exponent, mantissa = divmod(self.greatest_code, 1 << self.mantissa_bits)
        return float((1 << self.mantissa_bits) + mantissa) * 2.0 ** (exponent - self.bias - self.mantissa_bits)

    @property
    def bytes(self) -> float:
        """Size of one stored element in bytes (4-bit formats are stored in nibbles: 0.5)."""
        return self.bits / 8

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy element type that holds one value."""
        return np.dtype(getattr(ml_dtypes, self.storage) if hasattr(ml_dtypes, self.storage) else self.storage)

    @property
    def element(self) -> np.dtype[Any]:
        """The element type by which an array tells this format: `dtype`, or where that is another format's a record of
        one field, which has this one's name. `codes.view(form.element)` makes one of codes.

        >>> FORMATS["f8_e4m3"].element, Format("f6_e4m1", 6, True, 4, 1, "uint8", container="u8").element
        (dtype(float8_e4m3fn), dtype([('f6_e4m1', 'u1')]))
        """
        return np.dtype([(self.name, self.dtype)]) if self.container else self.dtype


#: what becomes of values beyond the greatest one
OVERFLOWS = ("saturate", "ieee")
FORMATS: Registry[str, Format] = Registry("data type")
_BY_DTYPE: Registry[np.dtype[Any], str] = Registry("element type")


def _add(*formats: Format) -> None:
    for form in formats:
        FORMATS[form.name] = form
        _BY_DTYPE[form.element] = form.name


_add(
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
    # OCP Microscaling Formats 1.0: elements of blocks, and their shared power of two
    Format("f4_e2m1", 4, True, 2, 1, "float4_e2m1fn", infinity=False, nan=False),
    Format("f6_e2m3", 6, True, 2, 3, "float6_e2m3fn", infinity=False, nan=False),
    Format("f6_e3m2", 6, True, 3, 2, "float6_e3m2fn", infinity=False, nan=False),
    Format("e8m0", 8, False, 8, 0, "float8_e8m0fnu", infinity=False, zero=False),
    Format("f8_e4m3", 8, True, 4, 3, "float8_e4m3fn", infinity=False),  # OCP 8-bit floating point specification
    Format("f8_e5m2", 8, True, 5, 2, "float8_e5m2"),
    Format("f8_e4m3fnuz", 8, True, 4, 3, "float8_e4m3fnuz", infinity=False, negative_zero=False),
    Format("f8_e5m2fnuz", 8, True, 5, 2, "float8_e5m2fnuz", infinity=False, negative_zero=False),
    Format("f16", 16, True, 5, 10, "float16"),
    Format("bf16", 16, True, 8, 7, "bfloat16"),
    Format("tf32", 32, True, 8, 10, "float32", container="f32"),  # 19 bits of its 32
    Format("f32", 32, True, 8, 23, "float32"),
    Format("f64", 64, True, 11, 52, "float64"),
)
_OWN = frozenset(FORMATS)  # names that nobody replaces
_EXAMPLE = "Format('f6_e4m1', 6, True, 4, 1, 'uint8', container='u8')"


def register(*formats: Format) -> None:
    """Add formats by their names. One whose elements NumPy stores as another's has that one as its `container`.

    Raises `InvalidArgument` for names that this package has itself, where the bits do not add up, and where `storage`
    names no element type, or another format's without that as the `container`, and for values that are not one finite
    f32 a code.
    """
    for form in formats:
        _check(form)
        _add(form)


def _check(form: Format) -> None:
    """Raises where a format cannot be."""
    if not isinstance(form, Format):
        raise InvalidArgument(f"format {shortly(form)}; a Format is needed, as {_EXAMPLE}")
    if not isinstance(form.values, tuple):
        raise InvalidArgument(f"{form.name}: values={shortly(form.values)}; a tuple of numbers is needed")
    name, parts = form.name, (form.exponent_bits, form.mantissa_bits)
    if not isinstance(name, str) or not name.isidentifier() or name in _OWN:
        why = "simdnn has it itself" if name in list(_OWN) else "letters, digits and _ make a name"
        raise InvalidArgument(f"name={shortly(name)} of a format: {why}; what works: {_EXAMPLE}")
    whole = all(type(n) is int and n >= 0 for n in (form.bits, *parts)) and 0 < form.bits <= 64
    if not whole or any(parts) and (not form.exponent_bits or sum(parts) + bool(form.signed) != form.bits):
        told = f"bits={shortly(form.bits)}, exponent_bits={shortly(parts[0])}, mantissa_bits={shortly(parts[1])}"
        raise InvalidArgument(
            f"{name}: {told}; a float's sign, exponent and mantissa are its bits, an integer's last two are 0; what "
            f"works: {_EXAMPLE}"
        )
    try:
        dtype = form.dtype
    except TypeError:
        works = "codes of up to 8 bits lie in storage='uint8', container='u8'"
        raise InvalidArgument(f"{name}: storage {form.storage!r} is no type of NumPy or ml_dtypes; {works}") from None
    if dtype.hasobject or dtype.names:
        raise InvalidArgument(f"{name}: storage {form.storage!r} holds no numbers; what works: {_EXAMPLE}")
    if form.bits > 8 * dtype.itemsize:
        raise InvalidArgument(f"{name}: {form.bits} bits; storage {form.storage!r} has {8 * dtype.itemsize}")
    other = _BY_DTYPE.get(dtype, name)
    if form.container not in ("", *FORMATS) or (form.container or name) != other:
        works = f"container={'' if other == name else other!r}"
        raise InvalidArgument(f"{name}: storage {form.storage!r} with container={form.container!r}; {works} works")
    if form.values:
        _check_values(form)


def _check_values(form: Format) -> None:
    need = "up to 8 bits, no exponent bits, and a number for each code"
    try:
        given = np.array(form.values, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{form.name}: values={shortly(form.values)}; values take {need}") from None
    if form.bits > 8 or form.exponent_bits or given.shape != (1 << form.bits,):
        raise InvalidArgument(f"{form.name}: {given.size} values of {form.bits} bits; values take {need}")
    with np.errstate(over="ignore"):
        odd = given[~np.isfinite(given.astype(np.float32)) | (given.astype(np.float32) != given)]
    if odd.size:
        raise InvalidArgument(f"{form.name}: value {float(odd[0])!r} is no finite f32: float(np.float32(x)) is one")


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


def _narrow(name: str) -> Format:
    """A float format of at most a byte; `InvalidArgument` for others."""
    form = fmt(name)
    if not form.is_float or form.bits > 8:
        narrow = ", ".join(f.name for f in FORMATS.values() if f.is_float and f.bits <= 8)
        raise InvalidArgument(f"{name} has no codes of at most a byte; allowed: {narrow}")
    return form


def decode(codes: npt.ArrayLike, name: str) -> npt.NDArray[np.float32]:
    """The f32 values of codes (uint8, any shape; one a byte) of a float format of at most 8 bits. All are exact.

    >>> decode(np.array([0x01, 0x7E, 0x80], np.uint8), "f8_e4m3").tolist(), decode(np.uint8(130), "e8m0").tolist()
    ([0.001953125, 448.0, -0.0], 8.0)

    Raises `InvalidArgument` for codes of another type or beyond the format's bits, and for formats of more bits.
    """
    from isa_models.readings.arrays import ArrayValue  # a floor above: arrays know formats
    from isa_models.rounding import widen_codes

    form, words = _narrow(name), np.asarray(codes)
    if words.dtype != np.uint8:
        raise InvalidArgument(f"codes of {words.dtype}; uint8 is needed: .view(np.uint8)")
    check_codes(words, form)
    if form.values:
        values: npt.NDArray[np.float32] = np.array(form.values, np.float32)[words]
        return values
    found = widen_codes(ArrayValue(words.reshape(-1).astype(np.uint32), "u32"), form)
    quiet = found.is_nan().where((found.view("u32") | (1 << 22)).view("f32"), found)
    assert isinstance(quiet, ArrayValue)
    return np.asarray(quiet.array, np.float32).reshape(words.shape)


def check_codes(codes: npt.NDArray[np.uint8], form: Format) -> None:
    """`InvalidArgument` unless codes have no more bits than the format."""
    if codes.size and (most := int(codes.max())) >> form.bits:
        raise InvalidArgument(f"code {most}; {form.name} has {form.bits} bits: 0 to {(1 << form.bits) - 1}")


def numbers(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of any format as numbers: where elements are records of a format's codes, their values."""
    return decode(array.view(np.uint8), name_of(array.dtype)) if array.dtype.names else array


def encode(
    values: npt.ArrayLike, name: str, *, overflow: str = "saturate", rounding: str = "even"
) -> npt.NDArray[np.uint8]:
    """The codes (uint8, one a byte, in the shape of `values`) of f32, f16 or bf16 in a float format of at most 8 bits.

    Each value is rounded once, by `rounding`: "even" (nearest, ties to even), "away" (nearest, ties away from zero),
    "down", "up", "zero". Subnormals are kept. `overflow`: what rounds beyond the greatest value, infinity too, becomes
    that value ("saturate") or infinity, NaN where the format has no infinity ("ieee"); formats without both always
    saturate. NaN stays NaN; a format without NaN has the greatest value for it, with its sign. e8m0 takes no negative
    values, and "zero" or "up" say which power of two; zero becomes the least one. A format by `values` takes the
    nearest one, of two as near that of an even code.

    >>> encode(np.array([1.0625, 460, -1e9], np.float32), "f8_e4m3").tolist()
    [56, 126, 254]
    >>> encode(np.array([3.0, 3.0], np.float32), "e8m0", rounding="up").tolist()
    [129, 129]

    Raises `InvalidArgument` for values of another type, negative values of e8m0, and formats of more than 8 bits.
    """
    from isa_models.readings.arrays import ArrayValue  # a floor above: arrays know formats
    from isa_models.rounding import codes_of

    form, given = _narrow(name), np.asarray(values)
    if overflow not in OVERFLOWS:
        raise unknown_name("overflow", overflow, OVERFLOWS)
    if given.dtype not in (np.float32, np.float16, FORMATS["bf16"].dtype):
        raise InvalidArgument(f"values of {given.dtype}; f32, f16 or bf16 are needed: .astype(np.float32)")
    wide = given.reshape(-1).astype(np.float32)
    if not form.signed and (wide < 0).any():
        raise InvalidArgument(f"{wide[wide < 0][0]:g} among the values; {name} has no negative ones")
    if form.values:
        if rounding != "even":
            raise InvalidArgument(f"rounding {rounding!r} to {name}; a format by values takes the nearest: 'even'")
        return _nearest(wide, form).reshape(given.shape)
    found = codes_of(ArrayValue(wide, "f32"), form, rounding, saturate=overflow == "saturate")
    assert isinstance(found, ArrayValue)
    return np.asarray(found.array).astype(np.uint8).reshape(given.shape)


def _nearest(wide: npt.NDArray[np.float32], form: Format) -> npt.NDArray[np.uint8]:
    """The codes of the values nearest to f32 numbers; of two as near an even one, of NaN that of the greatest value."""
    order = np.argsort(form.values, kind="stable").astype(np.uint8)
    steps = np.array(form.values, np.float64)[order]
    between = (steps[:-1] + steps[1:]) / 2
    below = np.searchsorted(between, wide.astype(np.float64))  # beyond all that the number is greater than
    above = np.minimum(below + 1, len(order) - 1)
    tie = (below < len(between)) & (wide == between[np.minimum(below, len(between) - 1)]) & (order[below] % 2 == 1)
    return np.where(tie, order[above], order[below]).astype(np.uint8)
