"""Zero points on GPUs: every strategy has the same bits, and what each may be asked for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from simdnn import Attr, Quant
from simdnn.kernels.intel_gpu.zero import EXACT
from tests.effort import examples

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return rng.integers(*((0, 256) if dtype == "u1" else (-128, 128)), shape).astype(dtype)


def by_k(values: Any, axis: int, k: int, neutral: float = 0) -> Array:
    """A common value, (1, N), (M, 1) or a table by group along K as a matrix with K whole."""
    table = np.atleast_2d(np.asarray(neutral if values is None else values))
    return np.repeat(table, k // table.shape[axis], axis=axis)


def expected(a: Array, w: Array, points: dict[str, Any], scales: dict[str, Any], period: int) -> Array:
    """The documented bits: exact sums over a period of scales, in f32 times the source's scale, the weights', added."""
    k = a.shape[1]
    x = a.astype(int) - by_k(points.get("src"), 1, k).astype(int)
    y = w.astype(int) - by_k(points.get("wei"), 0, k).astype(int)
    if not scales:
        return x @ y
    sa, sw = by_k(scales.get("src"), 1, k, 1).astype("f4"), by_k(scales.get("wei"), 0, k, 1).astype("f4")
    total = np.zeros((len(a), w.shape[1]), np.float32)
    for start in range(0, k, period):
        part = slice(start, start + period)
        total += (x[:, part] @ y[part]).astype(np.float32) * sa[:, [start]] * sw[start]
    return total


@given(
    st.sampled_from(["a770", "b580", "dg1", "max1550", "lnl"]),
    st.sampled_from(["i1", "u1"]),
    st.sampled_from(["i1", "u1"]),
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([8, 20, 32, 64]),
    st.sampled_from(["", "common", "per_token", "grouped"]),
    st.sampled_from(["", "per_token", "grouped", "both", "wei"]),
    st.integers(0),
)
@examples(25)
def test_strategies_have_the_same_bits(
    name: str,
    src: str,
    wei: str,
    m: int,
    n: int,
    parts: int,
    inside: int,
    group: int,
    points: str,
    scaled: str,
    seed: int,
) -> None:
    """Weights zero points by `group`; scales, where grouped, by `period`: `inside` groups."""
    rng = np.random.default_rng(seed)
    period, k = group * inside, group * inside * parts
    a, w = drawn(src, (m, k), rng), drawn(wei, (k, n), rng)
    zero_points: dict[str, Any] = {"wei": drawn(wei, (parts * inside, n), rng)}
    shapes = {"common": (), "per_token": (m, 1), "grouped": (m, parts * inside)}
    if points:
        zero_points["src"] = rng.integers(*((0, 256) if src == "u1" else (-128, 128)), shapes[points])
    scales: dict[str, Any] = {}
    if scaled in ("per_token", "grouped", "both"):
        scales["src"] = rng.random((m, 1 if scaled == "per_token" else parts), np.float32)
    if scaled in ("both", "wei", "per_token"):
        scales["wei"] = rng.random((parts, n) if scaled != "per_token" else n, np.float32)
    sums = a.astype(np.int32).reshape(m, -1, group).sum(axis=2, dtype=np.int32)
    given_points = {"src": np.asarray(zero_points["src"], np.int32)} if points else {}
    given_points["wei"] = Quant(zero_points["wei"], groups=(group, 1))
    right = expected(a, w, zero_points, scales, k if scaled == "per_token" else period)
    for strategy in (*EXACT, "auto", "upconvert"):
        attr = Attr(
            zero_points=given_points,
            scales=scales,
            precomputed_reductions={"src": sums},
            check=True,
            zero_point_strategy=strategy,
        )
        result = simdnn.matmul(a, w, machine=name, attr=attr, engine="reference")
        assert (result.output == right).all(), strategy  # upconvert: sums here stay below 2**24
        assert result.implementation.endswith(strategy if strategy != "auto" else tuple(EXACT))


def test_up_conversion_rounds_sums_in_f32_alone() -> None:
    """Operands of 510 and products below 2**18 are exact; a sum beyond 2**24 is within f32's accumulation."""
    rng = np.random.default_rng(2)
    a, w = rng.integers(200, 256, (3, 2048)).astype("u1"), rng.integers(100, 128, (2048, 16)).astype("i1")
    points = {"src": np.zeros((3, 1), np.int32), "wei": np.full((16, 16), -120, np.int8)}
    exact = expected(a, w, points, {}, 2048)
    for engine in ("compiled", "reference"):
        attr = Attr(zero_points=points, zero_point_strategy="upconvert")
        r = simdnn.matmul(a, w, machine="b580", attr=attr, engine=engine)
        assert r.output.dtype == np.int32 and exact.min() > 1 << 24 and (r.output != exact).any()
        assert np.abs(r.output - exact).max() <= 2048 * 2.0**-24 * exact.max()
        assert (r.compute_dtype, r.float_model, r.confidence) == ("f16", "sequential", "estimated")
    attr = Attr(zero_points=points, zero_point_strategy="upconvert", float_model="stage_fused")
    assert simdnn.matmul(a, w, machine="b580", attr=attr).float_model == "stage_fused"


