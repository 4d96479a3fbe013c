"""Ctrl-C on the command line: one line, status 130, and nothing that still runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from simdnn import workers
from simdnn.cli import listing, main
from tests.effort import one_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of a group of processes")

STUDY = """
[study]
kind = "matmul"
[axes]
machine = ["zen4", "icx"]
m = [1, 2, 3, 4]
[fixed]
n = 64
k = 64
"""

_AS_WORKERS_BEGIN = """
import os, signal, sys, threading, time
from multiprocessing import active_children
from simdnn.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs behind
def ring():
    while not active_children():
        time.sleep(0.001)
    time.sleep(float(sys.argv[2]))
    os.killpg(os.getpgrp(), signal.SIGINT)
threading.Thread(target=ring, daemon=True).start()
status = main(["study", sys.argv[1], "--jobs", "2"])
print(status, len(active_children()))
"""


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False, start_new_session=True
    )


@one_in(3)
@pytest.mark.parametrize("after", ["0", "0.1", "0.4"])
def test_workers_that_have_just_been_started_say_nothing(tmp_path: Path, after: str) -> None:
    """A terminal sends Ctrl-C to all of them, while they still import what they need."""
    path = tmp_path / "space.toml"
    path.write_text(STUDY)
    done = ended("-c", _AS_WORKERS_BEGIN, str(path), after)
    told = "simdnn: interrupted", f"simdnn: interrupted; what is done is kept in {path.with_suffix('.jsonl')}"
    assert done.stdout == "130 0\n" and done.stderr.endswith("\n") and done.stderr[:-1] in told


_WHILE_ONE_STARTS = """
import os, signal, sys, threading
from multiprocessing import active_children, util
from simdnn.cli import main

number = int(sys.argv[2])
start = util.spawnv_passfds
def ringing(path, arguments, passed):
    pid = start(path, arguments, passed)
    if not any("resource_tracker" in word for word in map(os.fsdecode, arguments)):
        thread = threading.Thread(target=os.kill, args=(os.getpid(), number))  # one that blocks no signal
        thread.start()
        thread.join()
    return pid
util.spawnv_passfds = ringing
signal.signal(signal.SIGINT, signal.default_int_handler)
status = main(["study", sys.argv[1], "--jobs", "2"])
print(status, len(active_children()))
"""


@one_in(2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_worker_that_has_been_told_nothing_yet(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """It would read the end of a pipe, and print a traceback."""
    path = tmp_path / "space.toml"
    path.write_text(STUDY)
    done = ended("-c", _WHILE_ONE_STARTS, str(path), str(number.value))
    told = "simdnn: interrupted", f"simdnn: interrupted; what is done is kept in {path.with_suffix('.jsonl')}"
    assert done.stdout == f"{status} 0\n" and done.stderr.endswith("\n") and done.stderr[:-1] in told


def test_a_signal_that_waited_is_heard_where_the_work_failed() -> None:
    """Workers that hear it end sooner, which breaks the team while this process gives it more to do."""
    waits = threading.Event()

    def ring() -> None:
        waits.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    def give() -> None:
        waits.set()
        bell.join()
        while signal.SIGINT in signal.sigpending():  # until a thread that does not block it has it
            time.sleep(0.01)
        raise BrokenProcessPool

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    bell = threading.Thread(target=ring)  # it blocks no signal
    bell.start()
    try:
        with pytest.raises(KeyboardInterrupt), workers._deaf():
            give()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_command_that_still_loads_is_interrupted() -> None:
    """NumPy would print a traceback and raise `ImportError`: the signal comes where its own modules are loaded."""
    script = """
import signal, sys
from importlib.abc import MetaPathFinder
from simdnn.cli import main

class Ringing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy.lib":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Ringing())
sys.exit(main(["tune", "digits"]))
"""
    done = ended("-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "simdnn: interrupted\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_line_and_the_status_of_the_signal(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        signal.raise_signal(number)
        time.sleep(10)

    monkeypatch.setattr(listing, "main", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["list"]) == status
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "simdnn: interrupted\n")
