"""`simdnn tune`: which precision each layer of a network should have on a machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workloads
from isa_models import InvalidArgument
from isa_models.errors import unknown_name
from simdnn.cli import output, run_show
from simdnn.cli.options import (
    add_set,
    add_shape,
    add_workers,
    check_model,
    check_workers,
    comma_list,
    machine_with,
    shapes_of,
)
from simdnn.libraries import LIBRARIES, versions
from simdnn.progress import shown

if TYPE_CHECKING:
    from isa_models.readings.arrays import Array
    from simdnn.progress import Progress
    from simdnn.tuning import Tuned

EPILOG = """\
columns
  cycles, time_us   of a sample of the batch (trained networks) or of the feed
  quality           accuracy where there are labels, else the signal to error of the outputs against f32's, in dB
  loss              quality below f32's; where that is in dB, the error over the output
  cycles_saved, quality_lost (lost_db where the quality is in dB)
                    of a layer: against the same recipe with that layer in f32

Exit status: 0; 1 where no recipe meets the bounds; 2 for wrong usage."""
_NAMED = 4  # layers of a row that are named one by one
_FORMATS: dict[str, Callable[[Any], str]] = {
    "cycles": "{:.0f}".format,
    "time_us": run_show.FORMATS["time_us"],
    "quality": "{:.4g}".format,
    "loss": "{:.3g}".format,
    "sqnr_db": "{:.1f}".format,
    "speed_up": "{:.2f}".format,
    "cycles_saved": "{:.0f}".format,
    "quality_lost": "{:.3g}".format,
    "lost_db": "{:.2f}".format,
}


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "tune",
        description="Finds the recipes that put each layer of a network in a precision mode of its own so that none is "
        "both faster and better, and runs each of them.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=f"MODEL.onnx, or one of {', '.join(workloads.NETWORKS)}, or, once fetched, "
        f"{', '.join(workloads.REAL_NETWORKS)}",
    )
    parser.add_argument("--machine", default="zen4", metavar="M,…", help="a machine, or several side by side (zen4)")
    add_set(parser)
    parser.add_argument("--isa", help="ISA cap: kernels beyond it are not used (the machine's own)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of a kernel (1)")
    parser.add_argument(
        "--dispatch",
        choices=("fastest", *LIBRARIES),
        default="fastest",
        help=f"how kernels are picked: by estimated cycles, or as {versions()} does (fastest)",
    )
    parser.add_argument("--modes", metavar="MODE,…", help="to choose from, as `simdnn list modes` names them")
    parser.add_argument(
        "--max-loss",
        type=_loss,
        metavar="0.5%",
        help="the fastest that loses no more: of accuracy, or as error over the output in %%, of others in their unit",
    )
    parser.add_argument("--min-db", type=float, metavar="40", help="the fastest with that signal to error against f32")
    parser.add_argument("--faster-than", type=_times, metavar="2x", help="the best that is that much faster than f32")
    parser.add_argument(
        "--feeds", type=Path, metavar="FILE.npz", help="inputs that recipes are judged on (random ones)"
    )
    add_shape(parser)
    parser.add_argument("--calibrate", type=Path, metavar="FILE.npz", help="inputs that ranges are from (those judged)")
    parser.add_argument("--labels", type=Path, metavar="FILE.npy", help="the class of each sample of the feeds")
    counts = ", ".join(f"{network.name}: {network.count}" for network in workloads.REAL_NETWORKS.values())
    parser.add_argument("--samples", type=int, metavar="N", help=f"how many a fetched network is judged by ({counts})")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="of data that are drawn (0)")
    parser.add_argument("--results", type=Path, metavar="FILE.jsonl", help="keep what was run there, and go on from it")
    add_workers(parser)
    parser.add_argument("--save", type=Path, metavar="FILE", help="the recipe chosen, as FILE.json or FILE.onnx")
    output.add_options(parser, "tables")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the front into FILE.png, .pdf or .svg")
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command: checks what can be checked first, tunes, writes."""
    check_workers(args)
    output.check_path(args.save, (".json", ".onnx"))
    output.check_path(args.output, output.FILE_FORMATS)
    output.check_path(args.plot, output.PICTURE_FORMATS)
    known = (*workloads.NETWORKS, *workloads.REAL_NETWORKS)
    check_model(args.model, known)
    if args.model not in known and not args.model.lower().endswith(".onnx"):
        raise unknown_name("network", args.model, (*known, "MODEL.onnx"))
    machines = [machine_with(name, args.set) for name in comma_list(args.machine)]
    with output.kept_in(args.results), shown() as progress:
        progress(0, 1, "f32 runs, and what ranges are from")
        tuned = _tuned(args, machines, progress)
        progress(0, 1, "layer by layer")  # recipes with one layer back in f32 are run
        text = "" if args.json else _shown(tuned)
    if args.save:
        tuned.save(args.save)
        text += f"\n{args.save} holds row {tuned.best}, of {tuned.front['machine'][tuned.best]}"
    if args.output:
        output.write(args.output, tuned.front, tuned.content)
    if args.plot:
        from simdnn import plot

        with plot.apart():
            plot.save(tuned.plot(), args.plot)
    if args.json:
        output.print_json(tuned.content)
    else:
        print(text)
    return 0


