"""`python -m benchmarks.loops`: assembly loops on this host beside a machine's clock.

The loops are those of tests/vectors: for zen3 loops_zen3.json (those of all files that it runs, others at half their
width, a compiler's, mixes), for zen4 loops_zen4.json (kernels' inner loops), mixes_zen4.json (mixes of
instruction classes that compete for ports) and loops_zen4_others.json (those of the files below that it runs), for spr
loops_spr.json (both kinds, and tiles), loops_spr_compiled.json and loops_spr_kernels.json (a compiler's, and kernels'
of other shapes; they name the registers that are pointers), for gnr loops_gnr.json, loops_gnr_others.json (as
loops_zen4_others.json), loops_gnr_fresh.json and loops_gnr_drawn.json (a generator's, a compiler's, and by hand), with
the cycles recorded there.
Data are in the first cache; pointers point into different pages; vector registers and memory hold zeros. A loop that
reads a register which nobody gave it is refused by its name, since it could write anywhere; each runs in a process of
its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.apart import apart
from isa_models.isa import host_caps
from isa_models.machines.loader import cpu_machine as machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.assembler import machine_code
from simdnn.assembly.loops import Body
from simdnn.assembly.rows import rows
from simdnn.calibration.forms import host_has
from simdnn.calibration.sampler import LINE, PAGE, Frame
from simdnn.calibration.timer import measure
from simdnn.cli.output import table

SPR = ("loops_spr.json", "loops_spr_compiled.json", "loops_spr_kernels.json")
FILES = {
    "zen3": ("loops_zen3.json",),
    "zen4": ("loops_zen4.json", "mixes_zen4.json", "loops_zen4_others.json"),
    "spr": SPR,
    "gnr": ("loops_gnr.json", "loops_gnr_others.json", "loops_gnr_fresh.json", "loops_gnr_drawn.json"),
}
WRITTEN = ("mixes_zen4.json", *SPR)  # the others were measured elsewhere
POINTERS = ["rsi", "rdx", "rdi", "r10"]  # of loops that name none
START = {"r8": 0, "r15": 64}  # in the loops as they are measured: the pointers do not move
RING = 4 * PAGE  # that moving pointers go round: r9 = ~RING keeps each in one of its own, as addresses lack that bit
APART = 2 * RING + 40 * LINE  # bytes from one pointer to the next
VECTORS = Path(__file__).parents[1] / "tests" / "vectors"


def frame(loop: dict[str, Any]) -> Frame:
    """The lines before a loop: its counter, pointers into different pages, numbers, full mask registers."""
    counter = counter_of(loop)
    lines = [f"mov {counter}, rcx"] if counter != "rcx" else []
    lines += [f"mov {register}, {number}" for register, number in given(loop).items()]
    if "avx512_core" in host_caps():
        lines += [f"kxnorq k{mask}, k{mask}, k{mask}" for mask in range(1, 8)]
    return Frame(lines, counter=counter)


def counter_of(loop: dict[str, Any]) -> str:
    """The register that counts a loop down, right before its jump."""
    register: str = loop["body"][-2].removeprefix("dec ")
    return register


def given(loop: dict[str, Any]) -> dict[str, int]:
    """Registers that a loop is given, with what they hold: pointers into memory, and numbers."""
    first = memory().ctypes.data + 2 * RING & -2 * RING
    pointers = {name: first + at * APART for at, name in enumerate(loop.get("pointers", POINTERS))}
    return {**pointers, **loop.get("start", START)}


def ungiven(loop: dict[str, Any], body: Body) -> list[str]:
    """General registers that a loop reads before it writes them, and that nobody gave it."""
    known, found = {counter_of(loop), *given(loop)}, dict[str, None]()
    for one in body.instructions:
        found |= dict.fromkeys(name for name in one.reads if name[0] == "r" and name not in known)
        known |= {*one.reads, *one.writes}
    return list(found)


def refusal(loop: dict[str, Any], body: Body) -> str | None:
    """Why a loop is not run here; by a register that nobody gave it it might write anywhere."""
    if found := ungiven(loop, body):
        return f"read registers that nobody gave them ({', '.join(found)})"
    if not host_has(machine_code("\n".join(loop["body"][:-2]))):
        return "are of instructions that this CPU lacks"
    return None


def measured(loop: dict[str, Any]) -> float:
    """Cycles a round of a loop; not a number where no moment was quiet."""
    memory().fill(0)
    tiles = any("tmm" in line for line in loop["body"])
    found = measure(loop["body"][:-2], patience_s=2.0, tiles=tiles, around=frame(loop))  # which adds the end itself
    return found.cycles if found else math.nan


@functools.cache
def memory() -> NDArray[np.uint8]:
    """Zeros that pointers of compiled loops point into; written, as masked stores to pages that never were are slow."""
    pages = np.empty(160 * PAGE, np.uint8)
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
    options = parser.parse_args()
    target = rows(machine(options.machine))
    lines: list[tuple[str, float, float, float]] = []
    refused: dict[str, list[str]] = defaultdict(list)
    measured({"body": ["nop", "dec rcx", "jnz .L"]})  # what is found out once about this host, before the first copy
    for name in FILES[options.machine]:
        recorded = json.loads((VECTORS / name).read_text())
        for entry in recorded["loops"]:
            loop = whole(entry)
            body, cycles = read_body("\n".join(loop["body"])), None
            if reason := refusal(loop, body):
                refused[reason].append(loop["name"])
            elif (cycles := apart(partial(measured, loop))) is None:
                refused["ended the process that ran them"].append(loop["name"])
            elif math.isnan(cycles):
                refused["had no quiet moment"].append(loop["name"])
            analysis = analyze_body(body, target, start=loop.get("start", START), memory=0)
            lines.append(
                (loop["name"], loop["cycles_per_iteration"], cycles or math.nan, analysis.cycles_per_iteration)
            )
            if name in WRITTEN and cycles and not math.isnan(cycles):
                entry["cycles_per_iteration"] = round(cycles, 3)
        if options.write and name in WRITTEN:
            (VECTORS / name).write_text(json.dumps(recorded, indent=1) + "\n")
    shown = pd.DataFrame(lines, columns=["loop", "recorded", "measured", "predicted"])
    shown["predicted/recorded"] = shown["predicted"] / shown["recorded"]
    for why, names in refused.items():
        print(f"{len(names)} of {len(shown)} loops {why}, and are not measured: {', '.join(names)}")
    print(table(shown, dict.fromkeys(("recorded", "measured", "predicted", "predicted/recorded"), "{:.3f}".format)))


if __name__ == "__main__":
    main()
