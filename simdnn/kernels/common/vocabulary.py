"""The words that a kernel written once needs of its target: instructions on vectors, and how loops are spread.

`simdnn.kernels.x86.vocabulary` and `simdnn.kernels.gpu.vocabulary` are the two of them. Values in registers are 32 bits
wide, floats as f32 and integers as s32, whatever memory holds. What a target does its own way throughout (a reduction's
accumulators, a copy's pieces) is a generator of its own, which the vocabulary gives as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code
from simdnn.program.records import Affine, Program, Register, Tensor

if TYPE_CHECKING:
    from simdnn.kernels.common.copy import CopyProblem
    from simdnn.kernels.common.expression import Expression
    from simdnn.kernels.common.reduce import ReduceProblem

#: body(first element of the line, live lanes, whether every lane gets the same element)
Body = Callable[[Affine, int, bool], Code]
#: load(register, operand)
Load = Callable[[str, int], Code]


@dataclass(frozen=True)
class Spread:
    """A program, what it takes for what the problem is given, and its flat destination, or all outputs (`finish`)."""

    program: Program
    prepare: Callable[[Mapping[str, Array]], dict[str, Array]]
    finish: Callable[[Mapping[str, Array]], Any]


def whole(program: Program) -> Spread:
    """A program that takes arrays as they are."""
    return Spread(program, dict, lambda found: found["dst"])


class SpreadLines(Protocol):
    """Lines of elements spread over a target: `outer` many along each axis, each of vectors and what is left."""

    @property
    def full(self) -> tuple[int, ...]:
        """The extents of `outer` and the elements of a line, those that are filled up among them."""
        ...

    def index(self, axis: int) -> Affine:
        """A line's place along an axis of `outer`."""
        ...

    def nest(self, start: Code, body: Body, types: Sequence[str]) -> Code:
        """`start` before the vectors of a line, `body` for each of them; `types` are what it loads from the line."""
        ...


class Formula(Protocol):
    """An expression in a target's instructions."""

    def tensors(self) -> list[Tensor]:
        """The constants."""
        ...

    def start(self) -> Code:
        """Code that loads, once, what many vectors read."""
        ...

    def code(self, load: Load, lanes: int) -> tuple[Code, Register]:
        """The steps for `lanes` lanes, and the register of the result; fixed operand i is in register `x{i}`."""
        ...


class Vocabulary(ABC):
    """One target's words. Every word that loads or computes names the lanes that count; others may hold anything."""

    @property
    @abstractmethod
    def isa(self) -> str:
        """The ISA cap, or the GPU's platform, that a program in these words is for."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """Lanes of a vector."""

    @abstractmethod
    def register(self, name: str, lanes: int) -> Register:
        """A register with `lanes` lanes of f32 that count."""

    @abstractmethod
    def load(self, register: str, tensor: str, dtype: str, at: Affine, lanes: int, same: bool = False) -> Code:
        """`lanes` neighbouring elements, or one for all lanes (`same`)."""

    @abstractmethod
    def store(self, dtype: str, at: Affine, value: Register, lanes: int) -> Code:
        """A register's first lanes to `dst` as elements of a type; integers are saturated."""

    @abstractmethod
    def constants(self, dtype: str) -> list[Tensor]:
        """The tensors that `store` reads for elements of a type."""

    @abstractmethod
    def apply(self, step: str, dst: Register, *sources: Register) -> Code:
        """A step among `simdnn.kernels.common.expression.INSTRUCTIONS`; `dst` may be a source."""

    @abstractmethod
    def lines(self, outer: tuple[int, ...], line: int, single: bool = False) -> SpreadLines:
        """Lines spread over the target; `single`: a thread of a GPU takes one vector of a line at most."""

    @abstractmethod
    def formula(self, expression: Expression, dst: str, fixed: Sequence[int]) -> Formula:
        """An expression for elements of type `dst`; operands among `fixed` are loaded once a line.

        Raises `Unimplemented` for types that the target has no words for.
        """

    # -- kernels of the target's own form -------------------------------------------------------------------------
    @abstractmethod
    def copying(self, p: CopyProblem) -> Spread:
        """Input src, output dst."""

    @abstractmethod
    def reduction(self, p: ReduceProblem) -> Spread:
        """Input src, output dst. Raises `Unimplemented` for types and shapes that there is no kernel for."""


def filled(array: Array, shape: tuple[int, ...], value: float = 0) -> Array:
    """An array filled up at the end of its axes, flat."""
    if array.shape == shape:
        return array.reshape(-1)
    widths = [(0, n - m) for m, n in zip(array.shape, shape, strict=True)]
    return np.pad(array, widths, constant_values=array.dtype.type(value)).reshape(-1)


def inside(array: Array, full: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """The first elements along each axis of a filled array, flat."""
    if full == shape:
        return array.reshape(-1)
    return np.ascontiguousarray(array.reshape(full)[tuple(slice(n) for n in shape)]).reshape(-1)


def steps_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a contiguous array."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
