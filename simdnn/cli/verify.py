"""`simdnn verify`: this host's own instructions against the models, and its cycles against a machine's clock."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from isa_models import InvalidArgument
from simdnn.cli import output

SAMPLES = 15  # quiet ones, of each kernel


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "verify",
        help="this host's own instructions against the models",
        description="Runs every modelled instruction that this host's CPU has, and compares each bit with the model. "
        "Exit status 1 on any mismatch.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--timing", action="store_true",
        help="instead: the package's compiled kernels on this host, measured beside predicted (a minute and more)",
    )  # fmt: skip
    parser.add_argument("--machine", default="zen4", help="with --timing: whose clock, a name or file (zen4)")
    parser.add_argument("--only", default="", help="with --timing: rows whose shape and kernel hold this text")
    parser.add_argument("-o", "--output", type=Path, help="with --timing: a picture (.png …) or the table (.csv)")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    if args.timing:
        return _timing(args)
    if args.output or args.only:
        raise InvalidArgument("-o and --only belong to --timing")
    from simdnn.hostcheck import check_host

    frame = check_host()
    if args.json:
        output.print_json(output.records(frame))
    else:
        print(output.table(frame))
        counts = frame["status"].value_counts(sort=False)
        print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if (frame["mismatches"] > 0).any() else 0


def _timing(args: argparse.Namespace) -> int:
    """Measured beside predicted cycles of the compiled kernels."""
    from isa_models.machine import machine
    from simdnn.calibration.kernels import compare, drawn, problems, summary

    output.check_path(args.output, (".csv", *output.PICTURE_FORMATS))
    if not any(args.only in f"{shape} {variant.name}" for shape, variant, _ in problems()):
        raise InvalidArgument(f"--only {args.only!r}: no shape and kernel hold it")
    with output.Progress() as progress:
        frame = compare(machine(args.machine), SAMPLES, args.only, progress)
    if args.json:
        output.print_json(output.records(frame))
    else:
        decimals = {"predicted": 0, "measured": 0, "quiet": 0, "macs_per_cycle": 1, "predicted_macs_per_cycle": 1}
        numbers = frame.select_dtypes("number").columns
        formats = {name: f"{{:.{decimals.get(name, 2)}f}}".format for name in numbers} | {"spread": "{:.1%}".format}
        print(output.table(frame, formats))
        print(f"\n{summary(frame)}" if "measured" in frame else "\nthis host has none of these kernels' instructions")
    if args.output and args.output.suffix.lower() == ".csv":
        output.write(args.output, frame, None)
    elif args.output and "measured" in frame:
        drawn(frame, args.machine).savefig(args.output, dpi=150)
    return 0
