"""Kernels that compute every element by itself: a formula over operands that broadcast, in loops over vectors.

The innermost dimension runs in lanes: an operand with stride 1 there is loaded, one with stride 0 is broadcast, once
for each line. Arithmetic is in f32, whatever the storage type; f16 and bf16 are widened at the load and rounded at the
store, as libraries do on CPUs without arithmetic of their own for them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod

import numpy as np

from isa_models import Unimplemented
from simdnn.kernels.common.code import Code, Unit, loop, op
from simdnn.kernels.common.expression import INSTRUCTIONS, Expression, Step
from simdnn.kernels.x86.elements import LOADED, STORED, broadcast, load
from simdnn.kernels.x86.epilogue import store, store_constants
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Place, Program, Register, Tensor

_SCRATCH = 3  # registers that stores use: p, a, b0


@dataclass(frozen=True)
class MapProblem:
    """dst[i, j, …] = expression(operand 0 [i, j, …], …); dst is contiguous.

    `strides` holds for each operand its element stride in each dimension, 0 where it broadcasts; in the last dimension
    0 or 1.
    """

    expression: Expression
    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    dst: str

    @property
    def size(self) -> int:
        return prod(self.dims)

    def operand_size(self, operand: int) -> int:
        """Elements from the first to the last that is read."""
        return 1 + sum(s * (n - 1) for s, n in zip(self.strides[operand], self.dims, strict=True))


def collapse(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The fewest dimensions with the same addresses: neighbours that step alike in every operand become one.

    >>> collapse((2, 3, 4), [(12, 4, 1), (0, 0, 1)])
    ((6, 4), [(4, 1), (0, 1)])
    """
    dims: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        if dims and all(step[-1] == h * size for step, h in zip(steps, here, strict=True)):
            dims[-1] *= size
            for step, h in zip(steps, here, strict=True):
                step[-1] = h
        else:
            dims.append(size)
            for step, h in zip(steps, here, strict=True):
                step.append(h)
    if not dims:
        return (1,), [(0,) for _ in strides]
    return tuple(dims), [tuple(step) for step in steps]


@functools.lru_cache(maxsize=1024)
def elementwise(problem: MapProblem, unit: Unit) -> Program:
    """The program: inputs src0, src1, …, output dst. Raises `Unimplemented` for types that no vector load here has."""
    return _Elementwise(problem, unit).program()


