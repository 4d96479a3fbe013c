"""Result.error_bound: never exceeded, held against sums of fractions; infinite or said where nothing is known."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.readings.arrays import Array
from simdnn import Attr, SimdnnError
from simdnn.explanations.bounds import CERTAINTY, ErrorBound
from tests.effort import examples

MACHINES = ("hsw", "clx", "zen4", "spr", "gnr", "a770", "b580", "max1550", "v100")
FLOATS: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
TENSOR_CORES = ("v100", "a100", "rtx4090", "h100")
MODES = ("strict", "bf16", "f16", "tf32", "any")
FIGURES = ("even", "sizes", "tiny", "huge", "cancel", "whole")


def numbers(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers of one size, of all sizes, near both ends of a type, in pairs that cancel out, small integers."""
    plain = rng.normal(size=shape)
    if kind == "whole":
        return rng.integers(-3, 4, shape).astype(dtype)
    if kind == "cancel":
        plain[..., 1::2] = -plain[..., : plain.shape[-1] // 2 * 2 : 2]
    spread = {"sizes": (-12, 12), "tiny": (-24, -14), "huge": (6, 9)}
    if dtype is not np.float16:
        spread |= {"tiny": (-149, -60), "huge": (50, 66)}
    low, high = spread.get(kind, (0, 1))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Array = (plain * 2.0 ** rng.integers(low, high, shape)).astype(dtype)
    return found


def exactly(src: Array, weights: Array) -> Array:
    """The product in fractions, as an array of Python objects."""
    a, b = ([[Fraction(float(x)) for x in row] for row in side] for side in (src, weights.T))
    return np.array([[sum(x * y for x, y in zip(row, column, strict=True)) for column in b] for row in a], object)


def apart(output: Array, exact: Array) -> Array:
    """|output - exact|, rounded up a little; infinite where the output is no number."""
    found = [
        float(abs(Fraction(float(x)) - y)) if np.isfinite(float(x)) else np.inf
        for x, y in zip(output.reshape(-1), exact.reshape(-1), strict=True)
    ]
    return np.array(found).reshape(output.shape)


def held(bound: ErrorBound, output: Array, exact: Array) -> None:
    error = apart(output, exact)
    assert (error <= bound.worst).all(), (error.max(), bound)
    assert (bound.probable <= bound.worst).all()
    finite = np.isfinite(error) & np.isfinite(bound.magnitude)
    off = np.abs(error[finite] - bound.error[finite])
    assert (off <= 2.0**-48 * bound.magnitude[finite] + 1e-300).all()


@given(
    st.integers(0, 2**32),
    st.sampled_from(MACHINES),
    st.sampled_from(sorted(FLOATS)),
    st.sampled_from(MODES),
    st.sampled_from(FIGURES),
    st.sampled_from(["f32", "bf16", "f16"]),
)
@examples(40)
def test_no_error_of_floats_exceeds_its_bound(
    seed: int, machine: str, dtype: str, mode: str, figures: str, dst: str
) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, [4, 40, 20])
    src, weights = (numbers(rng, figures, shape, FLOATS[dtype]) for shape in ((m, k), (k, n)))
    try:
        r = simdnn.matmul(src, weights, machine=machine, attr=Attr(fpmath=mode), dst=dst, engine="reference")
    except SimdnnError:
        return
    held(r.error_bound, r.output, exactly(src, weights))


@given(st.integers(0, 2**32), st.sampled_from(TENSOR_CORES), st.sampled_from(sorted(FLOATS)), st.integers(1, 20))
@examples(30)
def test_a_sum_that_cancels_is_cut_off_where_its_addends_end(seed: int, machine: str, dtype: str, pairs: int) -> None:
    """Tensor cores align addends to the greatest one: what that cuts off is large beside a small sum."""
    rng = np.random.default_rng(seed)
    src = np.repeat(rng.normal(size=(3, pairs)), 2, axis=1)
    src[:, 1::2] *= -(1 + rng.normal(size=(3, pairs)) * 2.0**-6)
    weights = np.repeat(rng.normal(size=(pairs, 8)), 2, axis=0)
    src, weights = src.astype(FLOATS[dtype]), weights.astype(FLOATS[dtype])
    try:
        r = simdnn.matmul(src, weights, machine=machine, attr=Attr(fpmath="tf32"), dst="f32", engine="reference")
    except SimdnnError:
        return
    held(r.error_bound, r.output, exactly(src, weights))


