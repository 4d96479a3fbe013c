"""Weights that recipes of a model share: made once, and the same bits as where each recipe has its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn.networks import large_tensors, mixed, quantized_writer
from simdnn.networks.memo import Memo
from simdnn.networks.modes import Calibrated, in_recipe
from simdnn.networks.precision import MODES, recipe
from simdnn.networks.sequential import Place
from simdnn.primitives import Attr
from simdnn.tuning.subjects import ModelSubject

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
FEED = {"x": RNG.standard_normal((1, 16, 6, 6), np.float32)}
ZEN4 = simdnn.machine("zen4")
RECIPES = [
    {"conv": "int8-vnni", "one": "mxfp6", "two": "s4-g32"},
    {"conv": "s8-weights", "one": "int8-vnni", "two": "mxfp4"},
    {"conv": "bf16", "one": "bf16", "two": "f8-channel"},
    {"conv": "f16", "one": "f32", "two": "int8-vnni"},
]


def model() -> onnx.ModelProto:
    """A convolution, a MatMul, and a Gemm that reads its weights transposed; all of them large enough for a shelf."""
    nodes = [
        onnx.helper.make_node("Conv", ["x", "filter"], ["c"], "conv", pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Flatten", ["c"], ["flat"], "flat"),
        onnx.helper.make_node("MatMul", ["flat", "first"], ["h"], "one"),
        onnx.helper.make_node("Gemm", ["h", "second"], ["y"], "two", transB=1),
    ]
    held = {"filter": (32, 16, 3, 3), "first": (32 * 36, 64), "second": (80, 64)}
    constants = [
        onnx.numpy_helper.from_array(RNG.standard_normal(shape, np.float32) * np.float32(0.1), name)
        for name, shape in held.items()
    ]
    ports = [onnx.helper.make_tensor_value_info(n, 1, dims) for n, dims in (("x", [1, 16, 6, 6]), ("y", [1, 80]))]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)


MODEL = model()


def outputs(calibrated: Calibrated, modes: dict[str, str], memo: Memo | None = None) -> np.ndarray[Any, Any]:
    network = in_recipe(calibrated, recipe(modes))
    where = mixed.placed(network, recipe(modes), ZEN4, None)
    found: np.ndarray[Any, Any] = network.run(FEED, machine=ZEN4, attr=Attr(), placed=where, memo=memo).outputs["y"]
    return found


def test_recipes_from_a_shelf_are_those_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, memo = Calibrated(MODEL, [FEED]), Memo()
    subject = ModelSubject(MODEL, Place(ZEN4), [FEED], [FEED])
    assert len(shared.mixable.model.SerializeToString()) < 5000 < len(MODEL.SerializeToString())
    found = [(outputs(shared, modes, memo), subject.onnx(modes)) for modes in RECIPES]
    again = [outputs(shared, modes) for modes in RECIPES]
    monkeypatch.setattr(mixed, "Shelf", lambda: large_tensors.Shelf(least=1 << 40))
    for modes, (values, made), second in zip(RECIPES, found, again, strict=True):
        alone, theirs = Calibrated(MODEL, [FEED]), ModelSubject(MODEL, Place(ZEN4), [FEED], [FEED])
        assert len(alone.mixable.model.SerializeToString()) > 5000
        assert values.tobytes() == second.tobytes() == outputs(alone, modes).tobytes(), modes
        assert made.SerializeToString(deterministic=True) == theirs.onnx(modes).SerializeToString(deterministic=True)


def test_weights_are_stored_once_in_each_form(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Calibrated(MODEL, [FEED])
    first = [outputs(shared, modes) for modes in RECIPES]

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(quantized_writer, "_by_groups", never)
    monkeypatch.setattr(quantized_writer.NARROW_MODES["mxfp8"].weights.__class__, "store", never)
    monkeypatch.setattr("simdnn.networks.float16_writer.narrowed", never)
    for modes, wanted in zip(RECIPES, first, strict=True):
        assert outputs(shared, modes).tobytes() == wanted.tobytes()


def test_what_was_made_is_forgotten_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tensors, "_MOST", 1)
    shared = Calibrated(MODEL, [FEED])
    wanted = outputs(shared, RECIPES[0])
    assert len(shared.mixable.shelf._made) == 3
    outputs(shared, {"conv": "f32", "one": "f32", "two": "f32"})
    assert not shared.mixable.shelf._made
    assert outputs(shared, RECIPES[0]).tobytes() == wanted.tobytes()


def test_nobody_reads_a_shelf_that_is_closed() -> None:
    with pytest.raises(simdnn.InvalidArgument, match="a model in memory has no folder"):
        simdnn.load(Calibrated(MODEL, [FEED]).mixable.model)
    assert MODES["mxfp6"].stores
