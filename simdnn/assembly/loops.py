"""Which instructions of some code are the loop, and the clock's reading of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import iced_x86 as iced

from isa_models.errors import InvalidArgument, UnknownTiming, counted, some
from isa_models.machines.cpu_record import unknown_timing
from isa_models.records.frozen import Frozen
from simdnn.assembly.addresses import references
from simdnn.assembly.decode import Decoded, Decoder, instructions, operand_registers
from simdnn.assembly.elf import Code
from simdnn.assembly.flow import ENDS, Flow, LoopPath
from simdnn.assembly.rows import Rows
from simdnn.timing.cpu.steps import MemRef, Step

MOST_INSTRUCTIONS = 4096
MOST_NAMED = 40  # missing forms in an error
MOST_PLACES = 6  # of other loops in a note
NO_PLACES: Mapping[int, str] = Frozen({})
_CONDITIONAL = iced.FlowControl.CONDITIONAL_BRANCH
_X87 = re.compile(r"f(?!xsave|xrstor|emms)")
_ADDEND = re.compile(r"vfn?m(add|sub)231[ps][sd]|vpdp\w+|vdpbf16ps|tdp\w+|vp?gather\w+")
_GATHERS = re.compile(r"vp?gather[dq]")
#: they keep lanes of a source as they are
MERGES = re.compile(r"v?cvt(si2s[sd]|ss2sd|sd2ss)|v?(rcp|rsqrt|sqrt)s[sd]|v?rounds[sd]|v?pinsr[bwdq]")
#: operations with an operand that has a way of its own: the least registers that they name, and its place among them
_OWN_WAYS = (
    (re.compile(r"v?ps(ll|rl|ra)[wdq]"), 3, 1),  # by a count in a register
    (re.compile(r"vp?blendv(b|p[sd])"), 4, 3),  # by signs
    (re.compile(r"vpermw"), 2, 1),  # the index
    (re.compile(r"vpermt2b"), 2, 0),  # the first table
)
_LEAVES = {
    iced.FlowControl.RETURN: "returns",
    iced.FlowControl.INDIRECT_BRANCH: "jumps where nobody knows",
    iced.FlowControl.INTERRUPT: "interrupts",
    iced.FlowControl.EXCEPTION: "raises an exception",
    iced.FlowControl.XBEGIN_XABORT_XEND: "holds a transaction",
}
#: IACA's marks: mov ebx, 111 (start) or 222 (end), and the bytes 64 67 90
MARKS = (bytes.fromhex("bb6f000000646790"), bytes.fromhex("bbde000000646790"))


@dataclass(frozen=True)
class Body:
    """The instructions of a loop, and what was chosen or assumed to find it."""

    instructions: tuple[Decoded, ...]
    notes: tuple[str, ...]


def marked(code: Code) -> Code:
    """The code between IACA's marks, or all of it where there are none."""
    start, end = (code.data.find(mark) for mark in MARKS)
    if start < 0 and end < 0:
        return code
    if start < 0 or end < start:
        raise InvalidArgument("marks: met IACA's start or end mark alone, or the end before the start")
    first = start + len(MARKS[0])
    return Code(code.data[first:end], code.address + first, code.names)


