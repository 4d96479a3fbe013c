"""Rows taken over from a sister core, with what was measured on the core itself on top.

- Sapphire Rapids: what simdnn calibrate measured on an Emerald Rapids, the same core (emr.csv): latencies, and
  throughputs where the ports do not explain them; what it confirms becomes "measured". Latencies of memory forms follow
  the register form's. Left aside are latencies of divisions and roots (measured on zeros) and gathers, and throughputs
  of memory forms that lines explain (two loads and one store a cycle, each of another line).
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from isa_models.machines.instruction_row import form_widths
from tools.machine_row import Row, port_bound

TABLES = Path(__file__).resolve().parent
#: no uop, as long as what is added up stays within 11 bits: 24 of `add rax, 1` in a chain take 4.16 cycles, of 512
#: 12.1, of 1024 24.0 (so down to -1024); a sum beyond costs a uop and 1 to 1.5 cycles (24 of 64 6.5, of 127 8.1)
AT_RENAME = {("add", "r64,i8"), ("sub", "r64,i8"), ("inc", "r64"), ("dec", "r64")}
SMALL_SUMS = ("add", "sub")  # also with a constant of 11 bits (i11) that is not of 8


def emerald_rapids() -> dict[tuple[str, str], dict[str, float]]:
    """Figures of forms: throughput, latency, and that of the accumulator, where they were measured."""
    with (TABLES / "emr.csv").open(newline="", encoding="utf-8") as handle:
        return {
            (row["instruction"], row["form"]): {
                key: float(row[key]) for key in ("latency", "accumulator", "throughput") if row[key]
            }
            for row in csv.DictReader(handle)
        }


def small_sums(rows: dict[tuple[str, str], Row]) -> dict[tuple[str, str], Row]:
    """Rows of sums with constants of 11 bits, as those of 8 bits."""
    source = "emr: chains of add with 128, 255, 256, 512, -129, -1024 are done at rename, with 1024 and -1025 are not"
    some = [name for name in SMALL_SUMS if (name, "r64,i8") in rows]
    return {(name, "r64,i11"): replace(rows[name, "r64,i8"], form="r64,i11", source=source) for name in some}


def as_measured(row: Row, figures: dict[tuple[str, str], dict[str, float]], core: dict[str, Any]) -> Row:
    """A row of Golden Cove with what was measured of it, or of its register form."""
    if row.source.startswith(("emr:", "rwc:")):  # overridden
        return row
    if (row.mnemonic, row.form) in AT_RENAME:
        return replace(
            row, latency=0, uops=(), eliminated=True, source="emr: 24 in a chain take 4.2 cycles", confidence="measured"
        )
    register = re.sub(r"m\d+(bcst)?", "xmm" if "xmm" in row.form else "ymm" if "ymm" in row.form else "zmm", row.form)
    own = figures.get((row.mnemonic, row.form), {})
    load, store, vector = form_widths(row.mnemonic, row.form)
    twin = own if not load or not vector else figures.get((row.mnemonic, register.replace("{k}", "")), {})
    said: list[str] = []
    changed: dict[str, Any] = {}
    if row.uops and "latency" in twin and not re.match(r"v?(div|sqrt|p?gather)", row.mnemonic):
        latency = max(1, round(twin["latency"]))
        given = max(1, round(twin["accumulator"])) if "accumulator" in twin else None
        changed = {"latency": latency, "accumulator_latency": given if given and given < latency else None}
        said += [f"latency {twin['latency']:.2f}"]
    if "throughput" in own:
        met, ports = own["throughput"], max(port_bound(row.uops, row.occupancy), row.slots / 6)
        lines = 1.0 if store else 0.5 if load else 0.0
        said += [f"one in {met:.2f} cycles"]
        if abs(met - ports) <= max(0.04, 0.06 * ports) or lines and met <= 1.35 * max(lines, ports):
            changed["interval"] = 0.0
        elif met < 0.8 * row.interval:  # the table's is not of this core
            changed["interval"] = round(met, 2) if met > 1.15 * ports + 0.1 else 0.0
        elif met > ports and vector and abs(met / row.interval - 1 if row.interval else 1) > 0.02:
            changed["interval"] = round(met, 2)
        changed["confidence"] = "measured"
    return replace(row, source=f"emr: {', '.join(said)}; {row.source}", **changed) if said else row
