"""Which processors of this host are cores of their own: what the system tells, and what a loop on two of them tells.

Two processors of one core (SMT) dispatch in turn, so that on one of them a loop that fills dispatch is never at its
full rate while it runs on the other too. A guest's system often does not know; the loop does.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, Unimplemented, counted
from simdnn.calibration.sampler import CHAIN_CYCLES, SLOTS, WIDTH, Sampler, Samples
from simdnn.calibration.team import Team
from simdnn.calibration.timer import ALONE, QUIET, canary, usual_ratio

SYSTEM = Path("/sys/devices/system/cpu")
PATIENCE_S = 2.0
ENOUGH = 20  # samples at the full rate that show that nobody else is on the core
SAMPLES = 100  # of one look
SLOWED = 1.5  # times as long as at the full rate takes at least a loop that shares dispatch (two times: half of it)
HALTED = 2.5  # and one that did not run all the time
SHORT, LONG = 16, 160  # turns of the loop: on the one processor, and meanwhile on the other


def cores(system: Path = SYSTEM) -> list[tuple[int, ...]]:
    """The processors that this process may use, those of one core together; in their order.

    Raises `Unimplemented` where threads cannot be pinned. A processor that nothing is told of counts as a core.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise Unimplemented("threads are pinned to cores on Linux alone")
    found: dict[tuple[int, ...], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        told = system / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        key = tuple(_listed(told.read_text())) if told.is_file() else (cpu,)
        found.setdefault(key, []).append(cpu)
    return [tuple(cpus) for cpus in found.values()]


def chosen(threads: int, system: Path = SYSTEM) -> list[int]:
    """A processor of each of several cores; `InvalidArgument` where the host has fewer."""
    own = [cpus[0] for cpus in cores(system)]
    if threads > len(own):
        may = f"{counted(len(own), 'core')} (processors {own})"
        raise InvalidArgument(f"{counted(threads, 'thread')}: this process may use {may}, one each")
    return own[:threads]


def _listed(text: str) -> list[int]:
    """
    >>> _listed("0-2,7")
    [0, 1, 2, 7]
    """
    ends = [(int(first), int(last or first)) for first, last in re.findall(r"(\d+)(?:-(\d+))?", text)]
    return [cpu for first, last in ends for cpu in range(first, last + 1)]


def share_a_core(one: int, other: int) -> bool | None:
    """Whether two processors are one core's, by the loop; None where neighbours leave it open."""
    return judged(*_at_full_rate(one, other))


def judged(quiet: int, quiet_beside: int, slow_beside: int) -> bool | None:
    """Whether two processors share a core: one's samples at the full rate while the other rests, and while it works at
    the full rate too, and those while it works that took far longer.

    >>> judged(100, 80, 0), judged(100, 0, 30), judged(100, 0, 0), judged(3, 0, 30)
    (False, True, None, None)
    """
    if quiet_beside >= ENOUGH:
        return False
    return True if quiet >= ENOUGH and slow_beside >= ENOUGH and not quiet_beside else None


def _at_full_rate(one: int, other: int) -> tuple[int, int, int]:
    """The samples that `judged` counts; fewer than ENOUGH where neighbours leave no time for more."""
    code, alone, both = Sampler([canary()] * SLOTS), Team([one]), Team([one, other])
    turn = (SLOTS + 1) / WIDTH / CHAIN_CYCLES * usual_ratio()  # of the chain's time, at the full rate

    def looked(turns: int) -> tuple[Samples, NDArray[np.float64]]:
        """Samples, and how many times the time of the full rate each took: infinite where the clock was not steady."""
        found = code.run(turns, SAMPLES)
        steady = np.abs(found.chain_after / found.chain_before - 1) <= QUIET
        return found, np.where(steady, found.loop / (turns * turn * found.chain), np.inf)

    quiet = quiet_beside = slow_beside = 0
    end = time.perf_counter() + PATIENCE_S
    while (quiet < ENOUGH or max(quiet_beside, slow_beside) < ENOUGH) and time.perf_counter() < end:
        ((_, times),) = alone.each(lambda _: looked(SHORT))
        quiet += int((times <= 1 + ALONE).sum())
        (found, times), (company, works) = both.each(lambda number: looked(LONG if number else SHORT))
        last = np.searchsorted(company.begun, found.begun, "right") - 1  # that began before, of the other's loops
        within = (last >= 0) & (found.ended <= company.ended[last]) & (works[last] <= HALTED)
        # both at once: what runs while the other has lost this processor for a moment says nothing
        quiet_beside += int((within & (times <= 1 + ALONE) & (works[last] <= 1 + ALONE)).sum())
        slow_beside += int((within & (times >= SLOWED) & (times <= HALTED)).sum())
    return quiet, quiet_beside, slow_beside
