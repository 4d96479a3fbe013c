"""Studies from a file: the points of a space, their rows, what is kept and found again, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
import workloads
from isa_models import InvalidArgument, SimdnnError, machine
from simdnn import plot_study, study, workers
from simdnn.cli import main
from simdnn.study import exploration, kinds
from simdnn.study.points import Outcome, lost, outcome
from simdnn.study.results import Results
from simdnn.study.space import MOST_POINTS, read_space
from tests.effort import examples

SMALL = """
[study]
kind = "matmul"
[axes]
m = [1, 8]
mode = ["f32", "int8-vnni"]
[fixed]
machine = "zen4"
n = 32
k = 64
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def space(kind: str = "matmul", axes: Any = {}, fixed: Any = {}, **others: Any) -> dict[str, Any]:  # noqa: B006
    sizes = {"machine": "zen4", "m": 8, "n": 32, "k": 64} if kind == "matmul" else {"machine": "zen4"}
    known = {key: value for key, value in sizes.items() if key not in axes}
    return {"study": {"kind": kind}, "axes": axes, "fixed": {**known, **fixed}, **others}


# -- points ------------------------------------------------------------------------------------------------------------


def test_points_are_the_product_of_the_axes() -> None:
    shapes = [{"m": 1, "k": 64}, {"m": 8, "k": 32}]
    axes = {"shape": shapes, "threads": range(1, 3), "core": {"dispatch_slots": [4, 6]}}
    what = space(axes=axes, fixed={"mode": "bf16"})
    del what["fixed"]["m"], what["fixed"]["k"]
    found = read_space(what)
    assert found.axes == ("m", "k", "threads", "core.dispatch_slots")
    assert found.columns == (*found.axes, "machine", "n", "mode")
    given_ = [tuple(point[axis] for axis in found.axes) for point in found.given]
    assert given_ == [(m, k, t, d) for m, k in ((1, 64), (8, 32)) for t in (1, 2) for d in (4, 6)]
    assert len({point.key for point in found.points}) == 8
    assert found.points[0].figures == {"core.dispatch_slots": 4}
    assert found.points[0].parameters == {"m": 1, "k": 64, "threads": 1, "n": 32, "mode": "bf16", "seed": 0}


def test_a_point_that_comes_twice_is_run_once() -> None:
    assert len(read_space(space(axes={"m": [1, 2, 1]})).points) == 2


def test_a_machine_of_the_file_is_its_base_with_figures() -> None:
    wide = {"base": "zen4", "core.dispatch_slots": 8, "instructions": {"vpdp* zmm,*": {"occupancy": 1}}}
    found = read_space(space(axes={"machine": ["zen4", "wide"]}, machines={"wide": wide}))
    assert [(p.machine, len(p.figures)) for p in found.points] == [("zen4", 0), ("zen4", 2)]
    assert [one["machine"] for one in found.given] == ["zen4", "wide"]
    both = space(axes={"machine": ["zen4", "wide", "broad"]}, machines={"broad": wide, "wide": wide})
    assert [p.key for p in read_space(both).points] == [p.key for p in (*found.points, found.points[1])]
    ran: list[int] = []
    frame = study.explore(both, progress=lambda done, total, what: ran.append(total))
    assert ran == [2, 2] and list(frame["machine"]) == ["zen4", "wide", "broad"]
    assert frame["cycles"][1] == frame["cycles"][2]


# -- rows --------------------------------------------------------------------------------------------------------------


def test_a_row_says_what_the_estimate_says() -> None:
    frame = study.explore(space(axes={"m": [40], "caches.L1.load_bytes_per_cycle": [14, 56]}, fixed={"threads": 2}))
    for row in frame.to_dict("records"):
        target = simdnn.what_if("zen4", {"caches.L1.load_bytes_per_cycle": row["caches.L1.load_bytes_per_cycle"]})
        wanted = simdnn.estimate("matmul", m=row["m"], n=32, k=64, dt="f32", machine=target, threads=2)
        assert row["cycles"] == wanted.cycles and row["bound"] == wanted.bound
    assert (frame["refused"] == "").all() and frame.attrs["axes"] == ["m", "caches.L1.load_bytes_per_cycle"]


