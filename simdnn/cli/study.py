"""`simdnn study`: a design space from a file, point by point, into a file of results that can be gone on with."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isa_models.errors import counted
from simdnn import study
from simdnn.cli import output, run_show
from simdnn.cli.options import add_set, add_workers, check_workers, figures
from simdnn.late import pd
from simdnn.progress import shown
from simdnn.reporting.provenance import provenance
from simdnn.study.exploration import FAILED, quality_of, results_path
from simdnn.study.kinds import KINDS, Kind


def _words(kind: Kind) -> str:
    return ", ".join(name if name in kind.needed else f"[{name}]" for name in kind.parameters)


_KINDS = "\n".join(f"  {name:12}  {kind.title}: {_words(kind)}" for name, kind in KINDS.items())
EPILOG = f"""\
FILE
  [study]           kind = "matmul", and where wanted name, values = true (errors against f32), seed, scheduler
  [axes]            m = [1, 64]; their product is run. Values that are tables bind parameters together:
                    shape = [{{m = 1, k = 4096}}, {{m = 64, k = 64}}]
  [fixed]           n = 256, for all points
  [machines.NAME]   base = "zen4", and figures that differ, named as in the machine's file: core.dispatch_slots = 8,
                    instructions."vpdp*".uops = [["FP0"]]; such a figure may be an axis, too

kinds, and their parameters besides machine and its figures (in brackets: may be left out)
{_KINDS}

Results are kept in FILE.jsonl while they come; run the command again to go on after an interruption.
Exit status: 0; 1 where nothing could be run, or a point failed and will be tried again; 2 for wrong usage."""

MEASURES = (
    "implementation",
    "cycles",
    "time_us",
    "ipc",
    "gops",
    "gb_s",
    "bound",
    "share_of_peak",
    "max_abs_error",
    "sqnr_db",
    "worst_layer_sqnr_db",
    "saturated_share",
    "accuracy",
    "pareto",
    "confidence",
)
MOST_ROWS = 100  # that are printed
MOST_REASONS = 12


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "study",
        description="Runs every point of a design space that FILE (TOML) describes, and keeps each as it comes.",
        epilog=EPILOG,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what to run, in TOML")
    add_set(parser)
    parser.add_argument("--results", type=Path, metavar="FILE.jsonl", help="where points are kept (beside FILE)")
    parser.add_argument("--fresh", action="store_true", help="forget what is kept of its points, run all")
    add_workers(parser)
    output.add_options(parser)
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw quality against speed (with values), or speed "
        "over the longest axis of numbers, into FILE.png, .pdf or .svg",
    )
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    check_workers(args)
    output.check_path(args.output, output.FILE_FORMATS)
    output.check_path(args.plot, output.PICTURE_FORMATS)
    kept = results_path(args.file, args.results)
    notes: list[str] = []
    with output.kept_in(kept), shown() as progress:
        progress(0, 1, "the first points")
        frame = study.explore(
            args.file,
            results=kept,
            jobs=args.jobs,
            dask=args.dask,
            fresh=args.fresh,
            progress=progress,
            note=notes.append,
            figures=figures(args.set),
        )
    content = {**frame.attrs, "results": str(kept), "notes": notes, "points": output.records(frame)}
    if args.output:
        made = {"provenance": provenance(dict.fromkeys(frame["machine"]))}
        output.write(args.output, frame, content | made)
    if args.plot and frame["refused"].eq("").any():
        _draw(frame, args.plot)
        notes.append(f"picture: {args.plot}")
    if args.json:
        output.print_json(content)
    else:
        _print(frame, notes, kept)
    failed = frame["refused"].str.startswith(FAILED).any()
    return 1 if failed or (frame["refused"] != "").all() else 0


def _print(frame: pd.DataFrame, notes: list[str], kept: Path | None) -> None:
    axes = frame.attrs["axes"]
    done = frame[frame["refused"] == ""]
    shown = frame.head(MOST_ROWS).astype({name: object for name in axes})
    print(run_show.points(shown, axes, MEASURES, dict.fromkeys(axes, _cell)))
    if len(frame) > MOST_ROWS:
        print(f"... and {len(frame) - MOST_ROWS} points more (-o FILE, --json)")
    lines = [f"{len(done)} of {len(frame)} points have figures; {kept} keeps them", *notes]
    reasons = frame[frame["refused"] != ""].groupby("refused", sort=False)
    for reason, part in list(reasons)[:MOST_REASONS]:
        lines.append(f"refused at {_where(part, axes)}: {textwrap.shorten(str(reason), 240)}")
    if len(reasons) > MOST_REASONS:
        lines.append(f"... and {len(reasons) - MOST_REASONS} more reasons")
    print("\n" + "\n".join(lines))


def _cell(value: object) -> str:
    """A parameter: beside missing ones, whole numbers have become floats."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _where(part: pd.DataFrame, axes: Sequence[str]) -> str:
    """The first point of some, and how many more there are."""
    first = " ".join(f"{axis}={_cell(part[axis].iloc[0])}" for axis in axes if not pd.isna(part[axis].iloc[0]))
    more = len(part) - 1
    return f"{first} and {counted(more, 'more point')}" if more else first or "the only point"


def _draw(frame: pd.DataFrame, path: Path) -> None:
    from simdnn import plot, plot_study  # matplotlib takes a second to load

    with plot.apart():
        found = plot_study.plot_front(frame) if quality_of(frame) else plot_study.plot_space(frame)
        found.set_title(frame.attrs["study"].replace("_", " "), parse_math=False)
        plot.save(found, path)
