"""A run of a network's nodes in their order: by which kernels each is computed, and what is kept of it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, SimdnnError, Unimplemented, UnknownTiming
from isa_models.errors import counted
from simdnn.networks.calls import Call
from simdnn.networks.kernels import Kernels
from simdnn.networks.memo import Memo
from simdnn.networks.model import RANDOM, Graph, Node
from simdnn.networks.ops import find, integer_types, sequence
from simdnn.networks.ops.function import body
from simdnn.networks.ops.registry import QUANTIZED
from simdnn.networks.passes.absorbed import joined
from simdnn.networks.passes.f16_casts import RUNNING
from simdnn.networks.precision import matches
from simdnn.networks.result import NodeRun, described
from simdnn.networks.shadows import shaded
from simdnn.networks.types import bits
from simdnn.primitives import Attr
from simdnn.primitives.mathmode import FPMATH, cold_weights
from simdnn.primitives.run import Target
from simdnn.progress import Progress, silent

Watch = Callable[[Node, Sequence[Any]], None]


@dataclass(frozen=True)
class NodePlace:
    """Where one node runs: an ISA cap (None: all that the machine has), and what its kernels are allowed."""

    isa: str | None
    attr: Attr


class GraphRun:
    """A graph on its feeds, by the kernels `k`; `folded` keeps what constants come to, by what that hangs on.

    Nodes whose names `fpmath_layers` does not match compute strictly, those among `placed` where that says.
    """

    def __init__(
        self,
        graph: Graph,
        folded: dict[Any, dict[str, Any]],
        feeds: Mapping[str, Any],
        k: Kernels,
        fpmath_layers: str,
        placed: Mapping[str, NodePlace],
        memo: Memo | None,
    ) -> None:
        self.graph, self.k, self.fpmath_layers, self.memo = graph, k, fpmath_layers, memo
        self.values: dict[str, Any] = {**graph.constants, **feeds}
        self.constant = set(graph.constants) - set(feeds)
        self.mode = FPMATH.effective(k.attr.fpmath)
        t = k.target
        key = (t.machine, t.caps, t.dispatch, k.attr, self.mode, fpmath_layers, tuple(placed.items()))
        self.folded = folded.setdefault(key, {}) if not feeds.keys() & graph.constants.keys() else {}
        self.whole = replace(k, values=True, calls=[])  # which computes constants, whether values are asked for or not
        self.allowed, self.strict = k.attr, replace(k.attr, fpmath="strict")
        places = {place: _at_place(k, place) for place in set(placed.values())}
        self.apart = {name: places[place] for name, place in placed.items()}
        self.cold = _exceeds_caches(graph, t.machine)
        self.followed = joined(graph) if k.runs_models else {}
        self.dequantized: set[str] = set()  # constants that a library dequantizes as it runs, and so packs none of
        self.known = memo.constants(graph.constants) | memo.values(feeds) if memo else {}

    def run(
        self,
        watch: Watch | None = None,
        fetched: Sequence[str] = (),
        told: Progress = silent,
        instead: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[dict[str, Any], tuple[NodeRun, ...]]:
        """The values that are left, those `fetched` among them, and each node's run. Values of `instead` stand in for
        what nodes gave.
        """
        made = {name for node in self.graph.nodes for name in node.outputs}
        runs: list[NodeRun] = []
        for node, last_used in zip(self.graph.nodes, _last_uses(self.graph, fetched), strict=True):
            told(len(runs), len(self.graph.nodes), node.name or node.op)
            given, calls, free = self.node(node)
            for name, value in zip(node.outputs, given, strict=False):
                self.values[name] = instead.get(name, value)
                self.k.held += _bytes(value)
            self.k.calls.clear()
            runs.append(NodeRun(node, calls, *described(given[0] if given else None), free))
            if watch is not None:
                watch(node, given)
            for name in last_used:
                gone = self.values.pop(name)
                self.k.held -= _bytes(gone) if name in made else 0
        return self.values, tuple(runs)

    def node(self, node: Node) -> tuple[Sequence[Any], tuple[Call, ...], str]:
        """A node's outputs, the kernels that it ran, and why it cost nothing."""
        k, memo = self.k, self.memo
        fixed = _is_constant(node, self.constant)
        if fixed:
            self.constant.update(node.outputs)
            if k.runs_models and (_runs(node) or self.dequantized.intersection(node.inputs)):
                self.dequantized.update(node.outputs)
        self.whole.held = k.held
        self.whole.attr = k.attr = self.allowed if matches(node.name, self.fpmath_layers) else self.strict
        here = self.whole if fixed else self.apart.get(node.name, k)
        weights = 3 if node.op in QUANTIZED else 1
        operands = [*node.inputs, *[""] * (weights + 2)][weights : weights + 2]
        held = self.constant - self.dequantized if self.dequantized else self.constant
        here.constant_weights, here.constant_bias = (not name or name in held for name in operands)
        here.followed = next((self.followed[name] for name in node.outputs if name in self.followed), "")
        from_memory = self.cold and not self.constant.isdisjoint(node.inputs)
        calls: tuple[Call, ...] = ()
        at = memo.key(node, self.known, *_options_of(here), self.mode, from_memory, fixed) if memo else None
        if fixed and node.outputs[0] in self.folded:
            given: Sequence[Any] = [self.folded.get(name) for name in node.outputs]
        elif memo and (kept := memo.given(at)):
            given, calls = kept
        else:
            here.held = k.held
            with cold_weights() if from_memory else nullcontext():
                given = _ran(node, self.values, here)
            calls = () if fixed else tuple(k.calls)
            if memo:
                memo.keep(at, given, calls)
        if fixed:
            self.folded.update(zip(node.outputs, given, strict=False))
        if memo:
            self.known |= memo.outputs(at, node)
        return given, calls, "constant" if fixed else "view" if not calls else ""


