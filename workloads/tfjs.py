"""Reads a TensorFlow.js layers model (model.json beside its shards of weights) into an ONNX model.

The topology is Keras's functional one; the weights lie one after the other in the shards, in the manifest's order,
each as it is or as integers q that stand for q x scale + min (tfjs-core, io/io_utils, decodeWeights). Tensors are
channels last there and channels first here, so input and output of the ONNX model are (N, C, H, W).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, Unimplemented
from workloads import untrusted
from workloads.onnx_writer import Writer

if TYPE_CHECKING:
    import onnx

F32 = NDArray[np.float32]


def read(path: str | PathLike[str]) -> onnx.ModelProto:
    """The model of a model.json. Its one input and one output are images f32 (N, C, H, W), H and W free.

    Raises `InvalidArgument` for a broken file, `Unimplemented` naming a layer that this reader does not know.
    """
    file = Path(path)
    root = untrusted.json_object(untrusted.content(file), file.name)
    if root.get("format") != "layers-model":
        raise InvalidArgument(f"{file.name} has format {root.get('format')!r:.40}; 'layers-model' is needed")
    topology = untrusted.field(root, "modelTopology", dict, file.name)
    config = untrusted.field(untrusted.field(topology, "model_config", dict, file.name), "config", dict, file.name)
    return _Graph(config, weights(root, file)).model()


def weights(root: dict[str, Any], file: Path) -> dict[str, F32]:
    """All weights of a manifest by name, in f32."""
    found: dict[str, F32] = {}
    for group in untrusted.field(root, "weightsManifest", list, file.name):
        data = b"".join(_shard(file, name) for name in untrusted.field(group, "paths", list, "weightsManifest"))
        start = 0
        for entry in untrusted.field(group, "weights", list, "weightsManifest"):
            name = untrusted.field(entry, "name", str, "weightsManifest")
            if name in found:
                raise InvalidArgument(f"two weights of one name, {name!r:.60}")
            found[name], start = _weight(entry, f"weight {name!r:.60}", data, start)
        if start != len(data):
            raise InvalidArgument(f"the shards of {file.name} hold {len(data)} bytes; its weights take {start}")
    return found


def _shard(file: Path, name: Any) -> bytes:
    if not isinstance(name, str) or name != Path(name).name or name in ("", ".", ".."):
        raise InvalidArgument(f"shard {str(name)!r:.60}: only files beside {file.name} are read")
    return untrusted.content(file.parent / name)


_STORED = {"float32": "<f4", "float16": "<f2", "uint8": "<u1", "uint16": "<u2"}


def _weight(entry: dict[str, Any], what: str, data: bytes, start: int) -> tuple[F32, int]:
    """One weight of a group's bytes, and where the next one starts."""
    shape = untrusted.shape(entry.get("shape"), what)
    if entry.get("dtype") != "float32":
        raise Unimplemented(f"{what} has type {entry.get('dtype')!r:.40}; float32 works")
    packing = entry.get("quantization")
    stored = "float32" if packing is None else untrusted.field(packing, "dtype", str, what)
    if stored not in _STORED:
        raise Unimplemented(f"{what} is stored as {stored!r:.40}; what works: {', '.join(_STORED)}")
    kind = np.dtype(_STORED[stored])
    count = int(np.prod(shape, dtype=np.int64))
    end = start + count * kind.itemsize
    if end > len(data):
        raise InvalidArgument(f"{what} ends at byte {end}; the shards of its group hold {len(data)}")
    values = np.frombuffer(data, kind, count, start).reshape(shape)
    if kind.kind == "u":
        scale, least = (untrusted.field(packing, key, float, what) for key in ("scale", "min"))
        values = values * scale + least  # in double precision, as JavaScript does
    with np.errstate(over="ignore"):
        single: F32 = values.astype(np.float32)
    if not np.isfinite(single).all():
        raise InvalidArgument(f"{what} has values that are not finite")
    return single, end


