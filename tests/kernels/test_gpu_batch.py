"""Batches of products on GPUs: each product's bits, what is shared read once, networks' attention in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from simdnn import Attr
from tests.effort import examples

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    form = fmt(dtype)
    if form.is_float:
        return rng.standard_normal(shape).astype(form.dtype)
    return rng.integers(form.low, form.high + 1, shape).astype(form.dtype)


SIZES = st.lists(st.sampled_from([(1, 1), (2, 2), (3, 3), (1, 3), (2, 1)]), max_size=3)
CASES = [("b580", "f16"), ("a770", "s8"), ("max1550", "f32"), ("dg1", "bf16"), ("v100", "f16"), ("v100", "f32")]


@given(SIZES, st.integers(0, 2), st.sampled_from(CASES), st.integers(1, 20), st.integers(1, 40), st.integers(1, 40))
@examples(30)
def test_products_have_the_bits_that_they_have_alone(
    sizes: list[tuple[int, int]], short: int, case: tuple[str, str], m: int, n: int, k: int
) -> None:
    machine, dtype = case
    rng = np.random.default_rng([m, n, k])
    src = drawn(dtype, (*(a for a, _ in sizes[short:]), m, k), rng)
    wei = drawn(dtype, (*(b for _, b in sizes), k, n), rng)
    bias = drawn("f32", (n,), rng) if dtype != "s8" else None
    attr = Attr(post_ops=["relu"])
    for engine in ("compiled", "reference"):
        found = simdnn.matmul(src, wei, bias, machine=machine, attr=attr, engine=engine)
        outer = np.broadcast_shapes(src.shape[:-2], wei.shape[:-2])
        assert found.output.shape == (*outer, m, n) and found.problem.macs == found.output.size * k
        whole = np.broadcast_to(src, (*outer, m, k)), np.broadcast_to(wei, (*outer, k, n))
        for place in [tuple(0 for _ in outer), tuple(size - 1 for size in outer)]:
            alone = simdnn.matmul(whole[0][place], whole[1][place], bias, machine=machine, attr=attr, engine=engine)
            assert found.output[place].tobytes() == alone.output.tobytes()


@pytest.mark.parametrize("strategy", ["direct", "in_kernel", "bias", "upconvert"])
def test_integers_with_zero_points_and_scales_by_token(strategy: str) -> None:
    rng = np.random.default_rng(1)
    a, b = drawn("u8", (2, 1, 5, 40), rng), drawn("s8", (1, 3, 40, 9), rng)
    points = {"src": rng.integers(0, 9, (5, 1)), "wei": rng.integers(-4, 4, 9)}
    scales = {"src": rng.random((5, 1)).astype("f4"), "wei": rng.random(9).astype("f4")}
    attr = Attr(zero_points=points, scales=scales, zero_point_strategy=strategy)
    found = simdnn.matmul(a, b, machine="b580", attr=attr).output
    sums = (a.astype(int) - points["src"]) @ (b.astype(int) - points["wei"])
    assert np.array_equal(found, sums.astype("f4") * scales["src"] * scales["wei"])


def test_what_is_as_large_as_the_output_is_each_products_own() -> None:
    rng = np.random.default_rng(2)
    a, b = drawn("s8", (3, 5, 32), rng), drawn("s8", (3, 32, 9), rng)
    before, full = rng.integers(-99, 99, (2, 3, 5, 9)).astype("f4")
    attr = Attr(post_ops=[("sum", 0.5), ("add", full)])
    found = simdnn.matmul(a, b, machine="a770", dst="f32", attr=attr, into=before)
    assert (found.output == (a.astype(int) @ b.astype(int)).astype("f4") + before / 2 + full).all()
    assert found.explain(2, 4, 8).value == found.output[2, 4, 8]


def test_one_matrix_of_weights_makes_rows_of_a_single_product() -> None:
    a, b = np.ones((2, 3, 5, 16), np.float16), np.ones((1, 16, 8), np.float16)
    found = simdnn.matmul(a, b, machine="b580")
    assert found.output.shape == (2, 3, 5, 8) and (found.problem.m, found.problem.batch.count) == (30, 1)
    one = simdnn.estimate("matmul", m=30, n=8, k=16, dt="f16:f16:f32", machine="b580")
    assert found.cycles == one.cycles
    asked = simdnn.estimate("matmul", m=5, n=8, k=16, src_batch=(2, 3), dt="f16:f16:f32", machine="b580")
    assert asked.cycles == one.cycles


@pytest.mark.parametrize("machine", ["b580", "a770", "v100"])
def test_a_batch_costs_less_than_its_products_and_no_less_than_its_bytes(machine: str) -> None:
    sizes: dict[str, Any] = {"m": 128, "n": 128, "k": 64, "dt": "f16", "machine": machine}
    own = simdnn.estimate("matmul", src_batch=48, wei_batch=48, **sizes)
    alone = simdnn.estimate("matmul", **sizes)
    assert alone.cycles < own.cycles < 0.5 * 48 * alone.cycles
    with simdnn.cold_weights():
        shared = simdnn.estimate("matmul", src_batch=(4, 12), wei_batch=(4, 1), **sizes)
        apart = simdnn.estimate("matmul", src_batch=48, wei_batch=48, **sizes)
    read = [found.traffic.set_index("level").loc["DRAM", "read_bytes"] for found in (shared, apart)]
    assert read[1] >= 2 * 48 * 128 * 64 * 2 and read[0] <= read[1] - 44 * 128 * 64 * 2 * 0.9
    assert 2 * shared.problem.macs / shared.seconds <= gpu_machine(machine).peak_ops("f16")


@pytest.mark.parametrize(
    ("error", "message", "src", "wei", "options"),
    [
        (InvalidArgument, "does not broadcast", (2, 4, 8), (3, 8, 6), {}),
        (InvalidArgument, "K 8 != 7", (2, 4, 8), (2, 7, 6), {}),
        (InvalidArgument, "is empty", (0, 4, 8), (1, 8, 6), {}),
        (InvalidArgument, "2 to 12 dimensions", (1,) * 11 + (4, 8), (2, 8, 6), {}),
        (InvalidArgument, "2 to 12 dimensions", (8,), (2, 8, 6), {}),
        (Unimplemented, "on a CPU", (2, 4, 8), (2, 8, 6), {"machine": "zen4"}),
        (
            Unimplemented,
            "of a batch",
            (2, 4, 8),
            (2, 8, 6),
            {"attr": Attr(zero_points={"wei": 1}, precomputed_reductions={"src": np.zeros((4, 1), np.int32)})},
        ),
        (
            InvalidArgument,
            r"needed: \(2, 4, 6\)",
            (2, 4, 8),
            (2, 8, 6),
            {"attr": Attr(post_ops=["sum"]), "into": np.zeros((4, 6), np.int32)},
        ),
    ],
)
def test_refusals(
    error: type[SimdnnError], message: str, src: tuple[int, ...], wei: tuple[int, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(error, match=message) as caught:
        simdnn.matmul(np.ones(src, np.int8), np.ones(wei, np.int8), **{"machine": "a770", **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("machine", ["skx", "zen4", "b580"])
@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 1, 3, 8), (1, 4, 8)])
def test_products_with_one_matrix_of_weights_are_rows_of_one(machine: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    src, wei = rng.integers(0, 256, shape).astype(np.uint8), rng.integers(-128, 128, (8, 5)).astype(np.int8)
    flat = src.reshape(-1, 8)
    scales = {"src": rng.random((len(flat), 1)).astype(np.float32)}
    more = rng.random((*shape[:-1], 5)).astype(np.float32)
    for attr in (Attr(), Attr(scales=scales), Attr(post_ops=[("add", more)])):
        plain = Attr(post_ops=[("add", more.reshape(-1, 5))]) if attr.post_ops else attr
        found, one = (simdnn.matmul(a, wei, machine=machine, attr=x) for a, x in ((src, attr), (flat, plain)))
        assert found.output.shape == (*shape[:-1], 5) and (found.output.reshape(-1, 5) == one.output).all()
        assert found.cycles == one.cycles and found.implementation == one.implementation
        if found.saturation is not None:
            assert found.saturation.shape == found.output.shape and found.saturation.sum() == one.saturation.sum()
    first, named = (0,) * len(shape), ",".join("0" * len(shape))
    assert str(found.explain(*first)).replace(f"dst[{named}]", "dst[0,0]") == str(one.explain(0, 0))
    sizes: dict[str, Any] = {"m": shape[-2], "n": 5, "k": 8, "dt": "u8:s8:s32", "src_batch": shape[:-2]}
    assert simdnn.estimate("matmul", machine=machine, **sizes).problem.m == len(flat)


def test_estimates_take_sizes_in_front_and_refuse_what_is_none() -> None:
    for bad in (0, "2", (2, -1), 1.5):
        with pytest.raises(InvalidArgument, match="src_batch"):
            simdnn.estimate("matmul", m=2, n=2, k=2, src_batch=bad, dt="f16", machine="b580")  # type: ignore[arg-type]
    with pytest.raises(Unimplemented, match="on a CPU"):
        simdnn.estimate("matmul", m=2, n=2, k=2, src_batch=3, wei_batch=3, machine="zen4")
