"""`simdnn verify`: this host's own instructions against the models."""

from __future__ import annotations

import argparse
from typing import Any

from simdnn.cli import output


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "verify",
        help="this host's own instructions against the models",
        description="Runs every modelled instruction that this host's CPU has, and compares each bit with the model. "
        "Exit status 1 on any mismatch.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    from simdnn.hostcheck import check_host

    frame = check_host()
    if args.json:
        output.print_json(output.records(frame))
    else:
        print(output.table(frame))
        counts = frame["status"].value_counts(sort=False)
        print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if (frame["mismatches"] > 0).any() else 0
