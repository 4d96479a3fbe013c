"""Where a loop's memory operands point, iteration by iteration: general registers followed as sums of unknowns.

A register's value is a constant and multiples of unknowns (the registers' values at the start, and whatever an
instruction yields that isn't followed). Two addresses with the same unknowns are a known number of bytes apart; with
different ones they count as different places, as a compiler's own alias rules would have it for different arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import iced_x86 as iced

from simdnn.assembly.decode import IMMEDIATES, Decoded, MemoryOperand, register_name
from simdnn.timing.cpu.steps import MemRef

FAR = 1 << 24  # bytes by which an access moves whose step is an unknown
ITERATIONS = 3  # followed, to see a step repeat
_WORD = (1 << 64) - 1

Terms = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Sum:
    """`const` plus, for each unknown, a multiple of it."""

    const: int = 0
    terms: Terms = ()

    def __add__(self, other: Sum) -> Sum:
        found = dict(self.terms)
        for name, factor in other.terms:
            found[name] = found.get(name, 0) + factor
        return Sum(self.const + other.const, tuple(sorted((n, f) for n, f in found.items() if f)))

    def times(self, factor: int) -> Sum:
        if not factor:
            return Sum()
        return Sum(self.const * factor, tuple((name, f * factor) for name, f in self.terms))


_M = iced.Mnemonic
_ON_NUMBERS: dict[int, Callable[[int, int], int]] = {
    _M.AND: lambda a, b: a & b,
    _M.OR: lambda a, b: a | b,
    _M.XOR: lambda a, b: a ^ b,
    _M.SHR: lambda a, b: a >> (b & 63),
    _M.IMUL: lambda a, b: a * b,
}


@dataclass
class State:
    """Registers and the words of memory that were stored, while the loop is followed."""

    start: Mapping[str, int]
    memory: int | None  # what a word holds that nobody stored; None: unknown
    registers: dict[str, Sum] = field(default_factory=dict)
    words: dict[Sum, Sum] = field(default_factory=dict)
    fresh: int = 0

    def get(self, register: str) -> Sum:
        if register not in self.registers:
            given = self.start.get(register)
            self.registers[register] = Sum(given) if given is not None else Sum(0, ((register, 1),))
        return self.registers[register]

    def unknown(self) -> Sum:
        self.fresh += 1
        return Sum(0, ((f"?{self.fresh}", 1),))

    def address(self, memory: MemoryOperand) -> Sum:
        found = Sum(memory.displacement)
        if memory.base:
            found += self.get(memory.base) if memory.base != "rip" else Sum()
        if memory.index:
            found += self.get(memory.index).times(memory.scale)
        return found


def references(
    body: Sequence[Decoded], start: Mapping[str, int] | None = None, memory: int | None = None
) -> list[MemRef | None]:
    """For each instruction its memory operand as the clock reads it, or None.

    `start` gives registers' values before the loop, `memory` what a 64-bit word holds that was never stored.
    """
    state = State(start or {}, memory)
    seen: list[list[Sum]] = [[] for _ in body]
    for _ in range(ITERATIONS):
        for index, one in enumerate(body):
            if one.memory is not None:
                seen[index].append(state.address(one.memory))
            follow(state, one)
    return [_reference(one, sums) for one, sums in zip(body, seen, strict=True)]


def _reference(one: Decoded, sums: Sequence[Sum]) -> MemRef | None:
    """The reference of an operand with these addresses in the first iterations."""
    if one.memory is None:
        return None
    size = max(1, one.memory.bytes)
    how = one.memory.registers, bool(one.memory.index), one.memory.composed
    steps = {b + a.times(-1) for a, b in zip(sums, sums[1:], strict=False)}
    scattered = any(name.startswith("?") for name, _ in sums[0].terms) or len(steps) != 1
    if scattered:
        return MemRef("?", None, size, 0, *how)
    step = steps.pop()
    moved = FAR if step.terms else step.const
    return MemRef("+".join(f"{f}*{name}" for name, f in sums[0].terms), sums[0].const, size, moved, *how)


def follow(state: State, one: Decoded) -> None:
    """Sets what an instruction leaves in general registers and in memory."""
    raw = one.raw
    if one.memory is not None and one.memory.store:
        value = _source(state, one, 1) if raw.mnemonic == _M.MOV and raw.op_count == 2 else None
        state.words[state.address(one.memory)] = value or state.unknown()
    if one.stack:
        moved = raw.stack_pointer_increment
        state.registers["rsp"] = state.get("rsp") + Sum(moved)
    written = [name for name in one.writes if name[0] == "r"]
    if not written:
        return
    if len(written) > 1:
        for name in written:
            state.registers[name] = state.unknown()
        return
    state.registers[written[0]] = _value(state, one, written[0]) or state.unknown()


def _value(state: State, one: Decoded, written: str) -> Sum | None:
    """The value that an instruction writes; None where it isn't followed."""
    raw, kind = one.raw, one.raw.mnemonic
    register = raw.op_register(0) if raw.op_kind(0) == iced.OpKind.REGISTER else None
    if register is None or iced.RegisterExt.size(register) < 4:
        return None
    old = state.get(written)
    if kind in (_M.INC, _M.DEC):
        return old + Sum(1 if kind == _M.INC else -1)
    if kind == _M.LEA and one.raw.memory_base != iced.Register.EIP:
        return state.address(as_written(raw))
    if kind in (_M.XOR, _M.SUB) and one.same_sources:
        return Sum()
    if raw.op_count < 2:
        return None
    other = _source(state, one, raw.op_count - 1)
    if other is None:
        return None
    if kind in (_M.MOV, _M.MOVZX, _M.MOVSX, _M.MOVSXD) and raw.op_count == 2:
        return other
    if kind == _M.ADD:
        return old + other
    if kind == _M.SUB:
        return old + other.times(-1)
    if kind in (_M.SHL, _M.SAL) and not other.terms:
        return old.times(1 << (other.const & 63))
    if kind in _ON_NUMBERS and raw.op_count == 2 and not old.terms and not other.terms:
        result = _ON_NUMBERS[kind](old.const & _WORD, other.const & _WORD)
        return Sum(result & (_WORD if iced.RegisterExt.size(register) == 8 else _WORD >> 32))
    return None


