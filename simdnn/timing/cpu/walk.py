"""The core's time for a whole Program: loops in their steady state, and the code between them overlapped with it.

Simulating every iteration would take hours, so loops are cut short. An innermost loop has a steady rate of its own
(`pipeline.loop_cycles`). A loop around others is timed by simulating neighbouring iterations of it in which every
inner loop runs only until it has filled the reorder buffer (thrice where latency bounds it); the iterations left out
are added at the inner loop's steady rate. So what an out-of-order core overlaps at the ends of tiles (stores of one
tile beside the first loads of the next) overlaps here too. Parallel loops run one iteration after another: this is
the time of one core.

Not modelled: mispredicted branches at the ends of loops, instruction fetch, and address translation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from isa_models.machines.cpu_record import Machine
from isa_models.machines.provenance import Confidence, weakest
from simdnn.program.records import Loop, Program, Statement
from simdnn.timing.cpu import bounds
from simdnn.timing.cpu.core_run import CoreRun
from simdnn.timing.cpu.lines import ProgramLines, Run, Stretch
from simdnn.timing.cpu.pipeline import LoopRate, Turning, confidence_of
from simdnn.timing.cpu.steps import CoreOp
from simdnn.timing.cpu.stream import CountedAs

SHORT = 4  # a body with loops of up to 1/SHORT of the window is repeated until it is seen to be periodic
LOOKED_AT = 2  # iterations of a longer one that are timed, at least
SETTLING = 3  # windows until the overlap of two tiles has come to rest where chains of latencies bound them
ALIKE = 0.01  # iterations whose times differ by no more have come to rest
NEAR = 0.9  # a lower bound of at least this share of the time is what bounds it


class Piece(NamedTuple):
    """Part of a program's time: `iterations` of `loop` with `cycles` in all, less those of loops inside that are
    pieces of their own. `loop` is the variables from the outermost loop in, "" for the whole program's own part.
    """

    loop: str
    iterations: int
    cycles: float
    bound: str


Pieces = dict[str, Piece]


def _add(total: Pieces, more: Pieces, times: int = 1) -> None:
    if not total and times == 1:
        total.update(more)
        return
    for name, (_, iterations, cycles, bound) in more.items():
        _, before, already, bound = total.get(name, (name, 0, 0.0, bound))
        total[name] = Piece(name, before + iterations * times, already + cycles * times, bound)


class Mix(NamedTuple):
    """Cycles that no schedule of some lines beside each other can beat, by what sets them, dependences apart; and the
    weakest standing among the figures that their time rests on.
    """

    limits: dict[str, float]
    confidence: Confidence


class Shortened(NamedTuple):
    """Lines to simulate in a row, and beside them what was left out: its pieces of time and its executions."""

    lines: Stretch
    skipped: Pieces
    left: dict[Run, None]  # lines that were left out in some turns, in the order in which they are met


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration of a loop, or the whole program: its instructions, the loops in it, and about its cycles."""

    instructions: int
    loops: tuple[Iteration, ...]
    find_cycles: Callable[[], float]

    @cached_property
    def cycles(self) -> float:
        """Found for who asks: phases do so of long loops alone."""
        return self.find_cycles()


@dataclass(frozen=True)
class CoreTime:
    """Cycles of one core, all data in its first cache; the pieces sum up to `cycles`."""

    cycles: float
    pieces: tuple[Piece, ...]
    executed: Counter[CountedAs]
    confidence: Confidence
    span: Iteration

    @property
    def bound(self) -> str:
        """The bound of most of the time."""
        votes: Counter[str] = Counter()
        for piece in self.pieces:
            votes[piece.bound] += piece.cycles  # type: ignore[assignment]  # a Counter of floats
        return max(votes, key=lambda name: votes[name])


def core_time(program: Program, machine: Machine) -> CoreTime:
    """The time of a verified program on one core; `UnknownTiming` where the machine lacks a row."""
    return _Walk(program, machine).run()


