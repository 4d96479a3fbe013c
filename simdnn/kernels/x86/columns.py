"""A convolution as a GEMM: windows of the image as lines of memory, channels outermost, rows and columns inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import ConvProblem
from simdnn.kernels.x86.code import Unit, zero
from simdnn.kernels.x86.source import Source
from simdnn.program.records import Affine, Memory, Tensor


@dataclass(frozen=True)
class Columns:
    """The copy of the windows: element (n, y, x, g, k). A line is cut in parts, each filled up with zeros."""

    source: Source
    problem: ConvProblem
    part: int  # elements of a line after which another part starts
    padded: int  # and the room that each but the last takes
    line: int  # elements of a line, padded

    @staticmethod
    def of(source: Source, problem: ConvProblem, part: int, depth: int) -> Columns:
        """Windows in parts of up to `part`, which are filled up to whole multiples of `depth`."""
        k = problem.ic // problem.groups * problem.kh * problem.kw
        part = min(part or k, k)
        whole, rest = divmod(k, part)
        padded = -(-part // depth) * depth
        return Columns(source, problem, part, padded, whole * padded + -(-rest // depth) * depth)

    @property
    def pixel(self) -> int:
        return self.problem.groups * self.line

    @property
    def row(self) -> int:
        return self.problem.ow * self.pixel

    @property
    def image(self) -> int:
        return self.problem.oh * self.row

    def tensor(self) -> Tensor:
        return Tensor("columns", self.source.read, self.problem.mb * self.image, "scratch")

    def stage(self, unit: Unit) -> Code:
        """One masked element at a time."""
        p, s, kind = self.problem, self.source, f"u{fmt(self.source.read).bits}"
        k, taps = p.ic // p.groups * p.kh * p.kw, p.kh * p.kw
        value, nothing = unit.reg("m", kind), unit.reg("z", kind)
        n, y, x, g, c, u, w = (Affine.var(name) for name in "nyxgcuw")
        window = n * s.image + y * (p.strides[0] * s.row) + x * (p.strides[1] * s.pixel) + g * s.ic
        line = n * self.image + y * self.row + x * self.pixel + g * self.line
        body: Code = [zero(nothing)]
        for number, first in enumerate(range(0, k, self.part)):
            last = min(first + self.part, k)
            at = line + (number * self.padded - first)
            for start, (channels, rows, columns) in pieces(first, last, p.kh, p.kw):
                channel, row, column = start // taps, start // p.kw % p.kh, start % p.kw
                tap = (u + row) * (p.dilation[0] * s.row) + (w + column) * (p.dilation[1] * s.pixel)
                copy: Code = [
                    op(f"vmovdq{kind}", value, Memory(s.tensor, window + tap + c + channel, kind, 1)),
                    op(f"vmovdq{kind}", Memory("columns", at + start + c * taps + u * p.kw + w, kind, 1), value),
                ]
                body += loop("c", channels, loop("u", rows, loop("w", columns, copy)))
            end = self.line - number * self.padded if last == k else self.padded
            for i in range(last - first, end):
                place = Memory("columns", line + (number * self.padded + i), kind, 1)
                body.append(op(f"vmovdq{kind}", place, nothing))
        for var, extent in (("g", p.groups), ("x", p.ow), ("y", p.oh), ("n", p.mb)):
            body = loop(var, extent, body, parallel=True)
        return body

    def weights(self, weights: Array) -> Array:
        """goihw weights as lines of one tap, in the same parts."""
        groups, oc = weights.shape[:2]
        flat = weights.reshape(groups, oc, -1)
        lines = np.zeros((groups, oc, self.line), weights.dtype)
        for number, first in enumerate(range(0, flat.shape[2], self.part)):
            some = flat[:, :, first : first + self.part]
            lines[:, :, number * self.padded : number * self.padded + some.shape[2]] = some
        return lines[..., None, None]


def pieces(first: int, last: int, kh: int, kw: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Elements `first` to `last` of a window as boxes of whole channels, of whole rows, of columns: (start, extents).

    >>> list(pieces(5, 20, 2, 3))
    [(5, (1, 1, 1)), (6, (2, 2, 3)), (18, (1, 1, 2))]
    """
    while first < last:
        channels = (last - first) // (kh * kw) if first % (kh * kw) == 0 else 0
        rows = min((last - first) // kw, kh - first // kw % kh) if first % kw == 0 else 0
        box = (channels, kh, kw) if channels else (1, rows, kw) if rows else (1, 1, min(last - first, kw - first % kw))
        yield first, box
        first += box[0] * box[1] * box[2]
