"""Several products of one size in one kernel: loops over them, and where each tensor's parts lie.

A tensor holds its products one behind the other. One that does not move with a loop has one product for all its turns:
operands that broadcast, and parameters that all products share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.program.records import Affine, Program

LOOP = "group_b"
#: tensors that follow an operand's products, and not all of them, or none as parameters do that all share
SIDES = dict.fromkeys(("src", "codes", "matrix", "vector", "reductions"), "src") | dict.fromkeys(
    ("wei", "neg_sums", "comp", "terms", "group_comp"), "wei"
)


@dataclass(frozen=True)
class Batch:
    """Extents of the loops over products, from the outside in, and with which of them each operand moves.

    `grouped`: the products are groups of a convolution, whose parameters by column are each one's own.

    >>> heads = Batch.of((2, 12), (2, 1))  # twelve heads share a matrix of weights
    >>> str(heads), heads.count, heads.products("wei"), heads.products("columns")
    ('2x12:2x1', 24, 2, 1)
    >>> Batch.of((2, 3), (2, 3)).extents, Batch.of((), (1,)).extents  # neighbours that move alike are one loop
    ((6,), ())
    """

    extents: tuple[int, ...] = ()
    src: tuple[bool, ...] = ()
    wei: tuple[bool, ...] = ()
    grouped: bool = False

    @staticmethod
    def of(src: Sequence[int], wei: Sequence[int]) -> Batch:
        """The batch of two operands, from their sizes in front of rows and columns, which broadcast."""
        loops: list[tuple[int, bool, bool]] = []
        for size, *moves in _aligned(src, wei):
            if size > 1 and loops and list(loops[-1][1:]) == moves:
                size *= loops.pop()[0]
            loops += [(size, moves[0], moves[1])] if size > 1 else []
        return Batch(tuple(n for n, _, _ in loops), tuple(a for _, a, _ in loops), tuple(b for _, _, b in loops))

    @staticmethod
    def groups(count: int) -> Batch:
        """Groups of a convolution."""
        return Batch((count,), (True,), (True,), grouped=True) if count > 1 else Batch()

    @property
    def count(self) -> int:
        return prod(self.extents)

    def moves(self, side: str) -> tuple[bool, ...]:
        """Whether each loop moves along "src", "wei", "dst", or the tables by "columns" or by "rows"."""
        if side in ("src", "wei"):
            return self.src if side == "src" else self.wei
        return (side == "dst" or side == "columns" and self.grouped,) * len(self.extents)

    def products(self, side: str = "dst") -> int:
        """How many products a side holds."""
        return self.turns(self.moves(side))

    def turns(self, moves: Sequence[bool]) -> int:
        """How many different turns there are of what changes with the loops that move."""
        return prod(n for n, moving in zip(self.extents, moves, strict=True) if moving)

    def at(self, side: str = "dst") -> Affine:
        """Which of a side's products a turn of the loops meets."""
        return self.place(self.moves(side))

    def place(self, moves: Sequence[bool]) -> Affine:
        """Which product a turn of the loops meets, of those that lie behind each other for the loops that move."""
        place, step = Affine(), 1
        for number in reversed(range(len(self.extents))):
            if moves[number]:
                place = place + Affine.var(self.loops[number]) * step
                step *= self.extents[number]
        return place

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops' variables, outermost first."""
        return tuple(f"{LOOP}{number or ''}" for number in range(len(self.extents)))

    def parts(self, side: str) -> list[int]:
        """For each turn, in order, which of a side's products it meets."""
        own = [n if moves else 1 for n, moves in zip(self.extents, self.moves(side), strict=True)]
        numbers = np.arange(prod(own)).reshape(own)
        return [int(n) for n in np.broadcast_to(numbers, self.extents).reshape(-1)]

    @property
    def sides(self) -> tuple[str, str]:
        """The sizes of the source and of the weights in front of rows and columns: "2x1" and "2x3"."""
        src, wei = (
            "x".join(str(n if moves else 1) for n, moves in zip(self.extents, side, strict=True))
            for side in (self.src, self.wei)
        )
        return src, wei

    def __str__(self) -> str:
        """A batch in bench's syntax, source before weights ("2x1:2x3"); "" where there is none."""
        return ":".join(self.sides) if self.extents else ""


def _aligned(src: Sequence[int], wei: Sequence[int]) -> Iterable[tuple[int, bool, bool]]:
    """For each dimension its extent, and whether the source and the weights have it."""
    count = max(len(src), len(wei))
    full = [(1,) * (count - len(side)) + tuple(side) for side in (src, wei)]
    return [(max(a, b), a > 1, b > 1) for a, b in zip(*full, strict=True)]


def joined(
    parts: Sequence[Mapping[str, Array]], batch: Batch, program: Program, sides: Mapping[str, str] = SIDES
) -> dict[str, Array]:
    """A program's inputs from those of each product alone: one behind the other, each as often as its tensor has it.

    `sides` tells whose products a tensor follows, where those are not all of the batch.
    """
    found = {}
    for name, first in parts[0].items():
        count = program.tensor[name].size // first.size
        if count == 1:
            found[name] = first
            continue
        numbers = batch.parts(sides.get(name, "dst"))
        turns = [numbers.index(n) for n in range(count)]
        found[name] = np.concatenate([parts[turn][name] for turn in turns])
    return found
