"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper, numpy_helper

Arrays = Mapping[str, np.ndarray[Any, Any]]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Arrays | None = None,
    opset: int = 17,
    dtype: int = onnx.TensorProto.FLOAT,
    **extra: Any,
) -> onnx.ModelProto:
    """A checked model: inputs of one type with their dimensions, outputs whose shapes are inferred."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, dtype, list(d)) for n, d in inputs.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9, **extra)
    inferred = onnx.shape_inference.infer_shapes(made)
    del made.graph.output[:]
    made.graph.output.extend(inferred.graph.output)
    return made


def small_cnn(seed: int = 0, opset: int = 17, soft: bool = True) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, MaxPool, Flatten, Gemm and, if `soft`, Softmax on Nx3x12x12."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(size=shape, scale=0.4).astype(np.float32)

    constants = {
        "w": normal(8, 3, 3, 3),
        "b": normal(8),
        "scale": normal(8) + 1,
        "shift": normal(8),
        "mean": normal(8),
        "var": np.abs(normal(8)) + 0.5,
        "fc": normal(10, 288),
        "fb": normal(10),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "fc", "fb"], ["g"], "fc", transB=1),
        helper.make_node("Softmax", ["g"], ["y"], "soft", axis=1),
    ]
    if not soft:
        nodes[-2:] = [helper.make_node("Gemm", ["f", "fc", "fb"], ["y"], "fc", transB=1)]
    return model(nodes, {"x": ["N", 3, 12, 12]}, ["y"], constants, opset)
