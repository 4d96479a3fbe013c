"""Steps that onnxruntime takes with an f16 model ahead of its casts (`simdnn.networks.passes.f16_casts`).

1. Identities and casts to the type that a value has go; constants of equal values, of few elements, are one; what
   constants of f16 come to by operators that move elements is a constant.
2. A product and its bias, of more dimensions than two, stands between two Reshapes where the model says all sizes; of
   Reshapes in a row the last is left.
3. Operators that ONNX defines by a body, and that have no kernel of f16, are replaced by the body, where no operator of
   it has changed since the body was written: so Elu at opset 18 alone, Softmax from 13 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks import schemas
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Graph, Node
from simdnn.networks.ops.function import body, schema_of, written_body
from simdnn.networks.ops.registry import MICROSOFT, find
from simdnn.networks.passes.element_types import Kinds, kinds_of
from simdnn.networks.passes.graph_rewriting import Rewriting, Shapes, first_of
from simdnn.networks.types import F16, F32
from simdnn.primitives import Attr
from simdnn.primitives.run import Target

_MOVING = ("Cast", "Concat", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_ANY_MACHINE = "zen4"  # values of those are the same on all
_SHARED = 8  # the most elements of constants that are one


def with_plain_constants(graph: Graph, kept: Sequence[str]) -> Graph:
    """The first step."""
    kinds, constants = kinds_of(graph, {}), dict(graph.constants)
    held = {port.name for port in graph.outputs} | set(kept)
    open_to_feeds = {port.name for port in graph.inputs}
    names: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
        first = node.outputs[0] if node.outputs else ""
        if isinstance(node.get("value"), np.ndarray) and node.op == "Constant":
            constants[first] = node.get("value")
            continue
        if node.domain or first in held:
            nodes.append(node)
            continue
        if node.op == "Identity" or node.op == "Cast" and kinds.get(node.inputs[0]) == kinds[first]:
            names[first] = node.inputs[0]
            continue
        known = all(not name or name in constants and name not in open_to_feeds for name in node.inputs)
        if known and node.op in _MOVING and kinds[first] == F16:
            constants[first] = value_of(node, [constants.get(name) for name in node.inputs])
            continue
        nodes.append(node)
    one: dict[Any, str] = {}
    for name, a in constants.items():
        if a.size <= _SHARED and a.dtype == F16 and name not in open_to_feeds:
            names[name] = one.setdefault((a.shape, a.tobytes()), name)
    shared = [replace(node, inputs=tuple(names.get(name, name) for name in node.inputs)) for node in nodes]
    return replace(graph, nodes=tuple(shared), constants=constants)


def value_of(node: Node, given: Sequence[Array | None]) -> Array:
    """The output of a node that has one and multiplies nothing."""
    operator = find(node)
    assert operator is not None
    found: Array = operator(Kernels(Target.of(_ANY_MACHINE, None, 1, "reference", "fastest"), Attr()), node, *given)
    return found


def with_flat_products(graph: Graph, kept: Sequence[str], shapes: Shapes) -> tuple[Graph, Shapes]:
    """The second step, and the sizes of values with those of the new ones."""
    flat = _Flat(graph, kept, dict(shapes))
    return flat.run(), flat.shapes


class _Flat(Rewriting):
    def run(self) -> Graph:
        kinds = kinds_of(self.graph, {})
        nodes: list[Node] = []
        behind: dict[str, Node] = {}  # a Reshape, by the sum that it follows
        for node in self.graph.nodes:
            name = first_of(node)
            last = self.bias_of(node) if kinds.get(name) == F16 else None
            if last is not None:
                sizes = self.sizes(node.inputs[0])
                columns = self.sizes(node.inputs[1])[1]
                rows = int(np.prod(sizes[:-1]))
                nodes.append(self.reshape(node, node.inputs[0], f"{name}_rows", (rows, sizes[-1])))
                nodes.append(replace(node, inputs=(f"{name}_rows", *node.inputs[1:])))
                flat, target = f"{first_of(last)}_flat", first_of(last)
                behind[target] = self.reshape(last, flat, target, (*sizes[:-1], columns))
                self.note({name: (rows, columns), flat: (rows, columns)})
            elif name in behind:
                nodes += [replace(node, outputs=(f"{name}_flat",)), behind[name]]
            else:
                nodes.append(node)
        graph = replace(self.graph, nodes=tuple(nodes), constants={**self.graph.constants, **self.added})
        return _Reshapes(graph, list(self.kept), self.shapes).run()

    def note(self, sizes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = {**self.shapes, **sizes}

    def sizes(self, name: str) -> tuple[int, ...]:
        """The sizes of a value that the model says whole; none of others."""
        found = self.shape_of(name) or ()
        return tuple(size for size in found if isinstance(size, int)) if all(isinstance(s, int) for s in found) else ()

    def bias_of(self, node: Node) -> Node | None:
        """The sum with a bias of a number a column that alone reads a product of more dimensions than two."""
        if node.op != "MatMul" or node.domain:
            return None
        last, (a, b) = self.only_reader(first_of(node)), (self.sizes(name) for name in node.inputs)
        if last is None or last.op != "Add" or last.domain or len(b) != 2 or len(a) in (0, 2):
            return None
        bias = next((name for name in last.inputs if name != first_of(node)), "")
        return last if self.sizes(bias) == b[1:] and not self.of_attention(node, last) else None

    def of_attention(self, node: Node, last: Node) -> bool:
        """Whether a product and its bias belong to attention behind a LayerNormalization: one of the three that read
        it, or the one that it is added to. onnxruntime leaves them to a pattern of their own.
        """
        for name in (node.inputs[0], *(n for each in self.readers(first_of(last)) for n in each.inputs)):
            maker = self.nodes.get(name)
            if maker is None or maker.op != "LayerNormalization" or last not in self.around(maker):
                continue
            return True
        return False

    def around(self, norm: Node) -> list[Node]:
        """The additions of biases in the attention that reads a LayerNormalization; none where none reads it."""
        readers = self.readers(first_of(norm))
        kinds = sorted(node.op for node in readers if node.op != "Shape")
        if kinds != ["Add", "MatMul", "MatMul", "MatMul"]:
            return []
        total = next(node for node in readers if node.op == "Add")
        other = self.nodes.get(next((name for name in total.inputs if name != first_of(norm)), ""))
        if other is None or other.op != "Add":
            return []
        return [other, *(each for node in readers for each in self.readers(first_of(node)) if node.op == "MatMul")]

    def reshape(self, node: Node, source: str, target: str, sizes: tuple[int, ...]) -> Node:
        self.note({target: sizes})
        held = self.hold(f"{target}_sizes", np.array(sizes, np.int64))
        return Node(f"{node.name}/{target}", "Reshape", "", 14, (source, held), (target,), {})


class _Reshapes(Rewriting):
    def run(self) -> Graph:
        """The last of Reshapes in a row, in place of all."""
        for name, node in list(self.nodes.items()):
            maker = self.nodes.get(node.inputs[0]) if node.inputs else None
            if node.op not in ("Reshape", "Squeeze", "Unsqueeze") or maker is None or maker.op != "Reshape":
                continue
            sizes = self.sizes(node)
            if not sizes or not self.only_reader(first_of(maker)):
                continue
            del self.nodes[first_of(maker)]
            held = self.hold(f"{name}_sizes", np.array(sizes, np.int64))
            self.nodes[name] = Node(node.name, "Reshape", "", 14, (maker.inputs[0], held), node.outputs, {})
        return self.rewritten()

    def sizes(self, node: Node) -> list[int]:
        """The sizes of what a node makes, one of them -1 perhaps; none where the model does not say them."""
        wanted = self.constants.get(node.inputs[1]) if node.op == "Reshape" and len(node.inputs) > 1 else None
        if wanted is not None and 0 not in wanted:
            return [int(size) for size in wanted]
        known = self.shape_of(first_of(node)) or ()
        return [size for size in known if isinstance(size, int)] if all(isinstance(s, int) for s in known) else []


#: bodies of onnxruntime's own functions: numbers, and nodes as "output operator inputs", from x to y
_BODIES: dict[str, tuple[dict[str, float], tuple[str, ...]]] = {
    "Gelu": (
        {"half": 0.5, "one": 1.0, "c": math.sqrt(0.5)},
        ("v Mul c x", "e Erf v", "p Add e one", "h Mul p half", "y Mul x h"),
    ),
    "FastGelu": (
        {"a": 0.5, "b": 0.797885, "c": 0.035677, "one": 1.0},
        (
            *("s Mul x x", "t Mul c s", "u Add b t", "v Mul x u", "w Tanh v", "p Add one w", "q Mul x p"),
            "y Mul a q",
        ),
    ),
    "QuickGelu": ({}, ("v Mul alpha x", "s Sigmoid v", "y Mul x s")),
}
_HAS_ALL = 14  # an opset that has these operators


def _own_body(node: Node) -> Graph:
    """The body of one of onnxruntime's functions, whose numbers are of f16."""
    numbers, lines = _BODIES[node.op]
    numbers = numbers or {"alpha": node.number("alpha", 1.702)}
    names = {"x": node.inputs[0], "y": node.outputs[0]}
    nodes = []
    if len(node.inputs) > 1 and node.inputs[1]:
        names["x"] = f"{node.outputs[0]}/biased"
        nodes.append(Node(f"{node.name}/biased", "Add", "", _HAS_ALL, node.inputs, (names["x"],), {}))

    def named(name: str) -> str:
        return names.get(name, f"{node.outputs[0]}/{name}")

    for at, (made, op, *given) in enumerate(line.split() for line in lines):
        inputs = tuple(map(named, given))
        nodes.append(Node(f"{node.name}/{op}_{at}", op, "", _HAS_ALL, inputs, (named(made),), {}))
    constants = {named(name): np.array(value, F16) for name, value in numbers.items()}
    return Graph(node.op, (), (), tuple(nodes), constants)


