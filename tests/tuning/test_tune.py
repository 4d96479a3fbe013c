"""simdnn.tune: its fronts against all combinations, on trained networks and ONNX models; bounds, files, resuming."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simdnn
import workloads
from isa_models import InvalidArgument, SimdnnError, UnknownName
from simdnn.cli import main
from simdnn.networks import sequential
from simdnn.networks.classifier import ClassifierRun
from simdnn.networks.precision import recipe
from simdnn.networks.runner import run_modes
from simdnn.study.results import Results
from simdnn.tuning import Tuned, search
from simdnn.tuning.finding import Finding, worth_trying
from simdnn.tuning.judge import Judge
from simdnn.tuning.measured import RecipeRuns, Running, lost
from simdnn.tuning.search import Additive, Worth, candidates, undominated
from simdnn.tuning.subjects import RecipeRun, TrainedSubject
from simdnn.tuning.tuned import read_recipe, text_of

NAMES = ["f32", "bf16", "int8-fast", "s8-weights"]
NARROW = ["f32", "bf16", "f16"]
LAYERS = ("fc1", "fc2", "fc3")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    path = tmp_path_factory.mktemp("tuned") / "kept.jsonl"
    return simdnn.tune("cancer", machine="zen4", modes=NAMES, results=path)


def front_by_hand(rows: list[tuple[float, float]]) -> set[tuple[float, float]]:
    """The pairs of cycles and quality that no other pair beats."""
    return {(c, q) for c, q in rows if not any(a <= c and b >= q and (a, b) != (c, q) for a, b in rows)}


def test_the_front_is_that_of_all_combinations(tuned: Tuned) -> None:
    rows = list(zip(tuned.runs["cycles"], tuned.runs["quality"], strict=True))
    assert len(rows) == len(NAMES) ** len(LAYERS) and "true one" in tuned.notes[0]
    met = list(zip(tuned.front["cycles"], tuned.front["quality"], strict=True))
    assert set(met) == front_by_hand(rows) and sorted(met) == met
    assert tuned.front["chosen"].sum() == 1 and tuned.best == tuned.front.index[-1]


def test_f32_is_a_choice_where_it_is_named() -> None:
    """Sensitivities run recipes with all other layers in f32, which are better here."""
    found = simdnn.tune("cancer", machine="zen4", modes=["int8-fast"])
    assert found.front["recipe"].tolist() == ["all int8-fast"] and "the true one" in found.notes[0]
    assert found.front["quality"].max() < found.runs["quality"].max()


def test_rows_are_what_a_run_of_the_recipe_gives(tuned: Tuned) -> None:
    """The runner of whole networks, which shares no memory of layers, has the same cycles and accuracy."""
    part = ClassifierRun(workloads.cancer(), sequential.Place("zen4", "avx512_core"), 100.0, "*")
    modes = {recipe(tuned.recipe(row), str(row)): None for row in tuned.front.index}
    totals = run_modes([part], modes, isa="avx512_core").totals.set_index("mode")
    for row, found in tuned.front.iterrows():
        whole = totals.loc[str(row)]
        assert whole["cycles"] == pytest.approx(found["cycles"]) and whole["accuracy"] == found["quality"]
        assert whole["sqnr_db"] == pytest.approx(found["sqnr_db"])


@pytest.mark.parametrize(
    ("name", "machine", "modes", "most"),
    [
        ("cancer", "zen4", [*NAMES[:2], "int8-vnni", "s8-weights"], 60),
        pytest.param("cancer", "zen4", [*NAMES, "int8-vnni", "s4-weights"], 150, marks=pytest.mark.sweep),
        pytest.param("digits", "zen4", [*NAMES, "int8-vnni", "int8-exact"], 400, marks=pytest.mark.sweep),
        pytest.param(
            "digits",
            "clx",
            ["f32", "int8-fast", "int8-exact", "int8-vnni", "s8-weights", "s4-g32"],
            400,
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            "digits", "spr", [*NARROW, "int8-vnni", "s8-weights", "fpmath-bf16"], 400, marks=pytest.mark.sweep
        ),
        pytest.param(
            "digits", "b580", [*NARROW, "int8-vnni", "s8-weights", "fpmath-bf16"], 400, marks=pytest.mark.sweep
        ),
    ],
)
def test_the_search_finds_the_front_of_errors_without_running_all(
    name: str, machine: str, modes: list[str], most: int
) -> None:
    """Where there are too many recipes to run all: the same points, from some of them."""
    net = workloads.NETWORKS[name]()
    net = replace(net, test_images=net.test_images[:64], test_labels=net.test_labels[:64])
    every, some = (TrainedSubject(net, sequential.Place(machine), limit) for limit in (2048, 0))
    some._held, some._costs = every._held, every._costs  # layers that ran once
    found = []
    for subject in (every, some):
        measured = Finding(subject, Judge(None, None, True), Results(None))
        notes = measured.search(modes)
        found.append((undominated(list(measured.points.values())), len(measured.full.modes), notes[0]))
    (whole, ran, told), (front, few, said) = found
    count = int(told.split()[1])  # "all 1296 recipes": fewer where a mode at a layer would be f32
    assert count <= ran <= len(modes) ** len(net.layers) and few < min(most, count) and f"{few} of {count}" in said
    assert [(p.cycles, p.energy) for p in front] == [(p.cycles, p.energy) for p in whole]


@pytest.mark.parametrize("seed", range(20))
def test_programming_over_layers_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, names = int(rng.integers(2, 6)), ["f32", "a", "b"]
    alone = [{m: (float(rng.integers(-9, 9)), float(rng.integers(0, 9))) for m in names} for _ in range(layers)]
    edges = {(i, int(rng.integers(i + 1, layers))) for i in range(layers - 1)} | {(0, layers - 1)}
    pairs = {e: {p: float(rng.integers(-3, 4)) for p in itertools.product(names, names)} for e in edges}
    model = Additive(100.0, [names] * layers, alone, pairs)
    wanted = undominated([model.point(modes) for modes in itertools.product(names, repeat=layers)])
    assert [(p.cycles, p.energy) for p in model.front()] == [(p.cycles, p.energy) for p in wanted]
    assert all(model.point(p.modes) == p for p in model.front())


def test_pairs_that_weigh_little_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty groups that all read one another three modes each would be 3^19 states; what weighs most is kept."""
    rng, names, layers = np.random.default_rng(5), ["f32", "a", "b"], 20
    alone = [{m: (float(rng.integers(-9, 9)), float(rng.integers(0, 9))) for m in names} for _ in range(layers)]
    pairs = {e: {("a", "b"): 1.0} for e in itertools.combinations(range(layers), 2)}
    model = Additive(100.0, [names] * layers, alone, pairs)
    front = model.front()
    assert len(front) > 9 and all(model.point(p.modes) == p for p in front)
    assert all(p.energy <= 30 for p in model.front(30))
    monkeypatch.setattr(search, "MOST_STATES", 3)
    chain = {(i, i + 1): {("a", "b"): -5.0, ("b", "b"): 3.0} for i in range(5)}
    small = Additive(100.0, [names] * 6, alone[:6], chain | {(0, 5): {("a", "a"): 1e-9}})
    wanted = undominated([small.point(modes) for modes in itertools.product(names, repeat=6)])
    assert [p.modes for p in small.front()] == [p.modes for p in wanted]


