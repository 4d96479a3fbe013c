"""How uops leave a queue for the two banks of a scheduler, as measured on a Zen 4 (docs/validation/cpu-loops.md).

A Zen 3 has the first and the third of the modes below (`by_halves`, docs/validation/zen3.md).

A queue sees with a delay how the banks stand. In a cycle it lets go the number of uops for which the bank with less
room had entries free some cycles ago, less those that left since then. To which bank each goes depends on what waits:

- By its place in the dispatch group, even or odd, while few wait and both banks alike.
- The uops of a cycle in turn while more wait at a port than at its twin, the port of the same kind in the other bank.
  With which bank they begin changes behind each cycle of two or more.
- When the banks are half full: in turn, so that the last uop of a cycle goes to the bank that is next, which changes
  behind an odd number. A uop leaves its turn where far more wait at its port.
- If no port had far more than its twin for `QUIET` cycles: strictly in turn, and in threes.

AMD's patent US 12,118,411 has such modes, chosen by signs of imbalance. The class is written in the part of Python that
`translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.cpu.schedulers import ANY_PORT, NO_PORT, Schedulers
from simdnn.timing.translate import Ints

ENDS = 8  # cycles whose ends are remembered: more than any of the delays
ROOM_SEEN, COUNTS_SEEN, MODE_SEEN = 2, 2, 3  # cycles until the queue knows of room, of what waits, and takes a mode
FAR_TWIN = 9  # uops by which a port must have more than the one that it is compared with
FAR_BESIDE = 5  # the same of two ports of a bank
NEAR_FULL = 6  # entries that a bank has left where it loses uops to the other, if that has more
QUIET = 64  # cycles without far more at a port until banks are dealt out strictly in turn
GROUP = 3  # uops that leave together then
BY_PLACE, BY_CYCLE, IN_TURN, STRICTLY = 0, 1, 2, 3  # modes


class Banks(Schedulers):
    """The banks of a core's scheduler that has two of them behind a queue."""

    by_halves: int  # whether nothing but half of the entries taken changes the mode
    halved: int  # the number of that scheduler, -1 where there is none
    first_pool: int  # its first bank among the pools
    in_banks: Ints  # its ports
    bank_ports: int  # how many
    compared: Ints  # those of the first bank that take no stores
    compared_ports: int
    twin_of: Ints  # by port of the first bank: the one at the same place of the other, and by port of that
    mode: int
    noted: int  # cycles whose ends are noted
    rooms_at: Ints  # at the end of each of the last cycles: entries that are free, by bank
    waited_at: Ints  # and uops that wait, by port
    uneven_at: Ints  # and whether far more wait at a port than at its twin
    held: Ints  # by bank: entries of wide uops that issued in cycle `held_in`, which are free a cycle later
    held_in: int
    gone: int  # uops that left the queue in cycle `gone_in`
    gone_in: int
    next_bank: int  # the bank whose turn it is where banks are half full
    first_bank: int  # the bank with which a cycle begins where they are not
    uneven_in: int  # the last cycle that saw far more uops at a port than at its twin

    def note(self) -> None:
        """Note how the banks stood at the ends of the cycles since the last one that ran, in which nothing changed."""
        uneven = self.uneven()
        for cycle in range(max(self.noted, self.cycle - ENDS), self.cycle):
            at = cycle & ENDS - 1
            self.uneven_at[at] = uneven
            for bank in range(2):
                self.rooms_at[2 * at + bank] = self.room[self.first_pool + bank]
            for index in range(self.bank_ports):
                port = self.in_banks[index]
                self.waited_at[at * self.ports + port] = self.pending[port]
        self.noted = self.cycle

    def uneven(self) -> int:
        """Whether far more wait at a port than at its twin, those of stores left out."""
        for index in range(self.compared_ports):
            port = self.compared[index]
            more = self.pending[port] - self.pending[self.twin_of[port]]
            if more >= FAR_TWIN or more <= -FAR_TWIN:
                return 1
        return 0

    def room_before(self, cycles: int) -> int:
        """The free entries of the bank with fewer, some cycles ago."""
        if self.cycle < cycles:
            return self.size_of[self.halved]
        at = 2 * (self.cycle - cycles & ENDS - 1)
        return min(self.rooms_at[at], self.rooms_at[at + 1])

    def waiting(self, port: int, cycles: int) -> int:
        """The uops that waited at a port some cycles ago."""
        return self.waited_at[(self.cycle - cycles & ENDS - 1) * self.ports + port] if self.cycle >= cycles else 0

    def half_full(self) -> int:
        """Whether uops took half of both banks' entries."""
        if self.cycle < MODE_SEEN:
            return 0
        at = 2 * (self.cycle - MODE_SEEN & ENDS - 1)
        return 1 if self.rooms_at[at] + self.rooms_at[at + 1] <= self.size_of[self.halved] else 0

    def may_leave(self) -> int:
        """How many uops may leave the queue in this cycle, whose mode is chosen."""
        self.note()
        if self.uneven_at[self.cycle - MODE_SEEN & ENDS - 1] != 0:
            self.uneven_in = self.cycle
        self.mode = BY_CYCLE if self.uneven_in == self.cycle and self.by_halves == 0 else BY_PLACE
        if self.half_full() != 0:
            self.mode = STRICTLY if self.cycle - self.uneven_in >= QUIET and self.by_halves == 0 else IN_TURN
        if self.mode == STRICTLY:
            return min(self.dispatch_slots, self.room_before(1) // GROUP * GROUP)
        since = self.gone if self.gone_in == self.cycle - 1 else 0
        return max(0, min(self.dispatch_slots, self.room_before(ROOM_SEEN) - since))

    def first_of(self, count: int) -> int:
        """The bank to which the first of a cycle's uops goes, by its turn."""
        if self.mode == BY_CYCLE:
            return self.first_bank
        return self.next_bank ^ (count - 1 & 1) if self.mode == IN_TURN else self.next_bank

    def have_left(self, count: int) -> None:
        """Move the turns on behind a cycle's uops."""
        self.gone = count
        self.gone_in = self.cycle
        if self.mode >= IN_TURN:
            self.next_bank ^= count & 1
        elif self.mode == BY_CYCLE and count >= 2:
            self.first_bank ^= 1

    def port_in(self, bank: int, uop: int) -> int:
        """The port of a uop whose turn a bank is, in the other bank where the uop leaves its turn."""
        first, last = self.uop_first[uop], self.uop_first[uop] + self.uop_ports[uop]
        own, other = self.best_of(bank, first, last), self.best_of(1 - bank, first, last)
        if own == NO_PORT or other == NO_PORT:
            return max(own, other)
        if self.mode >= IN_TURN:
            return other if self.leaves(own, other, last - first) != 0 else own
        left = self.room[self.pool_of[own]]
        return other if left < NEAR_FULL and left < self.room[self.pool_of[other]] else own

    def best_of(self, bank: int, first: int, last: int) -> int:
        """The port of a bank that takes a uop: the first one, or in turn if it can go to any, unless far fewer wait."""
        found = NO_PORT
        for at in range(first, last):
            port = self.port_lists[at]
            if self.parity_of[self.pool_of[port]] == bank:
                if found == NO_PORT:
                    found = port
                    continue
                more = self.waiting(port, COUNTS_SEEN) - self.waiting(found, COUNTS_SEEN)
                in_turn = last - first == ANY_PORT and self.last_bound[port] < self.last_bound[found]
                if more <= -FAR_BESIDE or more < FAR_BESIDE and in_turn:
                    found = port
        return found

    def leaves(self, own: int, other: int, count: int) -> int:
        """Whether a uop with a number of ports goes to the other bank, though that is not its turn.

        A port of the first bank is compared with its twin, and the uop stays where its other port has far more than the
        twin of that. No reading says so, but measured loops that permute (FP1, FP2) beside products (FP0, FP1) and sums
        (FP2, FP3).
        """
        waiting, there = self.waiting(own, COUNTS_SEEN), self.waiting(other, COUNTS_SEEN)
        twin = self.twin_of[own]
        if twin == other or count == ANY_PORT or self.parity_of[self.pool_of[own]] == 1:
            return 1 if waiting >= there + FAR_TWIN else 0
        if there >= self.waiting(self.twin_of[other], COUNTS_SEEN) + FAR_TWIN:
            return 0
        return 1 if waiting >= self.waiting(twin, COUNTS_SEEN) + FAR_TWIN else 0

    def hold(self, port: int) -> None:
        """Keep the entry of a wide uop that has issued for one cycle more."""
        pool = self.pool_of[port]
        self.room[pool] -= 1
        self.held[pool - self.first_pool] += 1
        self.held_in = self.cycle

    def release(self) -> None:
        """Free what was kept in an earlier cycle."""
        if self.held_in < self.cycle:
            for bank in range(2):
                self.room[self.first_pool + bank] += self.held[bank]
                self.held[bank] = 0
