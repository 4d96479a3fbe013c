"""The cost of a Program on a GPU: engines, caches and memory together.

A top-level statement is a nest of parallel loops, workgroups around their threads, around what a thread runs. A
workgroup has a Xe-core to itself. Its cycles there are those of its busiest engine (`engine`), or of its bytes from L2
where these take longer. Workgroups are the tiles of `system`, whose channels are L2 and DRAM of a stack.

Bytes: threads of a workgroup go through their loops together, so each line comes once from L2 for all of them, and for
all workgroups of a cluster, neighbours along one axis, where the platform has such. As many
workgroups as there are cores work at a time, near a square of the grid, and so do they for DRAM; what they fetch stays
for the next ones of their row of the grid if it fits L2, and the whole problem stays if that fits. A tensor may be a
view whose elements are `copies` of fewer bytes of memory (a convolution's source by output pixels and taps): L2 hands
out the view, DRAM the memory behind. Memory that is read alone may be faster than `sustained_gb_s`. A kernel
begins `launch_us` after the one before, where a machine names it, and one that stages operands works `staged_us` later.
Not modelled: cores that reach for another stack's memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from isa_models import GpuMachine, Unimplemented
from isa_models.machines.provenance import Confidence, weakest
from isa_models.records.frozen import Frozen
from simdnn.program.records import Loop, Memory, Program, Statement, walk
from simdnn.timing.bundles import Lines
from simdnn.timing.causes import Work
from simdnn.timing.estimate import Cost, InstructionCost
from simdnn.timing.footprint import Region, distinct_lines, parts
from simdnn.timing.gpu import engine
from simdnn.timing.memory import LevelTraffic
from simdnn.timing.system import Channel, Simulated, Stage, System, simulate

CHUNKS = 6  # parts of a tile, between which others get at the channels that it waits for
NEAR = 0.9  # what takes at least this share of the time is what bounds it
Copies = Mapping[str, float]  # by tensor
NO_COPIES: Copies = Frozen({})


@dataclass(frozen=True)
class Nest:
    """A stage: extents of the parallel loops by variable, and what a thread runs."""

    groups: Mapping[str, int]
    threads: Mapping[str, int]
    body: tuple[Statement, ...]
    resident: int = 1  # workgroups that a core has room for at once
    late: float = 0.0  # how long the last workgroups work alone, in the time of one
    live: float = 1.0  # share of its rows that are not zeros that fill up a tile
    bare: tuple[int, ...] = ()  # bytes that a workgroup moves while it has nothing else to do, each time that it begins

    @property
    def group_count(self) -> int:
        return _product(self.groups)

    @property
    def thread_count(self) -> int:
        return _product(self.threads)


def _product(extents: Mapping[str, int]) -> int:
    return prod(extents.values())


def nest_of(statement: Statement) -> Nest:
    """A stage's loops; `Unimplemented` where they are not workgroups around threads."""
    groups: dict[str, int] = {}
    threads: dict[str, int] = {}
    resident, late, live = 1, 0.0, 1.0
    bare: tuple[int, ...] = ()
    body: tuple[Statement, ...] = (statement,)
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].parallel:
        loop = body[0]
        if threads and not loop.threads:
            raise Unimplemented(f"workgroups (loop {loop.var!r}) within threads; what works: threads within workgroups")
        (threads if loop.threads else groups)[loop.var] = loop.extent
        resident, late, live = max(resident, loop.resident), max(late, loop.late), min(live, loop.live)
        bare = max(bare, loop.bare)
        body = loop.body
    return Nest(groups, threads, body, resident, late, live, bare)


@dataclass(frozen=True)
class StageCost:
    """One stage: a workgroup's cycles on an engine, bytes between the levels of all workgroups.

    A tile of `stage` is as many workgroups as a core has at once; `rest`: those behind the last full round of tiles;
    `tail`: the time in which the last ones of unequal length work alone.
    """

    nest: Nest
    engine: engine.EngineTime
    l1: tuple[int, int]  # bytes read, written
    l2: tuple[int, int]
    dram: tuple[int, int]
    stage: Stage
    bound: str
    rest: Stage | None = None
    tail: Stage | None = None
    together: int = 1  # workgroups of a tile of `stage`, whose time `engine` has

    @property
    def rounds(self) -> tuple[Stage, ...]:
        """The parts of the stage, one after the other."""
        return tuple(part for part in (self.stage, self.rest, self.tail) if part)


