"""simdnn.tune: which precision each layer of a network should have on a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isa_models
import workloads
from isa_models import GpuMachine, InvalidArgument, Machine, SimdnnError
from isa_models.errors import counted, shortly, unknown_name
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.late import frames, pd
from simdnn.networks.feeds import left_open, listed_feeds, overlap_of, random_feeds, telling_open
from simdnn.networks.judging import Metric
from simdnn.networks.load import read
from simdnn.networks.network import load
from simdnn.networks.precision import MODES, Mode, choose
from simdnn.networks.sequential import Place
from simdnn.primitives.checks import keywords
from simdnn.progress import Progress, shows
from simdnn.study.results import Results
from simdnn.tuning.finding import Finding
from simdnn.tuning.judge import Judge, OwnScore
from simdnn.tuning.measured import Running, lost
from simdnn.tuning.subjects import ModelSubject, Subject, TrainedSubject, trained
from simdnn.tuning.tuned import Tuned, text_of
from simdnn.workers import WORTH_WORKERS, check_jobs, crew, usual
from workloads import Classifier, RealNetwork

if TYPE_CHECKING:
    from simdnn.networks.modes import Model

Feeds = Mapping[str, Array] | Sequence[Mapping[str, Array]]
_A_ROUND, _ROUNDS = 24, 4  # recipes of a fetched network, after sensitivities
_SLACK = 1e-12  # of a loss, which is a difference
_COLUMNS = ("machine", "cycles", "time_us", "quality", "loss", "sqnr_db", "speed_up", "recipe")
_PRINTED = ("machine", "speed_up", "quality", "loss")


@keywords
@shows
def tune(
    model: Model | Classifier,
    *,
    machine: str | Path | AnyMachine | Sequence[str | Path | AnyMachine],
    feeds: Feeds | None = None,
    labels: Array | Sequence[int] | None = None,
    metric: Metric | None = None,
    calibrate: Feeds | None = None,
    modes: Iterable[str] | None = None,
    isa: str | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    shapes: Mapping[str, Sequence[int]] | None = None,
    samples: int | None = None,
    seed: int = 0,
    max_loss: float | None = None,
    min_db: float | None = None,
    faster_than: float | None = None,
    results: str | Path | None = None,
    progress: Progress | None = None,
    jobs: int | None = 1,
    dask: str = "",
) -> Tuned:
    """The front of recipes that put each layer of a network in a precision mode of its own: quality against cycles.

    `model`: an ONNX model, or the name of a trained network, which brings data ("digits"; once fetched, "ocr").
    `machine`: one, or several, each with a front; `isa`, `threads` and `dispatch` as in `simdnn.matmul`: under
    dispatch="onednn" the recipes are of the kernels that oneDNN picks. `shapes`: sizes of random feeds that the model
    leaves open (1). `feeds`: what recipes are judged on, a dict of arrays by input name
    or a list of them (random ones where none are given, which tell little of quality); `calibrate`: those that integers
    take their ranges from (the same ones where none are given, which is said in `notes`; a trained network has training
    data). `samples`: by how many a fetched network is judged (its own number); `seed`: of random feeds, and of what
    a fetched network is judged on.

    Quality is the accuracy where there are `labels`, the class being the largest value of the first output; else what
    `metric` makes of the outputs, larger being better (of a dict by output name, or a list of them where `feeds` is
    one); else the signal to error of the outputs against f32's, in dB. `modes` are names of `simdnn list modes` (those
    that the machine has, without per-tensor and s8-source integers); a layer that takes none of them stays in f32.
    Bounds on rows: a `loss` of at most `max_loss` (0.005 of accuracy: half a point), `min_db` of signal to error,
    `faster_than` a factor over f32's speed.

    Where there are few enough recipes all are run, and the front is the true one; else sensitivities of one layer at a
    time give an additive model, an exact search on it the recipes to run, and what those tell corrects it until the
    front is stable: `notes` say which. `results`, FILE.jsonl, keeps every recipe that was run, to go on from there;
    `progress` is called with (done, of how many, what). `jobs` is the number of worker processes that run recipes
    (`None`: as many as suit the network; a script that asks for several runs its own code under
    `if __name__ == "__main__"`), `dask` the address of a Dask scheduler instead: the front is the same, bit for bit.

    Raises `InvalidArgument` and `UnknownName` for what does not fit, `Unimplemented` for a model that is stored in
    integers and for a library on a GPU, and `SimdnnError` where no recipe meets the bounds.

    >>> import simdnn
    >>> tuned = simdnn.tune("cancer", machine="zen4", modes=["f32", "int8-vnni"], max_loss=0.01)
    >>> tuned.front["recipe"].tolist()[0], bool(tuned.front["speed_up"].max() > 1)
    ('all int8-vnni', True)
    """
    bounds = {"max_loss": max_loss, "min_db": min_db, "faster_than": faster_than}
    _check(bounds, samples, seed, jobs, dask, {"metric": metric, "progress": progress}, results)
    places = [Place(one, isa, threads, dispatch) for one in _machines(machine)]
    targets = [place.target.machine for place in places]
    chosen = _modes(targets, modes, isa)
    if shapes is not None and (feeds is not None or not isinstance(shapes, Mapping)):
        raise InvalidArgument(f"shapes={shapes!r:.60}; a dict of sizes by input name, of random feeds, is needed")
    kept = Results(None if results is None else Path(results))
    measured: dict[str, Finding] = {}
    fronts: dict[str, pd.DataFrame] = {}
    notes: list[str] = []
    try:
        first, judge, few, said = _subject(model, places[0], feeds, labels, metric, calibrate, samples, shapes, seed)
        for target in targets:
            subject = first.on(target) if measured else first
            found = Finding(subject, judge, kept, few, before=next(iter(measured.values()), None))
            found.keeps = _within(found, max_loss, min_db)
            if progress:
                found.told(progress)
            many = jobs or usual(0 if isinstance(subject, TrainedSubject) else WORTH_WORKERS)
            with crew(Running(subject), lost, jobs=many, dask=dask) as each, telling_open(_open(model, feeds, shapes)):
                told = found.run_by(each).search(chosen[target.name])
            found.run_by(None).keeps = None
            asked = _asked(_frame(found), found, chosen[target.name])
            measured[target.name], fronts[target.name] = found, _front(asked, bounds, target.name)
            notes += [f"{target.name}: {line}" if len(targets) > 1 else line for line in (*told, *found.losses)]
    finally:
        kept.close()
    return _tuned(measured, fronts, judge.measure, [*notes, *said], _name(model))


def _tuned(
    measured: Mapping[str, Finding], fronts: Mapping[str, pd.DataFrame], measure: str, notes: Sequence[str], name: str
) -> Tuned:
    """The outcome: the machines' fronts one below the other, and the recipe of each of their rows."""
    modes = [measured[machine].full.modes[int(row)] for machine, front in fronts.items() for row in front.index]
    front = frames.shown(pd.concat(fronts.values(), ignore_index=True), [*_PRINTED, "chosen", "recipe"])
    runs = pd.concat([_frame(found) for found in measured.values()], ignore_index=True)
    told = tuple(dict.fromkeys(notes))
    return Tuned(
        front, frames.shown(runs, [*_PRINTED, "recipe"]), measure, told, name, dict(enumerate(modes)), measured
    )


