"""The measurements of a calibration: instructions, memory and the clock (`ports`: which instructions share ports)."""

from __future__ import annotations

import itertools
import math
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simdnn.calibration import timer
from simdnn.calibration.forms import COPIES, accumulates, chained, on_tiles, repeated, text
from simdnn.calibration.sampler import CHAIN_CYCLES, Sampler, Samples, tick_ns
from simdnn.calibration.team import Team
from simdnn.progress import Progress

CHAIN = 12  # of them in the loop for latency
BLOCK = 100  # forms that are run once each before any is run again
BUSY = 3  # times the seconds asked for, at most, where other work takes the core
AGREE = 0.03  # two runs that differ by less are one figure
SIZES = {"L1": 16 << 10, "L2": 384 << 10, "L3": 6 << 20, "DRAM": 192 << 20}  # bytes that lie in each level
BEYOND = 4  # times the last cache; of a stream of twice its size a Granite Rapids' still gives a half
MOST = 2 << 30  # bytes taken for that, and of the memory that is free no more than a fourth
PASS = 512 << 10  # bytes of a sample where a level is smaller
UNDISTURBED = 0.8  # of the samples: a neighbour takes bandwidth away, nobody adds any
LOOKS, LOOKED_AT = 3, 256 << 20  # at several cores at once, and bytes of each in a look


@dataclass(frozen=True)
class Figure:
    """A form's cycles: one in `throughput`, `latency` where it can feed itself; `spread` between the runs, relative.

    `accumulator` is the latency through the addend of an instruction that has one.
    """

    throughput: float
    latency: float | None
    spread: float
    accumulator: float | None = None

    @property
    def stable(self) -> bool:
        return self.spread <= AGREE


_Run = tuple[float | None, float | None, float | None]  # throughput, latency, latency of the accumulator


