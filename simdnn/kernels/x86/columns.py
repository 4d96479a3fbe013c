"""A convolution as a GEMM: windows of the image as lines of memory, channels outermost, rows and columns inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.spec import ConvProblem
from simdnn.kernels.x86.code import Unit, zero
from simdnn.kernels.x86.source import Source
from simdnn.program.records import Affine, Memory, Register, Tensor


@dataclass(frozen=True)
class WindowCopy(ABC):
    """A copy of an image's windows: element (n, y, x, g, k) is that of a line, one for each window and group."""

    source: Source
    problem: ConvProblem

    @property
    @abstractmethod
    def line(self) -> int:
        """Elements of a line, with what fills it up."""

    @property
    def taps(self) -> int:
        """Elements of a window."""
        p = self.problem
        return p.ic // p.groups * p.kh * p.kw

    @property
    def pixel(self) -> int:
        return self.problem.groups * self.line

    @property
    def row(self) -> int:
        return self.problem.ow * self.pixel

    @property
    def image(self) -> int:
        return self.problem.oh * self.row

    def first(self) -> tuple[Affine, Affine]:
        """Where the first elements of a window and of its line are."""
        p, s = self.problem, self.source
        n, y, x, g = (Affine.var(name) for name in "nyxg")
        window = n * s.image + y * (p.strides[0] * s.row) + x * (p.strides[1] * s.pixel) + g * s.ic
        return window, n * self.image + y * self.row + x * self.pixel + g * self.line

    def each(self, body: Code) -> Code:
        """`body` for every window of every group."""
        p = self.problem
        return nest([("n", p.mb), ("y", p.oh), ("x", p.ow), ("g", p.groups)], body, parallel=True)


@dataclass(frozen=True)
class Columns(WindowCopy):
    """Lines with channels outermost, cut in parts, each filled up with zeros."""

    part: int  # elements of a line after which another part starts
    depth: int  # the room of a part is a whole multiple of this

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

    def tensor(self) -> Tensor:
        return Tensor("columns", self.source.read, self.problem.mb * self.image, "scratch")

    def stage(self, unit: Unit) -> Code:
        """One element at a time, of 8 or 16 bits masked."""
        p, s, kind = self.problem, self.source, f"u{fmt(self.source.read).bits}"
        k, taps = self.taps, p.kh * p.kw
        single = kind == "u32"
        move = "vmovd" if single else f"vmovdq{kind}"
        value, nothing = (Register(name, kind, 4) if single else unit.reg(name, kind) for name in "mz")
        c, u, w = (Affine.var(name) for name in "cuw")
        window, line = self.first()
        body: Code = [zero(nothing)]
        for number, first in enumerate(range(0, k, self.part)):
            last = min(first + self.part, k)
            at = line + (number * self.padded - first)
            for start, (channels, rows, columns) in pieces(first, last, p.kh, p.kw):
                channel, row, column = start // taps, start // p.kw % p.kh, start % p.kw
                tap = (u + row) * (p.dilation[0] * s.row) + (w + column) * (p.dilation[1] * s.pixel)
                copy: Code = [
                    op(move, value, Memory(s.tensor, window + tap + c + channel, kind, 1)),
                    op(move, Memory("columns", at + start + c * taps + u * p.kw + w, kind, 1), value),
                ]
                body += loop("c", channels, loop("u", rows, loop("w", columns, copy)))
            end = self.line - number * self.padded if last == k else self.padded
            for i in range(last - first, end):
                place = Memory("columns", line + (number * self.padded + i), kind, 1)
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
