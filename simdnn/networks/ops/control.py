"""Control flow: bodies are graphs that may read the names around them; `kernels.body` runs one."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented, UnknownTiming
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Graph, Node
from simdnn.networks.ops.registry import axis_of, need, operator
from simdnn.networks.types import is_float


def _graph(node: Node, name: str) -> Graph:
    found = node.get(name)
    need(isinstance(found, Graph), f"attribute {name!r} is no graph")
    graph: Graph = found
    return graph


def _truth(k: Kernels, value: Array) -> bool:
    """A condition; a shadow has none."""
    need(value.size == 1, f"a condition of shape {value.shape}")
    if not k.values and is_float(value.dtype):
        raise UnknownTiming("a condition that depends on values, which a cost alone does not have; run it")
    return bool(value.reshape(()))


@operator("If")
def if_(k: Kernels, node: Node, condition: Array) -> tuple[Any, ...]:
    return tuple(k.body(_graph(node, "then_branch" if _truth(k, condition) else "else_branch"), []))


_MOST_TURNS = 1 << 20  # minutes of a body of a few small nodes


def _unending(body: Graph) -> bool:
    """Whether a body hands its condition on as it came, so that nothing but the trip count ends the loop."""
    same = {body.inputs[1].name}
    for node in body.nodes:
        if node.op == "Identity" and node.inputs[0] in same:
            same.update(node.outputs)
    return body.outputs[0].name in same


@operator("Loop")
def loop(k: Kernels, node: Node, trips: Array | None, condition: Array | None, *carried: Array) -> tuple[Any, ...]:
    """The body takes the turn, the condition and what is carried; what it gives besides is stacked."""
    body = _graph(node, "body")
    need(len(body.inputs) == 2 + len(carried), f"a body of {counted(len(body.inputs), 'input')} for {2 + len(carried)}")
    most = None if trips is None else int(trips.reshape(()))
    going = True if condition is None else _truth(k, condition)
    if going and _unending(body) and (most is None or most > _MOST_TURNS):
        raise InvalidArgument(f"a Loop of {most or 'endless'} turns, which its body never ends; at most {_MOST_TURNS}")
    states: list[Any] = list(carried)
    scans: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    turn = 0
    while going and (most is None or turn < most):
        k.turns += 1
        if k.turns > _MOST_TURNS:
            raise InvalidArgument(
                f"a Loop that has not ended after {_MOST_TURNS} turns, loops within it and before it "
                "counted, the most that are run"
            )
        given = k.body(body, [np.array(turn, np.int64), np.array(going), *states])
        going, states = _truth(k, given[0]), given[1 : 1 + len(carried)]
        for scan, value in zip(scans, given[1 + len(carried) :], strict=True):
            k.allocate((turn + 1, *value.shape), value.dtype, shadowed=not k.values)
            scan.append(value)
        turn += 1
    ports = body.outputs[1 + len(carried) :]
    empty = [
        np.zeros((0, *(d for d in port.dims or () if isinstance(d, int))), port.dtype or np.float32) for port in ports
    ]
    return (*states, *(np.stack(s) if s else e for s, e in zip(scans, empty, strict=True)))


@operator("Scan")
def scan(k: Kernels, node: Node, *operands: Array) -> tuple[Any, ...]:
    if node.version < 9:
        raise Unimplemented("Scan before opset 9, which had a batch dimension of its own; later ones work")
    body, count = _graph(node, "body"), node.integer("num_scan_inputs")
    states, streams = list(operands[: len(operands) - count]), operands[len(operands) - count :]
    need(0 < count <= len(operands), f"num_scan_inputs={count} of {len(operands)}")
    axes = [axis_of(a, s.ndim) for a, s in zip(node.integers("scan_input_axes", [0] * count), streams, strict=True)]
    back = node.integers("scan_input_directions", [0] * count)
    moved = [np.moveaxis(s, a, 0)[:: -1 if b else 1] for s, a, b in zip(streams, axes, back, strict=True)]
    length = moved[0].shape[0]
    need(all(m.shape[0] == length for m in moved), "scan inputs of different lengths")
    outputs: list[list[Array]] = [[] for _ in body.outputs[len(states) :]]
    for t in range(length):
        given = k.body(body, [*states, *(np.array(m[t]) for m in moved)])
        states = given[: len(states)]
        for line, value in zip(outputs, given[len(states) :], strict=True):
            line.append(value)
    out_axes = node.integers("scan_output_axes", [0] * len(outputs))
    reverse = node.integers("scan_output_directions", [0] * len(outputs))
    stacked = [np.stack(line[:: -1 if r else 1]) for line, r in zip(outputs, reverse, strict=True)]
    return (*states, *(np.moveaxis(s, 0, a) for s, a in zip(stacked, out_axes, strict=True)))
