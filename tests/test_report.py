"""A report is one page that holds everything: tables, pictures, and where its figures come from."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument
from simdnn.cli import main
from simdnn.reporting.provenance import provenance
from tests.effort import one_in

MODE = {"f32": (1.0, None, 0.0), "int8-fast": (1.7, 18.8, 5.9), "int8-vnni": (3.5, 41.5, 0.7)}
TOTALS = [
    {
        "layer": "total",
        "count": 2,
        "mode": mode,
        "speed_up": speed,
        "cycles": 8000 / speed,
        "time_us": 3 / speed,
        "sqnr_db": ratio,
        "max_abs_error": error,
        "saturated_share": 0.0683,
        "confidence": "estimated",
        "refused": "",
    }
    for mode, (speed, ratio, error) in MODE.items()
]
LAYERS = [row | {"layer": name, "count": 1} for name in ("conv1", "<b>fc</b>") for row in TOTALS]
RUN = {"workload": "mine", "machine": "icx", "layers": LAYERS, "totals": TOTALS, "left_out": {}}
POINTS = [
    {"machine": name, "m": m, "time_us": 1.0 + m, "gops": 10.0 * m, "confidence": "documented", "refused": ""}
    for name in ("zen4", "narrow")
    for m in (1, 16, 64)
]
STUDY = {"study": "space", "axes": ["machine", "m"], "points": POINTS}


class Page(HTMLParser):
    """The content of a page: its tables' rows, its pictures, and every address in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.pictures: list[bytes] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.addresses.append(str(value)[:40])
            if tag == "img" and name == "src":
                self.pictures.append(base64.b64decode(str(value).partition(",")[2]))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def made(content: Any, folder: Path) -> tuple[str, Page]:
    (folder / "result.json").write_text(json.dumps(content), encoding="utf-8")
    path = simdnn.report(folder / "result.json", folder / "report.html")
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


@pytest.mark.parametrize(("content", "pictures"), [(RUN, 2), (STUDY, 1), ({"answers": POINTS}, 0)])
def test_page(content: dict[str, Any], pictures: int, tmp_path: Path) -> None:
    """Every row is there, pictures are in the file, and nothing is fetched from elsewhere."""
    names = ["zen4", "icx", "narrow"]
    text, page = made(content | {"provenance": provenance(names)}, tmp_path)
    assert len(page.pictures) == pictures and all(one.startswith(b"\x89PNG") for one in page.pictures)
    assert all(address.startswith("data:") for address in page.addresses)
    assert not re.search(r"url\(|@import|<script|https?:", text)
    for rows in (content.get(key, []) for key in ("layers", "totals", "points", "answers")):
        for row in rows:
            assert any(
                {str(row.get("mode", row["machine"] if "machine" in row else "")), row["confidence"]} <= set(r)
                for r in page.rows
            )
    said = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert said["simdnn"] == simdnn.__version__ and "as it is here" in said["machine zen4"]
    assert "not known here" in said["machine narrow"]
    assert "instructions of icx" in said and {"core.dispatch_slots"} <= {row[0] for row in page.rows}


@pytest.mark.parametrize("content", [{}, {"a": 1}, {"rows": []}])
def test_what_holds_no_result_makes_no_page(content: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="a report of .*has rows"):
        simdnn.report(content, tmp_path / "report.html")
    assert not [*tmp_path.iterdir()]


def test_names_are_text(tmp_path: Path) -> None:
    text, page = made(RUN, tmp_path)
    assert "<b>" not in text and any("<b>fc</b>" in row for row in page.rows)


def test_a_table_that_changed_is_told(tmp_path: Path) -> None:
    """And a file that says nothing of where it comes from."""
    old = provenance(["icx"]) | {"machines": {"icx": "0123456789abcdef"}}
    text, _ = made(RUN | {"provenance": old}, tmp_path)
    assert "digest 0123456789abcdef, not that of the table here" in text
    text, _ = made(RUN, tmp_path)
    assert "digest not recorded" in text


def test_results_of_python(tmp_path: Path) -> None:
    r = simdnn.matmul(np.full((2, 64), 255, np.uint8), np.full((64, 16), 127, np.int8), machine="skx")
    page = Page(simdnn.report(r, tmp_path / "r.html").read_text(encoding="utf-8"))
    said = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert said["implementation"] == r.implementation and "as it is here" in said["machine skx"]
    assert said["program"] == r.provenance["program"]
    assert {row[0] for row in page.rows} >= {"vpmaddubsw"} or any(
        "vpmaddubsw" in cell for row in page.rows for cell in row
    )


def test_a_primitive_of_nodes_is_named_by_its_operator(tmp_path: Path) -> None:
    """A network has several."""
    found = json.loads(simdnn.softmax(np.ones((2, 8), np.float32), machine="zen4").to_json())
    assert "<h1>Softmax on zen4</h1>" in made(found, tmp_path)[0]
    found["nodes"].append(found["nodes"][0] | {"op": "Relu"})
    assert "<h1>network on zen4</h1>" in made(found, tmp_path)[0]
    assert "<h1>network on zen4</h1>" in made(found | {"nodes": [5, {"op": []}]}, tmp_path)[0]


def test_what_commands_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(
        '[study]\nkind = "matmul"\n[axes]\nmachine = ["zen4", "narrow"]\nm = [1, 4]\n[fixed]\nn = 64\nk = 64\n'
        '[machines.narrow]\nbase = "zen4"\ncore.dispatch_slots = 4\n'
    )
    assert main("bench --matmul --machine=zen4,icx --mode=P --dt=u8:s8:s32 4x64:64x64 -o bench.json".split()) == 0
    assert main("study space.toml --jobs 1 -o study.json".split()) == 0
    capsys.readouterr()
    for name, machines in {"bench.json": {"zen4", "icx"}, "study.json": {"zen4", "narrow"}}.items():
        assert set(json.loads((tmp_path / name).read_text())["provenance"]["machines"]) == machines
    for name in ("bench.json", "study.json", "space.jsonl"):
        assert main(["report", name]) == 0
        assert capsys.readouterr().out == f"report: {Path(name).with_suffix('.html')}\n"
        page = Page((tmp_path / name).with_suffix(".html").read_text(encoding="utf-8"))
        assert any(row and "as it is here" in row[-1] for row in page.rows)
    text = (tmp_path / "space.html").read_text(encoding="utf-8")
    assert "zen4 with core.dispatch_slots = 4" in text  # whose name the file does not have


@one_in(3)
@pytest.mark.parametrize(
    ("written", "words", "message"),
    [
        ("{", "report bad.json", "no file of results"),
        ('{"a": 1}', "report bad.json", "no file of results"),
        ('{"results": "simdnn study", "format": 1}\n{"key": 1}\n', "report bad.json", "no file of results"),
        ("[1, 2]", "report bad.json", "no file of results"),
        (json.dumps(RUN), "report bad.json -o page.pdf", "'.pdf'"),
        (json.dumps(RUN), "report none.json", "cannot be read"),
        (json.dumps(RUN), "report bad.json -o theirs.html", "was not written by simdnn"),
    ],
)
def test_what_makes_no_report(
    written: str,
    words: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text(written)
    (tmp_path / "theirs.html").write_text("<!doctype html><p>mine")
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err
    assert main(["report", "bad.json", "-o", "own.html"]) == (0 if written.startswith('{"workload') else 2)
    assert not (tmp_path / "own.html").exists() or main(["report", "bad.json", "-o", "own.html"]) == 0  # its own again
