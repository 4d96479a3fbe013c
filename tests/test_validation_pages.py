"""docs/validation: a page a subject with three headings, long tables as data, all reached from the first page."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

import isa_models
import simdnn
from benchmarks import recipes
from simdnn.networks.precision import MODES
from workloads import REAL_NETWORKS

FOLDER = Path(__file__).parents[1] / "docs" / "validation"
SUBJECTS = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
DATA = sorted(path.name for path in (FOLDER / "data").glob("*.csv"))
MOST_LINES, MOST_ROWS = 400, 25  # of a page, of a table in it


@pytest.mark.parametrize("name", SUBJECTS)
def test_page(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^## (.*)$", text) == ["Where it is right", "Where it is wrong", "What follows"]
    assert all(part.strip() for part in re.split(r"(?m)^#+ .*$", text)[1:])
    assert text.count("\n") < MOST_LINES
    tables = re.findall(r"(?m)(?:^\|.*\n)+", text)
    assert all(table.count("\n") - 2 <= MOST_ROWS for table in tables)


def test_the_first_page_names_all() -> None:
    text = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert sorted({found for found in re.findall(r"\]\(([\w-]+)\.md\)", text)}) == SUBJECTS
    for row in re.findall(r"(?m)^\|(?!---).*$", text)[1:]:
        cells = [cell.strip() for cell in row[1:-1].split("|")]
        assert len(cells) == 6 and all(cells[1:]), row  # compared with what, cases, error, when, how to repeat


@pytest.mark.parametrize("name", DATA)
def test_data(name: str) -> None:
    """Every row has every column, and a page links to the table beside the command that makes it."""
    with (FOLDER / "data" / name).open(newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    assert len(set(head)) == len(head) and all(head) and rows
    assert {len(row) for row in rows} == {len(head)}
    (page,) = (text for path in FOLDER.glob("*.md") if f"(data/{name})" in (text := path.read_text(encoding="utf-8")))
    assert f"All {len(rows)} rows: [data/{name}]" in page and re.search(r"`(?:simdnn|python\s-m)[^`]*`", page)


def test_recipes_that_are_kept_are_those_of_the_table() -> None:
    """docs/validation/tuning.md: cycles and loss as they are shown, modes that the machines have, each layer once."""
    text = (FOLDER / "tuning.md").read_text(encoding="utf-8")
    shown: dict[tuple[str, str], tuple[str, str]] = {}
    network = ""
    for row in re.findall(r"(?m)^\|(.*)\|$", text):
        cells = [cell.strip().replace("−", "-") for cell in row.split("|")]
        if len(cells) == 10 and cells[1].startswith("`"):
            network = re.sub(r"`|,.*", "", cells[0]) or network
            shown[network, cells[1].strip("`")] = cells[6], cells[7]
    assert len(shown) == 16
    found = recipes.kept()
    assert {"minilm", "llm"} <= set(found) <= set(REAL_NETWORKS)
    for name, machines in found.items():
        for machine, one in machines.items():
            for cell, value in zip(shown[name, machine], (one["cycles"] / 1e6, one["loss"]), strict=True):
                digits = len(cell.partition(".")[2])
                assert abs(float(cell) - value) < 0.51 * 10**-digits, f"{name} on {machine}: {cell}, {value}"
            modes = recipes.recipe(one["layers"])
            assert len(modes) == sum(map(len, one["layers"].values()))
            assert all(MODES[mode].isa(isa_models.machine(machine)) for mode in one["layers"])


def test_what_a_search_chose_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "KEPT", tmp_path / "recipes.json")
    tuned = simdnn.tune("cancer", machine=["zen4", "clx"], modes=["f32", "int8-vnni"], max_loss=0.01)
    (tmp_path / "found.json").write_text(json.dumps({**json.loads(tuned.to_json()), "model": "ocr"}), encoding="utf-8")
    recipes.main("keep", str(tmp_path / "found.json"))
    found = recipes.kept()["ocr"]
    assert list(found) == ["zen4", "clx"]
    for row, machine in tuned.front[tuned.front["chosen"]]["machine"].items():
        assert recipes.recipe(found[machine]["layers"]) == tuned.recipe(int(row))


def test_runs_of_values_are_those_of_the_table() -> None:
    """The sums of docs/validation/values.md come out of its table."""
    with (FOLDER / "data" / "values-onednn.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    text = (FOLDER / "values.md").read_text(encoding="utf-8")
    products, primitives = (
        [list(map(int, re.findall(r"\d+", row))) for row in re.findall(r"(?m)^\| \*\*all\*\*(.*)$", text)][which]
        for which in (0, 1)
    )
    for shown, seeds in ((products, (20267001,)), (primitives, (20261216, 20261218))):
        met = [row for row in rows if row["set"] in [f"seed {seed}" for seed in seeds]]
        assert shown == [sum(int(row[name]) for row in met) for name in list(rows[0])[5:]]
