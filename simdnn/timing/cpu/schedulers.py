"""Where uops wait for their operands and their port: queues, pools of entries, and the rule that gives a uop its port.

A pool is what one part of the core picks from: a scheduler, or one of the two banks that a scheduler consists of. A
uop is bound to a port when it enters its pool (not when it issues: measured on Zen 4, known of Intel).

The class is written in the part of Python that `translate` compiles: numbers and arrays of them, everything by number.
"""

from __future__ import annotations

from simdnn.timing.translate import Ints

FAR_MORE = 3  # uops by which a port must have more than the one with the fewest not to be taken in its turn
# Of lanes, measured on a Redwood Cove (docs/validation/intel-core.md):
FAR_LANES = 5  # the same
BINDS_SEEN, ISSUES_SEEN = 2, 7  # cycles until a port's count of waiting uops knows of one more, and of one less
RING = 8  # the last cycles, whose binds and issues are remembered: more than either is late
SLID = 2  # lanes before a uop's that it looks at
NO_CLASS = -1  # of a lane whose uop has one port, or none
ANY_PORT = 4  # ports of a uop of banks (`banks`) that moves the turn of a bank's ports on
NO_PORT = -1
NO_PLACE = -1


class Schedulers:
    """The schedulers of one core. In arrays of rooms the schedulers' queues come first, and then the pools."""

    cycle: int
    ports: int  # how many
    schedulers: int
    dispatch_slots: int
    in_turn: int  # whether the places of a group take a uop's ports in turn, by what waits there
    by_lanes: int  # all of them, as `rank_in_group` says, not two
    scheduler_of: Ints  # by port
    pool_of: Ints  # by port: the place among `room` of its pool
    dealt_ports: int  # ports that are dealt out to a group as a whole (`dealing`)
    is_dealt: Ints  # by port: whether it is one
    chosen: Ints  # by port: whether an operation of the group that any of them takes goes there
    kept: Ints  # by port: the group's other operations that go there
    banked: Ints  # by port: whether it is one of two banks behind a queue
    queue_of: Ints  # by scheduler: uops that can wait in order before it
    size_of: Ints  # by scheduler: entries of each pool
    room: Ints  # free places of each queue, and free entries of each pool
    parity_of: Ints  # by pool: of the places in a dispatch group that a bank is given first
    pending: Ints  # by port: uops bound to it that have not issued
    last_bound: Ints  # by port: sequence number of the last one
    bindings: int
    counted_at: int  # the cycle of `counted`
    counted: Ints  # by port
    bound_in: Ints  # by port in each of the last cycles: uops bound, and issued, that `counted` has not
    issued_in: Ints
    lanes: Ints  # by place in the group, and as many before it: the class of its uop
    # uops in order before each scheduler: rings of `ring` places each, a power of two
    ring: int
    queue_first: Ints
    queue_last: Ints
    queued_node: Ints
    queued_uop: Ints
    queued_place: Ints
    filled_at: Ints  # by scheduler: the cycle in which a uop came into its empty queue
    # the ports of each uop of each row, and where the uops of a row want room: the place among `room`, and how much
    uop_first: Ints
    uop_ports: Ints
    uop_class: Ints  # uops of one class have the same ports
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

    def send(self, node: int, uop: int, place: int) -> int:
        """Take a uop from a place of a dispatch group (from 0): its port, or NO_PORT where it has to queue."""
        index = self.scheduler_of[self.port_lists[self.uop_first[uop]]]
        port = NO_PORT
        if self.queue_of[index] == 0 and self.queue_first[index] == self.queue_last[index]:
            port = self.port_for(uop, place)
        if port == NO_PORT:
            at = index * self.ring + (self.queue_last[index] & self.ring - 1)
            if self.queue_first[index] == self.queue_last[index]:
                self.filled_at[index] = self.cycle
            self.queue_last[index] += 1
            self.queued_node[at] = node
            self.queued_uop[at] = uop
            self.queued_place[at] = place if self.filled_at[index] == self.cycle else NO_PLACE
            self.room[index] -= 1
        else:
            self.bind(port, uop)
        return port

    def issued(self, port: int) -> None:
        """A uop has left for its port."""
        self.pending[port] -= 1
        self.room[self.pool_of[port]] += 1
        if self.by_lanes != 0:
            self.count()
            self.issued_in[(self.cycle & RING - 1) * self.ports + port] += 1

    def bind(self, port: int, uop: int) -> None:
        if self.by_lanes != 0:  # pairs have been compared with loops as counted at a cycle's first choice
            self.count()
            self.bound_in[(self.cycle & RING - 1) * self.ports + port] += 1
        self.bindings += 1
        if self.banked[port] == 0 or self.uop_ports[uop] == ANY_PORT:
            self.last_bound[port] = self.bindings
        self.pending[port] += 1
        self.room[self.pool_of[port]] -= 1

    def port_for(self, uop: int, place: int) -> int:
        """The port for a uop that can go to one of several; NO_PORT where its pool has no room."""
        first, count = self.uop_first[uop], self.uop_ports[uop]
        port = self.port_lists[first]
        if self.is_dealt[port] != 0:
            return self.dealt_to(first, first + count)
        if self.room[self.pool_of[port]] == 0:
            return NO_PORT
        if count == 1:
            return port
        if self.in_turn != 0:
            if self.by_lanes != 0:
                return self.in_order(first, first + count, self.rank_in_group(self.uop_class[uop], place), FAR_LANES)
            return self.in_order(first, first + count, place % 2, FAR_MORE)
        for at in range(first + 1, first + count):
            if self.is_before(self.port_lists[at], port, place & 1) != 0:
                port = self.port_lists[at]
        return port

    def dealt_to(self, first: int, last: int) -> int:
        """The port that is kept for a uop of the group; where there is none that with fewest that wait."""
        found = NO_PORT
        for at in range(first, last):
            port = self.port_lists[at]
            if last - first == self.dealt_ports and self.chosen[port] != 0:
                self.chosen[port] = 0
                return port
            if last - first < self.dealt_ports and self.kept[port] > 0:
                self.kept[port] -= 1
                return port
            if self.room[self.pool_of[port]] > 0 and (found == NO_PORT or self.pending[port] < self.pending[found]):
                found = port
        return found

    def is_before(self, one: int, other: int, parity: int) -> int:
        """Whether a port is taken before another: by what waits there, by the place's parity, by the last uop."""
        if self.pending[one] != self.pending[other]:
            return 1 if self.pending[one] < self.pending[other] else 0
        if one & 1 != other & 1:
            return 1 if one & 1 == parity else 0
        return 1 if self.last_bound[one] < self.last_bound[other] else 0

    def begin_group(self) -> None:
        for place in range(self.dispatch_slots + SLID):
            self.lanes[place] = NO_CLASS

    def rank_in_group(self, kind: int, place: int) -> int:
        """How many ports of a uop of this class were dealt out before it; notes that it stands there.

        Measured on a Redwood Cove, for all sets of places before it: of the two places before its own those count that
        have a uop of its class, further ones all count. Intel's patent US 12,190,157 has it so: ports are dealt out to
        all places, and slide where the type of a uop does not match.
        """
        self.lanes[place + SLID] = kind
        rank = max(0, place - SLID)
        for before in range(place, place + SLID):
            if self.lanes[before] == kind:
                rank += 1
        return rank

    def count(self) -> None:
        """Note what waits at each port when a cycle begins to bind: all that it binds goes by that."""
        if self.by_lanes != 0:
            self.count_late()
        elif self.counted_at != self.cycle:
            self.counted_at = self.cycle
            for port in range(self.ports):
                self.counted[port] = self.pending[port]

    def count_late(self) -> None:
        """Let the counts know of uops that were bound, and have issued, some cycles ago."""
        for behind in range(min(self.cycle - self.counted_at, RING)):
            bound = (self.cycle - behind - BINDS_SEEN & RING - 1) * self.ports
            issued = (self.cycle - behind - ISSUES_SEEN & RING - 1) * self.ports
            for port in range(self.ports):
                self.counted[port] += self.bound_in[bound + port] - self.issued_in[issued + port]
                self.bound_in[bound + port] = 0
                self.issued_in[issued + port] = 0
        self.counted_at = self.cycle

    def in_order(self, first: int, last: int, rank: int, far: int) -> int:
        """The port that a rank has where ports are dealt out in a circle, by what waits there, the fewest first.

        Ports with `far` more than the fewest are left out. A. Abel and J. Reineke found Intel's cores of four slots to
        take the first two ports so ("uiCA", ICS 2022); Intel's patent US 12,190,157 (for cores with more slots) has it
        of all ports. What a group binds counts for later ones.
        """
        self.count()
        least = self.counted[self.with_rank(first, last, 0)]
        near = 0
        for at in range(first, last):
            if self.counted[self.port_lists[at]] < least + far:
                near += 1
        return self.with_rank(first, last, rank % near)

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
