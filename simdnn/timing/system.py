"""Cores that share caches and memory, simulated with SimPy: tiles are the events, channels the queues.

Every core takes the next tile of a stage when it is free. A tile's data come in `chunks` steps: the core asks each
channel for its part of a step, up to `AHEAD` steps before it computes with it, and waits its turn there. A channel
serves one request at a time at its full bandwidth, in order of arrival, so nothing is ever sent faster than it can: its
queue is the time at which it will be through with all that was asked for. A stage begins when the one before is done.

Cores work on tiles alike, so after some rounds of tiles nothing new happens: the rounds in the middle are left out and
added at the rate of those simulated.

    >>> found = simulate(System(4, (Channel("DRAM", 10.0),)), [Stage(8, 100.0, {"DRAM": 50.0})])
    >>> found.cycles  # two rounds of tiles, each after the first half of its bytes came for four cores in turn
    217.5
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import simpy

AHEAD = 2  # steps of data that may lie ready: double buffering
ROUNDS = 3  # rounds of tiles that are simulated before the steady state, and as many in it
Process = Generator["simpy.Event", Any, None]
Queue = tuple[str, list[float], int, float]  # a channel, when each instance is through, which one, cycles of a step


@dataclass(frozen=True)
class Channel:
    """A path that cores share: `bytes_per_cycle` of one instance, which serves `users` cores (0: all of them)."""

    name: str
    bytes_per_cycle: float
    users: int = 0
    latency: float = 0.0  # cycles from a request's last byte sent to its use

    def instances(self, cores: int) -> int:
        return -(-cores // self.users) if self.users else 1


@dataclass(frozen=True)
class System:
    """Cores alike, and what they share; `barrier` cycles pass from a stage's end until all cores know of it."""

    cores: int
    channels: tuple[Channel, ...]
    barrier: float = 0.0


@dataclass(frozen=True)
class Stage:
    """Tiles alike: cycles of one on a core by itself, and the bytes that it moves over each channel."""

    tiles: int
    cycles: float
    bytes: Mapping[str, float] = field(default_factory=dict)
    chunks: int = 2
    name: str = "tile"


@dataclass(frozen=True)
class Span:
    """An activity of a core or a channel from one cycle to another: for the picture of a run."""

    place: str
    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Simulated:
    """The time of all stages, and how long each channel (all its instances) and the cores were busy."""

    cycles: float
    busy: Mapping[str, float]
    computing: float  # cycles summed over the cores
    waited: float  # cycles that requests stood in queues
    spans: tuple[Span, ...]


def simulate(system: System, stages: Sequence[Stage], spans: bool = False) -> Simulated:
    """Run all stages; `spans` keeps what every core and channel did (of the rounds that were simulated)."""
    total = Simulated(0.0, {c.name: 0.0 for c in system.channels}, 0.0, 0.0, ())
    for stage in stages:
        if spans:
            found = _stage(system, stage, spans)
        else:
            found = _without_spans(system, stage.tiles, stage.cycles, tuple(stage.bytes.items()), stage.chunks)
        late = tuple(Span(s.place, s.name, s.start + total.cycles, s.end + total.cycles) for s in found.spans)
        total = Simulated(
            total.cycles + found.cycles + system.barrier,
            {name: busy + found.busy[name] for name, busy in total.busy.items()},
            total.computing + found.computing,
            total.waited + found.waited,
            total.spans + late,
        )
    return total


