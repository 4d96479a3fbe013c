"""Registers that instructions over matrices read and write: they lie in memory, where those instructions want them.

Such a register has a kilobyte or more. As values of LLVM's they would go through the host's few registers at each step.
So would other large ones beside them: where lanes do not know each other, an instruction takes a strip of them at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence

from isa_models.formats import fmt
from isa_models.host.machine_code import LinkedFunction
from isa_models.readings.llvm import Emitter, LlvmValue, vector_type
from simdnn.numerics.pieces import piece_by_piece
from simdnn.program.records import Op, Register, Statement, walk

_LARGE = 1 << 10  # bits of a register: more are
_STRIP = 16  # lanes


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
        key = f"%space.{name}"
        self._spaces[key] = max(bits, self._spaces.get(key, 0))
        return key

    def place(self, register: Register) -> str:
        """Where a register lies."""
        return f"%space.{register.name}"

    def goes_by_strips(self, op: Op) -> bool:
        """Whether an instruction's lanes do not know each other and lie in registers that are here."""
        definition, places = op.definition, (op.dst, *op.srcs)
        if op.is_zero_idiom or definition.whole or definition.takes_lanes or op.lanes % _STRIP:
            return False
        alone = all(definition.operand_lanes(operand, _STRIP) == _STRIP for operand in definition.operands)
        registers = [place for place in places if isinstance(place, Register)]
        here = all(place in self and (place == op.dst or place.name != op.registers[1]) for place in registers)
        return alone and here and registers != [] and all(place.lanes == op.lanes for place in places)

    def by_strips(self, op: Op, places: Sequence[str]) -> None:
        """Such an instruction, its result and operands at some places."""
        definition = op.definition
        types = definition.result, *(operand.dtype for operand in definition.operands)
        for first in range(0, op.lanes, _STRIP):
            result, *some = (
                self.emitter.value(f"getelementptr i8, ptr {place}, i64 {first * fmt(dtype).bits // 8}")
                for place, dtype in zip(places, types, strict=True)
            )
            values = [self._load(place, dtype, _STRIP) for place, dtype in zip(some, types[1:], strict=True)]
            self._store(definition.apply(*values, lanes=_STRIP, **op.parameters), result)

    def read(self, place: Register, dtype: str, lanes: int) -> LlvmValue:
        """The first lanes of a register."""
        return self._load(self.place(place), dtype, lanes)

    def write(self, place: Register, value: LlvmValue) -> None:
        """Put a value into a register."""
        self._store(value, self.place(place))

    def stored(self, name: str, value: LlvmValue) -> str:
        """A place where an operand's value lies, stored there now."""
        place = self.space(f"operand.{name}", value.lanes * value.format.bits)
        self._store(value, place)
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
        return None if own else self._load(result, dtype, op.lanes)

    def _load(self, place: str, dtype: str, lanes: int) -> LlvmValue:
        name = self.emitter.name()
        self.emitter.line(f"{name} = load {vector_type(dtype, lanes)}, ptr {place}, align 1")
        return LlvmValue(self.emitter, name, dtype, lanes)

    def _store(self, value: LlvmValue, place: str) -> None:
        self.emitter.line(f"store {value.type} {value.name}, ptr {place}, align 1")
