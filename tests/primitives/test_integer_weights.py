"""u8, s4 and u4 weights of integer matmuls on CPUs: exact sums, the kernels that run, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn import Attr, Quant
from simdnn.cli import main
from tests.effort import examples, one_in

STORED = {"u8": np.uint8, "s8": np.int8, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
RANGES = {"u8": (0, 256), "s8": (-128, 128), "s4": (-8, 8), "u4": (0, 16)}
TARGETS = [("zen4", None), ("zen4", "avx512_core"), ("zen4", "avx2"), ("spr", None)]


def integers(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    low, high = RANGES[dtype]
    extreme = rng.random() < 0.3
    values = rng.choice([low, high - 1], shape) if extreme else rng.integers(low, high, shape)
    return np.asarray(values).astype(np.int16).astype(STORED[dtype])


def wide(array: Array) -> Array:
    return array.astype(np.int16).astype(np.int64)


@given(
    st.sampled_from(["u8", "s8"]),
    st.sampled_from(["u8", "s4", "u4"]),
    st.sampled_from(TARGETS),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 70),
    st.integers(1, 40),
    st.booleans(),
    st.integers(0),
)
@examples(40)
def test_sums_are_exact(
    src: str, wei: str, target: tuple[str, str | None], exact: bool, m: int, k: int, n: int, points: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, w = integers(rng, src, m, k), integers(rng, wei, k, n)
    zs, zw = (int(z) for z in rng.integers(-150, 150, 2)) if points else (0, 0)
    attr = Attr(exact_int8=exact, zero_points={"src": zs, "wei": zw} if points else {})
    r = simdnn.matmul(a, w, machine=target[0], isa=target[1], attr=attr)
    assert np.array_equal(r.output, (wide(a) - zs) @ (wide(w) - zw))
    assert r.output.dtype == np.int32 and r.cycles > 0


@pytest.mark.parametrize("wei", ["u8", "s4", "u4"])
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
def test_attributes(wei: str, dispatch: str) -> None:
    """Scales by group, by token and column, zero points by group and column, bias and relu, to f32."""
    rng = np.random.default_rng(3)
    m, k, n, g = 5, 96, 22, 32
    a, w = integers(rng, "s8", m, k), integers(rng, wei, k, n)
    by_group, by_token = rng.random((k // g, n)).astype(np.float32), rng.random((m, 1)).astype(np.float32)
    points, bias = rng.integers(0, 9, (k // g, n)).astype(np.int32), rng.standard_normal(n).astype(np.float32)
    weights = (wide(w) - np.repeat(points, g, 0)) * np.repeat(by_group.astype(np.float64), g, 0)
    expected = np.maximum(wide(a) * by_token.astype(np.float64) @ weights + bias, 0)
    attr = Attr(scales={"wei": by_group, "src": by_token}, zero_points={"wei": points}, post_ops=["relu"])
    r = simdnn.matmul(a, w, bias, machine="zen4", attr=attr, dispatch=dispatch)
    assert np.allclose(r.output, expected, rtol=1e-5, atol=1e-2)
    plain = simdnn.matmul(a, w, bias, machine="zen4", attr=Attr(scales={"wei": by_group[0]}), dispatch=dispatch)
    assert np.allclose(plain.output, wide(a) @ wide(w) * by_group[0].astype(np.float64) + bias, rtol=1e-6, atol=1e-2)


def test_the_kernels_are_those_of_s8() -> None:
    """u8 weights cost a zero point more; 4-bit ones cost what s8 weights cost."""
    rng = np.random.default_rng(0)
    a = integers(rng, "u8", 32, 256)
    runs = {wei: simdnn.matmul(a, integers(rng, wei, 256, 64), machine="zen4") for wei in ("s8", "s4", "u4", "u8")}
    assert {r.implementation for r in runs.values()} == {"gemm:avx512_core_vnni"}
    assert runs["s8"].cycles == runs["s4"].cycles == runs["u4"].cycles < runs["u8"].cycles
    amx = simdnn.matmul(a, integers(rng, "u8", 256, 64), machine="spr")
    assert amx.implementation == "gemm:avx512_core_amx_int8"


def test_no_pair_of_4_bit_weights_saturates() -> None:
    a, w = np.full((2, 64), 255, np.uint8), np.full((64, 8), -8, np.int16).astype(ml_dtypes.int4)
    r = simdnn.matmul(a, w, machine="skx")
    assert r.implementation in ("gemm:avx512_core_int8", "gemm:avx2_int8") and not np.asarray(r.saturation).any()
    assert (r.output == -8 * 255 * 64).all()
    u8 = simdnn.matmul(a, np.full((64, 8), 255, np.uint8), machine="skx")
    assert u8.implementation.endswith("_int8_exact") and (u8.output == 255 * 255 * 64).all()


@pytest.mark.parametrize("wei", ["u8", "s4"])
def test_engines_explanations_estimates(wei: str) -> None:
    rng = np.random.default_rng(1)
    a, w = integers(rng, "s8", 3, 20), integers(rng, wei, 20, 6)
    r = simdnn.matmul(a, w, machine="zen4", engine="reference")
    assert np.array_equal(r.output, simdnn.matmul(a, w, machine="zen4", engine="compiled").output)
    assert str(int(r.output[1, 2])) in str(r.explain(1, 2))
    assert simdnn.estimate("matmul", m=3, k=20, n=6, dt=f"s8:{wei}:s32", machine="zen4").cycles == r.cycles
    with pytest.raises(Unimplemented, match="no reorder makes it"):
        _ = r.conversion


CALLS: list[tuple[str, str, dict[str, Any], str]] = [
    ("u8", "u8", {"wei_tag": "ba", "dispatch": "gemm:avx512_core_vnni"}, "ahead of time: wei_tag='any'"),
    ("u8", "u8", {"dispatch": "gemm:avx512_core_int8", "machine": "skx"}, "less 128, and saturates"),
    ("u8", "u4", {"dispatch": "onednn", "dst": "f32"}, "leaves bits of s32"),
    ("s8", "s4", {"dispatch": "onednn", "n": 7}, r"odd number \(N=7\)"),
    ("s8", "s8", {"dispatch": "onednn", "attr": Attr(zero_points={"wei": Quant(1, dtype="s4")})}, "of s4 that are one"),
]


@pytest.mark.parametrize(("src", "wei", "options", "reason"), CALLS, ids=[c[-1] for c in CALLS])
def test_refusals(src: str, wei: str, options: dict[str, Any], reason: str) -> None:
    rng = np.random.default_rng(2)
    given = {"machine": "zen4", **options}
    n = given.pop("n", 8)
    with pytest.raises(Unimplemented, match=reason):
        simdnn.matmul(integers(rng, src, 4, 16), integers(rng, wei, 16, n), **given)


def test_rows_of_u8_weights_are_read_in_place() -> None:
    rng = np.random.default_rng(4)
    a, w = integers(rng, "s8", 3, 20), integers(rng, "u8", 20, 6)
    for tag in ("ab", "ba"):
        r = simdnn.matmul(a, w, machine="zen4", wei_tag=tag)
        assert r.implementation.startswith("ref_int8:") and np.array_equal(r.output, wide(a) @ wide(w))


@one_in(3, "wei")
@pytest.mark.parametrize("machine", ["hsw", "zen4"])
@pytest.mark.parametrize("wei", ["u8", "s4", "u4"])
@pytest.mark.parametrize("tag", ["ab", "ba"])
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
def test_plain_weights_of_every_type(machine: str, wei: str, tag: str, dispatch: str) -> None:
    """The last product has fewer elements of the source than a register without masks holds."""
    rng = np.random.default_rng(5)
    for m, k, n in ((3, 20, 6), (17, 32, 18), (1, 2, 4)):
        a, w = integers(rng, "u8", m, k), integers(rng, wei, k, n)
        r = simdnn.matmul(a, w, machine=machine, wei_tag=tag, dispatch=dispatch)
        assert np.array_equal(r.output, wide(a) @ wide(w))


def test_bench_answers_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--matmul --dt=s8:u8:s32,u8:u8:s32,s8:s4:f32,u8:u4:bf16 --dispatch=fastest,onednn --attr-scales=wei:per_oc"
    assert main(["bench", *words.split(), "6x33:33x20"]) == 0
    assert "passed:8" in capsys.readouterr().out