@given(st.integers(0, 2**32), st.sampled_from(MACHINES), st.sampled_from(["u8", "s8"]), st.booleans())
@examples(20)
def test_integers_are_off_where_they_saturate_alone(seed: int, machine: str, dtype: str, exact: bool) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, [4, 70, 20])
    src = rng.integers(*((0, 256) if dtype == "u8" else (-128, 128)), (m, k))
    src = src.astype(np.uint8 if dtype == "u8" else np.int8)
    weights = rng.integers(-128, 128, (k, n)).astype(np.int8)
    try:
        r = simdnn.matmul(src, weights, machine=machine, attr=Attr(exact_int8=exact), engine="reference")
    except SimdnnError:
        return
    held(r.error_bound, r.output, src.astype(np.int64).astype(object) @ weights.astype(np.int64).astype(object))
    if r.saturation is None or not r.saturation.any():
        assert not r.error_bound.worst.any()
        assert "roundings: none" in repr(r.error_bound)
    else:
        assert (r.error_bound.worst[r.saturation > 0] > 0).any()


@given(
    st.integers(0, 2**32),
    st.sampled_from(MACHINES),
    st.sampled_from(["f32", "bf16", "f16", "s8", "u8", "s32"]),
    st.booleans(),
)
@examples(40)
def test_epilogues_count(seed: int, machine: str, dst: str, relu: bool) -> None:
    """Scales, a zero point, a bias, relu, and what the destination rounds and cuts off."""
    rng = np.random.default_rng(seed)
    m, k, n = rng.integers(1, [4, 30, 20])
    src, weights = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    bias, wei = rng.normal(size=n).astype(np.float32) * 9, rng.uniform(0.01, 0.02, n).astype(np.float32)
    common, divisor = np.float32(rng.uniform(0.01, 0.03)), np.float32(rng.uniform(0.1, 3))
    attr = Attr(
        scales={"src": common, "wei": wei, "dst": divisor},
        zero_points={"src": np.int32(7)},
        post_ops=["relu"] if relu else [],
    )
    try:
        r = simdnn.matmul(src, weights, bias, machine=machine, attr=attr, dst=dst, engine="reference")
    except SimdnnError:
        return
    sums = (src.astype(np.int64) - 7).astype(object) @ weights.astype(np.int64).astype(object)
    scales = [Fraction(float(common)) * Fraction(float(w)) for w in wei]
    exact = np.array([[x * s + Fraction(float(b)) for x, s, b in zip(row, scales, bias, strict=True)] for row in sums])
    if relu:
        exact = np.maximum(exact, Fraction(0))
    held(r.error_bound, r.output, exact / Fraction(float(divisor)))


@given(st.integers(0, 2**32), st.sampled_from(MACHINES), st.sampled_from(["strict", "bf16"]))
@examples(12)
def test_compressed_weights_count(seed: int, machine: str, mode: str) -> None:
    rng = np.random.default_rng(seed)
    m, n, groups = rng.integers(1, [4, 20, 4])
    src = rng.normal(size=(m, 16 * groups)).astype(np.float32)
    weights = rng.integers(-8, 8, (16 * groups, n)).astype(ml_dtypes.int4)
    scales = rng.uniform(0.1, 1, (groups, n)).astype(np.float32)
    attr = Attr(fpmath=mode, apply_to_int=True, scales={"wei": scales})
    try:
        r = simdnn.matmul(src, weights, machine=machine, attr=attr, engine="reference")
    except SimdnnError:
        return
    wide = weights.astype(np.float64) * np.repeat(scales.astype(np.float64), 16, axis=0)  # exact in f64
    held(r.error_bound, r.output, exactly(src, wide))


@given(
    st.integers(0, 2**32),
    st.sampled_from(["hsw", "clx", "zen4", "spr", "gnr", "b580", "max1550", "a100", "h100"]),
    st.sampled_from(["f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1"]),
    st.sampled_from(["f32", "bf16", "same", "plain"]),
)
@examples(30)
def test_narrow_floats_count(seed: int, machine: str, stored: str, source: str) -> None:
    """Weights are the very numbers that their codes stand for; what is off comes later."""
    rng = np.random.default_rng(seed)
    mx = simdnn.quantize_mx(rng.normal(size=(64, 9)).astype(np.float32), stored, axis=0)
    wide = mx.output.astype(np.float64) * np.repeat(mx.attr("wei").scales["wei"].values.astype(np.float64), 32, axis=0)
    src = rng.normal(size=(3, 64)).astype(FLOATS.get(source, mx.output.dtype))
    attr = mx.attr("wei")
    if source == "plain":  # a tensor core's own product of codes, where it has one
        wide, attr = mx.output.astype(np.float64), Attr(fpmath="any", apply_to_int=True)
    try:
        r = simdnn.matmul(src, mx.output, machine=machine, attr=attr, engine="reference")
    except SimdnnError:
        return
    held(r.error_bound, r.output, exactly(src, wide))
    assert np.isfinite(r.error_bound.worst).all()


