"""`simdnn machines`: the tables of CPUs and GPUs, one of them in whole, and whether they are complete."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from isa_models import (
    GpuMachine,
    InvalidArgument,
    Machine,
    UnknownName,
    difference_file,
    gpu_machine_names,
    machine,
    machine_names,
)
from isa_models.errors import unknown_name
from isa_models.machines.figures import figure_rows
from isa_models.machines.provenance import CONFIDENCES
from isa_models.machines.shipped import HOST, host_path
from simdnn import files
from simdnn.assembly import TOOLS
from simdnn.assembly.export import machine_file
from simdnn.cli import output
from simdnn.cli.options import Takes, add_set, check, machine_with
from simdnn.late import pd

TAKES: Takes = {
    "list": frozenset({"json"}),
    "show": frozenset({"json", "instruction", "set"}),
    "check": frozenset({"json", "set"}),
    "save": frozenset({"set", "output"}),
    "export": frozenset({"set", "output", "tool"}),
}


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "machines",
        description="Lists the machines (rows: instructions of a CPU, figures of a GPU), shows the figures and rows of "
        "one with their sources, or checks tables: a row for every instruction of the package that the CPU's ISA caps "
        "bring, and a source for every figure; or saves one with other figures (--set) as a file, which is its base "
        "and what differs; or exports one's table as another tool reads it (--for). Exit status 1 where a check fails.",
    )
    parser.add_argument("what", choices=tuple(TAKES))
    parser.add_argument("names", nargs="*", metavar="MACHINE", help="names or files (all that ship)")
    parser.add_argument("--instruction", metavar="PATTERN", help="for show: rows of these mnemonics alone, as 'vpdp*'")
    parser.add_argument(
        "--for",
        dest="tool",
        choices=TOOLS,
        metavar="TOOL",
        help="for export: osaca (a file that it reads as ~/.osaca/data/NAME.yml for --arch NAME); llvm-mca has none",
    )
    add_set(parser)
    output.add_options(parser, "tables", "for save (FILE.toml), export: where to")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    check(args, args.what, TAKES)
    if args.what == "show" and not args.names:
        names = ", ".join((*machine_names(), *gpu_machine_names()))
        raise UnknownName(f"show needs a machine: one of {names}, or a file")
    kept = (HOST,) if args.what == "list" and host_path().is_file() else ()
    wanted = args.names or (*machine_names(), *kept, *gpu_machine_names())
    if args.what in ("export", "save"):
        return _write(args)
    targets = [machine(machine_with(name, args.set)) for name in wanted]
    if args.what == "check":
        return _check(targets, args.json)
    frame = listed(targets) if args.what == "list" else pd.concat([shown(one, args.instruction) for one in targets])
    if args.json:
        output.print_json(output.records(frame))
    else:
        print(output.table(frame))
    return 0


def _write(args: argparse.Namespace) -> int:
    """Save or export a machine, with other figures if asked for: as a file, or printed."""
    if len(args.names) != 1:
        met = ", ".join(args.names) or "none"
        raise InvalidArgument(f"{args.what} takes one machine, met {met}; e.g. simdnn machines {args.what} zen4")
    exports = args.what == "export"
    output.check_path(args.output, () if exports else (".toml",))
    target = machine(machine_with(args.names[0], args.set))
    text = machine_file(target, args.tool or TOOLS[0]) if exports else difference_file(target)
    if args.output:
        files.write_text(args.output, text)
    else:
        print(text, end="")
    return 0


def listed(targets: Sequence[Machine | GpuMachine]) -> pd.DataFrame:
    """One row a machine: cores, clock, how many instructions (of a GPU: figures) of which standing."""
    rows = []
    for one in targets:
        if isinstance(one, Machine):
            cores, ghz, standing = one.cores, one.frequency.base_ghz, [r.confidence for r in one.instructions.values()]
        else:
            cores, ghz, standing = one.stacks * one.xe_cores, one.ghz, [p.confidence for p in one.provenance.values()]
        rows.append(
            {"machine": one.name, "cores": cores, "base_ghz": ghz, "rows": len(standing)}
            | {confidence: standing.count(confidence) for confidence in CONFIDENCES}
            | {"title": one.title}
        )
    return pd.DataFrame(rows)


def shown(target: Machine | GpuMachine, pattern: str | None) -> pd.DataFrame:
    """Figures by dotted key, or rows of instructions, each with its source."""
    if pattern is None:
        return pd.DataFrame(figure_rows(target))
    if isinstance(target, GpuMachine):
        raise UnknownName(
            f"--instruction {pattern!r}: GPU {target.name!r} has rates and latencies by pipe, no rows of "
            f"instructions; simdnn machines show {target.name}"
        )
    rows = [row for row in target.instructions.values() if fnmatchcase(row.mnemonic, pattern.lower())]
    if not rows:
        known = {row.mnemonic for row in target.instructions.values()}
        lists = f"simdnn machines show {target.name} --instruction '*'"
        raise unknown_name(f"instruction on {target.name}", pattern, known, lists)
    return pd.DataFrame(
        [
            {
                "instruction": row.mnemonic,
                "form": row.form,
                "latency": row.latency,
                "slots": row.slots,
                "ports": " ".join("/".join(uop) for uop in row.uops) or "-",
                "occupancy": row.occupancy,
                "interval": row.interval,
                "confidence": row.confidence,
                "source": row.source,
            }
            for row in rows
        ]
    )


def _check(targets: Sequence[Machine | GpuMachine], as_json: bool) -> int:
    from simdnn.timing.gaps import gaps_of, without_source

    found: list[dict[str, Any]] = [
        {
            "machine": one.name,
            "rows": len(one.instructions if isinstance(one, Machine) else one.provenance),
            "gaps": [" ".join(key) for key in gaps_of(one)] if isinstance(one, Machine) else [],
            "without_source": without_source(one),
        }
        for one in targets
    ]
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
