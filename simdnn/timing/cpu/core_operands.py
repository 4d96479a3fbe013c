"""Which cycles an operation takes longer for its operands: where they come from, and in which dispatch group.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from isa_models.machines.core_record import OF_PRODUCTS
from simdnn.timing.cpu.core_memory import CoreMemory
from simdnn.timing.cpu.core_state import NODES, NOWHERE
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
        """Cycles that an operation takes longer for an operand that comes from another kind of unit (measured)."""
        port, other = self.sent_to[node], self.sent_to[producer]
        if self.bypass_wide[row] != 0:
            if port == other:
                return 0.0
            return float(self.bypass_back) if self.hindered[row] == OF_PRODUCTS and port < other else float(self.bypass)
        if self.hindered[row] == OF_PRODUCTS and self.is_bypassed[port] == 0:
            return 0.0
        return float(self.bypass)

    def operand(self, row: int, node: int, producer: int, gain: float) -> None:
        """Let an operation wait for the last writer of a register, longer where that is the other of two wide units; of
        one whose result comes late to others it takes longer itself, whichever operand it waits for (measured).
        """
        if producer == NOWHERE:
            return
        if self.late_result[row] == 0:
            late = self.late_result[self.row(producer)]
            if self.uops[row] > 0:
                self.longer[node] = max(self.longer[node], late)
            else:
                gain -= late  # of a store, whose data come later
        if self.hindered[row] & self.yields[self.row(producer)] != 0:
            self.longer[node] = max(self.longer[node], self.crossing(row, node, producer))
        own, other = self.unit[node], self.unit[producer]
        if own > other and other != NO_PORT:  # the units are numbered in their order
            self.depend(node, producer, gain - self.from_other_unit[row])
        else:
            self.depend(node, producer, gain)