@given(st.integers(0, 2**32), st.sampled_from(MACHINES), st.sampled_from(["f32", "s8", "u8"]), st.booleans())
@examples(12)
def test_convolutions_count(seed: int, machine: str, dtype: str, fast: bool) -> None:
    """Halved weights, too: what an s8 convolution without VNNI multiplies."""
    rng = np.random.default_rng(seed)
    shapes = (1, 3, 4, 4), (5, 3, 2, 2)
    if dtype == "f32":
        src, weights = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    else:
        src = rng.integers(*((0, 256) if dtype == "u8" else (-128, 128)), shapes[0])
        src = src.astype(np.uint8 if dtype == "u8" else np.int8)
        weights = rng.integers(-128, 128, shapes[1]).astype(np.int8)
    attr = Attr(fpmath="bf16" if fast else "strict") if dtype == "f32" else Attr(exact_int8=not fast)
    try:
        r = simdnn.convolution(src, weights, machine=machine, attr=attr, engine="reference")
    except SimdnnError:
        return
    rows = np.array([src[0, :, y : y + 2, x : x + 2].reshape(-1) for y in range(3) for x in range(3)])
    exact = exactly(rows, weights.reshape(5, -1).T).T.reshape(1, 5, 3, 3)
    held(r.error_bound, r.output, exact)


def test_probable_bounds_hold_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    src, weights = rng.normal(size=(8, 300)).astype(np.float32), rng.normal(size=(300, 48)).astype(np.float32)
    for mode in ("strict", "bf16"):
        bound = simdnn.matmul(src, weights, machine="b580", attr=Attr(fpmath=mode), engine="reference").error_bound
        assert (bound.error <= bound.probable).mean() >= CERTAINTY
        assert bound.probable.max() < 0.6 * bound.worst.max()


def test_the_bound_is_the_one_of_the_books() -> None:
    """gamma_k |a|.|b| of a plain chain of fused multiply-adds, but for the first, which adds to zero."""
    rng = np.random.default_rng(2)
    src, weights = rng.uniform(1, 2, (4, 50)).astype(np.float32), rng.uniform(1, 2, (50, 8)).astype(np.float32)
    bound = simdnn.matmul(src, weights, machine="hsw", engine="reference").error_bound
    unit = 2.0**-24
    gamma = 50 * unit / (1 - 50 * unit)
    magnitude = src.astype(np.float64) @ weights.astype(np.float64)
    assert (bound.worst <= gamma * magnitude * (1 + 1e-5)).all() and (bound.worst >= 0.3 * gamma * magnitude).all()
    assert dict(zip(bound.kinds, bound.rounded[:, 0, 0].tolist(), strict=True)) == {
        "f32": 50,
        "f16, tf32": 0,
        "bf16": 0,
        "other": 0,
    }


def test_fewer_digits_are_counted() -> None:
    rng = np.random.default_rng(3)
    src, weights = rng.normal(size=(8, 64)).astype(np.float32), rng.normal(size=(64, 64)).astype(np.float32)
    for machine in ("spr", "b580"):
        bound = simdnn.matmul(src, weights, machine=machine, attr=Attr(fpmath="bf16"), engine="reference").error_bound
        assert int(bound.rounded[bound.kinds.index("bf16")].max()) == 2  # the source's number and the weight's


def test_what_may_overflow_is_infinite() -> None:
    big = np.full((1, 4), 60000, np.float16)
    one = simdnn.matmul(big, np.ones((4, 16), np.float16), machine="spr", dst="f16", engine="reference")
    assert np.isinf(one.error_bound.worst).all()
    assert "worst inf" in repr(one.error_bound)
    src = np.array([[1.0, np.nan], [1.0, 2.0]], np.float32)
    bound = simdnn.matmul(src, np.ones((2, 16), np.float32), machine="spr", engine="reference").error_bound
    assert np.isinf(bound.worst[0]).all() and not bound.worst[1].any()


def test_a_row_says_it_all() -> None:
    r = simdnn.matmul(np.ones((2, 8), np.float32), np.ones((8, 16), np.float32), machine="icx")
    row = r.error_bound.to_frame().iloc[0]
    assert row[["worst", "probable", "error", "certainty"]].tolist() == [0, 0, 0, CERTAINTY]
    assert {"tightness", "worst_relative", "roundings_f32", "roundings_other"} <= set(row.index)
