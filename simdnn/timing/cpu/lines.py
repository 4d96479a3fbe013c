"""The lines of a program by number, and stretches of them: what the core model is given, without a record for each.

A program has some hundred different lines, and a loop cut short runs through thousands. So a stretch is an array of
numbers of lines with the addresses of those that may meet others in memory, and a loop's turns are found from its first
one by adding what a turn moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isa_models.machines.cpu_record import Machine
from simdnn.program.records import Loop, Op, Program, Statement
from simdnn.timing.cpu.core_run import CoreRows, Turn
from simdnn.timing.cpu.core_state import UNPLACED
from simdnn.timing.cpu.steps import CoreOp, Step, core_op, fused_with
from simdnn.timing.cpu.stream import CountedAs, CountedStep, Stream

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stretch:
    """Lines in a row by number, and the address of each, or `UNPLACED`, where the variables around stand at zero."""

    order: Ints
    at: Ints

    @staticmethod
    def of(parts: Sequence[Stretch]) -> Stretch:
        """All parts, one behind the other."""
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.int64)
        return Stretch(
            np.concatenate([none, *(p.order for p in parts)]), np.concatenate([none, *(p.at for p in parts)])
        )


class ProgramLines:
    """The lines of one program on a machine: each a step, or two that the core fuses."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine
        self.stream = Stream(program)
        self.steps: list[Step] = []
        self.jumps: list[str] = []
        self.keys: list[tuple[CountedAs, ...]] = []
        self._of: dict[int, Stretch] = {}  # by the identity of an op, or of a loop: its control
        first: list[int] = []
        moves: dict[str, dict[int, int]] = {}
        for statement in _statements(program.body):
            begin = len(self.steps)
            if isinstance(statement, Loop):
                self._add(self.stream.control(statement))
                first += [UNPLACED] * (len(self.steps) - begin)
            else:
                step, address, strides = self.stream.placed(statement)
                self._add([step])
                first.append(UNPLACED if address is None else address)
                for name, stride in strides:
                    moves.setdefault(name, {})[begin] = stride
            numbers = np.arange(begin, len(self.steps))
            self._of[id(statement)] = Stretch(numbers, np.array(first[begin:], np.int64))
        self._moves = {name: self._column(found) for name, found in moves.items()}
        timings = [machine.timing(step.mnemonic, step.form) for step in self.steps]
        self.lengths = np.array([len(keys) for keys in self.keys], np.int64)
        self._wide = np.array([row.vector_bits == 512 for row in timings], np.bool_)
        self._tiles = np.array([row.tile for row in timings], np.bool_)
        self._loads = np.array([step.load is not None for step in self.steps], np.bool_)
        self._stores = np.array([step.store is not None for step in self.steps], np.bool_)
        self._rows: dict[tuple[bool, bool], CoreRows] = {}
        self._ops: dict[tuple[bool, bool], dict[int, CoreOp]] = {}

    def _add(self, lines: Sequence[CountedStep]) -> None:
        index = 0
        while index < len(lines):
            here = lines[index : index + 2]
            branch = len(here) == 2 and here[1].step.form == "rel"
            jump = fused_with(self.machine, here[0].step, here[1].step) if branch else ""
            fused = here if jump else here[:1]
            self.steps.append(here[0].step)
            self.jumps.append(jump)
            self.keys.append(tuple(line.key for line in fused))
            index += len(fused)

    def _column(self, found: dict[int, int]) -> Ints:
        column = np.zeros(len(self.steps), np.int64)
        column[list(found)] = list(found.values())
        return column

    def of(self, statement: Statement) -> Stretch:
        """An op, or what ends each turn of a loop."""
        return self._of[id(statement)]

    def keys_of(self, statement: Statement) -> list[CountedAs]:
        """The keys that executions of an op are counted by, or those of what ends each turn of a loop."""
        return [key for number in self.of(statement).order.tolist() for key in self.keys[number]]

    def moves(self, order: Ints, variable: str) -> Ints:
        """The distance that a step of a variable adds to the addresses of lines."""
        column = self._moves.get(variable)
        return np.zeros(len(order), np.int64) if column is None else column[order]

    def turns(self, one: Stretch, variable: str, first: int, count: int) -> Stretch:
        """Turns of a loop from the `first` on, by the one whose variable is zero."""
        if (first, count) == (0, 1):
            return one
        moved = np.arange(first, first + count)[:, None] * self.moves(one.order, variable)
        return Stretch(np.tile(one.order, count), (one.at + moved).ravel())

    def length(self, stretch: Stretch) -> int:
        """Steps, fused ones counted apart."""
        return int(self.lengths[stretch.order].sum())

    def counted(self, order: Ints) -> dict[int, int]:
        """How often each line stands there, in the order in which they are met."""
        if len(order) == 1:
            return {int(order[0]): 1}
        numbers, first, counts = np.unique(order, return_index=True, return_counts=True)
        by_place = np.argsort(first)
        return dict(zip(numbers[by_place].tolist(), counts[by_place].tolist(), strict=True))

    def executed(self, order: Ints) -> Counter[CountedAs]:
        """The executions of lines."""
        found: Counter[CountedAs] = Counter()
        for number, count in self.counted(order).items():
            for key in self.keys[number]:
                found[key] += count
        return found

    def ops(self, stretch: Stretch) -> tuple[list[CoreOp], list[int]]:
        """The different lines as the core sees them beside each other, and how often each stands there."""
        counted, beside = self.counted(stretch.order), self._beside(stretch.order)
        known = self._ops.setdefault(beside, {})
        for number in counted:
            if number not in known:
                known[number] = core_op(self.machine, self.steps[number], self.jumps[number], *beside)
        return [known[number] for number in counted], list(counted.values())

    def _beside(self, order: Ints) -> tuple[bool, bool]:
        """Whether lines have 512-bit registers, and tiles, which change how others run."""
        return bool(self._wide[order].any()), bool(self._tiles[order].any())

    def rows(self, order: Ints) -> CoreRows:
        """All lines of the program as the core sees them beside those of `order`."""
        beside = self._beside(order)
        if beside not in self._rows:
            pairs = zip(self.steps, self.jumps, strict=True)
            self._rows[beside] = CoreRows(self.machine, [core_op(self.machine, *pair, *beside) for pair in pairs])
        return self._rows[beside]

    def turn(self, stretch: Stretch, moving: str = "") -> Turn:
        """The steps that the core model runs; `moving` is the variable of the loop that repeats it."""
        order, at = stretch.order, stretch.at
        step = self.moves(order, moving)
        loads, stores = self._loads[order], self._stores[order]
        still = np.int64(UNPLACED)
        return Turn(self.rows(order), order, np.where(loads, at, still), step, np.where(stores, at, still), step)


def _statements(body: Sequence[Statement]) -> Iterator[Op | Loop]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from _statements(statement.body)
