"""Core cycles of compiled programs on several threads of this host, each pinned to a core, shared out as engines do.

The threads meet at a barrier in memory in front of the first stage and behind each, and wait by looking at it, so that
no system call is in what is timed. A sample counts where none of them lost its core to another process meanwhile and
the yardsticks of each (`timer`) are as they should be right before it and right behind. What disturbs a sample unseen
makes it longer, so the lowest tenth of the samples that count is taken.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from isa_models.errors import SimdnnError
from isa_models.readings.arrays import Array, on_a_line
from simdnn.calibration.native import linked
from simdnn.calibration.programs import LEAST, PATIENCE_S, QUIET, SAMPLE_US, WARM_US, Measurement, looking
from simdnn.calibration.sampler import LINE, tick_ns
from simdnn.calibration.timer import Looks, Yardsticks, usual_ratio, yardsticks
from simdnn.numerics.compiled import compile_timed, cuts, own_buffers
from simdnn.program.records import Program

Result = TypeVar("Result")

_REPEAT = """
declare i64 @llvm.readcyclecounter()
declare i32 @clock_gettime(i32, ptr)

define void @meet(ptr %barrier, i64 %threads, i64 %round) nounwind {
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %done, label %arrive
arrive:
  %all = mul i64 %threads, %round
  %before = atomicrmw add ptr %barrier, i64 1 seq_cst
  br label %wait
wait:
  %here = load atomic i64, ptr %barrier seq_cst, align 8
  %missing = icmp slt i64 %here, %all
  br i1 %missing, label %wait, label %done
done:
  ret void
}

define i32 @repeat(ptr %functions, ptr %ranges, i64 %count, ptr %pointers, i64 %warm, i64 %times, ptr %barrier,
                   i64 %threads, i32 %clock, ptr %ticks, ptr %own, ptr %look, i64 %stamps_before, i64 %stamps_behind)
                   nounwind {
entry:
  %own_end = getelementptr [2 x i64], ptr %own, i64 1
  call void @meet(ptr %barrier, i64 %threads, i64 1)
  br label %again
again:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %met = phi i64 [ 1, %entry ], [ %round, %next ]
  %before = phi i32 [ 0, %entry ], [ %alarm, %next ]
  %counts = icmp eq i64 %t, %warm
  br i1 %counts, label %begin, label %go
begin:
  LOOK_BEFORE
  %looked = add i64 %met, 1
  call void @meet(ptr %barrier, i64 %threads, i64 %looked)
  %read0 = call i32 @clock_gettime(i32 %clock, ptr %own)
  %start = call i64 @llvm.readcyclecounter()
  store i64 %start, ptr %ticks
  br label %go
go:
  %first = phi i64 [ %met, %again ], [ %looked, %begin ]
  br label %stage
stage:
  %s = phi i64 [ 0, %go ], [ %s1, %behind ]
  %earlier = phi i64 [ %first, %go ], [ %round, %behind ]
  %so_far = phi i32 [ %before, %go ], [ %alarm, %behind ]
  %from_p = getelementptr [2 x i64], ptr %ranges, i64 %s
  %from = load i64, ptr %from_p
  %to_p = getelementptr i64, ptr %from_p, i64 1
  %to = load i64, ptr %to_p
  %any = icmp slt i64 %from, %to
  br i1 %any, label %work, label %behind
work:
  %function_p = getelementptr ptr, ptr %functions, i64 %s
  %function = load ptr, ptr %function_p
  %raised = call i32 %function(ptr %pointers, i64 %from, i64 %to)
  br label %behind
behind:
  %now = phi i32 [ 0, %stage ], [ %raised, %work ]
  %alarm = or i32 %so_far, %now
  %round = add i64 %earlier, 1
  call void @meet(ptr %barrier, i64 %threads, i64 %round)
  %s1 = add i64 %s, 1
  %more = icmp slt i64 %s1, %count
  br i1 %more, label %stage, label %next
next:
  %t1 = add i64 %t, 1
  %again1 = icmp slt i64 %t1, %times
  br i1 %again1, label %again, label %done
done:
  %end = call i64 @llvm.readcyclecounter()
  %began = load i64, ptr %ticks
  %spent = sub i64 %end, %began
  store i64 %spent, ptr %ticks
  %read1 = call i32 @clock_gettime(i32 %clock, ptr %own_end)
  LOOK_BEHIND
  ret i32 %alarm
}"""


class Spent(NamedTuple):
    """Nanoseconds of one thread, from barrier to barrier, how many of them it did not have its core, and the yardsticks
    right before and right behind.
    """

    whole: float
    lost: float
    before: Yardsticks
    behind: Yardsticks


@functools.cache
def _repeat() -> tuple[Any, tuple[Any, ...]]:
    """repeat(functions, ranges, count, pointers, warm, times, barrier, threads, clock, ticks, own, look, stamps before,
    stamps behind), and what keeps it.
    """
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    work = pointer, pointer, number, pointer, number, number
    kinds = (*work, pointer, number, ctypes.c_int32, pointer, pointer, pointer, number, number)
    return linked(looking(_REPEAT), "repeat", *kinds)


class Team:
    """A thread on each of some processors."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self.size = len(cpus)
        self.pools = [
            ThreadPoolExecutor(1, "simdnn-timed", initializer=os.sched_setaffinity, initargs=(0, {cpu})) for cpu in cpus
        ]

    def each(self, function: Callable[[int], Result]) -> list[Result]:
        """The answers of a function of the thread's number on each of them, all at once."""
        jobs = [pool.submit(function, number) for number, pool in enumerate(self.pools)]
        return [job.result() for job in jobs]


