"""The content of a network: operators, shapes, multiply-accumulates, parameters, and what no operator here can do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isa_models import SimdnnError
from simdnn.late import frames, pd
from simdnn.networks.network import Network
from simdnn.networks.ops import supported
from simdnn.primitives.result import plain

_ANY_MACHINE = "zen4"  # shapes and multiply-accumulates are the same on every machine


@dataclass(frozen=True, eq=False)
class Inspection:
    """A network's nodes and totals. `rows`: node, op, output, dtype, macs, supported; the shapes are missing, and
    `why_no_shapes` says why, where an input has no fixed rank or an operator is not supported. `taken_as_1`: sizes
    that the model leaves open.
    """

    network: Network
    rows: tuple[dict[str, Any], ...]
    why_no_shapes: str
    taken_as_1: tuple[str, ...] = ()

    @property
    def operators(self) -> dict[str, int]:
        """How often each operator occurs, the most frequent first."""
        return dict(Counter(row["op"] for row in self.rows).most_common())

    @property
    def unsupported(self) -> dict[str, int]:
        """How often each operator that is not supported occurs, the most frequent first."""
        return dict(Counter(row["op"] for row in self.rows if not row["supported"]).most_common())

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of the products, where the shapes are known."""
        return None if self.why_no_shapes else sum(row["macs"] for row in self.rows)

    def to_frame(self) -> pd.DataFrame:
        """A row a node."""
        return frames.shown(
            pd.DataFrame(list(self.rows), columns=["node", "op", "output", "dtype", "macs", "supported"])
        )

    def to_json(self) -> str:
        """Inputs, outputs, totals, operators and the rows."""
        record = {
            "inputs": [str(port) for port in self.network.inputs],
            "outputs": [str(port) for port in self.network.outputs],
            "parameters": self.network.parameters,
            "macs": self.macs,
            "operators": self.operators,
            "unsupported": self.unsupported,
            "why_no_shapes": self.why_no_shapes,
            "taken_as_1": list(self.taken_as_1),
            "nodes": list(self.rows),
        }
        return json.dumps(plain(record), allow_nan=False)


def inspect(network: Network, shapes: Mapping[str, Sequence[int]] | None = None) -> Inspection:
    """Look at a network; `shapes` gives sizes to inputs that the model leaves open, else they are 1. Nothing is run."""
    known: dict[str, dict[str, Any]] = {}
    why, taken = "", list[str]()
    try:
        sizes, taken = network.sizes(shapes)
        for run in network.estimate(sizes, machine=_ANY_MACHINE).nodes:
            shape = "?" if run.shape is None else "x".join(map(str, run.shape)) or "scalar"
            known[run.node.name] = {"output": shape, "dtype": run.dtype, "macs": run.macs}
    except SimdnnError as error:
        if shapes:
            raise
        why = str(error)
    rows = []
    for node in network.graph.every_node:
        op = f"{node.domain}::{node.op}" if node.domain else node.op
        found = known.get(node.name, {"output": "?", "dtype": "?", "macs": 0})
        rows.append({"node": node.name, "op": op, **found, "supported": supported(node)})
    return Inspection(network, tuple(rows), why, tuple(taken))
