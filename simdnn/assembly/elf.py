"""As much of ELF (System V ABI, x86-64 supplement) as it takes to find code and functions in an object file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from isa_models.errors import InvalidArgument

EXECUTABLE = 4  # SHF_EXECINSTR
PROGBITS, SYMTAB, DYNSYM = 1, 2, 11
FUNCTION = 2  # STT_FUNC


@dataclass(frozen=True)
class Section:
    """A section header (Elf64_Shdr) by the fields that are used."""

    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Function:
    """A symbol with code: its name, its bytes and the address of the first."""

    name: str
    code: bytes
    address: int


def _unpack(layout: str, data: bytes, offset: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, data, offset)
    except struct.error:
        raise InvalidArgument(f"broken object file: it ends before byte {offset + struct.calcsize(layout)}") from None


def is_elf(data: bytes) -> bool:
    return data[:4] == b"\x7fELF"


def sections(data: bytes) -> list[Section]:
    """The section headers of an ELF file for x86-64; `InvalidArgument` for anything else."""
    if not is_elf(data):
        raise InvalidArgument("object file: met no ELF header; ELF files for x86-64 are read")
    if data[4:6] != b"\x02\x01" or _unpack("<H", data, 18)[0] != 62:
        raise InvalidArgument("object file: met ELF of another architecture; x86-64, 64 bits, is read")
    start, count = _unpack("<Q", data, 40)[0], _unpack("<H", data, 60)[0]
    rows = [_unpack("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
    return [Section(r[1], r[2], r[3], r[4], r[5], r[6]) for r in rows]


def _bytes(data: bytes, section: Section) -> bytes:
    if section.offset + section.size > len(data):
        raise InvalidArgument(f"broken object file: a section of {section.size} bytes ends behind the file's last")
    return data[section.offset : section.offset + section.size]


def text_of(data: bytes) -> bytes:
    """The code of all executable sections, one behind the other."""
    return b"".join(_bytes(data, s) for s in sections(data) if s.kind == PROGBITS and s.flags & EXECUTABLE)


def functions(data: bytes) -> Iterator[Function]:
    """The functions that the symbol tables name."""
    table = sections(data)
    for symbols in table:
        if symbols.kind not in (SYMTAB, DYNSYM) or symbols.link >= len(table):
            continue
        names, entries = _bytes(data, table[symbols.link]), _bytes(data, symbols)
        for at in range(0, len(entries) - 23, 24):
            name, info, _, index, value, size = _unpack("<IBBHQQ", entries, at)
            if info & 15 != FUNCTION or not 0 < index < len(table) or not size:
                continue
            home = table[index]
            if home.kind != PROGBITS:
                continue
            first = value - home.address
            code = _bytes(data, home)[first : first + size]
            yield Function(names[name:].split(b"\0", 1)[0].decode(errors="replace"), code, value)
