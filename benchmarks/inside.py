"""How long a oneDNN primitive runs, from inside the library: without what a call, its queue and its threads take.

A call of the library as PyPI has it goes through a SYCL queue to another thread, which takes some 15 us, more than many
small products. The object behind a primitive's handle is a C++ object, and its fourth virtual function computes. This
gives it a copy of its table of functions with another one there, which calls the true one again and again. Two chains
of dependent adds stand around each run; their length is known, so their time tells the clock.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.onednn import Primitive
from simdnn.calibration.sampler import CHAIN_CYCLES, Sampler, Samples, tick_ns

_EXECUTE = 3  # of the virtual functions: two destructors, init, execute
_BEFORE, _FUNCTIONS = 2, 16  # words of the table that are copied, before its address and from there on
_QUIET = 0.03  # by how much the chains before and behind a run may differ
_SECONDS = 0.12  # of samples of a primitive
_FEWEST, _MOST = 9, 400  # samples
_LONG = 3e-4  # seconds of a run that others interrupt: there the thread's own time counts

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
        tick_ns()
        start = time.thread_time()
        execute(this, context)
        seconds = time.thread_time() - start
        count = int(min(_MOST, max(_FEWEST, _SECONDS / seconds)))
        if seconds > _LONG:
            found.append(_long(lambda: execute(this, context), count))
        else:
            sampler = Sampler(_calling(ctypes.cast(execute, ctypes.c_void_p).value or 0))  # type: ignore[arg-type]
            found.append(_short(sampler.run(1, count, context, this)))

    _within(primitive, measure)
    return found[0]


def _short(samples: Samples) -> Timed:
    apart = np.abs(samples.chain_before / samples.chain_after - 1)
    quiet = apart < max(_QUIET, float(np.sort(apart)[len(apart) // 4]))
    return _lowest(samples.loop[quiet], samples.chain[quiet])


def _long(run: Callable[[], int], count: int) -> Timed:
    """Cycles by the thread's own time; the clock is that of some chains right behind each run, their median."""
    chain, ticks, chains = Sampler(["nop"]), [], []
    for _ in range(count):
        start = time.thread_time_ns()
        run()
        ticks.append((time.thread_time_ns() - start) / tick_ns())
        chains.append(float(np.median(chain.run(1, 9).chain)))
    return _lowest(np.array(ticks), np.array(chains))


def _lowest(ticks: NDArray[np.float64], chain: NDArray[np.float64]) -> Timed:
    cycles = np.sort(CHAIN_CYCLES * ticks / chain)
    lowest = cycles[: max(1, len(cycles) // 10)]
    ghz = CHAIN_CYCLES / float(np.median(chain)) / tick_ns()
    return Timed(float(lowest.mean()), float(np.median(cycles)), ghz, len(cycles))


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
