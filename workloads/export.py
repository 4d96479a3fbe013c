"""A trained network as an ONNX model (needs the `onnx` package)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workloads.networks import Classifier

if TYPE_CHECKING:
    import onnx

_OPSET = 17


def onnx_model(network: Classifier) -> onnx.ModelProto:
    """Input `images` f32 (N, C, H, W), output `logits` (N, classes); each layer's nodes carry its name."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    held = []
    last = "images"
    for index, layer in enumerate(network.layers):
        made = "logits" if index == len(network.layers) - 1 and not layer.relu else layer.name
        for part, values in (("weights", layer.weights), ("bias", layer.bias)):
            held.append(numpy_helper.from_array(values, f"{layer.name}.{part}"))
        reads = [last, f"{layer.name}.weights", f"{layer.name}.bias"]
        if layer.kind == "conv":
            pads, strides = [layer.pad] * 4, [layer.stride] * 2
            nodes.append(helper.make_node("Conv", reads, [made], layer.name, pads=pads, strides=strides))
        else:
            nodes.append(helper.make_node("Flatten", [last], [f"{layer.name}.flat"], f"{layer.name}.flat"))
            nodes.append(helper.make_node("Gemm", [f"{layer.name}.flat", *reads[1:]], [made], layer.name))
        if layer.relu:
            last = "logits" if index == len(network.layers) - 1 else f"{layer.name}.relu"
            nodes.append(helper.make_node("Relu", [made], [last], f"{layer.name}.relu"))
        else:
            last = made
    sizes: dict[str, list[str | int | None]] = {
        "images": ["N", *network.test_images.shape[1:]],
        "logits": ["N", network.layers[-1].bias.size],
    }
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in sizes.items()]
    graph = helper.make_graph(nodes, network.name, ports[:1], ports[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)