def with_bodies(graph: Graph, outer: Kinds, has_kernel: Callable[[Node], bool]) -> Graph:
    """The third step; `has_kernel` tells of a node whether it has a kernel of f16."""
    kinds, constants = kinds_of(graph, outer), dict(graph.constants)
    nodes: list[Node] = []
    for node in graph.nodes:
        inner = {k: with_bodies(v, kinds, has_kernel) for k, v in node.attributes.items() if isinstance(v, Graph)}
        node = replace(node, attributes={**node.attributes, **inner}) if inner else node
        given = [kinds.get(name) for name in node.inputs]
        if node.op == "Constant" and isinstance(node.get("value"), np.ndarray):
            constants[node.outputs[0]] = node.get("value")
        elif F16 in given and node.domain == MICROSOFT and node.op in _BODIES:
            found = _own_body(node)
            nodes += found.nodes
            constants |= found.constants
        elif F16 not in given or has_kernel(node) or node.proto is None or not _has_body(node):
            nodes.append(node)
        else:
            typed = zip(node.inputs, given, strict=True)
            operands = [np.empty((), kind or F32) if name else None for name, kind in typed]
            found = with_bodies(_renamed(body(node, operands), node), kinds, has_kernel)
            nodes += found.nodes
            constants |= found.constants
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _has_body(node: Node) -> bool:
    """Whether onnxruntime puts a body in an operator's place."""
    schema = schema_of(node)
    if schema is None or not schema.has_function:
        versions = () if schema is None else schema.context_dependent_function_opset_versions
        return any(version <= node.version for version in versions)
    versions = [version for version in schema.function_opset_versions if version <= node.version]
    if not versions:
        return False
    written = written_body(schema, node.version).node
    return all(_since(n.op_type, max(versions)) == _since(n.op_type, node.version) for n in written)


def _since(op: str, version: int) -> int:
    """The opset that has last changed an operator."""
    return int(schemas.find(op, version).since_version)


def _renamed(graph: Graph, node: Node) -> Graph:
    """A body whose values have names of their own in the graph around it, and whose nodes have its opset."""
    outside = {*node.inputs, *node.outputs, ""}

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name if name in outside else f"{node.outputs[0]}/{name}" for name in names)

    nodes = tuple(
        replace(
            n,
            name=f"{node.name}/{n.op}_{at}",
            version=node.version if n.domain == node.domain else n.version,
            inputs=named(n.inputs),
            outputs=named(n.outputs),
        )
        for at, n in enumerate(graph.nodes)
    )
    return replace(graph, nodes=nodes)
