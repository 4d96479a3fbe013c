"""docs/architecture.md is true: its rooms and files exist (tests/test_documents.py runs its examples)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_imports import FLOORS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def test_rooms_and_files_exist() -> None:
    """Rooms and files that the page names exist, and it has every unit of the floors."""
    text = PAGE.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:simdnn|isa_models|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    assert [unit for floor in FLOORS for unit in floor - {"simdnn.__main__"} if f"`{unit}`" not in text] == []
