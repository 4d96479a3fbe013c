"""`simdnn bench` reads benchdnn's syntax: descriptors, options, batch files, attributes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from isa_models import InvalidArgument, Unimplemented, UnknownName
from simdnn.benchdnn import read
from simdnn.benchdnn.attributes import mask_bits, parameters
from simdnn.benchdnn.descriptors import Axis, IpDims, conv_dims, ip_dims, matmul_dims
from simdnn.benchdnn.options import Case, Unread
from simdnn.benchdnn.subset import IGNORED, OTHER_DRIVERS
from simdnn.cli import main
from tests.benchdnn.lines import answers, cases, texts

RESNET = """\
# the layers of a residual network, as benchdnn's shape files have them
mb2ic3ih224oc64oh112kh7sh2ph3n"conv1"
mb1ic64ih56oc64oh56kh3ph1n"res2a_branch2b"
mb1_ic64ih28_oc128oh28_kh1ph0_n"res3a_branch2a"   # underscores separate
g32mb1ic32ih14oc32oh14kh3ph1n"depthwise"
"""


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
    assert summary.removesuffix(" machine:zen4") == "tests:3 passed:2 failed:0 unimplemented:1"


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


def test_an_option_of_another_driver_is_refused_and_not_ignored() -> None:
    """benchdnn's --matmul has no --dir; a backward one would be answered as if it had been asked for a forward one."""
    with pytest.raises(InvalidArgument, match="--dir is no option of --matmul; drivers that have it: --conv, --ip"):
        read(["--matmul", "--dir=BWD_D", "8x8:8x8"])
    with pytest.raises(InvalidArgument, match="--dir is no option of --reorder"):
        read(["--reorder", "--dir=FWD_I", "8x8"])
    assert texts("--dir=FWD_I", "--matmul", "8x8:8x8") == ["--matmul 8x8:8x8"]  # of no driver yet
    assert texts("--matmul", "--dir=FWD_I", "--ip", "mb1ic8oc8") == [
        "--ip --dir=FWD_I mb1ic8oc8"
    ]  # for the driver behind it


def test_an_option_of_another_driver_is_told_for_each_problem_of_a_batch_file(tmp_path: Path) -> None:
    batch = tmp_path / "shapes"
    batch.write_text("--matmul --mb=2\n8x8:8x8\n4x4:4x4\n--reset\n2x2:2x2\n")
    first, second, third = read([f"--batch={batch}"])
    assert isinstance(first, Unread) and first.reason.startswith("shapes:2: --mb is no option of --matmul")
    assert isinstance(second, Unread) and second.reason.startswith("shapes:3: --mb is no option of --matmul")
    assert [case.text for case in third.cases() if isinstance(case, Case)] == ["--matmul 2x2:2x2"]


@pytest.mark.parametrize("driver", sorted(OTHER_DRIVERS))
def test_other_drivers_are_named(driver: str) -> None:
    """Whatever their own options are."""
    words = f"--matmul 4x8:8x4 --{driver} --sdt=f32 --alg=SOMETHING --dt=f32 8x16 --reset --matmul 4x8:8x4"
    first, other, last = answers("--mode=P", *words.split())
    assert (first.status, last.status) == ("PASSED", "PASSED")
    assert other.reason.startswith(f"not modelled: driver {driver}; drivers: --matmul, --conv, --ip, --softmax")
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


# wrong usage


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
