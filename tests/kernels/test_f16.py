"""f16 and tf32 kernels against what they are made of: f32 kernels on rounded data, and f16 sums step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import int4, uint4

import simdnn
from isa_models import cpu_machine
from isa_models.readings.arrays import Array
from simdnn import Attr
from simdnn.kernels import Epilogue, MatmulProblem
from simdnn.kernels.x86 import rows
from simdnn.kernels.x86.dots import F16_CHAIN
from simdnn.timing.estimate import estimate_program
from tests.effort import one_in

F16 = Attr(fpmath="f16")
WIDE = ("avx512_core", "avx2")


def floats(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def run(dispatch: str, src: Array, weights: Array, **more: Any) -> Array:
    """A matmul or a convolution by the kernel of a name."""
    primitive = simdnn.matmul if src.ndim == 2 else simdnn.convolution
    return primitive(src, weights, machine="spr", dispatch=dispatch, **more).output


def tf32(x: Array) -> Array:
    """To nearest even, by floor and remainder; the test's own way."""
    bits = x.view(np.uint32).astype(np.int64)
    low, rest = bits >> 13, bits & 0x1FFF
    up = (rest > 0x1000) | ((rest == 0x1000) & (low % 2 == 1))
    return np.where(np.isfinite(x), (low + up) << 13, bits).astype(np.uint32).view(np.float32)


def tf32_cut(x: Array) -> Array:
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


ROUNDED = {"tf32": tf32, "tf32_cut": tf32_cut, "f16_down": half}


@one_in(3)
@pytest.mark.parametrize("isa", WIDE)
@pytest.mark.parametrize("suffix", ROUNDED)
@pytest.mark.parametrize("tag", ["any", "ab"])
def test_rounded_operands_then_the_f32_kernel(isa: str, suffix: str, tag: str) -> None:
    attr = Attr(fpmath="any")
    for m, n, k in ((7, 37, 19), (3, 16, 70)):
        src, weights = floats(1, m, k), floats(2, k, n)
        met = run(f"gemm:{isa}_{suffix}", src, weights, attr=attr, wei_tag=tag)
        rounded = [np.ascontiguousarray(ROUNDED[suffix](x)) for x in (src, weights)]
        assert (met == run(f"gemm:{isa}", *rounded)).all()
    if tag == "any":
        src, weights = floats(3, 2, 3, 7, 9), floats(4, 20, 3, 3, 2)
        met = run(f"conv:{isa}_{suffix}", src, weights, attr=attr, padding=(1, 2), strides=2)
        rounded = [np.ascontiguousarray(ROUNDED[suffix](x)) for x in (src, weights)]
        assert (met == run(f"conv:{isa}", *rounded, padding=(1, 2), strides=2)).all()


@pytest.mark.parametrize("tag", ["any", "ab", "ba"])
@pytest.mark.parametrize("kernel", ["avx512_core_bf16_down", "avx512_core_fp16_down", "avx2_f16_down", "avx2_tf32"])
def test_scales_of_weights_that_the_kernel_narrows(kernel: str, tag: str) -> None:
    src, weights = np.ones((2, 3), np.float32), np.ones((3, 17), np.float32)
    scales = np.arange(17, dtype=np.float32)
    attr = Attr(fpmath="any", scales={"wei": scales, "src": 0.5})
    assert (run(f"gemm:{kernel}", src, weights, attr=attr, wei_tag=tag) == 1.5 * scales).all()


@pytest.mark.parametrize("isa", WIDE)
@pytest.mark.parametrize("suffix", ROUNDED)
def test_rounding_of_any_bits(isa: str, suffix: str) -> None:
    """Each value times one: ties, denormals, overflow, infinities and NaN."""
    rng = np.random.default_rng(5)
    edges = np.arange(0x1000)[:, None] * 0x100000 + np.array([0, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001])
    bits = np.concatenate([edges.reshape(-1), rng.integers(0, 1 << 32, 3001)]).astype(np.uint32)
    src, one = bits.view(np.float32)[:, None], np.ones((1, 1), np.float32)
    attr = Attr(fpmath="any")
    met = simdnn.matmul(src, one, machine="spr", attr=attr, dispatch=f"gemm:{isa}_{suffix}").output
    with np.errstate(over="ignore"):
        expected = ROUNDED[suffix](src)
    assert ((met == expected) | (np.isnan(met) & np.isnan(expected))).all()


