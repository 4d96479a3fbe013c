"""The value algebra: the few operations that every instruction is written in.

An instruction is a plain function over `Value`s. What a `Value` is decides what the function yields: NumPy arrays
give results (`arrays.py`), LLVM vectors machine code (`llvm.py`), traced values an explanation (`traced.py`), ranges
of values a proof (`intervals.py`). A reading implements the primitives below; everything else in this package is
derived from them, once.

Integers wrap at their width. Floats are IEEE 754, round to nearest even, subnormals kept; which NaN comes out of
`+ - * fma` is *not* specified here, so an instruction that must say so selects it (`x86/floats.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

from isa_models.formats import Format, fmt
from isa_models.roundoff import Roundoff


class Value(ABC):
    """Lanes of one type. Binary operators take a Value of the same type and lane count, or a Python number."""

    dtype: str
    lanes: int

    @property
    def format(self) -> Format:
        return fmt(self.dtype)

    # -- primitives: a reading implements these ------------------------------------------------------------------
    @abstractmethod
    def literal(self, number: int | float) -> Self:
        """`number` in every lane, in this value's type."""

    @abstractmethod
    def view(self, dtype: str) -> Self:
        """The value's bits in lanes of another type; the lane count follows the widths (little-endian)."""

    @abstractmethod
    def to(self, dtype: str) -> Self:
        """Numeric conversion: integers widen by their own sign or wrap; integers to floats and floats to wider floats
        (or f64 to f32, f32 to f16) round to nearest even; floats to integers only for integral values in range."""

    @abstractmethod
    def _binary(self, op: str, other: Self) -> Self:
        """`op` in add sub mul div and or xor shl shr (logical for unsigned, arithmetic for signed)."""

    @abstractmethod
    def _compare(self, op: str, other: Self) -> Self:
        """`op` in eq ne lt le gt ge; floats compare ordered (false with a NaN), but `ne`, true with a NaN."""

    @abstractmethod
    def fma(self, b: Self, c: Self) -> Self:
        """self * b + c of f32 or f64, rounded once."""

    @abstractmethod
    def round_even(self) -> Self:
        """The integral float nearest, ties to even."""

    @abstractmethod
    def sqrt(self) -> Self: ...

    @abstractmethod
    def where(self, yes: Self, no: Self) -> Self:
        """Lane by lane, `yes` where this b1 value is true."""

    @abstractmethod
    def permute(self, lanes: Sequence[int]) -> Self:
        """The lanes named, in that order (a fixed permutation; the count may differ)."""

    @abstractmethod
    def concat(self, other: Self) -> Self:
        """The value's lanes, then `other`'s."""

    @abstractmethod
    def lookup(self, index: Self) -> Self:
        """Lane `index[i]` of this value for every i (a permutation given by data; index below `lanes`)."""

    @abstractmethod
    def shortcut(self, usual: Callable[[], tuple[Self, Sequence[Self]]], careful: Callable[[], Self]) -> Self:
        """careful(). `usual` gives a cheaper value and conditions, one of them true in some lane wherever the two may
        differ: a reading may take that value where no condition holds."""

    def meets(self, test: Callable[..., Self], *arguments: Any) -> Self:
        """test(self, *arguments), a condition of a shortcut that looks at each lane alone: a reading may look at all
        that these lanes come from, once, and give a condition that no lane meets."""
        return test(self, *arguments)

    def converted(self, dtype: str) -> Self | None:
        """f32 lanes as f16 or bf16, or f16 lanes as f32, in a reading's own way that gives the bits of `rounding`; None
        where it has none."""
        return None

    def assured(self, fact: str) -> bool:
        """Whether this reading knows that every lane has a property, so that a shortcut need not look."""
        return False

    def assure(self, fact: str) -> Self:
        """This value; a reading may note that it has the property wherever the shortcut that made it holds."""
        return self

    def step(self, text: str, of: Callable[[], Sequence[Value]], roundings: Sequence[Roundoff] = ()) -> Self:
        """This value; a reading may note that all the steps since the values `of()` are known by the name `text`: they
        round that one value, or the sum of several, by `roundings` one after the other (none: as may be seen)."""
        return self

    # -- derived ------------------------------------------------------------------------------------------------
    def _lift(self, other: Self | int | float) -> Self:
        if type(other) is type(self):  # what isinstance() asks of an abstract class takes longer than an addition
            return other
        if type(other) is int or type(other) is float or not isinstance(other, Value):
            return self.literal(other)
        return other

    def __add__(self, other: Self | int | float) -> Self:
        return self._binary("add", self._lift(other))

    def __sub__(self, other: Self | int | float) -> Self:
        return self._binary("sub", self._lift(other))

    def __mul__(self, other: Self | int | float) -> Self:
        return self._binary("mul", self._lift(other))

    def __truediv__(self, other: Self | int | float) -> Self:
        return self._binary("div", self._lift(other))

    def __and__(self, other: Self | int) -> Self:
        return self._binary("and", self._lift(other))

    def __or__(self, other: Self | int) -> Self:
        return self._binary("or", self._lift(other))

    def __xor__(self, other: Self | int) -> Self:
        return self._binary("xor", self._lift(other))

    def __lshift__(self, other: Self | int) -> Self:
        return self._binary("shl", self._lift(other))

    def __rshift__(self, other: Self | int) -> Self:
        return self._binary("shr", self._lift(other))

    def moved_left(self, count: int) -> Self:
        """Lanes shifted left by any count; all of a lane's bits, or more, leave zero."""
        return self << count if count < self.format.bits else self & 0

    def moved_right(self, count: int) -> Self:
        """Lanes shifted right by any count: zeros in for unsigned lanes, signs for signed ones."""
        if self.format.signed:
            return self >> min(count, self.format.bits - 1)
        return self >> count if count < self.format.bits else self & 0

    def __invert__(self) -> Self:
        return self ^ (-1 if self.format.signed else self.format.high)

    def __lt__(self, other: Self | int | float) -> Self:
        return self._compare("lt", self._lift(other))

    def __le__(self, other: Self | int | float) -> Self:
        return self._compare("le", self._lift(other))

    def __gt__(self, other: Self | int | float) -> Self:
        return self._compare("gt", self._lift(other))

    def __ge__(self, other: Self | int | float) -> Self:
        return self._compare("ge", self._lift(other))

    def eq(self, other: Self | int | float) -> Self:
        return self._compare("eq", self._lift(other))

    def ne(self, other: Self | int | float) -> Self:
        return self._compare("ne", self._lift(other))

    def is_nan(self) -> Self:
        return self.ne(self)

    def rarely(self, no: Self, yes: Callable[[], Self]) -> Self:
        """`where(yes(), no)`, where hardly any lane is true."""
        return self.shortcut(lambda: (no, [self]), lambda: self.where(yes(), no))

    def minimum(self, other: Self | int) -> Self:
        other = self._lift(other)
        return (self < other).where(self, other)

    def maximum(self, other: Self | int) -> Self:
        other = self._lift(other)
        return (self > other).where(self, other)

    def saturate(self, dtype: str) -> Self:
        """This integer clamped into `dtype`'s range, then converted to it."""
        here, there = self.format, fmt(dtype)
        value = self
        if there.low > here.low:
            value = value.maximum(there.low)
        if there.high < here.high:
            value = value.minimum(there.high)
        return value.to(dtype)

    def split(self, n: int) -> tuple[Self, ...]:
        """Elements 0, 1, … n-1 of each group of n neighbouring lanes, each as a value of `lanes // n` lanes."""
        return tuple(self.permute(range(i, self.lanes, n)) for i in range(n))

    def interleave(self, other: Self) -> Self:
        """Lanes of self and other in turn: the inverse of `split(2)`."""
        n = self.lanes
        return self.concat(other).permute([k for i in range(n) for k in (i, n + i)])

    def pad(self, lanes: int) -> Self:
        """The value's lanes, then zeros up to `lanes`."""
        if lanes == self.lanes:
            return self
        zero = self.literal(0)
        return self.concat(zero).permute([i if i < self.lanes else self.lanes for i in range(lanes)])
