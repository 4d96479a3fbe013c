"""`python -m benchmarks.loops`: assembly loops on this host beside a machine's clock.

The loops are those of tests/vectors: for zen4 loops_zen4.json (kernels' inner loops), mixes_zen4.json (mixes of
instruction classes that compete for ports) and loops_zen4_others.json (those of the files below that it runs), for spr
loops_spr.json (both kinds, and tiles), loops_spr_compiled.json and loops_spr_kernels.json (a compiler's, and kernels'
of other shapes; they name the registers that are pointers), for gnr loops_gnr.json, loops_gnr_others.json (as
loops_zen4_others.json), loops_gnr_fresh.json and loops_gnr_drawn.json (a generator's, a compiler's, and by hand), with
the cycles recorded there.
Data are in the first cache; pointers point into different pages; vector registers and memory hold zeros.
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from isa_models.isa import host_caps
from isa_models.machines.loader import cpu_machine as machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.assembler import machine_code
from simdnn.assembly.rows import rows
from simdnn.calibration.forms import host_has
from simdnn.calibration.sampler import LINE, PAGE, PLAIN, Frame
from simdnn.calibration.timer import measure
from simdnn.cli.output import table

SPR = ("loops_spr.json", "loops_spr_compiled.json", "loops_spr_kernels.json")
FILES = {
    "zen4": ("loops_zen4.json", "mixes_zen4.json", "loops_zen4_others.json"),
    "spr": SPR,
    "gnr": ("loops_gnr.json", "loops_gnr_others.json", "loops_gnr_fresh.json", "loops_gnr_drawn.json"),
}
WRITTEN = ("mixes_zen4.json", *SPR)  # the others were measured elsewhere
POINTERS = ["rsi", "rdx", "rdi", "r10"]  # of loops that name none
START = {"r8": 0, "r15": 64}  # in the loops as they are measured: the pointers do not move
APART = 3 * PAGE + 40 * LINE  # bytes from one pointer of a compiled loop to the next
VECTORS = Path(__file__).parents[1] / "tests" / "vectors"


def frame(loop: dict[str, Any]) -> Frame:
    """The lines before a compiled loop: its counter, pointers into different pages, numbers, full mask registers."""
    counter, first = loop["body"][-2].removeprefix("dec "), memory().ctypes.data + 16 * PAGE & -PAGE
    named = enumerate(loop.get("pointers", POINTERS))
    numbers = {name: first + at * APART for at, name in named} | loop.get("start", START)
    lines = [f"mov {counter}, rcx"] if counter != "rcx" else []
    lines += [f"mov {register}, {number}" for register, number in numbers.items()]
    if "avx512_core" in host_caps():
        lines += [f"kxnorq k{mask}, k{mask}, k{mask}" for mask in range(1, 8)]
    return Frame(lines, counter=counter)


@functools.cache
def memory() -> NDArray[np.uint8]:
    """Zeros that pointers of compiled loops point into; written, as masked stores to pages that never were are slow."""
    pages = np.empty(128 * PAGE, np.uint8)
    pages.fill(0)
    return pages


@functools.cache
def _bodies(name: str) -> dict[str, dict[str, Any]]:
    return {loop["name"]: loop for loop in json.loads((VECTORS / name).read_text())["loops"]}


def whole(loop: dict[str, Any]) -> dict[str, Any]:
    """A loop with its body and registers, which may stand in another file; what it says itself counts."""
    return _bodies(loop["of"])[loop["name"]] | loop if "of" in loop else loop


def main() -> None:
    """Measure and print; `--write` records the new cycles."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("--machine", choices=FILES, default="zen4", help="whose loops and clock (zen4)")
    parser.add_argument("--write", action="store_true", help="record the cycles of this host anew")
    given = parser.parse_args()
    lines: list[tuple[str, float, float, float]] = []
    absent: list[str] = []
    for name in FILES[given.machine]:
        recorded = json.loads((VECTORS / name).read_text())
        for entry in recorded["loops"]:
            loop = whole(entry)
            memory().fill(0)
            tiles = any("tmm" in line for line in loop["body"])
            end = loop["body"][:-2]  # measure adds the loop's end itself
            around = frame(loop) if "pointers" in loop or "of" in loop else PLAIN
            if host_has(machine_code("\n".join(end))):
                found = measure(end, patience_s=2.0, tiles=tiles, around=around)
            else:
                found = None
                absent.append(loop["name"])
            cycles = found.cycles if found else float("nan")
            body = read_body("\n".join(loop["body"]))
            start = loop.get("start", START)
            target = rows(machine(given.machine))
            predicted = analyze_body(body, target, start=start, memory=0).cycles_per_iteration
            lines.append((loop["name"], loop["cycles_per_iteration"], cycles, predicted))
            if name in WRITTEN and found:
                entry["cycles_per_iteration"] = round(cycles, 3)
        if given.write and name in WRITTEN:
            (VECTORS / name).write_text(json.dumps(recorded, indent=1) + "\n")
    shown = pd.DataFrame(lines, columns=["loop", "recorded", "measured", "predicted"])
    shown["predicted/recorded"] = shown["predicted"] / shown["recorded"]
    if absent:
        print(f"{len(absent)} loops are of instructions that this CPU lacks: {', '.join(absent)}")
    unmeasured = shown.loc[shown["measured"].isna(), "loop"]
    if dropped := [name for name in unmeasured if name not in absent]:
        print(f"{len(dropped)} of {len(shown)} loops had no quiet moment and are not measured: {', '.join(dropped)}")
    print(table(shown, dict.fromkeys(("recorded", "measured", "predicted", "predicted/recorded"), "{:.3f}".format)))


if __name__ == "__main__":
    main()
