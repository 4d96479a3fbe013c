"""Which cycles an operation takes longer for its operands: where they come from, and in which dispatch group.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from isa_models.machines.core_record import NEUTRAL, OF_PRODUCTS
from simdnn.timing.cpu.core_memory import CoreMemory
from simdnn.timing.cpu.core_state import COMMIT, LOAD, NODES, NOWHERE, OPERATION
from simdnn.timing.cpu.schedulers import NO_PORT


class CoreOperands(CoreMemory):
    """The registers that an operation waits for, one by one."""

    def read_flags(self, row: int, node: int) -> None:
        """Let an operation take a cycle longer whose flags come from its own dispatch group, of some instructions
        (measured on a Redwood Cove, by places).
        """
        end = self.first_read[row] + self.reads[row]
        for at in range(end - self.flags[row], end):
            producer = self.value_of[self.registers[at]]
            if producer != NOWHERE and self.late_flags[self.row(producer)] != 0:
                if self.dispatched_at[producer // NODES] == self.cycle:
                    self.longer[node] = max(self.longer[node], 1.0)

    def crossing(self, row: int, node: int, producer: int) -> float:
        """Cycles that an operation takes longer for an operand from another kind of unit (measured)."""
        kinds = self.hindered[row] & self.yields[self.row(producer)]
        if kinds == 0:
            return 0.0
        port, other = self.sent_to[node], self.sent_to[producer]
        if self.bypass_wide[row] != 0:
            if port == other:
                return 0.0
            if port < other and self.hindered[row] & OF_PRODUCTS != 0:
                return float(self.bypass_back)
            return float(self.bypass)
        if kinds == OF_PRODUCTS and self.is_bypassed[port] == 0 or kinds == NEUTRAL and self.is_bypassed[other] == 0:
            return 0.0
        return float(self.bypass)

    def await_operands(self, row: int, node: int, read: int) -> None:
        """Let an operation wait for the registers that it reads and for what it loads itself.

        The cycles that it takes longer for its operands are in a load's way, too (measured on a Redwood Cove), so a
        load's result comes earlier by as many.
        """
        first, end, own = self.first_read[row], self.first_read[row] + self.reads[row], self.longer[node]
        for at in range(first, end):
            self.hinder(row, node, self.value_of[self.registers[at]])
        if self.accumulator[row] != NOWHERE:
            self.hinder(row, node, self.value_of[self.accumulator[row]])
        spared = self.longer[node] - own
        if read != NOWHERE:
            self.depend(node, read, spared)
        for at in range(first, end):
            self.operand(row, node, self.value_of[self.registers[at]], 0.0, spared)
        if self.accumulator[row] != NOWHERE and self.merges_late(row) == 0:
            self.operand(row, node, self.value_of[self.accumulator[row]], self.gain[row], spared)
        if self.flags[row] > 0:
            self.read_flags(row, node)

    def merges_late(self, row: int) -> int:
        """Whether the last uops of an operation alone wait for what its destination held, as a gather's do that comes
        from microcode (measured on a Zen 3).
        """
        if self.accumulator[row] == NOWHERE or self.microcode == 0 or self.slots[row] < self.microcode:
            return 0
        return 1 if self.gain[row] > 0 else 0

    def merged(self, row: int, node: int) -> int:
        """The result of such an operation: its elements, and what its destination held, whichever is there later."""
        result = node - OPERATION + COMMIT
        self.start_node(result)
        self.sent_to[result] = self.sent_to[node]
        self.depend(result, node, 0.0)
        held = self.value_of[self.accumulator[row]]
        if held != NOWHERE:
            later = self.crossing(row, node, held) if self.bypass_by_operand != 0 else 0.0
            self.depend(result, held, self.gain[row] - self.latency[row] - later)
        if self.waits[result] == 0:
            self.done[result] = self.ready[result]
        return result

    def hinder(self, row: int, node: int, producer: int) -> None:
        """Let an operation take longer behind results of another kind of unit, or late ones, whichever operand
        they are (measured).
        """
        if producer == NOWHERE or self.uops[row] == 0:
            return
        if self.late_result[row] == 0:
            self.longer[node] = max(self.longer[node], self.late_result[self.row(producer)])
        if self.bypass_by_operand == 0:
            self.longer[node] = max(self.longer[node], self.crossing(row, node, producer))

    def operand(self, row: int, node: int, producer: int, gain: float, spared: float) -> None:
        """Let an operation wait for the last writer of a register, longer where that is the other of two wide units;
        `spared`: the cycles by which a load's result comes earlier.
        """
        if producer == NOWHERE:
            return
        if producer % NODES == LOAD:
            gain += spared
        if self.uops[row] == 0:
            gain -= self.late_stored[self.row(producer)]  # of a store, whose data come later
        if self.bypass_by_operand != 0:
            gain -= self.crossing(row, node, producer)
        own, other = self.unit[node], self.unit[producer]
        if own > other and other != NO_PORT:  # the units are numbered in their order
            gain -= self.from_other_unit[row]
        self.depend(node, producer, gain)
