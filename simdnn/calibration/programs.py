"""Core cycles of compiled programs on this host, between the timer's yardsticks.

A neighbour on the core's other thread may be at rest for microseconds only, so a program is timed in pieces: code that
notes the time-stamp counter in each iteration of its longer loops (`compile_timed`) runs again and again over the
same data. Of each piece the lowest tenth of its times counts, and the program's time is their sum.

The clock is read within that code, right before what counts and right behind: a core that wide code slows is faster
again microseconds later.
"""

from __future__ import annotations

import ctypes
import functools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import SimdnnError
from isa_models.readings.arrays import Array
from simdnn.calibration.native import linked
from simdnn.calibration.sampler import tick_ns
from simdnn.calibration.timer import Looks, usual_ratio, yardsticks
from simdnn.numerics.compiled import compile_timed
from simdnn.program.records import Loop, Program, Statement, walk

PIECE_CYCLES = 2000.0  # of a loop's iteration that is timed by itself, at least
QUIET = 0.05  # by which the yardsticks around a sample may differ from each other, and from what they should be
#: a program that is faster is repeated within a sample. A Zen 3 has minutes in which multiply-adds that begin behind
#: other code take up to 1.4 times as long at first, and of 15 samples of one run each none may be without
SAMPLE_US = 500.0
WARM_US = (
    200.0  # of runs before a sample, and one at least: data are in their caches, and the clock is that of the code
)
PATIENCE_S = 4.0  # waiting for the quiet samples that are asked for
LEAST = 5  # of the quietest are used where fewer are quiet
LOW = 0.1  # of a piece's times, what counts


@dataclass(frozen=True)
class Measurement:
    """Core cycles of one run; `spread` is by how much two halves of the runs differ; `quiet` samples of `taken`."""

    cycles: float
    spread: float
    quiet: int
    taken: int
    ghz: float


class _Sample(NamedTuple):
    """`moved`: by how much the yardsticks around it disagree; cycles of [run, piece]."""

    moved: float
    cycle_ns: float
    pieces: NDArray[np.float64]


_REPEAT = """
define void @note(ptr %cursor) nounwind alwaysinline {
  %place = load ptr, ptr %cursor
  %now = call i64 @llvm.readcyclecounter()
  store i64 %now, ptr %place
  %behind = getelementptr i64, ptr %place, i64 1
  store ptr %behind, ptr %cursor
  ret void
}
declare i64 @llvm.readcyclecounter()
define i32 @repeat(ptr %functions, ptr %extents, i64 %count, ptr %pointers, ptr %cursor, i64 %warm, i64 %times,
                   ptr %look, i64 %stamps_before, i64 %stamps_behind) nounwind {
entry:
  br label %again
again:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %before = phi i32 [ 0, %entry ], [ %alarm1, %next ]
  %counts = icmp eq i64 %t, %warm
  br i1 %counts, label %begin, label %go
begin:
  LOOK_BEFORE
  br label %go
go:
  call void @note(ptr %cursor)
  br label %stage
stage:
  %s = phi i64 [ 0, %go ], [ %s1, %stage ]
  %alarm = phi i32 [ %before, %go ], [ %alarm1, %stage ]
  %fp = getelementptr ptr, ptr %functions, i64 %s
  %f = load ptr, ptr %fp
  %ep = getelementptr i64, ptr %extents, i64 %s
  %extent = load i64, ptr %ep
  %raised = call i32 %f(ptr %pointers, i64 0, i64 %extent)
  %alarm1 = or i32 %alarm, %raised
  %s1 = add i64 %s, 1
  %more = icmp slt i64 %s1, %count
  br i1 %more, label %stage, label %next
next:
  %t1 = add i64 %t, 1
  %again1 = icmp slt i64 %t1, %times
  br i1 %again1, label %again, label %done
done:
  call void @note(ptr %cursor)
  LOOK_BEHIND
  ret i32 %alarm1
}"""


def looking(text: str) -> str:
    """LLVM text with the yardsticks in its two places, LOOK_BEFORE and LOOK_BEHIND."""
    for place in ("before", "behind"):
        text = text.replace(f"LOOK_{place.upper()}", Looks.call("%look", f"%stamps_{place}"))
    return text


@functools.cache
def _code() -> tuple[Any, tuple[Any, ...]]:
    """repeat(functions, extents, count, pointers, cursor, warm, times, look, stamps before, stamps behind), and what
    keeps it alive.
    """
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kinds = pointer, pointer, number, pointer, pointer, number, number, pointer, number, number
    return linked(looking(_REPEAT), "repeat", *kinds)


