"""LLVM's assembler as a process of its own: it ends the process that it runs in on the first wrong line.

Reads texts from standard input and answers each with an ELF object on standard output, both after their length in four
bytes; one that is refused with nothing. A fork of this process reads them until a text ends it, then the next fork
does, so that a wrong line costs no new start of Python and LLVM. Run by its path, so it imports nothing of the package.
"""

from __future__ import annotations

import os
import struct
import sys

import llvmlite.binding as llvm

TRIPLE = "x86_64-unknown-linux-gnu"
CPU = "graniterapids"  # every AVX-512 extension and AMX; what it lacks is added
FEATURES = "+avxvnni,+avxvnniint8,+avxvnniint16,+avxneconvert,+avxifma,+xop,+fma4,+sse4a"


def main() -> None:
    """Answer until the input ends."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=CPU, features=FEATURES, codemodel="small")
    llvm.initialize_native_asmparser()
    if not hasattr(os, "fork"):  # the first wrong line ends this process itself
        return answer(target)
    while True:
        worker = os.fork()
        if worker == 0:
            return answer(target)
        if os.waitpid(worker, 0)[1] == 0:
            return None
        send(b"")


def answer(target: llvm.TargetMachine) -> None:
    """Answer until the input ends, or a wrong line the process."""
    source = sys.stdin.buffer
    while head := source.read(4):
        text = source.read(struct.unpack("<I", head)[0])
        quoted = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in text)
        send(target.emit_object(llvm.parse_assembly(f'target triple = "{TRIPLE}"\nmodule asm "{quoted}"')))


def send(answer: bytes) -> None:
    """An answer."""
    sys.stdout.buffer.write(struct.pack("<I", len(answer)) + answer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
