"""This package's own kernel for zero points by column beside its vector kernels: what follows the sums is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from tests.effort import examples

ODD = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -1.5, 3e38, -3e38, 1e-40]
M, K, N = 2, 8, len(ODD)
NUMBERS = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0])
POST_OPS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["relu", "abs", "square", "hardswish", ("relu", 0.5), ("clip", -1.0, 6.0)]),
    st.tuples(st.just("linear"), NUMBERS, NUMBERS),
    st.tuples(st.sampled_from(["add", "mul", "max", "min", "sub"]), st.permutations(ODD).map(np.float32)),
)


@examples(12)
@given(
    seed=st.integers(0, 2**32 - 1),
    dst=st.sampled_from(["f32", "s32", "s8", "u8", "bf16"]),
    post_ops=st.lists(POST_OPS, max_size=2),
    scale=st.sampled_from([None, 0.5, 3.0]),
    bias=st.permutations(ODD),
)
def test_zeros_for_zero_points_change_nothing(
    seed: int, dst: str, post_ops: list[Any], scale: float | None, bias: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    src = rng.integers(0, 256, (M, K), np.uint8)
    weights = rng.integers(-128, 128, (K, N)).astype(np.int8)
    scales: dict[str, Any] = {"src": 0.5, "wei": 0.125} | ({"dst": scale} if scale else {})
    points = {"wei": simdnn.Quant(np.zeros(N, np.int32))}
    plain, by_column = (
        simdnn.Attr(scales=scales, post_ops=post_ops, exact_int8=True, zero_points=given) for given in ({}, points)
    )
    common: dict[str, Any] = {"machine": "skx", "dst": dst, "engine": "reference"}
    own = simdnn.matmul(src, weights, np.float32(bias), attr=by_column, **common)
    # a NaN is the least s32 after conversion, of which AVX-512 makes 255 in u8, and AVX2 makes 0
    names = ["gemm:avx2_int8_exact"] + ["gemm:avx512_core_int8_exact"] * (dst != "u8")
    for name in names:
        vector = simdnn.matmul(src, weights, np.float32(bias), attr=plain, dispatch=name, **common)
        assert own.implementation.startswith("ref_int8") and own.output.tobytes() == vector.output.tobytes(), name