@dataclass(frozen=True)
class _KerasLayer:
    name: str
    kind: str
    config: dict[str, Any]
    inputs: tuple[str, ...]

    def get(self, key: str, usual: Any, *allowed: Any) -> Any:
        """A field of the configuration; `Unimplemented` where `allowed` values are given and it has another."""
        value = self.config.get(key, usual)
        if allowed and value not in allowed:
            raise Unimplemented(f"layer {self.name!r:.60}: {key}={value!r:.40}; what works: {allowed}")
        return value

    def pair(self, key: str, usual: int) -> list[int]:
        """Two sizes, along H and W."""
        found = untrusted.shape(self.config.get(key, [usual, usual]), f"layer {self.name!r:.60}: {key}")
        if len(found) != 2 or not all(1 <= n <= 1 << 16 for n in found):
            raise InvalidArgument(f"layer {self.name!r:.60}: {key}={found}; two sizes from 1 are needed")
        return list(found)


def _layer(entry: Any) -> _KerasLayer:
    name = untrusted.field(entry, "name", str, "a layer")
    what = f"layer {name!r:.60}"
    calls = untrusted.field(entry, "inbound_nodes", list, what)
    if len(calls) > 1:
        raise Unimplemented(f"{what} is called {len(calls)} times; layers that are called once work")
    sources = calls[0] if calls else []
    try:
        inputs = tuple(str(source[0]) for source in sources if (source[1], source[2]) == (0, 0))
    except (TypeError, IndexError, KeyError):
        inputs = ()
    if len(inputs) != len(sources):
        raise InvalidArgument(f"{what}: its inputs are no list of [layer, 0, 0, {{}}]")
    return _KerasLayer(
        name, untrusted.field(entry, "class_name", str, what), untrusted.field(entry, "config", dict, what), inputs
    )