def _tuned(args: argparse.Namespace, machines: list[str], progress: Progress) -> Tuned:
    """The tuning that the words ask for."""
    from simdnn.cli import numpy_files
    from simdnn.tuning import tune

    return tune(
        args.model,
        machine=machines,
        isa=args.isa,
        threads=args.threads,
        dispatch=args.dispatch,
        shapes=shapes_of(args.shape) if args.shape else None,
        feeds=_feeds(args.model, args.feeds),
        labels=args.labels and numpy_files.one(args.labels, "labels"),
        calibrate=_feeds(args.model, args.calibrate),
        modes=args.modes and comma_list(args.modes),
        samples=args.samples,
        seed=args.seed,
        max_loss=args.max_loss and _in_its_unit(args),
        min_db=args.min_db,
        faster_than=args.faster_than,
        results=args.results,
        progress=progress,
        jobs=args.jobs,
        dask=args.dask,
    )


def _shown(tuned: Tuned) -> str:
    """The front, the recipe that the bounds ask for, layer by layer, and notes; machines stand beside each other."""
    from simdnn.networks.feeds import CALIBRATED_ON_ITSELF

    one = tuned.front["machine"].nunique() == 1
    front = tuned.front.drop(columns=["machine"] if one else [])
    front.insert(0, "row", ["*" if chosen else "" for chosen in front.pop("chosen")])
    front["row"] = [f"{row}{mark}" for row, mark in zip(front.index, front["row"], strict=True)]
    if tuned.measure == "sqnr_db":
        front = front.drop(columns="sqnr_db")
    table = output.table(front.rename(columns={"quality": tuned.measure}), {**_FORMATS, tuned.measure: "{:.4g}".format})
    under = ", ".join(f"{name} {value}" for name, value in tuned.options.items() if value not in (None, 1, "fastest"))
    where = ", ".join(tuned.front["machine"].unique()) + (f" ({under})" if under else "")
    parts = [f"{tuned.name} on {where}", table]
    if one and set(tuned.recipe(tuned.best).values()) == {"f32"}:
        parts.append(f"row {tuned.best} is f32 itself: --max-loss, --min-db or --faster-than asks for a faster one")
    elif one:
        layers = tuned.table().rename(columns={"quality_lost": "lost_db"} if tuned.measure == "sqnr_db" else {})
        parts.append(f"row {tuned.best}, layer by layer\n{output.table(layers, _FORMATS)}")
    else:
        parts.append(f"rows with a star, layer by layer\n{output.table(_side_by_side(tuned))}")
    notes = (f"modes of int8: {note}" if note == CALIBRATED_ON_ITSELF else note for note in tuned.notes)
    return "\n\n".join([*parts, "\n".join(notes)])


def _side_by_side(tuned: Tuned) -> list[dict[str, str]]:
    """The modes of the recipes chosen, a column a machine; layers that are alike on all of them share a row."""
    chosen = tuned.front[tuned.front["chosen"]]
    recipes = {machine: tuned.recipe(int(str(row))) for row, machine in chosen["machine"].items()}
    layers: dict[tuple[str, ...], list[str]] = {}
    for layer in next(iter(recipes.values())):
        layers.setdefault(tuple(modes[layer] for modes in recipes.values()), []).append(layer)
    return [{"layers": _few(names), **dict(zip(recipes, modes, strict=True))} for modes, names in layers.items()]


def _few(names: list[str]) -> str:
    """The first names, and how many more there are."""
    return " ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _feeds(model: str, path: Path | None) -> list[dict[str, Array]] | None:
    """The feeds of a file or a folder for a model, or for a trained network by its name."""
    from simdnn.cli.run_kinds import read_feeds
    from simdnn.networks.network import load
    from workloads.export import onnx_model

    if path is None:
        return None
    return read_feeds(path, load(onnx_model(workloads.NETWORKS[model]()) if model in workloads.NETWORKS else model))


def _loss(text: str) -> tuple[float, bool]:
    """0.5% or 0.005, and whether the unit was said."""
    return _number(text, "%", 0.01, "0.5% or 0.005"), text.endswith("%")


def _in_its_unit(args: argparse.Namespace) -> float:
    """The loss that is asked for; `InvalidArgument` for a share of a quality that is none."""
    loss, share = args.max_loss
    first = workloads.REAL_NETWORKS[args.model].metrics[0] if args.model in workloads.REAL_NETWORKS else None
    if share and first and not first.is_share:  # of others it is of accuracy, or the error over the output
        raise InvalidArgument(
            f"--max-loss {100 * loss:g}%: the quality is {first.title}; a number in its unit is needed"
        )
    return float(loss)


def _times(text: str) -> float:
    """2x or 2."""
    return _number(text, "x", 1.0, "2x or 2")


def _number(text: str, unit: str, factor: float, example: str) -> float:
    try:
        return float(text.removesuffix(unit)) * (factor if text.endswith(unit) else 1.0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}; {example} is needed") from None
