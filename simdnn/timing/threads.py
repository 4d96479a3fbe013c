"""A Program on several CPU cores: its parallel loops shared out as the compiled engine does, in the system model.

Each top-level statement is a stage; the iterations of the parallel loops that it begins with are cut into as many even
runs as there are threads, and a stage begins when all of the one before are done. An iteration's cycles are those of
the core and its own caches; L3 and DRAM are channels. A core's share of the last cache is what decides on DRAM traffic
where the whole problem does not stay in it, which counts data that threads use together once for each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from isa_models.machine import CacheLevel, Machine
from simdnn.program import Loop, Program, Statement
from simdnn.timing.footprint import parts
from simdnn.timing.memory import LevelTraffic, fits, traffic, widest
from simdnn.timing.system import Channel, Simulated, Stage, System, simulate
from simdnn.timing.walk import CoreTime, core_time

CHUNKS = 4  # steps in which the data of a tile come


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


def share_out(
    program: Program, machine: Machine, threads: int, cold: Collection[str] = (), spans: bool = False
) -> Shared:
    """Time of the program on `threads` cores that share L3 and DRAM."""
    ghz = machine.frequency.ghz(widest(program))
    private = sum(level.shared_by == 1 for level in machine.caches)
    sharing = machine.caches[private:]
    channels = [Channel(c.name, c.load_bytes_per_cycle * min(c.shared_by, threads), c.shared_by) for c in sharing]
    channels.append(Channel("DRAM", machine.dram.gb_s_socket / ghz))
    warm = _stays(program, machine, threads)
    narrow = machine if warm else replace(machine, caches=(*machine.caches[:private], *_shares(sharing, threads)))
    stages, times, levels, bounds = [], [], [], []
    for statement in program.body:
        alone = replace(program, body=(statement,))
        core, moved = core_time(alone, machine), traffic(alone, narrow, cold=cold)
        tiles = parallel_extent(statement)
        own, bound = overlap(core, moved)
        bytes_ = {level.level: level.bytes / tiles for level in moved[private:]}
        run = -(-tiles // min(threads, tiles))  # a thread's iterations, one after another
        stages.append(Stage(-(-tiles // run), own / tiles * run, {n: b * run for n, b in bytes_.items()}, CHUNKS))
        times.append(core)
        levels.append(moved)
        bounds.append(bound)
    system = System(threads, tuple(channels))
    found = simulate(system, stages, spans)
    total = tuple(_total(rows) for rows in zip(*levels, strict=True))
    return Shared(found, system, tuple(times), total, tuple(stages), tuple(bounds))


def overlap(core: CoreTime, levels: Sequence[LevelTraffic]) -> tuple[float, str]:
    """Time and what bounds it: the core and all levels at work at once, but for what the levels leave exposed."""
    slowest = max(levels, key=lambda level: level.cycles)
    own = core.cycles + sum(level.exposed * level.cycles for level in levels)
    return max(own, slowest.cycles), core.bound if core.cycles >= slowest.cycles else slowest.level


def _stays(program: Program, machine: Machine, threads: int) -> bool:
    """Whether all that the program touches stays in the last caches of the cores at work."""
    last = machine.caches[-1]
    instances = -(-threads // last.shared_by)
    return fits(parts(program, last.line_bytes), last.size_bytes * instances)


def _shares(levels: tuple[CacheLevel, ...], threads: int) -> tuple[CacheLevel, ...]:
    """What each of the threads has of the shared caches."""
    return tuple(replace(c, size_bytes=c.size_bytes // min(c.shared_by, threads)) for c in levels)


def _total(rows: tuple[LevelTraffic, ...]) -> LevelTraffic:
    return replace(
        rows[0],
        read_bytes=sum(r.read_bytes for r in rows),
        written_bytes=sum(r.written_bytes for r in rows),
        cycles=sum(r.cycles for r in rows),
    )
