"""The slowest chain of registers that an iteration of a loop hands to the next: a lower bound on its cycles.

The registers carried from iteration to iteration are a small graph, whose edges say how many cycles after the one a
loop's body yields the other. The slowest chain is its cycle of the largest mean, found as in R. Karp, "A
characterization of the minimum cycle mean in a digraph" (Discrete Mathematics 23, 1978).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from simdnn.timing.cpu.steps import CoreOp

Graph = Mapping[str, Mapping[str, float]]  # from a register to those that it feeds, with the cycles
_Link = tuple[int, "_Link | None"]  # an op's index, and what came before it
_Times = dict[str, tuple[float, "_Link | None"]]

SAME = 1e-9  # cycles by which rounding may part two sums


def slowest_chain(ops: Sequence[CoreOp]) -> tuple[float, tuple[int, ...]]:
    """Cycles an iteration of the slowest chain, and which ops it runs through, in order, until it is where it began.

    0 and none where nothing is carried. Of several the one with the register that is read first, and then the shortest.
    """
    carried = _carried(ops)
    found = slowest_cycle(feeds(ops, carried))
    if found is None:
        return 0.0, ()
    start, turns = found
    times: _Times = {start: (0.0, None)}
    for _ in range(turns):
        times = {register: time for register, time in _once(ops, times).items() if register in carried}
    cycles, path = times[start]
    indices = []
    while path is not None:
        index, path = path
        indices.append(index)
    return cycles / turns, tuple(reversed(indices))


def slowest_cycle(graph: Graph) -> tuple[str, int] | None:
    """A node and the edges of the shortest cycle through it that has the largest mean; None where none is above 0.

    >>> slowest_cycle({"a": {"a": 4, "b": 3}, "b": {"a": 6}, "c": {"c": 4.5}})
    ('a', 2)
    """
    core = _on_longer_cycles(graph)
    walks = _longest_walks(core)
    own = max((edges.get(node, 0.0) for node, edges in graph.items()), default=0.0)
    mean = max(own, _largest_mean(walks))
    if mean <= SAME:
        return None
    tight = _tight(core, walks, mean)
    for node, edges in graph.items():
        if turns := 1 if edges.get(node, 0.0) >= mean - SAME else _turns(tight, node):
            return node, turns
    return None


def feeds(ops: Sequence[CoreOp], carried: Sequence[str]) -> Graph:
    """Which carried registers each of them feeds in one iteration, and after how many cycles."""
    now: dict[str, dict[str, float]] = {register: {register: 0.0} for register in carried}
    for op in ops:
        if op.moves is not None:
            latest = now.get(op.moves, {})
        else:
            latest = {}
            for register, latency in _waits(op):
                for start, time in now.get(register, {}).items():
                    if time + latency > latest.get(start, -1.0):
                        latest[start] = time + latency
        for register in op.writes:
            now[register] = latest
    reached: dict[str, dict[str, float]] = {register: {} for register in carried}
    for register in carried:
        for start, time in now[register].items():
            reached[start][register] = time
    return reached


def _on_longer_cycles(graph: Graph) -> Graph:
    """The part of a graph that is left when nodes that no other one feeds, or that feed none, are taken away."""
    core = {node: dict(edges) for node, edges in graph.items()}
    while True:
        fed = {to for node, edges in core.items() for to in edges if to != node}
        kept = {node for node, edges in core.items() if node in fed and not edges.keys() <= {node}}
        if len(kept) == len(core):
            return core
        core = {node: {to: time for to, time in core[node].items() if to in kept} for node in core if node in kept}


def _longest_walks(graph: Graph) -> list[dict[str, float]]:
    """For each number of edges up to that of nodes: the longest walk with that number of edges to each node."""
    walks = [dict.fromkeys(graph, 0.0)]
    for _ in graph:
        here: dict[str, float] = {}
        for node, time in walks[-1].items():
            for to, more in graph[node].items():
                if time + more > here.get(to, -1.0):
                    here[to] = time + more
        walks.append(here)
    return walks


def _largest_mean(walks: Sequence[Mapping[str, float]]) -> float:
    """Karp's theorem."""
    count, last = len(walks) - 1, walks[-1]
    return (
        max(
            (
                min((last[node] - walks[k][node]) / (count - k) for k in range(count) if node in walks[k])
                for node in last
            ),
            default=0.0,
        )
        if count
        else 0.0
    )


def _tight(graph: Graph, walks: Sequence[Mapping[str, float]], mean: float) -> dict[str, list[str]]:
    """The edges without slack where each counts `mean` less: all cycles of this mean, and no others, are made of them.

    A node's height is its longest walk so counted.
    """
    height = {node: max(walk[node] - mean * k for k, walk in enumerate(walks[:-1]) if node in walk) for node in graph}
    return {
        node: [to for to, time in edges.items() if height[node] + time - mean >= height[to] - SAME]
        for node, edges in graph.items()
    }


def _turns(graph: Mapping[str, Sequence[str]], start: str) -> int:
    """The fewest edges from a node back to it; 0 where no way leads back."""
    seen, now, turns = {start}, [start], 0
    while now:
        turns += 1
        onward = {to for node in now for to in graph.get(node, ())}
        if start in onward:
            return turns
        now = [node for node in onward if node not in seen]
        seen.update(now)
    return 0


def _carried(ops: Sequence[CoreOp]) -> list[str]:
    """Registers read before they are written, and written; in the order of their first reading."""
    written: set[str] = set()
    early: dict[str, None] = {}
    for op in ops:
        for register in _sources(op):
            if register not in written:
                early[register] = None
        written.update(op.writes)
    return [register for register in early if register in written]


def _sources(op: CoreOp) -> itertools.chain[str]:
    moved = (op.moves,) if op.moves is not None else ()
    late = (op.accumulator,) if op.accumulator is not None else ()
    address = op.load.registers if op.load is not None else ()
    return itertools.chain(op.reads, moved, late, address)


def _once(ops: Sequence[CoreOp], times: _Times) -> _Times:
    """Follow known register times through the body once; registers that don't depend on them drop out."""
    now = dict(times)
    for index, op in enumerate(ops):
        latest: tuple[float, _Link | None] | None = None
        if op.moves is not None:
            latest = now.get(op.moves)
        else:
            for register, latency in _waits(op):
                if register in now and (latest is None or now[register][0] + latency > latest[0]):
                    latest = now[register][0] + latency, now[register][1]
        for register in op.writes:
            if latest is not None:
                now[register] = latest[0], (index, latest[1])
            else:
                now.pop(register, None)
    return now


def _waits(op: CoreOp) -> list[tuple[str, float]]:
    """Registers that an op reads, with the cycles from each to its result."""
    waits = [(register, op.latency) for register in op.reads]
    if op.accumulator is not None:
        waits.append((op.accumulator, op.latency - op.accumulator_gain))
    if op.load is not None:
        waits += [(register, op.load_latency + op.latency) for register in op.load.registers]
    return waits
