"""Convolutions of f8 and f4, and of f32 by shorter weights: the bits of those of the floats that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import simdnn
from isa_models.formats import encode, fmt
from tests.effort import one_in

Array = npt.NDArray[Any]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((2, 6, 4, 3), (20, 6, 3, 3), {"padding": 1}),
    "1x1": ((1, 19, 5, 5), (33, 19, 1, 1), {"strides": 2}),
    "groups": ((1, 8, 6, 6), (16, 4, 3, 3), {"groups": 2, "dilation": 2}),
    "depthwise": ((1, 20, 6, 6), (20, 1, 3, 3), {"groups": 20, "padding": 1}),
    "oihw": ((1, 8, 4, 4), (16, 8, 3, 3), {"wei_tag": "oihw"}),
    "3d": ((1, 4, 3, 5, 5), (8, 4, 2, 3, 3), {"padding": 1}),
}


def normal(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(fmt(dtype).dtype)


@one_in(3, "case")
@pytest.mark.parametrize(
    ("machine", "unit", "dtype"),
    [
        ("gnr", "avx512_core_amx", "f8_e4m3"),
        ("zen4", "avx512_core_bf16", "f8_e5m2"),
        ("hsw", "avx2", "f8_e4m3"),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_a_convolution_of_floats(machine: str, unit: str, dtype: str, case: str) -> None:
    """Units change no product, as those of f8 are exact in every type."""
    shape, kernel, options = CASES[case]
    if case == "depthwise":
        unit = "avx2" if unit == "avx2" else "avx512_core"
    name = f"{'dw' if case == 'depthwise' else 'conv'}:{unit}"
    options = options | {"machine": machine, "attr": simdnn.Attr(post_ops=["relu"]), "dispatch": name}
    options["engine"] = "compiled" if (machine, case) == ("zen4", "1x1") else "reference"
    x, w = normal(shape, dtype, 0), normal(kernel, dtype, 1)
    bias = np.random.default_rng(2).standard_normal(kernel[0]).astype(np.float32)
    r = simdnn.convolution(x, w, bias, **options)
    floats = fmt(r.compute_dtype).dtype
    wanted = simdnn.convolution(x.astype(floats), w.astype(floats), bias, **options)
    assert r.output.tobytes() == wanted.output.tobytes() and r.cycles > wanted.cycles, name


@one_in(3, "machine")
@pytest.mark.parametrize("case", ["3x3", "groups", "3d"])
@pytest.mark.parametrize(
    ("machine", "src", "fpmath", "wei"),
    [
        ("spr", "f32", "bf16", "f8_e4m3"),
        ("gnr", "bf16", "strict", "f6_e3m2"),
        ("zen4", "f16", "strict", "f8_e5m2"),
        ("hsw", "f32", "strict", "f6_e2m3"),
    ],
)
def test_weights_of_fewer_bits_than_the_source(machine: str, src: str, fpmath: str, wei: str, case: str) -> None:
    """Every code but NaN: the bits of a convolution with the floats that codes stand for, scales behind the sums."""
    shape, kernel, options = CASES[case]
    rng = np.random.default_rng(4)
    x, scale = normal(shape, src, 0), rng.uniform(0.5, 2, kernel[0]).astype(np.float32)
    codes = rng.integers(0, 1 << fmt(wei).bits, kernel).astype(np.uint8).view(fmt(wei).dtype)
    w = np.where(np.isfinite(codes.astype(np.float32)), codes, codes.dtype.type(1)).astype(codes.dtype)
    options = options | {"machine": machine, "attr": simdnn.Attr(fpmath=fpmath, scales={"wei": scale})}
    r = simdnn.convolution(x, w, **options)
    wanted = simdnn.convolution(x, w.astype(fmt(src).dtype), dispatch=r.implementation, **options)
    assert r.output.tobytes() == wanted.output.tobytes() and r.cycles > wanted.cycles
    for library in ("onednn", "onnxruntime", "ggml"):
        with pytest.raises(simdnn.Unimplemented, match="works|takes"):
            simdnn.convolution(x, w, **options, dispatch=library)


@pytest.mark.parametrize("dst", ["f32", "bf16", "f4_e2m1"])
def test_floats_of_four_bits(dst: str) -> None:
    x, w = normal((1, 6, 5, 4), "f4_e2m1", 0), normal((9, 6, 3, 3), "f4_e2m1", 1)
    options: dict[str, Any] = {"machine": "hsw", "padding": 1, "dispatch": "conv:avx2"}
    r = simdnn.convolution(x, w, dst=dst, **options)
    wide = simdnn.convolution(x.astype(np.float32), w.astype(np.float32), **options)
    assert r.output.dtype == fmt(dst).dtype and r.cycles > wide.cycles
    wanted = encode(wide.output, dst) if dst == "f4_e2m1" else wide.output.astype(fmt(dst).dtype)
    assert r.output.view(wanted.dtype).tolist() == wanted.tolist()


@one_in(2, "wei")
@pytest.mark.parametrize("wei", ["bf16", "f16"])
@pytest.mark.parametrize("case", ["3x3", "depthwise", "oihw", "3d"])
def test_shorter_weights_become_those_of_f32(case: str, wei: str) -> None:
    shape, kernel, options = CASES[case]
    options = options | {"machine": "zen4", "isa": "avx2", "engine": "reference"}
    x, w = normal(shape, "f32", 0), normal(kernel, wei, 1)
    r, wide = (simdnn.convolution(x, weights, **options) for weights in (w, w.astype(np.float32)))
    assert r.output.tobytes() == wide.output.tobytes() and r.implementation == wide.implementation


@pytest.mark.parametrize("machine", ["spr", "zen4", "hsw"])
def test_destinations_round_once_behind_their_scales(machine: str) -> None:
    x, w = normal((1, 16, 5, 5), "f8_e4m3", 0), normal((8, 16, 3, 3), "f8_e4m3", 1)
    scale = np.random.default_rng(3).uniform(0.5, 2, 8).astype(np.float32)
    scales = {"src": 0.5, "wei": scale, "dst": 0.25}
    r = simdnn.convolution(x, w, machine=machine, dst="f8_e4m3", attr=simdnn.Attr(scales=scales))
    wide = simdnn.convolution(x, w, machine=machine, attr=simdnn.Attr(scales=scales), dispatch=r.implementation)
    assert r.output.dtype == fmt("f8_e4m3").dtype and np.isfinite(r.output.astype(np.float32)).all()
    assert r.output.view(np.uint8).tolist() == encode(wide.output, "f8_e4m3").tolist()
    sizes = {"ic": 16, "ih": 5, "iw": 5, "oc": 8, "kh": 3, "kw": 3, "machine": machine}
    cost = simdnn.estimate("convolution", dt="f8_e4m3", attr=simdnn.Attr(scales=scales), **sizes)
    assert cost.cycles == r.cycles and cost.implementation == r.implementation


def test_what_the_library_computes_stays_its_own() -> None:
    """Under its name the reference runs, which takes no scales."""
    x, w = normal((1, 16, 4, 4), "f8_e4m3", 0), normal((16, 16, 1, 1), "f8_e4m3", 1)
    own, library = (simdnn.convolution(x, w, machine="spr", dispatch=rule) for rule in ("fastest", "onednn"))
    assert library.implementation.startswith("ref_conv") and own.cycles < library.cycles
    with pytest.raises(simdnn.Unimplemented, match="what works: dispatch='fastest'"):
        simdnn.convolution(x, w, machine="spr", dispatch="onednn", attr=simdnn.Attr(scales={"wei": 0.5}))
    held = normal((1, 16, 4, 4), "f8_e4m3", 2)  # a sum in f32, as in the reference of a matmul
    added = simdnn.Attr(post_ops=[("sum", 0.5)])
    r = simdnn.convolution(x, w, machine="spr", dispatch="onednn", dst="f8_e4m3", attr=added, into=held)
    wanted = library.output + np.float32(0.5) * held.astype(np.float32)
    assert r.output.view(np.uint8).tolist() == encode(wanted, "f8_e4m3").tolist()


@pytest.mark.parametrize("mode", ["dynamic_mx", "dynamic_fp"])
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
def test_a_convolution_finds_no_scales(mode: str, dispatch: str) -> None:
    """Refused by name, as oneDNN refuses it, with values and without."""
    x, w = normal((1, 16, 5, 5), "f32", 0), normal((32, 16, 3, 3), "f32", 1)
    attr = simdnn.Attr(scales={"dst": simdnn.Quant(None, mode=mode)})
    with pytest.raises(simdnn.Unimplemented, match=f"{mode}.* of a convolution.*what works: a static scale"):
        simdnn.convolution(x, w, machine="spr", attr=attr, dispatch=dispatch)
    sizes = {"ic": 16, "ih": 5, "iw": 5, "oc": 32, "kh": 3, "kw": 3}
    with pytest.raises(simdnn.Unimplemented, match="matmul alone"):
        simdnn.estimate("convolution", **sizes, machine="spr", attr=attr, dispatch=dispatch)
