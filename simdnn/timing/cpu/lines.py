"""The lines of a program by number, and stretches of them: what the core model is given, without a record for each.

A program has some hundred different lines, and a loop cut short runs through thousands. So a stretch is an array of
numbers of lines with the addresses of those that may meet others in memory, and a loop's turns are found from its first
one by adding what a turn moves. Most stretches are met again in other shapes, and never need these arrays: how they are
made of straight code tells which are alike.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from isa_models.host.forks import ForkLock
from isa_models.machines.cpu_record import Machine
from isa_models.records.plain import Derived
from simdnn.program.records import AlikeAccesses, Loop, Program, Statement, Straight
from simdnn.timing.cpu.core_rows import CoreRows, Numbers
from simdnn.timing.cpu.core_run import CoreRun, Turn
from simdnn.timing.cpu.core_state import UNPLACED
from simdnn.timing.cpu.steps import CoreOp, Step, core_op, fused_with
from simdnn.timing.cpu.stream import CountedAs, CountedStep, Stream

Ints = npt.NDArray[np.int64]
Run = tuple[int, int]  # lines of a text that stand in a row, executed together: the first, and the one behind the last
Answer = TypeVar("Answer")


@dataclass(eq=False)
class Stretch:
    """Lines in a row, told one by one only to who asks for them.

    Those of one number `alike` have the same lines, repeated alike, wherever their bytes lie. `runs` are their lines in
    the program's text, in the order in which they are met, `count` how many they are with all repetitions, `steps`
    what these execute, fused ones counted apart. `placed`: some have addresses that others may meet.
    """

    alike: int
    runs: tuple[Run, ...]
    count: int
    steps: int
    placed: bool
    find: Callable[[], Ints]

    @Derived
    def found(self) -> Ints:
        """The number of each line, and its address, or `UNPLACED`, where the variables around stand at zero."""
        return self.find()

    @property
    def order(self) -> Ints:
        """The number of each line."""
        order: Ints = self.found[0]
        return order


class Known(NamedTuple):
    """Lines in a row that texts of programs have, by number: the number of stretches of such lines, the steps that they
    execute, fused ones counted apart, whether any has 512-bit registers, or tiles, and how often each key is met.
    """

    numbers: tuple[int, ...]
    alike: int
    steps: int
    wide: bool
    tiles: bool
    counted: tuple[tuple[int, int], ...]


class _KnownLines:
    """The lines that programs had on a machine so far, by number: each a step, or two that the core fuses.

    Programs of many shapes have the same lines, so what a line is to the core is found once.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.keys: list[CountedAs] = []
        self.keys_of: list[tuple[int, ...]] = []  # by the number of a line: those of its steps, by number
        self._number_of_key: dict[CountedAs, int] = {}
        self.facts = Numbers("length", "wide", "tiles", "loads", "stores")
        self._steps: list[tuple[Step, str]] = []  # with the jump that is fused with it
        self._numbers: dict[tuple[Step, str, tuple[CountedAs, ...]], int] = {}  # instructions timed alike count apart
        self.answers: dict[tuple[str, object], Any] = {}  # what was found of stretches, by what makes them alike
        self._alike: dict[object, int] = {}
        self._numbers_alike = itertools.count()  # which are given once, so that none stands for another later
        self._of_op: dict[object, int] = {}
        self._of_straight: dict[tuple[object, ...], Known] = {}  # by the keys of ops in a row
        self._of_loop: dict[tuple[str, int], Known] = {}
        self._rows: dict[tuple[bool, bool], tuple[CoreRows, Ints]] = {}

    def straight(self, stream: Stream, ops: Straight) -> Known:
        """The lines of ops in a row. Raises `UnknownTiming`."""
        keys = stream.keys(ops)
        found = self._of_straight.get(keys)
        if found is None:
            found = self._known(self._ops(stream, ops, keys))
            if len(self._of_straight) >= _MOST_ANSWERS:
                self._of_straight.clear()
            self._of_straight[keys] = found
        return found

    def alike(self, key: object) -> int:
        """A number for each key, of stretches that are made in this way of lines, or of others."""
        if len(self._alike) >= _MOST_ALIKE:
            self._alike.clear()
        return self._alike.setdefault(key, next(self._numbers_alike))

    def _known(self, numbers: tuple[int, ...]) -> Known:
        lengths, wide, tiles = self.facts.values[:3, numbers].tolist()
        counted = Counter([key for number in numbers for key in self.keys_of[number]])
        return Known(numbers, self.alike(numbers), sum(lengths), any(wide), any(tiles), tuple(counted.items()))

    def _ops(self, stream: Stream, ops: Straight, keys: Sequence[object]) -> tuple[int, ...]:
        known = self._of_op
        for key, op in zip(keys, ops, strict=True):
            if key not in known:
                with _LOCK:
                    known[key] = self._add([stream.placed(op)])[0]
        return tuple([known[key] for key in keys])

    def control(self, stream: Stream, loop: Loop) -> Known | None:
        """The lines that end each iteration of a loop; None where there are none."""
        pointers = stream.pointers(loop)
        if pointers is None:
            return None
        found = self._of_loop.get((loop.var, pointers))
        if found is None:
            with _LOCK:
                numbers = self._add(stream.control(loop))
            found = self._of_loop[loop.var, pointers] = self._known(numbers)
        return found

    def _add(self, lines: Sequence[CountedStep]) -> tuple[int, ...]:
        numbers, index = list[int](), 0
        while index < len(lines):
            here = lines[index : index + 2]
            jump = fused_with(self.machine, here[0].step, here[1].step) if len(here) == 2 else ""
            fused = here if jump else here[:1]
            numbers.append(self._number(here[0].step, jump, tuple(line.key for line in fused)))
            index += len(fused)
        return tuple(numbers)

    def _number(self, step: Step, jump: str, keys: tuple[CountedAs, ...]) -> int:
        line = step, jump, keys
        if line not in self._numbers:
            timing = self.machine.timing(step.mnemonic, step.form)
            loads, stores = step.load is not None, step.store is not None
            self.facts.add([(len(keys), timing.vector_bits == 512, timing.tile, loads, stores)])
            self.keys += dict.fromkeys([key for key in keys if key not in self._number_of_key])
            self.keys_of.append(tuple([self._number_of_key.setdefault(key, len(self._number_of_key)) for key in keys]))
            self._steps.append((step, jump))
            self._numbers[line] = len(self._numbers)
        return self._numbers[line]

    def rows(self, numbers: Ints, beside: tuple[bool, bool]) -> tuple[CoreRows, Ints]:
        """Rows of lines as the core sees them beside 512-bit registers, and tiles; which of them each of these is."""
        rows, of = self._rows.get(beside) or (CoreRows(self.machine), np.zeros(0, np.int64))
        if numbers.max(initial=0) >= len(of) or (of[numbers] < 0).any():
            with _LOCK:
                rows, of = self._rows.get(beside, (rows, of))
                of = np.concatenate([of, np.full(len(self._steps) - len(of), -1)])
                missing = [number for number in dict.fromkeys(numbers.tolist()) if of[number] < 0]
                of[missing] = np.arange(len(rows.ops), len(rows.ops) + len(missing))
                rows.add([core_op(self.machine, *self._steps[number], *beside) for number in missing])
                self._rows[beside] = rows, of
        return rows, of[numbers]

    def __len__(self) -> int:
        return len(self._steps)


