"""`simdnn bench`: benchdnn's syntax read, problems answered, values checked."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, Unimplemented, UnknownName
from simdnn.benchdnn import Answer, answer, read, values
from simdnn.benchdnn.attributes import mask_bits, parameters
from simdnn.benchdnn.descriptors import Axis, IpDims, conv_dims, ip_dims, matmul_dims
from simdnn.benchdnn.subset import IGNORED, NEUTRAL, OPTIONS, OTHER_DRIVERS
from simdnn.benchdnn.tasks import task
from simdnn.cli import main
from tests.effort import examples
from tests.streams import error_line

RESNET = """\
# the layers of a residual network, as benchdnn's shape files have them
mb2ic3ih224oc64oh112kh7sh2ph3n"conv1"
mb1ic64ih56oc64oh56kh3ph1n"res2a_branch2b"
mb1_ic64ih28_oc128oh28_kh1ph0_n"res3a_branch2a"   # underscores separate
g32mb1ic32ih14oc32oh14kh3ph1n"depthwise"
"""


def cases(*words: str) -> list[Any]:
    return [case for line in read(words) for case in line.cases()]


def texts(*words: str) -> list[str]:
    return [case.text for case in cases(*words)]


def answers(*words: str) -> list[Answer]:
    return [answer(case) for case in cases(*words)]


# descriptors


@pytest.mark.parametrize(
    ("text", "height", "width"),
    [
        # output given, padding given: what is behind the source follows
        ("ic3ih224oc64oh112kh7sh2ph3", Axis(224, 112, 7, 2, 3), Axis(224, 112, 7, 2, 3)),
        # output missing: derived; padding missing with it: none
        ("ic8ih10oc8kh3", Axis(10, 8, 3), Axis(10, 8, 3)),
        ("ic8ih10oc8kh3ph1", Axis(10, 10, 3, 1, 1), Axis(10, 10, 3, 1, 1)),
        # padding missing: derived from the output
        ("ic8ih10oc8oh10kh3", Axis(10, 10, 3, 1, 1), Axis(10, 10, 3, 1, 1)),
        # dilation 0 is dense: 1 leaves one row out
        ("ic8ih10oc8kh3dh1", Axis(10, 6, 3, 1, 0, 1), Axis(10, 6, 3, 1, 0, 1)),
        # a width of its own; a width alone is one dimension
        ("ic8ih10iw7oc8kh3kw1", Axis(10, 8, 3), Axis(7, 7, 1)),
        ("ic8iw9oc8kw3pw1", Axis(), Axis(9, 9, 3, 1, 1)),
    ],
)
def test_what_a_convolution_leaves_out(text: str, height: Axis, width: Axis) -> None:
    dims = conv_dims(text)
    assert (dims.height, dims.width, dims.mb, dims.groups) == (height, width, 2, 1)


def test_names_and_groups() -> None:
    dims = conv_dims('g4mb3_ic8ih5_oc16kh1_n"a:b_c"')
    assert (dims.groups, dims.mb, dims.name, dims.has_groups) == (4, 3, "a:b_c", True)
    assert matmul_dims('64x512:512x64n"name"').name == "name"
    assert matmul_dims("64x512:512x64_nname").name == "name"
    assert matmul_dims("6x4:4x5:6x5").sizes == (1, 6, 4, 5)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64x512:512x64", (1, 64, 512, 64)),
        ("3x5x12:3x12x17", (3, 5, 12, 17)),
        ("3x5x12:1x12x17", (1, 15, 12, 17)),
        ("1x5x12:3x12x17", (3, 5, 12, 17)),
        ("2x1x5x12:1x4x12x17", (8, 5, 12, 17)),
    ],
)
def test_batches(text: str, sizes: tuple[int, ...]) -> None:
    assert matmul_dims(text).sizes == sizes


@pytest.mark.parametrize("text", ["2x3:4x5", "2x3:3x4:2x5", "0x3:3x4", "2x3x4:4x5", "2x3x4:3x4x5", "3:3"])
def test_dimensions_that_make_no_product(text: str) -> None:
    with pytest.raises(Unimplemented):
        _ = matmul_dims(text).sizes


@pytest.mark.parametrize(
    "text",
    ["", "x", "2x", "2x3", "2x3:3x4:2x4:1", "2y3:3x4", "2x3;3x4", "-2x3:3x4", "2x3:3x" + "9" * 40, "²x3:3x4"],
)
def test_no_matmul(text: str) -> None:
    with pytest.raises(InvalidArgument):
        matmul_dims(text)


@pytest.mark.parametrize(
    "text",
    [
        "ic3",
        "ic3oc4",
        "ih5kh3",
        "ic3oc4ih5",
        "ic3oc4ih5kh",
        "ic3oc4ih5kh3q1",
        "ic3oc4ih5kh7",
        "g0ic3oc4ih5kh3",
        "ic3oc4ih5kh3sh0",
        "ic3oc4ih5oh9kh3sh" + "9" * 30,
        "ic3oc4ih50oh5kh3",
    ],
)
def test_no_convolution(text: str) -> None:
    with pytest.raises(InvalidArgument):
        conv_dims(text)


# the state machine


def test_options_hold_until_changed_and_lists_make_the_product() -> None:
    words = "--dt=f32,bf16 --wtag=any,ab 2x3:3x4 --dt=bf16 5x3:3x4 --reset 1x3:3x4"
    assert texts("--matmul", *words.split()) == [
        "--matmul 2x3:3x4",
        "--matmul --wtag=ab 2x3:3x4",
        "--matmul --dt=bf16 2x3:3x4",
        "--matmul --dt=bf16 --wtag=ab 2x3:3x4",
        "--matmul --dt=bf16 5x3:3x4",
        "--matmul --dt=bf16 --wtag=ab 5x3:3x4",
        "--matmul 1x3:3x4",
    ]


def test_an_empty_value_is_the_default() -> None:
    assert texts("--matmul", "--dt=bf16", "--dt=", "--attr-post-ops=,relu", "2x3:3x4") == [
        "--matmul 2x3:3x4",
        "--matmul --attr-post-ops=relu 2x3:3x4",
    ]


def test_reset_keeps_machines_and_mode() -> None:
    [case] = cases("--matmul", "--machine", "icx", "--isa=avx2", "--mode=p", "--dt=bf16", "--reset", "2x3:3x4")
    assert (case.options["machine"], case.options["isa"], case.mode, case.options["dt"]) == ("icx", "avx2", "P", "f32")


def test_bias_masks_count_only_with_a_bias() -> None:
    found = texts("--matmul", "--bia-dt=undef,f32", "--bia_mask=2,3", "2x3:3x4")
    assert len(found) == 3 and sum("f32" in text for text in found) == 2


def test_match_keeps_some() -> None:
    assert texts("--matmul", "--match=NCF", '2x3:3x4n"NCF:1"', '2x3:3x4n"other"') == ['--matmul 2x3:3x4n"NCF:1"']


def test_harmless_options_change_nothing() -> None:
    words = [f"--{name}=1" for name in IGNORED] + ["-v5", "--canonical", "--skip-impl=ref,x64:gemm"]
    assert texts("--matmul", *words, "2x3:3x4") == ["--matmul 2x3:3x4"]


def test_batch_files(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "shapes_resnet").write_text(RESNET)
    (tmp_path / "test_all").write_text(
        "--reset\n# comment --dt=s8\n--dt=f32,\\\n   bf16 # joined\n--attr-post-ops=, \\\n  relu\n"
        "--batch=inner/shapes_resnet\n--dt=f32 --batch=inner/again\n"
    )
    (inner / "again").write_text("--attr-post-ops= --batch=shapes_resnet")  # relative to its own folder
    found = cases("--conv", f"--batch={tmp_path}/test_all")
    assert len(found) == 4 * 4 + 4
    assert found[0].text == '--conv mb2ic3ih224oc64oh112kh7sh2ph3n"conv1"'
    assert {case.options["dt"] for case in found} == {"f32", "bf16"}
    assert all(case.options["attr-post-ops"] == "" for case in found[-4:])


def test_errors_in_a_batch_file_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "shapes"
    path.write_text("2x3:3x4\n\n2x3:3xx\n")
    _, found = answers("--matmul", "--mode=P", f"--batch={path}")
    assert found.reason.startswith("shapes:3: matmul problem '2x3:3xx'") and found.problem == "2x3:3xx"
    path.write_text("--batch=shapes --batch=shapes\n" * 3)
    assert all("nest deeper" in found.reason for found in answers("--matmul", f"--batch={path}"))


LINES = [  # a line that makes no sense in a batch file, and a part of the reason
    ("--dtt=f32 4x8:8x4", "unknown option '--dtt=f32': did you mean --dt?"),
    ("--dt=f33 4x8:8x4 4x8:8x5", "unknown type in --dt 'f33'"),
    ("--mode=R", "--mode='R'; allowed"),
    ("4x8", "src:weights are needed"),
    ("--conv ic8oc8", "no input or kernel size"),
    ("--ip ic8ih0oc4", "ih is 0"),
    ("--batch=absent", "No such file"),
    ("--machine", "--machine without a value"),
    ("--machine=absent.toml 4x8:8x4", "absent.toml"),
    ("--attr-post-ops=rely 4x8:8x4", "did you mean 'relu'"),
    ("-x", "options start with --"),
]


@pytest.mark.parametrize(("line", "reason"), LINES)
def test_a_line_that_makes_no_sense_is_answered_and_the_rest_goes_on(
    line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shapes"
    path.write_text(f"--matmul 4x8:8x4\n{line}\n--reset --machine=zen4 --matmul --dt=bf16 4x8:8x4\n")
    assert main(["bench", "--mode=P", f"--batch={path}"]) == 1
    _, first, wrong, last, summary = capsys.readouterr().out.splitlines()
    assert first.startswith("PASSED") and last.startswith("PASSED") and last.endswith("--matmul --dt=bf16 4x8:8x4")
    assert wrong.startswith("UNIMPLEMENTED:shapes:2: ") and reason in wrong and wrong.endswith(line)
    assert summary == "tests:3 passed:2 failed:0 unimplemented:1"


def test_an_option_that_could_not_be_read_is_not_guessed(tmp_path: Path) -> None:
    """Problems after it are refused for it until it is given again; what does not ask for it goes on."""
    path = tmp_path / "shapes"
    lines = ["--dt=bf16 --wtag=ab --dir=FORWARD", "4x8:8x4", "--dt=f33", "4x8:8x4", "--dt=s8", "4x8:8x4"]
    path.write_text("\n".join([*lines, "--conv ic8ih4oc4kh1"]))
    found = answers("--matmul", "--mode=P", f"--batch={path}")
    assert [one.status for one in found] == [
        "UNIMPLEMENTED",
        "PASSED",
        "UNIMPLEMENTED",
        "UNIMPLEMENTED",
        "PASSED",
        "UNIMPLEMENTED",
    ]
    assert found[1].problem == "--matmul --dt=bf16 --wtag=ab 4x8:8x4"
    assert found[3].reason == found[2].reason and found[3].problem == "--matmul 4x8:8x4"
    assert found[5].reason.startswith("shapes:1: ") and "FORWARD" in found[5].reason


def test_answers_come_before_what_fails_behind_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that nobody thought of, too, is one problem's."""
    answering = import_module("simdnn.benchdnn.answer")
    right = answering.cost
    monkeypatch.setattr(answering, "cost", lambda wanted: 1 // 0 if wanted.sizes["n"] == 5 else right(wanted))
    assert main(["bench", "--matmul", "--mode=P", "4x8:8x4", "4x8:8x5", "4x8:8x6"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["PASSED", "FAILED", "PASSED"]
    assert "ZeroDivisionError" in lines[2] and lines[4].startswith("tests:3 passed:2 failed:1")


@pytest.mark.parametrize("driver", sorted(OTHER_DRIVERS))
def test_other_drivers_are_named(driver: str) -> None:
    """Whatever their own options are."""
    words = f"--matmul 4x8:8x4 --{driver} --sdt=f32 --alg=SOMETHING --dt=f32 8x16 --reset --matmul 4x8:8x4"
    first, other, last = answers("--mode=P", *words.split())
    assert (first.status, last.status) == ("PASSED", "PASSED")
    assert other.reason == f"not modelled: driver {driver}; drivers: --matmul, --conv, --ip"
    assert other.problem == f"--{driver} 8x16"


# inner products


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("mb1ic8oc8", IpDims(1, 8, 8)),
        ("ic8oc4", IpDims(2, 8, 4)),
        ('mb112ic2048_ih1iw1_oc1000_n"resnet:ip1"', IpDims(112, 2048, 1000, (1, 1), "resnet:ip1")),
        ("ic8id3oc4", IpDims(2, 8, 4, (3, 3, 3))),
        ("ic8id3ih2iw5oc4", IpDims(2, 8, 4, (3, 2, 5))),
        ("ic8iw5oc4", IpDims(2, 8, 4, (5,))),
    ],
)
def test_inner_products_as_written(text: str, dims: IpDims) -> None:
    assert ip_dims(text) == dims


@pytest.mark.parametrize("text", ["", "mb1", "ic8", "ic0oc4", "ic8oc", "ic8oc4kh3", "ic8oc4ih0", "8x8:8x8"])
def test_no_inner_product(text: str) -> None:
    with pytest.raises(InvalidArgument):
        ip_dims(text)


@pytest.mark.parametrize(
    ("words", "matmul"),
    [
        ("--ip mb5ic8ih3oc7", "--bia-dt=f32 5x72:72x7"),
        ("--ip --dir=FWD_I --mb=3 mb5ic64oc7", "3x64:64x7"),
        ("--ip --dir=FWD_I --wtag=abx mb5ic64ih1oc7", "--wtag=ba 5x64:64x7"),
        ("--ip --dir=FWD_I --stag=nhwc --wtag=hwio mb5ic8ih3oc7", "--wtag=ab 5x72:72x7"),
        (
            "--ip --dt=u8:s8:u8 --bia-dt=f32 --attr-scales=src:common:0.5+wei:0+dst:common:2 "
            "--attr-zero-points=src:common:3 --attr-post-ops=sum:2+relu mb5ic65oc7",
            "--dt=u8:s8:u8 --bia-dt=f32 --attr-scales=src:common:0.5+wei:common+dst:common:2 "
            "--attr-zero-points=src:common:3 --attr-post-ops=sum:2+relu 5x65:65x7",
        ),
        (
            "--ip --dt=s8:s8:f32 --machine=icx,skx,b580 --attr-scales=wei:per_oc --attr-post-ops=add:f32:per_oc "
            "mb5ic65oc7",
            "--dt=s8:s8:f32 --bia-dt=f32 --machine=icx,skx,b580 --attr-scales=wei:per_oc "
            "--attr-post-ops=add:f32:per_oc "
            "5x65:65x7",
        ),
    ],
)
def test_an_inner_product_is_the_matmul_of_its_channels(words: str, matmul: str) -> None:
    found, meant = answers(*words.split()), answers("--matmul", *matmul.split())
    assert [one.status for one in found] == ["PASSED"] * len(meant) and all(one.max_error == 0 for one in found)
    assert [replace(one, problem="") for one in found] == [replace(one, problem="") for one in meant]
    assert all(one.problem.startswith("--ip ") for one in found)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--dir=BWD_D", "no backward inner product"),
        ("--stag=bacd", "rows contiguous"),
        ("--wtag=iohw", "output channels in the middle"),
        ("--stag=nchw --wtag=ohwi", "in another order"),
        ("--stag=abc", "no plain layout of 4 dimensions"),
        ("--attr-scales=wei:per_dim_1", "with mask per_dim_1"),
        ("--attr-scales=wei:per_oc:f32:4x1", "groups of wei"),
        ("--dispatch=onednn", "not modelled"),
    ],
)
def test_what_inner_products_do_not_do(words: str, reason: str) -> None:
    [found] = answers("--ip", *words.split(), "ic8ih3oc4")
    assert found.status == "UNIMPLEMENTED" and reason in found.reason


