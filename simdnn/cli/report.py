"""`simdnn report`: one page of a result, in one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from simdnn.cli import output


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "report",
        description="Writes one page of a result: its tables, the pictures that suit it, and where every figure comes "
        "from. The file fetches nothing from elsewhere.",
        epilog="RESULT is what simdnn run, study or bench wrote with -o FILE.json, or a study's own FILE.jsonl.",
    )
    parser.add_argument("result", type=Path, metavar="RESULT", help="a file of results")
    page = "the page (RESULT's name, with .html behind it)"
    output.add_options(parser, instead_of="", file=page, metavar="FILE.html")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    from simdnn.reporting.pages import report  # pandas takes a second to load

    path = args.output or args.result.with_suffix(".html")
    output.check_path(path, (".html", ".htm"))
    output.check_drawing()
    print(f"report: {report(args.result, path)}")
    return 0