def test_scales_alone_and_the_compiled_engine() -> None:
    rng = np.random.default_rng(3)
    a, w = drawn("i1", (9, 96), rng), drawn("i1", (96, 20), rng)
    scales = {"src": rng.random((9, 3), np.float32), "wei": rng.random((3, 20), np.float32)}
    right = expected(a, w, {}, scales, 32)
    for machine in ("a770", "b580"):
        r = simdnn.matmul(a, w, machine=machine, attr=Attr(scales=scales))
        assert (r.output == right).all() and r.output.dtype == np.float32
    bias, half = rng.random(20, np.float32), simdnn.matmul(a, w, machine="b580", attr=Attr(scales=scales), dst="f16")
    assert half.output.dtype == np.float16 and (half.output == right.astype(np.float16)).all()
    r = simdnn.matmul(a, w, bias, machine="zen4", attr=Attr(scales=scales, zero_points={"wei": np.zeros(20, np.int8)}))
    assert (r.output == right + bias).all()  # CPUs' reference has the same bits


def test_dynamic_quantization_feeds_every_strategy() -> None:
    """Asymmetric u8 by token, reductions by weights group, straight into the product."""
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(5, 128)).astype(np.float32), drawn("i1", (128, 16), rng)
    points, scale = drawn("i1", (4, 16), rng), rng.random((4, 16), np.float32)
    near = x @ ((w.astype(int) - np.repeat(points.astype(int), 32, axis=0)) * np.repeat(scale, 32, axis=0))
    q = simdnn.quantize_dynamic(x, "u8", symmetric=False, reductions=32, machine="b580")
    outputs = []
    for strategy in (*EXACT, "upconvert"):
        attr = q.attr(scales={"wei": scale}, zero_points={"wei": points}, check=True, zero_point_strategy=strategy)
        assert {*attr.scales} == {*attr.zero_points} == {"src", "wei"} and attr.precomputed_reductions
        outputs.append(simdnn.matmul(q.output, w, machine="b580", attr=attr).output)
    assert all((output == outputs[0]).all() for output in outputs)
    assert np.abs(outputs[0] - near).max() < 0.02 * np.abs(near).max()


