"""An ONNX model as a recipe: each product in a mode of its own, with what stands between them.

The model is rewritten by the passes that put whole models in a mode, each for the layers of its mode alone: casts to 16
bits, QuantizeLinear and DequantizeLinear, stored weights. Casts and quantization at the borders are nodes, which cost
what they cost. What a model cannot say (math modes, exact sums of integers, ISA caps) stands in a node's `NodePlace`.

A node that is no layer is in 16 bits where all layers around it that it reads from are; where it reads from none, those
that read it decide. It runs under the ISA cap of the layers on both sides where they share one, and at a border under
all that the machine has.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from isa_models import Unimplemented
from isa_models.machines.loader import AnyMachine
from simdnn.networks.constant_weights import settled
from simdnn.networks.float16 import convert, with_room
from simdnn.networks.fold import folded
from simdnn.networks.graph_run import NodePlace
from simdnn.networks.large_tensors import Shelf, lying
from simdnn.networks.load import DOMAINS, Loaded, onnx_package, read
from simdnn.networks.network import Network, load
from simdnn.networks.onnx_rewriting import PRODUCTS, expanded, fresh, inline_data, node_name
from simdnn.networks.precision import Mode
from simdnn.networks.quantize import requantized, why_floats
from simdnn.networks.quantized_writer import Ranges
from simdnn.networks.tensors import array_of, packed
from simdnn.primitives import Attr

if TYPE_CHECKING:
    import onnx

_NARROW = ("f16", "bf16")


@dataclass(frozen=True, eq=False)
class Mixable:
    """A model that recipes can be made of: folded, every node with a name of its own. Its weights lie on a shelf, which
    has to be open where the model or a recipe's is read; `whole` puts them into a model.
    """

    model: onnx.ModelProto
    shelf: Shelf
    layers: tuple[str, ...]  # products, in order
    above: Mapping[str, frozenset[str]]  # the nearest layers that each node reads from, a layer too
    below: Mapping[str, frozenset[str]]  # and those that read from it

    @cached_property
    def _roomy(self) -> dict[str, tuple[onnx.ModelProto, str]]:
        return {}

    def with_room(self, dtype: str) -> tuple[onnx.ModelProto, str]:
        """A copy of the model in an operator set that has f16 or bf16, which is found once; why there is none."""
        if dtype not in self._roomy:
            self._roomy[dtype] = with_room(expanded(self.model), dtype)
        model, stuck = self._roomy[dtype]
        return expanded(model), stuck

    @property
    def convolutions(self) -> frozenset[str]:
        """The layers that are convolutions."""
        return frozenset(
            node.name for node in self.model.graph.node if node.op_type == "Conv" and node.name in self.layers
        )

    def whole(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model of a recipe, or this one, with its weights inside."""
        made: Any = onnx_package().ModelProto()
        made.CopyFrom(model)
        for tensor in made.graph.initializer:
            with self.shelf:
                values = lying(tensor)
            if values is not None:
                tensor.raw_data = packed(values)
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
        result: onnx.ModelProto = made
        return result

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Pairs of layers: the second reads what the first gives, through no other one."""
        order = {name: place for place, name in enumerate(self.layers)}
        pairs = {(above, layer) for layer in self.layers for above in self.above[layer]}
        return sorted(pairs, key=lambda pair: (order[pair[1]], order[pair[0]]))


def mixable(source: str | PathLike[str] | onnx.ModelProto | Loaded) -> Mixable:
    """A model's layers and how they hang together. `Unimplemented` for one that is stored in integers or has none."""
    if load(source).is_integer:
        raise Unimplemented(
            "the model is stored in integers; a recipe is chosen for one in f32; what exact sums cost in each node: "
            "simdnn run MODEL --modes int8-exact --layers '*'"
        )
    proto, folder = read(source)
    proto = folded(proto, folder)
    made = expanded(proto)
    settled(made, folder)
    inline_data(made.graph, folder)
    taken: set[str] = set()
    for position, node in enumerate(made.graph.node):
        node.name = fresh(node_name(node, position), taken)
    nodes = [(n.name, list(n.input), list(n.output)) for n in made.graph.node]
    layers = tuple(n.name for n in made.graph.node if n.op_type in PRODUCTS and n.domain in DOMAINS)
    if not layers:
        raise Unimplemented(f"no layer has modes to choose from: {why_floats(made)}")
    shelf = Shelf()
    shelf.take_from(made.graph, lambda tensor: array_of(tensor, None))
    return Mixable(made, shelf, layers, *around(nodes, layers))


