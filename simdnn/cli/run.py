"""`simdnn run`: a workload on a machine in several precision modes, speed and error of each."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import isa_models
import workloads
from isa_models import InvalidArgument
from simdnn import study
from simdnn.cli import output, run_onnx, run_real
from simdnn.cli.options import Takes, check
from simdnn.exactness import measures
from simdnn.libraries import LIBRARIES
from simdnn.networks.precision import MODES, choose
from simdnn.workers import MOST_WORKERS
from workloads import RealNetwork

_MODES = "\n".join(f"  {mode.name:20}  {mode.title}" for mode in MODES.values())
EPILOG = f"""\
modes (where none is named, those before f16 that the machine has; GPUs: f16, too)
{_MODES}

columns
  cycles, time_us   of one occurrence of a layer; in the totals, of all
  gops, gb_s        1 MAC is 2 operations; inputs and outputs once each, over the time
  peak              share of one core's multiply-accumulates in the mode
  max_abs, sqnr_db  error against the f32 mode on the same seeded data; in the totals, of a network's outputs
  worst_sqnr_db     in the totals: of the layer that is worst
  saturated         outputs that met a saturating step on the way to the accumulator (pairs of products in 16 bits)
  halved, rounded, wrapped, clipped
                    outputs that left exact integers otherwise, where some did: weights halved (s8 convolutions without
                    VNNI), sums beyond 2**24 brought to f32, beyond 32 bits, and beyond the destination's type
  confidence        the weakest standing of any machine figure used: measured, documented, estimated

