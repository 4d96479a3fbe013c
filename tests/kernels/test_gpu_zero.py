"""Zero points on GPUs: every strategy has the same bits, and what each may be asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from simdnn import Attr, Quant
from simdnn.kernels.gpu_zero import EXACT

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.integers(*((0, 256) if dtype == "u1" else (-128, 128)), shape).astype(dtype)


@given(
    st.sampled_from(["a770", "b580", "dg1", "max1550", "lnl"]), st.sampled_from(["i1", "u1"]),
    st.sampled_from(["i1", "u1"]), st.integers(1, 40), st.integers(1, 60), st.integers(1, 4),
    st.sampled_from([8, 20, 32, 64]), st.sampled_from(["", "common", "grouped"]),
    st.sampled_from(["compiled", "reference"]), st.integers(0),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_strategies_have_the_same_bits(
    name: str, src: str, wei: str, m: int, n: int, parts: int, group: int, points: str, engine: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, w = drawn(src, (m, parts * group), rng), drawn(wei, (parts * group, n), rng)
    zw = drawn(wei, (parts, n), rng)
    zero_points: dict[str, Any] = {"wei": Quant(zw, groups=(group, 1))}
    zs: Any = 0
    if points == "common":
        zero_points["src"] = zs = int(rng.integers(-99, 99))
    elif points == "grouped":
        values = rng.integers(-99, 99, (m, parts)).astype(np.int32)
        zero_points["src"], zs = Quant(values, groups=(1, group)), np.repeat(values, group, axis=1)
    sums = a.astype(np.int32).reshape(m, parts, group).sum(axis=2, dtype=np.int32)
    expected = (a.astype(int) - zs) @ (w.astype(int) - np.repeat(zw.astype(int), group, axis=0))
    for strategy in (*EXACT, "auto"):
        attr = Attr(zero_points=zero_points, precomputed_reductions={"src": sums}, check=True,
                    zero_point_strategy=strategy)  # fmt: skip
        result = simdnn.matmul(a, w, machine=name, attr=attr, engine=engine)
        assert (result.output == expected).all(), strategy
        assert result.implementation.endswith(strategy if strategy != "auto" else tuple(EXACT))


def test_grouped_zero_points_of_four_bit_weights_and_an_epilogue() -> None:
    rng = np.random.default_rng(1)
    import ml_dtypes

    a, w = drawn("i1", (12, 128), rng), rng.integers(0, 16, (128, 40))
    zw, scale = rng.integers(0, 16, (4, 40)), rng.random(40).astype(np.float32)
    exact = a.astype(int) @ (w - np.repeat(zw, 32, axis=0))
    for strategy in ("in_kernel", "bias", "auto"):
        attr = Attr(zero_points={"wei": zw.astype(np.uint8)}, scales={"wei": scale}, zero_point_strategy=strategy)
        result = simdnn.matmul(a, w.astype(ml_dtypes.uint4), machine="b580", attr=attr)
        assert (result.output == exact.astype(np.float32) * scale).all()


def test_given_reductions_are_trusted_and_a_wrong_one_shows() -> None:
    a, w = np.ones((4, 64), np.int8), np.ones((64, 8), np.int8)
    sums = np.full((4, 2), 32, np.int32)
    sums[1, 1] = 33
    points = {"wei": np.full((2, 8), 5, np.int32)}
    attr = Attr(zero_points=points, precomputed_reductions={"src": sums}, zero_point_strategy="precomputed")
    output = simdnn.matmul(a, w, machine="a770", attr=attr).output
    assert (output[[0, 2, 3]] == 64 - 320).all() and (output[1] == 64 - 325).all()
    with pytest.raises(InvalidArgument, match=r"\[1, 1\] is 33"):
        simdnn.matmul(
            a, w, machine="a770", attr=Attr(zero_points=points, precomputed_reductions={"src": sums}, check=True)
        )


@pytest.mark.parametrize(
    "error,message,wei,attr",
    [
        (Unimplemented, "are missing", np.int8, {"zero_point_strategy": "precomputed"}),
        (Unimplemented, "f16", np.int8, {"zero_point_strategy": "upconvert"}),
        (Unimplemented, "-128 to 127", np.int8, {"zero_point_strategy": "direct", "zero_points": {"wei": 128}}),
        (Unimplemented, "16 bits", np.int8, {"zero_point_strategy": "in_kernel", "zero_points": {"wei": 1 << 15}}),
        (InvalidArgument, "is missing", np.int8, {"zero_points": {}, "precomputed_reductions":
                                                  {"src": np.zeros((4, 2), np.int32)}}),
    ],
)  # fmt: skip
def test_refusals(error: type[SimdnnError], message: str, wei: Any, attr: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        simdnn.matmul(np.ones((4, 64), np.int8), np.ones((64, 8), wei), machine="a770",
                      attr=Attr(**{"zero_points": {"wei": 3}} | attr))  # fmt: skip
    with pytest.raises(InvalidArgument, match="zero_point_strategy"):
        Attr(zero_point_strategy="fast")


def test_the_cost_follows_the_strategy() -> None:
    """At large groups late zero points cost little; a product more for each, or another, costs much."""

    def cycles(group: int, strategy: str | None) -> float:
        attr = Attr()
        if strategy:
            attr = Attr(
                zero_points={"wei": Quant(None, groups=(group, 1), dtype="u8")}, zero_point_strategy=strategy,
                precomputed_reductions={"src": Quant(None, groups=(1, group))} if strategy == "precomputed" else {},
            )  # fmt: skip
        return simdnn.estimate("matmul", m=2048, n=4096, k=4096, dt="s8:u8:s32", machine="b580", attr=attr).cycles

    plain = cycles(128, None)
    for strategy in EXACT:
        assert cycles(128, strategy) >= 0.98 * plain
    assert cycles(4096, "precomputed") < 1.1 * plain < cycles(4096, "direct")
    assert cycles(32, "precomputed") > cycles(128, "precomputed") > cycles(1024, "precomputed") * 0.99
