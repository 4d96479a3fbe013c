"""Products of matrices in LLVM whose elements do not know each other: one function for each, loops over pieces of rows.

Without it a program would hold the text of every row of every such instruction, and a compiler would take minutes.
A piece takes the instruction's shortcuts; where one may have been wrong, a function that takes none forms it instead.
"""

from __future__ import annotations

import functools

from isa_models import Instruction, instruction
from isa_models.formats import fmt
from isa_models.host.machine_code import LinkedFunction
from isa_models.instruction import Operand
from isa_models.readings.alarm import Alarms
from isa_models.readings.llvm import Carried, Emitter, LlvmValue, vector_type


@functools.cache
def piece_by_piece(mnemonic: str, lanes: int) -> LinkedFunction:
    """`void @name(ptr result, ptr …operands)`: an instruction that is made of pieces, for a result of `lanes`. That
    may lie where the accumulator does.
    """
    return _Product(instruction(mnemonic), lanes).function


def _careful(one: Instruction, lanes: int) -> LinkedFunction:
    """A piece without shortcuts, by pointers to its result and operands; in smaller pieces, if it has any."""
    return _Product(one, lanes, careful=True).function


def _loaded(emit: Emitter, operand: Operand, place: str, count: int) -> LlvmValue:
    name = emit.name()
    emit.line(f"{name} = load {vector_type(operand.dtype, count)}, ptr {place}, align 1")
    return LlvmValue(emit, name, operand.dtype, count)


class _Product:
    """The text of one such function."""

    def __init__(self, definition: Instruction, lanes: int, careful: bool = False) -> None:
        found = definition.pieces()
        assert found is not None
        self.one, self.rows, self.columns = found.one, found.rows, found.columns
        self.lanes = lanes // (self.rows * self.columns)
        self.counts = {o.name: self.one.operand_lanes(o, self.lanes) for o in self.one.operands}
        self.name = f"{'careful' if careful else 'product'}.{definition.name}"
        self.emit = Emitter(careful=careful)
        self.emit.places = []  # units that load have time to spread lanes, those that shuffle have not
        self.calls: tuple[LinkedFunction, ...] = ()
        self.write()

    @property
    def function(self) -> LinkedFunction:
        emit, operands = self.emit, self.one.operands
        factors = (f"ptr{'' if operand.name == 'acc' else ' noalias'} %{operand.name}" for operand in operands)
        lines = *(emit.places or ()), *emit.lines
        return LinkedFunction(self.name, "void", ("ptr %result", *factors), lines, tuple(emit.declarations), self.calls)

    def write(self) -> None:
        emit, columns = self.emit, self.columns
        b = next(operand for operand in self.one.operands if operand.name == "b")
        if columns == 1:
            self.column("0", b, "%b")
        else:
            emit.line(f"%some = alloca {vector_type(b.dtype, self.counts['b'])}, align 64")

            def inside(column: str) -> Carried:
                self.some_columns(b, column)
                self.column(column, b, "%some")
                return []

            emit.loop("0", str(columns), inside)
        emit.line("ret void")

    def column(self, column: str, b: Operand, place: str) -> None:
        """Pieces below each other, the first ahead of the others: they find there what all take from `b`, which lies at
        a place.
        """
        common = _loaded(self.emit, b, place, self.counts["b"])

        def piece(row: str) -> Carried:
            self.piece(self.number(row, column), row, common, place)
            return []

        piece("0")
        if self.rows > 1:
            self.emit.loop("1", str(self.rows), piece)

    def piece(self, number: str, row: str, b: LlvmValue, place: str) -> None:
        emit, one = self.emit, self.one
        places = {"b": place}
        for o in one.operands:
            if o.name != "b":
                step = row if o.name == "a" else number
                places[o.name] = self.at(o.name, step, self.counts[o.name] * fmt(o.dtype).bits // 8)
        operands = [b if o.name == "b" else _loaded(emit, o, places[o.name], self.counts[o.name]) for o in one.operands]
        alarm = "false"
        if emit.careful:
            result = one.apply(*operands, lanes=self.lanes)
        else:
            emit.alarms = Alarms(emit)
            result = one.apply(*operands, lanes=self.lanes)
            alarm, emit.alarms = emit.alarms.finish(), None
        where = self.at("result", number, self.lanes * fmt(one.result).bits // 8)
        if alarm == "false":
            emit.line(f"store {result.type} {result.name}, ptr {where}, align 1")
            return
        self.calls = self.calls or (_careful(one, self.lanes),)
        rare, usual, done = (emit.name(word)[1:] for word in ("rare", "usual", "done"))
        emit.line(f"br i1 {alarm}, label %{rare}, label %{usual}, !prof !0")
        emit.start(rare)
        pointers = (f"ptr {pointer}" for pointer in (where, *(places[o.name] for o in one.operands)))
        emit.line(f"call void @{self.calls[0].name}({', '.join(pointers)})")
        emit.line(f"br label %{done}")
        emit.start(usual)
        emit.line(f"store {result.type} {result.name}, ptr {where}, align 1")
        emit.line(f"br label %{done}")
        emit.start(done)

    def some_columns(self, b: Operand, column: str) -> None:
        """Columns of `b`, which is by rows, copied one behind the other."""
        emit = self.emit
        wide = self.lanes * fmt(b.dtype).bits // 8
        depth = self.counts["b"] // self.lanes

        def copied(row: str) -> Carried:
            source = self.at("b", self.number(row, column), wide)
            target = self.at("some", row, wide)
            moved = emit.name()
            emit.line(f"{moved} = load <{wide} x i8>, ptr {source}, align 1")
            emit.line(f"store <{wide} x i8> {moved}, ptr {target}, align 1")
            return []

        emit.loop("0", str(depth), copied)

    def number(self, row: str, column: str) -> str:
        """Which piece it is, of a matrix by rows."""
        return self.emit.value(f"add i64 {self.emit.value(f'mul i64 {row}, {self.columns}')}, {column}")

    def at(self, pointer: str, step: str, size: int) -> str:
        """The address `step` times `size` bytes behind a pointer."""
        offset = self.emit.value(f"mul i64 {step}, {size}")
        return self.emit.value(f"getelementptr i8, ptr %{pointer}, i64 {offset}")
