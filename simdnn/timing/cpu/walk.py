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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from isa_models.machines.cpu_record import Machine
from isa_models.machines.provenance import Confidence, weakest
from simdnn.program.records import Loop, Op, Program, Statement
from simdnn.timing.cpu import bounds
from simdnn.timing.cpu.pipeline import BlockTiming, LoopTiming, block_timing, loop_cycles
from simdnn.timing.cpu.steps import CoreOp as Lowered
from simdnn.timing.cpu.steps import Step, lower
from simdnn.timing.cpu.stream import CountedAs, CountedStep, Stream

SHORT = 4  # a body with loops of up to 1/SHORT of the window is repeated until it is seen to be periodic
LOOKED_AT = 2  # iterations of a longer one that are timed, at least
SETTLING = 3  # windows until the overlap of two tiles has come to rest where chains of latencies bound them
ALIKE = 0.01  # iterations whose times differ by no more have come to rest
NEAR = 0.9  # a lower bound of at least this share of the time is what bounds it


@dataclass(frozen=True)
class Piece:
    """Part of a program's time: `iterations` of `loop` with `cycles` in all, less those of loops inside that are
    pieces of their own. `loop` is the variables from the outermost loop in, "" for the whole program's own part.
    """

    loop: str
    iterations: int
    cycles: float
    bound: str

    def __mul__(self, times: int) -> Piece:
        return Piece(self.loop, self.iterations * times, self.cycles * times, self.bound)


Pieces = dict[str, Piece]


def _add(total: Pieces, more: Pieces, times: int = 1) -> None:
    for name, piece in more.items():
        old = total.get(name, Piece(name, 0, 0.0, piece.bound))
        extra = piece * times
        total[name] = replace(old, iterations=old.iterations + extra.iterations, cycles=old.cycles + extra.cycles)


@dataclass
class Stretch:
    """Lines to simulate in a row, and beside them what was left out: its pieces of time and its executions."""

    lines: list[CountedStep] = field(default_factory=list)
    skipped: Pieces = field(default_factory=dict)
    executed: Counter[CountedAs] = field(default_factory=Counter)  # left out

    def extend(self, other: Stretch) -> None:
        self.lines += other.lines
        _add(self.skipped, other.skipped)
        self.executed.update(other.executed)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(line.step for line in self.lines)


