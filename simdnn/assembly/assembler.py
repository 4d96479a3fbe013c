"""Text to machine code, by LLVM in a process of its own (`child`)."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from isa_models.errors import InvalidArgument, SimdnnError, did_you_mean
from isa_models.host.forks import ForkLock, at_fork
from simdnn.assembly.decode import MNEMONICS
from simdnn.assembly.elf import LINE, ObjectFile
from simdnn.assembly.text import OTHER_MACHINE, CleanText, elsewhere, read_text

PATIENCE_S = 20.0
_ERROR = re.compile(r"<inline asm>:(\d+):\d+: (.*)")
_NO_MNEMONIC = re.compile(r"invalid instruction mnemonic '([\w.]+)'")
_OTHER_CPU = re.compile(
    r"\b(?:[vz]\d+\.(?:\d*[bhsd]|vv)|[xw]\d+|v\d+|[ast]\d|%r[ds]?\d+)\b"
)  # registers of ARM, RISC-V, PTX


class _Assembler:
    """The process, started on the first text and again where it has ended."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.complaints: IO[bytes] | None = None
        self.lock = ForkLock()
        atexit.register(self.close)
        at_fork(after_in_child=self.forked)

    def forked(self) -> None:
        """Forget the assembler's process in a forked child: it answers the parent alone, which waits for it."""
        if (process := self.process) is not None:
            process.returncode = 0
            for file in (process.stdin, process.stdout, self.complaints):
                if isinstance(file, io.BufferedIOBase):  # whose own lock another thread of the parent may have held
                    file.raw.close()
        self.process = self.complaints = None

    def close(self) -> None:
        process, complaints = self.process, self.complaints
        self.process = self.complaints = None
        if process is not None:
            _kill(process)
            process.communicate()
        if complaints is not None:
            complaints.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self.complaints = tempfile.TemporaryFile()
        program = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]
        pipe = subprocess.PIPE
        return subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=self.complaints, start_new_session=True)

    def __call__(self, text: str) -> bytes:
        """The ELF object of a text, or the error that LLVM gives."""
        with self.lock:
            try:
                return self._answer(text)
            except SimdnnError:
                raise
            except BaseException:  # an interrupt: an answer that is still to come would be taken for the next text's
                self.close()
                raise

    def _answer(self, text: str) -> bytes:
        data = text.encode()
        process = self.process = self.process or self._start()
        assert process.stdin and process.stdout and self.complaints
        watchdog = threading.Timer(PATIENCE_S, _kill, [process])
        head = answer = b""
        try:
            watchdog.start()
            process.stdin.write(struct.pack("<I", len(data)) + data)
            process.stdin.flush()
            head = process.stdout.read(4)
            answer = process.stdout.read(struct.unpack("<I", head)[0]) if len(head) == 4 else b""
        except OSError:
            pass
        finally:
            watchdog.cancel()
        if answer:
            return answer
        if len(head) < 4:  # the process itself has ended
            process.wait()
        self.complaints.seek(0)
        complaint = self.complaints.read().decode(errors="replace")
        self.complaints.seek(0)  # where the process writes on, too
        self.complaints.truncate()
        if len(head) < 4:
            self.close()
        raise _refusal(complaint or f"its process ended with {process.returncode}", text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and its fork."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


_assembler = _Assembler()


def _refusal(complaint: str, text: str) -> SimdnnError:
    """LLVM's messages, by the line of the user's text."""
    if found := _ERROR.search(complaint):
        number = int(found[1]) - 1
        lines = text.splitlines()
        shown = lines[number].strip().removeprefix(f"{LINE}{number}:").strip()[:60] if 0 < number < len(lines) else ""
        word = _NO_MNEMONIC.search(found[2])
        question = did_you_mean(word[1].lower(), MNEMONICS) if word else ""
        if word and _OTHER_CPU.search(shown) or elsewhere(shown):
            question = OTHER_MACHINE
        return InvalidArgument(f"line {number}: {found[2]}: {shown!r}{question and f'; {question}'}")
    return SimdnnError(f"LLVM's assembler failed on this text: {' '.join(complaint.split()[:20])}")


@functools.lru_cache(maxsize=256)
def assemble(source: CleanText) -> bytes:
    """The ELF object of a text's code; `InvalidArgument` with the line that is wrong."""
    return _assembler(source.listing)


def machine_code(text: str) -> bytes:
    """The machine code of instructions in Intel syntax.

    >>> machine_code("vpaddd zmm0, zmm1, zmm2").hex()
    '62f17548fec2'
    """
    return ObjectFile(assemble(read_text(text, "intel"))).all_code().data
