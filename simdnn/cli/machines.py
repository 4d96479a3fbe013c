"""`simdnn machines`: the CPUs' tables, one of them in whole, and whether they are complete."""

from __future__ import annotations

import argparse
import re
from typing import Any

import pandas as pd

from isa_models import SimdnnError, UnknownName
from isa_models.machine import CONFIDENCES, HOST, Machine, host_path, machine, machine_names
from simdnn.cli import output


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "machines",
        help="tables of CPUs: list, show, check",
        description="Lists the CPUs, shows the figures and rows of one with their sources, or checks tables: a row for "
        "every instruction of the package that the machine's ISA caps bring, and a source for every figure. Exit "
        "status 1 where a check fails.",
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("list", "show", "check"))
    parser.add_argument("names", nargs="*", metavar="MACHINE", help="names or files (all that ship)")
    parser.add_argument("--instruction", metavar="PATTERN", help="for show: rows whose mnemonic matches alone")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of tables")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    if args.what == "show" and not args.names:
        raise UnknownName(f"show needs a machine: one of {', '.join(machine_names())}, or a file")
    kept = (HOST,) if host_path().is_file() else ()
    targets = [machine(name) for name in args.names or (*machine_names(), *(kept if args.what == "list" else ()))]
    if args.what == "check":
        return _check(targets, args.json)
    frame = listed(targets) if args.what == "list" else pd.concat([shown(one, args.instruction) for one in targets])
    if args.json:
        output.print_json(output.records(frame))
    else:
        print(output.table(frame))
    return 0


def listed(targets: list[Machine]) -> pd.DataFrame:
    """One row a machine: cores, clock, how many rows of which standing."""
    rows = []
    for one in targets:
        standing = [row.confidence for row in one.instructions.values()]
        rows.append(
            {"machine": one.name, "cores": one.cores, "base_ghz": one.frequency.base_ghz, "rows": len(standing)}
            | {confidence: standing.count(confidence) for confidence in CONFIDENCES}
            | {"title": one.title}
        )
    return pd.DataFrame(rows)


def shown(target: Machine, pattern: str | None) -> pd.DataFrame:
    """Figures by dotted key, or rows of instructions, each with its source."""
    if pattern is None:
        figures = {key: p for key, p in target.provenance.items() if not key.startswith("instructions.")}
        return pd.DataFrame(
            [{"figure": key, "confidence": p.confidence, "source": p.source} for key, p in figures.items()]
        )
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise SimdnnError(f"--instruction {pattern!r} is no pattern: {error}") from None
    rows = [row for row in target.instructions.values() if wanted.fullmatch(row.mnemonic)]
    if not rows:
        raise UnknownName(f"machine {target.name!r} has no row of an instruction {pattern!r}")
    return pd.DataFrame(
        [
            {"instruction": row.mnemonic, "form": row.form, "latency": row.latency, "slots": row.slots,
             "ports": " ".join("/".join(uop) for uop in row.uops) or "-", "occupancy": row.occupancy,
             "interval": row.interval, "confidence": row.confidence, "source": row.source}
            for row in rows
        ]
    )  # fmt: skip


def _check(targets: list[Machine], as_json: bool) -> int:
    from simdnn.timing.gaps import gaps_of, without_source

    found: list[dict[str, Any]] = [
        {"machine": one.name, "rows": len(one.instructions), "gaps": [" ".join(key) for key in gaps_of(one)],
         "without_source": without_source(one)}
        for one in targets
    ]  # fmt: skip
    if as_json:
        output.print_json(found)
    else:
        counts = [{key: len(v) if isinstance(v, list) else v for key, v in one.items()} for one in found]
        print(output.table(pd.DataFrame(counts)))
        for one in found:
            for key in ("gaps", "without_source"):
                for item in one[key]:
                    print(f"{one['machine']}: {key.replace('_', ' ')}: {item}")
    return 1 if any(one["gaps"] or one["without_source"] for one in found) else 0
