"""Where uops wait for their operands and their port: queues, pools of entries, and the rule that gives a uop its port.

A pool is what one part of the core picks from: a scheduler, or one of the two banks that a scheduler consists of. A
uop is bound to a port when it enters its pool (not when it issues: measured on Zen 4, known of Intel).

The class is written in the part of Python that `translate` compiles: numbers and arrays of them, everything by number.
"""

from __future__ import annotations

from simdnn.timing.cpu.translate import Ints

FAR_MORE = 3  # uops by which a port must have more than the one with the fewest not to be taken in its turn
FAR_FEWER = 6  # entries by which a port must have fewer to be taken before its bank's: fitted to loops of a Zen 4
NO_PORT = -1


class Schedulers:
    """The schedulers of one core. Rooms are those of the schedulers' queues, then those of the pools."""

    cycle: int
    ports: int  # how many
    schedulers: int
    dispatch_slots: int
    in_turn: int  # how many of a uop's ports, by what waits there, the places of a group take in turn; 0: not so
    scheduler_of: Ints  # by port
    pool_of: Ints  # by port: the place among `room` of its pool
    banked: Ints  # by port
    queue_of: Ints  # by scheduler: uops that can wait in order before it
    size_of: Ints  # by scheduler: entries of each pool
    held_of: Ints  # by scheduler: cycles for which entries are held behind the issue
    room: Ints  # free places of each queue, and free entries of each pool
    waiting: Ints  # by pool (as `room`): entries of uops that have not issued
    parity_of: Ints  # by pool: of the places in a dispatch group that a bank is given first
    pending: Ints  # by port: entries of uops bound to it that have not issued
    last_bound: Ints  # by port: sequence number of the last one
    bindings: int
    counted_at: int  # the cycle of `counted`
    counted: Ints  # by port
    # uops in order before each scheduler, and entries that are held: rings of `ring` places each, a power of two
    ring: int
    queue_first: Ints
    queue_last: Ints
    queued_node: Ints
    queued_uop: Ints
    queued_place: Ints
    queued_entries: Ints
    leaving_first: Ints
    leaving_last: Ints
    leaving_cycle: Ints
    leaving_pool: Ints
    leaving_entries: Ints
    # the ports of each uop of each row, and where the uops of a row want room: the place among `room`, and how much
    uop_first: Ints
    uop_ports: Ints
    port_lists: Ints
    wanted_places: Ints
    wanted_rooms: Ints

    def has_room_for_group(self) -> int:
        """Whether each queue, and each scheduler where ports go in turn, has room for a whole group."""
        for index in range(self.schedulers):
            if self.queue_of[index] > 0 and self.room[index] < min(self.dispatch_slots, self.queue_of[index]):
                return 0
            if self.in_turn != 0 and self.room[self.schedulers + index] < min(self.dispatch_slots, self.size_of[index]):
                return 0
        return 1

    def has_room(self, first: int, count: int) -> int:
        """Whether all uops of an op can be taken; those of one wider than a scheduler when that is empty."""
        for index in range(first, first + count):
            if self.room[self.wanted_places[index]] < self.wanted_rooms[index]:
                return 0
        return 1

    def entries_of(self, port: int, cycles: int) -> int:
        """Entries that a uop takes which occupies its port for some cycles: one a cycle in a bank, else one."""
        if self.banked[port] == 0:
            return 1
        return min(cycles, self.size_of[self.scheduler_of[port]])

    def send(self, node: int, uop: int, place: int, cycles: int) -> int:
        """Take a uop from a place of a dispatch group (from 0), which will occupy its port for `cycles`.

        Its port, or NO_PORT where it has to queue.
        """
        any_port = self.port_lists[self.uop_first[uop]]
        index = self.scheduler_of[any_port]
        entries = self.entries_of(any_port, cycles)
        port = NO_PORT
        if self.queue_of[index] == 0 and self.queue_first[index] == self.queue_last[index]:
            port = self.port_for(uop, place, entries)
        if port == NO_PORT:
            at = index * self.ring + (self.queue_last[index] & self.ring - 1)
            self.queue_last[index] += 1
            self.queued_node[at] = node
            self.queued_uop[at] = uop
            self.queued_place[at] = place
            self.queued_entries[at] = entries
            self.room[index] -= 1
        else:
            self.bind(port, entries)
        return port

    def free_held(self, index: int) -> None:
        """Free the entries of a scheduler that need be held no longer."""
        while self.leaving_first[index] < self.leaving_last[index]:
            place = index * self.ring + (self.leaving_first[index] & self.ring - 1)
            if self.leaving_cycle[place] > self.cycle:
                return
            self.room[self.leaving_pool[place]] += self.leaving_entries[place]
            self.leaving_first[index] += 1

    def issued(self, port: int, cycles: int) -> None:
        """A uop has left for its port, which it occupies for `cycles`; its entries may be held for some more."""
        index, pool, entries = self.scheduler_of[port], self.pool_of[port], self.entries_of(port, cycles)
        self.pending[port] -= entries
        self.waiting[pool] -= entries
        if self.held_of[index] > 0:
            place = index * self.ring + (self.leaving_last[index] & self.ring - 1)
            self.leaving_last[index] += 1
            self.leaving_cycle[place] = self.cycle + self.held_of[index]
            self.leaving_pool[place] = pool
            self.leaving_entries[place] = entries
        else:
            self.room[pool] += entries

    def bind(self, port: int, entries: int) -> None:
        if self.in_turn > 2:  # pairs have been compared with loops as counted at a cycle's first choice
            self.count()
        self.bindings += 1
        self.last_bound[port] = self.bindings
        self.pending[port] += entries
        self.waiting[self.pool_of[port]] += entries
        self.room[self.pool_of[port]] -= entries

    def port_for(self, uop: int, place: int, entries: int) -> int:
        """The port for a uop that can go to one of several; NO_PORT where no pool has room."""
        first, count = self.uop_first[uop], self.uop_ports[uop]
        port = self.port_lists[first]
        if count == 1:
            return port if self.room[self.pool_of[port]] >= entries else NO_PORT
        if self.banked[port] != 0:
            return self.of_bank(first, first + count, place & 1, entries)
        if self.room[self.pool_of[port]] == 0:
            return NO_PORT
        if self.in_turn != 0:
            return self.in_order(first, first + count, place % min(self.in_turn, max(2, count - 1)))
        for at in range(first + 1, first + count):
            if self.is_before(self.port_lists[at], port, place & 1) != 0:
                port = self.port_lists[at]
        return port

    def is_before(self, one: int, other: int, parity: int) -> int:
        """Whether a port is taken before another: by what waits there, by the place's parity, by the last uop."""
        if self.pending[one] != self.pending[other]:
            return 1 if self.pending[one] < self.pending[other] else 0
        if one & 1 != other & 1:
            return 1 if one & 1 == parity else 0
        return 1 if self.last_bound[one] < self.last_bound[other] else 0

    def count(self) -> None:
        """Note what waits at each port when a cycle begins to bind: all that it binds goes by that."""
        if self.counted_at != self.cycle:
            self.counted_at = self.cycle
            for port in range(self.ports):
                self.counted[port] = self.pending[port]

    def of_bank(self, first: int, last: int, parity: int, entries: int) -> int:
        """The bank in which less waits, of equal ones that of the place's parity; there the port that is through first.

        It is the first one, or one that has no more entries now and was bound to longer ago, so that one after the
        other in a chain go to different ports (measured: 512-bit sums that wait for each other take a cycle each,
        though each holds its port for two). One that has far less, of either bank, comes before it; by what waited at
        the beginning of the cycle, so a uop that every port could take is often bound to one that others need. That
        the place decides between equal banks is measured; that the rest is so, and the number, fit.
        """
        best, home, chosen = 0, 0, NO_PORT
        self.count()
        for at in range(first, last):
            port = self.port_lists[at]
            pool = self.pool_of[port]
            if self.room[pool] < entries:
                continue
            weight = 2 * self.waiting[pool] + (1 if self.parity_of[pool] != parity else 0)
            if chosen == NO_PORT or weight < best:
                best, home, chosen = weight, pool, port
            elif pool == home and (
                self.counted[port] + FAR_FEWER <= self.counted[chosen]
                or self.pending[port] <= self.pending[chosen]
                and self.last_bound[port] < self.last_bound[chosen]
            ):
                chosen = port
        if chosen == NO_PORT:
            return NO_PORT
        most = self.counted[chosen] - FAR_FEWER
        for at in range(first, last):
            port = self.port_lists[at]
            pool = self.pool_of[port]
            if pool != home and self.counted[port] <= most and self.room[pool] >= entries:
                chosen = port
                most = self.counted[port] - 1
        return chosen

    def in_order(self, first: int, last: int, rank: int) -> int:
        """The port before which `rank` others come by what waits there, or the next before it that has not far more.

        So places of a group take a uop's ports in turn, from the one with the fewest uops. A. Abel and J. Reineke found
        Intel's cores of four slots to do so with the first two ports ("uiCA", ICS 2022); Intel's patent US 12,190,157
        (for cores with more slots) deals out all ports in a circle, but the one with the most uops. What a group binds
        counts from the next.
        """
        self.count()
        least = self.with_rank(first, last, 0)
        while rank > 0:
            port = self.with_rank(first, last, rank)
            if self.counted[port] < self.counted[least] + FAR_MORE:
                return port
            rank -= 1
        return least

    def with_rank(self, first: int, last: int, rank: int) -> int:
        """The port before which `rank` others come: those with fewer uops, of equals the last ones."""
        for at in range(first, last):
            port = self.port_lists[at]
            before = 0
            for other_at in range(first, last):
                other = self.port_lists[other_at]
                fewer = self.counted[other] < self.counted[port]
                if fewer or self.counted[other] == self.counted[port] and other > port:
                    before += 1
            if before == rank:
                return port
        return NO_PORT
