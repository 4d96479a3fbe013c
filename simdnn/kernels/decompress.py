"""GEMM over compressed weights: each panel is brought to floating point just before its tiles, in a buffer that stays
in the cache; then the products are those of any floating-point GEMM.

    for each panel of columns:
        for each group of K:                 (w - zero point) * scale in f32, rounded to bf16 where that is multiplied
            for each pair of rows            into the buffer, as the dot product wants it
        for each block of rows: a register tile over the buffer

A scale that is common or per channel multiplies the result instead (docs/numerics.md, rule 10).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from isa_models.arrays import Array
from isa_models.formats import fmt
from simdnn.kernels.blocking import choose, row_blocks
from simdnn.kernels.code import Code, Unit, broadcast32, load32, load_bf16, loop, op, zero
from simdnn.kernels.dots import Dot
from simdnn.kernels.epilogue import Plan
from simdnn.kernels.gemm import Gemm, Options
from simdnn.kernels.rounding import round_f32
from simdnn.kernels.spec import Decompression, Kernel, MatmulProblem, Parameters, Placing
from simdnn.kernels.tile import Panel
from simdnn.program import Affine, Memory, Op, Program, Register, Tensor
from simdnn.verify import verify

_NIBBLES = ("s4", "u4")


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

    @property
    def in_weights(self) -> Placing | None:
        """The scale, where it multiplies the weights."""
        scale = self.compressed.scale
        return scale if scale and (scale.placing == "grouped" or self.compressed.reference) else None

    @cached_property
    def plan(self) -> Plan:
        scale = self.compressed.scale
        after = scale.placing if scale and not self.in_weights else ""
        return Plan(replace(self.conv.epilogue, wei_scale=after), integer=False)

    @property
    def rows_direct(self) -> bool:
        """Whether rows are read as the user stores them."""
        return self.tag == "ab"

    @property
    def nibbles(self) -> bool:
        return self.matmul.wei in _NIBBLES

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        code = self.reading.stage(self.unit)
        blocking = choose(self.unit, self.dot, self.rows, self.oc, False)
        for panels, panel, number in self.expanded():
            body = self.expand(panel, number)
            for first, height, count in row_blocks(self.rows, blocking.rows):
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
        c, layout, wei = self.conv, self.layout, self.matmul.wei
        tensors = self.reading.tensors()
        stored = "u8" if self.nibbles else wei
        rows = -(-self.matmul.k // 2) if self.nibbles else self.matmul.k
        if self.rows_direct:
            tensors.append(Tensor("stored", stored, rows * self.oc))
        for name, width in (("", layout.full * layout.width), ("_tail", layout.tail)):
            if width and not self.rows_direct:
                tensors.append(Tensor(f"stored{name}", stored, rows * width))
        if layout.full:
            tensors.append(Tensor("wei", self.dot.wei, layout.icp * layout.width, "private"))
        if layout.tail:
            tensors.append(Tensor("wei_tail", self.dot.wei, layout.icp * layout.tail, "private"))
        for name, placing in (("group_scale", self.in_weights), ("zero_point", self.compressed.zero_point)):
            if placing:
                tensors.append(Tensor(name, _kept(placing), self.values(placing)))
        if self.dot.wei == "bf16":
            lanes = self.unit.lanes
            order = np.array([k for i in range(lanes) for k in (i, lanes + i)], np.uint16)
            tensors.append(Tensor.constant("interleave", "u16", order.tobytes()))
        if self.matmul.wei == "u4":
            tensors.append(Tensor.constant("nibble", "u32", np.uint32(15).tobytes()))
        tensors += self.plan.tensors(self.unit, layout.channels, 1)
        if self.total == "total" and self.chained:
            tensors.append(Tensor("total", "f32", self.rows * self.oc, "scratch"))
        return [*tensors, Tensor("dst", c.epilogue.dst, self.rows * self.oc, "output")]

    def values(self, placing: Placing) -> int:
        """How many values of a parameter are kept: by group and channel, with the padding of panels."""
        if placing.placing == "common":
            return 1
        return self.layout.channels * (self.matmul.k // placing.group if placing.placing == "grouped" else 1)

    def expand(self, panel: Panel, number: Affine) -> Code:
        """The panel's weights into its buffer."""
        k = self.matmul.k
        groups = self.group_sizes
        step, large = min(groups, default=k), max(groups, default=k)
        code: Code = []
        names = [f"c{i}_{j}" for j in range(panel.vectors) for i in range(self.blocks)][:6]
        r = [*names, *(f"d{i}" for i in range(6 - len(names)))]
        for j in range(panel.vectors):
            group = Affine.var("outer") * (large // step) + Affine.var("group")
            body = self.parameters_of(r, panel, j, group, step)
            turns, rest = divmod(step, 2)
            body += loop("k", turns, self.pair(r, panel, number, j, group * step + Affine.var("k") * 2, True))
            body += self.pair(r, panel, number, j, group * step + (step - 1), False) if rest else []
            code += loop("outer", k // large, loop("group", large // step, body))
        setup: Code = []
        if self.dot.wei == "bf16":
            setup.append(load32(self.unit, self.unit.reg(r[4]), "interleave", Affine(), self.unit.lanes))
        return setup + code

    @property
    def group_sizes(self) -> set[int]:
        return group_sizes(self.compressed)

    @cached_property
    def blocks(self) -> int:
        """Rows of the highest tile, whose accumulators the expansion may use: they are free until the tiles begin."""
        blocking = choose(self.unit, self.dot, self.rows, self.oc, False)
        return max(height for _, height, _ in row_blocks(self.rows, blocking.rows))

    def parameters_of(self, r: list[str], panel: Panel, j: int, group: Affine, step: int) -> Code:
        """Zero points to register 2 and scales to register 3, as f32, for one vector of columns in one group."""
        code: Code = []
        for register, tensor, placing in (
            (r[2], "zero_point", self.compressed.zero_point),
            (r[3], "group_scale", self.in_weights),
        ):
            if placing is None:
                continue
            at = Affine() if placing.placing == "common" else panel.channel + j * self.unit.lanes
            if placing.placing == "grouped":
                at = at + (group if placing.group == step else Affine.var("outer")) * self.layout.channels
            code += self.load_parameter(register, tensor, placing, at)
        return code

    def load_parameter(self, register: str, tensor: str, placing: Placing, at: Affine) -> Code:
        unit, kept, common = self.unit, _kept(placing), placing.placing == "common"
        value = unit.reg(register, "f32")
        if kept == "f32":
            return [broadcast32(value, tensor, at) if common else load32(unit, value, tensor, at, unit.lanes)]
        if kept == "s32":
            bits = value.as_("u32")
            load = broadcast32(bits, tensor, at) if common else load32(unit, bits, tensor, at, unit.lanes)
            return [load, op("vcvtdq2ps", value, value.as_("s32"))]
        if kept in ("s8", "u8"):
            return [self.widen(register, tensor, at, kept, unit.lanes), op("vcvtdq2ps", value, value.as_("s32"))]
        if kept == "bf16":
            return load_bf16(unit, register, tensor, at, unit.lanes)
        return [op("vcvtph2ps", value, Memory(tensor, at, "f16", unit.lanes))]

    def widen(self, register: str, tensor: str, at: Affine, dtype: str, lanes: int) -> Op:
        """Bytes to 32-bit lanes."""
        name, wide = ("vpmovsxbd", "s32") if dtype == "s8" else ("vpmovzxbd", "u32")
        return op(name, self.unit.reg(register, wide), Memory(tensor, at, dtype, lanes))

    def pair(self, r: list[str], panel: Panel, number: Affine, j: int, row: Affine, both: bool) -> Code:
        """Rows `row` and `row + 1` (or the first alone) of one vector of columns, from storage to the buffer."""
        unit, width = self.unit, panel.vectors * self.unit.lanes
        code = self.load_rows(r, panel, number, j, row, both)
        for register in r[: 1 + both]:
            code += self.dequantize(register, r[2], r[3])
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

    def load_rows(self, r: list[str], panel: Panel, number: Affine, j: int, row: Affine, both: bool) -> Code:
        """The rows as 32-bit integers or floats."""
        unit, wei = self.unit, self.matmul.wei
        width = panel.vectors * unit.lanes
        if self.rows_direct:
            tensor, live = "stored", panel.lanes[j]
            index = row * self.oc + panel.dst + j * unit.lanes
            stride = self.oc
        else:
            tensor, live, stride = panel.tensor.replace("wei", "stored"), unit.lanes, width
            rows = -(-self.matmul.k // 2) * 2 if self.nibbles else self.matmul.k
            index = number * (rows * width) + row * width + j * unit.lanes
        if wei == "f32":
            return [load32(unit, unit.reg(r[i], "f32"), tensor, index + i * stride, live) for i in range(1 + both)]
        if not self.nibbles:
            return [self.widen(r[i], tensor, index + i * stride, wei, live) for i in range(1 + both)]
        # a byte holds the column's nibbles of both rows, the first row's in its low half
        at = number * (-(-self.matmul.k // 2) * width) + Affine(row.const // 2, _halves(row)) * width + j * unit.lanes
        low, high = unit.reg(r[0]), unit.reg(r[1])
        code: Code = [op("vpmovzxbd", low, Memory(tensor, at, "u8", unit.lanes))]
        if wei == "u4":
            mask = unit.reg(r[5])
            code += [op("vpsrld", high, low, imm=4), broadcast32(mask, "nibble", Affine())] if both else []
            code += [] if both else [broadcast32(mask, "nibble", Affine())]
            return [*code, op("vpand", low, low, mask)]
        if both:
            code += [op("vpslld", high, low, imm=24), op("vpsrad", high.as_("s32"), high.as_("s32"), imm=28)]
        return [*code, op("vpslld", low, low, imm=28), op("vpsrad", low.as_("s32"), low.as_("s32"), imm=28)]

    def dequantize(self, register: str, zero_point: str, scale: str) -> Code:
        """(w - zero point) * scale, two roundings."""
        unit = self.unit
        value = unit.reg(register, "f32")
        code: Code = [] if self.matmul.wei == "f32" else [op("vcvtdq2ps", value, value.as_("s32"))]
        if self.compressed.zero_point:
            code.append(op("vsubps", value, value, unit.reg(zero_point, "f32")))
        if self.in_weights:
            code.append(op("vmulps", value, value, unit.reg(scale, "f32")))
        return code

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        stored = ("stored", "stored_tail")
        return Kernel(self.name, self.program, self.prepare, self.finish, self.dot.compute, stored)

    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        """The program's inputs."""
        layout, k = self.layout, self.matmul.k
        inputs: dict[str, Array] = {"src": np.ascontiguousarray(src).reshape(-1)}
        if self.rows_direct:
            inputs["stored"] = np.ascontiguousarray(weights).reshape(-1)
        else:
            rows = weights.astype(np.int8 if self.matmul.wei == "s4" else weights.dtype)
            if self.nibbles:
                rows = _nibbles(rows.astype(np.int16))
            wide = np.zeros((len(rows), layout.channels), rows.dtype)
            wide[:, : self.oc] = rows
            whole = layout.full * layout.width
            panels = wide[:, :whole].reshape(len(rows), layout.full, layout.width).transpose(1, 0, 2)
            inputs["stored"] = np.ascontiguousarray(panels).reshape(-1)
            inputs["stored_tail"] = np.ascontiguousarray(wide[:, whole:]).reshape(-1)
        for name, placing, values in (
            ("group_scale", self.in_weights, parameters.wei_scale),
            ("zero_point", self.compressed.zero_point, parameters.wei_zero_points),
        ):
            if placing:
                assert values is not None
                inputs[name] = self.kept(placing, np.asarray(values))
        inputs.update(self.parameter_tensors(np.zeros((1, self.oc, k, 1, 1), np.int8), parameters))
        return {t.name: inputs[t.name] for t in self.program.tensors if t.kind == "input"}

    def kept(self, placing: Placing, values: Array) -> Array:
        """A parameter in its stored type, by group and channel."""
        dtype = fmt(_kept(placing)).dtype
        if placing.placing == "common":
            return values.reshape(1).astype(dtype)
        padded = np.zeros((self.values(placing) // self.layout.channels, self.layout.channels), np.float64)
        padded[:, : self.oc] = values.reshape(-1, self.oc)
        exact = padded.astype(np.float32 if fmt(_kept(placing)).is_float else np.int64)
        return exact.astype(dtype).reshape(-1)


def group_sizes(d: Decompression) -> set[int]:
    """The lengths along K that share a value; of scales, where they are grouped or the reference has them in weights.

    >>> group_sizes(Decompression(("f32",), Placing("grouped", "f32", 32), Placing("per_oc", "s8")))
    {32}
    """
    return {p.group for p in (d.scale, d.zero_point) if p and p.placing == "grouped"}


def _kept(placing: Placing) -> str:
    """The type in which a parameter is kept: 4-bit ones in bytes; common ones ready for a broadcast."""
    dtype = {"s4": "s8", "u4": "u8"}.get(placing.dtype, placing.dtype)
    if placing.placing == "common":
        return "f32" if fmt(dtype).is_float else "s32"
    return dtype


def _halves(row: Affine) -> tuple[tuple[str, int], ...]:
    return tuple((name, coefficient // 2) for name, coefficient in row.terms)


def _nibbles(rows: Array) -> Array:
    """Two rows in a byte, the first one's nibble low."""
    if len(rows) % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    return ((rows[0::2] & 15) | ((rows[1::2] & 15) << 4)).astype(np.uint8)

