"""Tables, help and lines of bench within the width of a narrow terminal; elsewhere a row is a line."""

from __future__ import annotations

import io
import os

import pytest

from simdnn import cli
from simdnn.cli import folding, main

WIDTH = 80
LINE = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_vnni,undef,src:u8::blocked:ab::f0 "
    "wei:s8::blocked:ab::f0 dst:s32::blocked:ab::f0,,,16x64:64x32,1.80"
)
BENCH = ["bench", "--matmul", "--machine=icx,clx", "--mode=P", "--dt=u8:s8:s32", "--isa=avx512_core,avx512_core_vnni"]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of `WIDTH` columns, to commands."""
    for module in ("bench", "output", "run_show"):
        monkeypatch.setattr(f"simdnn.cli.{module}.terminal_width", lambda: WIDTH)


@pytest.mark.parametrize(
    "words",
    [
        ["list", "machines"],
        ["list", "isa"],
        ["list", "kernels"],
        ["list", "instructions"],
        ["machines", "show", "zen4"],
        ["run", "digits", "--machine", "icx", "--no-values"],
        [*BENCH, "16x64:64x32"],
    ],
    ids=" ".join,
)
def test_tables_fit(words: list[str], narrow: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "  " in line]  # rows, no prose
    assert len(lines) > 3 and max(map(len, lines)) <= WIDTH


def test_a_terminal_is_asked_for_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "66")
    assert folding.terminal_width() is None  # pytest's own stream
    monkeypatch.setattr("sys.stdout", Terminal())
    assert folding.terminal_width() == 66


@pytest.mark.parametrize("command", [name for name, *_ in cli.COMMANDS])
def test_help_is_no_wider_than_a_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    try:
        main([command, "--help"])
    except SystemExit as end:
        assert not end.code
    text = capsys.readouterr().out
    assert text.startswith("usage: simdnn") and max(map(len, text.splitlines())) < WIDTH


def test_pasted_lines_of_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard input is a log; a line as an argument tells how it is read."""
    assert main(["bench", LINE]) == 2 and "--from-verbose -" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((LINE + os.linesep).encode() + b"\xff\n")))
    assert main(["bench", "--from-verbose", "-", "--machine", "icx"]) == 0
    assert "lines:1 predicted:1" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", None)
    for words in (["bench", "--from-verbose", "-"], ["analyze", "-"]):
        assert main(words) == 2 and "standard input is closed" in capsys.readouterr().err
