"""The readable engine: NumPy executes the program, all iterations of the parallel loops at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from isa_models.arrays import Array, ArrayValue
from isa_models.formats import fmt
from simdnn.program import Affine, Loop, Memory, Op, Program, Register, Statement

_BATCH_LANES = 1 << 17  # parallel iterations are taken in slices of about this many lanes
Variables = dict[str, "int | Array"]  # a parallel variable is a column (iterations, 1)


def execute(program: Program, buffers: dict[str, Array]) -> Counter[str]:
    """Run a verified program over `buffers` (a flat array for each tensor), and count the instructions executed."""
    run = _Run(program, buffers)
    run.statements(program.body, {}, {}, 1)
    return run.executed


class _Run:
    def __init__(self, program: Program, buffers: dict[str, Array]) -> None:
        self.program = program
        self.buffers = buffers
        self.executed: Counter[str] = Counter()
        self.private = any(t.kind == "private" for t in program.tensors)

    def statements(
        self, body: Sequence[Statement], variables: Variables, registers: dict[str, Array], batch: int
    ) -> None:
        for statement in body:
            if isinstance(statement, Op):
                self.op(statement, variables, registers, batch)
            elif statement.parallel:
                self.parallel(statement, variables, registers, batch)
            else:
                for i in range(statement.extent):
                    self.statements(statement.body, {**variables, statement.var: i}, registers, batch)

    def parallel(self, loop: Loop, variables: Variables, registers: dict[str, Array], batch: int) -> None:
        """Put slices of the loop's iterations beside each other in the leading axis."""
        step = max(1, _BATCH_LANES // (64 * batch))
        if batch == 1 and self.private:
            step = 1  # one after the other, with one set of private tensors
        for start in range(0, loop.extent, step):
            count = min(step, loop.extent - start)
            inside: Variables = {
                name: np.repeat(v, count, axis=0) if isinstance(v, np.ndarray) else v for name, v in variables.items()
            }
            inside[loop.var] = np.tile(np.arange(start, start + count), batch)[:, None]
            copies = {n: np.repeat(r, count, axis=0) if len(r) > 1 else r for n, r in registers.items()}
            self.statements(loop.body, inside, copies, batch * count)

    def op(self, op: Op, variables: Variables, registers: dict[str, Array], batch: int) -> None:
        definition = op.definition
        self.executed[definition.mnemonic(op.width)] += batch
        values = []
        for operand, place in zip(definition.operands, op.srcs, strict=True):
            if op.is_zero_idiom:
                array: Array = np.zeros((1, place.bits // 8), np.uint8)
            elif isinstance(place, Register):
                array = registers[place.name][:, : place.bits // 8]
            else:
                array = self.load(place, definition.operand_lanes(operand, op.lanes), variables)
            values.append(ArrayValue(array, "u8").view(operand.dtype))
        result = definition.apply(*values, lanes=op.lanes, **op.parameters)
        assert isinstance(result, ArrayValue)
        array = result.array
        stored = ArrayValue(array.reshape(-1, array.shape[-1]), result.dtype).view("u8").array
        if isinstance(op.dst, Register):
            registers[op.dst.name] = stored
        else:
            self.store(op.dst, stored, variables)

    def elements(self, memory: Memory, variables: Variables) -> Array:
        """Element numbers (iterations, count) that the operand touches."""
        count = memory.bits // memory.rows // fmt(self.program.tensor[memory.tensor].dtype).bits
        elements = np.arange(memory.rows)[:, None] * memory.stride + np.arange(count)
        return np.atleast_2d(evaluate(memory.index, variables) + elements.reshape(-1))

    def load(self, memory: Memory, lanes: int, variables: Variables) -> Array:
        data = self.buffers[memory.tensor][self.elements(memory, variables)]
        raw = np.ascontiguousarray(data).view(np.uint8)
        missing = lanes * fmt(memory.dtype).bits // 8 - raw.shape[1]
        return np.pad(raw, ((0, 0), (0, missing))) if missing else raw

    def store(self, memory: Memory, raw: Array, variables: Variables) -> None:
        buffer = self.buffers[memory.tensor]
        values = np.ascontiguousarray(raw[:, : memory.bits // 8]).view(buffer.dtype)
        buffer[self.elements(memory, variables)] = values


def evaluate(index: Affine, variables: Variables) -> int | Array:
    """The index for the variables given: a number, or a column where a parallel variable takes part."""
    total: int | Array = index.const
    for name, coefficient in index.terms:
        total = total + coefficient * variables[name]
    return total
