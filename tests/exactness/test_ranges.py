"""simdnn.ranges: "safe" holds against extreme inputs, every witness saturates when the primitive runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from simdnn.exactness.safety import largest_weight, verdict
from tests.effort import examples
from tests.primitives.problems import Array

FAST = simdnn.Attr(exact_int8=False)  # small exact kernels cost no more, and run where nothing is said


def weights_of(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> Array:
    """Channels from harmless to extreme."""
    size = rng.choice([20, 60, 66, 90, 128], shape[axis])
    size = size.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    wide = np.rint(rng.uniform(-1, 1, shape) * size)
    extreme = rng.random(shape) < 0.2
    return np.clip(np.where(extreme, np.sign(wide) * size, wide), -128, 127).astype(np.int8)


def extremes(rng: np.random.Generator, low: int, high: int, pattern: Array, count: int) -> Array:
    """Inputs made of the range's ends: all of one end, random ends, and ends by the sign of a channel's weights."""
    dtype = np.uint8 if low >= 0 else np.int8
    rows = [np.full(pattern.shape[1:], low), np.full(pattern.shape[1:], high)]
    rows += [np.where(rng.random(pattern.shape[1:]) < 0.5, low, high) for _ in range(count)]
    rows += [np.where((channel > 0) == up, high, low) for channel in pattern for up in (True, False)]
    return np.array(rows).astype(dtype)


@given(st.integers(0, 2**32 - 1), st.sampled_from([(0, 255), (0, 200), (30, 255), (0, 127), (-128, 127), (-10, 90)]))
@examples(15)
def test_matmul(seed: int, span: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    k, n = int(rng.choice([1, 2, 7, 40, 257, 300, 301, 766, 800])), int(rng.integers(1, 12))
    weights = weights_of(rng, (k, n), 1)
    where: dict[str, Any] = {"machine": "skx", "isa": [None, "avx2"][int(rng.integers(2))], "attr": FAST}
    frame = simdnn.ranges("matmul", weights=weights, src_range=span, **where)
    hard = extremes(rng, *span, weights.T, 8)
    judged = frame.attrs["implementation"]  # more rows may make another kernel the fastest, whose pairs are others
    result = simdnn.matmul(hard, weights, dispatch=judged, **where)
    assert result.saturation is not None
    assert not result.saturation[:, frame["safe"]].any()
    for row in frame[~frame["safe"]].itertuples():
        assert row.witness.min() >= span[0] and row.witness.max() <= span[1]
        met = simdnn.matmul(row.witness[None], weights, **where)
        assert met.implementation == frame.attrs["implementation"]
        assert met.saturation is not None and met.saturation[0, row.channel] > 0
    assert (frame["witness_pairs"] > 0).equals(~frame["safe"])


@given(st.integers(0, 2**32 - 1))
@examples(15)
def test_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, ic, oc = [(1, 1, 3), (1, 5, 4), (2, 4, 4), (1, 16, 6), (3, 1, 2), (4, 3, 1)][int(rng.integers(6))]
    kh, kw = [(1, 1), (3, 3), (2, 3), (7, 7)][int(rng.integers(4))]
    shape: dict[str, Any] = {"groups": groups, "padding": int(rng.integers(0, 2)), "strides": int(rng.integers(1, 3))}
    size = int(rng.integers(1, 4)) + 2 * max(kh, kw)
    weights = weights_of(rng, (oc * groups, ic, kh, kw), 0)
    where: dict[str, Any] = {"machine": "skx", "isa": [None, "avx2"][int(rng.integers(2))], "attr": FAST}
    frame = simdnn.ranges("convolution", weights=weights, src_range=(0, 255), ih=size, iw=size, **shape, **where)
    images = rng.choice(np.array([0, 255], np.uint8), (6, ic * groups, size, size))
    images[0] = 255
    result = simdnn.convolution(images, weights, **shape, **where)
    if result.saturation is None:
        assert frame["safe"].all()
        return
    assert not result.saturation[:, frame["safe"]].any()
    for row in frame[~frame["safe"]].itertuples():
        met = simdnn.convolution(row.witness[None], weights, **shape, **where)
        assert met.saturation is not None and met.saturation[0, row.channel].any()


def test_the_pairs_are_those_of_each_kernel() -> None:
    """The neighbours that make a pair depend on the cut of K under AVX2, and on taps with one input channel."""
    weights = np.zeros((301, 2), np.int8)
    weights[[150, 151], 0] = 127  # a pair under AVX-512, neighbours of two parts under AVX2: K is cut at 151
    weights[[151, 152], 1] = 127
    wide = simdnn.ranges("matmul", weights=weights, machine="skx", isa="avx512_core")
    cut = simdnn.ranges("matmul", weights=weights, machine="skx", isa="avx2")
    if wide.attrs["implementation"] == "gemm:avx512_core_int8":
        assert wide["safe"].tolist() == [False, True]
    assert cut["safe"].tolist() == [True, False]
    taps = np.zeros((2, 1, 3, 3), np.int8)
    taps[0, 0, 0, :2] = taps[1, 0, :2, 0] = 127
    conv = {"weights": taps, "machine": "skx", "dispatch": "onednn"}
    folded = simdnn.ranges("convolution", isa="avx512_core", **conv)  # taps column by column
    assert folded["safe"].tolist() == [True, False]
    assert simdnn.ranges("convolution", isa="avx2", **conv)["safe"].all()  # a single channel has no partner


def test_padding_of_wide_kernels_does_not_count() -> None:
    """Two taps that no output ever sees together on the image cannot saturate together."""
    taps = np.zeros((1, 1, 3, 3), np.int8)
    taps[0, 0, 0, 0] = taps[0, 0, 1, 0] = 127
    frame = simdnn.ranges(
        "convolution", weights=taps, machine="skx", isa="avx512_core", ih=1, iw=9, padding=1, dispatch="onednn"
    )
    assert frame["safe"].all()


def test_what_cannot_saturate() -> None:
    weights = np.full((40, 3), 127, np.int8)
    exact = simdnn.ranges("matmul", weights=weights, machine="skx", attr=simdnn.Attr(exact_int8=True))
    vnni = simdnn.ranges("matmul", weights=weights, machine="zen4")
    for frame, name in ((exact, "_exact"), (vnni, "vnni")):
        assert frame["safe"].all() and name in frame.attrs["implementation"]
        assert "can saturate" in frame.attrs["reason"]
    halved = simdnn.ranges(
        "convolution", weights=np.full((4, 3, 3, 3), 127, np.int8), src_range=(-128, 127), machine="skx"
    )
    assert halved["safe"].all() and halved.attrs["odd_weights"] == 108 and "halved" in halved.attrs["reason"]
    depthwise = simdnn.ranges("convolution", weights=np.full((8, 1, 3, 3), 127, np.int8), groups=8, machine="skx")
    assert depthwise["safe"].all()


def test_numbers_of_a_channel() -> None:
    weights = np.array([[100, 1, 64], [100, -1, 64], [0, 5, -64], [3, 0, -64]], np.int8)
    frame = simdnn.ranges("matmul", weights=weights, machine="skx")
    assert frame["max_abs_pair"].tolist() == [51000, 1275, 32640]
    assert frame["safe"].tolist() == [False, True, True] and frame["pairs"].tolist() == [2, 2, 2]
    assert frame["at"].tolist()[0] == (0, 1)
    assert frame["witness"][0][:2].tolist() == [255, 255] and frame["witness"][1] is None
    assert frame.attrs["largest_weight"] == 64 and frame.attrs["safe_share"] == pytest.approx(2 / 3)
    assert frame.attrs["safe_share_7bit"] == 1
    assert [largest_weight(0, high) for high in (127, 128, 254, 255)] == [128, 128, 64, 64]


def test_calibration_gives_probabilities() -> None:
    rng = np.random.default_rng(2)
    weights = rng.integers(-128, 128, (64, 6)).astype(np.int8)
    weights[:, 0] //= 4
    src = rng.integers(0, 256, (50, 64)).astype(np.uint8)
    frame = simdnn.ranges("matmul", weights=weights, calibration=src, machine="skx", isa="avx2")
    met = simdnn.matmul(src, weights, machine="skx", isa="avx2").saturation
    assert met is not None
    assert frame["probability"].tolist() == (met > 0).mean(axis=0).tolist()
    assert frame.attrs["src_range"] == (int(src.min()), int(src.max()))
    assert frame["probability"][0] == 0 and 0 < frame.attrs["probability"] < 1
    images = rng.integers(0, 256, (3, 4, 8, 8)).astype(np.uint8)
    kernels = rng.integers(-128, 128, (5, 4, 3, 3)).astype(np.int8)
    layer = simdnn.ranges("convolution", weights=kernels, calibration=images, padding=1, machine="skx", isa="avx2")
    counted = simdnn.convolution(images, kernels, padding=1, machine="skx", isa="avx2").saturation
    assert counted is not None
    assert layer["probability"].tolist() == (counted > 0).mean(axis=(0, 2, 3)).tolist()
    assert isinstance(layer, pd.DataFrame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"primitive": "matmull"}, "did you mean 'matmul'"),
        ({"weights": np.ones((4, 2), np.float32)}, "quantize them first"),
        ({"weights": np.ones((4, 2, 1), np.int8)}, "2 dimensions"),
        ({"src_range": (0, 256)}, "u8 has 0 to 255"),
        ({"src_range": (9, 3)}, "the least first"),
        ({"src_range": 255}, "least, greatest"),
        ({"src_range": (-1, 200)}, "s8 has -128 to 127"),
        ({"calibration": np.ones((3, 9), np.uint8)}, "calibration"),
        ({"calibration": np.ones((3, 4), np.float32)}, "as stored"),
        ({"machine": "skylake"}, "unknown machine"),
        ({"padding": 3}, "argument of matmul"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"primitive": "matmul", "weights": np.ones((4, 2), np.int8), "machine": "skx"} | change
    with pytest.raises(simdnn.SimdnnError, match=message):
        simdnn.ranges(given.pop("primitive"), **given)


def test_a_batch_is_as_bad_as_its_worst_matrix() -> None:
    sizes = {"m": 2, "n": 3, "k": 8, "src_batch": 2, "wei_batch": 2}
    found = simdnn.estimate("matmul", **sizes, dt="u8:s8:s32", machine="skx", attr=FAST)
    mild, wild = np.full((8, 3), 3, np.int8), np.full((8, 3), 127, np.int8)
    assert not verdict(found, np.stack([mild, mild])).saturates
    met = verdict(found, np.stack([mild, wild]))
    assert met.saturates and met.pairs and met.witness is not None