def test_values_seeds_and_the_front() -> None:
    what = space(axes={"seed": [0, 1], "mode": ["f32", "bf16", "int8-vnni", "int8-exact"]})
    what["study"]["values"] = True
    frame = study.explore(what)
    errors = frame.pivot(index="mode", columns="seed", values="max_abs_error")
    assert (errors.loc["f32"] == 0).all() and (errors.loc["bf16"] > 0).all()
    assert errors.loc["bf16", 0] != errors.loc["bf16", 1]
    for _, part in frame.groupby("seed"):
        best = part.set_index("mode")["pareto"]
        assert best["f32"] and best["int8-vnni"] and not best["int8-exact"]  # as exact, and slower
    layers = study.run_layers(
        workloads.Workload("one", "", "", (workloads.MatmulLayer("matmul", 8, 32, 64),)), "zen4", ["bf16"], seed=1
    )
    row = frame[(frame["mode"] == "bf16") & (frame["seed"] == 1)].iloc[0]
    assert row["sqnr_db"] == layers["sqnr_db"].iloc[0] and row["cycles"] == layers["cycles"].iloc[0]


def test_types_of_ones_own() -> None:
    weights = [
        {"weights": "f32"},
        {"weights": "s8", "group": 64},
        {"weights": "s4", "group": 32},
        {"weights": "s4", "group": 48},
        {"weights": "f32", "group": 32},
        {"mode": "s4-weights", "group": 64},
        {"src": "u8", "weights": "s8"},
    ]
    what = space(axes={"weights": weights}, fixed={"fpmath": "bf16"})
    frame = study.explore(what)
    assert (frame["refused"] != "").tolist() == [False, False, False, True, True, False, True]
    assert "group=48 does not divide k=64" in frame["refused"][3] and "integer weights" in frame["refused"][4]
    assert "math modes are of floating-point sources" in frame["refused"][6]
    assert frame["compute_dtype"].dropna().eq("bf16").all()
    assert frame["bytes"].iloc[[0, 1, 2, 5]].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("what", "columns"),
    [
        (space("convolution", {"kh": [1, 3]}, {"ic": 8, "ih": 6, "iw": 6, "oc": 16, "kw": 1, "isa": "avx2"}), "gops"),
        (space("workload", {"mode": ["f32", "bf16"]}, {"workload": "cancer"}), "gops"),
        (space("loop", {"machine": ["zen4", "skx"]}, {"file": "loop.s"}), "ipc"),
    ],
    ids=["convolution", "workload", "loop"],
)
def test_kinds(what: Any, columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop.s").write_text("vaddps ymm0, ymm1, ymm2\n")
    monkeypatch.chdir(tmp_path)
    frame = study.explore(what)
    assert (frame["refused"] == "").all() and (frame[columns] > 0).all() and frame["cycles"].gt(0).all()


def test_a_trained_network_has_an_accuracy() -> None:
    ways = [{"mode": "int8-vnni"}, {"mode": "f32", "layers": "fc1"}, {"mode": "f32", "src": "bf16"}]
    what = space("workload", {"ways": ways}, {"workload": "cancer"})
    what["study"]["values"] = True
    frame = study.explore(what)
    assert frame["refused"].str.contains("as a whole").tolist() == [False, True, True]
    assert frame["accuracy"][0] > 0.9 and frame["pareto"].tolist() == [True, False, False]


def test_one_bad_point_does_not_end_a_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Refusals are answers and are kept; what went wrong otherwise is said, and tried again."""
    matmul = kinds.KINDS["matmul"]

    def measure(target: Any, given: Any, values: bool) -> Any:
        if given["m"] == 2:
            raise ZeroDivisionError("a mistake of ours")
        if given["m"] == 3:
            raise MemoryError
        return matmul.measure(target, given, values)

    monkeypatch.setattr(exploration, "KINDS", {"matmul": matmul})
    monkeypatch.setitem(kinds.KINDS, "matmul", dataclasses.replace(matmul, measure=measure))  # type: ignore[arg-type]
    what = space(axes={"m": [1, 2, 3, 4]}, fixed={"isa": "avx512_core"})
    frame = study.explore(what, results=tmp_path / "kept.jsonl")
    assert frame["refused"].tolist() == [
        "",
        "failed: internal error: ZeroDivisionError('a mistake of ours')",
        "failed: out of memory",
        "",
    ]
    seen: list[int] = []
    study.explore(what, results=tmp_path / "kept.jsonl", progress=lambda done, total, name: seen.append(total))
    assert seen == [2, 2]
    refused = study.explore(space(axes={"isa": ["avx512_core", "avx512_core_amx"]}))
    assert "machine 'zen4' has" in refused["refused"][1] and np.isnan(refused["cycles"][1])


# -- what is kept ------------------------------------------------------------------------------------------------------


def explored(path: Path, **options: Any) -> tuple[pd.DataFrame, int, list[str]]:
    """The frame, how many points were run for it, and the notes."""
    ran: list[str] = []
    notes: list[str] = []
    frame = study.explore(path, progress=lambda done, total, what: ran.append(what), note=notes.append, **options)
    return frame, len(ran), notes


def test_what_is_known_is_not_run_again(small: Path) -> None:
    first, ran, notes = explored(small)
    assert ran == 4 and notes == []
    second, ran, notes = explored(small)
    assert ran == 0 and notes == [f"4 of 4 points are known from {small.with_suffix('.jsonl')}"]
    pd.testing.assert_frame_equal(first, second)
    small.write_text(SMALL.replace("[1, 8]", "[1, 2, 8]"))
    assert explored(small)[1] == 2
    assert explored(small, fresh=True)[1] == 6


def test_an_interrupted_study_goes_on(small: Path) -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.explore(small, progress=interrupt)
    assert explored(small)[1] == 1


@examples(25)
@given(st.booleans(), st.floats(0, 1), st.binary(max_size=8))
def test_results_may_be_cut_off_or_damaged_anywhere(
    tmp_path_factory: pytest.TempPathFactory, cut: bool, where: float, noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.toml"
    path.write_text(SMALL)
    whole, _, _ = explored(path, fresh=True)
    kept = path.with_suffix(".jsonl")
    content = kept.read_bytes()
    head = content.index(b"\n") + 1
    if cut:  # the file's length is chance: seconds are written into it
        kept.write_bytes(content[: round(where * len(content))])
    else:
        place = head + round(where * (len(content) - head - 1))
        kept.write_bytes(content[:place] + noise + content[place + 4 :])
    frame, ran, _ = explored(path)
    assert ran <= 4
    if frame["cycles"].tolist() == whole["cycles"].tolist():  # a digit may have been damaged
        assert explored(path)[1] == 0


def test_what_a_row_depends_on(tmp_path: Path) -> None:
    table = machine("a770").path.read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(table)
    path = tmp_path / "study.toml"
    path.write_text(SMALL.replace('"zen4"', '"mine.toml"'))
    before, ran, _ = explored(path)
    assert ran == 4
    (tmp_path / "mine.toml").write_text(table.replace("\nghz = {value = 2.1", "\nghz = {value = 1.05"))
    after, ran, notes = explored(path)
    assert ran == 4 and notes == ["computed again: 4 points, as the machine's table has changed since"]
    own, slower = (frame["time_us"].to_numpy() - machine("a770").launch_us for frame in (before, after))
    assert slower == pytest.approx(2 * own, rel=0.2)
    kept = path.with_suffix(".jsonl")
    lines = kept.read_text().splitlines()
    record = json.loads(lines[-1])
    record["stamp"]["simdnn"] = "0123456789abcdef"
    kept.write_text("\n".join([*lines[:-1], json.dumps(record)]) + "\n")
    _, ran, notes = explored(path)
    assert ran == 1 and notes[1] == "computed again: 1 point, as this package has changed since"


def test_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    row = {"refused": "", "a": float("inf"), "b": 0.1, "c": 3, "bound": "inf and out", "e": None}
    for _ in range(2):
        kept = Results(path)
        kept.add("key", Outcome({**row, "f": float("nan")}, {"simdnn": "1"}), {})
        kept.close()
    kept = Results(path)
    kept.close()
    found = kept.known["key"].row
    assert np.isnan(found.pop("f")) and found == row


@pytest.mark.parametrize(
    "line",
    [
        '{"key": 1}',
        "[]",
        "3",
        '{"key": "a", "stamp": {}, "row": {}}',
        '{"key": "a", "stamp": [], "row": {}}',
        '{"key": "a", "stamp": {}, "row": {"refused": "", "cycles": "many"}}',
        "[" * 100_000,
        '{"key": "a", "stamp": {}, "row": {"refused": "", "cycles": [1]}}',
        "9" * 5000,
    ],
)
def test_a_line_that_is_no_row_is_left_out(line: str, tmp_path: Path, small: Path) -> None:
    explored(small)
    with small.with_suffix(".jsonl").open("a") as file:
        file.write(line + "\n")
    _, ran, notes = explored(small)
    assert ran == 0 and notes[1].startswith("left out: 1 line of")


def test_other_files_are_left_alone(tmp_path: Path, small: Path) -> None:
    diary = tmp_path / "diary.jsonl"
    diary.write_text('{"dear": "diary"}\n')
    for fresh in (False, True):
        with pytest.raises(SimdnnError, match="holds something else"):
            study.explore(small, results=diary, fresh=fresh)
    assert diary.read_text() == '{"dear": "diary"}\n'
    with pytest.raises(SimdnnError, match="cannot be written"):
        study.explore(small, results=tmp_path / "nowhere" / "kept.jsonl")


# -- workers -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_costs_one_result() -> None:
    tasks = ["6 * 7", "__import__('os')._exit(9)"]
    with workers.crew(eval, str, jobs=2) as each:
        assert dict(each(tasks)) == {tasks[0]: 42, tasks[1]: workers.DIED}
        assert dict(each(["1 + 1"])) == {"1 + 1": 2}  # by a team that took the broken one's place


def test_a_script_that_workers_would_run_again_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    for text, guarded in (("if __name__ == '__main__':\n    explore()\n", True), ("explore()\n", False)):
        script.write_text(text)
        assert (workers.usual(workers.WORTH_WORKERS) == workers.most()) is (guarded or workers.most() == 1)
    workers.check_jobs(1)
    with pytest.raises(InvalidArgument, match=r"jobs=2: each worker process would run all of script\.py again"):
        workers.check_jobs(2)


def test_a_point_can_be_sent() -> None:
    point = read_space(space(axes={"m": [1]}, fixed={"core.dispatch_slots": 4})).points[0]
    there = pickle.loads(pickle.dumps(point))
    assert there.key == point.key and outcome(there) == outcome(point) and not outcome(there).failed


def test_a_worker_with_another_package_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "outcome", lambda point: Outcome({"refused": ""}, {"simdnn": "older"}))
    frame = study.explore(space(axes={"m": [1]}))
    assert frame["refused"][0].startswith(exploration.FAILED) and "another one at the worker" in frame["refused"][0]


def test_dask() -> None:
    if importlib.util.find_spec("distributed") is None:
        with pytest.raises(SimdnnError, match=r'pip install "\.\[dask\]" in a checkout'):
            study.explore(space(axes={"m": [1]}), dask="tcp://127.0.0.1:1")
        pytest.skip("the rest needs dask.distributed, which the dask extra brings")
    import distributed

    what = space(axes={"m": [1, 8], "isa": ["avx2", "avx512_core_amx"]})
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        there = study.explore(what, dask=cluster.scheduler_address)
    pd.testing.assert_frame_equal(there, study.explore(what))
    assert (there["refused"] == "").tolist() == [True, False, True, False]


# -- what is refused ---------------------------------------------------------------------------------------------------

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: {}, "key 'study': expected a table"),
    (lambda: {"study": {"kind": "matmull"}}, "'study.kind': expected one of matmul, convolution"),
    (lambda: space(axes={"mm": [1]}), "did you mean 'm'"),
    (lambda: space(axes={"m": []}), "'axes.m': expected a non-empty list"),
    (lambda: space(axes={"m": 3}), "a non-empty list"),
    (lambda: space(axes={"m": [8, 0]}), r"axes.m\[1\]': expected a whole number from 1"),
    (lambda: space(axes={"m": [float("nan")]}), "met nan"),
    (lambda: space(axes={"m": [True]}), "met True"),
    (lambda: space(axes={"mode": ["f33"]}), "did you mean 'f32'"),
    (lambda: space(axes={"machine": ["zen"]}), "unknown machine 'zen'"),
    (lambda: space(axes={"machine": ["mine.toml"]}), "no machine file"),
    (lambda: space(axes={"shape": [{"m": 1}, 2]}), "either tables or plain values"),
    (lambda: space(axes={"shape": [{"m": 1}]}), "'m': expected one place"),
    (lambda: space(axes={f"core.a{i}": list(range(10)) for i in range(9)}), f"at most {MOST_POINTS} points"),
    (lambda: space(axes={"core": {"dispatch": [4, 6]}}), "'dispatch_slots'"),
    (lambda: space(axes={"core.dispatch_slots": [0, -1]}), "a whole number from 1 to 64"),
    (lambda: space(axes={"core.dispatch_slots": [{1, 2}]}), "a number, a text"),
    (lambda: space(machines={"skx": {"base": "zen4"}}), "a name that no machine has"),
    (lambda: space(machines={"mine": {"core": {"dispatch_slots": 3}}}), "'machines.mine.base'"),
    (lambda: space(seed=3), "expected a key of the schema"),
    (lambda: space("workload", fixed={"workload": "resnet5"}), "did you mean 'resnet50'"),
    (lambda: space("workload", fixed={"workload": "none.csv"}), "expected a file"),
    (lambda: space("loop"), "has no file: 'loop' needs machine, file"),
    (lambda: {**space("loop", fixed={"file": "x"}), "study": {"kind": "loop", "values": True}}, "false for 'loop'"),
]


@pytest.mark.parametrize(("what", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_no_study_is_refused(what: Callable[[], Any], said: str) -> None:
    with pytest.raises(SimdnnError, match=said):
        study.explore(what())


KEYS = st.sampled_from("study axes fixed machines machine m mode core dispatch_slots x kind values".split())
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["zen4", "f32", "", "matmul"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(st.dictionaries(KEYS, JUNK, max_size=4), st.dictionaries(KEYS, JUNK, max_size=3))
def test_junk_is_read_or_refused(data: dict[str, Any], axes: dict[str, Any]) -> None:
    for what in (data, space() | data, space(axes=axes)):
        try:
            found = read_space(what)
        except SimdnnError as error:
            assert str(error)
        else:
            assert found.points


# -- the command -------------------------------------------------------------------------------------------------------


def test_command(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, picture = tmp_path / "out.csv", tmp_path / "out.png"
    assert main(["study", str(small), "-o", str(table), "--plot", str(picture)]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split()[:4] == ["m", "mode", "implementation", "cycles"] and captured.err == ""
    points = [("1", "f32"), ("1", "int8-vnni"), ("8", "f32"), ("8", "int8-vnni")]
    assert [tuple(line.split()[:2]) for line in lines[1:5]] == points
    assert f"4 of 4 points have figures; {small.with_suffix('.jsonl')} keeps them" in lines
    assert len(pd.read_csv(table)) == 4 and picture.read_bytes().startswith(b"\x89PNG")
    assert main(["study", str(small), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["axes"] == ["m", "mode"] and len(content["points"]) == 4 and "known from" in content["notes"][0]
    assert main(["study", str(tmp_path / "none.toml")]) == 2
    assert "is not there; a TOML file is needed" in capsys.readouterr().err
    small.write_text(SMALL.replace('"f32", "int8-vnni"', '"f33"'))
    assert main(["study", str(small)]) == 2 and capsys.readouterr().err.count("\n") == 1


def test_nothing_but_refusals(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text(SMALL.replace("k = 64", 'k = 64\nisa = "avx512_core_amx"'))
    assert main(["study", str(small), "--plot", str(small.with_suffix(".png"))]) == 1
    assert "refused at m=1 mode=f32 and 3 more points: isa='avx512_core_amx'" in capsys.readouterr().out


def test_pictures() -> None:
    frame = pd.DataFrame(
        {
            "m": [1, 8, 1, 8],
            "mode": ["f32", "f32", "bf16", "bf16"],
            "time_us": [2.0, 9, 1, 5],
            "sqnr_db": [np.inf, np.inf, 50, 51],
            "gops": [1.0, 2, 3, 4],
            "pareto": True,
        }
    )
    frame.attrs["axes"] = ["m", "mode"]
    front = plot_study.plot_front(frame)
    assert len(front.collections) == 4 and front.get_ylim()[1] > 51
    lines = plot_study.plot_space(frame).get_lines()
    assert [line.get_ydata().tolist() for line in lines] == [[1, 2], [3, 4]]
    assert len(plot_study.plot_space(frame, ["mode"], "gops").patches) == 4
    with pytest.raises(SimdnnError, match="nothing to draw"):
        plot_study.plot_space(frame.assign(gops=np.nan), ["m"], "gops")


def test_of_many_lines_the_highest_have_names() -> None:
    def drawn(power: int) -> Any:
        rows = [{"m": m, "mode": f"way {n}", "gops": float(m * n**power)} for n in range(1, 41) for m in (1, 1000)]
        return plot_study.plot_space(pd.DataFrame(rows), ["m", "mode"], "gops")

    ax = drawn(1)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == [*(f"way {n}" for n in range(40, 21, -1)), "21 lower ones"]
    assert len(ax.get_lines()) == 40 and (ax.get_yscale(), drawn(2).get_yscale()) == ("linear", "log")


def test_lost_outcomes_say_so() -> None:
    assert lost("why").failed and lost("why").row["refused"] == "failed: why"
