"""The out-of-order core, cycle by cycle: dispatch, binding of uops to ports, issue in age order, retirement, commit.

The core is one class that grows by idea, each over the one before: `schedulers` (where uops wait), `banks` (two of them
behind a queue), `core_state` (the core, its stream, its windows), `core_nodes` (when a value is ready), `core_memory`
(loads and stores), `core_operands` (where operands come from), `dealing` (which ALUs a group's operations get),
`group_room` (what a group needs to be taken), and here the stages of a cycle. All are written in the part of Python
that `translate` compiles; `core_run` prepares the arrays and calls it.
"""

from __future__ import annotations

import math

from simdnn.timing.cpu.banks import BY_PLACE, MODE_SEEN
from simdnn.timing.cpu.core_nodes import LOW, PORTS
from simdnn.timing.cpu.core_state import COMMIT, NODES, NOWHERE, OPERATION, UNKNOWN
from simdnn.timing.cpu.dealing import AHEAD
from simdnn.timing.cpu.group_room import GroupRoom
from simdnn.timing.cpu.schedulers import NO_PLACE, NO_PORT
from simdnn.timing.cpu.steps import OWN_WAY, STORED, THIRD
from simdnn.timing.translate import Floats, Ints

FAR = 1 << 60  # a cycle that never comes
PAIRS = 2  # ops of a group that are dispatched as two: measured on cores of six slots, all that others have room for
STALLED = 500_000  # cycles without a retirement, more than any row that the schema allows can take


