"""The public calls of narrow floats and block scales, as scripts make them: names, arguments, results."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.formats import decode, encode, fmt

GREATEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0, "f6_e2m3": 7.5, "f6_e3m2": 28.0, "f4_e2m1": 6.0, "e8m0": 2.0**127}


def arguments(function: object) -> dict[str, object]:
    """Names with their defaults, and whether they are named only."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {p.name: (p.default, p.kind is p.KEYWORD_ONLY) for p in parameters}


def test_formats() -> None:
    assert {name: fmt(name).greatest for name in GREATEST} == GREATEST
    e8m0 = fmt("e8m0")
    assert (e8m0.signed, e8m0.exponent_bits, e8m0.mantissa_bits, e8m0.bias) == (False, 8, 0, 127)
    assert fmt("f4_e2m1").bytes == 0.5 and fmt("f6_e3m2").dtype == ml_dtypes.float6_e3m2fn
    found = arguments(encode)
    assert found["overflow"] == ("saturate", True) and found["rounding"] == ("even", True)
    assert decode(encode(np.float32([500]), "f8_e4m3"), "f8_e4m3")[0] == 448
    assert np.isnan(decode(encode(np.float32([500]), "f8_e4m3", overflow="ieee"), "f8_e4m3")[0])


def test_quantizers() -> None:
    wanted = {"group": 32, "rule": "floor", "axis": -1, "machine": None, "isa": None}
    assert {name: arguments(simdnn.quantize_mx)[name] for name in wanted} == {k: (v, True) for k, v in wanted.items()}
    wanted = {"tensor_scale": None, "axis": -1, "machine": None, "isa": None}
    assert {n: arguments(simdnn.quantize_nvfp4)[n] for n in wanted} == {k: (v, True) for k, v in wanted.items()}
    x = np.linspace(-3, 3, 64 * 32, dtype=np.float32).reshape(64, 32)
    mx, nv = simdnn.quantize_mx(x, "f8_e4m3", axis=0), simdnn.quantize_nvfp4(x)
    assert mx.output.shape == x.shape and mx.scales.shape == (2, 32) and mx.scales.dtype == ml_dtypes.float8_e8m0fnu
    assert nv.scales.shape == (64, 2) and nv.scales.dtype == ml_dtypes.float8_e4m3fn and mx.tensor_scale is None
    assert nv.tensor_scale is not None and nv.dequantize().dtype == np.float32
    attr = mx.attr("wei", fpmath="bf16")
    assert isinstance(attr, simdnn.Attr) and attr.fpmath == "bf16" and set(attr.scales) == {"wei"}


@pytest.mark.parametrize("mode", ["dynamic_mx", "dynamic_fp"])
def test_a_destination_finds_its_scales(mode: str) -> None:
    """On a CPU; as `simdnn bench` writes it, too."""
    columns, dtype = {"dynamic_mx": (32, "e8m0"), "dynamic_fp": (16, "f8_e4m3")}[mode]
    a, w = np.ones((3, 32), np.float32), np.ones((32, 64), np.float32)
    attr = simdnn.Attr(scales={"dst": simdnn.Quant(mask=3, groups=(1, columns), dtype=dtype, mode=mode)})
    for rule in ("onednn", "fastest"):
        r = simdnn.matmul(a, w, machine="spr", dst="f8_e4m3", attr=attr, dispatch=rule)
        assert r.dst_scales is not None and r.dst_scales.shape == (3, 64 // columns)
        assert r.dst_scales.dtype == fmt(dtype).dtype and r.output.dtype == ml_dtypes.float8_e4m3fn


def test_what_needs_no_permission() -> None:
    """Weights of floats are no integers: `apply_to_int` is not asked for, on any target."""
    a, w = np.ones((2, 32), np.float32), np.ones((32, 16), ml_dtypes.float4_e2m1fn)
    for machine in ("zen4", "b580", "v100"):
        assert (simdnn.matmul(a, w, machine=machine, engine="reference").output == 32).all()
