"""A formula read over NumPy arrays: what it yields for types that no kernel takes, f64 and integers among them.

>>> over_arrays(lambda x: x.maximum(0.0) + 1.0)(np.array([-3, 5]))
array([1, 6])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array


class HostValues:
    """An array with the operations of `simdnn.kernels.common.expression.Element`, each in the array's own type.

    Numbers are values of that type where it has them. Integers are divided towards zero, as C does. NaN of either
    operand survives an extreme, and a fused multiply-add is rounded twice, as NumPy has no other. What reads f32's bits
    raises `Unimplemented`.
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    def _lift(self, other: HostValues | float) -> Array:
        if isinstance(other, HostValues):
            return other.array
        whole = _is_float(self.array) or float(other).is_integer()
        return np.asarray(other, self.array.dtype if whole else np.float64)

    def __add__(self, other: HostValues | float) -> HostValues:
        return HostValues(np.add(self.array, self._lift(other)))

    def __sub__(self, other: HostValues | float) -> HostValues:
        return HostValues(np.subtract(self.array, self._lift(other)))

    def __rsub__(self, other: float) -> HostValues:
        return HostValues(self._lift(other)) - self

    def __mul__(self, other: HostValues | float) -> HostValues:
        return HostValues(np.multiply(self.array, self._lift(other)))

    def __truediv__(self, other: HostValues | float) -> HostValues:
        a, b = self.array, self._lift(other)
        return HostValues(a / b if _is_float(a) or _is_float(b) else _quotient(a, b))

    def __rtruediv__(self, other: float) -> HostValues:
        return HostValues(self._lift(other)) / self

    def __neg__(self) -> HostValues:
        return HostValues(np.negative(self.array))

    __radd__ = __add__
    __rmul__ = __mul__

    def fma(self, factor: HostValues | float, addend: HostValues | float) -> HostValues:
        return self * factor + addend

    def minimum(self, other: HostValues | float) -> HostValues:
        return HostValues(np.minimum(self.array, self._lift(other)))

    def maximum(self, other: HostValues | float) -> HostValues:
        return HostValues(np.maximum(self.array, self._lift(other)))

    def sqrt(self) -> HostValues:
        return HostValues(np.sqrt(self.array))

    def abs(self) -> HostValues:
        return HostValues(np.abs(self.array))

    def _of_f32(self, *_: object, **__: object) -> NoReturn:
        raise Unimplemented(
            f"a formula that reads the bits of f32, over {self.array.dtype}; a NumPy function beside it is needed"
        )

    bits = shift = read_as = nearest = to_float = at_least = at_most = _of_f32


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


def _quotient(a: Array, b: Array) -> Array:
    """Integers divided, towards zero."""
    if (b == 0).any():
        raise InvalidArgument("an integer divided by zero")
    quotient = np.floor_divide(a, b)
    result: Array = quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)
    return result


def over_arrays(formula: Callable[..., Any]) -> Callable[..., Array]:
    """The function of arrays that a formula of `Element`s is."""

    def function(*arrays: Array) -> Array:
        found: HostValues = formula(*map(HostValues, arrays))
        return found.array

    return function