class _Walk:
    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine
        self.lines = ProgramLines(program, machine)
        self.window = machine.core.reorder_buffer
        self.rates: dict[int, Pieces] = {}
        self.first_turns: dict[int, Shortened] = {}
        self.confidences: set[Confidence] = set()

    def run(self) -> CoreTime:
        whole = self.body(self.program.body, "")
        mix = self.mix(whole.lines)
        stores_too = math.ceil(mix.limits["load"] - 1e-9)  # the core model places none
        cycles = float(max(stores_too, self.end(whole.lines))) if whole.lines.count else 0.0
        self.confidences.add(mix.confidence)
        pieces: Pieces = {"": Piece("", 1, cycles, _bound(mix.limits, cycles))}
        _add(pieces, whole.skipped)
        executed = self.lines.executed(whole.left | dict.fromkeys(whole.lines.runs))
        cycles = sum(piece.cycles for piece in pieces.values())
        loops = tuple([self.span(part) for part in self.program.parts if type(part) is Loop])
        span = Iteration(executed.total(), loops, lambda: cycles)
        return CoreTime(cycles, tuple(pieces.values()), executed, weakest(self.confidences), span)

    def mix(self, stretch: Stretch) -> Mix:
        """The bounds on the lines of a stretch, in whatever order."""
        return self.lines.once("mix", stretch, partial(self._mix, stretch))

    def _mix(self, stretch: Stretch) -> Mix:
        ops, times = self.lines.ops(stretch)
        return Mix(lower_bounds(self.machine, ops, times), confidence_of(self.machine, ops))

    def end(self, whole: Stretch) -> int:
        """The cycle of the last retirement of a stretch that is executed once."""
        return self.lines.once_repeated("end", whole, "", lambda: self.ends(whole, whole.count)[0])

    def ends(self, stretch: Stretch, every: int) -> tuple[int, ...]:
        """The retirements of each `every`-th line of a stretch that is executed once."""
        run = CoreRun(self.lines.turn(stretch), 1)
        return self.lines.once_run(every, stretch, run, lambda: run.finish().retired_each(every))

    def body(self, body: Sequence[Statement], path: str, *end: Stretch) -> Shortened:
        """One pass over statements and what ends them, inner loops cut short."""
        within = self.lines.parts(body)
        if len(within) == 1 and type(within[0]) is Loop and not any([lines.count for lines in end]):
            return self.loop(within[0], path)
        parts: list[Stretch] = []
        skipped: Pieces = {}
        left: dict[Run, None] = {}
        for part in within:
            if isinstance(part, Stretch):
                parts.append(part)
                continue
            inner = self.loop(part, path)
            parts.append(inner.lines)
            _add(skipped, inner.skipped)
            left |= inner.left
        return Shortened(self.lines.joined([*parts, *end]), skipped, left)

    def first(self, loop: Loop, path: str) -> Shortened:
        """A loop's first iteration, with what ends it."""
        if id(loop) not in self.first_turns:
            self.first_turns[id(loop)] = self.body(loop.body, path, self.lines.control(loop))
        return self.first_turns[id(loop)]

    def loop(self, loop: Loop, outer: str) -> Shortened:
        """A loop's first iterations, enough to fill the window, and the others at its steady rate."""
        path = f"{outer}/{loop.var}" if outer else loop.var
        one = self.first(loop, path)
        if loop.extent == 1:
            return one
        size = max(1, one.lines.steps)
        kept = min(loop.extent, -(-self.window // size))
        if kept < loop.extent and max(self.rate(loop, path).values(), key=lambda p: p.cycles).bound == "latency":
            kept = min(loop.extent, -(-SETTLING * self.window // size))
        skipped, without = dict(one.skipped), one.left
        for _ in range(1, kept if one.skipped else 0):
            _add(skipped, one.skipped)
        left = loop.extent - kept
        if left:
            _add(skipped, self.rate(loop, path), left)
            without = without | dict.fromkeys(self.lines.within(loop))
        return Shortened(self.lines.turns(one.lines, loop.var, kept), skipped, without)

    def span(self, loop: Loop) -> Iteration:
        """One iteration of a loop."""
        loops = tuple([self.span(part) for part in loop.parts if type(part) is Loop])
        return Iteration(self.lines.steps_of_a_turn(loop), loops, partial(self.about, loop, loops))

    def about(self, loop: Loop, loops: Sequence[Iteration]) -> float:
        """Cycles of an iteration; where its steady state is not known, those of its loops and the least that the rest
        takes.
        """
        if id(loop) in self.rates:
            return sum([piece.cycles for piece in self.rates[id(loop)].values()])
        parts = [*self.lines.parts(loop.body), self.lines.control(loop)]
        inner = [part for part in parts if isinstance(part, Loop)]
        straight = self.lines.joined([part for part in parts if isinstance(part, Stretch)])
        rest = max(self.mix(straight).limits.values())
        return sum([span.cycles * s.extent for span, s in zip(loops, inner, strict=True)]) + rest

    def rate(self, loop: Loop, path: str) -> Pieces:
        """The pieces of one iteration of a loop in its steady state."""
        if id(loop) not in self.rates:
            self.rates[id(loop)] = self._rate(loop, path)
        return self.rates[id(loop)]

    def _rate(self, loop: Loop, path: str) -> Pieces:
        first = loop.body[0]
        if len(loop.body) == 1 and isinstance(first, Loop):
            return self._nested(loop, first, path)
        one = self.first(loop, path)
        short = one.lines.steps <= self.window // SHORT
        if short or all([type(part) is not Loop for part in loop.parts]):
            timing = self.lines.once_repeated("steady", one.lines, loop.var, partial(self.steady, loop, one.lines))
            self.confidences.add(timing.confidence)
            cycles = timing.cycles
            bound = _named(timing.bound) if timing.limits[timing.bound] >= NEAR * cycles else "latency"
        else:
            find = partial(self.neighbours, loop, one.lines)
            cycles, bound = self.lines.once_repeated("neighbours", one.lines, loop.var, find)
            self.confidences.add(self.mix(one.lines).confidence)
        pieces = {path: Piece(path, 1, cycles, bound)}
        _add(pieces, one.skipped)
        return pieces

    def steady(self, loop: Loop, one: Stretch) -> LoopRate:
        """The steady state of a loop."""
        turning = Turning(self.lines.turn(one, loop.var))
        return self.lines.once_run("rate", one, turning.run, turning.rate)

    def neighbours(self, loop: Loop, one: Stretch) -> tuple[float, str]:
        """Cycles of an iteration among its neighbours, and their bound.

        Some iterations fill the window, then some are looked at; more where these still differ. Queues that fill more
        slowly hide a bound, stores at commit above all, so the time is no less than each bound.
        """
        for settled in (self.window, SETTLING * self.window):
            warm = -(-settled // one.steps)
            turns = self.lines.turns(one, loop.var, warm + max(LOOKED_AT, 2 * warm))
            ends = self.ends(turns, one.count)
            seen = (ends[-1] - ends[warm - 1]) / (len(ends) - warm)
            if abs(ends[-1] - ends[-2] - seen) <= ALIKE * seen:
                break
        limits = self.mix(one).limits
        cycles = max(seen, *limits.values())
        return cycles, _bound(limits, cycles)

    def _nested(self, loop: Loop, inner: Loop, path: str) -> Pieces:
        """A loop that holds nothing but another: that one's iterations, and the dispatch of the control around it."""
        cycles = self.mix(self.lines.control(loop)).limits["front-end"]
        pieces = {path: Piece(path, 1, cycles, "front-end")}
        _add(pieces, self.rate(inner, f"{path}/{inner.var}"), inner.extent)
        return pieces


def _bound(limits: Mapping[str, float], cycles: float) -> str:
    """The bound of a turn that took `cycles`: the largest lower bound if it comes near, else latency."""
    name = max(limits, key=lambda key: limits[key])
    return _named(name) if limits[name] >= NEAR * cycles else "latency"


def lower_bounds(machine: Machine, ops: Sequence[CoreOp], times: Sequence[int] | None = None) -> dict[str, float]:
    """Cycles that no schedule of `ops`, each taken `times`, can beat, by what sets them; dependences apart."""
    return {
        "compute": bounds.port_load(ops, times),
        "load": bounds.load_pipes(machine, ops, times),
        "store": bounds.store_commit(ops, times),
        "crowding": bounds.crowding(machine, ops, times),
        "front-end": bounds.dispatch(machine, ops, times),
    }


def _named(bound: str) -> str:
    """The pipeline's bound in the words of a cost: load pipes, stores and what crowds both are the first cache's."""
    return "L1" if bound in ("load", "store", "crowding") else bound
