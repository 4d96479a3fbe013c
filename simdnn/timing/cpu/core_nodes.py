"""When a value is ready: nodes that wait for each other, and heaps of what is ready by its cycle.

Once all its operands are under way a node knows the cycle in which it becomes ready; its uops then wait at the port to
which they were bound on entering the scheduler (not on issue: measured on Zen 4, known of Intel).

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

import math

from simdnn.timing.cpu.core_state import COMMIT, LOAD, NODES, NOWHERE, UNKNOWN, CoreState
from simdnn.timing.cpu.schedulers import NO_PORT
from simdnn.timing.translate import Floats, Ints

LOW = 1 << 32  # what is behind a cycle in an entry of a heap
PORTS = 64  # that an entry tells apart: more than a core has


class CoreNodes(CoreState):
    """Values in the making. A node that ends tells those that wait for it."""

    # Nodes.
    waits: Ints  # operands not yet under way
    ready: Floats
    done: Floats  # the cycle of the result, UNKNOWN until it issues
    first_issue: Floats
    longer: Floats  # cycles beyond its row's latency, for where its operands come from
    unissued: Ints
    first_user: Ints  # a list of edges
    first_bound: Ints  # a list of ports of uops that wait for an operand to be under way
    next_work: Ints
    unit: Ints  # the port of a wide operation to which results of other ports come later
    sent_to: Ints  # the port of an operation whose operands or whose result may have to cross to another kind of unit
    source: Ints  # of a store: who yields what it stores
    edges: int
    edge_next: Ints
    edge_user: Ints
    edge_gain: Floats
    bounds: int
    bound_next: Ints
    bound_port: Ints
    # Heaps: ready uops of each port by age, those of `future`, `load_future` and `load_waiting`, and of each unit that
    # forms addresses.
    heap_size: int
    heap: Ints
    heaped: Ints

    def push(self, number: int, entry: int) -> None:
        """Into a heap, the least entry first."""
        base, at = number * self.heap_size, self.heaped[number]
        self.heaped[number] += 1
        while at > 0 and self.heap[base + (at - 1) // 2] > entry:
            self.heap[base + at] = self.heap[base + (at - 1) // 2]
            at = (at - 1) // 2
        self.heap[base + at] = entry

    def pop(self, number: int) -> int:
        """The least entry, taken out."""
        base = number * self.heap_size
        found = self.heap[base]
        self.heaped[number] -= 1
        count = self.heaped[number]
        entry = self.heap[base + count]
        at = 0
        while 2 * at + 1 < count:
            child = 2 * at + 1
            if child + 1 < count and self.heap[base + child + 1] < self.heap[base + child]:
                child += 1
            if self.heap[base + child] >= entry:
                break
            self.heap[base + at] = self.heap[base + child]
            at = child
        self.heap[base + at] = entry
        return found

    def start_node(self, node: int) -> None:
        """A node of the op that is dispatched in this cycle."""
        self.waits[node] = 0
        self.ready[node] = self.cycle + 1.0
        self.done[node] = UNKNOWN
        self.first_issue[node] = UNKNOWN
        self.longer[node] = 0.0
        self.first_user[node] = NOWHERE
        self.first_bound[node] = NOWHERE
        self.unit[node] = NO_PORT

    def finish(self, node: int, done: float) -> None:
        """The time of a result is known: tell those who wait for it, and those without uops behind them."""
        self.done[node] = done
        self.next_work[node] = NOWHERE
        work = node
        while work != NOWHERE:
            node = work
            work = self.next_work[node]
            edge = self.first_user[node]
            self.first_user[node] = NOWHERE
            while edge != NOWHERE:
                user = self.edge_user[edge]
                self.ready[user] = max(self.ready[user], self.done[node] - self.edge_gain[edge])
                edge = self.edge_next[edge]
                self.waits[user] -= 1
                if self.waits[user] > 0:
                    continue
                if user % NODES == LOAD:
                    self.await_load(user)
                elif user % NODES == COMMIT:
                    self.done[user] = self.ready[user]
                    self.next_work[user] = work
                    work = user
                elif self.uops[self.row(user)] > 0:
                    bound = self.first_bound[user]
                    while bound != NOWHERE:
                        self.await_port(self.bound_port[bound], user)
                        bound = self.bound_next[bound]
                else:
                    self.done[user] = self.ready[user] + self.latency[self.row(user)]
                    self.next_work[user] = work
                    work = user

    def await_load(self, node: int) -> None:
        self.push(self.ports + 1, math.ceil(self.ready[node]) * LOW + node)

    def await_port(self, port: int, node: int) -> None:
        """Let a uop wait at its port until it is ready."""
        if self.ready[node] <= self.cycle:
            self.push(port, node)
        else:
            self.await_cycle(math.ceil(self.ready[node]), port, node)

    def await_cycle(self, cycle: int, port: int, node: int) -> None:
        """Let a uop wait for the cycle in which it is ready."""
        self.push(self.ports, cycle * LOW + node * PORTS + port)

    def depend(self, node: int, producer: int, gain: float) -> None:
        """Let `node` wait for `producer`, though `gain` cycles less."""
        if self.done[producer] == UNKNOWN:
            self.waits[node] += 1
            self.edge_user[self.edges] = node
            self.edge_gain[self.edges] = gain
            self.edge_next[self.edges] = self.first_user[producer]
            self.first_user[producer] = self.edges
            self.edges += 1
        elif self.done[producer] - gain > self.ready[node]:
            self.ready[node] = self.done[producer] - gain
