"""An in-order GPU engine that switches between threads: the cycles of a thread's instructions, several threads at once.

Each thread issues its instructions in order, at most one a cycle, when their operands are there. An engine issues to
each pipe when that is free, from the thread that can go first: a systolic pipe (DPAS), a vector pipe, and the sends,
whose bytes share the Xe-core's L1 with the other engines. NVIDIA's special functions have a pipe of their own, and so
have comparisons, choices, bits and sums of integers where the machine says `alu_share`: there a scheduler feeds the
pipes, one instruction a cycle. For loads and products it has time here: one may be a part of one on the GPU (ldmatrix,
wgmma). Issue goes by rate, use by latency. Where the machine says `co_issue`, the systolic and the vector pipe work at
once (for different threads, or for one whose operands allow); else they are one. Of threads that could go at once the
oldest does ("age based", compute-runtime's default for Gen12; for Xe-HPC it sets round robin after dependency, which
keeps threads out of step as well). Loads are taken to hit L1: the workgroup's threads go through K together, and
prefetches run ahead. In a staged loop they read shared memory instead. Every few iterations (`Loop.staged`) each thread
loads its share of the next ones' data from L2 into registers, stores it when it is through with the present ones, and
all threads meet at a barrier, which puts them in step.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from isa_models import GpuMachine, Instruction, UnknownTiming
from isa_models.formats import fmt
from isa_models.gpu.block_forms import BlockForm
from isa_models.host.memory import address
from isa_models.intel_gpu.dpas import DpasForm
from isa_models.machines.provenance import Confidence
from isa_models.nvidia.mma import MmaForm
from isa_models.nvidia.vector import SharedLoad
from simdnn.program.records import Loop, Op, Register, Statement, walk
from simdnn.timing.gpu.engine_model import NOTHING, EngineModel
from simdnn.timing.translate import fields_of
from simdnn.timing.translated import Translated

MATH_PASSES = 4  # a quotient or a root has a quarter of the rate
#: the figures behind each rate; a machine need not name the share of conversions
_FIGURES: dict[str, tuple[str, ...]] = {
    "f32": ("engine.f32_ops", "latency.vector"),
    "product": ("engine.f32_ops", "engine.s32_multiply_share", "latency.vector"),
    "conversion": ("engine.f32_ops", "engine.conversion_share", "latency.vector"),
    "dot": ("engine.dp4a_ops", "latency.vector"),
    "math": ("engine.f32_ops", "latency.math"),
    "special": ("engine.f32_ops", "engine.special_share", "latency.math"),
    "alu": ("engine.f32_ops", "engine.alu_share", "latency.vector"),
    "packed": ("engine.f32_ops", "engine.alu_share", "latency.vector"),
    "none": ("engine.f32_ops",),
    "shuffle": ("caches.L1.bytes_per_cycle", "latency.slm"),
}
FEW = 48  # iterations of a loop that are simulated, and half as many beside: threads get out of step by and by
FEW_DEEP = 4  # the same where loops are three deep
_MOST_KNOWN = 1 << 14
Found = TypeVar("Found")
Limits = Mapping[tuple[int, int], int]  # of loops of an extent at a depth: the iterations that are simulated
#: as `EngineModel` counts them
PIPES = "systolic", "vector", "send", "barrier", "special", "alu", "scheduler"
SYSTOLIC, VECTOR, SEND, BARRIER, SPECIAL, ALU, _ = PIPES
_BUSY = (SYSTOLIC, VECTOR, SEND, SPECIAL, ALU)
_ENGINE = Translated(EngineModel, {"run": []})


@dataclass(frozen=True, slots=True)
class Issue:
    """An instruction as an engine sees it."""

    name: str
    pipe: str
    occupancy: float  # cycles that its pipe is taken
    latency: float  # from issue to use
    reads: tuple[str, ...]
    writes: str
    count: int = 1  # machine instructions that it stands for
    bytes: int = 0
    kind: str = ""  # of a matrix instruction: the operand type whose rate it has
    slots: float = 0.0  # cycles of the scheduler; 0 of what does not wait for it


class Issued(NamedTuple):
    """An instruction that a thread issued: its number in the thread's stream, and cycles."""

    thread: int
    number: int
    ready: float  # the thread could have issued it, had its operands and its pipe been there
    start: float
    free: float  # its pipe takes the next one
    done: float  # its result can be used


@dataclass(frozen=True)
class EngineTime:
    """Cycles until all threads of an engine are done, and how long each pipe was taken."""

    cycles: float
    busy: Mapping[str, float]


