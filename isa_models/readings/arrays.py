"""The NumPy reading of the algebra: a Value is an array whose last axis holds the lanes."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument, counted
from isa_models.formats import Format, fmt
from isa_models.host import denormals
from isa_models.host.memory import LINE, address, empty, zeros

Array = npt.NDArray[Any]


def on_a_line(size: int, dtype: npt.DTypeLike) -> Array:
    """`size` zeros from the beginning of a cache line on; NumPy's own arrays begin 16 or 48 bytes behind one.

    >>> on_a_line(5, "f4").ctypes.data % 64
    0
    """
    dtype = np.dtype(dtype)
    return zeros(size * dtype.itemsize, dtype)


def to_a_line(array: Array) -> Array:
    """An array in C order from the beginning of a cache line on, copied unless it is so already.

    >>> to_a_line(np.arange(10)[3:]).ctypes.data % 64
    0
    """
    if array.flags.c_contiguous and address(array) % LINE == 0:
        return array
    return copied_to_a_line(array)


def copied_to_a_line(array: Array) -> Array:
    """A copy in C order that begins a cache line."""
    copy = empty(array.nbytes, array.dtype, array.shape)
    copy[...] = array
    return copy


def unmasked(what: str, value: Any) -> Any:
    """The value itself; `InvalidArgument` for a masked array, whose mask no result would keep.

    >>> unmasked("a", np.ma.masked_array([1, 2], [True, False]))
    Traceback (most recent call last):
    isa_models.errors.InvalidArgument: a is a MaskedArray, whose mask would be lost: pass .filled(0), or another number
    """
    if is_masked(value):
        raise InvalidArgument(f"{what} is a MaskedArray, whose mask would be lost: pass .filled(0), or another number")
    return value


#: how a NumPy array is made of other packages' own
_MADE_OF = {
    "torch": "{}.detach().cpu().numpy()",
    "tensorflow": "{}.numpy()",
    "cupy": "{}.get()",
    **dict.fromkeys(("jax", "jaxlib"), "np.asarray({})"),
}
#: PyTorch's types that NumPy lacks, and its integers of as many bits
_BITS_OF_TORCH = {
    "bfloat16": "int16",
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), "uint8"),
}


def as_array(name: str, value: object) -> str:
    """How a NumPy array is made of what is none; PyTorch has types that NumPy lacks, whose bits are taken.

    >>> as_array("src", [[1.0]])
    'np.asarray(src, dtype=…)'
    """
    package, dtype = type(value).__module__.partition(".")[0], str(getattr(value, "dtype", "")).removeprefix("torch.")
    if package == "torch" and dtype in _BITS_OF_TORCH:
        return f"{name}.detach().cpu().view(torch.{_BITS_OF_TORCH[dtype]}).numpy().view(ml_dtypes.{dtype})"
    return _MADE_OF.get(package, "np.asarray({}, dtype=…)").format(name)


def is_masked(value: object) -> bool:
    """Whether a value is a masked array: none is where nobody has imported their module, which takes its time."""
    if type(value) is np.ndarray:
        return False
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def held(what: str, value: Any) -> Any:
    """The value itself; `InvalidArgument` for a masked array, and for one that this host cannot hold some copies of.

    An axis that is empty leaves the others their size: results may have it along those.
    """
    if isinstance(unmasked(what, value), np.ndarray):
        needed = 8 * value.itemsize * math.prod(max(1, size) for size in value.shape)
        if needed > memory_bytes():
            raise InvalidArgument(
                f"{what} of shape {value.shape}: work on it takes about {needed:.3g} bytes; this "
                f"host has {memory_bytes():.3g}"
            )
    return value


@functools.cache
def memory_bytes() -> int:
    """Memory that this process may use: the host's, or less where a control group (v2) limits it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [1 << 34]
    try:
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return min(limits)


class _Warnings(threading.local):
    """Whether NumPy's warnings are off on this thread."""

    off = False


_WARNINGS = _Warnings()
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def unwarned() -> Iterator[None]:
    """NumPy does not warn within, and keeps denormals: NaN, infinities and overflow are values like others.

    To turn warnings off takes NumPy longer than an operation on a register, so a program turns them off once.
    """
    if _WARNINGS.off:
        yield
        return
    with np.errstate(all="ignore"), denormals.kept():
        _WARNINGS.off = True
        try:
            yield
        finally:
            _WARNINGS.off = False


