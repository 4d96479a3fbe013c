"""A copy of a library that sees a CPU with AMX tiles, on one without: oneDNN's values on tiles, of the library itself.

    python tools/stand_in /path/to/lib/libdnnl.so.3 FOLDER

FOLDER gets the copy, in which `ud2` stands for CPUID and XGETBV, and `stand_in.so`. With FOLDER in front of
LD_LIBRARY_PATH and `stand_in.so` in LD_PRELOAD a program runs the library's kernels for an Emerald Rapids. Its times
mean nothing. Wants gcc, binutils (objdump, readelf), Linux, and an x86-64 CPU with AVX-512.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

#: instructions that tell what the CPU is -> their bytes, and what stands there instead
_ASKING = {"cpuid": (b"\x0f\xa2", b"\x0f\x0b"), "xgetbv": (b"\x0f\x01\xd0", b"\xf0\x0f\x0b")}


def main(library: str, folder: str) -> None:
    """Write both files, and say how to use them."""
    source, to = Path(library).resolve(), Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    copy = to / Path(library).name
    copy.write_bytes(asking_nobody(source))
    shared = to / "stand_in.so"
    code = Path(__file__).parent / "stand_in.c"
    subprocess.run(
        ["gcc", "-O2", "-mfma", "-mf16c", "-shared", "-fPIC", "-o", str(shared), str(code), "-ldl"], check=True
    )
    print(f"LD_LIBRARY_PATH={to.resolve()}:{source.parent} LD_PRELOAD={shared.resolve()}")


def asking_nobody(source: Path) -> bytes:
    """The library's bytes, its questions to the CPU replaced."""
    data = bytearray(source.read_bytes())
    parts = segments(source)
    for at, name in questions(source):
        start, file = next((start, file) for start, file, size in parts if start <= at < start + size)
        asked, instead = _ASKING[name]
        place = slice(at - start + file, at - start + file + len(asked))
        if data[place] != asked:
            raise SystemExit(f"no {name} at {at:#x} of {source}")
        data[place] = instead
    return bytes(data)


def segments(source: Path) -> list[tuple[int, int, int]]:
    """Where a file's parts lie in memory, where in the file, and how long they are."""
    listing = subprocess.run(["readelf", "-lW", str(source)], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listing.splitlines() if line.split()[:1] == ["LOAD"]]
    return [(int(row[2], 16), int(row[1], 16), int(row[4], 16)) for row in rows]


def questions(source: Path) -> list[tuple[int, str]]:
    """Addresses of the instructions that ask."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(source)]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if match := re.match(r"\s*([0-9a-f]+):\s+(cpuid|xgetbv)", line):
                found.append((int(match[1], 16), match[2]))
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
