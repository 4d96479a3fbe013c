"""The documents hold: links lead somewhere, Python and commands run as they stand."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import isa_models
from simdnn import cli
from simdnn.cli.options import comma_list
from simdnn.networks.precision import MODES
from simdnn.networks.real import modes_of
from tests import documents
from tests.documents import DOCUMENTS, ROOT, Command, Listed, Session
from workloads import REAL_NETWORKS

LISTED = [command for document in DOCUMENTS for command in documents.listed(document)]
SHOWN = [
    command.words
    for document in DOCUMENTS
    for block in documents.blocks(document)
    if block.language == "console"
    for command in documents.commands(block)
]
#: commands of a network, in lists, in blocks and within sentences, wherever they are whole
OF_NETWORKS = [
    command
    for document in DOCUMENTS
    for command in (*documents.listed(document), *documents.inline(document))
    if command.words[1] in ("run", "tune", "lint")
]
#: commands of lists that take more than a few seconds: `make test-all` runs them, `make test` reads their options
SLOW = ("run resnet50", "run bert-base", "run digits", "tune")
#: pages that take two seconds and more, in the same way; the first page and the first hour are run
SLOW_HOWTOS = ("tune", "invariance", "gpu", "errors", "vnni", "porting", "pytorch", "sklearn", "tensorflow", "quantize")
SLOW_PAGES = ("docs/tour.md", *(f"docs/howto/{name}.md" for name in SLOW_HOWTOS))


def outside_fences(document: str | Path) -> str:
    return re.sub(r"(?ms)^```.*?^```", "", (ROOT / document).read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """The names that a document's headings have as places of links."""
    headings = re.findall(r"(?m)^#+ (.*)$", outside_fences(document))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


MOST_LINES = 400
CHANGELOG_LINES = 300  # what is done joins its subject there, not a list in the order of landing


