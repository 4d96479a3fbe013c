"""How large a model becomes: counted before anything of it is expanded, without following it recursively.

A model of a kilobyte can ask for more nodes than any memory holds: functions that call each other twice, graphs within
graphs. What is counted here bounds what the loader does afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from isa_models import InvalidArgument

DEPTH = 16  # of graphs within graphs
_CALLS = 64  # of functions within functions
_MOST_NODES = 1 << 17
_MOST_COPIED = 1 << 28  # bytes of functions' nodes, a copy for each call


class _Size(NamedTuple):
    """The size of a graph or a function with all that it calls."""

    nodes: int
    copied: int  # bytes
    calls: int  # functions within functions


_PLAIN = _Size(1, 0, -1)  # of a node that calls no function


def check_size(model: Any) -> None:
    """`InvalidArgument` for a model that is nested or called too deep, calls itself, or has too many nodes in all."""
    functions = {_name(f, f.name): f for f in model.functions}
    sizes: dict[Any, _Size] = {}
    for key in functions:
        _measure(key, functions, sizes)
    total = _sum(_nodes(model.graph, "the graph"), sizes)
    if total.nodes > _MOST_NODES:
        raise InvalidArgument(
            f"a model of {_shown(total.nodes)} nodes, functions and bodies expanded; at most {_MOST_NODES} are loaded"
        )
    if total.copied > _MOST_COPIED:
        raise InvalidArgument(
            f"the model's functions take {_shown(total.copied)} bytes where they are expanded; at "
            f"most {_MOST_COPIED} are"
        )


def _measure(first: Any, functions: dict[Any, Any], sizes: dict[Any, _Size]) -> None:
    """Find the sizes of a function and, ahead of it, of the functions that it calls."""
    waiting = [first]
    under_way: set[Any] = set()
    while waiting:
        key = waiting[-1]
        if key in sizes:
            waiting.pop()
            continue
        nodes = list(_nodes(functions[key], f"function {key[1]!r}"))
        called = {_name(node, node.op_type) for node in nodes} & functions.keys()
        if lacking := [inner for inner in called if inner not in sizes]:
            if key in under_way or key in called:
                raise InvalidArgument(f"function {key[1]!r} of domain {key[0]!r} calls itself, directly or not")
            under_way.add(key)
            waiting += lacking
            continue
        found = _sum(nodes, sizes)
        sizes[key] = found._replace(copied=found.copied + sum(node.ByteSize() for node in functions[key].node))
        if found.calls > _CALLS:
            raise InvalidArgument(f"functions that call each other more than {_CALLS} deep, from {key[1]!r} on")


def _sum(nodes: Iterable[Any], sizes: dict[Any, _Size]) -> _Size:
    count = copied = calls = 0
    for node in nodes:
        inner = sizes.get(_name(node, node.op_type), _PLAIN) if sizes else _PLAIN
        count, copied, calls = count + inner.nodes, copied + inner.copied, max(calls, inner.calls + 1)
    return _Size(count, copied, calls)


def _nodes(graph: Any, what: str) -> Iterator[Any]:
    """The nodes of a graph or function and of all graphs within it."""
    waiting = [(graph, 0)]
    while waiting:
        inner, depth = waiting.pop()
        if depth > DEPTH:
            raise InvalidArgument(f"graphs nested more than {DEPTH} deep in {what}")
        for node in inner.node:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append((attribute.g, depth + 1))
                waiting += [(one, depth + 1) for one in attribute.graphs]


def _name(proto: Any, name: str) -> tuple[str, str, str]:
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return domain, name, str(getattr(proto, "overload", ""))  # which older packages of onnx do not know


def _shown(count: int) -> str:
    return str(count) if count < 10**15 else f"about 2**{count.bit_length() - 1}"
