"""The verbose lines: when, in which grammar, and that they are read back as the problems they tell of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument, UnknownTiming
from simdnn import verbose
from simdnn.benchdnn import answer, read
from simdnn.benchdnn.log import Executed, executed
from simdnn.cli import main
from simdnn.primitives import dispatch

F32 = np.ones((4, 64), np.float32), np.ones((64, 8), np.float32)
U8 = np.ones((4, 64), np.uint8), np.ones((64, 8), np.int8)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMDNN_VERBOSE", raising=False)
    monkeypatch.delenv("ONEDNN_VERBOSE", raising=False)


@pytest.mark.parametrize(
    ("own", "library", "wanted"),
    [
        (None, None, False), ("1", None, True), ("0", "1", False), ("", "1", False), (None, "1", True),
        (None, "2", True), (None, "0", False), (None, "none", False), (None, "profile_create", False),
        (None, "dispatch,profile_exec", True),
        (None, "all", True), (None, "something new", False), ("profile_exec", None, True),
    ],
)  # fmt: skip
def test_when(own: str | None, library: str | None, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SIMDNN_VERBOSE", own), ("ONEDNN_VERBOSE", library)):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert verbose.wanted() is wanted


def test_a_value_that_says_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMDNN_VERBOSE", "yes please")
    with pytest.raises(InvalidArgument, match="SIMDNN_VERBOSE: 'yes please'; allowed: 0, 1"):
        simdnn.matmul(*F32, machine="zen4")


def lines_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, call: Any) -> tuple[Any, list[str]]:
    monkeypatch.setenv("SIMDNN_VERBOSE", "1")
    result = call()
    return result, capsys.readouterr().out.splitlines()


def test_one_line_for_each_execution(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    simdnn.matmul(*F32, machine="zen4")
    assert capsys.readouterr().out == ""
    result, [line] = lines_of(capsys, monkeypatch, lambda: simdnn.matmul(*F32, machine="zen4"))
    fields = line.split(",")
    assert fields[:6] == ["simdnn_verbose", "v1", "primitive", "exec", "cpu", "matmul"]
    assert fields[6:12] == [
        result.implementation, "undef", "src:f32::blocked:ab::f0 wei:f32:a:any:any::f0 dst:f32::blocked:ab::f0",
        "compute:f32 machine:zen4", "", "4x64:64x8"]  # fmt: skip
    assert float(fields[12]) == pytest.approx(result.seconds * 1e3, rel=1e-5)


def test_estimates_print_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines = lines_of(capsys, monkeypatch, lambda: simdnn.estimate("matmul", m=4, n=8, k=64, machine="zen4"))
    assert lines == []


def test_a_cost_that_is_not_known_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise UnknownTiming("no row")

    monkeypatch.setattr(dispatch.Choice, "cost_on", unknown)
    _, [line] = lines_of(capsys, monkeypatch, lambda: simdnn.matmul(*F32, machine="zen4"))
    assert line.endswith(",4x64:64x8,unknown")


def quantized() -> simdnn.Attr:
    scales = {"src": 0.5, "wei": np.ones(8, np.float32), "dst": 2.0}
    return simdnn.Attr(scales=scales, zero_points={"src": 3, "dst": 1}, post_ops=["relu"])


def compressed() -> Any:
    wei = np.ones((64, 8), ml_dtypes.int4)
    scales = {"wei": np.ones((2, 8), np.float32)}
    attr = simdnn.Attr(fpmath="bf16", apply_to_int=True, scales=scales, zero_points={"wei": np.int32(1)})
    return simdnn.matmul(F32[0], wei, machine="zen4", attr=attr)


def strided() -> Any:
    src, wei = np.ones((1, 8, 9, 7), np.float32), np.ones((6, 4, 3, 2), np.float32)
    return simdnn.convolution(src, wei, np.ones(6, np.float32), strides=(2, 1), padding=(1, 0, 1, 1), dilation=(1, 2),
                              groups=2, machine="zen4", attr=simdnn.Attr(post_ops=["relu"]))  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        lambda: simdnn.matmul(*F32, machine="zen4", attr=simdnn.Attr(fpmath="bf16")),
        lambda: simdnn.matmul(*F32, np.ones(8, np.float32), machine="skx", wei_tag="ab"),
        lambda: simdnn.matmul(*U8, machine="icx"),
        lambda: simdnn.matmul(*U8, np.ones(8, np.float32), machine="zen4", dst="u8", attr=quantized()),
        compressed,
        strided,
        lambda: simdnn.convolution(np.ones((2, 3, 8, 8), np.uint8), np.ones((5, 3, 3, 3), np.int8), machine="clx"),
        lambda: simdnn.convolution(np.ones((1, 8, 8, 8), np.float32), np.ones((6, 4, 3, 3), np.float32), groups=2,
                                   machine="zen4", wei_tag="oihw"),
    ],
)
def test_lines_are_read_back_as_the_same_problem(
    call: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, [line] = lines_of(capsys, monkeypatch, call)
    monkeypatch.setenv("SIMDNN_VERBOSE", "0")
    [item] = executed([line])
    assert isinstance(item, Executed)
    [problem] = read([f"--machine={result.machine.name}", "--mode=P", *item.words])
    [case] = problem.cases()
    found = answer(case)
    assert (found.status, found.implementation, found.compute_dtype, found.cycles) == (
        "PASSED", result.implementation, result.compute_dtype, result.cycles), found  # fmt: skip
    assert item.ms == pytest.approx(result.seconds * 1e3, rel=1e-5)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_json_on_standard_output_stays_json(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of worker processes included."""
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    words = ["run", "digits", "--modes", "f32"] if command == "run" else ["bench", "--matmul", "4x8:8x4"]
    assert main([*words, "--json"]) == 0
    out, err = capfd.readouterr()
    json.loads(out)
    assert err.startswith("simdnn_verbose,v1,primitive,exec,cpu,")
    assert main(words) == 0
    assert "simdnn_verbose,v1,primitive,exec,cpu," in capfd.readouterr().out


def test_lines_of_workers_go_where_those_of_the_command_go(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMDNN_VERBOSE", "1")
    table = tmp_path / "two.csv"
    table.write_text("layer,M,N,K,batch,count,macs,kind\na,4,8,16,1,1,512,weight\nb,8,8,16,1,1,1024,weight\n")
    assert main(["run", str(table), "--modes", "f32", "--json"]) == 0
    out, err = capfd.readouterr()
    assert len(json.loads(out)["layers"]) == 2 and err.count("simdnn_verbose") >= 2
