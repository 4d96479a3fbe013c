"""`simdnn run ocr` and its like: a made-up network shows what the runner does; the real ones run where fetched."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import simdnn
import workloads
from isa_models import SimdnnError, machine
from simdnn.cli import main
from simdnn.networks import real
from simdnn.networks.precision import MODES, choose, recipe
from workloads import RealNetwork, packages
from workloads.real import CostPhase, Data, Metric, Outputs, Picture, StoredVariant

HERE = all((packages.folder() / "ocr" / name).is_file() for name in ("recogniser.onnx", "mnist_5k.csv.gz"))
ZEN4 = machine("zen4")


def product(noise: float = 0.0) -> onnx.ModelProto:
    """y = x w, with weights that bf16 rounds."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(64, 8)) + noise
    x, y = (helper.make_tensor_value_info(n, 1, ["rows", width]) for n, width in (("x", 64), ("y", 8)))
    initializer = numpy_helper.from_array(weights.astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [initializer])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(model: onnx.ModelProto, count: int, seed: int) -> Data:
    del model
    rng = np.random.default_rng(seed)
    samples = [{"x": rng.normal(size=(4, 64)).astype(np.float32)} for _ in range(count + 1)]

    def score(answers: Sequence[Any], reference: Sequence[Any]) -> dict[str, float]:
        errors = [float(np.abs(a - r).max()) for a, r in zip(answers, reference, strict=True)]
        return {"error": max(errors), "rows": float(len(answers))}

    def picture(outputs: Outputs) -> Picture:
        return np.clip(np.abs(outputs["y"][..., None]) * 50 + np.zeros(3), 0, 255).astype(np.uint8)

    phases = (CostPhase("many", {"x": (512, 64)}, tokens=512), CostPhase("one", {"x": (1, 64)}))
    grey = np.full((4, 8, 3), 128, np.uint8)
    return Data(samples[1:], samples[:1], lambda outputs: outputs["y"], score, phases, {"grey": grey}, picture)


MADE_UP = RealNetwork(
    name="made-up",
    title="a product",
    samples="products",
    count=3,
    metrics=(Metric("error", "largest error", "{:.3f}", higher_is_better=False), Metric("rows", "products", "{:.0f}")),
    model=product,
    data=data,
    against_f32=True,
    pictures=True,
    variants={"off": StoredVariant("weights that are off by 1", lambda: product(1.0))},
)


def test_a_row_a_mode_and_phase() -> None:
    modes, _ = choose(ZEN4, ["bf16", "int8-vnni", "off", "s4-weights"], known=real.modes_of(MADE_UP))
    told: list[tuple[int, int]] = []
    run = real.run_real(MADE_UP, modes, seed=1, progress=lambda done, total, what: told.append((done, total)))
    rows = run.totals.set_index(["mode", "phase"])
    assert list(rows.index)[:6] == [(m, p) for m in ("bf16", "int8-vnni", "off") for p in ("many", "one")]
    assert 0 < rows.loc[("bf16", "one"), "error"] < rows.loc[("int8-vnni", "one"), "error"] < 2
    assert rows.loc[("off", "one"), "error"] > 2
    assert (run.totals["rows"].dropna() == 3).all() and (run.totals["samples"].dropna() == 3).all()
    assert rows.loc[("bf16", "many"), "macs"] == 512 * 64 * 8
    many = rows.loc[("bf16", "many")]
    assert many["tokens_per_s"] == pytest.approx(512e6 / many["time_us"])
    assert np.isnan(rows.loc[("bf16", "one"), "tokens_per_s"])
    assert rows.loc[("off", "many"), "speed_up"] == pytest.approx(1)
    assert rows.loc[("bf16", "many"), "speed_up"] != 1  # each mode and phase has a time of its own
    assert rows.loc[("bf16", "many"), "cycles"] > 10 * rows.loc[("bf16", "one"), "cycles"]
    assert 1 < rows.loc[("s4-weights", "one"), "error"] < 5
    assert told == [(done, 15) for done in range(15)]  # f32 first, which the others are compared with
    assert list(run.pictures) == ["grey", "f32", "bf16", "int8-vnni", "off", "s4-weights"]


