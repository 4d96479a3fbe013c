"""Kinds of files and strings with code: assembly text, machine code in hexadecimal digits, or an object file."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import BinaryIO

from isa_models.errors import InvalidArgument, counted
from isa_models.host.pipes import no_file
from simdnn.assembly.elf import is_elf

MOST_FILE = 1 << 28  # bytes
_HEX = re.compile(r"[0-9a-fx\\\s,]+", re.IGNORECASE)
_HEX_WORD = re.compile(r"(?:0x|\\x)?[0-9a-f]+|(?:\\x[0-9a-f]{2})+", re.IGNORECASE)
#: first bytes of files that hold code and are not read, and what to do about it
_OTHERS = {
    b"!<arch>": "an archive of object files: take one out (ar x)",
    b"\xcf\xfa\xed\xfe": "a Mach-O file: compile for Linux (clang --target=x86_64-linux-gnu -c)",
    b"\xca\xfe\xba\xbe": "a Mach-O file: compile for Linux (clang --target=x86_64-linux-gnu -c)",
    b"MZ": "a PE file: compile for Linux (clang --target=x86_64-linux-gnu -c)",
    b"\x64\x86": "a COFF object file: compile for Linux (clang --target=x86_64-linux-gnu -c)",
    b"BC\xc0\xde": "LLVM bitcode: compile it (llc -filetype=obj)",
}
#: what makes assembly of source code, by the suffix of its file
_SOURCES = {
    **dict.fromkeys((".c", ".h"), "gcc -O3 -march=native -S"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp"), "g++ -O3 -march=native -S"),
    ".ll": "llc -O3 -mcpu=native",
    ".mlir": "mlir-translate --mlir-to-llvmir (of the llvm dialect), then llc -O3 -mcpu=native,",
    **dict.fromkeys((".f", ".f90"), "gfortran -O3 -march=native -S"),
    ".rs": "rustc -O --emit asm",
}


def hexadecimal(text: str) -> bytes | None:
    """Machine code in hexadecimal digits (bytes with or without 0x and commas); None for any other text.

    >>> hexadecimal("0x90, 0x90") == hexadecimal("90 90") == hexadecimal("9090")
    True
    """
    if not _HEX.fullmatch(text):
        return None
    words = [word for word in re.split(r"[\s,]+", text.lower()) if word]
    if not words or not all(map(_HEX_WORD.fullmatch, words)):
        return None
    digits = "".join(f"0{word[2]}" if len(word) == 3 and word[1] == "x" else word for word in words)
    digits = digits.replace("0x", "").replace("\\x", "")
    if len(digits) % 2:
        raise InvalidArgument(f"hexadecimal machine code of {counted(len(digits), 'digit')}: half a byte is left over")
    return bytes.fromhex(digits)


def read_file(path: Path) -> str | bytes:
    """A file's content: an object file's bytes, or text."""
    shown = str(path) if len(str(path)) < 200 else f"{str(path)[:200]}..."
    if compiler := _SOURCES.get(path.suffix):
        raise InvalidArgument(f"{shown} is source code: {compiler} makes assembly of it, which is read")
    try:
        if not path.is_file():
            raise InvalidArgument(
                f"{shown} is {no_file(path)}; assembly text, hexadecimal digits or an object file is read"
            )
        if (size := path.stat().st_size) > MOST_FILE:
            raise InvalidArgument(f"{shown} has {size} bytes, at most {MOST_FILE} are read")
        with path.open("rb") as stream:
            return read_stream(stream, shown)
    except OSError as error:
        raise InvalidArgument(f"{shown} cannot be read: {error.strerror}") from None


def read_stream(stream: BinaryIO, name: str) -> str | bytes:
    """The content of an open file: an ELF object as bytes, text as a string; `name` stands in errors."""
    data = stream.read(MOST_FILE + 1)
    if len(data) > MOST_FILE:
        raise InvalidArgument(f"{name} has more than {MOST_FILE} bytes, which is the most that is read")
    if is_elf(data):
        return data
    if what := next((what for start, what in _OTHERS.items() if data.startswith(start)), None):
        raise InvalidArgument(f"{name} is {what}")
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if not wide and (place := data.find(0)) >= 0:
        raise InvalidArgument(f"{name} is neither text nor an ELF object file: byte {place} is 0")
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"{name} is neither text (UTF-8) nor an ELF object file: byte {error.start} is {data[error.start]:#04x}"
        ) from None
