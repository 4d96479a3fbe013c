"""Room for a dispatch group and its ops: slots, registers, places in the queues and in the schedulers.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.cpu.core_state import NOWHERE
from simdnn.timing.cpu.dealing import Dealing


class GroupRoom(Dealing):
    """Room for the group that comes next; some cores ask for all of it, and wait with the group as a whole."""

    def least_left(self, row: int) -> int:
        """Slots that a group must have left for an op to come into it: all that it takes, a whole group for microcode.

        Measured on a Zen 4; cores without `microcode` split ops over groups.
        """
        if self.microcode == 0:
            return 1
        return self.dispatch_slots if self.slots[row] >= self.microcode else min(self.slots[row], self.dispatch_slots)

    def has_registers_for_group(self) -> int:
        """Whether masks and vectors that the next group makes find registers; it waits as a whole (read on a Zen 4)."""
        masks, vectors, slots = self.mask_room, self.vector_room, self.dispatch_slots
        if min(masks, vectors) >= slots or self.ages == self.retired:
            return 1
        slots, age = slots + self.partial, self.ages
        while age < self.total:
            row = self.row_of[age % self.size]
            masks -= self.masks[row]
            vectors -= self.vectors[row]
            slots -= self.slots[row]
            if slots < 0:
                return 1
            if min(masks, vectors) < 0:
                return 0
            age += 1
        return 1

    def has_store_queue_for_group(self) -> int:
        """Whether the stores of the next group find places in the queue, where groups wait as a whole."""
        if self.by_lanes == 0 or self.store_room >= self.dispatch_slots:
            return 1
        stores, slots, age = self.store_room, self.dispatch_slots + self.partial, self.ages
        while age < self.total:
            row = self.row_of[age % self.size]
            slots -= self.slots[row]
            if slots < 0:
                return 1
            if self.store_tensor[row] != NOWHERE:
                stores -= self.store_entries[row]
            if stores < 0:
                return 0
            age += 1
        return 1

    def can_take(self, row: int) -> int:
        """Whether reorder buffer, load and store queue, and the schedulers can take an op."""
        if self.rob_room < min(self.slots[row], self.dispatch_slots) and self.retired < self.ages:
            return 0
        if self.load_tensor[row] != NOWHERE and self.load_room == 0:
            return 0
        if self.store_tensor[row] != NOWHERE and self.store_room < self.store_entries[row]:
            return 0
        return self.has_room(self.first_wanted[row], self.wanted[row])
