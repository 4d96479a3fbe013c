"""Small words for programs of AVX2 and AVX-512: registers by vector unit, moves of any number of elements, stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from isa_models.formats import fmt
from isa_models.instruction import instruction
from isa_models.isa import implied
from simdnn.kernels.common.code import Code, loop, op
from simdnn.program.records import Affine, Memory, Op, Place, Register


@dataclass(frozen=True)
class Unit:
    """The vector unit that a kernel is written for: its ISA cap and register width."""

    isa: str
    width: int  # bits

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.isa, self.width))

    @cached_property
    def lanes(self) -> int:
        """32-bit lanes of a register."""
        return self.width // 32

    @cached_property
    def masks(self) -> bool:
        return "avx512_core" in implied(self.isa)

    @cached_property
    def registers(self) -> int:
        return 32 if self.masks else 16

    def reg(self, name: str, dtype: str = "u32") -> Register:
        return Register.of(name, dtype, self.width // fmt(dtype).bits)


@cache
def unit_of(isa: str) -> Unit:
    """The widest registers that an ISA cap brings: 512 bits from avx512_core on, else 256; one object, whose facts are
    found once.
    """
    return Unit(isa, 512 if "avx512_core" in implied(isa) else 256)


def typed(name: str, dst: Register, *srcs: Register, **immediates: int) -> Op:
    """One instruction on registers, each taken as lanes of the type that the instruction has there."""
    form = instruction(name)
    sources = (src.as_(operand.dtype) for src, operand in zip(srcs, form.operands, strict=True))
    return op(name, dst.as_(form.result), *sources, **immediates)


@lru_cache(maxsize=1 << 12)
def zero(register: Register) -> Op:
    """The idiom that clears a register."""
    bits = register.as_("u32")
    return op("vpxor", bits, bits, bits)


def load32(unit: Unit, dst: Register, tensor: str, index: Affine, lanes: int) -> Op:
    """`lanes` 32-bit elements into a register, zeros above them."""
    return _load32(unit, dst, tensor, lanes).at(index)


def store32(unit: Unit, tensor: str, index: Affine, src: Register, lanes: int) -> Op:
    """The first `lanes` 32-bit elements of a register."""
    return _store32(unit, tensor, src, lanes).at(index)


def broadcast32(dst: Register, tensor: str, index: Affine) -> Op:
    """The four bytes at `index` into every 32-bit lane."""
    return _broadcast32(dst, tensor).at(index)


# Each kind of move is made once, where an index is zero: programs have thousands that differ in that alone.


@lru_cache(maxsize=1 << 12)
def _load32(unit: Unit, dst: Register, tensor: str, lanes: int) -> Op:
    name, dtype = _move32(unit, dst, lanes)
    return op(name, dst.as_(dtype), Memory(tensor, Affine(), dtype, lanes))


@lru_cache(maxsize=1 << 12)
def _store32(unit: Unit, tensor: str, src: Register, lanes: int) -> Op:
    name, dtype = _move32(unit, src, lanes)
    return op(name, Memory(tensor, Affine(), dtype, lanes), src.as_(dtype))


@lru_cache(maxsize=1 << 12)
def _broadcast32(dst: Register, tensor: str) -> Op:
    if dst.dtype == "f32":
        return op("vbroadcastss", dst, Memory(tensor, Affine(), "f32", 1))
    return op("vpbroadcastd", dst.as_("u32"), Memory(tensor, Affine(), "u32", 1))


def _move32(unit: Unit, register: Register, lanes: int) -> tuple[str, str]:
    """The instruction that moves 32-bit elements between a register and memory, and their type."""
    dtype = "f32" if register.dtype == "f32" else "u32"
    if lanes < unit.lanes and not unit.masks:
        return {"f32": "vmaskmovps", "u32": "vpmaskmovd"}[dtype], dtype
    return {"f32": "vmovups", "u32": "vmovdqu"}[dtype], dtype


def load_float(unit: Unit, register: str, tensor: str, dtype: str, index: Affine, lanes: int) -> Code:
    """`lanes` elements of a type into a register as f32, zeros above them."""
    return moved(_load_float(unit, register, tensor, dtype, lanes), index)


def moved(ops: Sequence[Op], by: Affine) -> Code:
    """Instructions whose addresses are further by an index."""
    return [op.at(op.memory.index + by) if op.memory else op for op in ops]


@lru_cache(maxsize=1 << 12)
def _load_float(unit: Unit, register: str, tensor: str, dtype: str, lanes: int) -> tuple[Op, ...]:
    value = unit.reg(register, "f32")
    convert = op("vcvtdq2ps", value, value.as_("s32"))
    if dtype in ("f32", "s32"):
        load = load32(unit, value if dtype == "f32" else value.as_("u32"), tensor, Affine(), lanes)
        return (load,) if dtype == "f32" else (load, convert)
    stored = "u16" if dtype == "bf16" else dtype
    source: Place = Memory(tensor, Affine(), stored, lanes)
    code: list[Op] = []
    if lanes < unit.lanes and not unit.masks:
        name, kind = ("vpinsrb", "u8") if fmt(stored).bits == 8 else ("vpinsrw", "u16")
        piece = Register(register, kind, 128 // fmt(kind).bits)
        code = [zero(piece)]
        code += [op(name, piece, piece, Memory(tensor, Affine(i), kind, 1), imm=i) for i in range(lanes)]
        source = Register(register, stored, unit.lanes)
    if dtype == "f16":
        return (*code, op("vcvtph2ps", value, source))
    if dtype == "bf16":
        words = value.as_("u32")
        return (*code, op("vpmovzxwd", words, source), op("vpslld", words, words, imm=16))
    name, wide = ("vpmovsxbd", "s32") if dtype == "s8" else ("vpmovzxbd", "u32")
    return (*code, op(name, value.as_(wide), source), convert)


def _pieces(unit: Unit, size: int) -> list[tuple[str, int]]:
    """(instruction, bytes) of the moves that cover `size` bytes without a mask."""
    moves = []
    for name, step in (("vmovdqu", unit.width // 8), ("vmovdqu", 32), ("vmovdqu", 16), ("vmovq", 8), ("vmovd", 4)):
        while size >= step and (unit.width // 8 >= step):
            moves.append((name, step))
            size -= step
    assert size == 0, "unmasked moves are of 4 bytes or more"
    return moves


def _plain(name: str, size: int, store: bool, register: str, tensor: str, index: Affine) -> Op:
    dtype = "u64" if name == "vmovq" else "u32"
    whole = Register(register, dtype, max(size, 16) * 8 // fmt(dtype).bits)
    memory = Memory(tensor, index, dtype, size * 8 // fmt(dtype).bits)
    return op(name, memory, whole) if store else op(name, whole, memory)


def fill_zero(unit: Unit, tensor: str, dtype: str, index: Affine, count: int, var: str, zeros: str) -> Code:
    """Zeros to `count` elements from `index`; `zeros` names a cleared register."""
    element = fmt(dtype).bits // 8
    step = unit.width // 8
    turns, rest = divmod(count * element, step)
    at = index + Affine.var(var) * (step // element)
    code = loop(var, turns, [_plain("vmovdqu", step, True, zeros, tensor, at)]) if turns else []
    at = index + turns * (step // element)
    if rest and unit.masks:
        code.append(op("vmovdqu8", Memory(tensor, at, "u8", rest), unit.reg(zeros, "u8")))
    else:
        for name, size in _pieces(unit, rest):
            code.append(_plain(name, size, True, zeros, tensor, at))
            at = at + size // element
    return code


def store_bytes(unit: Unit, tensor: str, index: Affine, src: Register, count: int) -> Code:
    """The first `count` bytes of an xmm register, `count` up to 8, on a unit without masks."""
    if count == 8:
        return [op("vmovq", Memory(tensor, index, "u64", 1), src.as_("u64"))]
    return [op("vpextrb", Memory(tensor, index + i, "u8", 1), src.as_("u8"), imm=i) for i in range(count)]


def fetch(name: str, tensor: str, at: Affine, dtype: str) -> Op:
    """The instruction `name`, a prefetch, of the line with the element `at` of a tensor of `dtype`."""
    size = fmt(dtype).bits // 8
    return op(name, Register.of("line", "u8", size), Memory(tensor, at, "u8", size))
