"""Every notebook runs from top to bottom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    """In a process of its own, as a user runs it; the file in the repository is left alone.

    Without models that may have been fetched: their networks take a minute, and tests/networks/test_real.py runs them.
    """
    code = (
        "import sys, nbformat; from nbclient import NotebookClient; "
        "where = {'metadata': {'path': sys.argv[2]}}; "
        "NotebookClient(nbformat.read(sys.argv[1], 4), timeout=300, resources=where).execute()"
    )
    paths = os.pathsep.join([str(notebook.parents[1]), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": paths, "MPLBACKEND": "agg", "SIMDNN_MODELS": str(tmp_path / "models")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(notebook), str(tmp_path)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
