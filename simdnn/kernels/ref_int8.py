"""Integer matmul with zero points that change along K or from column to column: oneDNN's `ref_int8`, which is exact.

widen the source to s32
for each row, each vector of columns:           parallel
    for each group of scales:
        for each group of zero points, each k:  sum += (src - its zero point) * (weights - theirs)
        to f32, times both scales, added to the total (only where scales change along K)
    epilogue (epilogue.py)

With the user's reductions R (sums of the source over each group) the weights go into the products as they are, and
each group's sum loses zero point * (R - source's zero point * group's length); R is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from isa_models.arrays import Array
from simdnn.kernels.code import Code, Unit, broadcast32, load32, loop, op, store32, zero
from simdnn.kernels.epilogue import Plan, Tile, finish_tile
from simdnn.kernels.spec import Kernel, MatmulProblem, Parameters, ZeroPoints
from simdnn.program import Affine, Memory, Program, Tensor
from simdnn.verify import verify


class RefInt8:
    """The generator for one problem with `zero_points`."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        assert problem.zero_points is not None
        self.name, self.problem, self.unit = name, problem, unit
        self.zeros: ZeroPoints = problem.zero_points
        scales = problem.group_scales
        self.period = scales.group if scales else problem.k  # k that share their scales
        self.columns = -(-problem.n // unit.lanes) * unit.lanes
        self.groups = problem.k // self.zeros.group

    @property
    def scaled(self) -> bool:
        return self.problem.group_scales is not None

    @cached_property
    def plan(self) -> Plan:
        return Plan(self.problem.epilogue, integer=not self.scaled, reference=True)

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        p, lanes = self.problem, self.unit.lanes
        turns, rest = divmod(p.n, lanes)
        code = self.widen()
        for count, first, live in ((turns, Affine.var("j") * lanes, lanes), (1, Affine(turns * lanes), rest)):
            if count and live:
                inner = loop("j", count, self.vector(first, live), parallel=True)
                code += loop("r", p.m, inner, parallel=True)
        text = f"{self.name} {p}"
        return verify(Program(text, self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p, z = self.problem, self.zeros
        scales = p.group_scales
        wanted = [
            Tensor("src", p.src, p.m * p.k),
            Tensor("wide", "s32", p.m * p.k, "scratch"),
            Tensor("wei", "s8", p.k * self.columns),
            *([Tensor("wei_zeros", "s32", self.groups * self.columns)] if z.wei else []),
            *([Tensor("src_zeros", "s32", p.m * self.groups)] if z.src else []),
            *([Tensor("reductions", "s32", p.m * self.groups)] if z.reductions else []),
            *([Tensor.constant("length", "s32", np.int32(z.group).tobytes())] if z.reductions and z.src else []),
        ]
        if scales:
            parts = p.k // self.period
            wanted += [Tensor("src_group_scale", "f32", p.m * parts)] if scales.src else []
            wanted += [Tensor("wei_group_scale", "f32", parts * self.columns)] if scales.wei else []
        dst = Tensor("dst", p.epilogue.dst, p.m * p.n, "output")
        return [*wanted, *self.plan.tensors(self.unit, self.columns, 1, p.m * p.n), dst]

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
        if rest and unit.masks:
            code += loop("tail", 1, step(Affine(turns * unit.lanes), rest), parallel=True)
        return code

    def vector(self, first: Affine, live: int) -> Code:
        """One row's outputs in one vector of columns."""
        unit, p = self.unit, self.problem
        total = unit.reg("total", "f32" if self.scaled else "s32")
        code: Code = [zero(total)]
        if self.scaled:
            part = self.scale(Affine.var("q"), first)
            code += loop("q", p.k // self.period, [zero(unit.reg("sum")), *self.group(first, "sum"), *part])
        else:
            code += self.group(first, "total")
        row = Affine.var("r") * p.n + first
        tile = Tile(unit, [[total]], [live], [row], first, [row])
        return code + finish_tile(self.plan, tile)

    def group(self, first: Affine, sum_register: str) -> Code:
        """The groups of zero points within one group of scales."""
        unit, p, z = self.unit, self.problem, self.zeros
        inside = self.period // z.group
        g = Affine.var("g") + (Affine.var("q") * inside if self.scaled else 0)
        acc, a, w = (unit.reg(name, "s32") for name in (sum_register, "a", "w"))
        points, offset, product = (unit.reg(name, "s32") for name in ("points", "offset", "product"))
        code: Code = []
        if z.wei:
            code.append(load32(unit, points, "wei_zeros", g * self.columns + first, unit.lanes))
        if z.src:
            code.append(broadcast32(offset, "src_zeros", Affine.var("r") * self.groups + g))
        k = g * z.group + Affine.var("k")
        step: Code = [
            broadcast32(a, "wide", Affine.var("r") * p.k + k),
            op("vpmovsxbd", w, Memory("wei", k * self.columns + first, "s8", unit.lanes)),
        ]
        step += [op("vpsubd", a, a, offset)] if z.src else []
        step += [op("vpsubd", w, w, points)] if z.wei and not z.reductions else []
        code += loop("k", z.group, [*step, op("vpmulld", product, a, w), op("vpaddd", acc, acc, product)])
        if z.reductions:
            code.append(broadcast32(a, "reductions", Affine.var("r") * self.groups + g))
            if z.src:  # the sums of what the products were formed of
                length = unit.reg("w", "s32")
                code += [broadcast32(length, "length", Affine()), op("vpmulld", length, length, offset)]
                code.append(op("vpsubd", a, a, length))
            code += [op("vpmulld", product, a, points), op("vpsubd", acc, acc, product)]
        return loop("g", inside, code)

    def scale(self, q: Affine, first: Affine) -> Code:
        """A group's sum, times the source's scale, times the weights', added to the total."""
        unit, p = self.unit, self.problem
        assert p.group_scales is not None
        x, factor, total = (unit.reg(name, "f32") for name in ("sum", "a", "total"))
        code: Code = [op("vcvtdq2ps", x, x.as_("s32"))]
        if p.group_scales.src:
            at = Affine.var("r") * (p.k // self.period) + q
            code += [broadcast32(factor, "src_group_scale", at), op("vmulps", x, x, factor)]
        if p.group_scales.wei:
            at = q * self.columns + first
            code += [load32(unit, factor, "wei_group_scale", at, unit.lanes), op("vmulps", x, x, factor)]
        return [*code, op("vaddps", total, total, x)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, self.prepare, self.finish, "s32")

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs; tables that change more slowly are repeated."""

        def each_group(values: Array | None, axis: int, parts: int) -> Array:
            assert values is not None
            return np.repeat(values, parts // values.shape[axis], axis=axis)

        def by_column(values: Array) -> Array:
            return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, self.columns - self.problem.n)])

        parts = self.problem.k // self.period
        inputs: dict[str, Array] = {
            "src": src.reshape(-1),
            "wei": by_column(weights).reshape(-1),
            **self.plan.inputs(p, by_column),
        }
        if self.zeros.wei:
            inputs["wei_zeros"] = by_column(each_group(p.wei_zero_points, 0, self.groups)).astype(np.int32)
        if self.zeros.src:
            inputs["src_zeros"] = each_group(p.src_zero_points, 1, self.groups).astype(np.int32)
        if self.zeros.reductions:
            inputs["reductions"] = each_group(p.reductions, 1, self.groups)
        if p.src_group_scale is not None:
            inputs["src_group_scale"] = each_group(p.src_group_scale, 1, parts).astype(np.float32)
        if self.scaled and p.wei_scale is not None and p.wei_scale.ndim == 2:
            inputs["wei_group_scale"] = by_column(each_group(p.wei_scale, 0, parts)).astype(np.float32)
        return {t.name: inputs[t.name] for t in self.program.tensors if t.kind == "input"}

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        return outputs["dst"].reshape(self.problem.m, self.problem.n)
