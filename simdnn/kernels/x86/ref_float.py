"""oneDNN's reference matmul of floats where f8 or f4 take part, or scales of the destination are found (`ref:any`).

source and weights to f32                        integer weights times their scale, rounded
for each row, each vector of columns:            parallel
    for each group of k: sum = 0; each k: sum += src * weights (two roundings); sum *= source's scale; *= weights' scale
    bias, relu, division by the destination's scale (epilogue.py)

A group is a single k unless source and weights both have scales by group: every product is then scaled and rounded.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, along, loop, op, pieces
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.narrow_floats import Narrow, is_narrow
from simdnn.kernels.common.pack import filled, inputs_of
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.kernels.x86.narrow import load
from simdnn.program.check import verify
from simdnn.program.records import SCALES, SOURCE, WEIGHTS, Affine, Program, Tensor

_NIBBLES = {"s4": "s8", "u4": "u8"}  # made whole bytes ahead of time


class RefFloat:
    """The generator for one problem with `narrow`, whose destination is f32, bf16 or f16."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        self.name, self.problem, self.unit = name, problem, unit
        assert problem.narrow
        self.narrow: Narrow = problem.narrow
        self.columns = -(-problem.n // unit.lanes) * unit.lanes
        self.words = Constants(unit)
        self.integers = not fmt(problem.wei).is_float

    @cached_property
    def plan(self) -> Plan:
        epilogue = replace(self.problem.epilogue, src_scale=False, wei_scale=None)
        return Plan(epilogue, integer=False, reference=True)

    def length(self, param: Param | None) -> int:
        """How many k share a value."""
        return param.length(self.problem.k) if param else self.problem.k

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = [*self.widen_source(), *self.widen_weights()]
        for count, first, live in pieces("j", p.n, self.unit.lanes):
            code += loop("r", p.m, loop("j", count, self.vector(first, live), parallel=True), parallel=True)
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p, s = self.problem, self.narrow
        parts = {name: p.k // self.length(param) for name, param in (("src", s.src), ("wei", s.wei))}
        return [
            Tensor("src", _stored(p.src), p.m * p.k, role=SOURCE),
            Tensor("wei", _stored(p.wei), p.k * self.columns, role=WEIGHTS),
            *([Tensor("src_scales", "f32", p.m * parts["src"], role=SCALES)] if s.src else []),
            *([Tensor("wei_scales", "f32", parts["wei"] * self.columns, role=SCALES)] if s.wei else []),
            Tensor("wide", "f32", p.m * p.k, "scratch"),
            Tensor("wide_wei", "f32", p.k * self.columns, "scratch"),
            *self.words.tensors(),
            *self.plan.tensors(self.unit, self.columns, 1, p.m * p.n),
            Tensor("dst", p.epilogue.dst, p.m * p.n, "output"),
        ]

    def widen_source(self) -> Code:
        """The source as f32, row by row, so that one element can be broadcast."""
        unit, p = self.unit, self.problem

        def step(at: Affine, lanes: int) -> Code:
            loaded = load(self.words, "x", "src", p.src, at, lanes)
            return [*loaded, store32(unit, "wide", at, unit.reg("x", "f32"), lanes)]

        return loop("r", p.m, along(p.k, unit.lanes, step, Affine.var("r") * p.k), parallel=True)

    def widen_weights(self) -> Code:
        """The weights as f32; integers times their scale."""
        unit, p, lanes = self.unit, self.problem, self.unit.lanes
        x, factor = unit.reg("x", "f32"), unit.reg("a", "f32")
        length = self.length(self.narrow.wei)
        column = Affine.var("j") * lanes
        at = (Affine.var("q") * length + Affine.var("k")) * self.columns + column
        scaled = self.integers and self.narrow.wei is not None
        place = Affine.var("q") * self.columns + column
        scale: Code = [load32(unit, factor, "wei_scales", place, lanes)] if scaled else []
        times: Code = [op("vmulps", x, x, factor)] if scaled else []
        widened = load(self.words, "x", "wei", _NIBBLES.get(p.wei, p.wei), at, lanes)
        inner = loop("k", length, [*widened, *times, store32(unit, "wide_wei", at, x, lanes)])
        body = loop("j", self.columns // lanes, [*scale, *inner], parallel=True)
        return loop("q", p.k // length, body, parallel=True)

    def vector(self, first: Affine, live: int) -> Code:
        """One row's outputs in one vector of columns."""
        unit, p = self.unit, self.problem
        total = unit.reg("total", "f32")
        row = Affine.var("r") * p.n + first
        tile = TileSums(unit, [[total]], [live], [row], first, [row])
        return [zero(total), *self.sums(first), *finish_tile(self.plan, tile)]

    def sums(self, first: Affine) -> Code:
        """The groups of k, added to the total; a scale is loaded once for the k that share it."""
        p, s = self.problem, self.narrow
        wei = None if self.integers else s.wei
        lengths = self.length(s.src), self.length(s.wei)
        large, small = max(lengths), min(lengths)
        k = Affine.var("o") * large + Affine.var("i") * small + Affine.var("k")
        both = bool(s.src and s.wei and s.src.group and s.wei.group)
        factors = self.factor("src_scales", s.src, Affine.var("r") * (p.k // lengths[0]), large, small, first)
        factors += self.factor("wei_scales", wei, Affine(), large, small, first)
        scaled = [name for name, param in (("src_scales", s.src), ("wei_scales", wei)) if param]
        sum_, total = self.unit.reg("sum", "f32"), self.unit.reg("total", "f32")
        finish: Code = [op("vmulps", sum_, sum_, self.unit.reg(name, "f32")) for name in scaled]
        finish.append(op("vaddps", total, total, sum_))
        a, w = self.unit.reg("a", "f32"), self.unit.reg("w", "f32")
        product: Code = [broadcast32(a, "wide", Affine.var("r") * p.k + k)]
        product += [load32(self.unit, w, "wide_wei", k * self.columns + first, self.unit.lanes)]
        if both:
            product += [op("vmulps", w, a, w), op("vaddps", sum_, sum_, w)]
            group = [*factors, zero(sum_), *loop("k", small, product), *finish]
        else:
            product += [op("vmulps", sum_, a, w), *finish]
            group = [*factors, *loop("k", small, product)]
        return loop("o", p.k // large, loop("i", large // small, group))

    def factor(self, name: str, param: Param | None, row: Affine, large: int, small: int, first: Affine) -> Code:
        """The scale of the k at hand: of a row of the source in all lanes, of the weights a column each."""
        if param is None:
            return []
        register, length = self.unit.reg(name, "f32"), self.length(param)
        q = Affine.var("o") * (large // length) + (Affine.var("i") if length == small < large else 0)
        if name == "src_scales":
            return [broadcast32(register, name, row + q)]
        return [load32(self.unit, register, name, q * self.columns + first, self.unit.lanes)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        """Products in f32."""
        return Kernel(self.name, self.program, self.prepare, self.problem.matrix, "f32")

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs, columns filled up to whole vectors."""
        problem = self.problem

        by_column = partial(filled, columns=self.columns)
        inputs: dict[str, Array] = {
            "src": _whole(src, problem.src).reshape(-1),
            "wei": by_column(_whole(weights, problem.wei)).reshape(-1),
            **self.plan.inputs(p, by_column),
        }
        if self.narrow.src:
            scales = np.asarray(p.src_group_scale, np.float32)
            inputs["src_scales"] = np.broadcast_to(scales, (problem.m, scales.shape[1])).reshape(-1)
        if self.narrow.wei:
            scales = np.asarray(p.wei_scale, np.float32)
            inputs["wei_scales"] = by_column(np.broadcast_to(scales, (len(scales), problem.n))).reshape(-1)
        return inputs_of(self.program, inputs)


def _stored(dtype: str) -> str:
    """The type of a program's tensor: codes are bytes."""
    return "u8" if is_narrow(dtype) else _NIBBLES.get(dtype, dtype)


def _whole(array: Array, dtype: str) -> Array:
    """An array in the type of the program's tensor."""
    if is_narrow(dtype):
        return array.view(np.uint8)
    return array.astype(fmt(_NIBBLES[dtype]).dtype) if dtype in _NIBBLES else array
