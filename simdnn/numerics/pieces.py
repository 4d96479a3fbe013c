"""Products of matrices in LLVM whose elements do not know each other: one function for each, loops over pieces of rows.

Without it a program would hold the text of every row of every such instruction, and a compiler would take minutes.
"""

from __future__ import annotations

import functools

from isa_models import instruction
from isa_models.formats import fmt
from isa_models.host.machine_code import LinkedFunction
from isa_models.instruction import Operand
from isa_models.readings.llvm import Carried, Emitter, LlvmValue, vector_type


@functools.cache
def piece_by_piece(mnemonic: str, lanes: int) -> LinkedFunction:
    """`void @name(ptr result, ptr …operands)`: an instruction that is made of pieces, for a result of `lanes`."""
    product = _Product(mnemonic, lanes)
    product.write()
    operands = (f"ptr noalias %{operand.name}" for operand in product.one.operands)
    emit = product.emit
    lines = *(emit.places or ()), *emit.lines
    parameters = "ptr noalias %result", *operands
    return LinkedFunction(f"product.{mnemonic}", "void", parameters, lines, tuple(emit.declarations))


class _Product:
    """The text of one such function."""

    def __init__(self, mnemonic: str, lanes: int) -> None:
        found = instruction(mnemonic).pieces()
        assert found is not None
        self.one, self.rows, self.columns = found.one, found.rows, found.columns
        self.lanes = lanes // (self.rows * self.columns)
        self.counts = {o.name: self.one.operand_lanes(o, self.lanes) for o in self.one.operands}
        self.emit = Emitter()
        self.emit.places = []  # units that load have time to spread lanes, those that shuffle have not

    def write(self) -> None:
        emit, columns = self.emit, self.columns
        b = next(operand for operand in self.one.operands if operand.name == "b")
        if columns == 1:
            self.column("0", self.load(b, "%b"))
        else:
            emit.line(f"%some = alloca {vector_type(b.dtype, self.counts['b'])}, align 64")

            def inside(column: str) -> Carried:
                self.column(column, self.some_columns(b, column))
                return []

            emit.loop("0", str(columns), inside)
        emit.line("ret void")

    def column(self, column: str, b: LlvmValue) -> None:
        """Pieces below each other, the first ahead of the others: they find there what all take from `b`."""

        def piece(row: str) -> Carried:
            place = self.number(row, column)
            steps = {"acc": place, "a": row}
            operands = [
                b if o.name == "b" else self.load(o, self.at(o.name, steps[o.name], self.counts[o.name], o.dtype))
                for o in self.one.operands
            ]
            result = self.one.apply(*operands, lanes=self.lanes)
            where = self.at("result", place, self.lanes, self.one.result)
            self.emit.line(f"store {result.type} {result.name}, ptr {where}, align 2")
            return []

        piece("0")
        if self.rows > 1:
            self.emit.loop("1", str(self.rows), piece)

    def some_columns(self, b: Operand, column: str) -> LlvmValue:
        """Columns of `b`, which is by rows, one behind the other."""
        emit = self.emit
        wide = self.lanes * fmt(b.dtype).bits // 8
        depth = self.counts["b"] // self.lanes

        def copied(row: str) -> Carried:
            source = self.at("b", self.number(row, column), self.lanes, b.dtype)
            target = self.at("some", row, self.lanes, b.dtype)
            moved = emit.name()
            emit.line(f"{moved} = load <{wide} x i8>, ptr {source}, align 1")
            emit.line(f"store <{wide} x i8> {moved}, ptr {target}, align 1")
            return []

        emit.loop("0", str(depth), copied)
        return self.load(b, "%some")

    def number(self, row: str, column: str) -> str:
        """Which piece it is, of a matrix by rows."""
        return self.emit.value(f"add i64 {self.emit.value(f'mul i64 {row}, {self.columns}')}, {column}")

    def load(self, operand: Operand, place: str) -> LlvmValue:
        name, count = self.emit.name(), self.counts[operand.name]
        self.emit.line(f"{name} = load {vector_type(operand.dtype, count)}, ptr {place}, align 2")
        return LlvmValue(self.emit, name, operand.dtype, count)

    def at(self, pointer: str, step: str, lanes: int, dtype: str) -> str:
        """The address `step` times `lanes` elements behind a pointer."""
        offset = self.emit.value(f"mul i64 {step}, {lanes * fmt(dtype).bits // 8}")
        return self.emit.value(f"getelementptr i8, ptr %{pointer}, i64 {offset}")
