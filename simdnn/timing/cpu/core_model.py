"""The out-of-order core, cycle by cycle: dispatch, binding of uops to ports, issue in age order, retirement, commit.

A node is a value in the making: the operation of an op, its load, or the commit of its store (`NODES` numbers for each
op, in this order, from the op's age on). Once all its operands are under way a node knows the cycle in which it becomes
ready; its uops then wait at the port to which they were bound on entering the scheduler (not on issue: measured on
Zen 4, known of Intel).

The class is written in the part of Python that `translate` compiles; `core_run` prepares its arrays and calls it.
"""

from __future__ import annotations

import math

from simdnn.timing.cpu.schedulers import NO_PORT, Schedulers
from simdnn.timing.cpu.translate import Floats, Ints

UNKNOWN = -1.0
NOWHERE = -1  # no node, register, edge or place
UNPLACED = -(1 << 62)  # an address that is the same as no other
NODES = 3
OPERATION, LOAD, COMMIT = 0, 1, 2  # of an op's nodes
LOW = 1 << 32  # what is behind a cycle in an entry of a heap
FAR = 1 << 60  # a cycle that never comes
STALLED = 500_000  # cycles without a retirement, more than any row that the schema allows can take


class CoreModel(Schedulers):
    """One run over `turns` times `size` ops; `advance` executes one cycle.

    Rows are the different ops, everything by number: registers, tensors, mnemonics. Lists of a row
    (uops, registers read) are a first place and a count in an array for all rows.
    """

    # The core.
    retire_slots: int
    line_bytes: int
    pipes: int  # load ports
    of_a_place: int  # loads a cycle that begin at one place of their lines
    load_port: Ints  # by pipe
    is_load_port: Ints  # by port
    store_queue: int
    stalled_after: int
    # The stream, and the rows of its ops.
    size: int
    total: int  # ops in all turns
    buffered: int  # ops that the loop buffer holds, 0 where the stream doesn't come from there
    row_of: Ints  # by place in a turn
    load_at: Ints  # by place: the address in the first turn, or UNPLACED
    load_step: Ints  # by place: what a turn adds to it
    store_at: Ints
    store_step: Ints
    slots: Ints  # from here on by row
    split: Ints
    occupancy: Ints
    latency: Floats
    gain: Floats  # cycles by which the accumulator may come later than the other operands
    interval: Floats
    from_other_unit: Floats  # cycles that an operand takes longer to come from the other unit for wide operations
    late_result: Floats  # cycles that a result comes later to operations without such results
    mnemonic: Ints
    first_uop: Ints
    uops: Ints
    first_wanted: Ints
    wanted: Ints
    first_read: Ints
    reads: Ints
    first_write: Ints
    writes: Ints
    first_pointer: Ints  # registers that form the address of its load
    pointers: Ints
    accumulator: Ints
    moves: Ints  # the register of an eliminated move
    is_move: Ints
    is_tile: Ints
    only_loads: Ints
    load_tensor: Ints  # NOWHERE: it does not load
    load_bytes: Ints
    load_pipes: Floats
    load_share: Floats
    load_latency: Floats
    crossing_pipes: Floats
    crossing_latency: Floats
    forward_latency: Floats
    blocked_latency: Floats
    store_tensor: Ints
    store_bytes: Ints
    commit_cycles: Floats
    other_line_cycles: Floats
    crossing_cycles: Floats
    registers: Ints  # lists of the rows
    # Windows.
    ages: int  # ops dispatched
    retired: int  # ops
    partial: int  # slots of the next op that are already dispatched (an op wider than what a group had left)
    until_end: int
    retire_left: int  # slots of the oldest op still to retire
    rob_room: int
    load_room: int
    store_room: int
    commit_free: float
    commits_first: int
    commits_last: int
    commit_at: Floats
    last_retirement: int
    acted: int  # whether anything happened in this cycle
    retired_at: Ints  # by age
    dispatched_at: Ints
    # Nodes.
    waits: Ints  # operands not yet under way
    ready: Floats
    done: Floats  # the cycle of the result, UNKNOWN until it issues
    first_issue: Floats
    unissued: Ints
    first_user: Ints  # a list of edges
    first_bound: Ints  # a list of ports of uops that wait for an operand to be under way
    next_work: Ints
    unit: Ints  # the port of a wide operation to which results of other ports come later
    place: Ints  # of a load: where in its line it begins, as far as that is known
    pipes_of: Floats
    late: Floats  # cycles beyond its latency
    line_cycles: Floats  # by age: what its commit takes behind the store before it
    remembered: Ints  # by age: whether later loads may read what it stores
    edges: int
    edge_next: Ints
    edge_user: Ints
    edge_gain: Floats
    bounds: int
    bound_next: Ints
    bound_port: Ints
    # Heaps: ready uops of each port by age, then those of `future`, `load_future` and `load_waiting`.
    heap_size: int
    heap: Ints
    heaped: Ints
    # Ports, values and memory.
    free_at: Ints
    busy: Floats  # cycles of work done
    next_of: Floats  # by mnemonic, of those with an interval: the cycle from which the next may issue
    load_debt: float  # pipes that the last load has still to take, one of more lines than there are pipes
    places: Ints  # of the loads of this cycle
    sent: Ints  # where the uops of the op that is renamed have gone
    value_of: Ints  # register to its last writer
    tile_store: int  # the last store of a tile
    last_tensor: int  # of a store that none has joined yet
    last_line: int
    stores: Ints  # by tensor: how many were remembered, the last `store_queue` of them in
    stored_from: Ints
    stored_to: Ints
    stored_age: Ints
    # The ends of a loop's turns, and the work on each port by then.
    ends: int
    end_at: Ints
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
        self.cycle = self.cycle + 1 if self.acted != 0 else self.next_event()
        return 0 if self.cycle - self.last_retirement > self.stalled_after else 1

    def next_event(self) -> int:
        """The cycle that ends what all wait for: an operand, a port, a unit, the oldest result or a commit."""
        soonest = FAR
        future, load_future, load_waiting = self.ports, self.ports + 1, self.ports + 2
        if self.heaped[load_waiting] > 0:
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
        for index in range(self.schedulers):
            if self.leaving_first[index] < self.leaving_last[index]:
                first = index * self.ring + self.leaving_first[index] % self.ring
                soonest = min(soonest, self.leaving_cycle[first])
        if self.retired < self.ages and self.done[self.oldest()] != UNKNOWN:
            soonest = min(soonest, math.ceil(self.done[self.oldest()]))
        if self.commits_first < self.commits_last:
            soonest = min(soonest, math.ceil(self.commit_at[self.commits_first]))
        return self.cycle + 1 if soonest == FAR else max(self.cycle + 1, soonest)

    def row(self, node: int) -> int:
        """The row of a node's op."""
        return self.row_of[node // NODES % self.size]

    def oldest(self) -> int:
        """The node of the oldest op in flight."""
        return NODES * self.retired + self.only_loads[self.row_of[self.retired % self.size]]

    # -- heaps -------------------------------------------------------------------------------------------------------

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

    # -- values ------------------------------------------------------------------------------------------------------

    def start_node(self, node: int) -> None:
        """A node of the op that is dispatched in this cycle."""
        self.waits[node] = 0
        self.ready[node] = self.cycle + 1.0
        self.done[node] = UNKNOWN
        self.first_issue[node] = UNKNOWN
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
        self.push(self.ports, cycle * LOW + node * self.ports + port)

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

    # -- the stages --------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Retire in order, up to the core's width; stores commit in order behind it and free their place when done."""
        now, slots = self.cycle, self.retire_slots
        while self.commits_first < self.commits_last and self.commit_at[self.commits_first] <= now:
            self.commits_first += 1
            self.store_room += 1
        while self.retired < self.ages and slots > 0:
            node = self.oldest()
            if self.done[node] == UNKNOWN or self.done[node] > now:
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
            self.retired_at[self.retired] = now
            self.last_retirement = now
            if self.load_tensor[row] != NOWHERE:
                self.load_room += 1
            if self.store_tensor[row] != NOWHERE:
                self.commit_free = max(self.commit_free, float(now)) + self.line_cycles[self.retired]
                self.add_commit()
                if self.remembered[self.retired] != 0:
                    self.finish(NODES * self.retired + COMMIT, self.commit_free)
            self.retired += 1

    def add_commit(self) -> None:
        self.commit_at[self.commits_last] = self.commit_free
        self.commits_last += 1

    def issue(self) -> None:
        """Issue on every free port the oldest ready uop bound to it; then the loads."""
        future = self.ports
        while self.heaped[future] > 0 and self.heap[future * self.heap_size] // LOW <= self.cycle:
            entry = self.pop(future) % LOW
            self.push(entry % self.ports, entry // self.ports)
        for port in range(self.ports):
            if self.is_load_port[port] == 0 and self.heaped[port] > 0 and self.free_at[port] <= self.cycle:
                self.issue_on(port)
        if self.heaped[self.ports + 1] + self.heaped[self.ports + 2] > 0 or self.load_debt > 0:
            self.issue_loads()

    def issue_on(self, port: int) -> None:
        """Issue the oldest uop of a port, unless its mnemonic's own unit is still at work."""
        now = self.cycle
        node = self.heap[port * self.heap_size]
        row = self.row(node)
        if self.interval[row] > 0 and self.first_issue[node] == UNKNOWN:
            free = self.next_of[self.mnemonic[row]]
            if free > now:
                return
            self.next_of[self.mnemonic[row]] = max(free, now - 1.0) + self.interval[row]
        self.acted = 1
        self.pop(port)
        occupancy = self.occupancy[row]
        self.free_at[port] = now + occupancy
        self.busy[port] += occupancy
        self.issued(port, occupancy)
        if self.first_issue[node] == UNKNOWN:
            self.first_issue[node] = float(now)
        self.unissued[node] -= 1
        if self.unissued[node] == 0:
            done = now + self.latency[row]
            if self.uops[row] > 1:  # latency counts from the first; the later ones fit in unless they were held up
                done = max(self.first_issue[node] + self.latency[row], done - (self.uops[row] - 1))
            self.finish(node, done if done > now else now + 1.0)

    def issue_loads(self) -> None:
        """The oldest ready loads over the pipes; one that doesn't fit lets no younger one pass."""
        future, waiting, now = self.ports + 1, self.ports + 2, self.cycle
        while self.heaped[future] > 0 and self.heap[future * self.heap_size] // LOW <= now:
            self.push(waiting, self.pop(future) % LOW)
        used = min(self.load_debt, float(self.pipes))
        share = used
        if used > 0:
            self.acted = 1
        self.occupy_loads(0.0, used)
        self.load_debt -= used
        count = 0
        while self.heaped[waiting] > 0 and used < self.pipes:
            node = self.heap[waiting * self.heap_size]
            need = self.pipes_of[node]
            if used + need > self.pipes and need <= self.pipes:
                break
            row = self.row(node)
            if need <= self.pipes:
                share += self.load_share[row]
            if share > self.pipes or self.taken(self.place[node], count) != 0:
                break
            self.places[count] = self.place[node]
            count += 1
            self.pop(waiting)
            self.acted = 1
            here = min(need, self.pipes - used)  # a tile's lines take this cycle and the next ones
            self.occupy_loads(used, here)
            used += here
            self.load_debt = need - here
            later = math.ceil(self.load_debt / self.pipes)
            self.first_issue[node] = float(now)
            self.finish(node, now + later + self.load_latency[row] + self.late[node])

    def taken(self, place: int, count: int) -> int:
        """Whether as many of this cycle's loads as may do begin at a place of their lines."""
        same = 0
        for index in range(count):
            if self.places[index] == place:
                same += 1
        return 1 if place != UNPLACED and same == self.of_a_place else 0

    def occupy_loads(self, used: float, more: float) -> None:
        """Note work on the load pipes behind those `used` in this cycle."""
        while more > 0:
            share = min(more, 1 - (used - math.floor(used)))
            self.busy[self.load_port[int(used)]] += share
            used += share
            more -= share

    def enter(self) -> None:
        """Move uops in order from the queues into the schedulers, as far as there is room."""
        for index in range(self.schedulers):
            self.free_held(index)
            while self.queue_first[index] < self.queue_last[index]:
                at = index * self.ring + self.queue_first[index] % self.ring
                entries = self.queued_entries[at]
                port = self.port_for(self.queued_uop[at], self.queued_parity[at], entries)
                if port == NO_PORT:
                    break
                self.queue_first[index] += 1
                self.room[index] += 1
                self.bind(port, entries)
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
        slots = width
        if self.has_room_for_group() == 0:
            return
        while self.ages < self.total and slots > 0:
            row = self.row_of[self.ages % self.size]
            left = self.slots[row]
            if self.partial > 0:
                left -= self.partial
            elif slots < self.split[row] or self.can_take(row) == 0:
                return
            self.acted = 1
            if left > slots:
                self.partial += slots
                return
            self.rename(row, (width - slots) & 1)
            self.partial = 0
            slots -= left
            self.until_end -= 1
            if self.until_end == 0:
                self.until_end = self.buffered
                return

    def can_take(self, row: int) -> int:
        """Whether reorder buffer, load and store queue, and the schedulers can take an op."""
        if self.rob_room < self.slots[row] and self.retired < self.ages:
            return 0
        if self.load_tensor[row] != NOWHERE and self.load_room == 0:
            return 0
        if self.store_tensor[row] != NOWHERE and self.store_room == 0:
            return 0
        return self.has_room(self.first_wanted[row], self.wanted[row])

    def rename(self, row: int, parity: int) -> None:
        """Make the nodes of an op, tie them to their producers, send its uops on, and name its results."""
        node = NODES * self.ages + OPERATION
        read = NOWHERE
        if self.load_tensor[row] != NOWHERE:
            read = self.start_load(row)
        value = node
        if self.only_loads[row] != 0:
            value = read
        else:
            self.start_node(node)
            self.operate(row, node, read, parity)
        if self.is_move[row] != 0:
            value = self.value_of[self.moves[row]]
        for at in range(self.first_write[row], self.first_write[row] + self.writes[row]):
            self.value_of[self.registers[at]] = value
        if self.store_tensor[row] != NOWHERE:
            self.store_room -= 1
            self.remember(row)
        self.dispatched_at[self.ages] = self.cycle
        self.rob_room -= self.slots[row]
        self.ages += 1

    def operate(self, row: int, node: int, read: int, parity: int) -> None:
        """Send the uops of an operation to the schedulers, and tie it to its operands."""
        first, last = self.first_uop[row], self.first_uop[row] + self.uops[row]
        for uop in range(first, last):
            self.sent[uop - first] = self.send(node, uop, parity, self.occupancy[row])
        if self.from_other_unit[row] > 0:
            self.unit[node] = self.sent[0]
        if read != NOWHERE:
            self.depend(node, read, 0.0)
        for at in range(self.first_read[row], self.first_read[row] + self.reads[row]):
            self.operand(row, node, self.value_of[self.registers[at]], 0.0)
        if self.accumulator[row] != NOWHERE:
            self.operand(row, node, self.value_of[self.accumulator[row]], self.gain[row])
        self.unissued[node] = self.uops[row]
        if self.is_tile[row] != 0:
            if self.store_tensor[row] != NOWHERE:
                self.tile_store = node
            elif self.uops[row] > 0 and self.tile_store != NOWHERE:
                self.depend(node, self.tile_store, 0.0)  # measured: products do not overtake stores of tiles
        for uop in range(first, last):
            if self.sent[uop - first] != NO_PORT:
                self.entered(node, self.sent[uop - first])
        if self.uops[row] == 0 and self.waits[node] == 0:
            self.done[node] = self.ready[node] + self.latency[row]

    def operand(self, row: int, node: int, producer: int, gain: float) -> None:
        """Let an operation wait for the last writer of a register, longer where that is the other of two wide units, or
        yields its result later to others.
        """
        if producer == NOWHERE:
            return
        if self.late_result[row] == 0:
            gain -= self.late_result[self.row_of[producer // NODES % self.size]]
        own, other = self.unit[node], self.unit[producer]
        if own != other and own != NO_PORT and other != NO_PORT:
            self.depend(node, producer, gain - self.from_other_unit[row])
        else:
            self.depend(node, producer, gain)

    # -- memory ------------------------------------------------------------------------------------------------------

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
        position = self.ages % self.size
        if self.load_at[position] != UNPLACED:
            first = self.load_at[position] + self.ages // self.size * self.load_step[position]
            self.place[load] = first % self.line_bytes
            if self.place[load] + self.load_bytes[row] > self.line_bytes and self.is_tile[row] == 0:
                self.pipes_of[load] = max(self.load_pipes[row], self.crossing_pipes[row])
                self.late[load] = self.crossing_latency[row]
            read = self.forwarded(row, load, first, first + self.load_bytes[row])
        if self.waits[load] == 0:
            self.await_load(load)
        return read

    def forwarded(self, row: int, load: int, first: int, last: int) -> int:
        """The source of a load of these bytes: itself, behind the store that wrote some of them, or that one's data."""
        tensor = self.load_tensor[row]
        for back in range(min(self.stores[tensor], self.store_queue)):
            at = tensor * self.store_queue + (self.stores[tensor] - 1 - back) % self.store_queue
            if self.stored_from[at] < last and first < self.stored_to[at]:
                data = NODES * self.stored_age[at] + OPERATION
                commit = NODES * self.stored_age[at] + COMMIT
                forward = max(self.forward_latency[row], self.forward_latency[self.row(data)])
                whole = self.stored_from[at] <= first and last <= self.stored_to[at]
                if whole and forward == 0 and self.done[commit] == UNKNOWN:
                    return data  # a name of the same register from rename on
                if whole:
                    self.depend(load, data, self.load_latency[row] - forward)
                else:
                    self.depend(load, commit, self.load_latency[row] - self.blocked_latency[row])
                return load
        return load

    def remember(self, row: int) -> None:
        """Note what a store writes, for later loads and for the commit of the next store."""
        age, position = self.ages, self.ages % self.size
        self.line_cycles[age] = self.commit_cycles[row]
        self.remembered[age] = 0
        if self.store_at[position] == UNPLACED:
            return
        first = self.store_at[position] + age // self.size * self.store_step[position]
        tensor, line = self.store_tensor[row], first // self.line_bytes
        if first % self.line_bytes + self.store_bytes[row] > self.line_bytes and self.is_tile[row] == 0:
            self.line_cycles[age] = self.crossing_cycles[row]
            self.last_tensor = NOWHERE
        elif self.last_tensor == tensor and self.last_line == line:  # both commit in the time of one
            self.line_cycles[age] = 2 * self.commit_cycles[row] - self.other_line_cycles[row]
            self.last_tensor = NOWHERE
        else:
            self.line_cycles[age] = self.other_line_cycles[row]
            self.last_tensor = tensor
            self.last_line = line
        at = tensor * self.store_queue + self.stores[tensor] % self.store_queue
        self.stores[tensor] += 1
        self.start_node(NODES * age + COMMIT)
        self.remembered[age] = 1
        self.stored_from[at] = first
        self.stored_to[at] = first + self.store_bytes[row]
        self.stored_age[at] = age