class Ready:
    """A program compiled and cut for a team, over a flat array for each tensor."""

    def __init__(self, program: Program, buffers: dict[str, Array], team: Team) -> None:
        self.code = code = compile_timed(program)
        self.repeat, self.keep = _repeat()
        self.tick = tick_ns()  # both before any thread asks for them
        self.name, self.team, self.count = program.name, team, len(code.stages)
        self.looks = [Looks() for _ in range(team.size)]
        self.functions = _pointers([ctypes.cast(f, ctypes.c_void_p).value for f, _ in code.stages])
        ranges = np.zeros((team.size, self.count, 2), np.int64)
        for stage, (_, extent) in enumerate(code.stages):
            for number, part in enumerate(cuts(extent, team.size)):
                ranges[number, stage] = part
        self.ranges = list(ranges)
        self.buffers = [own_buffers(program, buffers) for _ in range(team.size)]
        self.pointers = [_pointers([mine[t.name].ctypes.data for t in program.tensors]) for mine in self.buffers]

    def run(self, times: int, warm: int = 0) -> list[Spent]:
        """Run the program a number of times, behind `warm` others that do not count."""
        barrier = on_a_line(LINE // 8, np.int64)  # a line of its own

        def turn(number: int) -> Spent:
            ticks, own = np.zeros(1, np.int64), np.zeros((2, 2), np.int64)  # of the clock: seconds, nanoseconds
            raised = self.repeat(
                self.functions,
                self.ranges[number].ctypes.data,
                self.count,
                self.pointers[number],
                warm,
                warm + times,
                barrier.ctypes.data,
                self.team.size,
                time.CLOCK_THREAD_CPUTIME_ID,
                ticks.ctypes.data,
                own.ctypes.data,
                self.looks[number].function,
                *self.looks[number].places,
            )
            if raised:
                raise SimdnnError(f"{self.name}: its data raise the engine's alarm, so it cannot be timed")
            seconds, ns = (own[1] - own[0]).tolist()
            whole = float(ticks[0]) * self.tick
            return Spent(whole, whole - (seconds * 1e9 + ns), *self.looks[number].read())

        return self.team.each(turn)


def measure(program: Program, buffers: dict[str, Array], samples: int, team: Team) -> Measurement:
    """Cycles of a program that a team runs natively, again and again over the same buffers."""
    ready = Ready(program, buffers, team)
    usual_ratio()  # before any thread asks for it

    ready.run(1)
    run_ns = max(1.0, min(ready.run(1)[0].whole for _ in range(3)))
    times, warm = max(1, round(SAMPLE_US * 1e3 / run_ns)), math.ceil(WARM_US * 1e3 / run_ns)
    found: list[tuple[float, float, float]] = []  # by how much disturbed, cycles, nanoseconds of a cycle
    end = time.perf_counter() + PATIENCE_S * team.size
    while sum(disturbed <= QUIET for disturbed, *_ in found) < samples:
        beside = _beside(team.each(lambda _: yardsticks()))
        if time.perf_counter() > end and len(found) >= LEAST:
            break
        if beside > QUIET and time.perf_counter() < end:
            continue  # a neighbour is at work
        spent = ready.run(times, warm)
        before, behind = [each.before for each in spent], [each.behind for each in spent]
        whole = max(each.whole for each in spent)
        lost = max(each.lost for each in spent) / whole
        disturbed = max(lost, _beside(before), _beside(behind), *map(_change, before, behind))
        cycle_ns = statistics.mean(look.chain for look in before + behind)
        found.append((disturbed, whole / times / cycle_ns, cycle_ns))
    found.sort()
    quiet = sum(disturbed <= QUIET for disturbed, *_ in found)
    kept = np.array(found[: max(quiet, LEAST)])[:, 1:]
    lowest, low, high = np.quantile(kept[:, 0], (0.1, 0.25, 0.75))
    return Measurement(float(lowest), float((high - low) / lowest), quiet, len(found), 1 / float(np.median(kept[:, 1])))


def _beside(seen: Sequence[Yardsticks]) -> float:
    """How much of its core, at most, somebody takes from a thread."""
    return max(each.slots / each.chain for each in seen) / usual_ratio() - 1


def _change(before: Yardsticks, after: Yardsticks) -> float:
    return max(abs(after.chain / before.chain - 1), abs(after.slots / before.slots - 1))


def _pointers(addresses: Sequence[int | None]) -> Any:
    return (ctypes.c_void_p * len(addresses))(*addresses)