# kernels that are lossy by design


@pytest.mark.parametrize("shape", ["mb1ic16ih8oc16kh3ph1", "g16mb1ic16ih8oc16kh3ph1", "g2mb1ic6ih5oc10kh3ph1sh2"])
@pytest.mark.parametrize("options", ["--dt=s8:s8:s32,s8:s8:f32,s8:s8:u8", "--dt=s8:s8:s8 --attr-scales=wei:common:0.3"])
@pytest.mark.parametrize("machine", ["skx", "hsw"])
def test_halved_weights_pass_and_tell_their_loss(shape: str, options: str, machine: str) -> None:
    """Against one product after the other, with weights halved and doubled; VNNI loses nothing."""
    fast = "--attr-exact-int8=false"
    for found in answers("--conv", f"--machine={machine}", fast, *options.split(), shape):
        assert found.status == "PASSED" and found.loss and found.max_error is not None, found
        assert found.note == f"lossy: halved weights, max error {found.loss:.3g} against exact arithmetic"
    for found in answers("--conv", "--machine=clx", *options.split(), shape):
        assert found.status == "PASSED" and found.loss is None and not found.note


def test_a_loss_beyond_the_design_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = values.convolution

    def wrong(*arguments: Any, **named: Any) -> Any:
        result = right(*arguments, **named)
        output = result.output.copy()
        output[0, 0, 0, 0] += 1
        return replace(result, output=output)

    monkeypatch.setattr(values, "convolution", wrong)
    [found] = answers("--conv", "--machine=skx", "--dt=s8:s8:s32", "mb1ic16ih8oc16kh3ph1")
    assert found.status == "FAILED" and found.max_error == 1 and found.loss


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--matmul", "--dtt=f32", "2x3:3x4"], "did you mean --dt\\? drivers"),
        (["--matmul", "--dt=f33", "2x3:3x4"], "unknown type in --dt 'f33'"),
        (["--matmul", "--dt=f32:f32", "2x3:3x4"], "src:weights:dst"),
        (["--matmul", "--dt", "2x3:3x4"], "'--dt' needs a value"),
        (["2x3:3x4"], "before --matmul or --conv or --ip"),
        (["--matmul", "--mode=R", "2x3:3x4"], "--mode='R'; allowed: C, P, CP"),
        (["--matmul", "--machine=zen44", "2x3:3x4"], "did you mean 'zen4'"),
        (["--matmul", "--isa=avx512_core_vni"], "did you mean 'avx512_core_vnni'"),
        (["--matmul", "--machine"], "--machine without a value"),
        (["--matmul", "--attr-scales=wei:per_occ", "2x3:3x4"], "did you mean 'per_ocic'"),
        (["--matmul", "--attr-scales=wei", "2x3:3x4"], "ARG:MASK"),
        (["--matmul", "--attr-scales=wei:per_oc:0.5", "2x3:3x4"], "a value goes with mask common"),
        (["--matmul", "--attr-scales=wei:per_oc:f16:ax1", "2x3:3x4"], "groups 'ax1'"),
        (["--matmul", "--attr-fpmath=bf17", "2x3:3x4"], "did you mean 'bf16'"),
        (["--matmul", "--attr-fpmath=bf16:maybe", "2x3:3x4"], "MODE:true"),
        (["--matmul", "--attr-post-ops=rely", "2x3:3x4"], "did you mean 'relu'"),
        (["--matmul", "--match=(", "2x3:3x4"], "--match"),
        (["--matmul", "--batch=/absent"], "No such file"),
        (["-x"], "options start with --"),
    ],
)
def test_wrong_usage(words: list[str], message: str) -> None:
    with pytest.raises((InvalidArgument, UnknownName), match=message):
        read(words)


