"""simdnn.compare and simdnn.remedies: what differs, by how much, and that the reasons add up."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from matplotlib.axes import Axes

import simdnn
import workloads
from simdnn import Attr, plot
from simdnn.exactness.comparison import AFTER, HALVED, ROUNDED_SUM, SATURATED
from tests.primitives.problems import Array


def operands(src: str, shape: tuple[int, ...], weights: tuple[int, ...], seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    low, high = (0, 256) if src == "u8" else (-128, 128)
    dtype = np.uint8 if src == "u8" else np.int8
    return rng.integers(low, high, shape).astype(dtype), rng.integers(-128, 128, weights).astype(np.int8)


def test_saturation_is_the_reason() -> None:
    src, weights = operands("u8", (20, 301), (301, 12))
    found = simdnn.compare((src, weights), "skx", "clx")
    exact = src.astype(np.int64) @ weights
    assert (found.b.output == exact).all()
    assert found.differing == (found.a.output != exact).sum() > 0
    reasons = found.reasons.set_index("reason")
    assert list(reasons.index) == [SATURATED] and reasons["elements"].iloc[0] == found.differing
    assert reasons["side"].iloc[0] == "a"
    counts = found.a.saturation
    assert counts is not None
    assert found.saturated("a")["pairs"].sum() == found.saturated("a", "channel")["pairs"].sum() == counts.sum()
    by_k = found.saturated("a", "k")
    assert by_k["outputs"].sum() == counts.sum() and by_k["outputs"].is_monotonic_decreasing
    assert all(second == first + 1 and first % 2 == 0 for first, second in by_k["positions"])
    assert found.saturated("b").empty and found.saturated("b", "k").empty
    assert found.speed_ratio == found.a.seconds / found.b.seconds > 1
    assert "saturated pairs (a)" in str(found) and "differ" in repr(found)


def test_elements_side_by_side() -> None:
    found = simdnn.compare(operands("u8", (3, 40), (40, 5)), "skx", "clx")
    frame = found.outputs
    assert list(frame) == ["m", "n", "a", "b", "abs", "rel", "ulp"] and len(frame) == 15
    row = frame.iloc[7]
    assert (row["a"], row["b"]) == (found.a.output[1, 2], found.b.output[1, 2])
    assert (frame["abs"] == (frame["b"] - frame["a"]).abs()).all()
    assert found.summary["max_abs_error"] == frame["abs"].max() == found.differences["abs"].iloc[0]
    assert found.to_frame()["differing"].iloc[0] == len(found.differences)


@pytest.mark.parametrize(("groups", "strides"), [(1, 1), (2, 2)])
def test_convolution_by_channel_and_tap(groups: int, strides: int) -> None:
    src, weights = operands("u8", (2, 8, 9, 9), (6, 8 // groups, 3, 3))
    taps: dict[str, Any] = {"padding": 1, "groups": groups, "strides": strides}
    found = simdnn.compare((src, weights), {}, {"attr": Attr(exact_int8=True)}, machine="skx", isa="avx2", **taps)
    if found.a.saturation is None:
        assert found.differing == 0
        return
    assert found.saturated("a", "k")["outputs"].sum() == found.a.saturation.sum()
    assert found.saturated("a", "channel")["outputs"].sum() == (found.a.saturation > 0).sum() == found.differing
    assert set(found.reasons["reason"]) == {SATURATED}


def test_halved_weights_are_the_reason() -> None:
    src, weights = operands("s8", (1, 8, 9, 9), (6, 8, 3, 3))
    found = simdnn.compare((src, weights), "skx", "clx", padding=1)
    assert set(found.reasons["reason"]) == {HALVED}
    assert f"{int((weights % 2 != 0).sum())} of {weights.size} weights are odd" in found.reasons["detail"].iloc[0]
    even = (weights // 2 * 2).astype(np.int8)
    assert simdnn.compare((src, even), "skx", "clx", padding=1).differing == 0


def test_rounding_behind_equal_sums() -> None:
    src, weights = operands("u8", (30, 64), (64, 16))
    weights = (weights // 2).astype(np.int8)
    scales = Attr(exact_int8=True, scales={"src": 0.013, "wei": 0.07})
    found = simdnn.compare((src, weights), {"isa": "avx2"}, {"isa": "avx512_core"}, machine="skx", attr=scales)
    assert found.differing and set(found.reasons["reason"]) == {AFTER}
    assert found.summary["max_ulp"] == 1
    image, kernel = np.full((1, 4096, 1, 1), 255, np.uint8), np.full((1, 4096, 1, 1), 61, np.int8)
    kernel[0, 0] = 60
    ways = ({"dispatch": name} for name in ("conv:avx2_int8", "conv:avx512_core_int8"))
    rounded = simdnn.compare((image, kernel), *ways, machine="skx")
    assert rounded.differing == 1 and set(rounded.reasons["reason"]) == {ROUNDED_SUM}


def test_floats() -> None:
    rng = np.random.default_rng(1)
    src, weights = (
        rng.standard_normal((64, 1500)).astype(np.float32),
        rng.standard_normal((1500, 64)).astype(np.float32),
    )
    modes = simdnn.compare((src, weights), {}, {"attr": Attr(fpmath="bf16")}, machine="zen4")
    assert modes.differing and "products in f32 against bf16" in modes.reasons["reason"].tolist()
    vector = simdnn.compare((src[:1], weights[:, :1]), {"dispatch": "onednn"}, {"isa": "avx512_core"}, machine="zen4")
    assert vector.summary["max_ulp"] < 1000
    halves = src[:8].astype(ml_dtypes.bfloat16), weights[:, :16].astype(ml_dtypes.bfloat16)
    same = simdnn.compare(halves, {"engine": "reference"}, {"engine": "compiled"}, machine="zen4", dst="bf16")
    assert same.differing == 0 and same.reasons.empty and same.summary["sqnr_db"] == float("inf")


def test_a_layer_of_a_workload() -> None:
    layer = workloads.load("resnet50").layers[-1]
    found = simdnn.compare(layer, "skx", "clx")
    assert found.a.output.shape == found.b.output.shape
    assert found.summary["elements"] == found.a.output.size


@pytest.mark.parametrize(
    ("problem", "a", "b", "message"),
    [
        ("resnet50", "skx", "clx", "is needed"),
        ((np.ones((2, 2), np.uint8),), "skx", "clx", "is needed"),
        ((np.ones(2, np.uint8), np.ones(2, np.int8)), "skx", "clx", "two dimensions"),
        ((np.ones((2, 2), np.uint8), np.ones((2, 2), np.int8)), "skx", 5, "a machine's name or a dict"),
        (
            (np.ones((2, 2), np.uint8), np.ones((2, 2), np.int8)),
            "skx",
            {"machine": "clx", "dst": "f32"},
            "name one dst",
        ),
        ((np.ones((2, 2), np.uint8), np.ones((2, 2), np.int8)), "skx", "cl", "unknown machine"),
        (
            (np.ones((2, 2), np.uint8), np.ones((2, 2), np.int8)),
            {"machin": "skx"},
            "clx",
            "argument of matmul 'machin': did you mean 'machine'",
        ),
    ],
)
def test_wrong_arguments(problem: Any, a: Any, b: Any, message: str) -> None:
    with pytest.raises(simdnn.SimdnnError, match=message):
        simdnn.compare(problem, a, b)
    if problem != "resnet50" and message == "name one dst":
        with pytest.raises(simdnn.InvalidArgument, match="allowed"):
            simdnn.compare(problem, "skx", "clx").saturated("c")


@pytest.mark.parametrize(
    ("src", "wei"), [((3, 2, 8), (3, 8, 5)), ((2, 1, 2, 8), (3, 8, 5)), ((3, 2, 8), (8, 5)), ((1, 2, 8), (4, 8, 5))]
)
def test_products_of_a_batch_are_compared_as_each_alone(src: tuple[int, ...], wei: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(200, 256, src).astype(np.uint8)
    b = rng.integers(90, 128, wei).astype(np.int8)
    found = simdnn.compare((a, b), "skx", "clx")
    outer = np.broadcast_shapes(src[:-2], wei[:-2])
    alone = [
        simdnn.compare((x, y), "skx", "clx")
        for x, y in zip(
            np.broadcast_to(a, (*outer, *src[-2:])).reshape(-1, *src[-2:]),
            np.broadcast_to(b, (*outer, *wei[-2:])).reshape(-1, *wei[-2:]),
            strict=True,
        )
    ]
    fronts = ["batch"] if len(outer) == 1 else ["batch_0", "batch_1"]
    assert list(found.outputs.columns)[: len(outer) + 2] == [*fronts, "m", "n"]
    assert found.differing == sum(one.differing for one in alone) > 0
    told = found.reasons.set_index("reason")["elements"]
    assert told.to_dict() == {"saturated pairs": found.differing}
    pairs = sum(one.saturated("a", by="k").set_index("positions")["outputs"] for one in alone)
    assert found.saturated("a", by="k").set_index("positions")["outputs"].sort_index().equals(pairs.sort_index())
    channels = sum(one.saturated("a", by="channel")["pairs"] for one in alone)
    assert (found.saturated("a", by="channel")["pairs"] == channels).all()
    assert "elements differ" in str(found)


# -- pictures ----------------------------------------------------------------------------------------------------------
def test_pictures() -> None:
    found = simdnn.compare(operands("u8", (9, 64), (64, 7)), "skx", "clx")
    assert found.a.saturation is not None
    ax = plot.saturation_map(found.a.saturation)
    assert isinstance(ax, Axes) and ax.get_xlabel() == "output channel n"
    assert (np.asarray(ax.images[0].get_array()) == found.a.saturation).all()
    bars = plot.error_histogram(found.outputs)
    assert sum(patch.get_height() for patch in bars.patches) == found.differing
    assert str(found.differing) in bars.get_title()
    assert "no output differs" in plot.error_histogram(found.outputs.assign(b=found.outputs["a"])).texts[0].get_text()
    counts = np.zeros((2, 3, 4, 5), np.int32)
    counts[0, 1, 2, 3] = counts[1, 1, 2, 3] = 2
    assert np.asarray(plot.saturation_map(counts).images[0].get_array())[2, 3] == 4
    assert np.asarray(plot.saturation_map(counts, channel=0).images[0].get_array()).sum() == 0
    for wrong in (np.zeros(3), np.zeros((0, 3))):
        with pytest.raises(simdnn.InvalidArgument):
            plot.saturation_map(wrong)
    with pytest.raises(simdnn.InvalidArgument):
        plot.saturation_map(counts, channel=3)


# -- remedies ----------------------------------------------------------------------------------------------------------
def test_remedies_and_their_prices() -> None:
    rng = np.random.default_rng(4)
    weights = (rng.standard_normal((256, 16)) * rng.choice([0.2, 1, 1], 16)).astype(np.float32)
    src = rng.integers(0, 256, (32, 256)).astype(np.uint8)
    frame = simdnn.remedies("matmul", weights=weights, src=src, machine="skx").set_index("remedy")
    assert list(frame.index) == ["fast", "per-channel scales", "7-bit weights", "7-bit where unsafe", "exact path"]
    assert frame.loc["7-bit weights", "saturated_share"] == frame.loc["exact path", "saturated_share"] == 0
    assert frame.loc["7-bit where unsafe", "saturated_share"] == 0 < frame.loc["per-channel scales", "saturated_share"]
    assert (frame.loc[["7-bit weights", "7-bit where unsafe", "exact path"], "safe_share"] == 1).all()
    best = frame["sqnr_db"]
    assert best["exact path"] > best["7-bit where unsafe"] >= best["7-bit weights"] > best["per-channel scales"]
    assert frame.loc["fast", "price"] == 1 < frame.loc["exact path", "price"]
    stored = simdnn.remedies(
        "convolution",
        weights=operands("u8", (1,), (4, 6, 3, 3))[1],
        padding=1,
        machine="skx",
        src=rng.integers(0, 256, (2, 6, 8, 8)).astype(np.uint8),
    )
    assert stored["remedy"].tolist() == ["fast", "7-bit weights", "7-bit where unsafe", "exact path"]
    assert stored["max_abs_error"].iloc[-1] == 0 < stored["max_abs_error"].iloc[0]
    for wrong in ({"src": src.astype(np.float32)}, {"weights": weights.astype(np.float64)}):
        with pytest.raises(simdnn.InvalidArgument):
            simdnn.remedies("matmul", **{"weights": weights, "src": src, "machine": "skx"} | wrong)
