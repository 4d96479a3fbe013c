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
    def of(ops: Sequence[Op]) -> RegisterUse:
        """The registers of ops that are sound."""
        use = RegisterUse({}, {}, {})
        for op in ops:
            for place in op.srcs:
                if type(place) is Register and place.name not in use.leaves and not op.form.is_zero_idiom:
                    use.needs[place.name] = max(place.bits, use.needs.get(place.name, 0))
            if type(op.dst) is Register:
                name, bits = op.dst.name, op.dst.bits
                use.leaves[name] = bits
                if name not in TILES and not op.form.definition.ahead:
                    use.widest[name] = max(bits, use.widest.get(name, 0))
        return use
