"""The slowest chain of a loop, held against walks followed one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isa_models.machines.loader import cpu_machine as machine
from simdnn.timing.cpu.chains import slowest_chain, slowest_cycle
from simdnn.timing.cpu.steps import Step, lower
from tests.effort import examples

Graph = dict[str, dict[str, float]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes = "abcdefg"[: draw(st.integers(1, 7))]
    times = st.sampled_from((0.0, 1.0, 3.0, 4.0, 4.5, 10.0))
    return {node: draw(st.dictionaries(st.sampled_from(nodes), times, max_size=4)) for node in nodes}


def followed(graph: Graph) -> tuple[float, tuple[str, int] | None]:
    """The largest mean of the walks from each node back to it, and the first of them, by node and then by length."""
    best, found = 0.0, None
    for start in graph:
        ends = {start: 0.0}
        for turns in range(1, len(graph) + 1):
            onward: dict[str, float] = {}
            for node, sum_ in ends.items():
                for to, more in graph[node].items():
                    onward[to] = max(onward.get(to, 0.0), sum_ + more)
            ends = onward
            if ends.get(start, 0.0) / turns > best + 1e-9:
                best, found = ends[start] / turns, (start, turns)
    return best, found


@examples(300)
@given(graphs())
def test_slowest_cycle(graph: Graph) -> None:
    assert slowest_cycle(graph) == followed(graph)[1]


def test_a_chain_goes_through_several_iterations() -> None:
    """x feeds y through two operations and a move that costs nothing, and y feeds x in the next iteration."""
    body = [
        Step("vaddps", "xmm,xmm,xmm", ("x", "c"), ("t",)),
        Step("vmulps", "xmm,xmm,xmm", ("t", "c"), ("t",)),
        Step("vpaddd", "xmm,xmm,xmm", ("y", "c"), ("x",)),
        Step("vmovaps", "xmm,xmm", ("t",), ("y",)),
    ]
    ops = lower(machine("zen4"), body)
    add, multiply, whole, move = (op.latency for op in ops)
    assert move == 0
    assert slowest_chain(ops) == ((add + multiply + whole) / 2, (0, 1, 3, 2))


def test_a_long_body_with_many_registers() -> None:
    """Each of 48 registers feeds others: to follow all walks would take 48 x 48 times the body."""
    body = [
        Step("vpaddd", "zmm,zmm,zmm", (f"r{i * 7 % 48}", f"r{i * 11 % 48}"), (f"r{i * 5 % 48}",)) for i in range(3000)
    ]
    cycles, path = slowest_chain(lower(machine("zen4"), body))
    assert cycles >= len(path) / 48 > 0
