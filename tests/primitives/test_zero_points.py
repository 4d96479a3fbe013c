"""Zero points, scales along K and reductions given by the user, on every target: each strategy has the documented bits.

What is accepted and refused, and benchdnn's words for it: test_zero_point_rules.py.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument
from isa_models.formats import fmt
from simdnn import Attr, Quant
from simdnn.program.records import Register
from tests.draws import whole
from tests.effort import examples, one_in

Array = np.ndarray[Any, np.dtype[Any]]
#: all give exact sums; "auto" takes one of them
EXACT = ("direct", "in_kernel", "precomputed", "bias")
GPUS = ("a770", "b580", "dg1", "max1550", "lnl")
#: machine -> ISA cap
TARGETS = [("zen4", None), ("zen4", "avx512_core"), ("zen4", "avx2"), *((name, None) for name in GPUS)]
FEW = pytest.mark.parametrize("machine", ["zen4", "b580"])


def by_k(values: Any, axis: int, k: int, neutral: float = 0) -> Array:
    """A common value, (1, N), (M, 1) or a table by group along K as a matrix with K whole."""
    table = np.atleast_2d(np.asarray(neutral if values is None else values))
    return np.repeat(table, k // table.shape[axis], axis=axis)


def expected(a: Array, w: Array, points: dict[str, Any], scales: dict[str, Any], period: int) -> Array:
    """Exact sums over a period of scales, in f32 times the source's scale, then the weights', added in turn
    (docs/numerics.md, rule 7)."""
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


def sums_of(a: Array, group: int) -> Array:
    """Sums of the source over groups along K."""
    return a.astype(np.int32).reshape(len(a), -1, group).sum(axis=2, dtype=np.int32)


@given(
    st.sampled_from(TARGETS),
    st.sampled_from(["s8", "u8", "s4", "u4"]),
    st.sampled_from(["s8", "u8", "s4", "u4"]),
    st.tuples(st.integers(1, 20), st.integers(1, 40)),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([6, 8, 20, 32, 64]),
    st.sampled_from(["", "common", "per_token", "grouped"]),
    st.sampled_from(["", "per_token", "grouped", "both", "wei"]),
    st.integers(0),
)
@examples(40)
def test_strategies_have_the_documented_bits(
    target: tuple[str, str | None],
    src: str,
    wei: str,
    size: tuple[int, int],
    parts: int,
    inside: int,
    group: int,
    points: str,
    scaled: str,
    seed: int,
) -> None:
    """Weights zero points by `group`; scales, where grouped, by `period`: `inside` groups."""
    (machine, isa), (m, n), rng = target, size, np.random.default_rng(seed)
    if machine not in GPUS or machine == "dg1":
        src, wei = src[0] + "8", wei[0] + "8"
    period, k = group * inside, group * inside * parts
    a, w = whole(src, (m, k), rng), whole(wei, (k, n), rng)
    zero_points: dict[str, Any] = {"wei": whole(wei, (parts * inside, n), rng)}
    if points:
        shapes = {"common": (), "per_token": (m, 1), "grouped": (m, parts * inside)}
        zero_points["src"] = rng.integers(*((0, 256) if src[0] == "u" else (-128, 128)), shapes[points])
    scales: dict[str, Any] = {}
    if scaled in ("per_token", "grouped", "both"):
        scales["src"] = rng.random((m, 1 if scaled == "per_token" else parts), np.float32)
    if scaled in ("both", "wei", "per_token"):
        scales["wei"] = rng.random((parts, n) if scaled != "per_token" else n, np.float32)
    given_points = {"src": np.asarray(zero_points["src"], np.int32)} if points else {}
    given_points["wei"] = Quant(zero_points["wei"].astype(fmt(wei[0] + "8").dtype), groups=(group, 1))
    right = expected(a, w, zero_points, scales, k if scaled == "per_token" else period)
    for strategy in (*EXACT, "auto", "upconvert"):
        attr = Attr(
            zero_points=given_points,
            scales=scales,
            precomputed_reductions={"src": sums_of(a, group)},
            check=True,
            zero_point_strategy=strategy,
        )
        r = simdnn.matmul(a, w, machine=machine, isa=isa, attr=attr, engine="reference")
        assert (r.output == right).all(), strategy  # upconvert: sums here stay below 2**24
        if machine in GPUS:
            assert r.implementation.endswith(strategy if strategy != "auto" else EXACT)
        else:
            assert r.implementation.startswith("ref_int8:")
            assert r.compute_dtype == ("f32" if strategy == "upconvert" else "s32")


@given(
    st.sampled_from([("zen4", "avx512_core_vnni"), ("zen4", "avx512_core"), ("b580", None), ("a770", None)]),
    st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 4)),
    st.sampled_from([4, 6, 16, 32]),
    st.integers(1, 3),
    st.sampled_from(["u8", "s8"]),
    st.sampled_from(["", "common", "grouped"]),
    st.booleans(),
    st.integers(0),
)
@examples(30)
def test_groups_of_their_own_lengths_in_both_engines_and_the_cost_known_before(
    target: tuple[str, str | None],
    size: tuple[int, int, int],
    length: int,
    coarser: int,
    src: str,
    src_points: str,
    given_sums: bool,
    seed: int,
) -> None:
    """The source's groups and the sums given may be finer than the weights', whose zero points pass a byte."""
    (machine, isa), (m, n, parts), rng = target, size, np.random.default_rng(seed)
    k = parts * length * coarser
    a, w = whole(src, (m, k), rng), whole("s8", (k, n), rng)
    points: dict[str, Any] = {"wei": rng.integers(-200, 200, (parts, n)).astype(np.int32)}
    if src_points:
        points["src"] = rng.integers(-50, 50, () if src_points == "common" else (m, parts * coarser)).astype(np.int32)
    group = length if src_points == "grouped" or given_sums else length * coarser
    reductions = {"src": sums_of(a, group)} if given_sums else {}
    grouped = {"wei": Quant(points["wei"], groups=(length * coarser, 1))}
    if src_points:
        grouped["src"] = Quant(points["src"], groups=(1, length)) if src_points == "grouped" else points["src"]
    attr = Attr(zero_points=grouped, precomputed_reductions=reductions, check=True)
    where: dict[str, Any] = {"machine": machine, "isa": isa, "attr": attr}
    found = [simdnn.matmul(a, w, engine=engine, **where) for engine in ("compiled", "reference")]
    assert all((r.output == expected(a, w, points, {}, k)).all() for r in found)
    assert found[0].cycles == simdnn.estimate("matmul", m=m, n=n, k=k, dt=f"{src}:s8:s32", **where).cycles


@one_in(3)
@pytest.mark.parametrize("points", [{"src": 3, "wei": -5}, {"src": 7}, {"src": np.arange(9, dtype=np.int32)[:, None]}])
@pytest.mark.parametrize(("machine", "isa"), [("zen4", None), ("zen4", "avx2"), ("b580", None)])
def test_what_does_not_change_along_k(machine: str, isa: str | None, points: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    a, w = whole("u8", (9, 40), rng), whole("s8", (40, 20), rng)
    for strategy in ("direct", "in_kernel", "bias", "upconvert", "auto"):
        attr = Attr(zero_points=points, zero_point_strategy=strategy, exact_int8=True)  # "auto" may take a fast kernel
        r = simdnn.matmul(a, w, machine=machine, isa=isa, attr=attr, engine="reference")
        assert (r.output == expected(a, w, points, {}, 40)).all(), strategy


@pytest.mark.parametrize("strategy", [*EXACT, "upconvert"])
def test_threads_with_several_blocks_of_columns(strategy: str) -> None:
    """Small problems give a GPU's thread one block."""
    rng = np.random.default_rng(8)
    a, w = whole("u8", (512, 32), rng), whole("s8", (32, 512), rng)
    points = {"wei": whole("s8", (2, 512), rng), "src": rng.integers(0, 256, (512, 1)).astype(np.int32)}
    reductions = {"src": sums_of(a, 16)}
    scales = {"src": rng.random((512, 1), np.float32), "wei": rng.random((2, 512), np.float32)}
    attr = Attr(zero_points=points, scales=scales, precomputed_reductions=reductions, zero_point_strategy=strategy)
    r = simdnn.matmul(a, w, machine="a770", attr=attr)
    assert (r.output == expected(a, w, points, scales, 16)).all()
    assert "c_0_1" in {op.dst.name for op, _ in r.kernel.program.ops() if isinstance(op.dst, Register)}


