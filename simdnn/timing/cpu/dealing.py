"""How the operations of a dispatch group get their ALUs, as read on a Zen 3 (docs/validation/zen3.md).

Each ALU has entries of its own, and takes one operation of a group. Those that run on one ALU alone go first, two of
them at most. The others take the ALUs where fewest waited two cycles before: of these the first in the program has the
first. Those that run on two ALUs alone, as jumps do, have one for themselves where enough are left, and stand beside
another operation where not (`beside`). A group ends before an operation for which no ALU is left; one of those two
whose entries are taken counts as none, and for entries of another ALU the group waits as a whole.
Uops of transfers from vectors come to theirs without a turn, and no choice counts them.

An ALU yields one result a cycle. Where that of the oldest would come together with a longer one's that is under way,
younger ones go first, three times at most; then the ALU rests until the oldest can go.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.cpu.core_operands import CoreOperands
from simdnn.timing.cpu.schedulers import NO_PORT
from simdnn.timing.translate import Ints

WAITED_SEEN = 2  # cycles until the choice knows what waits at a port
CYCLES = 4  # that are remembered: more than that, a power of two
PASSES = 3  # younger operations that pass one whose result would come together with another's
AHEAD = 62  # cycles in which the results of a port are noted, no more than an integer has bits
TOGETHER = 2  # operations of a group that one port takes if they run on no other


class Dealing(CoreOperands):
    """The ports that are dealt out to a group as a whole."""

    is_beside: Ints  # by port: whether it takes one more operation, of those that run on such ports alone
    waited_before: Ints  # by port in each of the last cycles: what waited when its group came
    apart: Ints  # by port: uops of transfers that wait there
    noted_until: int  # the cycle behind the last one noted
    alone: Ints  # by port: operations of the group that run on it alone
    further: Ints  # by port: those that it takes beside
    passed_last: Ints  # by port: one more than the operation that was passed last
    passes: Ints  # by port: how often it was passed
    dealt_until: int  # the age of the first op that the group has no port for

    def deal(self) -> int:
        """Choose the ports of the group that comes next: 1, or 0 where it waits for room."""
        for cycle in range(max(self.noted_until, self.cycle - WAITED_SEEN), self.cycle + 1):
            for port in range(self.ports):
                self.waited_before[(cycle & CYCLES - 1) * self.ports + port] = self.pending[port] - self.apart[port]
        self.noted_until = self.cycle + 1
        free = self.plan(self.total)
        if self.dealt_until < self.total:  # anew, without what did not fit
            free = self.plan(self.dealt_until)
        if self.dealt_until == self.retired:  # no group has it, though nothing waits: it goes alone, and queues
            self.dealt_until += 1
        own = 1 if self.open() - self.taken_beside() >= free else 0
        for _ in range(free):
            self.choose(own)
        for port in range(self.ports):
            wanted = self.alone[port] + self.chosen[port]
            if min(wanted, self.size_of[self.scheduler_of[port]]) > self.room[self.pool_of[port]]:
                return 0
        return 1 if self.dealt_until > self.ages else 0

    def taken_beside(self) -> int:
        """How many of the open ports have one of the operations that run on such ports alone."""
        found = 0
        for port in range(self.ports):
            if self.further[port] > 0:
                found += self.is_open(port)
        return found

    def plan(self, until: int) -> int:
        """Fill a group with the next ops, those before age `until`: how many of its operations any port takes."""
        for port in range(self.ports):
            self.alone[port] = 0
            self.further[port] = 0
            self.kept[port] = 0
            self.chosen[port] = 0
        slots, free = self.dispatch_slots + self.partial, 0
        self.dealt_until = self.ages
        while self.dealt_until < until:
            row = self.row_of[self.dealt_until % self.size]
            slots -= self.slots[row]
            more = -1 if slots < 0 and self.dealt_until > self.ages else self.add(row, free)
            if more < 0:
                break
            free += more
            self.dealt_until += 1
        return free

    def add(self, row: int, free: int) -> int:
        """Add an op to a group with `free` operations that any port takes: how many more it has; -1: it has to wait."""
        more = 0
        first, last = self.first_uop[row], self.first_uop[row] + self.uops[row]
        for uop in range(first, last):
            port = self.port_lists[self.uop_first[uop]]
            if self.is_dealt[port] == 0:
                continue
            if self.uop_ports[uop] == self.dealt_ports:
                more += 1
            elif self.comes_from_elsewhere(row) != 0:
                self.kept[port] += 1
            elif self.uops[row] > 1 or self.of_those_beside(uop) != 0:
                port = self.port_beside(uop, free + more)
                if port == NO_PORT:
                    return -1
                self.further[port] += 1
                self.kept[port] += 1
            else:
                port = self.port_alone(uop)
                if port == NO_PORT:
                    return -1
                self.alone[port] += 1
                self.kept[port] += 1
                most = min(TOGETHER, self.size_of[self.scheduler_of[port]])
                if self.alone[port] > most and self.dealt_until > self.ages:
                    return -1
        return more if self.dealt_until == self.ages or free + more <= self.open() else -1

    def comes_from_elsewhere(self, row: int) -> int:
        """Whether an op has one uop on an ALU beside others elsewhere: a transfer, which no choice knows of."""
        found = 0
        for uop in range(self.first_uop[row], self.first_uop[row] + self.uops[row]):
            found += self.is_dealt[self.port_lists[self.uop_first[uop]]]
        return 1 if found == 1 and self.uops[row] > 1 else 0

    def open(self) -> int:
        """The ports that are open to an operation that any of them takes."""
        found = 0
        for port in range(self.ports):
            found += self.is_open(port)
        return found

    def is_open(self, port: int) -> int:
        """Whether a port is left for one of them; of those that take one beside, where it has room as well."""
        if self.is_dealt[port] == 0 or self.alone[port] > 0:
            return 0
        return 1 if self.is_beside[port] == 0 or self.room[self.pool_of[port]] > self.further[port] else 0

    def of_those_beside(self, uop: int) -> int:
        """Whether all ports of a uop take one beside."""
        for at in range(self.uop_first[uop], self.uop_first[uop] + self.uop_ports[uop]):
            if self.is_beside[self.port_lists[at]] == 0:
                return 0
        return 1

    def port_beside(self, uop: int, free: int) -> int:
        """The port of a uop's with fewest waiting, where as many stay open as the group's others need."""
        found, least = NO_PORT, 0
        for at in range(self.uop_first[uop], self.uop_first[uop] + self.uop_ports[uop]):
            port = self.port_lists[at]
            if self.room[self.pool_of[port]] > self.further[port]:
                waiting = self.pending[port] + self.further[port]
                self.further[port] += 1
                if free <= self.open() and (found == NO_PORT or waiting < least):
                    found, least = port, waiting
                self.further[port] -= 1
        return found

    def port_alone(self, uop: int) -> int:
        """The first port of a uop's that no other one of the group has for itself; two may share one if they must."""
        first = self.uop_first[uop]
        for at in range(first, first + self.uop_ports[uop]):
            if self.alone[self.port_lists[at]] == 0:
                return self.port_lists[at]
        return self.port_lists[first] if self.uop_ports[uop] == 1 else NO_PORT

    def choose(self, own: int) -> None:
        """Choose one more of the open ports, where fewest waited. `own`: not one that takes an operation beside."""
        found, least = NO_PORT, 0
        before = (self.cycle - WAITED_SEEN & CYCLES - 1) * self.ports
        for port in range(self.ports):
            left_out = own != 0 and self.further[port] > 0
            if self.is_open(port) != 0 and self.chosen[port] == 0 and not left_out:
                waited = self.waited_before[before + port]
                if found == NO_PORT or waited < least:
                    found, least = port, waited
        if found != NO_PORT:
            self.chosen[found] = 1

    def meets_result(self, port: int, node: int) -> int:
        """Whether the result of an operation would come from its port together with one that is under way."""
        row = self.row(node)
        ahead = self.cycle - self.results_from[port] + int(self.latency[row])
        return 0 if self.uops[row] > 1 or ahead >= AHEAD else self.results[port] >> ahead & 1

    def let_pass(self, port: int) -> int:
        """Put those aside whose results would come together with others: how many, -1 where the port rests."""
        passed = 0
        while self.heaped[port] > 0 and self.meets_result(port, self.heap[port * self.heap_size]) != 0:
            node = self.heap[port * self.heap_size]
            if passed == 0:
                self.passes[port] = self.passes[port] + 1 if self.passed_last[port] == node + 1 else 1
                self.passed_last[port] = node + 1
                if self.passes[port] > PASSES:
                    return -1
            self.passed[passed] = self.pop(port)
            passed += 1
        return passed
