"""`simdnn verify`: this host's own instructions against the models, and its cycles against a machine's clock."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument, SimdnnError
from simdnn.cli import output
from simdnn.cli.options import Takes, add_set, check, machine_with
from simdnn.late import pd
from simdnn.progress import shown

if TYPE_CHECKING:
    from isa_models.machines.cpu_record import Machine

SAMPLES = 15  # quiet ones, of each kernel


TAKES: Takes = {
    "instructions": frozenset({"json", "all"}),
    "--timing": frozenset({"json", "timing", "threads", "machine", "set", "only", "output"}),
}


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "verify",
        description="Runs every modelled instruction that this host's CPU has, and compares each bit with the model. "
        "Exit status 1 on any mismatch, which is then told.",
    )
    parser.add_argument("pattern", nargs="?", metavar="PATTERN", help="only instructions like this, as 'vpdp*' (all)")
    parser.add_argument("--all", action="store_true", help="a line for each instruction and width")
    parser.add_argument(
        "--timing",
        action="store_true",
        help="instead: the package's compiled kernels on this host, measured beside predicted (minutes)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="with --timing: on N threads too, each pinned to a core of its own, and what they gain over one (1)",
    )
    parser.add_argument(
        "--machine", help="with --timing: whose clock, a name or file (the machine that this host behaves like)"
    )
    add_set(parser)
    parser.add_argument("--only", default="", metavar="TEXT", help="with --timing: rows whose shape and kernel hold it")
    output.add_options(parser, file="with --timing: a picture (.png …) or the table (.csv)")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    check(args, "--timing" if args.timing else "instructions", TAKES)
    if args.timing and args.pattern:
        raise InvalidArgument(f"{args.pattern!r} is for instructions; --only {args.pattern} picks rows of --timing")
    if args.timing:
        return _timing(args)
    from simdnn.calibration.hostcheck import check_host

    frame = check_host(pattern=args.pattern or "*")
    if args.json:
        output.print_json(output.records(frame))
    else:
        told = frame if args.all else frame[frame["mismatches"] > 0]
        if len(told):
            print(output.table(told), end="\n\n")
        print(", ".join(f"{count} {status}" for status, count in frame["status"].value_counts(sort=False).items()))
    return 1 if (frame["mismatches"] > 0).any() else 0


def _timing(args: argparse.Namespace) -> int:
    """Measured beside predicted cycles of the compiled kernels."""
    from simdnn.calibration import cores, kernels, scaling

    if args.threads < 1:
        raise InvalidArgument(f"--threads {args.threads}: 1 or more, each on a core of its own")
    if args.threads > 1:
        cores.chosen(args.threads)  # refuses before minutes go by
    output.check_path(args.output, (".csv", *output.PICTURE_FORMATS))
    target, host = _whose(args)
    if not kernels.wanted(target, args.only):
        raise InvalidArgument(f"--only {args.only!r}: no shape and kernel of {target.name} hold it")
    with shown() as progress:
        if args.threads > 1:
            pinned = scaling.where(args.threads)
            frame = scaling.compare(target, args.threads, SAMPLES, args.only, progress)
        else:
            frame = kernels.compare(target, SAMPLES, args.only, progress)
    here = "measured" in frame
    if args.json:
        output.print_json(output.records(frame.assign(machine=target.name)))
    else:
        print(f"cycles: predicted by the clock of {target.name}, measured on this host\n{host}\n")
        print(output.table(frame, _formats(frame)))
        summary = scaling.summary if args.threads > 1 else kernels.summary
        print(f"\n{summary(frame)}" if here else "\nthis host has none of these kernels' instructions")
        if args.threads > 1:
            print(pinned)
    if args.output and args.output.suffix.lower() == ".csv":
        output.write(args.output, frame.assign(machine=target.name), {})
    elif args.output and here:
        from simdnn import plot  # matplotlib takes a second to load

        drawn = scaling.drawn if args.threads > 1 else kernels.drawn
        plot.save(drawn(frame, target.name).axes[0], args.output)
    return 0


def _whose(args: argparse.Namespace) -> tuple[Machine, str]:
    """The machine whose clock predicts, by default the one that this host behaves like; and what it is to this host."""
    from isa_models.machines.loader import cpu_machine
    from simdnn.calibration import sampler
    from simdnn.calibration.identity import identify

    named = cpu_machine(machine_with(args.machine, args.set)) if args.machine else None
    if named and not sampler.available():
        return named, "this host times no loops, so that nothing tells which machine it is"
    try:
        with shown() as progress:
            host = identify(progress)
    except SimdnnError as error:
        if not named:
            raise
        return named, str(error).partition(";")[0]
    target = named or cpu_machine(machine_with(host.machine.name, args.set))
    return target, host.beside(target)


def _formats(frame: pd.DataFrame) -> dict[str, Callable[..., str]]:
    cycles = ("predicted", "measured", "predicted_alone", "measured_alone", "quiet")
    decimals = {"macs_per_cycle": 1, "predicted_macs_per_cycle": 1} | dict.fromkeys(cycles, 0)
    numbers = frame.select_dtypes("number").columns
    return {name: f"{{:.{decimals.get(name, 2)}f}}".format for name in numbers} | {"spread": "{:.1%}".format}
