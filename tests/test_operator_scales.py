"""Scales of operators: powers of two move an output by exactly their product, whatever the order of multiplications."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from tests.effort import one_in

ROW = np.array([1, 2, 0.5, 4, 8, 0.25], np.float32)


@one_in(3)
@pytest.mark.parametrize("isa", ["avx2", "avx512_core_vnni"])
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
@pytest.mark.parametrize("src", [None, 0.5])
@pytest.mark.parametrize("wei", [None, 4.0, ROW], ids=["none", "common", "row"])
def test_scales_of_a_deconvolution_multiply_its_sums(src: float | None, wei: Any, dispatch: str, isa: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 99, (1, 4, 3, 3)).astype(np.uint8)
    weights = rng.integers(-99, 99, (6, 4, 2, 2)).astype(np.int8)
    where = {"machine": "icx", "isa": isa, "dispatch": dispatch, "dst": "f32"}
    scales = {name: value for name, value in (("src", src), ("wei", wei)) if value is not None}
    plain, scaled = (simdnn.deconvolution(x, weights, **where, scales=some).output for some in ({}, scales))
    factor = np.float32(src or 1) * (
        np.ones(6, np.float32) if wei is None else np.float32(wei) * np.ones(6, np.float32)
    )
    assert plain.any() and (scaled == plain * factor.reshape(-1, 1, 1)).all()