def _check(
    bounds: Mapping[str, Any], samples: Any, seed: Any, jobs: Any, dask: Any, functions: Mapping[str, Any], results: Any
) -> None:
    """`InvalidArgument` for a word of `tune` that is none of its own."""
    for name, bound in bounds.items():
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float)) or not bound >= 0):
            raise InvalidArgument(f"{name}={bound!r}; a number of at least 0 is needed")
    check_jobs(jobs)
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
        raise InvalidArgument(f"samples={shortly(samples)}; a whole number of at least 1 is needed")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise InvalidArgument(f"seed={shortly(seed)}; a whole number from 0 to 2**32 - 1 is needed")
    if not isinstance(dask, str) or (dask and jobs not in (None, 1)):
        raise InvalidArgument(f"dask={dask!r}, jobs={jobs!r}; the address of a scheduler, or worker processes here")
    for name, one in functions.items():
        if one is not None and not callable(one):
            raise InvalidArgument(f"{name}={one!r:.60}; a function is needed")
    if results is not None and not isinstance(results, (str, Path)):
        raise InvalidArgument(f"results of type {type(results).__name__}; a path is needed")


def _machines(machine: object) -> list[AnyMachine]:
    """One machine or several, each once."""
    one = isinstance(machine, (str, Path, Machine, GpuMachine))
    if not one and not isinstance(machine, (list, tuple)):
        raise InvalidArgument(f"machine={machine!r:.60}; a machine, as 'zen4', or a list of them is needed")
    names: Any = [machine] if one else machine
    found = [isa_models.machine(name) for name in names]
    if not found:
        raise InvalidArgument("machine=[]; one machine at least is needed, as 'zen4'")
    return list({target.name: target for target in found}.values())