@dataclass(frozen=True)
class GpuTime:
    """All stages, simulated."""

    stages: tuple[StageCost, ...]
    simulated: Simulated
    system: System
    ghz: float  # of all stages

    def launch(self, machine: GpuMachine) -> float:
        """Cycles between kernels, and until those that stage operands are at work."""
        kernels = len(self.stages) - sum(_goes_on(*pair) for pair in itertools.pairwise(self.stages))
        staged = sum(_staged_iterations(stage.nest.body) > 0 for stage in self.stages)
        return (machine.launch_us * kernels + machine.staged_us * staged) * 1e3 * self.ghz


def _goes_on(before: StageCost, stage: StageCost) -> bool:
    """Whether workgroups go on with what they made in the stage before: one kernel, with a barrier between."""
    operations, made = ([op for op, _ in walk(one.nest.body)] for one in (stage, before))
    written = {op.dst.tensor for op in made if isinstance(op.dst, Memory)}
    read = {op.memory.tensor for op in operations if op.memory is not None and op.memory is not op.dst}
    return stage.nest.groups == before.nest.groups and not written.isdisjoint(read)


def gpu_time(
    program: Program, machine: GpuMachine, cold: bool = False, spans: bool = False, copies: Copies = NO_COPIES
) -> GpuTime:
    """The stages of a program and their simulation on the cores of each stack. `cold`: nothing is cached before."""
    tree = parts(program, machine.l2.line_bytes)
    stays = _bytes(tree.iteration, machine, copies) <= machine.l2.size_bytes * machine.stacks and not cold
    stages = tuple(_stage(program, statement, machine, None if stays else copies) for statement in program.body)
    found = _at(machine.ghz, stages, machine, spans)
    slower = machine.clock_under(_load(found, machine)) if machine.full_load_ghz else found.ghz
    return found if slower == found.ghz else _at(slower, stages, machine, spans)


def _at(ghz: float, stages: tuple[StageCost, ...], machine: GpuMachine, spans: bool) -> GpuTime:
    """The stages simulated at a clock, which memory does not know."""
    channels = (
        Channel("L2", machine.l2.bytes_per_cycle * machine.xe_cores, latency=machine.latency.l2),
        Channel("DRAM", machine.sustained_gb_s / ghz, latency=machine.latency.dram),
    )
    system = System(machine.xe_cores, channels)
    return GpuTime(stages, simulate(system, [part for s in stages for part in s.rounds], spans), system, ghz)


def _load(time: GpuTime, machine: GpuMachine) -> dict[str, float]:
    """By operand type, the share of all that the matrix pipes could do in the time. What CUDA cores do beside products
    is counted as the products of f16 that take as much energy. What fills up a tile takes none.
    """
    work: dict[str, float] = {}
    for stage in time.stages:
        issues = [(engine.issue_of(op, machine), times) for op, times in walk(stage.nest.body)]
        kinds = {issue.kind for issue, _ in issues if issue.kind}
        for kind in kinds:  # one, in kernels here
            tiles = stage.nest.group_count / stage.together * stage.nest.live
            work[kind] = work.get(kind, 0.0) + stage.engine.busy[engine.SYSTOLIC] * tiles / len(kinds)
        if kinds and machine.lane_ops:
            threads = stage.nest.thread_count * stage.nest.group_count / machine.engines_per_core * stage.nest.live
            lanes = sum(issue.slots * times for issue, times in issues) * threads * machine.platform.warp
            work["f16"] = work.get("f16", 0.0) + lanes * machine.lane_ops / machine.systolic_ops["f16"]
    cores = machine.xe_cores * machine.stacks
    return {kind: cycles / cores / (time.simulated.cycles + time.launch(machine)) for kind, cycles in work.items()}


def _bytes(lines: Mapping[str, Lines], machine: GpuMachine, copies: Copies) -> float:
    return sum(found.touched / copies.get(name, 1) for name, found in lines.items()) * machine.l2.line_bytes


