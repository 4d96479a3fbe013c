"""Cores that share caches and memory, simulated with SimPy: tiles are the events, channels the queues.

Every core takes the next tile of a stage when it is free. A tile's data come in `chunks` steps: a loader asks each
channel for its part of a step, up to `AHEAD` steps before the core computes with it, and waits its turn there. A
channel serves one request at a time at its full bandwidth, in order of arrival (queue), so nothing is ever sent faster
than it can. A stage begins when the one before is done.

Cores work on tiles alike, so after some rounds of tiles nothing new happens: the rounds in the middle are left out and
added at the rate of those simulated.

    >>> found = simulate(System(4, (Channel("DRAM", 10.0),)), [Stage(8, 100.0, {"DRAM": 50.0})])
    >>> found.cycles  # two rounds of tiles, each after the first half of its bytes came for four cores in turn
    217.5
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

AHEAD = 2  # steps of data that may lie ready: double buffering
ROUNDS = 3  # rounds of tiles that are simulated before the steady state, and as many in it
Process = Generator[simpy.Event, Any, None]


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
    """Cores alike, and what they share."""

    cores: int
    channels: tuple[Channel, ...]


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
    """What a core or a channel did from one cycle to another: for the picture of a run."""

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
        found = _stage(system, stage, spans)
        late = tuple(Span(s.place, s.name, s.start + total.cycles, s.end + total.cycles) for s in found.spans)
        total = Simulated(
            total.cycles + found.cycles,
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


def _stage(system: System, stage: Stage, spans: bool) -> Simulated:
    rounds, rest = divmod(stage.tiles, system.cores)
    if rounds <= 2 * ROUNDS + 1:
        return _Run(system, stage, stage.tiles, spans).result()
    short = _Run(system, stage, ROUNDS * system.cores + rest, False).result()
    longer = _Run(system, stage, 2 * ROUNDS * system.cores + rest, spans).result()
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


class _Run:
    """One simulation of `tiles` tiles."""

    def __init__(self, system: System, stage: Stage, tiles: int, spans: bool) -> None:
        self.system, self.stage = system, stage
        self.environment = simpy.Environment()
        self.left = tiles
        self.keep = spans
        self.spans: list[Span] = []
        self.busy = {c.name: 0.0 for c in system.channels}
        self.computing = self.waited = 0.0
        cores = min(system.cores, tiles)
        self.used = [c for c in system.channels if stage.bytes.get(c.name, 0.0) > 0]
        self.resources = {
            c.name: [simpy.Resource(self.environment) for _ in range(c.instances(cores))] for c in self.used
        }
        for core in range(cores):
            self.environment.process(self.core(core))

    def result(self) -> Simulated:
        self.environment.run()
        cycles = float(self.environment.now)
        return Simulated(cycles, self.busy, self.computing, self.waited, tuple(self.spans))

    def core(self, core: int) -> Process:
        """One core: tile after tile, as long as there are any."""
        while self.left:
            self.left -= 1
            ready, room = simpy.Store(self.environment), simpy.Container(self.environment, AHEAD, AHEAD)
            self.environment.process(self.loader(core, ready, room))
            step = self.stage.cycles / self.stage.chunks
            for _ in range(self.stage.chunks):
                yield ready.get()
                start = self.environment.now
                yield self.environment.timeout(step)
                yield room.put(1)
                self.computing += step
                self.note(f"core {core}", self.stage.name, start)

    def loader(self, core: int, ready: simpy.Store, room: simpy.Container) -> Process:
        """The data of a tile, step by step as there is room; the channels work on a step at the same time."""
        latency = max((c.latency for c in self.used), default=0.0)
        for _ in range(self.stage.chunks):
            yield room.get(1)
            if len(self.used) == 1:
                yield from self.transfer(core, self.used[0])
            elif self.used:
                yield self.environment.all_of([self.environment.process(self.transfer(core, c)) for c in self.used])
            if latency:
                self.environment.process(self.arrival(latency, ready))
            else:
                yield ready.put(None)

    def arrival(self, latency: float, ready: simpy.Store) -> Process:
        yield self.environment.timeout(latency)
        yield ready.put(None)

    def transfer(self, core: int, channel: Channel) -> Process:
        instance = core // channel.users if channel.users else 0
        resource = self.resources[channel.name][instance]
        asked = self.environment.now
        with resource.request() as turn:
            yield turn
            start = self.environment.now
            self.waited += start - asked
            service = self.stage.bytes[channel.name] / self.stage.chunks / channel.bytes_per_cycle
            yield self.environment.timeout(service)
            self.busy[channel.name] += service
            self.note(f"{channel.name} {instance}", self.stage.name, start)

    def note(self, place: str, name: str, start: float) -> None:
        if self.keep:
            self.spans.append(Span(place, name, float(start), float(self.environment.now)))
