"""Code made in haste: every register lies in memory, and every instruction is a call of a function.

Most programs are small and run once; then LLVM takes longer than the program. What it takes long for is an
instruction that becomes many of the host's, again at each place where the program has it. Here it is compiled once
for a process, well. The program's own text is addresses and calls, and for these LLVM has a fast way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from isa_models import Instruction
from isa_models.formats import fmt
from isa_models.host.machine_code import LinkedFunction
from isa_models.readings.llvm import ZERO, Carried, Emitter, LlvmValue, vector_type
from simdnn.numerics import tiles
from simdnn.numerics.blocks import order_of_program
from simdnn.numerics.masked import is_part, masked_load, masked_store
from simdnn.numerics.matrices import Strips, by_strips, strips_of
from simdnn.numerics.native import Native, stands_in
from simdnn.numerics.operand_addresses import OperandAddresses
from simdnn.numerics.pieces import piece_by_piece
from simdnn.numerics.statements import spread, tiles_written, turns
from simdnn.numerics.turns import FIRST_OPS
from simdnn.program.records import Loop, Op, Place, Program, Register, Statement, walk

_WIDE = 1 << 10  # bits of a result: a wider one is made strip by strip, where it can be
_LEAST = 8  # lanes of a mask in memory, a bit each
_MOST = 1 << 14  # functions kept by what asks for them
_BY_FORM: dict[tuple[object, ...], LinkedFunction] = {}
_BY_TEXT: dict[tuple[object, ...], tuple[Instruction, LinkedFunction]] = {}  # with what its number is of


class HastyStage:
    """LLVM text of one top-level statement in haste, to be called as `compiled._Stage` is."""

    def __init__(
        self, program: Program, caps: frozenset[str], native: Native, name: str, statement: Statement, optimistic: bool
    ) -> None:
        self.name, self.caps, self.native, self.optimistic = name, caps, native, optimistic
        self.emitter = emit = Emitter()
        self.functions: dict[str, LinkedFunction] = {}  # that are called
        self.places = OperandAddresses(emit, program)
        self.sizes: dict[str, int] = {}  # bits of each register
        order = order_of_program(statement)
        ops = [op for op, _ in walk(order.body)]
        for place in (place for op in ops for place in (op.dst, *op.srcs)):
            if isinstance(place, Register):
                self.sizes[place.name] = max(place.bits, self.sizes.get(place.name, 0))
        for tile in tiles_written((statement,)):
            emit.line(f"%{tile} = alloca <{tiles.BITS // 8} x i8>, align 64")
            self.sizes.pop(tile)
        for register, bits in self.sizes.items():
            emit.line(f"{_at(register)} = alloca <{-(-max(bits, _LEAST) // 8)} x i8>, align 64")
        emit.line("%alarm = alloca i64, align 8")
        emit.line("store i64 0, ptr %alarm")
        self.extent = turns(order.nest)
        self.count = max(1, FIRST_OPS // sum(times for _, times in walk(order.body)))

        def inside(counter: str) -> Carried:
            self.statements(order.body, spread(emit, counter, order.nest))
            return []

        emit.loop("%from", "%to", inside)
        emit.line("%word = load i64, ptr %alarm")
        emit.line("%some = icmp ne i64 %word, 0")
        emit.line("%answer = zext i1 %some to i32")
        emit.line("ret i32 %answer")
        lines = "\n".join(emit.lines)
        self.text = f"define i32 @{name}(ptr %pointers, i64 %from, i64 %to) nounwind {{\nentry:\n{lines}\n}}"

    def statements(self, body: Sequence[Statement], variables: dict[str, str]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self.loop(statement, variables)
            elif statement.definition.tile:
                self.tile(statement, variables)
            elif not statement.definition.configures:
                self.op(statement, variables)

    def loop(self, loop: Loop, variables: dict[str, str]) -> None:
        def inside(counter: str) -> Carried:
            self.statements(loop.body, {**variables, loop.var: counter})
            return []

        self.emitter.loop("0", str(loop.extent), inside)

    def op(self, op: Op, variables: dict[str, str]) -> None:
        function = op_function(op, self.caps, self.native, self.optimistic)
        self.functions[function.name] = function
        places = (op.dst,) if op.is_zero_idiom else (op.dst, *op.srcs)
        pointers = [self.pointer(place, variables) for place in places]
        if len(function.parameters) > len(pointers):
            pointers.append("%alarm")
        self.emitter.line(f"call void @{function.name}({', '.join([f'ptr {pointer}' for pointer in pointers])})")

    def tile(self, op: Op, variables: dict[str, str]) -> None:
        alarm = tiles.portable(self.emitter, op, self.places, variables, self.functions, self.optimistic)
        if alarm:
            self.emitter.lines += _raised(self.emitter, alarm)

    def pointer(self, place: Place, variables: dict[str, str]) -> str:
        """Where an operand lies."""
        return _at(place.name) if isinstance(place, Register) else self.places.address(place, variables)


def _at(register: str) -> str:
    """Where a register lies, by its name: any letters that Python's names have.

    >>> _at("größe")
    '%"at.größe"'
    """
    return f'%"at.{register}"'


def op_function(op: Op, caps: frozenset[str], native: Native, optimistic: bool) -> LinkedFunction:
    """`void @name(ptr result, ptr …operands, ptr alarm)`: an instruction over operands in memory, as many lanes of each
    as its places have. A result may lie where an operand does. Without `alarm` where it knows none; with no operand
    where the result is zero whatever these are.
    """
    how = caps, native, optimistic
    key = op.form.number, *how
    if key not in _BY_FORM:
        if len(_BY_FORM) >= _MOST:
            _BY_FORM.clear()
            _BY_TEXT.clear()
        places = [(type(p), p.dtype, p.bits, p.lanes) for p in (op.dst, *op.srcs)]
        wide = op.lanes * fmt(op.definition.result).bits > _WIDE
        strips = strips_of(op) if wide else None  # none where a strip of the result would lie on operands of the next
        facts = id(op.definition), op.width, op.immediates, op.choices, op.is_zero_idiom, strips is None, *places, *how
        if facts not in _BY_TEXT:
            _BY_TEXT[facts] = op.definition, _Function(op, strips, *how).function
        _BY_FORM[key] = _BY_TEXT[facts][1]
    return _BY_FORM[key]


class _Function:
    """The text of one such function."""

    def __init__(self, op: Op, strips: Strips | None, caps: frozenset[str], native: Native, optimistic: bool) -> None:
        self.op, self.caps, self.native = op, caps, native
        self.emit = emit = Emitter(optimistic)
        self.calls: tuple[LinkedFunction, ...] = ()
        self.spaces: list[str] = []
        definition = op.definition
        names = [f"%{operand.name}" for operand in definition.operands]
        if op.is_zero_idiom:
            names = []
            self.write(LlvmValue(emit, ZERO, definition.result, op.lanes))
        elif definition.pieces() is not None:
            self.product(names)
        elif strips:
            by_strips(emit, op, strips, ["%result", *names])
        else:
            self.write(self.result(names))
        alarm = emit.alarms.finish() if emit.alarms else "false"
        parameters = [f"ptr {name}" for name in ("%result", *names)]
        if alarm != "false":
            emit.lines += _raised(emit, alarm)
            parameters.append("ptr %alarm")
        emit.line("ret void")
        lines = *self.spaces, *emit.lines
        digest = hashlib.sha256("\n".join([*parameters, *lines]).encode()).hexdigest()[:16]
        name = f"{definition.name}.{digest}"
        self.function = LinkedFunction(name, "void", tuple(parameters), lines, tuple(emit.declarations), self.calls)

    def result(self, names: Sequence[str]) -> LlvmValue:
        """The instruction's result, from the host's own one where that stands in."""
        op, definition = self.op, self.op.definition
        values = [self.value(number, names[number]) for number in range(len(names))]
        if definition.native and self.caps:
            always = self.native == "always"
            own = stands_in(self.emit, definition, op.width, op.lanes, values, dict(op.immediates), self.caps, always)
            if own is not None:
                return own
        made = definition.apply(*values, lanes=op.lanes, **op.parameters)
        assert isinstance(made, LlvmValue)
        return made

    def value(self, number: int, pointer: str) -> LlvmValue:
        """An operand."""
        emit, op = self.emit, self.op
        operand, place = op.definition.operands[number], op.srcs[number]
        lanes = op.definition.operand_lanes(operand, op.lanes)
        name = emit.name()
        if fmt(operand.dtype).is_truth:
            count = max(place.lanes, _LEAST)
            emit.line(f"{name} = load i{count}, ptr {pointer}, align 1")
            mask = emit.value(f"bitcast i{count} {name} to <{count} x i1>")
            whole = LlvmValue(emit, mask, operand.dtype, count)
            return whole.permute(range(lanes)) if count > lanes else whole.pad(lanes)
        if isinstance(place, Register):
            emit.line(f"{name} = load {vector_type(operand.dtype, lanes)}, ptr {pointer}, align 1")
            return LlvmValue(emit, name, operand.dtype, lanes)
        if is_part(place, lanes):
            emit.line(f"{name} = {masked_load(emit, place.dtype, lanes, place.lanes, pointer)}")
            return LlvmValue(emit, name, place.dtype, lanes)
        emit.line(f"{name} = load {vector_type(place.dtype, place.lanes)}, ptr {pointer}, align 1")
        return LlvmValue(emit, name, place.dtype, place.lanes).pad(lanes)

    def write(self, value: LlvmValue) -> None:
        """Put the result into its place; in a register zeros above it."""
        emit, place = self.emit, self.op.dst
        if isinstance(place, Register):
            value = value.pad(max(place.bits // value.format.bits, _LEAST if value.format.is_truth else 1))
        elif is_part(place, value.lanes):
            emit.line(masked_store(emit, value, place.lanes, "%result"))
            return
        elif value.lanes != place.lanes:
            value = value.permute(range(place.lanes))
        if value.format.is_truth:
            bits = emit.value(f"bitcast {value.type} {value.name} to i{value.lanes}")
            emit.line(f"store i{value.lanes} {bits}, ptr %result, align 1")
        else:
            emit.line(f"store {value.type} {value.name}, ptr %result, align 1")

    def product(self, names: Sequence[str]) -> None:
        """A matrix instruction as a call of its function, over copies where a place has not all lanes of an operand."""
        op, emit, definition = self.op, self.emit, self.op.definition
        made = piece_by_piece(op.instruction, op.lanes)
        self.calls = (made,)
        pointers = []
        for number, (operand, place) in enumerate(zip(definition.operands, op.srcs, strict=True)):
            lanes = definition.operand_lanes(operand, op.lanes)
            if isinstance(place, Register) or place.lanes == lanes:
                pointers.append(names[number])
            else:
                value = self.value(number, names[number])
                pointers.append(self.space(operand.name, value.lanes * value.format.bits))
                emit.line(f"store {value.type} {value.name}, ptr {pointers[-1]}, align 1")
        result = self.space("whole", op.lanes * fmt(definition.result).bits)
        emit.line(f"call void @{made.name}({', '.join(f'ptr {pointer}' for pointer in (result, *pointers))})")
        name, kind = emit.name(), vector_type(definition.result, op.lanes)
        emit.line(f"{name} = load {kind}, ptr {result}, align 1")
        self.write(LlvmValue(emit, name, definition.result, op.lanes))

    def space(self, name: str, bits: int) -> str:
        """Room on the stack."""
        self.spaces.append(f"  %space.{name} = alloca <{bits // 8} x i8>, align 64")
        return f"%space.{name}"


def _raised(emit: Emitter, alarm: str) -> list[str]:
    """Lines that note an alarm where `%alarm` points to."""
    word, before, after = (emit.name() for _ in range(3))
    return [
        f"  {word} = zext i1 {alarm} to i64",
        f"  {before} = load i64, ptr %alarm, align 8",
        f"  {after} = or i64 {before}, {word}",
        f"  store i64 {after}, ptr %alarm, align 8",
    ]
