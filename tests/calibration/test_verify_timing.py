"""`simdnn verify --timing`: the report; the timing itself is this host's affair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from isa_models.isa import host_caps
from isa_models.machines.loader import cpu_machine as machine
from simdnn.calibration import identity, kernels, sampler
from simdnn.calibration.behaviour import Behaviour
from simdnn.calibration.identity import Identity
from simdnn.cli import main


@pytest.fixture
def frame() -> pd.DataFrame:
    rows = [("64x64x64", "f32", 100.0, 110.0), ("64x64x64", "bf16", 50.0, 52.0), ("1x8x8", "f32", 9.0, 8.0)]
    found = pd.DataFrame(rows, columns=["shape", "kernel", "predicted", "measured"])
    return found.assign(spread=0.01, quiet=[9, 9, 2], **{"predicted/measured": found["predicted"] / found["measured"]})


def test_the_report(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "compare", lambda *_: frame)
    monkeypatch.setattr(identity, "identify", lambda _: Identity(machine("spr"), Behaviour(2.0), 9, 10, ()))
    picture = tmp_path / "timing.png"
    assert main(["verify", "--timing", "-o", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "predicted by the clock of spr" in said and "this host behaves like spr" in said
    assert "another core" not in said and "f32: 1 shape, mean error -9.1%" in said
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert main(["verify", "--timing", "--machine", "zen4", "--json"]) == 0
    assert '"machine": "zen4"' in capsys.readouterr().out
    assert main(["verify", "--timing", "--machine", "zen4"]) == 0
    assert "ratios compare it with another core, zen4" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--only", "512"], ["--timing", "--only", "no such shape"]])
def test_arguments_that_say_nothing(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(identity, "identify", lambda _: Identity(machine("spr"), Behaviour(), 9, 10, ()))
    assert main(["verify", *arguments]) == 2
    assert "--only" in capsys.readouterr().err


def test_a_core_that_is_never_quiet(
    frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose clock is meant must be said then; where it is, the kernels are timed all the same."""
    monkeypatch.setattr(kernels, "compare", lambda *_: frame)
    monkeypatch.setattr(identity, "behaviour", Behaviour)
    monkeypatch.setattr(identity, "instruction_figures", lambda *_: {})
    assert main(["verify", "--timing"]) == 1 and "name one (--machine)" in capsys.readouterr().err
    assert main(["verify", "--timing", "--machine", "zen4"]) == 0
    assert "nothing tells which machine it is" in capsys.readouterr().out


@pytest.mark.skipif(not sampler.available() or "avx2" not in host_caps(), reason="runs an AVX2 kernel")
def test_one_row() -> None:
    shape, variant, problem = next(item for item in kernels.problems(machine("zen4")) if item[1].name == "f32 avx2")
    row: dict[str, Any] = kernels.row(machine("zen4"), shape, variant, problem, 1)
    assert row["predicted"] > 0 and row["measured"] > 0


@pytest.mark.parametrize(("name", "has"), [("zen4", set()), ("spr", {"f16", "bf16 amx", "int8 amx"})])
def test_rows_are_of_kernels_that_the_machine_has(name: str, has: set[str]) -> None:
    """A Zen 4 has no tiles and no sums of f16; what a machine cannot run is left out, not an error."""
    newer = {variant.name for variant in kernels.NEWER}
    found = {variant.name for _, variant, _ in kernels.wanted(machine(name), "64x64x64")}
    assert found & newer == has and "f32" in found


def test_without_avx512_all_shapes_are_timed_under_avx2() -> None:
    """A Zen 3 has single rows, long sums and convolutions too, not the two sizes alone that stand beside wider ones."""
    names = {variant.name for variant in kernels.NARROW}
    for shape in ("1x768x3072", "16x8192x8192", "conv1"):
        assert {variant.name for _, variant, _ in kernels.wanted(machine("zen3"), shape)} == names
