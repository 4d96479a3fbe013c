"""The site of the documents: every page is reached, every public name described, nothing fetched from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import isa_models
import simdnn
from simdnn.assembly.limits import LIMITED_BY
from tests.documents import ROOT

DOCS = ROOT / "docs"


def test_every_page_is_in_a_contents_list() -> None:
    named = set()
    for page in DOCS.rglob("*.md"):
        for tree in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8")):
            for entry in (line for line in tree.splitlines() if line and not line.startswith(":")):
                folder = ROOT if entry.startswith("/") else page.parent
                found = [path for end in (".md", ".ipynb") for path in folder.glob(entry.lstrip("/") + end)]
                assert found, f"{page.name}: {entry}"
                named.update(found)
    assert set(DOCS.rglob("*.md")) - named == {DOCS / "index.md"}
    assert set((ROOT / "notebooks").glob("*.ipynb")) <= named


def test_the_glossary_has_every_bound() -> None:
    """Bounds of loops, of kernels and of GPUs."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`([\w-]+)`", " ".join(re.findall(r"(?m)^\| (`[^|]*)\|", text))))
    assert {*LIMITED_BY, "L1", "L2", "L3", "DRAM", "launch"} == explained


class _Fetched(HTMLParser):
    """The addresses that a browser would fetch of a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.urls.append(str(given["src"]))
        if tag == "link" and "stylesheet" in str(given.get("rel")):
            self.urls.append(str(given["href"]))


@pytest.mark.sweep
def test_the_site_builds(tmp_path: Path) -> None:
    """Without a warning, as `make docs` builds it."""
    for needed in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(needed)
    command = re.findall(r"(?m)^\t\$\(BIN\)/python (-m sphinx .*) build/docs$", (ROOT / "Makefile").read_text("utf-8"))[
        0
    ]
    done = subprocess.run(
        [sys.executable, *command.split(), str(tmp_path)], capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    for module in (simdnn, isa_models):
        page = (tmp_path / f"docs/api/{module.__name__}.html").read_text(encoding="utf-8")
        shown = set(re.findall(r"[\w]+", re.sub(r"<[^>]*>", "", page)))
        assert [name for name in module.__all__ if name not in shown] == []
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert "|--" not in re.sub(r"(?s)<(script|pre|code)\b.*?</\1>|<[^>]*>", "", html), (
            f"{page.name}: a table as text"
        )
        reader = _Fetched()
        reader.feed(html)
        assert [url for url in reader.urls if "//" in url and not url.startswith("data:")] == [], page.name
