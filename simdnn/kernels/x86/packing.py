"""The stage that brings plain weights into a kernel's own layout (pack.py), and the reorder which is that alone."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from math import gcd

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, nest, op, pieces
from simdnn.kernels.common.pack import Blocked
from simdnn.kernels.x86.blocking import SECOND_LEVEL
from simdnn.kernels.x86.code import Unit, unit_of, zero
from simdnn.kernels.x86.rounding import constants, round_f32
from simdnn.program.check import verify
from simdnn.program.records import WEIGHTS, Affine, Memory, Op, Program, Register, Tensor

_XMM = 16  # bytes
_STEPS = 16  # groups of input channels that are packed for some columns before others are
_SETS, _WAYS, _LINE = 64, 8, 64  # of a first cache
_WIDE = Register("wide", "f32", 8)
_TURNED = "turned"  # a matrix for each tap that is left: rows of its channels, with those made of taps


@dataclass(frozen=True)
class Stored:
    """Where the user's weights lie: their type, and how many elements apart neighbours of each dimension are."""

    dtype: str
    oc: int
    ic: int
    group: int = 0
    kh: int = 0
    kw: int = 0


def stored(tag: str, dtype: str, blocked: Blocked) -> Stored:
    """A plain layout: "ab" (rows of N; "abc" of several matrices), "ba" (columns of K), "oihw" (goihw with groups)."""
    oc, taps = blocked.layout.oc, blocked.kh * blocked.kw
    group = oc * blocked.ic * taps
    if tag in ("ab", "abc"):
        return Stored(dtype, 1, oc, group)
    return Stored(dtype, blocked.ic * taps, taps, group, blocked.kw, 1)  # "ba" is oihw with one tap


#: (type stored, type wanted): the ISA cap that converts
CONVERSIONS = {
    ("f32", "bf16"): "avx512_core_bf16",
    ("f32", "f16"): "avx2",
    ("bf16", "f32"): "avx2",
    ("f16", "f32"): "avx2",
    ("s8", "s16"): "avx2",
}


@functools.lru_cache(maxsize=64)
def reorder(tag: str, dtype: str, blocked: Blocked) -> Program:
    """The program that brings plain weights there: input "plain", outputs "wei" and "wei_tail"."""
    packing = Packing(unit_of(blocked.isa), stored(tag, dtype, blocked), blocked)
    size = blocked.layout.groups * blocked.layout.oc * blocked.ic * blocked.kh * blocked.kw
    outputs = [Tensor(name, blocked.dtype, count, "output") for name, count in blocked.sizes.items()]
    name = f"reorder {dtype} {tag} to {blocked}"
    between: list[Tensor] = []
    if blocked.columns:
        code = packing.columns()
    elif blocked.fold == (1, 1):
        code = packing.stage()
    else:
        between.append(Tensor(_TURNED, dtype, size, "scratch", role=WEIGHTS))
        code = packing.turned() + packing.of_turned.stage()
    tensors = (Tensor("plain", dtype, size, role=WEIGHTS), *between, *outputs, *constants(blocked.rounds))
    return verify(Program(name, blocked.isa, tensors, tuple(code)))


