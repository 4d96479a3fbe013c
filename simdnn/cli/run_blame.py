"""`simdnn run MODEL.onnx --blame MODE`: which layers make the error of a mode."""

from __future__ import annotations

import argparse

from simdnn.cli import numpy_files, output
from simdnn.cli.options import shapes_of
from simdnn.cli.run_kinds import read_feeds
from simdnn.progress import shown

_JUDGED = ("accuracy", "f32_accuracy")
_FORMATS = {"sqnr_db": "{:.1f}".format, "share": "{:.1%}".format, "accuracy": "{:.2%}".format}


def main(args: argparse.Namespace) -> int:
    """A row a layer: the outputs' errors with that layer restored to f32."""
    from simdnn.networks.blame import blame
    from simdnn.networks.feeds import random_feeds
    from simdnn.networks.network import load

    output.check_path(args.output, output.FILE_FORMATS)
    network = load(args.workload)
    feeds = read_feeds(args.feeds, network) if args.feeds else [random_feeds(network, shapes_of(args.shape), args.seed)]
    with shown() as progress:
        frame = blame(
            args.workload,
            feeds,
            mode=args.blame,
            machine=args.machine,
            isa=args.isa,
            calibrate=read_feeds(args.calibrate, network) if args.calibrate else None,
            labels=None if args.labels is None else numpy_files.one(args.labels, "labels"),
            threads=args.threads,
            dispatch=args.dispatch,
            progress=progress,
        )
    rows = output.records(frame)
    whole = output.records(frame.assign(sqnr_db=frame.attrs["sqnr_db"]))[0]["sqnr_db"] if rows else None
    judged: dict[str, float] = {name: frame.attrs[name] for name in _JUDGED if name in frame.attrs}
    content = {
        "workload": args.workload,
        "machine": args.machine,
        "mode": args.blame,
        "sqnr_db": whole,
        **judged,
        "layers": rows,
    }
    if args.output:
        output.write(args.output, frame, content)
    if args.json:
        output.print_json(content)
        return 0
    data = args.feeds.name if args.feeds else f"random data, seed {args.seed}"
    print(f"{args.workload} on {args.machine} in {args.blame}: {frame.attrs['sqnr_db']:.1f} dB against f32 on {data}")
    if args.labels:
        print("accuracy {:.2%}; f32's {:.2%}".format(*(judged[name] for name in _JUDGED)))
    print("With one layer restored to f32:\n")
    print(output.table(frame, _FORMATS))
    if (frame["share"] < 0).any():
        print("\nshare below 0: in the mode that layer's error cancels others', which alone are larger")
    return 0
