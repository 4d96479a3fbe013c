"""The cost of a Program on a machine: cycles, what bounds them, its instructions and its traffic.

The core's time (`simdnn.timing.cpu.walk`, all data in the first cache) and the time of each memory level
(`simdnn.timing.memory`) are found apart and taken to overlap within a phase of the run (`simdnn.timing.phases`): the
slowest of them is the phase's time, a lower bound. On cores whose first cache cannot be filled and read at once (the
ECM model's assumption for Intel) the true time lies between it and the sum; where it was measured, a level's `exposed`
in the machine's file is the share that is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from isa_models.machines.cpu_record import Machine
from isa_models.machines.provenance import Confidence, weakest
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.late import frames, pd
from simdnn.program.records import Program
from simdnn.timing.causes import Work
from simdnn.timing.cpu.steps import STORED, Step, lower
from simdnn.timing.cpu.stream import CountedAs
from simdnn.timing.cpu.walk import NEAR, Piece, core_time, lower_bounds
from simdnn.timing.memory import KindOfCode, LevelTraffic, kind_of_code, transfers
from simdnn.timing.phases import overlap
from simdnn.timing.tile_rests import Gap

if TYPE_CHECKING:
    from simdnn.timing.cpu.threads import Shared


@dataclass(frozen=True)
class InstructionCost:
    """One instruction form of a program: executions, uops, ports of each uop, share of the work.

    A load is a uop; so is a store's address, where the machine gives it ports, and a store's data.
    `cycles_share` divides the cycles that each form would need by itself at its best throughput by their sum.
    """

    instruction: str
    form: str
    count: int
    uops: int
    ports: str
    cycles_share: float


@dataclass(frozen=True, eq=False)
class Cost(Alike, InNotebooks):
    """The cost of one run of a program, on one core or on several.

    `clock` says at which clock `cycles` make `seconds`. `bound` is "compute", "latency", "front-end", or the memory
    level that sets the time. `core_cycles` is the core's own time and `levels` the traffic: what a model of several
    cores sharing levels starts from. `executed` counts the program's own instructions as engines do, without the loop
    control among `forms`, which are found for who asks.
    """

    machine: str
    cycles: float
    seconds: float
    clock: str
    bound: str
    core_cycles: float
    pieces: tuple[Piece, ...]
    levels: tuple[LevelTraffic, ...]
    find_forms: Callable[[], tuple[InstructionCost, ...]]
    executed: Counter[str]
    confidence: Confidence
    work: Work
    gaps: tuple[Gap, ...] = ()  # in which no unit for tiles falls asleep, but for what a library does there

    def _summary(self) -> dict[str, Any]:
        names = ("machine", "cycles", "seconds", "clock", "bound", "confidence")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        where = f"{self.cycles:,.0f} cycles on {self.machine}, {self.bound}"
        return f"Cost({where}; .instructions, .traffic and .causes are frames)"

    def without_program(self, find_program: Callable[[], Program]) -> Cost:
        """The cost, which asks for its program where that is needed, and keeps none."""
        return replace(self, work=replace(self.work, find_program=find_program))

    def launched(self, cycles: float, between: float = 0.0, before_call: float = 0.0) -> Cost:
        """The cost with cycles of a library's own around its kernel; among them are those `between` two runs, and those
        before each call behind other work, in which units for tiles may fall asleep.
        """
        if not cycles:
            return self
        gaps = [gap.widened(between, before_call) for gap in self.gaps]
        cycles += sum([gap.all for gap in gaps if gap.late])
        awake = tuple([gap for gap in gaps if not gap.late])
        work = replace(self.work, launch_cycles=self.work.launch_cycles + cycles)
        seconds = self.seconds * (1 + cycles / self.cycles)
        return replace(self, cycles=self.cycles + cycles, seconds=seconds, work=work, gaps=awake)

    def streamed(self, seconds: float) -> Cost:
        """The cost where stores past the caches take so long at least."""
        if seconds <= self.seconds:
            return self
        return replace(self, cycles=self.cycles * seconds / self.seconds, seconds=seconds, bound="DRAM")

    @cached_property
    def forms(self) -> tuple[InstructionCost, ...]:
        """The program's instructions, loop control included."""
        return self.find_forms()

    @cached_property
    def causes(self) -> pd.DataFrame:
        """Frame: cause, cycles, share: what the instructions are for, and what is waited for (`timing.causes`)."""
        rows = [(cause, cycles, cycles / self.cycles) for cause, cycles in self.work.causes(self.cycles).items()]
        return frames.shown(pd.DataFrame(rows, columns=["cause", "cycles", "share"]))

    @cached_property
    def instructions(self) -> pd.DataFrame:
        """Frame: instruction, form, count, uops, ports, cycles_share; the largest share first."""
        rows = sorted(self.forms, key=lambda row: -row.cycles_share)
        return frames.shown(
            pd.DataFrame([vars(row) for row in rows], columns=list(InstructionCost.__dataclass_fields__))
        )

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """Frame: level, read_bytes, written_bytes, bytes_per_cycle over the whole time, share of the level's peak."""
        rows = [
            (level.level, level.read_bytes, level.written_bytes, level.bytes / self.cycles, level.cycles / self.cycles)
            for level in self.levels
        ]
        columns = ["level", "read_bytes", "written_bytes", "bytes_per_cycle", "share_of_peak"]
        return frames.shown(pd.DataFrame(rows, columns=columns))


