"""A design-space study from its file to a frame: what is known is read, what is missing is run and kept as it comes."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from isa_models import InvalidArgument
from isa_models.errors import counted
from isa_models.keywords import keywords
from simdnn import workers
from simdnn.late import frames, pd
from simdnn.networks.precision import CHOICES
from simdnn.progress import Progress, shows
from simdnn.study.kinds import KINDS
from simdnn.study.pareto import pareto
from simdnn.study.points import FAILED, Outcome, Point, Stamp, lost, outcome
from simdnn.study.results import Results
from simdnn.study.space import Space, read_space

_LOG = logging.getLogger(__name__)
__all__ = ["FAILED", "explore", "quality_of", "results_path"]

#: larger is better; the first that a study has is set against speed
QUALITIES = ("accuracy", "sqnr_db", "worst_layer_sqnr_db")
_WORDS = {"simdnn": "this package", "machine": "the machine's table", "workload": "the layer table", "file": "the loop"}


@keywords
@shows
def explore(
    study: str | Path | Mapping[str, Any],
    *,
    results: str | Path | None = None,
    jobs: int | None = 1,
    dask: str = "",
    fresh: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Each point of a design space as a row: its parameters, the measures, and in `refused` why it has none.

    `study` is the path of a TOML file, or a mapping with such a file's content (docs/studies.md tells what it may
    hold). Rows are kept in `results`, FILE.jsonl beside FILE.toml where nothing else is said; a mapping's only where a
    path is given. Points that are there already are not run again, unless the package's code or the machine's table
    has changed since; `fresh` runs all. `jobs` is the number of worker processes (`None`: as many as suit the points; a
    script that asks for several runs its own code under `if __name__ == "__main__"`), `dask` the address of a Dask
    scheduler instead. `progress` is called with (done, of how many, which point), `note` with what is worth a line.
    `figures`, by dotted key, are of every machine.

    With values, `pareto` marks the points that none beats in speed and accuracy among those of one problem, machine and
    number of threads. `frame.attrs` has "study", "kind" and "axes". Raises `InvalidArgument` and `UnknownName` for what
    a study can't be; a point that can't be run is no error.

    >>> fixed = {"machine": "zen4", "n": 64, "k": 64, "mode": "int8-vnni"}
    >>> axes = {"m": [1, 8], "instructions.vpdp* zmm,*.occupancy": [1, 2]}
    >>> frame = explore({"study": {"kind": "matmul"}, "fixed": fixed, "axes": axes})
    >>> frame.columns[:2].tolist(), len(frame), bool((frame["cycles"] > 0).all())
    (['m', 'instructions.vpdp* zmm,*.occupancy'], 4, True)
    """
    source = Path(study) if isinstance(study, (str, Path)) else study
    if not isinstance(source, (Path, Mapping)):
        raise InvalidArgument(f"study is a {type(study).__name__}; a path or a mapping is needed")
    workers.check_jobs(jobs)
    space = read_space(source, figures or {})
    kept = Results(results_path(source, results))
    try:
        if fresh:
            kept.forget({point.key for point in space.points})
        for line in kept.losses:
            print(f"simdnn: {line}", file=sys.stderr)
        stamps = {point.key: point.stamp() for point in space.points}
        lacking = {point.key: point for point in space.points if not kept.has(point.key, stamps[point.key])}
        todo = list(lacking.values())
        for line in _notes(space, kept, todo, stamps):
            _LOG.info("%s", line)
            (note or _silent)(line)
        _run(todo, kept, stamps, jobs, dask or space.scheduler, progress)
    finally:
        kept.close()
    return _frame(space, [kept.known[point.key] for point in space.points])


def results_path(study: Path | Mapping[str, Any], given: str | Path | None = None) -> Path | None:
    """Where the rows of a study are kept."""
    if given is None:
        return study.parent / f"{study.stem}.jsonl" if isinstance(study, Path) else None
    if not isinstance(given, (str, Path)):
        raise InvalidArgument(f"results of type {type(given).__name__}; a path is needed")
    return Path(given)


def _silent(line: str) -> None:
    pass


def _notes(space: Space, kept: Results, todo: list[Point], stamps: Mapping[str, Stamp]) -> Iterable[str]:
    of = len({point.key for point in space.points})
    if of > len(todo):
        yield f"{of - len(todo)} of {of} points are known from {kept.path}"
    stale: Counter[str] = Counter()
    for point in todo:
        if point.key in kept.known:
            old, new = kept.known[point.key].stamp, stamps[point.key]
            stale[" and ".join(_WORDS[name] for name in new if old.get(name) != new[name])] += 1
    for reason, count in stale.items():
        yield f"computed again: {counted(count, 'point')}, as {reason} has changed since"
    yield from kept.losses


def _run(
    todo: list[Point],
    kept: Results,
    stamps: Mapping[str, Stamp],
    jobs: int | None,
    dask: str,
    progress: Progress | None,
) -> None:
    if not todo:
        return
    many = jobs or workers.usual(len(todo))
    with workers.crew(outcome, lost, jobs=many, dask=dask) as each:
        for done, (point, result) in enumerate(each(todo), 1):
            if not result.failed and result.stamp != stamps[point.key]:
                result = lost("the package, the machine's table or a file that is read is another one at the worker")
            told = {"machine": point.machine, **point.figures, **point.parameters}
            kept.add(point.key, result, told)
            _LOG.debug("point %d of %d: %s", done, len(todo), told)
            if progress:
                progress(done, len(todo), " ".join(f"{key}={value}" for key, value in told.items()))


def _frame(space: Space, outcomes: list[Outcome]) -> pd.DataFrame:
    rows = [
        {key: _cell(value) for key, value in given.items()} | one.row
        for given, one in zip(space.given, outcomes, strict=True)
    ]
    known = dict.fromkeys((*space.columns, *KINDS[space.kind].columns))
    others = dict.fromkeys(key for row in rows for key in row if key not in known and key != "refused")
    frame = pd.DataFrame(rows, columns=[*known, *others, "refused"])
    for column in space.columns:
        if len(met := {type(value) for value in frame[column].dropna()}) > 1 and met != {int, float}:
            frame[column] = frame[column].map(str, na_action="ignore")  # one type, as files want it
    if space.values:
        frame.insert(len(frame.columns) - 1, "pareto", _pareto(frame, space))
    frame = frames.shown(frame)
    frame.attrs = {"study": space.name, "kind": space.kind, "axes": list(space.axes)}
    return frame


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, list) else value


def quality_of(frame: pd.DataFrame) -> str | None:
    """The column that tells points' quality; None where none has figures."""
    return next((name for name in QUALITIES if name in frame and frame[name].notna().any()), None)


def _pareto(frame: pd.DataFrame, space: Space) -> list[bool]:
    """Points as fast and as good as which no other one is, among those that differ in precision alone."""
    quality = quality_of(frame)
    if quality is None:
        return [False] * len(frame)
    same = [column for column in space.columns if column not in CHOICES]
    front: dict[Any, bool] = {}
    good = frame[frame[quality].notna() & frame["time_us"].notna()]
    groups = good.groupby(same, sort=False, dropna=False) if same else [(None, good)]
    for _, part in groups:
        front |= dict(zip(part.index, pareto(-part["time_us"], part[quality]), strict=True))
    return [front.get(index, False) for index in frame.index]
