"""`simdnn run MODEL.onnx`: a network on a machine in several precision modes."""

from __future__ import annotations

import argparse
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

import isa_models
from isa_models import InvalidArgument
from isa_models.arrays import Array
from simdnn.cli import output
from simdnn.cli.inspect import shapes_of
from simdnn.modes import choose

FORMATS = {"cycles": "{:.0f}".format, "time_us": "{:.1f}".format, "speed_up": "{:.2f}".format, "macs": "{:,.0f}".format,
           "max_abs_error": "{:.2g}".format, "sqnr_db": "{:.1f}".format, "share": "{:.1%}".format}  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """The command, for a model file."""
    from simdnn.graph.modes import compare_modes, random_feeds
    from simdnn.graph.network import load

    for name, unused in (
        ("--layers", args.layers != "*"),
        ("--fpmath-layers", args.fpmath_layers != "*"),
        ("--plot", args.plot),
    ):
        if unused:
            raise InvalidArgument(f"{name} is for layer tables; it says nothing about {args.workload}")
    output.check_path(args.output, output.FILE_FORMATS)
    modes, lacking = choose(isa_models.machine(args.machine), args.modes, args.isa)
    network = load(args.workload)
    network.check_operators()
    where = {"machine": args.machine, "isa": args.isa, "threads": args.threads, "dispatch": args.dispatch}
    shapes = shapes_of(args.shape)
    if args.no_values:
        frame = network.estimate(shapes or None, **where).to_frame()
        title = f"{args.workload} on {args.machine}, f32: {frame['cycles'].sum():,.0f} cycles"
    else:
        feeds = random_feeds(network, shapes, args.seed) if args.feeds is None else _feeds(args.feeds)
        with output.Progress() as progress:
            frame = compare_modes(args.workload, feeds, modes, progress=progress, **where)
        data = f"random data, seed {args.seed}" if args.feeds is None else args.feeds.name
        title = f"{args.workload} on {args.machine}; errors against f32 on {data}"
    content = {"workload": args.workload, "machine": args.machine, "rows": output.records(frame),
               "left_out": {mode.name: reason for mode, reason in lacking.items()}}  # fmt: skip
    if args.output:
        output.write(args.output, frame, content)
    status = 1 if "refused" in frame and (frame["refused"] != "").any() else 0
    if args.json:
        output.print_json(content)
        return status
    shown = frame[[c for c in frame if c not in ("note", "refused")]]
    print(f"{title}\n\n{output.table(shown, FORMATS)}")
    notes = [f"{mode.name}: left out, {reason}" for mode, reason in lacking.items()]
    for column in ("note", "refused"):
        if column in frame:
            notes += [
                f"{m}: {text}"
                for m, text in zip(frame["mode"], frame[column], strict=True)
                if isinstance(text, str) and text
            ]
    print("\n" + "\n".join(notes) if notes else "")
    return status


def _feeds(path: Path) -> dict[str, Array]:
    """Arrays by input name from an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise InvalidArgument(
            f"{path} holds no feeds ({' '.join(str(error).split())[:80]}); an .npz is needed"
        ) from None
