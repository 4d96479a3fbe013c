"""The models against what a Zen 4 gave, for CPUs that lack these instructions (recorded by tools/record_x86.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isa_models import instruction
from isa_models.formats import fmt

RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "x86_zen4.npz")
NAMES = sorted({key.split(".")[0] for key in RECORDED.files if "." in key})


def test_the_source_is_named() -> None:
    assert "family 25 model 17" in str(RECORDED["cpu"])
    assert {"vpdpbusd", "vpdpwssds", "vdpbf16ps", "vcvtneps2bf16"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_results(name: str) -> None:
    definition = instruction(name)
    operands = [RECORDED[f"{name}.{o.name}"].view(fmt(o.dtype).dtype) for o in definition.operands]
    expected = RECORDED[f"{name}.out"]
    met = definition(*operands).view(expected.dtype)
    assert len(expected) >= 300
    assert (met == expected).all()
