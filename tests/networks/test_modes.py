"""A model in its modes: what a row says is what was computed, of models in f32 and of models stored in integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static  # noqa: E402

import isa_models  # noqa: E402
import simdnn  # noqa: E402
from simdnn.cli import main  # noqa: E402
from simdnn.networks.modes import run_model  # noqa: E402
from simdnn.networks.precision import choose  # noqa: E402
from tests.effort import one_in  # noqa: E402
from tests.networks import peer  # noqa: E402

KINDS = ("QDQ-s8", "QDQ-u8", "QOperator-s8", "QOperator-u8")
FEEDS = {"img": np.random.default_rng(3).normal(size=(1, 3, 16, 16)).astype(np.float32)}


class Data(CalibrationDataReader):  # type: ignore[misc]  # of an untyped package
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.batches = iter([{"img": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> Any:
        return next(self.batches, None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small network with an open batch: in f32, and as onnxruntime's quantizer stores it."""
    rng = np.random.default_rng(0)

    def held(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)

    node = helper.make_node
    nodes = [
        node("Conv", ["img", "w1", "b1"], ["c1"], "c1", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], "r1"),
        node("Conv", ["r1", "w2", "b2"], ["c2"], "c2", pads=[1] * 4),
        node("Relu", ["c2"], ["r2"], "r2"),
        node("GlobalAveragePool", ["r2"], ["g"], "g"),
        node("Flatten", ["g"], ["f"], "f"),
        node("Gemm", ["f", "w3", "b3"], ["l"], "fc", transB=1),
        node("Softmax", ["l"], ["y"], "sm"),
    ]
    constants = [
        held("w1", 16, 3, 3, 3),
        held("b1", 16),
        held("w2", 16, 16, 3, 3),
        held("b2", 16),
        held("w3", 10, 16),
        held("b3", 10),
    ]
    ports = [helper.make_tensor_value_info(n, 1, ["N", *dims]) for n, dims in (("img", [3, 16, 16]), ("y", [10]))]
    graph = helper.make_graph(nodes, "cnn", ports[:1], ports[1:], constants)
    folder = tmp_path_factory.mktemp("models")
    found = {kind: folder / f"{kind}.onnx" for kind in ("f32", *KINDS)}
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), found["f32"])
    for kind in KINDS:
        form, source = kind.split("-")
        quantize_static(
            found["f32"],
            found[kind],
            Data(),
            quant_format=QuantFormat[form],
            per_channel=True,
            activation_type=QuantType.QInt8 if source == "s8" else QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    return found


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    assert main(["run", *words, "--json"]) == 0
    return {row["mode"]: row for row in json.loads(capsys.readouterr().out)["totals"]}


def compared(path: Path, machine: str, *modes: str) -> Any:
    chosen, _ = choose(isa_models.machine(machine), modes)
    return run_model(path, FEEDS, chosen, machine=machine).totals.set_index("mode")


@pytest.mark.parametrize("kind", KINDS)
def test_an_integer_model_is_run_as_onnxruntime_does(models: dict[str, Path], kind: str) -> None:
    wanted = peer.session(models[kind].read_bytes()).run(None, FEEDS)[0]
    np.testing.assert_array_equal(simdnn.load(models[kind]).run(FEEDS, **peer.ALIKE).outputs["y"], wanted)


@one_in(2)
@pytest.mark.parametrize("kind", ["QDQ-s8", "QOperator-u8"])
def test_an_integer_model_has_no_f32(models: dict[str, Path], kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With VNNI the model as stored is exact; without it, the lossy rows are those that differ from exact sums."""
    rows = rows_of(capsys, str(models[kind]), "--machine", "icx", "--modes", "f32,int8-fast,int8-exact,int8-vnni")
    assert list(rows) == ["as stored", "int8-fast", "int8-exact"]
    assert "int8-vnni would be this very run" in rows["as stored"]["note"]
    assert rows["as stored"]["computes"] == kind[-2:] or rows["as stored"]["computes"] == "s8"
    assert rows["as stored"]["max_abs_error"] == rows["int8-exact"]["max_abs_error"] == 0
    assert rows["as stored"]["speed_up"] == 1 and rows["int8-fast"]["speed_up"] < 1
    lossy = rows["int8-fast"]
    assert lossy["saturated_outputs"] > 0 if kind[-2:] == "u8" else "halved weights" in lossy["departures"]


def test_modes_that_are_shown_are_taken_as_typed(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = str(models["QDQ-u8"])
    shown = rows_of(capsys, path, "--machine", "skx", "--modes", "int8-fast,int8-exact")
    typed = rows_of(capsys, path, "--machine", "skx", "--modes", ",".join(shown))
    assert "as stored" in shown and list(typed) == list(shown)
    assert list(rows_of(capsys, path, "--machine", "skx", "--modes", "as stored", "--no-values")) == ["as stored"]
    assert main(["run", str(models["f32"]), "--modes", "as stored"]) == 2
    assert "mode 'as stored' of a model in floats, which has none" in capsys.readouterr().err


def test_a_machine_without_vnni_loses_and_says_so(models: dict[str, Path]) -> None:
    table = compared(models["QDQ-u8"], "skx", "f32", "int8-fast", "int8-exact")
    assert list(table.index) == ["as stored", "int8-exact"]
    assert table.loc["as stored", "saturated_outputs"] > 0 and table.loc["int8-exact", "saturated_outputs"] == 0
    assert table.loc["int8-exact", "max_abs_error"] == 0 < table.loc["int8-exact", "cycles"]
    assert "int8-fast would be this very run" in table.loc["as stored", "note"]


@one_in(2)
@pytest.mark.parametrize("kind", ["QDQ-s8", "QOperator-u8"])
def test_modes_that_are_one_have_one_row(
    models: dict[str, Path], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(rows_of(capsys, str(models[kind]), "--machine", "b580", "--modes", "f32,int8-vnni")) == ["as stored"]
    assert list(rows_of(capsys, str(models[kind]), "--modes", "int8-vnni")) == ["as stored"]
    assert main(["run", str(models[kind]), "--machine", "b580", "--modes", "f32,int8-vnni"]) == 0
    text = capsys.readouterr().out
    assert "stored in integers" in text and "its own graph with exact sums" in text and "against f32" not in text


def test_a_gpu_without_integers_is_judged_by_exact_sums(models: dict[str, Path]) -> None:
    """V100 computes the products in f32 here; the reference must not be what it computes."""
    row = compared(models["QDQ-u8"], "v100", "f32").loc["as stored"]
    assert row["computes"] == "f32" and row["note"].count("node 'c1' (Conv) is computed in f32") == 1
    exact = simdnn.load(models["QDQ-u8"]).run(FEEDS, machine="icx").outputs["y"].astype(np.float64)
    with pytest.warns(RuntimeWarning, match="is computed in f32"):
        met = simdnn.load(models["QDQ-u8"]).run(FEEDS, machine="v100").outputs["y"]
    assert row["max_abs_error"] == np.abs(met - exact).max()


def test_an_f32_model(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    modes = "f32,int8-vnni,int8-fast,fpmath-tf32"
    rows = rows_of(capsys, str(models["f32"]), "--machine", "zen4", "--modes", modes)
    assert list(rows) == modes.split(",")
    assert rows["int8-vnni"]["note"] == "its ranges are from the very data that it is judged on"
    assert "changes nothing" in rows["fpmath-tf32"]["note"] and rows["f32"]["note"] == ""
    assert rows["int8-fast"]["saturated_outputs"] > 0 == rows["int8-vnni"]["saturated_outputs"]
    assert [rows[mode]["computes"] for mode in ("f32", "int8-vnni")] == ["f32", "s8"]


@pytest.mark.parametrize("kind", ["f32", "QDQ-s8"])
def test_costs_alone_are_those_of_the_modes(
    models: dict[str, Path], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(models[kind]), "--machine", "icx", "--modes", "f32,int8-fast,int8-vnni"]
    priced, run = rows_of(capsys, *words, "--no-values"), rows_of(capsys, *words)
    assert list(priced) == list(run)
    for mode, row in priced.items():
        assert row["cycles"] == run[mode]["cycles"] and "max_abs_error" not in row


def test_open_sizes_are_1_and_said(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = str(models["f32"])
    assert main(["run", path, "--modes", "f32"]) == 0
    assert "; N = 1, which the model leaves open (--shape)" in capsys.readouterr().out
    assert main(["run", path, "--no-values"]) == 0 and "N = 1" in capsys.readouterr().out
    assert main(["run", path, "--no-values", "--shape", "img=2,3,16,16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["taken_as_1"] == []
    assert main(["inspect", path]) == 0
    macs = 16 * 16 * 16 * 9 * (3 + 16) + 160
    assert f"MACs       {macs:,}; N = 1, which" in capsys.readouterr().out
    with pytest.raises(simdnn.InvalidArgument, match=r"as in \{'img': \(1, 3, 16, 16\)\}"):
        simdnn.load(path).estimate(machine="zen4")


def test_an_error_of_a_size_taken_tells_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture of open height cannot be 1 high for every network."""
    x = helper.make_tensor_value_info("x", 1, [1, 2, "H", "W"])
    y = helper.make_tensor_value_info("y", 1, None)
    weights = numpy_helper.from_array(np.ones((4, 2, 3, 3), np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], "c")], "g", [x], [y], [weights])
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert main(["run", str(path), "--modes", "f32"]) == 2
    error = capsys.readouterr().err
    assert "H = W = 1, which the model leaves open" in error and error.count("\n") == 1
    assert main(["inspect", str(path)]) == 0 and "no shapes" in capsys.readouterr().out