def test_programs_of_a_networks_own_run_on_gpus() -> None:
    modes, _ = choose(machine("b580"), ["off"], known=real.modes_of(MADE_UP))
    rows = real.run_real(MADE_UP, modes, machine="b580", count=1).totals
    assert (rows["refused"] == "").all() and (rows["error"].dropna() > 2).all()


def test_nothing_runs_twice_and_seeds_decide() -> None:
    modes, _ = choose(ZEN4, ["f32"])
    told: list[int] = []
    first = real.run_real(MADE_UP, modes, count=2, progress=lambda done, total, what: told.append(done))
    assert told == [0, 1]
    assert first.totals["error"].tolist() == [0, 0] and first.totals["speed_up"].tolist() == [1, 1]
    bf16, _ = choose(ZEN4, ["bf16"])
    errors = [real.run_real(MADE_UP, bf16, count=2, seed=seed).totals["error"].iloc[0] for seed in (0, 1, 0)]
    assert errors[0] == errors[2] != errors[1]


def test_a_mode_that_is_refused_keeps_its_row() -> None:
    modes, _ = choose(ZEN4, ["f32", "bad"], known={**MODES, "bad": dataclasses.replace(MODES["f32"], name="bad")})
    network = dataclasses.replace(MADE_UP, variants={"bad": StoredVariant("a model with an unknown operator", broken)})
    rows = real.run_real(network, modes, count=1).totals
    assert rows["refused"].iloc[0] == "" and "Nonsense" in rows["refused"].iloc[-1]
    modes.pop(MODES["f32"])
    with pytest.raises(SimdnnError, match="no mode could be run: .*Nonsense"):
        real.run_real(network, modes, count=1)