@one_in(2)
@pytest.mark.parametrize("isa", WIDE)
def test_f16_storage_is_the_f32_kernel_on_the_same_numbers(isa: str) -> None:
    for m, n, k in ((5, 33, 21), (4, 16, 8)):
        src, weights = floats(6, m, k, dtype=np.float16), floats(7, k, n, dtype=np.float16)
        wide = src.astype(np.float32), weights.astype(np.float32)
        for tag in ("any", "ab", "ba"):
            met = run(f"gemm:{isa}_f16", src, weights, wei_tag=tag)
            assert met.dtype == np.float32 and (met == run(f"gemm:{isa}", *wide)).all()
    src, weights = floats(8, 1, 6, 5, 11, dtype=np.float16), floats(9, 18, 3, 3, 3, dtype=np.float16)
    wide = src.astype(np.float32), weights.astype(np.float32)
    met = run(f"conv:{isa}_f16", src, weights, padding=1, groups=2)
    assert (met == run(f"conv:{isa}", *wide, padding=1, groups=2)).all()
    src, weights = floats(10, 2, 21, 5, 7, dtype=np.float16), floats(11, 21, 1, 3, 3, dtype=np.float16)
    wide = src.astype(np.float32), weights.astype(np.float32)
    met = run(f"dw:{isa}_f16", src, weights, padding=1, groups=21)
    assert (met == run(f"dw:{isa}", *wide, padding=1, groups=21)).all()


@pytest.mark.parametrize("tag", ["any", "ab"])
def test_f16_vectors(tag: str) -> None:
    src, weights = floats(12, 1, 45, dtype=np.float16), floats(13, 45, 21, dtype=np.float16)
    plain = "_plain" if tag == "ab" else ""
    expected = run(f"gemv:avx2{plain}", src.astype(np.float32), weights.astype(np.float32), wei_tag=tag)
    assert (run(f"gemv:avx2_f16{plain}", src, weights, wei_tag=tag) == expected).all()
    wide = run(f"gemv:avx512_core_f16{plain}", src, weights, wei_tag=tag)
    np.testing.assert_allclose(wide, expected, rtol=1e-5, atol=1e-5)


def chained(src: Array, weights: Array, taps: int = 1) -> Array:
    """f16 sums of even and of odd k, F16_CHAIN products each time, added up in f32; exact in f64 for small integers."""
    m, k = src.shape
    length = F16_CHAIN // taps // 2 * 2
    total = np.zeros((m, weights.shape[1]), np.float32)
    for first in range(0, k, length):
        sums = [np.zeros(total.shape, np.float16) for _ in range(2)]
        for i in range(first, min(k, first + length)):
            product = src[:, i, None].astype(np.float64) * weights[None, i].astype(np.float64)
            sums[(i - first) % 2] = (product + sums[(i - first) % 2]).astype(np.float16)
        term = sums[0].astype(np.float32) + sums[1].astype(np.float32)
        total = total + term if first else term
    return total


@one_in(3, "k")
@pytest.mark.parametrize("tag", ["any", "ab", "ba"])
@pytest.mark.parametrize("k", [1, 127, 128, 129, 300, 640])
def test_f16_arithmetic_by_its_definition(k: int, tag: str) -> None:
    rng = np.random.default_rng(k)
    src, weights = ((rng.integers(-512, 513, shape) / 256).astype(np.float16) for shape in ((3, k), (k, 20)))
    met = run("gemm:avx512_core_fp16", src, weights, attr=F16, wei_tag=tag)
    assert (met == chained(src, weights)).all()
    if k in (129, 300):
        slow = run("gemm:avx512_core_fp16", src, weights, attr=F16, wei_tag=tag, engine="reference")
        assert met.tobytes() == slow.tobytes()
    if tag != "ba":
        down = run("gemm:avx512_core_fp16_down", *(x.astype(np.float32) for x in (src, weights)), attr=F16, wei_tag=tag)
        assert (down == met).all()