class _Graph:
    """Writes the layers, in the order of the file, as nodes."""

    def __init__(self, config: dict[str, Any], weights: dict[str, F32]) -> None:
        self.writer, self.weights = Writer(), weights
        self.title = str(config.get("name") or "model")[:60]
        self.layers = [_layer(entry) for entry in untrusted.field(config, "layers", list, "the topology")]
        self.ends = [_only(config, key) for key in ("input_layers", "output_layers")]
        self.known: dict[str, int] = {}  # channels of what each layer gives

    def model(self) -> onnx.ModelProto:
        kinds: dict[str, Callable[[_KerasLayer], int]] = {
            "InputLayer": self.input,
            "Conv2D": self.convolution,
            "Activation": self.activation,
            "Concatenate": self.concatenate,
            "Add": self.add,
            "UpSampling2D": self.upsampling,
        }
        for layer in self.layers:
            if layer.kind not in kinds:
                raise Unimplemented(f"layer {layer.name!r:.60} is a {layer.kind:.40}; what works: {', '.join(kinds)}")
            if missing := [name for name in layer.inputs if name not in self.known]:
                raise InvalidArgument(f"layer {layer.name!r:.60} reads {missing[0]!r:.60}, which no layer before makes")
            if layer.name in self.known or bool(layer.inputs) != (layer.kind != "InputLayer"):
                raise InvalidArgument(f"layer {layer.name!r:.60}: a name used twice, or the wrong number of inputs")
            self.known[layer.name] = kinds[layer.kind](layer)
        source, result = self.ends
        if source not in self.known or result not in self.known:
            raise InvalidArgument(f"input {source!r:.60} or output {result!r:.60} of the model is no layer")
        return self.writer.model(
            self.title,
            {source: ("float32", ["n", self.known[source], "h", "w"])},
            {result: ("float32", ["n", self.known[result], "h_out", "w_out"])},
        )

    # -- layers: each writes its nodes and gives its channels ----------------------------------------------------
    def input(self, layer: _KerasLayer) -> int:
        dims = layer.get("batch_input_shape", None)
        if layer.name != self.ends[0] or not isinstance(dims, list) or len(dims) != 4:
            raise Unimplemented(f"layer {layer.name!r:.60}: one input of shape [null, h, w, channels] works")
        return untrusted.shape(dims[-1:], f"layer {layer.name!r:.60}")[0]

    def convolution(self, layer: _KerasLayer) -> int:
        layer.get("data_format", "channels_last", "channels_last")
        layer.get("groups", 1, 1)
        size, steps, spread = layer.pair("kernel_size", 1), layer.pair("strides", 1), layer.pair("dilation_rate", 1)
        same = layer.get("padding", "valid", "same", "valid") == "same"
        if same and steps != [1, 1]:  # Keras pads more at the end, and how much depends on the image
            raise Unimplemented(f"layer {layer.name!r:.60}: padding='same' with strides {steps}; strides of 1 work")
        channels = sum(self.known[name] for name in layer.inputs)
        kernel = self.weight(layer, "kernel", [*size, channels, layer.config.get("filters")])
        names = [layer.inputs[0], self.writer.hold(f"{layer.name}/kernel", kernel.transpose(3, 2, 0, 1))]
        if layer.get("use_bias", True, True, False):
            bias = self.weight(layer, "bias", [kernel.shape[-1]])
            names.append(self.writer.hold(f"{layer.name}/bias", bias))
        around = [(n - 1) * d for n, d in zip(size, spread, strict=True)] if same else [0, 0]
        pads = [n // 2 for n in around] + [n - n // 2 for n in around]
        attributes = {"kernel_shape": size, "strides": steps, "dilations": spread, "pads": pads}
        self.activated(layer, lambda name: self.writer.put("Conv", names, name, **attributes))
        return int(kernel.shape[-1])

    def activation(self, layer: _KerasLayer) -> int:
        self.activated(layer, lambda name: layer.inputs[0] if name != layer.name else self.copy(layer))
        return self.known[layer.inputs[0]]

    def concatenate(self, layer: _KerasLayer) -> int:
        layer.get("axis", -1, -1, 3)
        self.writer.put("Concat", layer.inputs, layer.name, axis=1)
        return sum(self.known[name] for name in layer.inputs)

    def add(self, layer: _KerasLayer) -> int:
        channels = {self.known[name] for name in layer.inputs}
        if len(channels) > 1 or len(layer.inputs) < 2:
            raise InvalidArgument(f"layer {layer.name!r:.60} adds {len(layer.inputs)} tensors of {channels} channels")
        total = layer.inputs[0]
        for i, name in enumerate(layer.inputs[1:], 2):
            total = self.writer.put("Add", [total, name], layer.name + (f"/{i}" if i < len(layer.inputs) else ""))
        return channels.pop()

    def upsampling(self, layer: _KerasLayer) -> int:
        layer.get("data_format", "channels_last", "channels_last")
        layer.get("interpolation", "nearest", "nearest")
        scales = self.writer.hold(f"{layer.name}/scales", np.array([1, 1, *layer.pair("size", 2)], np.float32))
        self.writer.put(
            "Resize",
            [layer.inputs[0], "", scales],
            layer.name,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        return self.known[layer.inputs[0]]

    # -- parts ---------------------------------------------------------------------------------------------------
    def activated(self, layer: _KerasLayer, write: Callable[[str], str]) -> None:
        """Writes the layer: by `write` under a name, with the layer's activation behind it under the layer's own."""
        if layer.get("activation", "linear", "linear", "relu") == "linear":
            write(layer.name)
        else:
            self.writer.put("Relu", [write(f"{layer.name}/linear")], layer.name)

    def copy(self, layer: _KerasLayer) -> str:
        return self.writer.put("Identity", layer.inputs, layer.name)

    def weight(self, layer: _KerasLayer, part: str, shape: Sequence[Any]) -> F32:
        found = self.weights.get(f"{layer.name}/{part}")
        if found is None or list(found.shape) != list(shape):
            met = "missing" if found is None else f"of shape {list(found.shape)}"
            raise InvalidArgument(f"layer {layer.name!r:.60}: its {part} is {met}; {str(list(shape)):.80} is needed")
        return found


def _only(config: dict[str, Any], key: str) -> str:
    """The one layer that `input_layers` or `output_layers` names."""
    found = untrusted.field(config, key, list, "the topology")
    if len(found) != 1 or not isinstance(found[0], list) or len(found[0]) != 3 or found[0][1:] != [0, 0]:
        raise Unimplemented(f"{key}={str(found):.60}; a model with one input and one output works")
    return str(found[0][0])
