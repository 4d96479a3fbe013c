"""The verbose lines: when, in which grammar, and that they are read back as the problems they tell of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, UnknownTiming
from isa_models.intel_gpu import FLOAT_MODELS
from simdnn import verbose
from simdnn.benchdnn import answer, read
from simdnn.benchdnn.answer import cost
from simdnn.benchdnn.asked import task
from simdnn.benchdnn.log import Executed, executed
from simdnn.cli import main
from simdnn.kernels import ConvProblem
from simdnn.primitives import dispatch, verbose_line
from simdnn.primitives.attribute_text import written
from simdnn.primitives.placed import Shape
from simdnn.primitives.problems import CONV_SIZES, Taps, conv_shape
from simdnn.primitives.resolve import Resolved
from simdnn.workers import WORTH_WORKERS
from tests.effort import examples

F32 = np.ones((4, 64), np.float32), np.ones((64, 8), np.float32)
U8 = np.ones((4, 64), np.uint8), np.ones((64, 8), np.int8)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMDNN_VERBOSE", raising=False)
    monkeypatch.delenv("ONEDNN_VERBOSE", raising=False)


@pytest.mark.parametrize(
    ("own", "library", "wanted"),
    [
        (None, None, False),
        ("1", None, True),
        ("0", "1", False),
        ("", "1", False),
        (None, "1", True),
        (None, "2", True),
        (None, "0", False),
        (None, "none", False),
        (None, "profile_create", False),
        (None, "dispatch,profile_exec", True),
        (None, "all", True),
        (None, "something new", False),
        ("profile_exec", None, True),
    ],
)
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
        result.implementation,
        "undef",
        "src:f32::blocked:ab::f0 wei:f32:a:any:any::f0 dst:f32::blocked:ab::f0",
        "compute:f32 machine:zen4",
        "",
        "4x64:64x8",
    ]
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
    return simdnn.convolution(
        src,
        wei,
        np.ones(6, np.float32),
        strides=(2, 1),
        padding=(1, 0, 1, 1),
        dilation=(1, 2),
        groups=2,
        machine="zen4",
        attr=simdnn.Attr(post_ops=["relu"]),
    )


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
        lambda: simdnn.convolution(
            np.ones((1, 8, 8, 8), np.float32),
            np.ones((6, 4, 3, 3), np.float32),
            groups=2,
            machine="zen4",
            wei_tag="oihw",
        ),
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
        "PASSED",
        result.implementation,
        result.compute_dtype,
        result.cycles,
    ), found
    assert item.ms == pytest.approx(result.seconds * 1e3, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "scope", "told"),
    [
        (True, None, "true"),
        (False, None, "false"),
        (None, True, "true"),
        (False, True, "false"),
        (None, None, ""),
    ],
)
def test_exact_int8_is_told(
    given: bool | None,
    scope: bool | None,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it was asked for, or is in force; bench takes it, and the line read back is the run again."""
    if scope is not None:
        monkeypatch.setenv("SIMDNN_EXACT_INT8", str(int(scope)))
    attr = simdnn.Attr(exact_int8=given)
    result, [line] = lines_of(capsys, monkeypatch, lambda: simdnn.matmul(*U8, machine="skx", attr=attr))
    assert (f" attr-exact-int8:{told} " in line.replace(",", " ")) if told else "exact" not in line
    monkeypatch.delenv("SIMDNN_EXACT_INT8", raising=False)
    found = answer(read_back(line, "skx"))
    assert (found.implementation, found.cycles) == (result.implementation, result.cycles)
    assert result.implementation.endswith("_exact") == (told == "true")


def read_back(line: str, machine: str) -> Any:
    """The only case of a line."""
    [item] = executed([line])
    assert isinstance(item, Executed) and not item.reason
    [problem] = read([f"--machine={machine}", "--mode=P", *item.words])
    [case] = problem.cases()
    return case


