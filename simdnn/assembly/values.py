"""The numbers of a loop: its instructions' own functions (`isa_models.instruction`), run over registers and memory.

Vector registers are 64 bytes each. Addresses are those that `addresses` follows: a sum of registers' values at the
start, so that each pointer has a buffer of its own. What nobody gave is drawn from a seeded generator when it is first
read, in the element type of the instruction that computes with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import iced_x86 as iced
import numpy as np

from isa_models.errors import InvalidArgument, Unimplemented, counted
from isa_models.formats import fmt
from isa_models.instruction import Operand
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.assembly.addresses import State, Sum, Terms, as_written, follow
from simdnn.assembly.decode import Decoded, MemoryOperand, part_name, register_name
from simdnn.assembly.semantics import CLEARED, Elements, Meaning, elements_of, is_vector, meaning_of
from simdnn.late import pd

MOST_ITERATIONS = 1 << 16
_REGISTER = 64  # bytes
_XMM = 16
_OF_VEX = 16  # registers that instructions without EVEX have
_SMALL = 1000  # integers of 32 and 64 bits are drawn from -1000 to 1000
_PURE_SCALARS = {
    iced.Mnemonic.PREFETCHT0,
    iced.Mnemonic.PREFETCHT1,
    iced.Mnemonic.PREFETCHT2,
    iced.Mnemonic.PREFETCHNTA,
    iced.Mnemonic.PREFETCHW,
    iced.Mnemonic.NOP,
}


@dataclass(frozen=True, eq=False)
class Written(Alike):
    """The result of an instruction: lanes of its result's element type, in a register or in memory ("[rsi + 64]")."""

    instruction: str
    place: str
    dtype: str
    lanes: Array

    def record(self) -> dict[str, Any]:
        """The record's fields by name in JSON's types; infinities and NaN are None."""
        lanes: list[Any] = _shown(self).astype(np.float64 if fmt(self.dtype).is_float else object).tolist()
        finite = [None if isinstance(lane, float) and not np.isfinite(lane) else lane for lane in lanes]
        return {"instruction": self.instruction, "place": self.place, "dtype": self.dtype, "lanes": finite}


def _shown(written: Written) -> Array:
    """Lanes as numbers: bits are 0 and 1."""
    return written.lanes.astype(np.uint8) if fmt(written.dtype).is_truth else written.lanes


@dataclass(frozen=True, eq=False)
class Values(Alike, InNotebooks):
    """The last of `iterations` runs of a loop, vector instruction by vector instruction."""

    iterations: int
    seed: int
    written: tuple[Written, ...] = field(repr=False)
    registers: Mapping[str, Array] = field(repr=False)  # at the end: 64 bytes each
    memory: Mapping[str, Array] = field(repr=False)  # at the end: bytes of the arrays that were given, by register

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """Frame: instruction, place, dtype, lanes (an array)."""
        rows = [(one.instruction, one.place, one.dtype, one.lanes) for one in self.written]
        return pd.DataFrame(rows, columns=["instruction", "place", "dtype", "lanes"])

    def __str__(self) -> str:
        lines = [f"values in iteration {self.iterations} (seed {self.seed}), lowest lane first:"]
        for one in self.written:
            lines += [one.instruction, f"  {one.place} {one.dtype}: {' '.join(map(str, _shown(one)))}"]
        return "\n".join(lines)


def run(body: Sequence[Decoded], given: Mapping[str, Any] | None = None, iterations: int = 1, seed: int = 0) -> Values:
    """The values of a loop after a number of iterations; branches and comparisons are not looked at.

    `given` holds a NumPy array of 16, 32 or 64 bytes for a vector register ("xmm1", "ymm1", "zmm1", the rest zeros);
    for a general register (by its 64-bit name) a number, or an array: then it points to that array; for a mask register
    ("k1") a number. Raises
    `Unimplemented` that names every instruction without semantics here, `InvalidArgument` for an access outside of a
    given array.
    """
    if not 1 <= iterations <= MOST_ITERATIONS:
        raise InvalidArgument(f"iterations={iterations}; 1 to {MOST_ITERATIONS} work")
    if seed < 0:
        raise InvalidArgument(f"seed is {seed}, whole numbers from 0 on are taken")
    if without := list(dict.fromkeys(one.text for one in body if one.is_call or is_vector(one) and _lacks(one))):
        raise Unimplemented(f"no semantics here for {', '.join(map(repr, without))}")
    loop = _Loop(body, given or {}, seed)
    for _ in range(iterations):
        written = tuple(found for one in body if (found := loop.step(one)) is not None)
    return Values(iterations, seed, written, loop.vectors, loop.arrays())


