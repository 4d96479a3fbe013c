"""The command line: `simdnn COMMAND …`. Each command is a module with `add(subparsers)`, which names its function."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from isa_models import InvalidArgument, SimdnnError, UnknownName
from simdnn import verbose
from simdnn.cli import analyze, bench, calibrate, explain, fetch, inspect, listing, machines, run, study, verify
from simdnn.result import version

COMMANDS = (run, study, bench, analyze, explain, inspect, listing, machines, verify, calibrate, fetch)


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line on standard error and exit status 2."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, 1 where something failed, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        return _main(argv)
    except BrokenPipeError:  # the reader of the output has seen enough
        _drop_output()
        return 0
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    if any("\0" in word for word in words):
        parser.error("an argument holds a NUL character")
    if not words:
        parser.print_help(sys.stderr)
        return 2
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(_unrecognized(unknown, args.options))
    try:
        with verbose.apart("--json" in words):
            status: int = args.function(args)
        print(end="", flush=True)  # so that a reader gone or a full disk shows here, not at exit
        return status
    except BrokenPipeError:
        raise
    except (UnknownName, InvalidArgument) as error:
        _complain(str(error))
        return 2
    except (SimdnnError, OSError, MemoryError) as error:
        _complain(str(error) or type(error).__name__)
        _drop_output()
        return 1


def _drop_output() -> None:
    """What standard output cannot take goes nowhere; else the flush at exit complains again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="simdnn",
        description="What number comes out of a deep-learning kernel on modelled hardware, and how long it takes.",
        epilog="To begin with: simdnn run digits, simdnn list, simdnn COMMAND --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"simdnn {version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for command in COMMANDS:
        command.add(subparsers)
    for subparser in subparsers.choices.values():
        subparser.set_defaults(options=[word for action in subparser._actions for word in action.option_strings])
    return parser


def _unrecognized(words: Sequence[str], options: Iterable[str]) -> str:
    """What to say of words that a command does not know; the nearest option, where one looks like it."""
    said = f"unrecognized arguments: {' '.join(words)}"
    met = words[0].partition("=")[0]
    near = difflib.get_close_matches(f"--{met.strip('-')}", options, n=1) if met.startswith("-") else []
    return f"{said}: did you mean {near[0]}?" if near else said


def _complain(message: str) -> None:
    if sys.stderr is not None:  # closed by the caller
        print(f"simdnn: error: {' '.join(message.split())}", file=sys.stderr)
