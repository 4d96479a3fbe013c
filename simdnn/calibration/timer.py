"""Core cycles of loops on this host, without performance counters and without a compiler.

A sample times a loop between two runs of two yardsticks, all of it in one piece of code (`sampler`) and a few
microseconds long: a chain of dependent one-cycle adds, which counts the core's cycles whatever its clock is, and a
canary, a run of register moves or nops that only dispatch bounds. A neighbour on the same core's other thread, which
the chain cannot feel, shows in the canary. Samples around which either is not as it should be are dropped; as they are
short, some are quiet even where a neighbour is at work most of the time. Each loop is run at two lengths; their
difference counts, so that its beginning and end do not.

Cores run wide operations slower for a while behind other code, until their voltage has risen (a Golden Cove: 28
multiply-adds of 512 bits take 18 cycles for 40 microseconds, 16.4 for another 60, then 14.1, with yardsticks between or
without). So loops of wide registers are run for `WARM_CYCLES` before each batch, and samples behind a long pause are
dropped. A Redwood Cove is at half its rate in the first 600 cycles behind each yardstick with 512 bits, and for 1000
with tiles; where short samples are slower than long ones so, or begin so late, they are long.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa_models.isa import host_caps
from simdnn.calibration.sampler import (
    ADDS,
    CANARIES,
    CHAIN_CYCLES,
    PLAIN,
    STAMPS,
    WIDTH,
    Frame,
    Sampler,
    Samples,
    coarseness,
    data,
    tick_ns,
)

NARROWEST = 4  # slots that a core with AVX2 dispatches a cycle at least
QUIET = 0.012  # a sample counts where the chains about it differ by no more
ALONE = 0.05  # and the canary is by no more above what they should be (the loop's own end is in them)
SAMPLE_CYCLES = 2500  # of the shorter of two lengths of a loop, times `coarseness`
LATER = 8  # times as many of wide operations where those begin late
LONG_CYCLES = 100_000  # and where only long samples of them are as fast as they get
WARM_CYCLES = 400_000  # of wide operations, in which they get as fast as they will be
PAUSE_NS = 3e5  # between two samples, behind which wide operations are slow again
SLOWER = 1.02  # short samples over long ones, above which others count
FASTER = 1.04  # moves a cycle over nops a cycle: above it moves are the canary
LONGER = 3  # times as long is the other
BATCH = 100  # samples taken in one call
START = 0.1, 200  # of a sample's cycles, and cycles: what a loop's beginning and end may take or seem to
ENOUGH = 25  # quiet samples of either length
LEAST = 5  # quiet ones of either, below which there is no figure
PATIENCE_S = 0.6
LOOKS, COLD = 9, 4  # at the yardsticks in a row by native code, and how many of them come before it is warm
SETTLING_S = 3.0  # in which to see the core without a neighbour once


class Measured(NamedTuple):
    """Cycles of an iteration, the width of the samples' narrowest half over it, and how many samples were quiet, the
    fewer of two lengths, and how many of both were dropped.
    """

    cycles: float
    spread: float
    quiet: int
    dropped: int = 0


class Yardsticks(NamedTuple):
    """Nanoseconds of a cycle by the chain, and of as many cycles' dispatch by the canary."""

    chain: float
    slots: float


@functools.cache
def canary() -> str:
    """The instruction that only dispatch bounds on this core: a nop, but moves where those go faster each time.

    The fastest of some samples are compared, three times, since a neighbour comes and goes.
    """
    codes = [Sampler(["nop"], canary=one) for one in CANARIES]
    looks = [[float(np.quantile(f.chain / f.slots, 0.9)) for c in codes for f in [c.run(1, 200)]] for _ in range(3)]
    nops, moves = zip(*looks, strict=True)
    return CANARIES[min(moves) > FASTER * max(nops)]


@functools.cache
def _bare() -> Sampler:
    return Sampler(["nop"], canary=canary())


