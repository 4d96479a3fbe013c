"""The traced reading of the algebra: values that remember how they came about, and what exact arithmetic would give.

A `TracedValue` is an `ArrayValue` of one vector together with the operation that made it. Its numbers are the NumPy
reading's; this one only keeps the graph. `history` walks it back from one lane, `exact` follows the same steps without
rounding, wrapping or saturation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.readings.arrays import ArrayValue
from isa_models.roundoff import Roundoff

#: operations that put lanes elsewhere or read their bits as another type: nothing is computed
MOVES = frozenset({"view", "permute", "concat", "lookup", "load"})
LEAVES = frozenset({"operand", "literal", "element"})
Lane = tuple["TracedValue", int]
Number = int | Fraction | None  # None: NaN, an infinity, or no number at all
_ORDER = itertools.count()


class TracedValue(Value):
    """One vector, the operation that made it, and that operation's inputs."""

    def __init__(
        self,
        inner: ArrayValue,
        op: str,
        inputs: Sequence[TracedValue] = (),
        text: str = "",
        lanes_of: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.inner = inner
        self.dtype = inner.dtype
        self.lanes = inner.lanes
        self.op = op
        self.inputs = tuple(inputs)
        self.text = text  # an operand's name, a conversion's target, a named step
        self.lanes_of = lanes_of  # of a move: for each lane the input and its lane
        self.order = next(_ORDER)
        self.moved: dict[int, list[Lane]] = {}  # of lanes of a move, as far as they were asked for

    # -- the algebra ------------------------------------------------------------------------------------------------
    def literal(self, number: int | float) -> TracedValue:
        return TracedValue(self.inner.literal(number), "literal")

    def view(self, dtype: str) -> TracedValue:
        if dtype == self.dtype:
            return self
        if self.op == "view" and self.inputs[0].dtype == dtype:
            return self.inputs[0]
        return TracedValue(self.inner.view(dtype), "view", [self])

    def to(self, dtype: str) -> TracedValue:
        return self if dtype == self.dtype else TracedValue(self.inner.to(dtype), "to", [self], dtype)

    def saturate(self, dtype: str) -> TracedValue:
        return TracedValue(self.inner.saturate(dtype), "saturate", [self], dtype)

    def minimum(self, other: Value | int) -> TracedValue:
        return self._extreme("min", other)

    def maximum(self, other: Value | int) -> TracedValue:
        return self._extreme("max", other)

    def _extreme(self, op: str, other: Value | int) -> TracedValue:
        right = other if isinstance(other, TracedValue) else self.literal(other)  # type: ignore[arg-type]
        inner = self.inner.minimum(right.inner) if op == "min" else self.inner.maximum(right.inner)
        return TracedValue(inner, op, [self, right])

    def _binary(self, op: str, other: Value) -> TracedValue:
        assert isinstance(other, TracedValue)
        return TracedValue(self.inner._binary(op, other.inner), op, [self, other])

    def _compare(self, op: str, other: Value) -> TracedValue:
        assert isinstance(other, TracedValue)
        return TracedValue(self.inner._compare(op, other.inner), op, [self, other])

    def fma(self, b: Value, c: Value) -> TracedValue:
        assert isinstance(b, TracedValue) and isinstance(c, TracedValue)
        return TracedValue(self.inner.fma(b.inner, c.inner), "fma", [self, b, c])

    def round_even(self) -> TracedValue:
        return TracedValue(self.inner.round_even(), "round", [self], "an integer")

    def sqrt(self) -> TracedValue:
        return TracedValue(self.inner.sqrt(), "sqrt", [self])

    def where(self, yes: Value, no: Value) -> TracedValue:
        assert isinstance(yes, TracedValue) and isinstance(no, TracedValue)
        return TracedValue(self.inner.where(yes.inner, no.inner), "where", [yes, no, self])

    def permute(self, lanes: Sequence[int]) -> TracedValue:
        return TracedValue(self.inner.permute(lanes), "permute", [self], lanes_of=[(0, i) for i in lanes])

    def concat(self, other: Value) -> TracedValue:
        assert isinstance(other, TracedValue)
        lanes = [*((0, i) for i in range(self.lanes)), *((1, i) for i in range(other.lanes))]
        return TracedValue(self.inner.concat(other.inner), "concat", [self, other], lanes_of=lanes)

    def lookup(self, index: Value) -> TracedValue:
        assert isinstance(index, TracedValue)
        lanes = [(0, int(i)) for i in index.inner.array]
        return TracedValue(self.inner.lookup(index.inner), "lookup", [self, index], lanes_of=lanes)

    def shortcut(self, usual: Callable[[], tuple[Value, Sequence[Value]]], careful: Callable[[], Value]) -> TracedValue:
        """The usual value where it holds in all lanes: its steps are those that a reader wants to see."""
        value, conditions = usual()
        if any(c.inner.array.any() for c in conditions if isinstance(c, TracedValue)):
            value = careful()
        assert isinstance(value, TracedValue)
        return value

    def step(self, text: str, of: Callable[[], Sequence[Value]], roundings: Sequence[Roundoff] = ()) -> TracedValue:
        found = [value for value in of() if isinstance(value, TracedValue)]
        return TracedValue(self.inner, "step", found, text)

    # -- what it remembers ------------------------------------------------------------------------------------------
    def sources(self, lane: int) -> list[Lane]:
        """The inputs' lanes that this lane was computed from; of a choice, the one that was taken."""
        if self.op == "where":
            return [(self.inputs[0 if self.inputs[2].inner.array[lane] else 1], lane)]
        return [(value, lane) for value in self.inputs]

    def number(self, lane: int) -> Number:
        """The lane's value as an exact number."""
        value = self.inner.array[lane]
        if not self.format.is_float:
            return int(value)
        real = float(value)
        return Fraction(real) if math.isfinite(real) else None


def operand(array: Any, dtype: str, name: str) -> TracedValue:
    """One vector that comes from outside."""
    return TracedValue(ArrayValue(np.asarray(array, fmt(dtype).dtype), dtype), "operand", text=name)


def mark() -> int:
    """A number between the `order` of the values made so far and of those made later."""
    return next(_ORDER)


def origins(value: TracedValue, lane: int) -> list[Lane]:
    """The lanes that were computed, or came from outside, whose bits this lane is made of."""
    if value.op not in MOVES:
        return [(value, lane)]
    if lane not in value.moved:
        value.moved[lane] = _moved_from(value, lane)
    return value.moved[lane]


def _moved_from(value: TracedValue, lane: int) -> list[Lane]:
    found: dict[tuple[int, int], Lane] = {}
    size = value.format.bits
    todo = [(value, lane * size, size)]
    while todo:
        node, first, count = todo.pop()
        size = node.format.bits
        if node.op == "view":
            todo.append((node.inputs[0], first, count))
            continue
        lanes = range(first // size, (first + count - 1) // size + 1)
        if node.op not in MOVES:
            found.update(((node.order, i), (node, i)) for i in lanes)
            continue
        assert node.lanes_of is not None
        for i in reversed(lanes):
            number, at = node.lanes_of[i]
            low, high = max(first, i * size), min(first + count, (i + 1) * size)
            todo.append((node.inputs[number], at * size + low - i * size, high - low))
    return list(found.values())


def copied(value: TracedValue, lane: int) -> Lane | None:
    """The one lane of the same size that this lane is a copy of, or None where it is put together or cut out."""
    found = origins(value, lane)
    if len(found) == 1 and found[0][0].format.bits == value.format.bits:
        return found[0]
    return None


def inside(value: TracedValue, lane: int) -> tuple[TracedValue, int, int] | None:
    """The one lane among whose bits this lane's are, and from which of them on; None where there are several."""
    size = value.format.bits
    node, first, count = value, lane * size, size
    while True:
        size = node.format.bits
        at = first // size
        if node.op == "view":
            node = node.inputs[0]
        elif (first + count - 1) // size != at:
            return None
        elif node.op not in MOVES:
            return node, at, first - at * size
        else:
            assert node.lanes_of is not None
            number, source = node.lanes_of[at]
            node, first = node.inputs[number], first + (source - at) * size


def history(ends: Iterable[Lane]) -> list[Lane]:
    """All lanes that took part in making `ends`, in the order in which they were made; moves are no part of it."""
    found: dict[tuple[int, int], Lane] = {}
    todo = [lane for end in ends for lane in origins(*end)]
    while todo:
        value, lane = todo.pop()
        if (value.order, lane) not in found:
            found[value.order, lane] = value, lane
            for source in value.sources(lane):
                todo += origins(*source)
    return [found[key] for key in sorted(found)]


class Exact:
    """The value that each lane of a history would hold if no step had rounded, wrapped or saturated.

    A lane's exact number belongs to the type that its bits were made as: bits that pass through moves of other types
    (a doubleword store of floats) mean the same number when they are read as that type again. Bit operations make
    new numbers: what they give is exact by itself.
    """

    def __init__(self, leaf: Callable[[TracedValue, int], Number] | None = None) -> None:
        self._leaf = leaf or TracedValue.number  # what a lane that comes from outside stands for
        self._known: dict[tuple[int, int], tuple[str, Number]] = {}

    def of(self, value: TracedValue, lane: int) -> Number:
        """The exact number of a lane; `follow` must have seen its origin."""
        found = copied(value, lane)
        if found is None:
            return value.number(lane)
        dtype, number = self._known[found[0].order, found[1]]
        return number if dtype == value.dtype else value.number(lane)

    def follow(self, lanes: Iterable[Lane]) -> None:
        """Compute the numbers of lanes in the order of `history`."""
        for value, lane in lanes:
            sources = value.sources(lane)
            if sources:
                number = ideal(value.op, [self.of(*source) for source in sources], value.number(lane))
            else:
                number = self._leaf(value, lane)
            self._known[value.order, lane] = value.dtype, number


def read_as(lanes: Sequence[Lane], end: Lane) -> dict[tuple[int, int], set[str]]:
    """For each lane of the `history` of `end` the types as which its bits are read by what comes after."""
    tags: dict[tuple[int, int], set[str]] = {(value.order, lane): set() for value, lane in lanes}
    for source, i in [end, *(s for value, lane in lanes for s in value.sources(lane))]:
        found = copied(source, i)
        for value, lane in [found] if found else origins(source, i):
            tags[value.order, lane].add(source.dtype if found else value.dtype)
    return tags


def ideal(op: str, numbers: Sequence[Number], own: Number) -> Number:
    """An operation on exact numbers, neither rounded nor kept in range; `own` where it has no such meaning."""
    if not numbers or any(number is None for number in numbers) or own is None:
        return own
    x = [n for n in numbers if n is not None]
    if op == "step":
        return sum(x)
    if op in ("to", "saturate", "round", "where"):
        return x[0]
    if op == "add":
        return x[0] + x[1]
    if op == "sub":
        return x[0] - x[1]
    if op == "mul":
        return x[0] * x[1]
    if op == "fma":
        return x[0] * x[1] + x[2]
    if op == "div" and x[1]:
        return Fraction(x[0]) / Fraction(x[1])
    if op in ("min", "max"):
        return min(x) if op == "min" else max(x)
    return own
