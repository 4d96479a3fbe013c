"""ELF (System V ABI, x86-64 supplement), as much as it takes to find code and functions in an object file."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from isa_models.errors import InvalidArgument

EXECUTABLE = 4  # SHF_EXECINSTR
PROGBITS, SYMTAB, RELA, DYNSYM = 1, 2, 4, 11
LABEL, FUNCTION, CHOSEN_AT_LOAD = 0, 2, 10  # STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC
#: relocations of 32 bits by whether they are relative to their place: R_X86_64_PC32, PLT32, GOTPCREL(X), 32, 32S
_RELATIVE = {2: True, 4: True, 9: True, 41: True, 42: True, 10: False, 11: False}
_GOT = (9, 41, 42)
LINE = "simdnn.line."  # starts the names of symbols that tell where a line's code is
ELSEWHERE, APART, _PLACES = 1 << 28, 1 << 20, 1792  # where what is in no section of the code is made to lie


@dataclass(frozen=True)
class Section:
    """A section header (Elf64_Shdr) by the fields that are used."""

    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def is_code(self) -> bool:
        return self.kind == PROGBITS and bool(self.flags & EXECUTABLE)


@dataclass(frozen=True)
class Symbol:
    """A symbol of a section: its offset there, its size (0: not said), its type and binding."""

    name: str
    section: int
    offset: int
    size: int
    kind: int
    is_local: bool


@dataclass(frozen=True)
class Code:
    """Machine code, the address of its first byte, and the names of what it refers to, by their addresses."""

    data: bytes
    address: int
    names: Mapping[int, str] = field(default_factory=dict)


def is_elf(data: bytes) -> bool:
    """Whether these are the bytes of an ELF file."""
    return data[:4] == b"\x7fELF"


class ObjectFile:
    """An ELF file for x86-64; `InvalidArgument` for anything else, and for what contradicts itself."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if not is_elf(data):
            raise InvalidArgument("object file: met no ELF header; ELF files for x86-64 are read")
        if data[4:6] != b"\x02\x01" or self._unpack("<H", 18)[0] != 62:
            raise InvalidArgument(f"object file: met ELF {_architecture(data)}; x86-64, 64 bits, is read")
        start, count = self._unpack("<Q", 40)[0], self._unpack("<H", 60)[0]
        rows = [self._unpack("<IIQQQQIIQQ", start + 64 * i) for i in range(count)]
        self.sections = [Section(*row[1:8]) for row in rows]

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if offset + size > len(self.data):
            raise InvalidArgument(f"broken object file: it ends before byte {offset + size}")
        return struct.unpack_from(layout, self.data, offset)

    def _bytes(self, section: Section) -> memoryview:
        if section.offset + section.size > len(self.data):
            raise InvalidArgument(f"broken object file: a section of {section.size} bytes ends behind the file's last")
        return memoryview(self.data)[section.offset : section.offset + section.size]

    # -- symbols -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def symbols(self) -> list[Symbol]:
        """The symbols of sections with code."""
        tables = [s for s in self.sections if s.kind in (SYMTAB, DYNSYM) and s.link < len(self.sections)]
        return [symbol for table in tables for symbol in self._symbols(table)]

    def _symbols(self, table: Section) -> Iterator[Symbol]:
        names = bytes(self._bytes(self.sections[table.link]))
        for name, info, _, index, value, size in _rows("<IBBHQQ", self._bytes(table)):
            if not 0 < index < len(self.sections) or not self.sections[index].is_code:
                continue
            yield Symbol(
                _string(names, name), index, value - self.sections[index].address, size, info & 15, not info >> 4
            )

    @functools.cached_property
    def functions(self) -> dict[str, Symbol]:
        """Functions by name; in files that mark none (assembly by hand) the labels that are not local."""
        found = {s.name: s for s in self.symbols if s.kind in (FUNCTION, CHOSEN_AT_LOAD) and s.name}
        return found or {s.name: s for s in self.symbols if s.kind == LABEL and not s.is_local and s.name}

    def function(self, name: str) -> Code:
        """The code of one of `functions`; of one whose size is not said, all up to the next."""
        symbol = self.functions[name]
        home = self.sections[symbol.section]
        later = [s.offset for s in self.functions.values() if s.section == symbol.section and s.offset > symbol.offset]
        end = symbol.offset + symbol.size if symbol.size else min(later, default=home.size)
        if not 0 <= symbol.offset < end <= home.size:
            raise InvalidArgument(f"broken object file: function {name!r} lies outside of its section")
        whole = self.code(symbol.section)
        return Code(whole.data[symbol.offset : end], home.address + symbol.offset, whole.names)

    # -- code ----------------------------------------------------------------------------------------------------------

    def all_code(self) -> Code:
        """The code of all executable sections, one behind the other."""
        parts = self.parts()
        if len(parts) == 1:
            return parts[0]
        return Code(b"".join(part.data for part in parts), 0)

    def parts(self) -> list[Code]:
        """The code of each executable section."""
        return [self.code(index) for index, section in enumerate(self.sections) if section.is_code]

    def code(self, index: int) -> Code:
        """The code of a section, relocated as far as its timing asks for it.

        References into the section get their true distance; each other target gets a place of its own, so that
        different arrays do not lie on each other.
        """
        home = self.sections[index]
        data = bytearray(self._bytes(home))
        places: dict[tuple[str, int], int] = {}
        own = (s for s in self.symbols if s.section == index and s.name and not s.name.startswith(LINE))
        names = {home.address + symbol.offset: symbol.name for symbol in own}
        for section in self.sections:
            if section.kind == RELA and section.info == index and section.link < len(self.sections):
                table = self.sections[section.link]
                entries = self._bytes(table)
                strings = bytes(self._bytes(self.sections[table.link])) if table.link < len(self.sections) else b""
                for at, info, addend in _rows("<QQq", self._bytes(section)):
                    relative = _RELATIVE.get(info & 0xFFFFFFFF)
                    if relative is None or at + 4 > len(data) or 24 * (info >> 32) + 24 > len(entries):
                        continue
                    name, _, _, target, value, _ = struct.unpack_from("<IBBHQQ", entries, 24 * (info >> 32))
                    got = info & 0xFFFFFFFF in _GOT
                    if target != index or got:
                        key = ("got" if got else "symbol", info >> 32) if got or not target else ("section", target)
                        number = places.setdefault(key, len(places))
                        value = (0 if got else value) + ELSEWHERE + number % _PLACES * APART
                        if named := _string(strings, name):
                            names[value] = named + "@GOTPCREL" * got
                    found = value + addend - (home.address + at if relative else 0)
                    struct.pack_into("<I", data, at, found & 0xFFFFFFFF)
        return Code(bytes(data), home.address, names)


def _string(names: bytes, at: int) -> str:
    return names[at : max(at, names.find(b"\0", at))].decode(errors="replace")


def _rows(layout: str, table: memoryview) -> Iterator[tuple[int, ...]]:
    """The whole rows of a table; bytes behind the last one are passed over."""
    size = struct.calcsize(layout)
    return struct.iter_unpack(layout, table[: len(table) // size * size])


def _architecture(data: bytes) -> str:
    machine = int.from_bytes(data[18:20], "little" if data[5:6] == b"\1" else "big")
    known = {3: "for 32-bit x86", 40: "for 32-bit Arm", 62: "for x32", 183: "for AArch64", 243: "for RISC-V"}
    return known.get(machine, f"of machine {machine}")
