"""Reductions: sums, extremes and products along some dimensions of an array.

Where the innermost dimension is kept, it runs in lanes. Where it is reduced, four accumulators of lanes are combined at
the end of each line. Arithmetic is in f32, whatever the storage type.
"""

from __future__ import annotations

import functools
from math import prod

import numpy as np

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.expression import INSTRUCTIONS
from simdnn.kernels.common.reduce import ReduceProblem
from simdnn.kernels.x86.code import Unit, broadcast32
from simdnn.kernels.x86.elements import LOADED, STORED, broadcast, load
from simdnn.kernels.x86.epilogue import store, store_constants
from simdnn.kernels.x86.line_sums import ACCUMULATORS, first_lane, line_sum
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Program, Register, Tensor


@functools.lru_cache(maxsize=512)
def reduction(problem: ReduceProblem, unit: Unit) -> Program:
    """The program: input src, output dst. Raises `Unimplemented` for types that no vector load here has."""
    return _LaneReduction(problem, unit).program()


class _LaneReduction:
    def __init__(self, problem: ReduceProblem, unit: Unit) -> None:
        self.problem, self.unit = problem, unit
        if problem.src not in LOADED or problem.dst not in STORED or not fmt(problem.src).is_float:
            raise Unimplemented(f"reduction of {problem.src} to {problem.dst}; floats work: f32, bf16, f16")
        self.instruction = "vfmadd231ps" if problem.step == "fma" else INSTRUCTIONS[problem.step][0]

    def program(self) -> Program:
        p = self.problem
        source, dest = Affine(), Affine()
        outer: list[tuple[str, int]] = []
        inner: list[tuple[str, int]] = []
        kept = p.size
        *most, last = p.dims
        for k, size in enumerate(most):
            source = source + Affine.var(f"i{k}") * prod(p.dims[k + 1 :])
            if not p.reduced[k]:
                kept //= size
                dest = dest + Affine.var(f"i{k}") * kept
            (inner if p.reduced[k] else outer).append((f"i{k}", size))
        code = self.along_line(source, dest, inner, last) if p.reduced[-1] else self.across(source, dest, inner, last)
        code = nest(outer, code, parallel=True)
        if not outer and p.reduced[-1]:  # registers do not cross the statements of a program
            code = loop("once", 1, code)
        return verify(Program(f"reduce {p.kind} {p.dims}", self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        found = [Tensor("src", p.src, prod(p.dims), role=SOURCE)]
        numbers = np.array([p.empty, p.divisor], np.float32)
        found.append(Tensor.constant("numbers", "f32", numbers.tobytes()))
        if p.kind == "sum_abs":
            found.append(Tensor.constant("magnitude", "u32", np.uint32(0x7FFFFFFF).tobytes()))
        found += [first_lane(self.unit)] if p.order == "register" and p.dims[-1] % self.unit.lanes else []
        return [*found, *store_constants(self.unit, p.dst), Tensor("dst", p.dst, p.size, "output")]

    def start(self, *registers: Register) -> Code:
        return [broadcast32(register, "numbers", Affine()) for register in registers]

    def take(self, acc: Register, x: Register) -> Code:
        """One more value for an accumulator."""
        if self.problem.kind == "sum_square":
            return [op(self.instruction, acc, acc, x, x)]
        code: Code = []
        if self.problem.kind == "sum_abs":
            bits = x.as_("u32")
            code = [op("vpand", bits, bits, Register("m", "u32", bits.lanes))]
        return [*code, op(self.instruction, acc, acc, x)]

    def combine(self, acc: Register, other: Register) -> Code:
        """Two accumulators into one."""
        return [op(INSTRUCTIONS[self.problem.joint][0], acc, acc, other)]

    def mask(self) -> Code:
        if self.problem.kind != "sum_abs":
            return []
        return [broadcast32(self.unit.reg("m"), "magnitude", Affine())]

    def finish(self, acc: Register, at: Affine, lanes: int) -> Code:
        code: Code = []
        if self.problem.divisor != 1:
            divisor = self.unit.reg("x", "f32")
            code = [broadcast32(divisor, "numbers", Affine(1)), op("vdivps", acc, acc, divisor)]
        return code + store(self.unit, self.problem.dst, acc, at, lanes)

    def across(self, source: Affine, dest: Affine, inner: list[tuple[str, int]], line: int) -> Code:
        """The innermost dimension is kept."""
        unit = self.unit
        masked = unit.masks or self.problem.src == "f32"

        def block(at: Affine, lanes: int, single: bool = False) -> Code:
            acc, x = unit.reg("c0", "f32"), unit.reg("x", "f32")
            parts = (unit, "x", "src", self.problem.src, source + at)
            body = (broadcast(*parts) if single else load(*parts, lanes)) + self.take(acc, x)
            return [*self.mask(), *self.start(acc), *nest(inner, body), *self.finish(acc, dest + at, lanes)]

        turns, rest = divmod(line, unit.lanes)
        code = loop("v", turns, block(Affine.var("v") * unit.lanes, unit.lanes), parallel=True)
        tail = Affine(turns * unit.lanes)
        if rest and masked:
            code += loop("once", 1, block(tail, rest))
        elif rest:
            code += loop("t", rest, block(tail + Affine.var("t"), 1, True), parallel=True)
        return code

    def along_line(self, source: Affine, dest: Affine, inner: list[tuple[str, int]], line: int) -> Code:
        """The innermost dimension is reduced."""
        unit, p = self.unit, self.problem
        if p.order == "chain":
            return self.one_by_one(source, dest, [*inner, ("t", line)])
        if p.order in ("rounds", "register") and inner:
            raise Unimplemented(f"a sum in {p.order} over several dimensions, {p.dims}; the last one alone works")
        x, rest = unit.reg("x", "f32"), line % unit.lanes
        masked = p.order == "register" or p.empty == 0 and (unit.masks or p.src == "f32")  # zeros do no harm

        def value(at: Affine, lanes: int) -> tuple[Code, Register]:
            return load(unit, "x", "src", p.src, source + at, lanes), x

        accumulators = [unit.reg(f"c{i}", "f32") for i in range(ACCUMULATORS)]
        total = line_sum(unit, p.order, line if masked else line - rest, value, self.take, self.combine, inner)
        code: Code = [*self.mask(), *self.start(*accumulators), *total]
        if rest and not masked:
            element = broadcast(unit, "x", "src", p.src, source + Affine(line - rest) + Affine.var("t"))
            code += nest([*inner, ("t", rest)], element + self.take(accumulators[0], x))
        return code + self.finish(accumulators[0], dest, 1)

    def one_by_one(self, source: Affine, dest: Affine, inner: list[tuple[str, int]]) -> Code:
        """Each element of the reduced dimensions after the one before it."""
        acc, x = self.unit.reg("c0", "f32"), self.unit.reg("x", "f32")
        element = broadcast(self.unit, "x", "src", self.problem.src, source + Affine.var("t"))
        body = nest(inner, element + self.take(acc, x))
        return [*self.mask(), *self.start(acc), *body, *self.finish(acc, dest, 1)]
