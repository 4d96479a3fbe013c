"""Registers that instructions over matrices read and write: they lie in memory, where those instructions want them.

Such a register has a kilobyte or more. As values of LLVM's they would go through the host's few registers at each step.
So would other large ones beside them: where lanes do not know each other, an instruction takes a strip of them at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa_models import Instruction
from isa_models.formats import fmt
from isa_models.gpu.block_forms import BLOCK, block_form
from isa_models.host.machine_code import LinkedFunction
from isa_models.readings.llvm import Carried, Emitter, LlvmValue, vector_type
from simdnn.numerics.pieces import piece_by_piece
from simdnn.program.records import Op, Register, Statement, walk

_LARGE = 1 << 8  # bits of a register: more are
_STRIP = 16  # lanes
_WRITTEN_OUT = 8  # strips: more are a loop


def is_product(op: Op) -> bool:
    """Whether an instruction is a call of a function over matrices in memory."""
    return op.definition.pieces() is not None and not op.is_zero_idiom


class Matrices:
    """The places of a stage's registers that hold matrices, on the stack."""

    def __init__(self, emitter: Emitter, body: Sequence[Statement]) -> None:
        self.emitter = emitter
        self.functions: dict[str, LinkedFunction] = {}  # that are called
        self._spaces: dict[str, int] = {}  # bits of each
        ops = [op for op, _ in walk(body)]
        factors = {p.name for op in ops if is_product(op) for p in (op.dst, *op.srcs) if isinstance(p, Register)}
        self._names = factors
        registers = [p for op in ops for p in (op.dst, *op.srcs) if isinstance(p, Register)]
        if factors:
            self._names |= {register.name for register in registers if register.bits > _LARGE}
        for register in registers:  # as they come: a text that differs from process to process is compiled each time
            if register in self:
                self.space(register.name, register.bits)

    def __contains__(self, place: object) -> bool:
        return isinstance(place, Register) and place.name in self._names

    @property
    def allocations(self) -> list[str]:
        """The lines that make room for them."""
        return [f"  {name} = alloca <{bits // 8} x i8>, align 64" for name, bits in self._spaces.items()]

    def space(self, name: str, bits: int) -> str:
        """A place on the stack, large enough for all that is ever asked for by its name."""
        key = f'%"space.{name}"'
        self._spaces[key] = max(bits, self._spaces.get(key, 0))
        return key

    def place(self, register: Register) -> str:
        """Where a register lies."""
        return f'%"space.{register.name}"'

    def strips(self, op: Op) -> Strips | None:
        """How an instruction whose registers are all here goes strip by strip; None where it cannot."""
        registers = [place for place in (op.dst, *op.srcs) if isinstance(place, Register)]
        return strips_of(op) if registers and all(place in self for place in registers) else None

    def read(self, place: Register, dtype: str, lanes: int) -> LlvmValue:
        """The first lanes of a register."""
        return _load(self.emitter, self.place(place), dtype, lanes)

    def write(self, place: Register, value: LlvmValue) -> None:
        """Put a value into a register."""
        _store(self.emitter, value, self.place(place))

    def stored(self, name: str, value: LlvmValue) -> str:
        """A place where an operand's value lies, stored there now."""
        place = self.space(f"operand.{name}", value.lanes * value.format.bits)
        _store(self.emitter, value, place)
        return place

    def call(self, op: Op, places: Sequence[str]) -> LlvmValue | None:
        """The instruction over operands that lie at some places; None where its result lies in its register then."""
        emit, dtype = self.emitter, op.definition.result
        function = piece_by_piece(op.instruction, op.lanes)
        self.functions[function.name] = function
        bits = op.lanes * fmt(dtype).bits
        factors = (p for o, p in zip(op.definition.operands, op.srcs, strict=True) if o.name != "acc")
        own = isinstance(op.dst, Register) and op.dst.bits == bits and op.dst not in factors
        result = self.place(op.dst) if own and isinstance(op.dst, Register) else self.space("operand.result", bits)
        emit.line(f"call void @{function.name}({', '.join(f'ptr {place}' for place in (result, *places))})")
        return None if own else _load(self.emitter, result, dtype, op.lanes)


@dataclass(frozen=True)
class Strips:
    """An instruction as many of another: the lanes of its result, and by how many the result and each operand move on
    from one to the next.
    """

    one: Instruction
    count: int
    lanes: int
    steps: list[int]


def strips_of(op: Op) -> Strips | None:
    """How an instruction goes strip by strip: along a block's rows, or where its lanes do not know each other; None
    where it cannot, or where a place has other lanes than the operand.
    """
    if op.is_zero_idiom:
        return None
    counts = (op.lanes, *(op.definition.operand_lanes(operand, op.lanes) for operand in op.definition.operands))
    if any(place.lanes != lanes for place, lanes in zip((op.dst, *op.srcs), counts, strict=True)):
        return None  # zeros belong above what is there
    own = [place for place in op.srcs if isinstance(place, Register) and place.name == op.registers[1]]
    if any(place.bits < op.dst.bits for place in own):  # a strip of the result would lie on operands of the next
        return None
    return _of_block(op) or _of_lanes(op)


def by_strips(emit: Emitter, op: Op, strips: Strips, places: Sequence[str]) -> None:
    """The instruction strip by strip, its result and operands at some places."""
    one = strips.one
    types = one.result, *(operand.dtype for operand in one.operands)

    def strip(number: str) -> Carried:
        at = []
        for place, dtype, step in zip(places, types, strips.steps, strict=True):
            offset = emit.value(f"mul i64 {number}, {step * fmt(dtype).bits // 8}")
            at.append(emit.value(f"getelementptr i8, ptr {place}, i64 {offset}"))
        counts = [one.operand_lanes(operand, strips.lanes) for operand in one.operands]
        values = [_load(emit, *where) for where in zip(at[1:], types[1:], counts, strict=True)]
        _store(emit, one.apply(*values, lanes=strips.lanes, **op.parameters), at[0])
        return []

    if strips.count <= _WRITTEN_OUT:
        for number in range(strips.count):
            strip(str(number))
    else:
        emit.loop("0", str(strips.count), strip)


def _load(emit: Emitter, place: str, dtype: str, lanes: int) -> LlvmValue:
    name = emit.name()
    emit.line(f"{name} = load {vector_type(dtype, lanes)}, ptr {place}, align 1")
    return LlvmValue(emit, name, dtype, lanes)


def _store(emit: Emitter, value: LlvmValue, place: str) -> None:
    emit.line(f"store {value.type} {value.name}, ptr {place}, align 1")


def _of_block(op: Op) -> Strips | None:
    """A run over a block of rows, row by row; None of any other instruction."""
    fields = BLOCK.read(op.instruction)
    one = block_form(BLOCK.of(**{**fields, "m": 1})) if fields else None
    if fields is None or one is None:
        return None
    n = fields["n"]
    moves = {"row": 0, "column": 1}
    return Strips(one, fields["m"], n, [n, *(moves.get(operand.name, n) for operand in one.operands)])


def _of_lanes(op: Op) -> Strips | None:
    """An instruction whose lanes do not know each other, some at a time; None of any other."""
    one = op.definition
    if one.whole or one.takes_lanes or one.rate == "shuffle" or op.lanes % _STRIP:
        return None
    if not all(one.operand_lanes(operand, _STRIP) == _STRIP for operand in one.operands):
        return None
    return Strips(one, op.lanes // _STRIP, _STRIP, [_STRIP] * (1 + len(op.srcs)))
