"""Code that times a loop again and again, each time between two runs of two yardsticks (`timer` says what for)."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import platform
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import Unimplemented
from isa_models.isa import host_caps
from simdnn.assembly.assembler import machine_code

WIDTH = 6  # slots of the canary for each dependent add: both take as long on a core that dispatches six a cycle
CHAIN_CYCLES = 512
STEPS = 160  # of the time-stamp counter that the chain takes at least: where it goes on by many ticks, it is longer
#: of each in an iteration. A register is added: Intel's cores since Alder Lake add a small constant at rename, in no
#: time. With their ends the canary's slots fill whole groups of four, six and eight, and each yardstick takes eight
#: iterations, whose end is foreseen: a Redwood Cove is wrong about it from sixteen on, which takes 30 cycles. They fill
#: an eighth of the micro-op cache, so a neighbour at rest, who has half of it, does not show
ADDS, SLOTS = 64, 383
#: what dispatch alone bounds, on most cores: a nop of as many bytes as fill no more of the micro-op cache; a register
#: move, eliminated. Behind other code a Redwood Cove takes up to 4 % longer for moves; a Zen 5 is slower at nops
CANARIES = "nop dword ptr [rax+rax]", "mov rax, rdx"
PAGE, LINE = 4096, 64
TILES_AT = 8 * PAGE  # where in the data the tiles' shapes stand

_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # Linux on x86-64, asm/prctl.h
_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
_CLEARED = ("ebx", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d", "r15d", "eax")
STAMPS = 7  # time-stamp counters: an empty stretch, chain, canary, the loop, canary, chain
_FRAME = 8 * (5 + STAMPS)  # on the stack: the arguments (turns, first, second, stamps, samples), then the stamps


@dataclass(frozen=True)
class Frame:
    """Lines before and behind a loop, and the register that counts it; rcx holds the count when `before` begins.

    With `before` the stack pointer may be lost as long as `after` brings it back.
    """

    before: Sequence[str] = ()
    after: Sequence[str] = ()
    counter: str = "rcx"


PLAIN = Frame()


@dataclass(frozen=True)
class Samples:
    """Ticks of what stood in each sample, less what reading the counter takes, and the counter itself where the loop
    began and where it ended; [samples]. Those of yardsticks are of `CHAIN_CYCLES`, however long they ran.
    """

    chain_before: NDArray[np.float64]
    slots_before: NDArray[np.float64]
    loop: NDArray[np.float64]
    slots_after: NDArray[np.float64]
    chain_after: NDArray[np.float64]
    begun: NDArray[np.int64]
    ended: NDArray[np.int64]

    @property
    def chain(self) -> NDArray[np.float64]:
        return (self.chain_before + self.chain_after) / 2

    @property
    def slots(self) -> NDArray[np.float64]:
        return (self.slots_before + self.slots_after) / 2


def available() -> bool:
    """Whether this host runs the loops: x86-64 with System V's calling convention."""
    return platform.machine() in ("x86_64", "AMD64") and sys.platform != "win32"


