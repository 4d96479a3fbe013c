"""Nodes that ran are remembered, for networks that share most of their nodes, as recipes of one model do.

What a node gives hangs on its operator, its attributes, where it runs, and the values that it reads. A value is known
by its content where it is a constant or a feed, else by the node that gave it: numbers stand for both.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from isa_models import SimdnnError
from isa_models.readings.arrays import Array
from simdnn.networks.calls import Call
from simdnn.networks.model import RANDOM, Node, subgraphs

Given = tuple[list[Any], tuple[Call, ...]]  # a node's outputs, and the calls that made them


@dataclass(eq=False)
class Memo:
    """Outputs and costs of nodes, up to `most` bytes of values; which were read last stay longest.

    Calls have their costs, and not how products departed from exact integers, which would keep their operands.
    """

    most: int = 1 << 29
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _held: OrderedDict[int, Given] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _digests: dict[int, Hashable] = field(default_factory=dict)  # of arrays that live, by their id
    _constants: tuple[Mapping[str, Any], dict[str, int]] = field(default_factory=lambda: ({}, {}))

    def values(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        """Numbers of constants and feeds, by name."""
        return {name: self._number(_content(value)) for name, value in arrays.items()}

    def constants(self, arrays: Mapping[str, Any]) -> dict[str, int]:
        """Numbers of a network's constants, which many runs share."""
        if self._constants[0] is not arrays:
            found = {name: self._number(self._once(value)) for name, value in arrays.items()}
            self._constants = (arrays, found)
        return dict(self._constants[1])

    def _once(self, value: Array) -> Hashable:
        """A key of a constant, which nobody changes: found once, as networks may share it."""
        at = id(value)
        if at not in self._digests:
            self._digests[at] = _content(value)
            weakref.finalize(value, self._digests.pop, at, None)
        return self._digests[at]

    def key(self, node: Node, known: Mapping[str, int], *where: Hashable) -> int | None:
        """The number of what a node does at a place; None where it is not to be remembered."""
        if node.op in RANDOM or subgraphs(node) or any(name and name not in known for name in node.inputs):
            return None
        reads = tuple(known[name] if name else -1 for name in node.inputs)
        attributes = tuple(sorted((name, _content(value)) for name, value in node.attributes.items()))
        return self._number((node.op, node.domain, node.version, len(node.outputs), attributes, reads, where))

    def outputs(self, key: int | None, node: Node) -> dict[str, int]:
        """Numbers of what a node gives, by name."""
        return {} if key is None else {name: self._number((key, at)) for at, name in enumerate(node.outputs)}

    def given(self, key: int | None) -> Given | None:
        """The values that are remembered."""
        if key is None or key not in self._held:
            return None
        self._held.move_to_end(key)
        return self._held[key]

    def keep(self, key: int | None, values: list[Any], calls: tuple[Call, ...]) -> None:
        """Remember a node, and forget what was read the longest time ago."""
        if key is None:
            return
        self._held[key] = (values, tuple(map(_priced, calls)))
        self._bytes += _size(values)
        while self._bytes > self.most:
            _, (gone, _) = self._held.popitem(last=False)
            self._bytes -= _size(gone)

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))


def _content(value: Any) -> Hashable:
    """A key that tells a value from others."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest = hashlib.blake2b(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, digest_size=16)
        return "array", str(value.dtype), value.shape, digest.digest()
    if isinstance(value, np.ndarray):
        return "objects", value.shape, repr(value.tolist())
    if isinstance(value, list):
        return "list", *map(_content, value)
    return type(value).__name__, repr(value)


def _priced(call: Call) -> Call:
    """A call that holds its cost, or why it has none, and no operands."""
    try:
        return replace(call, find_cost=functools.partial(_same, call.find_cost()), departed=None)
    except SimdnnError as error:
        return replace(call, find_cost=functools.partial(_raised, error), departed=None)


def _same(cost: Any) -> Any:
    return cost


def _raised(error: SimdnnError) -> Any:
    raise error


def _size(values: list[Any]) -> int:
    return sum(_size(v) if isinstance(v, list) else getattr(v, "nbytes", 64) for v in values)
