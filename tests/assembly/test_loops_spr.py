"""The clock of Golden Cove beside loops measured on an Emerald Rapids, of which it was made without two parts."""

from __future__ import annotations

import functools
import itertools
import statistics

import pytest

import simdnn
from tests.loops import both_cycles, loops_of

LOOPS = loops_of("loops_spr")
#: vpsadbw with a sum behind it that waits for the sum of the round before takes a quarter more than the ports
UNEXPLAINED = {"rowsum_sad_256", "ymm_sad_paddq", "zmm_sad_paddq"}


@functools.cache
def found(part: str) -> dict[str, tuple[float, float]]:
    """Predicted and measured cycles of a part's loops, by name."""
    return {loop["name"]: both_cycles("spr", loop) for loop in LOOPS if loop["part"] == part}


def errors(part: str) -> list[float]:
    return [abs(predicted / measured - 1) for predicted, measured in found(part).values()]


def order(part: str) -> float:
    """Kendall's tau over pairs that differ by more than half a percent."""
    signs = [
        (a[0] > b[0]) - (a[0] < b[0]) if a[1] > b[1] else (a[0] < b[0]) - (a[0] > b[0])
        for a, b in itertools.combinations(found(part).values(), 2)
        if abs(a[1] / b[1] - 1) > 0.005
    ]
    return statistics.mean(signs)


def test_loops_that_were_seen() -> None:
    assert {name for name, (p, m) in found("seen").items() if abs(p / m - 1) > 0.08} == UNEXPLAINED
    assert statistics.mean(errors("seen")) < 0.030


def test_loops_that_were_kept_out() -> None:
    off = errors("kept out")
    assert len(off) >= 30
    assert statistics.median(off) < 0.01
    assert statistics.mean(off) < 0.02
    assert sum(error > 0.05 for error in off) <= 3


@pytest.mark.parametrize(("part", "far"), [("second set, seen", 0.21), ("second set, kept out", 0.22)])
def test_the_second_set(part: str, far: float) -> None:
    """Split by chance before anything was measured; the half that was kept out is hardly worse than the other. `far`: a
    ninth of its 41 loops is over 5 % since ports are taken in turn (gelu_poly, 3.4 to 5.4 %), while its mean fell.
    """
    off = errors(part)
    assert len(off) >= 38
    assert statistics.median(off) < 0.0125
    assert statistics.mean(off) < 0.027
    assert sum(error > 0.05 for error in off) <= far * len(off)
    assert order(part) > 0.90


def test_loads_stores_and_operations_that_crowd_each_other() -> None:
    """Drawn at random; without the crowding 3.3 % off, eight of 24 over 5 %."""
    off = errors("third set, kept out")
    assert len(off) >= 24
    assert statistics.mean(off) < 0.02
    assert sum(error > 0.05 for error in off) <= 4


@pytest.mark.parametrize("name", ["amx_int8_2x2", "amx_1x1_two_k"])
def test_tiles_are_read_from_text(name: str) -> None:
    body = next(loop["body"] for loop in LOOPS if loop["name"] == name)
    assert simdnn.analyze("\n".join(body), machine="spr").bound == "compute"
