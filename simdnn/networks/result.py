"""Results of a network's run: outputs, and what each node cost."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from isa_models import GpuMachine, Machine, SimdnnError
from isa_models.errors import counted
from isa_models.machines.provenance import Confidence, weakest
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import Brief
from simdnn.exactness import measures
from simdnn.explanations.departures import COLUMNS, Departures
from simdnn.late import frames, pd
from simdnn.networks.calls import Call
from simdnn.networks.model import Node
from simdnn.networks.types import label
from simdnn.primitives.result import plain, sources
from simdnn.progress import working
from simdnn.timing.causes import CAUSES


@dataclass(frozen=True, eq=False, repr=False)
class NodeRun(Alike, Brief):
    """One node as it ran: its kernel calls and the shape and type of its first output.

    `free` says why it costs nothing: "constant" (computed once, before any run) or "view" (elements stay where they
    are); empty where kernels ran.
    """

    node: Node
    calls: tuple[Call, ...]
    shape: tuple[int, ...] | None
    dtype: str
    free: str = ""

    @property
    def implementation(self) -> str:
        """The kernels' names in the order of their first call."""
        return self.free or " + ".join(dict.fromkeys(call.implementation for call in self.calls))

    @property
    def macs(self) -> int:
        return sum(call.macs for call in self.calls)

    @cached_property
    def cost(self) -> NodeCost:
        """Raises `UnknownTiming` naming the node where a figure is missing."""
        total = NodeCost()
        for call in self.calls:
            try:
                found = call.find_cost()
            except SimdnnError as error:
                raise type(error)(f"{self.node}: {error}") from None
            if found.cycles > total.largest:
                total.largest, total.bound = found.cycles, found.bound
            total.cycles += found.cycles
            total.seconds += found.seconds
            total.confidence = weakest([total.confidence, found.confidence, call.confidence])
        return total


@dataclass
class NodeCost:
    """Sums over a node's calls; `bound` is that of the longest one."""

    cycles: float = 0.0
    seconds: float = 0.0
    bound: str = ""
    confidence: Confidence = "measured"
    largest: float = field(default=0.0, repr=False)


def longest(bounds: Iterable[tuple[str, float]]) -> str:
    """The bound that most of the time goes to, of bounds with seconds."""
    seconds: dict[str, float] = defaultdict(float)
    for bound, time in bounds:
        seconds[bound] += time
    return max(seconds, key=seconds.__getitem__, default="")


@dataclass(frozen=True, eq=False, repr=False)
class NetworkEstimate(Alike):
    """The cost of a network on `threads` cores, node after node, each with its operands where the caches hold them.

    The constants of a network that has more of them than the last cache holds come from memory.
    """

    machine: Machine | GpuMachine
    isa: str | None
    threads: int
    nodes: tuple[NodeRun, ...]

    @cached_property
    def _costs(self) -> list[NodeCost]:
        return [run.cost for run in self.nodes]

    @property
    def cycles(self) -> float:
        """Cycles of all nodes. Raises `UnknownTiming` naming the first node whose cost nobody knows."""
        return sum(cost.cycles for cost in self._costs)

    @property
    def seconds(self) -> float:
        return sum(cost.seconds for cost in self._costs)

    @property
    def bound(self) -> str:
        """The bound of the nodes that most of the time goes to; "" without nodes."""
        return longest((cost.bound, cost.seconds) for cost in self._costs)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the products."""
        return sum(run.macs for run in self.nodes)

    @property
    def confidence(self) -> Confidence:
        """The weakest standing among the figures used; "estimated" where a node's program stands in for another."""
        return weakest([cost.confidence for cost in self._costs])

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """Frame: level, read_bytes, written_bytes, over all nodes; the nearest level first."""
        parts = [
            call.find_cost().traffic.set_index("level")[["read_bytes", "written_bytes"]]
            for run in self.nodes
            for call in run.calls
        ]
        if not parts:
            return pd.DataFrame(columns=["level", "read_bytes", "written_bytes"])
        return frames.shown(pd.concat(parts).groupby(level=0, sort=False).sum().reset_index())

    @cached_property
    def causes(self) -> pd.DataFrame:
        """Frame: cause, cycles, share of all nodes' cycles, as `Result.causes` has them."""
        parts = [call.find_cost().causes for run in self.nodes for call in run.calls]
        if not parts:
            return pd.DataFrame(columns=["cause", "cycles", "share"])
        found = pd.concat(parts).groupby("cause", sort=False)["cycles"].sum()
        found = found.reindex([cause for cause in CAUSES if cause in found.index])
        return frames.shown(found.reset_index().assign(share=lambda frame: frame["cycles"] / found.sum()))

    @cached_property
    def provenance(self) -> dict[str, str]:
        """The sources of the numbers: machine and digest of its file, package version, the nodes and their kernels."""
        ran = "\n".join(f"{run.node} {run.shape} {run.dtype} {run.implementation}" for run in self.nodes)
        return sources(self.machine) | {"nodes_sha256": hashlib.sha256(ran.encode()).hexdigest()}

    def to_frame(self) -> pd.DataFrame:
        """A row a node: node, op, implementation, output, dtype, macs, cycles, time_us, share, bound, confidence."""
        total, runs, costs = self.cycles or 1.0, self.nodes, self._costs
        frame = pd.DataFrame(
            {
                "node": [run.node.name for run in runs],
                "op": [run.node.op for run in runs],
                "implementation": [run.implementation for run in runs],
                "output": ["?" if run.shape is None else "x".join(map(str, run.shape)) for run in runs],
                "dtype": [run.dtype for run in runs],
                "macs": [run.macs for run in runs],
                "cycles": [cost.cycles for cost in costs],
                "time_us": [cost.seconds * 1e6 for cost in costs],
                "share": [cost.cycles / total for cost in costs],
                "bound": [cost.bound for cost in costs],
                "confidence": [cost.confidence for cost in costs],
            }
        )
        return frames.shown(frame, ["node", "op", "implementation", "cycles", "share", "bound"])

    def to_json(self) -> str:
        """The totals, the rows of `to_frame`, `traffic` and `provenance`."""
        record = {
            "machine": self.machine.name,
            "isa": self.isa,
            "threads": self.threads,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "macs": self.macs,
            "bound": self.bound,
            "confidence": self.confidence,
            "nodes": self.to_frame().to_dict("records"),
            "traffic": self.traffic.to_dict("records"),
            "provenance": self.provenance,
        }
        return json.dumps(plain(record), allow_nan=False)

    def __repr__(self) -> str:
        try:
            cost = f"{self.cycles:,.0f} cycles, {self.seconds * 1e6:,.1f} us, {self.confidence}"
        except SimdnnError as error:  # a figure is missing
            cost = f"no cost: {error}"
        nodes = counted(len(self.nodes), "node")
        return f"{type(self).__name__}({nodes} on {self.machine.name}: {cost}; .to_frame() by node)"

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, max_rows=40))


