"""The registers that straight code asks for and leaves, alike in tiles of many shapes, whose addresses alone differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simdnn.program.records import Op
from simdnn.program.tiles import TILES


@dataclass(frozen=True)
class RegisterUse:
    """Registers that straight code asks for and leaves, by name, in bits."""

    needs: dict[str, int]  # read before they are written
    leaves: dict[str, int]  # as last written
    #: the most that is written; of tiles nothing, which are registers of their own, nor where no value comes
    widest: dict[str, int]

    @staticmethod
    def of(ops: Sequence[Op]) -> RegisterUse | None:
        """The registers of ops whose forms are sound; None where one reads more than another left, or has no name."""
        use = RegisterUse({}, {}, {})
        needs, leaves, widest = use.needs, use.leaves, use.widest
        for op in ops:
            reads, written, bits = op.form.registers
            for name, asked in reads:
                left = leaves.get(name)
                if left is None:
                    if needs.get(name, 0) < asked:
                        needs[name] = asked
                elif left < asked:
                    return None
            if written is not None:
                leaves[written] = bits
                if widest.get(written, 0) < bits and written not in TILES and not op.form.definition.ahead:
                    widest[written] = bits
        return use if all([name.isidentifier() for name in leaves]) else None
