"""`simdnn teach`: instructions, kernels and machines in a browser, served on this host alone or written as files."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path
from typing import Any

from isa_models import InvalidArgument

PORT = 8733


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "teach",
        description="Opens a page on this host's loopback address: type numbers into an instruction and see its bits; "
        "see a kernel's registers and its pipeline step by step, and move the machine's figures; put two "
        "configurations side by side. Nothing is fetched from a network. Ctrl-C ends it.",
    )
    parser.add_argument("--port", type=int, metavar="N", help=f"where it listens ({PORT}); 0 for any free one")
    parser.add_argument("--no-browser", action="store_true", help="tell the address, and open nothing")
    parser.add_argument("--export", type=Path, metavar="DIR", help="write what needs no server into a folder, and end")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    if args.export is not None:
        if args.port is not None or args.no_browser:
            raise InvalidArgument("--export writes files and serves nothing; --port and --no-browser say nothing there")
        from simdnn.teach.export import export

        print(f"{export(args.export)} pages in {args.export}; begin with {args.export / 'index.html'}")
        return 0
    port = PORT if args.port is None else args.port
    if not 0 <= port < 1 << 16:
        raise InvalidArgument(f"--port {port}; 0 to 65535 are ports")
    from simdnn.teach.server import serve

    def opened(address: str) -> None:
        print(f"{address} (Ctrl-C ends it)", flush=True)
        if not args.no_browser and not webbrowser.open(address):
            print("no browser was found; open the address in one", file=sys.stderr)

    serve(port, opened)
    return 0