@dataclass(frozen=True)
class Packing:
    """A reorder from the tensor `given` to `to`, the whole panels, and to `to` with "_tail" behind its name."""

    unit: Unit
    plain: Stored
    blocked: Blocked
    given: str = "plain"
    to: str = "wei"
    alone: str = ""  # the tensor that holds one panel, number "panel" of its kind: that is packed, and no other
    registers: tuple[str, ...] = ("r0", "r1", "r2", "r3", "s0", "s1", "s2", "s3")  # four rows, and pairs of them

    @property
    def element(self) -> int:
        return fmt(self.blocked.dtype).bits // 8

    @property
    def across(self) -> int:
        """Columns that one xmm register of a row holds."""
        return _XMM // self.element

    def stage(self) -> Code:
        """Row by row of groups of `depth` k, panel by panel, for each tap."""
        return self.by_group(self.parts() if self.blocked.split else self.taps())

    def parts(self) -> Code:
        """All parts of K of a group."""
        b, plain, first = self.blocked, self.plain, self.group * self.plain.group
        whole, rest = divmod(b.ic, b.split)
        part = Affine.var("part") if whole > 1 else Affine()
        code = loop("part", whole, self.tap(part, first + part * (b.split * plain.ic), b.split), parallel=True)
        last = self.tap(Affine(whole), first + Affine(whole * b.split * plain.ic), rest) if rest else []
        return code + last

    def taps(self) -> Code:
        """All taps of a group: those of an input channel one after the other, as they lie in a line of the cache."""
        b, plain = self.blocked, self.plain
        u, w = (Affine.var(name) if size > 1 else Affine() for name, size in (("u", b.kh), ("w", b.kw)))
        at = u * plain.kh + w * plain.kw + self.group * plain.group
        return self.tap(u * b.kw + w, at, b.ic, (("u", b.kh), ("w", b.kw)))

    def turned(self) -> Code:
        """The matrices of `_TURNED`: a channel's columns side by side."""
        b, plain, (rows, columns) = self.blocked, self.plain, self.blocked.fold
        oc, size = b.layout.oc, fmt(plain.dtype).bits // 8
        u, w, x, y, c = (Affine.var(name) for name in "uwxyc")
        at = (u * rows + y) * plain.kh + (w * columns + x) * plain.kw + c * plain.ic + self.group * plain.group
        to = (((u * b.across + w) * columns + x) * rows + y) * b.ic + c + self.group * (b.taps * b.folded)
        code: Code = []
        for times, first, live in pieces("o", oc, _XMM // size):
            body = self.gather("r0", at + first * plain.oc, live, size)
            body += self.store(_TURNED, to * oc + first, live, size)
            code += loop("o", times, body)
        return self.by_group(
            nest((("u", b.rows), ("w", b.across), ("x", columns), ("y", rows), ("c", b.ic)), code, parallel=True)
        )

    @property
    def of_turned(self) -> Packing:
        """The reorder of those matrices."""
        b, tap = self.blocked, self.blocked.folded * self.blocked.layout.oc
        plain = Stored(self.plain.dtype, 1, b.layout.oc, b.taps * tap, b.across * tap, tap)
        own = replace(b, ic=b.folded, kh=b.rows, kw=b.across, fold=(1, 1))
        return replace(self, plain=plain, blocked=own, given=_TURNED)

    def by_group(self, code: Code) -> Code:
        """Code of one group, for all of them."""
        groups = self.blocked.layout.groups
        return loop("g", groups, code, parallel=True) if groups > 1 else code

    @property
    def group(self) -> Affine:
        return Affine.var("g") if self.blocked.layout.groups > 1 else Affine()

    def tap(self, tap: Affine, at: Affine, count: int, taps: tuple[tuple[str, int], ...] = ()) -> Code:
        """The `count` input channels of one tap, from `at`; or of all that the loops `taps` go over."""
        depth = self.blocked.layout.depth
        code: Code = []
        turns, rest = divmod(count, depth)
        along = self.plain.oc == 1 and not self.alone and count * self.plain.ic * self.element > SECOND_LEVEL
        for tensor, panels, width, column in self.panels():
            body: Code = []
            for times, first, steps, rows in (
                *((*piece, depth) for piece in pieces("c", turns, _STEPS)),
                *([(1, Affine(turns), 1, rest)] if rest else []),
            ):
                step = first + Affine.var("k") if steps > 1 else first
                blocks = [
                    self.block(tensor, tap, at, step, rows, width, column + offset, offset)
                    for offset in range(0, width, self.across)
                ]
                parts = blocks if self.aliased(width) else [[o for block in blocks for o in block]]
                part = [s for block in parts for s in loop("k", steps, nest(taps, block))]
                if along:
                    part = loop("j", panels, part, parallel=True)
                body += loop("c", times, part, parallel=not self.alone)
            code += body if self.alone or along else loop("j", panels, body, parallel=True)
        return code

    def aliased(self, columns: int) -> bool:
        """Whether columns are so far apart that few sets of the first cache take a line of each, and do not hold it."""
        apart = self.plain.oc * fmt(self.plain.dtype).bits // 8
        return self.plain.oc > 1 and columns * gcd(apart, _SETS * _LINE) > _SETS * _LINE * _WAYS

    def columns(self) -> Code:
        """Each output channel's row of input channels, as the columns of a matrix one after the other."""
        b, turned = self.blocked, replace(self.plain, oc=self.plain.ic, ic=self.plain.oc)
        along = Packing(self.unit, turned, b)
        turns, rest = divmod(b.ic, self.across)
        column, chunk, first_of = Affine.var("j"), Affine.var("k") * self.across, self.group * self.plain.group
        code: Code = []
        for steps, first, count in ((turns, chunk, self.across), (1, Affine(b.ic - rest), rest)):
            if count:
                body = along.load("r0", first_of + column * self.plain.oc + first * self.plain.ic, count)
                to = self.group * (b.layout.oc * b.ic) + column * b.ic + first
                body += self.store("wei", to, count, self.element)
                code += loop("j", b.layout.oc, loop("k", steps, body, parallel=True), parallel=True)
        return self.by_group(code)

    def store(self, tensor: str, at: Affine, count: int, element: int) -> Code:
        """The first `count` elements of r0, of that many bytes, to a tensor."""
        size = count * element
        if size == _XMM:
            return [op("vmovdqu", Memory(tensor, at, "u32", 4), Register("r0", "u32", 4))]
        if self.unit.masks:
            return [op("vmovdqu8", Memory(tensor, at, "u8", size), Register("r0", "u8", 16))]
        name, dtype = {1: ("vpextrb", "u8"), 2: ("vpextrw", "u16"), 4: ("vpextrd", "u32")}[element]
        value = Register("r0", dtype, _XMM // element)
        return [op(name, Memory(tensor, at + i, dtype, 1), value, imm=i) for i in range(count)]

    def panels(self) -> list[tuple[str, int, int, Affine]]:
        """(tensor, how many, width, first column)."""
        layout = self.blocked.layout
        whole, tail = layout.full * layout.width, layout.tail
        column = Affine.var("panel" if self.alone else "j") * layout.width
        found = [(self.to, layout.full, layout.width, column)] if layout.full else []
        found += [(f"{self.to}_tail", 1, tail, Affine(whole))] if tail else []
        return [panel for panel in found if self.alone in ("", panel[0])]

    def block(
        self, tensor: str, tap: Affine, at: Affine, step: Affine, rows: int, width: int, column: Affine, offset: int
    ) -> Code:
        """`rows` input channels of one step by `across` columns, interleaved to `depth` elements a column."""
        layout = self.blocked.layout
        depth, steps = layout.depth, layout.icp // layout.depth
        live = min(self.across, width - offset)
        if tensor != self.to or layout.full == 1:
            live = min(live, layout.oc - column.const)
        if live <= 0:
            return []
        code: Code = []
        for r, register in enumerate(self.registers[:depth]):
            if r < rows:
                code += self.load(register, at + (step * depth + r) * self.plain.ic + column * self.plain.oc, live)
            else:
                code.append(zero(Register(register, "u32", 4)))
        panels = layout.full if tensor == self.to else 1
        panel = self.blocked.taps * steps * width * depth
        base = self.group * (panels * panel) + (Affine.var("j") * panel if tensor == self.to and not self.alone else 0)
        out = base + (tap * steps + step) * (width * depth) + offset * depth
        room = min(self.across, width - offset)
        for i, register in enumerate(self.interleave(code)):
            columns = _XMM // (self.element * depth)
            here = min(columns, room - i * columns)
            if here > 0:
                size = here * depth * self.element
                code.append(self.store_columns(tensor, out + i * columns * depth, register, size))
        return code

    def store_columns(self, tensor: str, at: Affine, register: str, size: int) -> Op:
        """A register, or its lower half where a panel has no room for more."""
        if size == _XMM:
            return op("vmovdqu", Memory(tensor, at, "u32", _XMM // 4), Register(register, "u32", 4))
        return op("vmovq", Memory(tensor, at, "u64", 1), Register(register, "u64", 2))

    def load(self, register: str, at: Affine, live: int) -> Code:
        """`live` columns of a row; of columns that are no neighbours, one element at a time."""
        if self.plain.dtype != self.blocked.dtype:
            return self.load_converted(register, at, live)
        code = self.load_same(register, at, live)
        if kind := self.blocked.rounds:
            xmm = Unit(self.unit.isa, _XMM * 8)
            code += round_f32(xmm, kind, Register(register, "f32", 4), ("t0", "t1", "t2"))
        return code

    def load_same(self, register: str, at: Affine, live: int) -> Code:
        """`live` columns of a row in the type that they are stored in, into a register of bits."""
        size = live * self.element
        if self.plain.oc == 1 and size == _XMM:
            return [op("vmovdqu", Register(register, "u32", 4), Memory(self.given, at, "u32", 4))]
        if self.plain.oc == 1 and self.unit.masks:
            return [op("vmovdqu8", Register(register, "u8", 16), Memory(self.given, at, "u8", size))]
        if self.plain.oc == 1 and 2 * size == _XMM:
            return [op("vmovq", Register(register, "u64", 2), Memory(self.given, at, "u64", 1))]
        return self.gather(register, at, live, self.element)

    def load_converted(self, register: str, at: Affine, live: int) -> Code:
        """A register of columns in the type wanted; f32 is rounded to nearest even (docs/numerics.md, rule 2)."""
        kinds = self.plain.dtype, self.blocked.dtype
        if kinds == ("f32", "f16"):
            return [*self.floats(at, live), op("vcvtps2ph", Register(register, "f16", 8), _WIDE, imm=0)]
        if kinds == ("f32", "bf16"):
            return [*self.floats(at, live), op("vcvtneps2bf16", Register(register, "bf16", 8), _WIDE)]
        narrow = self.gather(register, at, live, fmt(self.plain.dtype).bits // 8)
        if kinds == ("s8", "s16"):
            return [*narrow, op("vpmovsxbw", Register(register, "s16", 8), Register(register, "s8", 8))]
        if kinds == ("f16", "f32"):
            return [*narrow, op("vcvtph2ps", Register(register, "f32", 4), Register(register, "f16", 4))]
        words = Register(register, "u32", 4)
        return [*narrow, op("vpmovzxwd", words, Register(register, "u16", 4)), op("vpslld", words, words, imm=16)]

    def floats(self, at: Affine, live: int) -> Code:
        """Eight columns of f32 in a register, zeros behind the last."""
        if self.plain.oc == 1 and (self.unit.masks or live == 8):
            return [op("vmovups", _WIDE, Memory(self.given, at, "f32", live))]
        if self.plain.oc == 1:
            return [op("vmaskmovps", _WIDE, Memory(self.given, at, "f32", live))]
        code: Code = [zero(_WIDE)]
        for half in range(-(-live // 4)):
            code += self.gather("half", at + self.plain.oc * 4 * half, min(live - 4 * half, 4), 4)
            code.append(op("vinsertf128", _WIDE, _WIDE, Register("half", "f32", 4), imm=half))
        return code

    def gather(self, register: str, at: Affine, live: int, size: int) -> Code:
        name, dtype = {1: ("vpinsrb", "u8"), 2: ("vpinsrw", "u16"), 4: ("vpinsrd", "u32")}[size]
        value = Register(register, dtype, _XMM // size)
        code: Code = [zero(value)]
        for i in range(live):
            code.append(op(name, value, value, Memory(self.given, at + i * self.plain.oc, dtype, 1), imm=i))
        return code

    def interleave(self, code: Code) -> list[str]:
        """The rows' elements side by side, `depth` of a column together; the registers that hold them in order."""
        depth, bits = self.blocked.layout.depth, self.element * 8
        names, sums = list(self.registers[:depth]), self.registers[4:]
        if depth == 1:
            return names
        suffix, dtype = {8: ("bw", "u8"), 16: ("wd", "u16")}[bits]
        pairs = [(*sums[:2], names[0], names[1])]
        if depth == 4:
            pairs.append((*sums[2:], names[2], names[3]))
        for low, high, x, y in pairs:
            a, b = Register(x, dtype, 128 // bits), Register(y, dtype, 128 // bits)
            code.append(op(f"vpunpckl{suffix}", Register(low, dtype, 128 // bits), a, b))
            code.append(op(f"vpunpckh{suffix}", Register(high, dtype, 128 // bits), a, b))
        if depth == 2:
            return list(sums[:2])
        quads = zip(
            names, "lhlh", (sums[0], sums[0], sums[1], sums[1]), (sums[2], sums[2], sums[3], sums[3]), strict=True
        )
        for target, half, x, y in quads:
            a, b = Register(x, "u16", 8), Register(y, "u16", 8)
            code.append(op(f"vpunpck{half}wd", Register(target, "u16", 8), a, b))
        return names
