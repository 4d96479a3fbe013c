"""`simdnn lint MODEL --isa CAP,…`: each node's kernel, references, saturation; exit status 1 for those named."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from isa_models import InvalidArgument
from isa_models.errors import counted, some, unknown_name
from simdnn.cli import output
from simdnn.cli.options import add_set, add_shape, comma_list, machine_with, shapes_of, taken_as_1
from simdnn.late import pd
from simdnn.libraries import LIBRARIES, versions

FINDINGS = ("reference", "saturates", "inexact", "refused")
EPILOG = """\
columns
  reference        the library leaves the node to its reference implementation, many times slower than what it has \
else (cycles are those of the kernel that yields its bits here)
  saturates        some input makes pairs of products exceed 16 bits: yes (one was run), no (none can), - (cannot be \
told, as weights are not known)
  inexact          integers saturate, lose bits of halved weights, or round: yes, no, - (cannot be told, or no integers)
  fastest          the mode that takes the fewest cycles at this node, on this machine, under this cap
  in --json and -o also
  fastest_isa, fastest_isa_cycles
                   the ISA cap among those asked for under which the node takes the fewest cycles in that mode
  plain_tag, plain_cycles
                   the node's cycles where its weights come in a plain layout (the better one) and are packed each time

Rows of nodes without products (views, element-wise ones) are in --json and -o; here they are counted.
Exit status: 0; 1 where --fail-on or --slower-than finds something, or something failed; 2 for wrong usage."""


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "lint",
        description="Says node by node which kernel runs under each ISA cap or on each machine, whether that is a "
        "reference implementation, whether int8 saturates or rounds there, and which type is fastest. Nothing is "
        "computed but what int8 modes take their ranges from.",
        epilog=EPILOG,
    )
    parser.add_argument("model", metavar="MODEL", help="a MODEL.onnx, or a layer table of `simdnn list workloads`")
    parser.add_argument("--isa", type=comma_list, metavar="CAP,…", help="ISA caps: avx2,avx512_core,avx512_core_vnni")
    parser.add_argument(
        "--machine", type=comma_list, metavar="NAME,…", help="machines (zen4, or with --isa one that has all the caps)"
    )
    add_set(parser)
    parser.add_argument(
        "--modes", type=comma_list, metavar="MODE,…", help="precision modes (those that make sense there)"
    )
    parser.add_argument(
        "--dispatch",
        choices=(*LIBRARIES, "fastest"),
        default="onednn",
        help=f"how kernels are picked: as {versions()} does, or by estimated cycles (onednn; GPUs: fastest)",
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of a kernel (1)")
    add_shape(parser)
    parser.add_argument("--feeds", type=Path, metavar="FILE.npz", help="inputs that int8 modes are calibrated with")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="of data that are drawn in their place (0)")
    parser.add_argument(
        "--fail-on",
        type=comma_list,
        default=[],
        metavar="WHAT,…",
        help=f"exit status 1 where a row is one of {', '.join(FINDINGS)}",
    )
    parser.add_argument(
        "--slower-than",
        type=float,
        metavar="FACTOR",
        help="exit status 1 where a row takes more than so many times the cycles of the fastest mode at its node",
    )
    output.add_options(parser)
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    from simdnn.networks.lint import lint, machines_for

    for what in args.fail_on:
        if what not in FINDINGS:
            raise unknown_name("finding", what, FINDINGS)
    if args.slower_than is not None and not args.slower_than >= 1:
        raise InvalidArgument(f"--slower-than {args.slower_than}; a number of at least 1 is needed")
    if "force" in args.given and args.output is None:
        raise InvalidArgument("--force is for files that are written; it says nothing without one")
    output.check_path(args.output, output.FILE_FORMATS)
    feeds = None
    if args.feeds is not None:
        from simdnn.cli.run_kinds import read_feeds
        from simdnn.networks.network import load

        feeds = read_feeds(args.feeds, load(args.model))
    frame = lint(
        args.model,
        machine=[machine_with(name, args.set) for name in machines_for(args.machine, args.isa or [])],
        isa=args.isa,
        modes=args.modes,
        dispatch=args.dispatch,
        feeds=feeds,
        shapes=shapes_of(args.shape),
        threads=args.threads,
        seed=args.seed,
    )
    found = failures(frame, args.fail_on, args.slower_than)
    about = {str(key): value for key, value in frame.attrs.items()}
    frame = frame.drop(columns="witness")
    content = {"model": args.model, **about, "rows": output.records(frame), "failures": output.records(found)}
    if args.output:
        output.write(args.output, frame, content)
    if args.json:
        output.print_json(content)
    else:
        _print(args.model, frame, about, found)
    return 1 if len(found) else 0


def failures(frame: pd.DataFrame, what: list[str], slower_than: float | None) -> pd.DataFrame:
    """Rows that are one of `what`, or slower than a factor of the fastest mode: node, machine, isa, mode, finding."""
    rows = []
    for row in frame.to_dict("records"):
        met = [name for name in what if (row["implementation"] == name if name == "refused" else row[name] is True)]
        factor = row["cycles"] / row["fastest_cycles"] if row["fastest_cycles"] else 1.0
        if slower_than is not None and factor > slower_than:
            met.append(f"{factor:.1f} times the cycles of {row['fastest_mode']}")
        place = {name: row[name] for name in ("node", "machine", "isa", "mode")}
        rows += [{**place, "finding": finding} for finding in met]
    return pd.DataFrame(rows, columns=["node", "machine", "isa", "mode", "finding"])


def _print(model: str, frame: pd.DataFrame, about: dict[str, Any], found: pd.DataFrame) -> None:
    rules = ", ".join(f"{name} (dispatch {rule})" for name, rule in about["dispatch"].items())
    print(f"{model} on {rules}{taken_as_1(about['taken_as_1'])}\n")
    from simdnn.networks.onnx_rewriting import PRODUCTS

    product = (frame["macs"] > 0) | frame["op"].isin(PRODUCTS) & (frame["implementation"] != "constant")
    told = frame[product | frame["reference"] | (frame["implementation"] == "refused")]
    shown = told.assign(**{name: told[name].map(_word) for name in ("reference", "saturates", "inexact")})
    columns = ["node", "op", "machine", "isa", "mode", "implementation", "reference", "saturates", "inexact", "cycles"]
    shown = shown[columns].assign(fastest=told["fastest_mode"])
    alike = shown["machine"].nunique() == 1
    print(output.table(shown.drop(columns="machine") if alike else shown, {"cycles": "{:.0f}".format}))
    rest = len(set(frame["node"]) - set(told["node"]))
    if rest:
        print(f"\n{counted(rest, 'node')} without products: --json and -o have them")
    elif len(told):
        print()
    for text, part in told[told["note"] != ""].groupby("note", sort=False):
        nodes = [output.legible(name) for name in dict.fromkeys(part["node"])]
        places = dict.fromkeys(f"{mode} under {isa}" for mode, isa in zip(part["mode"], part["isa"], strict=True))
        print(f"{some(nodes)}, {', '.join(places)}: {text}")
    for name, reason in about["left_out"].items():
        print(f"{name}: left out, {reason}")
    if len(found):
        print("\nfailures\n" + output.table(found))


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, "-")
