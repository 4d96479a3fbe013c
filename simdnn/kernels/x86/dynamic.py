"""Quantization of a floating source on the fly: a scale for each row and group along K, found and applied at once.

for each row, each group of K:                  parallel
    greatest magnitude (asymmetric: greatest and least value), in accumulators of lanes, then across the lanes
    scale = it / 127 (asymmetric: their distance / 255), inverse = 1 / scale
    for each vector:  value * inverse, to the nearest integer, packed to bytes;  summed where reductions are wanted

Arithmetic is in f32, each step rounded to nearest even; `Dynamic` states the formulas.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.dynamic import Dynamic
from simdnn.kernels.x86.code import Unit, broadcast32, load_float, store32
from simdnn.kernels.x86.epilogue import store
from simdnn.kernels.x86.line_sums import horizontal
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, ZEROS, Affine, Program, Register, Tensor

_ACCUMULATORS = 4


@functools.lru_cache(maxsize=512)
def quantization(problem: Dynamic, unit: Unit) -> Program:
    """The program: input src; outputs dst, scales and, as asked for, zero_points and reductions."""
    return _Quantization(problem, unit).program()


def outputs_of(p: Dynamic, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """The program's outputs as matrices."""
    return {name: a.reshape(p.m, -1) for name, a in outputs.items()}


