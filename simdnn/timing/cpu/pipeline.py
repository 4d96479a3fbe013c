"""Cycles of an instruction stream on one core: a loop in its steady state, or its first turns op by op.

The core is `core_model.CoreModel`; which of its mechanisms matter, and by how much, was measured on a Zen 4. All its
parameters are in the machine's file. Data are in the L1 cache: what lies beyond is `simdnn.timing.memory`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from isa_models.errors import InvalidArgument
from isa_models.machines.cpu_record import Machine
from isa_models.machines.provenance import Confidence, weakest
from simdnn.timing.cpu import bounds
from simdnn.timing.cpu.chains import slowest_chain
from simdnn.timing.cpu.core_run import CoreRun, Execution, Turn
from simdnn.timing.cpu.core_state import NOWHERE
from simdnn.timing.cpu.steps import CoreOp, MemRef, Step, lower

__all__ = ["LoopTiming", "MemRef", "Step", "loop_cycles", "trace_loop"]

WARM_SLOTS = 1  # windows (reorder buffers) to fill before the steady state is looked for
LONGEST_PERIOD = 12  # iterations
REPEATS = 3  # of a period before it is believed, and at least as many slots as WARM_SLOTS says
MOST_SLOTS = 2400  # simulated before the mean of the last three quarters is taken instead
AHEAD = 64  # ops beyond a reorder buffer of them that the core may have taken up when it is looked at
BOUNDS_ORDER = ("compute", "load", "store", "crowding", "front-end", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRate:
    """The cycles of a loop's iteration in its steady state.

    `limits` are lower bounds by name, and `bound` is the largest of them. `confidence` is the weakest standing among
    the instruction rows and core figures used.
    """

    cycles: float
    bound: str
    limits: dict[str, float]
    chain_cycles: float
    confidence: Confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTiming(LoopRate):
    """The steady state of a loop: a `LoopRate`, and the work that an iteration puts on each port."""

    port_cycles: dict[str, float]


def loop_cycles(machine: Machine, body: Sequence[Step]) -> LoopTiming:
    """Cycles per iteration of `body` repeated for ever, with what bounds them.

    Raises `UnknownTiming` for a step whose row the machine lacks, `InvalidArgument` for an empty body.
    """
    if not body:
        raise InvalidArgument("loop body: met no steps; at least one is needed")
    turn = Turn.of(machine, lower(machine, body))
    turning = Turning(turn)
    rate, spent = turning.rate(), turning.spent()  # before the next run, which writes on the same memory
    ports = _port_cycles(machine, turn.ops, spent, rate.cycles)
    told = {name: getattr(rate, name) for name in LoopRate.__dataclass_fields__}
    return LoopTiming(**told, port_cycles=ports)


def trace_loop(machine: Machine, body: Sequence[Step], iterations: int) -> list[Execution]:
    """The first iterations of a loop op by op, from an empty core."""
    return CoreRun(Turn.of(machine, lower(machine, body)), iterations).finish().trace


def confidence_of(machine: Machine, ops: Sequence[CoreOp], bound: str = "") -> Confidence:
    """The weakest standing among what a stream's time rests on."""
    rests = [
        (
            op.row.confidence,
            not op.row.vector_bits,
            op.row.load_bits if op.load else 0,
            op.row.store_bits if op.store else 0,
        )
        for op in ops
    ]
    return _weakest_of(machine, frozenset(rests), bound)


@lru_cache(maxsize=4096)
def _weakest_of(machine: Machine, rests: frozenset[tuple[Confidence, bool, int, int]], bound: str) -> Confidence:
    """`confidence_of` of ops that tell the standing of their rows, whether they are general, and what they load and
    store, in bits.
    """
    keys = ["core.dispatch_slots", "core.reorder_buffer"]
    for _, general, loaded, stored in rests:
        for way, bits, width in (("load", loaded, machine.core.load), ("store", stored, machine.core.store)):
            if bits:
                row = width(bits, general)
                keys.append(f"core.{way}.{'general.' if row.general else ''}{row.bits}")
    keys += [f"core.crowding.{row.bits}" for row in machine.core.crowding if bound == "crowding"]
    return weakest([*(confidence for confidence, *_ in rests), *(machine.provenance[key].confidence for key in keys)])