def test_recipes_in_modes_that_were_left_out_are_not_modelled() -> None:
    """A uniform recipe on the front may have a mode that another one makes needless; nothing beside it is asked for."""
    model = Additive(9.0, [["f32", "a"]] * 2, [{"f32": (0.0, 0.0), "a": (-1.0, 1.0)}] * 2)
    known: dict[tuple[str, ...], Worth] = {}
    for mode, cycles, energy in (("f32", 9.0, 0.0), ("b", 8.0, 0.5)):
        known[mode, mode] = Worth(cycles, energy, (mode, mode))
    found = [point.modes for point in candidates(model, undominated(list(known.values())), known)]
    assert found == [("a", "a")]
    model = replace(model, options=[["f32", "a"]] * 20, alone=[model.alone[0]] * 20)
    known = {(mode,) * 20: Worth(c, e, (mode,) * 20) for mode, c, e in (("f32", 9.0, 0.0), ("b", 1.0, 0.5))}
    assert all("b" not in point.modes for point in candidates(model, undominated(list(known.values())), known))


@pytest.mark.parametrize(
    ("cycles", "left"),
    [
        ({"f32": 9, "fpmath-bf16": 5, "s8-weights": 4, "bf16": 12}, ["f32", "fpmath-bf16", "s8-weights", "bf16"]),
        ({"f32": 9, "fpmath-bf16": 9, "s8-weights": 4, "s4-weights": 4}, ["f32", "s8-weights"]),
        ({"f32": 9, "fpmath-bf16": 5, "s8-weights": 5}, ["f32", "fpmath-bf16"]),
        ({"int8-fast": 5, "int8-exact": 7, "int8-vnni": 4, "f32": 3}, ["int8-vnni", "f32"]),
        ({"int8-fast": 5, "int8-exact": 7, "f32": 9}, ["int8-fast", "int8-exact", "f32"]),
        ({"mxfp4": 4, "mxfp4-even": 4, "s4-weights": 5}, ["mxfp4", "mxfp4-even", "s4-weights"]),
        ({"mxfp8": 4, "s4-weights": 4, "s4-g32": 4, "nvfp4": 3}, ["mxfp8", "nvfp4"]),
        ({"s4-weights": 4, "s4-g32": 5, "f32": 9}, ["s4-weights", "s4-g32", "f32"]),
    ],
)
def test_modes_that_another_makes_needless_are_not_tried(cycles: dict[str, float], left: list[str]) -> None:
    """Where nothing around a layer changes: at least as close to f32 and no slower."""
    kernels = {name: [(f"kernel of {name}", "any", float(c))] for name, c in cycles.items()}
    assert worth_trying(list(cycles), kernels) == left


