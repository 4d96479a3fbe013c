"""How long a oneDNN primitive runs, from inside the library: without what a call, its queue and its threads take.

A call of the library as PyPI has it goes through a SYCL queue to another thread, which takes some 15 us, more than many
small products. The object behind a primitive's handle is a C++ object, and its fourth virtual function computes. This
gives it a copy of its table of functions with another one there, which calls the true one again and again. Two chains
of dependent adds stand right around each sample; their length is known, so their time tells the clock; so do two runs
of nops, which tell whether a neighbour is at work on the core's other thread. A sample of a
short function is several calls: wide units, and those of tiles, are slower for the first 3 to 10 us behind other code.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.onednn import Primitive
from simdnn.calibration.sampler import CHAIN_CYCLES, Sampler, Samples, tick_ns
from simdnn.calibration.timer import canary, usual_ratio

_EXECUTE = 3  # of the virtual functions: two destructors, init, execute
_BEFORE, _FUNCTIONS = 2, 16  # words of the table that are copied, before its address and from there on
_QUIET = 0.03  # by how much the chains before and behind a run may differ
_ALONE = 0.05  # by how much the canary may take longer there
_SECONDS = 0.12  # of samples of a primitive
_TRIES = 6  # as many times while a neighbour is at work
_FEWEST, _MOST = 9, 400  # samples
_TOGETHER = 5  # samples of long runs in a row
_INTERRUPTED = 0.01  # of their time that others may have had
_WINDOW = 20e-6  # seconds that the calls of a sample take together, at least

_Execute = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Timed:
    """Cycles of one execution: the lowest tenth of quiet samples, and their median; the clock meanwhile."""

    cycles: float
    median: float
    ghz: float
    samples: int


def timed(primitive: Primitive) -> Timed:
    """Time a primitive over its own warm memory, in the thread in which the library runs it."""
    found: list[Timed] = []

    def measure(execute: Callable[..., int], this: int, context: int) -> None:
        function = ctypes.cast(execute, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
        sampler = Sampler(_calling(function), canary=canary())
        seconds = 1e-9 * tick_ns() * float(np.median(sampler.run(1, _FEWEST, context, this).loop))
        calls = math.ceil(_WINDOW / seconds)
        count = int(min(_MOST, max(_FEWEST, _SECONDS / (calls * seconds))))
        if calls == 1:
            groups = [_group(sampler, context, this) for _ in range(math.ceil(count / _TOGETHER))]
            others = sorted(share for share, _ in groups)
            most = max(_INTERRUPTED, others[len(groups) // 4])
            found.append(_lowest([group for share, group in groups if share <= most]))
        else:
            samples = [sampler.run(calls, count, context, this)]
            while len(samples) < _TRIES and np.median(_beside(samples[-1])) > _ALONE:
                samples.append(sampler.run(calls, count, context, this))
            found.append(_lowest(samples, calls))

    _within(primitive, measure)
    return found[0]


def _group(sampler: Sampler, context: int, this: int) -> tuple[float, Samples]:
    """Some samples in a row, between which the clock has no time to rise, and the share of it that others had."""
    wall, own = time.perf_counter_ns(), time.thread_time_ns()
    samples = sampler.run(1, _TOGETHER, context, this)
    own = time.thread_time_ns() - own
    return 1 - own / (time.perf_counter_ns() - wall), samples


def _lowest(samples: Sequence[Samples], calls: int = 1) -> Timed:
    before, after, loop = (
        np.concatenate([getattr(one, name) for one in samples]) for name in ("chain_before", "chain_after", "loop")
    )
    quiet = np.ones(len(loop), bool)
    for off, most in ((np.abs(before / after - 1), _QUIET), (np.concatenate([*map(_beside, samples)]), _ALONE)):
        quiet &= off <= max(most, float(np.sort(off[quiet])[quiet.sum() // 4]))
    chain = (before + after)[quiet] / 2
    cycles = np.sort(CHAIN_CYCLES * loop[quiet] / chain / calls)
    lowest = cycles[: max(1, len(cycles) // 10)]
    ghz = CHAIN_CYCLES / float(np.median(chain)) / tick_ns()
    return Timed(float(lowest.mean()), float(np.median(cycles)), ghz, len(cycles))


def _beside(samples: Samples) -> NDArray[np.float64]:
    """A neighbour's share of each sample: how much longer than undisturbed a canary takes, at the worse end."""
    rates = (samples.slots_before / samples.chain_before, samples.slots_after / samples.chain_after)
    return np.maximum(*rates) / usual_ratio() - 1


def _calling(function: int) -> list[str]:
    """A loop's body that calls a function with rdi and rsi, and keeps what the loop needs."""
    kept = ("rcx", "rsi", "rdi")  # three words: the stack is aligned for the call
    body = [f"push {register}" for register in kept]
    return [*body, f"movabs rax, {function}", "call rax", *(f"pop {register}" for register in reversed(kept))]


def _within(primitive: Primitive, measure: Callable[[Any, int, int], None]) -> None:
    """Run the primitive once, with `measure(function, object, context)` in place of its own function."""
    handle = primitive.primitive.value or 0
    address = ctypes.c_uint64.from_address(handle + 8).value  # behind the count of references
    table = ctypes.c_uint64.from_address(address)
    true = table.value
    words = _BEFORE + _FUNCTIONS
    copy = (ctypes.c_uint64 * words).from_buffer_copy((ctypes.c_uint64 * words).from_address(true - 8 * _BEFORE))
    execute = _Execute(copy[_BEFORE + _EXECUTE])
    raised: list[BaseException] = []

    def instead(this: int, context: int) -> int:
        status = int(execute(this, context))
        try:
            measure(execute, this, context)
        except BaseException as error:  # must not pass through the library
            raised.append(error)
        return status

    callback = _Execute(instead)
    copy[_BEFORE + _EXECUTE] = ctypes.cast(callback, ctypes.c_void_p).value or 0
    table.value = ctypes.addressof(copy) + 8 * _BEFORE
    try:
        primitive.run()
    finally:
        table.value = true
    if raised:
        raise raised[0]
