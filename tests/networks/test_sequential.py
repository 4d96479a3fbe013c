"""Quantization, and the digits network through the primitives in every mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import simdnn
import workloads
from isa_models import InvalidArgument
from simdnn import quantize, study
from simdnn.networks import sequential as network
from simdnn.networks.precision import MODES
from workloads import Classifier

IMAGES = 24
TARGET = network.Place("zen4", "avx512_core_vnni")


@pytest.fixture(scope="module")
def digits() -> Classifier:
    """The network with a few of its images, so that the tests stay short."""
    full = workloads.digits()
    return replace(
        full,
        test_images=full.test_images[:IMAGES],
        test_labels=full.test_labels[:IMAGES],
        train_images=full.train_images[:IMAGES],
    )


@pytest.fixture(scope="module")
def frame(digits: Classifier) -> pd.DataFrame:
    return study.run_network(digits, "zen4")


def test_f32_is_the_reference(digits: Classifier) -> None:
    f32 = MODES["f32"]
    runs = network.execute(network.prepare(digits, f32), digits.test_images, f32, TARGET)
    assert [run.layer.name for run in runs] == ["conv1", "conv2", "conv3", "fc"]
    np.testing.assert_allclose(runs[-1].values, digits.reference(digits.test_images), rtol=1e-4, atol=1e-4)


def test_integers_by_hand(digits: Classifier) -> None:
    """The first layer's u8 result, from the scheme's own formula in NumPy."""
    vnni = MODES["int8-vnni"]
    stored = network.activations(digits, TARGET)
    prepared = network.prepare(digits, vnni, stored)
    first = prepared[0]
    runs = network.execute(prepared, digits.test_images, vnni, TARGET)
    assert runs[0].result.output.dtype == np.uint8 and runs[-1].result.output.dtype == np.float32
    source = stored[0].stored(digits.test_images).astype(np.float32)
    integers = replace(
        first.layer, weights=first.weights.astype(np.float32), bias=np.zeros_like(first.layer.bias), relu=False
    )
    sums = replace(digits, layers=(integers,)).reference(source)  # exact: below 2^24
    assert first.wei_scale is not None
    real = sums * (stored[0].scale * first.wei_scale)[:, None, None] + first.layer.bias[:, None, None]
    wanted = np.clip(np.rint(np.maximum(real, 0) / stored[1].scale), 0, 255)
    difference = np.abs(runs[0].result.output.astype(int) - wanted)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.001  # the order of the scalings decides ties
    np.testing.assert_array_equal(runs[0].values, runs[0].result.output * stored[1].scale)


def test_frame(frame: pd.DataFrame) -> None:
    assert list(frame["mode"].unique()) == [name for name, mode in MODES.items() if mode.default]
    assert list(frame["layer"].unique()) == ["conv1", "conv2", "conv3", "fc"]
    assert (frame["images"] == IMAGES).all()
    assert (frame["accuracy"] >= 1 - 2 / IMAGES).all()
    by_mode = frame.groupby("mode", sort=False)
    assert (by_mode["accuracy"].nunique() == 1).all()
    assert (by_mode["sqnr_db"].min()[["int8-exact", "int8-vnni"]] > 30).all()
    fast = by_mode.get_group("int8-fast")
    assert fast["saturated_outputs"].iloc[0] > 0 and 10 < fast["sqnr_db"].min() < 30  # conv1 saturates, and it shows
    exact, vnni = (by_mode.get_group(name) for name in ("int8-exact", "int8-vnni"))
    assert list(exact["max_abs_error"]) == list(vnni["max_abs_error"])  # the same bits from layer to layer


def test_totals(frame: pd.DataFrame) -> None:
    totals = study.totals(frame).set_index("mode")
    assert totals.loc["int8-vnni", "speed_up"] > totals.loc["bf16", "speed_up"] > 1
    assert totals.loc["f32", "macs"] == workloads.load("digits").macs
    assert (totals["cycles_mb1"] > 0).all()
    assert set(totals["images"]) == {IMAGES}
    for mode, part in frame.groupby("mode"):
        assert totals.loc[mode, "sqnr_db"] == part["sqnr_db"].iloc[-1]  # of the outputs, as accuracy_table tells it
        assert totals.loc[mode, "worst_layer_sqnr_db"] == part["sqnr_db"].min()


def test_full_accuracy_of_the_shipped_network() -> None:
    """All 360 held-out images; int8 loses at most three of them."""
    digits, vnni = workloads.digits(), MODES["int8-vnni"]
    prepared = network.prepare(digits, vnni, network.activations(digits, TARGET))
    logits = network.execute(prepared, digits.test_images, vnni, TARGET)[-1].values
    wanted = network.accuracy(digits.reference(digits.test_images), digits.test_labels)
    assert wanted - 3 / 360 <= network.accuracy(logits, digits.test_labels) <= 1


def test_a_layer_that_can_be_negative(digits: Classifier) -> None:
    """Gets a zero point, or s8; the layers around it are none the worse."""
    bare = replace(digits, layers=tuple(replace(layer, relu=False) for layer in digits.layers))
    points = network.activations(bare, TARGET)
    assert points[0].zero_point == 0 < points[1].zero_point < 255 and {p.dtype for p in points} == {"u8"}
    signed = network.activations(bare, TARGET, quantize.Scheme(activations="symmetric"))
    assert [s.dtype for s in signed] == ["u8", "s8", "s8", "s8"] and {s.zero_point for s in signed} == {0}
    vnni, f32 = MODES["int8-vnni"], MODES["f32"]
    wanted = network.execute(network.prepare(bare, f32), digits.test_images, f32, TARGET)[-1].values
    for stored in (points, signed):
        runs = network.execute(network.prepare(bare, vnni, stored), digits.test_images, vnni, TARGET)
        noise = np.linalg.norm(runs[-1].values - wanted) / np.linalg.norm(wanted)
        assert noise < 0.1
    infinite = replace(digits, train_images=np.full_like(digits.train_images, np.inf))
    with pytest.raises(InvalidArgument, match="source of layer 'conv1': activations need"):
        network.activations(infinite, TARGET)


def test_percentile_clips(digits: Classifier) -> None:
    largest = [a.scale for a in network.activations(digits, TARGET)]
    clipped = [a.scale for a in network.activations(digits, TARGET, quantize.Scheme(percentile=99))]
    assert all(a <= b for a, b in zip(clipped, largest, strict=True)) and clipped[1] < largest[1]


finite = st.floats(-1e6, 1e6, width=32)


@given(arrays(np.float32, (3, 2, 2), elements=finite))
def test_weights_come_back_within_half_a_step(weights: np.ndarray) -> None:
    for axis in (0, 2):
        scales = quantize.weight_scales(weights, axis)
        stored = quantize.quantize_weights(weights, scales, axis)
        shape = [-1 if i == axis else 1 for i in range(3)]
        back = stored * scales.astype(np.float64).reshape(shape)
        assert stored.dtype == np.int8 and stored.min() >= -127
        assert (np.abs(back - weights) <= 0.5001 * scales.reshape(shape) + 1e-30).all()


@given(arrays(np.float32, 9, elements=st.floats(0, 1e6, width=32)))
def test_activations_come_back_within_half_a_step(values: np.ndarray) -> None:
    scale = quantize.activation_scale(values)
    stored = quantize.Activation(scale).stored(values)
    assert stored.dtype == np.uint8
    assert (np.abs(stored * np.float64(scale) - values) <= 0.5001 * scale + 1e-30).all()


@pytest.mark.parametrize("values", [[], [np.nan, 1], [np.inf], [-1, 1]])
def test_values_without_a_u8_form(values: list[float]) -> None:
    with pytest.raises(InvalidArgument, match="finite and not negative"):
        quantize.activation_scale(np.array(values))


@pytest.mark.parametrize("percentile", [0, -1, 101, float("nan")])
def test_percentile_has_a_range(percentile: float) -> None:
    with pytest.raises(InvalidArgument, match="percentile"):
        quantize.activation_scale(np.ones(3), percentile)


def test_weights_that_are_no_numbers() -> None:
    with pytest.raises(InvalidArgument, match="NaN or infinity"):
        quantize.weight_scales(np.array([[np.nan, 1]], np.float32), 0)


def test_part_of_a_network_in_bf16_the_rest_strict(digits: Classifier) -> None:
    """A sub-graph in a math mode: the same bits as calls of the layers, each within its scope."""
    mode, target = MODES["fpmath-bf16"], network.Place("zen4", "avx512_core_bf16")
    prepared = network.prepare(digits, mode, fpmath_layers="conv1,conv2")
    runs = network.execute(prepared, digits.test_images, mode, target)
    assert [run.result.fpmath for run in runs] == ["bf16", "bf16", "strict", "strict"]
    assert [run.result.compute_dtype for run in runs] == ["f32", "bf16", "f32", "f32"]  # a hint: conv1 gains nothing
    x, relu = digits.test_images, simdnn.Attr(post_ops=["relu"])
    for layer, run in zip(digits.layers, runs, strict=True):
        with simdnn.fpmath_mode("bf16" if layer.name in ("conv1", "conv2") else "strict"):
            where = {"machine": "zen4", "dst": "f32", "attr": relu if layer.relu else None}
            if layer.kind == "conv":
                x = simdnn.convolution(
                    x, layer.weights, layer.bias, strides=layer.stride, padding=layer.pad, **where
                ).output
            else:
                x = simdnn.matmul(x.reshape(len(x), -1), layer.weights, layer.bias, **where).output
        assert x.tobytes() == run.result.output.tobytes()
    whole = network.execute(network.prepare(digits, mode), digits.test_images, mode, target)
    strict = network.execute(network.prepare(digits, mode, fpmath_layers="none"), digits.test_images, mode, target)
    assert [r.result.fpmath for r in whole + strict] == ["bf16"] * 4 + ["strict"] * 4
    assert {r.result.compute_dtype for r in whole} == {"bf16", "f32"} > {r.result.compute_dtype for r in strict}
    errors = [np.abs(r[-1].values - strict[-1].values).max() for r in (runs, whole)]
    assert 0 < errors[0] and 0 < errors[1]


def test_the_runner_scopes_a_math_mode(digits: Classifier) -> None:
    frame = study.run_network(digits, "zen4", ["f32", "fpmath-bf16"], fpmath_layers="conv[12]")
    found = frame[frame["mode"] == "fpmath-bf16"].set_index("layer")
    assert list(found["compute_dtype"]) == ["f32", "bf16", "f32", "f32"]
    with pytest.raises(InvalidArgument, match="fpmath_layers='conv9' matches none of the layers; they are conv1"):
        study.run_network(digits, "zen4", ["f32"], fpmath_layers="conv1,conv9")
    table = workloads.load("digits")
    layers = study.run_layers(table, "zen4", ["fpmath-bf16"], values=False, fpmath_layers="conv[12]")
    assert list(layers["compute_dtype"]) == ["f32", "bf16", "f32", "f32"]
