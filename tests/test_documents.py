"""What the documents say can be done: links lead somewhere, and Python and commands run as they stand."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from simdnn.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")))


def anchors(document: Path) -> set[str]:
    """The names that a document's headings have as places of links."""
    text = re.sub(r"(?ms)^```.*?^```", "", document.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block with the names of those before, beside a model and an image such as it speaks of."""
    onnx = pytest.importorskip("onnx")
    from tests.networks.models import small_cnn

    onnx.save(small_cnn(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names = {"image": np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)}
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    for block in blocks:
        if not block.startswith(">>>"):
            exec(compile(block, "README.md", "exec"), names)
    exact = names["exact"]
    assert (exact.output == names["src"].astype(int) @ names["weights"].astype(int)).all()  # type: ignore[attr-defined]


def test_the_studies_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/studies.md: its file is the one that it shows, its command prints such a table, its Python runs."""
    text = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    folder = tmp_path / "docs" / "studies"
    shutil.copytree(ROOT / "docs/studies", folder, ignore=shutil.ignore_patterns("*.jsonl"))
    monkeypatch.chdir(tmp_path)
    shown, *parts = re.findall(r"(?ms)^```toml\n(.*?)^```", text)
    assert tomllib.loads(shown) == tomllib.loads((folder / "zen4_units.toml").read_text(encoding="utf-8"))
    for part in parts:
        assert list(tomllib.loads(part)) == ["axes"]
    ((command, printed),) = re.findall(r"(?ms)^```console\n\$ simdnn ([^\n]*)\n(.*?)^```", text)
    assert main(command.split()) == 0
    found = capsys.readouterr().out
    for line, wanted in zip(found.splitlines(), printed.splitlines(), strict=True):
        assert line.split()[:3] == wanted.split()[:3]  # axes and kernel; figures change with the clock
    (python,) = re.findall(r"(?ms)^```python\n(.*?)^```", text)
    names: dict[str, object] = {}
    exec(compile(python, "studies.md", "exec"), names)
    assert len(names["frame"]) == 9  # type: ignore[arg-type]
    assert main(command.split()) == 0
    assert capsys.readouterr().out.splitlines()[-1] in text
