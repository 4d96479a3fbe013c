"""Tiles on their way to and from memory, a row each: their share of what is moved, and how long loads of them take."""

from __future__ import annotations

from isa_models.instruction import TILE_ROWS
from isa_models.machines.cpu_record import Machine
from isa_models.machines.instruction_row import InstructionTiming
from simdnn.program.records import Program
from simdnn.timing.cpu.stream import Stream, form, mnemonic


class TileRows:
    """The tiles that a program loads and stores on a machine."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program, self.machine = program, machine

    @property
    def share(self) -> float:
        """Which part of the bytes that a program loads and stores goes to and from tiles."""
        bytes_ = {True: 0, False: 0}
        for ops, times in self.program.straight:
            for memory, _, op, constants, _ in ops.alike:
                bytes_[op.definition.tile] += times * memory.bits * len(constants)
        return bytes_[True] / max(1, sum(bytes_.values()))

    @property
    def loading(self) -> float:
        """Cycles that loads of tiles take one after the other."""
        cycles, stream, rows = 0.0, Stream(self.program), dict[int, InstructionTiming | None]()
        for op, times in self.program.ops():
            if op.definition.tile and op.memory is not None and op.memory is not op.dst:
                number = op.form.number
                if number not in rows:  # bytes may be asked of a machine without tiles
                    rows[number] = self.machine.instructions.get((mnemonic(op), form(op)))
                row = rows[number]
                longer = self.machine.core.tile_crossing.longer(stream.crossing(op), op.definition.apart, stream.others)
                cycles += times * (row.occupancy * op.memory.rows / TILE_ROWS + longer) if row else 0.0
        return cycles
