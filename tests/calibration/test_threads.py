"""Threads of this host: which processors are cores, what a team runs, and the report of `verify --timing --threads`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from isa_models.errors import InvalidArgument
from isa_models.isa import host_caps
from isa_models.machines.loader import cpu_machine as machine
from simdnn import numerics
from simdnn.calibration import identity, kernels, sampler, scaling
from simdnn.calibration.behaviour import Behaviour
from simdnn.calibration.cores import chosen, cores, judged, share_a_core
from simdnn.calibration.identity import Identity
from simdnn.calibration.team import Ready, Team
from simdnn.cli import main
from simdnn.numerics.compiled import cuts

timed = pytest.mark.skipif(
    not (sampler.available() and hasattr(os, "sched_setaffinity") and "avx2" in host_caps()),
    reason="pins threads (Linux) and runs an AVX2 kernel",
)


def topology(folder: Path, siblings: dict[int, str]) -> Path:
    """A folder like /sys/devices/system/cpu."""
    for cpu, told in siblings.items():
        path = folder / f"cpu{cpu}" / "topology"
        path.mkdir(parents=True)
        (path / "thread_siblings_list").write_text(told + "\n")
    return folder


@pytest.mark.parametrize(
    ("siblings", "expected"),
    [
        ({0: "0", 1: "1"}, [(0,), (1,)]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, [(0, 2), (1, 3)]),
        ({0: "0-1", 1: "0-1"}, [(0, 1)]),
        ({}, [(0,), (1,)]),
    ],
)
def test_processors_of_a_core(
    siblings: dict[int, str], expected: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(siblings) or {0, 1}, raising=False)
    system = topology(tmp_path, siblings)
    assert cores(system) == expected
    assert chosen(len(expected), system) == [cpus[0] for cpus in expected]
    with pytest.raises(InvalidArgument, match=f"may use {len(expected)} core"):
        chosen(len(expected) + 1, system)


def test_a_restricted_process_sees_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3}, raising=False)
    assert cores(topology(tmp_path, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})) == [(2,), (3,)]


def test_the_loop_alone_does_not_condemn() -> None:
    assert judged(0, 0, 1000) is None  # never undisturbed: a neighbour
    assert judged(1000, 1, 1000) is None  # at the full rate beside the other once: neither
    assert judged(1000, 0, 0) is None  # never seen beside the other: both seldom ran at once
    assert judged(1000, 0, 1000) is True


@timed
def test_a_processor_shares_a_core_with_itself() -> None:
    cpu = min(os.sched_getaffinity(0))
    assert share_a_core(cpu, cpu) in (True, None)


@timed
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_team_computes_what_the_engine_does(size: int) -> None:
    """Several threads on one processor, so that any host can."""
    cpu = min(os.sched_getaffinity(0))
    target = machine("zen4")
    shape, variant, problem = next(item for item in kernels.problems(target) if item[1].name == "int8 exact avx2")
    kernel, _ = kernels.build(target, variant, problem)
    buffers = kernels.inputs(kernel, problem)
    given = {t.name: buffers[t.name] for t in kernel.program.tensors if t.kind == "input"}
    expected = numerics.run(kernel.program, given)
    spent = Ready(kernel.program, buffers, Team([cpu] * size)).run(2)
    assert len(spent) == size and all(each.whole > 0 for each in spent)
    for tensor in kernel.program.tensors:
        if tensor.kind == "output":
            assert np.array_equal(buffers[tensor.name], expected[tensor.name].reshape(-1))


@pytest.mark.parametrize(("extent", "threads"), [(1, 4), (7, 2), (7, 3), (64, 64), (5, 8)])
def test_cuts_cover_all_iterations_once(extent: int, threads: int) -> None:
    parts = cuts(extent, threads)
    assert [i for a, b in parts for i in range(a, b)] == list(range(extent))
    assert len(parts) <= threads and max(b - a for a, b in parts) == -(-extent // min(threads, extent))


@pytest.fixture
def frame() -> pd.DataFrame:
    rows = [("64x64x64", "f32", 100.0, 52.0, 1.0, 104.0, 100.0), ("1x8x8", "f32", 9.0, 5.0, 1.8, 8.0, 5.0)]
    names = ["shape", "kernel", "predicted_alone", "predicted", "scaling", "measured_alone", "measured"]
    found = pd.DataFrame(rows, columns=names).assign(spread=0.01, quiet=[9, 2], ghz=2.0)
    return found.assign(predicted_scaling=found["predicted_alone"] / found["predicted"])


def test_the_report(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(identity, "identify", lambda _: Identity(machine("zen4"), Behaviour(), 9, 10, ()))
    monkeypatch.setattr(scaling, "compare", lambda *_: frame)
    for module in ("cores", "scaling"):  # of any host: the command asks ahead
        monkeypatch.setattr(f"simdnn.calibration.{module}.chosen", lambda count: list(range(count)))
    monkeypatch.setattr(scaling, "share_a_core", lambda one, other: one == 0 and other == 2)
    picture, table = tmp_path / "threads.png", tmp_path / "threads.csv"
    assert main(["verify", "--timing", "--threads", "2", "-o", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "f32: 1 shape, 1.00 times as fast in the median, predicted 1.92" in said and "worst +92.3%" in said
    assert "pinned to processors 0, 1, which the system calls cores of their own, and a loop" in said
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert main(["verify", "--timing", "--threads", "3", "-o", str(table)]) == 0
    assert "0 and 2 share one" in capsys.readouterr().out
    assert list(pd.read_csv(table)["scaling"]) == [1.0, 1.8]
    assert main(["verify", "--timing", "--threads", "2", "--json"]) == 0


@pytest.mark.parametrize("arguments", [["--threads", "2"], ["--timing", "--threads", "0"]])
def test_threads_that_say_nothing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    assert "--threads" in capsys.readouterr().err
