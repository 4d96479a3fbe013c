"""`python -m benchmarks.loops`: assembly loops on this host beside a machine's clock.

The loops are those of tests/vectors: for zen4 loops_zen4.json (kernels' inner loops) and mixes_zen4.json (mixes of
instruction classes that compete for ports), for spr loops_spr.json (both kinds, and tiles), for gnr loops_gnr.json,
with the cycles recorded there. Data are in the first cache; rsi and rdi point into different pages; vector registers
and memory hold zeros.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from isa_models.machines.loader import cpu_machine as machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.rows import rows
from simdnn.calibration.timer import measure
from simdnn.cli.output import table

FILES = {"zen4": ("loops_zen4.json", "mixes_zen4.json"), "spr": ("loops_spr.json",), "gnr": ("loops_gnr.json",)}
WRITTEN = ("mixes_zen4.json", "loops_spr.json")  # the other was measured elsewhere
START = {"r8": 0, "r15": 64}  # in the loops as they are measured: the pointers do not move
VECTORS = Path(__file__).parents[1] / "tests" / "vectors"


def main() -> None:
    """Measure and print; `--write` records the new cycles."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("--machine", choices=FILES, default="zen4", help="whose loops and clock (zen4)")
    parser.add_argument("--write", action="store_true", help="record the cycles of this host anew")
    given = parser.parse_args()
    lines = []
    for name in FILES[given.machine]:
        recorded = json.loads((VECTORS / name).read_text())
        for loop in recorded["loops"]:
            tiles = any("tmm" in line for line in loop["body"])
            found = measure(loop["body"][:-2], patience_s=2.0, tiles=tiles)  # which adds the loop's end itself
            cycles = found.cycles if found else float("nan")
            body = read_body("\n".join(loop["body"]))
            predicted = analyze_body(body, rows(machine(given.machine)), start=START).cycles_per_iteration
            lines.append((loop["name"], loop["cycles_per_iteration"], cycles, predicted))
            if name in WRITTEN and found:
                loop["cycles_per_iteration"] = round(cycles, 3)
        if given.write and name in WRITTEN:
            (VECTORS / name).write_text(json.dumps(recorded, indent=1) + "\n")
    frame = pd.DataFrame(lines, columns=["loop", "recorded", "measured", "predicted"])
    frame["predicted/recorded"] = frame["predicted"] / frame["recorded"]
    if dropped := frame.loc[frame["measured"].isna(), "loop"].tolist():
        print(f"{len(dropped)} of {len(frame)} loops had no quiet moment and are not measured: {', '.join(dropped)}")
    print(table(frame, dict.fromkeys(("recorded", "measured", "predicted", "predicted/recorded"), "{:.3f}".format)))


if __name__ == "__main__":
    main()
