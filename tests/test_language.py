"""Text about the code can be read alone: in an editor, in `help`, in a page made of docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.sources import parsed, statements

ROOT = Path(__file__).parents[1]
FOLDERS = ("simdnn", "isa_models", "workloads", "tools", "benchmarks")
LEANING = re.compile(r"(The same|Of|Those|These|As|Likewise|It|They|Its|Their|Both|From|With|Without|In|On|By|So)\b")
#: a docstring says what a thing is or does: the thing comes first
CIRCLING = re.compile(r"What\b")
#: constructions that put a condition before what it is about, or point somewhere else than they say
CONSTRUED = re.compile(
    r"\b(of which|so many|likewise|what there is|to stand behind|none such|such a one|from which on"
    r"|(in|of|to|with|by|for|from) whose)\b",
    re.IGNORECASE,
)
#: where some still stand
STILL = (
    "kernels/intel_gpu",
    "kernels/nvidia",
    "timing/gpu",
    "simdnn/cli",
    "isa_models/intel_gpu",
    "isa_models/nvidia",
)
DESCRIBED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sources(folder: str) -> list[Path]:
    """The modules below a folder, but for those where old sentences still stand."""
    return [file for file in sorted((ROOT / folder).rglob("*.py")) if not any(s in file.as_posix() for s in STILL)]


def described(tree: ast.Module) -> list[tuple[str, str]]:
    """(name, docstring) of all that a module describes."""
    nodes = [node for node in statements(tree) if isinstance(node, DESCRIBED)]
    return [(getattr(node, "name", "module"), ast.get_docstring(node) or "") for node in nodes]


def leaning(tree: ast.Module) -> list[tuple[str, str]]:
    """(name, docstring) of all that is described by a reference to its neighbour."""
    return [(name, text) for name, text in described(tree) if LEANING.match(text)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_leans_on_its_neighbour(folder: str) -> None:
    files = sources(folder)
    assert files
    assert not [(str(file.relative_to(ROOT)), *found) for file in files for found in leaning(parsed(file))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_begins_with_the_thing(folder: str) -> None:
    """No exceptions: rooms where other old sentences still stand are looked at as well."""
    files = sorted((ROOT / folder).rglob("*.py"))
    found = [(str(file.relative_to(ROOT)), *one) for file in files for one in described(parsed(file))]
    assert files and not [one for one in found if CIRCLING.match(one[-1])]


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_name_a_thing_before_what_it_does(folder: str) -> None:
    files = sources(folder)
    lines = [(file, line) for file in files for line in file.read_text("utf-8").splitlines()]
    assert files and not [f"{file.relative_to(ROOT)}: {line}" for file, line in lines if CONSTRUED.search(line)]


def test_constructions_are_found() -> None:
    for text in ("Runs, of which each is a loop.", "A list of so many.", "Likewise s8.", "A kernel of whose sums some"):
        assert CONSTRUED.search(text), text
    for text in ("Kernels whose sums saturate.", "As many as asked for.", "Most of what is there."):
        assert not CONSTRUED.search(text), text


def test_what_leans_is_found() -> None:
    leans = 'class A:\n  """As B."""\n  def f(self):\n    """The same\n    twice."""\n'
    assert leaning(ast.parse(leans)) == [("A", "As B."), ("f", "The same\ntwice.")]
    assert not leaning(ast.parse('"""Office."""\ndef f():\n  """Assumes a sum of those."""'))