@dataclass(frozen=True, eq=False, repr=False)
class NetworkResult(NetworkEstimate):
    """An estimate together with the values."""

    outputs: dict[str, Array]

    @cached_property
    @working("saturated steps of each node, counted")
    def saturation(self) -> pd.DataFrame:
        """Frame: node, implementation, outputs, saturated_outputs, saturated_share; a row a node that can saturate.

        The products of those nodes are computed once more, counting.
        """
        rows = [
            (node, call.implementation, counts.size, int((counts > 0).sum()), float((counts > 0).mean()))
            for node, call, departed in self._departed
            if (counts := departed.saturated) is not None and counts.size
        ]
        columns = ["node", "implementation", "outputs", "saturated_outputs", "saturated_share"]
        return frames.shown(pd.DataFrame(rows, columns=columns))

    @cached_property
    @working("departures of each node from exact sums")
    def departures(self) -> pd.DataFrame:
        """Every departure of the nodes' integer kernels from exact arithmetic: a row a node and kind that happened.

        Columns: node, implementation, and those of `Result.departures`. Products are computed once more to find them.
        `attrs`: exact (nothing departed), summary, and over all nodes
        with such kernels outputs, saturated_outputs, halved_outputs … , departed_outputs and the shares.
        """
        parts = [
            departed.frame().assign(node=node, implementation=call.implementation)
            for node, call, departed in self._departed
            if departed.found
        ]
        columns = ["node", "implementation", *COLUMNS]
        found = pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
        counts = measures.departures((departed, 1) for _, _, departed in self._departed)
        found = frames.shown(found)
        found.attrs.clear()  # those of one node
        found.attrs.update(counts, exact=found.empty, summary=measures.departed_text(counts) or "none")
        return found

    @property
    def _departed(self) -> Iterator[tuple[str, Call, Departures]]:
        """Nodes' calls of kernels that may depart."""
        for run in self.nodes:
            for call in run.calls:
                if call.departed is not None:
                    yield run.node.name, call, call.departed

    def to_frame(self) -> pd.DataFrame:
        """The rows of the estimate; and departed_outputs and departures (kinds with their shares), "" where none."""
        frame = super().to_frame()
        counts = [measures.departures((call.departed, 1) for call in run.calls if call.departed) for run in self.nodes]
        frame["departed_outputs"] = [int(c["departed_outputs"]) for c in counts]
        frame["departures"] = [measures.departed_text(c) for c in counts]
        return frame


def described(value: Any) -> tuple[tuple[int, ...] | None, str]:
    """Shape and type of a node's output; of a sequence how many tensors it has."""
    if isinstance(value, list):
        return (len(value),), "sequence"
    return (None, "?") if value is None else (value.shape, label(value.dtype))
