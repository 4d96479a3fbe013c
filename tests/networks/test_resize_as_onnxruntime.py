"""Resize under dispatch="onnxruntime" beside onnxruntime on this host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn import Unimplemented  # noqa: E402
from tests.networks.peer import Arrays, differs, model  # noqa: E402

PLACES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
ROUNDED = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def resize(rng: np.random.Generator, mode: str, dtype: Any) -> tuple[Any, Arrays]:
    """One Resize, over the last axes, or over those in the middle as with channels last."""
    flat = {2: 2, 4: 2} if mode == "cubic" else {2: 2, 3: 3, 4: 2, 5: 3}
    rank = int(rng.choice(list(flat)))
    shape = [int(n) for n in rng.integers(1, 9, rank)]
    kept, attributes = rank - flat[rank], {"mode": mode, "coordinate_transformation_mode": str(rng.choice(PLACES))}
    first = 1 if mode == "linear" and rank == 4 and rng.random() < 0.3 else kept
    scales = np.ones(rank, np.float32)
    scales[first : first + flat[rank]] = rng.choice([2, 3, 0.7, 1.5, 1, 2.1, 1.3], flat[rank])
    scales[first : first + flat[rank]][np.floor(np.array(shape[first : first + flat[rank]]) * 0.7) < 1] = 2
    if mode == "nearest":
        attributes["nearest_mode"] = str(rng.choice(ROUNDED))
    info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    x = rng.integers(info.min, info.max + 1, shape) if info else rng.standard_normal(shape)
    whole = {"exclude_outside": int(rng.integers(2))} if mode == "cubic" else {}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attributes, **whole)
    feeds = {"x": x.astype(dtype)}
    return model([node], feeds, {"s": scales}), feeds


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [("nearest", np.float32), ("nearest", np.uint8), ("linear", np.float32), ("linear", np.uint8), ("linear", np.int8)]
    + [("cubic", np.float32)],
)
def test_resize(mode: str, dtype: Any) -> None:
    """Places, shares and sums in f32, integers cut; f64, as the ONNX package computes it, lands elsewhere."""
    rng = np.random.default_rng(3)
    assert [found for found in (differs(*resize(rng, mode, dtype)) for _ in range(25)) if found] == []


def test_places_within_a_millionth_of_a_half_are_one() -> None:
    """31.5 / 2.1 is 15.000001 in f32, so that place 31 lies at 14.500001: rounded down all the same."""
    x = np.arange(27, dtype=np.float32).reshape(1, 1, 1, 27)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")
    made = model([node], {"x": x}, {"s": np.array([1, 1, 1, 2.1], np.float32)})
    found = simdnn.load(made).run({"x": x}, machine="icx", dispatch="onnxruntime").outputs["y"]
    assert found[0, 0, 0, 31] == 14 and not differs(made, {"x": x})


def test_what_resize_does_not_do_there() -> None:
    x = np.ones((2, 3, 4), np.float32)
    by = {"s": np.array([1, 2, 2], np.float32)}
    for attributes, why in (
        ({"mode": "cubic"}, "2 or 4 dimensions"),
        ({"mode": "linear", "antialias": 1}, "antialias"),
    ):
        made = model([helper.make_node("Resize", ["x", "", "s"], ["y"], **attributes)], {"x": x}, by)
        with pytest.raises(Unimplemented, match=why):
            simdnn.load(made).run({"x": x}, machine="icx", dispatch="onnxruntime")
        assert simdnn.load(made).run({"x": x}, machine="icx").outputs["y"].size