class _Elementwise:
    def __init__(self, problem: MapProblem, unit: Unit) -> None:
        self.problem, self.unit = problem, unit
        for dtype in problem.expression.inputs:
            if dtype not in LOADED:
                raise Unimplemented(f"operand of {dtype} in an element-by-element kernel; allowed: {', '.join(LOADED)}")
        if problem.dst not in STORED:
            raise Unimplemented(f"{problem.dst} from an element-by-element kernel; allowed: {', '.join(STORED)}")
        constants = [s for s in problem.expression.steps if s.op == "constant"]
        self.constants = {step: i for i, step in enumerate(dict.fromkeys(constants))}
        inner = [stride[-1] for stride in problem.strides]
        self.fixed = [i for i, stride in enumerate(inner) if stride == 0]
        narrow = any(d not in ("f32", "s32") for i, d in enumerate(problem.expression.inputs) if inner[i])
        self.masked_tail = unit.masks or not narrow  # vmaskmov takes 32-bit elements only

    def program(self) -> Program:
        p, unit = self.problem, self.unit
        *outer, line = p.dims
        names = [f"i{k}" for k in range(len(outer))]
        turns, rest = divmod(line, unit.lanes)
        bases = [self.address(i, names) for i in range(len(p.strides))]
        steps = [prod(p.dims[k + 1 :]) for k in range(len(outer))]
        row = sum((Affine.var(n) * s for n, s in zip(names, steps, strict=True)), Affine())
        fixed: Code = [line for i in self.fixed for line in self.broadcast(f"x{i}", i, bases[i])]
        vector, tail = Affine.var("v") * unit.lanes, Affine(turns * unit.lanes)
        whole = self.body(bases, row, vector, unit.lanes, False)
        end: Code = []
        if rest and self.masked_tail:
            end = self.body(bases, row, tail, rest, False)
        elif rest:
            end = loop("t", rest, self.body(bases, row, tail + Affine.var("t"), 1, True), parallel=True)
        if outer:
            code = [*fixed, *loop("v", turns, whole, parallel=True), *end]
        else:  # registers do not cross the statements of a program, so each loads what it needs
            code = loop("v", turns, [*fixed, *whole], parallel=True) + (loop("once", 1, [*fixed, *end]) if end else [])
        for name, extent in zip(reversed(names), reversed(outer), strict=True):
            code = loop(name, extent, code, parallel=True)
        return verify(Program(f"elementwise {p.dims}", unit.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        found = [Tensor(f"src{i}", d, p.operand_size(i)) for i, d in enumerate(p.expression.inputs)]
        if self.constants:
            data = b"".join(_pattern(step) * self.unit.lanes for step in self.constants)
            found.append(Tensor.constant("constants", "f32", data))
        return [*found, *store_constants(self.unit, p.dst), Tensor("dst", p.dst, p.size, "output")]

    def address(self, operand: int, names: list[str]) -> Affine:
        steps = self.problem.strides[operand]
        return sum((Affine.var(n) * s for n, s in zip(names, steps, strict=False)), Affine())

    def broadcast(self, register: str, operand: int, at: Affine) -> Code:
        return broadcast(self.unit, register, f"src{operand}", self.problem.expression.inputs[operand], at)

    def load(self, register: str, operand: int, at: Affine, lanes: int) -> Code:
        return load(self.unit, register, f"src{operand}", self.problem.expression.inputs[operand], at, lanes)

    def body(self, bases: list[Affine], row: Affine, along: Affine, lanes: int, single: bool) -> Code:
        """The formula for `lanes` elements of a line; `single`: for one, in every lane."""
        p, unit = self.problem, self.unit
        at = [base + along * stride[-1] for base, stride in zip(bases, p.strides, strict=True)]
        names = [f"v{i}" for i in range(unit.registers - _SCRATCH - len(self.fixed))]
        code, register = _Registers(self, names).formula(at, lanes, single)
        result = unit.reg(register, "f32" if p.expression.is_float else "s32")
        if p.expression.is_float and p.dst in ("s32", "s8", "u8"):
            raise Unimplemented(f"{p.dst} from a formula that ends in f32; a conversion to s32 is needed before it")
        return code + store(unit, p.dst, result, row + along, lanes)


class _Registers:
    """One pass over the steps, with registers for values that are still needed."""

    def __init__(self, kernel: _Elementwise, names: list[str]) -> None:
        self.kernel, self.unit = kernel, kernel.unit
        self.steps = kernel.problem.expression.steps
        self.free = names[::-1]
        self.held: dict[int, str] = {}
        last = len(self.steps) - 1
        self.last_use = {a: i for i, step in enumerate(self.steps) for a in step.args} | {last: last + 1}
        self.code: Code = []

    def formula(self, at: list[Affine], lanes: int, single: bool) -> tuple[Code, str]:
        """The code, and the register of its result."""
        for i, step in enumerate(self.steps):
            if step.op == "input":
                operand = int(step.number)
                if operand in self.kernel.fixed:
                    self.held[i] = f"x{operand}"
                    continue
                self.held[i] = self.take()
                parts = (self.held[i], operand, at[operand])
                self.code += self.kernel.broadcast(*parts) if single else self.kernel.load(*parts, lanes)
            elif step.op == "fma":
                self.fma(i, step)
            elif step.op != "constant":
                self.plain(i, step)
        last = len(self.steps) - 1
        name = self.held.get(last) or self.constant(last)
        return self.code, self.copy(name) if name[0] == "x" else name  # a store may overwrite it

    def copy(self, name: str) -> str:
        """Another register with the same value."""
        other = self.take()
        self.code.append(op("vmovups", self.unit.reg(other, "f32"), self.unit.reg(name, "f32")))
        return other

    def take(self) -> str:
        if not self.free:
            raise Unimplemented("a formula that needs more registers than the vector unit has; split it in two")
        return self.free.pop()

    def release(self, step: Step, i: int) -> None:
        """Registers whose values nobody needs after step i."""
        for a in dict.fromkeys(step.args):
            if self.dies(a, i):
                self.free.append(self.held.pop(a))

    def dies(self, value: int, i: int) -> bool:
        """Whether step i is the last that needs the value's register, which is not an operand's own."""
        return value in self.held and self.last_use[value] == i and self.held[value][0] == "v"

    def constant(self, value: int) -> str:
        """A register with a constant in it."""
        self.held[value] = self.take()
        register = self.unit.reg(self.held[value], "f32")
        self.code.append(op("vmovups", register, self.in_memory(value, "f32")))
        return self.held[value]

    def in_memory(self, value: int, dtype: str) -> Memory:
        index = self.kernel.constants[self.steps[value]]
        return Memory("constants", Affine(index * self.unit.lanes), dtype, self.unit.lanes)

    def operand(self, value: int, dtype: str) -> Register:
        """A value in its register; constants get one when they are first asked for."""
        return self.unit.reg(self.held.get(value) or self.constant(value), dtype)

    def last(self, value: int, dtype: str) -> Place:
        """The last operand of an instruction, which may stand in memory as constants do."""
        return self.operand(value, dtype) if value in self.held else self.in_memory(value, dtype)

    def plain(self, i: int, step: Step) -> None:
        name, dtype, result = INSTRUCTIONS[step.op]
        sources: list[Place] = [self.operand(step.args[0], dtype), *(self.last(a, dtype) for a in step.args[1:])]
        self.release(step, i)
        self.held[i] = self.take()
        immediates = {"imm": int(step.number)} if step.op in ("shl", "shr", "sar") else {}
        self.code.append(op(name, self.unit.reg(self.held[i], result), *sources, **immediates))

    def fma(self, i: int, step: Step) -> None:
        """vfmadd231 where the addend dies and a factor is to be kept or stands in memory; else vfmadd213."""
        a, b, c = step.args
        if self.dies(b, i) and not self.dies(a, i):
            a, b = b, a
        if self.dies(c, i) and (b not in self.held or not self.dies(a, i)):
            kept = c
            total, factor = self.operand(c, "f32"), self.operand(a, "f32")
            self.code.append(op("vfmadd231ps", total, total, factor, self.last(b, "f32")))
        else:
            kept = a if self.dies(a, i) else -1
            first = self.operand(a, "f32")
            total = first if kept == a else self.unit.reg(self.copy(first.name), "f32")
            self.code.append(op("vfmadd213ps", total, total, self.operand(b, "f32"), self.last(c, "f32")))
        self.held.pop(kept, None)
        self.release(step, i)
        self.held[i] = total.name


def _pattern(step: Step) -> bytes:
    """A constant's four bytes."""
    if step.dtype == "f32":
        return np.float32(step.number).tobytes()
    return (int(step.number) & 0xFFFFFFFF).to_bytes(4, "little")
