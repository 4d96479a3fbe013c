"""Files that processes keep for each other."""

from __future__ import annotations

import ctypes
import errno
import os
import tomllib
from pathlib import Path

import pytest

from isa_models.host import file_cache, machine_code
from isa_models.host.file_cache import keep, kept
from isa_models.machines import toml_table
from isa_models.machines.shipped import machine_file
from isa_models.machines.toml_table import read_toml


def test_a_long_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is parsed, and so is one whose content was cut off where it is kept, or of which none can be kept."""
    parsed: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(toml_table.tomllib, "loads", lambda text: parsed.append(text) or loads(text))  # type: ignore[func-returns-value]
    shipped = machine_file("hsw")
    assert shipped is not None
    found = [read_toml(shipped) for _ in range(2)]
    assert found[0] == found[1] == loads(shipped.read_text()) and len(parsed) == 1
    (tmp_path / "mine.toml").write_text("day = 2026-11-28\n" + shipped.read_text())
    mine = [read_toml(tmp_path / "mine.toml") for _ in range(2)]
    assert mine[0] == mine[1] == found[0] | {"day": mine[0]["day"]} and len(parsed) == 3
    (file,) = tmp_path.glob("simdnn/*")
    file.write_bytes(file.read_bytes()[:-40])
    assert read_toml(shipped) == found[0] and len(parsed) == 4
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert read_toml(shipped) == found[0] and len(parsed) == 5


loads = tomllib.loads


def test_files_that_nobody_asks_for_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "simdnn" / "models").mkdir(parents=True)
    last = file_cache._MOST + 2
    for number in range(last + 1):
        keep(f"{number}", b"data")
        os.utime(tmp_path / "simdnn" / f"{number}", (number, number))
        assert kept("0") == b"data"  # asked for each time
    names = {file.name for file in (tmp_path / "simdnn").iterdir()}
    left = file_cache._MOST * file_cache._LEFT // file_cache._OF
    newest = {str(number) for number in range(last, last - left + 1, -1)}
    assert {"models", "0"} | newest <= names and len(names) <= file_cache._MOST + 1 and not {"1", "2", "3"} & names


def test_code_that_takes_long_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the text, and how it is compiled; code that was cut off is made anew, and what takes no time is each time."""
    made: list[object] = []
    compiled = machine_code._compiled
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "_compiled", lambda *given: made.append(given) or compiled(*given))  # type: ignore[func-returns-value]

    def answer(number: int, hasty: bool, worth_s: float = 0) -> int:
        monkeypatch.setattr(machine_code, "_WORTH_S", worth_s)
        text = f"define i32 @answer() {{\n  ret i32 {number}\n}}"
        code = machine_code.linked("answer", text, ["answer"], hasty=hasty)
        return int(ctypes.CFUNCTYPE(ctypes.c_int32)(code["answer"])())

    for number, hasty in ((7, False), (8, False), (7, True)):
        before = len(made)
        assert [answer(number, hasty) for _ in range(2)] == [number, number] and len(made) == before + 1
    file = min(tmp_path.glob(f"simdnn/{file_cache.CODE}/*.o"), key=lambda one: one.stat().st_mtime_ns)
    file.write_bytes(file.read_bytes()[:-40])
    assert answer(7, False) == 7 and len(made) == 4
    assert [answer(9, False, 1e9) for _ in range(2)] == [9, 9] and len(made) == 6


def test_nothing_is_left_of_what_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        keep("code", b"data")
    assert kept("code") is None and not [*tmp_path.glob("simdnn/*")]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners are a number where there is Unix")
def test_what_others_may_have_written_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep("code", b"data")
    assert kept("code") == b"data"
    file, own = tmp_path / "simdnn" / "code", os.getuid()
    file.chmod(0o620)
    assert kept("code") is None
    file.chmod(0o600)
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert kept("code") is None
