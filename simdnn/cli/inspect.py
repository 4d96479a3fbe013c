"""`simdnn inspect MODEL.onnx`: operators, shapes, multiply-accumulates, parameters, and what is not supported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from isa_models import InvalidArgument
from simdnn.cli.output import table


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "inspect",
        description="Says what an ONNX model holds, without running it: inputs, outputs, parameters, "
        "multiply-accumulates (MACs), and the operators, with those that have no kernel here.",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="an input's shape, or a size by its name (N=8), where the model leaves it open",
    )
    parser.add_argument("--nodes", action="store_true", help="a row for every node")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.set_defaults(function=_inspect)


def shapes_of(words: list[str]) -> dict[str, tuple[int, ...]]:
    """The sizes that `--shape` gives.

    >>> shapes_of(["x=1,3,8,8"])
    {'x': (1, 3, 8, 8)}
    """
    found = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        try:
            found[name] = tuple(int(part) for part in text.replace("x", ",").split(",") if part)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidArgument(f"--shape {word!r}; NAME=1,3,224,224 is needed")
    return found


def taken_as_1(names: Sequence[str]) -> str:
    """The message about sizes that the model leaves open.

    >>> taken_as_1(["N", "T"])
    '; N = T = 1, which the model leaves open (--shape)'
    """
    from simdnn.networks.modes import left_open

    return f"; {left_open(names)} (--shape)" if names else ""


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
