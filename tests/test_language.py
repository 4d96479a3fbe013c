"""What is written about the code can be read alone: in an editor, in `help`, in a page made of docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("simdnn", "isa_models", "workloads", "tools", "benchmarks")
LEANING = re.compile(r"(The same|Of|Those|As|Likewise)\b")
DESCRIBED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def leaning(text: str) -> list[tuple[str, str]]:
    """(name, docstring) of all that is described by a reference to its neighbour."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DESCRIBED)]
    texts = [(getattr(node, "name", "module"), ast.get_docstring(node) or "") for node in nodes]
    return [(name, text) for name, text in texts if LEANING.match(text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_leans_on_its_neighbour(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert not [(str(file.relative_to(ROOT)), *found) for file in files for found in leaning(file.read_text("utf-8"))]


def test_what_leans_is_found() -> None:
    leans = 'class A:\n  """As B."""\n  def f(self):\n    """The same\n    twice."""\n'
    assert leaning(leans) == [("A", "As B."), ("f", "The same\ntwice.")]
    assert not leaning('"""Office."""\ndef f():\n  """Assumes a sum of those."""')