class Sampler:
    """A loop in Intel syntax, less its end, as code that takes samples of it.

    The loop counts in rcx, and has two addresses in rsi and rdi; rdx and rbp are the second too. Vector registers start
    as zeros, and so do rax, rbx and r8 to r15. With `tiles` all eight have 16 rows of 64 bytes of zeros, and r15 is 64.
    """

    def __init__(
        self,
        body: Sequence[str],
        tiles: bool = False,
        around: Frame = PLAIN,
        canary: str = CANARIES[0],
        longer: int | None = None,  # times of the yardsticks; None: `coarseness`
    ) -> None:
        if not available():
            raise Unimplemented("timing this host takes x86-64 and System V's calling convention (Linux, macOS)")
        if tiles:
            _permit_tiles()
        frame = [*(f"push {r}" for r in _SAVED), f"sub rsp, {_FRAME}"]
        frame += [f"mov [rsp+{8 * i}], {r}" for i, r in enumerate(("rdi", "rsi", "rdx", "rcx", "r8"))]
        start = [f"ldtilecfg [rsi+{TILES_AT}]"] if tiles else []
        self.longer = coarseness() if longer is None else longer
        chain = _yardstick(["add rax, rdx"] * ADDS, self.longer * CHAIN_CYCLES // ADDS)
        slots = _yardstick([canary] * SLOTS, self.longer * WIDTH * CHAIN_CYCLES // (SLOTS + 1))
        wide = "avx512_core" in host_caps()
        ready = ["vzeroall", *(f"vpxord zmm{i}, zmm{i}, zmm{i}" for i in range(16, 32) if wide)]
        ready += [f"xor {r}, {r}" for r in _CLEARED]
        ready += ["mov rcx, [rsp]", "mov rsi, [rsp+8]", "mov rdi, [rsp+16]", "mov rdx, rdi", "mov rbp, rdi"]
        ready += ["mov r15d, 64"] if tiles else []
        copied = [f"mov rax, [rsp+{40 + 8 * i}]\nmov [rcx+{8 * i}], rax" for i in range(STAMPS)]
        stored = ["mov rcx, [rsp+24]", *copied, f"add rcx, {8 * STAMPS}", "mov [rsp+24], rcx"]
        stored += ["dec qword ptr [rsp+32]"]
        end = ["vzeroupper", *(["tilerelease"] if tiles else []), f"add rsp, {_FRAME}"]
        end += [*(f"pop {r}" for r in reversed(_SAVED)), "ret"]
        code = _aligned([*frame, *start])
        again = len(code)
        code += _aligned([_stamp(0), _stamp(1)]) + _aligned([*chain, _stamp(2)]) + _aligned([*slots, _stamp(3), *ready])
        code += _aligned(around.before)
        code += _aligned(["2:", *body, f"dec {around.counter}", "jnz 2b", *around.after, _stamp(4)])
        code += _aligned([*slots, _stamp(5)]) + _aligned([*chain, _stamp(6), *stored], behind=6)
        code += b"\x0f\x85" + struct.pack("<i", again - len(code) - 6)  # jnz to the next sample
        code += machine_code("\n".join(end))
        self.memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.memory.write(code)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.call = _callable(self.memory, self.address)

    def run(self, turns: int, samples: int, first: int = 0, second: int = 0) -> Samples:
        """Samples of a number of iterations each, over two addresses."""
        stamps = np.zeros((samples, STAMPS), np.int64)
        self.call(turns, first, second, stamps.ctypes.data, samples)
        return self.read(stamps)

    def read(self, stamps: NDArray[np.int64]) -> Samples:
        """The samples whose time-stamp counters these are, [samples, `STAMPS`]."""
        spent = np.diff(stamps, axis=1).astype(np.float64)
        chain0, slots0, loop, slots1, chain1 = np.maximum(1.0, spent[:, 1:] - np.median(spent[:, 0])).T
        chain0, slots0, slots1, chain1 = (ticks / self.longer for ticks in (chain0, slots0, slots1, chain1))
        return Samples(chain0, slots0, loop, slots1, chain1, stamps[:, 3], stamps[:, 4])


def _aligned(lines: Sequence[str], behind: int = 0) -> bytes:
    """Machine code that a line of the cache begins with, and that fills its last but for `behind` bytes."""
    code = machine_code("\n".join(lines)) if lines else b""
    return code + b"\x90" * (-(len(code) + behind) % LINE)


def _stamp(number: int) -> str:
    """Note the time, after all before it and before all behind it."""
    return f"lfence\nrdtsc\nlfence\nshl rdx, 32\nor rax, rdx\nmov [rsp+{40 + 8 * number}], rax"


def _yardstick(lines: Sequence[str], turns: int) -> list[str]:
    return [f"mov ecx, {turns}", "xor eax, eax", "xor edx, edx", "3:", *lines, "dec rcx", "jnz 3b"]


@functools.cache
def _permit_tiles() -> None:
    """Ask Linux for the tiles' state, without which their instructions are illegal."""
    if ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA):
        raise Unimplemented("this system does not let a process use tiles (AMX)")


def _callable(memory: mmap.mmap, address: int) -> Callable[..., None]:
    """The function at the start of `memory`, its address, which becomes executable instead of writable."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unimplemented("this system does not let a process run code that it wrote")
    number: Any = ctypes.c_int64
    return ctypes.CFUNCTYPE(None, number, number, number, number, number)(address)


@functools.cache
def coarseness() -> int:
    """How many times `CHAIN_CYCLES` the yardsticks run here: until a step of the counter is a small part of them.

    On a Zen 4 it goes on by 26 ticks, which are 37 cycles: of 512 they would be 7 %.
    """
    code, stamps = Sampler(["nop"], longer=1), np.zeros((200, STAMPS), np.int64)
    code.call(1, 0, 0, stamps.ctypes.data, len(stamps))
    step, chain = step_of(np.diff(stamps.ravel())), float(np.median(stamps[:, 2] - stamps[:, 1]))
    return 1 << max(0, math.ceil(math.log2(STEPS * step / chain)))


def step_of(spans: NDArray[np.int64]) -> int:
    """Ticks by which a counter goes on at a time, of spans between stamps; a part of one is rounded away.

    >>> step_of(np.array([78, 104, 442])), step_of(np.array([49, 73, 74, 98, 441]))  # of a Zen 4, of a Zen 3 (24.5)
    (26, 24)
    """
    found = np.unique(spans)
    whole = found[np.diff(found, prepend=-2) > 1]  # the lower ones of neighbours
    rounded = len(whole) > 1 and len(whole) < len(found) and set(found) <= {*whole, *(whole + 1)}
    return int(np.diff(whole).min() if rounded else np.gcd.reduce(found))


@functools.cache
def tick_ns() -> float:
    """Nanoseconds of a tick of the time-stamp counter."""
    code, found = Sampler(["nop"], longer=1), []
    for _ in range(7):
        start, ticks = time.perf_counter_ns(), np.zeros((20_000, STAMPS), np.int64)
        code.call(1, 0, 0, ticks.ctypes.data, len(ticks))
        found.append((time.perf_counter_ns() - start) / (ticks[-1, -1] - ticks[0, 0]))
    return float(min(found))


@functools.cache
def data() -> tuple[Any, int, int]:
    """Zeros, and two addresses in different pages of them; `TILES_AT` behind the first stand shapes of tiles."""
    memory = np.zeros(1 << 16, np.uint8)
    first = -(-memory.ctypes.data // PAGE) * PAGE
    shapes = memory[first - memory.ctypes.data + TILES_AT :]
    shapes[0] = 1
    shapes[16:32:2], shapes[48:56] = 64, 16  # bytes of a row, and rows, of each tile
    return memory, first, first + 2 * PAGE
