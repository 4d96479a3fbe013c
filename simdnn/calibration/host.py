"""A machine file for this host: measured figures in the frame of the shipped machine that is nearest to them."""

from __future__ import annotations

import datetime
import math
import platform
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from isa_models.errors import SimdnnError
from isa_models.isa import caps, host_caps
from isa_models.machines.content import content
from isa_models.machines.cpu_record import Machine
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.rows import single
from isa_models.machines.shipped import host_path
from isa_models.machines.toml_text import inline
from isa_models.machines.toml_text import name as name_of
from simdnn import files
from simdnn.calibration import figures, ports
from simdnn.calibration.behaviour import behaviour
from simdnn.calibration.clocks import clocks
from simdnn.calibration.cores import cores
from simdnn.calibration.figures import AGREE, Bandwidth, Figure
from simdnn.calibration.forms import forms
from simdnn.calibration.identity import Identity, explained, identity
from simdnn.calibration.ports import Ports
from simdnn.progress import Progress, shows, silent

SECONDS = 130.0  # for the instructions, of the three minutes in all
FITS = 0.06  # a row whose own ports explain the throughput as closely keeps them
LEAST_STEP = 0.04  # cycles below which figures don't differ


@dataclass(frozen=True)
class Calibration:
    """The figures measured, and the shipped machine that it was laid over."""

    cpu: str
    date: str
    clocks: Mapping[str, float]  # a figure of `frequency` -> GHz
    isa: tuple[str, ...]  # caps of this host
    identity: Identity
    instructions: Mapping[tuple[str, str], Figure]
    bandwidth: Mapping[str, tuple[Bandwidth, Bandwidth]]  # level -> of loads, of stores
    cores: int  # that this process may use, processors of one core counted once
    together: Mapping[str, Bandwidth | None]  # level -> of all these cores' loads at once
    forwarding: Mapping[int, float | None]  # bits -> cycles
    load_to_use: float | None
    ports: Ports
    dropped: int = 0  # forms that had no quiet moment, and so no figure

    @property
    def nearest(self) -> Machine:
        """The shipped machine that the figures are laid over."""
        return self.identity.machine

    @property
    def ghz(self) -> float:
        """The clock of plain code."""
        return self.clocks["base_ghz"]

    def comparison(self) -> pd.DataFrame:
        """Frame: each form measured here beside the nearest machine's figures."""
        rows = []
        for (mnemonic, form), figure in self.instructions.items():
            known = self.nearest.instructions.get((mnemonic, form))
            rows.append(
                {
                    "instruction": mnemonic,
                    "form": form,
                    "throughput": figure.throughput,
                    self.nearest.name: explained(self.nearest, known) if known else math.nan,
                    "latency": figure.latency if figure.latency is not None else math.nan,
                    f"{self.nearest.name}_latency": known.latency if known else math.nan,
                    "accumulator": figure.accumulator if figure.accumulator is not None else math.nan,
                    "spread": figure.spread,
                    "stable": figure.stable,
                }
            )
        return pd.DataFrame(rows)


@shows
def calibrate(*, progress: Progress | None = None) -> Calibration:
    """Measure this host. Takes up to three minutes; raises `Unimplemented` on a host that runs no such loops."""
    told = progress or silent
    wanted = list(forms())
    measured = figures.instruction_figures(wanted, SECONDS, told)
    if not any(figure.stable for figure in measured.values()):
        raise SimdnnError("no undisturbed moment was seen: other work shares this core all the time; try when it rests")
    told(len(wanted), len(wanted), "caches, memory, clocks and ports")
    identified = identity(measured, behaviour())
    isa = tuple(cap for cap in caps() if cap in host_caps())
    wide = "avx512_core" in host_caps()
    bits = 512 if wide else 256
    speeds = {
        level: (figures.bandwidth(size, bits), figures.bandwidth(size, bits, stores=True))
        for level in figures.SIZES
        if (size := figures.size_within(level))
    }
    cpus = [own[0] for own in cores()]
    together = {level: figures.bandwidth_of_all(level, bits, cpus) for level in ("L2", "L3", "DRAM")}
    rounds = {64: figures.forwarding("rax", "qword", "mov")}
    widths = ((128, "xmm0", "xmmword"), (256, "ymm0", "ymmword"), (512, "zmm0", "zmmword"))
    rounds |= {b: figures.forwarding(register, pointer, "vmovups") for b, register, pointer in widths if b <= bits}
    return Calibration(
        cpu_name(),
        datetime.date.today().isoformat(),
        {"base_ghz": figures.clock()} | clocks(),
        isa,
        identified,
        measured,
        speeds,
        len(cpus),
        together,
        rounds,
        figures.load_to_use(),
        ports.measure(wide),
        len(wanted) - len(measured),
    )


def cpu_name() -> str:
    """The CPU as its system names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "x86-64"
    facts = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    return f"{facts.get('model name', 'x86-64')} (family {facts.get('cpu family')} model {facts.get('model')})"


# -- the file ------------------------------------------------------------------------------------------------------


def write_host(calibration: Calibration, path: Path | None = None) -> Path:
    """Write the machine file of a calibration (`host_path()` unless told); returns where.

    Raises `InvalidArgument` where a file is there that no calibration wrote.
    """
    path = path or host_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _ports_said(calibration.ports) + toml_of(host_table(calibration))
    with files.replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
        machine(partial)  # what the schema refuses never gets the name
    return path


def _ports_said(seen: Ports) -> str:
    """Comment lines: what pairs of instructions show of the ports, which the rows' own ports may be held beside."""
    groups = seen.groups()
    said = [f"# Ports that pairs of instructions show: {name} {letters}\n" for name, letters in (groups or {}).items()]
    return "".join(said) or "# Pairs of instructions show no ports that explain them all.\n"