class _Stamped:
    """A program's code that notes the time, over `buffers`."""

    def __init__(self, program: Program, buffers: dict[str, Array], stamped: Sequence[int] = ()) -> None:
        self.name, self.looks = program.name, Looks()
        self.code = compile_timed(program, stamped)
        stages = self.code.stages
        addresses = [buffers[tensor.name].ctypes.data for tensor in program.tensors]
        self.pointers = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, None)
        self.cursor = ctypes.addressof(self.pointers) + ctypes.sizeof(ctypes.c_void_p) * len(addresses)
        self.functions = (ctypes.c_void_p * len(stages))(*(ctypes.cast(f, ctypes.c_void_p).value for f, _ in stages))
        self.extents = (ctypes.c_int64 * len(stages))(*(extent for _, extent in stages))

    def run(self, times: int, notes: int, warm: int = 0) -> NDArray[np.float64]:
        """Nanoseconds of each piece of `times` runs behind `warm` others, [run, piece]; `notes`: no run notes the time
        more often. `looks` has the yardsticks right before these runs and right behind.
        """
        log = np.zeros((warm + times) * notes + 1, np.int64)
        self.pointers[len(self.pointers) - 1] = log.ctypes.data
        arguments = self.functions, self.extents, len(self.code.stages), self.pointers, self.cursor, warm, warm + times
        if _code()[0](*arguments, self.looks.function, *self.looks.places):
            raise SimdnnError(f"{self.name}: its data raise the engine's alarm, so it cannot be timed")
        noted = (int(self.pointers[len(self.pointers) - 1] or 0) - log.ctypes.data) // log.itemsize
        return np.diff(log[:noted]).reshape(warm + times, -1)[warm:] * tick_ns()


def _loops(body: Sequence[Statement], times: int = 1) -> Iterator[tuple[Loop, int]]:
    """All loops, with how often their iterations are executed."""
    for statement in body:
        if isinstance(statement, Loop):
            yield statement, times * statement.extent
            yield from _loops(statement.body, times * statement.extent)


def _long_loops(program: Program, cycles: float) -> dict[int, int]:
    """Loops whose iterations take `PIECE_CYCLES`, if all instructions of the program take as long: id, iterations."""
    total = sum(times for _, times in program.ops())
    return {
        id(loop): times
        for loop, times in _loops(program.body)
        if cycles * sum(n for _, n in walk(loop.body)) / total >= PIECE_CYCLES
    }


def _usual_ns(whole: _Stamped) -> float:
    """Nanoseconds of a run among others. One by itself may take ten times as long, as units and the clock wake up."""
    one = min(float(whole.run(1, 1).sum()) for _ in range(3))
    return float(np.median(whole.run(math.ceil(WARM_US * 1e3 / max(1.0, one)), 1)[:, 0]))


def measure(program: Program, buffers: dict[str, Array], samples: int = 25) -> Measurement:
    """Cycles of a program on one thread, natively, run again and again over the same buffers."""
    whole = _Stamped(program, buffers)
    whole.run(1, 1)
    run_ns = _usual_ns(whole)
    stamped = _long_loops(program, run_ns / yardsticks().chain)
    code, notes = _Stamped(program, buffers, tuple(stamped)), 1 + sum(stamped.values())
    times = max(1, round(SAMPLE_US * 1e3 / max(1.0, run_ns)))
    warm = math.ceil(WARM_US * 1e3 / max(1.0, run_ns))
    found: list[_Sample] = []
    usual = usual_ratio()
    end = time.perf_counter() + PATIENCE_S
    while sum(sample.moved <= QUIET for sample in found) < samples:
        chain, slots = yardsticks()
        if time.perf_counter() > end and len(found) >= LEAST:
            break
        if slots / chain / usual - 1 > QUIET and time.perf_counter() < end:
            continue  # a neighbour is at work
        spent = code.run(times, notes, warm)
        before, behind = code.looks.read()
        beside = max(look.slots / look.chain for look in (before, behind)) / usual - 1
        moved = max(abs(behind.chain / before.chain - 1), abs(behind.slots / before.slots - 1), beside)
        cycle = (before.chain + behind.chain) / 2
        found.append(_Sample(moved, cycle, spent / cycle))
    found.sort(key=lambda sample: sample.moved)
    quiet = sum(sample.moved <= QUIET for sample in found)
    kept = found[: max(quiet, LEAST)]
    pieces = np.concatenate([sample.pieces for sample in kept])
    halves = pieces[::2], pieces[min(1, len(pieces) - 1) :: 2]
    cycles, one, other = (float(np.quantile(part, LOW, axis=0).sum()) for part in (pieces, *halves))
    ghz = 1 / statistics.median(sample.cycle_ns for sample in kept)
    return Measurement(cycles, abs(one - other) / cycles, quiet, len(found), ghz)
