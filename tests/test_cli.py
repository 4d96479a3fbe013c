"""The command line, through `main` and as a process: output, files, exit status, one-line errors."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads
from isa_models import SimdnnError, gpu_machine_names, instruction, machine_names
from simdnn import study
from simdnn.calibration import hostcheck
from simdnn.cli import main, output, run_kinds, run_show
from simdnn.cli.listing import LISTS
from simdnn.cli.run_help import COLUMNS
from simdnn.networks.precision import MODES
from simdnn.networks.runner import Frames
from tests.effort import examples, one_in
from tests.streams import error_line

TABLE = "layer,M,N,K,batch,count,macs,kind\nup,4,16,64,1,2,4096,weight\nqk,8,16,64,3,1,24576,act\n"


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A layer table that runs in a moment."""
    path = tmp_path / "small.csv"
    path.write_text(TABLE)
    return str(path)


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simdnn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_run_prints_a_table(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", small, "--machine", "zen4"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    names = "layer count mode implementation cycles time_us bound max_abs sqnr_db"
    assert [name for name in lines[0].split() if name in names.split()] == names.split()
    assert max(map(len, lines)) <= 120 and "--wide shows" in captured.out
    assert [line.split()[2] for line in (lines[1], lines[6])] == ["f32", "f32"]
    assert captured.out.count("int8-vnni") == 3  # two layers and the total
    assert captured.err == ""  # no progress where standard error is no terminal


def test_json_is_json_and_holds_what_the_table_holds(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", small, "--machine", "zen4", "--modes", "f32,int8-vnni", "--json"]) == 0
    content = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert [(row["layer"], row["mode"]) for row in content["layers"]] == [
        ("up", "f32"),
        ("up", "int8-vnni"),
        ("qk", "f32"),
        ("qk", "int8-vnni"),
    ]
    up, exact = content["layers"][0], content["layers"][1]
    assert up["max_abs_error"] == 0 and up["sqnr_db"] is None  # infinite
    assert exact["max_abs_error"] > 0 and exact["saturated_outputs"] == 0
    total = content["totals"][0]
    assert total["cycles"] == pytest.approx(2 * up["cycles"] + content["layers"][2]["cycles"])
    assert total["macs"] == 2 * 4096 + 24576


@one_in(2)
@pytest.mark.parametrize("machine,expected", [("b580", ["f32", "bf16", "int8-vnni", "f16"]), ("v100", ["f32", "f16"])])
def test_run_on_a_gpu(machine: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "cancer", "--machine", machine, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    totals = {row["mode"]: row for row in content["totals"]}
    assert list(totals) == expected and {"int8-fast", "int8-exact"} <= content["left_out"].keys()
    assert all(0 < row["share_of_peak"] <= 1 and row["accuracy"] > 0.9 for row in totals.values())
    assert main(["run", "cancer", "--machine", machine, "--modes", "int8-fast"]) == 2
    assert "modes that run: " + expected[0] in error_line(capsys)
    assert main(["run", "cancer", "--machine", machine, "--isa", "avx2"]) == 2 and machine in error_line(capsys)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_files(small: str, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    assert main(["run", small, "--modes", "f32,int8-exact", "-o", str(path)]) == 0
    assert "int8-exact" in capsys.readouterr().out
    if suffix == ".json":
        content = json.loads(path.read_text())
        rows = content["layers"] + content["totals"]
    elif suffix == ".csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = pd.read_parquet(path).to_dict("records")
    assert [row["layer"] for row in rows] == ["up", "up", "qk", "qk", "total", "total"]
    assert all(float(row["cycles"]) > 0 for row in rows)


@pytest.mark.parametrize("arguments", [["--modes", "f32,int8-exact"], ["--no-values"]])
def test_plot(small: str, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.png"
    assert main(["run", small, *arguments, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert str(path) in capsys.readouterr().out


def test_a_picture_that_cannot_be_drawn_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """matplotlib refuses what $MPLBACKEND names as it is imported; here it is not to be had at all."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    assert main(["run", "resnet50", "--plot", str(tmp_path / "a.png")]) == 1
    assert "does not load (environment variable MPLBACKEND: 'nonsense'): " in capsys.readouterr().err


def test_no_values_gives_the_same_cycles(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for more in ([], ["--no-values"]):
        assert main(["run", small, "--modes", "f32,int8-fast", "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["layers"])
    assert [row["cycles"] for row in found[0]] == [row["cycles"] for row in found[1]]
    assert "max_abs_error" in found[0][0] and "max_abs_error" not in found[1][0]


def test_a_layer_table_named_as_a_fetched_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "minilm", "--no-values", "--modes", "f32", "--layers", "qkv"]) == 0
    assert "Total of minilm on zen4" in capsys.readouterr().out


def test_modes_that_a_machine_lacks(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", small, "--machine", "skx", "--no-values"]) == 0
    text = capsys.readouterr().out
    assert "bf16: left out, needs avx512_core_amx or avx512_core_bf16, which machine 'skx' does not have" in text
    assert main(["run", small, "--machine", "skx", "--modes", "bf16"]) == 2
    assert "needs avx512_core_amx or avx512_core_bf16, which machine 'skx' does not have" in error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["ran"], 2, "invalid choice: 'ran'"),
        (["run"], 2, "WORKLOAD"),
        (["run", "resnet-50"], 2, "did you mean 'resnet50'"),
        (["run", ""], 2, "unknown workload ''"),
        (["run", "absent.csv"], 2, "No such file"),
        (["run", "resnet50", "--machine", "zen6"], 2, "it is not here; the nearest is 'zen5'"),
        (["run", "resnet50", "--machine", "/"], 2, "unknown machine '/'"),
        (["run", "resnet50", "--mode", "f32"], 2, "unrecognized arguments"),
        (["run", "resnet50", "--modes", "f32,int9"], 2, "unknown mode 'int9'"),
        (["run", "resnet50", "--modes", ","], 2, "no mode given"),
        (["run", "resnet50", "--isa", "avx512_core_vni"], 2, "did you mean 'avx512_core_vnni'"),
        (["run", "resnet50", "--machine", "skx", "--isa", "avx512_core_vnni"], 2, "machine 'skx' has sse41, avx2"),
        (["run", "resnet50", "--isa", "avx2", "--modes", "int8-vnni"], 2, "which isa='avx2' does not include"),
        (["run", "resnet50", "--isa", "sse41"], 2, "no mode runs"),
        (["run", "resnet50", "--layers", "nothing*"], 2, "matches none of resnet50; they are conv1"),
        (["run", "digits", "--layers", "nothing*", "--modes", "f32"], 2, "matches none of digits; they are conv1"),
        (["run", "resnet50", "--threads", "0"], 2, "--threads"),
        (["run", "resnet50", "--threads", "two"], 2, "--threads"),
        (["run", "resnet50", "--threads", "9" * 5000], 2, "--threads"),
        (["run", "resnet50", "--seed", "-1"], 2, "--seed"),
        (["run", "resnet50", "--seed", "1e3"], 2, "--seed: '1e3'; an integer from 0"),
        (["run", "\0.csv"], 2, "NUL"),
        (["run", "x" * 5000 + ".csv"], 2, "File name too long"),
        (["run", "resnet50", "-o", "x" * 5000 + ".csv"], 1, "File name too long"),
        (["run", "resnet50", "--machine", "absent.toml"], 2, "no machine file 'absent.toml'"),
        (["run", "resnet50", "--dispatch", "slowest"], 2, "invalid choice"),
        (["run", "resnet50", "-o", "out.txt"], 2, "Known: .csv, .json, .parquet"),
        (["run", "resnet50", "-o", "/nowhere/out.csv"], 1, "no folder /nowhere"),
        (["run", "resnet50", "-o", "/dev.csv/x.csv"], 1, "no folder"),
        (["run", "resnet50", "--plot", "out.csv"], 2, "Known: .pdf, .png, .svg"),
        (["list", "machine"], 2, "invalid choice"),
        (["verify", "now"], 2, "unknown instruction 'now'"),
    ],
)
def test_bad_arguments(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(arguments) == status
    except SystemExit as stop:  # argparse's way
        assert stop.code == status
    assert message in error_line(capsys)


def test_no_words_get_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert not out and "simdnn COMMAND --help" in err and all(name in err for name in ("run", "bench", "fetch-models"))


words = st.sampled_from(
    [
        "run",
        "list",
        "verify",
        "--json",
        "-o",
        "--modes",
        "--layers",
        "--isa",
        "--seed",
        "\0",
        "",
        "--threads",
        "-1",
        "é",
        "a" * 300,
        "--plot",
        "--",
        "*",
        "zen4",
        "--machine",
    ]
)


@examples(100)
@given(st.lists(words | st.text(max_size=8), max_size=6).filter(lambda line: line[:1] not in (["verify"], ["list"])))
def test_no_arguments_end_in_a_traceback(line: list[str]) -> None:
    """No workload of these names exists, so nothing runs: only errors are met, each with its status."""
    try:
        assert main(line) in (1, 2)
    except SystemExit as stop:
        assert stop.code == 2 or (stop.code == 0 and any(word.startswith("-h") for word in line))


def test_unwritable_is_found_before_the_run(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_kinds, "run_table", lambda *_, **__: pytest.fail("ran"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert main(["run", small, "-o", str(tmp_path / "out.csv")]) == 1
    assert "permission denied" in error_line(capsys)
    (tmp_path / "folder.csv").mkdir()
    assert main(["run", small, "-o", str(tmp_path / "folder.csv")]) == 2
    assert "is a folder" in error_line(capsys)


def test_failures_on_the_way(small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def raising(error: BaseException) -> Any:
        def run(*_: object, **__: object) -> None:
            raise error

        return run

    for error, status in ((SimdnnError("two\nlines"), 1), (OSError(28, "No space left"), 1), (MemoryError(), 1)):
        monkeypatch.setattr(run_kinds, "run_table", raising(error))
        assert main(["run", small]) == status
        assert ("memory is too small" in error_line(capsys)) is isinstance(error, MemoryError)
    monkeypatch.setattr("simdnn.cli.explain.memory_bytes", lambda: 1 << 12)
    assert main(["explain", "matmul", "64x64:64x64", "--at", "0,0"]) == 2
    assert error_line(capsys).endswith("simdnn bench --matmul --mode=P 64x64:64x64\n")
    monkeypatch.setattr(run_kinds, "run_table", raising(KeyboardInterrupt()))
    assert main(["run", small]) == 130


def test_a_refused_layer_is_reported(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No figure stands in for one that is missing, and the exit status says so."""
    frame = study.run_layers(workloads.load(small), "zen4", ["f32", "bf16"], values=False)
    figures = [c for c in frame.columns if c not in ("layer", "count", "mode", "implementation", "refused", "bound")]
    frame[figures] = frame[figures].astype(object)
    frame.loc[1, figures] = None
    frame.loc[1, ["implementation", "refused", "bound"]] = ["refused", "no kernel for it", None]
    frames = Frames(frame.infer_objects(), study.totals(frame.infer_objects()))
    monkeypatch.setattr(run_kinds, "run_table", lambda *_, **__: frames)
    assert main(["run", small, "--no-values"]) == 1
    text = capsys.readouterr().out
    assert "bf16: refused in up: no kernel for it" in text
    (total,) = [line.split() for line in text.splitlines() if line.startswith("bf16") and "refused" not in line]
    assert total[0] == "bf16" and set(total[1:]) == {"-"}


def test_rows_of_a_machine_by_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machines", "show", "icx", "--instruction", "VPDPBUSD*"]) == 0
    assert capsys.readouterr().out.count("zmm,zmm,zmm") == 2


@pytest.mark.parametrize(
    "what", ["machines", "workloads", "columns", "isa", "kernels", "libraries", "blocks", "instructions"]
)
def test_list(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(lines) == len(rows) + 1
    first = {"machines": (*machine_names(), *gpu_machine_names()), "workloads": workloads.names()}.get(what)
    if first:
        assert [next(iter(row.values())) for row in rows] == list(first)


def test_list_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == [
        "machines",
        "workloads",
        "modes",
        "columns",
        "isa",
        "kernels",
        "libraries",
        "blocks",
        "instructions",
    ]
    assert main(["list"]) == 0
    kinds, lines = LISTS.keys(), capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(kinds)]] == list(kinds) and len(lines) < 13


def test_machines_lists_and_shows_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machines", "list", "--json"]) == 0
    rows = {row["machine"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows)[-len(gpu_machine_names()) :] == list(gpu_machine_names())
    assert rows["b580"]["cores"] == 20 and rows["b580"]["documented"] > rows["b580"]["measured"]
    assert main(["machines", "show", "b580", "zen4", "--json"]) == 0
    found = {row["figure"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["engine.systolic_ops.s8"]["value"] == "512"
    assert found["caches.L2.size_bytes"]["value"] == "1048576"
    assert found["core.load.256"]["value"].startswith("bits=256 pipes=1")
    assert all(row["value"] or "ports" in name for name, row in found.items())
    assert main(["machines", "check", "v100"]) == 0
    assert "v100" in capsys.readouterr().out
    assert main(["machines", "show", "b580", "--instruction", "dpas"]) == 2
    assert "no rows of instructions" in error_line(capsys)


@pytest.mark.parametrize("mismatches", [0, 3])
def test_verify(mismatches: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The report and the exit status; the comparison itself is tested where it is made."""
    frame = pd.DataFrame(
        {
            "instruction": ["vpand", "vpxor"],
            "status": ["ok", "mismatch" if mismatches else "ok"],
            "mismatches": [0, mismatches],
        }
    )
    monkeypatch.setattr(hostcheck, "check_host", lambda pattern: frame)
    assert main(["verify"]) == (1 if mismatches else 0)
    text = capsys.readouterr().out
    assert "vpand" not in text and ("vpxor" in text) is bool(mismatches)
    assert text.endswith("\n\n1 ok, 1 mismatch\n") if mismatches else text == "2 ok\n"
    assert main(["verify", "--all"]) == (1 if mismatches else 0)
    assert "vpand" in capsys.readouterr().out
    assert main(["verify", "--json"]) == (1 if mismatches else 0)
    assert json.loads(capsys.readouterr().out)[1]["mismatches"] == mismatches


def test_table() -> None:
    frame = pd.DataFrame({"name": ["a", "bb"], "value": [1.0, None]})
    assert output.table(frame, {"value": "{:.1f}".format}).splitlines() == ["name  value", "a       1.0", "bb        -"]


def test_help_lists_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for arguments in (["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        texts.append(captured.out)
    assert {"run", "study", "bench", "analyze", "explain", "list", "verify"} <= {*texts[0].split()}
    assert all(mode in texts[1] for mode in MODES if not mode.endswith(("-ceil", "-even", "-rceil")))
    assert all(f"mxfp8{rule}" in MODES and rule in texts[1] for rule in ("-ceil", "-even", "-rceil"))
    assert len(texts[1].splitlines()) < 120


def test_every_column_is_told() -> None:
    assert set(COLUMNS) == {"accuracy", *run_show.LAYERS, *run_show.TOTALS}


def test_version() -> None:
    done = process("--version")
    assert done.returncode == 0 and done.stdout.startswith("simdnn ") and done.stderr == ""


def test_streams_and_status_of_a_process(small: str) -> None:
    done = process("run", small, "--modes", "f32", "--json")
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)["workload"] == small
    failed = process("run", "resnet", "--json")
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (2, "", 1)


@one_in(2)
@pytest.mark.parametrize(("closed", "arguments", "status"), [("1", "list isa", 0), ("2", "run nothing", 2)])
def test_a_stream_that_is_closed(closed: str, arguments: str, status: int) -> None:
    command = f"exec {sys.executable} -m simdnn {arguments} {closed}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "simdnn", "list", "isa"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1 and done.stderr == "simdnn: error: [Errno 28] No space left on device\n"


def test_a_reader_that_stops_early(small: str) -> None:
    """`simdnn list | head -1`: no complaint."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "simdnn", "list"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=300
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_of_a_kind_by_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "instructions", "VPDPBUS*"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert {"vpdpbusd", "vpdpbusds"} <= set(names) and all(name.startswith("vpdpbus") for name in names)
    assert main(["list", "kernels", "*:xe2_*", "--machine", "b580"]) == 0
    assert "gemm:xe2_dpas" in capsys.readouterr().out
    assert main(["list", "instructions", "vpdpbusdd"]) == 2
    assert "did you mean 'vpdpbusd'?" in capsys.readouterr().err


def test_instructions_in_capitals_as_manuals_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "VPMADDUBSW", "--a", "255,255", "--b", "127,127"]) == 0
    assert "64770 -> 32767" in capsys.readouterr().out
    assert instruction("VPDPBUSD") is instruction("vpdpbusd")


def test_an_option_for_other_arguments_names_each_of_them_once(capsys: pytest.CaptureFixture[str]) -> None:
    for option, kinds in (
        (["--samples", "3"], "fetched networks and fetched language models"),
        (["--prompt", "hi"], "fetched language models"),
        (["--blame", "int8-fast"], "MODEL.onnx"),
    ):
        assert main(["run", "digits", *option]) == 2
        assert f"{option[0]} is for {kinds}; it says nothing about" in capsys.readouterr().err


def test_some_instructions_are_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "VPADDB", "--all"]) == 0
    out = capsys.readouterr().out
    assert {line.split()[0] for line in out.splitlines()[1:-2]} == {"vpaddb"}
    assert main(["verify", "vpaddbb"]) == 2
    assert main(["verify", "--timing", "vpaddb"]) == 2
    assert "--only vpaddb" in capsys.readouterr().err
