"""Timelines: valid trace events, nothing at two places of one track at once, within the run's time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simdnn
from simdnn.cli import main
from simdnn.study import trace


@pytest.mark.parametrize(
    "machine,threads,places",
    [("a770", 1, {"core 0", "core 0 systolic", "core 0 send", "L2 0"}), ("zen4", 4, {"core 0", "core 3"})],
)
def test_cores_pipes_and_channels(machine: str, threads: int, places: set[str]) -> None:
    found = simdnn.estimate("matmul", m=512, n=512, k=512, dt="s8:s8:s32", machine=machine, threads=threads)
    events = trace.events(found)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert places <= set(names.values())
    tracks: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] + event["dur"] <= found.seconds * 1e6 * 1.001
            tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) <= set(names)
    for spans in tracks.values():
        ordered = sorted(spans)
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(ordered, ordered[1:], strict=False))


def test_stages_have_names_and_tiles_are_whole() -> None:
    found = simdnn.estimate("matmul", m=4096, n=4096, k=4096, dt="f16:f16:f32", machine="a770", wei_tag="ab")
    events = [event for event in trace.events(found) if event["ph"] == "X"]
    assert {event["name"] for event in events} == {"to src", "to wei", "gemm:xe_hpg_dpas", "systolic", "vector", "send"}
    copies = [event for event in events if event["name"].startswith("to ")]
    assert max(e["ts"] + e["dur"] for e in copies) <= min(e["ts"] for e in events if e["name"] == "systolic")
    assert len(json.dumps(events)) < 1e6  # 8 rounds of 32 tiles, and some of the copies'


def test_the_commands_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    words = ["--matmul", "--mode=P", "--machine=zen4", "--dt=u8:s8:s32", "64x64:64x64", "128x64:64x64"]
    assert main(["bench", f"--trace={path}", *words]) == 0
    assert "64x64:64x64" in capsys.readouterr().out
    written: dict[str, Any] = json.loads(path.read_text())
    processes = {event["pid"] for event in written["traceEvents"]}
    assert processes == {0, 1} and written["displayTimeUnit"] == "ns"
    assert main(["bench", "--trace"]) == 2


@pytest.mark.parametrize("odd", ["core \u00b2", "core " + "9" * 5000, "core", "core x", ""])
def test_places_of_a_file_that_number_no_core_come_behind_cores(odd: str) -> None:
    assert sorted([odd, "core 10", "core 2 DPAS", "core 2"], key=trace.order) == [
        "core 2",
        "core 2 DPAS",
        "core 10",
        odd,
    ]
