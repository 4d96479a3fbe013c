"""The registers that straight code asks for and leaves, alike in tiles of many shapes, whose addresses alone differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simdnn.program.records import Op, Register
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
            for place in op.srcs:
                if type(place) is not Register:
                    continue
                left, bits = leaves.get(place.name), place.bits
                if left is not None and left >= bits or op.form.is_zero_idiom:
                    continue
                if left is not None:
                    return None
                needs[place.name] = max(bits, needs.get(place.name, 0))
            if type(op.dst) is Register:
                name, bits = op.dst.name, op.dst.bits
                leaves[name] = bits
                if name not in TILES and not op.form.definition.ahead:
                    widest[name] = max(bits, widest.get(name, 0))
        return use if all([name.isidentifier() for name in leaves]) else None