def test_bounds_choose(tuned: Tuned, tmp_path: Path) -> None:
    where: dict[str, Any] = {"machine": "zen4", "modes": NAMES}
    lossless = simdnn.tune("cancer", **where, max_loss=0)
    assert (lossless.front["loss"] <= 0).all() and lossless.best == 0
    noisy = simdnn.tune("cancer", **where, min_db=45)
    assert (noisy.front["sqnr_db"] >= 45).all()
    fastest = tuned.runs["speed_up"].max()
    with pytest.raises(SimdnnError, match=rf"faster_than=9.*{fastest:.2f} times"):
        simdnn.tune("cancer", **where, faster_than=9)
    for bound in ({"max_loss": -1}, {"min_db": float("nan")}, {"faster_than": "2x"}):
        with pytest.raises(InvalidArgument, match=next(iter(bound))):
            simdnn.tune("cancer", **where, **bound)


def test_what_each_layer_buys(tuned: Tuned) -> None:
    """A row of the table is the recipe against itself with one layer in f32."""
    modes = tuned.recipe(0)
    rows = tuned.table(0).set_index("layer")
    assert rows["mode"].to_dict() == modes and "f32" not in modes.values()
    by_recipe = tuned.runs.set_index("recipe")
    for layer, row in rows.to_dict("index").items():
        back = by_recipe.loc[text_of({**modes, str(layer): "f32"})]
        own = by_recipe.loc[text_of(modes)]
        assert row["cycles_saved"] == back["cycles"] - own["cycles"]
        assert row["quality_lost"] == back["quality"] - own["quality"]


