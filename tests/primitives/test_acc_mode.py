"""Attr(acc_mode=…): the type that products are added up in, with its values, its price and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import simdnn
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn import Attr, InvalidArgument, Unimplemented
from simdnn.cli import main
from simdnn.study import explore
from tests.effort import one_in

SIZES = {"m": 64, "n": 64, "k": 256, "dt": "f16:f16:f32"}


def implementation(mode: str | None, **given: object) -> str:
    return simdnn.estimate("matmul", **{**SIZES, "machine": "spr", "attr": Attr(acc_mode=mode)} | given).implementation  # type: ignore[arg-type]


def test_sums_in_f16_are_had_where_they_are_asked_for() -> None:
    wide, narrow = implementation(None), implementation("f16")
    assert (wide, narrow) == ("gemm:avx512_core_f16", "gemm:avx512_core_fp16")
    for mode in ("strict", "relaxed", "f32"):
        assert implementation(mode) == wide
        assert implementation(mode, attr=Attr(acc_mode=mode, fpmath="f16")) == wide
    assert implementation("any") == narrow
    assert implementation("any", dt="f32:f32:f32") == implementation(None, dt="f32:f32:f32")


def test_their_error_and_their_price_stand_beside_each_other() -> None:
    rng = np.random.default_rng(0)
    src, weights = rng.normal(size=(2, 64)).astype(np.float16), rng.normal(size=(64, 32)).astype(np.float16)
    names = {"f32": "gemm:avx512_core_f16", "f16": "gemm:avx512_core_fp16"}
    runs = {
        mode: simdnn.matmul(src, weights, machine="spr", dst="f32", attr=Attr(acc_mode=mode), dispatch=name)
        for mode, name in names.items()
    }
    bounds = {mode: r.error_bound for mode, r in runs.items()}
    for bound in bounds.values():
        assert (bound.error <= bound.worst).all() and np.isfinite(bound.worst).all()
    assert bounds["f16"].error.max() > 100 * bounds["f32"].error.max()
    assert int(bounds["f16"].rounded[bounds["f16"].kinds.index("f16, tf32")].max()) == 32  # of each of two sums
    costs = [simdnn.estimate("matmul", machine="spr", attr=Attr(acc_mode=mode), **SIZES).cycles for mode in names]  # type: ignore[arg-type]
    assert costs[1] < costs[0]


def test_integers_are_added_up_in_s32() -> None:
    for mode in ("strict", "any", "s32"):
        assert implementation(mode, dt="u8:s8:s32") == implementation(None, dt="u8:s8:s32")
    with pytest.raises(Unimplemented, match=r"adds up in s32: acc_mode='f32' is asked for.*what works: acc_mode="):
        implementation("f32", dt="u8:s8:s32", machine="clx")


def test_integers_are_added_up_in_s16_where_that_is_asked_for() -> None:
    rng = np.random.default_rng(3)
    src, weights = rng.integers(0, 256, (2, 300)).astype(np.uint8), rng.integers(-128, 128, (300, 20)).astype(np.int8)
    exact = src.astype(np.int64) @ weights.astype(np.int64)
    lost = {}
    for every in (256, 32, 4):
        attr = Attr(acc_mode="s16" if every == 256 else f"s16:{every}")
        r, slow = (
            simdnn.matmul(src, weights, machine="skx", attr=attr, engine=engine) for engine in ("compiled", "reference")
        )
        wanted, pairs, sums = _in_words(src.astype(np.int64), weights.astype(np.int64), every)
        assert r.implementation == "gemm:avx512_core_int8_s16"
        assert (r.output == slow.output).all() and (r.output == wanted).all()
        assert (r.departure_map("saturated pair") == pairs).all() and (r.departure_map("saturated sum") == sums).all()
        assert (r.saturation == pairs + sums).all() and sums.any() == (every > 4)
        bound = r.error_bound
        assert (bound.error == np.abs(exact - wanted)).all() and (bound.error <= bound.worst).all()
        lost[every] = bound.error.mean()
    assert lost[256] > lost[32] > lost[4]


def _in_words(src: Array, weights: Array, every: int) -> tuple[Array, Array, Array]:
    """Sums of pairs in s16, two for each four products, joined in s32; saturated pairs and saturated sums."""
    low, high = np.iinfo(np.int16).min, np.iinfo(np.int16).max
    products = src[:, :, None] * weights[None]
    pairs = products.reshape(len(src), -1, 2, weights.shape[1]).sum(axis=2)
    total, clipped = (np.zeros((len(src), weights.shape[1]), np.int64) for _ in range(2))
    for first in range(0, pairs.shape[1], every // 2):
        for half in (0, 1):
            words = np.zeros_like(total)
            for pair in np.moveaxis(pairs[:, first : first + every // 2], 1, 0)[half::2]:
                wide = words + pair.clip(low, high)
                words = wide.clip(low, high)
                clipped += words != wide
            total += words
    return total, (pairs != pairs.clip(low, high)).sum(axis=1), clipped


@pytest.mark.parametrize(("machine", "faster"), [("skx", 1.3), ("hsw", 1.7)])
def test_sums_in_s16_are_faster_the_rarer_they_join(machine: str, faster: float) -> None:
    sizes = {"m": 64, "n": 64, "k": 512, "dt": "u8:s8:s32", "machine": machine}
    fast = simdnn.estimate("matmul", attr=Attr(exact_int8=False), **sizes).cycles  # type: ignore[arg-type]
    cycles = [simdnn.estimate("matmul", attr=Attr(acc_mode=f"s16:{n}"), **sizes).cycles for n in (16, 64, 512)]  # type: ignore[arg-type]
    assert cycles[0] > cycles[1] > cycles[2] and fast > faster * cycles[2]


def test_convolutions_parameters_and_s8_sources_have_sums_in_s16() -> None:
    rng = np.random.default_rng(4)
    src, weights = rng.integers(-9, 9, (1, 8, 4, 4)).astype(np.int8), rng.integers(-2, 3, (5, 8, 3, 3)).astype(np.int8)
    given = {"machine": "hsw", "padding": 1, "bias": np.ones(5, np.float32), "dst": "f32"}
    scales = {"src": 0.5, "wei": np.linspace(1, 2, 5, dtype=np.float32)}
    narrow, exact = (
        simdnn.convolution(src, weights, attr=Attr(acc_mode=mode, exact_int8=mode is None, scales=scales), **given)  # type: ignore[arg-type]
        for mode in ("s16:72", None)
    )
    assert narrow.implementation == "conv:avx2_int8_s16" and not narrow.saturation.any()  # type: ignore[union-attr]
    assert np.array_equal(narrow.output, exact.output)
    points = Attr(acc_mode="s16:8", zero_points={"src": 3, "wei": -1})
    a, b = src.reshape(4, 32), weights.reshape(8, 45)[:, :20].repeat(4, axis=0)
    wanted = (a.astype(int) - 3) @ (b.astype(int) + 1)
    assert (simdnn.matmul(a, b, machine="zen4", attr=points).output == wanted).all()
    with pytest.raises(Unimplemented, match="adds 32 products in s16: kernels of up to 8 taps"):
        simdnn.convolution(src, weights, machine="hsw", padding=1, attr=Attr(acc_mode="s16:32"))
    for refused, said in (({"machine": "b580"}, "adds up in"), ({"machine": "skx", "isa": "sse41"}, "needs avx2")):
        with pytest.raises(Unimplemented, match=f"{said}.*"):
            simdnn.matmul(a, b, attr=Attr(acc_mode="s16"), **refused)
    with pytest.raises(Unimplemented, match="int8_s16 keeps sums of pairs in 16 bits"):
        simdnn.ranges("matmul", weights=b, machine="skx", attr=Attr(acc_mode="s16"))


def test_what_no_kernel_has_is_refused_with_what_is_nearest() -> None:
    with pytest.raises(Unimplemented, match="needs avx512_core_fp16"):
        implementation("f16", machine="clx")
    with pytest.raises(Unimplemented, match="acc_mode='f16' is asked for"):
        implementation("f16", dispatch="onednn", dt="bf16:bf16:f32")
    with pytest.raises(Unimplemented, match="acc_mode='strict' does not allow"):
        implementation("strict", dispatch="gemm:avx512_core_fp16")
    with pytest.raises(
        Unimplemented, match="acc_mode='bf16' is asked for.*what works: acc_mode='strict' or 'f32' or 'f16'"
    ):
        implementation("bf16", machine="v100")
    with pytest.raises(Unimplemented, match="acc_mode='bf16' is asked for"):
        implementation("bf16", machine="a770", dt="bf16")
    with pytest.raises(Unimplemented, match="adds up 8 products at a time: a multiple of that, not 12"):
        implementation("f16:12", machine="v100")
    with pytest.raises(Unimplemented, match="cuts sums where oneDNN does"):
        implementation("f16:64", dispatch="onednn", attr=Attr(acc_mode="f16:64", fpmath="f16"), dt="f16:f16:f16")


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("f61", "Allowed: strict, relaxed, any, f32, s32, f16, bf16, s16; or a type and the products of a partial sum"),
        ("f16:0", "one product or more: 'f16:64'"),
        ("any:8", "a partial sum has a type, f32, f16, bf16, s16"),
        ("s32:64", "sums in s32 are exact"),
        ("f16:", "Allowed"),
        (16, "Allowed"),
    ],
)
def test_modes_that_say_nothing_are_refused(mode: object, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        Attr(acc_mode=mode)  # type: ignore[arg-type]


UNITS = [  # machine, type, products of a step of the unit, digits of the sums
    ("v100", "f16", 8, 11),
    ("b580", "f16", 16, 11),
    ("b580", "bf16", 16, 8),
    ("max1550", "bf16", 16, 8),
    ("spr", "f16", 2, 11),
]


@one_in(3, "dtype")
@pytest.mark.parametrize(("machine", "dtype", "step", "digits"), UNITS)
def test_partial_sums_join_one_in_f32_after_as_many_products_as_asked(
    machine: str, dtype: str, step: int, digits: int
) -> None:
    rng = np.random.default_rng(step)
    src, weights = (rng.normal(size=size).astype(fmt(dtype).dtype) for size in ((2, 100), (100, 20)))

    def run(mode: str, engine: str = "reference") -> simdnn.Result:
        return simdnn.matmul(src, weights, machine=machine, dst="f32", attr=Attr(acc_mode=mode), engine=engine)

    exact = src.astype(np.float64) @ weights.astype(np.float64)
    errors = {}
    for every in (0, 64, 16):
        mode = f"{dtype}:{every}" if every else dtype
        r = run(mode)
        assert np.array_equal(r.output, run(mode, "compiled").output)
        errors[every] = float(np.abs(r.output - exact).mean())
    assert errors[0] > errors[64] > errors[16] > 2.0**-digits / 8
    assert np.isfinite(r.error_bound.worst).all() and (r.error_bound.error <= r.error_bound.worst).all()
    one = run(f"{dtype}:{step}", "compiled").output  # a step's sums are rounded to the narrow type, then added in f32
    total = np.zeros((2, 20), np.float32)
    for first in range(0, 100, step):
        some = slice(first, first + step)
        part = simdnn.matmul(
            np.ascontiguousarray(src[:, some]),
            np.ascontiguousarray(weights[some]),
            machine=machine,
            dst="f32",
            attr=Attr(acc_mode=dtype),
        )
        total += part.output
    assert np.array_equal(one, total)


@pytest.mark.parametrize("machine", ["zen4", "v100", "b580"])
def test_sums_in_f32_are_cut_where_asked_and_cost_what_the_joins_do(machine: str) -> None:
    sizes = {"m": 128, "n": 128, "k": 1024, "dt": "f16:f16:f32", "machine": machine}
    wide = simdnn.estimate("matmul", **sizes).cycles  # type: ignore[arg-type]
    cost = {n: simdnn.estimate("matmul", attr=Attr(acc_mode=f"f32:{n}"), **sizes) for n in (16, 64, 512)}  # type: ignore[arg-type]
    if machine != "zen4":  # whose additions have ports of their own
        assert cost[16].cycles > cost[64].cycles > cost[512].cycles > 0.9 * wide
    rng = np.random.default_rng(1)
    src, weights = rng.normal(size=(1, 256)).astype(np.float16), rng.normal(size=(256, 16)).astype(np.float16)
    exact = src.astype(np.float64) @ weights.astype(np.float64)
    runs = {
        n: simdnn.matmul(src, weights, machine=machine, attr=Attr(acc_mode=f"f32:{n}"), engine="reference")
        for n in (32, 256 * 16)
    }
    errors = {n: np.abs(r.output - exact).mean() for n, r in runs.items()}
    assert errors[32] < errors[256 * 16]


@one_in(3)
@pytest.mark.parametrize(("machine", "mode"), [("v100", "f16:64"), ("b580", "bf16:64"), ("spr", "f16:64")])
def test_convolutions_have_them(machine: str, mode: str) -> None:
    dtype = fmt(mode.partition(":")[0]).dtype
    rng = np.random.default_rng(2)
    src, weights = rng.normal(size=(1, 8, 2, 3)).astype(dtype), rng.normal(size=(16, 8, 3, 3)).astype(dtype)
    given = {"machine": machine, "padding": 1, "dst": "f32", "engine": "reference"}
    wide = simdnn.convolution(src, weights, **given)  # type: ignore[arg-type]
    narrow = simdnn.convolution(src, weights, attr=Attr(acc_mode=mode), **given)  # type: ignore[arg-type]
    assert narrow.implementation != wide.implementation
    difference = np.abs(narrow.output - wide.output).max()
    assert 0 < difference < 1
    assert (narrow.error_bound.error <= narrow.error_bound.worst).all()


def test_an_interval_is_an_axis_of_a_study() -> None:
    fixed = {"machine": "spr", "m": 4, "n": 16, "k": 64, "src": "f16", "weights": "f16"}
    axes = {"acc_mode": ["f32", "f16", "f16:16", "bf16"]}
    frame = explore({"study": {"kind": "matmul"}, "fixed": fixed, "axes": axes}).set_index("acc_mode")
    assert frame.cycles[["f32", "f16", "f16:16"]].nunique() == 3
    assert "acc_mode='bf16' is asked for" in frame.refused["bf16"]
    with pytest.raises(InvalidArgument, match="acc_mode.*Allowed: strict"):
        explore({"study": {"kind": "matmul"}, "fixed": fixed, "axes": {"acc_mode": ["f61"]}})


def test_benchdnn_has_its_word(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--machine=spr", "--dt=f16:f16:f32", "64x256:256x64"]
    assert main(["bench", "--matmul", "--attr-acc-mode=f16", *words]) == 0
    assert "avx512_core_fp16" in capsys.readouterr().out
    assert main(["bench", "--matmul", "--attr-acc-mode=f16:64", *words]) == 0
    assert "avx512_core_fp16" in capsys.readouterr().out
    assert main(["bench", "--matmul", "--attr-acc-mode=strict", *words]) == 0
    assert "avx512_core_fp16" not in capsys.readouterr().out
