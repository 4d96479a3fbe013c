"""Scales of integer matmuls that change along K or from row to row."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from tests.effort import one_in

RNG = np.random.default_rng(5)
SRC = RNG.integers(-128, 128, (5, 96)).astype(np.int8)
WEIGHTS = RNG.integers(-128, 128, (96, 21)).astype(np.int8)


CHOICES = pytest.mark.parametrize(
    ("machine", "dispatch"), [("zen4", "fastest"), ("zen4", "onednn"), ("a770", "fastest"), ("b580", "fastest")]
)


def scale(*shape: int) -> Array:
    return RNG.uniform(0.001, 0.01, shape).astype(np.float32)


def real(values: Array, k: int, along: int) -> Array:
    return np.repeat(values.astype(np.float64), k // values.shape[along], axis=along)


@one_in(3, "machine")
@pytest.mark.parametrize(
    ("src", "wei"),
    [((5, 3), (3, 21)), ((5, 6), (3, 21)), ((5, 1), (1, 21)), ((5, 1), (21,)), ((1,), (6, 21)), ((5, 3), (21,))],
)
@CHOICES
def test_values(src: tuple[int, ...], wei: tuple[int, ...], machine: str, dispatch: str) -> None:
    s, w = scale(*src), scale(*wei)
    attr = simdnn.Attr(scales={"src": s, "wei": w})
    r = simdnn.matmul(SRC, WEIGHTS, machine=machine, attr=attr, dispatch=dispatch, wei_tag="ab")
    by_source = real(s.reshape(-1, 1) if s.size == 1 else s, 96, 1) * SRC
    by_weights = real(w.reshape(1, -1) if w.ndim == 1 else w, 96, 0) * WEIGHTS
    expected = by_source @ by_weights
    assert np.abs(r.output - expected).max() <= 1e-5 * (np.abs(by_source) @ np.abs(by_weights)).max()
    assert r.cycles > 0


@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_groups_must_nest(machine: str) -> None:
    attr = simdnn.Attr(scales={"src": scale(5, 3), "wei": scale(4, 21)})
    with pytest.raises(simdnn.InvalidArgument, match="groups of 32 .src. and 24 .wei."):
        simdnn.matmul(SRC, WEIGHTS, machine=machine, attr=attr)


@CHOICES
def test_zero_points_beside_them(machine: str, dispatch: str) -> None:
    w = scale(3, 21)
    attr = simdnn.Attr(scales={"wei": w}, zero_points={"src": 3})
    r = simdnn.matmul(SRC, WEIGHTS, machine=machine, attr=attr, dispatch=dispatch)
    expected = (SRC.astype(np.int64) - 3) @ (real(w, 96, 0) * WEIGHTS)
    assert np.allclose(r.output, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_a_cost_needs_no_values(machine: str) -> None:
    attr = simdnn.Attr(scales={"wei": simdnn.Quant(None, groups=(32, 1))})
    grouped = simdnn.estimate("matmul", m=5, n=21, k=96, dt="u8:s8:f32", machine=machine, attr=attr)
    plain = simdnn.estimate("matmul", m=5, n=21, k=96, dt="u8:s8:f32", machine=machine)
    assert grouped.cycles > plain.cycles


@pytest.mark.parametrize(
    ("argument", "scales", "points", "library"),
    [
        ("src", 64, 16, "brg_matmul:avx512_core_vnni"),
        ("src", 32, 16, "brg_matmul:avx512_core_vnni"),
        ("src", 16, 32, "brg_matmul:avx512_core_vnni"),
        ("wei", 32, 32, "brg_matmul:avx512_core_vnni"),
        ("wei", 64, 16, "ref_int8:any"),
        ("wei", 32, 16, "ref_int8:any"),
    ],
)
def test_a_library_scales_what_the_finer_groups_add_up_to(
    argument: str, scales: int, points: int, library: str
) -> None:
    """Of scales and zero points of 4-bit weights, as measured beside oneDNN 3.13.2 on a Zen 4."""
    rng = np.random.default_rng(scales + points)
    src, weights = rng.integers(0, 255, (20, 64)).astype(np.uint8), rng.integers(-8, 8, (64, 40))
    shape, groups = ((20, 64 // scales), (1, scales)) if argument == "src" else ((64 // scales, 40), (scales, 1))
    values, zero = rng.uniform(0.01, 2, shape).astype(np.float32), rng.integers(-8, 8, (64 // points, 40))
    attr = simdnn.Attr(
        scales={argument: simdnn.Quant(values, groups=groups)},
        zero_points={"wei": simdnn.Quant(zero.astype(ml_dtypes.int4), groups=(points, 1), dtype="s4")},
    )
    given = src, weights.astype(ml_dtypes.int4)
    r = simdnn.matmul(*given, machine="zen4", isa="avx512_core_vnni", dispatch="onednn", dst="f32", attr=attr)
    moved, finer = weights - np.repeat(zero, points, 0), min(scales, points)
    expected = np.zeros((20, 40), np.float32)
    for k in range(0, 64, finer):
        sums = (src[:, k : k + finer].astype(int) @ moved[k : k + finer]).astype(np.float32)
        expected += sums * (values[:, [k // scales]] if argument == "src" else values[[k // scales]])
    assert r.library == library and np.array_equal(r.output, expected)