Exit status: 0; 1 where a layer was refused or something failed; 2 for wrong usage."""

#: kinds of departure that are shown where there are some
RARE = tuple(column.removesuffix("_outputs") for column in measures.DEPARTURE_COLUMNS if column != "saturated_outputs")
SHOWN = (
    "layer",
    "count",
    "mode",
    "implementation",
    "cycles",
    "cycles_mb1",
    "time_us",
    "gops",
    "gb_s",
    "bound",
    "share_of_peak",
    "max_abs_error",
    "sqnr_db",
    "saturated_share",
    *(f"{kind}_share" for kind in RARE),
)
SHOWN_TOTALS = (
    "mode",
    "accuracy",
    "speed_up",
    "cycles",
    "cycles_mb1",
    "time_us",
    "gops",
    "gb_s",
    "bound",
    "share_of_peak",
    "max_abs_error",
    "sqnr_db",
    "worst_layer_sqnr_db",
    "saturated_outputs",
    "saturated_share",
    *(f"{kind}_outputs" for kind in RARE),
    "confidence",
)
HEADINGS = {
    "share_of_peak": "peak",
    "max_abs_error": "max_abs",
    "saturated_share": "saturated",
    "saturated_outputs": "sat_outputs",
    "worst_layer_sqnr_db": "worst_sqnr_db",
    **{f"{kind}_share": kind for kind in RARE},
}
FORMATS: dict[str, Callable[[Any], str]] = {
    "cycles": "{:.0f}".format,
    "cycles_mb1": "{:.0f}".format,
    "time_us": lambda us: f"{us:.1f}" if us >= 1 else f"{us:.3g}",
    "gops": "{:.1f}".format,
    "gb_s": "{:.1f}".format,
    "peak": "{:.0%}".format,
    "max_abs": "{:.2g}".format,
    "sqnr_db": "{:.1f}".format,
    "worst_sqnr_db": "{:.1f}".format,
    **dict.fromkeys(("saturated", *RARE), lambda share: "<0.01%" if 0 < share < 0.0001 else f"{share:.2%}"),
    "sat_outputs": "{:.0f}".format,
    **{f"{kind}_outputs": "{:.0f}".format for kind in RARE},
    "accuracy": "{:.2%}".format,
    "speed_up": "{:.2f}".format,
}


_ALWAYS = frozenset({"machine", "isa", "modes", "threads", "dispatch", "json", "output"})
_TABLE = _ALWAYS | {"layers", "fpmath_layers", "no_values", "plot"}
_REAL = _ALWAYS | {"samples", "seed", "plot"}
TAKES: Takes = {
    "layer tables": _TABLE | {"seed"},
    "layer tables with --no-values": _TABLE,
    "networks that classify labelled data": _ALWAYS | {"fpmath_layers", "plot"},
    "MODEL.onnx": _ALWAYS | {"no_values", "shape", "seed"},
    "MODEL.onnx with --feeds": _ALWAYS | {"no_values", "feeds"},
    "MODEL.onnx with --no-values": _ALWAYS | {"no_values", "shape"},
    "fetched networks": _REAL,
    "fetched networks that make pictures": _REAL | {"pictures"},
    "fetched language models": _REAL,
    "fetched language models with --prompt": _ALWAYS - {"json", "output"} | {"prompt"},
}


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "run",
        description="Runs each layer of a workload in each precision mode: cost on the modelled machine, and values.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        help="a name of `simdnn list workloads`, a layer table.csv, "
        f"a MODEL.onnx, or, once fetched, {', '.join(workloads.REAL_NETWORKS)} (minilm "
        "with --no-values: the layer table of that name)",
    )
    parser.add_argument("--machine", default="zen4", help="a name of `simdnn list machines`, or machine.toml (zen4)")
    parser.add_argument("--isa", help="ISA cap: kernels beyond it are not used (the machine's own)")
    parser.add_argument("--modes", type=_words, metavar="MODE,…", help="some of those below, as f32,int8-vnni")
    parser.add_argument("--layers", default="*", metavar="PATTERN", help="only layers of that name, as 'layer3.*'")
    parser.add_argument(
        "--fpmath-layers",
        default="*",
        metavar="PATTERN,…",
        help="in math modes, which layers are in the mode; the others stay strict, as with 'conv*' (all)",
    )
    parser.add_argument("--threads", type=_integer(1, 1024), default=1, metavar="N", help="threads of a kernel (1)")
    parser.add_argument("--no-values", action="store_true", help="cost alone; nothing is computed")
    parser.add_argument(
        "--dispatch",
        choices=("fastest", *LIBRARIES),
        default="fastest",
        help="how kernels are picked: by estimated cycles, or as oneDNN 3.13 does (fastest)",
    )
    seed = _integer(0, 2**32 - 1)
    parser.add_argument("--seed", type=seed, metavar="N", default=0, help="of data that are drawn (0)")
    counts = ", ".join(f"{network.name}: {network.count}" for network in workloads.REAL_NETWORKS.values())
    parser.add_argument(
        "--samples", type=_integer(1, 5000), metavar="N", help=f"how many a fetched network is judged by ({counts})"
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="of an ONNX model's input that has no fixed one",
    )
    parser.add_argument("--feeds", type=Path, metavar="FILE.npz", help="an ONNX model's inputs (random ones)")
    output.add_force(parser)
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of the table")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="also write FILE.csv, .json or .parquet")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw accuracy against speed (with --no-values: time of each layer) into FILE.png, .pdf or .svg",
    )
    parser.add_argument("--prompt", metavar="TEXT", help="what a language model writes on after, in f32 or --modes")
    parser.add_argument("--pictures", type=Path, metavar="FILE", help="pictures that a network makes, side by side")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command: checks what can be checked first, runs, writes."""
    network = workloads.REAL_NETWORKS.get(args.workload)
    if network and args.no_values and args.workload in workloads.names():
        network = None  # the layer table of that name
    check(args, _kind(args, network), TAKES)
    if network:
        return run_real.main(args, network)
    if _is_model(args):
        return run_onnx.main(args)
    output.check_path(args.output, output.FILE_FORMATS)
    output.check_path(args.plot, output.PICTURE_FORMATS)
    modes, lacking = choose(isa_models.machine(args.machine), args.modes, args.isa)
    if "fpmath_layers" in args.given and not any(mode.fpmath for mode in modes):
        names = ", ".join(name for name, mode in MODES.items() if mode.fpmath)
        raise InvalidArgument(f"--fpmath-layers without a math mode among the modes: --modes with one of {names}")
    with output.Progress() as progress:
        layers = _network(args, progress) if _is_network(args) else _table(args, progress)
    totals = study.totals(layers)
    notes = [f"{mode.name}: left out, {reason}" for mode, reason in lacking.items()]
    content = {
        "workload": args.workload,
        "machine": args.machine,
        "layers": output.records(layers),
        "totals": output.records(totals),
        "left_out": {mode.name: reason for mode, reason in lacking.items()},
    }
    if args.output:
        output.write(args.output, pd.concat([layers, totals], ignore_index=True), content)
    if args.plot:
        _draw(args, layers, totals)
    if args.json:
        output.print_json(content)
    else:
        _print(args, layers, totals, notes)
    return 1 if (layers["refused"] != "").any() else 0


