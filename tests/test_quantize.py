"""Weights as integers: each within half a step of what it was, in every type and granularity, and through products."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import simdnn
from isa_models import InvalidArgument
from isa_models.formats import fmt
from simdnn.quantize import WEIGHT_TYPES, compress_weights
from tests.effort import one_in

GROUPS: tuple[int | str, ...] = ("common", "per_oc", 1, 2, 8)
finite = st.floats(-(2.0**127), 2.0**127, width=32)


@one_in(3)
@pytest.mark.parametrize(("dtype", "group"), [*product(WEIGHT_TYPES, GROUPS)])
@given(weights=arrays(np.float32, (8, 3), elements=finite), symmetric=st.booleans())
def test_each_weight_is_met_within_half_a_step(
    dtype: str, group: int | str, weights: np.ndarray, symmetric: bool
) -> None:
    if symmetric and dtype[0] == "u":
        weights = np.abs(weights)
    found = compress_weights(weights, dtype, group, symmetric=symmetric)
    form = fmt(dtype)
    parts = 8 // group if isinstance(group, int) else 0
    assert found.scales.shape == {"common": (1,), "per_oc": (3,)}.get(str(group), (parts, 3))
    assert found.values.dtype == form.dtype and found.values.shape == (8, 3) and len(list(found)) == 3 - symmetric
    wide, scales = found.values.astype(np.float64), found.scales.astype(np.float64)
    assert form.low + (symmetric and form.signed) <= wide.min() and wide.max() <= form.high
    if found.zero_points is not None:
        assert found.zero_points.dtype == form.dtype and found.zero_points.shape == found.scales.shape
        wide -= spread(found.zero_points.astype(np.float64), 8)
    steps = spread(scales, 8)
    assert (np.abs(wide * steps - weights) <= 0.50002 * steps).all()
    assert (found.real[weights == 0] == 0).all()
    with np.errstate(over="ignore"):
        assert np.array_equal(found.real, (wide.astype(np.float32) * spread(found.scales, 8)))


def spread(parameters: np.ndarray, k: int) -> np.ndarray:
    return np.repeat(parameters, k // len(parameters), 0) if parameters.ndim == 2 else parameters


@one_in(3, "machine")
@pytest.mark.parametrize("machine", ["zen4", "b580"])
@pytest.mark.parametrize(("dtype", "symmetric"), [*product(WEIGHT_TYPES, (False, True))])
def test_products_take_the_attribute(machine: str, dtype: str, symmetric: bool) -> None:
    rng = np.random.default_rng(1)
    weights = rng.normal(0.3, 1, (32, 16)).astype(np.float32)
    weights = np.abs(weights) if symmetric and dtype[0] == "u" else weights
    for group in ("common", "per_oc", 16):
        w = compress_weights(weights, dtype, group, symmetric=symmetric)
        floats = simdnn.matmul(
            np.eye(32, dtype=np.float32), w.values, machine=machine, attr=w.attr(fpmath="strict", apply_to_int=True)
        ).output
        assert np.allclose(floats, w.real, rtol=1e-6, atol=1e-6), group  # (v - z) * s, the scale at the end or not
        src = rng.integers(0, 8, (3, 32)).astype(np.uint8)
        integers = simdnn.matmul(src, w.values, machine=machine, attr=w.attr(scales={"src": 0.5}), dst="f32").output
        assert np.allclose(integers, 0.5 * (src.astype(np.float64) @ w.real), rtol=1e-5, atol=1e-4), group


def test_unsigned_weights_do_not_wrap() -> None:
    """They hold what signed ones hold: zero points are found where nobody says whether there are any."""
    weights = np.random.default_rng(0).normal(size=(256, 32)).astype(np.float32)
    error = {
        dtype: np.linalg.norm(compress_weights(weights, dtype, 64).real - weights) / np.linalg.norm(weights)
        for dtype in WEIGHT_TYPES
    }
    assert error["u8"] < 1.05 * error["s8"] < 0.01 and error["u4"] < 1.05 * error["s4"] < 0.15


@pytest.mark.parametrize("largest", [1e-45, 1e-42, 3e-37, 3.4e38])
def test_the_ends_of_f32(largest: float) -> None:
    weights = np.array([[largest], [-largest / 2]], np.float32)
    for dtype, symmetric in (("s8", True), ("s8", False), ("u8", False), ("s4", True)):
        found = compress_weights(weights, dtype, "common", symmetric=symmetric)
        assert found.scales[0] >= 2**-126
        assert (np.abs(found.real.astype(np.float64) - weights) <= 0.50002 * np.float64(found.scales)).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_floats_of_other_widths(dtype: Any) -> None:
    weights = np.array([[1, -0.5], [0.25, 0]])
    found = compress_weights(weights.astype(dtype), "s8")
    assert np.array_equal(found.values, compress_weights(weights.astype(np.float32), "s8").values)


W = np.ones((8, 4), np.float32)


@pytest.mark.parametrize(
    ("weights", "arguments", "message"),
    [
        (W, {"dtype": "s16"}, "dtype 's16'. Allowed: s8, u8, s4, u4"),
        (W, {"dtype": "f32"}, "Allowed: s8, u8, s4, u4"),
        (W, {"dtype": "s8", "group": 3}, "group=3 does not divide K = 8; 2 does"),
        (W, {"dtype": "s8", "group": 16}, "group=16 does not divide K = 8; 8 does"),
        (W, {"dtype": "s8", "group": 0}, "group=0; an integer of at least 1"),
        (W, {"dtype": "s8", "group": 2.0}, "group=2.0; an integer"),
        (W, {"dtype": "s8", "group": "per_token"}, "group 'per_token'.*common, per_oc"),
        (W, {"dtype": "s8", "symmetric": 1}, "symmetric=1; True, False or None"),
        (-W, {"dtype": "u8", "symmetric": True}, "down to -1, and symmetric u8 has no negative values: dtype='s8'"),
        (W[0], {"dtype": "s8"}, r"\(K, N\) are needed"),
        (W[:0], {"dtype": "s8"}, "empty"),
        (W.astype(np.int8), {"dtype": "s8"}, "weights of s8; floats are compressed"),
        ([[1.0]], {"dtype": "s8"}, "a NumPy array is needed"),
        (np.where(np.eye(8, 4) == 1, np.nan, W), {"dtype": "u4"}, r"weights\[0, 0\] is nan; finite"),
        (np.full((2, 2), 1e39), {"dtype": "s8"}, r"weights\[0, 0\] is 1e\+39; finite f32"),
        (np.full((2, 2), np.float32(-np.inf)), {"dtype": "u8"}, "is -inf; finite"),
    ],
)
def test_what_cannot_be_compressed(weights: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        compress_weights(weights, **arguments)