@dataclass(frozen=True)
class Iteration:
    """One iteration of a loop, or the whole program: about its cycles, its instructions, and the loops in it."""

    cycles: float
    instructions: int
    loops: tuple[Iteration, ...]


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
        """What bounds most of the time."""
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
        self.stream = Stream(program)
        self.window = machine.core.reorder_buffer
        self.rates: dict[int, Pieces] = {}
        self.counts: dict[int, Counter[CountedAs]] = {}
        self.confidences: set[Confidence] = set()

    def run(self) -> CoreTime:
        whole = self.body(self.program.body, {}, "")
        timing = _block(self.machine, whole.steps)
        self.confidences.add(timing.confidence)
        pieces: Pieces = {"": Piece("", 1, float(timing.cycles), self.bound(whole.steps, timing.cycles))}
        _add(pieces, whole.skipped)
        whole.executed.update(line.key for line in whole.lines)
        cycles = sum(piece.cycles for piece in pieces.values())
        loops = tuple(self.span(s) for s in self.program.body if isinstance(s, Loop))
        span = Iteration(cycles, whole.executed.total(), loops)
        return CoreTime(cycles, tuple(pieces.values()), whole.executed, weakest(self.confidences), span)

    def body(self, body: Sequence[Statement], at: Mapping[str, int], path: str, moving: str = "") -> Stretch:
        """One pass over statements, inner loops cut short."""
        found = Stretch()
        for statement in body:
            if isinstance(statement, Op):
                found.lines.append(self.stream.line(statement, at, moving))
            else:
                found.extend(self.loop(statement, at, path))
        return found

    def iteration(self, loop: Loop, at: Mapping[str, int], path: str, moving: str = "") -> Stretch:
        found = self.body(loop.body, at, path, moving)
        found.lines += self.stream.control(loop)
        return found

    def loop(self, loop: Loop, at: Mapping[str, int], outer: str) -> Stretch:
        """A loop's first iterations, enough to fill the window, and the others at its steady rate."""
        path = f"{outer}/{loop.var}" if outer else loop.var
        found = self.iteration(loop, {**at, loop.var: 0}, path)
        size = max(1, len(found.lines))
        kept = min(loop.extent, -(-self.window // size))
        if kept < loop.extent and max(self.rate(loop, path).values(), key=lambda p: p.cycles).bound == "latency":
            kept = min(loop.extent, -(-SETTLING * self.window // size))
        for i in range(1, kept):
            found.extend(self.iteration(loop, {**at, loop.var: i}, path))
        left = loop.extent - kept
        if left:
            _add(found.skipped, self.rate(loop, path), left)
            for key, times in self.count(loop).items():
                found.executed[key] += times * left
        return found

    def count(self, loop: Loop) -> Counter[CountedAs]:
        """The executions of one iteration."""
        if id(loop) not in self.counts:
            found: Counter[CountedAs] = Counter(line.key for line in self.stream.control(loop))
            for statement in loop.body:
                if isinstance(statement, Op):
                    found[self.stream.line(statement, {}).key] += 1
                else:
                    for key, times in self.count(statement).items():
                        found[key] += times * statement.extent
            self.counts[id(loop)] = found
        return self.counts[id(loop)]

    def span(self, loop: Loop) -> Iteration:
        """One iteration; where its steady state is not known, that of its loops and the least that the rest takes."""
        loops = tuple(self.span(s) for s in loop.body if isinstance(s, Loop))
        instructions = self.count(loop).total()
        if id(loop) in self.rates:
            return Iteration(sum(piece.cycles for piece in self.rates[id(loop)].values()), instructions, loops)
        inner = [s for s in loop.body if isinstance(s, Loop)]
        lines = [self.stream.line(s, {}) for s in loop.body if isinstance(s, Op)] + list(self.stream.control(loop))
        rest = lower_bounds(self.machine, lower(self.machine, [line.step for line in lines]))
        cycles = sum(span.cycles * s.extent for span, s in zip(loops, inner, strict=True)) + max(rest.values())
        return Iteration(cycles, instructions, loops)

    def rate(self, loop: Loop, path: str) -> Pieces:
        """The pieces of one iteration of a loop in its steady state."""
        if id(loop) not in self.rates:
            self.rates[id(loop)] = self._rate(loop, path)
        return self.rates[id(loop)]

    def _rate(self, loop: Loop, path: str) -> Pieces:
        first = loop.body[0]
        if len(loop.body) == 1 and isinstance(first, Loop):
            return self._nested(loop, first, path)
        one = self.iteration(loop, {loop.var: 0}, path, loop.var)
        if len(one.lines) <= self.window // SHORT or all(isinstance(statement, Op) for statement in loop.body):
            timing = _steady(self.machine, one.steps)
            self.confidences.add(timing.confidence)
            cycles = timing.cycles
            bound = _named(timing.bound) if timing.limits[timing.bound] >= NEAR * cycles else "latency"
        else:
            cycles, bound = self.neighbours(loop, path, one.steps)
        pieces = {path: Piece(path, 1, cycles, bound)}
        _add(pieces, one.skipped)
        return pieces

    def neighbours(self, loop: Loop, path: str, one: tuple[Step, ...]) -> tuple[float, str]:
        """Cycles of an iteration among its neighbours, and their bound.

        Some iterations fill the window, then some are looked at; more where these still differ. Queues that fill more
        slowly hide a bound, stores at commit above all, so the time is no less than each bound.
        """
        for settled in (self.window, SETTLING * self.window):
            warm = -(-settled // len(one))
            steps: list[Step] = []
            for i in range(warm + max(LOOKED_AT, 2 * warm)):
                steps += self.iteration(loop, {loop.var: i}, path).steps
            block = _block(self.machine, tuple(steps))
            ends = block.retire_cycles[len(one) - 1 :: len(one)]
            seen = (ends[-1] - ends[warm - 1]) / (len(ends) - warm)
            if abs(ends[-1] - ends[-2] - seen) <= ALIKE * seen:
                break
        self.confidences.add(block.confidence)
        cycles = max(seen, *lower_bounds(self.machine, lower(self.machine, one)).values())
        return cycles, self.bound(one, cycles)

    def _nested(self, loop: Loop, inner: Loop, path: str) -> Pieces:
        """A loop that holds nothing but another: that one's iterations, and the dispatch of the control around it."""
        control = [line.step for line in self.stream.control(loop)]
        cycles = bounds.dispatch(self.machine, lower(self.machine, control))
        pieces = {path: Piece(path, 1, cycles, "front-end")}
        _add(pieces, self.rate(inner, f"{path}/{inner.var}"), inner.extent)
        return pieces

    def bound(self, steps: Sequence[Step], cycles: float) -> str:
        """What bounds steps that took `cycles`: the largest lower bound if it comes near, else latency."""
        limits = lower_bounds(self.machine, lower(self.machine, steps))
        name = max(limits, key=lambda key: limits[key])
        return _named(name) if limits[name] >= NEAR * cycles else "latency"


def lower_bounds(machine: Machine, ops: Sequence[Lowered]) -> dict[str, float]:
    """Cycles that no schedule of `ops` can beat, by what sets them; dependences apart."""
    return {
        "compute": bounds.port_load(ops),
        "load": bounds.load_pipes(machine, ops),
        "store": bounds.store_commit(ops),
        "crowding": bounds.crowding(machine, ops),
        "front-end": bounds.dispatch(machine, ops),
    }


def _named(bound: str) -> str:
    """The pipeline's bound in the words of a cost: load pipes, stores and what crowds both are the first cache's."""
    return "L1" if bound in ("load", "store", "crowding") else bound


# Kernels of many shapes share their bodies: addresses are left out of steps where they cannot matter.
@lru_cache(maxsize=4096)
def _steady(machine: Machine, steps: tuple[Step, ...]) -> LoopTiming:
    return loop_cycles(machine, steps)


@lru_cache(maxsize=4096)
def _block(machine: Machine, steps: tuple[Step, ...]) -> BlockTiming:
    return block_timing(machine, steps)
