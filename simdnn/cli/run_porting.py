"""The report of `simdnn run MODEL.onnx` on a model stored in integers on several CPUs: where their outputs part."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import isa_models
from isa_models import GpuMachine
from simdnn.cli import output
from simdnn.cli.inspect import shapes_of
from simdnn.cli.run_kinds import read_feeds
from simdnn.late import pd
from simdnn.libraries import LIBRARIES
from simdnn.primitives.result import plain
from simdnn.progress import Progress

RULE = "onnxruntime"  # where no rule of dispatch is asked for: who runs ONNX models
_FORMS = {"saturated": "{:.2%}", "differs": "{:.2%}", "max_difference": "{:.4g}"}
_FORMS |= dict.fromkeys(("cycles", "exact_cycles"), "{:,.0f}")


def compared(args: argparse.Namespace, machines: Sequence[str], progress: Progress) -> pd.DataFrame | None:
    """The frame of `simdnn.porting`; None where a run has fewer than two CPUs, no values, or no integers."""
    cpus = [name for name in machines if not isinstance(isa_models.machine(name), GpuMachine)]
    if len(cpus) < 2 or args.no_values or args.isa:
        return None
    from simdnn.networks.modes import random_feeds
    from simdnn.networks.network import load
    from simdnn.networks.porting import porting

    network = load(args.workload)
    if not network.is_integer:
        return None
    feeds = read_feeds(args.feeds, network) if args.feeds else [random_feeds(network, shapes_of(args.shape), args.seed)]
    rule = args.dispatch if "dispatch" in args.given else RULE
    return porting(network, feeds, machines=cpus, dispatch=rule, threads=args.threads, progress=progress)


def content(frame: pd.DataFrame) -> dict[str, Any]:
    """The part of the JSON."""
    about = {str(name): plain(value) for name, value in frame.attrs.items()}
    return about | {"nodes": output.records(frame)}


def _others(frame: pd.DataFrame, shown: set[str], title: str) -> list[str]:
    """Sentences on nodes that are no rows of the table, and on those that are multiplied in floats."""
    nodes = frame.drop_duplicates("node")
    left = len(nodes) - len(shown)
    lines = [f"{left} of {len(nodes)} nodes are the same on all machines"] if left and shown else []
    floats = nodes[nodes["computes"] == "f32"]
    if floats.empty:
        return lines
    which = ", ".join(floats["node"][:4]) + (", …" if len(floats) > 4 else "")
    share = floats["macs"].sum() / max(1, nodes["macs"].sum())
    return [
        *lines,
        f"{len(floats)} of {len(nodes)} nodes ({share:.0%} of the MACs) are multiplied in floats by {title}, though "
        f"stored in integers: {which}; integers need a QuantizeLinear behind a node, or a MatMul without a bias",
    ]


def text(frame: pd.DataFrame) -> str:
    """The report: nodes that differ or saturate, what helps, and the outputs."""
    about: dict[str, Any] = {str(name): value for name, value in frame.attrs.items()}
    lines = []
    library = LIBRARIES.get(about["dispatch"])
    whose = f"{library.title}'s bits" if library else f"dispatch {about['dispatch']}"
    lines.append(f"Porting, by {whose}: nodes beside those on {about['reference']}, run from end to end\n")
    shown = frame[(frame["saturated"] > 0) | (frame["differs"] > 0)]
    if shown.empty:
        lines.append("no node differs")
    else:
        columns = ["node", "op", "machine", "types", "saturated", "differs", "max_difference", "cycles", "exact_cycles"]
        lines.append(output.table(shown[columns], {name: form.format for name, form in _FORMS.items()}))
        lines.append("")
    for (machine, helps), part in shown[shown["helps"] != ""].groupby(["machine", "helps"], sort=False):
        lines.append(f"{', '.join(part['node'])} on {machine}: {helps}")
    lines += _others(frame, set(shown["node"]), library.title if library else f"dispatch {about['dispatch']}")
    for machine, found in about["outputs"].items():
        if machine != about["reference"]:
            differs, most = found["differs"], found["max_difference"]
            apart = f"{differs:.2%} differ, by up to {most:.4g} ({found['sqnr_db']:.1f} dB)" if differs else "the same"
            lines.append(f"outputs of {machine} beside those of {about['reference']}: {apart}")
    return "\n".join([*lines, *(f"not claimed: {told}" for told in about["unclaimed"])])