def test_it_goes_on_from_where_it_was(tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.jsonl"
    told: list[tuple[int, int, str]] = []
    where: dict[str, Any] = {"machine": "zen4", "results": path}
    simdnn.tune("cancer", **where, modes=["f32", "bf16"], progress=lambda *args: told.append(args))
    assert told[-1][:2] == (8, 8) and len(path.read_text().splitlines()) == 9

    def never(*_: object) -> RecipeRun:
        raise AssertionError

    monkeypatch.setattr(TrainedSubject, "run", never)
    again = simdnn.tune("cancer", **where, modes=["f32", "bf16"])
    kept = tuned.runs.set_index("recipe")["cycles"]
    assert again.runs.set_index("recipe")["cycles"].to_dict() == kept.loc[again.runs["recipe"]].to_dict()
    with pytest.raises(AssertionError):
        simdnn.tune("cancer", **where, modes=["f32", "bf16"], metric=lambda out: 0.0)  # judged by something else


def test_worker_processes_find_the_same_front(tmp_path: Path) -> None:
    """Bit for bit, recipes in the same order; rows are kept as they come."""
    path = tmp_path / "kept.jsonl"
    where: dict[str, Any] = {"machine": "zen4", "modes": ["f32", "int8-vnni"]}
    serial = simdnn.tune("cancer", **where)
    told: list[tuple[int, int, str]] = []
    spread = simdnn.tune("cancer", **where, jobs=2, results=path, progress=lambda *args: told.append(args))
    assert told[-1][:2] == (8, 8) and len(path.read_text().splitlines()) == 9
    for one, other in ((serial.front, spread.front), (serial.runs, spread.runs)):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert serial.content == spread.content
    with pytest.raises(InvalidArgument, match="jobs=0"):
        simdnn.tune("cancer", **where, jobs=0)


def test_a_cluster_finds_the_same_front() -> None:
    distributed = pytest.importorskip("distributed")
    where: dict[str, Any] = {"machine": "zen4", "modes": ["f32", "int8-vnni"]}
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        there = simdnn.tune("cancer", **where, dask=cluster.scheduler_address)
    pd.testing.assert_frame_equal(there.runs, simdnn.tune("cancer", **where).runs, check_exact=True)


def test_a_worker_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' rows are there all the same."""
    subject = TrainedSubject(workloads.cancer(), sequential.Place("zen4"))
    runs = RecipeRuns(subject, Judge(None, None, True), Results(None))
    whole = [dict.fromkeys(LAYERS, mode) for mode in ("f32", "bf16")]
    here = Running(subject)
    runs.each = lambda tasks: ((t, lost("it died") if t == tasks[1] else here(t)) for t in tasks)
    with pytest.raises(SimdnnError, match="it died; a second call goes on"):
        runs.rows(whole)
    runs.each = None
    assert [row["refused"] for row in runs.rows(whole)] == ["", ""]


def test_machines_side_by_side() -> None:
    """One call; a machine has the modes that it can run."""
    found = simdnn.tune("cancer", machine=["clx", "zen4"], modes=["f32", "bf16"])
    assert list(dict.fromkeys(found.front["machine"])) == ["clx", "zen4"]
    assert found.front.groupby("machine")["chosen"].sum().tolist() == [1, 1]
    assert set(found.recipe(0).values()) == {"f32"} and found.front.index.is_unique
    with pytest.raises(InvalidArgument, match="bf16"):
        simdnn.tune("cancer", machine="clx", modes=["f32", "bf16"])


def test_what_it_refuses() -> None:
    with pytest.raises(UnknownName, match="int8-vnni"):
        simdnn.tune("cancer", machine="zen4", modes=["int8-vni"])
    with pytest.raises(InvalidArgument, match="int8-group"):
        simdnn.tune("cancer", machine="zen4", modes=["int8-group"])
    with pytest.raises(InvalidArgument, match="modes='f32"):
        simdnn.tune("cancer", machine="zen4", modes="f32,bf16")
    with pytest.raises(InvalidArgument, match="training data"):
        simdnn.tune("cancer", machine="zen4", calibrate={"images": np.zeros((1, 30, 1, 1), np.float32)})
    with pytest.raises(InvalidArgument, match=r"\(3,\)"):
        simdnn.tune("cancer", machine="zen4", labels=[0, 1, 0], modes=["f32"])
    with pytest.raises(InvalidArgument, match="metric gives nan"):
        simdnn.tune("cancer", machine="zen4", metric=lambda out: float("nan"), modes=["f32"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"machine": None}, "machine=None; a machine, as 'zen4'"),
        ({"modes": 3}, "modes=3; a list of names"),
        ({"modes": [["f32"]]}, "a list of names"),
        ({"metric": 3}, "metric=3; a function"),
        ({"progress": "yes"}, "progress='yes'; a function"),
        ({"results": 3}, "results of type int"),
        ({"labels": [[1], [1, 2]]}, "the number of a class"),
        ({"labels": np.full(142, np.nan)}, "the number of a class"),
        ({"feeds": {"pictures": np.zeros((2, 30, 1, 1), np.float32)}}, "'pictures'; one is needed, {'images'"),
        ({"feeds": [{"images": np.zeros((2, 30, 1, 1), np.float32)}] * 2}, "2 feeds; one is needed"),
        ({"feeds": {"images": np.full((2, 30, 1, 1), "a")}}, "an array of numbers"),
        ({"feeds": {"images": np.full((2, 30, 1, 1), np.nan, np.float32)}}, "hold NaN or infinity"),
        ({"jobs": "2"}, "jobs='2'"),
        ({"seed": -1}, "seed=-1; a whole number"),
        ({"seed": 1}, "seed=1: nothing is drawn"),
        ({"dask": "tcp://h:1", "jobs": 2}, "jobs=2; the address of a scheduler, or worker"),
    ],
)
def test_what_cannot_be_tuned_is_told(given: dict[str, Any], said: str) -> None:
    """The value met and what is needed, before anything long."""
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        simdnn.tune("cancer", **{"machine": "zen4", "modes": ["f32"], **given})


