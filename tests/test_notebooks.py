"""Every lesson runs from top to bottom, and what is stored is what it gives.

`python -m tests.test_notebooks [NAME …]` executes lessons (all, or those named) and stores their outputs in place.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib.figure import Figure

from isa_models import errors
from tests.lessons import executed, hidden_marks

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
LESSONS = [notebook for notebook in NOTEBOOKS if notebook.stem != "00_index"]
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
TEXTS = ("text/plain", "text/markdown")
ERRORS = [name for name, found in vars(errors).items() if isinstance(found, type)]
each = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def run(notebook: Path, folder: Path) -> Any:
    """The notebook with the outputs of a run in an empty folder, as it is stored."""
    found = executed(nbformat.read(notebook, 4), folder)
    found.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return found


def outputs(cell: Any) -> Iterator[tuple[str, str]]:
    """The outputs of a cell, as pairs of kind and text; of a picture the kind alone."""
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            yield output["name"], output["text"]
        elif output["output_type"] == "error":
            yield "error", output["ename"]
        else:
            data = output["data"]
            yield from ((kind, data[kind]) for kind in TEXTS if kind in data)
            yield from ((kind, "") for kind in data if kind.startswith("image/"))


def shown(notebook: Any) -> dict[str, list[tuple[str, str]]]:
    """The outputs of each cell of code, by the cell's number and first line."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return {f"{i}: {cell.source.splitlines()[0]}": list(outputs(cell)) for i, cell in enumerate(cells)}


@each
def test_a_run_gives_what_is_stored(notebook: Path, tmp_path: Path) -> None:
    """Texts are the same letter for letter; pictures stand where they stood."""
    stored = shown(nbformat.read(notebook, 4))
    found = shown(run(notebook, tmp_path))
    assert list(found) == list(stored)
    for cell, given in found.items():
        assert given == stored[cell], f"{cell}: `make notebooks` stores what a run gives now"


@each
def test_stored_outputs_are_for_everybody(notebook: Path) -> None:
    """A kernel that each Jupyter has; no error, nothing of the machine that ran it; pictures in every lesson."""
    found = json.loads(notebook.read_text())
    assert found["metadata"]["kernelspec"] == KERNEL
    given = [(cell, *pair) for cell, pairs in shown(nbformat.read(notebook, 4)).items() for pair in pairs]
    for cell, kind, text in given:
        assert kind not in ("error", "stderr"), f"{cell}: {text}"
        assert not re.search(r"\bat 0x[0-9a-f]{6,}|/(home|tmp|work|root|Users)/", text), f"{cell}: {text}"
    if notebook in LESSONS:
        assert sum(kind == "image/png" for _, kind, _ in given) >= 1, "a lesson shows pictures"


@each
def test_words_and_outputs_agree(notebook: Path) -> None:
    """A kernel that the words name is one that a cell names or shows; an error that a cell catches was raised."""
    cells = nbformat.read(notebook, 4).cells
    shown_by = [cell.source + "".join(text for _, text in outputs(cell)) for cell in cells if cell.cell_type == "code"]
    for cell in cells:
        named = re.findall(r"`((?:conv|gem[mv]|wdec_\w+):\w+)`", cell.source) if cell.cell_type == "markdown" else []
        assert not [kernel for kernel in named if not any(kernel in text for text in shown_by)]
        if cell.cell_type == "code" and "except simdnn." in cell.source:
            given = " ".join(text for _, text in outputs(cell))
            assert any(name in given for name in ERRORS), cell.source


def test_points_beyond_the_axes_are_found() -> None:
    ax = Figure().subplots()
    ax.plot([1, 2, float("nan")], [1, 1, 1], "o")
    ax.scatter([1], [5])
    ax.plot([0, 100], [0, 100])  # a line without marks may leave them
    ax.set(xlim=(0, 1.5), ylim=(0, 2))
    assert list(hidden_marks(ax)) == [(2.0, 1.0), (1.0, 5.0)]
    ax.set(xlim=(3, 0), ylim=(0, 6))  # also of axes that run backwards
    assert not list(hidden_marks(ax))


def test_lessons_are_numbered_without_a_gap() -> None:
    assert [path.stem[:3] for path in NOTEBOOKS] == [f"{number:02d}_" for number in range(len(NOTEBOOKS))]


def test_the_index_names_each_lesson() -> None:
    index = "\n".join(cell.source for cell in nbformat.read(ROOT / "notebooks" / "00_index.ipynb", 4).cells)
    linked = re.findall(r"\]\((\w+\.ipynb)\)", index)
    assert [path.name for path in LESSONS] == [name for name in linked if (ROOT / "notebooks" / name).exists()]


@pytest.mark.parametrize("notebook", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_asks_and_answers(notebook: Path) -> None:
    """A question for the class, whose answer is computed in a cell that is folded in Jupyter and on the site."""
    cells = nbformat.read(notebook, 4).cells
    folded = [c for c in cells if "hide-input" in c.metadata.get("tags", [])]
    assert any("<details>" in cell.source for cell in folded)
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in folded)


def _store(names: list[str]) -> None:
    wanted = [path for path in NOTEBOOKS if not names or path.stem in names]
    for notebook in wanted:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run(notebook, Path(folder)), notebook)
        print(notebook.name, flush=True)


if __name__ == "__main__":
    _store(sys.argv[1:])