_LOCK = ForkLock()
_NO_LINES = np.zeros((2, 0), np.int64)
_MOST_KNOWN = 1 << 16
_MOST_ANSWERS = 1 << 15
_MOST_ALIKE = 1 << 16


@lru_cache(maxsize=64)
def _known_on(machine: Machine) -> _KnownLines:
    return _KnownLines(machine)


def _known(machine: Machine) -> _KnownLines:
    if len(found := _known_on(machine)) > _MOST_KNOWN:
        _known_on.cache_clear()
        found = _known_on(machine)
    return found


class _Place(NamedTuple):
    """Where a loop stands: the lines of its control, the steps that a turn of it executes, and its runs, by number."""

    control: Stretch
    steps: int
    runs: slice


class _Lines:
    """The number of each line in the order of the text, and where its bytes lie.

    Stretches ask for that, so it knows none of them: cycles of records would stay until Python looks for garbage.
    """

    def __init__(self) -> None:
        self.numbers = list[int]()
        self.at: dict[int, int] = {}  # addresses, by place, of lines whose bytes something else may meet

    @cached_property
    def placed(self) -> Ints:
        """The place of each line, and its address, or `UNPLACED`, where all variables are zero."""
        found = np.empty((2, len(self.numbers)), np.int64)
        found[0], found[1] = np.arange(len(self.numbers)), UNPLACED
        found[1, [*self.at]] = [*self.at.values()]
        return found


