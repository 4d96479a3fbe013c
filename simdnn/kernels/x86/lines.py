"""Windows of an image as lines of memory in the order of nhwc: rows and columns outside, channels inside.

Where an image has edges, a padded copy comes first, in which those of bytes hold the source's zero point: such a line
is a row of a matrix like any other, whose pairs go from one tap to the next and from the image to its edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.pack import filled
from simdnn.kernels.common.problems import Depth
from simdnn.kernels.x86.code import Unit, broadcast32, fill_zero, store_bytes, zero
from simdnn.kernels.x86.columns import WindowCopy
from simdnn.kernels.x86.source import Source
from simdnn.program.records import ZEROS, Affine, Memory, Register, Tensor

EDGE = "edge"  # the tensor of the zero point, in four bytes


@dataclass(frozen=True)
class EdgedSource(Source):
    """A source of bytes whose edges hold its zero point."""

    @property
    def image(self) -> int:
        """Whole moves of four bytes."""
        return -(-super().image // 4) * 4 if self.copied else super().image

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), *([Tensor(EDGE, self.read, 4, role=ZEROS)] if self.copied else [])]

    def stage(self, unit: Unit) -> Code:
        """The padded image filled with the zero point, then each row of the image over it."""
        if not self.copied:
            return []
        image = Affine.var("n") * self.image
        edges: Code = [broadcast32(unit.reg("z"), EDGE, Affine())]
        edges += fill_zero(unit, "padded", self.read, image, self.image, "f", "z")
        top, left = self.padding[:2]
        line = self.iw * self.pixel
        row = image + (Affine.var("y") + top) * self.row + left * self.pixel
        stored = Affine.var("n") * (self.ih * line) + Affine.var("y") * line
        rows = copied(unit, "u8", ("src", stored), ("padded", row), line)
        body = [*edges, *loop("y", self.ih, rows)]
        return loop("n", self.mb, body, parallel=True)


@dataclass(frozen=True)
class WindowLines(WindowCopy):
    """Lines with channels inside, each filled up with zeros."""

    depth: int  # elements that a step of a dot product takes

    @property
    def line(self) -> int:
        return -(-self.taps // self.depth) * self.depth

    @cached_property
    def run(self) -> int:
        """Neighbouring elements of a window that are neighbours in the image, too."""
        together = self.problem.groups == 1 and self.problem.dilation[1] == 1
        return self.source.ic * (self.problem.kw if together else 1)

    def stage(self, unit: Unit) -> Code:
        """The copy, a window an iteration."""
        p, s = self.problem, self.source
        u, w = Affine.var("u"), Affine.var("w")
        window, line = self.first()
        columns = p.kw * s.ic // self.run
        stored = window + u * (p.dilation[0] * s.row) + w * (p.dilation[1] * s.pixel)
        at = line + u * (p.kw * s.ic) + w * self.run
        body = loop("u", p.kh, loop("w", columns, copied(unit, "u8", (s.tensor, stored), ("lines", at), self.run)))
        if rest := self.line - self.taps:
            nothing = Register("m", "u8", 16)
            body += [zero(nothing), *store_bytes(unit, "lines", line + self.taps, nothing, rest)]
        return self.each(body)

    def weights(self, weights: Array) -> Array:
        """goihw weights as lines of one tap."""
        flat = weights.transpose(0, 1, 3, 4, 2).reshape(*weights.shape[:2], -1)
        return filled(flat, self.line)[..., None, None]


@dataclass(frozen=True)
class TapLines(WindowCopy):
    """Lines of neighbouring columns of a kernel row, (n, d, y, x, g, plane, row, columns, k), or of all taps of a
    window in two dimensions, column by column, (n, y, x, g, k), each filled up with zeros.
    """

    together: int  # columns of a line; 0: all taps
    depth: int  # elements that a step of a dot product takes

    @property
    def used(self) -> int:
        """Elements of a line but for the zeros."""
        return self.together * self.source.ic or self.taps

    @property
    def part(self) -> int:
        """The room of a line."""
        return -(-self.used // self.depth) * self.depth

    @property
    def line(self) -> int:
        return self.part * (self.taps // self.used)

    def stage(self, unit: Unit) -> Code:
        """The copy, a window an iteration; of one group, columns of a row are neighbours in the image, too."""
        p, s = self.problem, self.source
        u, w, t, z = (Affine.var(name) for name in "uwtz")
        window, line = self.first()
        window = window + u * (p.dilation[0] * s.row)
        if not self.together:
            tap = self.moved(unit, window + w * s.pixel, line + (w * p.kh + u) * s.ic, s.ic)
            return self.each(loop("w", p.kw, loop("u", p.kh, tap)) + self.zeros(unit, line))
        parts, run = p.kw // self.together, self.used if p.groups == 1 else s.ic
        deep = p.depth or Depth(1, 1)
        window = window + z * (deep.dilation * s.plane)
        line = line + (z * (p.kh * parts) + u * parts + w) * self.part
        stored = window + (w * self.together + t) * s.pixel
        alone = unit.masks and self.used == run and self.part * fmt(s.read).bits % unit.width == 0
        room = self.part if alone else 0  # which the last move fills
        body = loop("t", self.used // run, self.moved(unit, stored, line + t * run, run, room))
        body += [] if room else self.zeros(unit, line)
        return self.each(loop("z", deep.k, loop("u", p.kh, loop("w", parts, body))))

    def moved(self, unit: Unit, stored: Affine, at: Affine, count: int, room: int = 0) -> Code:
        return copied(unit, f"u{fmt(self.source.read).bits}", (self.source.tensor, stored), ("lines", at), count, room)

    def zeros(self, unit: Unit, line: Affine) -> Code:
        """Zeros that fill a line up."""
        rest = self.part - self.used
        fill = fill_zero(unit, "lines", self.source.read, line + self.used, rest, "f", "z")
        return [zero(unit.reg("z")), *fill] if rest else []


def copied(
    unit: Unit, kind: str, source: tuple[str, Affine], to: tuple[str, Affine], count: int, room: int = 0
) -> Code:
    """`count` neighbouring elements of 8 or, with masks, 16 bits from (tensor, index) to another, and nothing behind
    them; with masks zeros up to `room`, where that is whole registers.
    """
    step = unit.width // fmt(kind).bits
    turns, rest = divmod(count, step)
    (tensor, stored), (copy, at) = source, to
    var = Affine.var("v") * step
    code = loop("v", turns, _moved(unit.width, (tensor, stored + var), (copy, at + var)))
    stored, at = stored + turns * step, at + turns * step
    if rest and unit.masks:
        value = unit.reg("m", kind)
        load = op(f"vmovdq{kind}", value, Memory(tensor, stored, kind, rest))  # which clears what it does not read
        return [*code, load, op(f"vmovdq{kind}", Memory(copy, at, kind, step if room else rest), value)]
    for bits in (128, 64, 32):
        while rest >= bits // 8:
            code += _moved(bits, (tensor, stored), (copy, at))
            stored, at, rest = stored + bits // 8, at + bits // 8, rest - bits // 8
    if rest:
        value = Register("m", "u8", 16)
        loads = [op("vpinsrb", value, value, Memory(tensor, stored + i, "u8", 1), imm=i) for i in range(rest)]
        code += [zero(value), *loads, *store_bytes(unit, copy, at, value, rest)]
    return code


def _moved(bits: int, source: tuple[str, Affine], to: tuple[str, Affine]) -> Code:
    """One register of bytes; of fewer than 128 bits its lower part."""
    name, kind = {64: ("vmovq", "u64"), 32: ("vmovd", "u32")}.get(bits, ("vmovdqu", "u32"))
    size = 64 if kind == "u64" else 32
    value = Register("m", kind, max(bits, 128) // size)
    return [op(name, value, Memory(*source, kind, bits // size)), op(name, Memory(*to, kind, bits // size), value)]
