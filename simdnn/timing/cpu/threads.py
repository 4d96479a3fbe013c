"""A Program on several CPU cores: its parallel loops shared out as the compiled engine does, in the system model.

Each top-level statement is a stage; the iterations of the parallel loops that it begins with are cut into as many even
runs as there are threads, and a stage begins when all of the one before have met at a barrier. A run's cycles are those
of the core and its own caches, which see the data of that run alone; L3 and DRAM are channels. A core's share of the
last cache is what decides on DRAM traffic where the whole problem does not stay in it, which counts data that threads
use together once for each.

Each thread has a core to itself: two threads of one core (SMT) would share its ports and caches, and are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from isa_models.machines.cpu_record import CacheLevel, Machine
from simdnn.program.records import Loop, Program, Statement
from simdnn.timing.cpu.walk import CoreTime, core_time
from simdnn.timing.footprint import parts
from simdnn.timing.memory import LevelTraffic, fits, kind_of_code, transfers
from simdnn.timing.phases import overlap
from simdnn.timing.system import Channel, Simulated, Stage, System, simulate

#: of the last cache's latency: what a line costs that a core wrote and another reads, the way back for the next run
#: included. Measured on an Emerald Rapids: 18 cycles of 140 where lines are thousands, 45 where they are hundreds.
HANDOVER = 1 / 8
CHUNKS = 32  # steps in which the data of a thread's run come; only the first is waited for without work


@dataclass(frozen=True)
class Shared:
    """The stages of a program on a number of cores, simulated, with the traffic of all of them."""

    simulated: Simulated
    system: System
    cores: tuple[CoreTime, ...]
    levels: tuple[LevelTraffic, ...]
    stages: tuple[Stage, ...]
    bounds: tuple[str, ...]  # what sets the time of a stage's tiles on a core

    def working(self, level: LevelTraffic) -> float:
        """Cycles that a level works at its peak, the mean of its instances."""
        for channel in self.system.channels:
            if channel.name == level.level:
                return self.simulated.busy[channel.name] / channel.instances(self.system.cores)
        return level.cycles / self.system.cores


def parallel_extent(statement: Statement) -> int:
    """Iterations of the nest of parallel loops that a statement begins with."""
    extent = 1
    while isinstance(statement, Loop) and statement.parallel:
        extent *= statement.extent
        if len(statement.body) != 1:
            break
        statement = statement.body[0]
    return extent


def at_work(program: Program, threads: int) -> int:
    """The most threads that have any work in one of the program's stages: those beyond its parallel loops have none."""
    return max((_Run.of(statement, threads).threads for statement in program.body), default=1)


def share_out(
    program: Program, machine: Machine, threads: int, cold: Collection[str] = (), spans: bool = False
) -> Shared:
    """Time of the program on `threads` cores that share L3 and DRAM."""
    ghz = machine.frequency.ghz(*kind_of_code(program))
    private = sum(level.shared_by == 1 for level in machine.caches)
    sharing = machine.caches[private:]
    channels = [_channel(c.beside(ghz), threads) for c in sharing]
    channels.append(Channel("DRAM", machine.dram.gb_s_socket / ghz))
    warm = _stays(program, machine, threads)
    narrow = machine if warm else replace(machine, caches=(*machine.caches[:private], *_shares(sharing, threads)))
    runs = [_Run.of(statement, threads) for statement in program.body]
    mine = replace(program, body=tuple(run.statement for run in runs))
    handed = _handed_over(mine, runs, machine.caches[max(0, private - 1)])
    line_cycles = HANDOVER * machine.caches[-1].latency_cycles
    stages, times, levels, bounds = [], [], [], []
    for statement, run, lines in zip(program.body, runs, handed, strict=True):
        core = core_time(replace(program, body=(statement,)), machine)
        moved = transfers(replace(mine, body=(run.statement,)), narrow, cold=cold, within=mine)
        counted = replace(core, cycles=core.cycles * run.counted / run.all)
        own = overlap(machine, counted, moved, share=run.iterations / run.counted)
        tile = own.cycles + lines * line_cycles
        bytes_ = {level.level: level.bytes * run.iterations / run.counted for level in moved.levels[private:]}
        stages.append(Stage(run.threads, tile, bytes_, CHUNKS))
        times.append(core)
        levels.append([level * (run.all / run.counted) for level in moved.levels])
        bounds.append(own.bound)
    system = System(threads, tuple(channels), barrier_cycles(machine, threads))
    found = simulate(system, stages, spans)
    total = tuple(_total(rows) for rows in zip(*levels, strict=True))
    return Shared(found, system, tuple(times), total, tuple(stages), tuple(bounds))


