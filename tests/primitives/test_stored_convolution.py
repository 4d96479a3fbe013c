"""Convolutions of floats with weights stored as integers: the bits of those with the same floats, sizes, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn import Attr
from tests.effort import examples, one_in

STORED = {"s8": np.int8, "u8": np.uint8, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}
FLOATS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
IMAGE = np.ones((1, 4, 5, 5), np.float32)


def weights_of(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    return rng.integers(*RANGES[dtype], shape).astype(np.int16).astype(STORED[dtype])


@given(
    st.sampled_from(list(FLOATS)),
    st.sampled_from(list(STORED)),
    st.sampled_from(["strict", "bf16"]),
    st.sampled_from([("zen4", None), ("zen4", "avx2"), ("spr", None)]),
    st.sampled_from([(1, 0), (3, 1)]),
    st.integers(1, 2),
    st.integers(1, 19),
    st.integers(1, 40),
    st.integers(0, 7),
    st.integers(0),
)
@examples(25)
def test_bits_are_those_of_floats(
    src: str,
    wei: str,
    mode: str,
    target: tuple[str, str | None],
    taps: tuple[int, int],
    groups: int,
    ic: int,
    oc: int,
    point: int,
    seed: int,
) -> None:
    if target[1] == "avx2" and src == "bf16":
        return  # refused: below
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, groups * ic, 5, 4)).astype(np.float32).astype(FLOATS[src])
    w = weights_of(rng, wei, groups * oc, ic, taps[0], taps[0])
    if 1 < groups == groups * ic == groups * oc:
        return  # depthwise
    where: dict[str, Any] = {"machine": target[0], "isa": target[1], "padding": taps[1], "groups": groups, "dst": "f32"}
    scales = {"wei": (rng.random(groups * oc) + 0.5).astype(np.float32)}
    points = {"wei": point} if point else {}
    stored = Attr(fpmath=mode, apply_to_int=True, scales=scales, zero_points=points)
    r = simdnn.convolution(x, w, attr=stored, **where)
    floats = (w.astype(np.float32) - point).astype(FLOATS[src])
    same = simdnn.convolution(x, floats, attr=Attr(fpmath=mode, scales=scales), dispatch=r.implementation, **where)
    assert np.array_equal(r.output, same.output) and r.cycles > same.cycles


@pytest.mark.parametrize(
    ("wei", "groups", "taps"), [("s8", 1, (3, 3)), ("u8", 1, (1, 3)), ("s4", 2, (3, 3)), ("u4", 2, (5, 2))]
)
def test_a_single_channel_whose_taps_are_folded(wei: str, groups: int, taps: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((1, groups, 6, 9)).astype(np.float32).astype(ml_dtypes.bfloat16)
    w = weights_of(rng, wei, groups * 5, 1, *taps)
    attr = Attr(apply_to_int=True, zero_points={"wei": 3})
    met = [
        simdnn.convolution(x, w, machine="zen4", groups=groups, attr=attr, engine=e) for e in ("compiled", "reference")
    ]
    floats = (w.astype(np.float32) - 3).astype(x.dtype)
    same = simdnn.convolution(x, floats, machine="zen4", groups=groups, dispatch=met[0].implementation)
    assert all(np.array_equal(r.output, same.output) for r in met)


@one_in(2)
@pytest.mark.parametrize("wei", list(STORED))
def test_engines_estimates_and_bytes(wei: str) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 16, 6, 6)).astype(np.float32), weights_of(rng, wei, 32, 16, 3, 3)
    attr = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": 0.1}, zero_points={"wei": 2})
    r = simdnn.convolution(x, w, machine="zen4", attr=attr, engine="reference")
    assert np.array_equal(r.output, simdnn.convolution(x, w, machine="zen4", attr=attr, engine="compiled").output)
    assert r.compute_dtype == "bf16"
    sizes = {"ic": 16, "ih": 6, "iw": 6, "oc": 32, "kh": 3, "kw": 3}
    assert simdnn.estimate("convolution", dt=f"f32:{wei}:f32", machine="zen4", attr=attr, **sizes).cycles == r.cycles
    inputs = {t.name: t.nbytes for t in r.kernel.program.tensors if t.kind == "input"}
    assert inputs["stored_wei"] == w.size // (2 if wei in ("s4", "u4") else 1)
    exact = (w.astype(np.float64) - 2) * 0.1
    assert np.allclose(r.output[0, :, 2, 2], np.einsum("oikl,ikl->o", exact, x[0, :, 2:5, 2:5]), rtol=2e-2, atol=2.0)


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"attr": Attr()}, Unimplemented, "ambiguous"),
        ({"dispatch": "onednn"}, Unimplemented, "oneDNN refuses convolutions of f32 with s8"),
        ({"wei_tag": "oihw"}, Unimplemented, "own layout only"),
        ({"attr": Attr(apply_to_int=True, zero_points={"wei": 200})}, Unimplemented, "-128 to 127, which they hold"),
        ({"attr": Attr(apply_to_int=True, zero_points={"wei": np.ones(6, np.int32)})}, Unimplemented, "per_oc"),
        ({"attr": Attr(apply_to_int=True, scales={"wei": np.ones(4)})}, InvalidArgument, r"\(6,\) per_oc"),
    ],
)
def test_refusals(options: dict[str, Any], error: type[Exception], reason: str) -> None:
    given: dict[str, Any] = {"machine": "zen4", "attr": Attr(apply_to_int=True), **options}
    with pytest.raises(error, match=reason):
        simdnn.convolution(IMAGE, np.ones((6, 4, 3, 3), np.int8), **given)


def test_depthwise_ones_and_bf16_below_avx512_bf16_are_refused() -> None:
    attr = Attr(apply_to_int=True)
    with pytest.raises(Unimplemented, match="f32 weights, not f32:s8"):
        simdnn.convolution(IMAGE, np.ones((4, 1, 3, 3), np.int8), groups=4, machine="zen4", attr=attr)
    with pytest.raises(Unimplemented, match="no way to bring s8 weights to bf16|needs avx512_core_bf16"):
        x = IMAGE.astype(ml_dtypes.bfloat16)
        simdnn.convolution(x, np.ones((6, 4, 3, 3), np.int8), machine="zen4", isa="avx2", attr=attr)
