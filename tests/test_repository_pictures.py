"""docs/images: each picture shows the table beside it, each table is what the package computes and README says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from simdnn import plot, study
from tools import draw_pictures as pictures

README = (pictures.ROOT / "README.md").read_text(encoding="utf-8")
DIGITS = 1e-5  # that tables keep
SCREENSHOTS = {"teach"}  # of a browser, which a test of the page drives; no table makes them


@pytest.mark.parametrize(
    "path",
    sorted(path for path in pictures.IMAGES.glob("*.png") if path.stem not in SCREENSHOTS),
    ids=lambda path: path.stem,
)
def test_a_picture_shows_the_table_beside_it(path: Path) -> None:
    """`make pictures` draws it again, where this fails."""
    with Image.open(path) as image:
        assert image.info.get("Description") == pictures.digest(path.stem)
        assert image.width >= 700 and len(image.convert("L").getcolors()) > 10  # something is drawn on it
    assert (
        path.with_suffix(".csv").read_text(encoding="utf-8").startswith(f"# {pictures.PICTURES[path.stem].command}\n")
    )


def test_every_picture_is_there_and_shown() -> None:
    documents = [README, *(path.read_text(encoding="utf-8") for path in (pictures.ROOT / "docs").rglob("*.md"))]
    for name in pictures.PICTURES:
        assert (pictures.IMAGES / f"{name}.png").exists() and any(f"images/{name}.png" in text for text in documents)
    assert {path.stem for path in pictures.IMAGES.iterdir()} == {*pictures.PICTURES, *SCREENSHOTS}


@pytest.mark.parametrize("name", ["roofline_zen4", "cycles_zen4", "timeline_zen4"])
def test_tables_that_take_seconds_are_computed_anew(name: str) -> None:
    """`make pictures` makes the table and the picture, where this fails."""
    same(pictures.PICTURES[name].compute(), pictures.table(name))


def test_the_studys_picture_is_of_todays_times() -> None:
    """Times alone, which take less than errors."""
    stored = pictures.table("zen4_units").set_index(["machine", "mode"])["time_us"]
    space = tomllib.loads(pictures.UNITS.read_text(encoding="utf-8"))
    space["study"]["values"] = False
    frame = study.explore(space).set_index(["machine", "mode"])["time_us"]
    pd.testing.assert_series_equal(frame, stored, rtol=DIGITS)


@pytest.mark.parametrize("weights", pictures.STORED)
def test_the_crossing_is_of_todays_cycles(weights: str) -> None:
    """One row and sixteen of a Zen 4; `tools/draw_pictures.py --compute weights_crossing` makes all of the table."""
    stored = pictures.table("weights_crossing").set_index(["machine", "m", "weights"])["cycles"]
    for m in (1, 16):
        found = pictures.crossing_cycles("zen4", m, weights)
        assert stored["zen4", m, weights] == pytest.approx(found, rel=DIGITS)


def test_the_crossing_agrees_with_the_readmes_table() -> None:
    """A language model's one token is such products nearly alone: within 3 % on a Zen 4 and 8470, 5 % on a 6248."""
    cycles = pictures.table("weights_crossing").set_index(["machine", "m", "weights"])["cycles"]
    rows = dict(re.findall(r"\| (zen4|clx|spr) \|(.*)\|\n", README.partition("| Llama 3 8B, one token ")[2]))
    assert set(rows) == {"zen4", "clx", "spr"}
    for machine, row in rows.items():
        _, bf16, _, s8, s4 = map(float, row.split("|"))
        for weights, said in (("bf16", bf16), ("s8", s8), ("s4", s4)):
            speed_up = cycles[machine, 1, "f32"] / cycles[machine, 1, weights]
            if weights != "bf16" or machine == "zen4":  # networks: f32 weights on clx, and no tiles for f32 data on spr
                assert speed_up == pytest.approx(said, rel=0.05), (machine, weights)


def test_super_resolution_is_what_the_readme_says() -> None:
    modes = pictures.table("super_resolution_zen4").set_index("mode")
    text = README.partition("super_resolution_zen4.png)")[2][:600]
    words = r"(\S+) times as fast as f32 and\s+loses (\S+) dB of (\S+); saturating int8 loses (\S+) dB.*?\((\S+) dB\)"
    said = re.search(words, text, re.DOTALL)
    assert said
    speed, lost, whole, saturating, bicubic = said.groups()
    psnr = modes["psnr_db"]
    assert f"{modes['speed_up']['int8-vnni']:.2f}" == speed and f"{psnr['f32']:.2f}" == whole
    assert f"{psnr['f32'] - psnr['int8-vnni']:.2f}" == lost and f"{psnr['f32'] - psnr['int8-fast']:.1f}" == saturating
    assert f"{psnr['bicubic']:.2f}" == bicubic


def test_the_python_of_the_page_runs() -> None:
    page = (pictures.ROOT / "docs/pictures.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?ms)^```python\n(.*?)^```", page)
    exec(compile(block, "pictures.md", "exec"), {})
    named = set(re.findall(r"`(?:plot_study\.)?((?:plot|saturation|error)_\w+)", page))
    assert {name for name in plot.__all__ if "_" in name} | {"plot_front", "plot_space", "plot_heat"} == named


def test_a_stale_picture_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table that changes, and one that the package would compute otherwise, are told."""
    for suffix in (".csv", ".png"):
        stored = pictures.IMAGES / f"timeline_zen4{suffix}"
        (tmp_path / stored.name).write_bytes(stored.read_bytes())
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    path = tmp_path / "timeline_zen4.csv"
    path.write_text(path.read_text().replace(",0,", ",1,", 1))
    with pytest.raises(AssertionError):
        test_a_picture_shows_the_table_beside_it(path.with_suffix(".png"))
    with pytest.raises(AssertionError):
        test_tables_that_take_seconds_are_computed_anew("timeline_zen4")


def same(found: pd.DataFrame, stored: pd.DataFrame) -> None:
    assert list(found.columns) == list(stored.columns) and len(found) == len(stored)
    for column in found:
        one, other = found[column].reset_index(drop=True), stored[column]
        if pd.api.types.is_numeric_dtype(other):
            np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=DIGITS)
        else:
            assert list(one) == list(other)
