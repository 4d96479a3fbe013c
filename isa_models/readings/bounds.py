"""The reading that bounds errors: beside each number stands how far it may be from what exact arithmetic gives.

A lane knows, besides its bits, the exact number (as f64 has it), a bound of that number's magnitude, and how far the
lane may be off. Magnitudes add up as |a| + |b| and |a| * |b|, so that no sum is thought small because its terms cancel:
this is the a-priori bound of a dot product, gamma_n |a|.|b| (Higham, "Accuracy and Stability of Numerical Algorithms",
2002, section 3.1), for whatever order, formats and steps an instruction has. A rounding adds its unit times the
magnitude (`isa_models.roundoff`), nothing where the type holds every number that may come.

What is done to a number's bits by other means than arithmetic (shifts and masks that round it, tables) is measured: the
number that came out against the one that went in. What is exact is followed as it is, integers above all; what a step
saturates or wraps away is an error, unless the bits are then read as another type. A comparison that errors may turn
counts with both its outcomes. Where parts of several numbers are put together to one the bound is infinite, which is
never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.readings.shades import (
    COUNTS,
    DRIFT,
    EXACT,
    FIELDS,
    HELD,
    PART,
    SIZE,
    SLOP,
    SPREAD,
    WORST,
    blank_of,
    computed_with,
    either_of,
    exact_of,
    grid_of,
    is_nothing,
    kept_finite,
    moved_by,
    numbers_of,
    of_nobody,
    product_of,
    quotient_of,
    regrouped,
    round_off,
    sum_of,
    torn_apart,
)
from isa_models.roundoff import Roundoff, roundoff

_NUMERIC = ("add", "sub", "mul", "div")


class BoundedValue(ArrayValue):
    """Lanes with what stands beside each: `shade` (FIELDS, vectors, lanes or parts of them), None where all is exact.

    >>> x = BoundedValue(np.array([2.0**24], "f4"), "f32")
    >>> total = (x + 1.0) + 1.0
    >>> beside = total.settled()
    >>> total.array.tolist(), bool(beside[WORST, 0, 0] >= 2), beside[EXACT].tolist()
    ([[16777216.0]], True, [[16777218.0]])
    """

    def __init__(
        self,
        array: Array,
        dtype: str,
        shade: Array | None = None,
        meant: str = "",
        doubt: Array | None = None,
        exact: Array | None = None,
    ) -> None:
        super().__init__(array if array.ndim > 1 else array[None], dtype)
        self.shade = shade if shade is None or shade.ndim > 2 else shade[:, None]
        self.meant = meant or dtype  # the type of the numbers that the shade is about
        self.doubt, self.exact = doubt, exact  # of truths: which may be others, and what they are on exact numbers

    # -- what stands beside -----------------------------------------------------------------------------------------
    @property
    def numeric(self) -> bool:
        """Whether the lanes are numbers of the kind that the shade is about, and not their bits."""
        return self.format.is_float or not fmt(self.meant).is_float

    def beside(self, lanes: int = 0) -> Array:
        """The shade with a column for each lane; of exact lanes HELD is NaN."""
        if self.shade is None:
            blank = np.zeros((FIELDS, *self.array.shape))
            blank[HELD] = np.nan
            return blank
        return regrouped(self.shade, lanes or self.lanes)

    def settled(self) -> Array:
        """The shade of the lanes as numbers of their type: what they lost as bits is measured and added."""
        now = numbers_of(self.array)
        if self.shade is None:
            return kept_finite(exact_of(now))
        found = np.array(np.broadcast_to(self.beside(), (FIELDS, *now.shape)))
        other = self.meant != self.dtype and not fmt(self.meant).is_float  # what wrapped on purpose is read so
        fresh = (np.isnan(found[HELD]) | other) & (found[WORST] == 0)
        with np.errstate(invalid="ignore"):
            lost = np.where(fresh, 0.0, np.abs(now - found[HELD]))
        moved = lost > 0
        if moved.any():
            found[WORST] += np.where(moved, lost, 0)
            found[DRIFT] += np.where(moved, lost, 0)
            found[COUNTS.stop - 1] += moved
        if fresh.any():
            found = np.where(fresh, exact_of(now), found)
        found[HELD], found[PART] = now, 0
        return kept_finite(found)

    def _with(self, inner: ArrayValue, shade: Array | None, meant: str = "") -> Self:
        return type(self)(inner.array, inner.dtype, shade, meant or inner.dtype)

    def _result(self, inner: ArrayValue, shade: Array) -> Self:
        """A computed number."""
        shade[HELD], shade[PART] = numbers_of(inner.array), 0
        shade[SIZE] = np.where(shade[WORST] == 0, np.abs(shade[HELD]), shade[SIZE])
        return self._with(inner, kept_finite(shade))

    def _plain(self) -> ArrayValue:
        return ArrayValue(self.array, self.dtype)

    # -- moves ------------------------------------------------------------------------------------------------------
    def flat(self) -> Self:
        shade = self.shade
        if shade is not None:
            shade = np.broadcast_to(shade, (FIELDS, *self.array.shape[:-1], shade.shape[-1]))
            shade = shade.reshape(FIELDS, -1, shade.shape[-1])
        return type(self)(self.array.reshape(-1, self.lanes), self.dtype, shade, self.meant)

    def repeated(self, count: int) -> Self:
        if len(self.array) == 1:
            return self
        shade = None if self.shade is None else np.repeat(self.shade, count, axis=1)
        return type(self)(np.repeat(self.array, count, axis=0), self.dtype, shade, self.meant)

    def view(self, dtype: str) -> Self:
        if dtype == self.dtype:
            return self
        return self._with(self._plain().view(dtype), self.shade, self.meant)

    def permute(self, lanes: Sequence[int]) -> Self:
        inner = self._plain().permute(lanes)
        at = lanes if not isinstance(lanes, range) else slice(lanes.start, lanes.stop, lanes.step)
        shade = None
        if self.shade is not None:
            parts = self.shade.shape[-1] // self.lanes
            if parts <= 1:
                shade = self.beside()[..., at if isinstance(at, slice) else list(at)]
            else:
                spread = [lane * parts + i for lane in lanes for i in range(parts)]
                shade = self.shade[..., spread]
        found = self._with(inner, shade, self.meant)
        if self.doubt is not None and self.exact is not None:
            found.doubt, found.exact = self.doubt[..., list(lanes)], self.exact[..., list(lanes)]
        return found

    def concat(self, other: Value) -> Self:
        assert isinstance(other, BoundedValue)
        inner = self._plain().concat(other._plain())
        shade = None
        if self.shade is not None or other.shade is not None:
            parts = max(v.shade.shape[-1] // v.lanes if v.shade is not None else 1 for v in (self, other))
            parts = max(1, parts)
            sides = [v.beside(v.lanes * parts) if v.shade is not None else blank_of(v, parts) for v in (self, other)]
            lead = inner.array.shape[:-1]
            shade = np.concatenate([np.broadcast_to(s, (FIELDS, *lead, s.shape[-1])) for s in sides], axis=-1)
        return self._with(inner, shade, self.meant if self.shade is not None else other.meant)

    def lookup(self, index: Value) -> Self:
        assert isinstance(index, BoundedValue)
        inner = self._plain().lookup(index._plain())
        if self.shade is None:
            return self._with(inner, None)
        picks = np.broadcast_to(index.array.astype(np.intp), (FIELDS, *inner.array.shape))
        table = np.broadcast_to(self.beside(), (FIELDS, *inner.array.shape[:-1], self.lanes))
        return self._with(inner, np.take_along_axis(table, picks, axis=-1), self.meant)

    # -- arithmetic -------------------------------------------------------------------------------------------------
    def _binary(self, op: str, other: Value) -> Self:
        assert isinstance(other, BoundedValue)
        inner = self._plain()._binary(op, other._plain())
        if self.format.is_truth:
            return self._truths(op, other, inner)
        if self.format.is_float:
            return self._rounded(inner, self._combined(op, other), roundoff(self.dtype))
        if self.shade is None and other.shade is None:
            return self._whole(op, other, inner)
        if op in _NUMERIC and self.numeric and other.numeric:
            found, _, _ = self._combined(op, other)
            found[HELD] = computed_with(op, numbers_of(self.array), numbers_of(other.array))  # it may wrap
            return self._with(inner, found)
        if (kept := self._kept(op, other)) is not None:
            return self._with(inner, kept, self.meant)
        number, bits = (self, other) if self.shade is not None else (other, self)
        if (turned := number._turned(op, bits, inner)) is not None:
            return self._with(inner, turned, number.meant)
        return self._bits(other, inner)

    def _whole(self, op: str, other: BoundedValue, inner: ArrayValue) -> Self:
        """Exact integers; a signed one that wraps and is read as such is in error."""
        if op not in ("add", "sub", "mul") or not self.format.signed or self.format.bits > 32:
            return self._with(inner, None)
        computed = computed_with(op, self.array.astype(np.int64), other.array.astype(np.int64))
        if (computed == inner.array).all():
            return self._with(inner, None)
        return self._with(inner, exact_of(numbers_of(computed)))

    def _combined(self, op: str, other: BoundedValue) -> tuple[Array, Array, Array]:
        """The shade of an operation before it rounds, the grid that its exact result lies on, and where it is exact."""
        a, b = self.settled(), other.settled()
        if op == "mul":
            return product_of(a, b)
        if op == "div":
            return quotient_of(a, b)
        return sum_of(a, b, -1.0 if op == "sub" else 1.0)

    def fma(self, b: Value, c: Value) -> Self:
        assert isinstance(b, BoundedValue) and isinstance(c, BoundedValue)
        inner = self._plain().fma(b._plain(), c._plain())
        x, y, z = self.settled(), b.settled(), c.settled()
        product, grid, _ = product_of(x, y)
        total, fine, _ = sum_of(product, z, 1.0, (grid, grid_of(z[HELD])))
        return self._rounded(inner, (total, fine, is_nothing(x) | is_nothing(y)), roundoff(self.dtype))

    def _rounded(
        self, inner: ArrayValue, given: tuple[Array, Array, Array], *steps: Roundoff, magnitude: Array | None = None
    ) -> Self:
        """`magnitude`: of all addends of the sum that is rounded."""
        found, grid, exact = given
        for step in steps:
            if step.aligned and magnitude is not None:
                size, found[SIZE] = found[SIZE].copy(), magnitude
                round_off(found, grid, exact, step)
                found[SIZE] = np.where(found[WORST] > 0, magnitude, size)
            else:
                round_off(found, grid, exact, step)
        return self._result(inner, found)

    def to(self, dtype: str) -> Self:
        inner, form = self._plain().to(dtype), fmt(dtype)
        if self.shade is None and not self.format.is_float:
            if not form.is_float or (inner.array.astype(np.float64) == numbers_of(self.array)).all():
                return self._with(inner, None)
        if form.is_truth or self.format.is_truth or not self.numeric:
            low = self._narrowed(dtype)
            return self._with(inner, self.beside() if low is None else low, self.meant)
        found = np.array(self.settled())
        if form.is_float:
            return self._rounded(inner, (found, grid_of(found[HELD]), np.zeros((), bool)), roundoff(dtype))
        return self._result(inner, moved_by(found, np.abs(numbers_of(inner.array) - found[HELD])))

    def round_even(self) -> Self:
        inner, found = self._plain().round_even(), np.array(self.settled())
        half = np.where(grid_of(found[HELD]) >= 1, 0, np.minimum(0.5, found[SIZE] + found[WORST]))
        return self._result(inner, moved_by(found, half))

    def sqrt(self) -> Self:
        inner, found = self._plain().sqrt(), np.array(self.settled())
        with np.errstate(all="ignore"):
            root = np.sqrt(np.abs(found[HELD]))
            share = np.minimum(np.sqrt(found[WORST]), found[WORST] / root)
            for field in (WORST, DRIFT):
                found[field] = np.where(found[WORST] > 0, share, 0)
            found[SPREAD] = 0
            found[EXACT], found[SIZE] = np.sqrt(found[EXACT]), np.sqrt(found[SIZE])
        return self._rounded(inner, (found, np.zeros_like(root), np.zeros((), bool)), roundoff(self.dtype))

    def saturate(self, dtype: str) -> Self:
        inner = self._plain().saturate(dtype)
        if self.shade is not None and not self.numeric:
            return self._with(inner, self.beside(), self.meant)
        lost = np.abs(numbers_of(inner.array) - numbers_of(self.array))
        if self.shade is None and not lost.any():
            return self._with(ArrayValue(inner.array, inner.dtype), None)
        return self._result(inner, moved_by(np.array(self.settled()), lost))

    # -- bits -------------------------------------------------------------------------------------------------------
    def _kept(self, op: str, other: BoundedValue) -> Array | None:
        """The bounds beside lanes that hold several numbers each, which are shifted or masked as wholes; else None."""
        parts = 0 if self.shade is None or other.shade is not None else self.shade.shape[-1] // self.lanes
        if parts < 2 or op not in ("shl", "shr", "and"):
            return None
        size, words = self.format.bits // parts, np.unique(other.array)
        assert self.shade is not None
        shape = (*self.shade.shape[:-1], self.lanes, parts)
        if op == "and":
            fields = other.array.astype(np.uint64)[..., None] >> np.arange(0, size * parts, size, dtype=np.uint64)
            fields = fields & np.uint64((1 << size) - 1)
            if not np.isin(fields, (0, (1 << size) - 1)).all():
                return None
            found = np.where(fields != 0, self.shade.reshape(shape), of_nobody()[..., None])
            return found.reshape(*found.shape[:-2], -1)
        if len(words) != 1 or int(words[0]) % size:
            return None
        by = int(words[0]) // size * (1 if op == "shr" else -1)
        found = np.broadcast_to(of_nobody()[..., None], shape).copy()
        for part in range(parts):
            if 0 <= part + by < parts:
                found[..., part] = self.shade.reshape(shape)[..., part + by]
        return found.reshape(self.shade.shape)

    def _turned(self, op: str, other: BoundedValue, inner: ArrayValue) -> Array | None:
        """The bounds beside floats whose sign bits alone are set or turned; None of anything else."""
        size, form = self.format.bits, fmt(self.meant)
        if op not in ("or", "xor") or other.shade is not None or not form.is_float or form.bits != size:
            return None
        if self.beside().shape[-1] != self.lanes or not np.isin(other.array, (0, 1 << (size - 1))).all():
            return None
        found = np.array(np.broadcast_to(self.beside(), (FIELDS, *inner.array.shape)))
        turns = (inner.array ^ self.array) != 0
        for field in (EXACT, HELD):
            found[field] = np.where(turns, -found[field], found[field])
        return found

    def _narrowed(self, dtype: str) -> Array | None:
        """The bounds beside the low halves (and so on) of lanes that hold several numbers each; None of others."""
        parts = 1 if self.shade is None else self.shade.shape[-1] // self.lanes
        ratio = self.format.bits // fmt(dtype).bits
        if parts < 2 or ratio < 1 or parts % ratio:
            return None
        assert self.shade is not None
        shade = self.shade.reshape(*self.shade.shape[:-1], self.lanes, parts)
        low: Array = shade[..., : parts // ratio]
        return low.reshape(*low.shape[:-2], -1)

    def _bits(self, other: BoundedValue, inner: ArrayValue) -> Self:
        """Bits that belong to the number of one operand; of two numbers to that which is there, else to none."""
        if self.shade is None:
            return self._with(inner, np.broadcast_to(other.beside(), (FIELDS, *inner.array.shape)), other.meant)
        a = np.broadcast_to(self.beside(), (FIELDS, *inner.array.shape))
        if other.shade is None:
            return self._with(inner, a, self.meant)
        b = np.broadcast_to(other.beside(), (FIELDS, *inner.array.shape))
        first = np.isnan(b[HELD]) & (b[WORST] == 0) | (other.array == 0)
        second = np.isnan(a[HELD]) & (a[WORST] == 0) | (self.array == 0)
        same = ((a[HELD] == b[HELD]) & (a[WORST] == b[WORST])) | (first & second)
        found = np.where(first | same, a, b)
        torn = ~(first | second | same)
        return self._with(inner, np.where(torn, torn_apart(), found), self.meant)

    def _truths(self, op: str, other: BoundedValue, inner: ArrayValue) -> Self:
        found = self._with(inner, None)
        if self.doubt is not None or other.doubt is not None:
            found.doubt = either_of(self.doubt, other.doubt)
            sides = [v.array if v.exact is None else v.exact for v in (self, other)]
            found.exact = ArrayValue(sides[0], "b1")._binary(op, ArrayValue(sides[1], "b1")).array
        return found

    def _compare(self, op: str, other: Value) -> Self:
        assert isinstance(other, BoundedValue)
        inner = self._plain()._compare(op, other._plain())
        found = self._with(inner, None)
        if other is self or (self.shade is None and other.shade is None):
            return found
        if self.numeric and other.numeric:
            a, b = self.settled(), other.settled()
            error = a[WORST] + b[WORST]
            found.doubt = (error > 0) & ~(np.abs(a[HELD] - b[HELD]) > error)
            exact = [ArrayValue(side[EXACT], "f64") for side in (a, b)]
            found.exact = exact[0]._compare(op, exact[1]).array
        else:
            error = self.beside()[WORST] + other.beside()[WORST]
            found.doubt, found.exact = np.broadcast_to(error > 0, inner.array.shape), inner.array
        if not found.doubt.any():
            found.doubt = found.exact = None
        return found

    def where(self, yes: Value, no: Value) -> Self:
        assert isinstance(yes, BoundedValue) and isinstance(no, BoundedValue)
        inner = self._plain().where(yes._plain(), no._plain())
        if self.doubt is None and yes.shade is None and no.shade is None:
            return self._with(inner, None)
        if yes.format.is_truth:
            return self._with(inner, None)
        meant = yes.meant if yes.shade is not None else no.meant
        as_numbers = yes.numeric and no.numeric
        shape = (FIELDS, *inner.array.shape)
        a, b = (np.broadcast_to(v.settled() if as_numbers else v.beside(), shape) for v in (yes, no))
        found = np.where(self.array, a, b)
        if self.doubt is not None and self.exact is not None:
            away = np.where(self.array, b, a)
            apart = np.abs(a[HELD] - b[HELD]) if as_numbers else np.inf
            for field in (WORST, DRIFT):
                other = np.maximum(found[field], apart + away[WORST])
                found[field] = np.where(self.doubt, other, found[field])
            for field in (SIZE, SPREAD):
                found[field] = np.where(self.doubt, np.maximum(a[field], b[field]), found[field])
            found[EXACT] = np.where(self.exact, a[EXACT], b[EXACT])
        return self._with(inner, found, inner.dtype if as_numbers else meant)

    # -- steps that have a name ---------------------------------------------------------------------------------------
    def step(self, text: str, of: Callable[[], Sequence[Value]], roundings: Sequence[Roundoff] = ()) -> Self:
        """All that was done since `of()` is this: their sum, rounded; where nobody says how, that is measured."""
        values = [value for value in of() if isinstance(value, BoundedValue)]
        sides = [value.settled() for value in values]
        found = np.array(np.broadcast_to(sides[0], np.broadcast_shapes(*(s.shape for s in sides))))
        grid, held = grid_of(found[HELD]), found[HELD].copy()
        magnitude = found[SIZE].copy()
        for side in sides[1:]:
            found, _, _ = sum_of(found, side, 1.0)
            grid, held = np.minimum(grid, grid_of(side[HELD])), held + side[HELD]
            magnitude = magnitude + side[SIZE]
        if roundings:
            return self._rounded(self._plain(), (found, grid, np.zeros((), bool)), *roundings, magnitude=magnitude)
        found[HELD] = held
        lost = np.abs(numbers_of(self.array) - held)
        lost = np.where(lost > 0, lost + (SLOP * found[SIZE] if len(sides) > 1 else 0), 0)
        return self._result(self._plain(), moved_by(found, lost))

    def _new(self, array: Array, dtype: str) -> Self:
        return type(self)(array, dtype)
