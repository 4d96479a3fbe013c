"""simdnn.porting: a model stored in integers on several CPUs, where their outputs part, and what that costs to mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented, UnknownTiming
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.late import frames, pd
from simdnn.networks.elsewhere import Elsewhere
from simdnn.networks.model import Node
from simdnn.networks.modes import error_of, listed_feeds
from simdnn.networks.network import Network, load
from simdnn.networks.ops.quantized import INTEGER_PRODUCTS
from simdnn.networks.ops.registry import op_of_model
from simdnn.networks.result import NetworkResult, NodeRun
from simdnn.networks.types import label
from simdnn.primitives import Attr
from simdnn.primitives.run import Target
from simdnn.progress import Progress, each, shows

if TYPE_CHECKING:
    from simdnn.networks.modes import Model

COLUMNS = (
    *("node", "op", "machine", "types", "computes", "implementation", "saturated", "differs", "max_difference"),
    *("cycles", "exact_cycles", "macs", "helps"),
)
Row = dict[str, Any]
#: operators that leave elements as they are
_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Slice", "Split", "Concat", "Expand")


@keywords
@shows
def porting(
    model: Model,
    feeds: Mapping[str, Array] | Sequence[Mapping[str, Array]],
    *,
    machines: Sequence[str | AnyMachine],
    dispatch: str = "onnxruntime",
    threads: int = 1,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """A model stored in integers on several CPUs, run from end to end on each: a row a node with products and machine.

    `model`: an ONNX file, `onnx.ModelProto` or loaded `Network`. `feeds`: one or several. `dispatch`: whose kernels
    run, as in `simdnn.matmul`. Floats that a library multiplies in an order that is not known here
    (`attrs["unclaimed"]`) are multiplied by the fastest kernels of AVX2 on all machines. Nodes are compared with those
    of the last machine.

    Columns: node, op, machine; types (as stored); computes (the type that its products are formed in, f32 where a
    library dequantizes operands first); implementation; saturated (share of the outputs that met a saturating
    pair on the way); differs (share of the node's outputs that are not the last machine's, whatever came before it);
    max_difference (of these, in the unit of the output); cycles; exact_cycles (by kernels here that cannot saturate,
    and read windows in place); macs; helps (what keeps a node that saturates from it, and what that costs). `attrs`:
    dispatch, reference (the last machine), unclaimed, and outputs: by machine `differs`, `max_difference` and `sqnr_db`
    of the model's outputs. `progress`: as in `simdnn.progress`, a step a machine.

    Raises `InvalidArgument` for a model that is not stored in integers, fewer than two machines, and GPUs.

    >>> import workloads
    >>> from simdnn import quantize_onnx
    >>> from workloads.export import onnx_model
    >>> net = workloads.NETWORKS["digits"]()
    >>> images = {"images": net.test_images[:2]}
    >>> frame = porting(quantize_onnx(onnx_model(net), [images]), images, machines=["hsw", "icx"])
    >>> frame[frame.machine == "hsw"][["node", "types"]].values.tolist()[0]
    ['conv1', 'u8:s8']
    >>> frame.attrs["outputs"]["icx"]["differs"]
    0.0
    """
    network, data = load(model), listed_feeds("feeds", feeds)
    if not network.is_integer:
        raise InvalidArgument("the model is not stored in integers; what works: one that simdnn.quantize_onnx made")
    targets = [Target.of(machine, None, threads, "auto", dispatch) for machine in machines]
    if len(targets) < 2 or any(target.gpu for target in targets):
        told = ", ".join(target.machine.name for target in targets) or "none"
        raise InvalidArgument(f"machines: {told}; two CPUs or more are needed, e.g. machines=['hsw', 'icx']")
    runs = [_Ported.of(network, target, data) for target in each(targets, lambda one: one.machine.name, progress)]
    reference = runs[-1]
    frame = frames.shown(pd.DataFrame([row for run in runs for row in run.rows(reference)], columns=list(COLUMNS)))
    frame.attrs.update(
        dispatch=dispatch,
        reference=reference.name,
        unclaimed=list(dict.fromkeys(text for run in runs for text in run.unclaimed)),
        outputs={run.name: _differences(run.outputs, reference.outputs) for run in runs},
    )
    return frame


@dataclass
class Porting(Elsewhere):
    """Kernels that keep what is said of products whose order in a library is not known."""

    told: list[str] = field(default_factory=list)

    def unclaimed(self, error: Unimplemented) -> None:
        """Keep what the library's model says."""
        self.told.append(str(error))


