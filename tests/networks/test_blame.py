"""simdnn.blame: the layer that makes an error is the one that takes it away when it is restored."""

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
from tests.networks.models import model  # noqa: E402

FEEDS = {"x": np.random.default_rng(0).integers(0, 4, size=(64, 64)).astype(np.float32)}


def chain(names: tuple[str, str] = ("clean", "lossy")) -> onnx.ModelProto:
    """A product by powers of two, which loses nothing in bf16 or f16, and one by thirds."""
    rng = np.random.default_rng(1)
    constants = {
        "a": np.eye(64, dtype=np.float32) * 2,
        "b": (rng.integers(1, 100, size=(64, 64)) / 3).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], names[0]),
        helper.make_node("MatMul", ["h", "b"], ["y"], names[1]),
    ]
    return model(nodes, {"x": [64, 64]}, ["y"], constants)


@pytest.mark.parametrize(("mode", "machine"), [("fpmath-bf16", "zen4"), ("bf16", "zen4"), ("s4-weights", "zen4")])
def test_the_lossy_layer_is_to_blame(mode: str, machine: str) -> None:
    frame = simdnn.blame(chain(), FEEDS, mode=mode, machine=machine)
    assert list(frame.columns) == ["node", "op", "sqnr_db", "share"]
    assert frame["node"].iloc[0] == "lossy" and frame["share"].iloc[0] > 0.9
    assert frame["sqnr_db"].iloc[0] > frame.attrs["sqnr_db"] and frame.attrs["mode"] == mode


def test_one_restored_of_two_is_what_the_other_gives_alone() -> None:
    """With the second restored, what is left is the model with the first alone in int8."""
    feeds = {"x": np.random.default_rng(2).normal(size=(64, 64)).astype(np.float32)}
    proto, calibrate = chain(), [feeds]
    frame = simdnn.blame(proto, feeds, mode="int8-vnni", machine="icx").set_index("node")
    f32 = simdnn.load(proto).run(feeds, machine="icx").outputs["y"].astype(np.float64)

    def sqnr(*only: str) -> Any:
        narrow = simdnn.load(simdnn.quantize_onnx(proto, calibrate, only=only))
        met = narrow.run(feeds, machine="icx", attr=simdnn.Attr(exact_int8=True)).outputs["y"].astype(np.float64)
        error = ((met - f32) ** 2).sum()
        return 10 * np.log10((f32**2).sum() / error), error

    assert frame.loc["lossy", "sqnr_db"] == pytest.approx(sqnr("clean")[0])
    assert frame.attrs["sqnr_db"] == pytest.approx(sqnr("*")[0])
    assert frame.loc["clean", "share"] == pytest.approx(1 - sqnr("lossy")[1] / sqnr("*")[1])


def test_names_are_no_patterns() -> None:
    frame = simdnn.blame(chain(("a[0]", "b,*")), FEEDS, mode="fpmath-bf16", machine="zen4")
    assert frame["node"].iloc[0] == "b,*" and frame["share"].iloc[0] == 1


def test_refusals() -> None:
    with pytest.raises(simdnn.InvalidArgument, match=r"feeds=\[\]; a dict of arrays"):
        simdnn.blame(chain(), [], mode="bf16", machine="zen4")
    with pytest.raises(simdnn.InvalidArgument, match="labels of shape"):
        simdnn.blame(chain(), FEEDS, mode="bf16", labels=[1])
    classes = model([helper.make_node("ArgMax", ["x"], ["y"], axis=-1)], {"x": [64, 64]}, ["y"], {})
    with pytest.raises(simdnn.InvalidArgument, match="no output holds floats"):
        simdnn.blame(classes, FEEDS, mode="bf16")
    with pytest.raises(simdnn.UnknownName, match="bf17"):
        simdnn.blame(chain(), FEEDS, mode="bf17")
    with pytest.raises(simdnn.Unimplemented, match="stored in integers"):
        simdnn.blame(simdnn.quantize_onnx(chain(), [FEEDS]), FEEDS, mode="int8-vnni")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(chain(), tmp_path / "net.onnx")
    words = ["run", str(tmp_path / "net.onnx"), "--machine", "zen4", "--blame", "fpmath-bf16"]
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["mode"] == "fpmath-bf16" and content["layers"][0]["node"] == "lossy"
    assert main(words) == 0
    assert "lossy" in capsys.readouterr().out
    np.savez(tmp_path / "feeds.npz", **FEEDS)
    f32 = simdnn.load(chain()).run(FEEDS, machine="zen4").outputs["y"].argmax(axis=-1)
    np.save(tmp_path / "labels.npy", f32)
    judged = ["--feeds", str(tmp_path / "feeds.npz"), "--labels", str(tmp_path / "labels.npy")]
    assert main([*words[:-1], "s4-weights", *judged, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    by_node = {row["node"]: row["accuracy"] for row in content["layers"]}
    assert content["accuracy"] == by_node["clean"] < by_node["lossy"] == content["f32_accuracy"] == 1
    assert main([*words[:-1], "s4-weights", *judged]) == 0
    assert f"accuracy {content['accuracy']:.2%}; f32's 100.00%" in capsys.readouterr().out
    assert main([*words, "--labels", judged[-1]]) == 2
    assert "--labels is for" in capsys.readouterr().err
    assert main([*words, "--modes", "f32"]) == 2
    assert "--modes is for" in capsys.readouterr().err
