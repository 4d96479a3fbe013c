"""simdnn.tune on ONNX models and fetched networks: errors of outputs, few feeds, several machines, what is saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
import workloads
from isa_models import InvalidArgument, UnknownName
from simdnn.cli import main
from simdnn.cli.tune import _shown
from simdnn.networks.modes import run_model
from simdnn.networks.precision import choose
from simdnn.networks.sequential import Place
from simdnn.study.results import Results
from simdnn.tuning import Tuned, finding
from simdnn.tuning.finding import Finding
from simdnn.tuning.judge import Judge
from simdnn.tuning.measured import RecipeRuns
from simdnn.tuning.search import undominated
from simdnn.tuning.subjects import ModelSubject
from simdnn.tuning.tuned import text_of
from tests.effort import one_in
from tests.tuning.test_tune import front_by_hand
from workloads import RealNetwork
from workloads.real import Data, Metric


def test_ranges_of_another_model_are_told(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the layer would stay in f32 under the name of an integer mode."""
    import onnx

    onnx.save(model, tmp_path / "m.onnx")
    content = {"format": "simdnn recipe 1", "modes": {"fc1": "int8-vnni"}, "ranges": {"other": [0, 1]}}
    (tmp_path / "r.json").write_text(json.dumps(content))
    words = ["run", str(tmp_path / "m.onnx"), "--machine", "zen4", "--modes", "f32", "--shape", "images=2,30,1,1"]
    main([*words, "--recipe", str(tmp_path / "r.json")])
    said = capsys.readouterr()
    assert "lack its source" in said.out + said.err


def test_a_recipe_without_ranges_is_calibrated(model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A classifier's recipe has none; on its graph they are from the feeds, or from random data, for its cost too."""
    import onnx

    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "feeds.npz", images=workloads.cancer().test_images[:2])
    (tmp_path / "r.json").write_text(json.dumps({"format": "simdnn recipe 1", "modes": {"fc1": "int8-vnni"}}))
    words = ["run", str(tmp_path / "m.onnx"), "--modes", "f32", "--recipe", str(tmp_path / "r.json"), "--json"]
    feeds = ["--feeds", str(tmp_path / "feeds.npz")]
    for more in (["--shape", "images=2,30,1,1", "--no-values"], [*feeds, "--calibrate", feeds[1]]):
        assert main([*words, *more]) == 0
        rows = json.loads(capsys.readouterr().out)["totals"]
        assert [row["refused"] for row in rows] == ["", ""] and "s8" in rows[1]["computes"]