def floor(system: System, stage: Stage) -> float:
    """Cycles that no schedule beats: the tiles of the busiest core, and each channel's bytes."""
    rounds = -(-stage.tiles // system.cores)
    bounds = [rounds * stage.cycles]
    for channel in system.channels:
        bytes_ = stage.bytes.get(channel.name, 0.0) * stage.tiles
        bounds.append(bytes_ / (channel.bytes_per_cycle * channel.instances(min(system.cores, stage.tiles))))
    return max(bounds)


@lru_cache(maxsize=64)
def _without_spans(
    system: System, tiles: int, cycles: float, moved: tuple[tuple[str, float], ...], chunks: int
) -> Simulated:
    """A stage by its figures, kept for kernels alike."""
    return _stage(system, Stage(tiles, cycles, dict(moved), chunks), False)


def _stage(system: System, stage: Stage, spans: bool) -> Simulated:
    rounds, rest = divmod(stage.tiles, system.cores)
    if rounds <= 2 * ROUNDS + 1:
        return _Simulation(system, stage, stage.tiles, spans).result()
    short = _Simulation(system, stage, ROUNDS * system.cores + rest, False).result()
    longer = _Simulation(system, stage, 2 * ROUNDS * system.cores + rest, spans).result()
    left = (rounds - 2 * ROUNDS) / ROUNDS

    def extended(a: float, b: float) -> float:
        return b + left * (b - a)

    return Simulated(
        max(extended(short.cycles, longer.cycles), floor(system, stage)),
        {name: extended(short.busy[name], busy) for name, busy in longer.busy.items()},
        extended(short.computing, longer.computing),
        extended(short.waited, longer.waited),
        longer.spans,
    )


class _Simulation:
    """One simulation of `tiles` tiles."""

    def __init__(self, system: System, stage: Stage, tiles: int, spans: bool) -> None:
        import simpy  # which one core alone does not need

        self.system, self.stage = system, stage
        self.environment = simpy.Environment()
        self.left = tiles
        self.keep = spans
        self.spans: list[Span] = []
        self.last: dict[str, int] = {}  # place -> its latest span
        self.busy = {c.name: 0.0 for c in system.channels}
        self.computing = self.waited = self.end = 0.0
        cores = min(system.cores, tiles)
        self.used = [c for c in system.channels if stage.bytes.get(c.name, 0.0) > 0]
        self.latency = max((c.latency for c in self.used), default=0.0)
        self.free = {c.name: [0.0] * c.instances(cores) for c in self.used}  # when a queue is through
        for core in range(cores):
            self.environment.process(self.core(core))

    def result(self) -> Simulated:
        self.environment.run()
        return Simulated(self.end, self.busy, self.computing, self.waited, tuple(self.spans))

    def core(self, core: int) -> Process:
        """One core: tile after tile, as long as there are any."""
        environment, stage = self.environment, self.stage
        step, place, timeout = stage.cycles / stage.chunks, f"core {core}", environment.timeout
        queues = [self.queue(core, channel) for channel in self.used]
        while self.left:
            self.left -= 1
            ends: list[float] = []  # of the computing in each step
            for number in range(stage.chunks):
                now = environment.now
                if number >= AHEAD and ends[number - AHEAD] > now:
                    yield timeout(ends[number - AHEAD] - now)
                    now = environment.now
                sent = self.sent(queues, now)
                if sent > now:
                    yield timeout(sent - now)
                    now = environment.now
                start = now + self.latency
                if ends and ends[-1] > start:
                    start = ends[-1]
                ends.append(start + step)
                if self.keep:
                    self.note(place, start, ends[-1], new=number == 0)
            self.computing += stage.cycles
            self.end = max(self.end, ends[-1])
            if ends[-1] > environment.now:
                yield timeout(ends[-1] - environment.now)

    def queue(self, core: int, channel: Channel) -> Queue:
        """The instance of a channel that a core asks."""
        service = self.stage.bytes[channel.name] / self.stage.chunks / channel.bytes_per_cycle
        return channel.name, self.free[channel.name], core // channel.users if channel.users else 0, service

    def sent(self, queues: Sequence[Queue], now: float) -> float:
        """When all channels have sent a step's bytes that are asked for `now`: those who asked before come first."""
        last = now
        for name, free, instance, service in queues:
            start = free[instance]
            if start > now:
                self.waited += start - now
            else:
                start = now
            self.busy[name] += service
            free[instance] = end = start + service
            if self.keep:
                self.note(f"{name} {instance}", start, end)
            if end > last:
                last = end
        return last

    def note(self, place: str, start: float, end: float, new: bool = False) -> None:
        """A span of a place, or the one before made longer where nothing is between and no `new` tile begins."""
        last = self.last.get(place)
        if not new and last is not None and start <= self.spans[last].end:
            self.spans[last] = Span(place, self.stage.name, self.spans[last].start, float(end))
            return
        self.last[place] = len(self.spans)
        self.spans.append(Span(place, self.stage.name, float(start), float(end)))