@given(
    st.sampled_from(["a770", "b580"]),
    st.sampled_from(["i1", "u1", "s4", "u4"]),
    st.sampled_from(["s4", "u4"]),
    st.integers(1, 12),
    st.integers(1, 36),
    st.integers(1, 3),
    st.sampled_from([16, 20, 64]),
    st.booleans(),
    st.integers(0),
)
@examples(12)
def test_weights_of_four_bits(
    name: str, src: str, wei: str, m: int, n: int, parts: int, group: int, scaled: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k, ends, types = parts * group, {"s": (-8, 8), "u": (0, 16)}, {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
    wide = drawn(src, (m, k), rng) if src in ("i1", "u1") else rng.integers(*ends[src[0]], (m, k))
    a, w = wide.astype(types.get(src, src)), rng.integers(*ends[wei[0]], (k, n)).astype(types[wei])
    points = {"wei": rng.integers(*ends[wei[0]], (parts, n)).astype(np.int8), "src": np.int32(3)}
    scales = {"wei": rng.random((parts, n), np.float32)} if scaled else {}
    right = expected(wide, w.astype(int), points, scales, group)
    for strategy in (*EXACT, "upconvert", "auto"):
        sums = wide.astype(np.int32).reshape(m, parts, group).sum(axis=2, dtype=np.int32)
        attr = Attr(
            zero_points=points,
            scales=scales,
            precomputed_reductions={"src": sums},
            check=True,
            zero_point_strategy=strategy,
        )
        output = simdnn.matmul(a, w, machine=name, attr=attr, engine="reference").output
        assert (output == right).all(), strategy


@pytest.mark.parametrize("points", [7, np.arange(9, dtype=np.int32)[:, None]])
def test_zero_points_of_the_source_alone(points: Any) -> None:
    rng = np.random.default_rng(5)
    a, w = drawn("u1", (9, 40), rng), drawn("i1", (40, 20), rng)
    for strategy in (*EXACT, "upconvert", "auto"):
        attr = Attr(zero_points={"src": points}, zero_point_strategy=strategy)
        output = simdnn.matmul(a, w, machine="b580", attr=attr, engine="reference").output
        assert (output == (a.astype(int) - points) @ w.astype(int)).all()


@pytest.mark.parametrize("strategy", [*EXACT, "upconvert"])
def test_explained(strategy: str) -> None:
    rng = np.random.default_rng(6)
    a, w = drawn("u1", (2, 64), rng), drawn("i1", (64, 4), rng)
    points, scales = {"wei": drawn("i1", (2, 4), rng), "src": 3}, {"src": rng.random((2, 2), np.float32)}
    sums = a.astype(np.int32).reshape(2, 2, 32).sum(axis=2, dtype=np.int32)
    attr = Attr(zero_points=points, scales=scales, precomputed_reductions={"src": sums}, zero_point_strategy=strategy)
    r = simdnn.matmul(a, w, machine="b580", attr=attr, engine="reference")
    found = r.explain(1, 2)
    assert found.value == r.output[1, 2] and abs(found.exact - found.value) < 1e-6 * abs(found.value)
    assert "mul.f32" in str(found) and "dpas" in str(found)


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
        (Unimplemented, "up to 1793", np.int8, {"zero_point_strategy": "upconvert", "zero_points": {"wei": 1794}}),
        (Unimplemented, "-8 to 7", ml_dtypes.int4, {"zero_point_strategy": "direct", "zero_points": {"wei": 8}}),
        (Unimplemented, "-128 to 127", np.int8, {"zero_point_strategy": "direct", "zero_points": {"wei": 128}}),
        (Unimplemented, "16 bits", np.int8, {"zero_point_strategy": "in_kernel", "zero_points": {"wei": 1 << 15}}),
        (
            InvalidArgument,
            "is missing",
            np.int8,
            {"zero_points": {}, "precomputed_reductions": {"src": np.zeros((4, 2), np.int32)}},
        ),
    ],
)
def test_refusals(error: type[SimdnnError], message: str, wei: Any, attr: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        simdnn.matmul(
            np.ones((4, 64), np.int8),
            np.ones((64, 8), wei),
            machine="a770",
            attr=Attr(**{"zero_points": {"wei": 3}} | attr),
        )
    with pytest.raises(InvalidArgument, match="zero_point_strategy"):
        Attr(zero_point_strategy="fast")


def test_the_cost_follows_the_strategy() -> None:
    """At large groups late zero points cost little; a product more for each, or another, costs much."""

    def cycles(group: int, strategy: str | None) -> float:
        attr = Attr()
        if strategy:
            attr = Attr(
                zero_points={"wei": Quant(None, groups=(group, 1), dtype="u8")},
                zero_point_strategy=strategy,
                precomputed_reductions={"src": Quant(None, groups=(1, group))} if strategy == "precomputed" else {},
            )
        return simdnn.estimate("matmul", m=2048, n=4096, k=4096, dt="s8:u8:s32", machine="b580", attr=attr).cycles

    plain = cycles(128, None)
    for strategy in EXACT:
        assert cycles(128, strategy) >= 0.98 * plain
    assert cycles(4096, "precomputed") < 1.1 * plain < cycles(4096, "direct")
    assert cycles(32, "precomputed") > cycles(128, "precomputed") > cycles(1024, "precomputed") * 0.99
