"""Core cycles of loops on this host, without performance counters and without a compiler.

A sample times a loop between two runs of a yardstick: a chain of dependent one-cycle adds, which counts the core's
cycles whatever its clock is. Beside it, a run of register moves, eliminated, that only dispatch bounds: a neighbour on
the same core's other thread, which the chain cannot feel, shows there. Samples around which either moved are dropped.
Code comes from LLVM (`simdnn.assembly.assembler`) and is run from memory of this process.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa_models.errors import Unimplemented
from isa_models.isa import host_caps
from simdnn.assembly.assembler import assemble

CHAIN = 64  # dependent adds an iteration
MOVES = 6 * CHAIN  # eliminated moves an iteration: as many cycles on a core that dispatches six a cycle
TURNS = 3000  # iterations of a yardstick
QUIET = 0.02  # a sample counts where no yardstick differs by more from the one before
SAMPLE_CYCLES = 200_000
SAMPLES = 9  # quiet ones
LEAST = 3  # quiet ones, below which there is no figure
PATIENCE_S = 0.6
PAGE, LINE = 4096, 64

_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")


class Measured(NamedTuple):
    """Median cycles of an iteration, the interquartile range over it, and how many samples were quiet."""

    cycles: float
    spread: float
    quiet: int


def available() -> bool:
    """Whether this host runs the loops: x86-64 with System V's calling convention."""
    return platform.machine() in ("x86_64", "AMD64") and sys.platform != "win32"


class Code:
    """A loop as a function of iterations and two addresses (in rsi and rdi; rcx counts).

    Vector registers start as zeros, and so do rax, rbx and r8 to r15; rdx and rbp are the second address too.
    """

    def __init__(self, body: Sequence[str]) -> None:
        if not available():
            raise Unimplemented("timing this host takes x86-64 and System V's calling convention (Linux, macOS)")
        wide = "avx512_core" in host_caps()
        zeros = ["vzeroall", *(f"vpxord zmm{i}, zmm{i}, zmm{i}" for i in range(16, 32) if wide)]
        zeros += [f"xor {r}, {r}" for r in ("eax", "ebx", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d", "r15d")]
        before = [*(f"push {r}" for r in _SAVED), "mov rcx, rdi", "mov rdi, rdx", "mov rbp, rdx", *zeros]
        head = assemble("\n".join(before))
        loop = assemble("\n".join(["2:", *body, "dec rcx", "jnz 2b"]))
        tail = assemble("\n".join(["vzeroupper", *(f"pop {r}" for r in reversed(_SAVED)), "ret"]))
        padded = head + b"\x90" * (-len(head) % LINE)
        self.memory = mmap.mmap(-1, len(padded) + len(loop) + len(tail), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.memory.write(padded + loop + tail)
        self.run = _callable(self.memory, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def _callable(memory: mmap.mmap, *arguments: Any) -> Callable[..., None]:
    """The function at the start of `memory`, which becomes executable instead of writable."""
    size = len(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unimplemented("this system does not let a process run code that it wrote")
    return ctypes.CFUNCTYPE(None, *arguments)(address)


@functools.cache
def _yardstick_code() -> tuple[Code, Code]:
    return Code(["add rax, 1"] * CHAIN), Code(["mov rax, rdx"] * MOVES)


def yardsticks() -> tuple[float, float]:
    """Nanoseconds of a cycle by the chain, and of as many cycles' dispatch by the moves."""
    chain, moves = _yardstick_code()
    times = []
    for turns in (1, 1, TURNS):  # first to bring all this back into the caches, then the calls' own time
        start = time.perf_counter_ns()
        chain.run(turns, 0, 0)
        middle = time.perf_counter_ns()
        moves.run(turns, 0, 0)
        times.append((middle - start, time.perf_counter_ns() - middle))
    (chain1, moves1), (chain2, moves2) = times[1:]
    cycles = (TURNS - 1) * CHAIN
    return (chain2 - chain1) / cycles, (moves2 - moves1) / cycles


@functools.cache
def _usual_ratio() -> float:
    """Moves over chain where nothing disturbs them (1 on a core that dispatches six a cycle)."""
    seen = [yardsticks() for _ in range(40)]
    return min(moves for _, moves in seen) / min(chain for chain, _ in seen)


@functools.cache
def _data() -> tuple[Any, int, int]:
    """Zeros, and two addresses in different pages of them."""
    memory = np.zeros(1 << 16, np.uint8)
    first = -(-memory.ctypes.data // PAGE) * PAGE
    return memory, first, first + 2 * PAGE


def measure(body: Sequence[str], patience_s: float = PATIENCE_S, samples: int = SAMPLES) -> Measured | None:
    """Cycles of an iteration of a loop in Intel syntax (`Code` adds its end); None where nothing quiet was seen."""
    code = Code(body)
    _, first, second = _data()

    def spent_ns(turns: int) -> int:
        start = time.perf_counter_ns()
        code.run(turns, first, second)
        return time.perf_counter_ns() - start

    alone = min(spent_ns(1) for _ in range(5))  # the call, and the clock's own time
    few = 200
    iteration_ns = min(max(1.0, spent_ns(few) - alone) for _ in range(5)) / few
    turns = max(200, min(10**7, round(SAMPLE_CYCLES * yardsticks()[0] / iteration_ns)))
    found: list[float] = []
    end = time.perf_counter() + patience_s
    before = yardsticks()
    while len(found) < samples and (time.perf_counter() < end or len(found) < 1 and time.perf_counter() < end + 2):
        spent = spent_ns(turns) - alone
        after = yardsticks()
        if _quiet(before, after):
            found.append(spent / turns * 2 / (before[0] + after[0]))
        before = after
    if not found:
        return None
    low, middle, high = (float(np.quantile(found, q)) for q in (0.25, 0.5, 0.75))
    return Measured(middle, (high - low) / middle, len(found))


def _quiet(before: tuple[float, float], after: tuple[float, float]) -> bool:
    """Whether neither yardstick moved, and the moves stood to the chain as they do undisturbed."""
    usual = _usual_ratio()
    moved = max(abs(after[0] / before[0] - 1), abs(after[1] / before[1] - 1))
    return max(moved, (before[1] + after[1]) / (before[0] + after[0]) / usual - 1) <= QUIET


def clock_ghz() -> float:
    """The core's clock while it is at work."""
    return 1 / statistics.median(yardsticks()[0] for _ in range(21))