@pytest.mark.parametrize("source", ["f16", "f32"])
def test_compressed_weights_in_f16_arithmetic(source: str) -> None:
    rng = np.random.default_rng(17)
    src = (rng.integers(-512, 513, (3, 192)) / 256).astype(np.float16)
    weights = rng.integers(-8, 8, (192, 20)).astype(np.int8)
    scales = (2.0 ** rng.integers(-3, 2, (6, 20))).astype(np.float32)
    attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": scales}, zero_points={"wei": np.array(3, np.int8)})
    wide = ((weights - 3.0) * scales.repeat(32, 0)).astype(np.float16)
    dtype = np.float16 if source == "f16" else np.float32
    met = run("wdec:avx512_core_fp16", src.astype(dtype), weights, attr=attr)
    assert (met == chained(src, wide)).all()
    fastest = simdnn.matmul(src.astype(dtype), weights, machine="spr", attr=attr)
    assert {"wdec:avx512_core_fp16", "wdec:avx512_core"} <= set(fastest.dispatch.dropna()["implementation"])


STORED: dict[str, tuple[Any, int, int]] = {
    "s8": (np.int8, -128, 127),
    "u8": (np.uint8, 0, 255),
    "s4": (int4, -8, 7),
    "u4": (uint4, 0, 15),
}