def find_loop(code: Code, syntax: str, places: Mapping[int, str] = NO_PLACES, number: int | None = None) -> Body:
    """An innermost loop of some code; all of it where nothing branches back.

    The `number`-th by address, from 1 on; where none is named, of those in most other loops the one with most vector
    instructions, then the first. `places` are the lines of a text in words, by the address of what starts there.
    """
    raws = instructions(code.data, code.address)
    flow = Flow(raws)
    loops = sorted((loop for loop in flow.loops() if loop.is_innermost), key=lambda loop: loop.path[0])
    if number is not None and not 1 <= number <= len(loops):
        many = counted(len(loops), "innermost loop")
        how = "counted from 1" if loops else "all of it is read where no loop is named"
        raise InvalidArgument(f"loop {number}: the code has {many}; {how}")
    stray = "goes to the middle of an instruction, and is never taken"
    notes = [f"the branch at byte {at} {stray}" for at in flow.astray[:3]]
    path, note = _chosen(code, raws, loops, places, number) if loops else _from_first(raws, flow)
    notes += [note] if note else []
    if len(path) > MOST_INSTRUCTIONS:
        raise InvalidArgument(f"the loop has {len(path)} instructions, at most {MOST_INSTRUCTIONS} are read")
    body = Decoder(syntax, code.names).decode([raws[index] for index in path])
    _refuse_leaving(code, raws, loops, body, places)
    if called := list(dict.fromkeys(one.text for one in body if one.is_call)):
        shown = ", ".join(map(repr, called[:MOST_PLACES])) + (", ..." if len(called) > MOST_PLACES else "")
        notes.append(f"{shown}: read around, without what is called; it may change all that the System V ABI lets it")
    following = [*path[1:], path[0]]
    inside = zip(body[:-1], path, following, strict=False)
    if passing := sum(one.raw.flow_control == _CONDITIONAL and onward == at + 1 for one, at, onward in inside):
        notes.append(f"{passing} branches inside are taken as never taken")
    return Body(body, tuple(notes))


def _chosen(
    code: Code, raws: Sequence[Any], loops: Sequence[LoopPath], places: Mapping[int, str], number: int | None
) -> tuple[tuple[int, ...], str]:
    """The instructions of the loop that is named, or of the likeliest, and what a reader is told of the others."""
    if number is not None:
        return loops[number - 1].path, ""
    best = max(loops, key=functools.partial(_rank, raws))
    if len(loops) == 1:
        return best.path, ""
    starts = [_place(code, raws[loop.path[0]].ip, places) for loop in loops]
    chosen = loops.index(best)
    others = starts[:chosen] + starts[chosen + 1 :]
    note = f"loop {chosen + 1} of {len(loops)}, at {starts[chosen]}, is read; there are others at "
    return best.path, note + some(others, MOST_PLACES)


def _from_first(raws: Sequence[Any], flow: Flow) -> tuple[tuple[int, ...], str]:
    """The instructions from the first on where there is no loop, and how many that leaves out."""
    path = flow.from_entry()
    if len(path) > 1 and raws[path[-1]].flow_control in ENDS:
        path = path[:-1]
    left = len(raws) - len(path)
    note = f"no loop: {counted(len(path), 'instruction')} from the first on, read as one; {left} left out"
    return path, note if left else ""


def _refuse_leaving(
    code: Code,
    raws: Sequence[Any],
    loops: Sequence[LoopPath],
    body: Sequence[Decoded],
    places: Mapping[int, str],
) -> None:
    """Raise an error for a loop that an instruction leaves; it names loops that nothing leaves."""
    for one in body:
        if reason := _LEAVES.get(one.raw.flow_control):
            stay = [i for i, loop in enumerate(loops, 1) if not any(_leaves(raws[index]) for index in loop.path)]
            named = [f"{i} ({_place(code, raws[loops[i - 1].path[0]].ip, places)})" for i in stay[:MOST_PLACES]]
            instead = f"name a loop that is not (--loop N, loop=N): {', '.join(named)}; or " if stay else ""
            raise InvalidArgument(
                f"'{one.text}' {reason}: a loop that is left there cannot be timed; {instead}"
                "mark a part without it (# LLVM-MCA-BEGIN, # LLVM-MCA-END), or name a function"
            )


def _place(code: Code, address: int, places: Mapping[int, str]) -> str:
    """Where an instruction stands: its line, its address in an object file, else its byte."""
    if address in places:
        return places[address]
    return f"address {address:#x}" if code.address else f"byte {address}"


def _leaves(raw: Any) -> bool:
    """Whether an instruction leaves the loop for code that is not seen."""
    return raw.flow_control in _LEAVES