def estimate_program(program: Program, machine: Machine, *, cold: Collection[str] = (), threads: int = 1) -> Cost:
    """The cost of a verified program. `cold` names tensors that start in DRAM, not where they fit.

    With `threads` above 1 the cores share L3 and DRAM (`simdnn.timing.cpu.threads`). Raises `UnknownTiming` where the
    machine lacks a row for one of its instructions.
    """
    if threads > 1:
        return _on_several(program, machine, cold, threads)
    core = core_time(program, machine)
    moved = transfers(program, machine, cold=cold)
    levels = moved.levels
    found, kind = overlap(machine, core, moved), moved.kind
    used = [level.confidence for level in levels if level.bytes]
    return Cost(
        machine=machine.name,
        cycles=found.cycles,
        seconds=found.cycles / (machine.frequency.ghz(*kind) * 1e9),
        clock=_clock_text(machine, kind),
        bound=found.bound,
        core_cycles=core.cycles,
        pieces=core.pieces,
        levels=levels,
        find_forms=partial(_forms, machine, core.executed),
        executed=_as_engines_count(core.executed),
        confidence=weakest([core.confidence, _clock(machine, kind), *used]),
        work=Work(program.itself, machine, (1.0,) * len(program.body), core.cycles),
        gaps=found.gaps,
    )


def _on_several(program: Program, machine: Machine, cold: Collection[str], threads: int) -> Cost:
    """The cost on several cores: a stage after the other, each as long as the simulated system takes."""
    from simdnn.timing.cpu.threads import parallel_extent, share_out  # which brings the simulation of several cores

    shared = share_out(program, machine, threads, cold)
    cycles, kind = shared.simulated.cycles, kind_of_code(program)
    executed: Counter[CountedAs] = Counter()
    for core in shared.cores:
        executed.update(core.executed)
    used = [level.confidence for level in shared.levels if level.bytes]
    last = machine.caches[-1].name
    keys = "dram.gb_s_socket", f"caches.{last}.latency_cycles", *(f"caches.{c.name}.shared_by" for c in machine.caches)
    levels = tuple(replace(level, cycles=shared.working(level)) for level in shared.levels)
    shares = tuple(1 / min(threads, parallel_extent(statement)) for statement in program.body)
    own = sum(core.cycles * share for core, share in zip(shared.cores, shares, strict=True))
    return Cost(
        machine=machine.name,
        cycles=cycles,
        seconds=cycles / (machine.frequency.ghz(*kind) * 1e9),
        clock=_clock_text(machine, kind),
        bound=_bound_of(shared, levels),
        core_cycles=sum(stage.cycles for stage in shared.stages),
        pieces=tuple(piece for core in shared.cores for piece in core.pieces),
        levels=levels,
        find_forms=partial(_forms, machine, executed),
        executed=_as_engines_count(executed),
        confidence=weakest(
            [*(core.confidence for core in shared.cores), _clock(machine, kind), machine.confidence_of(*keys), *used]
        ),
        work=Work(program.itself, machine, shares, own),
    )


def _bound_of(shared: Shared, levels: Sequence[LevelTraffic]) -> str:
    """The level that works nearly all the time, else what bounds a core in the stage with the longest tiles."""
    busiest = max(levels, key=lambda level: level.cycles)
    if busiest.cycles >= NEAR * shared.simulated.cycles:
        return busiest.level
    longest = max(range(len(shared.stages)), key=lambda i: shared.stages[i].cycles)
    return shared.bounds[longest]


def _clock(machine: Machine, kind: KindOfCode) -> Confidence:
    """The standing of the clock that `Frequency.ghz` gives to a kind of code."""
    return machine.confidence_of(f"frequency.{machine.frequency.figure(*kind)}")


def _clock_text(machine: Machine, kind: KindOfCode) -> str:
    return (
        f"{machine.frequency.ghz(*kind):g} GHz, {machine.name}'s frequency.{machine.frequency.figure(*kind)} ({kind})"
    )


def _as_engines_count(executed: Counter[CountedAs]) -> Counter[str]:
    found: Counter[str] = Counter()
    for key, times in executed.items():
        if key.counted:
            found[key.counted] += times
    return found


@lru_cache(maxsize=1 << 14)
def _form(machine: Machine, key: CountedAs) -> tuple[tuple[str, str, str], int, float]:
    """The name of an instruction form with its ports, its uops, and the cycles of one by itself at its best rate."""
    sources = tuple(f"source{i}" for i in range(key.sources))
    steps = [Step(key.mnemonic, key.form, sources, ("result",), rows=key.rows)]
    if key.mnemonic == "dec":
        steps.append(Step("jnz", "rel"))
    (op, *_) = ops = lower(machine, steps)
    ports = ["/".join(machine.core.ports[p] for p in uop) for uop in op.uops]
    ports += ["/".join(machine.core.load_ports)] if op.load is not None else []
    if op.store is not None:
        stored = machine.core.store_address_ports, () if op.way == STORED else machine.core.store_data_ports
        ports += ["/".join(p) for p in stored if p]
    name = key.counted or op.row.mnemonic, key.form, " + ".join(ports)
    return name, len(ports), max(lower_bounds(machine, ops).values())


def _forms(machine: Machine, executed: Counter[CountedAs]) -> tuple[InstructionCost, ...]:
    """Each instruction form's executions, uops, ports and share."""
    rows: dict[tuple[str, str, str], tuple[float, ...]] = {}
    for key, count in executed.items():
        if key.mnemonic == "jnz":
            continue  # fused with the `dec` before it
        name, uops, alone = _form(machine, key)
        earlier = rows.get(name, (0, 0, 0.0))  # tiles of other heights
        rows[name] = tuple(x + y for x, y in zip(earlier, (count, uops * count, alone * count), strict=True))
    total = sum(work for _, _, work in rows.values())
    return tuple(
        InstructionCost(name, form, int(count), int(uops), ports, work / total)
        for (name, form, ports), (count, uops, work) in rows.items()
    )
