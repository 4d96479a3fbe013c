"""Which options a command takes with which kind of argument: none is ignored, one that means nothing is refused."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from isa_models.errors import InvalidArgument, how_to_install
from isa_models.machines.variants import named
from simdnn.workers import MOST_ASKED, MOST_WORKERS

#: a kind of argument, in words, and the options that mean something with it, as argparse calls them
Takes = Mapping[str, frozenset[str]]
#: a parser, or a group of its options
Options = argparse.ArgumentParser | argparse._ArgumentGroup
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
            taking = [other.replace(f" with {option}", "") for other, names in takes.items() if name in names]
            whole = [other for other in taking if not any(other.startswith(f"{one} ") for one in taking)]
            raise InvalidArgument(f"{option} is for {' and '.join(dict.fromkeys(whole))}; it says nothing about {kind}")


SET = "another figure of the machine, by its key in the machine's file (core.dispatch_slots=8); any number of times"
_WORD = re.compile(r"[A-Za-z_]\w*")


def add_set(parser: Options) -> None:
    """The option `--set KEY=VALUE`, in `args.set`."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=SET)


def add_shape(parser: Options) -> None:
    """The option `--shape NAME=SIZES`, in `args.shape`."""
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="a model's input, or a size by its name (N=8), where the model leaves it open",
    )


def shapes_of(words: list[str]) -> dict[str, tuple[int, ...]]:
    """The sizes that `--shape` gives.

    >>> shapes_of(["x=1,3,8,8"])
    {'x': (1, 3, 8, 8)}
    """
    found = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        try:
            found[name] = tuple(int(part) for part in text.replace("x", ",").split(",") if part)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidArgument(f"--shape {word!r}; NAME=1,3,224,224 is needed")
    return found


def taken_as_1(names: Sequence[str]) -> str:
    """The message about sizes that the model leaves open.

    >>> taken_as_1(["N", "T"])
    '; N = T = 1, which the model leaves open (--shape)'
    """
    from simdnn.networks.feeds import left_open

    return f"; {left_open(names)} (--shape)" if names else ""


def figures(words: Iterable[str]) -> dict[str, Any]:
    """The changes of `--set`: figures of a machine by dotted key, values as TOML has them (a word may lack its quotes).

    >>> figures(["core.dispatch_slots=8", 'instructions.vpdp*.uops=[["FP0"]]', "core.binding=pairs"])
    {'core.dispatch_slots': 8, 'instructions.vpdp*.uops': [['FP0']], 'core.binding': 'pairs'}
    """
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not key or not equals:
            raise InvalidArgument(f"--set {word[:80]!r}; KEY=VALUE is needed, e.g. core.dispatch_slots=8")
        if key in found:
            raise InvalidArgument(f"--set {key[:80]} is given twice")
        try:
            (found[key],) = tomllib.loads(f"value = {value}").values()
        except (ValueError, RecursionError):
            if not _WORD.fullmatch(value):
                raise InvalidArgument(
                    f'--set {key[:80]}={value[:80]}; a value as TOML has it is needed: 8, 1.5, true, "text", [1, 2]'
                ) from None
            found[key] = value
    return found


def machine_with(machine: str, words: Iterable[str]) -> str:
    """The name of a machine with the figures of `--set`.

    >>> machine_with("zen4", ["core.dispatch_slots=8"])
    'zen4 with core.dispatch_slots = 8'
    """
    try:
        return named(machine, figures(words))
    except TypeError:  # a date, a time
        raise InvalidArgument("--set: numbers, texts, true and false, and lists of them are needed") from None


def check_model(name: str, known: Iterable[str], tables: bool = False) -> None:
    """`InvalidArgument` for what is not known, and is written as the name of a file that is no model's; `tables`: those
    of layers are taken, too, whatever they are called in another folder.
    """
    taken = (".onnx", ".csv") if tables else (".onnx",)
    path = Path(name)
    if name in known or not path.suffix or path.suffix.lower() in taken or tables and len(path.parts) > 1:
        return
    from simdnn.networks.load import instead

    files = "MODEL.onnx or LAYERS.csv" if tables else "MODEL.onnx"
    raise InvalidArgument(f"{name[:80]!r} is no name (`simdnn list workloads`), and not {files}{instead(path)}")


def standard_input() -> BinaryIO:
    """The bytes of standard input; `InvalidArgument` where the caller has closed it."""
    if sys.stdin is None:
        raise InvalidArgument("standard input is closed; a file's name is needed, or a pipe")
    return sys.stdin.buffer


def comma_list(text: str) -> list[str]:
    """The words between commas.

    >>> comma_list("f32, bf16")
    ['f32', 'bf16']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def add_workers(parser: argparse.ArgumentParser) -> None:
    """The options `--jobs N` and `--dask ADDRESS`: who does the work."""
    parser.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help=f"worker processes (where there is much to do, as many as processors, up to {MOST_WORKERS})",
    )
    parser.add_argument(
        "--dask",
        default="",
        metavar="ADDRESS",
        help=f"a Dask scheduler to work instead, as tcp://host:8786 ({how_to_install('dask')})",
    )


def check_workers(args: argparse.Namespace) -> None:
    """`InvalidArgument` where both are given."""
    if args.dask and args.jobs:
        raise InvalidArgument("--jobs is for workers on this host; those of --dask are its scheduler's")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MOST_ASKED):
        raise argparse.ArgumentTypeError(f"{text[:40]!r}; an integer from 1 to {MOST_ASKED} is needed")
    return int(text)
