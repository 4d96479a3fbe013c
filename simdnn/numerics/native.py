"""The host's own instructions as lowerings of instructions' functions, as one line of assembly each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Literal

import iced_x86

from isa_models import Instruction
from isa_models.formats import fmt
from isa_models.readings.llvm import Emitter, LlvmValue, vector_type

#: whether the host's own instructions stand in; "always": also where LLVM would choose one by itself
Native = bool | Literal["always"]
_WIDTHS = (128, 256, 512)
_PLAIN: dict[tuple[object, object], bool] = {}  # by an instruction's function and immediates
_ASSEMBLY: dict[tuple[object, ...], str] = {}  # by an instruction, its width, lanes and immediates
_LEAST = 8  # lanes of a mask register that an instruction writes: zeros above those that it has
#: LLVM's assembler swaps the operands of these where that saves a byte of VEX prefix; the first NaN is then another
_NAN_BY_ORDER = ("vaddps", "vaddpd", "vmulps", "vmulpd")


def stands_in(
    emitter: Emitter,
    definition: Instruction,
    width: int,
    lanes: int,
    operands: Sequence[LlvmValue],
    immediates: Mapping[str, int],
    caps: frozenset[str],
    always: bool,
) -> LlvmValue | None:
    """The host's own instruction over the operands, at their own width, or where the host has it at less alone, part by
    part; None where it cannot stand in, or need not: where LLVM has one operation for it, unless `always`.
    """
    if not always and is_plain(definition, immediates):
        return None
    own = own_width(definition, width, caps)
    if not own:
        return None
    parts = width // own
    found: list[LlvmValue] = []
    for number in range(parts):
        some = [v.part(number, parts) for v in operands]
        made = native_call(emitter, definition, own, lanes // parts, some, immediates, always)
        if made is None:
            return None
        found.append(made)
    while len(found) > 1:
        found = [low.concat(high) for low, high in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def is_plain(definition: Instruction, immediates: Mapping[str, int]) -> bool:
    """Whether an instruction is one operation of LLVM's, which then chooses how: with operands from memory, or once for
    lanes that are alike.
    """
    if definition.takes_lanes or definition.tile or definition.mask or definition.flags:
        return False
    key = definition.function, tuple(immediates.items())
    if key not in _PLAIN:
        emit, lanes = Emitter(), definition.lanes(min(definition.caps))
        counts = [(o, definition.operand_lanes(o, lanes)) for o in definition.operands]
        definition.apply(*(LlvmValue(emit, f"%{o.name}", o.dtype, n) for o, n in counts), lanes=lanes, **immediates)
        _PLAIN[key] = sum(" bitcast " not in line for line in emit.lines) <= 1
    return _PLAIN[key]


def own_width(definition: Instruction, width: int, caps: frozenset[str]) -> int:
    """Bits of the registers at which a host has an instruction that stands in for one of `width`: its own, or fewer
    where each lane of the result comes from the lanes at its own place alone. 0: there is none.
    """
    found = [bits for bits, names in definition.caps.items() if bits <= width and caps.intersection(names)]
    if not found:
        return 0
    crossing = definition.whole or definition.takes_lanes or definition.tile or definition.mask or definition.flags
    lanewise = not crossing and all(operand.per >= 1 for operand in definition.operands)
    return max(found) if lanewise or width in found else 0


def native_call(
    emitter: Emitter,
    definition: Instruction,
    width: int,
    lanes: int,
    operands: Sequence[LlvmValue],
    immediates: Mapping[str, int],
    as_written: bool = False,
) -> LlvmValue | None:
    """The instruction itself over the operands, or None where no x86 CPU has one of its name, or where its registers
    are not xmm, ymm or zmm whole, or masks, or have lanes of fewer than 8 bits, which no CPU's instruction has.

    `as_written` it reads its last operand from memory where the program does: a load of its own takes another slot.

    Assembly, not an intrinsic: LLVM may swap the factors of an intrinsic, and then another NaN comes out. A conversion
    between lanes of two sizes may use the low part of an xmm register.
    """
    if any(fmt(dtype).is_truth for dtype in (definition.result, *(v.dtype for v in operands))):
        return _masked(emitter, definition, lanes, operands, immediates)
    bits = fmt(definition.result).bits
    small = bits < 8 or any(v.format.bits < 8 for v in operands)
    if definition.lanes(width) != lanes or width not in _WIDTHS or small or not _exists(definition.mnemonic(width)):
        return None
    least = max(lanes, 128 // bits)
    read, memory = operands[-1], ""
    # Of what narrows, AT&T's names do not tell how many bytes are read.
    widens = read.lanes * read.format.bits <= lanes * bits
    if as_written and read.address and widens and definition.memory == "load":
        memory = f"ptr elementtype({read.type}) {read.address}"
    operands = [v if v.lanes * v.format.bits in _WIDTHS else v.pad(128 // v.format.bits) for v in operands]
    key = definition.name, definition.function, width, least, tuple(immediates.items()), bool(memory)
    if key not in _ASSEMBLY:
        text = _assembly(definition, width, immediates, bool(memory))
        _ASSEMBLY[key] = f"call {vector_type(definition.result, least)} {text}"
    arguments = [f"{v.type} {v.name}" for v in operands]
    if memory:
        arguments[-1] = memory
    name = emitter.value(f"{_ASSEMBLY[key]}({', '.join(arguments)})")
    result = LlvmValue(emitter, name, definition.result, least)
    return result if least == lanes else result.permute(range(lanes))


def _assembly(definition: Instruction, width: int, immediates: Mapping[str, int], memory: bool) -> str:
    """The instruction as LLVM calls assembly, but for its operands; the last is in `memory` or in a register."""
    count = len(definition.operands) - definition.destructive
    first = 2 if definition.destructive else 1  # $0 is the result, and $1 the accumulator tied to it
    names = [f"${first + i}" for i in range(count)]
    literals = [f"$${immediates[name]}" for name in definition.immediates]
    text = f"{definition.mnemonic(width)} {', '.join([*reversed(literals), *reversed(names), '$0'])}"  # AT&T order
    # Registers 16 to 31 are for EVEX-encoded instructions; those with a form of their own at 512 bits are VEX below.
    ordered = width < 512 and definition.name in _NAN_BY_ORDER
    only_vex = ordered or (width < 512 and (definition.evex or 512 not in definition.caps))
    text = "{vex3} " + text if ordered else text
    kind = "x" if only_vex else "v"
    kinds = [f"={kind}", *(["0"] if definition.destructive else []), *(kind for _ in range(count))]
    if memory:
        kinds[-1] = "*m"
    return f'asm "{text}", "{",".join(kinds)}"'


def _masked(
    emitter: Emitter,
    definition: Instruction,
    lanes: int,
    operands: Sequence[LlvmValue],
    immediates: Mapping[str, int],
) -> LlvmValue | None:
    """An instruction whose operands or result are mask registers, of 8 lanes at least; or flags."""
    name = definition.mnemonic(512)
    if not _exists(name):
        return None
    operands = [v.pad(max(v.lanes, _LEAST)) if v.format.is_truth else v for v in operands]
    count = max(lanes, _LEAST) if fmt(definition.result).is_truth else lanes
    kinds = ["^Yk" if v.format.is_truth else "v" for v in operands]
    arguments = ", ".join(f"{v.type} {v.name}" for v in operands)
    outputs = 2 if definition.flags else 1
    names = [f"${outputs + i}" for i in reversed(range(len(operands)))]
    literals = [f"$${immediates[name]}" for name in definition.immediates]
    if definition.flags:
        text = f"{name} {', '.join(names)}; setz $0; setc $1"
        both = emitter.value(f'call {{ i8, i8 }} asm "{text}", "=q,=q,{",".join(kinds)},~{{flags}}"({arguments})')
        flags = "poison"
        for i in range(lanes):
            byte = emitter.value(f"extractvalue {{ i8, i8 }} {both}, {i}")
            flag = emitter.value(f"trunc i8 {byte} to i1")
            flags = emitter.value(f"insertelement <{lanes} x i1> {flags}, i1 {flag}, i32 {i}")
        return LlvmValue(emitter, flags, definition.result, lanes)
    zeroing = "" if definition.selects else " {z}"
    destination = "$0" if not definition.mask else f"$0 {{{names.pop()}}}{zeroing}"
    text = f"{name} {', '.join([*literals, *names, destination])}"
    result = "^Yk" if fmt(definition.result).is_truth else "v"
    kind = vector_type(definition.result, count)
    made = emitter.value(f'call {kind} asm "{text}", "={result},{",".join(kinds)}"({arguments})')
    found = LlvmValue(emitter, made, definition.result, count)
    return found if count == lanes else found.permute(range(lanes))


@functools.cache
def _exists(mnemonic: str) -> bool:
    """Whether x86 has such a mnemonic: LLVM ends the process over one that its assembler does not know.

    >>> _exists("vpdpbusd"), _exists("vpdpmine")
    (True, False)
    """
    return hasattr(iced_x86.Mnemonic, mnemonic.upper())
