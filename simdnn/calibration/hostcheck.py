"""This host's own instructions against the models: every instruction, at every width, over adversarial vectors."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from isa_models import REGISTRY, Instruction
from isa_models.errors import unknown_name
from isa_models.formats import Format, fmt, name_of
from isa_models.instruction import TILE_ROWS
from isa_models.intel_gpu import PLATFORMS
from isa_models.isa import host_caps
from isa_models.plugins import load
from isa_models.readings.arrays import ArrayValue
from simdnn import numerics
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Place, Program, Register, Statement, Tensor
from simdnn.program.tiles import TILES, configuration
from simdnn.progress import shown
from simdnn.workers import crew, usual

Array = npt.NDArray[Any]

#: bit patterns worth meeting often: signed and unsigned edges
_EDGES = {
    bits: [0, 1, 2, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1]
    for bits in (2, 4, 8, 16, 32, 64)
}
#: shuffles take every one of these; rounding takes 0 to 7, shifts the counts around each lane's width
IMMEDIATES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 27, 31, 32, 63, 64, 78, 177, 228, 255)


def float_edges(name: str) -> list[int]:
    """Bit patterns of a float format: zeros, subnormals, powers of two near the edges, infinities, NaNs; both signs."""
    form = fmt(name)
    m, top = form.mantissa_bits, (1 << form.exponent_bits) - 1
    one, last = 1 << m, (1 << m) - 1
    fields = [
        0,
        1,
        2,
        last,
        last - 1,
        one,
        one + 1,
        one + last,
        2 * one,
        (top // 2) * one,
        (top // 2) * one + 1,
        (top // 2 - m) * one,
        (top // 2 + m + 1) * one,
        (top - 1) * one,
        (top - 1) * one + last,
        top * one,
        top * one + 1,
        top * one + last,
        top * one + one // 2,
        top * one + one // 2 + 3,
        top * one + one // 4,
    ]
    return [f | s << (form.bits - 1) for f in fields for s in (0, 1)]


def adversarial(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Lanes of `dtype`: a mix of any bits, edges, and (floats) numbers of like and of tiny magnitude that cancel."""
    form = fmt(dtype)
    if form.bits < 8:
        octets = adversarial("u8", (*shape[:-1], -(-shape[-1] * form.bits // 8)), rng)
        return ArrayValue(octets, "u8").view(dtype).array[..., : shape[-1]]
    word = np.dtype(f"u{form.bits // 8}")
    bits = np.frombuffer(rng.bytes(math.prod(shape) * word.itemsize), word).reshape(shape)
    whole = rng.random(shape[:-1] + (1,))  # so that some vectors hold numbers alone
    if form.is_float:
        bits = np.where(whole < _NUMBERS[-1][0], _numbers(form, bits, whole, rng), bits)
    kind = np.frombuffer(rng.bytes(2 * math.prod(shape)), np.uint16).reshape(shape)
    edges = np.array(float_edges(dtype) if form.is_float else _EDGES[form.bits], np.uint64).astype(word)
    found = np.where(kind % 256 < np.where(whole < 0.5, 8, 77), edges[kind // 256 % len(edges)], bits)
    return found.view(form.dtype)


#: shares of vectors whose lanes are numbers of like magnitude, from tiny ones on; the lowest and the highest exponent
_NUMBERS = ((0.1, 0.0, 0.03), (0.25, 0.2, 0.3), (0.7, 0.45, 0.55))


def _numbers(form: Format, bits: Array, whole: Array, rng: np.random.Generator) -> Array:
    """Any `bits` with exponents by the share that a vector is of; those of the last have few significant digits, so
    that ties and exact results happen.
    """
    m, top = form.mantissa_bits, (1 << form.exponent_bits) - 1
    of = np.searchsorted([share for share, *_ in _NUMBERS[:-1]], whole, side="right")
    low, high = (np.array([int(row[end] * top) for row in _NUMBERS], np.uint32)[of] for end in (1, 2))
    draw = np.frombuffer(rng.bytes(2 * bits.size), np.uint16).reshape(bits.shape).astype(np.uint32)
    exponent = low + (draw * (high - low + 1) >> 16)
    fraction = np.where(of == len(_NUMBERS) - 1, (1 << m) - (1 << (m * 2 // 3)), (1 << m) - 1).astype(bits.dtype)
    sign = bits & bits.dtype.type(1 << (form.bits - 1))
    found: Array = sign | exponent.astype(bits.dtype) << bits.dtype.type(m) | bits & fraction
    return found


def parameters_of(definition: Instruction) -> list[dict[str, int | str]]:
    """The immediates or choices to try: nothing, once, where the instruction takes none."""
    numbers: list[dict[str, int | str]] = [{name: imm} for name in definition.immediates for imm in IMMEDIATES]
    return numbers + [{name: given} for name, all_ in definition.choices.items() for given in all_] or [{}]


def program_of(definition: Instruction, width: int, vectors: int) -> Program:
    """`vectors` independent executions of one instruction at one width, once for each of its immediates.

    The output is (vectors, immediates, lanes).
    """
    lanes = definition.lanes(width)
    caps = definition.caps[width]
    isa = next((c for c in caps if c in host_caps()), caps[0])
    i = Affine.var("i")
    tensors, places, body = _given(definition, lanes, vectors, isa, i)
    name = TILES[-1] if definition.tile else "result"
    result = Register(
        places[0].name if isinstance(places[0], Register) and definition.destructive else name, definition.result, lanes
    )
    choices = parameters_of(definition)
    stored, elements = _stored(definition.result, lanes)
    tensors.append(Tensor("out", stored, vectors * len(choices) * elements, "output"))
    for k, given in enumerate(choices):
        immediates = tuple((name, n) for name, n in given.items() if isinstance(n, int))
        chosen = tuple((name, c) for name, c in given.items() if isinstance(c, str))
        if k and definition.destructive:
            body.append(body[0])
        index = i * (elements * len(choices)) + k * elements
        if definition.tile and definition.moves:  # between memory and a tile: there and back
            (register,) = (place for place in places if isinstance(place, Register))
            body.append(_transfer(definition, register, "out", index, definition.result, isa, load=False))
            continue
        if result.bits < 32 and not fmt(result.dtype).is_truth:  # a lane taken out goes to memory
            body.append(Op(definition.name, Memory("out", index, definition.result, lanes), tuple(places), immediates))
            continue
        body.append(Op(definition.name, result, tuple(places), immediates, chosen))
        body.append(_transfer(definition, result, "out", index, definition.result, isa, load=False))
    nest: list[Statement] = [Loop("i", vectors, tuple(body), True)]
    if definition.tile:
        tensors.append(Tensor.constant("tiles", "u8", configuration([TILE_ROWS] * len(TILES))))
        nest.insert(0, Op("ldtilecfg", Register("tilecfg", "u8", 64), (Memory("tiles", Affine(), "u8", 64),)))
    return Program(f"{definition.name}.{width}", isa, tuple(tensors), tuple(nest))


def _given(
    definition: Instruction, lanes: int, vectors: int, isa: str, i: Affine
) -> tuple[list[Tensor], list[Place], list[Op]]:
    """The operands of execution `i`: their tensors, where the instruction reads them, and the loads that bring them."""
    tensors: list[Tensor] = []
    places: list[Place] = []
    loads: list[Op] = []
    for number, operand in enumerate(definition.operands):
        count = definition.operand_lanes(operand, lanes)
        stored, elements = _stored(operand.dtype, count)
        tensors.append(Tensor(operand.name, stored, vectors * elements))
        if not operand.per and operand.count == 1:
            places.append(Memory(operand.name, i * elements, operand.dtype, count))
            continue
        register = Register(TILES[number] if definition.tile else operand.name, operand.dtype, count)
        loads.append(_transfer(definition, register, operand.name, i * elements, operand.dtype, isa, load=True))
        places.append(register)
    return tensors, places, loads


def _stored(dtype: str, lanes: int) -> tuple[str, int]:
    """The type and the number of the elements that hold lanes in memory: bytes hold those of fewer than 8 bits."""
    return ("u8", -(-lanes * fmt(dtype).bits // 8)) if fmt(dtype).bits < 8 else (dtype, lanes)


def _transfer(
    definition: Instruction, register: Register, tensor: str, index: Affine, dtype: str, isa: str, load: bool
) -> Op:
    """A register from or to memory."""
    move, unit = _move("load" if load else "store", dtype, register.bits, isa)
    rows, stride = 1, 0
    if definition.tile:
        own = definition.moves and definition.memory == "load"
        move, unit = (definition.name if own else "tileloadd") if load else "tilestored", "u32"
        rows, stride = TILE_ROWS, Instruction.row_lanes(dtype)
    part = register.as_(unit)
    memory = Memory(tensor, index, unit, part.lanes, rows, stride)
    return Op(move, part, (memory,)) if load else Op(move, memory, (part,))


def _move(kind: str, dtype: str, bits: int, isa: str) -> tuple[str, str]:
    """The instruction that loads or stores a register, and the elements that it moves."""
    if isa in PLATFORMS:
        unit = "u8" if bits % 16 else "u16" if bits % 32 else "u32"
        return f"{kind}.{unit}", unit
    if bits % 32 == 0:
        return "vmovdqu", "u32"
    return ("vmovdqu8", "u8") if bits % 16 else ("vmovdqu16", "u16")


def inputs_of(definition: Instruction, width: int, vectors: int, rng: np.random.Generator) -> dict[str, Array]:
    """Adversarial operands for `program_of`, by name: (vectors, lanes) each."""
    lanes = definition.lanes(width)
    return {
        o.name: adversarial(o.dtype, (vectors, definition.operand_lanes(o, lanes)), rng) for o in definition.operands
    }


@dataclass
class HostCheck:
    """Vectors compared with the reference reading, and where they differ from it."""

    vectors: int = 0
    mismatches: int = 0
    first: str = ""

    def add(self, reading: str, inputs: dict[str, Array], at: str, met: Array, expected: Array) -> None:
        """Count `met` (vectors, lanes), the result for `inputs`, against `expected`."""
        word = f"u{met.itemsize}"
        differs = (met.view(word) != expected.view(word)).any(axis=1)
        self.vectors += len(met)
        self.mismatches += int(differs.sum())
        if differs.any() and not self.first:
            row = int(np.flatnonzero(differs)[0])
            shown = ", ".join(f"{name} {_hex(array[row])}" for name, array in inputs.items())
            self.first = f"{reading}: {shown}{at} gives {_hex(met[row])}, not {_hex(expected[row])}"


def _bytes(value: ArrayValue) -> Array:
    """Lanes as they lie in memory: those of fewer than 8 bits in whole bytes, zeros above them."""
    dtype, count = _stored(value.dtype, value.lanes)
    return value.pad(count * fmt(dtype).bits // value.format.bits).view(dtype).array


def _hex(lanes: Array) -> str:
    """Lanes as one hexadecimal number each, lowest lane first."""
    return "[" + " ".join(f"{int(v):0{2 * lanes.itemsize}x}" for v in lanes.view(f"u{lanes.itemsize}")) + "]"


def expect(definition: Instruction, width: int, inputs: dict[str, Array], parameters: Mapping[str, int | str]) -> Array:
    """The reference reading's result (vectors, lanes)."""
    lanes = definition.lanes(width)
    extra: dict[str, Any] = {**parameters, **({"lanes": lanes} if definition.takes_lanes else {})}
    operands = [inputs[o.name] for o in definition.operands]
    if definition.tile:
        operands = [a.reshape(len(a), -1, Instruction.row_lanes(name_of(a.dtype))) for a in operands]
    return definition(*operands, **extra).reshape(-1, lanes)


def compare(definition: Instruction, width: int, native: bool, vectors: int, rng: np.random.Generator) -> HostCheck:
    """Compiled code (`native`: this CPU's own instruction) against the reference, `vectors` over all immediates."""
    result = HostCheck()
    choices = parameters_of(definition)
    count = -(-vectors // len(choices))
    inputs = inputs_of(definition, width, count, rng)
    program = verify(program_of(definition, width, count))
    stored = {o.name: _bytes(ArrayValue(inputs[o.name], o.dtype)) for o in definition.operands}
    out = numerics.run(program, stored, engine="compiled", native=native and "always")["out"].reshape(
        count, len(choices), -1
    )
    met = ArrayValue(out, _stored(definition.result, 1)[0]).view(definition.result).array
    met = met[..., : definition.lanes(width)]  # what a mask register has above its lanes is left out
    for k, parameters in enumerate(choices):
        if native and k and definition.choices:  # the first is the hardware's
            continue
        at = "".join(f", {name} {value}" for name, value in parameters.items())
        expected = expect(definition, width, inputs, parameters)
        result.add("this CPU" if native else "portable", inputs, at, np.ascontiguousarray(met[:, k]), expected)
    return result


def check_host(vectors: int = 1 << 16, seed: int = 0, jobs: int | None = None, *, pattern: str = "*") -> pd.DataFrame:
    """Every instruction at every width: this CPU and the portable code against the reference reading, by worker
    processes (`jobs`; None: as many as there are processors). `pattern`: those with names like this alone.

    A row each: instruction, width (bits), status ("ok", "mismatch", "not on this CPU"), vectors (compared with the CPU;
    loads, stores and broadcasts are the compiled code's own), portable_vectors, mismatches, first_mismatch.
    """
    load()
    every = sorted(name for name, found in REGISTRY.items() if not found.configures)
    names = [name for name in every if fnmatchcase(name, pattern.lower())]
    if not names:
        raise unknown_name("instruction", pattern, every, "simdnn list instructions")
    rows: dict[str, list[Row]] = {}
    with shown() as line, crew(partial(_rows_of, vectors, seed), _lost, jobs=jobs or usual(len(names))) as workers:
        for name, found in workers(names):
            rows[name] = [(name, *row) for row in found]
            line(len(rows), len(names), name)
    columns = ["instruction", "width", "status", "vectors", "portable_vectors", "mismatches", "first_mismatch"]
    return pd.DataFrame([row for name in names for row in rows[name]], columns=columns)


Row = tuple[str | int, ...]


def _rows_of(vectors: int, seed: int, name: str) -> list[Row]:
    """The rows of an instruction in the table of `check_host`, behind its name."""
    load()
    definition, rows = REGISTRY[name], list[Row]()
    for width, caps in sorted(definition.caps.items()):
        count = max(4, vectors // 64) if definition.tile else vectors  # a tile is 64 xmm registers
        rng = np.random.default_rng([seed, width, zlib.crc32(name.encode())])
        here = bool(host_caps().intersection(caps))
        cpu = compare(definition, width, True, count, rng) if here else HostCheck()
        portable = compare(definition, width, False, max(1, count // 4), rng)
        mismatches = cpu.mismatches + portable.mismatches
        status = "mismatch" if mismatches else "ok" if here else "not on this CPU"
        rows.append((width, status, cpu.vectors, portable.vectors, mismatches, cpu.first or portable.first))
    return rows


def _lost(reason: str) -> list[Row]:
    """The row of an instruction whose worker process died, as one does that the CPU refuses."""
    return [(0, "mismatch", 0, 0, 1, reason)]
