"""The element types of a graph's values, as far as its nodes say them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from simdnn.networks import schemas
from simdnn.networks.model import Graph, Node, subgraphs
from simdnn.networks.types import F32, element, is_float

Kinds = dict[str, np.dtype[Any] | None]
#: constraints of one type, which ONNX spells with a T all the same
_SINGLE = {
    "tensor(bool)": np.dtype(bool),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(float)": F32,
}
#: attributes that name the type of the first output
_NAMED = {
    "Cast": "to",
    "EyeLike": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniformLike": "dtype",
    "Bernoulli": "dtype",
}


def kinds_of(graph: Graph, outer: Kinds) -> Kinds:
    """The element types of a graph's values, `outer` those around it; None where they are not known."""
    found = {**outer, **{port.name: port.dtype for port in graph.inputs}}
    found |= {name: a.dtype for name, a in graph.constants.items()}
    for node in graph.nodes:
        found.update((name, _kind(node, at, found)) for at, name in enumerate(node.outputs) if name)
    return found


def _kind(node: Node, at: int, known: Kinds) -> np.dtype[Any] | None:
    """The element type of a node's output."""
    if node.op in ("Constant", "ConstantOfShape"):
        value = node.get("value")
        integers = {"value_int", "value_ints"} & node.attributes.keys()
        return value.dtype if isinstance(value, np.ndarray) else np.dtype(np.int64) if integers else F32
    if number := node.get(_NAMED.get(node.op, "")):
        return element(number)
    for inner in subgraphs(node):
        ports = inner.outputs[node.op == "Loop" :]  # the first says whether it goes on
        return kinds_of(inner, known).get(ports[at].name) if at < len(ports) else None
    given = [known.get(name) for name in node.inputs]
    takes, gives = formal_types(node.op, node.version, node.domain)
    if not gives:
        return next((kind for kind in given if kind is not None and is_float(kind)), None)
    wanted = gives[min(at, len(gives) - 1)]
    same = (kind for i, kind in enumerate(given) if takes[min(i, len(takes) - 1)] == wanted)
    return next((kind for kind in same if kind is not None), _SINGLE.get(wanted))


@functools.cache
def formal_types(op: str, version: int, domain: str) -> tuple[Sequence[str], Sequence[str]]:
    """The types of an operator's formal inputs and outputs, by the names that ONNX gives them; none of an operator that
    it does not define.

    >>> formal_types("LayerNormalization", 17, "")
    (('T', 'T', 'T'), ('T', 'U', 'U'))
    """
    schema = schemas.find(op, version, domain)
    if schema is None:
        return (), ()
    one = {c.type_param_str: c.allowed_type_strs[0] for c in schema.type_constraints if len(c.allowed_type_strs) == 1}
    given, made = (tuple(one.get(p.type_str, p.type_str) for p in side) for side in (schema.inputs, schema.outputs))
    return given, made