def test_the_results_of_another_model_are_kept_apart(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    one = simdnn.tune("cancer", machine="zen4", modes=["f32"], results=path)
    feeds = {"images": workloads.cancer().test_images[:4]}
    other = simdnn.tune(model, machine="zen4", feeds=feeds, modes=["f32"], results=path)
    assert len(path.read_text().splitlines()) == 3 and one.runs["cycles"][0] != other.runs["cycles"][0]


@one_in(2)
@pytest.mark.parametrize("trained", [False, True])
def test_recipes_of_a_librarys_kernels(
    trained: bool, model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are what a run of the recipe gives under the same cap and dispatch, which its file names."""
    import onnx

    feeds, names = {"images": workloads.cancer().test_images[:4]}, ["int8-fast"]
    how = {"isa": "avx512_core", "dispatch": "onednn", "threads": 2}
    subject = "cancer" if trained else model
    kept = tmp_path / "kept.jsonl"
    plain, tuned = (
        simdnn.tune(subject, machine="zen4", modes=names, feeds=None if trained else feeds, results=kept, **options)
        for options in ({}, how)
    )
    assert tuned.options == how and plain.options == {"isa": None, "dispatch": "fastest", "threads": 1}
    assert set(tuned.runs["cycles"]).isdisjoint(plain.runs["cycles"])
    tuned.save(tmp_path / "r.json")
    assert how.items() <= json.loads((tmp_path / "r.json").read_text()).items()
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "feeds.npz", **feeds)
    data = [] if trained else ["--feeds", str(tmp_path / "feeds.npz")]
    words = ["run", "cancer" if trained else str(tmp_path / "m.onnx"), *data, "--recipe", str(tmp_path / "r.json")]
    words += ["--modes", "f32", "--json"]
    given = [word for name, value in how.items() for word in (f"--{name}", str(value))]
    assert main([*words, *given]) == 0
    row = json.loads(capsys.readouterr().out)["totals"][-1]
    assert row["mode"] == "recipe" and row["cycles"] == pytest.approx(tuned.front["cycles"][tuned.best])
    assert row["sqnr_db"] == pytest.approx(tuned.front["sqnr_db"][tuned.best])
    assert main(words[:-1]) == 0
    said = "recipe: tuned with isa avx512_core, threads 2, dispatch onednn, which this run has otherwise"
    assert said in capsys.readouterr().out


def test_sizes_of_random_data(model: Any) -> None:
    of = {"machine": "zen4", "modes": ["f32"]}
    two = simdnn.tune(model, shapes={"images": (2, 30, 1, 1)}, **of)
    assert "leaves open" in " ".join(simdnn.tune(model, **of).notes) and "leaves open" not in " ".join(two.notes)
    with pytest.raises(simdnn.InvalidArgument, match="of random feeds, is needed"):
        simdnn.tune(model, shapes={"N": 2}, feeds={"images": workloads.cancer().test_images[:2]}, **of)
    with pytest.raises(simdnn.Unimplemented, match="picks on GPUs is not modelled"):
        simdnn.tune(model, machine=["zen4", "b580"], modes=["f32"], dispatch="onednn")


@pytest.fixture(scope="module")
def model() -> Any:
    pytest.importorskip("onnx")
    from workloads.export import onnx_model

    return onnx_model(workloads.cancer())


@pytest.fixture(scope="module")
def by_graph(model: Any) -> Tuned:
    net = workloads.cancer()
    calibrate = [{"images": net.train_images[:32]}]
    names = ["f32", "bf16", "int8-vnni"]
    feeds = {"images": net.test_images[:16]}
    return simdnn.tune(model, machine="zen4", feeds=feeds, calibrate=calibrate, modes=names)


def test_a_model_is_judged_by_the_error_of_its_outputs(by_graph: Tuned) -> None:
    assert by_graph.measure == "sqnr_db" and len(by_graph.runs) == 27 and len(by_graph.notes) == 2
    rows = list(zip(by_graph.runs["cycles"], by_graph.runs["quality"], strict=True))
    met = zip(by_graph.front["cycles"], by_graph.front["quality"], strict=True)
    assert set(met) == front_by_hand(rows)
    assert "is f32 itself" in _shown(by_graph)
    bounded = replace(by_graph, front=by_graph.front.assign(chosen=by_graph.front.index == 0))
    shown = _shown(bounded)  # names the machine, and the unit of what a layer loses
    assert shown.splitlines()[0].endswith(" on zen4") and "cycles_saved  lost_db" in shown
    exact = by_graph.front.iloc[-1]
    assert np.isposinf(exact["quality"]) and exact["loss"] == 0 and len(by_graph.front) > 2


def test_the_search_finds_the_front_of_a_random_network() -> None:
    """A product, one around which the sum goes, and a last one: the same points as all recipes, from some of them."""
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(1)
    rows, inner, last = (int(n) for n in rng.integers(3, 40, 3))
    shapes = {"a": (rows, inner), "b": (inner, inner), "c": (inner, last)}
    weights = [onnx.numpy_helper.from_array(rng.normal(0, 0.3, s).astype(np.float32), n) for n, s in shapes.items()]
    wired = [("MatMul", "x a"), ("Relu", "0"), ("MatMul", "1 b"), ("Add", "2 1"), ("MatMul", "3 c")]
    nodes = [onnx.helper.make_node(op, reads.split(), [str(at)], f"n{at}") for at, (op, reads) in enumerate(wired)]
    ports = [onnx.helper.make_tensor_value_info(name, 1, None) for name in ("x", "4")]
    ports[0] = onnx.helper.make_tensor_value_info("x", 1, [5, rows])
    graph = onnx.helper.make_graph(nodes, "random", ports[:1], ports[1:], weights)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    feeds = [{"x": rng.normal(size=(5, rows)).astype(np.float32)}]
    every = ModelSubject(made, Place("zen4"), feeds, feeds)
    fronts, counts = [], []
    for enumerable in (128, 0):
        every.enumerable = enumerable
        found = Finding(every, Judge(None, None, False), Results(None))
        found.search(["f32", "bf16", "int8-vnni", "s8-weights"])
        fronts.append([(point.cycles, point.energy) for point in undominated(list(found.points.values()))])
        counts.append(len(found.full.modes))
    assert fronts[0] == fronts[1] and len(fronts[0]) > 2
    assert counts[0] == 64 and counts[1] < 64


def test_a_fetched_network_is_judged_by_its_own_score(
    model: Any, by_graph: Tuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = workloads.cancer()

    def data(proto: Any, count: int, seed: int) -> Data:
        def score(answers: Any, reference: Any) -> dict[str, float]:
            return {"error": float(np.abs(np.array(answers) - np.array(reference)).max())}

        samples = [{"images": net.test_images[:16]}]
        return Data(samples, [{"images": net.train_images[:32]}], lambda outputs: outputs["logits"], score)

    metrics = (Metric("error", "largest error", higher_is_better=False),)
    real = RealNetwork("toy", "a toy", "batches", 1, metrics, lambda: model, data, against_f32=True)
    monkeypatch.setitem(workloads.REAL_NETWORKS, "toy", real)
    found = simdnn.tune("toy", machine="zen4", modes=["f32", "bf16"])
    assert (
        found.measure == "metric"
        and any("minus error" in note for note in found.notes)
        and found.front["quality"].max() == 0
    )
    both = by_graph.runs.set_index("recipe")
    assert found.runs.equals(simdnn.tune("toy", machine="zen4", modes=["f32", "bf16"], samples=1).runs)
    with pytest.raises(InvalidArgument, match="samples=2 of 'cancer'; they are of a fetched network"):
        simdnn.tune("cancer", machine="zen4", samples=2)
    with pytest.raises(InvalidArgument, match="samples=0; a whole number"):
        simdnn.tune("toy", machine="zen4", samples=0)
    assert (found.runs.set_index("recipe")["cycles"] == both.loc[found.runs["recipe"], "cycles"]).all()
    with pytest.raises(InvalidArgument, match="brings its data"):
        simdnn.tune("toy", machine="zen4", labels=[1])


def test_a_bound_on_the_error_is_a_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the output, where no labels judge; without a bound nothing is as good as f32, which says what to ask for."""
    onnx = pytest.importorskip("onnx")
    from tests.networks.models import model as made

    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    product = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx.save(made(product, {"x": [8, 64]}, ["y"], {"w": weights}), tmp_path / "m.onnx")
    words = ["tune", str(tmp_path / "m.onnx"), "--modes", "f32,bf16", "--jobs", "1"]
    assert main(words) == 0 and "is f32 itself: --max-loss" in capsys.readouterr().out
    assert main([*words, "--max-loss", "1%", "--json"]) == 0
    (row,) = (row for row in json.loads(capsys.readouterr().out)["front"] if row["chosen"])
    assert 0.001 < row["loss"] <= 0.01 and row["speed_up"] > 1


def test_few_feeds_find_what_all_confirm(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search runs over the first feeds; its front and whole modes over all, and the table over few."""
    net, names = workloads.cancer(), ["f32", "bf16", "int8-vnni", "fpmath-bf16", "s8-weights"]
    monkeypatch.setattr(finding, "MOST_ALONE", 1)
    feeds = [{"images": net.test_images[at : at + 4]} for at in range(0, 16, 4)]
    calibrate = [{"images": net.train_images[:32]}]
    zen4, judge = isa_models.machine("zen4"), Judge(None, None, False)
    subject = ModelSubject(model, Place(zen4), feeds, calibrate, few=1, enumerable=0, a_round=6, rounds=2, shown=3)
    found = Finding(subject, judge, Results(None), judge)
    told: list[tuple[int, int, str]] = []
    found.told(lambda *args: told.append(args))
    notes = found.search(names)
    plain = "runs of a sample on zen4"
    assert {what for _, _, what in told} <= {plain, *(f"{plain}, round {at} of at most 2" for at in (1, 2))}
    assert told[-1][0] == told[-1][1] and any("round 1" in what for _, _, what in told)
    assert told[-1][0] == len(found.few.modes) + len(feeds) * len(found.full.modes)
    assert "over few samples" in notes[1] and "of 125 recipes" in notes[0]
    uniform = [dict.fromkeys(subject.layers, name) for name in names]
    assert found.full.modes[: len(names)] == uniform and 0 < len(found.full.modes) - len(names) <= 3
    assert len(found.few.modes) > len(found.full.modes)
    row = found.full.row(found.full.modes[-1])
    alone = ModelSubject(model, Place(zen4), feeds, calibrate).run(found.full.modes[-1])
    reference = ModelSubject(model, Place(zen4), feeds, calibrate).run(uniform[0])
    assert row["cycles"] == alone.cycles and row["sqnr_db"] == judge.sqnr_db(alone.outputs, reference.outputs)
    few = found.few.row(found.full.modes[-1])
    assert few["cycles"] == row["cycles"] and few["sqnr_db"] != row["sqnr_db"]


def test_modes_that_are_one_run_over_all_feeds_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Zen 4 has nothing faster for tf32 than f32: one is run over all feeds, and stands for both."""
    monkeypatch.setattr(finding, "MOST_ALONE", 1)
    images = workloads.cancer().test_images
    feeds = [{"images": images[at : at + 1]} for at in range(3)]
    judge, names = Judge(None, None, False), ["f32", "fpmath-bf16", "fpmath-tf32"]
    subject = ModelSubject(model, Place("zen4"), feeds, feeds, 1, 0, a_round=1, rounds=1, shown=1)
    ran: list[str] = []
    was = ModelSubject.run
    monkeypatch.setattr(
        ModelSubject,
        "run",
        lambda self, modes, few=False: (few or ran.append(text_of(modes)), was(self, modes, few))[1],
    )
    found = Finding(subject, judge, Results(None), judge)
    found.search(names)
    assert "all fpmath-bf16" in ran and "all fpmath-tf32" not in ran
    alone = [found.full.row(dict.fromkeys(subject.layers, name)) for name in ("f32", "fpmath-tf32")]
    assert alone[0] == alone[1] and dict.fromkeys(subject.layers, "fpmath-tf32") in found.full.modes


def test_a_mode_that_is_another_one_elsewhere_lends_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without bf16 computes in f32 where bf16 is allowed: its error is not that of a machine which has it."""
    monkeypatch.setattr(finding, "MOST_ALONE", 1)
    images = workloads.cancer().test_images
    feeds = [{"images": images[at : at + 1]} for at in range(2)]
    judge, names = Judge(None, None, False), ["f32", "fpmath-bf16", "int8-vnni"]
    first = ModelSubject(model, Place("zen4"), feeds, feeds, 1, 0, a_round=1, rounds=1, shown=1)
    one = Finding(first, judge, Results(None), judge)
    one.search(names)
    other = Finding(first.on(isa_models.machine("clx")), judge, Results(None), judge, before=one)
    other.search(names)
    modes = dict.fromkeys(first.layers, "fpmath-bf16")
    assert one.few.row(modes)["sqnr_db"] < 80 and np.isposinf(other.few.row(modes)["sqnr_db"])
    assert other.few.lent > 0


def test_saturating_sums_are_lent_to_their_like(model: Any) -> None:
    """The bits are decided by one thing: whether pairs of products may saturate, and not which registers hold them."""
    images = workloads.cancer().test_images
    feeds = [{"images": images[at : at + 1]} for at in range(2)]
    judge = Judge(None, None, False)
    first = ModelSubject(model, Place("zen4"), feeds, feeds, 1)
    modes = {name: dict.fromkeys(first.layers, name) for name in ("f32", "int8-fast")}
    one = RecipeRuns(first, judge, Results(None))
    one.rows([*modes.values()])
    other = RecipeRuns(first.on(isa_models.machine("skx")), judge, Results(None), lender=one)
    row = other.row(modes["int8-fast"])
    assert other.lent == 1
    alone = RecipeRuns(first.on(isa_models.machine("skx")), judge, Results(None)).row(modes["int8-fast"])
    assert row["sqnr_db"] == pytest.approx(alone["sqnr_db"], rel=1e-6) and row["cycles"] == alone["cycles"]


def test_a_bound_says_which_recipes_are_confirmed(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the slowest that misses the bound and the fastest that keeps it none is left; the fastest of all recipes
    that keep it is found, although few feeds say that another one is as fast and better.
    """
    net, names = workloads.cancer(), ["f32", "bf16", "int8-vnni", "fpmath-bf16", "s8-weights"]
    monkeypatch.setattr(finding, "MOST_ALONE", 1)
    feeds = [{"images": net.test_images[at : at + 4]} for at in range(0, 16, 4)]
    judge, calibrate = Judge(None, None, False), [{"images": net.train_images[:32]}]
    zen4 = isa_models.machine("zen4")
    subject = ModelSubject(model, Place(zen4), feeds, calibrate, 1, 0, a_round=24, rounds=2, shown=12)
    found = Finding(subject, judge, Results(None), judge)
    found.keeps = lambda row: bool(row["sqnr_db"] >= 58)
    found.search(names)
    front = undominated([point for point in found.points.values() if point.energy < np.inf])
    ran = [found.recipe(point.modes) in found.full.modes for point in front]
    good = [here and found.keeps(found.full.row(found.recipe(p.modes))) for here, p in zip(ran, front, strict=True)]
    first = good.index(True)
    assert first > 0 and ran[first - 1] and not good[first - 1]
    monkeypatch.setattr(finding, "MOST_ALONE", 100)
    every = ModelSubject(model, Place(zen4), feeds, calibrate, enumerable=125)
    truth = Finding(every, judge, Results(None))
    truth.search(names)
    best = [min(row["cycles"] for row in one.full.rows(one.full.modes) if found.keeps(row)) for one in (found, truth)]
    assert len(truth.full.modes) == 125 and best[0] == best[1] < front[first].cycles
    assert len(found.few.modes) < 70 and len(found.full.modes) < 25


def test_machines_side_by_side_share_the_search(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes that ran over few feeds on the first machine are priced on the others; their fronts run over all."""
    net, names = workloads.cancer(), ["f32", "bf16", "int8-vnni", "fpmath-bf16", "s8-weights"]
    monkeypatch.setattr(finding, "MOST_ALONE", 1)
    feeds = [{"images": net.test_images[at : at + 4]} for at in range(0, 16, 4)]
    judge = Judge(None, None, False)
    first = ModelSubject(
        model,
        Place("zen4"),
        feeds,
        [{"images": net.train_images[:32]}],
        1,
        0,
        a_round=6,
        rounds=2,
        shown=3,
    )
    one = Finding(first, judge, Results(None), judge)
    one.search(names)
    ran: list[bool] = []
    was = ModelSubject.run
    monkeypatch.setattr(ModelSubject, "run", lambda self, modes, few=False: (ran.append(few), was(self, modes, few))[1])
    second = first.on(isa_models.machine("spr"))
    assert second.calibrated is first.calibrated
    other = Finding(second, judge, Results(None), judge, before=one)
    notes = other.search(names)
    own = len(other.few.modes) - other.few.lent
    assert ran.count(True) <= own + 1 < len(other.few.modes) / 2  # f32 too, which their outputs are compared with
    assert any("errors that they had on zen4" in line for line in notes)
    alone = ModelSubject(model, Place("spr"), feeds, first.calibration)
    reference = alone.run(dict.fromkeys(alone.layers, "f32"))
    for modes in other.full.modes:
        row, run = other.full.row(modes), alone.run(modes)
        assert row["cycles"] == run.cycles == other.few.row(modes)["cycles"]
        assert row["sqnr_db"] == judge.sqnr_db(run.outputs, reference.outputs)


def test_many_layers_alike_share_a_mode(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many to try each: those whose names differ in numbers alone."""
    monkeypatch.setattr("simdnn.tuning.subjects.MOST_ALONE", 2)
    feeds = [{"images": workloads.cancer().test_images[:4]}]
    subject = ModelSubject(model, Place("zen4"), feeds, feeds, halvings=0)
    found = Finding(subject, Judge(None, None, False), Results(None))
    found.search(["f32", "bf16"])
    assert [text_of(modes) for modes in found.full.modes] == ["all f32", "all bf16"]
    tuned = simdnn.tune(model, machine="zen4", feeds=feeds, modes=["f32", "bf16"])
    assert len(tuned.runs) == 8 and tuned.table(0)["layer"].tolist() == ["fc1", "fc2", "fc3"]  # halved until alone


def test_a_layer_unlike_the_others_is_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of eight that are alike reads a column a thousand times the others, which its weights leave out."""
    onnx = pytest.importorskip("onnx")
    monkeypatch.setattr("simdnn.tuning.subjects.MOST_ALONE", 2)
    rng, size, odd = np.random.default_rng(0), 64, 5
    weights = [rng.normal(0, size**-0.5, (size, size)).astype(np.float32) for _ in range(8)]
    weights[odd - 1][:, 0] *= 1000
    weights[odd][0] = 0
    stored = [onnx.numpy_helper.from_array(w, f"w{at}") for at, w in enumerate(weights)]
    nodes = [onnx.helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"x{at + 1}"], f"block.{at}") for at in range(8)]
    ports = [onnx.helper.make_tensor_value_info(name, 1, [16, size]) for name in ("x0", "x8")]
    graph = onnx.helper.make_graph(nodes, "alike", ports[:1], ports[1:], stored)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    feeds = [{"x0": rng.normal(size=(16, size)).astype(np.float32)}]
    subject = ModelSubject(made, Place("clx"), feeds, feeds, halvings=3, a_round=4, rounds=1, enumerable=1)
    found = Finding(subject, Judge(None, None, False), Results(None))
    found.search(["f32", "int8-vnni"])
    assert [len(group) for group in found.groups] == [4, 1, 1, 2] and found.groups[2] == (f"block.{odd}",)
    alone = found.full.row(found.recipe(("int8-vnni", "int8-vnni", "f32", "int8-vnni")))
    every = found.full.row(dict.fromkeys(subject.layers, "int8-vnni"))
    assert alone["sqnr_db"] > every["sqnr_db"] + 20 and len(found.full.modes) < 20


def test_recipes_that_begin_alike_follow_each_other(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what the memory keeps of one serves the next; rows stand in the order in which they were asked for."""
    ran: list[str] = []
    was = ModelSubject.run
    monkeypatch.setattr(
        ModelSubject, "run", lambda self, modes, few=False: (ran.append(text_of(modes)), was(self, modes, few))[1]
    )
    feeds = [{"images": workloads.cancer().test_images[:2]}]
    subject = ModelSubject(model, Place("zen4"), feeds, feeds)
    runs = RecipeRuns(subject, Judge(None, None, False), Results(None))
    asked = [{"fc1": a, "fc2": b, "fc3": "f32"} for a in ("bf16", "f32") for b in ("bf16", "f32")]
    rows = runs.rows(asked)
    assert ran == ["all f32", "fc1 fc3 f32, fc2 bf16", "fc1 bf16, fc2 fc3 f32", "fc1 fc2 bf16, fc3 f32"]
    assert runs.modes == asked and rows == [runs.row(modes) for modes in asked]


def test_few_feeds_are_known_whatever_the_others_are(model: Any, tmp_path: Path) -> None:
    """A search by the same few feeds goes on from what was kept, however many decide."""
    images = workloads.cancer().test_images
    feeds = [{"images": images[at : at + 1]} for at in range(4)]
    calibrate = [{"images": workloads.cancer().train_images[:4]}]
    keys = []
    for count in (3, 4):
        subject = ModelSubject(model, Place("zen4"), feeds[:count], calibrate, few=1)
        rows = [RecipeRuns(subject, Judge(None, None, False), Results(None), few) for few in (True, False)]
        keys.append([one._identity for one in rows])
    assert keys[0][0] == keys[1][0] and keys[0][1] != keys[1][1]


def test_data_that_judge_what_they_calibrated_are_told(model: Any) -> None:
    said = simdnn.tune(model, machine="zen4", modes=["f32"], metric=lambda out: float(out["logits"].sum())).notes
    assert any("random" in line for line in said) and any("very data" in line for line in said)


@pytest.mark.parametrize("row", [0, 1])
def test_a_saved_recipe_runs(
    by_graph: Tuned, model: Any, row: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`simdnn run MODEL --recipe FILE` has the cycles and the error that tuning found."""
    import onnx

    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "f.npz", images=workloads.cancer().test_images[:16])
    by_graph.save(tmp_path / "r.json", row)
    words = ["run", str(tmp_path / "m.onnx"), "--recipe", str(tmp_path / "r.json"), "--machine", "zen4", "--json"]
    assert main([*words, "--feeds", str(tmp_path / "f.npz"), "--modes", "f32"]) == 0
    totals = {total["mode"]: total for total in json.loads(capsys.readouterr().out)["totals"]}
    assert totals["recipe"]["cycles"] == pytest.approx(by_graph.front["cycles"][row])
    assert totals["recipe"]["sqnr_db"] == pytest.approx(by_graph.front["sqnr_db"][row])
    assert totals["f32"]["cycles"] > totals["recipe"]["cycles"]


def test_a_saved_model_is_a_model(by_graph: Tuned, tmp_path: Path) -> None:
    import onnx

    by_graph.save(tmp_path / "x.onnx", 0)
    found = onnx.load(tmp_path / "x.onnx")
    onnx.checker.check_model(found)
    stored = json.loads({entry.key: entry.value for entry in found.metadata_props}["simdnn.recipe"])
    assert stored["modes"] == by_graph.recipe(0)
    feeds = {"images": workloads.cancer().test_images[:16]}
    assert np.isfinite(simdnn.load(tmp_path / "x.onnx").run(feeds, machine="zen4").outputs["logits"]).all()
    with pytest.raises(UnknownName, match="csv"):
        by_graph.save(tmp_path / "x.csv", 0)
    with pytest.raises(InvalidArgument, match="row=99"):
        by_graph.recipe(99)


def test_what_judges_and_what_calibrates_is_said(model: Any) -> None:
    """Feeds that do both are counted, wherever they stand."""
    images = workloads.cancer().test_images
    feeds = [{"images": images[at : at + 2]} for at in range(0, 8, 2)]
    said = {
        "judged on 2 feeds; ranges are from 1 feed apart from them": feeds[2:3],
        "1 of the 2 feeds that it is judged on are among those that its ranges are from": feeds[1:],
        "its ranges are from the very data that it is judged on": feeds[::-1],
    }
    for line, calibrate in said.items():
        tuned = simdnn.tune(model, machine="zen4", modes=["f32"], feeds=feeds[:2], calibrate=calibrate)
        assert line in tuned.notes
        one, _ = choose(isa_models.machine("zen4"), ["int8-vnni"])
        note = run_model(model, feeds[:2], one, machine="zen4", calibrate=calibrate).totals["note"].iloc[-1]
        assert (line in note) == (not line.startswith("judged"))
