"""A program as simdnn holds it: nodes in an order in which they can run, over tensors with names and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.networks.types import label

Dims = tuple[int | str, ...]  # a name stands for a size that a feed decides

#: operators whose outputs no input decides
RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")


@dataclass(frozen=True)
class Port(InNotebooks):
    """An input or output of a graph. `dims` is None where the rank is open, `dtype` where the model doesn't say it."""

    name: str
    dtype: np.dtype[Any] | None
    dims: Dims | None
    kind: str = "tensor"  # tensor | sequence | optional

    @property
    def example(self) -> tuple[int, ...]:
        """The port's sizes, 1 where it leaves one open; those of a picture where the rank is open, too."""
        return (1, 3, 224, 224) if self.dims is None else tuple(d if isinstance(d, int) else 1 for d in self.dims)

    def __str__(self) -> str:
        shape = "?" if self.dims is None else "x".join(str(d) for d in self.dims) or "scalar"
        return f"{self.name} {shape} {label(self.dtype) if self.dtype else '?'}"


def shorten(text: str, most: int = 48) -> str:
    """A text cut to a number of characters, since it may come from somebody else's file."""
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass(frozen=True, eq=False)
class Node(Alike):
    """One operator. An empty name among `inputs` is an optional input left out; `version` is its domain's opset."""

    name: str
    op: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    proto: Any = field(default=None, repr=False)  # the NodeProto that it comes from

    def __str__(self) -> str:
        return f"node {self.name!r} ({self.domain + '::' if self.domain else ''}{self.op})"

    def __repr__(self) -> str:
        reads, gives = (shorten(", ".join(names)) for names in (self.inputs, self.outputs))
        return f"Node({shorten(self.name)!r}: {self.op}({reads}) -> {gives})"

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute: int, float, str, array, Graph, or a list of one of them."""
        return self.attributes.get(name, default)

    @property
    def reads(self) -> list[str]:
        """The names that it reads, those that its bodies read from around them included."""
        return [*self.inputs, *(name for body in subgraphs(self) for name in body.outer)]

    def _typed(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        found = self.attributes.get(name, default)
        if found is None:
            raise InvalidArgument(f"attribute {name!r} is missing")
        if not isinstance(found, kinds) and found is not default:
            raise InvalidArgument(f"attribute {name}={found!r:.60}; {kinds[0].__name__} is needed")
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._typed(name, (int,), default))

    def number(self, name: str, default: float | None = None) -> float:
        return float(self._typed(name, (float, int), default))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._typed(name, (str,), default))

    def integers(self, name: str, default: list[int] | None = None) -> list[int]:
        found = self._typed(name, (list,), default)
        if not all(isinstance(v, int) for v in found):
            raise InvalidArgument(f"attribute {name}={found!r:.60}; a list of integers is needed")
        return list(found)


@dataclass(frozen=True, eq=False)
class Graph(Alike):
    """Nodes in order. `constants` are the initializers; an input that has one too may be left out of a feed."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]

    def __repr__(self) -> str:
        nodes, constants = counted(len(self.nodes), "node"), counted(len(self.constants), "constant")
        return f"Graph({shorten(self.name)!r}: {nodes}, {constants})"

    @property
    def every_node(self) -> list[Node]:
        """The nodes with those of control-flow bodies behind their node."""
        return [n for node in self.nodes for n in (node, *(m for g in subgraphs(node) for m in g.every_node))]

    @property
    def outer(self) -> tuple[str, ...]:
        """Names that the nodes read and that come from a graph around this one."""
        known = {port.name for port in self.inputs} | set(self.constants)
        found: dict[str, None] = {}
        for node in self.nodes:
            found.update((name, None) for name in node.reads if name and name not in known)
            known.update(node.outputs)
        found.update((port.name, None) for port in self.outputs if port.name not in known)
        return tuple(found)


def read_elsewhere(graph: Graph, kept: Iterable[str] = ()) -> set[str]:
    """Values that more than a graph's own nodes read, so that a rewriting leaves them: its outputs, those named in
    `kept`, and those that a control-flow body reads.
    """
    inside = {name for node in graph.nodes for body in subgraphs(node) for name in body.outer}
    return {port.name for port in graph.outputs} | inside | set(kept)


def subgraphs(node: Node) -> list[Graph]:
    """The bodies of a control-flow node."""
    return [v for v in node.attributes.values() if isinstance(v, Graph)]