@functools.cache
def sample_cycles() -> int:
    """Cycles of the shorter sample of a loop of wide operations, in which they run as fast as they do for long."""
    wide = "zmm" if "avx512_core" in host_caps() else "ymm"
    body = [f"vfmadd231ps {wide}{i}, {wide}14, {wide}15" for i in range(8)]
    code = Sampler(body, canary=canary())
    code.run(WARM_CYCLES // 4, 1)

    def look(cycles: int) -> tuple[float, float]:
        """The time of a turn, and how much later than its turns take the shorter of two lengths ends; in chains."""
        turns = cycles // 4
        low, high = (
            float(np.quantile(s.loop / s.chain, 0.2)) for s in (code.run(n, 12) for n in (turns, LONGER * turns))
        )
        each = (high - low) / (LONGER - 1) / turns
        return each, low - each * turns

    def settled(cycles: int) -> bool:
        looks = [(*look(cycles), look(LONG_CYCLES)[0]) for _ in range(3)]
        slower, later = min(each / long for each, _, long in looks), min(late for _, late, _ in looks)
        return slower <= SLOWER and later * CHAIN_CYCLES <= _latest(cycles)

    usual = SAMPLE_CYCLES * coarseness()
    return next((cycles for cycles in (usual, LATER * usual) if settled(cycles)), LONG_CYCLES)


def yardsticks() -> Yardsticks:
    """The medians over some ten microseconds."""
    return _yardsticks(_bare().run(1, 8))


def _yardsticks(samples: Samples) -> Yardsticks:
    return Yardsticks(
        float(np.median(samples.chain)) * tick_ns() / CHAIN_CYCLES,
        float(np.median(samples.slots)) * tick_ns() / CHAIN_CYCLES,
    )


class Looks:
    """Room for yardsticks that native code takes itself, right before what it times and right behind.

    A core that has gone slower under wide code goes faster again within microseconds, sooner than Python comes back. So
    such code has a `call` of `function` at either end, which notes its stamps at one of two `places`.
    """

    def __init__(self) -> None:
        self.stamps = np.zeros((2, LOOKS, STAMPS), np.int64)
        self.function = _bare().address

    @staticmethod
    def call(function: str, place: str) -> str:
        """LLVM text that takes them: `function` and a place by the names of their values."""
        return f"call void {function}(i64 1, i64 0, i64 0, i64 {place}, i64 {LOOKS})"

    @property
    def places(self) -> tuple[int, int]:
        """Addresses of the stamps before and behind."""
        return self.stamps[0].ctypes.data, self.stamps[1].ctypes.data

    def read(self) -> tuple[Yardsticks, Yardsticks]:
        """The yardsticks before and behind, less the first looks of each, in which the canary is not yet foreseen."""
        before, behind = (_yardsticks(_bare().read(stamps[COLD:])) for stamps in self.stamps)
        return before, behind


@functools.cache
def usual_ratio() -> float:
    """Canary over chain where nothing disturbs them, by the core's width in whole slots a cycle.

    A neighbour that comes and goes is waited for. A core is taken as narrower than six only where it is seen so most of
    the time: else a neighbour is there, and the samples beside it are to be dropped.
    """
    rates: list[float] = []
    end = time.perf_counter() + SETTLING_S
    while True:
        found = _bare().run(1, 200)
        usual = np.abs(found.chain / np.median(found.chain) - 1) <= QUIET
        rates += [float(rate) for rate in (WIDTH * found.chain / found.slots)[usual]]
        width = math.floor(sorted(rates)[-1 - len(rates) // 500] * (1 + ALONE)) if rates else 0
        narrow = width >= NARROWEST and statistics.median(rates) >= width * (1 - ALONE)
        if width >= WIDTH or time.perf_counter() > end:
            return WIDTH / width if width >= WIDTH or narrow else 1.0


def _quiet(samples: Samples) -> NDArray[np.bool_]:
    """Which samples have two equal chains about them, and canaries that stand to them as they do undisturbed."""
    rates = (
        np.stack([samples.slots_before / samples.chain_before, samples.slots_after / samples.chain_after])
        / usual_ratio()
    )
    alone = ((rates <= 1 + ALONE) & (rates >= 1 - 2 * ALONE)).all(axis=0)
    return alone & (np.abs(samples.chain_after / samples.chain_before - 1) <= QUIET)


def _warm(samples: Samples) -> NDArray[np.bool_]:
    """Which samples stand far enough behind the last long pause, in which others ran."""
    since = np.diff(samples.begun, prepend=samples.begun[0])
    last = np.maximum.accumulate(np.where(since > np.median(since) + PAUSE_NS / tick_ns(), samples.begun, 0))
    return (samples.begun - last) * CHAIN_CYCLES / np.median(samples.chain) >= WARM_CYCLES


def _mode(values: Sequence[float]) -> tuple[float, float]:
    """Mean and width of the narrowest half: what disturbs a sample unseen mostly makes it longer."""
    ranked = np.sort(values)
    half = len(ranked) // 2 + 1
    widths = ranked[half - 1 :] - ranked[: len(ranked) - half + 1]
    first = int(np.argmin(widths))
    return float(ranked[first : first + half].mean()), float(widths[first])


def measure(
    body: Sequence[str],
    patience_s: float = PATIENCE_S,
    enough: int = ENOUGH,
    tiles: bool = False,
    around: Frame = PLAIN,
) -> Measured | None:
    """Cycles of an iteration of a loop in Intel syntax (the end is added); None where too little quiet was seen."""
    found = _measure(body, patience_s, enough, tiles, around)
    return found and found._replace(cycles=found.cycles / _seen_of_a_cycle())


@functools.cache
def _seen_of_a_cycle() -> float:
    """How many cycles a loop of dependent adds seems to take for each: the yardsticks' own ends are in theirs."""
    looks = [_measure(["add rax, rdx"] * ADDS, PATIENCE_S) for _ in range(5)]
    return statistics.median([look.cycles / ADDS for look in looks if look] or [1.0])


def _measure(
    body: Sequence[str], patience_s: float, enough: int = ENOUGH, tiles: bool = False, around: Frame = PLAIN
) -> Measured | None:
    code = Sampler(body, tiles, around, canary())
    _, first, second = data()
    few = 16
    once = code.run(few, 9, first, second)
    iteration = max(0.2, float(np.min(once.loop) / np.median(once.chain)) * CHAIN_CYCLES / few)
    wide = any(register in line for line in body for register in ("ymm", "zmm", "tmm"))
    short = max(4, round((sample_cycles() if wide else SAMPLE_CYCLES * coarseness()) / iteration))
    warming = math.ceil(WARM_CYCLES / iteration) if wide else 0
    found: tuple[list[float], list[float]] = ([], [])
    taken = 0
    end = time.thread_time() + patience_s  # of this thread's own: others may have the core for longer
    while time.thread_time() < end:
        for turns, cycles in zip((short, LONGER * short), found, strict=True):
            if warming:
                code.run(warming, 1, first, second)
            samples = code.run(turns, max(BATCH // coarseness(), 10), first, second)
            taken += len(samples.loop)
            kept = _quiet(samples) & _warm(samples) if warming else _quiet(samples)
            cycles += (CHAIN_CYCLES * samples.loop / samples.chain)[kept].tolist()
        if min(map(len, found)) >= enough:
            if _start(found) <= _latest(min(found[0])):
                break
            found = [], []  # the two lengths were met in different states of the core
    if min(map(len, found)) < LEAST:
        return None
    (low, low_width), (high, high_width) = map(_mode, found)
    dropped = taken - sum(map(len, found))
    return Measured(
        (high - low) / (LONGER - 1) / short, max(low_width / low, high_width / high), min(map(len, found)), dropped
    )


def _latest(cycles: float) -> float:
    """Cycles later than its turns explain that a sample of a length may end."""
    return START[0] * cycles + START[1]


def _start(lengths: tuple[list[float], list[float]]) -> float:
    """Cycles that the shorter samples differ by from their part of the longer ones."""
    (low, _), (high, _) = map(_mode, lengths)
    return abs(low - (high - low) / (LONGER - 1))


def clock_ghz() -> float:
    """The core's clock while it is at work."""
    return 1 / statistics.median(yardsticks().chain for _ in range(21))
