"""Zero points, their strategies and reductions given by the user: what is refused, and benchdnn's words for them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from simdnn import Attr, Quant
from simdnn.benchdnn import answer, read
from simdnn.cli import main

COMMON = {"src": 3, "wei": -5}
SUMS = np.zeros((4, 2), np.int32)
WEI = np.zeros((2, 8), np.int32)
TARGETS = pytest.mark.parametrize("machine", ["zen4", "b580"])


def operands(src: Any = np.uint8) -> tuple[Any, Any]:
    """A source of 4 x 64 and weights of 64 x 8."""
    return np.ones((4, 64), src), np.ones((64, 8), np.int8)


@pytest.mark.parametrize(
    ("message", "attr"),
    [
        ("oneDNN has none", {"zero_points": COMMON, "zero_point_strategy": "bias"}),
        ("with mask 1", {"zero_points": {"src": Quant(np.zeros(4, np.int32), mask=1)}}),
    ],
)
def test_what_the_library_has_not(message: str, attr: dict[str, Any]) -> None:
    with pytest.raises(Unimplemented, match=message):
        simdnn.matmul(*operands(), machine="zen4", dispatch="onednn", attr=Attr(**attr))


@TARGETS
def test_a_strategy_needs_its_sums(machine: str) -> None:
    attr = Attr(zero_points=COMMON, zero_point_strategy="precomputed")
    with pytest.raises(Unimplemented, match="are missing; 'in_kernel'"):
        simdnn.matmul(*operands(), machine=machine, attr=attr)


def test_no_strategy_of_a_convolution_on_a_cpu() -> None:
    attr = Attr(zero_points={"src": 3}, zero_point_strategy="bias")
    with pytest.raises(Unimplemented, match="'auto'"):
        simdnn.convolution(np.ones((1, 8, 5, 5), np.uint8), np.ones((8, 8, 1, 1), np.int8), machine="zen4", attr=attr)


@pytest.mark.parametrize("points", [{}, {"dst": 3}])
def test_no_strategy_without_zero_points(points: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="'bias' without zero_points of src or wei"):
        Attr(zero_points=points, zero_point_strategy="bias")


def test_no_strategy_where_kernels_have_one_way() -> None:
    attr = Attr(zero_points={"wei": 3}, zero_point_strategy="direct", fpmath="bf16", apply_to_int=True)
    with pytest.raises(Unimplemented, match="f32 x s8: .*'auto'"):
        simdnn.matmul(np.ones((2, 16), np.float32), np.ones((16, 4), np.int8), machine="zen4", attr=attr)
    attr = Attr(zero_points={"src": 3}, zero_point_strategy="direct")
    image, taps = np.ones((1, 8, 5, 5), np.int8), np.ones((8, 1, 3, 3), np.int8)
    with pytest.raises(Unimplemented, match="depthwise.*'auto'"):
        simdnn.convolution(image, taps, groups=8, machine="b580", attr=attr)


@pytest.mark.parametrize(
    "error,message,wei,attr",
    [
        (Unimplemented, "are missing", np.int8, {"zero_point_strategy": "precomputed"}),
        (Unimplemented, "up to 1793", np.int8, {"zero_point_strategy": "upconvert", "zero_points": {"wei": 1794}}),
        (Unimplemented, "-8 to 7", ml_dtypes.int4, {"zero_point_strategy": "direct", "zero_points": {"wei": 8}}),
        (Unimplemented, "-128 to 127", np.int8, {"zero_point_strategy": "direct", "zero_points": {"wei": 128}}),
        (Unimplemented, "16 bits", np.int8, {"zero_point_strategy": "in_kernel", "zero_points": {"wei": 1 << 15}}),
        (
            InvalidArgument,
            "is missing",
            np.int8,
            {"zero_points": {}, "precomputed_reductions": {"src": np.zeros((4, 2), np.int32)}},
        ),
    ],
)
def test_what_a_strategy_cannot_hold(error: type[SimdnnError], message: str, wei: Any, attr: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        simdnn.matmul(
            np.ones((4, 64), np.int8),
            np.ones((64, 8), wei),
            machine="a770",
            attr=Attr(**{"zero_points": {"wei": 3}} | attr),
        )
    with pytest.raises(InvalidArgument, match="zero_point_strategy"):
        Attr(zero_point_strategy="fast")


@pytest.mark.parametrize(
    "error,message,reductions,points,scales",
    [
        (InvalidArgument, "zero_points\\['wei'\\] is missing", SUMS, {}, {}),
        (InvalidArgument, "zero_points\\['wei'\\] is missing", SUMS, {"src": 3}, {}),
        (InvalidArgument, "int64|s64", SUMS.astype(np.int64), {"wei": WEI}, {}),
        (InvalidArgument, "f32", SUMS.astype(np.float32), {"wei": WEI}, {}),
        (InvalidArgument, "is needed", SUMS[:3], {"wei": WEI}, {}),
        (InvalidArgument, "is needed", SUMS[:, :1].reshape(-1), {"wei": WEI}, {}),
        (InvalidArgument, "is needed", np.zeros((1, 2), np.int32), {"wei": WEI}, {}),
        (InvalidArgument, "is needed", np.zeros((4, 3), np.int32), {"wei": WEI}, {}),
        (InvalidArgument, r"groups=\(2, 32\)", Quant(SUMS, groups=(2, 32)), {"wei": WEI}, {}),
        (InvalidArgument, r"groups=\(1, 48\)", Quant(SUMS, groups=(1, 48)), {"wei": WEI}, {}),
        (InvalidArgument, "mask", Quant(SUMS, mask=2), {"wei": WEI}, {}),
        (InvalidArgument, "no longer than every other", SUMS, {"wei": np.zeros((4, 8), np.int32)}, {}),
        (InvalidArgument, "no longer than every other", SUMS, {"wei": WEI}, {"wei": np.ones((8, 8), np.float32)}),
        (InvalidArgument, "is needed", np.int32(5), {"wei": WEI}, {}),
        (InvalidArgument, "is needed", SUMS[None], {"wei": WEI}, {}),
        (InvalidArgument, "is needed", SUMS.T.copy(), {"wei": WEI}, {}),
        (InvalidArgument, "holds no", SUMS[:, :0], {"wei": WEI}, {}),
        (InvalidArgument, "f64", np.full((4, 2), np.nan), {"wei": WEI}, {}),
        (InvalidArgument, "u32", SUMS.astype(np.uint32), {"wei": WEI}, {}),
        (InvalidArgument, "object", [[10**30] * 2] * 4, {"wei": WEI}, {}),
        (InvalidArgument, "no values", Quant(None, groups=(1, 32)), {"wei": WEI}, {}),
    ],
)
@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_what_is_not_accepted(
    machine: str,
    error: type[SimdnnError],
    message: str,
    reductions: Any,
    points: dict[str, Any],
    scales: dict[str, Any],
) -> None:
    a, w = operands()
    with pytest.raises(error, match=message) as caught:
        simdnn.matmul(
            a,
            w,
            machine=machine,
            attr=Attr(zero_points=points, scales=scales, precomputed_reductions={"src": reductions}),
        )
    assert "\n" not in str(caught.value)


def test_other_arguments_and_problems_have_none() -> None:
    a, w = operands()
    with pytest.raises(InvalidArgument, match="allowed: src"):
        simdnn.matmul(a, w, machine="zen4", attr=Attr(zero_points={"wei": 1}, precomputed_reductions={"wei": SUMS}))
    with pytest.raises(InvalidArgument, match="integer matmul"):
        attr = Attr(zero_points={"wei": 1}, precomputed_reductions={"src": SUMS})
        simdnn.matmul(a.astype(np.float32), w.astype(np.float32), machine="zen4", attr=attr)
    with pytest.raises(InvalidArgument, match="True or False"):
        Attr(check=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_benchdnn_reads_them(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dt=s8:s8:s32", "--attr-zero-points=wei:per_ocic:s32:32x1", f"--machine={machine}"]
    reductions = "--attr-precomputed-reductions=src:per_tensor:s32:1x32"
    assert main(["bench", "--matmul", *options, reductions, "8x64:64x16"]) == 0
    assert "PASSED" in capsys.readouterr().out
    assert main(["bench", "--matmul", *options, "--attr-zero-points=", reductions, "8x64:64x16"]) == 1
    assert "zero_points['wei'] is missing" in capsys.readouterr().out


POINTS = "--attr-zero-points=src:common:3+wei:per_ocic:s8:32x1"
SHIPPED = [POINTS, "--attr-precomputed-reductions=src:per_tensor:s32:1x32"]


@pytest.mark.parametrize("machine", ["zen4", "b580"])
@pytest.mark.parametrize("entry", ["src:per_ocic:s32:1x32:true", "src0:3:s32:1x32:1", "src:per_tensor:s32:1x32:TRUE"])
def test_the_proposed_interface_means_the_shipped_one(machine: str, entry: str) -> None:
    proposed = [f"{POINTS}:false+{entry}"]
    found = []
    for options in (SHIPPED, proposed):
        words = ["--matmul", f"--machine={machine}", "--dt=u8:s8:s32", *options, "8x64:64x16"]
        ((case,),) = ([*line.cases()] for line in read(words))
        found.append(answer(case))
    shipped, other = found
    assert shipped.status == other.status == "PASSED" and shipped.implementation == other.implementation
    assert shipped.cycles == other.cycles


@pytest.mark.parametrize(
    "points,reductions,message",
    [
        ("src:per_ocic:s32:1x32:true", "", "zero_points\\['wei'\\] is missing"),
        ("wei:common:1+src:per_ocic:s8:1x32:true", "", "s32 is needed"),
        ("wei:common:1+wei:per_ocic:s32:32x1:true", "", "allowed: src"),
        ("wei:common:1+src:per_dim_0:s32:1x32:true", "", "mask"),
        ("wei:per_ocic:s8:32x1+src:per_ocic:s32:1x64:true", "", "no longer than every other"),
        ("wei:common:1+src:per_ocic:s32:1x32:true", "src:per_tensor:s32:1x32", "twice"),
    ],
)
def test_what_the_proposed_interface_refuses(
    points: str, reductions: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [f"--attr-zero-points={points}", f"--attr-precomputed-reductions={reductions}", "--machine=zen4,b580"]
    assert main(["bench", "--matmul", "--dt=s8:s8:s32", *options, "8x64:64x16"]) == 1
    assert len(re.findall(message, capsys.readouterr().out)) == 2
    assert main(["bench", "--matmul", f"--attr-zero-points={points}x", "8x64:64x16"]) == 2  # PRECOMP "truex"


@pytest.mark.parametrize("machine", ["b580", "a770"])
def test_lines_of_the_published_measurements(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """oneDNN's RFC 20250819 and PR 2999, smaller: scales and zero points by group and token, f16 out, some infinite."""
    options = ["--engine=gpu", "--dt=s8:u8:f16", "--stag=ab", "--wtag=ba", "--dtag=ab", f"--machine={machine}"]
    reduced = [
        "--attr-scales=src0:per_tensor:f16:1x128+wei:per_oc:f16",
        "--attr-zero-points=wei:per_oc:u8",
        "--attr-precomputed-reductions=src:per_tensor:s32:1x128",
        "7x256:256x24",
    ]
    tokens = [
        "--attr-scales=src0:per_ocic:f16:1x4096+wei:per_oc:f16",
        "--attr-precomputed-reductions=",
        "--attr-zero-points=src0:per_ocic:u8:1x4096+wei:per_oc:u8",
        "--attr-post-ops=binary_add:f32:3:ab",
        "5x4096:4096x24",
    ]
    assert main(["bench", "--matmul", *options, *reduced, *tokens]) == 0
    assert capsys.readouterr().out.count("PASSED") == 2
