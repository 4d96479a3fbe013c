"""Progress goes through one mechanism: a line where somebody looks, the caller's function, or nothing."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import simdnn
import workloads
from simdnn import progress, study
from simdnn.networks import tables
from simdnn.primitives.checks import keywords
from simdnn.progress import shown

ROOT = Path(__file__).parents[1]
SPACE = {"study": {"kind": "matmul"}, "fixed": {"machine": "zen4", "n": 8, "k": 8}, "axes": {"m": [1, 8]}}


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of standard error; no fixture, as pytest captures anew before it calls a test."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.delenv("SIMDNN_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "_BEAT", 0.005)
    return found


def shows(terminal: Terminal, text: str) -> bool:
    """Whether a text comes within a minute: the line is another thread's, which may wait for a processor."""
    end = time.monotonic() + 60
    while text not in terminal.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    return text in terminal.getvalue()


def slow(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    """Points of a study that take until the line tells of the one before."""
    from simdnn.study import exploration

    plain, begun = exploration.outcome, []

    def late(*given: Any) -> Any:
        assert not begun or shows(terminal, "machine=zen4")
        begun.append(given)
        return plain(*given)

    monkeypatch.setattr(exploration, "outcome", late)


def test_a_line_is_shown_in_a_terminal_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    with progress.shown() as told:
        told(0, 2, "first")
        assert shows(terminal, "0/2 first")
        monkeypatch.setattr(progress, "_SILENT", 0.0)
        assert shows(terminal, "0/2 first (0 s)")  # for so long nothing more was told
        told(1, 2, "second")
        with progress.shown() as inner:  # somebody around tells already
            inner(5, 9, "inside")
    assert "1/2 second" in terminal.getvalue() and "inside" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r" + " " * 79 + "\r")


def test_a_line_tells_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.0, 100.0, 104.0, 160.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(seconds))
    line = progress.ProgressLine(as_terminal(monkeypatch))
    texts = []
    for done in (0, 0, 1, 30):  # the pace counts from the last time that nothing was done
        line(done, 90, "points")
        texts.append(line.text)
    line.close()
    assert texts[2:] == ["1/90 points", "30/90 points, about 2 min left"]


def test_what_is_soon_done_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 60.0)
    study.explore(SPACE)
    assert terminal.getvalue() == ""


def test_nothing_in_a_pipe_where_it_is_turned_off_or_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    assert progress.watched()
    for off in (
        lambda m: m.setenv("SIMDNN_PROGRESS", "0"),
        lambda m: m.setattr(sys, "stderr", io.StringIO()),
        lambda m: m.setattr(sys, "stderr", None),
        lambda m: m.setattr(progress.multiprocessing, "parent_process", lambda: object()),
    ):
        with monkeypatch.context() as changed:
            off(changed)
            assert not progress.watched()
    with progress.shown(False) as told:
        told(0, 1, "nobody")
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_a_notebook_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delenv("SIMDNN_PROGRESS", raising=False)
    for name, seen in (("ZMQInteractiveShell", True), ("TerminalInteractiveShell", False)):
        shell = type(name, (), {})()
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert progress.watched() is seen


def test_a_study_shows_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    with monkeypatch.context() as changed:
        slow(changed, terminal)
        study.explore(SPACE, jobs=1)
    assert "machine=zen4" in terminal.getvalue()
    terminal.truncate(0)
    study.explore(SPACE, progress=False)
    assert "machine=zen4" not in terminal.getvalue()