@pytest.mark.parametrize("machine", ["a770", "b580"])
def test_up_conversion_by_groups_of_two_lengths(machine: str) -> None:
    """Zero points of the source are finer along K than those of the weights."""
    rng = np.random.default_rng(3)
    a, w = whole("u8", (5, 96), rng), whole("s8", (96, 20), rng)
    src, wei = rng.integers(0, 256, (5, 6)).astype(np.int32), rng.integers(-99, 99, (3, 20)).astype(np.int8)
    points = {"src": Quant(src, groups=(1, 16)), "wei": Quant(wei, groups=(32, 1))}
    attr = Attr(zero_points=points, zero_point_strategy="upconvert")
    found = simdnn.matmul(a, w, machine=machine, attr=attr, engine="reference").output
    right = (a.astype(int) - np.repeat(src, 16, axis=1)) @ (w.astype(int) - np.repeat(wei, 32, axis=0))
    assert (found == right).all()


@one_in(2)
@pytest.mark.parametrize(("machine", "narrow"), [("zen4", "f32"), ("b580", "f16")])
def test_up_conversion_rounds_sums_in_f32_alone(machine: str, narrow: str) -> None:
    """Operands of 510 and products below 2**18 are exact; a sum beyond 2**24 is within f32's accumulation."""
    rng = np.random.default_rng(2)
    a, w = rng.integers(200, 256, (3, 2048)).astype("u1"), rng.integers(100, 128, (2048, 16)).astype("i1")
    points = {"src": np.zeros((3, 1), np.int32), "wei": np.full((16, 16), -120, np.int8)}
    exact = expected(a, w, points, {}, 2048)
    for engine in ("compiled", "reference"):
        attr = Attr(zero_points=points, zero_point_strategy="upconvert")
        r = simdnn.matmul(a, w, machine=machine, attr=attr, engine=engine)
        assert r.output.dtype == np.int32 and exact.min() > 1 << 24 and (r.output != exact).any()
        assert np.abs(r.output - exact).max() <= 2048 * 2.0**-24 * exact.max()
        assert r.compute_dtype == narrow
        if machine == "b580":
            assert (r.float_model, r.confidence) == ("sequential", "estimated")
    if machine == "b580":
        attr = Attr(zero_points=points, zero_point_strategy="upconvert", float_model="stage_fused")
        assert simdnn.matmul(a, w, machine=machine, attr=attr).float_model == "stage_fused"