class _Text:
    """The lines of a program in the order of its text, as they are added."""

    def __init__(self, known: _KnownLines, stream: Stream) -> None:
        self.known, self.stream = known, stream
        self.lines = _Lines()
        self.moves: dict[str, tuple[list[int], list[int]]] = {}  # by variable: places, and what a step adds there
        self.runs: dict[Run, tuple[Known, int]] = {}  # the lines of each, and how often they are executed
        self.loops: dict[int, _Place] = {}  # by a loop's identity
        self.parts: dict[int, list[Stretch | Loop]] = {}  # by the identity of a body: straight code, and loops
        self.nothing = Stretch(known.alike(()), (), 0, 0, False, lambda: _NO_LINES)

    def add(self, whole: Program | Loop, times: int = 1) -> int:
        """The lines of a program, or of a loop's body that is executed so often, after those added before; the steps
        that a turn of it executes.
        """
        parts = self.parts[id(whole.body)] = []
        known, stream, steps = self.known, self.stream, 0
        for part in whole.parts:
            if type(part) is Loop:
                first, turns, lines = len(self.runs), times * part.extent, known.control(stream, part)
                control = self._run(lines, turns, False) if lines else self.nothing
                parts.append(part)
                turn = control.steps + self.add(part, turns)
                self.loops[id(part)] = _Place(control, turn, slice(first, len(self.runs)))
                steps += part.extent * turn
                continue
            lines, begin = known.straight(stream, part), len(self.lines.numbers)  # type: ignore[arg-type]  # ops
            met = [alike for alike in part.alike if alike.memory.tensor in stream.both] if stream.both else []  # type: ignore[union-attr]
            parts.append(self._run(lines, times, bool(met)))
            steps += lines.steps
            for alike in met:
                self._move(begin, alike)
        return steps

    def _run(self, lines: Known, times: int, placed: bool) -> Stretch:
        """Lines behind those added before, which are executed so often."""
        of_text = self.lines
        begin = len(of_text.numbers)
        of_text.numbers.extend(lines.numbers)
        end = len(of_text.numbers)
        self.runs[begin, end] = lines, times
        return Stretch(
            lines.alike, ((begin, end),), end - begin, lines.steps, placed, lambda: of_text.placed[:, begin:end]
        )

    def _move(self, begin: int, alike: AlikeAccesses) -> None:
        """The addresses of lines, behind that where their code begins, where all variables are zero, and what a step of
        each adds.
        """
        first, unit, strides = self.stream.placement(alike.memory)
        for const, place in zip(alike.constants, alike.places, strict=True):
            self.lines.at[begin + place] = first + const * unit
        for name, stride in strides:
            places, steps = self.moves.setdefault(name, ([], []))
            places += [begin + place for place in alike.places]
            steps += [stride] * len(alike.places)


def _digest(*parts: Ints) -> bytes:
    digest = blake2b()
    for part in parts:
        digest.update(part.data)
    return digest.digest()


