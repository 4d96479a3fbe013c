"""Kernels of several passes over each line: what a pass makes stays in registers, or in the line, for the next ones.

    for each line:
        for each pass over it:
            load, compute, bring together (the greatest, a sum); or store

Softmax and normalizations of libraries are such kernels. A line is read from memory once and from L1 by later passes;
arithmetic is in f32, whatever the storage types.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import NamedTuple

import numpy as np

from isa_models import Unimplemented
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.expression import INSTRUCTIONS, Expression
from simdnn.kernels.common.reduce import KINDS
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32
from simdnn.kernels.x86.elements import broadcast, load
from simdnn.kernels.x86.epilogue import store, store_constants
from simdnn.kernels.x86.formula import X86Formula
from simdnn.kernels.x86.line_sums import ACCUMULATORS, first_lane, line_sum
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Memory, Program, Register, Tensor

_UNROLL = 4  # vectors of a turn that stores


class LineOperand(NamedTuple):
    """An operand of passes: an array of a type with its element strides along the dimensions of the lines and within
    one; or values that a pass has made: one a line, or, `whole`, a line of them.
    """

    dtype: str = "f32"
    strides: tuple[int, ...] = ()
    whole: bool = False


class LinePass(NamedTuple):
    """`expression` over operands, at each place of the line, or, not `wide`, once.

    `kind` of `simdnn.kernels.common.reduce.KINDS` brings its values together in an `order`, divided by `divisor`; else
    they are stored. The result is operand `makes`, or the destination (-1). `keeps`: its values are that operand, too.
    """

    expression: Expression
    makes: int
    kind: str = ""
    order: str = "turns"
    divisor: int = 1
    wide: bool = True
    keeps: int = -1


@dataclass(frozen=True)
class LinesProblem:
    """Lines of `line` elements, as many as `outer` comes to; the destination has a line, or, where the last pass is not
    wide, an element for each.
    """

    outer: tuple[int, ...]
    line: int
    operands: tuple[LineOperand, ...]
    passes: tuple[LinePass, ...]
    dst: str

    @property
    def lines(self) -> int:
        return prod(self.outer)

    @property
    def size(self) -> int:
        """Elements of the destination."""
        return self.lines * (self.line if self.passes[-1].wide and not self.passes[-1].kind else 1)


@functools.lru_cache(maxsize=512)
def line_passes(problem: LinesProblem, unit: Unit) -> Program:
    """The program: inputs src0, src1, … of the operands from memory, output dst. Raises `Unimplemented` for types that
    no vector load or store here has, and for formulas that need more registers than there are.
    """
    return _LinePasses(problem, unit).program()


class _LinePasses:
    """The passes of one problem. Operands that are the same along a line stand in registers x0, x1, …"""

    def __init__(self, problem: LinesProblem, unit: Unit) -> None:
        self.problem, self.unit = problem, unit
        made = {one.makes for one in problem.passes} | {one.keeps for one in problem.passes}
        self.loaded = [i for i in range(len(problem.operands)) if i not in made]
        self.fixed = [i for i, operand in enumerate(problem.operands) if not operand.whole and not self.moves(i)]
        self.in_dst = problem.dst == "f32" and problem.size == problem.lines * problem.line  # lines that passes make
        self.row = self.place((*(prod(problem.outer[k + 1 :]) for k in range(len(problem.outer))), 0))
        self.constants: list[Tensor] = []

    def moves(self, operand: int) -> bool:
        strides = self.problem.operands[operand].strides
        return bool(strides) and strides[-1] != 0

    def program(self) -> Program:
        p = self.problem
        code = [s for i in self.fixed if i in self.loaded for s in self.spread(i)]
        code += chain.from_iterable(self.code(number, one) for number, one in enumerate(p.passes))
        if not p.outer:  # registers do not cross the statements of a program
            code = loop("once", 1, code)
        code = nest([(f"i{axis}", extent) for axis, extent in enumerate(p.outer)], code, parallel=True)
        title = f"lines {p.lines} x {p.line}, {len(p.passes)} passes"
        return verify(Program(title, self.unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        sizes = (*p.outer, p.line)
        found = [
            Tensor(f"src{i}", p.operands[i].dtype, self.extent(p.operands[i].strides, sizes), role=SOURCE)
            for i in self.loaded
        ]
        found += self.constants
        if any(one.order == "register" for one in p.passes) and p.line % self.unit.lanes:
            found.append(first_lane(self.unit))
        if not self.in_dst:
            lines = [i for i, operand in enumerate(p.operands) if operand.whole]
            found += [Tensor(f"line{i}", "f32", p.line, "private" if p.outer else "scratch") for i in lines]
        return [*found, *store_constants(self.unit, p.dst), Tensor("dst", p.dst, p.size, "output")]

    @staticmethod
    def extent(strides: tuple[int, ...], sizes: tuple[int, ...]) -> int:
        return 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))

    @staticmethod
    def place(strides: tuple[int, ...]) -> Affine:
        """A line's first element."""
        return sum((Affine.var(f"i{k}") * step for k, step in enumerate(strides[:-1]) if step), Affine())

    def spread(self, operand: int) -> Code:
        """An operand that is the same along the line, in its register."""
        dtype, strides, _ = self.problem.operands[operand]
        return broadcast(self.unit, f"x{operand}", f"src{operand}", dtype, self.place(strides))

    def constant(self, name: str, dtype: str, values: object) -> str:
        self.constants.append(Tensor.constant(name, dtype, np.asarray(values).tobytes()))
        return name

    def code(self, number: int, one: LinePass) -> Code:
        used = {int(step.number) for step in one.expression.steps if step.op == "input"}
        fixed = [i for i in self.fixed if i in used]
        apart = len(self.fixed) - len(fixed) + (ACCUMULATORS if any(one.kind for one in self.problem.passes) else 0)
        formula = X86Formula(one.expression, self.problem.dst, fixed, self.unit, f"constants{number}", apart)
        self.constants += formula.tensors()
        if not one.wide:
            code, result = formula.code(self.no_load, self.unit.lanes)
            return code + self.made(one, result)
        if not one.kind:
            return self.stored(one, formula)
        return self.brought_together(number, one, formula)

    def no_load(self, register: str, operand: int) -> Code:
        raise Unimplemented(f"operand {operand} in a step of one value a line")

    def at(self, formula: X86Formula, at: Affine, lanes: int) -> tuple[Code, Register]:
        """The formula's values at a place of the line."""

        def read(register: str, operand: int) -> Code:
            dtype, strides, whole = self.problem.operands[operand]
            if not whole:
                return load(self.unit, register, f"src{operand}", dtype, self.place(strides) + at, lanes)
            return load(self.unit, register, *self.kept(operand, at), lanes)

        return formula.code(read, lanes)

    def kept(self, operand: int, at: Affine) -> tuple[str, str, Affine]:
        """Where a line that a pass has made stands, of f32: the destination's own line, or one beside."""
        return ("dst", "f32", self.line_of_dst + at) if self.in_dst else (f"line{operand}", "f32", at)

    @property
    def line_of_dst(self) -> Affine:
        return self.row * self.problem.line

    def stored(self, one: LinePass, formula: X86Formula) -> Code:
        """A pass that stores its line."""

        def vector(at: Affine, lanes: int) -> Code:
            code, result = self.at(formula, at, lanes)
            return code + self.put(one.makes, result, at, lanes)

        lanes, line = self.unit.lanes, self.problem.line
        vectors, rest = divmod(line, lanes)
        turns, left = divmod(vectors, _UNROLL)
        code: Code = []
        if turns:
            places = [Affine.var("r") * (_UNROLL * lanes) + i * lanes for i in range(_UNROLL)]
            code = loop("r", turns, [s for at in places for s in vector(at, lanes)])
        for i in range(left):
            code += vector(Affine((turns * _UNROLL + i) * lanes), lanes)
        return code + (vector(Affine(line - rest), rest) if rest else [])

    def put(self, operand: int, value: Register, at: Affine, lanes: int) -> Code:
        """A vector into the destination (-1), or into a line beside it."""
        if operand < 0:
            return store(self.unit, self.problem.dst, value, self.line_of_dst + at, lanes)
        tensor, _, place = self.kept(operand, at)
        return [store32(self.unit, tensor, place, value, lanes)]

    def brought_together(self, number: int, one: LinePass, formula: X86Formula) -> Code:
        unit, line = self.unit, self.problem.line
        empty, step, joint = KINDS[one.kind]
        numbers = self.constant(f"numbers{number}", "f32", np.array([empty, one.divisor], np.float32))

        def value(at: Affine, lanes: int) -> tuple[Code, Register]:
            code, result = self.at(formula, at, lanes)
            code += [] if one.keeps < 0 else self.put(one.keeps, result, at, lanes)
            masks = lanes < unit.lanes and one.order != "register"
            return code + (self.harmless(number, one.kind, result, lanes) if masks else []), result

        def take(acc: Register, x: Register) -> Code:
            name = "vfmadd231ps" if step == "fma" else INSTRUCTIONS[step][0]
            return [op(name, acc, acc, x, x) if step == "fma" else op(name, acc, acc, x)]

        def combine(acc: Register, other: Register) -> Code:
            return [op(INSTRUCTIONS[joint][0], acc, acc, other)]

        accumulators = [unit.reg(f"c{i}", "f32") for i in range(ACCUMULATORS)]
        code: Code = [broadcast32(acc, numbers, Affine()) for acc in accumulators]
        code += line_sum(unit, one.order, line, value, take, combine)
        if one.divisor != 1:
            divisor = unit.reg("a", "f32")
            code += [broadcast32(divisor, numbers, Affine(1)), op("vdivps", accumulators[0], accumulators[0], divisor)]
        return code + self.made(one, accumulators[0])

    def harmless(self, number: int, kind: str, value: Register, lanes: int) -> Code:
        """Lanes beyond the line's end as they change nothing: zeros in sums, the first lane again for extremes."""
        most, words = self.unit.lanes, value.as_("u32")
        if kind in ("sum", "sum_square"):
            ones = self.constant(
                f"live{number}", "u32", np.array([0xFFFFFFFF] * lanes + [0] * (most - lanes), np.uint32)
            )
            return [op("vpand", words, words, Memory(ones, Affine(), "u32", most))]
        if kind not in ("max", "min"):
            raise Unimplemented(f"{kind} along lines of {self.problem.line} elements that fill no registers")
        places = np.array([*range(lanes), *[0] * (most - lanes)], np.uint32)
        order, name = self.unit.reg("a", "u32"), self.constant(f"live{number}", "u32", places)
        return [load32(self.unit, order, name, Affine(), most), op("vpermps", value, order, value)]

    def made(self, one: LinePass, value: Register) -> Code:
        """One value of the line: in a register for later passes, or stored."""
        if one.makes < 0:
            return store(self.unit, self.problem.dst, value, self.row, 1)
        return [op("vmovups", self.unit.reg(f"x{one.makes}", value.dtype), value)]