def _modes(targets: Sequence[AnyMachine], names: Iterable[str] | None, isa: str | None) -> dict[str, list[str]]:
    """The modes to choose from, by machine; of several machines each has those that it can run, up to an ISA cap."""
    if isinstance(names, str):
        raise InvalidArgument(f"modes={names!r}; a list of names is needed: {names.split(',')}")
    names = names.tolist() if isinstance(names, np.ndarray) else [*names] if isinstance(names, Iterable) else names
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InvalidArgument(f"modes={names!r:.60}; a list of names is needed, as ['f32', 'bf16']")
    wanted = [name for name, mode in MODES.items() if _usual(mode)] if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in MODES:
            raise unknown_name("mode", str(name), MODES, "simdnn list modes")
        if MODES[name].by_token:
            raise InvalidArgument(f"mode {name!r} is of layer tables: no network here quantizes sources as it runs")
    if names is not None and len(targets) == 1:
        choose(targets[0], wanted, isa)
    found = {one.name: [name for name in wanted if MODES[name].isa(one, isa)] for one in targets}
    for name, able in found.items():
        if not able:
            under = f" up to {isa}" if isa else ""
            raise InvalidArgument(f"machine {name!r} has none of the modes {', '.join(wanted)}{under}")
    return found


def _usual(mode: Mode) -> bool:
    return not mode.per_tensor and not mode.by_token and mode.src != "s8"


def _subject(
    model: Model | Classifier,
    place: Place,
    feeds: Feeds | None,
    labels: Array | Sequence[int] | None,
    metric: Metric | None,
    calibrate: Feeds | None,
    samples: int | None,
    shapes: Mapping[str, Sequence[int]] | None,
    seed: int,
) -> tuple[Subject, Judge, Judge | None, list[str]]:
    """The subject that is run, how it is judged, over few feeds too where those are enough for sensitivities, and notes
    on the data.
    """
    known = None if labels is None else _classes(labels)
    names = (*workloads.NETWORKS, *workloads.REAL_NETWORKS)
    if isinstance(model, str) and model not in names and "." not in model and not exists(model):
        raise unknown_name("network", model, names)
    if isinstance(model, str) and model in workloads.REAL_NETWORKS:
        if any(given is not None for given in (feeds, labels, metric, calibrate)):
            raise InvalidArgument(f"{model!r} brings its data and its metric; feeds are for a model of your own")
        return fetched(workloads.REAL_NETWORKS[model], place, samples, seed)
    if samples is not None:
        raise InvalidArgument(f"samples={samples!r:.60} of {model!r:.60}; they are of a fetched network")
    if isinstance(model, str) and model in workloads.NETWORKS:
        model = workloads.NETWORKS[model]()
    if seed and (feeds is not None or isinstance(model, Classifier)):
        raise InvalidArgument(f"seed={seed}: nothing is drawn where data are given, or come with a network")
    if isinstance(model, Classifier):
        if calibrate is not None:
            raise InvalidArgument(f"calibrate says nothing about {model.name}: ranges are from its training data")
        return _of_classifier(model, place, feeds, known, metric)
    notes, several = [], feeds is not None and not isinstance(feeds, Mapping)
    if feeds is None:
        network = load(model)
        if not network.inputs:
            raise InvalidArgument(
                "the model has no inputs: nothing is computed when it runs, and any recipe is as good"
            )
        feeds = random_feeds(network, shapes or {}, seed)
        open_sizes = left_open(_open(model, None, shapes))
        notes += [f"{open_sizes}: feeds or shapes say what it is"] if open_sizes else []
        notes.append(f"judged on random data, seed {seed}: quality is that of noise, not of your data")
    judged = listed_feeds("feeds", feeds)
    given = judged if calibrate is None else listed_feeds("calibrate", calibrate)
    counts = f"judged on {counted(len(judged), 'feed')}; ranges are from {counted(len(given), 'feed')}"
    notes.append(overlap_of(judged, given) or f"{counts} apart from them")
    return ModelSubject(model, place, judged, given), Judge(known, metric, not several), None, notes


