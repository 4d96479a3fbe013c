"""A convolution as a GEMM: windows of the image as lines of memory, channels outside planes, rows, columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.problems import ConvProblem, Depth
from simdnn.kernels.x86.code import Unit, zero
from simdnn.kernels.x86.source import Source
from simdnn.program.records import Affine, Memory, Register, Tensor


@dataclass(frozen=True)
class WindowCopy(ABC):
    """A copy of an image's windows: element (n, d, y, x, g, k) is that of a line, one for each window and group."""

    source: Source
    problem: ConvProblem
    name: ClassVar[str] = "lines"  # of the tensor that holds it

    @property
    @abstractmethod
    def line(self) -> int:
        """Elements of a line, with what fills it up."""

    def tensor(self) -> Tensor:
        """The copy."""
        return Tensor(self.name, self.source.read, self.problem.mb * self.image, "scratch")

    @abstractmethod
    def stage(self, unit: Unit) -> Code:
        """The program's stage that fills it."""

    @property
    def taps(self) -> int:
        """Elements of a window."""
        p = self.problem
        return p.ic // p.groups * p.tap_rows * p.kw

    @property
    def pixel(self) -> int:
        return self.problem.groups * self.line

    @property
    def row(self) -> int:
        return self.problem.ow * self.pixel

    @property
    def plane(self) -> int:
        return self.problem.oh * self.row

    @property
    def image(self) -> int:
        return self.problem.od * self.plane

    def first(self) -> tuple[Affine, Affine]:
        """Where the first elements of a window and of its line are."""
        p, s = self.problem, self.source
        n, y, x, g = (Affine.var(name) for name in "nyxg")
        window = n * s.image + y * (p.strides[0] * s.row) + x * (p.strides[1] * s.pixel) + g * s.ic
        line = n * self.image + y * self.row + x * self.pixel + g * self.line
        if p.depth is None:
            return window, line
        d = Affine.var("d")
        return window + d * (p.depth.stride * s.plane), line + d * self.plane

    def each(self, body: Code) -> Code:
        """`body` for every window of every group."""
        p = self.problem
        planes = [("d", p.od)] if p.depth else []
        return nest([("n", p.mb), *planes, ("y", p.oh), ("x", p.ow), ("g", p.groups)], body, parallel=True)


@dataclass(frozen=True)
class Columns(WindowCopy):
    """Lines with channels outermost, cut in parts, each filled up with zeros."""

    part: int  # elements of a line after which another part starts
    depth: int  # the room of a part is a whole multiple of this
    name: ClassVar[str] = "columns"

    @staticmethod
    def of(source: Source, problem: ConvProblem, part: int, depth: int) -> Columns:
        """Windows in parts of up to `part`, 0 for one."""
        whole = Columns(source, problem, 0, depth)
        return replace(whole, part=min(part or whole.taps, whole.taps))

    @property
    def padded(self) -> int:
        """The room that each part but the last takes."""
        return -(-self.part // self.depth) * self.depth

    @property
    def line(self) -> int:
        whole, rest = divmod(self.taps, self.part)
        return whole * self.padded + -(-rest // self.depth) * self.depth

    def stage(self, unit: Unit) -> Code:
        """One element at a time, of 8 or 16 bits masked."""
        p, s, kind = self.problem, self.source, f"u{fmt(self.source.read).bits}"
        deep = p.depth or Depth(1, 1)
        k, taps = self.taps, p.tap_rows * p.kw
        single = kind == "u32"
        move = "vmovd" if single else f"vmovdq{kind}"
        value, nothing = (Register(name, kind, 4) if single else unit.reg(name, kind) for name in "mz")
        c, z, u, w = (Affine.var(name) for name in "czuw")
        window, line = self.first()
        body: Code = [zero(nothing)]
        for number, first in enumerate(range(0, k, self.part)):
            last = min(first + self.part, k)
            at = line + (number * self.padded - first)
            for start, (channels, planes, rows, columns) in pieces(first, last, (deep.k, p.kh, p.kw)):
                channel, row, column = start // taps, start // p.kw % p.kh, start % p.kw
                tap = (u + row) * (p.dilation[0] * s.row) + (w + column) * (p.dilation[1] * s.pixel)
                tap = tap + (z + start // (p.kh * p.kw) % deep.k) * (deep.dilation * s.plane)
                stored = at + start + c * taps + z * (p.kh * p.kw) + u * p.kw + w
                copy: Code = [
                    op(move, value, Memory(s.tensor, window + tap + c + channel, kind, 1)),
                    op(move, Memory(self.name, stored, kind, 1), value),
                ]
                body += loop("c", channels, loop("z", planes, loop("u", rows, loop("w", columns, copy))))
            end = self.line - number * self.padded if last == k else self.padded
            for i in range(last - first, end):
                place = Memory(self.name, line + (number * self.padded + i), kind, 1)
                body.append(op(move, place, nothing))
        return self.each(body)

    def weights(self, weights: Array) -> Array:
        """goihw weights as lines of one tap, in the same parts."""
        groups, oc = weights.shape[:2]
        flat = weights.reshape(groups, oc, -1)
        lines = np.zeros((groups, oc, self.line), weights.dtype)
        for number, first in enumerate(range(0, flat.shape[2], self.part)):
            some = flat[:, :, first : first + self.part]
            lines[:, :, number * self.padded : number * self.padded + some.shape[2]] = some
        return lines[..., None, None]


def pieces(first: int, last: int, inner: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Elements `first` to `last` of rows of an array as boxes, as few as there can be: (start, extents).

    `inner` has the extents of the dimensions inside the outermost, which has no end.

    >>> list(pieces(5, 20, (2, 3)))
    [(5, (1, 1, 1)), (6, (2, 2, 3)), (18, (1, 1, 2))]
    """
    steps = [math.prod(inner[at:]) for at in range(len(inner) + 1)]  # of each dimension, in elements
    while first < last:
        level = next(at for at, step in enumerate(steps) if first % step == 0 and last - first >= step)
        count = (last - first) // steps[level]
        if level:
            count = min(count, inner[level - 1] - first // steps[level] % inner[level - 1])
        yield first, ((1,) * level + (count,) + inner[level:])
        first += count * steps[level]
