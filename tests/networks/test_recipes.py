"""Recipes: each layer in a mode of its own, of trained networks and of ONNX models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import isa_models
import workloads
from isa_models import InvalidArgument, UnknownName
from simdnn.networks import sequential
from simdnn.networks.classifier import ClassifierRun
from simdnn.networks.modes import run_model
from simdnn.networks.precision import MODES, Mode, choose, recipe
from simdnn.networks.runner import run_modes
from tests.effort import one_in
from workloads import Classifier

LAYERS = ("fc1", "fc2", "fc3")
NAMES = ("f32", "bf16", "int8-vnni", "s8-weights")
MIX = recipe({"fc1": "bf16", "fc2": "int8-vnni", "fc3": "s8-weights"}, "mix")


@pytest.fixture(scope="module")
def cancer() -> Classifier:
    full = workloads.cancer()
    return replace(full, test_images=full.test_images[:16], test_labels=full.test_labels[:16])


def modes() -> dict[Mode, Any]:
    """Whole modes, a recipe that says each layer by layer, and one that mixes them."""
    found: dict[Mode, Any] = dict(choose(isa_models.machine("zen4"), NAMES)[0])
    return {**found, **{recipe(dict.fromkeys(LAYERS, name), f"all {name}"): None for name in NAMES}, MIX: None}


@pytest.fixture(scope="module")
def classified(cancer: Classifier) -> pd.DataFrame:
    part = ClassifierRun(cancer, sequential.Place("zen4", "avx512_core"), 100.0, "*")
    return run_modes([part], modes()).layers.set_index("mode")


@pytest.fixture(scope="module")
def graph(cancer: Classifier) -> pd.DataFrame:
    pytest.importorskip("onnx")
    from workloads.export import onnx_model

    frames = run_model(onnx_model(cancer), {"images": cancer.test_images}, modes(), machine="zen4", layers=True)
    assert (frames.totals["refused"] == "").all()
    return frames.layers.set_index("mode")


@one_in(2)
@pytest.mark.parametrize("kind", ["classified", "graph"])
def test_a_recipe_of_one_mode_is_that_mode(kind: str, request: pytest.FixtureRequest) -> None:
    frame = request.getfixturevalue(kind)
    columns = ["layer", "implementation", "cycles", "sqnr_db"]
    for name in NAMES:
        whole, layered = (frame.loc[mode, columns].reset_index(drop=True) for mode in (name, f"all {name}"))
        pd.testing.assert_frame_equal(whole, layered)


@pytest.mark.parametrize("kind", ["classified", "graph"])
def test_each_layer_computes_in_its_own_type(kind: str, request: pytest.FixtureRequest) -> None:
    frame = request.getfixturevalue(kind).reset_index()
    types = {(row["mode"], row["layer"]): row["compute_dtype"] for row in frame.to_dict("records")}
    for layer, mode in MIX.layers:
        assert types["mix", layer] == types[mode, layer]
    mixed = frame[frame["mode"] == "mix"]
    assert mixed["sqnr_db"].dropna().between(15, 100).all()


def test_borders_cost_what_they_cost(graph: pd.DataFrame) -> None:
    """A cast stands where 16 bits end, and integers are made where they begin."""
    borders = graph.reset_index().query("mode == 'mix' and op in ('Cast', 'QuantizeLinear')")
    assert set(borders["op"]) == {"Cast", "QuantizeLinear"} and (borders["cycles"] > 0).all()


def test_what_a_recipe_may_not_say(cancer: Classifier) -> None:
    with pytest.raises(UnknownName, match="bf17"):
        recipe({"fc1": "bf17"})
    with pytest.raises(InvalidArgument, match="mode by layer"):
        recipe({})
    part = ClassifierRun(cancer, sequential.Place("skx", "avx512_core"), 100.0, "*")
    with pytest.raises(UnknownName, match="fc9"):
        run_modes([part], {recipe({"fc9": "bf16"}): None}, isa="avx512_core")
    with pytest.raises(InvalidArgument, match=r"'fc1' in 'bf16' needs .*skx"):
        run_modes([part], {recipe({"fc1": "bf16"}): None}, isa="avx512_core")
    assert MODES["f32"].of_layer("fc1") is MODES["f32"]
