"""Files that processes keep for each other."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from isa_models.host import file_cache
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
    for number in range(file_cache._MOST + 3):
        keep(f"{number}", b"data")
        os.utime(tmp_path / "simdnn" / f"{number}", (number, number))
        assert kept("0") == b"data"  # asked for each time
    names = {file.name for file in (tmp_path / "simdnn").iterdir()}
    assert "models" in names and len(names) == file_cache._MOST + 1 and "0" in names and not {"1", "2", "3"} & names
