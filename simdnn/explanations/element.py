"""One output element of a kernel explained: the chain of instructions that made it, and where it left exact arithmetic.

The chain is a slice of the kernel's own Program, replayed in the traced reading (`simdnn.numerics.traced`). Exact
means: the same steps on the user's own numbers, none rounded, wrapped or saturated.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine
from isa_models.errors import counted
from isa_models.formats import numbers
from isa_models.readings.arrays import Array
from isa_models.readings.traced import LEAVES, Exact, Lane, Number, TracedValue, history, origins, read_as
from simdnn.explanations.steps import (
    PADDING,
    ExplainedStep,
    Explanation,
    Wording,
    loss,
    multiplies_zero,
    real,
    shown,
    source_of,
)
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.origin import Origin, origins_of
from simdnn.numerics.slicing import Slices
from simdnn.numerics.traced import Event, Replayer, Trace
from simdnn.progress import working


@dataclass(frozen=True, eq=False)
class Explainer:
    """A kernel with its operands: what `Result.explain` asks. `on_image`: a library's kernel leaves out the products
    with padding that this one adds.
    """

    kernel: Kernel
    src: Array
    weights: Array
    parameters: Parameters
    machine: Machine | GpuMachine
    on_image: bool = False

    @cached_property
    def _inputs(self) -> dict[str, Array]:
        return self.kernel.prepare(self.src, self.weights, self.parameters)

    @cached_property
    def _slices(self) -> Slices:
        return Slices(self.kernel.program)

    @cached_property
    def _origins(self) -> dict[str, Origin]:
        return origins_of(self.kernel, self.src, self.weights, self.parameters)

    @cached_property
    def _positions(self) -> Array:
        """For each element of the user's output its place in the program's."""
        size = self.kernel.program.tensor["dst"].size
        return self.kernel.finish({"dst": np.arange(size)})

    @working("the chain of an element")
    def __call__(self, *index: int) -> Explanation:
        """The explanation of the output element at `index`. Raises `InvalidArgument` for one that is not there."""
        place = checked(index, self._positions.shape)
        trace = Replayer(self.kernel.program, self._inputs, self._slices).element("dst", int(self._positions[place]))
        return _Chain(self, trace).explanation(place)

    def label(self, trace: Trace, value: TracedValue, lane: int, dtype: str, bit: int) -> str:
        """The name of an element that was loaded, or of the one that lies in it from `bit` on."""
        tensor, first = trace.origins.get(value.order, ("", 0))
        if not tensor:
            return ""
        if tensor in self._origins:
            return self._origins[tensor].label((first + lane) * value.format.bits + bit)
        kind = self.kernel.program.tensor[tensor].kind
        return {"input": f"{tensor}[{first + lane}]", "constant": ""}.get(kind, PADDING)

    @cached_property
    def _halved_compensation(self) -> Array | None:
        """The value of `comp` if halved weights kept their halves: it is linear in them."""
        if all(origin.factor == 1 for origin in self._origins.values()) or "comp" not in self._inputs:
            return None
        wide = self.weights.astype(np.int16)
        parts = [
            self.kernel.prepare(self.src, (2 * half).astype(np.int8), self.parameters)["comp"].astype(np.float64)
            for half in (wide // 2, wide % 2)
        ]
        halves: Array = parts[0] + parts[1] / 2
        return halves

    def meant(self, trace: Trace, value: TracedValue, lane: int) -> Number:
        """The user's own number, where a loaded element stands for one; else the element's."""
        tensor, first = trace.origins.get(value.order, ("", 0))
        if tensor == "comp" and self._halved_compensation is not None:
            return Fraction(self._halved_compensation[first + lane])
        origin = self._origins.get(tensor)
        flat = -1 if origin is None else int(origin.index[first + lane])
        own = value.number(lane)
        if origin is None or flat < 0 or own is None:
            return own
        user = numbers((self.weights if origin.operand == "weights" else self.src).reshape(-1)[flat : flat + 1])[0]
        if value.dtype == "u32":  # its bits, which an instruction reads as a float
            return own
        if not np.isfinite(float(user)):
            return None
        number = Fraction(float(user)) * Fraction(origin.factor)
        return own if number == own else number


class _Chain:
    """The needed part of a trace as rows: one for each lane that an instruction computed and hands on."""

    def __init__(self, explainer: Explainer, trace: Trace) -> None:
        self.explainer = explainer
        self.trace = trace
        self.end: Lane = trace.value, trace.lane
        self.lanes = history([self.end])
        self.exact = Exact(lambda value, lane: explainer.meant(trace, value, lane))
        self.exact.follow(self.lanes)
        self.tags = read_as(self.lanes, self.end)
        self.starts = [event.start for event in trace.events]
        self.wording = Wording(lambda *part: explainer.label(trace, *part), self._given)
        self.now = -1  # the event that is put into words
        self.stops = self._roundings()

    def explanation(self, place: tuple[int, ...]) -> Explanation:
        rows = self._rows()
        value, lane = self.end
        exact = real(self.exact.of(value, lane))
        number = value.inner.array[lane]
        name = f"dst[{','.join(map(str, place))}]"
        store = self.trace.store.op
        rows.append(ExplainedStep("", store.instruction, f"store {shown(value, lane)} to {name}", number.item(), exact))
        left = next((row for row in rows if row.note), None)
        remarks = [f"value {shown(value, lane)}, exact {_short(exact)}"]
        if left is None:
            remarks.append("no step rounded, wrapped or saturated")
        else:
            where = " ".join(filter(None, [left.instruction, left.at, left.text]))
            remarks += [f"left the exact value at: {where}", *_counts(rows)]
        title = f"{name} of {self.explainer.kernel.name} on {self.explainer.machine.name}"
        return Explanation(title, (), number, exact, tuple(rows), left, tuple(remarks))

    def _rows(self) -> list[ExplainedStep]:
        handed_on = {(v.order, i) for v, i in origins(*self.end)}
        for value, lane in self.lanes:
            here = self._event(value)
            for source in value.sources(lane):
                handed_on |= {(v.order, i) for v, i in origins(*source) if self._event(v) != here}
        told, rows = handed_on | self.stops, []
        for value, lane in self.lanes:
            if value.op == "element":
                rows += [self._changed(value, lane)] if self.exact.of(value, lane) != value.number(lane) else []
            elif value.op not in LEAVES and (value.order, lane) in told:
                row = self._row(value, lane)
                left_out = self.explainer.on_image and multiplies_zero(value, lane)
                rows += [row] if row.note or not (left_out or self.wording.says_nothing(value, lane)) else []
        return rows

    def _event(self, value: TracedValue) -> int:
        """The number of the event that computed a value; -1 for what comes from outside."""
        return -1 if value.op in LEAVES else bisect.bisect_right(self.starts, value.order) - 1

    def _given(self, value: TracedValue, lane: int) -> bool:
        return self._event(value) != self.now or (value.order, lane) in self.stops

    def _roundings(self) -> set[tuple[int, int]]:
        """The lanes within an instruction that lost something before its result did, each a row of its own.

        What is converted next belongs to the conversion, whose row tells both.
        """
        found = set()
        for value, lane in self.lanes:
            sources = value.sources(lane)
            if value.op in ("to", "saturate", "round", "where") or value.op == "step" and len(sources) == 1:
                continue
            for source in sources:
                inner = source_of(*source)
                if inner and inner[0].op not in LEAVES and self._event(inner[0]) == self._event(value) and loss(*inner):
                    found.add((inner[0].order, inner[1]))
        return found

    def _row(self, value: TracedValue, lane: int) -> ExplainedStep:
        self.now = self._event(value)
        event = self.trace.events[self.now]
        exact, note = self.exact.of(value, lane), " and ".join(dict.fromkeys(self._losses(value, lane)))
        types = self.tags[value.order, lane]
        meant = value
        if value.dtype not in types and len(types) == 1:  # wrapped on purpose: its bits are read as another type
            meant = value.view(next(iter(types)))
            exact, note = meant.number(lane), ""
        text = self.wording.equation(value, lane, shown(meant, lane))
        name = event.op.definition.mnemonic(event.op.width)
        return ExplainedStep(self._own_turns(event), name, text, meant.inner.array[lane].item(), real(exact), note)

    def _losses(self, value: TracedValue, lane: int) -> list[str]:
        """The loss of each step within the instruction that made a lane, as text, the last step first."""
        found, todo = [loss(value, lane)], list(value.sources(lane))
        while todo:
            for node, at in origins(*todo.pop()):
                if node.op not in LEAVES and not self._given(node, at):
                    found.append(loss(node, at))
                    todo += node.sources(at)
        return [text for text in found if text]

    def _changed(self, value: TracedValue, lane: int) -> ExplainedStep:
        """An element that was stored for the kernel otherwise than the user gave it."""
        exact = real(self.exact.of(value, lane))
        number = value.inner.array[lane]
        text = f"{self.wording.label(value, lane, value.dtype, 0)} is read as {shown(value, lane)}, not {_short(exact)}"
        return ExplainedStep("", "(prepared)", text, number.item(), exact, "rounds")

    def _own_turns(self, event: Event) -> str:
        """The turns of the loops that the element's own store does not stand in."""
        outer = self.trace.store.turns
        return " ".join(f"{name}={turn}" for name, turn in event.turns.items() if outer.get(name) != turn)


def _counts(rows: Sequence[ExplainedStep]) -> list[str]:
    counts: dict[str, int] = {}
    for row in rows:
        for note in filter(None, row.note.split(" and ")):
            counts[note] = counts.get(note, 0) + 1
    words = {"saturates": "saturated", "rounds": "rounded", "wraps": "wrapped", "overflows": "overflowed"}
    text = "; ".join(f"{count} of {len(rows)} steps {words[note]}" for note, count in counts.items())
    return [text] if counts else []


def _short(number: float | int | None) -> str:
    if number is None:
        return "none"
    return str(number) if isinstance(number, int) or number != int(number) else str(int(number))


def checked(index: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The place of an output element, counted from the start; `InvalidArgument` for one that is not there."""
    if len(index) != len(shape):
        raise InvalidArgument(
            f"element {tuple(index)}; the output of shape {shape} has {counted(len(shape), 'dimension')}"
        )
    place = []
    for number, size in zip(index, shape, strict=True):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not -size <= number < size:
            raise InvalidArgument(f"element {tuple(index)}; the output's shape is {shape}")
        place.append(int(number) % size)
    return tuple(place)