NONE = {"wei": np.zeros(20, np.int8)}  # without zero points a CPU takes faster kernels, which add up in other orders


@pytest.mark.parametrize(("machine", "points"), [("zen4", NONE), ("a770", {}), ("b580", {}), ("b580", NONE)])
def test_scales_in_both_engines(machine: str, points: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    a, w = whole("s8", (9, 96), rng), whole("s8", (96, 20), rng)
    scales, bias = {"src": rng.random((9, 3), np.float32), "wei": rng.random((3, 20), np.float32)}, rng.random(20, "f4")
    right = expected(a, w, {}, scales, 32)
    for engine in ("compiled", "reference"):
        attr = Attr(scales=scales, zero_points=points)
        r = simdnn.matmul(a, w, bias, machine=machine, attr=attr, engine=engine)
        assert (r.output == right + bias).all() and r.output.dtype == np.float32
    half = simdnn.matmul(a, w, machine=machine, attr=attr, dst="f16")
    assert half.output.dtype == np.float16 and (half.output == right.astype(np.float16)).all()


def test_onednns_reference_scales_the_source_first() -> None:
    rng = np.random.default_rng(3)
    a, w = whole("s8", (5, 64), rng), whole("s8", (64, 24), rng)
    points = {"wei": rng.integers(-9, 9, (4, 24)).astype(np.int32)}
    scales = {"src": rng.random((5, 4)).astype(np.float32), "wei": rng.random((2, 24)).astype(np.float32)}
    for reductions in ({}, {"src": sums_of(a, 16)}):
        attr = Attr(scales=scales, zero_points=points, precomputed_reductions=reductions)
        r = simdnn.matmul(a, w, machine="zen4", attr=attr, dispatch="onednn")
        assert (r.output == expected(a, w, points, scales, 16)).all()
        assert "ref_int8:any" in "; ".join(r.dispatch["reason"])


@FEW
def test_dynamic_quantization_feeds_every_strategy(machine: str) -> None:
    """Asymmetric u8 by token, reductions by weights group, straight into the product."""
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(5, 128)).astype(np.float32), whole("s8", (128, 16), rng)
    points, scale = whole("s8", (4, 16), rng), rng.random((4, 16), np.float32)
    near = x @ ((w.astype(int) - by_k(points, 0, 128)) * by_k(scale, 0, 128))
    q = simdnn.quantize_dynamic(x, "u8", symmetric=False, reductions=32, machine=machine)
    outputs = []
    for strategy in (*EXACT, "upconvert"):
        attr = q.attr(scales={"wei": scale}, zero_points={"wei": points}, check=True, zero_point_strategy=strategy)
        assert {*attr.scales} == {*attr.zero_points} == {"src", "wei"} and attr.precomputed_reductions
        outputs.append(simdnn.matmul(q.output, w, machine=machine, attr=attr).output)
    assert all((output == outputs[0]).all() for output in outputs)
    assert np.abs(outputs[0] - near).max() < 0.02 * np.abs(near).max()


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("n", [3, 8])
def test_relu_of_exact_sums_less_zero_points_by_column(isa: str, n: int) -> None:
    rng = np.random.default_rng(9)
    a, w = whole("s8", (5, 2), rng), whole("s8", (2, n), rng)
    points = {"wei": rng.integers(-9, 9, n).astype(np.int8)}
    exact = expected(a, w, points, {}, 2)
    r = simdnn.matmul(a, w, machine="zen4", isa=isa, attr=Attr(zero_points=points, post_ops=["relu"]))
    assert np.array_equal(r.output, np.maximum(exact, 0)) and r.implementation.startswith("ref_int8:")
    r = simdnn.matmul(a, w, machine="zen4", isa=isa, attr=Attr(zero_points=points, scales={"wei": 0.5}))
    assert (r.output == (exact * np.float32(0.5)).astype(np.float32)).all()