def _runs(node: Node) -> bool:
    """Whether a library computes a node's constants anew in every run."""
    return node.op == "DequantizeLinear" or RUNNING in node.attributes


def _exceeds_caches(graph: Graph, machine: Machine | GpuMachine) -> bool:
    """Whether the constants are more than the last cache holds, so that each run reads them from memory."""
    copies = 1 if isinstance(machine, Machine) else machine.stacks
    most = machine.caches[-1].size_bytes * copies
    return sum(a.size * bits(a.dtype) for a in graph.constants.values()) > 8 * most


def _at_place(k: Kernels, place: NodePlace) -> Kernels:
    """The kernels of a node with a place of its own; calls are noted together."""
    t = k.target
    target = Target.of(t.machine, place.isa, t.threads, t.engine, t.dispatch)
    return replace(k, target=target, attr=place.attr)


def _options_of(k: Kernels) -> tuple[Hashable, ...]:
    """A key of the machine and of the options that its kernels differ in."""
    t = k.target
    followed = k.followed if k.runs_models else ""
    return t.machine, t.caps, t.threads, t.engine, t.dispatch, k.attr, k.constant_weights, k.constant_bias, followed


def _bytes(value: Any) -> int:
    """The bytes that a value takes; a shadow takes nothing."""
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return value.nbytes if isinstance(value, np.ndarray) and 0 not in value.strides else 0


def _ran(node: Node, values: MutableMapping[str, Any], k: Kernels) -> list[Any]:
    """Run one node, by other kernels where `k` has some for what it refuses."""
    try:
        return _apply(node, values, k)
    except (Unimplemented, UnknownTiming) as error:
        return _apply(node, values, k.instead(error))


def _apply(node: Node, values: MutableMapping[str, Any], k: Kernels) -> list[Any]:
    """Run one node; errors name it."""
    k.body = lambda graph, inputs: _run_body(graph, inputs, values, k)
    try:
        operands = [values[name] if name else None for name in node.inputs]
        if any(isinstance(v, list) for v in operands) and node.op not in sequence.READERS:
            raise InvalidArgument("an input is a sequence; a tensor is needed")
        operator = find(node)
        integer_types.check(node, operands, k.runs_models)
        if operator is None:
            found = tuple(_run_body(body(node, operands), None, values, k, node.outputs))
        else:
            found = operator(k, node, *operands)
    except SimdnnError as error:
        text = str(error)
        raise type(error)(text if text.startswith(str(node)) else f"{node}: {text}") from None
    except (
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        ZeroDivisionError,
        OverflowError,
        AttributeError,
        MemoryError,
    ) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InvalidArgument(f"{node}: {reason}") from error
    outputs = [
        np.asarray(v) if isinstance(v, np.generic) else v for v in (found if isinstance(found, tuple) else (found,))
    ]
    if not k.values:
        outputs = [shaded(v) if isinstance(v, np.ndarray) else v for v in outputs]
    wanted = len(node.outputs)
    if len(outputs) < wanted:
        raise InvalidArgument(f"{node}: it has {counted(wanted, 'output')}, and the operator gives {len(outputs)}")
    return outputs[:wanted]


def _run_body(
    graph: Graph, inputs: Sequence[Any] | None, outer: MutableMapping[str, Any], k: Kernels, wanted: Sequence[str] = ()
) -> list[Any]:
    """The outputs of a body, or only the `wanted` ones; without inputs it reads the names around it."""
    given = {} if inputs is None else dict(zip((p.name for p in graph.inputs), inputs, strict=True))
    values = ChainMap({**graph.constants, **given}, outer)  # a copy of all names takes longer than most bodies
    for node in graph.nodes:
        values.update(zip(node.outputs, _apply(node, values, k), strict=False))
    return [values.get(name) for name in wanted or [port.name for port in graph.outputs]]


def _is_constant(node: Node, constant: set[str]) -> bool:
    """Whether nothing that a node reads depends on a feed."""
    return node.op not in RANDOM and all(not name or name in constant for name in node.reads)


def _last_uses(graph: Graph, kept: Sequence[str]) -> list[list[str]]:
    """For each node the names that nobody reads after it, but for those that are to be kept."""
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        last.update((name, position) for name in (*node.reads, *node.outputs))
    keep = {port.name for port in graph.outputs} | {"", *kept}
    found: list[list[str]] = [[] for _ in graph.nodes]
    for name, position in last.items():
        if name not in keep:
            found[position].append(name)
    return found