def scaled_weights(rng: np.random.Generator, wei: str, shape: tuple[int, int], placing: str) -> tuple[Array, Array]:
    """Integers with more than half of their range used, and their scales: one, or one for each of the columns."""
    dtype, low, high = STORED[wei]
    values = rng.integers(max(low, -high // 8), high + 1, shape).astype(np.int16).astype(dtype)
    return values, rng.random(1 if placing == "common" else shape[1]).astype(np.float32) + np.float32(0.5)


@one_in(3, "wei")
@pytest.mark.parametrize("source", [np.float16, np.float32])
@pytest.mark.parametrize("placing", ["common", "per_oc"])
@pytest.mark.parametrize("wei", list(STORED))
def test_compressed_weights_are_scaled_before_f16_sums(wei: str, placing: str, source: Any) -> None:
    """Outputs near 5e4 are finite and as close as f16 sums are."""
    rng = np.random.default_rng(21)
    src = (rng.random((5, 130)) * 1000).astype(source)
    weights, scales = scaled_weights(rng, wei, (130, 37), placing)
    points = {"wei": 3} if wei == "u8" else {}
    exact = src.astype(np.float64) @ ((weights.astype(np.float64) - points.get("wei", 0)) * scales)
    scales *= np.float32(5e4 / exact.max())
    exact *= 5e4 / exact.max()
    attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": scales}, zero_points=points)
    met = run("wdec:avx512_core_fp16", src, weights, attr=attr)
    assert np.isfinite(met).all() and abs(met - exact).max() < 5e-3 * exact.max()


@pytest.mark.parametrize("target", ["spr", "gnr", "v100", "b580"])
def test_what_fastest_takes_keeps_the_range_everywhere(target: str) -> None:
    src, weights = np.full((64, 512), 32, np.float16), np.full((512, 64), 127, np.int8)
    scales = np.full(64, 5e4 / (512 * 32 * 127), np.float32)
    for placing in (scales[:1], scales):
        attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": placing})
        assert np.allclose(simdnn.matmul(src, weights, machine=target, attr=attr).output, 5e4, rtol=5e-3)


@one_in(3, "wei")
@pytest.mark.parametrize("source", [np.float16, np.float32])
@pytest.mark.parametrize("placing", ["common", "per_oc"])
@pytest.mark.parametrize("wei", list(STORED))
def test_convolutions_too(wei: str, placing: str, source: Any) -> None:
    """By the bits of weights that are scaled and rounded beforehand; two widths of panels, and groups."""
    rng, kernel = np.random.default_rng(22), "conv:avx512_core_fp16" + "_down" * (source is np.float32)
    for oc, ic, groups in ((70, 7, 1), (37, 6, 2)):
        src = (rng.random((1, groups * ic, 4, 5)) * 8).astype(source)
        flat, scales = scaled_weights(rng, wei, (ic * 9, groups * oc), placing)
        weights, point = np.ascontiguousarray(flat.T.reshape(groups * oc, ic, 3, 3)), 3 if wei == "u4" else 0
        wide = (weights.astype(np.float32) - point) * scales.reshape(-1, 1, 1, 1)
        where: dict[str, Any] = {"groups": groups, "padding": 1, "dst": "f32"}
        largest = simdnn.convolution(src.astype(np.float32), wide, machine="spr", **where).output.max()
        scales *= np.float32(5e4 / largest)
        points = {"wei": point} if point else {}
        attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": scales}, zero_points=points)
        met = run(kernel, src, weights, attr=attr, **where)
        wide = (weights.astype(np.float32) - point) * scales.reshape(-1, 1, 1, 1)
        rounded = wide.astype(np.float16).astype(source)
        assert np.isfinite(met).all() and met.max() > 4.9e4
        assert (met == run(kernel, src, rounded, attr=F16, **where)).all()


@one_in(2)
@pytest.mark.parametrize("scales", [{"src": 0.01}, {"wei": 0.01}, {"wei": np.full(9, 0.01, np.float32)}])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_fastest_takes_no_f16_sum_that_is_scaled_afterwards(scales: dict[str, Any], dtype: Any) -> None:
    src, weights, attr = np.full((2, 64), 64, dtype), np.full((64, 9), 64, dtype), Attr(fpmath="f16", scales=scales)
    for target in ("spr", "gnr"):
        r = simdnn.matmul(src, weights, machine=target, attr=attr)
        image = simdnn.convolution(src.reshape(2, 64, 1, 1), weights.T.reshape(9, 64, 1, 1), machine=target, attr=attr)
        for met in (r, image):
            assert np.allclose(met.output, 64 * 64 * 64 * 0.01, rtol=1e-3)
        reasons = r.dispatch.set_index("implementation")["reason"]
        assert "before it scales" in reasons["gemm:avx512_core_fp16" + "_down" * (dtype is np.float32)]


def test_f16_arithmetic_keeps_the_bound_of_its_chains() -> None:
    """|error| <= (chain / 2 + 1) 2**-11 sum |a b|, near enough; and it is an error that f32 sums do not have."""
    src, weights = floats(14, 8, 2048, dtype=np.float16), floats(15, 2048, 16, dtype=np.float16)
    exact = src.astype(np.float64) @ weights.astype(np.float64)
    bound = (F16_CHAIN / 2 + 1) * 2.0**-11 * (abs(src.astype(np.float64)) @ abs(weights.astype(np.float64)))
    errors = {}
    for fpmath in ("strict", "f16"):
        r = simdnn.matmul(src, weights, machine="spr", attr=Attr(fpmath=fpmath))
        assert r.compute_dtype == ("f32" if fpmath == "strict" else "f16")
        errors[fpmath] = abs(r.output - exact)
    assert (errors["f16"] < bound).all() and errors["f16"].max() > 100 * errors["strict"].max()


def test_f16_convolution_bounds_its_chains_too() -> None:
    rng = np.random.default_rng(16)
    src = (rng.integers(-512, 513, (1, 40, 4, 5)) / 256).astype(np.float16)
    weights = (rng.integers(-512, 513, (18, 40, 3, 3)) / 256).astype(np.float16)
    met = run("conv:avx512_core_fp16", src, weights, attr=F16)
    columns = np.lib.stride_tricks.sliding_window_view(src[0], (3, 3), (1, 2)).transpose(1, 2, 3, 4, 0)
    total = np.zeros((18, 6), np.float32)
    for first in range(0, 40, 14):  # 9 taps x 14 channels make 126 products
        rows = columns[..., first : first + 14].reshape(6, -1)
        part = weights[:, first : first + 14].transpose(2, 3, 1, 0).reshape(-1, 18)
        total = total + chained(rows, part).T if first else chained(rows, part).T
    assert (met.reshape(18, 6) == total).all()
    with pytest.raises(simdnn.Unimplemented, match="up to 64 taps"):
        tall = np.ones((1, 2, 11, 11), np.float16)
        simdnn.convolution(tall, tall, machine="spr", attr=F16, dispatch="conv:avx512_core_fp16")


@one_in(2)
@pytest.mark.parametrize("isa", WIDE)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40))
def test_f16_destination(isa: str, seed: int, n: int) -> None:
    """The f32 result rounded to nearest even, whatever comes before it."""
    rng = np.random.default_rng(seed)
    src, weights = rng.standard_normal((3, 9)), rng.standard_normal((9, n)) * 10.0 ** rng.integers(-9, 6)
    attr = Attr(post_ops=["relu"], scales={"dst": 0.7})
    a, b = src.astype(np.float32), weights.astype(np.float32)
    wide = simdnn.matmul(a, b, machine="spr", isa=isa, attr=attr).output
    met = simdnn.matmul(a, b, machine="spr", isa=isa, attr=attr, dst="f16").output
    with np.errstate(over="ignore"):
        assert met.dtype == np.float16 and (met == wide.astype(np.float16)).all()