def test_a_misspelt_network_has_a_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        simdnn.tune("digts", machine="zen4")
    assert main(["tune", "digts"]) == 2 and "did you mean 'digits'" in capsys.readouterr().err


@pytest.mark.parametrize("ranges", [{"x": ["a", "b"]}, {"x": [2, 1]}, {"x": [float("nan"), 1]}, {"x": [1]}, [1]])
def test_a_recipe_with_broken_ranges_is_none(ranges: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"format": "simdnn recipe 1", "modes": {"fc1": "f32"}, "ranges": ranges}))
    with pytest.raises(InvalidArgument, match="holds no recipe"):
        read_recipe(path)


def test_it_pickles_and_draws(tuned: Tuned) -> None:
    again = pickle.loads(pickle.dumps(tuned))
    assert again.front.equals(tuned.front) and again.recipe(0) == tuned.recipe(0)
    assert len(repr(tuned)) < 200 and "cancer" in repr(tuned)
    content = json.loads(tuned.to_json())
    assert content["front"][0]["row"] == 0 and content["recipes"]["0"] == tuned.recipe(0)
    pytest.importorskip("matplotlib").use("agg")
    ax = tuned.plot()
    assert "accuracy" in ax.get_ylabel() and ax.collections and ax.get_title() == "cancer on zen4"
    alike = replace(tuned, runs=tuned.runs.assign(quality=0.5), _measured={})  # which accuracy does not tell apart
    ax = alike.plot()
    assert "signal to error" in ax.get_ylabel() and "accuracy 0.5 in every recipe" in ax.get_title()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "cancer", "--machine", "zen4", "--modes", "f32,int8-vnni"]
    assert main([*words, "--max-loss", "1%", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    chosen = next(row for row in content["front"] if row["chosen"])
    assert chosen["loss"] <= 0.01 and set(content["recipes"][str(chosen["row"])]) == set(LAYERS)
    path = tmp_path / "r.json"
    assert main([*words, "--faster-than", "1.2x", "--save", str(path), "--results", str(tmp_path / "k.jsonl")]) == 0
    assert "fc1" in capsys.readouterr().out
    assert main(["run", "cancer", "--machine", "zen4", "--modes", "f32", "--recipe", str(path)]) == 0
    assert "recipe" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--max-loss", "many"])
    assert "0.5% or 0.005" in capsys.readouterr().err
    assert main(["tune", "sr", "--max-loss", "1%"]) == 2 and "dB; a number in its unit" in capsys.readouterr().err
    assert main([*words, "--faster-than", "50"]) == 1 and "no recipe" in capsys.readouterr().err
    (tmp_path / "no.json").write_text("{}")
    assert main(["run", "cancer", "--recipe", str(tmp_path / "no.json")]) == 2


def test_the_command_sets_machines_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One table of the recipes chosen, a column a machine; layers that are alike share a row. A file holds one."""
    words = ["tune", "cancer", "--machine", "clx,zen4", "--modes", "f32,int8-fast"]
    assert main([*words, "--save", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr().out
    row, machine = re.findall(r"r\.json holds row (\d+), of (\w+)$", said.strip())[0]
    kept = read_recipe(tmp_path / "r.json")
    assert (machine, kept["machine"]) == ("clx", "clx")
    head, *rows = said.split("layer by layer\n")[1].split("\n\n")[0].splitlines()
    assert head.split() == ["layers", "clx", "zen4"] and 1 <= len(rows) <= 3
    found = simdnn.tune("cancer", machine=["clx", "zen4"], modes=["f32", "int8-fast"])
    assert kept["modes"] == found.recipe(int(row))
    chosen = [found.recipe(int(row)) for row in found.front.index[found.front["chosen"]]]
    told = {layer: row.split()[-2:] for row in rows for layer in row.split()[:-2]}
    assert told == {layer: [one[layer] for one in chosen] for layer in LAYERS}
