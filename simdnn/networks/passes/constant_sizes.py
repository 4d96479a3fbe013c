"""Sizes that a model says, as constants, and what hangs on them alone: runtimes fold both before they run a network.

Exporters write the scale of attention as 1 / sqrt(the last size of queries), which patterns then find as a number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.passes.f16_casts import has_kernel
from simdnn.networks.passes.f16_steps import value_of
from simdnn.networks.passes.graph_rewriting import Rewriting, Shapes, first_of
from simdnn.networks.passes.qdq import constants_of
from simdnn.networks.types import F16

#: operators that are computed ahead where all they read is known
_FOLDED = ("Cast", "Slice", "Gather", "Squeeze", "Unsqueeze", "Concat", "Sqrt", "Div", "Mul", "Add", "Sub", "Identity")
_MOST = 64  # elements of such a value: sizes and numbers made of them
_OF_INTEGERS = (
    *("Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Gather", "GatherElements", "Mul"),
    *("Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"),
)
_MOST_INTEGERS = 1 << 14


def with_known_sizes(graph: Graph, kept: Sequence[str], shapes: Shapes) -> Graph:
    """The graph without nodes that yield sizes which the model says, or numbers made of those."""
    if not any(node.op == "Shape" and not node.domain for node in graph.nodes):
        return graph
    return _Sizes(graph, kept, shapes).run()


class _Sizes(Rewriting):
    def run(self) -> Graph:
        known: dict[str, Array] = {}
        for node in self.graph.nodes:
            value = None if node.domain or self.kept & set(node.outputs) else self.value(node, known)
            if value is not None and value.size <= _MOST:
                known[node.outputs[0]] = value
                del self.nodes[first_of(node)]
        self.added |= known
        return self.rewritten()

    def value(self, node: Node, known: dict[str, Array]) -> Array | None:
        """A node's value where sizes alone decide it."""
        if node.op == "Shape":
            return _sizes(node, self.shape_of(node.inputs[0]))
        if node.op not in _FOLDED or not known.keys() & set(node.inputs):
            return None
        given = [known.get(name, self.constants.get(name)) for name in node.inputs]
        if any(a is None or a.dtype == F16 and not has_kernel(node) for a in given):
            return None  # of f16 as the model runs, between casts
        return value_of(node, given)


def _sizes(node: Node, shape: Sequence[int | str] | None) -> Array | None:
    """The sizes that a Shape gives; None where one is open."""
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    return np.array(shape[slice(node.get("start", 0), node.get("end"))], np.int64)


def known_integers(graph: Graph, shapes: Shapes) -> dict[str, Array]:
    """Integers and truth values that come of constants, and of sizes that `shapes` knows, by operators that move and
    compare them, but for the constants themselves. Exporters write the sizes of what they expand or cut so.
    """
    constants, found = constants_of(graph), dict[str, Array]()
    for node in graph.nodes:
        if node.op == "Shape" and not node.domain:
            if (sizes := _sizes(node, shapes.get(node.inputs[0]))) is not None:
                found[node.outputs[0]] = sizes
            continue
        given = [found.get(name, constants.get(name)) for name in node.inputs]
        known = all(a is not None and a.dtype.kind in "iub" and a.size <= _MOST_INTEGERS for a in given)
        if node.op in _OF_INTEGERS and not node.domain and given and known:
            value = value_of(node, given)
            if value.dtype.kind in "iub" and value.size <= _MOST_INTEGERS:
                found[node.outputs[0]] = value
    return found
