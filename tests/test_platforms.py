"""What runs away from Linux on x86-64: everything but what measures the host, which says so.

The other system is played: modules, functions and files that Windows and macOS on ARM lack are taken away before the
package is imported, and the processor calls itself an ARM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ELSEWHERE = """
import builtins, io, os, platform, sys

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

sys.exit(main(sys.argv[1:]))
"""


def elsewhere(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *words], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )


def test_values_and_cycles_are_those_of_linux() -> None:
    """A kernel's bits by portable code, and its cost."""
    words = "bench --matmul --json --machine=zen4 --dt=u8:s8:s32,bf16 8x64:64x16".split()
    here = subprocess.run(
        [sys.executable, "-m", "simdnn", *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    there = elsewhere(*words)
    assert there.returncode == 0, there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)


@pytest.mark.parametrize(
    "words",
    [
        "explain vpmaddubsw --a 255,255 --b 127,127",
        "list machines",
        "study docs/studies/zen4_units.toml --results {folder}/found.jsonl --jobs 1",
    ],
    ids=lambda words: words.split()[0],
)
def test_commands_that_need_no_host(words: str, tmp_path: Path) -> None:
    done = elsewhere(*words.format(folder=tmp_path).split())
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("words", ["calibrate", "verify --timing --threads 2"])
def test_measuring_says_what_it_takes(words: str) -> None:
    done = elsewhere(*words.split())
    assert done.returncode == 1 and "Linux" in done.stderr and "Traceback" not in done.stderr