# attributes


@pytest.mark.parametrize(
    ("text", "primitive", "ndims", "has_groups", "bits"),
    [
        ("src:common", "matmul", 2, False, 0),
        ("wei:per_oc", "matmul", 2, False, 2),
        ("wei:per_oc", "matmul", 4, False, 8),
        ("wei:per_ocic", "matmul", 3, False, 6),
        ("src:per_tensor", "matmul", 2, False, 3),
        ("wei:per_oc", "convolution", 4, False, 1),
        ("wei:per_oc", "convolution", 4, True, 3),
        ("src:per_dim_1", "convolution", 4, False, 2),
        ("wei:2", "matmul", 2, False, 2),
    ],
)
def test_masks(text: str, primitive: str, ndims: int, has_groups: bool, bits: int) -> None:
    [parameter] = parameters("attr-scales", text)
    assert mask_bits(parameter, primitive, ndims, has_groups) == bits


# answers


def test_a_matmul_and_its_figures() -> None:
    [found] = answers("--matmul", "--dt=u8:s8:s32", "--machine=icx", "64x512:512x64")
    assert (found.status, found.implementation, found.max_error) == ("PASSED", "gemm:avx512_core_vnni", 0)
    assert found.cycles and found.time_us and found.gops and found.gb_s
    assert found.gops == pytest.approx(2e-3 * 64 * 512 * 64 / found.time_us)
    assert found.gb_s == pytest.approx(1e-3 * (64 * 512 + 512 * 64 + 4 * 64 * 64) / found.time_us, rel=0.02)


