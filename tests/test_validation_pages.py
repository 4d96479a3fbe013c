"""docs/validation: a page a subject with three headings, long tables as data, all reached from the first page."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

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


def test_data_agrees_with_what_the_pages_say_of_it() -> None:
    """Counts and means of a page come out of its table."""
    with (FOLDER / "data" / "loops-zen4.csv").open(newline="", encoding="utf-8") as file:
        errors = [abs(float(row["error, %"])) for row in csv.DictReader(file)]
    assert (len(errors), round(sum(errors) / len(errors), 1), sum(error <= 2 for error in errors)) == (22, 2.6, 16)
    with (FOLDER / "data" / "gpu-rates.csv").open(newline="", encoding="utf-8") as file:
        near = [abs(float(row["error, %"])) < 15 for row in csv.DictReader(file)]
    assert (len(near), sum(near)) == (26, 19)
    with (FOLDER / "data" / "nvidia-rates.csv").open(newline="", encoding="utf-8") as file:
        errors = [abs(float(row["error, %"])) for row in csv.DictReader(file)]
    assert (len(errors), sum(e <= 10 for e in errors), sum(e <= 15 for e in errors)) == (103, 67, 79)
