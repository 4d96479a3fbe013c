"""Convolutions on GPUs with weights of f8, f6 and f4, scaled by output channel or by groups of input channels."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import simdnn
from simdnn import Attr, Quant
from tests.effort import one_in
from tests.kernels.reference_rules import Array

FORMATS = ("f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1", "nvfp4")


def quantized(w: Array, dtype: str) -> simdnn.Blocks:
    return simdnn.quantize_nvfp4(w, axis=1) if dtype == "nvfp4" else simdnn.quantize_mx(w, dtype, axis=1)


def exact(x: Array, w: Array, groups: int) -> Array:
    """Sums in f64, padding 1, stride 1."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    (oc, ic, kh, kw), (h, width) = w.shape, x.shape[2:]
    out = np.zeros((len(x), oc, h, width))
    for o in range(oc):
        first = o // (oc // groups) * ic
        for i, j in np.ndindex(kh, kw):
            patch = wide[:, first : first + ic, i : i + h, j : j + width]
            out[:, o] += np.einsum("nchw,c->nhw", patch, w[o, :, i, j].astype(np.float64))
    return out


@one_in(3, "machine")
@pytest.mark.parametrize(
    ("machine", "groups", "dtype"),
    [
        *(("b580", 1, dtype) for dtype in FORMATS),
        *((machine, 2, dtype) for machine in ("v100", "h100") for dtype in ("f8_e4m3", "nvfp4")),
        *(("a100", 1, "f8_e5m2"), ("titan_xp", 1, "f4_e2m1")),
    ],
)
def test_blocks_along_input_channels(machine: str, groups: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 32 * groups, 3, 4)).astype(np.float16)
    blocks = quantized(rng.standard_normal((4 * groups, 32, 3, 3)).astype(np.float32), dtype)
    for attr, weights in (
        (blocks.attr("wei"), blocks.dequantize()),
        (Attr(scales={"wei": np.full(4 * groups, 0.5, np.float32)}), blocks.output.astype(np.float32) / 2),
    ):
        where = {"machine": machine, "groups": groups, "engine": "reference"}
        found = simdnn.convolution(x, blocks.output, padding=1, attr=attr, **where)
        wanted = exact(x, weights, groups)
        assert "_wdec" in found.implementation and found.cycles > 0
        assert np.abs(found.output - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_integers_have_groups_of_input_channels_too() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 32, 4, 4)).astype(np.float16)
    codes = rng.integers(-8, 8, (6, 32, 3, 3))
    scales = (2.0 ** rng.integers(-3, 1, (6, 2, 3, 3))).astype(np.float32)
    attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": scales})
    found = simdnn.convolution(x, codes.astype(ml_dtypes.int4), padding=1, machine="b580", attr=attr)
    wanted = exact(x, codes * scales.repeat(16, axis=1), 1)
    assert np.abs(found.output - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_only_the_cost() -> None:
    sizes = {"mb": 1, "ic": 64, "ih": 14, "iw": 14, "oc": 64, "kh": 3, "kw": 3, "padding": 1}
    attr = Attr(scales={"wei": Quant(None, mask=3, groups=(1, 32), dtype="e8m0")})
    stored, plain = (
        simdnn.estimate("convolution", **sizes, dt=f"f16:{wei}:f32", machine="h100", attr=given)
        for wei, given in (("f8_e4m3", attr), ("f16", None))
    )
    assert stored.implementation == "conv:hopper_mma_wdec_f16" and stored.cycles > plain.cycles > 0


@pytest.mark.parametrize(
    ("machine", "dtype", "shape", "said"),
    [
        ("zen4", "s8", (8, 2, 3, 3), r"scales\['wei'\] by groups of 16 input channels on a CPU"),
        ("b580", "s8", (8, 18, 1, 1), r"of shape \(8, 18, 1, 1\); by groups of 16: \(8, 2, 3, 3\)"),
        ("b580", "f8_e4m3", (8, 5, 3, 3), r"of shape \(8, 5, 3, 3\); those by group have the weights' axes"),
        ("b580", "integers", (8, 2, 3, 3), "by groups of 16 input channels on 'b580', but of weights"),
    ],
)
def test_refusals(machine: str, dtype: str, shape: tuple[int, ...], said: str) -> None:
    x = np.ones((1, 32, 5, 5), np.int8 if dtype == "integers" else np.float16)
    w = np.ones((8, 32, 3, 3), ml_dtypes.float8_e4m3fn if dtype == "f8_e4m3" else np.int8)
    mode = {"fpmath": "f16", "apply_to_int": True} if dtype == "s8" else {}
    with pytest.raises(simdnn.SimdnnError, match=said):
        simdnn.convolution(x, w, machine=machine, attr=Attr(scales={"wei": np.ones(shape, np.float32)}, **mode))
