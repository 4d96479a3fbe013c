"""The output of `objdump -d` (GNU's or LLVM's), read by its bytes: functions, and what calls and jumps go to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from isa_models.errors import InvalidArgument
from simdnn.assembly.elf import APART, ELSEWHERE, Code

_HEAD = re.compile(r"([0-9a-f]{8,16}) <(.+)>:\s*")
_BYTES = re.compile(r"\s*([0-9a-f]+):\s+((?:[0-9a-f]{2} )*[0-9a-f]{2})\s*(?:\t(.*))?", re.IGNORECASE)
_NO_BYTES = re.compile(r"\s*[0-9a-f]+:\s*\t\s*\w.*", re.IGNORECASE)
_RELOCATION = re.compile(r"\s*([0-9a-f]+):\s+(R_X86_64_\w+)\s+(\S+?)((?:[-+]0x[0-9a-f]+)?)\s*")
_TARGET = re.compile(r"(?:^|\s)(?:0x)?([0-9a-f]+) <([^<>]+)>\s*$")
_OFFSET = re.compile(r".*\+0x[0-9a-f]+")


def is_disassembly(text: str) -> bool:
    """Whether a text is objdump's: it has a line `ADDRESS <NAME>:`, and bytes where it has instructions."""
    lines = [line for line in text.splitlines() if line]
    if not any(line[:1] in "0123456789abcdef" and _HEAD.fullmatch(line) for line in lines):
        return False
    return any(map(_BYTES.fullmatch, lines)) or not any(map(_NO_BYTES.fullmatch, lines))


@dataclass
class _Piece:
    """The bytes below one head, and the names of the places that its branches go to."""

    address: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[int, str] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)  # by address, from 1 on

    def take(self, number: int, address: int, data: bytes) -> None:
        """Add the bytes of a line; those that objdump left out are zeros."""
        gap = address - self.address - len(self.data)
        if not 0 <= gap < APART:
            raise InvalidArgument(f"line {number}: address {address:#x} does not follow the one before")
        self.data += bytes(gap) + data
        self.lines.setdefault(address, number)

    def relocate(self, place: int, name: str, target: int) -> None:
        """Let four bytes lead to `target`, which lies in no code that is listed, and which has this name."""
        at = place - self.address
        if 0 <= at <= len(self.data) - 4:
            self.data[at : at + 4] = (target - place - 4 & 0xFFFFFFFF).to_bytes(4, "little")
            self.names[target] = name


class Disassembly:
    """The functions that a text of objdump's holds; `InvalidArgument` with the line of what cannot be read."""

    def __init__(self, text: str) -> None:
        self._pieces: dict[str, _Piece] = {}
        self._places: dict[str, int] = {}
        piece = _Piece(0)
        for number, line in enumerate(text.splitlines(), 1):
            if head := _HEAD.fullmatch(line):
                piece = self._pieces[head[2]] = _Piece(int(head[1], 16))
            elif moved := _RELOCATION.fullmatch(line):
                self._relocate(piece, *moved.groups())
            elif listed := _BYTES.fullmatch(line):
                piece.take(number, int(listed[1], 16), bytes.fromhex(listed[2]))
                if (target := _TARGET.search((listed[3] or "").partition("#")[0])) and not _OFFSET.fullmatch(target[2]):
                    piece.names[int(target[1], 16)] = target[2]
            elif self._pieces and _NO_BYTES.fullmatch(line):
                raise InvalidArgument(
                    f"line {number}: no bytes of an instruction in {line.strip()[:60]!r}; objdump -d lists them where "
                    "--no-show-raw-insn is left out"
                )
        self._pieces = {name: piece for name, piece in self._pieces.items() if piece.data}

    def _relocate(self, piece: _Piece, place: str, kind: str, name: str, addend: str) -> None:
        """Follow a line of -r below an instruction; only what is relative to its place is."""
        if kind.endswith(("PC32", "PLT32", "GOTPCREL", "GOTPCRELX")):
            number = self._places.setdefault(name + addend, len(self._places))
            known = name if addend == "-0x4" and not name.startswith(".") else f"{name}{addend}"
            piece.relocate(int(place, 16), known, ELSEWHERE + number * APART)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of what the text lists."""
        return tuple(self._pieces)

    @property
    def lines(self) -> dict[int, int]:
        """The text's lines by address, for the texts that list each address once."""
        return {address: number for piece in self._pieces.values() for address, number in piece.lines.items()}

    def function(self, name: str) -> Code:
        """The code of one of `functions`."""
        piece = self._pieces[name]
        return Code(bytes(piece.data), piece.address, piece.names)

    def all_code(self) -> Code:
        """All code, of a text that lists no function."""
        raise InvalidArgument("the text is objdump's, and holds no instructions; objdump -d lists them")

    def parts(self) -> list[Code]:
        """The code of each function."""
        return [self.function(name) for name in self._pieces]
