"""The interval reading of the algebra: each lane is a range that holds every value it can have.

Ranges are sound for every operation and tight for what integer dot products are made of: products, sums, minima, maxima
and saturation of lanes that vary independently. A `Watch` collects what saturating and wrapping steps were given, which
answers "can it saturate?" for all inputs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from isa_models.algebra import Value
from isa_models.formats import Format, fmt
from isa_models.readings.arrays import Array, ArrayValue


@dataclass(frozen=True, eq=False)
class Clip:
    """A saturating step: the type, and the range of each lane before it."""

    dtype: str
    low: Array
    high: Array

    @property
    def possible(self) -> Array:
        """Lanes that can saturate."""
        form = fmt(self.dtype)
        mask: Array = (self.low < form.low) | (self.high > form.high)
        return mask


@dataclass(eq=False)
class Watch:
    """An account of what happened to ranges on the way."""

    clips: list[Clip] = field(default_factory=list)
    wraps: list[tuple[str, Array]] = field(default_factory=list)  # operation, lanes that can wrap


class IntervalValue(Value):
    """Lanes between `low` and `high`, integers kept exactly.

    Of floats `nan` says which lanes may be NaN, and `point` which have one value, bit for bit.
    """

    def __init__(
        self,
        dtype: str,
        low: Array,
        high: Array,
        watch: Watch | None = None,
        nan: Array | None = None,
        point: Array | None = None,
    ) -> None:
        self.dtype = dtype
        self.low, self.high = low, high
        self.lanes = len(low)
        self.watch = watch if watch is not None else Watch()
        self.nan = np.zeros(self.lanes, bool) if nan is None else nan
        self.point: Array = (low == high) & ~self.nan if point is None else point

    # -- making -----------------------------------------------------------------------------------------------------
    @staticmethod
    def between(dtype: str, low: Any, high: Any, watch: Watch) -> IntervalValue:
        """Lanes of independent values from `low` to `high` (arrays, or numbers for one lane)."""
        kept = _kept(fmt(dtype))
        lows, highs = (np.atleast_1d(np.asarray(x)).astype(kept) for x in (low, high))
        lows, highs = np.broadcast_arrays(lows, highs)
        return IntervalValue(dtype, lows, highs, watch)

    def _top(self, dtype: str, lanes: int) -> IntervalValue:
        """Lanes that may hold any value of their type."""
        form = fmt(dtype)
        low, high = (-np.inf, np.inf) if form.is_float else (form.low, form.high)
        nothing = np.zeros(lanes, bool)
        lows, highs = (np.full(lanes, x).astype(_kept(form)) for x in (low, high))
        return IntervalValue(dtype, lows, highs, self.watch, ~nothing if form.is_float else nothing, nothing)

    def _of(self, value: Value) -> IntervalValue:
        """An exact result: every lane one value."""
        assert isinstance(value, ArrayValue)
        form = fmt(value.dtype)
        array = np.broadcast_to(value.array, (value.lanes,)).astype(_kept(form))
        nan = np.isnan(array.astype(np.float64)) if form.is_float else np.zeros(value.lanes, bool)
        return IntervalValue(value.dtype, array, array, self.watch, nan, np.ones(value.lanes, bool))

    def _exactly(self, end: str = "low") -> ArrayValue:
        return ArrayValue(getattr(self, end).astype(self.format.dtype), self.dtype)

    def _mixed(self, exact: IntervalValue, bounds: IntervalValue, points: Array) -> IntervalValue:
        """`exact` where all inputs are points, else `bounds`."""
        low, high = np.where(points, exact.low, bounds.low), np.where(points, exact.high, bounds.high)
        kept = _kept(fmt(bounds.dtype))
        nan, point = np.where(points, exact.nan, bounds.nan), np.where(points, exact.point, bounds.point)
        return IntervalValue(bounds.dtype, low.astype(kept), high.astype(kept), self.watch, nan, point)

    def _fitted(self, op: str, dtype: str, low: Array, high: Array) -> IntervalValue:
        """Integer bounds, or the whole type where they leave it: then the lane may wrap."""
        form = fmt(dtype)
        out = (low < form.low) | (high > form.high)
        if out.any():
            self.watch.wraps.append((op, out.astype(bool)))
        kept = _kept(form)
        least, most = (np.array(end, kept) for end in (form.low, form.high))
        return IntervalValue(
            dtype, np.where(out, least, low).astype(kept), np.where(out, most, high).astype(kept), self.watch
        )

    def _corners(self, dtype: str, lanes: int, function: Callable[..., Value], *others: IntervalValue) -> IntervalValue:
        """The range of a float operation that is monotone in each operand: its results at the ends of the ranges."""
        operands = (self, *others)
        with np.errstate(all="ignore"):
            ends = [
                function(*(o._exactly(end) for o, end in zip(operands, choice, strict=True)))
                for choice in product(("low", "high"), repeat=len(operands))
            ]
        results = np.array([np.broadcast_to(e.array, (lanes,)) for e in ends if isinstance(e, ArrayValue)])
        results = results.astype(_kept(fmt(dtype)))
        lost = np.logical_or.reduce([o.nan for o in operands])
        if fmt(dtype).is_float:
            lost = lost | np.isnan(results).any(axis=0)
            lost = lost | np.logical_or.reduce(
                [~np.isfinite(x) for o in operands if o.format.is_float for x in (o.low, o.high)]
                or [np.zeros(lanes, bool)]
            )
        points = np.logical_and.reduce([o.point for o in operands])
        top = self._top(dtype, lanes)
        with np.errstate(all="ignore"):
            low = np.where(lost, top.low, np.nanmin(np.where(lost, 0, results), axis=0))
            high = np.where(lost, top.high, np.nanmax(np.where(lost, 0, results), axis=0))
        nothing = np.zeros(lanes, bool)
        bounds = IntervalValue(dtype, low, high, self.watch, lost & fmt(dtype).is_float, nothing)
        return self._mixed(self._of(ends[0]), bounds, points)

    # -- the algebra ------------------------------------------------------------------------------------------------
    def literal(self, number: int | float) -> IntervalValue:
        return self._of(ArrayValue(np.full(self.lanes, number, self.format.dtype), self.dtype))

    def view(self, dtype: str) -> IntervalValue:
        if dtype == self.dtype:
            return self
        form, lanes = fmt(dtype), self.lanes * self.format.bits // fmt(dtype).bits
        with np.errstate(all="ignore"):
            exact = self._of(self._exactly().view(dtype))
        if self.format.is_float or form.is_float:
            bounds = self._top(dtype, lanes)
        elif form.bits == self.format.bits:
            bounds = self._resigned(form)
        elif form.bits > self.format.bits:
            plain = self if self.format.is_truth else self._resigned(fmt(f"u{self.format.bits}"))
            bounds = plain._widened(form)
        else:
            bounds = self._top(dtype, lanes)
        return self._mixed(exact, bounds, _spread(self.point, lanes))

    def _resigned(self, form: Format) -> IntervalValue:
        """The range of these bits as integers of the other signedness: one unless it crosses where the sign turns."""
        low, high = self.low.copy(), self.high.copy()
        turn = np.array([1 << form.bits], object if form.bits == 64 else np.int64)
        if form.signed != self.format.signed:
            move = np.where(low > form.high, -turn, 0) if form.signed else np.where(high < 0, turn, 0)
            low, high = low + move, high + move
        torn = (low < form.low) | (high > form.high)
        low, high = np.where(torn, form.low, low), np.where(torn, form.high, high)
        kept = _kept(form)
        return IntervalValue(form.name, low.astype(kept), high.astype(kept), self.watch)

    def _widened(self, form: Format) -> IntervalValue:
        """Neighbouring unsigned lanes as one lane."""
        count = form.bits // self.format.bits
        weights = np.array([1 << (self.format.bits * i) for i in range(count)], object)
        sums = [(end.astype(object).reshape(-1, count) * weights).sum(axis=1) for end in (self.low, self.high)]
        kept = _kept(fmt(f"u{form.bits}"))
        whole = IntervalValue(f"u{form.bits}", sums[0].astype(kept), sums[1].astype(kept), self.watch)
        return whole._resigned(form)

    def to(self, dtype: str) -> IntervalValue:
        form = fmt(dtype)
        if dtype == self.dtype:
            return self
        if self.format.is_float or form.is_float:
            found = self._corners(dtype, self.lanes, lambda x: x.to(dtype))
            if form.is_float:
                return found
            wild = self.nan | ~np.isfinite(self.low.astype(float)) | ~np.isfinite(self.high.astype(float))
            with np.errstate(all="ignore"):
                wild = wild | (self.low < form.low) | (self.high > form.high)
            return self._mixed(self._top(dtype, self.lanes), found, wild)
        return self._mixed(
            self._of(self._exactly().to(dtype)), self._fitted("to", dtype, self.low, self.high), self.point
        )

    def saturate(self, dtype: str) -> IntervalValue:
        self.watch.clips.append(Clip(dtype, self.low, self.high))
        form = fmt(dtype)
        kept = _kept(form)
        low, high = (np.minimum(np.maximum(end, form.low), form.high).astype(kept) for end in (self.low, self.high))
        return IntervalValue(dtype, low, high, self.watch)

    def minimum(self, other: Value | int) -> IntervalValue:
        return self._extreme(np.minimum, other)

    def maximum(self, other: Value | int) -> IntervalValue:
        return self._extreme(np.maximum, other)

    def _extreme(self, choose: Callable[[Array, Array], Array], other: Value | int) -> IntervalValue:
        right = other if isinstance(other, IntervalValue) else self.literal(other)  # type: ignore[arg-type]
        return IntervalValue(self.dtype, choose(self.low, right.low), choose(self.high, right.high), self.watch)

    def _binary(self, op: str, other: Value) -> IntervalValue:
        assert isinstance(other, IntervalValue) and other.dtype == self.dtype
        if self.format.is_float:
            found = self._corners(self.dtype, self.lanes, lambda x, y: x._binary(op, y), other)
            across_zero = (op == "div") & (other.low <= 0) & (other.high >= 0) & ~(self.point & other.point)
            return self._mixed(self._top(self.dtype, self.lanes), found, across_zero)
        exact = self._of(self._exactly()._binary(op, other._exactly()))
        return self._mixed(exact, self._bounds(op, other), self.point & other.point)

    def _bounds(self, op: str, other: IntervalValue) -> IntervalValue:
        a, b, c, d = (end.astype(_roomy(op, self.format)) for end in (self.low, self.high, other.low, other.high))
        if op == "add":
            return self._fitted(op, self.dtype, a + c, b + d)
        if op == "sub":
            return self._fitted(op, self.dtype, a - d, b - c)
        if op == "mul":
            ends = [a * c, a * d, b * c, b * d]
            return self._fitted(op, self.dtype, _least(ends), -_least([-e for e in ends]))
        if op in ("shl", "shr"):
            fine = (c == d) & (c >= 0) & (c < self.format.bits)
            by = np.where(fine, c, 0)
            low, high = (a << by, b << by) if op == "shl" else (a >> by, b >> by)
            found = self._fitted(op, self.dtype, low, high)
            return self._mixed(found, self._top(self.dtype, self.lanes), fine)
        positive = (a >= 0) & (c >= 0)
        if op == "and":
            found = IntervalValue(self.dtype, np.zeros_like(self.low), np.minimum(self.high, other.high), self.watch)
        else:
            most = np.array([(1 << int(max(x, y)).bit_length()) - 1 for x, y in zip(b, d, strict=True)], object)
            found = self._fitted(op, self.dtype, np.zeros_like(most), most)
        return self._mixed(found, self._top(self.dtype, self.lanes), positive)

    def _compare(self, op: str, other: Value) -> IntervalValue:
        assert isinstance(other, IntervalValue) and other.dtype == self.dtype
        if op in ("gt", "ge"):
            return other._compare("lt" if op == "gt" else "le", self)
        nan = self.nan | other.nan
        if op in ("eq", "ne"):
            always, never = (
                self.point & other.point & (self.low == other.low),
                (self.high < other.low) | (other.high < self.low),
            )
            if op == "ne":
                always, never = never, always
        elif op == "lt":
            always, never = self.high < other.low, self.low >= other.high
        else:
            always, never = self.high <= other.low, self.low > other.high
        low, high = always & ~nan if op != "ne" else always, ~never | nan if op == "ne" else ~never
        exact = self._of(self._exactly()._compare(op, other._exactly()))
        bounds = IntervalValue("b1", low.astype(np.int64), high.astype(np.int64), self.watch)
        return self._mixed(exact, bounds, self.point & other.point)

    def fma(self, b: Value, c: Value) -> IntervalValue:
        assert isinstance(b, IntervalValue) and isinstance(c, IntervalValue)
        return self._corners(self.dtype, self.lanes, lambda x, y, z: x.fma(y, z), b, c)

    def round_even(self) -> IntervalValue:
        return self._corners(self.dtype, self.lanes, lambda x: x.round_even())

    def sqrt(self) -> IntervalValue:
        return self._corners(self.dtype, self.lanes, lambda x: x.sqrt())

    def where(self, yes: Value, no: Value) -> IntervalValue:
        assert isinstance(yes, IntervalValue) and isinstance(no, IntervalValue) and yes.dtype == no.dtype
        can, cannot = self.high.astype(bool), ~self.low.astype(bool)  # be true, be false
        least, most = (
            (np.fmin, np.fmax) if yes.format.is_float else (np.minimum, np.maximum)
        )  # beside a NaN, the number
        low = np.where(can & cannot, least(yes.low, no.low), np.where(can, yes.low, no.low))
        high = np.where(can & cannot, most(yes.high, no.high), np.where(can, yes.high, no.high))
        point = np.where(can, yes.point, no.point) & ~(can & cannot)
        kept, nan = _kept(yes.format), (can & yes.nan) | (cannot & no.nan)
        known = point if yes.format.is_float else None
        return IntervalValue(yes.dtype, low.astype(kept), high.astype(kept), self.watch, nan, known)

    def permute(self, lanes: Sequence[int]) -> IntervalValue:
        at = list(lanes)
        return IntervalValue(self.dtype, self.low[at], self.high[at], self.watch, self.nan[at], self.point[at])

    def concat(self, other: Value) -> IntervalValue:
        assert isinstance(other, IntervalValue) and other.dtype == self.dtype
        parts = [np.concatenate([getattr(v, part) for v in (self, other)]) for part in ("low", "high", "nan", "point")]
        return IntervalValue(self.dtype, parts[0], parts[1], self.watch, parts[2], parts[3])

    def lookup(self, index: Value) -> IntervalValue:
        assert isinstance(index, IntervalValue)
        spans = [slice(int(a), int(b) + 1) for a, b in zip(index.low, index.high, strict=True)]
        low, high = np.array([self.low[s].min() for s in spans]), np.array([self.high[s].max() for s in spans])
        point = np.array([s.stop - s.start == 1 and bool(self.point[s].all()) for s in spans])
        nan = np.array([bool(self.nan[s].any()) for s in spans])
        kept = _kept(self.format)
        return IntervalValue(self.dtype, low.astype(kept), high.astype(kept), self.watch, nan, point)

    def shortcut(
        self, usual: Callable[[], tuple[Value, Sequence[Value]]], careful: Callable[[], Value]
    ) -> IntervalValue:
        result = careful()
        assert isinstance(result, IntervalValue)
        return result


def _kept(form: Format) -> Any:
    """The NumPy type in which bounds are kept: 64-bit integers as Python's, so that no bound overflows."""
    if form.is_float:
        return np.float64
    return object if form.bits == 64 else np.int64


def _roomy(op: str, form: Format) -> Any:
    """The type in which an operation's bounds do not overflow."""
    return object if form.bits == 64 or (form.bits == 32 and op in ("mul", "shl")) else np.int64


def _least(ends: Sequence[Array]) -> Array:
    least = ends[0]
    for end in ends[1:]:
        least = np.where(end < least, end, least)
    return least


def _spread(point: Array, lanes: int) -> Array:
    """Which lanes of another width are made of lanes with one value."""
    if lanes >= len(point):
        return np.repeat(point, lanes // len(point))
    together: Array = np.logical_and.reduce(point.reshape(lanes, -1), axis=1)
    return together