def _of_classifier(
    model: Classifier, place: Place, feeds: Feeds | None, labels: Array | None, metric: Metric | None
) -> tuple[Subject, Judge, Judge | None, list[str]]:
    """The subject, judges and notes of a network that is trained here, on held-out images where no feeds are given."""
    images = None if feeds is None else _images(model, listed_feeds("feeds", feeds))
    subject = trained(model, place, images, labels)
    own = model.test_labels if feeds is None and labels is None and metric is None else labels
    count = len(subject.net.test_images)
    said = f"ranges are from training data; judged on {count} samples" + (" held out" if feeds is None else "")
    return subject, Judge(own, metric, True), None, [said]


def _open(model: Model | Classifier, feeds: Feeds | None, shapes: Mapping[str, Sequence[int]] | None) -> list[str]:
    """The sizes of an ONNX model that were taken as 1, as no feeds tell them."""
    named = isinstance(model, str) and model in (*workloads.NETWORKS, *workloads.REAL_NETWORKS)
    return [] if feeds is not None or named or isinstance(model, Classifier) else load(model).sizes(shapes or {})[1]


def _classes(labels: object) -> Array:
    """Labels as an array; whether there are as many as samples shows where outputs are."""
    try:
        found = np.asarray(labels)
    except ValueError:
        found = np.zeros(0)
    if found.dtype.kind not in "iub":
        raise InvalidArgument(f"labels={labels!r:.60}; the number of a class for each sample is needed")
    return found


def _images(net: Classifier, feeds: Sequence[Mapping[str, Array]]) -> Array:
    """The samples that a trained network is judged on: those of its only input."""
    if len(feeds) != 1 or set(feeds[0]) != {"images"}:
        met = f"{len(feeds)} feeds" if len(feeds) != 1 else ", ".join(map(repr, feeds[0]))
        raise InvalidArgument(f"feeds of {net.name}: {met}; one is needed, {{'images': all samples in one array}}")
    images = feeds[0]["images"]
    if not isinstance(images, np.ndarray) or images.dtype.kind not in "fiub":
        raise InvalidArgument(f"feeds of {net.name} hold {images!r:.60}; an array of numbers is needed")
    if not np.isfinite(images).all():
        raise InvalidArgument(f"feeds of {net.name} hold NaN or infinity; finite numbers are needed")
    return images


def fetched(
    network: RealNetwork, place: Place, samples: int | None = None, seed: int = 0
) -> tuple[Subject, Judge, Judge | None, list[str]]:
    """A fetched network over `samples` of its data; the cost is that of the first one. Where there are more than
    a few of them, those few tell sensitivities.
    """
    model, _ = read(network.model())
    data = network.data(model, network.count if samples is None else samples, seed)
    first = network.metrics[0]
    sign = "" if first.higher_is_better else "minus "
    few = network.few if len(data.samples) > network.few else None
    of = f"{len(data.samples)} {network.samples}"
    notes = [f"quality is {sign}{first.name} ({first.title}) of {of}"]
    notes += [f"the search goes by {few} of the {of}, and all of them decide"] if few else []
    apart = overlap_of(data.samples, data.calibration) or f"ranges are from {len(data.calibration)} other samples"
    notes += [apart] if data.calibration else []
    subject = ModelSubject(model, place, data.samples, data.calibration, few, a_round=_A_ROUND, rounds=_ROUNDS)
    small = Judge(None, OwnScore(network, network.data(model, few, seed)), False) if few else None
    return subject, Judge(None, OwnScore(network, data), False), small, notes