def _by_form(find: Callable[[Op, GpuMachine], Found]) -> Callable[[Op, GpuMachine], Found]:
    """The answer about an op on a machine, kept for all ops that differ from it in addresses alone."""
    known: dict[tuple[int, GpuMachine], Found] = {}

    @functools.wraps(find)
    def of(op: Op, machine: GpuMachine) -> Found:
        key = op.form.number, machine
        if key not in known:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[key] = find(op, machine)
        return known[key]

    return of


@_by_form
def issue_of(op: Op, machine: GpuMachine) -> Issue:
    """The cost of an instruction on a machine; `UnknownTiming` where the machine has no rate for it."""
    definition = op.definition
    reads = tuple(p.name for p in op.srcs if isinstance(p, Register)) if not op.is_zero_idiom else ()
    writes = op.dst.name if isinstance(op.dst, Register) else ""
    if isinstance(definition, MmaForm):
        return _mma(op, definition, machine, reads, writes)
    if op.memory is not None:
        size, latency = op.memory.bits // 8, machine.latency.l2 if definition.apart else machine.latency.l1
        if isinstance(definition, SharedLoad):
            size, latency = op.lanes * fmt(definition.result).bits // 8 * definition.copies, machine.latency.slm
        share = machine.l1.bytes_per_cycle / machine.engines_per_core
        return Issue(op.instruction, SEND, max(1.0, size / share), latency, reads, writes, bytes=size)
    if isinstance(definition, DpasForm):
        assert definition.shape is not None
        shape = definition.shape
        work = max(1.0, 2 * shape.m * shape.n * shape.k / machine.dpas_rate(shape.a, shape.b))
        kind = machine.systolic_rate(shape.a, shape.b)[1]
        return Issue(op.instruction, SYSTOLIC, work, machine.latency.dpas_of(shape.m), reads, writes, kind=kind)
    count, lanes, unit = 1, op.lanes, _unit(definition)
    if unit.rate == "none":
        return Issue(op.instruction, SYSTOLIC, 0.0, 0.0, reads, writes, 0)
    if unit.rate == "shuffle":  # through the crossbar of shared memory, a bank for each thread
        size = lanes * _bits(unit) // 8
        cycles = size / (machine.l1.bytes_per_cycle / machine.engines_per_core)
        return Issue(op.instruction, SEND, cycles, machine.latency.slm, reads, writes, -(-lanes // definition.warp))
    if isinstance(definition, BlockForm):
        count, lanes = definition.repeats, definition.each
    if definition.warp:  # an instruction for each register
        results = op.lanes * definition.copies // (2 if unit.rate == "packed" else 1)
        count, lanes = -(-results // definition.warp), definition.warp
    passes = -(-lanes * _bits(unit) // _pass_bits(machine))
    each = passes / _share(unit, machine)
    occupancy = each * count
    latency = machine.latency.vector + (passes - 1) * machine.latency.vector_wide + (count - 1) * each
    if unit.rate == "math":
        latency = machine.latency.math + (passes - 1) * MATH_PASSES
    if unit.rate == "special":
        latency = machine.latency.math + (count - 1) * each
    pipe = _pipe(unit, machine)
    slots = float(count) if machine.alu_share else 0.0
    return Issue(op.instruction, pipe, occupancy, latency, reads, writes, count, slots=slots)


def _mma(op: Op, definition: MmaForm, machine: GpuMachine, reads: tuple[str, ...], writes: str) -> Issue:
    """A product on tensor cores. One of a warp group reads B from shared memory, once for the group's warps: each takes
    its rows of A besides (here through registers, a load of its own) and waits for all of B.
    """
    assert definition.shape is not None
    shape = definition.shape
    grouped = shape.instruction == "wgmma"
    work = 2 * shape.m * shape.n * shape.k / machine.mma_rate(shape.operands, shape.b, shape.result, grouped)
    size = op.memory.bits // 8 if op.memory else 0
    work = max(work, size / machine.l1.bytes_per_cycle)
    kind = machine.systolic_rate(shape.operands, shape.b)[1]
    return Issue(op.instruction, SYSTOLIC, work, machine.latency.mma, reads, writes, bytes=size, kind=kind)


def readers(op: Op) -> int:
    """Threads that read an instruction's operand in memory together."""
    definition = op.definition
    return definition.shape.warps if isinstance(definition, MmaForm) and definition.shape else 1


def _unit(definition: Instruction) -> Instruction:
    """The instruction that the clock charges: the one that a block repeats, or the instruction itself."""
    return definition.unit if isinstance(definition, BlockForm) else definition


def _bits(definition: Instruction) -> int:
    """Bits of a lane: the widest operand's; f16 conversions go lane by lane with their f32."""
    return max(fmt(definition.result).bits, *(fmt(o.dtype).bits for o in definition.operands))


def _pass_bits(machine: GpuMachine) -> int:
    """Bits that the vector pipe takes a cycle: its f32 lanes (two operations each)."""
    return int(machine.vector_ops["f32"] / 2) * 32


def _pipe(definition: Instruction, machine: GpuMachine) -> str:
    """The pipe of an instruction that is none of matrices or memory."""
    if definition.rate == "special":
        return SPECIAL
    return ALU if definition.rate in ("alu", "packed") and machine.alu_share else VECTOR


def _share(definition: Instruction, machine: GpuMachine) -> float:
    """Rate over that of an f32 operation."""
    match definition.rate:
        case "product":
            return machine.s32_multiply_share
        case "conversion":
            return machine.conversion_share
        case "dot":
            return machine.vector_ops["dp4a"] / (4 * machine.vector_ops["f32"])
        case "alu" | "packed":
            return machine.alu_share or 1.0
        case "math":
            return 1 / MATH_PASSES
        case "special":
            if not machine.special_share:
                raise UnknownTiming(
                    f"machine {machine.name!r} has no engine.special_share, the rate of {definition.name}"
                )
            return machine.special_share
    return 1.0


@_by_form
def confidences(op: Op, machine: GpuMachine) -> list[Confidence]:
    """The standing of the figures that `issue_of` uses."""
    definition = op.definition
    if isinstance(definition, MmaForm):
        assert definition.shape is not None
        kind = machine.systolic_rate(definition.shape.operands, definition.shape.b)[1]
        shares = (key for key in ("engine.mma_share", "engine.f16_sums_share") if key in machine.provenance)
        return [machine.confidence_of(f"engine.systolic_ops.{kind}", "latency.mma", *shares)]
    if op.memory is not None:
        latency = "latency.slm" if isinstance(definition, SharedLoad) else "latency.l1"
        return [machine.confidence_of("caches.L1.bytes_per_cycle", latency)]
    if isinstance(definition, DpasForm):
        assert definition.shape is not None
        kind = machine.systolic_rate(definition.shape.a, definition.shape.b)[1]
        share = ("engine.dpas_share",) if "engine.dpas_share" in machine.provenance else ()
        keys = (f"engine.systolic_ops.{kind}", "latency.dpas_8", *share)
        return [machine.confidence_of(*keys), definition.shape.confidence]
    keys = _FIGURES[_unit(definition).rate]
    return [machine.confidence_of(*(key for key in keys if key in machine.provenance))]


# -- simulation -----------------------------------------------------------------------------------------------------
def run(streams: Sequence[Sequence[Issue]], co_issue: bool, trace: list[Issued] | None = None) -> EngineTime:
    """Cycles until every thread's stream is done; `trace` takes what was issued when."""
    rows = list({id(issue): issue for stream in streams for issue in stream}.values())
    number = {id(issue): row for row, issue in enumerate(rows)}
    texts = {id(stream): stream for stream in streams}
    begins = dict(zip(texts, itertools.accumulate(map(len, texts.values()), initial=0), strict=False))
    names = {name: place for place, name in enumerate(dict.fromkeys(n for row in rows for n in _names(row)))}
    firsts = [begins[id(stream)] for stream in streams]
    count, room = len(streams), sum(map(len, streams)) if trace is not None else 0
    ints: dict[str, Sequence[int]] = {
        "at": firsts,
        "last": [first + len(stream) for first, stream in zip(firsts, streams, strict=True)],
        "row_of": [number[id(issue)] for stream in texts.values() for issue in stream],
        "pipe": [PIPES.index(row.pipe) for row in rows],
        "first_name": [*itertools.accumulate([len(_names(row)) for row in rows], initial=0)],
        "names": [names[name] for row in rows for name in _names(row)],
        "writes": [names[row.writes] if row.writes else NOTHING for row in rows],
        "waits_for": [0] * count,
        **dict.fromkeys(("issued_thread", "issued_at"), [0] * room),
    }
    floats: dict[str, Sequence[float]] = {
        "occupancy": [row.occupancy for row in rows],
        "slots": [row.slots for row in rows],
        "latency": [row.latency for row in rows],
        "earliest": range(count),
        "due": [0.0] * count,
        "ready": [0.0] * (count * len(names)),
        "busy": [0.0] * len(PIPES),
        "free": [math.inf if pipe == BARRIER else 0.0 for pipe in PIPES],
        "end": [0.0],
        **dict.fromkeys(("issued_ready", "issued_start"), [0.0] * room),
    }
    arrays: dict[str, Any] = {name: np.array(values, np.int64) for name, values in ints.items()}
    arrays |= {name: np.array(values, np.float64) for name, values in floats.items()}
    scalars = {"threads": count, "registers": len(names), "co_issue": int(co_issue), "noted": int(trace is not None)}
    issued = _run_on(arrays, scalars)
    if trace is not None:
        noted = [arrays[f"issued_{name}"][:issued].tolist() for name in ("thread", "at", "ready", "start")]
        for thread, at, ready, start in zip(*noted, strict=True):
            place = at - firsts[thread]
            issue = streams[thread][place]
            done = start + max(issue.latency, issue.occupancy)
            trace.append(Issued(thread, place, ready, start, start + issue.occupancy, done))
    busy = dict(zip(PIPES, arrays["busy"].tolist(), strict=True))
    return EngineTime(float(arrays["end"][0]), {pipe: busy[pipe] for pipe in _BUSY})


def _names(issue: Issue) -> tuple[str, ...]:
    """The registers that must be there."""
    return (*issue.reads, issue.writes) if issue.writes else issue.reads


def _run_on(arrays: Mapping[str, Any], scalars: Mapping[str, int]) -> int:
    """Run the model's machine code on a record of arrays and numbers: how many instructions were issued."""
    told = [address(arrays[name]) if name in arrays else scalars.get(name, 0) for name in fields_of(EngineModel)]
    record = np.array(told, np.int64)
    return int(_ENGINE["run"](address(record)))


def engine_time(
    body: Sequence[Statement], machine: GpuMachine, threads: int, copied: float = 0.0, apart: bool = False
) -> EngineTime:
    """The time of `threads` threads on one engine, each running `body`.

    `copied`: bytes that a thread brings into shared memory for each iteration of a staged loop. `apart`: no thread
    waits for others of the engine at a barrier, as each is of a workgroup of its own or waits for data alone. Loops are
    cut to a few iterations, and the remaining ones are added at their rate. That is exact where each takes as long as
    the last ones.
    """
    choices = []  # for each extent at a depth: how many iterations are simulated, and how often that counts
    for depth, extent, few in _extents(tuple(body)):
        cut = min(extent, few)
        share = (extent - cut) / (cut - cut // 2) if extent > cut else 0.0
        cuts = [(cut, 1 + share), (cut // 2, -share)] if share else [(cut, 1.0)]
        choices.append([(((depth, extent), n), weight) for n, weight in cuts])
    cycles, busy = 0.0, dict.fromkeys(_BUSY, 0.0)
    for choice in itertools.product(*choices):
        weight = math.prod(w for _, w in choice)
        part = _cut(body, machine, threads, dict([limit for limit, _ in choice]), copied, apart)
        cycles += part.cycles * weight
        busy = {pipe: busy[pipe] + part.busy[pipe] * weight for pipe in busy}
    return EngineTime(max(cycles, *busy.values()), busy)


def _extents(body: tuple[Statement, ...]) -> list[tuple[int, int, int]]:
    """For each depth the extents of its loops, and how many iterations of each are simulated."""
    levels: list[dict[int, int]] = []  # extent -> stages
    loops = [s for s in body if isinstance(s, Loop)]
    while loops:
        levels.append({})
        for s in loops:
            levels[-1][s.extent] = max(s.staged, levels[-1].get(s.extent, 0))
        loops = [s for loop in loops for s in loop.body if isinstance(s, Loop)]
    few, stages = (FEW, 4) if len(levels) < 3 else (FEW_DEEP, 2)
    return [
        (depth, extent, few if staged < 2 else stages * staged)
        for depth, found in enumerate(levels)
        for extent, staged in found.items()
    ]


_CUTS: dict[tuple[object, ...], EngineTime] = {}  # by all that they are found from


def _cut(
    body: Sequence[Statement], machine: GpuMachine, threads: int, limits: Limits, copied: float, apart: bool
) -> EngineTime:
    """The time of threads whose loops are cut; kernels of many shapes differ in addresses alone."""
    key = _but_for_addresses(body, limits), machine, threads, copied if _is_staged(body) else 0.0, apart
    if key not in _CUTS:
        if len(_CUTS) >= _MOST_KNOWN:
            _CUTS.clear()
        ops = [op for op, _ in walk(body)]
        widened = any(isinstance(op.definition, SharedLoad) and op.definition.widened for op in ops)
        issues = {id(op): issue_of(op, machine) for op in ops}
        stream = _stream(body, issues, limits, _Staging(machine, copied, widened, apart))
        _CUTS[key] = run([stream] * threads, machine.co_issue)
    return _CUTS[key]


def _but_for_addresses(body: Sequence[Statement], limits: Limits, depth: int = 0) -> tuple[object, ...]:
    """The forms of a body's instructions, and its loops with the iterations that are simulated."""
    return tuple(
        [
            (limits[depth, s.extent], s.staged, _but_for_addresses(s.body, limits, depth + 1))
            if type(s) is Loop
            else s.form.number  # type: ignore[union-attr]  # an op
            for s in body
        ]
    )


def _is_staged(body: Sequence[Statement]) -> bool:
    """Whether threads bring data into shared memory for any of the loops."""
    return any([type(s) is Loop and (s.staged > 0 or _is_staged(s.body)) for s in body])


@dataclass
class _Staging:
    """How a thread takes part in bringing data into shared memory; counts the iterations of staged loops."""

    machine: GpuMachine
    copied: float  # bytes of an iteration
    widened: bool = False  # whether f16 is brought there as f32
    apart: bool = False  # whether threads of an engine do not wait for one another
    iterations: int = 0
    shared: dict[Issue, Issue] = field(default_factory=dict)  # loads, by those that they stand for

    def from_shared(self, issue: Issue, beside: float = 0.0) -> Issue:
        """A load as it is where its data lie in shared memory, `beside` cycles of other traffic; others as they are."""
        if issue.pipe != SEND or not issue.writes:
            return issue
        if issue not in self.shared:
            self.shared[issue] = replace(issue, occupancy=issue.occupancy + beside, latency=self.machine.latency.slm)
        return self.shared[issue]

    @property
    def meet(self) -> list[Issue]:
        """A barrier of all threads of the engine, or the time that it takes where they do not wait for one another."""
        latency = self.machine.latency.barrier
        if not self.apart:
            return [Issue("barrier", BARRIER, 0.0, latency, (), "")]
        return [Issue("barrier", SEND, 0.0, latency, (), "met"), Issue("barrier.wait", SEND, 0.0, 0.0, ("met",), "")]

    def iteration(self, body: Sequence[Issue], every: int) -> list[Issue]:
        """An iteration's instructions, with what stands before and behind those of `every` ones."""
        if self.machine.platform.async_copies and not self.widened:
            return self._asynchronous(body, every)
        share = self.machine.l1.bytes_per_cycle / self.machine.engines_per_core
        size = max(1.0, every * self.copied / share)
        load = Issue("copy.load", SEND, size, self.machine.latency.l2, (), "copied")
        store = [Issue("copy.store", SEND, size * (2 if self.widened else 1), 0.0, ("copied",), "")]
        if self.widened:
            elements = every * self.copied / fmt("f16").bytes
            each = 1 / (self.machine.vector_ops["f32"] / 2 * self.machine.conversion_share)
            store.insert(
                0, Issue("copy.cvt", VECTOR, elements * each, self.machine.latency.vector, ("copied",), "copied")
            )
        found = [self.from_shared(issue) for issue in body]
        if self.iterations == 0:
            found = [load, *store, *self.meet, load, *found]
        elif self.iterations % every == 0:
            found = [*store, *self.meet, load, *found]
        self.iterations += 1
        return found

    def _asynchronous(self, body: Sequence[Issue], every: int) -> list[Issue]:
        """An iteration whose data come some stages ahead, past the registers: their way into shared memory takes its
        share of the loads' time, and a barrier stands before each stage.
        """
        loads = sum(issue.pipe == SEND and bool(issue.writes) for issue in body)
        share = self.machine.l1.bytes_per_cycle / self.machine.engines_per_core
        found = [self.from_shared(issue, self.copied / share / loads) for issue in body]
        first = Issue("copy.async", SEND, 1.0, self.machine.latency.l2, (), "copied")
        arrived = Issue("copy.wait", SEND, 1.0, 0.0, ("copied",), "")
        if self.iterations % every == 0:
            found = [*([first, arrived] if self.iterations == 0 else []), *self.meet, *found]
        self.iterations += 1
        return found


def _stream(
    body: Sequence[Statement],
    issues: Mapping[int, Issue],
    limits: Limits,
    staging: _Staging,
    depth: int = 0,
) -> list[Issue]:
    """A thread's instructions, one after another; `issues` by the operation's `id`."""
    found: list[Issue] = []
    for statement in body:
        if isinstance(statement, Op):
            found.append(issues[id(statement)])
            continue
        for _ in range(limits[depth, statement.extent]):
            once = _stream(statement.body, issues, limits, staging, depth + 1)
            found += staging.iteration(once, statement.staged) if statement.staged else once
    return found
