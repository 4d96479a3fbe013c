"""Windows of an image as lines of runs that are cut in steps, each filled up with zeros.

A library that takes few elements at a time, where their number divides by no more, starts a dot product at each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop
from simdnn.kernels.common.problems import Depth
from simdnn.kernels.x86.code import Unit, fill_zero, zero
from simdnn.kernels.x86.columns import WindowCopy
from simdnn.kernels.x86.lines import copied
from simdnn.program.records import Affine


@dataclass(frozen=True)
class RunLines(WindowCopy):
    """Lines block by block; within a block planes, rows and columns outside, the steps of a run inside.

    A run has the channels of `together` neighbouring columns of a kernel row, or with 0 of all taps, column by column.
    `blocks`: the elements of a run that each block takes, and those of its steps.
    """

    together: int
    blocks: tuple[tuple[int, int], ...]
    depth: int  # elements that a step has room for

    @property
    def runs(self) -> int:
        """Runs of a window."""
        p = self.problem
        return p.tap_rows * p.kw // self.together if self.together else 1

    @property
    def line(self) -> int:
        return sum(self.room(elements, step) for elements, step in self.blocks)

    def room(self, elements: int, step: int) -> int:
        """Elements of a line that a block takes."""
        return self.runs * -(-elements // step) * self.depth

    def stage(self, unit: Unit) -> Code:
        """The copy of a window: zeros, then each step over them."""
        p, s, n = self.problem, self.source, self.together
        z, u, w = (Affine.var(name) for name in "zuw")
        deep, columns = p.depth or Depth(1, 1), p.kw // n if n else 1
        window, line = self.first()
        window = (
            window + z * (deep.dilation * s.plane) + u * (p.dilation[0] * s.row) + w * (n * p.dilation[1] * s.pixel)
        )
        body = [zero(unit.reg("z")), *fill_zero(unit, "lines", s.read, line, self.line, "f", "z")]
        rows, planes = (p.kh, deep.k) if n else (1, 1)
        first = 0
        for elements, step in self.blocks:
            room = -(-elements // step) * self.depth
            at = line + (z * (rows * columns) + u * columns + w) * room
            code: Code = []
            for stored, begin, count in self.pieces(first, elements):
                code += self.moved(unit, window + stored, (at, begin), count, step)
            body += loop("z", planes, loop("u", rows, loop("w", columns, code)))
            line, first = line + self.room(elements, step), first + elements
        return self.each(body)

    def pieces(self, first: int, count: int) -> list[tuple[int, int, int]]:
        """`count` elements of a run from `first` on as pieces that lie in a row: distance in the source from where the
        run begins, element of the block, how many.
        """
        p, s = self.problem, self.source
        if self.together == 1 or self.together and p.groups == 1:
            return [(first, 0, count)]
        rows = 1 if self.together else p.kh
        taps = range((self.together or p.kw) * rows)
        return [(tap // rows * s.pixel + tap % rows * s.row, tap * s.ic, s.ic) for tap in taps]

    def moved(self, unit: Unit, stored: Affine, to: tuple[Affine, int], count: int, step: int) -> Code:
        """Neighbouring elements of a run to where their steps lie: `to` has the block's place and the first element."""
        line, begin = to
        kind, tensor = f"u{fmt(self.source.read).bits}", self.source.tensor

        def piece(at: int, place: int, some: int) -> Code:
            return copied(unit, kind, (tensor, stored + at), ("lines", line + place), some)

        if begin == 0:
            k, (whole, rest) = Affine.var("k"), divmod(count, step)
            code = loop(
                "k", whole, copied(unit, kind, (tensor, stored + k * step), ("lines", line + k * self.depth), step)
            )
            return code + (piece(whole * step, whole * self.depth, rest) if rest else [])
        code, at = [], 0
        while at < count:
            number, inside = divmod(begin + at, step)
            some = min(step - inside, count - at)
            code += piece(at, number * self.depth + inside, some)
            at += some
        return code

    def weights(self, weights: Array) -> Array:
        """goihw weights as lines of one tap."""
        groups, oc, ic, rows, kw = weights.shape
        n = self.together
        if n:
            split = weights.reshape(groups, oc, ic, rows, kw // n, n).transpose(0, 1, 3, 4, 5, 2)
        else:
            split = weights.transpose(0, 1, 4, 3, 2)
        split = split.reshape(groups, oc, self.runs, -1)
        first, lines = 0, list[Array]()
        for elements, step in self.blocks:
            count = -(-elements // step)
            steps = np.zeros((groups, oc, self.runs, count * step), weights.dtype)
            steps[..., :elements] = split[..., first : first + elements]
            filled = np.zeros((groups, oc, self.runs, count, self.depth), weights.dtype)
            filled[..., :step] = steps.reshape(groups, oc, self.runs, count, step)
            lines.append(filled.reshape(groups, oc, -1))
            first += elements
        return np.concatenate(lines, 2)[..., None, None]