def test_every_long_work_tells_the_caller_s_function(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from tests.networks.models import small_cnn

    feeds = [{"x": np.zeros((1, 3, 12, 12), np.float32)}]
    table = workloads.Workload(
        "one", "", "", (workloads.MatmulLayer("a", 1, 8, 8), workloads.MatmulLayer("b", 2, 8, 8))
    )
    stored = simdnn.quantize_onnx(small_cnn(), feeds)
    works = {
        "explore": lambda told: study.explore(SPACE, progress=told),
        "run_layers": lambda told: tables.run_layers(table, modes=["f32"], values=False, progress=told),
        "invariance": lambda told: simdnn.invariance(
            "matmul", over={"m": [1, 2]}, machine="zen4", n=8, k=8, progress=told
        ),
        "blame": lambda told: simdnn.blame(small_cnn(), feeds, mode="fpmath-bf16", machine="zen4", progress=told),
        "lint": lambda told: simdnn.lint(small_cnn(), machine="zen4", modes=["f32"], progress=told),
        "porting": lambda told: simdnn.porting(stored, feeds, machines=["hsw", "icx"], progress=told),
        "tune": lambda told: simdnn.tune(
            small_cnn(), machine="zen4", feeds=feeds, modes=["f32", "fpmath-bf16"], progress=told
        ),
    }
    for name, work in works.items():
        heard: list[tuple[int, int, str]] = []
        work(lambda *given, heard=heard: heard.append(given))
        assert heard and all(0 <= done <= total and what for done, total, what in heard), name
        with pytest.raises(simdnn.InvalidArgument, match="progress=5; a function is needed"):
            work(5)


def test_every_command_that_may_take_long_shows_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a command does, its line is on standard error alone, and the results stand unbroken."""
    onnx = pytest.importorskip("onnx")
    from simdnn.cli import main
    from tests.networks.models import small_cnn

    model, stored = str(tmp_path / "model.onnx"), str(tmp_path / "stored.onnx")
    onnx.save(small_cnn(), model)
    onnx.save(simdnn.quantize_onnx(small_cnn(), [{"x": np.ones((1, 3, 12, 12), "f4")}]), stored)
    result = str(tmp_path / "run.json")
    commands = {
        "lint": ([model, "--machine", "zen4,spr"], "0/"),
        "bench": (["--matmul", "8x8:8x8", "16x8:8x8"], "1/2 "),
        "run": ([model, "--machine", "zen4", "--modes", "f32,bf16", "-o", result], "0/"),
        "run of integers": ([stored, "--machine", "hsw,icx"], "0/2 icx"),
        "inspect": ([model], "0/"),
        "report": ([result, "-o", str(tmp_path / "page.html")], "0/"),
        "invariance": (["matmul", "m=1,2", "machine=zen4", "n=8", "k=8"], "0/"),
    }
    for name, (words, first) in commands.items():
        command = name.split()[0]
        _, plain = main([command, *words]), capsys.readouterr().out
        with monkeypatch.context() as changed:
            terminal = as_terminal(changed)
            eager(changed)
            main([command, *words, *(["--force"] if "-o" in words else [])])
        assert first in terminal.getvalue(), name
        assert terminal.getvalue().endswith("\r" + " " * 79 + "\r"), name
        assert capsys.readouterr().out == plain, name


def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is drawn at once, whatever is told."""
    plain = progress.ProgressLine.__call__

    def drawn(line: progress.ProgressLine, done: int, total: int, what: str) -> None:
        plain(line, done, total, what)
        line._draw()

    monkeypatch.setattr(progress.ProgressLine, "__call__", drawn)


def test_no_other_module_draws_progress() -> None:
    """Standard error is written over in `simdnn.progress` alone."""
    modules = [path for path in (ROOT / "simdnn").rglob("*.py") if 'print(f"\\r' in path.read_text(encoding="utf-8")]
    assert [path.relative_to(ROOT).as_posix() for path in modules] == ["simdnn/progress.py"]


NUMBERS = np.ones((4, 64), np.float32), np.ones((64, 16), np.float32)


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (lambda: simdnn.matmul(*NUMBERS, machine="icx", engine="reference"), "instructions in NumPy"),
        (lambda: simdnn.matmul(*NUMBERS, machine="icx").error_bound, "instructions, each with its error bound"),
    ],
)
def test_what_numpy_executes_is_told(monkeypatch: pytest.MonkeyPatch, run: Any, what: str) -> None:
    """The readable engine and bounds of errors, which take seconds on a layer."""
    heard: list[tuple[int, int, str]] = []
    monkeypatch.setattr(progress, "_SOON", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(progress, "watched", lambda: True)
    monkeypatch.setattr(progress.ProgressLine, "__call__", lambda line, *given: heard.append(given))
    run()
    done, total, _ = zip(*(one for one in heard if one[2] == what), strict=True)
    assert done == tuple(sorted(done)) and done[-1] == total[-1]


def test_a_call_without_a_list_tells_that_it_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function of the package that takes keywords; what is told within it has the line meanwhile."""
    terminal = as_terminal(monkeypatch)
    drawn, plain = threading.Event(), progress.ProgressLine._draw
    monkeypatch.setattr(progress.ProgressLine, "_draw", lambda line: (plain(line), drawn.set()))

    @keywords
    def measured(*, progress: object = None) -> None:
        assert progress is not None or drawn.wait(60)
        with shown() as told:
            told(1, 3, "parts")

    for unwatched in (False, lambda *given: None):  # who hears himself wants no line
        measured(progress=unwatched)
    assert terminal.getvalue() == ""
    measured()
    assert re.search(r"measured, \d+ s", terminal.getvalue()) and "1/3 parts" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r" + " " * 79 + "\r")
    simdnn.matmul(*NUMBERS, machine="icx", engine="reference")  # who is asked next draws nothing of before
    assert progress._CLOCK._lines == set()
