"""Attention whose keys are split: each part of them has workgroups of its own, and a second kernel puts the parts
together ("flash decoding").

A part leaves what it found, over its own sums of rows, and the logarithm of those sums, in f32. For each row, the
second kernel takes the greatest of these logarithms, the sum of the parts' weights beside it, and the parts times
their weights, in order. FlashAttention-2's divides by the sum in the exponent, FlashAttention-3's by its reciprocal.
Sums of weights are added in order here, there by threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from simdnn.kernels.common.code import Code, op
from simdnn.kernels.nvidia.attention_code import COLUMNS, MINUS_INFINITY, QUADS, ROWS, ahead, bits_of, log2_factor
from simdnn.program.records import Affine, Loop, Memory, Op, Register, Tensor

if TYPE_CHECKING:
    from simdnn.kernels.nvidia.attention import FlashAttention

_BLOCK = ROWS * COLUMNS
_LOG2_E, _LN_2 = log2_factor(1.0), bits_of(log(2))
_TOGETHER = 16  # parts whose logarithms are loaded together, as threads of their own do
_WARPS = 4  # of a workgroup that puts parts together: each has a block of columns


@dataclass(frozen=True)
class Joined:
    """The end of a part, and the second kernel, of an attention whose keys are split."""

    kernel: FlashAttention

    # -- the end of a part --------------------------------------------------------------------------------------------
    def part(self, place: Affine) -> Code:
        """The logarithms of a part's sums, and what it found over these, stored."""
        kernel, code = self.kernel, Code()
        for i in kernel.down:
            m, total, x, a = (kernel.of_row(name, i) for name in "mlxa")
            code += [op("selp.f32.some", x, total), op("lg2.approx.ftz.f32", a, x)]
            code += [op("mul.rn.f32.imm", a, a, imm=_LN_2)]
            code += [op("fma.rn.f32.imm", a, a, m, imm=bits_of(kernel.problem.scale))]
            code += [op("rcp.approx.ftz.f32", total, x), op("st.global.f32", self.logarithm(place, i), a)]
        for n, (i, j) in enumerate(kernel.mine([(i, j) for i in kernel.down for j in kernel.wide])):
            o = kernel.sums("o", i, j)
            code += [op("mul.rn.f32.thread", o, o, kernel.of_row("l", i)), op("st.global.f32", self.found(place, n), o)]
        return code

    def logarithm(self, place: Affine, i: int) -> Memory:
        """Where a warp leaves the logarithms of a block of rows."""
        kernel, blocks = self.kernel, self.kernel.rows // ROWS
        row = (kernel.head + Affine.var("group_k") * self.heads + place) * blocks
        row = row + Affine.var("thread") * len(kernel.down) + i
        return Memory("logarithms", row * QUADS, "f32", QUADS)

    def found(self, place: Affine, number: int) -> Memory:
        """Where a warp leaves a number of what it found."""
        first = Affine.var("group_k") * (self.rows * len(self.kernel.wide) * _BLOCK)
        return Memory("parts", first + self.kernel.of_mine(place, number, len(self.kernel.wide), _BLOCK), "f32", _BLOCK)

    @property
    def heads(self) -> int:
        """All heads of queries."""
        return self.kernel.problem.batch * self.kernel.problem.heads

    @property
    def rows(self) -> int:
        """Blocks of rows of all heads."""
        return self.heads * self.kernel.rows // ROWS

    def tensors(self) -> list[Tensor]:
        count = self.kernel.splits * self.rows
        sizes = (("parts", count * len(self.kernel.wide) * _BLOCK), ("logarithms", count * QUADS))
        return [Tensor(name, "f32", size, "scratch") for name, size in sizes]

    # -- the second kernel --------------------------------------------------------------------------------------------
    def code(self) -> Code:
        """Workgroups of each head, block of rows and few blocks of columns; a warp has one of these."""
        kernel, p = self.kernel, self.kernel.problem
        blocks = -(-p.lq // ROWS)
        columns = len(kernel.wide)
        if kernel.clocked:  # those that there are queries for
            columns = -(-columns * p.lq // (blocks * ROWS))
        warps = min(_WARPS, columns)
        sizes = (("group_n", -(-columns // warps)), ("group_m", blocks), ("group_h", p.shared))
        code: Code = [Loop("thread", warps, tuple(self.block(warps)), parallel=True, threads=True)]
        for var, extent in (*sizes, ("group_b", p.batch * p.kv_heads)):
            code = [Loop(var, extent, tuple(code), parallel=True)]
        return code

    def block(self, warps: int) -> Code:
        """A warp's block of rows and columns: its weights, and the parts that they weigh."""
        top, total = (Register(name, "f32", QUADS) for name in ("top", "total"))
        found, more = (Register(name, "f32", _BLOCK) for name in ("o", "more"))
        row = self.kernel.head * (self.kernel.rows // ROWS) + Affine.var("group_m")
        column = Affine.var("group_n") * warps + Affine.var("thread")
        place = (row * len(self.kernel.wide) + column) * _BLOCK

        def greatest(part: Affine, number: int) -> tuple[Code, Code]:
            w, load = self.weight(part, number, row, "ld.global.cg.f32")
            return [load], [op("ptx_max.f32", top, top, w)]

        def summed(part: Affine, number: int) -> tuple[Code, Code]:
            w, load = self.weight(part, number, row)
            return [load], [*power(w, top), op("add.rn.f32", total, total, w)]

        def weighed(part: Affine, number: int) -> tuple[Code, Code]:
            w, load = self.weight(part, number, row)
            where = part * (self.rows * len(self.kernel.wide) * _BLOCK) + place
            code = [*power(w, top), *([op("mul.rn.f32", w, w, total)] if self.kernel.overlapped else [])]
            loads: Code = [load, op("ld.global.cg.f32", more, Memory("parts", where, "f32", _BLOCK))]
            return loads, [*code, op("fma.rn.f32.thread", found, found, more, w)]

        code: Code = [op("xor.b32", *[register.as_("u32")] * 3) for register in (top, total, found)]
        code.append(op("ptx_add.u32.imm", top.as_("u32"), top.as_("u32"), imm=MINUS_INFINITY))
        code += self.over_parts(greatest, _TOGETHER)
        # the logarithms go through shared memory; on Hopper that begins before the first kernel ends
        code.append(Loop("n", 1, tuple(self.over_parts(summed, _TOGETHER)), staged=0 if self.kernel.overlapped else 1))
        if self.kernel.overlapped:
            code.append(op("rcp.approx.ftz.f32", total, total))
        else:
            code += [op("lg2.approx.ftz.f32", total, total), op("mul.rn.f32.imm", total, total, imm=_LN_2)]
            code.append(op("add.rn.f32", top, total, top))
        return [*code, *self.over_parts(weighed, 1), *self.stored(found, place)]

    def weight(self, part: Affine, number: int, row: Affine, load: str = "ld.global.f32") -> tuple[Register, Op]:
        """The register of a part's logarithms, and their load."""
        w = Register(f"w_{number}", "f32", QUADS)
        return w, op(load, w, Memory("logarithms", (part * self.rows + row) * QUADS, "f32", QUADS))

    def over_parts(self, step: Callable[[Affine, int], tuple[Code, Code]], together: int) -> Code:
        """A step for each part, in order, whose loads stand together for so many of them."""
        turns, left = divmod(self.kernel.splits, together)
        first = Affine.var("s") * together
        some = ahead([step(first + n, n) for n in range(together)], together)
        rest = ahead([step(Affine(turns * together + n), n) for n in range(left)], together)
        return [*([Loop("s", turns, tuple(some))] if turns else []), *rest]

    def stored(self, found: Register, place: Affine) -> Code:
        """The sum of the parts, stored in the destination's type."""
        dst = self.kernel.problem.dst
        ending = Register("end", dst, _BLOCK) if dst != "f32" else found
        code = [op(f"cvt.rn.{dst}.f32", ending, found)] if dst != "f32" else []
        return [*code, op(f"st.global.{dst}", Memory("dst", place, dst, _BLOCK), ending)]


def power(w: Register, top: Register) -> Code:
    """e to the power of w less another, in its place."""
    return [op("sub.rn.f32", w, w, top), op("mul.rn.f32.imm", w, w, imm=_LOG2_E), op("ex2.approx.ftz.f32", w, w)]
