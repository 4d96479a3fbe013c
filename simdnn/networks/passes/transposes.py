"""Transposes where onnxruntime has them: behind what reads them, where that is expected to make some of them cancel.

A node behind a Transpose is computed ahead of it, in the order of what lies there: sums over other dimensions, and the
roundings of f16, are others then. When that is done, and with which operators, is that of onnxruntime's transpose
optimizer (onnxruntime/core/optimizer/transpose_optimization/onnx_transpose_optimization.cc: `CalculateCost`,
`EstimateTransposeValueCost`, its map of handlers). Only operators are handled here that change a rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node, read_elsewhere
from simdnn.networks.passes.graph_rewriting import Shapes
from simdnn.networks.passes.qdq import constants_of

_ONE = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Cos", "Cosh", "Erf", "Exp"),
    *("Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Neg", "Not", "Reciprocal", "Relu"),
    *("Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
    *("ThresholdedRelu", "Clip", "CastLike"),
)
_MANY = (
    *("Add", "And", "BitShift", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean"),
    *("Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor"),
)
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)
_ALONG = ("Softmax", "LogSoftmax", "Hardmax")  # one axis, since opset 13
_TURNED = (*_ONE, *_MANY, *_REDUCTIONS, *_ALONG, "Concat")
#: what else the optimizer knows to move: a Transpose that these alone read is likely to go
_KNOWN = (
    *(*_TURNED, "ArgMax", "ArgMin", "DequantizeLinear", "Pad", "QuantizeLinear", "Reshape", "Shape", "Slice", "Split"),
    *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
_MOST_PASSES = 10
_UNKNOWN_RANK = 5  # as onnxruntime takes it
Perm = tuple[int, ...]


def with_moved_transposes(graph: Graph, kept: Sequence[str], shapes: Shapes) -> tuple[Graph, Shapes]:
    """The graph with its Transposes moved, and sizes of its values; values named in `kept` stay."""
    for _ in range(_MOST_PASSES):
        if not any(node.op == "Transpose" for node in graph.nodes):
            break
        moving = _Moving(graph, kept, shapes)
        if not moving.run():
            break
        graph, shapes = moving.moved()
    return graph, shapes


class _Moving:
    """One pass over the nodes in their order; `nodes` are those that are placed."""

    def __init__(self, graph: Graph, kept: Sequence[str], shapes: Shapes) -> None:
        self.graph, self.shapes = graph, dict(shapes)
        self.kept = read_elsewhere(graph, kept)
        self.constants, self.added = constants_of(graph), dict[str, Array]()
        others = (node for node in graph.nodes if node.domain or node.op not in _KNOWN)
        self.staying = self.kept.union(*(node.inputs for node in others))
        self.nodes: list[Node] = []
        self.makers: dict[str, Node] = {}
        self.leading = self._leading()

    def run(self) -> bool:
        """Whether something was moved."""
        changed = False
        for node in self.graph.nodes:
            made = self.pushed(node)
            changed = changed or made is not None
            for each in made or [node]:
                self.place(each)
        return changed

    def moved(self) -> tuple[Graph, Shapes]:
        """The graph as it is now, without Transposes that nobody reads."""
        left: list[Node] = []
        read = set(self.kept)
        for node in reversed(self.nodes):
            if node.op != "Transpose" or read.intersection(node.outputs):
                left.append(node)
                read.update(node.reads)
        constants = {**self.graph.constants, **self.added}
        return replace(self.graph, nodes=tuple(left[::-1]), constants=constants), self.shapes

    # -- what is known --------------------------------------------------------------------------------------------
    def _leading(self) -> set[str]:
        """Values from which a way through nodes that Transposes are pushed through leads to a Transpose."""
        found: set[str] = set()
        for node in reversed(self.graph.nodes):
            if node.op == "Transpose" and not node.domain:
                found.add(node.inputs[0])
            elif found.intersection(node.outputs):
                found.update(node.inputs[at] for at in self.turned_inputs(node))
        return found

    def turned_inputs(self, node: Node) -> list[int]:
        """Which inputs a Transpose is pushed from."""
        if node.domain or node.op not in _TURNED or node.op in _ALONG and node.version < 13:
            return []
        if node.op not in (*_MANY, "Concat"):
            return [0]
        return [at for at, name in enumerate(node.inputs) if name and self.rank(name) != 0]

    def rank(self, name: str) -> int:
        sizes = self.constants[name].shape if name in self.constants else self.shapes.get(name)
        return _UNKNOWN_RANK if sizes is None else len(sizes)

    def perm_of(self, name: str) -> Perm | None:
        """The permutation of the Transpose that makes a value; one that says none is left alone."""
        maker = self.makers.get(name)
        if maker is None or maker.op != "Transpose" or maker.domain or not maker.get("perm"):
            return None
        return tuple(maker.integers("perm", []))

    def cost(self, node: Node, perm: Perm, inputs: Sequence[int]) -> int:
        """Dimensions that Transposes have behind the node, less those ahead of it."""
        found = 0
        for name in (node.inputs[at] for at in inputs):
            own = self.perm_of(name)
            if own is not None:
                found -= self.size(name) if own == perm and name not in self.staying else 0
            elif name not in self.constants:
                found += self.size(name)
        if found < 0 and not self.leading.intersection(node.outputs):
            found += max(map(self.size, node.outputs))
        return found

    def size(self, name: str) -> int:
        """How many dimensions of a value are other than 1."""
        sizes = self.shapes.get(name)
        return _UNKNOWN_RANK if sizes is None else sum(size != 1 for size in sizes)

    # -- moves ----------------------------------------------------------------------------------------------------
    def place(self, node: Node) -> None:
        self.nodes.append(node)
        self.makers.update((name, node) for name in node.outputs if name)

    def pushed(self, node: Node) -> list[Node] | None:
        """Nodes in place of one that reads a Transpose, the last of them its own Transpose; None where it stays."""
        for name in node.inputs:
            perm = self.perm_of(name)
            if perm is None:
                continue
            if node.op == "Transpose" and not node.domain:
                return self.composed(node, perm)
            inputs = self.turned_inputs(node)
            if node.inputs.index(name) not in inputs or len(node.outputs) != 1 or self.cost(node, perm, inputs) >= 0:
                continue
            if all(self.rank(node.inputs[at]) == len(perm) or node.inputs[at] in self.constants for at in inputs):
                return self.turned(node, perm, inputs)
        return None

    def composed(self, node: Node, perm: Perm) -> list[Node] | None:
        """Two Transposes as one; none where they cancel."""
        source = self.makers[node.inputs[0]].inputs[0]
        own = node.integers("perm", [])
        if not own:
            return None
        both = [perm[axis] for axis in own]
        name = node.outputs[0]
        if both == sorted(both) and name not in self.kept:
            return [Node(node.name, "Identity", "", node.version, (source,), (name,), {})]
        return [replace(node, inputs=(source,), attributes={"perm": both})]

    def turned(self, node: Node, perm: Perm, inputs: Sequence[int]) -> list[Node] | None:
        """The node on what lies ahead of the Transposes, and a Transpose behind it."""
        axes = self.axes(node)
        if axes is None:
            return None
        made: list[Node] = []
        given = list(node.inputs)
        turned = {name: self.ahead(name, perm, made) for name in dict.fromkeys(given[at] for at in inputs)}
        for at in inputs:
            given[at] = turned[given[at]]
        name = node.outputs[0]
        inner, behind = f"{name}_ahead", perm
        attributes = dict(node.attributes)
        if node.op in (*_ALONG, "Concat"):
            attributes["axis"] = perm[axes[0]]
        elif node.op in _REDUCTIONS:
            along = sorted(perm[axis] for axis in axes)
            if len(given) > 1:
                given[1] = self.hold(f"{name}_axes", np.array(along, np.int64))
            else:
                attributes["axes"] = along
            if not node.integer("keepdims", 1):
                rest = [axis for axis in perm if axis not in along]
                behind = tuple(sorted(rest).index(axis) for axis in rest)
        node = replace(node, inputs=tuple(given), attributes=attributes, proto=_with(node.proto, attributes))
        if list(behind) == sorted(behind):
            return [*made, node]
        if (sizes := self.shapes.get(name)) is not None and len(sizes) == len(behind):
            self.shapes[inner] = tuple(sizes[behind.index(axis)] for axis in range(len(behind)))
        turn = {"perm": list(behind)}
        last = Node(f"{node.name}_transposed", "Transpose", "", node.version, (inner,), (name,), turn)
        return [*made, replace(node, outputs=(inner,)), last]

    def axes(self, node: Node) -> list[int] | None:
        """The dimensions that a node goes along; None where they are not known, or all are meant."""
        rank = self.rank(node.inputs[0])
        if node.op in (*_ALONG, "Concat"):
            return [node.integer("axis", -1) % rank]
        if node.op not in _REDUCTIONS:
            return []
        named = node.inputs[1] if len(node.inputs) > 1 else ""
        found = self.constants.get(named) if named else np.array(node.integers("axes", []))
        return None if found is None or not found.size else [int(axis) % rank for axis in found.reshape(-1)]

    def ahead(self, name: str, perm: Perm, made: list[Node]) -> str:
        """A value as it lies ahead of a Transpose by `perm`; what does not lie so is transposed by a node `made`."""
        inverse = tuple(perm.index(axis) for axis in range(len(perm)))
        if name in self.constants:
            a = self.constants[name]
            if a.ndim == 0:
                return name
            return self.hold(f"{name}_ahead", a.reshape([1] * (len(perm) - a.ndim) + list(a.shape)).transpose(inverse))
        own = self.perm_of(name)
        source = self.makers[name].inputs[0] if own is not None else name
        both = inverse if own is None else tuple(own[axis] for axis in inverse)
        if both == tuple(range(len(perm))):
            return source
        turned = f"{name}_{len(self.nodes)}_{len(made)}_ahead"
        if (sizes := self.shapes.get(source)) is not None:
            self.shapes[turned] = tuple(sizes[axis] for axis in both)
        made.append(Node(turned, "Transpose", "", 13, (source,), (turned,), {"perm": list(both)}))
        return turned

    def hold(self, name: str, values: Array) -> str:
        """A new constant."""
        while name in self.constants or name in self.makers:
            name += "_"
        self.constants[name] = self.added[name] = np.ascontiguousarray(values)
        return name


def _with(proto: Any, attributes: Mapping[str, Any]) -> Any:
    """The NodeProto that a node came from, from which its body is made, with the axes of another node."""
    if proto is None:
        return None
    made = type(proto)()
    made.CopyFrom(proto)
    for attribute in made.attribute:
        if attribute.name == "axis":
            attribute.i = attributes["axis"]
        elif attribute.name == "axes":
            attribute.ints[:] = attributes["axes"]
    return made
