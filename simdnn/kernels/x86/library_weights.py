"""Compressed weights as a library's copies make bf16 and f32 of them, for the clock alone.

oneDNN's copy loads scales anew for each row of nibbles, or pair of rows of bytes, and spreads them as its layout of
weights has the columns; nibbles are read where the user stores them. An instruction may stand for another one of as
many uops on the same ports, which this package lacks: `vpermd` for inserting and extracting halves of a register.
The copy to f32 (`jit_brgemm_matmul_copy_b_f32_t`) goes row by row, and loads its scales for each of them. Values come
from `PanelWeights`.
"""

from __future__ import annotations

from dataclasses import replace

from simdnn.kernels.common.code import Code, loop, op, pieces
from simdnn.kernels.x86.code import zero
from simdnn.kernels.x86.decompress import PanelWeights
from simdnn.kernels.x86.product import PanelBlocks, Product
from simdnn.kernels.x86.tile import Panel
from simdnn.program.records import Affine, Memory, Op, Register

_TURN = 16  # rows that become f32 in a turn of the library's loop: a load of nibbles, which lie as the user has them,
# steps over as many, farther than a prefetcher follows
_AT_ONCE = 4  # rows of bytes in a turn here, one behind the other: the same loop with more of a counter
_SPREADS = 5  # shuffles that bring a vector of scales into the order of two rows beside each other