def _limits(turn: Turn) -> dict[str, float]:
    """Lower bounds on an iteration, by what would set them."""
    machine, (ops, times) = turn.machine, turn.counted
    return {
        "compute": bounds.port_load(ops, times),
        "load": bounds.load_pipes(machine, ops, times),
        "store": bounds.store_commit(ops, times),
        "crowding": bounds.crowding(machine, ops, times),
        "front-end": bounds.loop_dispatch(machine, ops, times),
        "latency": slowest_chain(turn.ops)[0],
    }


class Turning:
    """A run of a loop until it comes to rest; nothing else may run before that has been asked for its rate."""

    def __init__(self, turn: Turn) -> None:
        machine, (ops, times), size = turn.machine, turn.counted, len(turn.order)
        core, slots = machine.core, max(1, sum(op.slots * count for op, count in zip(ops, times, strict=True)))
        self.turn, self.warm = turn, max(8, -(-WARM_SLOTS * core.reorder_buffer // slots))
        self.most = max(2 * self.warm + REPEATS * LONGEST_PERIOD, MOST_SLOTS // slots)
        ahead = -(-(core.reorder_buffer + AHEAD) // size)  # what is dispatched while the last ones that count retire
        self.turns, self.buffered = self.most + ahead, bounds.loop_copies(machine, ops, times) * size
        self.run = self.start()
        self.stores = [op.commit_cycles / op.store_entries for op in ops if op.store is not None]

    def rate(self) -> LoopRate:
        """Cycles per turn of what is repeated for ever, with what bounds them."""
        machine, ops = self.turn.machine, self.turn.ops
        steady, limits = self.steady, _limits(self.turn)
        limits["crowding"] += self.in_vain()
        limits["store"] = max(limits["store"], self._lines_stored(steady))
        slack_free = _addend_bound(machine, ops, limits["compute"])
        cycles = max(steady.cycles, slack_free, *limits.values())
        chain = limits["latency"]
        limits["latency"] = max(chain, slack_free if slack_free > limits["compute"] else 0.0)
        bound = max(BOUNDS_ORDER, key=lambda name: (round(limits[name], 6), -BOUNDS_ORDER.index(name)))
        confidence = confidence_of(machine, self.turn.counted[0], bound)
        return LoopRate(cycles=cycles, bound=bound, limits=limits, chain_cycles=chain, confidence=confidence)

    def start(self) -> CoreRun:
        return CoreRun(self.turn, self.turns, self.buffered, self.most)

    @cached_property
    def steady(self) -> _Steady:
        """Cycles an iteration once the time between iterations repeats.

        A store queue that is full would stay full, and what waits for it comes in other groups. So on cores whose
        groups wait for places of all their stores it fills only where stores bind when it begins empty.
        """
        if self.stores and self.turn.machine.core.binding == "order":
            found = self._settled()
            if found.cycles >= self._lines_stored(found):
                return found
            self.run = self.start()
        if self.stores:
            self.run.fill_store_queue(max(self.stores))
        return self._settled()

    def _settled(self) -> _Steady:
        period = self.run.settle(self.warm, self.most, REPEATS, LONGEST_PERIOD)
        ends = self.run.ends.tolist()
        period = period or len(ends) - len(ends) // 4
        return _Steady((ends[-1] - ends[-1 - period]) / period, len(ends), period)

    def spent(self) -> list[float]:
        """The work on each port in the last periods."""
        iterations = self.steady.iterations
        before, after = self.run.busy_at(iterations - 1 - self.steady.last), self.run.busy_at(iterations - 1)
        return [b - a for a, b in zip(before, after, strict=True)]

    def _lines_stored(self, steady: _Steady) -> float:
        """Cycles that the commit of an iteration's stores takes, by their lines, in the last periods."""
        if not self.stores:
            return 0.0
        size, last = len(self.turn.order), steady.last
        stored = self.turn.rows.column("store_tensor")[self.turn.order] != NOWHERE
        ages = slice((steady.iterations - last) * size, steady.iterations * size)
        return float(self.run.array("line_cycles")[ages].reshape(last, size)[:, stored].sum()) / last

    def in_vain(self) -> float:
        """The share of an iteration that loads took which came again (`Crowding`)."""
        core, loads = self.turn.machine.core, [op for op in self.turn.ops if op.load is not None]
        shares = [row.vain for op in loads for row in core.crowding if row.counts(op.row.load_bits)]
        if not any(shares) or any(op.row.tile for op in loads):
            return 0.0
        ports = [core.ports.index(port) for port in core.load_ports]
        used = sum(self.spent()[port] for port in ports) / self.steady.last
        return max(0.0, used - sum(op.load_pipes for op in loads)) * sum(shares) / len(shares)


class _Steady(NamedTuple):
    """A run that came to rest: cycles an iteration, the number of iterations, and those of the period at its end."""

    cycles: float
    iterations: int
    period: int

    @property
    def last(self) -> int:
        """The iterations of the last periods: many, as loads are issued well ahead."""
        return self.period * max(1, self.iterations // (2 * self.period))


def _port_cycles(machine: Machine, ops: Sequence[CoreOp], spent: Sequence[float], most: float) -> dict[str, float]:
    """An iteration's work on each port, as `spent` shares it out, but nowhere more than `most` cycles.

    Uops that are issued ahead of the rest, as loads are, have had more than their iterations; so what `spent` holds is
    brought to what is known: the work of uops on ports that no other uop goes to.
    """
    load_ports = [machine.core.ports.index(port) for port in machine.core.load_ports]
    apart: list[tuple[set[int], float]] = []  # ports, and the work of an iteration that goes to them alone
    placed = [(set(uop), float(op.occupancy)) for op in ops for uop in op.uops]
    placed += [(set(load_ports), op.load_pipes) for op in ops if op.load is not None]
    for ports, work in placed:
        touching = [one for one in apart if one[0] & ports]
        apart = [one for one in apart if not one[0] & ports]
        apart.append((ports.union(*(one[0] for one in touching)), work + sum(one[1] for one in touching)))
    found = dict.fromkeys(machine.core.ports, 0.0)
    for ports, work in apart:
        total = sum(spent[number] for number in ports)
        shares = {number: work * (spent[number] / total if total else 1 / len(ports)) for number in ports}
        beyond = sum(max(0.0, share - most) for share in shares.values())
        room = sum(max(0.0, most - share) for share in shares.values())
        for number, share in shares.items():
            more = beyond * max(0.0, most - share) / room if room else 0.0
            found[machine.core.ports[number]] = (min(share, most) if room else share) + more
    return found


def _addend_bound(machine: Machine, ops: Sequence[CoreOp], compute: float) -> float:
    """Cycles an iteration of chains through the addend that have little slack on the ports (`addend_chain_use`).

    On Zen 4, fused multiply-adds and dot products of 256 bits or less whose chains leave the ports no slack reach only
    part of them; measured as a curve over the slack that each step of the chain has.
    """
    curve = machine.core.addend_chain_use
    chains = _addend_chains(ops) if curve else []
    if not chains:
        return 0.0
    length, steps = max((sum(op.latency - op.accumulator_gain for op in chain), len(chain)) for chain in chains)
    slack = (compute - length) / steps
    if slack < curve[0][0] or slack >= curve[-1][0]:
        return 0.0
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if slack <= x1:
            return compute / (y0 + (y1 - y0) * (slack - x0) / (x1 - x0))
    return 0.0


def _addend_chains(ops: Sequence[CoreOp]) -> list[list[CoreOp]]:
    """Chains through the addend alone, at 256 bits or less: the writers of a register that nothing else writes."""
    writers: dict[str, list[CoreOp]] = {}
    for op in ops:
        for register in op.writes:
            writers.setdefault(register, []).append(op)
    return [
        chain
        for register, chain in writers.items()
        if all(op.accumulator == register and register not in op.reads for op in chain)
        and all(0 < op.row.vector_bits <= 256 for op in chain)
    ]
