"""Meetings of loads and stores in memory, found ahead of a run: all that the core model asks of their addresses.

A load may lie in two lines, and read what a store before it wrote; a store may lie in two lines, or in the line of the
store before it. Where cores tell loads of one place from others, the place in a line counts, too. So of two runs of the
same ops whose loads and stores meet alike one is simulated, wherever their bytes lie.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.cpu.core_nodes import CoreNodes
from simdnn.timing.cpu.core_state import NOWHERE, UNPLACED
from simdnn.timing.translate import Ints

# Bits of an op's number: it loads from an address; its bytes lie in two lines; one store wrote all of them.
LOADS, CROSSES, WHOLE = 1, 2, 4
# Behind them: the line of its store, beside that of the store before; the place in its line of its load, where that
# matters; the age of the op whose store it reads from, and one.
AT_LINE, LINES = 3, 7
NO_LINE, OTHER_LINE, SAME_LINE, TWO_LINES, SAME_AND_OTHER = 0, 1, 2, 3, 4
AT_PLACE, PLACES = 6, 1023
AT_SOURCE = 16


class CoreMeetings(CoreNodes):
    """Walks over a stream in its order; stores that wrote lately are remembered by tensor."""

    commit_bytes: int  # what commits in a cycle lies in as many
    last_tensor: int  # of a store that none has joined yet
    last_line: int
    stores: Ints  # by tensor: how many were remembered, the last `store_queue` of them in
    stored_from: Ints
    stored_to: Ints
    stored_age: Ints

    def meet(self) -> int:
        """Find what each op of the stream meets; 1 where any has an address."""
        placed = 0
        for turn in range(self.total // self.size if self.size > 0 else 0):
            for position in range(self.size):
                age, met = turn * self.size + position, 0
                if self.load_at[position] != UNPLACED:
                    met = self.load_meets(position, self.load_at[position] + turn * self.load_step[position])
                if self.store_at[position] != UNPLACED:
                    first = self.store_at[position] + turn * self.store_step[position]
                    met += self.store_meets(position, first, age) << AT_LINE
                self.meets[age] = met
                placed |= met
        return placed

    def load_meets(self, position: int, first: int) -> int:
        """The bits of a load from an address on."""
        row = self.row_of[position]
        last, tensor, place = first + self.load_bytes[row], self.load_tensor[row], first % self.line_bytes
        met = LOADS
        if place + self.load_bytes[row] > self.line_bytes and self.is_tile[row] == 0:
            met |= CROSSES
        if self.places_matter != 0:
            met |= place << AT_PLACE
        for back in range(min(self.stores[tensor], self.store_queue)):
            at = tensor * self.store_queue + (self.stores[tensor] - 1 - back) % self.store_queue
            if self.stored_from[at] < last and first < self.stored_to[at]:
                if self.stored_from[at] <= first and last <= self.stored_to[at]:
                    met |= WHOLE
                return met | self.stored_age[at] + 1 << AT_SOURCE
        return met

    def store_meets(self, position: int, first: int, age: int) -> int:
        """The line of a store, or the piece of one that a core commits by (measured); its bytes are remembered."""
        row = self.row_of[position]
        tensor, line = self.store_tensor[row], first // self.commit_bytes
        last = line if self.is_tile[row] != 0 else (first + self.store_bytes[row] - 1) // self.commit_bytes
        joins = self.last_tensor == tensor and self.last_line == line
        halves = line != last and self.commit_bytes < self.line_bytes  # that are joined each by itself
        found = SAME_LINE if joins else OTHER_LINE
        if line != last:
            found = SAME_AND_OTHER if joins and halves else TWO_LINES
        if found == OTHER_LINE or halves:
            self.last_tensor = tensor
            self.last_line = last
        else:
            self.last_tensor = NOWHERE
        at = tensor * self.store_queue + self.stores[tensor] % self.store_queue
        self.stores[tensor] += 1
        self.stored_from[at] = first
        self.stored_to[at] = first + self.store_bytes[row]
        self.stored_age[at] = age
        return found
