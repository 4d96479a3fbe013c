"""CONTRIBUTING.md's guides followed literally, in a copy: an instruction, a GPU generation of each vendor …"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.effort import one_in

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?ms)^ *```(\w+) ?(\S*)\n(.*?)^ *```")


def section(title: str) -> list[tuple[str, str, str]]:
    """(language, where it goes, text) of the blocks of a guide."""
    text = DOCUMENT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return [(language, where, textwrap.dedent(block)) for language, where, block in BLOCK.findall(text)]


def written(path: Path, kind: str, name: str, text: str) -> None:
    """The text at the "end" of a module, or "ahead" of what it assigns to a name, or "into" the end of that; in its
    place where the text assigns the name itself.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if kind == "end":
        lines += ["\n\n", text]
    else:
        start, end = assigned("".join(lines), name)
        first = start if kind == "ahead" or text.startswith(name) else end - 1
        lines[first : end if text.startswith(name) else first] = [text]
    path.unlink()  # a link to this repository's own
    path.write_text("".join(lines), encoding="utf-8")


def assigned(text: str, name: str) -> tuple[int, int]:
    """The first line, from 0 on, of what a module assigns to a name, and the one behind its last."""
    nodes = (node for node in ast.parse(text).body if isinstance(node, ast.Assign | ast.AnnAssign))
    targets = ((node, node.targets[0] if isinstance(node, ast.Assign) else node.target) for node in nodes)
    ((start, end),) = [
        (node.lineno - 1, node.end_lineno or 0)
        for node, target in targets
        if isinstance(target, ast.Name) and target.id == name
    ]
    return start, end


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both packages, a link for each file."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("isa_models", "simdnn", "workloads"):
        shutil.copytree(ROOT / package, folder / package, copy_function=os.symlink)
    return folder


@one_in(2)
@pytest.mark.parametrize(
    "title",
    [
        "Add an instruction",
        "Add a GPU generation",
        "Add an ISA extension",
        "Add a kernel",
        "Add a precision mode",
    ],
)
def test_a_guide_does_what_it_says(title: str, copy: Path) -> None:
    blocks = section(title)
    session = "".join(text for _, where, text in blocks if not where)
    assert session and len(blocks) >= 2
    for _, where, text in blocks:
        kind, _, place = where.partition("=")
        if kind == "file":
            (copy / place).write_text(text, encoding="utf-8")
        elif kind:
            path, _, name = place.partition(":")
            written(copy / path, kind, name, text)
    (copy / "session.txt").write_text(session)
    code = [sys.executable, "-m", "doctest", "session.txt"]
    kept = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # code of the clock, which stays as it is
    env = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "HOME": str(copy), "XDG_CACHE_HOME": kept}
    found = subprocess.run(code, capture_output=True, text=True, cwd=copy, env=env, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_gpus_kernel_is_a_row() -> None:
    """The code that "Add a kernel" puts into a module of rows works there, the import of what it names included."""
    from isa_models import GpuMachine, machine
    from simdnn.kernels.common.epilogue import Epilogue
    from simdnn.kernels.intel_gpu import rows

    text = DOCUMENT.partition("def _small(")[1] + DOCUMENT.partition("def _small(")[2].partition("       yield row(")[0]
    there = dict(vars(rows))
    exec(textwrap.dedent(f"       {text}"), there)
    b580 = machine("b580")
    assert isinstance(b580, GpuMachine)
    problem = rows.GpuMatmulProblem(4096, 4096, 64, "s8", "s8", Epilogue("s32"))
    made, plain = there["_small"](problem, b580).program, rows._plain(problem, b580).program
    assert there["_ungrouped"](b580.platform, problem) == ""
    assert made.signature != plain.signature  # of other tiles