def _stage(program: Program, statement: Statement, machine: GpuMachine, copies: Copies | None) -> StageCost:
    """The cost of one stage. `copies` None: what it needs stays in L2."""
    nest = nest_of(statement)
    part = parts(replace(program, body=(statement,)), machine.l2.line_bytes)
    per_engine = -(-nest.thread_count // machine.engines_per_core)
    shared, left = _shared_out(nest, machine)
    alone = _lines(part, dict.fromkeys(nest.groups, 1), machine)
    group = _of_a_cluster(part, nest, machine, alone)
    copied = alone[0] / nest.thread_count / max(1, _staged_iterations(nest.body))
    apart = nest.resident > 1 or any(isinstance(s, Loop) and s.apart for s in nest.body)
    time = engine.engine_time(nest.body, machine, per_engine * shared, copied, apart)
    reads = writes = 0
    for op, times in walk(nest.body):
        if op.memory is not None:
            size = op.memory.bits // 8 * times * nest.thread_count * nest.group_count // engine.readers(op)
            reads, writes = (reads, writes + size) if op.memory is op.dst else (reads + size, writes)
    l2 = tuple(side * nest.group_count for side in group)
    dram = (0, 0) if copies is None else _dram(part, nest, machine, copies)
    tiles = -(-(nest.group_count - left) // shared // machine.stacks)
    from_l2 = sum(group) / machine.l2.bytes_per_cycle
    cycles = max(time.cycles, from_l2 * shared)
    as_a_triad = machine.sustained_gb_s / machine.stream_gb_s(*dram)  # the channel's rate is that of its bytes
    groups = -(-nest.group_count // machine.stacks)
    bytes_ = {"L2": float(sum(group)), "DRAM": sum(dram) * as_a_triad / machine.stacks / groups}
    bound = "L2" if from_l2 * shared >= NEAR * cycles else _bound(time)
    chunks = max(1, min(CHUNKS, _iterations(nest.body)))
    name = _stage_name(program, statement)
    stage = Stage(
        tiles,
        cycles + _bare(nest, machine, shared),
        {level: size * shared for level, size in bytes_.items()},
        chunks,
        name,
    )
    rest = None
    if left:  # fewer on each core, or one
        alike = -(-left // (machine.xe_cores * machine.stacks))
        behind = engine.engine_time(nest.body, machine, per_engine * alike, copied, apart=True).cycles
        sizes = {level: size * alike for level, size in bytes_.items()}
        behind = max(behind, from_l2 * alike) + _bare(nest, machine, alike)
        rest = Stage(-(-left // alike // machine.stacks), behind, sizes, chunks, name)
    tail = Stage(1, cycles * nest.late, name=name) if nest.late else None
    return StageCost(nest, time, (reads, writes), (l2[0], l2[1]), dram, stage, bound, rest, tail, shared)


def _shared_out(nest: Nest, machine: GpuMachine) -> tuple[int, int]:
    """The workgroups that a core works on at once, and those left behind the last full round of them."""
    cores = machine.xe_cores * machine.stacks
    if nest.resident == 1 or nest.group_count <= cores * nest.resident:
        return min(nest.resident, -(-nest.group_count // cores)), 0
    return nest.resident, nest.group_count % (cores * nest.resident)


def _bare(nest: Nest, machine: GpuMachine, together: int) -> float:
    """Cycles in which workgroups that begin together wait for their first data, and for their results to be stored:
    these bytes at a core's share of L2, the way to memory less that to L2, which the engine waits for, and L2's for
    results.
    """
    return sum(machine.latency.dram + together * size / machine.l2.bytes_per_cycle for size in nest.bare)


def _of_a_cluster(part: Region, nest: Nest, machine: GpuMachine, alone: tuple[int, int]) -> tuple[int, int]:
    """A workgroup's bytes from L2 (read, written): its share of a cluster's, to which L2 hands them out once."""
    found, size = [alone], machine.platform.cluster
    for name, extent in nest.groups.items():
        if 1 < size <= extent:
            read, written = _lines(part, {**dict.fromkeys(nest.groups, 1), name: size}, machine)
            found.append((read // size, written // size))
    return min(found, key=sum)


def _stage_name(program: Program, statement: Statement) -> str:
    """The kernel's name for the last stage; for one before, the tensors that it writes."""
    if statement is program.body[-1]:
        return program.name.split()[0]
    written = {op.dst.tensor for op, _ in walk((statement,)) if isinstance(op.dst, Memory)}
    return f"to {', '.join(sorted(written))}"


def _iterations(body: Sequence[Statement]) -> int:
    """How often the longest nest of loops runs its innermost body."""
    return max((s.extent * _iterations(s.body) for s in body if isinstance(s, Loop)), default=1)


def _staged_iterations(body: Sequence[Statement]) -> int:
    """How often the bodies of staged loops are run."""
    loops = [s for s in body if isinstance(s, Loop)]
    return sum(s.extent * (1 if s.staged else _staged_iterations(s.body)) for s in loops)


def _bound(time: engine.EngineTime) -> str:
    """The pipe that is taken nearly all the time, else latency."""
    pipe = max(time.busy, key=lambda name: time.busy[name])
    if time.busy[pipe] < NEAR * time.cycles:
        return "latency"
    return "L1" if pipe == engine.SEND else "compute"


def _lines(
    part: Region, extents: Mapping[str, int], machine: GpuMachine, copies: Copies = NO_COPIES
) -> tuple[int, int]:
    """Bytes of distinct lines (read, written) with some loops' extents replaced."""
    found = [
        (access, tuple((var, extents.get(var, extent)) for var, extent in loops))
        for access, loops in part.accesses_below()
    ]
    lines = distinct_lines(found, machine.l2.line_bytes)
    written = int(sum(line.written for line in lines.values())) * machine.l2.line_bytes
    return int(_bytes(lines, machine, copies)) - written, written


def _dram(part: Region, nest: Nest, machine: GpuMachine, copies: Copies) -> tuple[int, int]:
    """Bytes (read, written) between L2 and memory: wave after wave of workgroups, in the order that fetches least."""
    exact = _lines(part, {}, machine, copies)
    reads = [_read_in_waves(part, nest, shape, machine, copies) for shape in _waves(nest, machine)]
    return max(exact[0], min(reads)), exact[1]  # more: the last ones of rows and columns may be part empty


def _read_in_waves(part: Region, nest: Nest, shape: dict[str, int], machine: GpuMachine, copies: Copies) -> int:
    """Bytes read from memory where as many workgroups along each loop work together."""
    wave = _lines(part, shape, machine, copies)
    if sum(wave) <= machine.l2.size_bytes * machine.stacks and len(nest.groups) > 1:
        last = list(nest.groups)[-1]
        shape = {**shape, last: nest.groups[last]}  # what a wave has of a row stays for the next one
        wave = _lines(part, shape, machine, copies)
    return int(wave[0] * (nest.group_count / _product(shape)))


def _waves(nest: Nest, machine: GpuMachine) -> list[dict[str, int]]:
    """Workgroups at work together: near a square of the grid, or all that there are along one of its two inner axes."""
    names, cores = list(nest.groups), machine.xe_cores * machine.stacks * nest.resident
    found = [_wave(nest, cores)]
    if len(names) < 2:
        return found
    (outer, down), (inner, across) = [(name, nest.groups[name]) for name in names[-2:]]
    if found[0][outer] < down <= cores:
        found.append({**found[0], outer: down, inner: max(1, min(across, cores // down))})
    if found[0][inner] < across <= cores:
        found.append({**found[0], outer: max(1, min(down, cores // across)), inner: across})
    return found


def _wave(nest: Nest, cores: int) -> dict[str, int]:
    """Workgroups of a wave near a square of the grid's two inner axes, then along the outer ones."""
    names = list(nest.groups)
    if len(names) > 2:
        inner = _wave(Nest({name: nest.groups[name] for name in names[1:]}, {}, ()), cores)
        return {names[0]: max(1, min(nest.groups[names[0]], cores // _product(inner))), **inner}
    if not names:
        return {}
    if len(names) == 1:
        return {names[0]: min(nest.groups[names[0]], cores)}
    down, across = nest.groups[names[0]], nest.groups[names[-1]]
    best = max(
        range(1, min(down, cores) + 1), key=lambda r: (min(r * min(across, cores // r), cores), -abs(r - cores**0.5))
    )
    return {names[0]: best, names[-1]: max(1, min(across, cores // best))}


# -- the answer -----------------------------------------------------------------------------------------------------
def estimate_gpu(program: Program, machine: GpuMachine, *, cold: bool = False, copies: Copies = NO_COPIES) -> Cost:
    """The cost of a verified program on a GPU; `UnknownTiming` where the machine has no rate for an instruction."""
    time = gpu_time(program, machine, cold, copies=copies)
    ghz, launch = time.ghz, time.launch(machine)
    cycles = time.simulated.cycles + launch
    levels = _levels(time, machine, ghz)
    shares = [sum(part.cycles * part.tiles for part in stage.rounds) for stage in time.stages]
    bound = time.stages[shares.index(max(shares))].bound
    for level in levels[1:]:
        if level.cycles >= NEAR * cycles:
            bound = level.level
    bound = "launch" if launch > time.simulated.cycles else bound
    forms = _forms(time, machine)
    counted: Counter[str] = Counter({form.instruction: form.count for form in forms})
    return Cost(
        machine=machine.name,
        cycles=cycles,
        seconds=cycles / (ghz * 1e9),
        clock=f"{ghz:g} GHz, {machine.name}'s for such code",
        bound=bound,
        core_cycles=sum(stage.engine.cycles for stage in time.stages),
        pieces=(),
        levels=levels,
        find_forms=partial(tuple, forms),
        executed=counted,
        confidence=_confidence(program, machine, levels),
        work=_work(program, machine, time, launch),
    )


def _work(program: Program, machine: GpuMachine, time: GpuTime, launch: float) -> Work:
    """The engines' own time: as many workgroups one after another as the busiest core has."""
    own = 0.0
    for stage in time.stages:
        for part in stage.rounds:
            each = stage.engine.cycles if part is stage.stage else part.cycles
            own += each * -(-part.tiles // machine.xe_cores)
    return Work(program.itself, machine, (1 / machine.engines,) * len(program.body), own, launch)


def _levels(time: GpuTime, machine: GpuMachine, ghz: float) -> tuple[LevelTraffic, ...]:
    """Traffic of L1, L2 and DRAM of all stages; cycles that each works at its peak, the mean of its instances."""
    cores = machine.xe_cores * machine.stacks
    l1, l2, dram = (
        [sum(getattr(stage, name)[side] for stage in time.stages) for side in (0, 1)] for name in ("l1", "l2", "dram")
    )
    rates = {
        "L1": machine.l1.bytes_per_cycle * cores,
        "L2": machine.l2.bytes_per_cycle * cores,
        "DRAM": machine.stream_gb_s(*dram) * machine.stacks / ghz,
    }
    keys = {"L1": "caches.L1.bytes_per_cycle", "L2": "caches.L2", "DRAM": "dram"}
    return tuple(
        LevelTraffic(
            name,
            found[0],
            found[1],
            rates[name],
            rates[name],
            sum(found) / rates[name],
            machine.confidence_of(keys[name]),
        )
        for name, found in (("L1", l1), ("L2", l2), ("DRAM", dram))
    )


def _forms(time: GpuTime, machine: GpuMachine) -> tuple[InstructionCost, ...]:
    """Each instruction's executions (machine instructions), pipe, and its share of the pipes' work."""
    work: dict[str, list[float]] = {}
    for stage in time.stages:
        threads = stage.nest.thread_count * stage.nest.group_count
        for op, times in walk(stage.nest.body):
            issue = engine.issue_of(op, machine)
            row = work.setdefault(op.instruction, [0.0, 0.0])
            row[0] += issue.count * times * threads
            row[1] += issue.occupancy * times * threads
    total = sum(row[1] for row in work.values())
    pipes = {op.instruction: engine.issue_of(op, machine).pipe for s in time.stages for op, _ in walk(s.nest.body)}
    return tuple(
        InstructionCost(name, name, int(count), int(count), pipes[name], occupancy / total)
        for name, (count, occupancy) in work.items()
    )


def _confidence(program: Program, machine: GpuMachine, levels: Sequence[LevelTraffic]) -> Confidence:
    found = {c for op, _ in program.ops() for c in engine.confidences(op, machine)}
    used = [level.confidence for level in levels if level.bytes]
    launch = ["launch"] if machine.launch_us else []
    return weakest([*found, *used, machine.confidence_of("frequency", "engine.threads", "cores", *launch)])
