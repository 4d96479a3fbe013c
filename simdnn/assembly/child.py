"""LLVM's assembler as a process of its own: it ends the process that it runs in on the first wrong line.

Reads texts from standard input and answers each with an ELF object on standard output, both after their length in four
bytes. Run by its path, so it imports nothing of the package.
"""

from __future__ import annotations

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
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while head := source.read(4):
        text = source.read(struct.unpack("<I", head)[0])
        quoted = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in text)
        module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\nmodule asm "{quoted}"')
        answer = target.emit_object(module)
        sink.write(struct.pack("<I", len(answer)) + answer)
        sink.flush()


if __name__ == "__main__":
    main()
