"""simdnn run of a person's own model: several feeds, calibration apart, labels and metrics, several machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn.cli import main  # noqa: E402
from simdnn.networks import transpile_float16  # noqa: E402
from simdnn.networks.feeds import CALIBRATED_ON_ITSELF  # noqa: E402
from simdnn.networks.modes import run_model  # noqa: E402
from tests.networks.models import model  # noqa: E402

RNG = np.random.default_rng(0)
SAMPLES = RNG.normal(size=(6, 2, 16)).astype(np.float32)
OTHERS = RNG.normal(size=(4, 2, 16)).astype(np.float32)


def classifier() -> onnx.ModelProto:
    """A product and a Relu of (2, 16): the class is the largest of 8 outputs."""
    weights = np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    return model(nodes, {"x": [2, 16]}, ["y"], {"w": weights})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(classifier(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def answers(proto: onnx.ModelProto) -> Any:
    net = simdnn.load(proto)
    return np.concatenate([net.run({"x": x}, machine="zen4").outputs["y"] for x in SAMPLES])


def totals(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    assert main(["run", *words, "--json"]) == 0
    return {row["mode"]: row for row in json.loads(capsys.readouterr().out)["totals"]}


def test_several_feeds_are_judged_as_one(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stacked, in rows without a name, or in a folder of files: the errors are those over all outputs."""
    np.savez(tmp_path / "stacked.npz", x=SAMPLES)
    np.save(tmp_path / "rows.npy", SAMPLES.reshape(12, 16))
    (tmp_path / "folder").mkdir()
    for i, sample in enumerate(SAMPLES):
        np.savez(tmp_path / "folder" / f"{i}.npz", x=sample)
    found = [
        totals(capsys, str(path), "--modes", "f32,f16", "--feeds", str(tmp_path / name))["f16"]["max_abs_error"]
        for name in ("stacked.npz", "rows.npy", "folder")
    ]
    assert found == [np.abs(answers(transpile_float16(classifier())) - answers(classifier())).max()] * 3


def test_labels_and_calibration_apart(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = answers(classifier()).argmax(axis=-1)
    labels[0] = (labels[0] + 1) % 8
    np.save(tmp_path / "labels.npy", labels)
    np.savez(tmp_path / "data.npz", x=SAMPLES)
    np.savez(tmp_path / "calib.npz", x=OTHERS)
    words = [
        "--modes",
        "f32,int8-vnni",
        "--feeds",
        str(tmp_path / "data.npz"),
        "--labels",
        str(tmp_path / "labels.npy"),
    ]
    alone = totals(capsys, str(path), *words)
    assert alone["f32"]["accuracy"] == pytest.approx(11 / 12) and CALIBRATED_ON_ITSELF in alone["int8-vnni"]["note"]
    apart = totals(capsys, str(path), *words, "--calibrate", str(tmp_path / "calib.npz"))
    assert CALIBRATED_ON_ITSELF not in apart["int8-vnni"]["note"]
    assert apart["int8-vnni"]["max_abs_error"] != alone["int8-vnni"]["max_abs_error"]
    assert main(["run", str(path), *words, "--calibrate", str(tmp_path / "calib.npz"), "--layers", "*"]) == 0
    text = capsys.readouterr().out
    assert "data.npz (6 feeds); ranges of int8 from calib.npz (4 feeds)" in text and "accuracy" in text


def test_a_metric_of_ones_own() -> None:
    feeds = [{"x": x} for x in SAMPLES]
    modes = ["f32", "f16"]
    whole = run_model(classifier(), feeds, metric=lambda outputs: float(len(outputs)))
    assert {"f32", "bf16", "int8-vnni"} <= {*whole.totals["mode"]} and str(whole.totals).startswith("mode")
    found = run_model(classifier(), feeds, modes, metric=lambda outputs: float(len(outputs))).totals
    assert found["metric"].tolist() == [6.0, 6.0]
    one = run_model(classifier(), feeds[0], modes, metric=lambda outputs: outputs["y"].max()).totals
    assert one["metric"].iloc[0] == answers(classifier())[:2].max()
    with pytest.raises(simdnn.InvalidArgument, match="metric gives None"):
        run_model(classifier(), feeds, modes, metric=lambda outputs: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(simdnn.InvalidArgument, match="labels of shape"):
        run_model(classifier(), feeds, modes, labels=[1, 2])
    for words in ("f32,f16", 3):
        with pytest.raises(simdnn.InvalidArgument, match="a list of names is needed, as \\['f32', '"):
            run_model(classifier(), feeds, words)  # type: ignore[arg-type]
    with pytest.raises(simdnn.InvalidArgument, match=r"feeds=\[\]; a dict of arrays"):
        run_model(classifier(), [], modes)


def test_several_machines_have_a_column(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(path), "--machine", "zen4,b580", "--modes", "f32,f16", "--plot", str(tmp_path / "out.png")]
    assert main([*words, "--json", "-o", str(tmp_path / "out.csv")]) == 0
    content = json.loads(capsys.readouterr().out)
    places = [(machine, mode) for machine in ("zen4", "b580") for mode in ("f32", "f16")]
    assert [(row["machine"], row["mode"]) for row in content["totals"]] == places
    assert all(row["speed_up"] == 1 for row in content["totals"] if row["mode"] == "f32")
    assert (tmp_path / "out.csv").read_text().startswith("machine,") and (tmp_path / "out.png").stat().st_size
    assert main(["run", str(path), "--machine", "skx,icx", "--modes", "f32", "--no-values"]) == 0
    text = capsys.readouterr().out
    assert "machine" in text and "skx" in text and "icx" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--calibrate", "data.npz", "--modes", "f32"], "--calibrate without a mode that takes ranges"),
        (["--labels", "data.npz"], "--labels is for MODEL.onnx with --feeds"),
        (["--feeds", "empty", "--modes", "f32"], "a folder without .npz files"),
        (["--feeds", "data.npz", "--labels", "short.npy", "--modes", "f32"], "labels of shape (3,)"),
        (["--machine", "zen4,zen9"], "zen9"),
    ],
)
def test_wrong_usage(
    path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    np.savez("data.npz", x=SAMPLES)
    np.save("short.npy", np.zeros(3, np.int64))
    Path("empty").mkdir()
    assert main(["run", str(path), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
