"""Redwood Cove's divider, which divisions and square roots of floats share, as measured on a Granite Rapids."""

from __future__ import annotations

import statistics

import pytest

from simdnn import analyze
from tests.loops import recorded


def test_pairs_share_a_divider() -> None:
    """Each two of 24 forms, one behind the other: 18 % off; what the longer one takes by itself is 41 % off."""
    measured = {(row["first"], row["second"]): float(row["cycles"]) for row in recorded("dividers-gnr")}
    pairs = {pair: cycles for pair, cycles in measured.items() if pair[1]}
    assert len(pairs) == 276
    alone = {text: analyze(text, "gnr").cycles_per_iteration for text in dict.fromkeys(sum(pairs, ()))}
    both = [abs(analyze("; ".join(pair), "gnr").cycles_per_iteration / met - 1) for pair, met in pairs.items()]
    longer = [abs(max(map(alone.__getitem__, pair)) / met - 1) for pair, met in pairs.items()]
    assert statistics.mean(both) < 0.18 and statistics.mean(longer) > 0.41


@pytest.mark.parametrize(("machine", "cycles"), [("skx", 22), ("icx", 22), ("spr", 22), ("gnr", 22), ("zen4", 10)])
def test_which_cores_have_one(machine: str, cycles: float) -> None:
    """Where one port divides: 10 and 12 cycles one behind the other. Of AMD's cores it is not known."""
    found = analyze("vdivps zmm1, zmm2, zmm3; vsqrtps zmm4, zmm5", machine)
    assert found.cycles_per_iteration == pytest.approx(cycles)
    shared = "the divider (vdivps and vsqrtps) is at work for 22.00 of 22.00 cycles"
    assert found.sentence.startswith(shared if machine != "zen4" else "a unit that vsqrtps alone uses")