@one_in(3, "dtype")
@pytest.mark.parametrize("dtype, suffix", [("float16", "f16"), ("bfloat16", "bf16_stored")])
@pytest.mark.parametrize("m, k, n", [(65, 1030, 53), (80, 40, 16), (300, 90, 100)])
def test_weights_are_widened_ahead_of_many_rows(dtype: str, suffix: str, m: int, k: int, n: int) -> None:
    """As f32 kernels have it, whatever the destination; the way to an element goes through the buffer."""
    src, weights = floats(1, m, k, dtype=dtype), floats(2, k, n, dtype=dtype)
    wide, bias = [x.astype(np.float32) for x in (src, weights)], floats(3, n)
    for isa in WIDE:
        for more in ({}, {"dst": "bf16", "bias": bias, "attr": Attr(post_ops=["relu"])}):
            how: dict[str, Any] = {"machine": "spr", "dispatch": f"gemm:{isa}_{suffix}", **more}
            met = simdnn.matmul(src, weights, **how)
            ahead = any("widened" in name for name in met.kernel.program.tensor)
            assert ahead if isa == "avx512_core" else not ahead or m > 256
            f32 = simdnn.matmul(*wide, **how | {"dispatch": f"gemm:{isa}"}).output
            assert met.output.tobytes() == f32.tobytes()
            reordered = simdnn.reorder(weights, met.weights_desc, machine="spr")
            assert simdnn.matmul(src, reordered, **how).output.tobytes() == f32.tobytes()
            other = floats(4, k, n, dtype=dtype)
            f32 = simdnn.matmul(wide[0], other.astype(np.float32), **how | {"dispatch": f"gemm:{isa}"}).output
            assert all(simdnn.matmul(src, other, **how).output.tobytes() == f32.tobytes() for _ in range(3))
    assert met.explain(m - 1, n - 1).value == met.output[-1, -1]


@pytest.mark.parametrize("name, m, k, n", [("zen4", 300, 300, 300), ("gnr", 128, 768, 768), ("spr", 218, 78, 223)])
def test_widened_weights_leave_threads_enough_to_share(
    name: str, m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On any number of cores they take no more cycles than weights that each tile widens."""
    machine, problem = cpu_machine(name), MatmulProblem(m, n, k, "bf16", "bf16", Epilogue("f32"))
    kind = next(kind for kind in rows.KERNELS if kind.name == "gemm:avx512_core_bf16_stored")
    ahead = kind.build(problem, machine).program
    monkeypatch.setattr(rows, "widened", lambda *_: None)
    loading = kind.build(problem, machine).program
    assert ahead.body != loading.body
    for threads in (1, 2, 8, 16, 32, 48):
        found, before = (estimate_program(program, machine, threads=threads) for program in (ahead, loading))
        assert found.cycles < 1.05 * before.cycles, threads
