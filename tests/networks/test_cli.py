"""simdnn inspect and simdnn run of a model file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

from simdnn.cli import main  # noqa: E402
from tests.networks.models import small_cnn  # noqa: E402

SHAPE = ["--shape", "x=2,3,12,12"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "net.onnx").write_bytes(small_cnn(soft=False).SerializeToString())
    return str(tmp_path / "net.onnx")


def test_inspect(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", path]) == 0
    text = capsys.readouterr().out
    assert "parameters 3,114" in text and "N = 1, which the model leaves open" in text and "1 Conv" in text
    assert main(["inspect", path, *SHAPE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["macs"] == 2 * (12 * 12 * 8 * 27 + 2880) and found["unsupported"] == {}
    assert main(["inspect", path, *SHAPE, "--nodes"]) == 0
    assert "2x8x12x12" in capsys.readouterr().out


def test_run(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modes = ["--modes", "f32,bf16,int8-vnni,f16,fpmath-bf16"]
    assert main(["run", path, *SHAPE, *modes, "--json", "-o", str(tmp_path / "out.csv")]) == 0
    rows = {row["mode"]: row for row in json.loads(capsys.readouterr().out)["totals"]}
    assert list(rows) == ["f32", "bf16", "int8-vnni", "f16", "fpmath-bf16"]
    assert rows["f32"]["max_abs_error"] == 0 and rows["f32"]["speed_up"] == 1
    assert rows["f16"]["sqnr_db"] > 50 and rows["int8-vnni"]["sqnr_db"] > 25 and rows["fpmath-bf16"]["sqnr_db"] > 35
    assert (tmp_path / "out.csv").read_text().count("\n") == 6
    np.savez(tmp_path / "data.npz", x=np.ones((1, 3, 12, 12), np.float32))
    assert main(["run", path, "--feeds", str(tmp_path / "data.npz"), "--modes", "f32"]) == 0
    assert "data.npz" in capsys.readouterr().out
    assert main(["run", path, *SHAPE, "--no-values"]) == 0
    assert "conv:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shape", "x=a"], "NAME=1,3,224,224"),
        (["--shape", "y=1,2"], "shape for 'y'"),
        (["--shape", "x=1,3,-8,8"], "of 1,3,-8,8; sizes of at least 0 are needed"),
        (["--layers", "zz*", *SHAPE], "layers='zz*' matches none of"),
        (["--feeds", "none.npz"], "none.npz holds no feeds (No such file or directory); an .npz is needed"),
        (["--feeds", __file__], "it is no file of NumPy's"),
        (["--recipe", "{}"], "holds no recipe (no 'modes')"),
    ],
)
def test_wrong_usage(
    path: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "{}" in words:
        (tmp_path / "recipe.json").write_text("{}")
        words = ["--recipe", str(tmp_path / "recipe.json")]
    assert main(["run", path, "--modes", "f32", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_shapes_and_feeds_belong_to_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "digits", *SHAPE]) == 2
    assert "--shape is for MODEL.onnx" in capsys.readouterr().err
    assert main(["inspect", "nothing.onnx"]) == 2
    assert "no model file" in capsys.readouterr().err


def test_a_mode_that_would_change_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The f32 model must not be shown under the name of another mode."""
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 4]) for name in ("x", "y")]
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["y"])]
    axis = onnx.numpy_helper.from_array(np.array(0), "axis")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [axis])
    path = tmp_path / "sums.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), path)
    modes = "f32,bf16,f16,s8-weights,int8-s8-vnni"
    assert main(["run", str(path), "--machine", "zen4", "--modes", modes, "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    rows = {row["mode"]: row for row in content["totals"]}
    assert content["rows"] == content["totals"]
    for mode in ("f16", "bf16"):
        assert rows[mode]["refused"].startswith(f"nothing here can be {mode} (running sums lose")
    for mode in ("s8-weights", "int8-s8-vnni"):
        assert "there is no Conv, MatMul or Gemm" in rows[mode]["refused"]
