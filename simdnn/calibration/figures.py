"""The measurements of a calibration: instructions, memory, the clock, and which instructions share ports."""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simdnn.calibration import timer
from simdnn.calibration.forms import accumulates, chained, on_tiles, text
from simdnn.calibration.sampler import CHAIN_CYCLES, Sampler

COPIES = 24  # of an instruction in the loop for throughput
DESTINATIONS = 12  # different ones among them
CHAIN = 12  # of them in the loop for latency
AGREE = 0.03  # two runs that differ by less are one figure
SIZES = {"L1": 16 << 10, "L2": 384 << 10, "L3": 6 << 20, "DRAM": 192 << 20}  # bytes that lie in each level
MOST = 768 << 20  # bytes taken where the last cache holds the size for DRAM
PASS = 512 << 10  # bytes of a sample where a level is smaller
#: one instruction of each class that competes for ports; vectors of the host's full width
CLASSES = {
    "multiply-add": "vfmadd231ps {w}{d}, {w}14, {w}15", "add": "vaddps {w}{d}, {w}14, {w}15",
    "integer multiply": "vpmaddwd {w}{d}, {w}14, {w}15", "integer add": "vpaddd {w}{d}, {w}14, {w}15",
    "shift": "vpslld {w}{d}, {w}14, 3", "shuffle": "vpshufb {w}{d}, {w}14, {w}15",
    "convert": "vcvtdq2ps {w}{d}, {w}14", "widen": "vpmovsxbw {w}{d}, {h}14",
}  # fmt: skip


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
    forms: Iterable[tuple[str, str]], seconds: float, progress: Callable[[int, int, str], None]
) -> dict[tuple[str, str], Figure]:
    """Each form's figures of two runs, the second after all of the first; those that disagree are run once more."""
    keys = list(forms)
    runs: dict[tuple[str, str], list[_Run]] = {key: [] for key in keys}
    end = time.perf_counter() + seconds
    for turn in range(3):
        for number, key in enumerate(keys):
            if turn == 2 and _spread(runs[key]) <= AGREE:
                continue
            if time.perf_counter() > end:
                break
            progress(turn * len(keys) + number, 2 * len(keys), " ".join(key))
            runs[key].append((_throughput(*key), _latency(*key), _accumulator(*key)))
    return {key: figure for key in keys if (figure := _figure(runs[key])) is not None}


def _throughput(mnemonic: str, form: str) -> float | None:
    body = [text(mnemonic, form, i % DESTINATIONS, 14, 15, 64 * (i % 16)) for i in range(COPIES)]
    return _cycles(body, COPIES, on_tiles(mnemonic, form))


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
    """What the runs agree on best, each of the three for itself; `spread` is the largest of theirs."""
    met = [[run[i] for run in runs] for i in range(3)]
    pairs = [_closest(seen) if (seen := [v for v in values if v is not None]) else None for values in met]
    if pairs[0] is None:
        return None
    latency, accumulator = (pair[0] if pair else None for pair in pairs[1:])
    return Figure(pairs[0][0], latency, max(pair[1] for pair in pairs if pair), accumulator)


# -- memory --------------------------------------------------------------------------------------------------------


def size_within(level: str) -> int:
    """Bytes that lie in a level: of DRAM at least twice what the host's last cache holds, as far as `MOST` allows."""
    if level != "DRAM":
        return SIZES[level]
    caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    held = max((int(path.read_text().strip().rstrip("K")) << 10 for path in caches), default=0)
    return min(MOST, max(SIZES[level], 2 * held))


def bandwidth(size: int, bits: int, stores: bool = False) -> float | None:
    """Bytes a cycle of one core's loads (or stores) that go through `size` bytes again and again."""
    register = {128: "xmm", 256: "ymm", 512: "zmm"}[bits]
    step, each = bits // 8, 8
    moves = [
        f"vmovups [rax+{step * i}], {register}{i}" if stores else f"vmovups {register}{i}, [rax+{step * i}]"
        for i in range(each)
    ]
    rounds = size // (step * each)
    ends = [f"add rax, {step * each}", "dec rbx", "jnz 3b"]
    code = Sampler(["mov rax, rdx", f"mov rbx, {rounds}", "3:", *moves, *ends])
    memory = np.zeros(size + 8192, np.uint8)
    memory[::4096] = 1  # each page is there
    first = -(-memory.ctypes.data // 4096) * 4096
    turns = max(1, PASS // size)
    code.run(1, 1, first, first)
    found = code.run(turns, 3 if size > 1 << 25 else 50, first, first)
    rates = turns * size / (found.loop / found.chain * CHAIN_CYCLES)
    return float(np.quantile(rates, 0.8))  # a neighbour takes bandwidth away, nobody adds any


def forwarding(register: str, pointer: str, move: str) -> float | None:
    """Cycles of a round through memory: a store, and a load of the same bytes."""
    return _cycles([f"{move} {pointer} ptr [rsi], {register}", f"{move} {register}, {pointer} ptr [rsi]"], 1)


def load_to_use() -> float | None:
    """Cycles from an address in a general register to the value that it points to."""
    return _cycles(["mov rax, qword ptr [rsi+rax]"] * CHAIN, CHAIN)


# -- ports ---------------------------------------------------------------------------------------------------------


def conflicts(wide: bool) -> list[tuple[str, str, float]]:
    """For each pair of classes how far they share ports: 0 they don't, 1 they run on the same ones alone."""
    names = {"w": "zmm", "h": "ymm"} if wide else {"w": "ymm", "h": "xmm"}
    lines = {
        kind: [pattern.format(d=i, **names) for i in range(DESTINATIONS)] for kind, pattern in CLASSES.items()
    }
    alone = {kind: _cycles(body, 1) for kind, body in lines.items()}
    found = []
    for one, other in itertools.combinations(lines, 2):
        a, b = alone[one], alone[other]
        renamed = [re.sub(r"mm(\d+),", lambda m: f"mm{(int(m[1]) + 6) % 12},", line, count=1) for line in lines[other]]
        both = _cycles([*lines[one], *renamed], 1)
        if a and b and both:
            found.append((one, other, max(0.0, min(1.0, (both - max(a, b)) / min(a, b)))))
    return found


def clock() -> float:
    """GHz, the median of several looks."""
    return statistics.median(timer.clock_ghz() for _ in range(5))
