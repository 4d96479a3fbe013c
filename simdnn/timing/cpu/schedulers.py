"""Where uops wait for their operands and their port: queues, pools of entries, and the rule that gives a uop its port.

A pool is what one part of the core picks from: a scheduler, or one of the two banks that a scheduler consists of. A
uop is bound to a port when it enters its pool (not when it issues: measured on Zen 4, known of Intel).
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from isa_models.machines.cpu_record import Core

FAR_MORE = 3  # uops by which two ports must differ for both of a pair to go to one of them
# Entries by which a port must have fewer than its bank's first one to be taken, and one of the other bank.
FAR_FEWER, FAR_FEWER_ACROSS = 5, 6  # fitted to measured loops of a Zen 4

Waiter = TypeVar("Waiter")


class Schedulers(Generic[Waiter]):
    """The schedulers of one core, ports by number; `Waiter` is whatever a uop belongs to."""

    def __init__(self, core: Core) -> None:
        number = {port: i for i, port in enumerate(core.ports)}
        self.group = core.dispatch_slots
        self.pairs = core.binding == "pairs"
        self.schedulers = core.schedulers
        self.scheduler_of = [0] * len(number)
        self.pool_of = [0] * len(number)
        self.room: list[int] = []  # free entries of each pool
        self.waiting: list[int] = []  # entries in each pool of uops that have not issued
        self.parity_of: list[int] = []  # of the places in a dispatch group that a bank is given first
        for index, scheduler in enumerate(core.schedulers):
            for bank, ports in enumerate(scheduler.banks or (scheduler.ports,)):
                for port in ports:
                    self.scheduler_of[number[port]], self.pool_of[number[port]] = index, len(self.room)
                self.room.append(scheduler.size)
                self.waiting.append(0)
                self.parity_of.append(bank)
        self.queue_room = [scheduler.queue for scheduler in core.schedulers]
        self.queues: list[deque[tuple[Waiter, tuple[int, ...], int, int]]] = [deque() for _ in core.schedulers]
        self.leaving: list[deque[tuple[int, int, int]]] = [deque() for _ in core.schedulers]  # (cycle, pool, entries)
        self.ways = list(enumerate(zip(self.queues, self.leaving, strict=True)))
        #: the room that a dispatch group wants in each queue
        self.of_group = [(i, min(self.group, size)) for i, size in enumerate(self.queue_room) if size]
        self.wanted: dict[tuple[tuple[int, ...], ...], list[tuple[list[int], int, int]]] = {}  # of uops met
        self.pending = [0] * len(number)  # entries of uops bound to each port that have not issued
        self.banked = [bool(core.schedulers[index].banks) for index in self.scheduler_of]
        self.last_bound = [0] * len(number)  # sequence number of the last one
        self.bindings = 0
        self.counted_at = -1  # the cycle of `counted`
        self.counted: list[int] = []

    def has_room_for_group(self) -> bool:
        """Whether a queue has room for all that one dispatch group could send to it; if not, nothing is dispatched."""
        for index, least in self.of_group:
            if self.queue_room[index] < least:
                return False
        return True

    def has_room(self, uops: tuple[tuple[int, ...], ...]) -> bool:
        """Whether all uops of an op can be taken; those of one wider than a scheduler when that is empty."""
        wanted = self.wanted.get(uops)
        if wanted is None:
            wanted = self.wanted[uops] = self._wanted(uops)
        for rooms, index, least in wanted:
            if rooms[index] < least:
                return False
        return True

    def _wanted(self, uops: tuple[tuple[int, ...], ...]) -> list[tuple[list[int], int, int]]:
        """Where the uops of an op want room, and how much, each place once."""
        found: dict[tuple[bool, int], tuple[list[int], int, int]] = {}
        for ports in uops:
            index, pool = self.scheduler_of[ports[0]], self.pool_of[ports[0]]
            scheduler = self.schedulers[index]
            least = min(len(uops), scheduler.queue or scheduler.size)
            rooms, place = (self.queue_room, index) if scheduler.queue else (self.room, pool)
            found[bool(scheduler.queue), place] = rooms, place, least
        return list(found.values())

    def _entries(self, port: int, cycles: int) -> int:
        """Entries that a uop takes which occupies its port for some cycles: one a cycle in a bank, else one."""
        return min(cycles, self.schedulers[self.scheduler_of[port]].size) if self.banked[port] else 1

    def send(self, waiter: Waiter, ports: tuple[int, ...], parity: int, cycle: int, cycles: int) -> int | None:
        """Take a uop from an even (0) or odd (1) place of a dispatch group, which will occupy its port for `cycles`.

        Its port, or None where it has to queue.
        """
        index, entries = self.scheduler_of[ports[0]], self._entries(ports[0], cycles)
        waits = self.schedulers[index].queue or self.queues[index]
        port = None if waits else self._port(ports, parity, cycle, entries)
        if port is None:
            self.queues[index].append((waiter, ports, parity, entries))
            self.queue_room[index] -= 1
        else:
            self._bind(port, entries)
        return port

    def enter(self, cycle: int) -> list[tuple[Waiter, int]]:
        """Move uops in order from the queues into the pools, as far as there is room: (waiter, port)."""
        found: list[tuple[Waiter, int]] = []
        for index, (queue, leaving) in self.ways:
            while leaving and leaving[0][0] <= cycle:
                _, pool, entries = leaving.popleft()
                self.room[pool] += entries
            while queue:
                waiter, ports, parity, entries = queue[0]
                port = self._port(ports, parity, cycle, entries)
                if port is None:
                    break
                queue.popleft()
                self.queue_room[index] += 1
                self._bind(port, entries)
                found.append((waiter, port))
        return found

    def issued(self, port: int, cycle: int, cycles: int) -> None:
        """A uop has left for its port, which it occupies for `cycles`; its entries may be held for some more."""
        index, pool, entries = self.scheduler_of[port], self.pool_of[port], self._entries(port, cycles)
        self.pending[port] -= entries
        self.waiting[pool] -= entries
        if held := self.schedulers[index].held_cycles:
            self.leaving[index].append((cycle + held, pool, entries))
        else:
            self.room[pool] += entries

    def next_room(self) -> list[int]:
        """The cycles in which held entries become free next."""
        return [leaving[0][0] for leaving in self.leaving if leaving]

    def _bind(self, port: int, entries: int) -> None:
        self.bindings += 1
        self.last_bound[port] = self.bindings
        self.pending[port] += entries
        self.waiting[self.pool_of[port]] += entries
        self.room[self.pool_of[port]] -= entries

    def _port(self, ports: tuple[int, ...], parity: int, cycle: int, entries: int) -> int | None:
        """The port for a uop that can go to one of `ports`; None where no pool has room."""
        if len(ports) == 1:
            return ports[0] if self.room[self.pool_of[ports[0]]] >= entries else None
        if self.banked[ports[0]]:
            return self._of_bank(ports, parity, cycle, entries)
        if not self.room[self.pool_of[ports[0]]]:
            return None
        if self.pairs:
            return self._of_pair(ports, parity, cycle)
        return min(ports, key=lambda port: (self.pending[port], port & 1 != parity, self.last_bound[port]))

    def _counts(self, cycle: int) -> list[int]:
        """What waits at each port when a cycle begins to bind: all that it binds goes by that."""
        if self.counted_at != cycle:
            self.counted_at, self.counted = cycle, self.pending.copy()
        return self.counted

    def _of_bank(self, ports: tuple[int, ...], parity: int, cycle: int, entries: int) -> int | None:
        """The bank in which less waits, of equal ones that of the place's parity; there the first port.

        Unless a later one, or one of the other bank, has far less: so a uop that every port could take is often bound
        to one that others need. That the place decides between equal banks is measured; that the rest is so, and the
        numbers, fit.
        """
        best, home, chosen, pool_of, room = 0, 0, None, self.pool_of, self.room
        counted = self._counts(cycle)
        for port in ports:
            pool = pool_of[port]
            if room[pool] < entries:
                continue
            weight = 2 * self.waiting[pool] + (self.parity_of[pool] != parity)
            if chosen is None or weight < best:
                best, home, chosen = weight, pool, port
            elif pool == home and counted[port] + FAR_FEWER <= counted[chosen]:
                chosen = port
        if chosen is None:
            return None
        most = counted[chosen] - FAR_FEWER_ACROSS
        for port in ports:
            if pool_of[port] != home and counted[port] <= most and room[pool_of[port]] >= entries:
                chosen, most = port, counted[port] - 1
        return chosen

    def _of_pair(self, ports: tuple[int, ...], parity: int, cycle: int) -> int:
        """Even places take the port with the fewest uops, odd ones the next; among equals the one with the last name.

        So A. Abel and J. Reineke found Intel's cores to do ("uiCA", ICS 2022); what a group binds counts from the next.
        """
        counted = self._counts(cycle)
        least = min(ports, key=lambda port: (counted[port], -port))
        if not parity:
            return least
        second = min((port for port in ports if port != least), key=lambda port: (counted[port], -port))
        return least if counted[second] >= counted[least] + FAR_MORE else second
