"""The report of `simdnn run MODEL.onnx` on several CPUs: where their outputs part."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, TypeAlias

import isa_models
from isa_models import GpuMachine, SimdnnError
from isa_models.errors import counted
from simdnn.cli import output
from simdnn.cli.options import shapes_of
from simdnn.cli.run_kinds import read_feeds
from simdnn.late import pd
from simdnn.libraries import LIBRARIES
from simdnn.primitives.result import plain
from simdnn.progress import Progress

RULE = "onnxruntime"  # where no rule of dispatch is asked for: who runs ONNX models
Ported: TypeAlias = "pd.DataFrame | SimdnnError"  # the report, or why there is none
_MOST = 20  # rows of the table, above which nodes that only read what differs are counted
_FORMS = dict.fromkeys(("saturated", "own", "differs"), "{:.2%}") | {"max_difference": "{:.4g}"}
_FORMS |= dict.fromkeys(("cycles", "exact_cycles"), "{:,.0f}")


def compared(
    args: argparse.Namespace, machines: Sequence[str], progress: Progress
) -> pd.DataFrame | SimdnnError | None:
    """The frame of `simdnn.porting`, or why there is none; None where a run has fewer than two CPUs, or no values."""
    cpus = [name for name in machines if not isinstance(isa_models.machine(name), GpuMachine)]
    if len(cpus) < 2 or args.no_values or args.isa:
        return None
    from simdnn.networks.feeds import random_feeds
    from simdnn.networks.network import load
    from simdnn.networks.porting import porting

    network = load(args.workload)
    feeds = read_feeds(args.feeds, network) if args.feeds else [random_feeds(network, shapes_of(args.shape), args.seed)]
    rule = args.dispatch if "dispatch" in args.given else RULE
    try:
        return porting(network, feeds, machines=cpus, dispatch=rule, threads=args.threads, progress=progress)
    except SimdnnError as error:
        return error


def content(frame: Ported) -> dict[str, Any]:
    """The part of the JSON."""
    if isinstance(frame, SimdnnError):
        return {"refused": str(frame)}
    about = {str(name): plain(value) for name, value in frame.attrs.items()}
    return about | {"nodes": output.records(frame)}


def _floats(nodes: pd.DataFrame, title: str) -> list[str]:
    """A sentence on nodes that are stored in integers, and multiplied in floats."""
    macs = max(1, nodes["macs"].sum())
    nodes = nodes[nodes["types"].str.contains(":")]
    floats = nodes[nodes["computes"] == "f32"]
    if floats.empty:
        return []
    share = floats["macs"].sum() / macs
    return [
        f"{len(floats)} of {len(nodes)} nodes ({share:.0%} of the MACs) are multiplied in floats by {title}, though "
        f"stored in integers: {_some(floats['node'])}; integers need a QuantizeLinear behind a node, or a MatMul "
        "without a bias"
    ]


def _table(shown: pd.DataFrame) -> list[str]:
    """The nodes that differ or saturate: of many those that do so by themselves."""
    first = shown[(shown["own"] > 0) | (shown["saturated"] > 0)] if len(shown) > _MOST else shown
    columns = ["node", "op", "machine", "types", "saturated", "own", "differs", "max_difference", "cycles"]
    columns = [name for name in columns if name != "saturated" or first[name].any()]
    columns += ["exact_cycles"] if first["exact_cycles"].notna().any() else []
    lines = [output.table(first[columns][:_MOST], {name: form.format for name, form in _FORMS.items()})]
    rest = len(first) - _MOST
    lines += [f"and {rest} more that differ by themselves (--json has all)"] if rest > 0 else []
    left = len(shown) - len(first)
    return [*lines, *([f"{left} more differ by what they read"] if left else []), ""]


def _helps(shown: pd.DataFrame, title: str) -> list[str]:
    """Sentences on nodes that differ by themselves: what helps, and what that costs."""
    from simdnn.networks.porting import NO_BLOCKS

    lines = []
    for (machine, helps), part in shown[shown["helps"] != ""].groupby(["machine", "helps"], sort=False):
        cost = part[["exact_cycles", "cycles"]].sum(skipna=False)
        more = f", {cost.exact_cycles:,.0f} cycles in place of {cost.cycles:,.0f}" if cost.notna().all() else ""
        lines.append(f"{_some(part['node'])} on {machine}: {helps}{more if helps == NO_BLOCKS else ''}")
    for (machine, _), part in shown[(shown["helps"] == "") & (shown["own"] > 0)].groupby(["machine", "helps"]):
        lines.append(f"{_some(part['node'])} on {machine}: other kernels of {title} for that CPU, whatever its options")
    return lines if len(lines) <= _MOST else [*lines[:_MOST], f"and {len(lines) - _MOST} more such lines (--json)"]


def _some(nodes: pd.Series) -> str:
    """The first names, and how many there are."""
    names = list(dict.fromkeys(nodes))
    return ", ".join(names[:4]) + (f", … ({counted(len(names), 'node')})" if len(names) > 4 else "")


def text(frame: Ported) -> str:
    """The report: nodes that differ or saturate, what helps, and the outputs."""
    if isinstance(frame, SimdnnError):
        return f"Porting: not answered, {frame}"
    about: dict[str, Any] = {str(name): value for name, value in frame.attrs.items()}
    lines = []
    library = LIBRARIES.get(about["dispatch"])
    whose = f"{library.title}'s bits" if library else f"dispatch {about['dispatch']}"
    title = library.title if library else f"dispatch {about['dispatch']}"
    lines.append(f"Porting, by {whose}: nodes beside those on {about['reference']}, run from end to end\n")
    shown = frame[(frame["saturated"] > 0) | (frame["differs"] > 0)]
    lines += _table(shown) + _helps(shown, title) if len(shown) else ["no node differs"]
    nodes = frame.drop_duplicates("node")
    left = len(nodes) - shown["node"].nunique()
    lines += [f"{left} of {len(nodes)} nodes are the same on all machines"] if left and len(shown) else []
    lines += _floats(nodes, title)
    for machine, found in about["outputs"].items():
        if machine != about["reference"]:
            differs, most = found["differs"], found["max_difference"]
            apart = f"{differs:.2%} differ, by up to {most:.4g} ({found['sqnr_db']:.1f} dB)" if differs else "the same"
            lines.append(f"outputs of {machine} beside those of {about['reference']}: {apart}")
    return "\n".join([*lines, *(f"not claimed: {told}" for told in about["unclaimed"])])
