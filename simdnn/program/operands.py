"""Operands of instructions: tensors, indices that are affine in loop variables, registers, and memory operands.

Records of plain data (`isa_models.records.plain`); `records` has the instructions, loops and programs over them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import overload

from isa_models import ProgramError
from isa_models.formats import fmt
from isa_models.records.plain import MOST, Derived, Record, integer

#: what a tensor holds, as far as that tells what the instructions on it are for (`purposes`); `ZEROS` are zero points,
#: and what they are multiplied with
SOURCE, WEIGHTS, ZEROS, SCALES = ROLES = ("source", "weights", "zeros", "scales")


@dataclass(frozen=True)
class Tensor(Record):
    """A flat array of `size` elements. Inputs and constants are only read; outputs and scratch start as zeros.

    A private one is scratch that every thread has for itself: each iteration of the parallel loops around a stage
    finds it undefined.
    """

    name: str
    dtype: str
    size: int
    kind: str = "input"  # input | output | scratch | private | constant
    data: bytes = field(default=b"", repr=False)  # a constant's content
    digest: str = field(default="", init=False)  # identifies `data` in the program's signature
    role: str = field(default="", repr=False, kw_only=True)  # of `ROLES`, "" for all else: nothing is computed by it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data:
            object.__setattr__(self, "digest", hashlib.sha256(self.data).hexdigest()[:16])

    @property
    def nbytes(self) -> int:
        return self.size * fmt(self.dtype).bits // 8

    @property
    def element_bytes(self) -> int:
        """Bytes of an element; 0 of one that is smaller than a byte."""
        return fmt(self.dtype).bits // 8

    @staticmethod
    def constant(name: str, dtype: str, data: bytes) -> Tensor:
        size = len(data) * 8 // fmt(dtype).bits
        return Tensor(name, dtype, size, "constant", data)


@dataclass(frozen=True)
class Affine(Record):
    """`const + sum(coefficient * loop variable)`, in elements of a tensor.

    >>> str(2 * Affine.var("k") + 3)
    '2*k + 3'
    """

    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()
    __array_ufunc__ = None  # a NumPy number beside it comes to the operators below, which refuse it

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.terms) > 1 and len({name for name, _ in self.terms}) < len(self.terms):
            raise ProgramError(f"Affine: terms={self.terms}; each variable once is needed: add its coefficients up")

    @staticmethod
    @lru_cache(maxsize=1024)
    def var(name: str) -> Affine:
        return Affine(0, ((name, 1),))

    def __add__(self, other: Affine | int) -> Affine:
        if type(other) is int:
            return self._moved(self.const + other)
        if type(other) is not Affine:
            return self._moved(self.const + _number(other))
        if not other.terms:
            return self._moved(self.const + other.const)
        if not self.terms:
            return other._moved(self.const + other.const)
        return _of(self.const + other.const, *_added(self.terms, other.terms))

    def _moved(self, const: int) -> Affine:
        """This index with another constant; its terms need not be looked at again."""
        if const == self.const and type(const) is int:
            return self
        if type(const) is int and -MOST <= const <= MOST:
            return _unchecked(const, self.terms)
        return Affine(const, self.terms)  # which refuses it

    __radd__ = __add__

    def steps(self, step: int, count: int) -> Steps:
        """This index, and those `step` elements further each: `count` in all.

        >>> [str(one) for one in Affine.var("k").steps(4, 3) + 1]
        ['k + 1', 'k + 5', 'k + 9']
        """
        return Steps(self, step, count)

    def __mul__(self, factor: int) -> Affine:
        if type(factor) is not int or not -MOST <= factor <= MOST:
            factor = _number(factor)
        if factor == 1:
            return self
        return _of(self.const * factor, *_times(self.terms, factor))

    __rmul__ = __mul__

    def range(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Least and greatest value where each variable runs over 0 .. extent-1."""
        low = high = self.const
        for name, coefficient in self.terms:
            reach = coefficient * (extents[name] - 1)
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high

    def __str__(self) -> str:
        parts = [f"{c}*{n}" if c != 1 else n for n, c in self.terms]
        return " + ".join([*parts, str(self.const)] if self.const or not parts else parts)


