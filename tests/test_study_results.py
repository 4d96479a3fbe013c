"""A study's results under hostile conditions: several writers, full disks, kills, and files that are none."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isa_models import SimdnnError
from simdnn.study import results
from simdnn.study.points import Outcome
from simdnn.study.results import Results

WRITER = """
import sys
from pathlib import Path
from simdnn.study.points import Outcome
from simdnn.study.results import Results
kept = Results(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    kept.add(f"{sys.argv[2]}{i}", Outcome({"refused": "", "cycles": float(i)}, {"simdnn": "1"}), {"i": i})
kept.close()
"""
STUDY = """
[study]
kind = "matmul"
[axes]
m = [1, 2, 3, 4, 5, 6, 7, 8]
[fixed]
machine = "zen4"
n = 32
k = 64
"""


def row(value: float = 1.0) -> Outcome:
    return Outcome({"refused": "", "cycles": value}, {"simdnn": "1"})


def opened(path: Path, first: str = "", count: int = 0) -> subprocess.Popen[str]:
    """A process that has opened the file and writes when it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), first, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    return process


def keys(path: Path) -> set[str]:
    """Of the rows that a file has; each line of it must be whole."""
    head, *lines = path.read_bytes().splitlines()
    assert b'"format": 1' in head
    return {json.loads(line)["key"] for line in lines}


def test_two_processes_on_one_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    writers = [opened(path, name, 200) for name in "ab"]  # both have opened the empty file
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert [(writer.communicate(timeout=300)[1], writer.returncode) for writer in writers] == [("", 0)] * 2
    assert keys(path) == {f"{name}{i}" for name in "ab" for i in range(200)}


def test_a_process_that_is_killed_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl"
    writer = opened(path, "a", 10**6)
    assert writer.stdin is not None
    writer.stdin.write("\n")
    writer.stdin.flush()
    while path.stat().st_size < 20_000:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=300)
    kept = Results(path)
    kept.close()
    assert len(kept.known) > 50 and kept.unreadable == 0


def test_a_line_cut_off_is_dropped_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    command = [sys.executable, "-m", "simdnn", "study", str(tmp_path / "s.toml"), "--jobs", "1"]
    assert subprocess.run(command, timeout=300).returncode == 0
    capfd.readouterr()
    path = tmp_path / "s.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert subprocess.run(command, timeout=300).returncode == 0
    assert "s.jsonl was cut off" in capfd.readouterr().err
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_what_another_study_writes_while_one_runs_stays(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    one, other = Results(path), Results(path)
    one.add("a", row(), {})
    with path.open("ab") as file:
        file.write(b'{"key": "torn')  # a third one was killed here
    other.add("b", row(), {})
    one.forget(["a"])
    other.forget(["b"])
    one.add("c", row(), {})
    one.close()
    other.close()
    again = Results(path)
    again.close()
    assert set(again.known) == {"c"} and again.unreadable == 1
    assert again.losses == [f"left out: 1 line of {path} that cannot be read"]


class Short:
    """A file whose disk is full after some bytes; each write takes five at most."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, content: bytes) -> int:
        taken = int(self.file.write(bytes(content[: min(5, self.room)]))) if self.room else 0
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_short_writes_are_gone_on_with(tmp_path: Path) -> None:
    kept = Results(tmp_path / "short.jsonl")
    content = b"x" * 99 + b"\n"
    results._append(Short(kept._file, 10**6), content)  # type: ignore[arg-type]
    size = (tmp_path / "short.jsonl").stat().st_size
    with pytest.raises(OSError, match="No space left"):
        results._append(Short(kept._file, 40), content)  # type: ignore[arg-type]
    kept.close()
    assert (tmp_path / "short.jsonl").read_bytes().endswith(b"}\n" + content)
    assert (tmp_path / "short.jsonl").stat().st_size == size


def test_a_full_disk_is_said_and_leaves_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    path = tmp_path / "s.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "simdnn", "study", str(tmp_path / "s.toml"), "--jobs", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert done.returncode == 1 and done.stdout == ""
    assert "cannot be written on: File too large" in done.stderr and "points of this run are kept" in done.stderr
    assert 0 < len(keys(path)) < 8 and path.read_bytes().endswith(b"\n")


def test_a_file_that_is_removed_is_said(tmp_path: Path) -> None:
    path = tmp_path / "gone.jsonl"
    kept = Results(path)
    kept.add("a", row(), {})
    path.unlink()
    with pytest.raises(SimdnnError, match="removed or replaced.*1 points"):
        kept.add("b", row(), {})
    kept.close()


def test_a_lock_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "kept.jsonl"
    Results(path).close()
    monkeypatch.setattr(results, "_PATIENCE_S", 0.05)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SimdnnError, match="locked by another process"):
            Results(path)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("folder", "Is a directory"),
        ("fifo", "a file is needed"),
        ("socket", "a file is needed"),
        ("/dev/full", "No space left"),
        ("/dev/zero", ""),
        ("/dev/null", ""),
        ("/proc/version", "something else|cannot"),
        ("text", "something else"),
        ("nowhere/x.jsonl", "No such file"),
    ],
)
def test_places_that_keep_no_rows(kind: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "text":
        path.write_text("dear diary")
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)  # its name may have 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(kind)
    if not said:
        kept = Results(path)
        kept.add("a", row(), {})
        kept.close()
        return
    with pytest.raises(SimdnnError, match=said):
        Results(path)


def test_a_line_without_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    kept = Results(path)
    kept.add("a", row(), {})
    kept.close()
    with path.open("ab") as file:
        file.write(b'{"key": "' + b"x" * (3 << 20) + b'"}\n')
    kept = Results(path)
    kept.add("b", row(), {})
    kept.close()
    assert kept.unreadable == 1 and set(kept.known) == {"a", "b"}
