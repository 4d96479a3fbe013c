"""One word, one meaning: a class has a name of its own in all that one distribution installs."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.sources import parsed

ROOT = Path(__file__).parents[1]
PACKAGES = ("isa_models", "simdnn", "workloads")


def test_class_names_stand_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert twice == {}, "a name of its own is needed"
