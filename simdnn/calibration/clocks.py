"""The clock of this host's core by kind of code: plain, 256 bits, 512 bits lightly and heavily used, tiles.

A core goes slower under wide code, the more the more bits its data change. So a loop of each kind runs over random
numbers, and the yardsticks between its samples, which take a tenth of the time, tell the clock that it then has. Other
work on the socket moves all clocks, over seconds: the kinds take turns, and medians count.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa_models.instruction import TILE_ROWS
from isa_models.isa import host_caps
from isa_models.readings.arrays import on_a_line
from simdnn.calibration.sampler import CHAIN_CYCLES, LINE, PAGE, TILES_AT, Frame, Sampler, tick_ns
from simdnn.calibration.timer import LATER, QUIET, SAMPLE_CYCLES, canary
from simdnn.program.tiles import TILES, configuration

ROUNDS = 3
SECONDS = 0.3  # of each kind in a round; the second half counts
SAMPLES = 50  # taken in one call
LOOP_CYCLES = LATER * SAMPLE_CYCLES  # of each sample


class ClockedCode(NamedTuple):
    """Code by which a machine's clock is told: the cap that it takes, lines before a loop, and of its each of twelve
    steps, with `i` for the step's number and `at` for a line of data; cycles of a step.
    """

    cap: str
    before: tuple[str, ...]
    step: tuple[str, ...]
    cycles: int = 1
    tiles: bool = False


def _products(bits: int, register: str) -> ClockedCode:
    step = f"vfmadd231ps {register}{{i}}, {register}14, [rsi+{{at}}]"
    return ClockedCode("avx512_core" if bits == 512 else "avx2", (f"vmovups {register}14, [rsi+{PAGE}]",), (step,))


#: by the figures of a machine's `frequency`
KINDS = {
    "base_ghz": ClockedCode("", (), ("add r8, [rsi+{at}]", "add r9, r8", "add r10, r9")),
    "avx2_ghz": _products(256, "ymm"),
    "avx512_light_ghz": ClockedCode("avx512_core", (), ("vpaddd zmm{i}, zmm{i}, [rsi+{at}]",)),
    "avx512_ghz": _products(512, "zmm"),
    "amx_ghz": ClockedCode(
        "avx512_core_amx",
        (f"tileloadd tmm7, [rsi+r15+{4 * PAGE}]",),
        ("tileloadd tmm6, [rsi+r15+{at}]", "tdpbusd tmm{tile}, tmm6, tmm7"),
        16,
        True,
    ),
}


def clocks() -> dict[str, float]:
    """GHz by kind of code, of the kinds that this host has; one that was never seen steady is left out."""
    here = {figure: kind for figure, kind in KINDS.items() if not kind.cap or kind.cap in host_caps()}
    looks = [{figure: _ghz(kind) for figure, kind in here.items()} for _ in range(ROUNDS)]
    met = {figure: [ghz for look in looks if (ghz := look[figure])] for figure in here}
    return {figure: statistics.median(ghz) for figure, ghz in met.items() if ghz}


def _ghz(kind: ClockedCode) -> float | None:
    """The median clock of the second half of the time; None where the yardsticks never agreed."""
    body = [line.format(i=i, tile=i % 4, at=LINE * i) for i in range(12) for line in kind.step]
    code = Sampler(body, kind.tiles, Frame(kind.before), canary=canary())
    turns, first = LOOP_CYCLES // (12 * kind.cycles), _numbers().ctypes.data
    seen: list[float] = []
    start, spent = time.perf_counter(), 0.0
    while spent < SECONDS:
        samples = code.run(turns, SAMPLES, first, first)
        spent = time.perf_counter() - start  # behind it: others may have had the core all the time
        steady = np.abs(samples.chain_after / samples.chain_before - 1) <= QUIET
        if spent >= SECONDS / 2 and steady.any():
            seen.append(CHAIN_CYCLES / (float(np.median(samples.chain[steady])) * tick_ns()))
    return statistics.median(seen) if seen else None


@functools.cache
def _numbers() -> NDArray[np.float32]:
    """Random numbers, and shapes of tiles where the sampler looks for them; from the beginning of a line on."""
    found = on_a_line((TILES_AT + PAGE) // 4, np.float32)
    found[:] = np.random.default_rng(0).standard_normal(len(found), np.float32)
    found.view(np.uint8)[TILES_AT : TILES_AT + LINE] = list(configuration([TILE_ROWS] * len(TILES)))
    return found