def _channel(cache: CacheLevel, threads: int) -> Channel:
    """A shared cache, as fast as its cores at work together."""
    return Channel(cache.name, cache.load_bytes_per_cycle * min(cache.shared_by, threads), cache.shared_by)


@dataclass(frozen=True)
class _Run:
    """The iterations of a stage's parallel loops that the thread with the most of them runs one after another."""

    statement: Statement  # with `counted` iterations: no fewer, and whole turns of the loops inside the one that is cut
    counted: int
    iterations: int
    all: int
    threads: int  # that have any

    @classmethod
    def of(cls, statement: Statement, threads: int) -> _Run:
        extent = parallel_extent(statement)
        run = -(-extent // min(threads, extent))
        cut = _cut(statement, run)
        return cls(cut, parallel_extent(cut), run, extent, -(-extent // run))


def _cut(statement: Statement, iterations: int) -> Statement:
    """The nest of parallel loops that a statement begins with, with at least a number of iterations."""
    if not isinstance(statement, Loop) or not statement.parallel:
        return statement
    if len(statement.body) != 1:
        return replace(statement, extent=iterations)
    inside = parallel_extent(statement.body[0])
    if iterations >= inside:
        return replace(statement, extent=-(-iterations // inside))
    return replace(statement, extent=1, body=(_cut(statement.body[0], iterations),))


def _handed_over(program: Program, runs: Sequence[_Run], own_cache: CacheLevel) -> list[float]:
    """Lines in each stage of a thread's run that another thread wrote in a stage before: those that it did not itself.

    Where fewer threads wrote than read, some reader wrote none of them. None where a core's own cache does not hold the
    run: then the lines come from behind it anyway, and are counted there.
    """
    line_bytes = own_cache.line_bytes
    if not fits(parts(program, line_bytes), own_cache.size_bytes):
        return [0.0] * len(runs)
    found = []
    written: dict[str, tuple[float, int]] = {}  # by a thread, and by how many threads
    for statement, run in zip(program.body, runs, strict=True):
        lines = parts(replace(program, body=(statement,)), line_bytes).iteration
        foreign = 0.0
        for tensor, (own, threads) in written.items():
            if tensor in lines:
                foreign += max(0, lines[tensor].touched - (own if threads >= run.threads else 0))
        found.append(foreign if run.threads > 1 else 0.0)
        shared = {t.name for t in program.tensors if t.kind != "private"}
        written |= {t: (n.written, run.threads) for t, n in lines.items() if n.written and t in shared}
    return found


def barrier_cycles(machine: Machine, threads: int) -> float:
    """Cycles in which threads meet, in pairs, pairs of pairs and so on: a line goes to the other core and back.

    An estimate from the latency of the cache through which cores talk.
    """
    last = machine.caches[-1]
    return 2 * last.latency_cycles * math.ceil(math.log2(threads))


def _stays(program: Program, machine: Machine, threads: int) -> bool:
    """Whether all that the program touches stays in the last caches of the cores at work."""
    last = machine.caches[-1]
    instances = -(-threads // last.shared_by)
    return fits(parts(program, last.line_bytes), last.size_bytes * instances)


def _shares(levels: tuple[CacheLevel, ...], threads: int) -> tuple[CacheLevel, ...]:
    """The part of the shared caches that each of the threads has."""
    return tuple(replace(c, size_bytes=c.size_bytes // min(c.shared_by, threads)) for c in levels)


def _total(rows: tuple[LevelTraffic, ...]) -> LevelTraffic:
    return replace(
        rows[0],
        read_bytes=sum(r.read_bytes for r in rows),
        written_bytes=sum(r.written_bytes for r in rows),
        cycles=sum(r.cycles for r in rows),
    )
