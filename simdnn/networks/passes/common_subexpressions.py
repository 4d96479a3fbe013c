"""Nodes that compute the same from the same, as one: what runtimes do with a graph before anything else."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from simdnn.networks.model import RANDOM, Graph, Node, read_elsewhere, subgraphs


def once(graph: Graph, kept: Sequence[str] = ()) -> Graph:
    """The graph without nodes that repeat an earlier one, whose outputs are read in place of theirs.

    Outputs of the graph, values named in `kept`, and those that a control-flow body reads stay.
    """
    held = read_elsewhere(graph, kept)
    names: dict[str, str] = {}
    first: dict[Hashable, Node] = {}
    left = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
        key = _merge_key(node)
        same = None if key is None or held & set(node.outputs) else first.setdefault(key, node)
        if same is None or same is node:
            left.append(node)
        else:
            names |= dict(zip(node.outputs, same.outputs, strict=True))
    return replace(graph, nodes=tuple(left))


def _merge_key(node: Node) -> Hashable:
    """A key that nodes share which compute the same; None of one that is not to be merged."""
    if node.op in RANDOM or subgraphs(node):
        return None
    values = []
    for name, value in sorted(node.attributes.items()):
        if isinstance(value, np.ndarray):
            values.append((name, value.dtype.str, value.shape, value.tobytes()))
        else:
            values.append((name, type(value).__name__, repr(value), b""))
    named = tuple(bool(name) for name in node.outputs)
    return node.op, node.domain, node.version, node.inputs, named, tuple(values)
