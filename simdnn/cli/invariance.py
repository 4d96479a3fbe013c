"""`simdnn invariance PRIMITIVE KEY=VALUE …`: which choices change the order in which a sum is added up."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from isa_models.errors import InvalidArgument
from simdnn.cli import output
from simdnn.primitives.checks import one_of
from simdnn.progress import shown

_FORMATS = (".csv", ".json")


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "invariance",
        description="Says which choices change the order in which the terms of a sum are added up, and so its bits. "
        "Choices with one number in the column order give equal bits for every finite input; for two numbers an input "
        "was looked for on which they differ.",
        epilog="KEY=VALUE are the keywords of simdnn.estimate, and fpmath; several values, with commas between, make "
        "an axis: simdnn invariance matmul m=1,64 n=64 k=1024 machine=spr isa=avx2,avx512_core dt=bf16:bf16:f32",
    )
    parser.add_argument("primitive", metavar="PRIMITIVE", help="matmul or convolution")
    parser.add_argument(
        "words", nargs="*", metavar="KEY=VALUE[,VALUE…]", help="a size, a type, a machine, a dispatch …"
    )
    output.add_options(parser, "the table, witnesses too", "the table as CSV, or all of it as JSON")
    parser.set_defaults(function=main)


def read(words: Iterable[str]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Keywords of the problem, and axes.

    >>> read(["m=1,64", "k=256", "machine=spr", "bias=true"])
    ({'k': 256, 'machine': 'spr', 'bias': True}, {'m': [1, 64]})
    """
    problem: dict[str, Any] = {}
    over: dict[str, list[Any]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or not text:
            raise InvalidArgument(f"{word[:80]!r}; KEY=VALUE is needed, e.g. k=256 or m=1,64")
        if key in problem or key in over:
            raise InvalidArgument(f"{key[:80]} is given twice; several values of one stand together: {key[:80]}=A,B")
        values = [_value(part) for part in text.split(",")]
        if key == "fpmath":
            from simdnn.primitives.attr import Attr

            key, values = "attr", [Attr(fpmath=mode) for mode in values]
        if len(values) > 1:
            over[key] = values
        else:
            problem[key] = values[0]
    return problem, over


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


def main(args: argparse.Namespace) -> int:
    """The command."""
    one_of("primitive", args.primitive, ("matmul", "convolution"))
    output.check_path(args.output, _FORMATS)
    problem, over = read(args.words)
    if not over:
        raise InvalidArgument(
            "nothing varies: an axis is needed, one key with several values, e.g. m=1,64 or isa=avx2,avx512_core"
        )
    from simdnn.exactness.invariance import invariance

    with shown() as progress:
        frame = invariance(args.primitive, over=over, progress=progress, **problem)
    if "attr" in frame:
        frame = frame.rename(columns={"attr": "fpmath"}).assign(fpmath=[one.fpmath for one in frame["attr"]])
    found = [
        {"orders": list(pair), "rows": None, "values": None}
        if witness is None
        else {"orders": list(pair), "rows": list(witness.rows), "values": [float(v) for v in witness.values]}
        for pair, witness in frame.attrs["witnesses"].items()
    ]
    content = {"configurations": output.records(frame), "witnesses": found}
    if args.output:
        output.write(args.output, frame, content)
    if args.json:
        output.print_json(content)
        return 0
    print(output.table(frame if frame["refused"].any() else frame.drop(columns="refused")))
    for witness in found:
        print(_line(**witness))
    return 0


def _line(orders: list[int], rows: list[int] | None, values: list[float] | None) -> str:
    if rows is None or values is None:
        return f"orders {orders[0]} and {orders[1]}: no input was found on which they differ"
    row, value = rows, values
    said = f"row {row[0]} gives {value[0]:.9g}, row {row[1]} {value[1]:.9g}"
    return f"orders {orders[0]} and {orders[1]} differ: on one input {said}"