def _rank(raws: Sequence[Any], loop: LoopPath) -> tuple[bool, int, int]:
    """A rank of loops: the highest is the one that most time is likely spent in."""
    return loop.has_one_entry, loop.depth, sum(_is_vector(raws[index]) for index in loop.path)


def _is_vector(raw: Any) -> bool:
    return any(map(iced.RegisterExt.is_vector_register, operand_registers(raw)))


def missing_rows(body: Sequence[Decoded], rows: Rows) -> list[tuple[str, str]]:
    """The forms of a body that a machine's table lacks."""
    return [key for key in dict.fromkeys((one.mnemonic, one.form) for one in body) if rows.get(*key) is None]


def refuse(missing: Sequence[tuple[str, str]], rows: Rows) -> UnknownTiming:
    """The error that names every form which a machine lacks."""
    x87 = list(dict.fromkeys(mnemonic for mnemonic, _ in missing if _X87.match(mnemonic)))
    on = "--assume (assume=True) counts what is missing as one uop"
    if len(missing) == 1 and not x87:
        return UnknownTiming(f"{unknown_timing(rows.base, *missing[0]).args[0]}; {on}")
    names = (mnemonic if form == "-" else f"{mnemonic} {form}" for mnemonic, form in missing)
    shown = some([repr(name) for name in names], MOST_NAMED)
    count = counted(len(missing), "instruction")
    stack = (
        f"; no machine has timings of the x87 unit ({', '.join(x87[:MOST_NAMED])}): compile without long double, and "
        "with -mfpmath=sse"
        if x87
        else ""
    )
    return UnknownTiming(f"machine {rows.base.name!r} has no timing for {count}: {shown}{stack}; {on}")


def steps_of(body: Sequence[Decoded], start: Mapping[str, int] | None = None, memory: int | None = None) -> list[Step]:
    """The steps of a body; `start` and `memory` as `addresses.references` takes them."""
    carried = _flags_that_matter(body)
    places = references(body, start, memory)
    return [_step(one, place, carried) for one, place in zip(body, places, strict=True)]


def _flags_that_matter(body: Sequence[Decoded]) -> frozenset[str]:
    """Flags that some instruction computes with; a predicted branch waits for none."""
    return frozenset(r for one in body if not one.is_branch for r in one.reads if r[0] == "%")


def _step(one: Decoded, place: MemRef | None, carried: frozenset[str]) -> Step:
    """One instruction as the clock reads it."""
    reads = tuple(r for r in one.reads if r[0] != "%" or not one.is_branch and r in carried)
    if one.same_sources and not reads:  # the decoder knows that the value doesn't matter; a core may not
        reads = one.registers[-1:]
    writes = tuple(r for r in one.writes if r[0] != "%" or r in carried)
    if _GATHERS.match(one.mnemonic):  # what writes its mask anew waits less than the next gather does
        writes = one.registers[:1]
    late = _late(one, reads, writes)
    moved = one.memory
    return Step(
        one.mnemonic,
        one.form,
        reads,
        writes,
        late,
        load=place if moved and moved.load else None,
        store=place if moved and moved.store else None,
    )


def _late(one: Decoded, reads: Sequence[str], writes: Sequence[str]) -> str | None:
    """The register with a way of its own: an addend, one whose upper lanes alone are kept, an index, a count."""
    registers = one.registers
    if MERGES.fullmatch(one.mnemonic) and "xmm" in one.form[:3]:
        kept = registers[1] if one.mnemonic[0] == "v" else registers[0]
        sources = registers[2:] if one.mnemonic[0] == "v" else registers[1:]
        return kept if kept in reads and kept not in sources else None
    for pattern, least, at in _OWN_WAYS:
        if pattern.fullmatch(one.mnemonic) and len(registers) >= least:
            return registers[at] if registers[at] not in (*registers[1:at], *registers[at + 1 :]) else None
    if _ADDEND.fullmatch(one.mnemonic) and registers and registers[0] in reads and registers[0] in writes:
        return registers[0] if registers[0] not in registers[1:] else None
    return None