class _Quantization:
    def __init__(self, problem: Dynamic, unit: Unit) -> None:
        self.problem, self.unit = problem, unit
        p = problem
        self.start = Affine.var("r") * p.k + Affine.var("g") * p.group  # of the group in src and dst
        self.place = Affine.var("r") * p.parts + Affine.var("g")  # of its scale
        self.x, self.inverse, self.zero = unit.reg("x", "f32"), unit.reg("i", "f32"), unit.reg("z", "s32")
        self.top = unit.reg("t", "f32")

    def program(self) -> Program:
        p = self.problem
        body = [*self.extremes(), *self.scale(), *self.quantize()]
        code = loop("r", p.m, loop("g", p.parts, body, parallel=True), parallel=True)
        return verify(Program(f"quantize {p}", self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        least = fmt(p.dst).low
        numbers = np.array([0, p.least, p.levels, 1, 255], np.float32)
        found = [
            Tensor("src", p.src, p.m * p.k, role=SOURCE),
            Tensor.constant("numbers", "f32", numbers.tobytes()),
            Tensor.constant("magnitude", "u32", np.uint32(0x7FFFFFFF).tobytes()),
            Tensor.constant("integers", "s32", np.array([least, p.reductions], np.int32).tobytes()),
            Tensor("dst", p.dst, p.m * p.k, "output"),
            Tensor("scales", "f32", p.m * p.parts, "output"),
        ]
        found += [] if p.symmetric else [Tensor("zero_points", "s32", p.m * p.parts, "output", role=ZEROS)]
        return found + (
            [Tensor("reductions", "s32", p.m * p.k // p.reductions, "output", role=ZEROS)] if p.reductions else []
        )

    def vectors(self, body: Callable[[Affine, int, int], Code], base: Affine, length: int) -> Code:
        """`body`(offset in the group, lanes, accumulator) for every vector of `length` elements from `base` on."""
        lanes = self.unit.lanes
        rounds, left = divmod(length, _ACCUMULATORS * lanes)
        turns, rest = divmod(left, lanes)
        first = base + Affine.var("v") * (_ACCUMULATORS * lanes)
        code = loop("v", rounds, [s for i in range(_ACCUMULATORS) for s in body(first + i * lanes, lanes, i)])
        done = rounds * _ACCUMULATORS * lanes
        for turn in range(turns):
            code += body(base + done + turn * lanes, lanes, turn)
        return code + (body(base + done + turns * lanes, rest, _ACCUMULATORS - 1) if rest else [])

    def number(self, register: Register, index: int) -> Code:
        return [broadcast32(register, "numbers", Affine(index))]

    def load(self, at: Affine, lanes: int) -> Code:
        """Values of the group; the lanes above are zeros, which change no extreme and no sum."""
        return load_float(self.unit, "x", "src", self.problem.src, self.start + at, lanes)

    # -- the range --------------------------------------------------------------------------------------------------
    def extremes(self) -> Code:
        """a0 the greatest value or magnitude and, where asymmetric, b0 the least; both with zero among the values."""
        names = {"a": "vmaxps"} if self.problem.symmetric else {"a": "vmaxps", "b": "vminps"}

        def take(at: Affine, lanes: int, accumulator: int) -> Code:
            code = self.load(at, lanes)
            if self.problem.symmetric:
                bits = self.x.as_("u32")
                code.append(op("vpand", bits, bits, self.unit.reg("m")))
            for name, instruction in names.items():
                register = self.unit.reg(f"{name}{accumulator}", "f32")
                code.append(op(instruction, register, register, self.x))
            return code

        code: Code = [broadcast32(self.unit.reg("m"), "magnitude", Affine())] if self.problem.symmetric else []
        for name in names:
            for i in range(_ACCUMULATORS):
                code += self.number(self.unit.reg(f"{name}{i}", "f32"), 0)
        code += self.vectors(take, Affine(), self.problem.group)
        for name, instruction in names.items():
            for into, other in ((0, 1), (2, 3), (0, 2)):
                register = self.unit.reg(f"{name}{into}", "f32")
                code.append(op(instruction, register, register, self.unit.reg(f"{name}{other}", "f32")))
            code += horizontal(self.unit, f"{name}0", _combine(instruction, "f32"))
        return code

    def scale(self) -> Code:
        """The scale, its reciprocal, and where asymmetric the zero point and the greatest value before it is added."""
        span, low = self.unit.reg("a0", "f32"), self.unit.reg("b0", "f32")
        code: Code = [] if self.problem.symmetric else [op("vsubps", span, span, low)]
        code += [*self.number(self.x, 1), op("vmaxps", span, span, self.x)]
        code += [*self.number(self.x, 2), op("vdivps", span, span, self.x)]
        code += [store32(self.unit, "scales", self.place, span, 1)]
        code += [*self.number(self.inverse, 3), op("vdivps", self.inverse, self.inverse, span)]
        if self.problem.symmetric:
            return code
        steps = low.as_("s32")
        return [
            *code,
            op("vmulps", low, low, self.inverse),
            op("vcvtps2dq", steps, low),
            broadcast32(self.zero, "integers", Affine()),
            op("vpsubd", self.zero, self.zero, steps),
            store32(self.unit, "zero_points", self.place, self.zero, 1),
            op("vcvtdq2ps", low, steps),
            *self.number(self.top, 4),
            op("vaddps", self.top, self.top, low),
        ]

    # -- values -----------------------------------------------------------------------------------------------------
    def quantize(self) -> Code:
        p, unit = self.problem, self.unit
        stored = self.x.as_("s32")

        def one(at: Affine, lanes: int, accumulator: int) -> Code:
            code = [*self.load(at, lanes), op("vmulps", self.x, self.x, self.inverse)]
            code += [] if p.symmetric else [op("vminps", self.x, self.x, self.top)]
            code.append(op("vcvtps2dq", stored, self.x))
            if p.reductions:
                total = unit.reg(f"a{accumulator}", "s32")
                code.append(op("vpaddd", total, total, stored))
            code += [] if p.symmetric else [op("vpaddd", stored, stored, self.zero)]
            return code + store(unit, p.dst, stored, self.start + at, lanes)

        if not p.reductions:
            return self.vectors(one, Affine(), p.group)
        # the registers of the extremes are free again
        sums = [unit.reg(f"a{i}", "s32") for i in range(_ACCUMULATORS)]
        code: Code = [broadcast32(s.as_("f32"), "numbers", Affine()) for s in sums]
        code += self.vectors(one, Affine.var("q") * p.reductions, p.reductions)
        code += [op("vpaddd", sums[i], sums[i], sums[j]) for i, j in ((0, 1), (2, 3), (0, 2))]
        code += horizontal(unit, "a0", _combine("vpaddd", "s32"))
        if not p.symmetric:  # the sums so far are without the zero point
            code += [broadcast32(stored, "integers", Affine(1)), op("vpmulld", stored, stored, self.zero)]
            code.append(op("vpaddd", sums[0], sums[0], stored))
        inside = p.group // p.reductions
        code.append(store32(unit, "reductions", self.place * inside + Affine.var("q"), sums[0], 1))
        return loop("q", inside, code)


def _combine(instruction: str, dtype: str) -> Callable[[Register, Register], Code]:
    def combine(acc: Register, other: Register) -> Code:
        return [op(instruction, acc.as_(dtype), acc.as_(dtype), other.as_(dtype))]

    return combine
