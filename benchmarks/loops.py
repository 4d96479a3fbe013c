"""`python -m benchmarks.loops`: assembly loops on this host beside the zen4 clock.

The loops are those of tests/vectors/loops_zen4.json (kernels' inner loops) and mixes_zen4.json (mixes of instruction
classes that compete for ports), with the cycles recorded there. Data are in the first cache; rsi and rdi point into
different pages; vector registers and memory hold zeros.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

import simdnn
from simdnn.calibration.timer import measure
from simdnn.cli.output import table

VECTORS = Path(__file__).parents[1] / "tests" / "vectors"


def main() -> None:
    """Measure and print; `--write` puts the new cycles into mixes_zen4.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the mixes' cycles anew")
    write = parser.parse_args().write
    rows = []
    for name in ("loops_zen4.json", "mixes_zen4.json"):
        recorded = json.loads((VECTORS / name).read_text())
        for loop in recorded["loops"]:
            found = measure(loop["body"][:-2])  # which adds the loop's end itself
            cycles = found.cycles if found else float("nan")
            predicted = simdnn.analyze("\n".join(loop["body"])).cycles_per_iteration
            rows.append((loop["name"], loop["cycles_per_iteration"], cycles, predicted))
            if name.startswith("mixes") and found:
                loop["cycles_per_iteration"] = round(cycles, 3)
        if write and name.startswith("mixes"):
            (VECTORS / name).write_text(json.dumps(recorded, indent=1) + "\n")
    frame = pd.DataFrame(rows, columns=["loop", "recorded", "measured", "predicted"])
    frame["predicted/recorded"] = frame["predicted"] / frame["recorded"]
    print(table(frame, dict.fromkeys(("recorded", "measured", "predicted", "predicted/recorded"), "{:.3f}".format)))


if __name__ == "__main__":
    main()
