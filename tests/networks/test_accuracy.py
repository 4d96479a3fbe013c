"""Schemes of quantization on trained networks: accuracy by machine, and the channels that fast int8 spoils."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads
from isa_models import InvalidArgument
from simdnn import quantize
from simdnn.networks.accuracy import accuracy_table, lossy_channels
from simdnn.quantize import Scheme
from tools import train_cancer
from workloads import Classifier

SCHEMES = (Scheme(), Scheme("per_tensor", "symmetric", 99.9))


@pytest.fixture(scope="module")
def digits() -> Classifier:
    """The digits network over fewer images."""
    net = workloads.digits()
    return replace(net, test_images=net.test_images[:60], test_labels=net.test_labels[:60])


def test_table(digits: Classifier) -> None:
    frame = accuracy_table(digits, ("skx", "zen4"), SCHEMES)
    assert len(frame) == 2 * (1 + 2 * len(SCHEMES))
    assert (frame["accuracy"] > 0.95).all() and frame["lost"].abs().max() < 0.05
    skx, zen4 = (frame[frame["machine"] == name].set_index("mode") for name in ("skx", "zen4"))
    assert (skx.loc["int8-fast", "saturated_share"] > 0).any() and (zen4["saturated_share"] == 0).all()
    assert list(zen4.loc["int8-fast", "sqnr_db"]) == list(zen4.loc["int8-exact", "sqnr_db"])  # the same bits
    assert (skx.loc["int8-exact", "sqnr_db"].to_numpy() > skx.loc["int8-fast", "sqnr_db"].to_numpy()).all()
    assert (skx.loc["int8-exact", "cycles"].to_numpy() > skx.loc["int8-fast", "cycles"].to_numpy()).all()


def test_channels_are_named_where_they_lose(digits: Classifier) -> None:
    frame = lossy_channels(digits, "skx")
    assert set(frame["layer"]) == {"conv1", "conv2", "conv3", "fc"} and len(frame) == 16 + 32 + 64 + 10
    assert frame["error"].is_monotonic_decreasing and frame["layer"].iloc[0] == "conv1"
    worst = frame.iloc[0]
    assert worst["saturated_share"] > 0 and worst["changed_share"] > 0
    assert (frame[frame["saturated_share"] == 0]["changed_share"] == 0).all()  # u8: only saturation changes
    assert (lossy_channels(digits, "clx")["error"] == 0).all()


def test_cancer_needs_zero_points_or_signs() -> None:
    net = workloads.cancer()
    assert net.test_images.min() < 0
    accuracy = (net.reference(net.test_images).argmax(axis=1) == net.test_labels).mean()
    assert accuracy > 0.95
    frame = accuracy_table(net, ("skx",), SCHEMES, isa="avx2")
    assert frame["accuracy"].min() > accuracy - 0.03 and set(frame["isa"]) == {"avx2"}


def test_cancer_is_what_its_script_makes() -> None:
    """The shipped samples are scikit-learn's, standardized; a short training learns."""
    features, labels = train_cancer.load_cancer()
    held_out = train_cancer.split(labels)
    samples = train_cancer.standardized(features, ~held_out)
    net = workloads.cancer()
    np.testing.assert_array_equal(samples[held_out], net.test_images)
    np.testing.assert_array_equal(labels[~held_out], net.train_labels)
    weights = train_cancer.train(samples[~held_out], labels[~held_out], epochs=3)
    logits = train_cancer.forward(samples[held_out], workloads.networks.cancer_layers(weights))[0]
    assert (logits.argmax(axis=1) == labels[held_out]).mean() > 0.9


@given(st.lists(st.floats(-50, 50, width=32), min_size=1), st.sampled_from(["symmetric", "asymmetric"]))
def test_activations_keep_values_within_half_a_step(values: list[float], kind: str) -> None:
    array = np.array(values, np.float32)
    found = quantize.activation(array, Scheme(activations=kind))
    if float(found.scale) < 1e-30:
        return
    error = np.abs(found.real(found.stored(array)) - array)
    assert error.max() <= 0.5001 * found.scale * (1 if found.zero_point == 0 else 2)
    assert found.stored(np.zeros(1))[0] == found.zero_point  # zero is stored exactly
    assert found.dtype == ("s8" if kind == "symmetric" and array.min() < 0 else "u8")


@pytest.mark.parametrize("wrong", [{"weights": "per_row"}, {"activations": "both"}, {"percentile": 0}])
def test_wrong_schemes(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        Scheme(**wrong)  # type: ignore[arg-type]


def test_a_percentile_cuts_both_ends() -> None:
    values = np.array([-1e3, *np.linspace(-1, 2, 1000), 1e3], np.float32)
    found = quantize.activation(values, Scheme(percentile=99))
    assert found.real(np.array([0, 255], np.uint8)) == pytest.approx([-1, 2], abs=0.05)