@dataclass(eq=False, slots=True)
class Steps(Sequence[Affine]):
    """Indices `step` elements apart, of the rows of a tile say: each is made when it is asked for. A number or an index
    is added to all. Of rows that lie in several lines, the first of each line is `apart` elements from that before.
    """

    first: Affine
    step: int
    many: int
    line: int = 0  # rows in one; 0: all
    apart: int = 0

    def __len__(self) -> int:
        return self.many

    def __iter__(self) -> Iterator[Affine]:
        first, begin = self.first, self.first.const
        return iter([first._moved(begin + self._further(place)) for place in range(self.many)])

    def _further(self, place: int) -> int:
        """Elements from the first index to another."""
        line, place = divmod(place, self.line) if self.line else (0, place)
        return self.apart * line + self.step * place

    @overload
    def __getitem__(self, place: int) -> Affine: ...
    @overload
    def __getitem__(self, place: slice) -> list[Affine]: ...
    def __getitem__(self, place: int | slice) -> Affine | list[Affine]:
        if isinstance(place, slice):
            return [*self][place]
        return self.first._moved(self.first.const + self._further(range(self.many)[place]))

    def __add__(self, other: Affine | int) -> Steps:
        return Steps(self.first + other, self.step, self.many, self.line, self.apart)


_new, _set = object.__new__, object.__setattr__


Terms = tuple[tuple[str, int], ...]


@lru_cache(maxsize=4096)
def _added(a: Terms, b: Terms) -> tuple[Terms, bool]:
    """The terms of a sum, and whether all are small enough; the rows of a tile have the same."""
    terms = dict(a)
    for name, coefficient in b:
        terms[name] = terms.get(name, 0) + coefficient
    return _with_size(tuple(sorted([(n, c) for n, c in terms.items() if c])))


@lru_cache(maxsize=4096)
def _times(terms: Terms, factor: int) -> tuple[Terms, bool]:
    """The terms of a product, and whether all are small enough."""
    return _with_size(tuple([(n, c * factor) for n, c in terms]) if factor else ())


def _with_size(terms: Terms) -> tuple[Terms, bool]:
    return terms, all([-MOST <= coefficient <= MOST for _, coefficient in terms])


def _of(const: int, terms: Terms, small: bool) -> Affine:
    """An index whose parts are plain, as they come from other indices: they may be too large, and nothing else."""
    return _unchecked(const, terms) if small and -MOST <= const <= MOST else Affine(const, terms)


def _unchecked(const: int, terms: Terms) -> Affine:
    made = _new(Affine)
    _set(made, "const", const)
    _set(made, "terms", terms)
    return made


def _number(value: object) -> int:
    """An addend or factor of an index; refused where the record's own fields would refuse it."""
    return value if integer(value) else Affine(value).const  # type: ignore[arg-type,return-value]


@dataclass(frozen=True)
class Register(Record):
    """A vector register by name, seen as `lanes` lanes of `dtype`; fewer bits than it holds are its low part.

    One of b1 is a mask register, which holds whole bytes: zeros above its lanes.
    """

    name: str
    dtype: str
    lanes: int

    @Derived
    def bits(self) -> int:
        bits = self.lanes * fmt(self.dtype).bits
        return max(8, bits) if fmt(self.dtype).is_truth else bits

    def as_(self, dtype: str) -> Register:
        """This register seen in lanes of another type."""
        if dtype == self.dtype:
            return self
        seen = self._seen.get(dtype)
        if seen is None:
            seen = self._seen[dtype] = Register.of(self.name, dtype, self.bits // fmt(dtype).bits)
        return seen

    @Derived
    def _seen(self) -> dict[str, Register]:
        """The register as it was seen in lanes of other types."""
        return {}

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(name: str, dtype: str, lanes: int) -> Register:
        """The register itself, which programs name over and over."""
        return Register(name, dtype, lanes)

    def __hash__(self) -> int:
        return self._hash

    @Derived
    def _hash(self) -> int:
        return hash((self.name, self.dtype, self.lanes))

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}x{self.lanes}"


@dataclass(frozen=True)
class Memory(Record):
    """`lanes` lanes of `dtype` at element `index` of `tensor`; a tile's in `rows` rows, `stride` elements apart."""

    tensor: str
    index: Affine
    dtype: str
    lanes: int
    rows: int = 1
    stride: int = 0

    @Derived
    def bits(self) -> int:
        return self.lanes * fmt(self.dtype).bits

    def __str__(self) -> str:
        rows = f" in {self.rows} rows {self.stride} apart" if self.rows > 1 else ""
        return f"{self.tensor}[{self.index}]:{self.dtype}x{self.lanes}{rows}"


Place = Register | Memory
