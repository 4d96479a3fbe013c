"""Which choices change the order in which a product's terms are added up, and so its bits.

Each configuration's program runs once in the reading that tells orders apart (`isa_models.readings.orders`), and on
numbers that cancel out, underflow or are zeros of either sign. Configurations that agree in all of it have one order.
For two orders an input is looked for on which they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.keywords import keywords, typed_parts
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.readings.orders import OrderValue
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.exactness.configured import Configured, Outputs
from simdnn.exactness.probes import KINDS, Probe
from simdnn.late import frames, pd
from simdnn.primitives.checks import one_of
from simdnn.primitives.convolution import convolution
from simdnn.primitives.matmul import matmul
from simdnn.progress import Progress, shows

_PRIMITIVES: dict[str, Callable[..., Any]] = {"matmul": matmul, "convolution": convolution}
#: what may change without another sum being asked for
AXES = {
    "matmul": ("m", "n", "threads", "isa", "machine", "dispatch", "attr", "wei_tag"),
    "convolution": ("mb", "ih", "iw", "oc", "threads", "isa", "machine", "dispatch", "attr", "wei_tag"),
}
_FIRST = (0, 1)  # seeds of probes that every configuration runs, with sources of usual and of low numbers
_MORE = range(2, 8)  # and of further ones where those show no difference
_RANDOM = 100  # the first in the reading of orders: a multiple of 4, whose sources are usual numbers
_CHANCE = 2  # draws in the reading of orders at least
Label = tuple[int, bytes]


@typed_parts("simdnn.invariance")
@dataclass(frozen=True, eq=False, repr=False)
class Witness(Alike, InNotebooks):
    """An input on which two orders give other bits: of rows `rows` of the frame the outputs at `at` are `values`.

    `operands` are the source, the weights (and the bias) that each is given: one row and one column of numbers that
    are the same in both.
    """

    rows: tuple[int, int]
    at: tuple[tuple[int, ...], tuple[int, ...]]
    values: tuple[Any, Any]
    operands: tuple[tuple[Any, ...], tuple[Any, ...]]  # arrays, or weights in blocks
    primitive: str
    keywords: tuple[Mapping[str, Any], Mapping[str, Any]]

    def run(self, engine: str = "auto") -> tuple[Any, Any]:
        """The two outputs, from the primitive itself."""
        call, sides = _PRIMITIVES[self.primitive], zip(self.operands, self.keywords, self.at, strict=True)
        first, second = (call(*arrays, **given, engine=engine).output[at] for arrays, given, at in sides)
        return first, second

    def _summary(self) -> dict[str, Any]:
        rows = zip(self.rows, self.at, self.values, strict=True)
        return {"primitive": self.primitive} | {f"row {row}, output {at}": value for row, at, value in rows}

    def __repr__(self) -> str:
        (a, b), (x, y), (i, j) = self.rows, self.values, self.at
        return f"Witness(row {a}: {x!s} at {i}, row {b}: {y!s} at {j})"


@keywords
@shows
def invariance(
    primitive: str, *, over: Mapping[str, Sequence[Any]], progress: Progress | None = None, **problem: Any
) -> pd.DataFrame:
    """Whether sums are added up in one order, whatever else changes: every combination of `over` as a row.

    `problem` has the keywords of `estimate`; `over` names some of them with the values that each takes: m, n (mb, ih,
    iw, oc of a convolution), threads, isa, machine, dispatch, attr, wei_tag. Parameters of an `attr` count with their
    first row and column, as rows and columns are compared.

    Frame: the axes; implementation; order (equal numbers: equal bits for every finite input, but for a chance of less
    than one in a million, and for underflow, which runs on small numbers judge; which NaN comes out is left aside);
    orders (how many there are within the one result: of outputs in other rows, columns or tiles; of a convolution
    those that see the same taps are compared); refused (why there is no such kernel, and no order).
    `attrs["witnesses"]`: for each pair of orders (1, 2) a `Witness`, an input on which they differ, found by running
    both; None where none was found, and then nothing is claimed. `attrs["uneven"]`: for each row with several orders
    in it a `Witness` of two of its outputs, or None.

    Raises `InvalidArgument` for axes that change what is added up, `UnknownName` for a name that nothing has, and what
    the first combination raises where none has a kernel.

    >>> import simdnn
    >>> frame = simdnn.invariance("matmul", over={"machine": ["hsw", "a770"]}, m=1, n=8, k=40)
    >>> len(frame), frame["orders"].tolist()
    (2, [1, 1])
    """
    one_of("primitive", primitive, AXES)
    points = list(_points(primitive, over, problem))
    asked, refused = _asked(primitive, points, problem)
    study = _Study([one for one in asked if one is not None], progress)
    numbers, orders = iter(study.numbers), iter(study.orders)
    rows = [
        {
            **point,
            "implementation": one.found.implementation if one else "",
            "order": next(numbers) if one else None,
            "orders": next(orders) if one else None,
            "refused": why,
        }
        for point, one, why in zip(points, asked, refused, strict=True)
    ]
    frame = pd.DataFrame(rows).astype({"order": "Int64", "orders": "Int64"} if any(refused) else {})
    places = [i for i, one in enumerate(asked) if one is not None]
    frame.attrs.update(witnesses=study.witnesses(places), uneven=study.uneven(places))
    return frames.shown(frame, [*over, "implementation", "order", *(["refused"] if any(refused) else [])])


def _points(primitive: str, over: object, problem: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The combinations of the axes."""
    if not isinstance(over, Mapping) or not over:
        raise InvalidArgument(f"over={over!r:.60}; axes and their values are needed, e.g. {{'m': [1, 64]}}")
    for axis, values in over.items():
        one_of(f"axis of a {primitive} whose sums stay the same", axis, AXES[primitive])
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InvalidArgument(f"over[{axis!r}]={values!r:.60}; a list of values is needed")
        if axis in problem:
            raise InvalidArgument(f"{axis} is an axis and is given as {problem[axis]!r:.60}; one of the two is needed")
    for values in product(*over.values()):
        yield dict(zip(over, values, strict=True))


