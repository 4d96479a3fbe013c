"""Code of eight interleaved columns of ggml's blocks, whatever their type: registers, lines of weights, scales.

A line of weights holds eight bytes of each of four columns. Even dwords of one line and odd ones of the next are
blended, so that each lane meets four neighbouring codes of a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.block_rows import BlockRows
from simdnn.kernels.x86.code import typed
from simdnn.program.records import Affine, Memory, Register, walk

COLUMNS = 8
LINE = 64  # bytes of eight columns
LANES = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # the column of each lane of sums
_TURN, _ODD = 0b10_11_00_01, 0b10101010  # neighbours change places; odd dwords


class EightColumns:
    """Registers by names of the product's own, and the code with them that types of blocks share."""

    def __init__(self, shared: BlockRows) -> None:
        self.constants = shared.constants
        self.pool = dict.fromkeys(registers_of(shared.quantized()))  # to be used again: a program has few names
        self.own: dict[str, str] = {}

    def ymm(self, name: str, dtype: str = "u32") -> Register:
        """A register of the products by a name of their own."""
        if name not in self.own:
            free = [known for known in self.pool if known not in self.own.values()]
            self.own[name] = free[0] if free else f"v{len(self.own)}"
        return Register(self.own[name], "u32", 8).as_(dtype)

    def xmm(self, name: str, dtype: str = "u32") -> Register:
        return Register(self.ymm(name).name, "u32", 4).as_(dtype)

    def constants_in(self, register: str, values: Array) -> Code:
        """A register that holds 32 bytes."""
        return [op("vmovdqu", self.ymm(register), self.constants.memory(f"in_{register}", "u32", values))]

    def nibbles(self, source: str, into: str, upper: bool) -> Code:
        """Half of the bits of a line of weights."""
        x, code = self.ymm(into), []
        if upper:
            code.append(typed("vpsrlw", x, self.ymm(source), imm=4))
        low = self.constants.memory("low_nibbles", "u32", np.full(32, 15, np.uint8))
        return [*code, op("vpand", x, x if upper else self.ymm(source), low)]

    def blended(self, odd: bool) -> Code:
        """Codes of all eight columns in `v`, their even dwords of two lines or the odd ones."""
        a, b, v = self.ymm("a"), self.ymm("b"), self.ymm("v")
        turned, other = (a, b) if odd else (b, a)
        blend = (v, b) if odd else (other, v)
        return [op("vpshufd", v, turned, imm=_TURN), op("vpblendd", v, *blend, imm=_ODD)]

    def lines(self, at: Affine) -> Code:
        """Eight bytes of each column, in `low` and `high`."""
        return [
            op("vmovdqu", self.ymm(name), Memory("wei", at + further, "u32", 8))
            for name, further in (("low", 0), ("high", LINE // 2))
        ]

    def column_scales(self, name: str, at: Affine) -> Code:
        """Eight f16 numbers as f32, by the column of each lane."""
        place = self.constants.memory("halves", "u8", (2 * LANES[:, None] + [0, 1]).astype(np.uint8))
        d = self.xmm(name)
        return [
            op("vmovdqu", d, Memory("wei", at, "u32", 4)),
            op("vpshufb", d.as_("u8"), d.as_("u8"), place),
            op("vcvtph2ps", self.ymm(name, "f32"), d.as_("f16")),
        ]

    def column_powers(self, name: str, at: Affine) -> Code:
        """2**(e - 128) of eight bytes e as f32, by the column of each lane; ggml looks them up."""
        d, e, low = self.ymm(name), self.ymm("b"), self.ymm("v")
        code: Code = [op("vpmovzxbd", e, Memory("wei", at, "u8", COLUMNS))]
        code += [*self.constants_in("v", LANES.astype(np.uint32)), op("vpermd", e, low, e)]
        code.append(op("vpminud", low, e, self.constants.memory("twos8", "u32", np.full(8, 2, np.uint32))))
        code += [typed("vpsubd", e, e, low), typed("vpslld", e, e, imm=23)]
        code += self.constants_in(name, np.full(8, 1 << 21, np.uint32))
        return [*code, op("vpsllvd", d, d, low), typed("vpaddd", d, d, e)]

    def scaled(self, sums: str, scale: str, into: str) -> Code:
        """Integer sums times a scale, added."""
        s, acc = self.ymm(sums, "f32"), self.ymm(into, "f32")
        return [op("vcvtdq2ps", s, s.as_("s32")), op("vfmadd231ps", acc, acc, self.ymm(scale, "f32"), s)]


def registers_of(code: Code) -> Iterator[str]:
    """The names of the registers in some code."""
    for one, _ in walk(code):
        yield from (place.name for place in (one.dst, *one.srcs) if isinstance(place, Register))
