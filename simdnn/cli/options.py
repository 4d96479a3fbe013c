"""Which options a command takes with which kind of argument: none is ignored, one that means nothing is refused."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence

from isa_models.errors import InvalidArgument

#: a kind of argument, in words, and the options that mean something with it, as argparse calls them
Takes = Mapping[str, frozenset[str]]
#: options that name a file to write
WRITING = frozenset({"output", "plot", "pictures"})


def given(options: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    """The options among `words`, as written, by argparse's names; `options` has those names by what may be written.

    >>> given({"-o": "output", "--output": "output", "--plot": "plot"}, ["x", "-ofile", "--plot=y"])
    {'output': '-o', 'plot': '--plot'}
    """
    found = {}
    for word in words:
        name = word.partition("=")[0]
        short = word[:2]
        if name in options:
            found[options[name]] = name
        elif short in options and short != "--":
            found[options[short]] = short
    return found


def check(args: argparse.Namespace, kind: str, takes: Takes) -> None:
    """`InvalidArgument` for an option that a kind of argument does not take, naming the kinds that do."""
    for name, option in args.given.items():
        if name == "force":
            if not WRITING & args.given.keys():
                raise InvalidArgument("--force is for files that are written; it says nothing without one")
        elif name not in takes[kind]:
            raise InvalidArgument(f"{option} is for {' and '.join(_taking(name, takes))}; it says nothing about {kind}")


def _taking(name: str, takes: Takes) -> Iterable[str]:
    return (kind for kind, names in takes.items() if name in names)