def silent(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which NumPy does not warn within."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if _WARNINGS.off:
            return function(*args, **kwargs)
        with unwarned():
            return function(*args, **kwargs)

    return wrapped


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


class ArrayValue(Value):
    """Lanes in the last axis of `array`; any leading axes are independent vectors.

    Lanes of fewer than 8 bits have a byte each in `array`. Views pack them, the first lane in a byte's lowest bits, and
    arithmetic is that of bytes, wrapped.
    """

    def __init__(self, array: Array, dtype: str) -> None:
        self.array = array
        self.dtype = dtype
        self.lanes = array.shape[-1]

    def _new(self, array: Array, dtype: str) -> Self:
        """A value of this kind."""
        return type(self)(array, dtype)

    def flat(self) -> Self:
        """This value with one leading axis."""
        return self._new(self.array.reshape(-1, self.lanes), self.dtype)

    def repeated(self, count: int) -> Self:
        """This value with each of its vectors `count` times, one behind the other; one alone stands for all."""
        return self._new(np.repeat(self.array, count, axis=0), self.dtype) if len(self.array) > 1 else self

    def literal(self, number: int | float) -> Self:
        negative_zero = number == 0 and math.copysign(1.0, number) < 0  # equal to the other one
        return self._new(_filled(self.lanes, self.dtype, number, negative_zero), self.dtype)

    def view(self, dtype: str) -> Self:
        if dtype == self.dtype:
            return self
        old, new = fmt(self.dtype), fmt(dtype)
        packed = _packed(self.array, old) if old.bits < 8 else np.ascontiguousarray(self.array)
        if new.bits < 8:
            return self._new(_unpacked(packed.view(np.uint8), new), dtype)
        return self._new(packed.view(new.dtype), dtype)

    @silent
    def to(self, dtype: str) -> Self:
        return self._new(_as_lanes(_roomy(self.array, fmt(self.dtype)), fmt(dtype)), dtype)

    @silent
    def _binary(self, op: str, other: Value) -> Self:
        assert isinstance(other, ArrayValue) and other.dtype == self.dtype, (op, self.dtype, other.dtype)
        form = fmt(self.dtype)
        found = _BINARY[op](_roomy(self.array, form), _roomy(other.array, form))
        return self._new(_as_lanes(found, form), self.dtype)

    @silent
    def _compare(self, op: str, other: Value) -> Self:
        assert isinstance(other, ArrayValue) and other.dtype == self.dtype, (op, self.dtype, other.dtype)
        form = fmt(self.dtype)
        return self._new(_COMPARE[op](_roomy(self.array, form), _roomy(other.array, form)), "b1")

    def fma(self, b: Value, c: Value) -> Self:
        assert isinstance(b, ArrayValue) and isinstance(c, ArrayValue)
        assert self.dtype == b.dtype == c.dtype
        fused = {"f32": _fma32, "f64": _fma64}[self.dtype]
        return self._new(fused(self.array, b.array, c.array), self.dtype)

    @silent
    def round_even(self) -> Self:
        return self._new(np.rint(self.array), self.dtype)

    @silent
    def sqrt(self) -> Self:
        return self._new(np.sqrt(self.array), self.dtype)

    def where(self, yes: Value, no: Value) -> Self:
        assert isinstance(yes, ArrayValue) and isinstance(no, ArrayValue) and yes.dtype == no.dtype
        return self._new(np.where(self.array, yes.array, no.array), yes.dtype)

    def permute(self, lanes: Sequence[int]) -> Self:
        if isinstance(lanes, range):
            return self._new(self.array[..., lanes.start : lanes.stop : lanes.step], self.dtype)
        return self._new(self.array[..., list(lanes)], self.dtype)

    def concat(self, other: Value) -> Self:
        assert isinstance(other, ArrayValue) and other.dtype == self.dtype
        lead = np.broadcast_shapes(self.array.shape[:-1], other.array.shape[:-1])
        parts = [np.broadcast_to(v.array, (*lead, v.lanes)) for v in (self, other)]
        return self._new(np.concatenate(parts, axis=-1), self.dtype)

    def lookup(self, index: Value) -> Self:
        assert isinstance(index, ArrayValue)
        lead = np.broadcast_shapes(self.array.shape[:-1], index.array.shape[:-1])
        table = np.broadcast_to(self.array, (*lead, self.lanes))
        picks = np.broadcast_to(index.array.astype(np.intp), (*lead, index.lanes))
        return self._new(np.take_along_axis(table, picks, axis=-1), self.dtype)

    def shortcut(self, usual: Callable[[], tuple[Value, Sequence[Value]]], careful: Callable[[], Value]) -> Self:
        result = careful()
        assert isinstance(result, type(self))
        return result

    def rarely(self, no: Value, yes: Callable[[], Value]) -> Self:
        assert isinstance(no, type(self))
        return self.where(yes(), no) if self.array.any() else no


@functools.lru_cache(maxsize=4096)
def _filled(lanes: int, dtype: str, number: int | float, negative_zero: bool) -> Array:
    """Lanes that all hold a number, which nobody changes."""
    array = np.empty(lanes, fmt(dtype).dtype)
    array.fill(number)
    array.flags.writeable = False
    return array


def _roomy(array: Array, form: Format) -> Array:
    """Lanes of a format in a type that NumPy computes with."""
    if form.bits >= 8 or form.is_truth:
        return array
    return array.astype(np.int8 if form.signed else np.uint8)


def _as_lanes(array: Array, form: Format) -> Array:
    """Numbers as lanes of a format; those of fewer than 8 bits keep their lowest bits."""
    if form.bits >= 8 or form.is_truth:
        return array if array.dtype is form.dtype else array.astype(form.dtype, copy=False)
    spare = 8 - form.bits
    octets = array.astype(np.int8 if form.signed else np.uint8)
    lanes: Array = ((octets << spare) >> spare).astype(form.dtype)
    return lanes


def _packed(array: Array, form: Format) -> Array:
    """Lanes of fewer than 8 bits put together to bytes."""
    per = 8 // form.bits
    if array.shape[-1] % per:
        raise InvalidArgument(f"{counted(array.shape[-1], 'lane')} of {form.name}: no whole number of bytes")
    octets = array if form.is_float else array.astype(np.int8)
    fields = octets.view(np.uint8) & ((1 << form.bits) - 1)
    shifts = np.arange(0, 8, form.bits, dtype=np.uint8)
    packed: Array = np.bitwise_or.reduce(fields.reshape(*array.shape[:-1], -1, per) << shifts, axis=-1)
    return np.ascontiguousarray(packed)


def _unpacked(octets: Array, form: Format) -> Array:
    """Bytes taken apart to lanes of fewer than 8 bits."""
    fields = octets[..., None] >> np.arange(0, 8, form.bits, dtype=np.uint8)
    fields = fields.reshape(*octets.shape[:-1], -1)
    if form.is_float:
        return (fields & ((1 << form.bits) - 1)).view(form.dtype)
    return _as_lanes(fields & 1 if form.is_truth else fields, form)


_BEHIND_F32 = (1 << 29) - 1  # the bits of an f64's fraction that a normal f32 lacks


@silent
def _fma32(a: Array, b: Array, c: Array) -> Array:
    """f32 fused multiply-add through f64, in which the product of two f32 is exact.

    The sum is rounded twice, to f64 and to f32. That shows only where the first one lies halfway between two f32, which
    for normal ones its bits tell; subnormal ones are taken for halfway.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    size = np.abs(total)
    halfway = (total.view(np.int64) & _BEHIND_F32) == (_BEHIND_F32 + 1) // 2
    if (halfway | (size < 2.0**-126) & (size > 0)).any():
        total = _to_odd(product, addend, total)
    return total.astype(np.float32)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """f64 fused multiply-add, number by number, by the C library."""
    numbers = np.broadcast_arrays(a, b, c)
    found = np.array([_c_fma()(*three) for three in zip(*(x.ravel().tolist() for x in numbers), strict=True)])
    return found.astype(np.float64).reshape(numbers[0].shape)


@functools.cache
def _c_fma() -> Callable[[float, float, float], float]:
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    fma: Any = library.fma
    fma.restype, fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return cast(Callable[[float, float, float], float], fma)


def _to_odd(product: Array, addend: Array, total: Array) -> Array:
    """The sum `total` of two f64 rounded to odd (its error found by Knuth's TwoSum), so that only a rounding behind
    it shows: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4), 2008."""
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
    outward = (error > 0) == (total > 0)
    odd: Array = np.where(inexact, bits + np.where(outward, 1, -1), bits).view(np.float64)
    return odd
