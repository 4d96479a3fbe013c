"""`python -m benchmarks.blocks FILE...`: basic blocks on this host beside a machine's clock.

FILE holds machine code in hexadecimal, a block a line, before a comma, as BHive's `benchmark/sources/*.csv` do
(github.com/ithemal/bhive, MIT licence). Blocks that hold vector instructions and such that hold none are drawn apart,
at random with a fixed seed. Each is run as a loop (block; dec r15; jnz) with all
general registers and all of memory full of 0x12345600, every page of it mapped to one, so that data stay in the first
cache; vector registers hold the same 32 bits (upper halves zero), and denormals count as zeros. A block that faults is
left out. `--write` records blocks and cycles.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.apart import apart
from benchmarks.whose import clock
from isa_models.errors import SimdnnError
from simdnn.assembly.addresses import references
from simdnn.assembly.analysis import Analysis, analyze_body, read_body
from simdnn.assembly.decode import Decoded
from simdnn.assembly.rows import rows
from simdnn.calibration.sampler import PAGE, Frame
from simdnn.calibration.timer import measure, usual_ratio, yardsticks
from simdnn.cli.output import table

WORD = 0x12345600  # in every register, and everywhere in memory
LOOP_END = "49ffcf75fd"  # dec r15; jnz
REGISTERS = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", *(f"r{i}" for i in range(8, 15)))
ENVIRONMENT = 0x1000_0000  # a page that no block reaches: the stack pointer, and both settings of denormals
PLAIN, FLUSHED = 0x1F80, 0x9FC0
REACH = 1 << 20  # bytes that an access may move over in a sample, either way
LONGEST = 100  # instructions
PATIENCE_S = 0.8
SYSTEM = {"cpuid", "syscall", "int3", "ud2", "rdtsc", "rdtscp", "ldmxcsr", "vldmxcsr", "fldcw", "xgetbv"}
FIXED, SHARED = 0x10, 0x01  # mmap's flags on Linux


def main() -> None:
    """Draw, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blocks", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--machine", help="whose clock (the machine that this host behaves like)")
    parser.add_argument("--count", type=int, default=100, help="of blocks of either kind (100)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--skip", type=int, default=0, help="blocks of the draw, of either kind, that were seen before")
    parser.add_argument("--write", type=Path, help="a file for the blocks and their cycles")
    given = parser.parse_args()
    kinds = drawn(given.files, given.seed, given.skip + given.count)
    blocks = [code for kind in kinds for code in kind[given.skip :]]
    found = {code: cycles for code, cycles in measured(blocks) if cycles is not None}
    print(f"{len(found)} of {len(blocks)} blocks measured")
    if given.write:
        kept = [{"hex": code, "cycles": round(cycles, 3)} for code, cycles in found.items()]
        given.write.write_text(json.dumps({"blocks": kept}, indent=1) + "\n")
    target = rows(clock(given.machine))
    frame = pd.DataFrame([compared(code, cycles, target) for code, cycles in found.items()])
    error = frame["error"].abs()
    print(table(frame.assign(abs=error).groupby(["kind", "stores"])["abs"].describe().reset_index(), {}))


def drawn(files: Sequence[Path], seed: int, count: int) -> tuple[list[str], list[str]]:
    """Blocks of some files that can be run as loops, with vector registers and without: a number of them, at random."""
    codes = sorted({line.partition(",")[0] for path in files for line in path.read_text().splitlines()})
    random.Random(seed).shuffle(codes)
    kinds: tuple[list[str], list[str]] = [], []
    for code in codes:
        try:
            body = read_body(code).instructions
        except SimdnnError:
            continue
        kind = kinds[not any("mm" in one.form for one in body)]
        if len(kind) < count and len(body) <= LONGEST and all(map(can_run, body)):
            kind.append(code)
        if min(map(len, kinds)) == count:
            break
    return kinds


def can_run(one: Decoded) -> bool:
    """Whether an instruction leaves the loop's counter and the process as they are."""
    named = {*one.reads, *one.writes, *(one.memory.registers if one.memory else ())}
    system = one.raw.is_privileged or one.mnemonic in SYSTEM
    return "r15" not in named and not system and not one.is_branch and not any(n in "gs fs ss ds" for n in named)