def test_rows_a_node_in_each_mode(models: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--layers of a model: which node costs the time, and which the quality; sums are the totals."""
    words = ["run", str(models["f32"]), "--machine", "skx", "--modes", "f32,int8-fast,fpmath-bf16", "--json"]
    files = [tmp_path / "rows.csv", tmp_path / "picture.png"]
    assert main([*words, "--layers", "*", "-o", str(files[0]), "--plot", str(files[1])]) == 0
    content = json.loads(capsys.readouterr().out)
    rows = content["layers"]
    assert {"layer", "op", "mode", "implementation", "cycles", "max_abs_error", "saturated_outputs"} <= rows[0].keys()
    for total in content["totals"]:
        mine = [row for row in rows if row["mode"] == total["mode"]]
        assert sum(row["cycles"] for row in mine) == pytest.approx(total["cycles"])
        assert mine[-1]["max_abs_error"] == total["max_abs_error"]  # the last node gives the output
        assert total["worst_layer_max_abs_error"] == max(row["max_abs_error"] or 0 for row in mine)
    assert any(row["saturated_outputs"] for row in rows if row["mode"] == "int8-fast")
    assert all(row["max_abs_error"] == 0 for row in rows if row["mode"] == "f32")
    assert files[0].read_text().count("\n") == 1 + len(rows) + 3 and files[1].stat().st_size
    assert main([*words, "--layers", "c1"]) == 0
    assert {row["layer"] for row in json.loads(capsys.readouterr().out)["layers"]} == {"c1"}
    assert main(words) == 0 and json.loads(capsys.readouterr().out)["layers"] == []


def test_a_math_mode_of_some_nodes(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(models["f32"]), "--machine", "zen4", "--modes", "fpmath-bf16", "--layers", "*", "--json"]
    assert main([*words, "--fpmath-layers", "c2"]) == 0
    rows = {row["layer"]: row for row in json.loads(capsys.readouterr().out)["layers"]}
    assert {name for name, row in rows.items() if row["compute_dtype"] == "bf16"} == {"c2"}
    assert main([*words, "--fpmath-layers", "nothing*"]) == 2
    assert "matches none of the layers; they are c1" in capsys.readouterr().err


@one_in(2)
@pytest.mark.parametrize("kind", KINDS)
def test_tables_fit_a_terminal(models: dict[str, Path], kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(models[kind]), "--machine", "icx", "--layers", "*"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if "  " in line]
    assert max(map(len, table)) <= 120
