"""Replays what made one element of a Program's output with values that remember their history.

Only the slice of the program that leads to the element is executed (`slicing`), by the instructions' own functions in
the traced reading. What it loads from memory that the program itself wrote is replayed in turn, when it is met.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, ArrayValue, unwarned
from isa_models.readings.traced import TracedValue, mark, operand
from simdnn.numerics.slicing import Kept, Site, Slices, Time
from simdnn.program.records import Loop, Memory, Op, Program, Register

Store = tuple[Site, tuple[int, ...]]
Replay = Generator[Store, TracedValue, TracedValue]
Turns = dict[str, int]


@dataclass(frozen=True, eq=False)
class Event:
    """One executed instruction: the turns of the loops around it, its result, and the order before its first step."""

    op: Op
    turns: Turns
    result: TracedValue
    start: int


@dataclass(frozen=True, eq=False)
class Trace:
    """How an element, `lane` of `value`, came about. `events` holds all that was executed, needed or not."""

    value: TracedValue
    lane: int
    store: Event
    events: list[Event]
    origins: dict[int, tuple[str, int]]  # order of a value loaded from a tensor -> the tensor, the first element


class Replayer:
    """Replays stores of one program over given inputs; made anew for each element, with the program's `slices`."""

    def __init__(self, program: Program, inputs: Mapping[str, Array], slices: Slices | None = None) -> None:
        self.program = program
        self.slices = slices or Slices(program)
        self.buffers: dict[str, Array] = {}
        for tensor in program.tensors:
            dtype = fmt(tensor.dtype).dtype
            if tensor.kind == "constant":
                self.buffers[tensor.name] = np.frombuffer(tensor.data, dtype)
            elif tensor.kind == "input":
                self.buffers[tensor.name] = np.ascontiguousarray(inputs[tensor.name]).reshape(-1)
        self.events: list[Event] = []
        self.origins: dict[int, tuple[str, int]] = {}
        self._stored: dict[Time, TracedValue] = {}

    def element(self, tensor: str, index: int) -> Trace:
        """The trace of the element of an output that is there when the program has run."""
        store = self.slices.last_store(tensor, index, 1)
        assert store is not None, f"{self.program.name}: nothing stores {tensor}[{index}]"
        site, turns = store
        whole = self._driven(store)
        variables = _variables(site, turns)
        at = _index(site.memory, variables)
        row = site.row(at, index, 1)
        assert row is not None
        value = whole.view(self.program.tensor[tensor].dtype)
        lane = row * site.elements + index - at - row * site.memory.stride
        return Trace(value, lane, Event(site.op, variables, whole, mark()), self.events, self.origins)

    # -- control ----------------------------------------------------------------------------------------------------
    def _driven(self, store: Store) -> TracedValue:
        """A replay and all those that it asks for; a stack of its own, because sums stored between their parts make
        chains that are deeper than Python's."""
        stack: list[tuple[Time, Replay]] = [(store[0].time(store[1]), self._replay(*store))]
        sent: TracedValue | None = None
        while True:
            time, replay = stack[-1]
            try:
                site, turns = next(replay) if sent is None else replay.send(sent)
            except StopIteration as done:
                sent = self._stored[time] = done.value
                stack.pop()
                if not stack:
                    assert sent is not None
                    return sent
                continue
            known = self._stored.get(site.time(turns))
            if known is None:
                stack.append((site.time(turns), self._replay(site, turns)))
            sent = known

    def _replay(self, site: Site, turns: tuple[int, ...]) -> Replay:
        """The value that a store puts to memory."""
        registers: dict[str, TracedValue] = {}
        variables = _variables(site, turns)
        time = site.time(turns)
        for stage in self.slices.stages(site):
            around = {loop.var: variables[loop.var] for loop in site.loops[: stage.depth]}
            prefix = time[: 2 * stage.depth]
            if not stage.turns:
                yield from self._run(stage.kept, around, prefix, registers)
                continue
            loop = site.loops[stage.depth]
            for turn in range(variables[loop.var]):
                inside = (*prefix, site.path[stage.depth], turn)
                yield from self._run(stage.kept, {**around, loop.var: turn}, inside, registers)
        result = yield from self._apply(site.op, variables, time, registers)
        return result if result.lanes == site.memory.lanes else result.permute(range(site.memory.lanes))

    def _run(
        self, kept: Sequence[Kept], variables: Turns, prefix: Time, registers: dict[str, TracedValue]
    ) -> Generator[Store, TracedValue, None]:
        for item in kept:
            statement = item.statement
            if isinstance(statement, Loop):
                for turn in range(statement.extent):
                    inside = (*prefix, item.number, turn)
                    yield from self._run(item.body, {**variables, statement.var: turn}, inside, registers)
                continue
            result = yield from self._apply(statement, variables, (*prefix, item.number), registers)
            assert isinstance(statement.dst, Register)
            registers[statement.dst.name] = result

    def _apply(self, op: Op, variables: Turns, time: Time, registers: dict[str, TracedValue]) -> Replay:
        definition = op.definition
        if op.is_zero_idiom:
            result = operand(np.zeros(op.lanes), definition.result, "0")
            result.op = "literal"
            return result
        values = []
        for wanted, place in zip(definition.operands, op.srcs, strict=True):
            lanes = definition.operand_lanes(wanted, op.lanes)
            if isinstance(place, Register):
                whole = registers[place.name].view(wanted.dtype)
                values.append(whole if whole.lanes == lanes else whole.permute(range(lanes)))
            else:
                loaded = yield from self._load(place, variables, time)
                values.append(loaded if loaded.lanes == lanes else loaded.pad(lanes))
        start = mark()
        with unwarned():
            result = definition.apply(*values, lanes=op.lanes, **op.parameters)
        assert isinstance(result, TracedValue)
        self.events.append(Event(op, variables, result, start))
        return result

    # -- memory -----------------------------------------------------------------------------------------------------
    def _load(self, memory: Memory, variables: Turns, time: Time) -> Replay:
        tensor = self.program.tensor[memory.tensor]
        start = _index(memory, variables)
        count = memory.bits // memory.rows // fmt(tensor.dtype).bits
        parts: list[tuple[TracedValue, int, int]] = []
        for first in range(start, start + memory.rows * max(1, memory.stride), max(1, memory.stride)):
            if tensor.name in self.buffers:
                value = self._leaf(tensor.name, first, self.buffers[tensor.name][first : first + count])
                parts.append((value, 0, count))
            else:
                parts += yield from self._parts(memory.tensor, first, count, time)
        return _joined(parts, tensor.dtype).view(memory.dtype)

    def _leaf(self, tensor: str, first: int, array: Array) -> TracedValue:
        value = TracedValue(ArrayValue(array, self.program.tensor[tensor].dtype), "element", text=tensor)
        self.origins[value.order] = tensor, first
        return value

    def _parts(
        self, tensor: str, first: int, count: int, time: Time
    ) -> Generator[Store, TracedValue, list[tuple[TracedValue, int, int]]]:
        """Elements that the program wrote: (value, first lane, lanes) in order."""
        store = self.slices.last_store(tensor, first, count, time)
        if store is None:  # as memory starts
            dtype = self.program.tensor[tensor].dtype
            return [(self._leaf(tensor, first, np.zeros(count, fmt(dtype).dtype)), 0, count)]
        site, turns = store
        whole = yield store
        value = whole.view(self.program.tensor[tensor].dtype)
        start = _index(site.memory, _variables(site, turns))
        row = site.row(start, first, count)
        assert row is not None
        start += row * site.memory.stride
        low, high = max(first, start), min(first + count, start + site.elements)
        parts = [(value, row * site.elements + low - start, high - low)]
        if low > first:
            parts = (yield from self._parts(tensor, first, low - first, time)) + parts
        if high < first + count:
            parts += yield from self._parts(tensor, high, first + count - high, time)
        return parts


def _joined(parts: Sequence[tuple[TracedValue, int, int]], dtype: str) -> TracedValue:
    if len(parts) == 1 and parts[0][2] == parts[0][0].lanes:
        return parts[0][0]
    inputs = [value for value, _, _ in parts]
    lanes_of = [(i, lane) for i, (_, first, count) in enumerate(parts) for lane in range(first, first + count)]
    array = np.concatenate([value.inner.array[first : first + count] for value, first, count in parts])
    return TracedValue(ArrayValue(array, dtype), "load", inputs, lanes_of=lanes_of)


def _variables(site: Site, turns: Sequence[int]) -> Turns:
    return {loop.var: turn for loop, turn in zip(site.loops, turns, strict=True)}


def _index(memory: Memory, variables: Turns) -> int:
    return memory.index.const + sum(c * variables[name] for name, c in memory.index.terms)
