"""Compressed weights as a library's copy makes bf16 of them, for the clock alone.

oneDNN's copy loads scales anew for each row of nibbles, or pair of rows of bytes, and spreads them as its layout of
weights has the columns; nibbles are read where the user stores them. An instruction may stand for another one of as
many uops on the same ports, which this package lacks: `vpermd` for inserting and extracting halves of a register.
Values come from `PanelWeights`.
"""

from __future__ import annotations

from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import load32
from simdnn.kernels.x86.decompress import PanelWeights
from simdnn.kernels.x86.tile import Panel
from simdnn.program.records import Affine, Memory, Op, Register

_SPREADS = 5  # shuffles that bring a vector of scales into the order of two rows beside each other


class LibraryWeights(PanelWeights):
    """Panels of bf16 made by the library's instructions."""

    def pair(self, r: list[str], panel: Panel, j: int, row: Affine, both: bool, second: Code | None = None) -> Code:
        """Two rows of a vector of columns, or the last one, from storage to the buffer."""
        rows, width = self.decompressor.rows, panel.vectors * self.unit.lanes
        scale = self.unit.reg(r[3], "f32")
        again = load32(self.unit, scale, "group_scale", panel.channel + j * self.unit.lanes, self.unit.lanes)
        scaled = self.decompressor.in_weights is not None and self.decompressor.in_weights.by_channel
        reload: Code = [again] if scaled else []
        code: Code = []
        if rows.nibbles:
            for i in range(1 + both):
                code += [
                    *self.nibbles(r, i, panel, j, row + i),
                    *reload,
                    *self.decompressor.dequantize(r[i], r[2], r[3]),
                ]
                code.append(op("vcvtneps2bf16", Register(r[i], "bf16", self.unit.lanes), self.unit.reg(r[i], "f32")))
            words = self.unit.reg(r[0], "u16")
            code += [self.shuffled(r, 0), op("vpermw", words, self.unit.reg(r[4], "u16"), words)]
        else:
            code += [*rows.load(r[: 1 + both], r[5], r[6:], panel, j, row), *reload]
            code += [self.shuffled(r, 5)] * (_SPREADS if scaled else 0)
            for i in range(1 + both):
                code += self.decompressor.dequantize(r[i], r[2], r[3])
            low, high = (self.unit.reg(name, "f32") for name in r[:2])
            code.append(op("vcvtne2ps2bf16", self.unit.reg(r[0], "bf16"), high if both else low, low))
        at = panel.base + j * self.unit.lanes * self.dot.depth + row * width
        return [*code, op("vmovdqu", Memory(panel.tensor, at, "u32", self.unit.lanes), self.unit.reg(r[0]))]

    def nibbles(self, r: list[str], i: int, panel: Panel, j: int, row: Affine) -> Code:
        """A row's nibbles: bytes are spread, and each lane is shifted by what its nibble wants."""
        unit, rows = self.unit, self.decompressor.rows
        at = row * rows.n + panel.dst + j * unit.lanes
        halved = Affine(at.const // 2, tuple((name, many // 2) for name, many in at.terms))
        value = unit.reg(r[i], "u32")
        signed, pairs = value.as_("s32"), -(-panel.lanes[j] // 2)  # nothing stands behind the last column
        return [
            op("vpmovsxbd", Register(r[i], "s32", unit.lanes // 2), Memory("stored", halved, "s8", pairs)),
            self.shuffled(r, i),
            self.shuffled(r, i),
            op("vpslld", value, value, imm=28),
            op("vpsrad", signed, signed, imm=28),
            op("vpsrad", signed, signed, imm=4),
            *([op("vcvtdq2ps", unit.reg(r[i], "f32"), signed)] if rows.floats else []),
        ]

    def shuffled(self, r: list[str], i: int) -> Op:
        """One shuffle of a register."""
        value = self.unit.reg(r[i])
        return op("vpermd", value, self.unit.reg(r[4]), self.unit.reg(r[4]))
