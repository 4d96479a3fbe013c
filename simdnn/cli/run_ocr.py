"""`simdnn run ocr`: a real text recogniser reading real digits in several precision modes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import isa_models
from isa_models import InvalidArgument
from simdnn.cli import output
from simdnn.modes import choose

if TYPE_CHECKING:
    import pandas as pd

FORMATS = {"accuracy": "{:.2%}".format, "whole_lines": "{:.1%}".format, "speed_up": "{:.2f}".format,
           "cycles": "{:.0f}".format, "time_us": "{:.1f}".format, "gops": "{:.1f}".format}  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """The command, for the workload `ocr`."""
    from simdnn.recognition import LINES, run_ocr

    for name, unused in (
        ("--layers", args.layers != "*"),
        ("--fpmath-layers", args.fpmath_layers != "*"),
        ("--no-values", args.no_values),
        ("--shape", args.shape),
        ("--feeds", args.feeds),
    ):
        if unused:
            raise InvalidArgument(f"{name}: ocr reads its own lines as a whole; recogniser.onnx by its path takes it")
    output.check_path(args.output, output.FILE_FORMATS)
    output.check_path(args.plot, output.PICTURE_FORMATS)
    modes, lacking = choose(isa_models.cpu_machine(args.machine), args.modes, args.isa)
    lines = args.images or LINES
    with output.Progress() as progress:
        frame = run_ocr(modes, machine=args.machine, isa=args.isa, lines=lines, seed=args.seed, threads=args.threads,
                        dispatch=args.dispatch, progress=progress)  # fmt: skip
    notes = [f"{mode.name}: left out, {reason}" for mode, reason in lacking.items()]
    if args.output or args.json:
        content = {"workload": "ocr", "machine": args.machine, "totals": output.records(frame),
                   "left_out": {mode.name: reason for mode, reason in lacking.items()}}  # fmt: skip
        if args.output:
            output.write(args.output, frame, content)
        if args.json:
            output.print_json(content)
    if args.plot:
        _draw(args, frame)
        notes.append(f"picture: {args.plot}")
    if not args.json:
        refused = frame[frame["refused"] != ""]
        notes += [f"{m}: refused: {text}" for m, text in zip(refused["mode"], refused["refused"], strict=True)]
        print(f"PP-OCRv6 small on {args.machine}, {lines} lines of 8 MNIST digits, seed {args.seed}; accuracy: of "
              "characters; costs: of one line by itself\n")  # fmt: skip
        print(output.table(frame[[c for c in frame if c in FORMATS or c in ("mode", "confidence")]], FORMATS))
        print("\n" + "\n".join(notes) if notes else "", end="\n" if notes else "")
    return 1 if (frame["refused"] != "").any() else 0


def _draw(args: argparse.Namespace, frame: pd.DataFrame) -> None:
    from simdnn import plot  # matplotlib takes a second to load

    axes = plot.plot_accuracy_speed(frame[frame["refused"] == ""])
    axes.set_title(f"ocr on {args.machine}: characters read right")
    plot.save(axes, args.plot)