def scales(draw: Any, argument: str, k: int, grouped: bool) -> simdnn.Quant:
    """Of one argument of (M, K) by (K, N), M = 4, N = 8."""
    dtype, ones = draw(st.sampled_from(["f32", "bf16", "f16"])), np.ones
    shapes: list[Any] = [dict(values=np.float32(0.5))]
    if argument == "wei":
        shapes += [dict(values=ones(8)), dict(values=ones(8), mask=2)]
        shapes += (
            [
                dict(values=ones((k // 32, 8))),
                dict(values=ones((k // 16, 8)), groups=(16, 1)),
                dict(values=ones((k // 32, 1)), groups=(32, 8)),
                dict(values=ones((k // 32, 1)), mask=1, groups=(32, 1)),
            ]
            if grouped
            else []
        )
    if argument == "src" and grouped:
        shapes += [
            dict(values=ones((4, 1))),
            dict(values=ones((4, k // 32))),
            dict(values=ones(4), mask=1),
            dict(values=ones((4, k // 16)), mask=3, groups=(1, 16)),
        ]
    given = draw(st.sampled_from(shapes))
    return simdnn.Quant(**given | {"values": np.asarray(given["values"], np.float32)}, dtype=dtype)


def points(draw: Any, argument: str, k: int, grouped: bool) -> simdnn.Quant:
    """Zero points in the same places."""
    found = scales(draw, argument, k, grouped)
    dtype = draw(st.sampled_from(["s32", "s8", "u8"]))
    return replace(found, values=found.values.astype(np.int32), dtype=dtype)


@st.composite
def problems(draw: Any) -> tuple[str, dict[str, Any], simdnn.Attr]:
    """A machine, a matmul's or convolution's arguments for `estimate`, and an attribute with all of its fields."""
    machine = draw(st.sampled_from(["zen4", "skx", "spr", "b580", "v100"]))
    kind = draw(st.sampled_from(["integer", "integer", "compressed", "float", "convolution"]))
    integer = {"src": ["u8", "s8"], "wei": ["s8"], "dst": ["s32", "f32", "s8"]}
    types = {
        "float": {"src": ["f32"], "wei": ["f32"], "dst": ["f32", "bf16"]},
        "compressed": {"src": ["f32", "bf16", "f16"], "wei": ["s8", "u4"], "dst": ["f32"]},
    }.get(kind, integer)
    k, matmul = 64, kind != "convolution"
    sizes = (
        dict(m=4, n=8, k=k)
        if matmul
        else dict(ic=8, ih=5, iw=6, oc=8, kh=3, kw=2, mb=2, groups=draw(st.sampled_from([1, 2, 8])))
    )
    output = (4, 8) if matmul else (2, 8, 3, 5)
    quants: dict[str, dict[str, simdnn.Quant]] = {"scales": {}, "zero_points": {}}
    for name, make in (("scales", scales), ("zero_points", points)):
        for argument in ("src", "wei", "dst"):
            if kind != "float" and (kind != "compressed" or argument == "wei") and draw(st.booleans()):
                quants[name][argument] = make(draw, argument, k, matmul and kind != "float")
    sums = {"src": np.ones((4, k // 16), np.int32)}
    added = [np.ones(1, np.float32), np.ones(8, np.float32), np.ones(output, np.float32)]
    op = st.one_of(st.just("relu"), st.sampled_from(added).map(lambda values: ("add", values)))
    ops = draw(st.lists(op, max_size=2)) + draw(st.sampled_from([[], ["sum"], [("sum", -0.1)], [("sum", 1e20)]]))
    points_there = {"src", "wei"} & set(quants["zero_points"])
    mode = draw(st.sampled_from([None, "strict", "bf16", "f16", "any"]))
    attr = simdnn.Attr(
        fpmath=mode if kind in ("float", "compressed") else None,
        apply_to_int=kind == "compressed",
        precomputed_reductions=sums if kind == "integer" and draw(st.booleans()) and "wei" in points_there else {},
        exact_int8=draw(st.sampled_from([None, True, False])),
        post_ops=ops if machine != "v100" else [one for one in ops if one == "relu"],
        float_model=draw(st.sampled_from(sorted(FLOAT_MODELS))),
        check=draw(st.booleans()),
        zero_point_strategy=draw(st.sampled_from(["auto", "direct", "in_kernel"])) if points_there else "auto",
        **quants,
    )
    dt = ":".join(draw(st.sampled_from(types[name])) for name in ("src", "wei", "dst"))
    bias, tag = draw(st.booleans()), draw(st.sampled_from(["any", "any", "ab" if matmul else "oihw"]))
    primitive = "matmul" if matmul else "convolution"
    return machine, {"primitive": primitive, "dt": dt, "bias": bias, "wei_tag": tag, **sizes}, attr


def line_of(result: simdnn.Estimate, attr: simdnn.Attr) -> str:
    """The line of a problem as though it had been executed."""
    p = result.problem
    if isinstance(p, ConvProblem):
        sizes = {name: getattr(p, name) for name in CONV_SIZES}
        taps = Taps(p.strides, p.padding, p.dilation, p.groups)
        return verbose_line.line(result, written(Resolved.of(attr, conv_shape(sizes, taps, p.src, p.wei)), p))
    return verbose_line.line(result, written(Resolved.of(attr, Shape("matmul", p.m, p.k, p.n, p.src, p.wei)), p))


@examples(25)
@given(problems())
def test_every_field_of_an_attribute_is_read_back(asked: tuple[str, dict[str, Any], simdnn.Attr]) -> None:
    machine, arguments, attr = asked
    try:
        result = simdnn.estimate(machine=machine, attr=attr, **arguments)
    except SimdnnError:
        assume(False)
    line = line_of(result, attr)
    again = task(read_back(line, machine))
    found = cost(again)
    assert (found.problem, found.implementation) == (result.problem, result.implementation), line
    told = again.attr(lambda *_: None)
    for name in ("exact_int8", "zero_point_strategy", "float_model"):
        assert getattr(told, name) == getattr(attr, name) or name == "exact_int8" and "exact-int8" not in line
    for name in ("scales", "zero_points", "precomputed_reductions"):
        types = [{key: quant.dtype for key, quant in getattr(one, name).items()} for one in (attr, told)]
        assert types[0] == types[1], line


def test_post_operations_are_written_as_they_are_read() -> None:
    ops = [("sum", 0.5, 3, "u8"), ("clip", -1, 6), ("mul", np.ones((4, 1), np.float32)), ("prelu", [0.5] * 8)]
    wanted = "sum:0.5:3:u8+eltwise_clip:-1.0:6.0+binary_mul:f32:1+prelu:2"
    for op, word in [*zip(ops, wanted.split("+"), strict=True), (("sum", 1, 0, "s8"), "sum:1.0:0:s8"), ("sum", "sum")]:
        result = simdnn.estimate(
            "matmul", m=4, n=8, k=64, dt="u8:s8:s8", machine="zen4", attr=simdnn.Attr(post_ops=[op])
        )
        line = line_of(result, simdnn.Attr(post_ops=[op]))
        assert f"attr-post-ops:{word} " in line
        assert cost(task(read_back(line, "zen4"))).problem == result.problem


@pytest.mark.parametrize("tag", ["any", "ab", "ba"])
def test_a_batch_on_a_gpu_is_read_back(tag: str) -> None:
    attr = simdnn.Attr(
        scales={"wei": np.ones((2, 8), np.float32), "src": np.ones((4, 1), np.float32)},
        post_ops=[("add", np.ones(8, np.float32))],
    )
    result = simdnn.estimate(
        "matmul",
        m=4,
        n=8,
        k=64,
        src_batch=(2, 3),
        wei_batch=(2, 1),
        dt="s8:s8:f32",
        wei_tag=tag,
        bias=True,
        machine="b580",
        attr=attr,
    )
    found = cost(task(read_back(line_of(result, attr), "b580")))
    assert (found.problem, found.implementation) == (result.problem, result.implementation)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_json_on_standard_output_stays_json(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    table = tmp_path / "many.csv"
    rows = [f"l{m},{m},8,16,1,1,{128 * m},weight" for m in range(1, 1 + WORTH_WORKERS)]
    table.write_text("\n".join(["layer,M,N,K,batch,count,macs,kind", *rows]))
    assert main(["run", str(table), "--modes", "f32", "--json"]) == 0
    out, err = capfd.readouterr()
    assert len(json.loads(out)["layers"]) == WORTH_WORKERS and err.count("simdnn_verbose") >= WORTH_WORKERS
