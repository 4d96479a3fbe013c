"""Scales of integer matmuls that change along K or from row to row."""

from __future__ import annotations

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array

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