def _frame(finding: Finding) -> pd.DataFrame:
    """All recipes that were run, by their number."""
    base = finding.full.row(dict.fromkeys(finding.subject.layers, "f32"))
    rows = {}
    for number, modes in enumerate(finding.full.modes):
        row = finding.full.row(modes)
        if row["refused"]:
            continue
        more = {"loss": _loss(finding, row, base), "speed_up": base["cycles"] / row["cycles"], "recipe": text_of(modes)}
        rows[number] = {"machine": finding.subject.machine.name, **row, **more}
    return pd.DataFrame.from_dict(rows, orient="index")[list(_COLUMNS)]


def _asked(frame: pd.DataFrame, finding: Finding, names: Sequence[str]) -> pd.DataFrame:
    """The recipes of modes that are to be chosen from. Sensitivities have layers in f32, which may be none of these."""
    if "f32" in names:
        return frame
    able = {layer for number in frame.index for layer, mode in finding.full.modes[number].items() if mode != "f32"}
    return frame[[all(finding.full.modes[number][layer] != "f32" for layer in able) for number in frame.index]]


def _loss(finding: Finding, row: Mapping[str, Any], base: Mapping[str, Any]) -> float:
    """The loss of a row beside f32: quality, or where quality is signal to error the error over the output."""
    same = finding.full.judge.measure == "sqnr_db"
    return float(10 ** (-row["sqnr_db"] / 20) if same else base["quality"] - row["quality"])


def _within(finding: Finding, most: float | None, least: float | None) -> Callable[[Mapping[str, Any]], bool] | None:
    """Whether a row keeps the bounds on quality; None where there are none."""
    if most is None and least is None:
        return None
    f32 = dict.fromkeys(finding.subject.layers, "f32")

    def keeps(row: Mapping[str, Any]) -> bool:
        if row["refused"] or least is not None and row["sqnr_db"] < least:
            return False
        return most is None or _loss(finding, row, finding.full.row(f32)) <= most + _SLACK

    return keeps


def _front(frame: pd.DataFrame, bounds: Mapping[str, float | None], machine: str) -> pd.DataFrame:
    """The rows within the bounds that none beats in cycles and quality, the fastest first, and which is asked for."""
    most, least, faster = (bounds[name] for name in ("max_loss", "min_db", "faster_than"))
    tests: list[tuple[float | None, Callable[[float], Any]]] = [
        (most, lambda bound: frame["loss"] <= bound + _SLACK),
        (least, lambda bound: frame["sqnr_db"] >= bound),
        (faster, lambda bound: frame["speed_up"] >= bound),
    ]
    inside = frame
    for bound, test in tests:
        if bound is not None:
            inside = inside[test(bound).loc[inside.index]]
    if inside.empty:
        said = ", ".join(f"{name}={bound:g}" for name, bound in bounds.items() if bound is not None)
        top = frame.sort_values("speed_up").to_dict("records")[-1]
        raise SimdnnError(
            f"no recipe on {machine} meets {said}; the fastest, {top['recipe']}, has {top['speed_up']:.2f} times "
            f"f32's speed, loses {top['loss']:.3g} and has {top['sqnr_db']:.1f} dB"
        )
    ordered = inside.sort_values(["cycles", "quality", "sqnr_db"], ascending=[True, False, False], kind="stable")
    rising = ordered["quality"] > ordered["quality"].cummax().shift(fill_value=-np.inf)
    front = ordered[rising]
    asked = 0 if most is not None or least is not None else len(front) - 1
    return front.assign(chosen=[at == asked for at in range(len(front))])


def _name(model: object) -> str:
    if isinstance(model, (str, PathLike)):
        return str(model)
    return str(getattr(model, "name", "") or getattr(getattr(model, "graph", None), "name", "") or "model")
