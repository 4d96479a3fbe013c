"""The stage that brings a matmul's plain weights into the kernel's layout (pack.py) at run time."""

from __future__ import annotations

from dataclasses import dataclass

from isa_models.formats import fmt
from simdnn.kernels.code import Code, Unit, loop, op, zero
from simdnn.kernels.dots import Dot
from simdnn.kernels.pack import Layout
from simdnn.program import Affine, Memory, Register

_XMM = 16  # bytes


@dataclass(frozen=True)
class Packing:
    """Weights (K, N) stored by rows ("ab") or by columns ("ba"); K in `split` parts where its pairs restart."""

    unit: Unit
    tag: str
    dot: Dot
    layout: Layout
    k: int
    n: int
    split: int

    @property
    def element(self) -> int:
        return fmt(self.dot.wei).bits // 8

    @property
    def across(self) -> int:
        """Columns that one xmm register of a row holds."""
        return _XMM // self.element

    def stage(self) -> Code:
        """Row by row of groups of `depth` k, panel by panel."""
        code: Code = []
        parts = [(0, 0, self.k)] if not self.split else [(0, 0, self.split), (1, self.split, self.k - self.split)]
        for part, first, count in parts:
            turns, rest = divmod(count, self.dot.depth)
            group = Affine.var("k")
            for steps, at, rows in ((turns, group, self.dot.depth), (1 if rest else 0, Affine(turns), rest)):
                for tensor, panels, width, column in self.panels():
                    for offset in range(0, width, self.across):
                        body = self.block(tensor, part, at, first, rows, width, column + offset, offset)
                        nest = loop("k", steps, body, parallel=True) if body else []
                        code += loop("j", panels, nest, parallel=True) if nest else []
        return code

    def panels(self) -> list[tuple[str, int, int, Affine]]:
        """(tensor, how many, width, first column)."""
        layout = self.layout
        whole, tail = layout.full * layout.width, layout.tail
        found = [("wei", layout.full, layout.width, Affine.var("j") * layout.width)] if layout.full else []
        return [*found, *([("wei_tail", 1, tail, Affine(whole))] if tail else [])]

    def block(
        self, tensor: str, part: int, group: Affine, first: int, rows: int, width: int, column: Affine, offset: int
    ) -> Code:
        """`rows` rows of one group by `across` columns, interleaved to `depth` elements a column."""
        live = min(self.across, width - offset)
        if tensor == "wei_tail" or self.layout.full == 1:
            live = min(live, self.n - column.const)
        if live <= 0:
            return []
        depth, steps = self.dot.depth, self.layout.icp // self.dot.depth
        code: Code = []
        for r in range(depth):
            if r < rows:
                row = group * depth + (first + r)
                code += self.load(f"r{r}", row, column, live)
            else:
                code.append(zero(Register(f"r{r}", "u32", 4)))
        taps = (2 if self.split else 1) * steps
        base = Affine.var("j") * (taps * width * depth) if tensor == "wei" else Affine()
        out = base + (group + part * steps) * (width * depth) + offset * depth
        room = min(self.across, width - offset)
        for i, register in enumerate(self.interleave(code)):
            columns = _XMM // (self.element * depth)
            if i * columns < room:
                count = _XMM // 4
                at = out + i * columns * depth
                code.append(op("vmovdqu", Memory(tensor, at, "u32", count), Register(register, "u32", 4)))
        return code

    def load(self, register: str, row: Affine, column: Affine, live: int) -> Code:
        """`live` columns of a row; of columns stored one after the other, one element at a time."""
        if self.tag == "ba":
            return self.gather(register, row, column, live)
        at = row * self.n + column
        size = live * self.element
        if size == _XMM:
            return [op("vmovdqu", Register(register, "u32", 4), Memory("plain", at, "u32", 4))]
        if self.unit.masks:
            return [op("vmovdqu8", Register(register, "u8", 16), Memory("plain", at, "u8", size))]
        value = Register(register, "u8", 16)
        bytes_ = [op("vpinsrb", value, value, Memory("plain", at + i, "u8", 1), imm=i) for i in range(size)]
        return [zero(value), *bytes_]

    def gather(self, register: str, row: Affine, column: Affine, live: int) -> Code:
        name, dtype = {1: ("vpinsrb", "u8"), 2: ("vpinsrw", "u16"), 4: ("vpinsrd", "u32")}[self.element]
        value = Register(register, dtype, self.across)
        code: Code = [zero(value)]
        for i in range(live):
            at = (column + i) * self.k + row
            code.append(op(name, value, value, Memory("plain", at, dtype, 1), imm=i))
        return code

    def interleave(self, code: Code) -> list[str]:
        """The rows' elements side by side, `depth` of a column together; the registers that hold them in order."""
        names = [f"r{i}" for i in range(self.dot.depth)]
        bits = fmt(self.dot.wei).bits
        if self.dot.depth == 1:
            return names
        suffix, dtype = {8: ("bw", "u8"), 16: ("wd", "u16")}[bits]
        pairs = [("s0", "s1", names[0], names[1])]
        if self.dot.depth == 4:
            pairs.append(("s2", "s3", names[2], names[3]))
        for low, high, x, y in pairs:
            a, b = Register(x, dtype, 128 // bits), Register(y, dtype, 128 // bits)
            code.append(op(f"vpunpckl{suffix}", Register(low, dtype, 128 // bits), a, b))
            code.append(op(f"vpunpckh{suffix}", Register(high, dtype, 128 // bits), a, b))
        if self.dot.depth == 2:
            return ["s0", "s1"]
        quads = (("r0", "l", "s0", "s2"), ("r1", "h", "s0", "s2"), ("r2", "l", "s1", "s3"), ("r3", "h", "s1", "s3"))
        for target, half, x, y in quads:
            a, b = Register(x, "u16", 8), Register(y, "u16", 8)
            code.append(op(f"vpunpck{half}wd", Register(target, "u16", 8), a, b))
        return names