@pytest.mark.parametrize("strategy", [*EXACT, "upconvert"])
@pytest.mark.parametrize(("machine", "steps"), [("zen4", ("vmulps",)), ("b580", ("mul.f32", "dpas"))])
def test_explained(machine: str, steps: tuple[str, ...], strategy: str) -> None:
    rng = np.random.default_rng(6)
    a, w = whole("u8", (2, 64), rng), whole("s8", (64, 4), rng)
    points, scales = {"wei": whole("s8", (2, 4), rng), "src": 3}, {"src": rng.random((2, 2), np.float32)}
    reductions = {"src": sums_of(a, 32)}
    attr = Attr(zero_points=points, scales=scales, precomputed_reductions=reductions, zero_point_strategy=strategy)
    r = simdnn.matmul(a, w, machine=machine, attr=attr, engine="reference")
    found = r.explain(1, 2)
    assert found.value == r.output[1, 2] and abs(found.exact - found.value) < 1e-6 * abs(found.value)
    assert all(step in str(found) for step in steps)


@pytest.mark.parametrize("machine", ["zen4", "a770"])
def test_reductions_are_trusted_unless_checked(machine: str) -> None:
    rng = np.random.default_rng(5)
    a, w = whole("u8", (4, 64), rng), whole("s8", (64, 8), rng)
    points, sums = {"wei": np.full((2, 8), 3, np.int32)}, sums_of(a, 32)
    sums[2, 1] += 7
    attr = Attr(zero_points=points, precomputed_reductions={"src": sums}, zero_point_strategy="precomputed")
    exact = expected(a, w, points, {}, 64)
    exact[2] -= 3 * 7
    assert (simdnn.matmul(a, w, machine=machine, attr=attr).output == exact).all()
    with pytest.raises(InvalidArgument, match=r"\[2, 1\] is .* \(1 of 8 entries"):
        checked = Attr(zero_points=points, precomputed_reductions={"src": sums}, check=True)
        simdnn.matmul(a, w, machine=machine, attr=checked)


@FEW
def test_any_memory_layout_of_reductions(machine: str) -> None:
    rng = np.random.default_rng(2)
    a, w = whole("u8", (4, 64), rng), whole("s8", (64, 8), rng)
    sums, points = sums_of(a, 32), {"wei": np.full((2, 8), 3, np.int32)}
    for given_sums in (sums[::-1].copy()[::-1], np.asfortranarray(sums), sums.astype(">i4")):
        given_sums.setflags(write=False)
        attr = Attr(zero_points=points, precomputed_reductions={"src": given_sums}, check=True)
        r = simdnn.matmul(a, w, machine=machine, attr=attr, engine="reference")
        assert (r.output == expected(a, w, points, {}, 64)).all()


@FEW
def test_what_a_result_tells_of_them(machine: str) -> None:
    rng = np.random.default_rng(3)
    a, w = whole("u8", (4, 64), rng), whole("s8", (64, 8), rng)
    attr = Attr(zero_points={"wei": np.zeros((2, 8), np.int32)}, scales={"wei": np.ones((2, 8), np.float32)})
    r = simdnn.matmul(a, w, machine=machine, attr=attr, engine="reference")
    told = json.loads(r.to_json())
    assert told["zero_points"].startswith("wei by 32") and "wei by 32" in told["group_scales"]
    assert "wei by 32" in r._repr_html_() and len(r.to_frame()) == 1


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