def broken() -> onnx.ModelProto:
    made = product()
    made.graph.node[0].op_type = "Nonsense"
    return made


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", MADE_UP)
    drawn, files = [tmp_path / f"{name}.png" for name in ("plot", "pictures")], tmp_path / "rows.csv"
    words = ["run", "made-up", "--modes", "f32,bf16,off", "--samples", "2"]
    assert main([*words, "--plot", str(drawn[0]), "--pictures", str(drawn[1]), "-o", str(files)]) == 0
    text = capsys.readouterr().out
    assert "a product on zen4, 2 products, seed 0; error: largest error; rows: products" in text
    assert text.count("picture: ") == 2 and "many" in text
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)
    assert files.read_text().count("\n") == 1 + 3 * 2
    shares = (Metric("error", "largest error", "{:.3f}"), Metric("accuracy", "a share", "{:.1%}"))

    def scored(*given: Any) -> Data:
        made = data(*given)
        return dataclasses.replace(made, score=lambda *all_of: {"error": 0.0, "accuracy": 0.5})

    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", dataclasses.replace(MADE_UP, metrics=shares, data=scored))
    assert main(words) == 0 and "50.0%" in capsys.readouterr().out
    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", MADE_UP)
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in content["totals"]] == ["f32", "f32", "bf16", "bf16", "off", "off"]
    spoilt = dataclasses.replace(MADE_UP, variants={"bad": StoredVariant("a model with an unknown operator", broken)})
    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", spoilt)
    assert main(["run", "made-up", "--modes", "f32,bad"]) == 1
    assert "bad: refused: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["ocr", "--shape", "x=1"], 2, "--shape is for MODEL.onnx"),
        (["ocr", "--feeds", "x.npz"], 2, "--feeds is for MODEL.onnx"),
        (["ocr", "--pictures", "x.png"], 2, "--pictures is for fetched networks that make pictures"),
        (["llm", "--prompt", ""], 2, "--prompt '' is empty"),
        (["digits", "--samples", "3"], 2, "it says nothing about networks that classify"),
        (["ocr", "--modes", "f33"], 2, "unknown mode 'f33'"),
        (["ocr", "--modes", "f32"], 1, "`simdnn fetch-models ocr`"),  # into an empty folder
    ],
)
def test_one_line_says_what_is_wrong(
    words: list[str],
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SIMDNN_MODELS", str(tmp_path))
    assert main(["run", *words]) == status
    error = capsys.readouterr().err.strip()
    assert told in error and "\n" not in error


def test_each_network_has_its_packages() -> None:
    for name, network in workloads.REAL_NETWORKS.items():
        assert network.name == name and name in packages.MODELS
        assert dataclasses.is_dataclass(network) and network.metrics and network.count > 0


@pytest.mark.skipif(not HERE, reason="`simdnn fetch-models ocr` has not been run")
def test_real_digits_are_read() -> None:
    modes, _ = choose(ZEN4, ["f32"])
    row = real.run_real(workloads.REAL_NETWORKS["ocr"], modes, count=1).totals.iloc[0]
    assert row["accuracy"] > 0.9 and row["speed_up"] == 1 and row["cycles"] > 0
    with pytest.raises(SimdnnError, match="617"):
        real.run_real(workloads.REAL_NETWORKS["ocr"], modes, count=618)


def test_one_machines_values_stand_for_anothers() -> None:
    """clx decodes to f32 where zen4 does to bf16: it runs that itself. Pairs saturate alike on both."""
    known = real.modes_of(MADE_UP)
    names = ["bf16", "int8-fast", "int8-vnni", "mxfp4"]
    lent, _ = choose(ZEN4, names, known=known)
    here, _ = choose(machine("clx"), names, known=known, all_of=False)
    lender = real.Lender("zen4", real.run_real(MADE_UP, lent, layers=True))
    own = real.run_real(MADE_UP, here, machine="clx", layers=True)
    told: list[str] = []
    both = real.run_real(
        MADE_UP, here, machine="clx", layers=True, lender=lender, progress=lambda done, total, what: told.append(what)
    )
    rows = both.totals.set_index(["mode", "phase"])
    assert rows["values_of"].groupby("mode").first().to_dict() == {
        "int8-fast": "zen4",
        "int8-vnni": "zen4",
        "mxfp4": "clx",
    }
    assert {what.rpartition(", ")[2] for what in told} == {"f32", "mxfp4"}
    for frame, wanted in ((rows, own.totals.set_index(["mode", "phase"])), (both.layers, own.layers)):
        for column in ("error", "sqnr_db", "cycles"):
            if column in wanted:
                np.testing.assert_allclose(frame[column], wanted[column], rtol=1e-3)


def test_values_of_one_machine_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", MADE_UP)
    words = ["run", "made-up", "--machine", "clx,zen4", "--modes", "f32,bf16,s8-weights", "--samples", "2"]
    assert main([*words, "--values-of", "zen4", "--json", "--plot", str(tmp_path / "front.png")]) == 0
    content = json.loads(capsys.readouterr().out)
    found = {(row["machine"], row["mode"]): row for row in content["totals"] if row["phase"] == "one"}
    assert {key: row["values_of"] for key, row in found.items()} == {
        ("clx", "f32"): "zen4",
        ("clx", "s8-weights"): "clx",
        ("zen4", "f32"): "zen4",
        ("zen4", "bf16"): "zen4",
        ("zen4", "s8-weights"): "zen4",
    }
    assert list(found) == sorted(found, key=lambda key: key[0])  # in the order in which they were named
    assert "bf16 on clx" in content["left_out"]
    for more, said in (
        (["--values-of", "spr"], "--values-of 'spr'; one of several in --machine is needed"),
        (["--values-of", "clx", "--no-values"], "--values-of with --no-values"),
        (["--modes", "f8", "--values-of", "clx"], "unknown mode 'f8'"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
    assert main(["run", "made-up", "--machine", "clx,skx", "--modes", "f32,bf16"]) == 2  # which neither has
    assert "mode 'bf16' needs" in capsys.readouterr().err


def test_a_recipe_that_was_tuned_runs_beside_the_modes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With the error that tuning found, on each machine that has its modes; ranges are those of its file."""
    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", MADE_UP)
    path = tmp_path / "recipe.json"
    tuned = simdnn.tune("made-up", machine="zen4", modes=["int8-vnni"], samples=2)
    integers = next(row for row in tuned.front.index if tuned.recipe(row) == {"MatMul_0": "int8-vnni"})
    tuned.save(path, integers)
    words = ["run", "made-up", "--recipe", str(path), "--samples", "2"]
    assert main([*words, "--machine", "zen4,icx,skx", "--modes", "f32,int8-vnni", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    rows = {(row["machine"], row["mode"], row["phase"]): row for row in content["totals"]}
    row = rows["zen4", "recipe", "one"]
    assert row["error"] == -tuned.front["quality"][integers] and row["samples"] == 2
    for key in (("zen4", "one"), ("zen4", "many"), ("icx", "one")):
        one, whole = (rows[key[0], mode, key[1]] for mode in ("recipe", "int8-vnni"))
        assert all(one[column] == whole[column] for column in ("error", "cycles", "implementation"))
    assert not any(machine == "skx" and mode == "recipe" for machine, mode, _ in rows)
    assert "layer 'MatMul_0' in 'int8-vnni' needs" in content["left_out"]["recipe on skx"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "ranges": {"x": [-0.1, 0.1]}}))  # most is clipped
    assert main([*words, "--modes", "int8-vnni", "--json"]) == 0
    spoilt = {row["mode"]: row["error"] for row in json.loads(capsys.readouterr().out)["totals"]}
    assert spoilt["recipe"] > 3 * spoilt["int8-vnni"] == 3 * row["error"]


@pytest.mark.parametrize(
    ("content", "machines", "told"),
    [
        ({"modes": {"fc1": "bf16"}}, "zen4", "unknown layer 'fc1' in the recipe. The network has MatMul_0"),
        ({"modes": {"MatMul_0": "bf16"}}, "skx,clx", "machine 'skx' runs f32, int8-fast"),
        ({"modes": {"MatMul_0": "bf17"}}, "zen4", "unknown mode 'bf17': did you mean 'bf16'?"),
        ({"modes": {"MatMul_0": "int8-vnni"}, "ranges": {"z": [0, 1]}}, "zen4", "the ranges lack its source 'x'"),
    ],
)
def test_recipes_that_do_not_fit_are_told_before_anything_runs(
    content: dict[str, Any],
    machines: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(workloads.REAL_NETWORKS, "made-up", MADE_UP)
    monkeypatch.setattr(real.RealRun, "in_mode", None)
    onnx.save(product(), tmp_path / "model.onnx")
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"format": "simdnn recipe 1", **content}))
    for workload in (["made-up"], [str(tmp_path / "model.onnx"), "--shape", "x=4,64"]):
        assert main(["run", *workload, "--machine", machines, "--modes", "f32", "--recipe", str(path)]) == 2
        assert told in capsys.readouterr().err


def test_values_are_lent_to_who_saturates_alike() -> None:
    """Pairs that may saturate are the same with any registers; exact sums are no such values."""
    mode, exact = (recipe({"MatMul_0": name}) for name in ("int8-fast", "int8-exact"))
    lender = real.Lender("zen4", real.run_real(MADE_UP, {mode: None}, count=1))
    own = real.run_real(MADE_UP, {mode: None}, machine="skx", count=1)
    rows = real.run_real(MADE_UP, {mode: None}, machine="skx", count=1, lender=lender).totals
    assert set(rows["values_of"]) == {"zen4"}
    assert rows["sqnr_db"].tolist() == pytest.approx(own.totals["sqnr_db"].tolist(), rel=1e-6)
    other = real.run_real(MADE_UP, {exact: None}, machine="skx", count=1).layers.to_dict("records")
    assert lender.lend(mode, other, ["error"]) is None and lender.lend(mode, own.layers.to_dict("records"), ["error"])
