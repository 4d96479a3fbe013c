"""Compressed weights: all engines agree; the result is (w - zero point) * scale times the source, within rounding."""

from __future__ import annotations

import zlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from isa_models.formats import fmt
from isa_models.machines.loader import cpu_machine as machine
from isa_models.readings.arrays import Array
from simdnn.kernels import Epilogue, KernelKind, MatmulProblem, Parameters
from simdnn.kernels.common.epilogue import Decompression
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.x86.dots import F16_CHAIN
from simdnn.kernels.x86.rows import KERNELS
from tests.effort import examples
from tests.kernels.test_engines import run_all

KINDS = [kind for kind in KERNELS if kind.name.startswith("wdec") and "s8" in kind.weights]
ZERO_POINTS = ("s8", "u8", "s4", "u4", "s32")


def drawn(rng: np.random.Generator, dtypes: tuple[str, ...], groups: list[int]) -> Param | None:
    kind = str(rng.choice(["", "common", "per_oc", "grouped"]))
    grouped = kind == "grouped"
    group, shared = (int(rng.choice(groups)), bool(rng.random() < 0.3)) if grouped else (0, False)
    columns = int(kind != "common" and not shared)
    return Param("wei", group, columns, str(rng.choice(dtypes))) if kind else None


def values(rng: np.random.Generator, p: Param | None, k: int, n: int) -> Array | None:
    """A parameter in the shape that it asks for, exact in its stored type."""
    if p is None:
        return None
    grouped = (k // p.group if p.group else 1, n if p.by_channel else 1)
    shape = {"common": (1,), "per_oc": (n,), "grouped": grouped}[p.granularity]
    form = fmt(p.dtype)
    if form.is_float:
        return rng.uniform(0.01, 0.1, shape).astype(np.float32).astype(form.dtype).astype(np.float32)
    return rng.integers(max(form.low, -200), min(form.high, 200) + 1, shape).astype(np.int32)


def expanded(p: Param | None, v: Array | None, k: int, n: int, none: float) -> Array:
    if p is None or v is None:
        return np.full((k, n), none)
    rows = np.asarray(v, np.float64).reshape(-1, v.shape[-1])
    return np.broadcast_to(np.repeat(rows, k // len(rows), axis=0), (k, n))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@examples(10, least=1)
@given(seed=st.integers(0, 2**32 - 1))
def test_decompression(kind: KernelKind, seed: int) -> None:
    rng = np.random.default_rng([seed, zlib.crc32(kind.name.encode())])  # another problem for each kind
    unit = int(rng.choice([1, 2, 3, 5, 6, 16]))
    m, n, k = int(rng.integers(1, 12)), int(rng.integers(1, 70)), unit * 6
    tag = str(rng.choice(["any", "ab", "ba"]))
    wei = str(rng.choice(["s8", "u8", "s4", "u4"]))
    sources = ["f32"] if "avx2" in kind.name else ["f32", "bf16" if kind.compute_dtype == "bf16" else "f16"]
    src = str(rng.choice(sources))
    scale = drawn(rng, ("f32", "bf16", "f16"), [unit, unit * 2, unit * 3])
    zero_point = drawn(rng, ZERO_POINTS, [unit, unit * 2, unit * 3])
    computes = (kind.compute_dtype,)
    d = Decompression(computes, scale, zero_point, kind.name.endswith("_ref"))
    if wei in ("s4", "u4") and n > 1 and tag != "any":
        n, k, unit = (n + n % 2, k, unit) if tag == "ab" else (n, k + k % 2 * k, unit)
    scaled = bool(rng.random() < 0.5)
    epilogue = Epilogue("f32", bias=True, src_scale=scaled, post_ops=(RELU,) if scaled else (), dst_scale=scaled)
    problem = MatmulProblem(m, n, k, src, wei, epilogue, tag, d)
    assume("fused" not in kind.name or not kind.accepts(problem))  # it is choosy
    assert kind.accepts(problem) == ""
    kernel = kind.build(problem, machine("zen4"))
    a = rng.standard_normal((m, k)).astype(np.float32).astype(fmt(src).dtype)
    w = rng.integers(fmt(wei).low, fmt(wei).high + 1, (k, n))
    scales, zeros = values(rng, scale, k, n), values(rng, zero_point, k, n)
    bias = rng.standard_normal(n).astype(np.float32)
    p = Parameters(bias=bias, wei_scale=scales, wei_zero_points=zeros, src_scale=1.25, dst_scale=2.0)
    out = run_all(kernel, a, w.astype(fmt(wei).dtype), p)
    real = (w - expanded(zero_point, zeros, k, n, 0)) * expanded(scale, scales, k, n, 1)
    real = real * 1.25 if scaled else real
    products = np.abs(a.astype(np.float64)) @ np.abs(real)
    exact = a.astype(np.float64) @ real + bias
    error = np.abs(out - (np.maximum(exact, 0) / 2 if scaled else exact))
    unit_roundoff = {"bf16": 2.0**-8, "f16": F16_CHAIN * 2.0**-11}.get(kind.compute_dtype, 2.0**-23)
    assert (error <= 3 * unit_roundoff * products + 2.0**-22 * k * products + 1e-5).all()


def test_f32_data_rounded_to_bf16_are_what_bf16_data_give() -> None:
    rng = np.random.default_rng(0)
    kinds = {kind.name: kind for kind in KERNELS}
    bf16 = ml_dtypes.bfloat16
    for m, n, k in ((5, 40, 33), (1, 16, 7)):
        a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
        stored = MatmulProblem(m, n, k, "bf16", "bf16", Epilogue("f32"))
        kernel = kinds["gemm:avx512_core_bf16"].build(stored, machine("zen4"))
        expected = run_all(kernel, a.astype(bf16), b.astype(bf16), Parameters(), portable=m == 1)
        for tag in ("any", "ab"):
            problem = MatmulProblem(m, n, k, "f32", "f32", Epilogue("f32"), tag)
            kernel = kinds["gemm:avx512_core_bf16_down"].build(problem, machine("zen4"))
            assert (run_all(kernel, a, b, Parameters(), portable=m == 1) == expected).all()
