"""One word, one meaning: a class has a name of its own in all that one distribution installs."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("isa_models", "simdnn", "workloads")
#: names that classes of several modules still share; a name may leave this list and none may come
SHARED = frozenset("""Shape Unit""".split())


def test_class_names_stand_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in SHARED} == {}, "a name of its own is needed"
    assert twice.keys() >= SHARED, f"{sorted(SHARED - twice.keys())}: no longer shared, so take them off the list"
