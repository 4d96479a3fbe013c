"""A dot product of blocks, explained: the bits of the kernel that multiplies in f32, and each step's numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

import simdnn
from simdnn.cli import main

RNG = np.random.default_rng(4)


def blocks(shape: tuple[int, ...], dtype: str, axis: int) -> simdnn.Blocks:
    values = RNG.standard_normal(shape).astype(np.float32)
    if dtype == "nvfp4":
        return simdnn.quantize_nvfp4(values, axis=axis)
    return simdnn.quantize_mx(values, dtype, axis=axis)


@pytest.mark.parametrize("types", [("f8_e4m3", "f4_e2m1"), ("f6_e3m2", "f8_e5m2"), ("f8_e4m3", "nvfp4")])
def test_its_value_is_the_products(types: tuple[str, str]) -> None:
    """Where both multiply and add in f32, k ascending; the tensor's scale of NVFP4 comes behind the sums."""
    x, w = blocks((3, 64), types[0], 1), blocks((64, 5), types[1], 0)
    scales = dict(w.attr("wei").scales)
    if w.tensor_scale is None:
        scales |= x.attr("src").scales
        found = simdnn.matmul(
            x.output, w.output, machine="spr", attr=simdnn.Attr(scales=scales), dispatch="wdec:avx512_core"
        )
        assert all(x.explain_dot(w, (i, j)).value == found.output[i, j] for i in range(3) for j in range(5))
    e = simdnn.explain(x, w, at=(2, 4))
    exact = x.dequantize().astype(np.float64)[2] @ w.dequantize().astype(np.float64)[:, 4]
    np.testing.assert_allclose(float(e.value), exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(e.exact, exact, rtol=1e-6, atol=1e-9)
    steps = e.steps
    assert (steps.instruction == "fma").sum() == 64 and steps.value.iloc[-1] == e.value
    assert (steps.instruction == "block").sum() == 64 // min(x.group, w.group)
    assert (steps.instruction == "scale").sum() == (w.tensor_scale is not None)


def test_integers_of_64ths_and_roundings_are_told() -> None:
    x, w = blocks((32,), "s8", 0), blocks((32,), "f8_e4m3", 0)
    e = x.explain_dot(w)
    assert e.left_exact is None or e.left_exact.note == "rounds"
    assert np.float32(e.exact) == pytest.approx(float(x.dequantize().astype(np.float64) @ w.dequantize()), rel=1e-6)
    big = simdnn.quantize_mx(np.array([1, 2.0**-30] * 16, np.float32), "f8_e5m2", group=1)
    assert big.explain_dot(big).left_exact.note == "rounds"  # type: ignore[union-attr]


def test_nan_spreads() -> None:
    x = simdnn.quantize_mx(np.array([1, np.nan, 2, 3], np.float32), "f4_e2m1", group=2)
    assert np.isnan(x.explain_dot(x).value)


def test_what_does_not_fit_is_named() -> None:
    x, w = blocks((2, 32), "f8_e4m3", 1), blocks((32, 3), "f4_e2m1", 0)
    for call, told in (
        (lambda: x.explain_dot(w), "a row below 2 and a column below 3"),
        (lambda: x.explain_dot(w, (0, 3)), "a column below 3"),
        (lambda: w.explain_dot(x), "are needed"),
        (lambda: x.explain_dot(x.output), "blocks of simdnn.quantize_mx"),  # type: ignore[arg-type]
        (lambda: x.explain_dot(blocks((64, 3), "f4_e2m1", 0), (0, 0)), "K differs"),
        (lambda: x.explain_dot(simdnn.quantize_ggml(np.ones((32, 3), np.float32), "q4_0", axis=0), (0, 0)), "ggml's"),
    ):
        with pytest.raises(simdnn.SimdnnError, match=told):
            call()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "explain",
        "dot",
        "--src",
        "3,1,0.3,7",
        "--weights",
        "0.5,-6,1,2",
        "--dt",
        "f8_e4m3:f4_e2m1",
        "--group",
        "2",
    ]
    assert main(words) == 0 and "0x7e (448) * 0.015625 x 0x06 (4) * 0.5 = 14; sum 9.8125" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0 and json.loads(capsys.readouterr().out)["value"] == 9.8125
    for wrong, told in (
        (["explain", "dot", "--src", "3"], "what is multiplied"),
        (["explain", "dot", "--src", "3,x", "--weights", "1,2"], "a comma list of numbers"),
        (["explain", "dot", "--src", "3", "--weights", "1", "--dt", "f8_e4m3"], "types of the source and the weights"),
        (["explain", "dot", "--src", "3", "--weights", "1", "--rul", "floor"], "rule"),
        (["explain", "dot", "3", "--src", "3", "--weights", "1"], "numbers are named"),
    ):
        assert main(wrong) == 2 and told in capsys.readouterr().err
