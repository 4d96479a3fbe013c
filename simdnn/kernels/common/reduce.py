"""Reductions as problems: sums, extremes and products along some dimensions of an array.

CPUs and GPUs have a generator each (`simdnn.kernels.x86.reduce`, `simdnn.kernels.gpu.reduce`): four accumulators and a
tail there; filled lines, one accumulator a thread and a second kernel for long lines here. One form would be both, one
after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from simdnn.kernels.common.vocabulary import Spread, Vocabulary

#: kind -> (what nothing yields, the step that takes one more element, the one that makes one of two results)
KINDS = {
    "sum": (0.0, "add", "add"),
    "sum_square": (0.0, "fma", "add"),
    "sum_abs": (0.0, "add", "add"),
    "max": (-inf, "max", "max"),
    "min": (inf, "min", "min"),
    "prod": (1.0, "mul", "mul"),
}


@dataclass(frozen=True)
class ReduceProblem:
    """dst[kept …] = kind of src over the dimensions that `reduced` marks, divided by `divisor` where that is not 1.

    src and dst are contiguous. Neighbouring dimensions of one kind should have been made one (`merge`).

    `order`: how a CPU shares a line that is reduced among four accumulators of lanes, (c0 + c1) + (c2 + c3) at its end:
    "turns", the registers of a line in turn and what fills none to the last; "turns, rest first", that to c0; "rounds",
    whole rounds of four in turn, (c0 + c2) + (c1 + c3), then all else onto c0, one after the other. "register": all
    onto one register, whose lanes then are joined (`simdnn.kernels.x86.line_sums`). "chain": element after element,
    onto one.
    """

    kind: str
    dims: tuple[int, ...]
    reduced: tuple[bool, ...]
    src: str
    dst: str
    divisor: int = 1
    order: str = "turns"

    @property
    def size(self) -> int:
        """Elements of dst."""
        return prod(n for n, r in zip(self.dims, self.reduced, strict=True) if not r)

    @property
    def empty(self) -> float:
        """The value of a reduction over nothing."""
        return KINDS[self.kind][0]

    @property
    def step(self) -> str:
        """The step that takes one more element."""
        return KINDS[self.kind][1]

    @property
    def joint(self) -> str:
        """The step that makes one of two partial results."""
        return KINDS[self.kind][2]


def merge(shape: tuple[int, ...], axes: frozenset[int]) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Dimensions with neighbours of one kind made one, and which of them are reduced.

    >>> merge((2, 3, 4, 5), frozenset({2, 3}))
    ((6, 20), (False, True))
    """
    dims: list[int] = []
    reduced: list[bool] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if reduced and reduced[-1] == (axis in axes):
            dims[-1] *= size
        else:
            dims.append(size)
            reduced.append(axis in axes)
    return (tuple(dims), tuple(reduced)) if dims else ((1,), (True,))


def reduction(p: ReduceProblem, words: Vocabulary) -> Spread:
    """Input src, output dst: by the target's own generator.

    Raises `Unimplemented` for types, and on GPUs for numbers of reduced dimensions, that it does not take.
    """
    return words.reduction(p)