class LibraryWeights(PanelWeights):
    """Panels of bf16 or f32 made by the library's instructions."""

    def pair(self, r: list[str], panel: Panel, j: int, row: Affine, both: bool, second: Code | None = None) -> Code:
        """Two rows, or the last one, from storage to the buffer: all vectors of columns before the next two."""
        return [s for vector in range(panel.vectors) for s in self.pair_of_vector(r, panel, vector, row, both)]

    def pair_of_vector(self, r: list[str], panel: Panel, j: int, row: Affine, both: bool) -> Code:
        """Two rows of a vector of columns, or the last one."""
        rows, width = self.decompressor.rows, panel.vectors * self.unit.lanes
        reload = self.reload(r, panel, j)
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
            code += [self.shuffled(r, 5)] * (_SPREADS * bool(reload))
            for i in range(1 + both):
                code += self.decompressor.dequantize(r[i], r[2], r[3])
            low, high = (self.unit.reg(name, "f32") for name in r[:2])
            code.append(op("vcvtne2ps2bf16", self.unit.reg(r[0], "bf16"), high if both else low, low))
        at = panel.base + j * self.unit.lanes * self.dot.depth + row * width
        return [*code, op("vmovdqu", Memory(panel.tensor, at, "u32", self.unit.lanes), self.unit.reg(r[0]))]

    def reload(self, r: list[str], panel: Panel, j: int) -> Code:
        """A vector of scales, where each column has its own."""
        param = self.decompressor.in_weights
        if param is None or not param.by_channel:
            return []
        at = panel.channel + j * self.unit.lanes
        return self.decompressor.load_parameter(r[3], "group_scale", param, at)

    def expand_vectors(self, r: list[str], panel: Panel, first: Affine, count: int) -> Code:
        """f32 row by row, bf16 two rows at a time, all vectors of these, each with its own parameters."""
        if self.dot.depth > 1:
            return self.expand_vector(r, panel, 0, first, count)
        rows, lanes = self.decompressor.rows, self.unit.lanes
        code: Code = [zero(self.unit.reg(r[4]))] if rows.nibbles else []  # in place of how shuffles order lanes
        code += self.parameters(r, Affine(), by_channel=False)
        for times, begin, some in pieces("k", count, _TURN if rows.nibbles else _AT_ONCE):
            body: Code = []
            for row, j in ((first + begin + i, j) for i in range(some) for j in range(panel.vectors)):
                body += self.parameters(r, panel.channel + j * lanes, by_channel=True)
                if rows.nibbles:
                    body += self.nibbles(r, 0, panel, j, row)
                else:
                    body += rows.load(r[:1], r[5], r[6:], panel, j, row)
                body += self.decompressor.dequantize(r[0], r[2], r[3])
                place = Memory(panel.tensor, panel.base + row * (panel.vectors * lanes) + j * lanes, "f32", lanes)
                body.append(op("vmovups", place, self.unit.reg(r[0], "f32")))
            code += loop("k", times, body)
        return code

    def parameters(self, r: list[str], at: Affine, by_channel: bool) -> Code:
        """Zero points to register 2, scales to register 3: those that each column has its own of, or the others."""
        d = self.decompressor
        kinds = ((r[2], "zero_point", d.compressed.zero_point), (r[3], "group_scale", d.in_weights))
        given = [(register, tensor, param) for register, tensor, param in kinds if param]
        loaded = [one for one in given if one[2].by_channel == by_channel]
        return [s for register, tensor, param in loaded for s in d.load_parameter(register, tensor, param, at)]

    def nibbles(self, r: list[str], i: int, panel: Panel, j: int, row: Affine) -> Code:
        """A row's nibbles: bytes are spread, and each lane is shifted by what its nibble wants."""
        unit, rows = self.unit, self.decompressor.rows
        at = row * rows.n + panel.dst + j * unit.lanes
        halved = Affine(at.const // 2, tuple((name, many // 2) for name, many in at.terms))
        value = unit.reg(r[i], "u32")
        tensor = "stored" if rows.direct or rows.layout.full else "stored_tail"
        signed, pairs = value.as_("s32"), -(-panel.lanes[j] // 2)  # nothing stands behind the last column
        spread, packed = Register(r[i], "s32", unit.lanes // 2), Register(r[i], "u8", 16)
        if unit.masks or pairs == unit.lanes // 2:
            code: Code = [op("vpmovsxbd", spread, Memory(tensor, halved, "s8", pairs))]
        else:
            bytes_ = [Memory(tensor, halved + at, "u8", 1) for at in range(pairs)]
            code = [zero(packed), *(op("vpinsrb", packed, packed, byte, imm=at) for at, byte in enumerate(bytes_))]
            code.append(op("vpmovsxbd", spread, Register(r[i], "s8", unit.lanes // 2)))
        return [
            *code,
            self.shuffled(r, i),
            self.shuffled(r, i),
            *([] if unit.masks else self.masked(r, i, panel, j)),
            op("vpslld", value, value, imm=28),
            op("vpsrad", signed, signed, imm=28),
            op("vpsrad", signed, signed, imm=4),
            *([op("vcvtdq2ps", unit.reg(r[i], "f32"), signed)] if rows.floats else []),
        ]

    def masked(self, r: list[str], i: int, panel: Panel, j: int) -> Code:
        """Instructions of AVX2 alone: both nibbles of a byte are masked, shifted and then added, with the order of
        lanes and both masks from memory each time (scales stand for these).
        """
        value = self.unit.reg(r[i])
        lanes = value.as_("s32")
        return [
            *self.reload([*r[:3], r[4]], panel, j) * 3,
            *[op("vpand", value, value, self.unit.reg(r[4]))] * 2,
            op("vpaddd", lanes, lanes, self.unit.reg(r[4], "s32")),
        ]

    def shuffled(self, r: list[str], i: int) -> Op:
        """One shuffle of a register."""
        value = self.unit.reg(r[i])
        return op("vpermd", value, self.unit.reg(r[4]), self.unit.reg(r[4]))


class LibraryParts(LibraryWeights):
    """Panels of f32 or bf16 part by part of the sums: a buffer has the rows of one, multiplied before the next come."""

    def __init__(self, product: Product, blocks: PanelBlocks) -> None:
        super().__init__(product, blocks)
        self.rows = min(product.options.cut or self.column, self.column)

    def expand(self, panel: Panel, first: Affine, count: int, highest: int) -> Code:
        """Rows from `first` on, to the buffer's own first row on."""
        width = panel.vectors * self.unit.lanes
        there = replace(panel, base=panel.base + first * -width)
        return super().expand(there, first, min(count, self.k - first.const), highest)
