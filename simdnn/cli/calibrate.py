"""`simdnn calibrate`: measure this host into the machine "host"."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isa_models.errors import counted
from simdnn.cli import output
from simdnn.progress import shown

if TYPE_CHECKING:
    import pandas as pd

    from simdnn.calibration.host import Calibration


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "calibrate",
        description="Times the package's instructions, loads, stores, caches and the clock on this host's CPU, without "
        "performance counters and without a compiler, in under three minutes (up to nine where others have the core "
        "too), and writes a machine file that --machine host then means everywhere: simdnn/host.toml in the "
        "configuration folder ($XDG_CONFIG_HOME or ~/.config; or $SIMDNN_HOST). What was not measured is the nearest "
        "shipped machine's, and says so. A quiet "
        "host gives better figures; disturbed samples are dropped, and rows whose runs disagree are marked.",
    )
    output.add_options(parser, file="another file (.toml)")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    from simdnn.calibration.host import calibrate, write_host

    output.check_path(args.output, (".toml",))
    with shown() as progress:
        found = calibrate(progress=progress)
    path, frame = write_host(found, args.output), found.comparison()
    if args.json:
        output.print_json(_content(found, frame, path))
    else:
        _tell(found, frame, path)
    return 0


def _content(found: Calibration, frame: pd.DataFrame, path: Path) -> dict[str, Any]:
    """All that was measured, for --json."""
    shared = [{"one": a, "other": b, "shared": round(count, 3)} for (a, b), count in found.ports.shared.items()]
    counts = {name: round(count, 3) for name, count in found.ports.counts.items()}
    return {
        "file": str(path),
        "cpu": found.cpu,
        "ghz": round(found.ghz, 3),
        "ghz_by_kind": {name: round(ghz, 3) for name, ghz in found.clocks.items()},
        "nearest": found.nearest.name,
        "unlike_nearest": list(found.identity.apart),
        "load_to_use_cycles": found.load_to_use,
        "bytes_per_cycle": {level: [of.per_cycle for of in pair] for level, pair in found.bandwidth.items()},
        "gb_s": {level: [of.gb_s for of in pair] for level, pair in found.bandwidth.items()},
        "cores": found.cores,
        "bytes_per_cycle_of_all": {level: of and of.per_cycle for level, of in found.together.items()},
        "forwarding_cycles": {str(bits): cycles for bits, cycles in found.forwarding.items()},
        "behaviour": found.identity.seen._asdict(),
        "rows": len(frame),
        "dropped": found.dropped,
        "stable": int(frame["stable"].sum()),
        "ports": {"counts": counts, "shared": shared, "groups": found.ports.groups()},
        "instructions": output.records(frame),
    }


def _tell(found: Calibration, frame: pd.DataFrame, path: Path) -> None:
    """The rows that differ from the nearest machine's, and the host in sentences."""
    differ = frame[(frame["throughput"] / frame[found.nearest.name] - 1).abs() > 0.1]
    two = "{:.2f}".format
    name, stable = found.nearest.name, int(frame["stable"].sum())
    formats = {"throughput": two, name: two, "latency": two, f"{name}_latency": two, "spread": "{:.1%}".format}
    print(output.table(differ.drop(columns=["stable", "accumulator"]), formats))
    print(f"\n{len(frame)} forms measured; above, the {len(differ)} with a throughput over 10 % off {name}'s")
    print(f"marked in the file: {counted(len(frame) - stable, 'form')} whose two runs differ by over 3 %")
    if found.dropped:
        dropped = counted(found.dropped, "form")
        print(f"without a quiet moment, or time: {dropped}, the nearest machine's in the file, which says so")
    for level, (loads, stores) in found.bandwidth.items():
        together = found.together.get(level)
        all_ = (
            f"; by {found.cores} cores at once {together.per_cycle:.1f} loaded" if together and found.cores > 1 else ""
        )
        said = f"{loads.per_cycle:.1f} bytes a cycle loaded ({loads.gb_s:.1f} GB/s), {stores.per_cycle:.1f} stored"
        print(f"{level}: {said}{all_}")
    use = "not seen undisturbed" if found.load_to_use is None else f"{found.load_to_use:.2f} cycles"
    kinds = ", ".join(f"{figure} {ghz:.2f}" for figure, ghz in found.clocks.items())
    print(f"load to use {use}; clock by kind of code: {kinds}")
    print(f"by its behaviour, whatever CPUID says: {found.identity}")
    groups = found.ports.groups()
    said = "; ".join(f"{kind} {letters}" for kind, letters in groups.items()) if groups else "none explain them all"
    print(f"ports as pairs of instructions show them: {said}")
    print(f"written: {path}")