@pytest.mark.parametrize("machine", ["zen4", "hsw", "spr"])
def test_a_batch_is_what_matmul_takes(machine: str) -> None:
    """Three and four dimensions, which broadcast; every product's values are compared."""
    one, *several = answers("--matmul", f"--machine={machine}", "20x30:30x40", "3x20x30:3x30x40", "2x1x9x8:1x3x8x7")
    assert one.cycles and several[0].cycles and 2.5 * one.cycles < several[0].cycles < 3.2 * one.cycles
    assert [(found.status, found.max_error, found.note) for found in several] == [("PASSED", 0, "")] * 2
    src, weights = np.ones((3, 20, 30), np.float32), np.ones((3, 30, 40), np.float32)
    assert simdnn.matmul(src, weights, machine=machine).cycles == several[0].cycles


def test_a_batch_on_a_gpu_is_one_kernel() -> None:
    words = ("--matmul", "--machine=b580", "--dt=f16:f16:f32", "--bia-dt=f32", "--bia_mask=8")
    one, six, shared = answers(*words[:-1], "20x30:30x40", words[-1], "2x3x20x30:2x3x30x40", "2x3x20x30:2x1x30x40")
    assert one.cycles and six.cycles and one.cycles <= six.cycles < 3 * one.cycles
    assert (one.status, six.status, shared.status) == ("PASSED",) * 3 and six.max_error == shared.max_error == 0
    assert shared.gb_s and six.gb_s and shared.gb_s < six.gb_s


