"""Weights that come of constants alone (a Constant node, a transposed or shared initializer), made initializers.

Such nodes cost nothing when a model runs, since they are computed once; what stores weights in another type has to know
their values. Weights that DequantizeLinear makes stay as their author stored them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simdnn.libraries import UNTIMED
from simdnn.networks.load import DOMAINS, graph_of, onnx_package
from simdnn.networks.model import RANDOM
from simdnn.networks.network import Network
from simdnn.networks.onnx_rewriting import PRODUCTS, bodies, fresh, names_read, refill

if TYPE_CHECKING:
    import onnx

_STAYING = (*RANDOM, "DequantizeLinear")
_ANY_MACHINE = "zen4"  # values of nodes that multiply nothing are the same on all


def settled(model: onnx.ModelProto, folder: Path | None) -> None:
    """Put the f32 weights and biases of products that come of constants into the model as initializers, in place.

    Nodes that nobody reads any more go. A model whose functions are expanded and whose nodes have names is needed.
    """
    graph: Any = model.graph
    makers = _constant(graph)
    products = [node for node in graph.node if node.op_type in PRODUCTS and node.domain in DOMAINS]
    wanted = [name for name in dict.fromkeys(name for node in products for name in node.input[1:3]) if name in makers]
    if not wanted:
        return
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | _initializers(graph)
    names: dict[str, str] = {}
    for name, values in _computed(model, folder, makers, wanted).items():
        if isinstance(values, np.ndarray) and values.dtype == np.float32:
            names[name] = fresh(f"{name}_known", taken)
            graph.initializer.append(onnx_package().numpy_helper.from_array(values, names[name]))
    for node in products:
        node.input[1:3] = [names.get(name, name) for name in node.input[1:3]]
    _sweep(graph, set(makers))


def _initializers(graph: Any) -> set[str]:
    return {tensor.name for tensor in graph.initializer}


def _constant(graph: Any) -> dict[str, Any]:
    """The nodes that hang on no input of the model, by what they make."""
    known, found = {*_initializers(graph), ""}, {}
    for node in graph.node:
        own = node.domain in DOMAINS and node.op_type not in _STAYING and not bodies(node)
        if own and known.issuperset(node.input):
            known.update(node.output)
            found.update(dict.fromkeys(filter(None, node.output), node))
    return found


def _computed(model: onnx.ModelProto, folder: Path | None, makers: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """The values of some names, by the operators that make them."""
    needed: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += makers[name].input if name in makers else []
    package, graph = onnx_package(), model.graph
    part: Any = package.ModelProto(ir_version=model.ir_version)
    part.opset_import.extend(model.opset_import)
    part.graph.name = graph.name
    part.graph.node.extend(node for node in graph.node if needed.intersection(node.output) and node.output[0] in makers)
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
    part.graph.output.extend(package.ValueInfoProto(name=name) for name in wanted)
    return dict(Network(graph_of(part, folder)).run({}, machine=_ANY_MACHINE, dispatch=UNTIMED).outputs)


def _sweep(graph: Any, constant: set[str]) -> None:
    """Take out nodes that make constants, and initializers, where nobody reads them."""
    while True:
        read = names_read(graph)
        left = [node for node in graph.node if not constant.intersection(node.output) or read.intersection(node.output)]
        if len(left) == len(graph.node):
            break
        refill(graph.node, left)
    inputs = {port.name for port in graph.input}
    refill(graph.initializer, [t for t in graph.initializer if t.name in read or t.name in inputs])
