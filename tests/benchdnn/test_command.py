"""The command `simdnn bench`: what it prints, its status, and that any words are answered."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import UnknownName
from simdnn.benchdnn.subset import IGNORED, NEUTRAL, OPTIONS
from simdnn.cli import main
from tests.benchdnn.lines import answers, cases
from tests.effort import examples
from tests.streams import error_line

# the command


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["bench", "--matmul", "--dt=f32,u8:s8:s32", "8x16:16x8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "status" and lines[0].split()[-1] == "problem"
    assert [line.split()[0] for line in lines[1:3]] == ["PASSED", "PASSED"]
    assert lines[2].endswith("--matmul --dt=u8:s8:s32 8x16:16x8")
    assert lines[3] == "tests:2 passed:2 failed:0 unimplemented:0 machine:zen4"
    assert main(["bench", "--matmul", "--mode=F", "--machine=icx", "8x16:16x8"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "tests:1 passed:1 failed:0 unimplemented:0"  # each line tells it
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    for words, told in (["--dispatch=fastest"], True), (["--dispatch=onednn"], False), (["--isa=avx2"], False):
        assert main(["bench", "--matmul", "--mode=F", *words, "8x16:16x8"]) == 0
        assert ("DNNL_MAX_CPU_ISA caps --dispatch=onednn alone" in capsys.readouterr().out) is told


def test_machines_side_by_side_have_a_column(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--machine", "zen4,icx", "--mode=S"]  # benchdnn's shorter ways to measure are the cost alone
    assert main(["bench", *words, "--matmul", "8x16:16x8", "--softmax", "4x8"]) == 0
    headings, *rows = (line.split() for line in capsys.readouterr().out.splitlines()[:-1])
    assert headings[1] == "machine" and [row[1] for row in rows] == ["zen4", "icx"] * 2
    log = tmp_path / "log"
    log.write_text(
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab::f0 "
        "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x16:16x8,0.01\n"
    )
    assert main(["bench", "--from-verbose", str(log), *words[:2]]) == 0
    headings, *rows = (line.split() for line in capsys.readouterr().out.splitlines()[:-1])
    assert headings[1] == "machine" and [row[1] for row in rows] == ["zen4", "icx"]
    assert main(["bench", "--from-verbose", str(log), "--machine", "hsw"]) == 0
    said = "logged kernels use avx512_core, which hsw lacks: another CPU than the one that predicts (--machine)"
    assert capsys.readouterr().out.splitlines()[-1] == said
    log.write_text(log.read_text().replace("avx512_core", "avx2").replace("8x16:16x8", "8x64:64x64"))
    for isa, ending in (("avx512_core", "--isa avx2 leaves it out"), ("avx2", "skipped:0")):
        assert main(["bench", "--from-verbose", str(log), "--machine", "icx", "--isa", isa]) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith(ending)
    assert main(["bench", "--matmul", "--mode=F", "8x16:16x8"]) == 0
    assert "machine" not in capsys.readouterr().out.splitlines()[0]


def test_logs_that_a_shell_or_gzip_wrote(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx2,undef,src:f32::blocked:ab::f0 "
        "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x16:16x8,0.01\n"
    )
    log, packed = tmp_path / "log", gzip.compress(line.encode())
    told = set()
    for content in (line.encode(), line.encode("utf-16"), packed):
        log.write_bytes(content)
        assert main(["bench", "--from-verbose", str(log), "--machine", "hsw"]) == 0
        told.add(capsys.readouterr().out)
    assert len(told) == 1 and "predicted:1" in told.pop()
    log.write_bytes(packed[:-12])
    assert main(["bench", "--from-verbose", str(log)]) == 2 and "end-of-stream" in capsys.readouterr().err


def test_exit_status_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--matmul", "--mode=P", "8x16:16x8", "--attr-post-ops=add:f64", "8x16:16x8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("UNIMPLEMENTED:post-operation 'add:f64'") and lines[2].endswith("8x16:16x8")
    assert lines[-1] == "tests:2 passed:1 failed:0 unimplemented:1 machine:zen4"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("64x512:511x64", "K is 512 in src and 511 in weights; what works: the same in both"),
        ("3x8x16:2x16x8", "a batch is 3 in src and 2 in weights; what works: the same in both, or 1 in one"),
        ("4x3x8x16:1x2x16x8", "a batch is 3 in src and 2 in weights"),
    ],
)
def test_dimensions_that_make_no_product(problem: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--matmul", problem]) == 1
    assert f"UNIMPLEMENTED:{reason}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no problem given"),
        (["--matmul"], "no problem given"),
        (["--matmul", "2x"], "'2x' is no MxK"),
        (["--matmul", "2x3:3x4", "-o"], "-o without a file"),
        (["--eltwise", "--beta=nan", "8x8"], "--beta='nan'; a finite number is needed"),
        (["--sum", "--scales=1:x", "8x8"], "--scales='x'; a finite number is needed"),
        (["--softmax", "--axis=-1", "8x8"], "--axis='-1'; an integer of at least 0 is needed"),
        (["--matmul", "2x3:3x4", "-o", "file.txt"], "unknown file format '.txt'"),
        (["--from-verbose", "/absent"], "No such file"),
        (["--from-verbose=log", "--matmul", "2x3:3x4"], "takes its problems from the log"),
    ],
)
def test_wrong_usage_of_the_command(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) in (1, 2)
    assert message in error_line(capsys)


def test_help_names_the_subset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    text = capsys.readouterr().out
    for name in (*OPTIONS, *IGNORED, *NEUTRAL, "batch", "reset", "from-verbose", "json"):
        assert f"--{name}" in text
    assert max(map(len, text.splitlines())) <= 120


def test_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.csv"
    words = ["--matmul", "--mode=P", "8x16:16x8", "--attr-post-ops=add:f64", "8x16:16x8", "--json", "-o", str(path)]
    assert main(["bench", *words]) == 1
    content = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert [row["status"] for row in content["answers"]] == ["PASSED", "UNIMPLEMENTED"]
    assert content["summary"] == {"tests": 2, "passed": 1, "failed": 0, "unimplemented": 1}
    assert content["answers"][1]["cycles"] is None
    with path.open(newline="") as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["PASSED", "UNIMPLEMENTED"]


# hostile input

WORDS = st.one_of(
    st.sampled_from(["--matmul", "--conv", "--reset", "--mode=P", "--json", "-v1", "--", "-", "--attr-scales=,"]),
    st.text(max_size=12).map(lambda text: text.replace("\0", "")),
    st.builds(
        "--{}={}".format,
        st.sampled_from([*OPTIONS, "match", "mode", "skip-impl"]),
        st.one_of(
            st.text("srcweidt:,+x0123456789.-_per_oc_commonf16b:true", max_size=16),
            st.lists(st.sampled_from(["src", "wei", "common", "per_oc", "f32", "s8:s8", "1", ""])).map(":".join),
        ),
    ),
    st.text("0123456789x:n", max_size=10),
    st.text("gmbicohkwspd_0123456789n", max_size=16),
    st.sampled_from(["2x3:3x4", "ic8ih4oc8kh1", "3x2x3:1x3x4", "g2ic4ih3oc4kh3ph1"]),
)


@examples(300)
@given(st.lists(WORDS, max_size=6).map(lambda words: ["--mode=P", *words]))
def test_any_words_give_answers_or_one_line(words: list[str]) -> None:
    words = [word for word in words if not word.startswith(("-o", "--output", "--from-verbose"))]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["bench", *words])
    assert status in (0, 1, 2)
    if status == 2:
        assert err.getvalue().startswith("simdnn: error: ") and err.getvalue().count("\n") == 1


@pytest.mark.parametrize("variable", ["ONEDNN_DEFAULT_FPMATH_MODE", "SIMDNN_EXACT_INT8", "SIMDNN_VERBOSE"])
def test_nonsense_in_the_environment_is_told_once(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "perhaps")
    assert main(["bench", "--matmul", "2x3:3x4", "3x3:3x4"]) == 2
    found = capsys.readouterr()
    assert not found.out and found.err.count(f"{variable}: ") == 1


def test_a_strategy_of_zero_points_by_name() -> None:
    words = "--matmul --machine=b580,zen4 --dt=s8:s8:s32 --attr-zero-points=wei:per_ocic:s8:32x1"
    found = answers(*words.split(), "--zero-point-strategy=direct,in_kernel,bias", "6x64:64x32")
    assert [a.status for a in found] == ["PASSED"] * 6 and len({a.cycles for a in found}) == 6
    assert [a.implementation for a in found[:2]] == ["gemm:xe2_dpas_direct", "gemm:xe2_dpas_in_kernel"]
    [refused] = answers("--matmul", "--zero-point-strategy=direct", "2x3:3x4")
    assert "without zero_points" in refused.reason
    with pytest.raises(UnknownName, match="did you mean 'in_kernel'"):
        cases("--matmul", "--zero-point-strategy=inkernel", "2x3:3x4")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--matmul", "--wtag=foo", "8x8:8x8"], "tag 'foo'; any, or letters such as"),
        (["--conv", "--stag=nchwy", "ic8ih4oc8kh1"], "tag 'nchwy'; any, or letters such as"),
        (["--conv", "--cfg=u8s8s32", "ic8ih4oc8kh1"], "unknown option '--cfg=u8s8s32': --dt=u8:s8:s32 took its place"),
        (["--eltwise", "--alg=gelu", "8x8"], "did you mean 'gelu_erf' or 'gelu_tanh'? Known: abs, across"),
        (["--matmul", "--attr-post-ops=gelu", "8x8:8x8"], "did you mean 'gelu_erf' or 'gelu_tanh'? Known: abs, add"),
    ],
)
def test_words_that_nobody_knows_are_refused_with_what_is_known(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