@pytest.mark.parametrize(
    "words",
    [
        # documented examples
        "--dt=f32:s8:f32 --attr-fpmath=bf16:true --attr-scales=wei:per_ocic:bf16:2x1 "
        "--attr-zero-points=wei:per_ocic:s8:2x1 6x4:4x5",
        "--dt=u8:s8:u8 --attr-zero-points=src:common:1+dst:common:2 10x30:30x20",
        "--bia-dt=f32 --bia_mask=4 2x10x30:2x30x20",
        # each type with all that its kernels have, on odd sizes
        "--dt=u8:s8:s8,s8:s8:u8,u8:s8:f32,s8:s8:bf16 --bia-dt=f32 --attr-post-ops=,relu "
        "--attr-scales=src:common:0.25+wei:per_oc+dst:common:2 --attr-zero-points=src:common:3+dst:common:-2 "
        "7x33:33x17",
        "--dt=f32,bf16,bf16:bf16:f32 --bia-dt=f32 --attr-post-ops=relu 7x33:33x17",
        "--machine=skx,clx --isa=avx2, --dt=u8:s8:s32,s8:s8:s32 9x70:70x19",
        # scales that are no powers of two, so that roundings show
        "--dt=s8:s8:s8,u8:s8:f32,u8:s8:bf16 --attr-scales=src:common:0.3+wei:common:0.7+dst:common:1.1 9x70:70x19",
        "--dt=f32:u8:f32,bf16:s4:bf16 --attr-fpmath=bf16:true --attr-scales=wei:common:0.3 --wtag=any 9x64:64x19",
        "--attr-fpmath=bf16 9x70:70x19",
    ],
)
def test_matmuls_pass(words: str) -> None:
    for found in answers("--matmul", *words.split()):
        assert found.status == "PASSED", found
        assert found.max_error is not None