class ProgramLines:
    """The lines of one program on a machine, by their places in its text."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine
        self._known = _known(machine)
        self._text = _Text(self._known, Stream(program, machine.core.masks_reach))
        self._text.add(program)
        self._runs = [*self._text.runs]
        self._rows: dict[tuple[bool, bool], tuple[CoreRows, Ints]] = {}

    @cached_property
    def _numbers(self) -> Ints:
        """The number of each line."""
        return np.array(self._text.lines.numbers, np.int64)

    @cached_property
    def _loads_and_stores(self) -> Ints:
        """Whether each line loads, and whether it stores."""
        found: Ints = self._known.facts.values[3:, self._numbers]
        return found

    @cached_property
    def _moves(self) -> dict[str, Ints]:
        """The distance that a step of a variable adds to the address of each line."""
        columns = {name: np.zeros(len(self._numbers), np.int64) for name in self._text.moves}
        for name, (places, steps) in self._text.moves.items():
            columns[name][places] = steps
        return columns

    def parts(self, body: Sequence[Statement]) -> list[Stretch | Loop]:
        """The loops of a body, and the stretches of straight code between them."""
        return self._text.parts[id(body)]

    def control(self, loop: Loop) -> Stretch:
        """The lines that end each turn of a loop."""
        return self._text.loops[id(loop)].control

    def within(self, loop: Loop) -> Sequence[Run]:
        """All lines of a loop, its control first."""
        return self._runs[self._text.loops[id(loop)].runs]

    def steps_of_a_turn(self, loop: Loop) -> int:
        """All steps that one turn of a loop executes, fused ones counted apart."""
        return self._text.loops[id(loop)].steps

    def joined(self, parts: Sequence[Stretch]) -> Stretch:
        """All parts, one behind the other; those without lines change nothing."""
        parts = [part for part in parts if part.count] or parts[:1]
        if len(parts) == 1:
            return parts[0]

        def find() -> Ints:
            return np.concatenate([part.found for part in parts] or [_NO_LINES], axis=1)

        return Stretch(
            self._known.alike(("joined", *[part.alike for part in parts])),
            tuple([run for part in parts for run in part.runs]),
            sum([part.count for part in parts]),
            sum([part.steps for part in parts]),
            any([part.placed for part in parts]),
            find,
        )

    def moves(self, order: Ints, variable: str) -> Ints:
        """The distance that a step of a variable adds to the addresses of lines."""
        column = self._moves.get(variable)
        return np.zeros(len(order), np.int64) if column is None else column[order]

    def turns(self, one: Stretch, variable: str, count: int) -> Stretch:
        """The first turns of a loop, by the one whose variable is zero."""
        if count == 1:
            return one

        def find() -> Ints:
            order, at = one.found
            found = np.empty((2, count, one.count), np.int64)
            found[0] = order
            found[1] = at
            if variable in self._moves:
                found[1] += np.arange(count)[:, None] * self._moves[variable][order]
            return found.reshape(2, -1)

        alike = self._known.alike(("turns", one.alike, count))
        return Stretch(alike, one.runs, one.count * count, one.steps * count, one.placed, find)

    def executed(self, order: Iterable[Run]) -> Counter[CountedAs]:
        """The executions of all lines, told in the order in which runs are named."""
        found: dict[int, int] = {}
        for run in order:
            lines, times = self._text.runs[run]
            for key, count in lines.counted:
                found[key] = found.get(key, 0) + count * times
        return Counter({self._known.keys[key]: count for key, count in found.items()})

    def once(self, what: str, stretch: Stretch, find: Callable[[], Answer]) -> Answer:
        """An answer about the lines of a stretch, wherever their bytes lie; found once for all that are alike."""
        return self._answer((what, stretch.alike), find)

    def once_repeated(self, what: str, stretch: Stretch, moving: str, find: Callable[[], Answer]) -> Answer:
        """An answer about a stretch that a loop of a variable repeats; found once for all that are alike."""
        if not stretch.placed:
            return self._answer((what, stretch.alike), find)
        order, at = stretch.found
        return self._answer((what, (stretch.alike, _digest(at, self.moves(order, moving)))), find)

    def once_run(self, what: object, stretch: Stretch, run: CoreRun, find: Callable[[], Answer]) -> Answer:
        """An answer that a run of a stretch gives; found once for all that are alike and meet alike in memory."""
        return self._answer(("run", (what, stretch.alike, run.meetings)), find) if run.placed else find()

    def _answer(self, key: tuple[str, object], find: Callable[[], Answer]) -> Answer:
        answers = self._known.answers
        if key in answers:
            return answers[key]  # type: ignore[no-any-return]
        found = find()
        if len(answers) >= _MOST_ANSWERS:
            answers.clear()
        answers[key] = found
        return found

    def ops(self, stretch: Stretch) -> tuple[list[CoreOp], list[int]]:
        """The lines as the core sees them beside each other, those once that bounds can't tell apart, and how often
        each stands there.
        """
        rows, of = self.rows(stretch)
        return rows.counted(of[stretch.order])

    def rows(self, stretch: Stretch) -> tuple[CoreRows, Ints]:
        """The rows of all lines of the program as the core sees them beside those of a stretch: 512-bit registers, and
        tiles, change how others run.
        """
        lines = [self._text.runs[run][0] for run in stretch.runs]
        beside = any([of_run.wide for of_run in lines]), any([of_run.tiles for of_run in lines])
        if beside not in self._rows:
            self._rows[beside] = self._known.rows(self._numbers, beside)
        return self._rows[beside]

    def turn(self, stretch: Stretch, moving: str = "") -> Turn:
        """The steps that the core model runs; `moving` is the variable of the loop that repeats it."""
        order, at = stretch.found
        rows, of = self.rows(stretch)
        told = np.empty((5, len(order)), np.int64)
        told[0] = of[order]
        if stretch.placed:
            loads, stores = self._loads_and_stores
            told[1] = np.where(loads[order], at, UNPLACED)
            told[3] = np.where(stores[order], at, UNPLACED)
            told[2] = told[4] = self.moves(order, moving)
        else:
            told[1] = told[3] = UNPLACED
            told[2] = told[4] = 0
        return Turn(rows, told)
