"""Weights stored as floats of at most a byte, made wider ones on GPUs: the bits of products of what they stand for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.formats import decode, fmt
from simdnn import Attr, Quant
from simdnn.kernels.common.narrow_floats import NARROW
from tests.effort import one_in

Array = np.ndarray[Any, np.dtype[Any]]
GPUS = ("b580", "a770", "max1550", "dg1", "v100", "titan_xp")
SCALES = ("e8m0", "f8_e4m3", "f32", "bf16", "f16")
M, K, N, GROUP = 3, 64, 20, 32
RNG = np.random.default_rng(3)


def codes(dtype: str, finite: bool = True) -> Array:
    """Weights in which every code of a type stands, but those of NaN and infinity where `finite`."""
    every = np.arange(1 << fmt(dtype).bits, dtype=np.uint8)
    every = every[np.isfinite(decode(every, dtype))] if finite else every
    return np.resize(RNG.permutation(every), K * N).reshape(K, N).view(fmt(dtype).dtype)


def source(dtype: str) -> Array:
    return RNG.standard_normal((M, K)).astype(fmt(dtype).dtype)


def table(dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "e8m0":
        return np.exp2(RNG.integers(-4, 4, shape)).astype(ml_dtypes.float8_e8m0fnu)
    return RNG.uniform(0.2, 3, shape).astype(fmt(dtype).dtype)


def ready(w: Array, scale: Array | None) -> Array:
    """Weights as they are multiplied, before they are rounded: decoded, times their scale in f32."""
    wide = w.astype(np.float32)
    return wide if scale is None else wide * np.repeat(scale.astype(np.float32), GROUP, 0)


@one_in(3, "name")
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("wei", NARROW)
def test_products_are_those_of_decoded_weights(name: str, wei: str) -> None:
    """By every row of the table that takes them; types of source and scales take turns."""
    turn = GPUS.index(name) + NARROW.index(wei)
    sources = ("f32", "f16") if name in ("v100", "titan_xp") else ("f32", "bf16", "f16")
    src, kind = sources[turn % len(sources)], (*SCALES, "")[turn % 6]
    x, w, scale = source(src), codes(wei), table(kind, (K // GROUP, N)) if kind else None
    scales = {} if scale is None else {"wei": Quant(scale, mask=3, groups=(GROUP, 1), dtype=kind)}
    attr = Attr(fpmath="any", scales=scales)
    results = [simdnn.matmul(x, w, machine=name, attr=attr, engine="reference")]
    others = results[0].dispatch.dropna(subset=["cycles"]).implementation[1:]
    results += [simdnn.matmul(x, w, machine=name, attr=attr, dispatch=k, engine="reference") for k in others]
    if wei == "f8_e4m3":
        results.append(simdnn.matmul(x, w, machine=name, attr=attr, engine="compiled"))
    for r in results:
        with np.errstate(over="ignore"):
            as_floats = [v.astype(fmt(r.compute_dtype).dtype) for v in (x.astype(np.float32), ready(w, scale))]
        wanted = simdnn.matmul(*as_floats, machine=name, engine="reference").output
        assert np.array_equal(r.output, wanted, equal_nan=True), (r.implementation, src, kind)


@pytest.mark.parametrize(("name", "src"), [(name, src) for name in GPUS for src in ("f32", "f16")])
@pytest.mark.parametrize("wei", NARROW)
def test_every_code_is_its_value(name: str, src: str, wei: str) -> None:
    """A product with 1 shows each weight itself: NaN and infinity, too, and the sign of zero but for sums from +0."""
    every = np.arange(1 << fmt(wei).bits, dtype=np.uint8).reshape(1, -1)
    attr = Attr(
        scales={"wei": Quant(np.ones((1, every.size), np.float32), mask=3, groups=(1, 1))} if src == "f32" else {}
    )
    one = np.ones((1, 1), fmt(src).dtype)
    found = simdnn.matmul(one, every.view(fmt(wei).dtype), machine=name, attr=attr, engine="reference")
    assert np.array_equal(found.output, decode(every, wei), equal_nan=True)


@one_in(3, "name")
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("kind", ["mxfp8", "mxfp6", "mxfp4", "nvfp4"])
def test_blocks_multiply_as_they_dequantize(name: str, kind: str) -> None:
    x, w = source("f16"), RNG.standard_normal((K, N)).astype(np.float32)
    dtype = {"mxfp8": "f8_e4m3", "mxfp6": "f6_e3m2", "mxfp4": "f4_e2m1"}.get(kind)
    q = simdnn.quantize_mx(w, dtype, axis=0) if dtype else simdnn.quantize_nvfp4(w, axis=0)
    found = simdnn.matmul(x, q.output, machine=name, attr=q.attr("wei"))
    np.testing.assert_allclose(found.output, x.astype(np.float32) @ q.dequantize(), rtol=2e-3, atol=2e-3)
    estimate = simdnn.estimate("matmul", m=M, n=N, k=K, dt=f"f16:{q.dtype}:f32", machine=name, attr=q.attr("wei"))
    assert found.cycles == estimate.cycles > 0


@pytest.mark.parametrize("name", ["b580", "v100"])
def test_batches_and_parameters_of_the_sums(name: str) -> None:
    """A batch of products with narrow weights, a scale by column, a bias and relu."""
    x = RNG.standard_normal((2, M, K)).astype(np.float16)
    w = np.stack([codes("f8_e4m3"), codes("f8_e4m3")])
    scale, bias = table("f32", (N,)), RNG.standard_normal(N).astype(np.float32)
    attr = Attr(scales={"wei": scale, "src": 0.5}, post_ops=["relu"])
    found = simdnn.matmul(x, w, bias, machine=name, attr=attr)
    for i in range(2):
        one = simdnn.matmul(x[i], w[i].astype(np.float16), machine=name, engine="reference").output
        wanted = np.maximum((one * np.float32(0.5)) * scale + bias, 0)
        assert found.output[i].tobytes() == wanted.tobytes()


def test_fewer_bits_are_less_traffic() -> None:
    sizes = {"m": 1, "n": 4096, "k": 4096, "machine": "b580"}
    eight, four = (simdnn.estimate("matmul", dt=f"bf16:{dt}:bf16", **sizes) for dt in ("f8_e4m3", "f4_e2m1"))
    assert four.cycles < eight.cycles < simdnn.estimate("matmul", dt="bf16", **sizes).cycles


@pytest.mark.parametrize(
    ("machine", "src", "wei", "told"),
    [
        ("b580", "f8_e4m3", "f8_e4m3", "bf16:bf16"),
        ("v100", "f8_e4m3", "f8_e4m3", "f16:f16"),
        ("v100", "bf16", "f8_e4m3", "what works: f16, f32"),
        ("a770", "f32", "f8_e4m3", "integers alone have them"),
    ],
)
def test_what_nobody_computes_names_what_works(machine: str, src: str, wei: str, told: str) -> None:
    attr = Attr(zero_points={"wei": 1} if "alone" in told else {})
    with pytest.raises(simdnn.SimdnnError) as error:
        simdnn.matmul(source(src), codes(wei), machine=machine, attr=attr)
    assert told in str(error.value)
