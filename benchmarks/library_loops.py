"""`python -m benchmarks.library_loops`: inner loops of installed libraries on this host beside a machine's clock.

The loops are machine code as it ships: those of NumPy, its OpenBLAS and the SciPy extensions beside it that have vector
instructions, no branch but their last and no stack. They are made to stand still, so that they can run without their
function: what adds a constant to a register adds one that holds 0, a counter of its own ends the loop, and registers
that are the base of an address point into different pages; all others, vector registers and memory hold zeros. What
is measured and what is predicted is this loop, not the library's.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.apart import apart
from benchmarks.loops import frame, memory
from benchmarks.whose import clock
from isa_models.errors import SimdnnError
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.assembler import machine_code
from simdnn.assembly.elf import ObjectFile
from simdnn.assembly.rows import rows
from simdnn.calibration.forms import host_has
from simdnn.calibration.timer import measure
from simdnn.cli.output import table

GENERAL = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", *(f"r{number}" for number in range(8, 16)))
_NARROW = {name: name for name in GENERAL}
_NARROW |= {f"e{name[1:]}" if name[1].isalpha() else f"{name}d": name for name in GENERAL}
_STEP = re.compile(r"(add|sub) (\w+), -?(0x[0-9A-F]+|\d+)|(inc|dec) (\w+)", re.IGNORECASE)
_VECTOR = re.compile(r"\b[xyz]mm\d")
_APART = re.compile(r"(j\w+|call|push|pop|rep\w*|lock|i?div|f\w+|\w*gather\w*|\w*scatter\w*) ?|.*\b(rsp|rip|st\d)\b")


def libraries() -> list[Path]:
    """The shared libraries of this environment's NumPy, and of SciPy where it is there."""
    found: list[Path] = []
    for package in ("numpy", "scipy"):
        if (spec := find_spec(package)) and spec.origin:
            home = Path(spec.origin).parent
            found += home.parent.glob(f"{package}.libs/*openblas64*.so*")
            for folder in ("_core", "fft/_pocketfft", "ndimage", "sparse"):
                found += home.glob(f"{folder}/*.so")
    return sorted(path for path in found if "test" not in path.name)


def loops_of(path: Path, most: int, seed: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Names and lines of up to `most` inner loops of a library, drawn by chance; none alike but for numbers."""
    library, seen = ObjectFile(path.read_bytes()), set()
    names = [name for name, symbol in library.functions.items() if 48 < symbol.size < 40_000]
    random.Random(seed).shuffle(names)
    for name in names:
        for number in range(1, 5):
            try:
                body = read_body(bytes(library.function(name).data), loop=number)
            except SimdnnError:  # there is no such loop
                break
            lines = [one.text for one in body.instructions]
            shape = re.sub(r"\d+", "#", "\n".join(lines))
            if 4 <= len(lines) <= 130 and _VECTOR.search(shape.replace("#", "0")) and shape not in seen:
                seen.add(shape)
                yield f"{path.name.partition('.')[0]}: {name} {number}", lines
        if len(seen) >= most:
            return


def standing(lines: list[str]) -> dict[str, Any] | None:
    """The loop as `benchmarks.loops` takes one, made to stand still; None where that cannot be done.

    >>> lines = ["vmovups ymm0, [rsi]", "vmovups [rdi], ymm0", "add rsi, 0x20", "add rdi, 0x20", "cmp rsi, r8", "jne 0"]
    >>> standing(lines)["body"]
    ['vmovups ymm0, [rsi]', 'vmovups [rdi], ymm0', 'add rsi, r15', 'add rdi, r15', 'dec rax', 'jnz .L']
    """
    if any(_APART.match(line) for line in lines[:-1]) or not lines[-1].startswith("j"):
        return None
    kept = lines[:-2] if re.match("cmp|test", lines[-2]) else lines[:-1]
    text = "\n".join(kept)
    used = {_NARROW[word] for word in re.findall(r"\b\w+\b", text) if word in _NARROW}
    free = [name for name in GENERAL if name not in used]
    addresses = [re.findall(r"\w+", address) for address in re.findall(r"\[([^\]]*)\]", text)]
    pointers = list(dict.fromkeys(words[0] for words in addresses if words[0] in GENERAL))
    written = "|".join(pointers) or "-"
    if len(free) < 2 or not pointers or re.search(rf"^(mov|lea|movzx|movsxd?|imul) ({written}),", text, re.MULTILINE):
        return None
    counter, zero = free[0], free[-1]

    def still(line: str) -> str:
        step = _STEP.fullmatch(line)
        register = step and (step[2] or step[5])
        return f"{'sub' if line.startswith('sub') else 'add'} {register}, {zero}" if register in GENERAL else line

    start = {name: 0 for name in GENERAL if name not in (*pointers, counter)}
    body = [*map(still, kept), f"dec {counter}", "jnz .L"]
    return {"body": body, "pointers": pointers, "start": start}


def measured(loop: dict[str, Any]) -> float | None:
    """Cycles a round of a loop; None where no moment was quiet."""
    memory().fill(0)
    found = measure(loop["body"][:-2], patience_s=1.0, around=frame(loop))
    return found and found.cycles


def main() -> None:
    """Measure, predict and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library_loops", description=__doc__)
    parser.add_argument("--machine", help="whose clock (the machine that this host behaves like)")
    parser.add_argument("--most", type=int, default=200, help="loops of a library (200)")
    given = parser.parse_args()
    target, lines, refused = rows(clock(given.machine)), [], []
    for path in libraries():
        for name, raw in loops_of(path, given.most):
            loop = standing(raw)
            if loop is None or not host_has(machine_code("\n".join(loop["body"][:-2]))):
                continue
            try:
                analysis = analyze_body(read_body("\n".join(loop["body"])), target, start=loop["start"], memory=0)
            except SimdnnError as error:
                refused.append(f"{name}: {error}")
                continue
            if cycles := apart(partial(measured, loop)):
                lines.append((name, cycles, analysis.cycles_per_iteration))
    shown = pd.DataFrame(lines, columns=["loop", "measured", "predicted"])
    shown["predicted/measured"] = shown["predicted"] / shown["measured"]
    print(table(shown, dict.fromkeys(shown.columns[1:], "{:.3f}".format)))
    errors = [abs(ratio - 1) for ratio in shown["predicted/measured"]]
    print(f"{len(errors)} loops: mean error {statistics.mean(errors):.1%}, median {statistics.median(errors):.1%}")
    print("\n".join([f"{len(refused)} refused", *refused]))


if __name__ == "__main__":
    main()