Links = tuple[str, Sequence[str], Sequence[str]]  # a node's name, and what it reads and gives


def around(
    nodes: Iterable[Links], layers: Iterable[str]
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The nearest layers above each node and below it."""
    ordered, known = list(nodes), set(layers)
    return _nearest(ordered, known), _nearest([(n, gives, reads) for n, reads, gives in reversed(ordered)], known)


def _nearest(nodes: Iterable[Links], layers: set[str]) -> dict[str, frozenset[str]]:
    met: dict[str, frozenset[str]] = {}
    found = {}
    for name, reads, gives in nodes:
        found[name] = frozenset().union(*(met.get(value, frozenset()) for value in reads if value))
        for value in filter(None, gives):
            met[value] = met.get(value, frozenset()) | (frozenset({name}) if name in layers else found[name])
    return found


def attr_of(mode: Mode) -> Attr:
    """The attribute that kernels of a layer have in a mode."""
    if mode.is_integer:
        return Attr(exact_int8=mode.exact_int8)
    return Attr(fpmath=mode.fpmath, apply_to_int=mode.stores)


def storage_of(mode: Mode) -> dict[str, Any]:
    """The arguments of `quantize_onnx` that say how a mode stores weights."""
    return {"weights": mode.narrow} if mode.narrow else {"weights": mode.weights, "group": mode.weight_group}


def rewritten(mixed: Mixable, mode: Mode, ranges: Ranges) -> onnx.ModelProto:
    """The model with each layer stored in the mode that a recipe gives it; `ranges` are of the f32 model's tensors. Its
    weights lie on the shelf, which must be open.
    """
    model, own = mixed.model, {layer: mode.of_layer(layer) for layer in mixed.layers}
    known = dict(ranges)
    for dtype in _NARROW:
        layers = {layer for layer, one in own.items() if one.src == dtype}
        if layers:
            model, stuck = mixed.with_room(dtype) if model is mixed.model else with_room(expanded(model), dtype)
            convert(model, dtype, _exactly([*layers, *_followers(mixed, layers)]), stuck)
            casts = [node for node in model.graph.node if node.op_type == "Cast"]
            known |= {n.output[0]: known[n.input[0]] for n in casts if n.input[0] in known and n.output[0] not in known}
    for one in dict.fromkeys(own.values()):
        only = _exactly(layer for layer in own if own[layer] == one)
        if one.is_integer:
            model = requantized(model, known, per_channel=not one.per_tensor, sources=one.src, only=only)
        elif one.stores:
            model = requantized(model, {}, scheme="weights", only=only, **storage_of(one))
    return model


def placed(network: Network, mode: Mode, machine: AnyMachine, cap: str | None) -> dict[str, NodePlace]:
    """Where each node of a rewritten model runs."""
    nodes = [(node.name, node.inputs, node.outputs) for node in network.graph.nodes]
    own = {name: mode.isa_at(name, machine, cap) for name, _, _ in nodes if name in mode.by_layer}
    above, below = around(nodes, own)
    found = {}
    for name, _, _ in nodes:
        if name in own:
            found[name] = NodePlace(own[name], attr_of(mode.of_layer(name)))
        else:
            caps = {own[layer] for layer in above[name] | below[name]}
            found[name] = NodePlace(caps.pop() if len(caps) == 1 else cap, Attr())
    return found


def _followers(mixed: Mixable, layers: set[str]) -> list[str]:
    """The nodes between layers that are in their type."""
    every = frozenset(mixed.layers)
    sides = {name: mixed.above[name] or mixed.below[name] or every for name in mixed.above if name not in every}
    return [name for name, nearest in sides.items() if nearest <= layers]


def _exactly(names: Iterable[str]) -> list[str]:
    """Patterns that match these names alone."""
    return [glob.escape(name) for name in names]
