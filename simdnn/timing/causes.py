"""Where the cycles of a cost go: to what the instructions are for, and to waiting.

The instructions of each loop, without those of loops inside, take the least time that ports, load pipes, stores and
dispatch allow (`walk.lower_bounds`; on a GPU, that of the busier pipe). This is work, shared among its purposes
(`simdnn.program.purposes`) by what each instruction would take alone. What the core needs beyond is waiting for
results: chains of latencies, ends of loops, cores that have less to do than others. What the run takes beyond its cores
is waiting for memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from isa_models import GpuMachine
from isa_models.machines.cpu_record import Machine
from isa_models.records.alike import Alike
from simdnn.program.purposes import CONTROL, PURPOSES, purposes
from simdnn.program.records import Loop, Op, Program, Statement
from simdnn.timing.cpu.steps import CoreOp, lower
from simdnn.timing.cpu.stream import Stream
from simdnn.timing.cpu.walk import lower_bounds

LAUNCH = "launch"
RESULTS = "waiting for results"
MEMORY = "waiting for memory"
CAUSES = (*PURPOSES, LAUNCH, RESULTS, MEMORY)


@dataclass(frozen=True, eq=False)
class Work(Alike):
    """The work that a cost was found for, for who asks where its cycles go.

    `find_program` gives the program, which need not be kept for that: it is thousands of objects. `shares`: of each
    top-level statement, which part of its executions one core does (a GPU: one engine). `own_cycles`: of the cores by
    themselves; `launch_cycles`: before any of them begins.
    """

    find_program: Callable[[], Program] = field(repr=False)
    machine: Machine | GpuMachine
    shares: tuple[float, ...]
    own_cycles: float
    launch_cycles: float = 0.0

    @cached_property
    def by_purpose(self) -> Mapping[str, float]:
        """Cycles of work by purpose; never more than the cores need by themselves."""
        program = self.find_program()
        whole = {id(op): purpose for op, _, purpose in purposes(program)}
        stream = Stream(program)
        total: Counter[str] = Counter()
        for statement, share in zip(program.body, self.shares, strict=True):
            for ops, loop, times in _regions((statement,)):
                if isinstance(self.machine, GpuMachine):
                    found = _on_gpu(self.machine, ops, whole)
                else:
                    found = _on_cpu(self.machine, stream, ops, loop, whole)
                for purpose, cycles in found.items():
                    total[purpose] += cycles * times * share  # type: ignore[assignment]  # a Counter of floats
        scale = min(1.0, self.own_cycles / (sum(total.values()) or 1.0))
        return {purpose: total[purpose] * scale for purpose in PURPOSES if total[purpose]}

    def causes(self, cycles: float) -> dict[str, float]:
        """All `cycles` of a run by cause, in the order of `CAUSES`; those without any are left out."""
        found = dict(self.by_purpose)
        found[LAUNCH] = min(self.launch_cycles, cycles)
        own = min(self.own_cycles, cycles - found[LAUNCH])
        found[RESULTS] = max(0.0, own - sum(self.by_purpose.values()))
        found[MEMORY] = max(0.0, cycles - sum(found.values()))
        return {cause: found[cause] for cause in CAUSES if found.get(cause, 0.0) > 1e-9 * cycles}


def _regions(body: Sequence[Statement], times: int = 1) -> Iterator[tuple[list[Op], Loop | None, int]]:
    """The instructions straight in each loop, the loop that they end, and how often they run."""
    straight = [s for s in body if isinstance(s, Op)]
    if straight:
        yield straight, None, times
    for loop in (s for s in body if isinstance(s, Loop)):
        inner = [s for s in loop.body if isinstance(s, Op)]
        yield inner, loop, times * loop.extent
        yield from _regions([s for s in loop.body if isinstance(s, Loop)], times * loop.extent)


def _on_cpu(
    machine: Machine, stream: Stream, ops: Sequence[Op], loop: Loop | None, whole: Mapping[int, str]
) -> dict[str, float]:
    """The least cycles of a region on a core, by purpose."""
    control = stream.control(loop) if loop else ()
    steps = [*(stream.line(op, {}).step for op in ops), *(line.step for line in control)]
    if not steps:
        return {}
    lowered = lower(machine, steps)  # the control's `dec` and `jnz` may be one
    names = [*(whole[id(op)] for op in ops), *([CONTROL] * (len(lowered) - len(ops)))]
    alone: dict[str, float] = {}
    for name, op in zip(names, lowered, strict=True):
        alone[name] = alone.get(name, 0.0) + _alone(machine, op)
    return _shared_out(max(lower_bounds(machine, lowered).values()), alone)


@lru_cache(maxsize=4096)
def _alone(machine: Machine, op: CoreOp) -> float:
    return max(lower_bounds(machine, [op]).values())


def _on_gpu(machine: GpuMachine, ops: Sequence[Op], whole: Mapping[int, str]) -> dict[str, float]:
    """The cycles of a region that an engine's busiest pipe takes, by purpose."""
    from simdnn.timing.gpu import engine  # needed by costs on GPUs alone

    pipes: Counter[str] = Counter()
    alone: dict[str, float] = {}
    for op in ops:
        issue = engine.issue_of(op, machine)
        pipe = issue.pipe if issue.pipe == engine.SEND or machine.co_issue else engine.VECTOR
        pipes[pipe] += issue.occupancy  # type: ignore[assignment]  # a Counter of floats
        alone[whole[id(op)]] = alone.get(whole[id(op)], 0.0) + issue.occupancy
    return _shared_out(float(max(pipes.values(), default=0)), alone)


def _shared_out(cycles: float, alone: Mapping[str, float]) -> dict[str, float]:
    total = sum(alone.values())
    return {name: cycles * part / total for name, part in alone.items()} if total else {}
