"""Commands whose words argparse leaves alone, because they have a syntax of their own."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

Main = Callable[[argparse.ArgumentParser, argparse.Namespace], int]


def add(subparsers: Any, name: str, main: Main, **texts: str) -> None:
    """Describe a command whose words `main` reads by itself, from `args.words`; `texts`: argparse's usage and so on."""
    parser = subparsers.add_parser(
        name,
        add_help=False,
        prefix_chars="\0",  # no word is an option to argparse
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **texts,
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(function=functools.partial(main, parser))
