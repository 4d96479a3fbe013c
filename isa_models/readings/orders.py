"""The reading that tells orders of sums apart: values are those of NumPy, but what rounds is a random function.

A floating sum, product, quotient or root that may round becomes a random number, the same one for the same operands:
of `a + b`, `a * b` and the factors of an fma in any order, as hardware has it. Two programs that give one result have
then put the same numbers together in the same order, up to a chance of 2**-27 a result. Whatever does not round stays
itself: moves, masks, integers (which wrap), conversions, `x + 0`, and products that the type holds, so that an fma of
those is a sum. The results lie between 2**-4 and 2**4 in magnitude: each format has such numbers, and none is special.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from isa_models.algebra import Value
from isa_models.readings.arrays import Array, ArrayValue, silent

Hash = npt.NDArray[np.uint64]
_ROUNDING = ("add", "sub", "mul", "div")
#: type -> digits of its mantissa, the bias of its exponent
_FIELDS = {"f32": (23, 127), "f64": (52, 1023)}


class OrderValue(ArrayValue):
    """Lanes whose rounding operations are random functions.

    >>> a, b, c = (OrderValue(np.array([x], "f4"), "f32") for x in (1.1, 2.3, 3.7))
    >>> bool(((a + b).array == (b + a).array)[0]), bool((((a + b) + c).array == (a + (b + c)).array)[0])
    (True, False)
    """

    def _binary(self, op: str, other: Value) -> Self:
        if self.dtype not in _FIELDS or op not in _ROUNDING:
            return super()._binary(op, other)
        assert isinstance(other, ArrayValue)
        a, b = np.broadcast_arrays(self.array, other.array)
        if op == "mul":
            real, exact = _product(a, b, self.dtype)
            return self._new(real if exact.all() else np.where(exact, real, _times(a, b, self.dtype)), self.dtype)
        if op == "div":
            return self._new(_number(_mix(_hash(a), 3) + _hash(b), self.dtype), self.dtype)
        return self._new(_sum(a, -b if op == "sub" else b, self.dtype), self.dtype)

    def fma(self, b: Value, c: Value) -> Self:
        assert isinstance(b, ArrayValue) and isinstance(c, ArrayValue)
        x, y, z = np.broadcast_arrays(self.array, b.array, c.array)
        real, exact = _product(x, y, self.dtype)
        if exact.all():
            return self._new(_sum(real, z, self.dtype), self.dtype)
        found = _number(_mix(_hash(x) + _hash(y), 4) + _hash(z), self.dtype)
        if (z == 0).any():
            found = np.where(z == 0, _times(x, y, self.dtype), found)
        if exact.any():
            found = np.where(exact, _sum(real, z, self.dtype), found)
        return self._new(found, self.dtype)

    def sqrt(self) -> Self:
        return self._new(np.abs(_number(_mix(_hash(self.array), 5), self.dtype)), self.dtype)


def _sum(a: Array, b: Array, dtype: str) -> Array:
    """a + b: random unless one of them is zero."""
    some = _number(_hash(a) + _hash(b), dtype)
    found: Array = np.where(a == 0, b, np.where(b == 0, a, some))
    return found


def _times(a: Array, b: Array, dtype: str) -> Array:
    """a * b that rounds: random."""
    return _number(_mix(_hash(a) + _hash(b), 2), dtype)


@silent
def _product(a: Array, b: Array, dtype: str) -> tuple[Array, Array]:
    """a * b, and where the type holds it."""
    real = a * b
    if dtype == "f32":
        return real, a.astype(np.float64) * b == real
    short = (a == a.astype(np.float32)) & (b == b.astype(np.float32))
    return real, short | _power_of_two(a) | _power_of_two(b)


def _power_of_two(a: Array) -> Array:
    found: Array = (np.ascontiguousarray(a).view(np.uint64) & np.uint64((1 << 52) - 1)) == 0
    return found


def _hash(a: Array) -> Hash:
    """64 bits for the bits of each lane, spread enough to be added up."""
    bits = np.ascontiguousarray(a).view(f"u{a.itemsize}").astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)


def _mix(bits: Hash, salt: int) -> Hash:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that looks random."""
    x = bits + np.uint64((0x9E3779B97F4A7C15 * salt) & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _number(bits: Hash, dtype: str) -> Array:
    """A number of the type for 64 bits: of either sign, its exponent -4 to 3."""
    digits, bias = _FIELDS[dtype]
    mixed = _mix(bits, 6)
    exponent = (mixed >> np.uint64(60) & np.uint64(7)) + np.uint64(bias - 4)
    fraction = mixed & np.uint64((1 << digits) - 1)
    if dtype == "f32":
        sign = mixed >> np.uint64(63) << np.uint64(31)
        word: Array = (sign | exponent << np.uint64(digits) | fraction).astype(np.uint32)
        return word.view(np.float32)
    long: Array = mixed >> np.uint64(63) << np.uint64(63) | exponent << np.uint64(digits) | fraction
    return long.view(np.float64)
