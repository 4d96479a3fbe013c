"""The source as the dot products read it, and the stage that copies it there when the user's own layout will not do.

A copy is needed where taps reach over the image's edge (zeros around it), where channels do not fill whole 4-byte
groups (zeros behind them), and where the unit wants wider elements than are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.problems import Depth
from simdnn.kernels.x86.code import Unit, fill_zero, load_float, store32, zero
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.rounding import constants, round_f32
from simdnn.program.records import SOURCE, Affine, Memory, Register, Tensor


@dataclass(frozen=True)
class Source:
    """An image batch in nhwc with `groups` runs of channels; `read` is what the dot products address."""

    stored: str  # element type of the user's tensor
    read: str
    mb: int
    ih: int
    iw: int
    groups: int
    ic: int  # channels of a group as stored
    icp: int  # and as read
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    rounds: str = ""  # f32 read as f32, rounded on the way: a kind of rounding.py
    depth: Depth | None = None  # planes of an image, and zeros in front and behind

    @property
    def copied(self) -> bool:
        around = self.depth is not None and (self.depth.front or self.depth.back)
        return self.converted or self.ic != self.icp or any(self.padding) or bool(around)

    @property
    def converted(self) -> bool:
        return self.stored != self.read or bool(self.rounds)

    @property
    def tensor(self) -> str:
        return "padded" if self.copied else "src"

    @property
    def pixel(self) -> int:
        """Elements from one pixel to the next, as read."""
        return self.groups * self.icp

    @property
    def row(self) -> int:
        return (self.iw + self.padding[1] + self.padding[3]) * self.pixel

    @property
    def plane(self) -> int:
        """Elements from one plane of an image to the next."""
        return (self.ih + self.padding[0] + self.padding[2]) * self.row

    @property
    def image(self) -> int:
        return self.plane * (self.depth.i + self.depth.front + self.depth.back if self.depth else 1)

    def tensors(self) -> list[Tensor]:
        planes = self.mb * (self.depth.i if self.depth else 1)
        stored = Tensor("src", self.stored, planes * self.ih * self.iw * self.groups * self.ic, role=SOURCE)
        copy = [Tensor("padded", self.read, self.mb * self.image, "scratch")] if self.copied else []
        return [stored, *copy, *constants(self.rounds)]

    def stage(self, unit: Unit) -> Code:
        """The copy, one image row an iteration; empty where the source is read in place."""
        if not self.copied:
            return []
        top, left, bottom, right = self.padding
        zeros = unit.reg("z")
        image, number = Affine.var("n") * self.image, Affine.var("n")
        if self.depth:
            image = image + (Affine.var("z") + self.depth.front) * self.plane
            number = number * self.depth.i + Affine.var("z")
        row = image + (Affine.var("y") + top) * self.row
        body: Code = [zero(zeros)]
        whole = self.ic == self.icp and not unit.masks  # moves of four bytes: what is behind the row goes with it
        body += fill_zero(unit, "padded", self.read, row, left * self.pixel, "f", "z")
        if not whole:
            at = row + (left + self.iw) * self.pixel
            body += fill_zero(unit, "padded", self.read, at, right * self.pixel, "e", "z")
        stored = number * (self.ih * self.iw * self.groups * self.ic)
        stored = stored + Affine.var("y") * (self.iw * self.groups * self.ic)
        read = row + left * self.pixel
        if self.ic == self.icp:
            room = (self.iw + right * whole) * self.pixel
            body += self._run(unit, stored, read, self.iw * self.pixel, room)
        else:
            at_pixel = Affine.var("x") * self.groups + Affine.var("h")
            one = self._run(unit, stored + at_pixel * self.ic, read + at_pixel * self.icp, self.ic, self.icp)
            body += loop("x", self.iw, loop("h", self.groups, one))
        code: Code = []
        for at, rows in ((image, top), (image + (top + self.ih) * self.row, bottom)):
            fill = fill_zero(unit, "padded", self.read, at, rows * self.row, "f", "z")
            code += self._each_plane([zero(zeros), *fill]) if rows else []
        return code + self._outside(unit) + self._each_plane(loop("y", self.ih, body, parallel=True))

    def _each_plane(self, body: Code) -> Code:
        """`body` for each plane of each image."""
        body = loop("z", self.depth.i, body, parallel=True) if self.depth else body
        return loop("n", self.mb, body, parallel=True)

    def _outside(self, unit: Unit) -> Code:
        """Planes of zeros in front of an image and behind it."""
        code: Code = []
        for first, planes in (
            ((0, self.depth.front), (self.depth.front + self.depth.i, self.depth.back)) if self.depth else ()
        ):
            at = Affine.var("n") * self.image + first * self.plane
            fill = fill_zero(unit, "padded", self.read, at, planes * self.plane, "f", "z")
            code += loop("n", self.mb, [zero(unit.reg("z")), *fill], parallel=True) if planes else []
        return code

    def _run(self, unit: Unit, stored: Affine, read: Affine, count: int, padded: int) -> Code:
        """`count` neighbouring elements, and zeros behind them up to `padded`."""
        narrow, wide = fmt(self.stored).bits, fmt(self.read).bits
        step = unit.width // max(narrow, wide)  # elements a register holds as the wider of both
        turns, rest = divmod(count, step)
        at = Affine.var("v") * step
        code = loop("v", turns, self._move(unit, stored + at, read + at, step, step))
        stored, read = stored + turns * step, read + turns * step
        room = padded - turns * step
        if not rest:
            return code + fill_zero(unit, "padded", self.read, read, room, "t", "z")
        if unit.masks:
            return code + self._move(unit, stored, read, rest, min(step, room))
        if fmt(self.read).is_float and self.converted:
            code += self._convert(unit, stored, read, rest, min(step, room))
            return code + fill_zero(unit, "padded", self.read, read + step, max(0, room - step), "t", "z")
        if narrow != wide:
            return code + self._tail_wide(unit, stored, read, rest, room)
        return code + self._tail(unit, stored, read, rest * narrow // 8, room * narrow // 8)

    def _move(self, unit: Unit, stored: Affine, read: Affine, count: int, room: int) -> Code:
        """One register's worth: `count` elements in, `room` out (the load clears what it does not read)."""
        if fmt(self.read).is_float and self.converted:
            return self._convert(unit, stored, read, count, room)
        if self.stored == self.read:
            kind = {8: "u8", 16: "u16", 32: "u32"}[fmt(self.read).bits]
            name = {"u8": "vmovdqu8", "u16": "vmovdqu16", "u32": "vmovdqu"}[kind] if unit.masks else "vmovdqu"
            if not unit.masks:
                kind, size = "u32", fmt(self.read).bits // 8
                count, room = count * size // 4, room * size // 4
            value = unit.reg("m", kind)
            return [
                op(name, value, Memory("src", stored, kind, count)),
                op(name, Memory("padded", read, kind, room), value),
            ]
        value = unit.reg("m", "u16" if self.stored == "u8" else "s16")
        extend = "vpmovzxbw" if self.stored == "u8" else "vpmovsxbw"
        name = "vmovdqu16" if unit.masks else "vmovdqu"
        kind = "u16" if unit.masks else "u32"
        return [
            op(extend, value, Memory("src", stored, self.stored, count)),
            op(name, Memory("padded", read, kind, room if unit.masks else room // 2), value.as_(kind)),
        ]

    def _convert(self, unit: Unit, stored: Affine, read: Affine, count: int, room: int) -> Code:
        """One register's worth of floats, changed on the way. Without masks f32 is all that is read."""
        value = unit.reg("m", "f32")
        load = load_float(unit, "m", "src", self.stored, stored, count)
        if self.rounds:
            load += round_f32(unit, self.rounds, value, ("s0", "s1", "s2"))
        if self.read == "f16":
            return [*load, op("vcvtps2ph", Memory("padded", read, "f16", room), value, imm=0)]
        if self.read == "bf16":
            half = Register("m", "bf16", unit.lanes)
            store = op("vmovdqu16", Memory("padded", read, "u16", room), half.as_("u16"))
            return [*load, op("vcvtneps2bf16", half, value), store]
        return [*load, store32(unit, "padded", read, value, room)]

    def _tail(self, unit: Unit, stored: Affine, read: Affine, size: int, room: int) -> Code:
        """`size` bytes without masks: 16, 8 and 4 at a time, then byte by byte into a cleared register."""
        code: Code = []
        element = fmt(self.read).bits // 8
        for name, step in (("vmovdqu", 16), ("vmovq", 8), ("vmovd", 4)):
            while size >= step:
                dtype = "u64" if name == "vmovq" else "u32"
                value = Register("m", dtype, 128 // fmt(dtype).bits)
                lanes = step * 8 // fmt(dtype).bits
                code.append(op(name, value, Memory("src", stored, dtype, lanes)))
                code.append(op(name, Memory("padded", read, dtype, lanes), value))
                stored, read = stored + step // element, read + step // element
                size, room = size - step, room - step
        if size:
            code += self._elements(stored, size // element)
            code.append(op("vmovd", Memory("padded", read, "u32", 1), Register("m", "u32", 4)))
            read, room = read + 4 // element, room - 4
        return code + fill_zero(unit, "padded", self.read, read, room // element, "t", "z")

    def _elements(self, stored: Affine, count: int) -> Code:
        """`count` bytes or words, one by one."""
        bits = fmt(self.stored).bits
        name, kind = {8: ("vpinsrb", "u8"), 16: ("vpinsrw", "u16")}[bits]
        value = Register("m", kind, 128 // bits)
        inserts = [op(name, value, value, Memory("src", stored + i, kind, 1), imm=i) for i in range(count)]
        return [zero(value), *inserts]

    def _tail_wide(self, unit: Unit, stored: Affine, read: Affine, count: int, room: int) -> Code:
        """`count` bytes widened to words without masks, eight at a time; `room` is a multiple of four words."""
        code: Code = []
        extend = "vpmovzxbw" if self.stored == "u8" else "vpmovsxbw"
        words = Register("m", "u16" if self.stored == "u8" else "s16", 8)
        while room > 0:
            here = max(0, min(8, count))
            if here == 8:
                code.append(op(extend, words, Memory("src", stored, self.stored, 8)))
            else:
                code += self._elements(stored, here)
                code.append(op(extend, words, Register("m", self.stored, 8)))
            if room >= 8:
                code.append(op("vmovdqu", Memory("padded", read, "u32", 4), words.as_("u32")))
            else:
                code.append(op("vmovq", Memory("padded", read, "u64", 1), words.as_("u64")))
            stored, read, count, room = stored + 8, read + 8, count - 8, room - 8
        return code


def padded_channels(unit: Unit, dot: Dot, stored: str, ic: int) -> int:
    """Channels of a group as read: whole steps of the dot (and whole 8-byte groups of words without masks)."""
    step = dot.whole or (4 if dot.src == "s16" and not unit.masks else dot.depth)
    return -(-ic // step) * step
