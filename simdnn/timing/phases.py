"""How a core's work and the transfers of the memory levels lie beside each other in time.

Transfers overlap with work that is near: an out-of-order window and prefetch reach a few hundred instructions ahead.
Memory rests while a stage widens weights that are there already, and where a matrix comes from DRAM with the first of
the tiles that use it, that tile waits and the others run from the cache. So a run is cut into phases, each as long as
the slowest of what it asks for, and their times add up:

- loops side by side are phases of their own where they are long (`LONG` reorder buffers of instructions),
- so are a loop's first iteration, which fetches what stays for the others, and those others,
- and so is what stands around long loops, such as the stores at the end of a tile, which come all at once.

What a level leaves exposed (`exposed` in the machine's file) adds to the core's own time in every phase.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isa_models.machines.cpu_record import Machine
from simdnn.timing.bundles import Lines, total
from simdnn.timing.cpu.walk import CoreTime, Iteration
from simdnn.timing.footprint import Region
from simdnn.timing.memory import Fetches, LevelTraffic, Transfers, transfer_cycles

LONG = 4  # reorder buffers of instructions: what is shorter overlaps with what is before and behind it

Demand = Mapping[str, Lines]  # by tensor


class Phase(NamedTuple):
    """A part of a run, `times` alike: the core's cycles, those of each level from the second on, and how many of these
    add to the core's.
    """

    times: float
    core: float
    levels: tuple[float, ...]
    shown: float


@dataclass(frozen=True)
class Overlap:
    """Cycles of a run, and what bounds most of them."""

    cycles: float
    bound: str


def overlap(machine: Machine, core: CoreTime, moved: Transfers, share: float = 1.0) -> Overlap:
    """The time of a program whose core takes `core` and whose levels move `moved`.

    `share`: how often that is run, of the core's own time and of every phase.
    """
    first, others = moved.levels[0], moved.levels[1:]
    cycles = max(core.cycles, first.cycles)
    slower = cycles / max(1, core.cycles)  # where the first cache bounds
    own = core.bound if core.cycles >= first.cycles else first.level
    votes = defaultdict(float, {own: cycles})
    for phase in phases(machine, core.span, moved):
        working, slowest = slower * phase.core, max(phase.levels)
        cycles += phase.times * (max(working + phase.shown, slowest) - working)
        if slowest > working:
            votes[own] -= phase.times * working
            votes[others[phase.levels.index(slowest)].level] += phase.times * slowest
    cycles = max(cycles, *(level.cycles for level in others))  # whose bytes are rounded
    return Overlap(cycles * share, max(votes, key=lambda name: votes[name]))


def phases(machine: Machine, span: Iteration, moved: Transfers) -> list[Phase]:
    """The phases of a run in which any level but the first has something to do."""
    cut = _Cut(LONG * machine.core.reorder_buffer, moved.levels[1:], moved.tree.line_bytes, moved.asked, moved.ahead)
    flows = [_LevelWork(level, _sum({}, once), again) for level, (once, again) in enumerate(moved.fetches)]
    cut.iteration(moved.tree, span, flows, 1.0)
    return cut.phases


class _LevelWork(NamedTuple):
    """Lines that a level, by its number, fetches for a part: those that stay until its end once, others again."""

    level: int
    once: Demand
    again: Fetches


@dataclass(frozen=True)
class _Cut:
    """Cuts a run into `phases` of at least `least` instructions."""

    least: int
    levels: Sequence[LevelTraffic]
    line_bytes: int
    asked: Collection[str]
    ahead: Mapping[str, float]
    phases: list[Phase] = field(default_factory=list)

    def phase(self, times: float, core: float, demands: Mapping[int, Demand]) -> None:
        """Add a phase with the demands of the levels by their numbers."""
        busy, shown = [0.0] * len(self.levels), 0.0
        for number, demand in demands.items():
            if not demand:
                continue
            level = self.levels[number]
            busy[number] = all_ = self.cycles(level, demand)
            if not self.asked and not self.ahead:
                shown += level.exposed * all_
                continue
            asked = {tensor: demand[tensor] for tensor in demand if tensor in self.asked}
            ahead = {t: demand[t] * self.ahead[t] for t in self.ahead if t in demand and t not in asked}
            some = [self.cycles(level, part) if part else 0.0 for part in (asked, ahead)]
            shown += (
                level.exposed * (all_ - sum(some)) + level.exposed_asked * some[0] + level.exposed_fetched * some[1]
            )
        self.phases.append(Phase(times, core, tuple(busy), shown))

    def cycles(self, level: LevelTraffic, demand: Demand) -> float:
        """The time that a level takes for the lines of a demand."""
        touched, written = total(demand.values())
        rates = level.load_bytes_per_cycle, level.store_bytes_per_cycle
        return transfer_cycles(touched * self.line_bytes, written * self.line_bytes, *rates)

    def iteration(self, part: Region, span: Iteration, flows: Sequence[_LevelWork], times: float) -> None:
        """Add one iteration of a part, which also fetches what stays before its next: each tensor's lines where they
        are touched first. What stands around long loops is a phase of its own, however short: the stores at a tile's
        end.
        """
        if not (flows := _with_work(flows)):
            return
        left = {level: dict(once) for level, once, _ in flows}
        *of_loops, alone = part.ends
        near = {level: _sum(f.straight, _take(left[level], part.straight, alone)) for level, _, f in flows}
        core = span.cycles
        for number, (loop, inner, ends) in enumerate(zip(part.loops, span.loops, of_loops, strict=True)):
            below = []
            for level, _, fetches in flows:
                once, again = fetches.loops[number] if fetches.loops else ({}, fetches)  # nothing is fetched again
                below.append(_LevelWork(level, _sum(once, _take(left[level], loop.whole, ends)), again))
            if inner.instructions * loop.extent >= self.least:
                core -= inner.cycles * loop.extent
                self.loop(loop, inner, below, times)
            else:
                for flow in below:
                    near[flow.level] = _sum(near[flow.level], _run(flow.once, flow.again))
        if any(near.values()):
            self.phase(times, max(0.0, core), near)

    def loop(self, loop: Region, span: Iteration, flows: Sequence[_LevelWork], times: float) -> None:
        """Add a run of a loop that fetches `once` what stays until its end."""
        if not (flows := _with_work(flows)):
            return
        if span.instructions < self.least:
            self.phase(times, span.cycles * loop.extent, {level: _run(once, f) for level, once, f in flows})
            return
        if loop.extent == 1:
            self.iteration(loop, span, flows, times)
            return
        first, later = list[_LevelWork](), list[_LevelWork]()
        for level, once, again in flows:
            begun = {t: _first(loop, t, lines) for t, lines in once.items()}
            rest = {t: (lines + begun[t] * -1) * (1 / (loop.extent - 1)) for t, lines in once.items()}
            first.append(_LevelWork(level, begun, again))
            later.append(_LevelWork(level, rest, again))
        self.iteration(loop, span, first, times)
        self.iteration(loop, span, later, times * (loop.extent - 1))


def _with_work(flows: Sequence[_LevelWork]) -> list[_LevelWork]:
    """The levels that fetch anything."""
    return [flow for flow in flows if flow.once or flow.again.total]


def _run(once: Demand, again: Fetches) -> dict[str, Lines]:
    """Lines of a whole run of a loop."""
    return _sum(once, again.total, again.part.extent)


def _first(loop: Region, tensor: str, lines: Lines) -> Lines:
    """The lines of a loop's first iteration, among the lines of a tensor that are fetched once in its run."""
    one, all_ = loop.iteration[tensor], loop.whole[tensor]
    touched = one.touched / all_.touched
    return Lines(lines.touched * touched, lines.written * (one.written / all_.written if all_.written else touched))


def _take(left: dict[str, Lines], touched: Mapping[str, Lines], ends: Collection[str]) -> dict[str, Lines]:
    """Take from the lines `left` to fetch those that are touched, by tensor.

    Of tensors that nothing touches later (`ends`) all are taken: lines may be counted in part (`footprint._union`).
    """
    found: dict[str, Lines] = {}
    for tensor, lines in touched.items() if left else ():
        if tensor in left:
            rest = left.pop(tensor)
            if tensor not in ends:
                taken = Lines(min(rest.touched, lines.touched), min(rest.written, lines.written))
                left[tensor], rest = rest + taken * -1, taken
            found[tensor] = rest
    return found


def _sum(a: Mapping[str, Lines], b: Mapping[str, Lines], times: float = 1) -> dict[str, Lines]:
    if not a and not b:
        return {}
    found = dict(a)
    for tensor, lines in b.items():
        more = lines if times == 1 else lines * times
        found[tensor] = found[tensor] + more if tensor in found else more
    return {tensor: lines for tensor, lines in found.items() if lines[0] or lines[1]}
