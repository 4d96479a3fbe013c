"""Small models drawn at random, for recording what onnxruntime makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
Arrays = dict[str, Any]


class Draws:
    """A family's models as they are drawn."""

    def __init__(self, family: str) -> None:
        self.rng = np.random.default_rng(list(family.encode()))
        self.family, self.made = family, dict[str, tuple[bytes, Arrays]]()

    def floats(self, *shape: int, scale: float = 1.0) -> Any:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def integers(self, dtype: str, *shape: int) -> Any:
        """Most of them as large as can be, so that pairs saturate."""
        info = np.iinfo({"u8": np.uint8, "s8": np.int8}[dtype])
        values = self.rng.integers(info.min, info.max + 1, shape)
        return np.where(self.rng.random(shape) < 0.6, self.rng.choice([info.max, info.min], shape), values).astype(
            info.dtype
        )

    def add(self, name: str, nodes: Any, feeds: Arrays, constants: Arrays, outputs: str = "y", opset: int = 17) -> None:
        """A model of some nodes, whose outputs are told apart by blanks."""
        ports = [
            helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for key, value in feeds.items()
        ]
        tensors = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
        found = [onnx.ValueInfoProto(name=key) for key in outputs.split()]
        graph = helper.make_graph(nodes, "recorded", ports, found, tensors)
        opsets = [helper.make_opsetid(*each) for each in (("", opset), (MICROSOFT, 1), (ML, 3))]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        self.made[f"{self.family}_{name}"] = (model.SerializeToString(), feeds)


def node(op: str, inputs: str, outputs: str = "y", domain: str = "", **attributes: Any) -> Any:
    """A node whose inputs and outputs are apart by blanks; "-" is one that is left out."""
    given, made = (["" if name == "-" else name for name in side.split()] for side in (inputs, outputs))
    return helper.make_node(op, given, made, domain=domain, **attributes)