def _source(state: State, one: Decoded, operand: int) -> Sum | None:
    """The value of a register or immediate of 32 or 64 bits, or of a memory operand."""
    raw: Any = one.raw
    kind = raw.op_kind(operand)
    if kind == iced.OpKind.REGISTER:
        register = raw.op_register(operand)
        if not (iced.RegisterExt.is_gpr32(register) or iced.RegisterExt.is_gpr64(register)):
            return None
        return state.get(register_name(register))
    if kind == iced.OpKind.MEMORY:
        if one.memory is None or one.memory.bytes > 8:
            return None
        stored = state.words.get(state.address(one.memory))
        if stored is None and state.memory is not None:
            return _loaded(state.memory, one)
        return stored if one.memory.bytes >= 4 else None
    return Sum(_signed(raw.immediate(operand))) if kind in IMMEDIATES else None


def _loaded(word: int, one: Decoded) -> Sum | None:
    """The value that a load of a word's first bytes leaves; None where they are extended by a sign that is set."""
    bits = 8 * one.memory.bytes if one.memory else 0
    found = word & (1 << bits) - 1
    return None if one.raw.mnemonic in (_M.MOVSX, _M.MOVSXD) and found >> bits - 1 else Sum(found)


def as_written(raw: Any) -> MemoryOperand:
    """The address that an instruction's code names, of lea and of gathers: not what it moves there."""
    base, index = ("" if r == iced.Register.NONE else register_name(r) for r in (raw.memory_base, raw.memory_index))
    return MemoryOperand(base, index, raw.memory_index_scale, _signed(raw.memory_displacement), 1, False, False)


def _signed(value: int) -> int:
    value &= _WORD
    return value - (1 << 64) if value >> 63 else value
