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
