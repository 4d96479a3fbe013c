"""The readable engine: NumPy executes the program, all iterations of the parallel loops at once."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, ArrayValue, silent
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement
from simdnn.progress import Late

_BATCH_LANES = 1 << 17  # parallel iterations are taken in slices of about this many lanes
Variables = dict[str, "int | Array"]  # a parallel variable is a column (iterations, 1)
Registers = dict[str, ArrayValue]  # arrays (iterations, lanes), or of one row where all iterations have the same


@silent
def execute(program: Program, buffers: dict[str, Array]) -> Counter[str]:
    """Run a verified program over `buffers` (a flat array for each tensor), and count the instructions executed."""
    run = Interpreter(program, buffers)
    run.whole("instructions in NumPy")
    return run.executed


class Interpreter:
    """A program in execution, its parallel iterations beside each other."""

    reading: type[ArrayValue] = ArrayValue  # in which instructions are executed

    def __init__(self, program: Program, buffers: dict[str, Array]) -> None:
        self.program = program
        self.buffers = buffers
        self.executed: Counter[str] = Counter()
        self.private = any(t.kind == "private" for t in program.tensors)
        self.done = 0
        self.tell: Callable[[], None] | None = None

    def whole(self, what: str) -> None:
        """Run the program; what is executed of all is told where it takes long."""
        total = sum(count for _, count in self.program.ops())
        with Late(what) as told:
            self.tell = lambda: told(self.done, total)
            self.statements(self.program.body, {}, {}, 1)

    def statements(self, body: Sequence[Statement], variables: Variables, registers: Registers, batch: int) -> None:
        for statement in body:
            if isinstance(statement, Op):
                self.op(statement, variables, registers, batch)
            elif statement.parallel:
                self.parallel(statement, variables, registers, batch)
            else:
                for i in self.turns_of(statement):
                    self.statements(statement.body, {**variables, statement.var: i}, registers, batch)

    def turns_of(self, loop: Loop) -> Sequence[int]:
        """The turns of a loop that are executed."""
        return range(loop.extent)

    def parallel(self, loop: Loop, variables: Variables, registers: Registers, batch: int) -> None:
        """Put slices of the loop's iterations beside each other in the leading axis."""
        step = max(1, _BATCH_LANES // (64 * batch))
        if batch == 1 and self.private:
            step = 1  # one after the other, with one set of private tensors
        turns = self.turns_of(loop)
        for start in range(0, len(turns), step):
            now = np.asarray(turns[start : start + step])
            count = len(now)
            inside: Variables = {
                name: np.repeat(v, count, axis=0) if isinstance(v, np.ndarray) else v for name, v in variables.items()
            }
            inside[loop.var] = np.tile(now, batch)[:, None]
            copies = {name: r.repeated(count) for name, r in registers.items()}
            self.statements(loop.body, inside, copies, batch * count)

    @silent
    def op(self, op: Op, variables: Variables, registers: Registers, batch: int) -> ArrayValue:
        """Execute one instruction; what it left, (iterations, lanes)."""
        definition = op.definition
        self.executed[definition.mnemonic(op.width)] += batch
        self.done += batch
        if self.tell:
            self.tell()
        values = []
        for operand, place in zip(definition.operands, op.srcs, strict=True):
            lanes = definition.operand_lanes(operand, op.lanes)
            if op.is_zero_idiom:
                value = self.reading(np.zeros((1, place.bits // 8), np.uint8), "u8").view(operand.dtype)
            elif isinstance(place, Register):
                value = registers[place.name].view(operand.dtype)
                lanes = place.bits // fmt(operand.dtype).bits
                value = value if value.lanes == lanes else value.permute(range(lanes))
            else:
                value = self.load(place, lanes, variables).view(operand.dtype)
            values.append(value)
        result = self.applied(op, values)
        if isinstance(op.dst, Register):
            result = result.pad(op.dst.bits // result.format.bits)
            registers[op.dst.name] = result
        else:
            self.store(op.dst, result, variables)
        return result

    def applied(self, op: Op, values: Sequence[ArrayValue]) -> ArrayValue:
        """The result of an instruction, its lanes in one axis."""
        result = op.definition.apply(*values, lanes=op.lanes, **op.parameters)
        assert isinstance(result, ArrayValue)
        return result.flat()

    def elements(self, memory: Memory, variables: Variables) -> Array:
        """Element numbers (iterations, count) that the operand touches."""
        count = memory.bits // memory.rows // fmt(self.program.tensor[memory.tensor].dtype).bits
        return evaluate(memory.index, variables) + offsets(memory.rows, memory.stride, count)

    def load(self, memory: Memory, lanes: int, variables: Variables) -> ArrayValue:
        """The operand's bytes, and zeros for lanes that it does not have."""
        data = self.buffers[memory.tensor][self.elements(memory, variables)]
        raw = np.ascontiguousarray(data).view(np.uint8)
        size = lanes * fmt(memory.dtype).bits // 8
        if size > raw.shape[1]:
            whole = np.zeros((len(raw), size), np.uint8)
            whole[:, : raw.shape[1]] = raw
            raw = whole
        return self.reading(raw, "u8")

    def store(self, memory: Memory, value: ArrayValue, variables: Variables) -> None:
        buffer, raw = self.buffers[memory.tensor], value.view("u8").array
        values = np.ascontiguousarray(raw[:, : memory.bits // 8]).view(buffer.dtype)
        buffer[self.elements(memory, variables)] = values


@functools.lru_cache(maxsize=1024)
def offsets(rows: int, stride: int, count: int) -> Array:
    """A row of the numbers of elements in `rows` runs of `count` that begin `stride` apart.

    >>> offsets(2, 10, 3).tolist()
    [[0, 1, 2, 10, 11, 12]]
    """
    return (np.arange(rows)[:, None] * stride + np.arange(count)).reshape(1, -1)


def evaluate(index: Affine, variables: Variables) -> int | Array:
    """The index for the variables given: a number, or a column where a parallel variable takes part."""
    total: int | Array = index.const
    for name, coefficient in index.terms:
        total = total + coefficient * variables[name]
    return total
