"""Loads and stores in a core: what a load waits for, the pipes that it takes, and commits of stores in their order.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

import math

from simdnn.timing.cpu.core_meetings import (
    AT_LINE,
    AT_PLACE,
    AT_SOURCE,
    CROSSES,
    LINES,
    LOADS,
    NO_LINE,
    PLACES,
    SAME_AND_OTHER,
    SAME_LINE,
    TWO_LINES,
    WHOLE,
    CoreMeetings,
)
from simdnn.timing.cpu.core_nodes import LOW
from simdnn.timing.cpu.core_state import COMMIT, LOAD, NODES, NOWHERE, OPERATION, UNKNOWN, UNPLACED
from simdnn.timing.translate import Floats, Ints

BANK = 4  # bytes of a line that two loads read in a cycle, all of them or some (measured on a Redwood Cove)
HALVES = 7  # loads at most that have read from the first of their two lines (measured on a Redwood Cove)


class CoreMemory(CoreMeetings):
    """Loads and stores in flight."""

    # By node, of a load: where in its line it begins as far as that is known, its pipes, cycles beyond its latency.
    place: Ints
    pipes_of: Floats
    late: Floats
    load_debt: float  # pipes still to take: by a load of more lines than there are pipes, or in vain
    halves: int  # loads that have read from their first line, and not yet from their second
    places: Ints  # of the loads of this cycle: where in their lines they begin, and end
    place_ends: Ints
    # Units that form addresses: the one that the next address is bound to, how many wait, what each does in this cycle.
    next_unit: int
    at_units: int
    unit_of: Ints  # by node
    parts: Ints  # by node: of its address, not yet formed; of a store each at a unit of its own
    unit_does: Ints
    # Stores, and their commits in order.
    line_cycles: Floats  # by age: what its commit takes behind the store before it
    remembered: Ints  # by age: whether later loads may read what it stores
    commit_free: float
    commits_first: int
    commits_last: int
    commit_at: Floats

    def start_load(self, row: int) -> int:
        """Begin the load part of an op: the node of what it reads, itself or a store in flight whose data cost nothing.

        One that reads bytes of a store in flight else waits for its data, or for the commit of a part of them.
        """
        self.load_room -= 1
        load = NODES * self.ages + LOAD
        read = load
        self.start_node(load)
        self.place[load] = UNPLACED
        self.pipes_of[load] = self.load_pipes[row]
        self.late[load] = 0.0
        for at in range(self.first_pointer[row], self.first_pointer[row] + self.pointers[row]):
            if self.value_of[self.registers[at]] != NOWHERE:
                self.depend(load, self.value_of[self.registers[at]], 0.0)
        self.bind_load(load)
        met = self.meets[self.ages]
        if met & LOADS != 0:
            if self.places_matter != 0:
                self.place[load] = met >> AT_PLACE & PLACES
            if met & CROSSES != 0:
                if self.units > 0 and self.load_pipes[row] == 0:
                    self.parts[load] = 2
                if self.replay == 0 or self.load_share[row] > 1:
                    self.pipes_of[load] = max(self.load_pipes[row], self.crossing_pipes[row])
                self.late[load] = self.crossing_latency[row]
            if met >> AT_SOURCE != 0:
                read = self.forwarded(row, load, (met >> AT_SOURCE) - 1, met & WHOLE)
        if self.waits[load] == 0:
            self.await_load(load)
        return read

    def forwarded(self, row: int, load: int, source: int, whole: int) -> int:
        """Where a load of what the op of an age stored reads: itself, behind that store, or its data.

        Where loads come again it is sent in vain before the data are there (measured on a Redwood Cove).
        """
        data = NODES * source + OPERATION
        commit = NODES * source + COMMIT
        forward = max(self.forward_latency[row], self.forward_latency[self.row(data)])
        if whole != 0 and forward == 0 and self.done[commit] == UNKNOWN:
            return data  # a name of the same register from rename on
        if whole != 0:
            self.depend(load, data, self.load_latency[row] - forward)
            if self.replay > 0 and (self.done[data] == UNKNOWN or self.done[data] > self.cycle + 1):
                self.load_debt += max(self.pipes_of[load], self.load_share[row])
        else:
            self.depend(load, commit, self.load_latency[row] - self.blocked_latency[row])
        return load

    def issue_loads(self) -> None:
        """The oldest ready loads over the pipes; one that doesn't fit lets no younger one pass."""
        future, waiting, now = self.ports + 1, self.ports + 2, self.cycle
        while self.heaped[future] > 0 and self.heap[future * self.heap_size] // LOW <= now:
            self.wait_for_pipe(self.pop(future) % LOW)
        used = min(self.load_debt, float(self.pipes))
        share = used
        if used > 0:
            self.acted = 1
        self.occupy_loads(0.0, used)
        self.load_debt -= used
        if self.units > 0:
            self.issue_at_units(used)
        if self.replay > 0:
            self.issue_in_turn(used)
            return
        count = 0
        while self.heaped[waiting] > 0 and used < self.pipes:
            node = self.heap[waiting * self.heap_size]
            need = self.pipes_of[node]
            if used + need > self.pipes and need <= self.pipes:
                break
            row = self.row(node)
            if need <= self.pipes:
                share += self.load_share[row]
            if share > self.pipes or self.finds_taken(node, count) != 0:
                break
            count += 1
            self.pop(waiting)
            self.acted = 1
            used += self.issue_load(node, need, used)

    def issue_in_turn(self, used: float) -> None:
        """The first load of each pipe, the oldest of them first.

        A load is sent to its pipe before it is known which bytes of their lines the others read. If too many read one
        of its own, it has used its pipe in vain and comes again `replay` cycles later. One that crosses from a line to
        the next comes twice in any case, for the bytes of either.
        """
        share, count = used, 0
        for pipe in range(self.pipes):
            self.unit_does[pipe] = 0
        while used < self.pipes:
            pipe = self.oldest_at_pipes()
            if pipe == NOWHERE:
                return
            node = self.first_at_pipe(pipe)
            need, row = self.pipes_of[node], self.row(node)
            if need <= self.pipes:
                share += self.load_share[row]
            if share > self.pipes or used + need > self.pipes and need <= self.pipes:
                return
            self.unit_does[pipe] = 1
            halves = self.late[node] > 0 and need <= self.pipes
            if halves and self.halves >= HALVES:
                continue
            self.pop(self.ports + 3 + pipe)
            self.at_units -= 1
            self.acted = 1
            if self.finds_taken(node, count) != 0:
                self.push(self.ports + 1, (self.cycle + self.replay) * LOW + node)
                self.occupy_loads(used, min(need, self.pipes - used))
                used += need
                continue
            count += 1
            if halves:
                self.occupy_loads(used, need)
                used += need
                self.push(self.ports + 1, (self.cycle + math.ceil(self.late[node])) * LOW + node)
                self.place[node] -= self.line_bytes
                self.late[node] = 0.0
                self.halves += 1
            else:
                if self.place[node] < 0 and self.place[node] != UNPLACED:
                    self.halves -= 1
                used += self.issue_load(node, need, used)

    def first_at_pipe(self, pipe: int) -> int:
        """Measured on a Redwood Cove: the oldest dispatch group goes first, and of a group its last load."""
        return LOW - 1 - self.heap[(self.ports + 3 + pipe) * self.heap_size] % LOW

    def oldest_at_pipes(self) -> int:
        """The pipe whose first load is the oldest, of those that have sent none in this cycle."""
        found = NOWHERE
        for pipe in range(self.pipes):
            if self.unit_does[pipe] == 0 and self.heaped[self.ports + 3 + pipe] > 0:
                if found == NOWHERE or self.first_at_pipe(pipe) < self.first_at_pipe(found):
                    found = pipe
        return found

    def issue_load(self, node: int, need: float, used: float) -> float:
        """Let a load take pipes behind those `used`: how many in this cycle. A tile's lines take the next ones, too."""
        row, here = self.row(node), min(need, self.pipes - used)
        self.occupy_loads(used, here)
        self.load_debt = need - here
        later = math.ceil(self.load_debt / self.pipes)
        self.first_issue[node] = float(self.cycle)
        self.finish(node, self.cycle + later + self.load_latency[row] + self.late[node])
        return here

    def bind_load(self, load: int) -> None:
        """Bind a load to the next pipe, or its address to the next unit; one of two pipes takes two units."""
        if self.replay > 0:
            self.unit_of[load] = self.next_unit
            self.next_unit = (self.next_unit + 1) % self.pipes
        elif self.units > 0:
            self.parts[load] = 1
            self.unit_of[load] = self.next_unit
            self.next_unit = (self.next_unit + (2 if self.pipes_of[load] > 1 else 1)) % self.units

    def bind_store(self, node: int, parts: int) -> None:
        """Bind the address of a store to the next unit, as a load's; two parts to two in a row where fewest wait.

        Measured on a Zen 3 and a Zen 4 (docs/validation); of units where as few wait the next ones are taken.
        """
        if self.units == 0:
            return
        first = self.next_unit
        if parts > 1:
            fewest = self.waiting_at(first, parts)
            for behind in range(1, self.units):
                unit = (self.next_unit + behind) % self.units
                waiting = self.waiting_at(unit, parts)
                if waiting < fewest:
                    first = unit
                    fewest = waiting
        self.parts[node] = parts
        self.unit_of[node] = first
        self.next_unit = (self.next_unit + parts) % self.units

    def waiting_at(self, first: int, count: int) -> int:
        """How many accesses wait at units in a row."""
        found = 0
        for unit in range(first, first + count):
            found += self.heaped[self.ports + 3 + unit % self.units]
        return found

    def start_address(self, row: int) -> int:
        """Begin to form the address of a store, which has the place of a load: nothing else is loaded."""
        node = NODES * self.ages + LOAD
        self.start_node(node)
        self.pipes_of[node] = 0.0
        self.bind_store(node, self.store_addresses[row])
        self.await_load(node)
        return node

    def wait_for_pipe(self, node: int) -> None:
        """Let an access that is ready wait for a pipe, or for the units that it is bound to."""
        if self.replay > 0:
            self.at_units += 1
            behind = LOW - 1 - node
            self.push(self.ports + 3 + self.unit_of[node], self.dispatched_at[node // NODES] * LOW + behind)
            return
        if self.units == 0:
            self.push(self.ports + 2, node)
            return
        units = 1 if self.load_tensor[self.row(node)] != NOWHERE else self.parts[node]
        for part in range(units):
            self.push(self.ports + 3 + (self.unit_of[node] + part) % self.units, node)
            self.at_units += 1

    def issue_at_units(self, used: float) -> None:
        """Each unit forms the address of the oldest access that waits there, if that is a store's or a pipe is left.

        A load of two pipes takes the unit behind its own, too; one of a general register takes no pipe, across lines
        its unit twice. Measured on a Zen 4, and across lines on a Zen 3 (docs/validation).
        """
        for unit in range(self.units):
            self.unit_does[unit] = 0
        for _ in range(self.units):
            unit = self.oldest_at_units()
            if unit == NOWHERE:
                return
            self.unit_does[unit] = 1
            node = self.heap[(self.ports + 3 + unit) * self.heap_size]
            need = self.pipes_of[node]
            beside = (unit + 1) % self.units
            if used + min(need, float(self.pipes)) > self.pipes or need > 1 and self.unit_does[beside] == 2:
                continue
            self.unit_does[unit] = 2
            self.acted = 1
            self.parts[node] -= 1
            loads = self.load_tensor[self.row(node)] != NOWHERE
            if loads and self.parts[node] > 0:
                continue
            if need > 1:
                self.unit_does[beside] = 2
            self.pop(self.ports + 3 + unit)
            self.at_units -= 1
            if loads:
                used += self.issue_load(node, need, used)
            elif self.parts[node] == 0:
                self.finish(node, float(self.cycle))

    def oldest_at_units(self) -> int:
        """The unit whose oldest access is the oldest of all, of those that have not been looked at in this cycle."""
        found = NOWHERE
        for unit in range(self.units):
            heap = self.ports + 3 + unit
            if self.unit_does[unit] == 0 and self.heaped[heap] > 0:
                first = self.heap[heap * self.heap_size]
                if found == NOWHERE or first < self.heap[(self.ports + 3 + found) * self.heap_size]:
                    found = unit
        return found

    def finds_taken(self, node: int, count: int) -> int:
        """Whether too many of this cycle's loads read from a bank of their lines that a load reads; notes its own."""
        first, past = self.place[node] & -BANK, self.place[node] + self.load_bytes[self.row(node)] + BANK - 1 & -BANK
        self.places[count] = first
        self.place_ends[count] = past
        return self.taken(first, past, count)

    def taken(self, first: int, last: int, count: int) -> int:
        """Whether as many of this cycle's loads as may do read a bank of their lines that a load of these bytes reads.

        The most read bytes of a range begin where it or one of the others does.
        """
        if first == UNPLACED or count < self.of_a_place or self.readers(first, count) >= self.of_a_place:
            return 1 if first != UNPLACED and count >= self.of_a_place else 0
        for index in range(count):
            byte = self.places[index]
            if first < byte < last and self.readers(byte, count) >= self.of_a_place:
                return 1
        return 0

    def readers(self, byte: int, count: int) -> int:
        """How many of this cycle's loads read the bank of their lines that begins at a byte."""
        found = 0
        for index in range(count):
            if self.places[index] <= byte < self.place_ends[index]:
                found += 1
        return found

    def occupy_loads(self, used: float, more: float) -> None:
        """Note work on the load pipes behind those `used` in this cycle."""
        while more > 0:
            share = min(more, 1 - (used - math.floor(used)))
            self.busy[self.load_port[int(used)]] += share
            used += share
            more -= share

    def remember(self, row: int) -> None:
        """Note what the commit of a store takes, and that later loads may wait for it."""
        age, line = self.ages, self.meets[self.ages] >> AT_LINE & LINES
        self.line_cycles[age] = self.commit_cycles[row]
        self.remembered[age] = 0
        if line == NO_LINE:
            return
        self.line_cycles[age] = self.other_line_cycles[row]
        if line == TWO_LINES:
            self.line_cycles[age] = self.crossing_cycles[row]
        elif line == SAME_AND_OTHER:
            self.line_cycles[age] = self.crossing_cycles[row] - self.other_line_cycles[row]
        elif line == SAME_LINE:  # both commit in the time of one
            self.line_cycles[age] = 2 * self.commit_cycles[row] - self.other_line_cycles[row]
        self.start_node(NODES * age + COMMIT)
        self.remembered[age] = 1

    def add_commit(self) -> None:
        self.commit_at[self.commits_last] = self.commit_free
        self.commits_last += 1