def _kind(args: argparse.Namespace, network: RealNetwork | None) -> str:
    """Which of `TAKES` a command line is about."""
    if network and network.continues:
        return "fetched language models" + (" with --prompt" if args.prompt is not None else "")
    if network:
        return "fetched networks" + (" that make pictures" if network.pictures else "")
    if _is_model(args):
        if args.feeds:
            return "MODEL.onnx with --feeds"
        return "MODEL.onnx with --no-values" if args.no_values and not _calibrates(args) else "MODEL.onnx"
    if _is_network(args):
        return "networks that classify labelled data"
    return "layer tables with --no-values" if args.no_values else "layer tables"


def _is_model(args: argparse.Namespace) -> bool:
    return bool(args.workload.lower().endswith(".onnx"))


def _calibrates(args: argparse.Namespace) -> bool:
    """Whether a mode among those named takes ranges from data."""
    return any(MODES[name].is_integer for name in args.modes or () if name in MODES)


def _is_network(args: argparse.Namespace) -> bool:
    """Whether real images are to be classified; without values the network is a table of layers like any other."""
    return args.workload in workloads.NETWORKS and not args.no_values


def _network(args: argparse.Namespace, progress: study.Progress) -> pd.DataFrame:
    return study.run_network(
        workloads.NETWORKS[args.workload](),
        args.machine,
        args.modes,
        isa=args.isa,
        threads=args.threads,
        dispatch=args.dispatch,
        fpmath_layers=args.fpmath_layers,
        progress=progress,
    )


def _table(args: argparse.Namespace, progress: study.Progress) -> pd.DataFrame:
    return study.run_layers(
        workloads.load(args.workload),
        args.machine,
        args.modes,
        isa=args.isa,
        layers=args.layers,
        threads=args.threads,
        values=not args.no_values,
        dispatch=args.dispatch,
        seed=args.seed,
        fpmath_layers=args.fpmath_layers,
        jobs=min(os.cpu_count() or 1, MOST_WORKERS),
        progress=progress,
    )


def _print(args: argparse.Namespace, layers: pd.DataFrame, totals: pd.DataFrame, notes: list[str]) -> None:
    if "accuracy" in layers:
        samples = int(layers["images"].iloc[0])
        print(f"Per sample: cycles in one batch of {samples} samples, cycles_mb1 for a sample by itself.\n")
    print(output.table(_shown(layers, SHOWN), FORMATS))
    print(f"\nTotal of {args.workload} on {args.machine}\n")
    print(output.table(_shown(totals, SHOWN_TOTALS), FORMATS))
    for (mode, reason), part in layers[layers["refused"] != ""].groupby(["mode", "refused"], sort=False):
        notes.append(f"{mode}: refused in {', '.join(part['layer'])}: {reason}")
    if args.plot:
        notes.append(f"picture: {args.plot}")
    if notes:
        print("\n" + "\n".join(notes))


def _shown(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """The columns to print that the frame has, a layer's name only on its first line."""
    never = [
        f"{kind}_{what}"
        for kind in RARE
        for what in ("share", "outputs")
        if f"{kind}_outputs" in frame and not (frame[f"{kind}_outputs"] > 0).any()
    ]
    kept = [column for column in columns if column in frame and column not in never]
    shown = frame[kept].rename(columns=HEADINGS)
    if "layer" in shown:
        shown = shown.assign(layer=shown["layer"].where(shown["layer"] != shown["layer"].shift(), ""))
    return shown


def _draw(args: argparse.Namespace, layers: pd.DataFrame, totals: pd.DataFrame) -> None:
    from simdnn import plot  # matplotlib takes a second to load

    axes = plot.plot_layers(layers) if args.no_values else plot.plot_accuracy_speed(totals)
    axes.set_title(f"{args.workload} on {args.machine}")
    plot.save(axes, args.plot)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # int() alone would take "1_000"; and refuses thousands of digits with an error of its own
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text[:40]!r}; an integer from {least} to {most} is needed")
        return int(text)

    return parse