def _asked(
    primitive: str, points: Sequence[Mapping[str, Any]], problem: Mapping[str, Any]
) -> tuple[list[Configured | None], list[str]]:
    """Each combination as a configuration, and why it cannot be had where it is none."""
    asked: list[Configured | None] = []
    refused: list[str] = []
    first: Unimplemented | InvalidArgument | None = None
    for point in points:
        try:
            asked.append(Configured.of(primitive, {**problem, **point}))
            refused.append("")
        except (Unimplemented, InvalidArgument) as error:
            first = first or error
            asked.append(None)
            refused.append(str(error))
    if first and not any(asked):
        raise first
    return asked, refused


@dataclass(eq=False)
class _Study:
    """Configurations of one sum, and their runs."""

    asked: list[Configured]
    progress: Progress | None = None
    _runs: dict[tuple[object, ...], Outputs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kinds = min(len(KINDS), *(one.columns for one in self.asked))
        for i, one in enumerate(self.asked):
            if self.progress:
                self.progress(i, len(self.asked), f"{one.found.implementation} on {one.found.machine.name}")
            for number in range(len(self._draws)):
                self.run(one, number)
        common = set.intersection(*(self._computed(one) for one in self.asked))
        self.labels = sorted(common)
        self.orders = [self._within(one) for one in self.asked]
        known: dict[object, int] = {}
        keys = [self._key(one, orders) for one, orders in zip(self.asked, self.orders, strict=True)]
        self.numbers = [known.setdefault(key, len(known) + 1) for key in keys]

    # -- runs -------------------------------------------------------------------------------------------------------
    @property
    def _draws(self) -> list[tuple[type[ArrayValue], int, int]]:
        """(reading, seed, first kind of column) of the runs that orders are told by."""
        turns = range(0, len(KINDS), self.kinds)
        random = [(OrderValue, _RANDOM + 4 * i, 1) for i in range(-(-_CHANCE // self.kinds))]
        return [*random, *((ArrayValue, seed, first) for seed in _FIRST for first in turns)]

    def probe(self, one: Configured, seed: int, first: int) -> Probe:
        """Columns of some kinds of numbers; in the reading of orders (seeds from `_RANDOM` on) usual ones alone."""
        kinds = [KINDS[1 if seed >= _RANDOM else (first + i) % len(KINDS)] for i in range(self.kinds)]
        return Probe.of(*one.along, one.types, tuple(kinds), seed)

    def run(self, one: Configured, number: int) -> Outputs:
        return self._run(one, *self._draws[number])

    def _run(self, one: Configured, reading: type[ArrayValue], seed: int, first: int) -> Outputs:
        key = (*one.key, reading, seed, first)
        if key not in self._runs:
            self._runs[key] = one.run(self.probe(one, seed, first), reading)
        return self._runs[key]

    # -- orders -----------------------------------------------------------------------------------------------------
    def _alike(self, one: Configured) -> dict[Label, Array]:
        """Positions of computed outputs that add up the same, by label."""
        run = self.run(one, 0)
        computed = run.computed.reshape(-1)
        found = {label: at[computed[at]] for label, at in one.alike(self.kinds, run.values.shape).items()}
        return {label: at for label, at in found.items() if len(at)}

    def _computed(self, one: Configured) -> set[Label]:
        return set(self._alike(one))

    def _bits(self, one: Configured) -> Array:
        """Each output's bits, (runs, outputs)."""
        return np.stack([self.run(one, i).bits.reshape(-1) for i in range(len(self._draws))])

    def _within(self, one: Configured) -> int:
        """How many orders there are among outputs that add up the same."""
        bits = self._bits(one)
        return max(int(np.unique(bits[:, at], axis=1).shape[1]) for at in self._alike(one).values())

    def _key(self, one: Configured, orders: int) -> tuple[object, ...]:
        """Equal for configurations of one order."""
        bits, alike = self._bits(one), self._alike(one)
        dtype = self.run(one, 0).values.dtype.str
        if orders == 1:
            return dtype, tuple(bits[:, alike[label][0]].tobytes() for label in self.labels)
        shape = self.run(one, 0).values.shape
        return dtype, shape, tuple((label, bits[:, at].tobytes()) for label, at in sorted(alike.items()))

    # -- witnesses --------------------------------------------------------------------------------------------------
    def _real(self) -> Iterator[tuple[int, int]]:
        """(seed, first kind) of runs on numbers: those that are there first."""
        for seed in (*_FIRST, *_MORE):
            for first in range(0, len(KINDS), self.kinds):
                yield seed, first

    def witnesses(self, places: Sequence[int]) -> dict[tuple[int, int], Witness | None]:
        """For each pair of orders an input that shows them apart; `places`: the configurations' rows in the frame."""
        first = {number: self.numbers.index(number) for number in sorted(set(self.numbers))}
        pairs = combinations(first.items(), 2)
        return {(a, b): self._between((i, j), places) for (a, i), (b, j) in pairs}

    def _between(self, pair: tuple[int, int], places: Sequence[int]) -> Witness | None:
        sides = [self.asked[i] for i in pair]
        alike = [self._alike(one) for one in sides]
        several = [orders > 1 for orders in (self.orders[pair[0]], self.orders[pair[1]])]
        zeros: Witness | None = None  # that differ in their sign alone: less to see than numbers that differ
        for seed, first in self._real():
            if zeros and seed not in _FIRST:
                break
            runs = [self._run(one, ArrayValue, seed, first) for one in sides]
            if runs[0].values.dtype != runs[1].values.dtype:
                return None
            for label in self.labels:
                i, j = (at[label] if many else at[label][:1] for at, many in zip(alike, several, strict=True))
                x, y = (run.bits.reshape(-1)[at] for run, at in zip(runs, (i, j), strict=True))
                differ = np.argwhere(x[:, None] != y)
                if len(differ):
                    flat = int(i[differ[0][0]]), int(j[differ[0][1]])
                    found = self._witness(pair, places, seed, first, flat)
                    if found.values[0] != found.values[1]:
                        return found
                    zeros = zeros or found
        return zeros

    def uneven(self, places: Sequence[int]) -> dict[int, Witness | None]:
        """For each row with several orders in it an input that shows two of its outputs apart."""
        return {places[i]: self._inside(i, places) for i, orders in enumerate(self.orders) if orders > 1}

    def _inside(self, number: int, places: Sequence[int]) -> Witness | None:
        one = self.asked[number]
        for seed, first in self._real():
            bits = self._run(one, ArrayValue, seed, first).bits.reshape(-1)
            for at in self._alike(one).values():
                other = np.flatnonzero(bits[at] != bits[at[0]])
                if len(other):
                    return self._witness((number, number), places, seed, first, (int(at[0]), int(at[other[0]])))
        return None

    def _witness(
        self, pair: tuple[int, int], places: Sequence[int], seed: int, first: int, flat: tuple[int, int]
    ) -> Witness:
        sides = [self.asked[i] for i in pair]
        runs = [self._run(one, ArrayValue, seed, first) for one in sides]
        operands = [one.operands(self.probe(one, seed, first)) for one in sides]
        at = [tuple(map(int, np.unravel_index(i, run.values.shape))) for i, run in zip(flat, runs, strict=True)]
        values = [run.values.reshape(-1)[i] for i, run in zip(flat, runs, strict=True)]
        keywords = [one.call() for one in sides]
        rows = places[pair[0]], places[pair[1]]
        return Witness(
            rows,
            (at[0], at[1]),
            (values[0], values[1]),
            (operands[0], operands[1]),
            sides[0].primitive,
            (keywords[0], keywords[1]),
        )
