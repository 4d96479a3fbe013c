"""Reductions of onnxruntime to the greatest and the least number and to the logarithm of a sum of powers, the greatest
of windows, LRN, PRelu and Swish, over data with NaN, infinities and zeros of both signs: its bits as recorded
(tests/vectors/onnxruntime/extremes.npz).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn

onnx = pytest.importorskip("onnx")
STORED = np.load(Path(__file__).parents[1] / "vectors" / "onnxruntime" / "extremes.npz")
NAMES = sorted({key.split("/")[0] for key in STORED if key.endswith("/axes")})
POOLS = sorted({key.split("/")[0] for key in STORED if key.endswith("/MaxPool")})
CHANNELS = sorted({key.split("/")[0] for key in STORED if key.endswith("/LRN")})
OPERATORS = ("ReduceMax", "ReduceMin", "ReduceLogSumExp")


def model(name: str, node: Any, *held: Any) -> Any:
    """One node over a recorded source."""
    x = STORED[f"{name}/x"]
    ports = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", None))]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)], ir_version=11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_nan_has_its_place(operator: str, name: str) -> None:
    axes = onnx.numpy_helper.from_array(STORED[f"{name}/axes"], "axes")
    compare(name, operator, model(name, onnx.helper.make_node(operator, ["x", "axes"], ["y"], keepdims=1), axes))


@pytest.mark.parametrize("name", POOLS)
def test_a_nan_has_its_place_in_windows(name: str) -> None:
    """Windows as large as the recorded kernel, and the whole image."""
    where = {key: STORED[f"{name}/{key}"].tolist() for key in ("kernel_shape", "strides", "pads", "dilations")}
    compare(name, "MaxPool", model(name, onnx.helper.make_node("MaxPool", ["x"], ["y"], **where)))
    compare(name, "GlobalMaxPool", model(name, onnx.helper.make_node("GlobalMaxPool", ["x"], ["y"])))


@pytest.mark.parametrize("name", CHANNELS)
def test_sums_over_channels_are_raised(name: str) -> None:
    numbers = {key: STORED[f"{name}/{key}"].item() for key in ("size", "alpha", "beta", "bias")}
    compare(name, "LRN", model(name, onnx.helper.make_node("LRN", ["x"], ["y"], **numbers)))


@pytest.mark.parametrize("name", ["slopes0", "slopes1", "slopes2", "slopes3"])
def test_slopes_touch_what_is_below_zero_alone(name: str) -> None:
    slope = onnx.numpy_helper.from_array(STORED[f"{name}/slope"], "slope")
    compare(name, "PRelu", model(name, onnx.helper.make_node("PRelu", ["x", "slope"], ["y"]), slope))


@pytest.mark.parametrize("name", ["swish0", "swish1", "swish2"])
def test_swish_is_a_product_with_a_sigmoid(name: str) -> None:
    alpha = STORED[f"{name}/alpha"].item()
    compare(name, "Swish", model(name, onnx.helper.make_node("Swish", ["x"], ["y"], alpha=alpha)))


@pytest.mark.parametrize("name", [f"nothing{i}" for i in range(5)])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean"])
def test_sums_of_zeros_of_negative_sign(operator: str, name: str) -> None:
    """They begin with a zero but along a line."""
    axes = onnx.numpy_helper.from_array(STORED[f"{name}/over"], "axes")
    compare(name, operator, model(name, onnx.helper.make_node(operator, ["x", "axes"], ["y"], keepdims=1), axes))


@pytest.mark.parametrize("name", [f"range{i}" for i in range(7)])
def test_a_range_with_nan_and_infinities(name: str) -> None:
    """Codes, scale and zero point of what is quantized by its range."""
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    graph = model(name, node)
    graph.graph.output.pop()
    graph.graph.output.extend(onnx.ValueInfoProto(name=part) for part in "ysz")
    found = simdnn.load(graph).run({"x": STORED[f"{name}/x"]}, machine="gnr", dispatch="onnxruntime").outputs
    for part in "ysz":
        np.testing.assert_array_equal(found[part], STORED[f"{name}/{part}"])


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16"])
def test_the_sign_of_a_nan(dtype: str) -> None:
    """Of f16 it is 0 in onnxruntime, as was seen on a Granite Rapids."""
    x, of = np.array([np.nan, -2, 0, 3]), getattr(onnx.TensorProto, dtype)
    ports = [onnx.helper.make_tensor_value_info(name, of, (4,)) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Sign", ["x"], ["y"])], "g", ports[:1], ports[1:])
    loaded = simdnn.load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10))
    x = x.astype(onnx.helper.tensor_dtype_to_np_dtype(of))
    found = loaded.run({"x": x}, machine="gnr", dispatch="onnxruntime").outputs["y"]
    np.testing.assert_array_equal(found, [0 if dtype == "FLOAT16" else np.nan, -1, 0, 1])


def test_sums_over_an_even_number_of_channels_are_refused() -> None:
    with pytest.raises(simdnn.InvalidArgument, match="odd sizes"):
        compare("lrn_usual", "LRN", model("lrn_usual", onnx.helper.make_node("LRN", ["x"], ["y"], size=4)))


def compare(name: str, operator: str, graph: Any) -> None:
    """The recorded numbers, bit for bit, and NaN where they are."""
    found = simdnn.load(graph).run({"x": STORED[f"{name}/x"]}, machine="gnr", dispatch="onnxruntime").outputs["y"]
    wanted = STORED[f"{name}/{operator}"]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    held = ~np.isnan(wanted)
    np.testing.assert_array_equal(found[held].view(np.uint32), wanted[held].view(np.uint32))
