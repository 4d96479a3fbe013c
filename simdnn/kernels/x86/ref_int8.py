"""Integer matmul with zero points that change along K or from column to column: oneDNN's `ref_int8`, which is exact.

widen the source to s32
for each row, each vector of columns:           parallel
    for each group of scales:
        for each group of zero points, each k:  sum += (src - its zero point) * (weights - theirs)
        to f32, times both scales, added to the total (only where scales change along K)
    epilogue (epilogue.py)

That is strategy "direct". With the user's reductions R (sums of the source over each group), "precomputed", the weights
go into the products as they are, and each group's sum loses zero point * (R - source's zero point * group's length); R
is trusted. The library has these two. This package adds three: "in_kernel" forms R in the loop; "bias" reads the part
that weights zero points have in each group of scales from a matrix made before; "upconvert" converts both factors to
f32 and adds their products up there, which gives the same bits as long as sums stay below 2**24.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, loop, op, pieces
from simdnn.kernels.common.epilogue import Parameters, ZeroPoints
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.pack import filled, inputs_of
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, zero
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.kernels.x86.stored import widen
from simdnn.program.check import verify
from simdnn.program.records import SCALES, SOURCE, WEIGHTS, ZEROS, Affine, Memory, Program, Register, Tensor

#: of zero points: how the part of the sum is found that is theirs
STRATEGIES = ("direct", "in_kernel", "precomputed", "bias", "upconvert")
_OF_PRODUCTS = ("sum", "w", "points", "offset", "product", "sums")  # registers that products need, and no epilogue


class RefInt8:
    """The generator for one problem with `zero_points`."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        self.name, self.problem, self.unit = name, problem, unit
        self.period = problem.scale_period
        self.zeros = problem.zero_points or ZeroPoints(self.period)
        self.columns = -(-problem.n // unit.lanes) * unit.lanes
        self.groups = problem.k // self.zeros.group
        self.strategy = self.zeros.strategy or ("precomputed" if self.zeros.reductions else "direct")

    @property
    def floating(self) -> bool:
        """Whether products are added up in f32."""
        return self.strategy == "upconvert"

    def uses(self, strategy: str) -> bool:
        """Whether the weights' zero points are applied so."""
        return self.zeros.wei is not None and self.strategy == strategy

    @property
    def scaled(self) -> bool:
        return self.problem.group_scales is not None

    @cached_property
    def plan(self) -> Plan:
        p, integer = self.problem, not (self.scaled or self.floating)
        followed = p.zero_points or p.group_scales  # oneDNN's reference, or its brgemm; or none: this package's kernels
        ends = followed.reference if followed else True
        return Plan(p.epilogue, integer, through_float=p.reference, reference=ends)

    @property
    def stored(self) -> str:
        """The weights' type in memory: 4-bit ones become s8 ahead of time."""
        return "u8" if self.problem.wei == "u8" else "s8"

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = self.widen() + self.turn()
        for count, first, live in pieces("j", p.n, self.unit.lanes):
            inner = loop("j", count, self.vector(first, live), parallel=True)
            code += loop("r", p.m, inner, parallel=True)
        text = f"{self.name} {p}"
        return verify(Program(text, self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p, z = self.problem, self.zeros
        scales = p.group_scales
        wanted = [
            Tensor("src", p.src, p.m * p.k, role=SOURCE),
            Tensor("wide", "s32", p.m * p.k, "scratch"),
            *([Tensor("plain", self.stored, p.k * p.n, role=WEIGHTS)] if self.turned else []),
            Tensor("wei", self.stored, p.k * self.columns, "scratch" if self.turned else "input", role=WEIGHTS),
            *([Tensor("wei_zeros", "s32", self.groups * self.columns, role=ZEROS)] if z.wei else []),
            *([Tensor("src_zeros", "s32", p.m * self.groups, role=ZEROS)] if z.src else []),
        ]
        parts = p.k // self.period
        if self.uses("precomputed"):
            wanted.append(Tensor("reductions", "s32", p.m * self.groups, role=ZEROS))
            wanted += [Tensor.constant("length", "s32", np.int32(z.group).tobytes())] if z.src else []
        if self.uses("bias"):
            wanted.append(Tensor("term", "s32", p.m * parts * self.columns, role=ZEROS))
        if scales:
            wanted += [Tensor("src_group_scale", "f32", p.m * parts, role=SCALES)] if scales.src else []
            wanted += [Tensor("wei_group_scale", "f32", parts * self.columns, role=SCALES)] if scales.wei else []
        dst = Tensor("dst", p.epilogue.dst, p.m * p.n, "output")
        return [*wanted, *self.plan.tensors(self.unit, self.columns, 1, p.m * p.n), dst]

    @property
    def turned(self) -> bool:
        """Whether the program makes rows of weights that are contiguous along K."""
        return self.problem.wei_tag == "ba"

    def turn(self) -> Code:
        """Rows of weights from columns, a register of bytes at a time; zeros behind the last column."""
        if not self.turned:
            return []
        p, lanes, k = self.problem, self.unit.lanes, Affine.var("k")
        value = Register("t", "u8", 16)

        def row(first: Affine, live: int) -> Code:
            code: Code = [zero(value)]
            for i in range(live):
                element = Memory("plain", (first + i) * p.k + k, "u8", 1)
                code.append(op("vpinsrb", value, value, element, imm=i))
            at = k * self.columns + first
            if lanes == 16:
                return [*code, op("vmovdqu", Memory("wei", at, "u32", 4), value.as_("u32"))]
            return [*code, op("vmovq", Memory("wei", at, "u64", 1), value.as_("u64"))]

        code: Code = []
        for count, first, live in pieces("v", p.n, lanes):
            code += loop("v" if live == lanes else "tail", count, row(first, live), parallel=True)
        return loop("k", p.k, code, parallel=True)

    def widen(self) -> Code:
        """The source as s32, so that one element can be broadcast."""
        unit, size = self.unit, self.problem.m * self.problem.k
        name = "vpmovzxbd" if self.problem.src == "u8" else "vpmovsxbd"
        dtype = "u32" if self.problem.src == "u8" else "s32"

        def step(at: Affine, count: int) -> Code:
            value = unit.reg("a", dtype)
            load = op(name, value, Memory("src", at, self.problem.src, count))
            return [load, store32(unit, "wide", at, value.as_("u32"), count)]

        turns, rest = divmod(size, unit.lanes)
        code = loop("w", turns, step(Affine.var("w") * unit.lanes, unit.lanes), parallel=True)
        if not turns and not unit.masks:
            wide, few = unit.reg("a", dtype), Register("a", "u8", 16)
            code = [
                zero(few),
                *(op("vpinsrb", few, few, Memory("src", Affine(i), "u8", 1), imm=i) for i in range(rest)),
            ]
            narrow = Register("a", self.problem.src, unit.lanes)
            code += [op(name, wide, narrow), store32(unit, "wide", Affine(), wide.as_("u32"), rest)]
            code = loop("tail", 1, code, parallel=True)
        elif rest:  # without masks the last whole register, some of it once more
            first, count = (turns * unit.lanes, rest) if unit.masks else (size - unit.lanes, unit.lanes)
            code += loop("tail", 1, step(Affine(first), count), parallel=True)
        return code

    def vector(self, first: Affine, live: int) -> Code:
        """One row's outputs in one vector of columns."""
        unit, p = self.unit, self.problem
        total = unit.reg("total", "f32" if self.scaled or self.floating else "s32")
        code: Code = [zero(total)]
        if self.scaled:
            part = self.scale(Affine.var("q"), first)
            sums = [*self.group(first, "sum"), *self.term(Affine.var("q"), first, "sum")]
            code += loop("q", p.k // self.period, [zero(unit.reg("sum")), *sums, *part])
        else:
            code += [*self.group(first, "total"), *self.term(Affine(), first, "total")]
        row = Affine.var("r") * p.n + first
        tile = TileSums(unit, [[total]], [live], [row], first, [row], free=_OF_PRODUCTS)
        return code + finish_tile(self.plan, tile)

    def group(self, first: Affine, sum_register: str) -> Code:
        """The groups of zero points within one group of scales."""
        unit, p, z = self.unit, self.problem, self.zeros
        inside = self.period // z.group
        g = Affine.var("g") + (Affine.var("q") * inside if self.scaled else 0)
        acc, a, w = (unit.reg(name, "s32") for name in (sum_register, "a", "w"))
        points, offset, product, sums = (unit.reg(name, "s32") for name in ("points", "offset", "product", "sums"))
        code: Code = []
        if z.wei and self.strategy != "bias":
            code.append(load32(unit, points, "wei_zeros", g * self.columns + first, unit.lanes))
        if z.src:
            code.append(broadcast32(offset, "src_zeros", Affine.var("r") * self.groups + g))
        code += [zero(sums)] if self.uses("in_kernel") else []
        k = g * z.group + Affine.var("k")
        weights = Memory("wei", k * self.columns + first, self.stored, unit.lanes)
        step: Code = [broadcast32(a, "wide", Affine.var("r") * p.k + k), widen(unit, "w", weights)]
        step += [op("vpsubd", a, a, offset)] if z.src else []
        step += [op("vpsubd", w, w, points)] if self.uses("direct") or self.uses("upconvert") else []
        step += [op("vpaddd", sums, sums, a)] if self.uses("in_kernel") else []
        code += loop("k", z.group, [*step, *self.products(sum_register)])
        if self.uses("precomputed"):
            code.append(broadcast32(sums, "reductions", Affine.var("r") * self.groups + g))
            if z.src:  # the sums of what the products were formed of
                length = unit.reg("w", "s32")
                code += [broadcast32(length, "length", Affine()), op("vpmulld", length, length, offset)]
                code.append(op("vpsubd", sums, sums, length))
        if self.uses("precomputed") or self.uses("in_kernel"):
            code += [op("vpmulld", product, sums, points), op("vpsubd", acc, acc, product)]
        return loop("g", inside, code)

    def products(self, sum_register: str) -> Code:
        """The products of `a` and `w` added to a sum."""
        if self.floating:
            acc, a, w = (self.unit.reg(name, "f32") for name in (sum_register, "a", "w"))
            converted = [op("vcvtdq2ps", x, x.as_("s32")) for x in (a, w)]
            return [*converted, op("vfmadd231ps", acc, acc, a, w)]
        acc, a, w, product = (self.unit.reg(name, "s32") for name in (sum_register, "a", "w", "product"))
        return [op("vpmulld", product, a, w), op("vpaddd", acc, acc, product)]

    def term(self, q: Affine, first: Affine, sum_register: str) -> Code:
        """The weights zero points' part of a group of scales, from the matrix (bias)."""
        if not self.uses("bias"):
            return []
        acc, points = self.unit.reg(sum_register, "s32"), self.unit.reg("points", "s32")
        at = (Affine.var("r") * (self.problem.k // self.period) + q) * self.columns + first
        return [load32(self.unit, points, "term", at, self.unit.lanes), op("vpaddd", acc, acc, points)]

    def scale(self, q: Affine, first: Affine) -> Code:
        """A group's sum, times the source's scale and the weights', added to the total."""
        unit, p = self.unit, self.problem
        assert p.group_scales is not None
        x, factor, total = (unit.reg(name, "f32") for name in ("sum", "a", "total"))
        code: Code = [] if self.floating else [op("vcvtdq2ps", x, x.as_("s32"))]
        by_row: Code = []
        if p.group_scales.src:
            at = Affine.var("r") * (p.k // self.period) + q
            by_row = [broadcast32(factor, "src_group_scale", at), op("vmulps", x, x, factor)]
        by_column: Code = []
        if p.group_scales.wei:
            at = q * self.columns + first
            by_column = [load32(unit, factor, "wei_group_scale", at, unit.lanes), op("vmulps", x, x, factor)]
        order = [*by_column, *by_row] if p.group_scales.weights_first else [*by_row, *by_column]
        return [*code, *order, op("vaddps", total, total, x)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.problem.matrix, "f32" if self.floating else "s32")

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs; tables that change more slowly are repeated."""

        def each_group(values: Array | None, axis: int, parts: int) -> Array:
            assert values is not None
            return np.repeat(values, parts // values.shape[axis], axis=axis)

        parts = self.problem.k // self.period
        inputs: dict[str, Array] = {
            "src": src.reshape(-1),
            **self.weights(weights.astype(fmt(self.stored).dtype, copy=False)),
            **self.plan.inputs(p, self.by_column),
        }
        if self.zeros.wei:
            inputs["wei_zeros"] = self.by_column(each_group(p.wei_zero_points, 0, self.groups)).astype(np.int32)
        if self.zeros.src:
            inputs["src_zeros"] = each_group(p.src_zero_points, 1, self.groups).astype(np.int32)
        if self.uses("precomputed"):
            inputs["reductions"] = each_group(p.reductions, 1, self.groups)
        if self.uses("bias"):
            inputs["term"] = self.by_column(self.matrix(src, p, parts)).reshape(-1)
        if p.src_group_scale is not None:
            inputs["src_group_scale"] = each_group(p.src_group_scale, 1, parts).astype(np.float32)
        if self.scaled and p.wei_scale is not None and p.wei_scale.ndim == 2:
            inputs["wei_group_scale"] = self.by_column(each_group(p.wei_scale, 0, parts)).astype(np.float32)
        return inputs_of(self.program, inputs)

    def by_column(self, values: Array) -> Array:
        """A value a column, with zeros up to whole vectors."""
        return filled(values, self.columns)

    def weights(self, weights: Array) -> dict[str, Array]:
        """The weights as rows of whole vectors, or as columns where the program turns them."""
        if self.turned:
            return {"plain": to_a_line(weights.T).reshape(-1)}
        return {"wei": self.by_column(weights).reshape(-1)}

    def matrix(self, src: Array, p: Parameters, parts: int) -> Array:
        """The part of the weights' zero points in each group of scales, (M, groups, N)."""
        m, groups = len(src), self.groups
        sums = src.astype(np.int64).reshape(m, groups, -1).sum(axis=2)
        if p.src_zero_points is not None:
            zs = p.src_zero_points.astype(np.int64)
            sums = sums - np.repeat(zs, groups // zs.shape[1], axis=1) * self.zeros.group
        assert p.wei_zero_points is not None
        zw = p.wei_zero_points.astype(np.int64)
        zw = np.repeat(zw, groups // len(zw), axis=0).reshape(parts, -1, zw.shape[1])
        return np.asarray(-np.einsum("mqg,qgn->mqn", sums.reshape(m, parts, -1), zw)).astype(np.int32)
