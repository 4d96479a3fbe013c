"""Straight code: the ops between two loops, which tiles of many shapes have in common but for their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from simdnn.program.records import Loop, Op, Register, Statement
from simdnn.program.tiles import TILES


def parts(body: Sequence[Statement]) -> Iterator[tuple[Op, ...] | Loop]:
    """The loops of a body, and the ops in a row between them."""
    for kind, statements in groupby(body, type):
        if kind is Loop:
            yield from statements  # type: ignore[misc]  # loops
        else:
            yield tuple(statements)  # type: ignore[arg-type]  # ops


def forms_of(ops: Sequence[Op]) -> tuple[int, ...]:
    """The numbers of ops' forms: equal for straight code that differs in addresses alone."""
    return tuple([op.form.number for op in ops])


@dataclass(frozen=True)
class RegisterUse:
    """Registers that straight code asks for and leaves, by name, in bits."""

    needs: dict[str, int]  # read before they are written
    leaves: dict[str, int]  # as last written
    widest: dict[str, int]  # the most that is written; of tiles nothing, which are registers of their own

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
                if name not in TILES:
                    use.widest[name] = max(bits, use.widest.get(name, 0))
        return use
