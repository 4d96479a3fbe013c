"""Away from Linux on x86-64 all works but what measures the host, which says so.

The other system is played: modules, functions and files that Windows and macOS on ARM lack are taken away before the
package is imported, and the processor calls itself an ARM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from simdnn.cli import main

ROOT = Path(__file__).parents[1]
ELSEWHERE = """
import builtins, contextlib, io, json, os, platform, sys

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "geteuid", "killpg", "sysconf"):
    vars(os).pop(name, None)
opens = io.open


def without_linux(file, *args, **kwargs):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "no such file", str(file))
    return opens(file, *args, **kwargs)


builtins.open = io.open = without_linux
platform.machine, platform.processor = lambda: "arm64", lambda: ""

from simdnn.cli import main

done = []
for words in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words.split())
        except SystemExit as end:
            status = end.code
    done.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""
COMPUTES = "bench --matmul --json --machine=zen4 --dt=u8:s8:s32,bf16 8x64:64x16"
NEED_NO_HOST = (
    "explain vpmaddubsw --a 255,255 --b 127,127",
    "list machines",
    "study docs/studies/zen4_units.toml --results {folder}/found.jsonl --jobs 1",
)
MEASURE = ("calibrate", "verify --timing --threads 2")


@dataclass(frozen=True)
class Done:
    """The end of a command: its status, and the text that it wrote."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All commands as they run elsewhere, in one process."""
    asked = (COMPUTES, *NEED_NO_HOST, *MEASURE)
    words = [command.format(folder=tmp_path_factory.mktemp("elsewhere")) for command in asked]
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *words], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return {command: Done(*done) for command, done in zip(asked, json.loads(ran.stdout), strict=True)}


def test_values_and_cycles_are_those_of_linux(elsewhere: dict[str, Done], capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel's bits by portable code, and its cost."""
    there = elsewhere[COMPUTES]
    assert there.status == 0, there.err
    assert main(COMPUTES.split()) == 0
    assert json.loads(there.out) == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", NEED_NO_HOST, ids=lambda command: command.split()[0])
def test_commands_that_need_no_host(command: str, elsewhere: dict[str, Done]) -> None:
    done = elsewhere[command]
    assert (done.status, done.err) == (0, "") and done.out


@pytest.mark.parametrize("command", MEASURE)
def test_measuring_says_what_it_takes(command: str, elsewhere: dict[str, Done]) -> None:
    done = elsewhere[command]
    assert done.status == 1 and "Linux" in done.err and "Traceback" not in done.err