def instruction_figures(
    forms: Iterable[tuple[str, str]], seconds: float, progress: Progress
) -> dict[tuple[str, str], Figure]:
    """Each form's figures of two runs, the second behind other forms' first; those that disagree are run once more.

    Forms are done by blocks, each of them from all over the list, until `seconds` of this thread's own time are spent,
    or `BUSY` times as many in which others had the core too: those that are left have no figure.
    """
    keys = list(forms)
    runs: dict[tuple[str, str], list[_Run]] = {key: [] for key in keys}
    own, end = time.thread_time() + seconds, time.perf_counter() + BUSY * seconds
    count = max(1, len(keys) // BLOCK)
    for number, (turn, key) in enumerate(
        (turn, key) for first in range(count) for turn in range(3) for key in keys[first::count]
    ):
        if turn == 2 and _spread(runs[key]) <= AGREE:
            continue
        if time.thread_time() > own or time.perf_counter() > end:
            break
        progress(number, 3 * len(keys), " ".join(key))
        runs[key].append((_throughput(*key), _latency(*key), _accumulator(*key)))
    return {key: figure for key in keys if (figure := _figure(runs[key])) is not None}


def _throughput(mnemonic: str, form: str) -> float | None:
    return _cycles(repeated(mnemonic, form), COPIES, on_tiles(mnemonic, form))


def _latency(mnemonic: str, form: str) -> float | None:
    if not chained(mnemonic, form):
        return None
    if on_tiles(mnemonic, form):  # its operands must differ
        return _cycles([text(mnemonic, form, i % 2, 14, 1 - i % 2) for i in range(CHAIN)], CHAIN, tiles=True)
    alone = sum(part[0] != "i" for part in form.split(",")) == 2  # one source
    return _cycles([text(mnemonic, form, 0, 0 if alone else 14, 0)] * CHAIN, CHAIN)


def _accumulator(mnemonic: str, form: str) -> float | None:
    if not (accumulates(mnemonic) and chained(mnemonic, form)):
        return None
    return _cycles([text(mnemonic, form, 0, 14, 15)] * CHAIN, CHAIN, on_tiles(mnemonic, form))


def _cycles(body: list[str], count: int, tiles: bool = False) -> float | None:
    """Cycles of one of `count` instructions, what the loop's own end takes left in."""
    found = timer.measure(body, tiles=tiles)
    return found.cycles / count if found else None


def _closest(values: list[float]) -> tuple[float, float]:
    """Mean and relative difference of the two values that are nearest to each other (one: 0 of itself)."""
    if len(values) == 1:
        return values[0], 1.0
    low, high = min(itertools.pairwise(sorted(values)), key=lambda pair: pair[1] - pair[0])
    return (low + high) / 2, (high - low) / high if high > 0.05 else 0.0


def _spread(runs: list[_Run]) -> float:
    figure = _figure(runs)
    return figure.spread if figure else 1.0


def _figure(runs: list[_Run]) -> Figure | None:
    """The figures that the runs agree on best, each of the three for itself; `spread` is the largest of theirs."""
    met = [[run[i] for run in runs] for i in range(3)]
    pairs = [_closest(seen) if (seen := [v for v in values if v is not None]) else None for values in met]
    if pairs[0] is None:
        return None
    latency, accumulator = (pair[0] if pair else None for pair in pairs[1:])
    return Figure(pairs[0][0], latency, max(pair[1] for pair in pairs if pair), accumulator)


# -- memory --------------------------------------------------------------------------------------------------------


def size_within(level: str) -> int:
    """Bytes that lie in a level: of DRAM `BEYOND` times what the host's last cache holds, as far as memory allows."""
    if level != "DRAM":
        return SIZES[level]
    names = "SC_PAGE_SIZE", "SC_AVPHYS_PAGES"
    free = math.prod(map(os.sysconf, names)) if set(names) <= set(os.sysconf_names) else MOST
    return max(SIZES[level], min(MOST, BEYOND * last_cache(), free // 4) >> 12 << 12)


def last_cache() -> int:
    """Bytes of the host's largest cache; 0 where its system does not tell."""
    caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(path.read_text().strip().rstrip("K")) << 10 for path in caches), default=0)


class Bandwidth(NamedTuple):
    """Bytes a cycle, and 1e9 bytes a second by the same samples: the clock goes down where a core waits for memory."""

    per_cycle: float
    gb_s: float


class _Stream:
    """A loop that goes through `size` bytes, loading or storing them with registers of `bits`."""

    def __init__(self, size: int, bits: int, stores: bool = False) -> None:
        register = {128: "xmm", 256: "ymm", 512: "zmm"}[bits]
        step, each = bits // 8, 8
        moves = [
            f"vmovups [rax+{step * i}], {register}{i}" if stores else f"vmovups {register}{i}, [rax+{step * i}]"
            for i in range(each)
        ]
        rounds = size // (step * each)
        ends = [f"add rax, {step * each}", "dec rbx", "jnz 3b"]
        self.code = Sampler(["mov rax, rdx", f"mov rbx, {rounds}", "3:", *moves, *ends])
        self.memory = np.zeros(size + 8192, np.uint8)
        self.memory[::4096] = 1  # each page is there
        self.first = -(-self.memory.ctypes.data // 4096) * 4096
        self.turns = max(1, PASS // size)
        self.bytes = self.turns * size

    def run(self, samples: int) -> tuple[NDArray[np.float64], Samples]:
        """Bytes a cycle and 1e9 bytes a second in each sample, [2, samples], and the samples."""
        found = self.code.run(self.turns, samples, self.first, self.first)
        spent = np.stack([found.loop / found.chain * CHAIN_CYCLES, found.loop * tick_ns()])
        return self.bytes / spent, found


def _undisturbed(rates: NDArray[np.float64]) -> Bandwidth:
    return Bandwidth(*np.quantile(rates, UNDISTURBED, axis=1).tolist())


def bandwidth(size: int, bits: int, stores: bool = False) -> Bandwidth:
    """One core's loads (or stores) that go through `size` bytes again and again."""
    stream = _Stream(size, bits, stores)
    stream.run(1)
    rates, _ = stream.run(3 if size > 1 << 25 else 50)
    return _undisturbed(rates)


def bandwidth_of_all(level: str, bits: int, cpus: Sequence[int]) -> Bandwidth | None:
    """The loads of several cores at once, each through data of its own; None where that is too much.

    In a cache each core's data are as many as one's alone; in DRAM all cores' together are.
    """
    size = size_within(level)
    if level == "DRAM":
        size = size // len(cpus) >> 12 << 12
    elif size * len(cpus) > last_cache() // 2:
        return None
    team, streams = Team(cpus), [_Stream(size, bits) for _ in cpus]
    team.each(lambda number: streams[number].run(1))
    best: list[Bandwidth] = []
    for _ in range(LOOKS):
        met = team.each(lambda number: streams[number].run(max(4, LOOKED_AT // streams[number].bytes)))
        begun, ended = max(found.begun[0] for _, found in met), min(found.ended[-1] for _, found in met)
        together = [rates[:, (found.begun >= begun) & (found.ended <= ended)] for rates, found in met]
        if all(rates.size for rates in together):
            best.append(Bandwidth(*map(sum, zip(*map(_undisturbed, together), strict=True))))
    return max(best, default=None)


def forwarding(register: str, pointer: str, move: str) -> float | None:
    """Cycles of a round through memory: a store, and a load of the same bytes."""
    return _cycles([f"{move} {pointer} ptr [rsi], {register}", f"{move} {register}, {pointer} ptr [rsi]"], 1)


def load_to_use() -> float | None:
    """Cycles from an address in a general register to the value that it points to."""
    return _cycles(["mov rax, qword ptr [rsi+rax]"] * CHAIN, CHAIN)


def clock() -> float:
    """GHz, the median of several looks."""
    return statistics.median(timer.clock_ghz() for _ in range(5))