def _lacks(one: Decoded) -> bool:
    return one.mnemonic not in CLEARED and meaning_of(one) is None and elements_of(one) is None


# -- registers and memory ----------------------------------------------------------------------------------------------


class _Loop:
    """Registers and memory while a loop runs."""

    def __init__(self, body: Sequence[Decoded], given: Mapping[str, Any], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.vectors: dict[str, Array] = {}
        self.bytes: dict[Terms, dict[int, int]] = {}
        self.whole: set[Terms] = set()  # arrays that were given: nothing stands beside them
        self.meanings = {id(one): meaning_of(one) for one in body if is_vector(one)}
        self.moved = {id(one): elements_of(one) for one in body}
        self.kinds = _kinds(body, self.meanings)
        bases = {one.memory.base for one in body if one.memory}
        start = {
            one.memory.index: 0 for one in body if one.memory and one.memory.index and one.memory.index not in bases
        }
        for name, value in given.items():
            self.give(name, value, start)
        self.state = State(start, None)

    def give(self, name: str, value: Any, start: dict[str, int]) -> None:
        kind = getattr(iced.Register, name.upper(), None)
        if kind is not None and iced.RegisterExt.is_k(kind):
            self.vectors[register_name(kind)] = _mask(name, value)
            return
        if kind is None or not (iced.RegisterExt.is_vector_register(kind) or iced.RegisterExt.is_gpr64(kind)):
            raise InvalidArgument(f"no register {name!r}; give xmm, ymm, zmm, k or 64-bit general registers")
        if isinstance(value, np.ndarray):
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if iced.RegisterExt.is_vector_register(kind):
            size = iced.RegisterExt.size(kind)
            if not isinstance(value, np.ndarray) or len(data) != size:
                met = counted(len(data), "byte") if isinstance(value, np.ndarray) else type(value).__name__
                raise InvalidArgument(f"{name} takes a NumPy array of {counted(size, 'byte')}, met {met}")
            self.vectors[register_name(kind)] = np.pad(data, (0, _REGISTER - size))
        elif isinstance(value, np.ndarray):
            start.pop(name, None)
            self.bytes[(name, 1),] = dict(enumerate(data.tolist()))
            self.whole.add(((name, 1),))
        elif isinstance(value, int | np.integer):
            start[name] = int(value)
        else:
            raise InvalidArgument(f"{name} takes a whole number or a NumPy array, met {type(value).__name__}")

    def arrays(self) -> dict[str, Array]:
        """The bytes of the arrays that were given, by the register that pointed to each."""
        return {terms[0][0]: np.array([*self.bytes[terms].values()], np.uint8) for terms in sorted(self.whole)}

    def step(self, one: Decoded) -> Written | None:
        """Run one instruction; what it wrote, of a vector instruction."""
        if one.mnemonic in CLEARED:
            for number in range(_OF_VEX):
                self.vector(f"zmm{number}", "u8")[CLEARED[one.mnemonic] :] = 0
            return None
        if not is_vector(one):
            if one.memory and one.memory.store and one.raw.mnemonic not in _PURE_SCALARS:
                raise Unimplemented(f"'{one.text}' stores from general registers, whose values are not kept in memory")
            follow(self.state, one)
            return None
        if (moved := self.moved[id(one)]) is not None:
            return self.scattered(one, moved) if moved.store else self.gathered(one, moved)
        meaning = self.meanings[id(one)]
        assert meaning is not None
        definition, lanes = meaning.definition, meaning.lanes
        taken = self.taken(one, meaning)
        encoded = zip(meaning.sources, definition.operands[definition.mask :], strict=True)
        operands = [self.read(one, k, operand, meaning, taken) for k, operand in encoded]
        if definition.mask:  # it says itself which lanes of the result are made
            mask = np.ones(lanes, bool) if taken is None else taken
            ones = [np.ones(lanes, fmt(definition.result).dtype)] * len(operands)
            result, taken = definition(mask, *operands), definition(mask, *ones) != 0
            if definition.selects and one.raw.zeroing_masking:
                taken = mask
        else:
            extra: dict[str, int] = dict(zip(definition.immediates, meaning.immediates, strict=True))
            result = definition(*operands, lanes=lanes if definition.takes_lanes else None, **extra)
        return self.write(one, meaning, *self.masked(one, meaning, result, taken))

    def taken(self, one: Decoded, meaning: Meaning) -> Array | None:
        """Whether the mask has each lane of the result; None without a mask."""
        if not one.raw.has_op_mask:
            return None
        whole = self.vector(register_name(one.raw.op_mask), "b1")
        own = fmt(meaning.definition.result).bits
        count = meaning.lanes if own < 8 else meaning.lanes * own // meaning.mask_bits
        found: Array = np.unpackbits(whole, bitorder="little")[:count].astype(bool)
        return found

    def read(self, one: Decoded, k: int, operand: Operand, meaning: Meaning, taken: Array | None) -> Array:
        """An operand's lanes; those in memory that a mask leaves out are not read, and are zero."""
        definition = meaning.definition
        count = definition.operand_lanes(operand, meaning.lanes)
        size = -(-count * fmt(operand.dtype).bits // 8)
        raw = one.raw
        if raw.op_kind(k) == iced.OpKind.MEMORY:
            if definition.whole:  # lanes that a mask leaves out are read for others; expansion reads in order
                taken = np.sort(taken)[::-1] if definition.mask and taken is not None else None
            by_lane = operand.per and not raw.is_broadcast
            data = self.load(one, self.kind(one, operand, meaning), taken if by_lane else None)
        else:
            register = raw.op_register(k)
            if iced.RegisterExt.is_vector_register(register) or iced.RegisterExt.is_k(register):
                data = self.vector(register_name(register), operand.dtype)
            else:
                data = self.general(one, register)
            # a register's upper part takes no part in a move of its lowest lane; stores write only that lane, too
            if definition.partial and raw.op_kind(0) == iced.OpKind.REGISTER:
                data = data[: fmt(operand.dtype).bits // 8]
        if raw.is_broadcast and raw.op_kind(k) == iced.OpKind.MEMORY:
            data = np.tile(data, size // len(data))
        data = np.pad(data, (0, max(0, size - len(data))))[:size]
        return ArrayValue(np.ascontiguousarray(data), "u8").view(operand.dtype).array[:count]

    def masked(self, one: Decoded, meaning: Meaning, result: Array, taken: Array | None) -> tuple[Array, Array | None]:
        """The result where lanes are taken, elsewhere zero, or what the register held; and what memory takes."""
        if taken is None or one.raw.op_kind(0) == iced.OpKind.MEMORY:
            return result, taken
        definition = meaning.definition
        if fmt(definition.result).is_truth:
            return result & taken, None
        word = np.dtype(f"u{meaning.mask_bits // 8}")
        found = np.ascontiguousarray(result).view(word)
        if one.raw.zeroing_masking or definition.mask and not one.raw.has_op_mask:
            kept = np.zeros_like(found)
        else:
            name = register_name(one.raw.op_register(0))
            kept = self.vector(name, definition.result)[: found.nbytes].view(word)
        return np.where(taken, found, kept).view(result.dtype), None

    def kind(self, one: Decoded, operand: Operand, meaning: Meaning) -> str:
        """The element type to draw: of a move, the type of whoever computes with what it loads."""
        moved = meaning.definition.moves and one.raw.op_kind(0) == iced.OpKind.REGISTER
        return self.kinds.get(one.registers[0], operand.dtype) if moved else operand.dtype

    def vector(self, name: str, dtype: str) -> Array:
        if name not in self.vectors:
            self.vectors[name] = self.draw(self.kinds.get(name, dtype), _REGISTER)
        return self.vectors[name]

    def general(self, one: Decoded, register: Any) -> Array:
        """The bytes of a general register."""
        name = register_name(register)
        value = self.state.get(name)
        if any(unknown.startswith("?") for unknown, _ in value.terms):
            raise Unimplemented(f"'{one.text}' reads {name}, whose value is not followed through the loop")
        if value.terms:
            value = Sum(int(self.draw("u64", 8).view(np.uint64)[0]))
            self.state.registers[name] = value
        whole = np.frombuffer((value.const & ((1 << 64) - 1)).to_bytes(8, "little"), np.uint8)
        return whole[: iced.RegisterExt.size(register)]

    def write(self, one: Decoded, meaning: Meaning, result: Array, taken: Array | None) -> Written:
        definition = meaning.definition
        lanes = np.ascontiguousarray(result).reshape(-1)
        value = ArrayValue(lanes, definition.result)
        data = value.pad(-(-value.lanes * value.format.bits // 8) * 8 // value.format.bits).view("u8").array
        kind = one.raw.op_kind(0)
        if definition.flags:
            return Written(one.text, "zero, carry", definition.result, lanes)
        if kind == iced.OpKind.MEMORY:
            assert one.memory is not None
            data = data[: one.memory.bytes]
            place = self.store(one, data, taken)
        else:
            register = one.raw.op_register(0)
            place, name = part_name(register), register_name(register)
            if iced.RegisterExt.is_vector_register(register) or iced.RegisterExt.is_k(register):
                upper = self.above(one, name, meaning, len(data))
                self.vectors[name] = np.pad(np.concatenate([data, upper]), (0, _REGISTER - len(data) - len(upper)))
            else:
                data = data[: iced.RegisterExt.size(register)]
                self.state.registers[name] = Sum(int.from_bytes(data.tobytes(), "little"))
        kept = lanes if fmt(definition.result).is_truth else data.view(fmt(definition.result).dtype)
        return Written(one.text, place, definition.result, kept)

    def above(self, one: Decoded, name: str, meaning: Meaning, size: int) -> Array:
        """The bytes from `size` on that a result leaves in its register: the register's own, or another source's."""
        dtype = meaning.definition.result
        if meaning.legacy:
            return self.vector(name, dtype)[size:]
        if not meaning.lowest:
            return np.zeros(0, np.uint8)
        return self.vector(register_name(one.raw.op_register(meaning.rest)), dtype)[size:_XMM]

    def gathered(self, one: Decoded, moved: Elements) -> Written:
        """Elements from where the lanes of an index say; its mask is used up."""
        raw, form = one.raw, fmt(moved.dtype)
        register = raw.op_register(0)
        name, size = register_name(register), form.bits // 8
        whole = self.vector(name, moved.dtype)
        held = whole[: one.elements * size].view(form.dtype)
        memory, offsets = self.elements(one, moved)
        taken = self.elements_taken(one, form.bits)
        found = np.zeros(one.elements * size, np.uint8).reshape(-1, size)
        if taken.any():
            places = offsets[taken]
            address, buffer = self.buffer(one, memory, int(places.min()), int(places.max()))
            numbers = (places.ravel() + address.const).tolist()
            bytes_of = _fetched(buffer, numbers, lambda: self.draw(moved.dtype, places.size))
            found[taken] = np.array(bytes_of, np.uint8).reshape(-1, size)
        lanes = np.where(taken, found.view(form.dtype).ravel(), held)
        self.vectors[name] = np.pad(lanes.view(np.uint8), (0, _REGISTER - lanes.nbytes))
        return Written(one.text, part_name(register), moved.dtype, lanes)

    def scattered(self, one: Decoded, moved: Elements) -> Written:
        """Elements stored at the places in the lanes of an index; the last one wins at a place; the mask is cleared."""
        form = fmt(moved.dtype)
        source = self.vector(register_name(one.raw.op_register(1)), moved.dtype)
        lanes = source[: one.elements * form.bits // 8].view(form.dtype).copy()
        memory, offsets = self.elements(one, moved)
        taken = self.elements_taken(one, form.bits)
        if taken.any():
            places = offsets[taken]
            address, buffer = self.buffer(one, memory, int(places.min()), int(places.max()))
            buffer.update(
                zip((places.ravel() + address.const).tolist(), lanes[taken].view(np.uint8).tolist(), strict=True)
            )
        return Written(one.text, "memory, element by element", moved.dtype, lanes)

    def elements(self, one: Decoded, moved: Elements) -> tuple[MemoryOperand, Array]:
        """A gather's memory operand without its index, and the bytes from there on of each element."""
        index = self.vector(register_name(one.raw.memory_index), moved.index).view(fmt(moved.index).dtype)
        starts = index[: one.elements].astype(np.int64) * one.raw.memory_index_scale
        return replace(as_written(one.raw), index=""), starts[:, None] + np.arange(fmt(moved.dtype).bits // 8)

    def elements_taken(self, one: Decoded, bits: int) -> Array:
        """Whether each element moves, by a mask register or by the signs in a vector register, which then are zero."""
        name = register_name(one.raw.op_mask if one.raw.has_op_mask else one.raw.op_register(2))
        whole = self.vector(name, "b1" if one.raw.has_op_mask else f"s{bits}")
        if one.raw.has_op_mask:
            found: Array = np.unpackbits(whole, bitorder="little")[: one.elements].astype(bool)
        else:
            found = whole.view(f"i{bits // 8}")[: one.elements] < 0
        self.vectors[name] = np.zeros(_REGISTER, np.uint8)
        return found

    def buffer(self, one: Decoded, memory: MemoryOperand, first: int, last: int) -> tuple[Sum, dict[int, int]]:
        """Where a memory operand points, and the bytes around it; it moves bytes from `first` to `last` behind it."""
        address = self.state.address(memory)
        if any(name.startswith("?") for name, _ in address.terms):
            raise Unimplemented(f"'{one.text}': its address is not followed through the loop")
        held = self.bytes.setdefault(address.terms, {})
        first, last = address.const + first, address.const + last
        if address.terms in self.whole and not (0 <= first and last < len(held)):
            raise InvalidArgument(
                f"'{one.text}' moves bytes {first} to {last} of the array at {address.terms[0][0]}, "
                f"which has {len(held)}"
            )
        return address, held

    def load(self, one: Decoded, dtype: str, taken: Array | None) -> Array:
        assert one.memory is not None
        found = np.zeros(one.memory.bytes, np.uint8)
        touched = _bytes_of(taken, one.memory.bytes)
        if not len(touched):
            return found
        address, held = self.buffer(one, one.memory, int(touched[0]), int(touched[-1]))
        places = [address.const + at for at in touched.tolist()]
        found[touched] = _fetched(held, places, lambda: self.draw(dtype, len(found))[touched])
        return found

    def store(self, one: Decoded, data: Array, taken: Array | None) -> str:
        assert one.memory is not None
        touched = _bytes_of(taken, len(data))
        if not len(touched):
            return "memory, where the mask has no lane"
        address, held = self.buffer(one, one.memory, int(touched[0]), int(touched[-1]))
        held.update(zip((touched + address.const).tolist(), data[touched].tolist(), strict=True))
        parts = [name if factor == 1 else f"{factor}*{name}" for name, factor in address.terms]
        return f"[{' + '.join([*parts, *([str(address.const)] if address.const or not parts else [])])}]"

    def draw(self, dtype: str, size: int) -> Array:
        """Random bytes: normal floats, all integers of 8 and 16 bits, small ones of more."""
        form = fmt(dtype)
        if form.is_truth:
            return self.draw("u8", size)
        count = -(-size // (form.bits // 8))
        if form.is_float:
            lanes = self.rng.standard_normal(count).astype(np.float32).astype(form.dtype)
        else:
            low, high = max(int(form.low), -_SMALL), min(int(form.high), _SMALL)
            whole = (low, high) if form.bits > 16 else (int(form.low), int(form.high))
            lanes = self.rng.integers(whole[0], whole[1] + 1, count).astype(form.dtype)
        return np.ascontiguousarray(lanes).view(np.uint8)[:size].copy()


def _fetched(held: dict[int, int], places: list[int], draw: Callable[[], Array]) -> list[int]:
    """The bytes at some places; those that nobody wrote are drawn, and stay."""
    if any(place not in held for place in places):
        for place, value in zip(places, draw().tolist(), strict=True):
            held.setdefault(place, value)
    return [held[place] for place in places]


def _bytes_of(taken: Array | None, size: int) -> Array:
    """Numbers of the bytes, of `size`, whose lanes a mask has; all without one."""
    return np.arange(size) if taken is None else np.flatnonzero(np.repeat(taken, size // len(taken)))


def _mask(name: str, value: Any) -> Array:
    """The bytes of a mask register from a whole number, whose lowest bit is the first lane."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= int(value) < 1 << 64:
        raise InvalidArgument(f"{name} takes a whole number from 0 to 2**64 - 1, met {value!r:.40}")
    return np.pad(np.frombuffer(int(value).to_bytes(8, "little"), np.uint8), (0, _REGISTER - 8))


def _kinds(body: Sequence[Decoded], meanings: Mapping[int, Meaning | None]) -> dict[str, str]:
    """Vector registers and the element type of the first instruction that computes with them."""
    found: dict[str, str] = {}
    for one in body:
        if (moved := elements_of(one)) is not None:
            found.setdefault(register_name(one.raw.memory_index), moved.index)
        if (meaning := meanings.get(id(one))) is None or meaning.definition.moves:
            continue
        for k, operand in zip(meaning.sources, meaning.definition.operands[meaning.definition.mask :], strict=True):
            if one.raw.op_kind(k) == iced.OpKind.REGISTER:
                found.setdefault(register_name(one.raw.op_register(k)), operand.dtype)
    return found