@pytest.mark.parametrize(
    "words",
    [
        'mb1ic16ih9oc16oh9kh3ph1n"name"',
        "--dt=u8:s8:s32,s8:s8:f32 --dir=FWD_B,FWD_D --attr-scales=wei:per_oc ic17oc19ih8oh4kh1ph0sh2",
        "--dt=f32,u8:s8:f32 g4ic16oc16_ih7kh3ph1dh1",
        "--dt=f32,u8:s8:f32 g16mb1ic16oc16_ih7kh3ph1",
        "--dt=u8:s8:f32 --attr-zero-points=src:common:2 ic8oc8_iw9kw3pw1",
        "--dt=bf16 ic3ih12oc16oh6kh5sh2ph2",
        "ic8ih9oc8oh3kh1ph0sh2",  # the last rows are not read
    ],
)
def test_convolutions_pass(words: str) -> None:
    for found in answers("--conv", "--mb=1", *words.split()):
        assert found.status == "PASSED", found
        assert found.max_error == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--matmul --attr-post-ops=sum:0.5:3 2x3:3x4", "post-operation 'sum:0.5:3'"),
        ("--matmul --attr-post-ops=add:f16:per_oc 2x3:3x4", "post-operation 'add:f16:per_oc'"),
        ("--matmul --attr-post-ops=add:f32:per_dim_0 2x3:3x4", "add with mask per_dim_0"),
        ("--matmul --attr-post-ops=relu:0.5 2x3:3x4", "post-operation 'relu:0.5'"),
        ("--matmul --dt=f32:s8:f32 2x3:3x4", "ambiguous"),
        ("--matmul --dt=f8_e4m3 2x3:3x4", "f8_e4m3 source"),
        ("--matmul --dt=f64 2x3:3x4", "f64 source"),
        ("--matmul --dt=f4_e2m1 2x3:3x4", "unknown data type 'f4_e2m1'"),
        ("--matmul --dt=u8:s8:s32 --attr-fpmath=bf16 2x3:3x4", "a math mode says how f32 data is computed"),
        ("--matmul --stag=ba 2x3:3x4", "--stag=ba"),
        ("--matmul --wtag=BA16a 2x3:3x4", "--wtag=BA16a"),
        ("--matmul --runtime_dims_masks=3:3 2x3:3x4", "--runtime_dims_masks=3:3: not modelled"),
        ("--matmul --strides=8x1:: 2x3:3x4", "--strides=8x1::: not modelled"),
        ("--matmul --bia-dt=bf16 2x3:3x4", "--bia-dt=bf16"),
        ("--matmul --bia-dt=f32 --bia_mask=3 2x3:3x4", "--bia_mask=3"),
        ("--matmul --engine=gpu 2x3:3x4", "--engine=gpu: not modelled; 'zen4' is a CPU, --machine=b580 a GPU"),
        ("--matmul --machine=b580 --engine=cpu 2x3:3x4", "--engine=cpu: not modelled; 'b580' is a GPU, --machine=zen4"),
        ("--matmul --machine=skx --isa=avx512_core_vnni 2x3:3x4", "lacks avx512_core_vnni"),
        ("--matmul --dt=s8 --attr-scales=wei:mx:e8m0:1x32 2x3:3x4", "mx scales"),
        ("--matmul --dt=f32:s8:f32 --attr-fpmath=bf16:true --attr-scales=wei:per_ocic:f16:5x1 2x6:6x4", "not divide K"),
        ("--matmul 2x3:4x5", "no product"),
        ("--matmul 99999x99999:99999x99999999999", "bytes"),
        ("--conv --dir=BWD_D ic3ih5oc4kh3", "no backward convolution"),
        ("--conv --alg=wino ic3ih5oc4kh3", "no Winograd"),
        ("--conv --stag=abx ic3ih5oc4kh3", "channels last"),
        ("--conv ic3id5oc4kd3", "three spatial dimensions"),
        ("--conv g3ic4ih5oc6kh3", "groups=3 does not divide ic=4"),
    ],
)
def test_reasons(words: str, reason: str) -> None:
    for found in answers(*words.split()):
        assert found.status == "UNIMPLEMENTED" and reason in found.reason
        assert found.cycles is None