def measured(blocks: Sequence[str]) -> Iterator[tuple[str, float | None]]:
    """Each block with its cycles, None where it faults or too little was quiet. A process of its own runs each."""
    memory = Memory()
    yardsticks(), usual_ratio()  # known once for all
    for code in blocks:
        yield code, apart(partial(memory.time, code))


class Memory:
    """One page of physical memory at all addresses that blocks ask for."""

    def __init__(self) -> None:
        self.file = os.memfd_create("blocks")
        os.ftruncate(self.file, PAGE)
        with mmap.mmap(self.file, PAGE) as page:
            page.write(np.full(PAGE // 8, WORD, np.int64).tobytes())
        self.libc: Any = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.pages: set[int] = set()
        self.own = os.memfd_create("environment")
        os.ftruncate(self.own, PAGE)
        self._map(ENVIRONMENT, self.own)
        ctypes.cast(ENVIRONMENT + 8, ctypes.POINTER(ctypes.c_uint32 * 2)).contents[:] = (PLAIN, FLUSHED)
        vectors = [f"vbroadcastss xmm{i}, dword ptr [rax]" for i in range(16)]
        before = ["mov r15, rcx", f"mov eax, {ENVIRONMENT}", "mov [rax], rsp", "ldmxcsr [rax+12]", f"mov eax, {WORD}"]
        before += [*vectors, *(f"mov {register}, rax" for register in REGISTERS[1:])]
        after = [f"mov eax, {ENVIRONMENT}", "mov rsp, [rax]", "ldmxcsr [rax+8]"]
        self.around = Frame(before, after, "r15")
        self.reach(WORD, 64)

    def _map(self, address: int, file: int) -> bool:
        """Let a page of the address space be a file's."""
        rights, flags = mmap.PROT_READ | mmap.PROT_WRITE, SHARED | FIXED
        number = ctypes.c_void_p(address), ctypes.c_size_t(PAGE)
        return bool(self.libc.mmap(*number, rights, flags, file, ctypes.c_long(0)) == address)

    def reach(self, start: int, size: int) -> bool:
        """Map the pages of some bytes; False where they are not a program's."""
        for page in range(start // PAGE, (start + size) // PAGE + 1):
            if not 1 << 16 <= page * PAGE < 1 << 38:  # far below libraries and stack
                return False
            if page not in self.pages:
                self.pages.add(page)
                if not self._map(page * PAGE, self.file):
                    return False
        return True

    def time(self, code: str) -> float | None:
        """Cycles of an iteration; None where an address is not known beforehand or too little was quiet."""
        body = read_body(code + LOOP_END).instructions
        for place in references(body, dict.fromkeys(REGISTERS, WORD), WORD):
            if place is None:
                continue
            if place.tensor or place.address is None or abs(place.step) > PAGE:
                return None
            moved = min(REACH, 16_000 * abs(place.step))
            if not self.reach(place.address - (moved if place.step < 0 else 0), place.bytes + moved):
                return None
        found = measure([".byte " + ",".join(str(b) for b in bytes.fromhex(code))], PATIENCE_S, around=self.around)
        return found.cycles if found else None


def predicted(code: str, target: Any) -> Analysis:
    """The analysis of a block by a machine's clock, under the conditions of the measurement."""
    start = dict.fromkeys(REGISTERS, WORD)
    return analyze_body(read_body(code + LOOP_END), target, assume=True, start=start, memory=WORD)


def compared(code: str, cycles: float, target: Any) -> dict[str, Any]:
    """A block's cycles beside the clock's."""
    body, one = read_body(code), predicted(code, target)
    return {
        "kind": "vector" if any("mm" in i.form for i in body.instructions) else "scalar",
        "stores": any(step.store for step in one.steps),
        "cycles": cycles,
        "predicted": one.cycles_per_iteration,
        "error": one.cycles_per_iteration / cycles - 1,
        "assumed": len(one.assumed),
    }


if __name__ == "__main__":
    main()
