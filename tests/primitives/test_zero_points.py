"""Zero points by group and column, reductions of the source given by the user: values, rules of acceptance."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from simdnn import Attr, Quant
from tests.effort import examples

Array = np.ndarray[Any, np.dtype[Any]]


def problem(seed: int, m: int, n: int, k: int, src: str) -> tuple[Array, Array, np.random.Generator]:
    rng = np.random.default_rng(seed)
    low, high = (0, 256) if src == "u1" else (-128, 128)
    return rng.integers(low, high, (m, k)).astype(src), rng.integers(-128, 128, (k, n)).astype("i1"), rng


@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 4),
    st.sampled_from([4, 6, 16, 32]),
    st.integers(1, 3),
    st.sampled_from(["u1", "i1"]),
    st.sampled_from(["", "common", "grouped"]),
    st.booleans(),
    st.sampled_from(["avx512_core_vnni", "avx512_core"]),
    st.integers(0),
)
@examples(40)
def test_exact_by_group(
    m: int,
    n: int,
    parts: int,
    length: int,
    coarser: int,
    src: str,
    src_points: str,
    given_sums: bool,
    isa: str,
    seed: int,
) -> None:
    k = parts * length * coarser
    a, w, rng = problem(seed, m, n, k, src)
    zw = rng.integers(-200, 200, (parts, n)).astype(np.int32)
    points: dict[str, Any] = {"wei": Quant(zw, groups=(length * coarser, 1))}
    zs: Any = 0
    if src_points == "common":
        points["src"] = zs = int(rng.integers(-100, 100))
    elif src_points == "grouped":
        values = rng.integers(-50, 50, (m, parts * coarser)).astype(np.int32)
        points["src"] = Quant(values, groups=(1, length))
        zs = np.repeat(values, length, axis=1)
    group = length if src_points == "grouped" or given_sums else length * coarser
    sums = a.astype(np.int32).reshape(m, -1, group).sum(axis=2, dtype=np.int32)
    attr = Attr(zero_points=points, precomputed_reductions={"src": sums} if given_sums else {}, check=True)
    expected = (a.astype(int) - zs) @ (w.astype(int) - np.repeat(zw, length * coarser, axis=0))
    for engine in ("compiled", "reference"):
        r = simdnn.matmul(a, w, machine="zen4", isa=isa, attr=attr, engine=engine)
        assert r.implementation.startswith("ref_int8:") and (r.output == expected).all()
    assert (
        r.cycles
        == simdnn.estimate(
            "matmul", m=m, n=n, k=k, dt=f"{'u8' if src == 'u1' else 's8'}:s8:s32", machine="zen4", isa=isa, attr=attr
        ).cycles
    )


@given(
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(1, 3),
    st.sampled_from([6, 16]),
    st.integers(1, 2),
    st.sampled_from(["u1", "i1"]),
    st.sampled_from(["", "common", "per_token", "grouped"]),
    st.booleans(),
    st.integers(0),
)
@examples(15)
def test_every_strategy(
    m: int, n: int, parts: int, length: int, inside: int, src: str, src_points: str, scaled: bool, seed: int
) -> None:
    k = parts * length * inside
    a, w, rng = problem(seed, m, n, k, src)
    zw = rng.integers(-99, 99, (parts * inside, n)).astype(np.int32)
    points: dict[str, Any] = {"wei": zw}
    zs: Any = 0
    if src_points:
        shape = {"common": (), "per_token": (m, 1), "grouped": (m, parts)}[src_points]
        points["src"] = zs = rng.integers(-50, 50, shape)
        zs = np.repeat(np.atleast_2d(zs), k // np.atleast_2d(zs).shape[1], axis=1)
    x, y = a.astype(int) - zs, w.astype(int) - np.repeat(zw, length, axis=0)
    expected: Array = x @ y
    scales: dict[str, Any] = {}
    if scaled:
        scales = {"src": rng.random((m, 1)).astype(np.float32), "wei": rng.random((parts, n)).astype(np.float32)}
        expected, period = np.zeros((m, n), np.float32), length * inside
        for g in range(parts):
            part = slice(g * period, (g + 1) * period)
            expected += (x[:, part] @ y[part]).astype(np.float32) * scales["src"] * scales["wei"][g]
    sums = a.astype(np.int32).reshape(m, -1, length).sum(axis=2, dtype=np.int32)
    for strategy in ("direct", "in_kernel", "precomputed", "bias", "upconvert"):
        attr = Attr(
            zero_points=points,
            scales=scales,
            precomputed_reductions={"src": sums},
            check=True,
            zero_point_strategy=strategy,
        )
        r = simdnn.matmul(a, w, machine="zen4", attr=attr, engine="reference")
        assert (r.output == expected).all(), strategy  # upconvert: these sums stay below 2**24
        assert r.compute_dtype == ("f32" if strategy == "upconvert" else "s32")


def test_strategies_of_common_zero_points_and_their_refusals() -> None:
    a, w, _ = problem(7, 3, 16, 64, "i1")
    right = (a.astype(int) - 3) @ (w.astype(int) + 5)
    common = {"src": 3, "wei": -5}
    for strategy in ("direct", "in_kernel", "bias", "upconvert"):
        attr = Attr(zero_points=common, zero_point_strategy=strategy)
        for isa in ("avx2", None):
            r = simdnn.matmul(a, w, machine="zen4", isa=isa, attr=attr)
            assert (r.output == right).all() and r.implementation.startswith("ref_int8:")
    with pytest.raises(Unimplemented, match="are missing; 'in_kernel'"):
        simdnn.matmul(a, w, machine="zen4", attr=Attr(zero_points=common, zero_point_strategy="precomputed"))
    with pytest.raises(Unimplemented, match="oneDNN has none"):
        attr = Attr(zero_points=common, zero_point_strategy="bias")
        simdnn.matmul(a, w, machine="zen4", dispatch="onednn", attr=attr)
    with pytest.raises(Unimplemented, match="with mask 1"):
        attr = Attr(zero_points={"src": Quant(np.zeros(3, np.int32), mask=1)})
        simdnn.matmul(a, w, machine="zen4", dispatch="onednn", attr=attr)


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


def test_grouped_scales_source_first() -> None:
    """docs/numerics.md, rule 7: the reference scales every group by both, the source's scale first."""
    a, w, rng = problem(3, 5, 24, 64, "i1")
    zw, sw = rng.integers(-9, 9, (4, 24)).astype(np.int32), rng.random((2, 24)).astype(np.float32)
    ss = rng.random((5, 4)).astype(np.float32)
    total = np.zeros((5, 24), np.float32)
    for g in range(4):
        part = slice(16 * g, 16 * g + 16)
        sums = (a[:, part].astype(int) @ (w[part].astype(int) - zw[g])).astype(np.float32)
        total = total + sums * ss[:, g : g + 1] * sw[g // 2]
    for sums_given in (False, True):
        sums = a.astype(np.int32).reshape(5, 4, 16).sum(axis=2, dtype=np.int32)
        attr = Attr(
            scales={"src": ss, "wei": sw},
            zero_points={"wei": zw},
            precomputed_reductions={"src": sums} if sums_given else {},
        )
        r = simdnn.matmul(a, w, machine="zen4", attr=attr, dispatch="onednn")
        assert (r.output == total).all() and "ref_int8:any" in "; ".join(r.dispatch["reason"])


def test_zero_points_by_column() -> None:
    a, w, rng = problem(4, 4, 16, 20, "u1")
    zw = rng.integers(-9, 9, 16).astype(np.int8)
    attr = Attr(zero_points={"wei": zw}, scales={"wei": 0.5})
    r = simdnn.matmul(a, w, machine="zen4", isa="avx2", attr=attr)
    assert r.implementation == "ref_int8:avx2"
    assert (r.output == ((a.astype(int) @ (w.astype(int) - zw)) * np.float32(0.5)).astype(np.float32)).all()


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("n", [3, 8])
def test_relu_of_exact_sums(isa: str, n: int) -> None:
    a, w, rng = problem(9, 5, n, 2, "i1")
    zw = rng.integers(-9, 9, n).astype(np.int32)
    attr = Attr(zero_points={"wei": zw}, post_ops=["relu"])
    r = simdnn.matmul(a, w, machine="zen4", isa=isa, attr=attr)
    assert np.array_equal(r.output, np.maximum(a.astype(int) @ (w.astype(int) - zw), 0))


def test_reductions_are_trusted_unless_checked() -> None:
    a, w, _ = problem(5, 4, 8, 64, "u1")
    zw = np.full((2, 8), 3, np.int32)
    sums = a.astype(np.int32).reshape(4, 2, 32).sum(axis=2, dtype=np.int32)
    sums[2, 1] += 7
    attr = Attr(zero_points={"wei": zw}, precomputed_reductions={"src": sums})
    exact = a.astype(int) @ (w.astype(int) - 3)
    exact[2] -= 3 * 7
    assert (simdnn.matmul(a, w, machine="zen4", attr=attr).output == exact).all()
    with pytest.raises(InvalidArgument, match=r"\[2, 1\] is .* \(1 of 8 entries"):
        simdnn.matmul(
            a, w, machine="zen4", attr=Attr(zero_points={"wei": zw}, precomputed_reductions={"src": sums}, check=True)
        )


SUMS = np.zeros((4, 2), np.int32)
WEI = np.zeros((2, 8), np.int32)


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
    a, w, _ = problem(1, 4, 8, 64, "u1")
    with pytest.raises(error, match=message) as caught:
        simdnn.matmul(
            a,
            w,
            machine=machine,
            attr=Attr(zero_points=points, scales=scales, precomputed_reductions={"src": reductions}),
        )
    assert "\n" not in str(caught.value)


def test_other_arguments_and_problems_have_none() -> None:
    a, w, _ = problem(1, 4, 8, 64, "u1")
    with pytest.raises(InvalidArgument, match="allowed: src"):
        simdnn.matmul(a, w, machine="zen4", attr=Attr(zero_points={"wei": 1}, precomputed_reductions={"wei": SUMS}))
    with pytest.raises(InvalidArgument, match="integer matmul"):
        attr = Attr(zero_points={"wei": 1}, precomputed_reductions={"src": SUMS})
        simdnn.matmul(a.astype(np.float32), w.astype(np.float32), machine="zen4", attr=attr)
    with pytest.raises(InvalidArgument, match="True or False"):
        Attr(check=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_what_a_result_tells_of_them(machine: str) -> None:
    a, w, _ = problem(3, 4, 8, 64, "u1")
    attr = Attr(zero_points={"wei": WEI}, scales={"wei": np.ones((2, 8), np.float32)})
    r = simdnn.matmul(a, w, machine=machine, attr=attr, engine="reference")
    told = json.loads(r.to_json())
    assert told["zero_points"].startswith("wei by 32") and "wei by 32" in told["group_scales"]
    assert "wei by 32" in r._repr_html_() and len(r.to_frame()) == 1


@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_any_memory_layout_of_reductions(machine: str) -> None:
    a, w, _ = problem(2, 4, 8, 64, "u1")
    sums = a.astype(np.int32).reshape(4, 2, 32).sum(axis=2, dtype=np.int32)
    layouts = (sums[::-1].copy()[::-1], np.asfortranarray(sums), sums.astype(">i4"))
    for given_sums in layouts:
        given_sums.setflags(write=False)
        attr = Attr(zero_points={"wei": WEI + 3}, precomputed_reductions={"src": given_sums}, check=True)
        r = simdnn.matmul(a, w, machine=machine, attr=attr, engine="reference")
        assert (r.output == a.astype(int) @ (w.astype(int) - 3)).all()


@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_benchdnn_reads_them(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    from simdnn.cli import main

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
    from simdnn.benchdnn import answer, read

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
    from simdnn.cli import main

    options = [f"--attr-zero-points={points}", f"--attr-precomputed-reductions={reductions}", "--machine=zen4,b580"]
    assert main(["bench", "--matmul", "--dt=s8:s8:s32", *options, "8x64:64x16"]) == 1
    assert len(re.findall(message, capsys.readouterr().out)) == 2
    assert main(["bench", "--matmul", f"--attr-zero-points={points}x", "8x64:64x16"]) == 2  # PRECOMP "truex"


@pytest.mark.parametrize("machine", ["b580", "a770"])
def test_lines_of_the_published_measurements(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """oneDNN's RFC 20250819 and PR 2999, smaller: scales and zero points by group and token, f16 out, some infinite."""
    from simdnn.cli import main

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
