"""`simdnn run MODEL.onnx`: a network on a machine in several precision modes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

import isa_models
from isa_models import InvalidArgument, SimdnnError
from isa_models.readings.arrays import Array
from simdnn.cli import output
from simdnn.cli.inspect import shapes_of, taken_as_1
from simdnn.networks.precision import choose

if TYPE_CHECKING:
    import pandas as pd

FORMATS = {
    "cycles": "{:.0f}".format,
    "time_us": "{:.1f}".format,
    "speed_up": "{:.2f}".format,
    "macs": "{:,.0f}".format,
    "max_abs_error": "{:.2g}".format,
    "sqnr_db": "{:.1f}".format,
    "share": "{:.1%}".format,
    "sat_outputs": "{:.0f}".format,
}
HEADINGS = {"saturated_outputs": "sat_outputs"}


def main(args: argparse.Namespace) -> int:
    """The command, for a model file."""
    from simdnn.networks.modes import compare_modes, random_feeds
    from simdnn.networks.network import load

    output.check_path(args.output, output.FILE_FORMATS)
    modes, lacking = choose(isa_models.machine(args.machine), args.modes, args.isa)
    network = load(args.workload)
    network.check_operators()
    where = {"machine": args.machine, "isa": args.isa, "threads": args.threads, "dispatch": args.dispatch}
    shapes = shapes_of(args.shape)
    sizes, open_sizes = network.sizes(shapes) if args.feeds is None else ({}, [])
    taken = taken_as_1(open_sizes)
    with _about(taken), output.Progress() as progress:
        if args.no_values and args.modes is None:
            frame = network.estimate(sizes or _feeds(args.feeds), **where).to_frame()
        else:
            feeds = random_feeds(network, shapes, args.seed) if args.feeds is None else _feeds(args.feeds)
            frame = compare_modes(args.workload, feeds, modes, values=not args.no_values, progress=progress, **where)
    left_out = {mode.name: reason for mode, reason in lacking.items()}
    content = {
        "workload": args.workload,
        "machine": args.machine,
        "rows": output.records(frame),
        "taken_as_1": open_sizes,
        "left_out": left_out,
    }
    if args.output:
        output.write(args.output, frame, content)
    status = 1 if "refused" in frame and (frame["refused"] != "").any() else 0
    if args.json:
        output.print_json(content)
        return status
    last = [name for name in ("confidence",) if name in frame]
    shown = frame[[c for c in frame if c not in ("note", "refused", *last)] + last].rename(columns=HEADINGS)
    print(f"{_title(args, frame, network.is_integer)}{taken}\n\n{output.table(shown, FORMATS)}")
    notes = [f"{mode}: left out, {reason}" for mode, reason in left_out.items()]
    for column in ("note", "refused"):
        if column in frame:
            notes += [
                f"{m}: {text}"
                for m, text in zip(frame["mode"], frame[column], strict=True)
                if isinstance(text, str) and text
            ]
    print("\n" + "\n".join(notes) if notes else "")
    return status


def _title(args: argparse.Namespace, frame: pd.DataFrame, integer: bool) -> str:
    """The model, the machine, and what the rows are compared with."""
    place = f"{args.workload} on {args.machine}"
    if "mode" not in frame:
        kind = "as stored, in integers" if integer else "f32"
        return f"{place}, {kind}: {frame['cycles'].sum():,.0f} cycles"
    stored = "; it is stored in integers" if integer else ""
    if args.no_values:
        return f"{place}{stored}"
    data = f"random data, seed {args.seed}" if args.feeds is None else args.feeds.name
    return f"{place}{stored}; errors against {'its own graph with exact sums' if integer else 'f32'} on {data}"


@contextmanager
def _about(taken: str) -> Iterator[None]:
    """Errors tell which sizes were taken, as those may be their cause."""
    try:
        yield
    except SimdnnError as error:
        raise type(error)(f"{error}{taken}") from None


def _feeds(path: Path) -> dict[str, Array]:
    """Arrays by input name from an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise InvalidArgument(
            f"{path} holds no feeds ({' '.join(str(error).split())[:80]}); an .npz is needed"
        ) from None
