"""Quantization on the fly: bits against the formulas in NumPy, what feeds matmul, refusals, cost."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from isa_models.machines.loader import gpu_machine
from simdnn import Attr
from simdnn.kernels.common.dynamic import Dynamic
from simdnn.kernels.intel_gpu.dynamic import GpuQuantization
from tests.effort import examples

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def formulas(src: Array, dtype: str, group: int, symmetric: bool) -> tuple[Array, Array, Array, Array]:
    """Outputs, scales, zero points and sums as the docstring of `quantize_dynamic` has them."""
    x = src.astype(F32).reshape(len(src), -1, group)
    levels = F32(127 if symmetric and dtype == "s8" else 255)
    low, high = np.minimum(x.min(axis=2), F32(0)), np.maximum(x.max(axis=2), F32(0))
    span = np.abs(x).max(axis=2) if symmetric else high - low
    scale = np.maximum(span, levels * F32(2.0**-126)) / levels
    inverse = F32(1) / scale
    steps = np.zeros_like(low) if symmetric else np.rint(low * inverse)
    zero = np.zeros_like(low) if symmetric else (-128 if dtype == "s8" else 0) - steps
    scaled = x * inverse[:, :, None]
    if not symmetric:
        scaled = np.minimum(scaled, (steps + F32(255))[:, :, None])
    q = (np.rint(scaled) + zero[:, :, None]).astype(np.int64)
    assert q.min() >= (-128 if dtype == "s8" else 0) and q.max() <= (127 if dtype == "s8" else 255)
    return q.reshape(src.shape).astype("i1" if dtype == "s8" else "u1"), scale, zero.astype(np.int32), q.sum(axis=2)


def source(rng: np.random.Generator, m: int, k: int, kind: str, dtype: str) -> Array:
    """Rows of different magnitudes, from 2**-160 (zeros and subnormals) up to 2**120 in f32."""
    values = rng.normal(size=(m, k)) + rng.choice([-3.0, 0.0, 3.0], (m, 1))
    reach = (-160, 120) if kind == "wild" else (-3, 4)
    if dtype == "f16":
        reach = (max(reach[0], -26), min(reach[1], 12))
    values = np.ldexp(values, rng.integers(*reach, (m, 1)))
    if kind == "ties":
        values = rng.integers(-127, 128, (m, k)) / 2
    if kind == "constant":
        values = np.broadcast_to(values[:, :1], (m, k))
    values = np.where(rng.random((m, k)) < 0.2, 0.0, values)
    return values.astype(F32).astype(TYPES[dtype])


def checked(a: Array, dtype: str, group: int, symmetric: bool, sums: bool, **where: Any) -> Any:
    """`a` quantized, held against the formulas; symmetric u8 takes magnitudes."""
    a = np.abs(a) if symmetric and dtype == "u8" else a
    q = simdnn.quantize_dynamic(a, dtype, group=group, symmetric=symmetric, reductions=sums, **where)
    output, scales, zeros, reductions = formulas(a, dtype, group, symmetric)
    assert q.output.dtype == output.dtype and (q.output == output).all() and (q.scales == scales).all()
    assert q.zero_points is None if symmetric else (q.zero_points == zeros).all()
    assert (q.reductions == reductions).all() if sums else q.reductions is None
    return q


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.one_of(st.integers(1, 70), st.sampled_from([96, 128, 200])),
    st.sampled_from([*TYPES]),
    st.sampled_from(["s8", "u8"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["plain", "wild", "ties", "constant"]),
    st.sampled_from(["avx512_core", "avx2"]),
    st.sampled_from(["compiled", "reference", "reference"]),
    st.integers(0),
)
@examples(60)
def test_bits(
    m: int,
    parts: int,
    group: int,
    src: str,
    dtype: str,
    symmetric: bool,
    sums: bool,
    kind: str,
    isa: str,
    engine: str,
    seed: int,
) -> None:
    a = source(np.random.default_rng(seed), m, parts * group, kind, src)
    q = checked(a, dtype, group, symmetric, sums, machine="zen4", isa=isa, engine=engine)
    assert q.isa == isa and q.scales.dtype == np.float32


@given(
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([16, 48, 128, 192, 512]),
    st.sampled_from([*TYPES]),
    st.sampled_from(["s8", "u8"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["plain", "wild", "ties"]),
    st.sampled_from(["b580", "a770", "dg1", "max1550"]),
    st.integers(0),
)
@examples(40)
def test_same_bits_on_gpus(
    m: int,
    parts: int,
    group: int,
    src: str,
    dtype: str,
    symmetric: bool,
    sums: bool,
    kind: str,
    machine: str,
    seed: int,
) -> None:
    a = source(np.random.default_rng(seed), m, parts * group, kind, src)
    assert checked(a, dtype, group, symmetric, sums, machine=machine, engine="reference").cycles > 0


@pytest.mark.parametrize("reductions", [0, 64, 512, 4096])
@pytest.mark.parametrize("machine", ["b580", "dg1"])
def test_a_workgroup_shares_a_long_group(reductions: int, machine: str) -> None:
    gpu = gpu_machine(machine)
    a = source(np.random.default_rng(7), 2, 4096, "plain", "f32")
    q = simdnn.quantize_dynamic(a, "u8", symmetric=False, reductions=reductions or False, machine=machine)
    output, scales, zeros, _ = formulas(a, "u8", 4096, False)
    assert (q.output == output).all() and (q.scales == scales).all() and (q.zero_points == zeros).all()
    if reductions:
        sums = output.astype(int).reshape(2, -1, reductions).sum(axis=2)
        assert q.reductions is not None and (q.reductions == sums).all()
    found = GpuQuantization(Dynamic(2, 4096, 4096, "f32", "u8", False, reductions), gpu)
    assert found.pieces in (32, 64) and len(q.program.body) == 3 + (reductions > 4096 // found.pieces)
    few = simdnn.quantize_dynamic(a[:, :512], "u8", symmetric=False, machine=machine)
    assert q.cycles < 2.5 * few.cycles  # eight times the work
    much = GpuQuantization(Dynamic(4096, 256, 256, "f32", "u8", False), gpu)
    assert much.pieces == 1 and len(much.program.body) == 1


def test_compiled_on_a_gpu() -> None:
    a = source(np.random.default_rng(3), 3, 128, "plain", "bf16")
    q = simdnn.quantize_dynamic(a, "u8", symmetric=False, reductions=True, machine="b580", engine="compiled")
    output, _, _, sums = formulas(a, "u8", 128, False)
    assert (q.output == output).all() and (q.reductions == sums).all()


def test_edges() -> None:
    zero = simdnn.quantize_dynamic(np.zeros((1, 5), F32), "u8", symmetric=False, machine="zen4")
    assert not zero.output.any() and zero.scales[0, 0] == 2.0**-126 and zero.zero_points is not None
    assert zero.zero_points[0, 0] == 0
    constant = simdnn.quantize_dynamic(np.full((2, 40), -3, F32), symmetric=False, machine="zen4")
    assert constant.zero_points is not None and (constant.output == -128).all() and constant.zero_points[0, 0] == 127
    ends = np.array([[-(2.0**127), 2.0**127]], F32)
    assert simdnn.quantize_dynamic(ends, machine="zen4").output.tolist() == [[-127, 127]]


@pytest.mark.parametrize("machine", ["zen4", "adl-p", "b580"])
@pytest.mark.parametrize("dtype,symmetric", [("s8", True), ("u8", False)])
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_sums_over_less_than_a_group(machine: str, dtype: str, symmetric: bool, engine: str) -> None:
    a = source(np.random.default_rng(5), 3, 2 * 144, "plain", "bf16")
    q = simdnn.quantize_dynamic(a, dtype, group=144, symmetric=symmetric, reductions=48, machine=machine, engine=engine)
    assert (q.output == formulas(a, dtype, 144, symmetric)[0]).all() and q.reductions is not None
    assert (q.reductions == q.output.astype(int).reshape(3, 6, 48).sum(axis=2)).all()


def test_it_feeds_matmul() -> None:
    """A matmul of quantized sources is near the product in floats; the reductions pass its check."""
    rng = np.random.default_rng(1)
    m, k, n, group = 6, 256, 24, 64
    a = rng.normal(size=(m, k)).astype(F32)
    w, points = rng.integers(-128, 128, (k, n)).astype("i1"), rng.integers(-9, 9, (k // group, n)).astype(np.int32)
    exact = a @ (w.astype(F32) - np.repeat(points, group, axis=0))
    for dtype, symmetric in (("s8", True), ("s8", False), ("u8", False)):
        q = simdnn.quantize_dynamic(a, dtype, group=group, symmetric=symmetric, reductions=True, machine="zen4")
        zeros = {"wei": points} | ({} if q.zero_points is None else {"src": q.zero_points})
        scales = {"src": q.scales, "wei": np.ones(n, F32)}
        attr = Attr(scales=scales, zero_points=zeros, precomputed_reductions={"src": q.reductions}, check=True)
        r = simdnn.matmul(q.output, w, machine="zen4", dst="f32", attr=attr)
        assert np.abs(r.output - exact).max() < 0.02 * np.abs(exact).max()


def test_cost() -> None:
    a = np.ones((8, 1024), F32)
    plain = simdnn.quantize_dynamic(a, machine="zen4")
    summed = simdnn.quantize_dynamic(a, machine="zen4", reductions=True)
    grouped = simdnn.quantize_dynamic(a, group=32, machine="zen4")
    assert 0 < plain.cycles < summed.cycles < grouped.cycles and plain.seconds > 0
    assert simdnn.quantize_dynamic(a, machine="zen4", threads=4).cycles < plain.cycles
    assert plain.confidence in ("measured", "documented", "estimated") and plain.bound


@pytest.mark.parametrize(
    "change,error,message",
    [
        ({"src": np.full((1, 4), np.nan, F32)}, InvalidArgument, r"src\[0, 0\] is nan"),
        ({"src": np.array([[1, -np.inf]], F32)}, InvalidArgument, r"src\[0, 1\] is -inf"),
        ({"src": np.array([[3e38, -3e38]], F32), "symmetric": False}, InvalidArgument, "beyond f32"),
        ({"src": np.array([[1, -1]], F32), "dtype": "u8"}, InvalidArgument, "symmetric=False"),
        ({"src": np.ones((2, 0), F32)}, InvalidArgument, "empty"),
        ({"src": np.ones(4, F32)}, InvalidArgument, "2 dimensions"),
        ({"src": np.ones((2, 4), np.int8)}, InvalidArgument, "floats are quantized"),
        ({"src": [[1.0]]}, InvalidArgument, "NumPy array"),
        ({"dtype": "s4"}, InvalidArgument, "s8, u8"),
        ({"group": 48}, InvalidArgument, "32 does"),
        ({"group": 128}, InvalidArgument, "64 does"),
        ({"src": np.ones((2, 7), F32), "group": 3}, InvalidArgument, "does not divide K=7; 1 does"),
        ({"src": np.ones((2, 6), F32), "group": 5}, InvalidArgument, "does not divide K=6; 3 does"),
        ({"group": 0}, InvalidArgument, "at least 1"),
        ({"reductions": 48}, InvalidArgument, "does not divide a group of 64"),
        ({"reductions": -1}, InvalidArgument, "reductions=-1"),
        ({"reductions": None}, InvalidArgument, "an integer"),
        ({"reductions": "yes"}, InvalidArgument, "an integer"),
        ({"symmetric": "no"}, InvalidArgument, "True or False"),
        ({"isa": "sse41"}, Unimplemented, "avx2"),
        ({"machine": "v100"}, Unimplemented, "Intel GPUs and CPUs work"),
        ({"machine": "b580", "group": 8}, Unimplemented, "multiples of 16"),
        ({"machine": "b580", "threads": 2}, InvalidArgument, "leave it at 1"),
        ({"engine": "fast"}, InvalidArgument, "engine 'fast'"),
    ],
)
def test_refused(change: dict[str, Any], error: type[SimdnnError], message: str) -> None:
    with pytest.raises(error, match=message):
        simdnn.quantize_dynamic(**({"src": np.ones((2, 64), F32), "machine": "zen4"} | change))