def test_a_large_problem_is_priced_alone() -> None:
    [found] = answers("--matmul", "4096x4096:4096x4096")
    assert found.status == "PASSED" and found.max_error is None and "values not checked: 6.9e+10" in found.note


def test_a_wrong_kernel_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = values.matmul

    def wrong(*arguments: Any, **named: Any) -> Any:
        result = right(*arguments, **named)
        output = result.output.copy()
        output[0, 0] += 1
        return replace(result, output=output)

    monkeypatch.setattr(values, "matmul", wrong)
    for found in answers("--matmul", "--dt=f32,u8:s8:s32,u8:s8:u8", "4x8:8x8"):
        assert found.status == "FAILED" and found.max_error == 1 and "1 outputs beyond" in found.reason


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("in the kernel")

    monkeypatch.setattr(values, "matmul", crash)
    [found] = answers("--matmul", "4x8:8x8")
    assert (found.status, found.reason) == ("FAILED", "ZeroDivisionError: in the kernel")


def test_the_reference_is_a_plain_convolution() -> None:
    [case] = cases("--conv", "--dir=FWD_D", "g2mb1ic4ih5iw6oc6kh3kw2sh2ph1dh1")
    wanted = task(case)
    rng = np.random.default_rng(0)
    src = rng.integers(-4, 5, (1, 4, 5, 6)).astype(np.float32)
    wei = rng.integers(-4, 5, (6, 2, 3, 2)).astype(np.float32)
    got, magnitude = values.reference(wanted, src, wei, None, wanted.attr(lambda *_: 1.0))
    s = wanted.sizes
    padded = np.pad(src, ((0, 0), (0, 0), s["padding"][::2], s["padding"][1::2]))
    for oc, y, x in np.ndindex(*got.shape[1:]):
        total = 0.0
        for ic, ky, kx in np.ndindex(2, 3, 2):
            row, column = y * s["strides"][0] + ky * s["dilation"][0], x * s["strides"][1] + kx * s["dilation"][1]
            total += padded[0, oc // 3 * 2 + ic, row, column] * wei[oc, ic, ky, kx]
        assert got[0, oc, y, x] == total and magnitude[0, oc, y, x] >= abs(total)


def test_data_are_the_same_on_every_machine_and_do_not_saturate() -> None:
    for found in answers("--matmul", "--machine=skx", "--isa=avx2,avx512_core", "--dt=u8:s8:s32", "16x256:256x16"):
        assert found.max_error == 0 and "vnni" not in found.implementation


# the command


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--matmul", "--dt=f32,u8:s8:s32", "8x16:16x8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "status" and lines[0].split()[-1] == "problem"
    assert [line.split()[0] for line in lines[1:3]] == ["PASSED", "PASSED"]
    assert lines[2].endswith("--matmul --dt=u8:s8:s32 8x16:16x8")
    assert lines[3] == "tests:2 passed:2 failed:0 unimplemented:0"


def test_exit_status_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--matmul", "--mode=P", "8x16:16x8", "--attr-post-ops=tanh", "8x16:16x8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("UNIMPLEMENTED:post-operation 'tanh'") and lines[2].endswith("8x16:16x8")
    assert lines[-1] == "tests:2 passed:1 failed:0 unimplemented:1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no problem given"),
        (["--matmul"], "no problem given"),
        (["--matmul", "2x"], "'2x' is no MxK"),
        (["--matmul", "2x3:3x4", "-o"], "-o without a file"),
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
    words = ["--matmul", "--mode=P", "8x16:16x8", "--attr-post-ops=tanh", "8x16:16x8", "--json", "-o", str(path)]
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
