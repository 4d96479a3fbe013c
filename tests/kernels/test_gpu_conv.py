"""Convolution on GPUs: floats as the product of pixels and taps, depthwise, groups, costs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names
from simdnn import Attr
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.gpu.implicit import pixels
from tests.effort import examples, one_in
from tests.primitives.problems import exact_sums

Array = np.ndarray[Any, np.dtype[Any]]
INTEL = [name for name in gpu_machine_names() if not gpu_machine(name).nvidia]
SIDES = st.tuples(*[st.integers(0, 2)] * 4)


def options(p: ConvProblem) -> dict[str, Any]:
    return {"strides": p.strides, "padding": p.padding, "dilation": p.dilation, "groups": p.groups}


@pytest.mark.parametrize(
    "name,dtype",
    [("dg1", "f16"), ("a770", "f32"), ("b580", "bf16"), ("max1550", "f16"), ("v100", "f16"), ("v100", "f32")],
)
def test_floats_are_the_matmul_of_pixels_and_taps(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    p = ConvProblem(2, 6, 7, 9, 8, 3, 2, dtype, dtype, Epilogue(), (2, 1), (1, 2, 0, 1), (1, 2), 2)
    x = rng.standard_normal((2, 6, 7, 9)).astype(fmt(dtype).dtype)
    w = rng.standard_normal((8, 3, 3, 2)).astype(fmt(dtype).dtype)
    bias = rng.standard_normal(8).astype(np.float32)
    attr = Attr(post_ops=["relu"])
    found, again = (
        simdnn.convolution(x, w, bias, machine=name, dst="f16", attr=attr, engine=engine, **options(p))
        for engine in ("compiled", "reference")
    )
    assert found.output.tobytes() == again.output.tobytes()
    assert found.implementation.startswith("conv:") and found.problem.macs == p.macs
    for group, rows in enumerate(pixels(p, x)):
        own = slice(4 * group, 4 * group + 4)
        taps = np.ascontiguousarray(w[own].transpose(2, 3, 1, 0).reshape(-1, 4))
        product = simdnn.matmul(np.ascontiguousarray(rows), taps, bias[own], machine=name, dst="f16", attr=attr).output
        assert (found.output[:, own].transpose(0, 2, 3, 1).reshape(-1, 4) == product).all()


@given(
    st.sampled_from(gpu_machine_names()),
    st.sampled_from(["f32", "f16", "u8", "s8"]),
    st.integers(2, 70),
    st.tuples(*[st.integers(1, 5)] * 2),
    st.tuples(*[st.integers(1, 5)] * 2),
    st.tuples(*[st.integers(1, 2)] * 2),
    SIDES,
    st.integers(0, 9),
    st.sampled_from(["compiled", "reference"]),
)
@examples(40)
def test_depthwise(
    name: str,
    src: str,
    channels: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[int, int, int, int],
    zero: int,
    engine: str,
) -> None:
    floating = fmt(src).is_float
    if name in ("v100", "titan_xp") and not floating:
        src, floating = "f16", True
    sides = [(k - 1) * d + 1 + n for k, d, n in zip(kernel, dilation, (5, 9), strict=True)]
    types = (src, src if floating else "s8")
    p = ConvProblem(2, channels, *sides, channels, *kernel, *types, Epilogue(), strides, padding, dilation, channels)
    rng = np.random.default_rng(channels)
    x, w = (
        (rng.integers(0, 100, s) - 50 * (t != "u8")).astype(fmt(t).dtype)
        for s, t in (((2, channels, *sides), src), ((channels, 1, *kernel), types[1]))
    )
    attr = Attr(zero_points={} if floating or not zero else {"src": zero})
    found = simdnn.convolution(x, w, machine=name, attr=attr, engine=engine, **options(p))
    assert found.implementation.endswith("_depthwise")
    assert (found.output == exact_sums(p, x, w, 0 if floating else zero)).all()  # small integers: exact in floats, too


@one_in(2)
@pytest.mark.parametrize("name", ["dg1", "a770"])
def test_depthwise_with_more_formulas_than_registers(name: str) -> None:
    """Vectors are narrower then: the bits are those of halves of the channels, which have narrow vectors anyway."""
    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 32, 5, 6), (32, 1, 3, 3)))
    attr = Attr(post_ops=["gelu_erf", "mish", "gelu_erf", "tanh"])
    whole, *halves = (
        simdnn.convolution(x[:, some], w[some], machine=name, attr=attr, groups=w[some].shape[0])
        for some in (slice(None), slice(16), slice(16, None))
    )
    assert whole.implementation.endswith("_depthwise")
    assert (whole.output == np.concatenate([half.output for half in halves], axis=1)).all()


@pytest.mark.parametrize(
    ("machines", "channels", "groups"), [(("dg1", "a770", "b580"), (8, 12), 4), (("b580",), (40, 40), 40)]
)
def test_requantized_to_u8_by_channel(machines: tuple[str, ...], channels: tuple[int, int], groups: int) -> None:
    rng = np.random.default_rng(4)
    ic, oc = channels
    p = ConvProblem(1, ic, 6, 6, oc, 3, 3, "u8", "s8", Epilogue(), padding=(1, 1, 1, 1), groups=groups)
    x = rng.integers(0, 256, (1, ic, 6, 6)).astype(np.uint8)
    w = rng.integers(-128, 128, (oc, ic // groups, 3, 3)).astype(np.int8)
    bias, scale = rng.standard_normal(oc).astype(np.float32), rng.random(oc).astype(np.float32) / 100
    scales = {"src": np.float32(0.5), "wei": scale, "dst": np.float32(2)}
    attr = Attr(scales=scales, zero_points={"src": 7, "dst": 3}, post_ops=["relu"])
    sums = exact_sums(p, x, w, 7).astype(np.float32) * np.float32(0.5) * scale[:, None, None] + bias[:, None, None]
    expected = np.clip(np.rint(np.maximum(sums, 0) * np.float32(0.5) + 3), 0, 255)
    for name in machines:
        found = simdnn.convolution(x, w, bias, machine=name, dst="u8", attr=attr, **options(p))
        assert found.implementation.endswith("_depthwise") == (groups == ic == oc)
        assert found.output.dtype == np.uint8 and (found.output == expected).all()


def test_depthwise_is_cheaper_than_the_bytes_of_a_view() -> None:
    sizes = {"ic": 512, "ih": 14, "iw": 14, "oc": 512, "kh": 3, "kw": 3, "padding": 1, "groups": 512, "mb": 64}
    with simdnn.cold_weights():
        cost = simdnn.estimate("convolution", dt="f16", machine="b580", **sizes)
    least = 2 * 2 * 64 * 512 * 14 * 14
    assert least < cost.traffic.set_index("level").loc["DRAM"][["read_bytes", "written_bytes"]].sum() < 1.5 * least
    assert cost.seconds < 3 * least / 456e9


@pytest.mark.parametrize("name", INTEL)
def test_all_that_follows_the_sums_leaves_room_in_the_registers(name: str) -> None:
    scales = {"src": 0.5, "wei": np.ones(16, np.float32), "dst": 0.5}
    attr = Attr(scales=scales, zero_points={"src": 128, "dst": 3}, post_ops=["relu"])
    for ic, side in ((3, 640), (64, 20)):
        found = simdnn.estimate(
            "convolution",
            ic=ic,
            ih=side,
            iw=side,
            oc=16,
            kh=3,
            kw=3,
            strides=2,
            padding=1,
            bias=True,
            dt="u8:s8:u8",
            attr=attr,
            machine=name,
        )
        assert found.kernel.program.signature  # verified, its registers too


RES3 = {"ic": 128, "ih": 28, "iw": 28, "oc": 128, "kh": 3, "kw": 3, "padding": 1, "mb": 16}


@pytest.mark.parametrize("name", INTEL)
def test_cost_is_above_the_rates_and_near_that_of_the_product(name: str) -> None:
    gpu = gpu_machine(name)
    found = simdnn.estimate("convolution", dt="u8:s8:s32", machine=name, **RES3)
    rate = gpu.peak_ops("dp4a" if name == "dg1" else "s8")
    product = simdnn.estimate("matmul", m=16 * 28 * 28, n=128, k=9 * 128, dt="u8:s8:s32", machine=name)
    assert 2 * found.problem.macs / rate < found.seconds <= 1.05 * product.seconds
    zero = simdnn.estimate("convolution", dt="u8:s8:s32", machine=name, attr=Attr(zero_points={"src": 3}), **RES3)
    assert found.cycles < zero.cycles < 1.5 * found.cycles


def test_the_source_counts_once_in_memory() -> None:
    with simdnn.cold_weights():
        found = simdnn.estimate("convolution", dt="f16", machine="b580", **{**RES3, "mb": 64})
    dram = found.traffic.set_index("level").loc["DRAM"]
    assert dram.read_bytes < 1.3 * 2 * (64 * 128 * 28 * 28 + 9 * 128 * 128)


def test_an_element_is_explained() -> None:
    x, w = np.arange(32, dtype=np.int8).reshape(1, 2, 4, 4), np.ones((3, 2, 2, 2), np.int8)
    found = simdnn.convolution(x, w, machine="b580")
    assert f"value {found.output[0, 1, 2, 1]}" in str(found.explain(0, 1, 2, 1))


@one_in(2)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_images_of_both_types_of_f8(dtype: str) -> None:
    """NumPy has no views by strides of one of them."""
    src, weights = (np.ones(shape, getattr(ml_dtypes, dtype)) for shape in ((1, 16, 5, 6), (16, 16, 3, 3)))
    r = simdnn.convolution(src, weights, padding=1, machine="h100", dst="f32")
    assert r.output[0, 0, 0, 0] == 4 * 16 and r.output[0, 0, 2, 2] == 9 * 16
