"""Which instructions of some code are the loop, and the clock's reading of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import iced_x86 as iced

from isa_models.errors import InvalidArgument, UnknownTiming
from simdnn.assembly.addresses import references
from simdnn.assembly.decode import Decoded
from simdnn.assembly.rows import Rows
from simdnn.timing.steps import MemRef, Step

MOST_INSTRUCTIONS = 4096
_ADDEND = re.compile(r"vfn?m(add|sub)231[ps]s|vpdp\w+|vdpbf16ps|tdp\w+")
_MERGES = re.compile(r"v?cvt(si2s[sd]|ss2sd|sd2ss)|v?(rcp|rsqrt|sqrt)s[sd]|v?rounds[sd]")  # upper lanes of a source
_LEAVES = {
    iced.FlowControl.RETURN: "returns", iced.FlowControl.CALL: "calls", iced.FlowControl.INDIRECT_CALL: "calls",
    iced.FlowControl.INDIRECT_BRANCH: "jumps where nobody knows", iced.FlowControl.INTERRUPT: "interrupts",
    iced.FlowControl.EXCEPTION: "raises an exception", iced.FlowControl.XBEGIN_XABORT_XEND: "holds a transaction",
}  # fmt: skip
#: IACA's marks: mov ebx, 111 (start) or 222 (end), and the bytes 64 67 90
_MARKS = (bytes.fromhex("bb6f000000646790"), bytes.fromhex("bbde000000646790"))


@dataclass(frozen=True)
class Body:
    """The instructions of a loop, and what was chosen or assumed to find it."""

    instructions: tuple[Decoded, ...]
    notes: tuple[str, ...]


def marked(code: bytes) -> bytes:
    """The code between IACA's marks, or all of it where there are none."""
    start, end = (code.find(mark) for mark in _MARKS)
    if start < 0 and end < 0:
        return code
    if start < 0 or end < start:
        raise InvalidArgument("marks: met IACA's start or end mark alone, or the end before the start")
    return code[start + len(_MARKS[0]) : end]


def find_loop(code: Sequence[Decoded]) -> Body:
    """The innermost loop of some code; all of it where nothing branches back.

    Of several loops at the same depth the one with most vector instructions is taken, then the first.
    """
    place = {one.address: index for index, one in enumerate(code)}
    loops = [
        (place[one.target], index)
        for index, one in enumerate(code)
        if one.target is not None and one.target in place and place[one.target] <= index
    ]
    notes = []
    if loops:
        spans = [(first, last) for first, last in loops if not any(_inside(o, (first, last)) for o in loops)]
        depth = {span: sum(_inside(span, other) for other in loops) for span in spans}
        best = max(spans, key=lambda s: (depth[s], _vectors(code[s[0] : s[1] + 1]), -s[0]))
        if len(loops) > 1:
            notes.append(f"of {len(loops)} loops the one at byte {code[best[0]].address - code[0].address} is read")
        code = code[best[0] : best[1] + 1]
    if len(code) > MOST_INSTRUCTIONS:
        raise InvalidArgument(f"the loop has {len(code)} instructions, at most {MOST_INSTRUCTIONS} are read")
    for one in code:
        if reason := _LEAVES.get(one.raw.flow_control):
            raise InvalidArgument(f"'{one.text}' {reason}: a loop that is left there cannot be timed")
    if passing := sum(one.is_branch for one in code[:-1]):
        notes.append(f"{passing} branches inside are taken as never taken")
    return Body(tuple(code), tuple(notes))


def _inside(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]


def _vectors(code: Sequence[Decoded]) -> int:
    return sum("mm" in one.form for one in code)


def missing_rows(body: Sequence[Decoded], rows: Rows) -> dict[tuple[str, str], UnknownTiming]:
    """The forms of a body that a machine's table lacks, with the error that each is."""
    missing: dict[tuple[str, str], UnknownTiming] = {}
    for key in dict.fromkeys((one.mnemonic, one.form) for one in body):
        try:
            rows.find(*key)
        except UnknownTiming as error:
            missing[key] = error
    return missing


def refuse(missing: Mapping[tuple[str, str], UnknownTiming], name: str) -> UnknownTiming:
    """The error that names every form which machine `name` lacks."""
    if len(missing) == 1:
        return next(iter(missing.values()))
    names = ", ".join(f"'{mnemonic} {form}'" for mnemonic, form in missing)
    return UnknownTiming(f"machine {name!r} has no timing for {len(missing)} instructions: {names}")


def steps_of(
    body: Sequence[Decoded], start: Mapping[str, int] | None = None, memory: int | None = None
) -> list[Step]:
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
    writes = tuple(r for r in one.writes if r[0] != "%" or r in carried)
    late = _late(one, reads, writes)
    moved = one.memory
    return Step(
        one.mnemonic, one.form, reads, writes, late,
        load=place if moved and moved.load else None,
        store=place if moved and moved.store else None,
    )  # fmt: skip


def _late(one: Decoded, reads: Sequence[str], writes: Sequence[str]) -> str | None:
    """The register that is needed late: an addend, or one of which only the upper lanes are kept."""
    registers = one.registers
    if _MERGES.fullmatch(one.mnemonic) and "xmm" in one.form[:3]:
        kept = registers[1] if one.mnemonic[0] == "v" else registers[0]
        sources = registers[2:] if one.mnemonic[0] == "v" else registers[1:]
        return kept if kept in reads and kept not in sources else None
    if _ADDEND.fullmatch(one.mnemonic) and registers and registers[0] in reads and registers[0] in writes:
        return registers[0] if registers[0] not in registers[1:] else None
    return None
