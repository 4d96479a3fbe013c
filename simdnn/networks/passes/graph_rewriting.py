"""A graph whose nodes are replaced by others: who makes a value and who reads it, as rewriting goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node, read_elsewhere
from simdnn.networks.passes.qdq import constants_of

Shapes = Mapping[str, tuple[int | str, ...]]  # of values, as far as a model says them: open sizes by name, or ""


class Rewriting:
    """`nodes` by the first value that each makes: the graph's own, in its order, and their replacements."""

    def __init__(self, graph: Graph, kept: Sequence[str], shapes: Shapes) -> None:
        self.graph, self.shapes = graph, shapes
        self.nodes = {first_of(node): node for node in graph.nodes}
        self.reading: dict[str, list[str]] = {}
        for node in graph.nodes:
            for name in dict.fromkeys(node.inputs):
                self.reading.setdefault(name, []).append(first_of(node))
        self.constants = constants_of(graph)
        self.added: dict[str, Array] = {}
        self.ahead: dict[str, list[str]] = {}  # first outputs of new nodes that belong ahead of one of the graph's
        self.kept = read_elsewhere(graph, kept)

    def rewritten(self, unread: Sequence[str] = ()) -> Graph:
        """The graph of the nodes that are left; a node of the operators `unread` goes where nobody reads it."""
        names = (name for node in self.graph.nodes for name in (*self.ahead.get(first_of(node), ()), first_of(node)))
        left = [self.nodes[name] for name in names if name in self.nodes]
        read = self.kept | {name for node in left for name in node.inputs}
        left = [node for node in left if node.op not in unread or read & set(node.outputs)]
        return replace(self.graph, nodes=tuple(left), constants={**self.graph.constants, **self.added})

    def put(self, node: Node) -> Node:
        """A node in place of the one that made its first value."""
        self.nodes[first_of(node)] = node
        return node

    def put_ahead(self, of: str, node: Node) -> Node:
        """A new node ahead of the graph's node that makes `of`."""
        self.ahead.setdefault(of, []).append(first_of(node))
        for name in dict.fromkeys(node.inputs):
            self.reading.setdefault(name, []).append(first_of(node))
        return self.put(node)

    def readers(self, name: str) -> list[Node]:
        """The nodes that read a value and are left."""
        return [self.nodes[each] for each in self.reading.get(name, []) if each in self.nodes]

    def only_reader(self, name: str) -> Node | None:
        readers = self.reading.get(name, [])
        return self.nodes.get(readers[0]) if len(readers) == 1 and name not in self.kept else None

    def uses(self, name: str) -> int:
        """How many nodes, and outputs of the model, read a value."""
        return len(self.reading.get(name, [])) + (name in self.kept)

    def several_read(self, name: str) -> bool:
        """Whether more than one node reads a value by now."""
        return sum(name in reader.inputs for reader in self.readers(name)) > 1

    def alone(self, name: str, op: str) -> Node | None:
        """The node of ONNX's operator `op` that makes a value which one node alone reads."""
        node = self.nodes.get(name)
        return node if node is not None and node.op == op and not node.domain and self.only_reader(name) else None

    def zero_of(self, node: Node) -> Array | None:
        """The constant zero point of a QuantizeLinear or DequantizeLinear; None where it has none."""
        return self.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None

    def shape_of(self, name: str) -> tuple[int | str, ...] | None:
        """The sizes of a value, those of its integers if it is dequantized; None where its rank is not known."""
        maker = self.nodes.get(name)
        if maker is not None and maker.op == "DequantizeLinear" and name not in self.shapes:
            name = maker.inputs[0]
        return self.constants[name].shape if name in self.constants else self.shapes.get(name)

    def common(self, *names: str) -> bool:
        return all(name in self.constants and self.constants[name].size == 1 for name in names)

    def is_number(self, name: str, value: float) -> bool:
        """Whether a value is one constant number, to f32's rounding."""
        return self.common(name) and bool(np.isclose(float(self.constants[name].reshape(())), value, rtol=1e-6))

    def hold(self, name: str, values: Array) -> str:
        """A new constant."""
        name = self.new_name(name)
        self.constants[name] = self.added[name] = values
        return name

    def new_name(self, name: str) -> str:
        """A name that nothing has."""
        while name in self.constants or name in self.nodes or name in self.reading:
            name += "_"
        return name


def first_of(node: Node) -> str:
    """The first output that has a name."""
    return next(filter(None, node.outputs), "")