def test_pages_are_no_longer_than_a_reader_takes() -> None:
    lengths = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") for name in DOCUMENTS}
    assert lengths["CHANGELOG.md"] <= CHANGELOG_LINES
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_rows_of_tables_have_the_cells_of_their_head(name: str) -> None:
    """A bar within code or behind a backslash is none of the table's."""
    for part in re.findall(r"(?m)(?:^ *\|.*\n)+", outside_fences(name)):
        cells = {row: len(re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in part.strip().splitlines()}
        assert set(cells.values()) == {next(iter(cells.values()))}, cells


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_fences(name)):
        if "://" in target:
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.sweep] * (name in SLOW_PAGES))
        for name in DOCUMENTS
        if documents.blocks(name) and name != "CONTRIBUTING.md"
    ],
)
def test_blocks_run(name: str, tmp_path: Path) -> None:
    """Each document as a session; CONTRIBUTING.md is run as the package that it describes (tests/test_plugins.py)."""
    pytest.importorskip("onnx")
    differ: list[str] = []

    def note(command: Command, found: str) -> None:
        differ.append(f"$ {' '.join(command.words)}\nshown:\n{command.shown}\nfound:\n{found}")

    session = Session(name, tmp_path)
    session.run(note)
    if name == "README.md":
        src, weights = (session.names[which].astype(int) for which in ("src", "weights"))
        assert (session.names["exact"].output == src @ weights).all()
    assert not differ, "\n".join([*differ, f"`python -m tests.documents {name}` writes what is found"])


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c, marks=[pytest.mark.sweep] * " ".join(c.words[1:]).startswith(SLOW))
        for c in {" ".join(c.words): c for c in LISTED}.values()  # each once
        if not documents.reason(c.words) and c.words not in SHOWN  # which runs with its document
    ],
    ids=lambda c: f"{c.document}:{c.line}",
)
def test_listed_command_runs(command: Listed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "k.o" in command.words:
        from tests.assembly.test_analyze import object_file

        (tmp_path / "k.o").write_bytes(object_file(("dot", "1: vaddps zmm0, zmm0, zmm1\ndec rcx\njnz 1b\nret")))
    documents.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    found, status = documents.output(command.words[1:])
    assert status == 0 and found, found


@pytest.mark.parametrize("command", LISTED, ids=lambda c: f"{c.document}:{c.line}")
def test_listed_command_is_one(command: Listed) -> None:
    """Commands that no test runs are checked, too: their name, and its options where argparse reads them."""
    name, *words = command.words[1:]
    assert name in {known for known, *_ in cli.COMMANDS}
    if name not in ("bench", "explain"):
        cli._parser(name).parse_args([name, *words])


def _named(command: Listed) -> tuple[dict[str, list[str]], list[Any]]:
    """The modes that a command of a network names, by machine, and those that it asks for."""
    name, *words = command.words[1:]
    args = cli._parser(name).parse_args([name, *words])
    wanted = comma_list(args.modes) if isinstance(args.modes, str) else args.modes or []
    machines = comma_list(args.machine) if isinstance(args.machine, str) else args.machine or []
    network = REAL_NETWORKS.get(words[0]) if name == "run" else None
    known = modes_of(network) if network else MODES
    return {one: [m for m in wanted if known[m].isa(isa_models.machine(one))] for one in machines}, wanted


@pytest.mark.parametrize("command", OF_NETWORKS, ids=lambda c: f"{c.document}:{c.line}")
def test_machines_have_the_modes_that_a_command_names(command: Listed) -> None:
    """Of commands that no test runs, too: one machine has them all, of several each mode is one's."""
    able, wanted = _named(command)
    met = [mode for modes in able.values() for mode in modes]
    assert set(met) == set(wanted) or not able, f"{command.words}: {able}"


def test_a_mode_that_a_machine_lacks_is_found() -> None:
    def words(line: str) -> Listed:
        return Listed("", 0, line.split())

    able, wanted = _named(words("simdnn tune llm --machine clx --modes f32,bf16,s8-weights"))
    assert able == {"clx": ["f32", "s8-weights"]} and wanted == ["f32", "bf16", "s8-weights"]
    assert _named(words("simdnn tune ocr --machine zen4,clx --max-loss 0.005")) == ({"zen4": [], "clx": []}, [])
    assert {"ocr", "sr", "minilm", "llm"} <= {c.words[2] for c in OF_NETWORKS if c.words[1] == "tune"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_headings_go_down_a_level_at_a_time(document: str) -> None:
    """`make docs` warns of others, and fails."""
    levels = [len(found) for found in re.findall(r"(?m)^(#+) ", outside_fences(document))]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_commands_of_other_programs_are_known() -> None:
    """Indented lines that begin as commands do are among the exceptions, each of which is needed; targets exist."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    met = set()
    for document in DOCUMENTS:
        begins = r"make|python3?|pip|dask|source|\.venv/\S+"
        for line in re.findall(rf"(?m)^ {{4}}((?:{begins}) .*)$", outside_fences(document)):
            start = next((start for start in documents.OTHERS if line.startswith(start)), None)
            assert start, f"{document}: {line}"
            met.add(start)
            if start == "make ":
                assert re.search(rf"(?m)^{re.escape(line.split()[1])}:", makefile), line
    assert met == set(documents.OTHERS)


def test_exceptions_are_needed() -> None:
    """Each reason for not running a command is one of a command that a document shows."""
    shown = [" ".join(words[1:]) for words in (*SHOWN, *(command.words for command in LISTED))]
    assert [start for start in documents.ELSEWHERE if not any(said.startswith(start) for said in shown)] == []


def test_the_demo_is_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` runs this command; the end of what it prints stands in README.md, but for the picture's name."""
    (command,) = re.findall(r"(?m)^demo:.*\n\t\$\(BIN\)/simdnn (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    found, status = documents.output(command.split())
    assert status == 0
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"(?ms)`make demo` ends with this:\n\n(.*?)\n\n(?=\S)", text)
    wanted = [line.strip() for line in shown.splitlines()]
    assert wanted == [line.strip() for line in found[found.index(wanted[0]) :].splitlines()][: len(wanted)]


def test_the_studies_that_are_shown() -> None:
    """docs/studies.md shows the file that ships, and other parts of such files."""
    shown, *parts = (block.text for block in documents.blocks("docs/studies.md") if block.language == "toml")
    assert tomllib.loads(shown) == tomllib.loads((ROOT / "docs/studies/zen4_units.toml").read_text(encoding="utf-8"))
    for part in parts:
        assert list(tomllib.loads(part)) == ["axes"]


def test_rules_that_code_cites_stand_in_their_pages() -> None:
    """docs/numerics.md leads from each number to the page that states the rule."""
    pages = {
        int(number): re.findall(r"\]\(([\w.#-]*)\)", row)
        for row in re.findall(r"(?m)^\| \d.*$", outside_fences("docs/numerics.md"))
        for number in row.split("|")[1].split(",")
    }
    cited = {
        int(number)
        for path in (ROOT / "simdnn").rglob("*.py")
        for found in re.findall(r"numerics\.md,\s+rules? ([\d, toand]+)", path.read_text(encoding="utf-8"))
        for number in re.findall(r"\d+", found)
    }
    assert len(cited) > 10 and cited <= set(pages) == set(range(1, len(pages) + 1))
    for number, links in pages.items():
        named = [
            (ROOT / "docs" / (link.partition("#")[0] or "numerics.md")).read_text(encoding="utf-8") for link in links
        ]
        assert any(re.search(rf"(?m)^(\*\*|## )Rule {number}\b", text) for text in named), number
