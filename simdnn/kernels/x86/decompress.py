"""GEMM over compressed weights: each panel is brought to floating point just before its tiles, in a buffer that stays
in the cache; then the products are those of any floating-point GEMM.

    for each panel of columns:
        for each group of K:                 (w - zero point) * scale in f32, rounded to bf16 where that is multiplied
            for each pair of rows            into the buffer, as the dot product wants it
        for each block of rows: a register tile over the buffer

A scale that is common or per channel multiplies the result instead (docs/numerics.md, rule 10), but not where sums are
of f16: stored integers up to 255 would leave its range, which their scale keeps them in.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import gcd, lcm

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, Unit, broadcast32, load32, load_bf16, loop, op, zero
from simdnn.kernels.common.rounding import round_f32
from simdnn.kernels.common.spec import Decompression, Kernel, MatmulProblem, Parameters, Placing
from simdnn.kernels.x86.blocking import SECOND_LEVEL, Blocking, choose
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.epilogue import Plan
from simdnn.kernels.x86.gemm import Gemm, Options
from simdnn.kernels.x86.stored import NIBBLES, StoredRows, odd_nibbles, widen
from simdnn.kernels.x86.tile import Panel
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

_MOST_UNROLLED = 256  # rows


class CompressedGemm(Gemm):
    """The generator for one matmul with a `Decompression`, or with f32 weights that are rounded to bf16 (None)."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit, dot: Dot, options: Options) -> None:
        super().__init__(name, problem, unit, dot, options)
        self.matmul = problem
        self.compressed = problem.decompression or Decompression((dot.compute,))

    @property
    def plain(self) -> bool:
        return False

    @property
    def packed_here(self) -> bool:
        return False

    @cached_property
    def blocking(self) -> Blocking:
        """That of a matrix no wider than the panel whose buffer the second cache holds."""
        column = self.reading.ic * fmt(self.dot.wei).bits // 8
        columns = max(1, 2 * SECOND_LEVEL // (column * self.unit.lanes)) * self.unit.lanes
        return choose(self.unit, self.dot, self.rows, min(self.oc, columns), False)

    @cached_property
    def stored(self) -> StoredRows:
        return StoredRows(self.unit, self.matmul.wei, self.tag, self.matmul.k, self.oc, self.layout)

    @property
    def in_weights(self) -> Placing | None:
        """The scale, where it multiplies the weights."""
        scale = self.compressed.scale
        always = self.compressed.reference or self.dot.narrow_sums
        return scale if scale and (always or scale.placing == "grouped") else None

    @cached_property
    def plan(self) -> Plan:
        if not self.matmul.decompression:  # f32 weights: their scale is the epilogue's
            return Plan(self.conv.epilogue, integer=False)
        scale, epilogue = self.compressed.scale, self.conv.epilogue
        after = scale.placing if scale and not self.in_weights else ""
        each = epilogue.src_scale and not self.dot.scaled
        return Plan(
            replace(epilogue, wei_scale=after, src_scale=each), integer=False, reference=self.compressed.reference
        )

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        code = self.setup() + self.reading.stage(self.unit) + self.stored.stage()
        for panels, panel, number in self.expanded():
            body = self.expand(panel, number)
            for first, height, count in self.row_blocks:
                body += self.nest(first, height, count, 1, panel, parallel=False)
            code += loop("panel", panels, body, parallel=True)
        name = f"{self.name} {self.matmul}"
        return verify(Program(name, self.unit.isa, tuple(self.tensors()), tuple(code)))

    def expanded(self) -> list[tuple[int, Panel, Affine]]:
        """(how many, the panel in its buffer, its number) for whole panels and for the last one."""
        layout, lanes, depth = self.layout, self.unit.lanes, self.dot.depth
        found = []
        if layout.full:
            number = Affine.var("panel")
            column = number * layout.width
            live = tuple(min(lanes, self.oc - j * lanes) for j in range(layout.width // lanes))
            panel = Panel("wei", layout.width // lanes, live, Affine(), layout.width * depth, column, column)
            found.append((layout.full, panel, number))
        if layout.tail:
            first = layout.full * layout.width
            live = tuple(min(lanes, self.oc - first - j * lanes) for j in range(layout.tail // lanes))
            at = Affine(first)
            panel = Panel("wei_tail", layout.tail // lanes, live, Affine(), layout.tail * depth, at, at)
            found.append((1, panel, Affine()))
        return found

    def tensors(self) -> list[Tensor]:
        c, layout = self.conv, self.layout
        tensors = self.reading.tensors() + self.stored.tensors() + self.buffers()
        for name, placing in (("group_scale", self.in_weights), ("zero_point", self.compressed.zero_point)):
            if placing:
                tensors.append(Tensor(name, _kept(placing), self.values(placing)))
        if self.dot.wei == "bf16":
            lanes = self.unit.lanes
            order = np.array([k for i in range(lanes) for k in (i, lanes + i)], np.uint16)
            tensors.append(Tensor.constant("interleave", "u16", order.tobytes()))
        if self.dot.scaled:
            tensors.append(Tensor("src_scale", "f32", 1))
        tensors += self.plan.tensors(self.unit, layout.channels, 1, self.rows * self.oc)
        if self.total == "total" and self.chained:
            tensors.append(Tensor("total", "f32", self.rows * self.oc, "scratch"))
        return [*tensors, Tensor("dst", c.epilogue.dst, self.rows * self.oc, "output")]

    def buffers(self) -> list[Tensor]:
        """Where a panel's decompressed weights stand."""
        sizes = ("wei", self.layout.full and self.layout.width), ("wei_tail", self.layout.tail)
        return [Tensor(name, self.dot.wei, self.layout.icp * width, "private") for name, width in sizes if width]

    def values(self, placing: Placing) -> int:
        """How many values of a parameter are kept: by group and channel, with the padding of panels."""
        groups = self.matmul.k // placing.group if placing.placing == "grouped" else 1
        return groups * (self.layout.channels if placing.by_channel else 1)

    def expand(self, panel: Panel, number: Affine) -> Code:
        """The panel's weights into its buffer."""
        names = [f"c{i}_{j}" for j in range(panel.vectors) for i in range(self.blocks)][:7]
        r = [*names, *(f"d{i}" for i in range(7 - len(names)))]
        code = self.stored.setup(r[6])
        for j in range(panel.vectors):
            code += self.expand_vector(r, panel, number, j)
        if self.dot.wei == "bf16":
            return [load32(self.unit, self.unit.reg(r[4]), "interleave", Affine(), self.unit.lanes), *code]
        return code

    def expand_vector(self, r: list[str], panel: Panel, number: Affine, j: int) -> Code:
        """One vector of columns: a loop over groups, or over as many rows as groups of odd length take for pairs."""
        k, (step, large) = self.matmul.k, lengths(self.compressed, self.matmul.k)
        outer = Affine.var("outer")
        if step % 2 == 0 or step == k or not (self.dot.depth == 2 or self.stored.paired):
            if self.nested:
                body = self.group_rows(r, panel, number, j, outer * large + Affine.var("group") * step, step)
                return loop("outer", k // large, loop("group", large // step, body))
            parts = (self.group_rows(r, panel, number, j, outer * large + at, step) for at in range(0, large, step))
            return loop("outer", k // large, [statement for part in parts for statement in part])
        if self.nested and large % (2 * step) == 0:
            row = outer * large + Affine.var("group") * (2 * step)
            body = self.unrolled(r, panel, number, j, row, 2 * step)
            return loop("outer", k // large, loop("group", large // (2 * step), body))
        turns, rest = divmod(k, lcm(2, large))
        code = loop("outer", turns, self.unrolled(r, panel, number, j, outer * lcm(2, large), lcm(2, large)))
        return code + loop("outer", 1, self.unrolled(r, panel, number, j, Affine(k - rest), rest))  # as all the others

    @property
    def nested(self) -> bool:
        """Whether groups are of one length, or of two of which one divides the other."""
        return nest(self.compressed, self.matmul.k)

    def group_rows(self, r: list[str], panel: Panel, number: Affine, j: int, row: Affine, count: int) -> Code:
        """`count` rows from `row` on that share their parameters."""
        turns, rest = divmod(count, 2)
        code = self.parameters_of(r, panel, j, row, 0)
        code += loop("k", turns, self.pair(r, panel, number, j, row + Affine.var("k") * 2, True))
        return code + (self.pair(r, panel, number, j, row + (count - 1), False) if rest else [])

    def unrolled(self, r: list[str], panel: Panel, number: Affine, j: int, row: Affine, count: int) -> Code:
        """`count` rows, pair by pair, with each row's own parameters."""
        step, _ = lengths(self.compressed, self.matmul.k)
        code: Code = []
        for at in range(0, count, 2):
            both = at + 1 < count
            code += self.parameters_of(r, panel, j, row, at) if at == 0 or at % step == 0 else []
            second = self.parameters_of(r, panel, j, row, at + 1) if both and (at + 1) % step == 0 else []
            code += self.pair(r, panel, number, j, row + at, both, second)
        return code

    @cached_property
    def blocks(self) -> int:
        """Rows of the highest tile, whose accumulators the expansion may use: they are free until the tiles begin."""
        return max(height for _, height, _ in self.row_blocks)

    def parameters_of(self, r: list[str], panel: Panel, j: int, row: Affine, further: int) -> Code:
        """Zero points to register 2 and scales to register 3, as f32, of one vector of columns in row `row + further`.

        `row` is the first of a group of each kind, but for the loop over smaller groups within it.
        """
        code: Code = []
        for register, tensor, placing in (
            (r[2], "zero_point", self.compressed.zero_point),
            (r[3], "group_scale", self.in_weights),
        ):
            if placing is None:
                continue
            at = panel.channel + j * self.unit.lanes if placing.by_channel else Affine()
            if placing.placing == "grouped" and placing.group < self.matmul.k:
                group = Affine(
                    (row.const + further) // placing.group,
                    tuple((name, rows // placing.group) for name, rows in row.terms if rows % placing.group == 0),
                )
                at = at + group * (self.layout.channels if placing.by_channel else 1)
            code += self.load_parameter(register, tensor, placing, at)
        return code

    def load_parameter(self, register: str, tensor: str, placing: Placing, at: Affine) -> Code:
        unit, kept, common = self.unit, _kept(placing), not placing.by_channel
        value = unit.reg(register, "f32")
        if kept == "f32":
            return [broadcast32(value, tensor, at) if common else load32(unit, value, tensor, at, unit.lanes)]
        if kept == "s32":
            bits = value.as_("u32")
            load = broadcast32(bits, tensor, at) if common else load32(unit, bits, tensor, at, unit.lanes)
            return [load, op("vcvtdq2ps", value, value.as_("s32"))]
        if kept in ("s8", "u8"):
            source = Memory(tensor, at, kept, unit.lanes)
            return [widen(unit, register, source), op("vcvtdq2ps", value, value.as_("s32"))]
        if kept == "bf16":
            return load_bf16(unit, register, tensor, at, unit.lanes)
        return [op("vcvtph2ps", value, Memory(tensor, at, "f16", unit.lanes))]

    def pair(
        self, r: list[str], panel: Panel, number: Affine, j: int, row: Affine, both: bool, second: Code | None = None
    ) -> Code:
        """Rows `row` and `row + 1` (or the first alone) of one vector of columns, from storage to the buffer.

        `second` loads the second row's parameters where they are not the first one's.
        """
        unit, width = self.unit, panel.vectors * self.unit.lanes
        code = self.stored.load(r[: 1 + both], r[5], r[6], panel, number, j, row)
        code += self.dequantize(r[0], r[2], r[3])
        code += [*(second or ()), *self.dequantize(r[1], r[2], r[3])] if both else []
        base = panel.base + j * unit.lanes * self.dot.depth
        if self.dot.depth == 1:
            for i, register in enumerate(r[: 1 + both]):
                at, value = base + (row + i) * width, unit.reg(register, "f32")
                if self.dot.wei == "f16":
                    code.append(op("vcvtps2ph", Memory(panel.tensor, at, "f16", unit.lanes), value, imm=0))
                else:
                    code += round_f32(unit, self.dot.rounds, value, (r[2], r[3], r[4])) if self.dot.rounds else []
                    code.append(op("vmovups", Memory(panel.tensor, at, "f32", unit.lanes), value))
            return code
        if not both:
            code.append(zero(unit.reg(r[1])))
        code += self.interleaved(r)
        store = Memory(panel.tensor, base + row * width, "u32", unit.lanes)
        return [*code, op("vmovdqu", store, unit.reg(r[0]))]

    def interleaved(self, r: list[str]) -> Code:
        """Two rows of f32, in registers 0 and 1, as pairs of what is multiplied, in register 0."""
        unit = self.unit
        low, high = unit.reg(r[0], "f32"), unit.reg(r[1], "f32")
        if self.dot.wei == "bf16":
            words = unit.reg(r[0], "u16")
            return [
                op("vcvtne2ps2bf16", words.as_("bf16"), high, low),
                op("vpermw", words, unit.reg(r[4], "u16"), words),
            ]
        code: Code = []
        for value in (low, high):
            half = Register(value.name, "f16", unit.lanes)
            code += [op("vcvtps2ph", half, value, imm=0), op("vpmovzxwd", value.as_("u32"), half.as_("u16"))]
        first, second = low.as_("u32"), high.as_("u32")
        return [*code, op("vpslld", second, second, imm=16), op("vpor", first, first, second)]

    def dequantize(self, register: str, zero_point: str, scale: str) -> Code:
        """(w - zero point) * scale, two roundings."""
        unit = self.unit
        value = unit.reg(register, "f32")
        ready = self.matmul.wei == "f32" or self.stored.looked_up
        code: Code = [] if ready else [op("vcvtdq2ps", value, value.as_("s32"))]
        if self.compressed.zero_point:
            code.append(op("vsubps", value, value, unit.reg(zero_point, "f32")))
        if self.in_weights:
            code.append(op("vmulps", value, value, unit.reg(scale, "f32")))
        return code

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        stored = ("stored", "stored_tail", "plain")
        return Kernel(self.name, self.program, self.prepare, self.finish, self.dot.compute, stored)

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """The program's inputs."""
        inputs: dict[str, Array] = {"src": to_a_line(src).reshape(-1), **self.stored.arrays(weights)}
        for name, placing, values in (
            ("group_scale", self.in_weights, parameters.wei_scale),
            ("zero_point", self.compressed.zero_point, parameters.wei_zero_points),
        ):
            if placing:
                assert values is not None
                inputs[name] = self.kept(placing, np.asarray(values))
        inputs.update(self.parameter_tensors(np.zeros((1, self.oc, self.matmul.k, 1, 1), np.int8), parameters))
        return {t.name: inputs[t.name] for t in self.program.tensors if t.kind == "input"}

    def kept(self, placing: Placing, values: Array) -> Array:
        """A parameter in its stored type, by group and channel."""
        dtype = fmt(_kept(placing)).dtype
        if not placing.by_channel:
            return values.reshape(-1).astype(dtype)
        padded = np.zeros((self.values(placing) // self.layout.channels, self.layout.channels), np.float64)
        padded[:, : self.oc] = values.reshape(-1, self.oc)
        exact = padded.astype(np.float32 if fmt(_kept(placing)).is_float else np.int64)
        return exact.astype(dtype).reshape(-1)


def lengths(d: Decompression, k: int) -> tuple[int, int]:
    """Runs of rows within K: how many share all parameters at least, and after how many all groups begin together.

    >>> lengths(Decompression(("f32",), Placing("grouped", "f32", 32), Placing("per_oc", "s8")), 64)
    (32, 32)
    >>> lengths(Decompression(("f32",), Placing("grouped", "f32", 32), Placing("grouped", "s8", 48)), 96)
    (16, 96)
    """
    groups = _groups(d, k) or [k]
    return gcd(*groups), lcm(*groups)


def nest(d: Decompression, k: int) -> bool:
    """Whether groups are of one length, or of two of which one divides the other."""
    return set(_groups(d, k)) <= set(lengths(d, k))


def _groups(d: Decompression, k: int) -> list[int]:
    return [p.group for p in (d.scale, d.zero_point) if p and p.placing == "grouped" and p.group < k]


def refuses_groups(problem: MatmulProblem, dot: Dot) -> str:
    """Why groups along K, or plain nibbles, cannot be had; empty where they can."""
    p, k, d = problem, problem.k, problem.decompression
    assert d
    step, large = lengths(d, k)
    if any(k % group for group in _groups(d, k)):
        return f"groups of {sorted(_groups(d, k))} that do not divide K = {k}"
    if not nest(d, k) and large // step > _MOST_UNROLLED:
        return f"groups of {sorted(_groups(d, k))}, of which none divides the other and no short run holds both"
    if reason := odd_nibbles(p.wei, p.wei_tag, k, p.n):
        return reason
    if dot.depth == 2 or (p.wei in NIBBLES and (p.wei_tag != "ab" or p.n == 1)):
        count = 2 * step if nest(d, k) and large % (2 * step) == 0 else lcm(2, large)
        if step % 2 and step < k and count > _MOST_UNROLLED:
            return f"takes rows in pairs: groups of an even length, or up to {_MOST_UNROLLED // 2}, not {step}"
    return ""


def _kept(placing: Placing) -> str:
    """The type in which a parameter is kept: 4-bit ones in bytes; those of all columns ready for a broadcast."""
    dtype = {"s4": "s8", "u4": "u8"}.get(placing.dtype, placing.dtype)
    if not placing.by_channel:
        return "f32" if fmt(dtype).is_float else "s32"
    return dtype
