"""BatchNormalization folded into a convolution before it, transposed or not, as runtimes do before they run a network.

A channel's factor scale / sqrt(variance + epsilon) goes into its weights, the rest into its bias; both are computed in
f64 and rounded once. Only f32 constants are folded, and only where nobody else reads the convolution's output. A
library that runs models (onnxruntime) rounds each step to f32: its constants are kept beside, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.load import DOMAINS, onnx_package
from simdnn.networks.onnx_rewriting import bodies, fresh, names_read, refill
from simdnn.networks.tensors import array_of

if TYPE_CHECKING:
    import onnx


_KINDS = ("Conv", "ConvTranspose")


def folded(model: onnx.ModelProto, folder: Path | None, stepwise: dict[str, Array] | None = None) -> onnx.ModelProto:
    """The model with its BatchNormalizations folded where that can be done; the model itself where it has none.

    `stepwise` takes the new constants whose steps, each rounded to f32, come to something else.
    """
    pairs = _pairs(model.graph)
    if not pairs:
        return model
    made: Any = onnx_package().ModelProto()
    made.CopyFrom(model)
    nodes = list(made.graph.node)
    tensors = {t.name: t for t in made.graph.initializer}
    taken = {n for node in nodes for n in (*node.input, *node.output)} | tensors.keys()
    gone = set()
    for conv_at, norm_at in pairs:
        conv, norm = nodes[conv_at], nodes[norm_at]
        if _fold(made.graph, tensors, taken, conv, norm, folder, {} if stepwise is None else stepwise):
            conv.output[0] = norm.output[0]
            gone.add(norm_at)
    refill(made.graph.node, [node for i, node in enumerate(nodes) if i not in gone])
    made_here = {name for node in made.graph.node for name in node.output}
    refill(made.graph.value_info, [value for value in made.graph.value_info if value.name in made_here])
    read = names_read(made.graph)
    refill(made.graph.initializer, [t for t in made.graph.initializer if t.name in read])
    result: onnx.ModelProto = made
    return result


def _pairs(graph: Any) -> list[tuple[int, int]]:
    """Positions of a Conv or ConvTranspose and of the BatchNormalization that alone reads it."""
    constants = {t.name for t in graph.initializer if t.data_type == 1} - {v.name for v in graph.input}
    maker = {name: i for i, node in enumerate(graph.node) for name in node.output}
    readers: dict[str, int] = {}
    for name in (n for node in graph.node for n in node.input):
        readers[name] = readers.get(name, 0) + 1
    inside = {name for node in graph.node for body in bodies(node) for name in names_read(body)}
    kept = {value.name for value in graph.output} | inside
    found = []
    for i, norm in enumerate(graph.node):
        if norm.op_type != "BatchNormalization" or norm.domain not in DOMAINS or len(norm.input) != 5:
            continue
        at = maker.get(norm.input[0])
        conv = None if at is None or at >= i else graph.node[at]
        if conv is None or len(conv.input) < 2 or conv.op_type not in _KINDS or conv.domain not in DOMAINS:
            continue
        parameters = [*list(conv.input)[1:], *list(norm.input)[1:]]
        alone = readers[norm.input[0]] == 1 and norm.input[0] not in kept and not any(list(norm.output)[1:])
        training = any(a.name == "training_mode" and a.i for a in norm.attribute)
        if alone and not training and all(p in constants for p in parameters if p):
            found.append((int(at or 0), i))
    return found


def _fold(
    graph: Any,
    tensors: dict[str, Any],
    taken: set[str],
    conv: Any,
    norm: Any,
    folder: Path | None,
    stepwise: dict[str, Array],
) -> bool:
    """New weights and bias for the convolution; False where shapes do not fit, which running it will tell."""
    scale, shift, mean, variance = (array_of(tensors[n], folder).astype(np.float64) for n in list(norm.input)[1:])
    stored = array_of(tensors[conv.input[1]], folder)
    groups = next((a.i for a in conv.attribute if a.name == "group"), 1) if conv.op_type == "ConvTranspose" else 0
    if stored.ndim < 3 or groups and stored.shape[0] % groups:
        return False
    weights = _filters_first(stored, groups) if groups else stored
    channels = (weights.shape[0],)
    bias = array_of(tensors[conv.input[2]], folder) if len(conv.input) > 2 and conv.input[2] else np.zeros(channels)
    if any(v.shape != channels for v in (scale, shift, mean, variance, bias)):
        return False
    epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
        new_weights = (weights * factor.reshape(-1, *[1] * (weights.ndim - 1))).astype(np.float32)
        new_bias = ((bias - mean) * factor + shift).astype(np.float32)
        has_bias = len(conv.input) > 2 and bool(conv.input[2])
        by_steps = _by_steps(weights, bias if has_bias else None, (scale, shift, mean, variance), epsilon)
    names = [fresh(f"{norm.output[0]}_{part}", taken) for part in "wb"]
    if groups:
        new_weights, by_steps = _inputs_first(new_weights, groups), (_inputs_first(by_steps[0], groups), by_steps[1])
    for name, values, other in zip(names, (new_weights, new_bias), by_steps, strict=True):
        if values.tobytes() != other.tobytes():
            stepwise[name] = other
        graph.initializer.append(onnx_package().numpy_helper.from_array(values, name))
        tensors[name] = graph.initializer[-1]
    conv.input[:] = [conv.input[0], *names]
    return True


def _filters_first(weights: Array, groups: int) -> Array:
    """Weights of a transposed convolution, (C, M/group, ...), as those of a convolution, (M, C/group, ...)."""
    parts = weights.reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(parts).reshape(-1, weights.shape[0] // groups, *weights.shape[2:])


def _inputs_first(weights: Array, groups: int) -> Array:
    """Weights of a convolution, (M, C/group, ...), as those of a transposed one, (C, M/group, ...).

    >>> w = np.arange(24).reshape(4, 3, 2)
    >>> bool((_inputs_first(_filters_first(w, 2), 2) == w).all())
    True
    """
    parts = weights.reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(parts).reshape(weights.shape[1] * groups, -1, *weights.shape[2:])


def _by_steps(weights: Array, bias: Array | None, norm: Sequence[Array], epsilon: float) -> tuple[Array, Array]:
    """New weights and bias, all in f32; `norm`: scale, shift, mean, variance."""
    scale, shift, mean, variance = (values.astype(np.float32) for values in norm)
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    new_weights = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    return new_weights, shift - mean * factor if bias is None else (bias.astype(np.float32) - mean) * factor + shift
