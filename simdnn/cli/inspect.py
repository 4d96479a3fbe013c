"""`simdnn inspect MODEL.onnx`: operators, shapes, multiply-accumulates, parameters, and what is not supported."""

from __future__ import annotations

import argparse

from simdnn.cli.options import add_shape, shapes_of, taken_as_1
from simdnn.cli.output import table


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "inspect",
        description="Says what an ONNX model holds, without running it: inputs, outputs, parameters, "
        "multiply-accumulates (MACs), and the operators, with those that have no kernel here.",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    add_shape(parser)
    parser.add_argument("--nodes", action="store_true", help="a row for every node")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.set_defaults(function=_inspect)


def _inspect(args: argparse.Namespace) -> int:
    from simdnn.networks.inspect import inspect
    from simdnn.networks.network import load

    found = inspect(load(args.model), shapes_of(args.shape) or None)
    if args.json:
        print(found.to_json())
        return 0
    network = found.network
    for kind, ports in (("input", network.inputs), ("output", network.outputs)):
        for port in ports:
            print(f"{kind:<10} {port}")
    macs = "unknown" if found.macs is None else f"{found.macs:,}"
    print(f"parameters {network.parameters:,}\nMACs       {macs}{taken_as_1(found.taken_as_1)}\n")
    missing = found.unsupported
    for op, count in found.operators.items():
        print(f"{count:6} {op}{'   NOT SUPPORTED' if op in missing else ''}")
    if found.why_no_shapes:
        print(f"\nno shapes: {found.why_no_shapes}")
    if args.nodes:
        print()
        print(table(found.to_frame()))
    return 0
