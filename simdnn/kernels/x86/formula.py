"""Formulas in AVX2 and AVX-512: registers for what is still needed, constants that stand in memory, and FMA's forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa_models import Unimplemented
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.expression import INSTRUCTIONS, Expression, FormulaStep
from simdnn.kernels.common.vocabulary import Load
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.elements import LOADED, STORED
from simdnn.program.records import Affine, Memory, Place, Register, Tensor

_SCRATCH = 3  # registers that stores use: p, a, b0
_IN_MEMORY = ("constant", "table")


class X86Formula:
    """An expression for one vector unit; the operands among `fixed` stand in registers of their own, and `apart` more
    registers are the caller's.
    """

    def __init__(
        self,
        expression: Expression,
        dst: str,
        fixed: Sequence[int],
        unit: Unit,
        tensor: str = "constants",
        apart: int = 0,
    ) -> None:
        self.expression, self.fixed, self.unit, self.tensor = expression, fixed, unit, tensor
        #: names of registers that values may stand in
        self.registers = [f"v{i}" for i in range(unit.registers - _SCRATCH - len(fixed) - apart)]
        for dtype in expression.inputs:
            if dtype not in LOADED:
                raise Unimplemented(f"operand of {dtype} in an element-by-element kernel; allowed: {', '.join(LOADED)}")
        if dst not in STORED:
            raise Unimplemented(f"{dst} from an element-by-element kernel; allowed: {', '.join(STORED)}")
        constants = [s for s in expression.steps if s.op in _IN_MEMORY]
        self.constants = {step: i for i, step in enumerate(dict.fromkeys(constants))}

    def tensors(self) -> list[Tensor]:
        data = b"".join(_pattern(step, self.unit.lanes) for step in self.constants)
        return [Tensor.constant(self.tensor, "f32", data)] if data else []

    def start(self) -> Code:
        return []

    def code(self, load: Load, lanes: int) -> tuple[Code, Register]:
        code, register = _Registers(self, load).formula()
        return code, self.unit.reg(register, "f32" if self.expression.is_float else "s32")


class _Registers:
    """One pass over the steps, with registers for values that are still needed."""

    def __init__(self, whole: X86Formula, load: Load) -> None:
        self.whole, self.unit, self.load = whole, whole.unit, load
        self.steps = whole.expression.steps
        self.free = whole.registers[::-1]
        self.held: dict[int, str] = {}
        self.busy: tuple[int, ...] = ()  # operands of the step at hand
        last = len(self.steps) - 1
        self.last_use = {a: i for i, step in enumerate(self.steps) for a in step.args} | {last: last + 1}
        self.code: Code = []

    def formula(self) -> tuple[Code, str]:
        """The code, and the register of its result."""
        for i, step in enumerate(self.steps):
            self.busy = step.args
            if step.op == "input":
                if (operand := int(step.number)) in self.whole.fixed:
                    self.held[i] = f"x{operand}"
                else:
                    self.again(i)
            elif step.op == "fma":
                self.fma(i, step)
            elif step.op == "permute2":
                self.of_two_tables(i, step)
            elif step.op not in _IN_MEMORY:
                self.plain(i, step)
        last = len(self.steps) - 1
        name = self.held.get(last) or self.again(last)
        return self.code, name if name in self.whole.registers else self.copy(name)  # a store may overwrite it

    def copy(self, name: str) -> str:
        """Another register with the same value."""
        other = self.take()
        self.code.append(op("vmovups", self.unit.reg(other, "f32"), self.unit.reg(name, "f32")))
        return other

    def take(self) -> str:
        """A free register, or that of a value which can be loaded again."""
        held = (value for value in self.held if self.kept_in_memory(value) and value not in self.busy)
        if not self.free and (value := next(held, None)) is not None:
            self.free.append(self.held.pop(value))
        if not self.free:
            raise Unimplemented("a formula that needs more registers than the vector unit has; split it in two")
        return self.free.pop()

    def release(self, step: FormulaStep, i: int) -> None:
        """Registers whose values nobody needs after step i."""
        for a in dict.fromkeys(step.args):
            if self.dies(a, i):
                self.free.append(self.held.pop(a))

    def dies(self, value: int, i: int) -> bool:
        """Whether step i is the last that needs the value's register, which is not an operand's own."""
        return value in self.held and self.last_use[value] == i and self.held[value] in self.whole.registers

    def kept_in_memory(self, value: int) -> bool:
        """Whether a value is a constant, or an operand without a register of its own."""
        step = self.steps[value]
        return step.op in _IN_MEMORY or step.op == "input" and int(step.number) not in self.whole.fixed

    def again(self, value: int) -> str:
        """A register with a constant or an operand loaded into it."""
        self.held[value] = self.take()
        if self.steps[value].op == "input":
            self.code += self.load(self.held[value], int(self.steps[value].number))
            return self.held[value]
        register = self.unit.reg(self.held[value], "f32")
        self.code.append(op("vmovups", register, self.in_memory(value, "f32")))
        return self.held[value]

    def in_memory(self, value: int, dtype: str) -> Memory:
        index = self.whole.constants[self.steps[value]]
        return Memory(self.whole.tensor, Affine(index * self.unit.lanes), dtype, self.unit.lanes)

    def operand(self, value: int, dtype: str) -> Register:
        """A value in its register; constants get one when they are first asked for."""
        return self.unit.reg(self.held.get(value) or self.again(value), dtype)

    def last(self, value: int, dtype: str) -> Place:
        """The last operand of an instruction, which may stand in memory as constants do."""
        if value in self.held or self.steps[value].op not in _IN_MEMORY:
            return self.operand(value, dtype)
        return self.in_memory(value, dtype)

    def plain(self, i: int, step: FormulaStep) -> None:
        name, dtype, result = INSTRUCTIONS[step.op]
        first = "u32" if step.op == "permute" else dtype
        sources: list[Place] = [self.operand(step.args[0], first), *(self.last(a, dtype) for a in step.args[1:])]
        self.release(step, i)
        self.held[i] = self.take()
        immediates = {"imm": int(step.number)} if step.op in ("shl", "shr", "sar") else {}
        self.code.append(op(name, self.unit.reg(self.held[i], result), *sources, **immediates))

    def of_two_tables(self, i: int, step: FormulaStep) -> None:
        """vpermt2ps, which writes over the first table."""
        low, index, high = step.args
        places = self.operand(index, "u32")
        found = self.unit.reg(self.take(), "f32")
        self.code.append(op("vmovups", found, self.in_memory(low, "f32")))
        self.code.append(op("vpermt2ps", found, found, places, self.last(high, "f32")))
        self.release(step, i)
        self.held[i] = found.name

    def fma(self, i: int, step: FormulaStep) -> None:
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


def _pattern(step: FormulaStep, lanes: int) -> bytes:
    """A constant's four bytes in every lane, or those of a table's entries."""
    if step.entries:
        return np.array(step.entries, np.float32).tobytes()
    if step.dtype == "f32":
        return np.float32(step.number).tobytes() * lanes
    return (int(step.number) & 0xFFFFFFFF).to_bytes(4, "little") * lanes