def host_table(calibration: Calibration) -> dict[str, Any]:
    """The nearest machine's file with what was measured put in."""
    base = calibration.nearest
    data = deepcopy(content(base.path))
    data["sources"]["here"] = f"measured on {calibration.cpu}, {calibration.date}, by simdnn calibrate"
    data |= {"name": "host", "title": calibration.cpu, "uarch": f"nearest to {base.name}"}
    data["isa"] = [
        cap for cap in calibration.isa if cap in base.isa
    ]  # beyond that, the rows that it takes are not known
    data["cores"] = _figure(
        calibration.cores, "here: those that this process may use, processors of one core counted once"
    )
    said = "here: chain of dependent adds beside code of the kind"
    data["frequency"] = {name: _figure(round(ghz, 3), said) for name, ghz in calibration.clocks.items()}
    for level in data["caches"]:
        for key, speed in zip(("load", "store"), calibration.bandwidth.get(level["name"], ()), strict=False):
            level[f"{key}_bytes_per_cycle"] = _figure(round(speed.per_cycle, 1), _passes(level["name"]))
    gb_s = round(calibration.bandwidth["DRAM"][0].gb_s, 2)
    data["dram"]["gb_s_core"] = _figure(gb_s, f"{_passes('DRAM')}, one core")
    data["dram"]["gb_s_socket"]["value"] = max(gb_s, data["dram"]["gb_s_socket"]["value"])
    if all_ := calibration.together.get("DRAM"):
        said = f"{_passes('DRAM')}, {calibration.cores} cores at once with a part of it each"
        data["dram"]["gb_s_socket"] = _figure(max(gb_s, round(all_.gb_s, 2)), said)
    for row in data["core"]["load"]:
        measured = calibration.load_to_use if row.get("general") else calibration.forwarding.get(row["bits"])
        if measured is not None:
            key = "latency" if row.get("general") else "forward_latency"
            row[key] = float(round(measured, 1))
            row["source"] = f"here: {key} {measured:.2f}; the others as {base.name}"
    data["instructions"]["rows"] = [
        _row(base, one, calibration.instructions.get(key))
        for row in data["instructions"]["rows"]
        for key, one in single(row)
    ]
    return data


def _passes(level: str) -> str:
    return f"here: {figures.size_within(level) >> 10} KiB again and again"


def _figure(value: object, source: str) -> dict[str, object]:
    return {"value": value, "source": source, "confidence": "measured"}


def _row(base: Machine, row: dict[str, Any], figure: Figure | None) -> dict[str, Any]:
    """One row with its measured figures; one that was not measured says whose it is."""
    if figure is None:
        standing = "documented" if row["confidence"] == "measured" else row["confidence"]
        return row | {"source": f"as {base.name}, not measured here: {row['source']}", "confidence": standing}
    expected = explained(base, base.timing(row["mnemonic"], row["form"]))
    said = f"here: one in {figure.throughput:.3f} cycles"
    found = dict(row)
    if abs(figure.throughput - expected) <= max(LEAST_STEP, FITS * expected):
        said += ", as its ports explain"
    elif figure.throughput > expected:
        found["interval"] = round(figure.throughput, 2)
        said += f", slower than the ports of {base.name} explain"
    elif row.get("occupancy", 1) > 1 or row.get("interval"):
        found |= {"occupancy": 1, "interval": round(figure.throughput, 2)}
        said += f", faster than on {base.name}"
    else:
        said += f", faster than the ports of {base.name} explain, which are kept"
    if figure.latency is not None and row["uops"]:
        found["latency"] = _cycles(figure.latency)
        said += f"; latency {figure.latency:.2f}"
        if figure.accumulator is not None:
            found["accumulator_latency"] = min(_cycles(figure.accumulator), found["latency"])
            said += f", from the accumulator {figure.accumulator:.2f}"
    if not figure.stable:
        said += f"; two runs differ by {figure.spread:.0%}, more than {AGREE:.0%}"
    return found | {"source": said, "confidence": "measured" if figure.stable else "estimated"}


def _cycles(measured: float) -> float:
    """Whole cycles where a latency is near to them; some are the mean of two units' or of two ways."""
    whole = round(measured)
    return max(1, whole if abs(measured - whole) < 0.15 else round(measured, 1))


def toml_of(data: Mapping[str, Any]) -> str:
    """TOML of a machine file: plain keys, then tables, then arrays of tables; figures and rows as inline tables."""
    lines = [f"{files.TOML_MARK}calibrate; measured anew by running it again."]

    def table(prefix: str, content: Mapping[str, Any]) -> None:
        inner: list[tuple[str, Any]] = []
        for key, value in content.items():
            is_tables = isinstance(value, list) and value and isinstance(value[0], dict)
            if is_tables and key == "rows":
                lines.append("rows = [")
                lines.extend(f"  {inline(row)}," for row in value)
                lines.append("]")
            elif is_tables or isinstance(value, dict) and "value" not in value and "source" not in value:
                inner.append((key, value))
            else:
                lines.append(f"{name_of(key)} = {inline(value)}")
        for key, value in inner:
            name = f"{prefix}.{name_of(key)}" if prefix else name_of(key)
            for one in value if isinstance(value, list) else [value]:
                lines.extend(["", f"[[{name}]]" if isinstance(value, list) else f"[{name}]"])
                table(name, one)

    table("", data)
    return "\n".join(lines) + "\n"
