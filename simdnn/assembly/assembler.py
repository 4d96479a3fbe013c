"""Text to machine code, by LLVM in a process of its own (`child`), and what that text may hold."""

from __future__ import annotations

import atexit
import functools
import re
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Literal

from isa_models.errors import InvalidArgument, SimdnnError
from simdnn.assembly.elf import text_of

Syntax = Literal["intel", "att"]
SYNTAX_LINE = {"intel": ".intel_syntax noprefix", "att": ".att_syntax prefix"}
MOST_TEXT = 1 << 20  # bytes
PATIENCE_S = 20.0

_DIRECTIVE = re.compile(r"\s*\.([A-Za-z_]\w*)(?!\w*:)")
_KEPT = {"byte", "set", "equ", "intel_syntax", "att_syntax", "nops"}
_PASSED_OVER = re.compile(
    r"globl|global|type|size|p2align|align|balign|cfi_\w+|file|loc|ident|weak|hidden|local|addrsig\w*|loh|text|data|bss"
    r"|section|L?func_\w+|code64|arch|cpu"
)
_SECTION = re.compile(r"\s*\.(text|data|bss|section)\b\s*(\S*)")
_MARKS = ("LLVM-MCA-", "OSACA-", "SIMDNN-")
_LABEL = re.compile(r"(?:^|[;\s])([A-Za-z_.$][\w.$]*):")
_JUMP = re.compile(r"(?:^|[;\s])(?:j[a-z]+|loopn?e?)\s+(?:short\s+)?([A-Za-z_.$][\w.$]*)\s*(?:#.*)?$")
_ERROR = re.compile(r"<inline asm>:(\d+):\d+: (.*)")


class _Assembler:
    """The process, started on the first text and again after one that it refused."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.complaints: IO[bytes] | None = None
        self.lock = threading.Lock()
        atexit.register(self.close)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
        if self.complaints is not None:
            self.complaints.close()
            self.complaints = None

    def _start(self) -> subprocess.Popen[bytes]:
        self.complaints = tempfile.TemporaryFile()
        program = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]
        pipe = subprocess.PIPE
        return subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=self.complaints)

    def __call__(self, text: str) -> bytes:
        """The ELF object of a text, or the error that LLVM gives."""
        data = text.encode()
        with self.lock:
            process = self.process = self.process or self._start()
            assert process.stdin and process.stdout and self.complaints
            watchdog = threading.Timer(PATIENCE_S, process.kill)
            watchdog.start()
            try:
                process.stdin.write(struct.pack("<I", len(data)) + data)
                process.stdin.flush()
                head = process.stdout.read(4)
                answer = process.stdout.read(struct.unpack("<I", head)[0]) if len(head) == 4 else b""
            except OSError:
                answer = b""
            finally:
                watchdog.cancel()
            if answer:
                return answer
            process.kill()
            process.wait()
            self.complaints.seek(0)
            complaint = self.complaints.read().decode(errors="replace")
            self.close()
            raise _refusal(complaint, text)


_assembler = _Assembler()


def _refusal(complaint: str, text: str) -> SimdnnError:
    """What LLVM said, by the line of the user's text."""
    if found := _ERROR.search(complaint):
        number = int(found[1]) - 1
        lines = text.splitlines()
        shown = lines[number].strip()[:60] if 0 < number < len(lines) else ""
        return InvalidArgument(f"line {number}: {found[2]}: {shown!r}")
    return SimdnnError(f"the assembler failed on this text: {' '.join(complaint.split()[:20]) or 'no answer'}")


@functools.lru_cache(maxsize=256)
def assemble(text: str, syntax: Syntax = "intel") -> bytes:
    """The machine code of a text's instructions.

    Directives that make no code are passed over, with what stands outside of ``.text``; where the text marks a region
    (comments ``LLVM-MCA-BEGIN``, ``OSACA-BEGIN`` or ``SIMDNN-BEGIN``, to the same with ``END``), it alone counts.
    Raises `InvalidArgument` with the line that is wrong.

    >>> assemble("vpaddd zmm0, zmm1, zmm2").hex()
    '62f17548fec2'
    """
    if syntax not in SYNTAX_LINE:
        raise InvalidArgument(f"syntax: met {syntax!r}, allowed are {', '.join(map(repr, SYNTAX_LINE))}")
    if len(text) > MOST_TEXT:
        raise InvalidArgument(f"the text has {len(text)} characters, at most {MOST_TEXT} are read")
    if bad := next((c for c in text if not (c.isprintable() or c in "\t\n\r\f")), None):
        raise InvalidArgument(f"the text is no assembly: it holds the character {bad!r}")
    lines = _kept(text.splitlines())
    before, behind = _missing_labels(lines)
    head = "; ".join([SYNTAX_LINE[syntax], *(f"{label}:" for label in before)])
    return text_of(_assembler("\n".join([head, *lines, *(f"{label}:" for label in behind)]) + "\n"))


def _missing_labels(lines: list[str]) -> tuple[list[str], list[str]]:
    """Labels that branches name and nobody sets: of the last line before the text (it is a loop), others behind it."""
    known = {label for line in lines for label in _LABEL.findall(line)}
    targets = [match[1] for line in lines if (match := _JUMP.search(line))]
    missing = [label for label in dict.fromkeys(targets) if label not in known]
    last = next((line for line in reversed(lines) if line.strip() and not _LABEL.fullmatch(line.strip())), "")
    closing = _JUMP.search(last)
    before = [label for label in missing if closing and closing[1] == label]
    return before, [label for label in missing if label not in before]


def _kept(lines: list[str]) -> list[str]:
    """The lines that LLVM gets, as many as there were: others are blank."""
    begin = [i for i, line in enumerate(lines) if any(f"{mark}BEGIN" in line for mark in _MARKS)]
    end = [i for i, line in enumerate(lines) if any(f"{mark}END" in line for mark in _MARKS)]
    if len(begin) > 1 or len(end) != len(begin) or begin and end[0] < begin[0]:
        raise InvalidArgument(f"marks: met {len(begin)} BEGIN and {len(end)} END; one region is read, BEGIN before END")
    found: list[str] = []
    code = True
    for number, line in enumerate(lines):
        if section := _SECTION.match(line):
            code = section[1] == "text" or section[1] == "section" and section[2].startswith(".text")
        directive = _DIRECTIVE.match(line)
        outside = bool(begin) and not begin[0] < number < end[0]
        if outside or not code or directive and _PASSED_OVER.fullmatch(directive[1]):
            found.append("")
        elif directive and directive[1] not in _KEPT:
            raise InvalidArgument(
                f"line {number + 1}: directive '.{directive[1]}' is not read; instructions, labels and .byte are"
            )
        else:
            found.append(line)
    return found