class CoreModel(GroupRoom):
    """One run over `turns` times `size` ops; `advance` executes one cycle."""

    sent: Ints  # where the uops of the op that is renamed have gone
    # The ends of a loop's turns, and the work on each port by then.
    ends: int
    end_at: Ints
    ahead_at: Ints  # ops dispatched by then
    busy_at: Floats

    def run(self, until: int) -> int:
        """Go on until `until` ops have retired: 1, or 0 where one of them never does."""
        while self.retired < until:
            if self.advance() == 0:
                return 0
        return 1

    def settle(self, warm: int, most: int, repeats: int, longest: int) -> int:
        """Go on until the time between the turns of a loop repeats: the period, 0 after `most` turns, -1 for no end."""
        self.ends = 0
        upcoming = self.size
        period = 0
        while self.ends < most and period == 0:
            if self.run(upcoming) == 0:
                return -1
            while upcoming <= self.retired:
                self.end_at[self.ends] = self.retired_at[upcoming - 1]
                self.ahead_at[self.ends] = self.ages - upcoming
                for port in range(self.ports):
                    self.busy_at[self.ends * self.ports + port] = self.busy[port]
                self.ends += 1
                upcoming += self.size
            period = self.period_of(warm, repeats, longest)
        return period

    def period_of(self, warm: int, repeats: int, longest: int) -> int:
        """The shortest period with which the ends of turns have advanced for `warm` turns, 0 where none shows."""
        for period in range(1, longest + 1):
            span = max(repeats * period, warm)
            if self.ends < warm + span:
                return 0
            same = 1
            if self.dealt_ports > 0 and self.ahead_at[self.ends - 1] != self.ahead_at[self.ends - 1 - period]:
                same = 0  # more and more wait at a port that is dealt out, until it is full
            for end in range(self.ends - (span - 1 - period), self.ends):
                gap = self.end_at[end] - self.end_at[end - 1]
                if gap != self.end_at[end - period] - self.end_at[end - period - 1]:
                    same = 0
                    break
            if same != 0:
                return period
        return 0

    def fill_store_queue(self, commit_cycles: float) -> None:
        """Start with a full store queue, as a long loop of stores has it (it drains where stores don't bind)."""
        while self.store_room > 0:
            self.commit_free += commit_cycles
            self.add_commit()
            self.store_room -= 1

    def advance(self) -> int:
        """One cycle, its stages from last to first; then on to the next in which anything can happen. 0: stalled."""
        self.acted = 0
        self.retire()
        self.issue()
        self.enter()
        self.dispatch()
        if self.acted != 0:
            self.acted_in = self.cycle
        self.cycle = self.cycle + 1 if self.acted != 0 else self.next_event()
        return 0 if self.cycle - self.last_retirement > self.stalled_after else 1

    def next_event(self) -> int:
        """The cycle that ends what all wait for: an operand, a port, a unit, the oldest result or a commit."""
        soonest = FAR
        future, load_future, load_waiting = self.ports, self.ports + 1, self.ports + 2
        if self.heaped[load_waiting] + self.at_units > 0 or self.is_seen_late() != 0:
            return self.cycle + 1
        if self.heaped[future] > 0:
            soonest = min(soonest, self.heap[future * self.heap_size] // LOW)
        if self.heaped[load_future] > 0:
            soonest = min(soonest, self.heap[load_future * self.heap_size] // LOW)
        for port in range(self.ports):
            if self.is_load_port[port] == 0 and self.heaped[port] > 0:
                node = self.heap[port * self.heap_size]
                free = float(self.free_at[port])
                if self.first_issue[node] == UNKNOWN:
                    free = max(free, self.next_of[self.mnemonic[self.row(node)]])
                soonest = min(soonest, math.ceil(free))
        if self.retired < self.ages and self.done[self.oldest()] != UNKNOWN:
            soonest = min(soonest, math.ceil(self.done[self.oldest()]) + self.retire_delay)
        if self.commits_first < self.commits_last:
            soonest = min(soonest, math.ceil(self.commit_at[self.commits_first]))
        return self.cycle + 1 if soonest == FAR else max(self.cycle + 1, soonest)

    def is_seen_late(self) -> int:
        """Whether uops wait in a queue that does not yet know how the banks behind it stand."""
        if self.halved == NOWHERE or self.cycle >= self.acted_in + MODE_SEEN:
            return 0
        return 1 if self.queue_first[self.halved] < self.queue_last[self.halved] else 0

    # -- the stages --------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Retire in order, up to the core's width; stores commit in order behind it and free their place when done."""
        now, slots = self.cycle, self.retire_slots
        while self.commits_first < self.commits_last and self.commit_at[self.commits_first] <= now:
            self.commits_first += 1
            self.store_room += 1
        while self.retired < self.ages and slots > 0:
            node = self.oldest()
            if self.done[node] == UNKNOWN or self.done[node] + self.retire_delay > now:
                break
            row = self.row(node)
            self.acted = 1
            left = self.retire_left if self.retire_left > 0 else self.slots[row]
            if left > slots:
                self.retire_left = left - slots
                break
            self.retire_left = 0
            slots -= left
            self.rob_room += self.slots[row]
            self.mask_room += self.masks[row]
            self.vector_room += self.vectors[row]
            self.retired_at[self.retired] = now - self.retire_delay  # nothing but room waits for that
            self.last_retirement = now
            if self.load_tensor[row] != NOWHERE:
                self.load_room += 1
            if self.store_tensor[row] != NOWHERE:
                self.commit_free = max(self.commit_free, float(now)) + self.line_cycles[self.retired]
                for _ in range(self.store_entries[row]):
                    self.add_commit()
                if self.remembered[self.retired] != 0:
                    self.finish(NODES * self.retired + COMMIT, self.commit_free)
            self.retired += 1

    def issue(self) -> None:
        """Issue on every free port the oldest ready uop bound to it; then the loads."""
        future = self.ports
        if self.halved != NOWHERE:
            self.release()
        while self.heaped[future] > 0 and self.heap[future * self.heap_size] // LOW <= self.cycle:
            entry = self.pop(future) % LOW
            self.push(entry % PORTS, entry // PORTS)
        for port in range(self.ports):
            if self.is_load_port[port] == 0 and self.heaped[port] > 0 and self.free_at[port] <= self.cycle:
                passed = 0
                if self.is_dealt[port] != 0:
                    passed = self.let_pass(port)
                elif self.ways_are_shared != 0:
                    passed = self.pass_by(port)
                if passed >= 0 and self.heaped[port] > 0:
                    self.issue_on(port)
                for at in range(passed):
                    self.push(port, self.passed[at])
        if self.heaped[self.ports + 1] + self.heaped[self.ports + 2] + self.at_units > 0 or self.load_debt > 0:
            self.issue_loads()

    def issue_on(self, port: int) -> None:
        """Issue the oldest uop of a port, unless its mnemonic's own unit is still at work."""
        now = self.cycle
        node = self.heap[port * self.heap_size]
        row = self.row(node)
        if self.interval[row] > 0 and self.first_issue[node] == UNKNOWN:
            free = self.next_of[self.mnemonic[row]]
            if free > now or self.banked[port] != 0 and self.waits_elsewhere(port, node) != 0:
                return
            self.next_of[self.mnemonic[row]] = max(free, now - 1.0) + self.interval[row]
        self.acted = 1
        self.pop(port)
        occupancy = self.occupancy[row]
        self.free_at[port] = now + occupancy
        if self.way[row] == THIRD and self.has_fresh_addend(node) == 0:
            self.third_until[self.pool_of[port]] = max(self.third_until[self.pool_of[port]], now + occupancy)
        self.busy[port] += occupancy
        self.issued(port)
        if self.is_dealt[port] != 0:
            self.apart[port] -= self.comes_from_elsewhere(row)
        if self.banked[port] != 0 and occupancy > 1:
            self.hold(port)
        if self.first_issue[node] == UNKNOWN:
            self.first_issue[node] = float(now)
        self.unissued[node] -= 1
        if self.unissued[node] == 0:
            done = now + self.latency[row] + self.longer[node]
            if self.is_dealt[port] != 0 and self.uops[row] == 1:
                self.yielded(port, done, 1)
            if self.is_result_port[port] != 0 and self.shares_result[row] != 0 and self.uops[row] == 1:
                done = self.yielded(port, done, occupancy)
            if self.uops[row] > 1:  # latency counts from the first; the later ones fit in unless they were held up
                soonest = self.first_issue[node] + self.latency[row] + self.longer[node]
                done = max(soonest, done - (self.uops[row] - 1))
            self.finish(node, done if done > now or self.way[row] == STORED else now + 1.0)

    def pass_by(self, port: int) -> int:
        """Take out the first uops of a port that find the way of their bank taken: how many.

        Younger ones pass them, but none that reads a third operand (measured on a Zen 3).
        """
        passed = 0
        while self.heaped[port] > 0:
            third = self.way[self.row(self.heap[port * self.heap_size])] == THIRD
            if self.waits_for_way(port) == 0 and (passed == 0 or third == 0):
                break
            self.passed[passed] = self.pop(port)
            passed += 1
        return passed

    def waits_for_way(self, port: int) -> int:
        """Whether the first uop of a port finds the way taken by which third operands and what is stored are read.

        The oldest goes first. On a Zen 4 a store of one entry needs no way where a unit yields in this cycle what it
        stores; on a Zen 3 it does. Measured (docs/validation).
        """
        node, pool = self.heap[port * self.heap_size], self.pool_of[port]
        way = self.way[self.row(node)]
        if way == OWN_WAY or way == THIRD and self.has_fresh_addend(node) != 0:
            return 0
        if way == STORED:
            return 1 if self.third_until[pool] > self.cycle and self.is_fresh(node) == 0 else 0
        stores = self.store_port_of[pool]
        if stores == NO_PORT:
            return 0
        if self.free_at[stores] > self.cycle:
            return 1
        first = self.heap[stores * self.heap_size]
        if self.heaped[stores] == 0 or first > node or self.way[self.row(first)] != STORED:
            return 0
        return 1 - self.is_fresh(first)

    def has_fresh_addend(self, node: int) -> int:
        """Whether a unit yields in this cycle what an operation adds to, which comes by no way then (measured)."""
        source = self.source[node]
        if self.addend_is_free == 0 or source == NOWHERE:
            return 0
        return 1 if self.done[source] - self.gain[self.row(node)] == self.cycle else 0

    def is_fresh(self, store: int) -> int:
        """Whether a unit yields in this cycle what a store of one entry stores, and that spares the way."""
        source = self.source[store]
        if self.fresh_is_free == 0 or source == NOWHERE or self.store_entries[self.row(store)] > 1:
            return 0
        return 1 if self.done[source] == self.cycle else 0

    def yielded(self, port: int, done: float, count: int) -> float:
        """The first cycle from `done` on from which a port has `count` cycles in a row left for results; takes them.

        Measured on a Zen 4: behind a longer operation a shorter one takes its turn at the port, and its result the
        first cycle that has none; both halves of 512 bits together. So on port 5 of a Redwood Cove.
        """
        passed, cycle = self.cycle - self.results_from[port], math.ceil(done) - self.cycle
        taken = 0 if passed >= AHEAD else self.results[port] >> passed
        wanted = (1 << count) - 1
        while cycle + count < AHEAD and (taken >> cycle) & wanted != 0:
            cycle += 1
            done += 1.0
        if cycle + count < AHEAD:
            taken |= wanted << cycle
        self.results_from[port] = self.cycle
        self.results[port] = taken
        return done

    def waits_elsewhere(self, port: int, node: int) -> int:
        """Whether an older uop of the same mnemonic is first at another port, so that its unit takes that one now."""
        for other in range(self.ports):
            if other != port and self.heaped[other] > 0 and self.free_at[other] <= self.cycle:
                first = self.heap[other * self.heap_size]
                if first < node and self.mnemonic[self.row(first)] == self.mnemonic[self.row(node)]:
                    return 1
        return 0

    def enter(self) -> None:
        """Move uops in order from the queues into the schedulers, as far as there is room."""
        for index in range(self.schedulers):
            if index == self.halved:
                self.enter_banks(index)
                continue
            while self.queue_first[index] < self.queue_last[index]:
                at = index * self.ring + (self.queue_first[index] & self.ring - 1)
                port = self.port_for(self.queued_uop[at], max(0, self.queued_place[at]))
                if port == NO_PORT:
                    break
                self.leave(index, at, port)

    def enter_banks(self, index: int) -> None:
        """Move uops from the queue into the banks behind it.

        Those that came into an empty queue have their places in the group; others (measured on a Zen 4: moves, loads
        and stores of general registers between them change nothing) those in which they leave the queue.
        """
        count = min(self.may_leave(), self.queue_last[index] - self.queue_first[index])
        bank, moved = self.first_of(count), 0
        while moved < count:
            at = index * self.ring + (self.queue_first[index] & self.ring - 1)
            if self.mode == BY_PLACE:
                bank = (moved if self.queued_place[at] == NO_PLACE else self.queued_place[at]) & 1
            port = self.port_in(bank, self.queued_uop[at])
            if self.room[self.pool_of[port]] == 0:
                break
            self.leave(index, at, port)
            bank ^= 1
            moved += 1
        self.have_left(moved)

    def leave(self, index: int, at: int, port: int) -> None:
        """Let the first uop of a queue, at a place of it, wait at a port."""
        self.queue_first[index] += 1
        self.room[index] += 1
        self.bind(port, self.queued_uop[at])
        self.acted = 1
        self.entered(self.queued_node[at], port)

    def entered(self, node: int, port: int) -> None:
        """Let a uop wait at its port, for its operands if it must, and in any case for the next cycle."""
        if self.waits[node] > 0:
            self.bound_port[self.bounds] = port
            self.bound_next[self.bounds] = self.first_bound[node]
            self.first_bound[node] = self.bounds
            self.bounds += 1
        else:
            self.await_cycle(max(math.ceil(self.ready[node]), self.cycle + 1), port, node)

    def dispatch(self) -> None:
        """Rename and send on one group of ops, in order, as far as there is room."""
        width = self.dispatch_slots
        slots, before, pairs = width, 0, 0  # before: ops in the group, those of several slots as several
        if (
            self.has_room_for_group() == 0
            or self.has_registers_for_group() == 0
            or self.has_store_queue_for_group() == 0
        ):
            return
        self.begin_group()
        if self.dealt_ports > 0 and self.deal() == 0:
            return
        while self.ages < self.total and slots > 0:
            row = self.row_of[self.ages % self.size]
            left = self.slots[row]
            if self.dealt_ports > 0 and self.ages >= self.dealt_until:
                return
            if self.partial > 0:
                left -= self.partial
            elif self.split[row] > 0 and (slots < 2 or before >= self.split[row] or pairs == PAIRS):
                return
            elif slots < self.least_left(row) or self.can_take(row) == 0:
                return
            self.acted = 1
            if left > slots:
                self.partial += slots
                return
            self.rename(row, width - slots + (1 if self.split[row] > 0 else 0))
            self.partial = 0
            slots -= left
            before += left
            if self.split[row] > 0:
                before -= 1
                pairs += 1
            self.until_end -= 1
            if self.until_end == 0:
                self.until_end = self.buffered
                return
            if self.microcode > 0 and self.slots[row] >= self.microcode:
                return

    def rename(self, row: int, place: int) -> None:
        """Make the nodes of an op, tie them to their producers, send its uops on, and name its results."""
        node = NODES * self.ages + OPERATION
        self.row_at[self.ages] = row
        read = NOWHERE
        if self.load_tensor[row] != NOWHERE:
            read = self.start_load(row)
        elif self.store_tensor[row] != NOWHERE and self.units > 0:
            read = self.start_address(row)
        value = node
        if self.only_loads[row] != 0:
            value = read
        else:
            self.start_node(node)
            self.operate(row, node, read, place)
            if self.merges_late(row) != 0:
                value = self.merged(row, node)
        if self.is_move[row] != 0:
            value = self.value_of[self.moves[row]]
        for at in range(self.first_write[row], self.first_write[row] + self.writes[row]):
            self.value_of[self.registers[at]] = value
        if self.store_tensor[row] != NOWHERE:
            self.store_room -= self.store_entries[row]
            self.remember(row)
        self.dispatched_at[self.ages] = self.cycle
        self.rob_room -= self.slots[row]
        self.mask_room -= self.masks[row]
        self.vector_room -= self.vectors[row]
        self.ages += 1

    def operate(self, row: int, node: int, read: int, place: int) -> None:
        """Send the uops of an operation to the schedulers, and tie it to its operands."""
        first, last = self.first_uop[row], self.first_uop[row] + self.uops[row]
        ahead = place + max(0, self.slots[row] - self.uops[row])
        final = min(place + self.slots[row], self.dispatch_slots) - 1
        for uop in range(first, last):
            lane = min(ahead + uop - first, final) if self.by_lanes != 0 else place
            self.sent[uop - first] = self.send(node, uop, lane)
            if self.sent[uop - first] != NO_PORT and self.comes_from_elsewhere(row) != 0:
                self.apart[self.sent[uop - first]] += self.is_dealt[self.sent[uop - first]]
        if self.from_other_unit[row] > 0:
            self.unit[node] = self.sent[0]
        if self.yields[row] + self.hindered[row] > 0:
            self.sent_to[node] = self.sent[0]
            if self.uops[row] > 0 and self.sent[0] == NO_PORT:  # it queues: any of its ports
                self.sent_to[node] = self.port_lists[self.uop_first[first]]
        gap = self.on_other_unit[row]
        if gap != 0:
            is_first = self.sent[0] == self.port_lists[self.uop_first[first]]
            self.longer[node] = max(0.0, -gap if is_first else gap)
        self.await_operands(row, node, read)
        if self.way[row] == STORED:
            self.source[node] = self.value_of[self.registers[self.first_read[row]]]
        elif self.way[row] == THIRD:
            self.source[node] = NOWHERE
            if self.accumulator[row] != NOWHERE:
                self.source[node] = self.value_of[self.accumulator[row]]
        self.unissued[node] = self.uops[row]
        for uop in range(first, last):
            if self.sent[uop - first] != NO_PORT:
                self.entered(node, self.sent[uop - first])
        if self.uops[row] == 0 and self.waits[node] == 0:
            self.done[node] = self.ready[node] + self.latency[row]
