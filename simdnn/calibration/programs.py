"""Core cycles of compiled programs on this host, between the timer's yardsticks.

The program's time is its thread's own, so that what other processes take of the core in between does not count (what
they take of its caches does). Disturbed samples are dropped, if enough are left.
"""

from __future__ import annotations

import ctypes
import functools
import statistics
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np

from isa_models.arrays import Array
from isa_models.errors import SimdnnError
from simdnn.calibration.timer import usual_ratio, yardsticks
from simdnn.numerics.compiled import compile_program
from simdnn.program import Program

QUIET = 0.05  # by which the yardsticks around a sample may differ from each other, and from what they should be
SAMPLE_US = 50.0  # a program that is faster is repeated within a sample
PATIENCE_S = 4.0  # for so many quiet samples as are asked for
LEAST = 5  # of the quietest are used where fewer are quiet


@dataclass(frozen=True)
class Measurement:
    """Median core cycles of one run; `spread` is the interquartile range over it; `quiet` samples of `taken`."""

    cycles: float
    spread: float
    quiet: int
    taken: int
    ghz: float


class _Sample(NamedTuple):
    """`moved`: by how much the yardsticks around it disagree."""

    moved: float
    cycles: float
    cycle_ns: float


_REPEAT = """
define i32 @repeat(ptr %functions, ptr %extents, i64 %count, ptr %pointers, i64 %times) nounwind {
entry:
  br label %again
again:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %before = phi i32 [ 0, %entry ], [ %alarm1, %next ]
  br label %stage
stage:
  %s = phi i64 [ 0, %again ], [ %s1, %stage ]
  %alarm = phi i32 [ %before, %again ], [ %alarm1, %stage ]
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
  ret i32 %alarm1
}"""


@functools.cache
def _code() -> tuple[Any, tuple[Any, ...]]:
    """repeat(functions, extents, count, pointers, times), and what keeps it alive."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    jit = llvm.create_lljit_compiler(target.create_target_machine(jit=True, codemodel="small", reloc="pic"))
    library = llvm.JITLibraryBuilder().add_ir(_REPEAT).export_symbol("repeat").link(jit, "repeat")
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    repeat = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, number, pointer, number)
    return repeat(library["repeat"]), (jit, library)


def measure(program: Program, buffers: dict[str, Array], samples: int = 25) -> Measurement:
    """Cycles of a program on one thread, natively, run again and again over the same buffers."""
    code = compile_program(program, native=True)
    addresses = [buffers[tensor.name].ctypes.data for tensor in program.tensors]
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    functions = (ctypes.c_void_p * len(code.stages))(*(ctypes.cast(f, ctypes.c_void_p).value for f, _ in code.stages))
    extents = (ctypes.c_int64 * len(code.stages))(*(extent for _, extent in code.stages))
    repeat = _code()[0]

    def run(times: int) -> int:
        """Nanoseconds of so many runs."""
        start = time.thread_time_ns()
        if repeat(functions, extents, len(code.stages), pointers, times):
            raise SimdnnError(f"{program.name}: its data raise the engine's alarm, so it cannot be timed")
        return time.thread_time_ns() - start

    run(1)
    times = max(1, round(SAMPLE_US * 1e3 / max(1, min(run(1) for _ in range(3)))))
    found: list[_Sample] = []
    usual = usual_ratio()
    end = time.perf_counter() + PATIENCE_S
    while sum(sample.moved <= QUIET for sample in found) < samples:
        chain0, moves0 = yardsticks()
        if time.perf_counter() > end and len(found) >= LEAST:
            break
        if moves0 / chain0 / usual - 1 > QUIET and time.perf_counter() < end:
            continue  # a neighbour is at work
        spent = run(times)
        chain1, moves1 = yardsticks()
        beside = max(moves0 / chain0, moves1 / chain1) / usual - 1
        moved = max(abs(chain1 / chain0 - 1), abs(moves1 / moves0 - 1), beside)
        cycle = (chain0 + chain1) / 2
        found.append(_Sample(moved, spent / times / cycle, cycle))
    found.sort()
    quiet = sum(sample.moved <= QUIET for sample in found)
    kept = found[: max(quiet, LEAST)]
    low, middle, high = (float(np.quantile([sample.cycles for sample in kept], q)) for q in (0.25, 0.5, 0.75))
    ghz = 1 / statistics.median(sample.cycle_ns for sample in kept)
    return Measurement(middle, (high - low) / middle, quiet, len(found), ghz)
