"""docs/math_modes.md holds what `python -m benchmarks.math_modes` computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import math_modes

DOCUMENT = Path(__file__).parent.parent / "docs/math_modes.md"


@pytest.mark.parametrize("name", math_modes.TABLES)
def test_table(name: str) -> None:
    table = math_modes.TABLES[name]()
    place = f"<!-- {name} -->\n{table}\n<!-- end -->"
    assert place in DOCUMENT.read_text(encoding="utf-8"), "run `python -m benchmarks.math_modes docs/math_modes.md`"


def test_spellings_differ_where_the_proposal_says() -> None:
    """Hints fall back where a machine has no bf16, requirements fail; modes for integers alone leave f32 data alone."""
    mixed, old, floats, integers = math_modes.PROBLEMS
    found = {
        name: [math_modes.outcome(p, s).split(",")[0] for p in (mixed, old, floats)] for name, s in math_modes.SPELLINGS
    }
    assert found["`force_fpmath`, `fpmath_mode=bf16`"] == found["`math_mode=bf16`"] == ["bf16", "f32", "bf16"]
    assert found["`compute_type=bf16`"] == ["bf16", "refused: clx has no bf16", "refused: no integral input"]
    assert found["`intmath_mode=bf16`"] == ["bf16", "refused: clx has no bf16", "f32"]
    assert found["`math_mode=strict`"] == found["nothing said"] == ["refused: Unimplemented"] * 2 + ["f32"]
    assert math_modes.outcome(integers, math_modes.math_mode("bf16")).startswith("refused")