@dataclass(frozen=True, eq=False)
class _Ported:
    """One machine's run of all feeds: values of products by node, and what they cost."""

    name: str
    network: Network
    results: Sequence[NetworkResult]
    values: Mapping[str, Array]  # of each node with products, all feeds side by side
    exact: Mapping[str, float | None]  # cycles by kernels that cannot saturate
    unclaimed: Sequence[str]

    @staticmethod
    def of(network: Network, target: Target, feeds: Sequence[Mapping[str, Array]]) -> _Ported:
        kernels = Porting(target, Attr())
        values: dict[str, list[Array]] = {}

        def watch(node: Node, given: Sequence[Any]) -> None:
            if node.op in INTEGER_PRODUCTS:
                values.setdefault(_name(node), []).append(np.asarray(given[0]).reshape(-1))

        results = [network.run_by(kernels, feed, watch=watch) for feed in feeds]
        careful = Porting(target, Attr(exact_int8=True), values=False)
        priced = network.estimate_by(careful, {name: value for name, value in feeds[0].items()})
        exact = {_name(run.node): _cycles(run) for run in priced.nodes}
        whole = {name: np.concatenate(parts) for name, parts in values.items()}
        return _Ported(target.machine.name, network, results, whole, exact, kernels.told)

    @property
    def outputs(self) -> list[Array]:
        """The model's outputs, those of all feeds."""
        return [np.asarray(values) for result in self.results for values in result.outputs.values()]

    def rows(self, reference: _Ported) -> list[Row]:
        """A row a node that multiplies integers."""
        found = []
        for runs in zip(*(result.nodes for result in self.results), strict=True):
            first, name = runs[0], _name(runs[0].node)
            if name not in self.values or first.free:
                continue
            saturated, cycles, exact = _saturated(runs), _cycles(first), self.exact[name]
            about = {
                "node": name,
                "op": op_of_model(first.node),
                "machine": self.name,
                "implementation": first.implementation,
            }
            about |= {"types": _types(self.network, first.node), "saturated": saturated, "macs": first.macs}
            about["computes"] = next((call.compute_dtype for call in first.calls if call.macs), "")
            parts = _differences([self.values[name]], [reference.values[name]])
            parts.pop("sqnr_db")
            helps = _helps(first.node, cycles, exact) if saturated else ""
            found.append(about | parts | {"cycles": cycles, "exact_cycles": exact, "helps": helps})
        return found


def _name(node: Node) -> str:
    return node.name or node.outputs[0]


def _cycles(run: NodeRun) -> float | None:
    try:
        return run.cost.cycles
    except UnknownTiming:
        return None


def _saturated(runs: Sequence[NodeRun]) -> float:
    """The share of a node's outputs, over all feeds, with a pair that saturated."""
    counts = [
        call.departed.saturated
        for run in runs
        for call in run.calls
        if call.departed is not None and call.departed.saturated is not None
    ]
    return float(np.mean([(count > 0).mean() for count in counts])) if counts else 0.0


def _types(network: Network, node: Node) -> str:
    """Source and weights as they are stored, as far as the model tells."""
    weights = INTEGER_PRODUCTS[node.op]
    points = (2, 5) if weights > 1 else (2, 3)
    return ":".join(_type(network, node, at, point) for at, point in zip((0, weights), points, strict=True))


def _type(network: Network, node: Node, at: int, point: int) -> str:
    """The type of an operand: its own or its zero point's where they are constants, or that of what quantized it."""
    names = [node.inputs[i] for i in (at, point) if i < len(node.inputs)]
    known = next((network.graph.constants[name] for name in names if name in network.graph.constants), None)
    if known is not None:
        return label(known.dtype)
    makers = {name: each for each in network.graph.nodes for name in each.outputs}
    maker = makers.get(names[0])
    while maker is not None and maker.op in _MOVING:
        maker = makers.get(maker.inputs[0])
    if maker is None or maker.op not in ("QuantizeLinear", "DynamicQuantizeLinear"):
        return "?"
    zero = network.graph.constants.get(maker.inputs[2]) if len(maker.inputs) > 2 else None
    return "u8" if zero is None else label(zero.dtype)


def _helps(node: Node, cycles: float | None, exact: float | None) -> str:
    """Remedies for a node of u8 sources and s8 weights that saturates, and what they cost."""
    more = f"{exact:,.0f} cycles in place of {cycles:,.0f}" if cycles and exact else "cycles not known"
    session = " (session.x64quantprecision=1 makes them)" if node.domain == "simdnn" else ""
    return f"weights of 7 bits (reduce_range): no more cycles; weights of u8{session}: exact, {more}"


def _differences(found: Sequence[Array], reference: Sequence[Array]) -> Row:
    """How much of some arrays is not what it is in others, by how much at most, and the error over the signal."""
    a, b = ([part.astype(np.float64) for part in parts] for parts in (found, reference))
    apart = np.concatenate([np.abs(x - y).reshape(-1) for x, y in zip(a, b, strict=True)])
    return {
        "differs": float((apart != 0).mean()) if apart.size else 0.0,
        "max_difference": float(apart.max(initial=0.0)),
        "sqnr_db": error_of(a, b)["sqnr_db"],
    }
