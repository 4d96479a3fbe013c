"""simdnn.porting: a model on several CPUs: where their outputs part, by how much, and what it costs to mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument, SimdnnError, Unimplemented, UnknownTiming
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.late import frames, pd
from simdnn.networks.feeds import listed_feeds
from simdnn.networks.judging import error_of
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.network import Network, load
from simdnn.networks.ops.quantized import INTEGER_PRODUCTS
from simdnn.networks.ops.registry import op_of_model
from simdnn.networks.passes.graph_rewriting import first_of
from simdnn.networks.passes.nchwc import LAID
from simdnn.networks.result import NetworkResult, NodeRun
from simdnn.networks.types import is_float, label
from simdnn.networks.unknown_orders import Elsewhere
from simdnn.primitives import Attr
from simdnn.primitives.run import Target
from simdnn.progress import Progress, each, shows

if TYPE_CHECKING:
    from simdnn.networks.modes import Model

COLUMNS = (
    *("node", "op", "machine", "types", "computes", "implementation", "saturated", "own", "differs", "max_difference"),
    *("cycles", "exact_cycles", "macs", "helps"),
)
Row = dict[str, Any]
Values = Mapping[str, Any]  # what the nodes of one run gave, by name
#: operators that leave elements as they are
_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Slice", "Split", "Concat", "Expand")
#: what helps convolutions, pools and more whose channels lie in blocks of other sizes on another CPU
NO_BLOCKS = "session.graph_optimization_level=ORT_ENABLE_EXTENDED on both: no blocks of channels"
_LAID = ("Conv", "FusedConv", "ConvOnto", "AveragePool", "GlobalAveragePool")  # which may add up in blocks of channels


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
    """A model on several CPUs, run from end to end on each: which nodes differ, by how much, and what helps.

    `model`: an ONNX file, `onnx.ModelProto` or loaded `Network`, in integers, f32, f16 or several of them. `feeds`: one
    or several. `dispatch`: whose kernels run, as in `simdnn.matmul`. Nodes that a library computes in an order that is
    not known here (`attrs["unclaimed"]`) are computed by the fastest kernels of AVX2 on all machines. Nodes are
    compared with those of the last machine; there is a row for each with products, and for others that differ by
    themselves, on each machine.

    Columns: node, op, machine; types (source and weights of integer products as stored, of others the output's);
    computes (the type that its products are formed in, f32 where a library dequantizes operands first); implementation;
    saturated (share of the outputs that met a saturating pair on the way); own (share of the outputs that are not the
    last machine's where the node reads what it read there); differs (the same from end to end); max_difference (of
    these, in the unit of the output); cycles; exact_cycles (by kernels here that cannot saturate, and read windows in
    place; of convolutions of floats by those without blocks of channels); macs; helps (what keeps a node from that).
    `attrs`: dispatch, reference (the last machine), unclaimed, and outputs: by machine `differs`, `max_difference` and
    `sqnr_db` of the model's outputs. `progress`: as in `simdnn.progress`, a step a machine.

    Raises `InvalidArgument` for fewer than two machines, and GPUs.

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
    targets = [Target.of(machine, None, threads, "auto", dispatch) for machine in machines]
    if len(targets) < 2 or any(target.gpu for target in targets):
        told = ", ".join(target.machine.name for target in targets) or "none"
        raise InvalidArgument(f"machines: {told}; two CPUs or more are needed, e.g. machines=['hsw', 'icx']")
    runs: list[_Ported] = []
    for target in each(targets[::-1], lambda one: one.machine.name, progress):
        runs.insert(0, _Ported.of(network, target, data, runs[-1] if runs else None))
    reference, told_of = runs[-1], {name for run in runs for name in run.worth_a_row()}
    rows = [row for run in runs for row in run.rows(reference, told_of)]
    frame = frames.shown(pd.DataFrame(rows, columns=list(COLUMNS)))
    frame.attrs.update(
        dispatch=dispatch,
        reference=reference.name,
        unclaimed=list(dict.fromkeys(text for run in runs for text in run.unclaimed)),
        outputs={run.name: _differences(run.outputs, reference.outputs) for run in runs},
    )
    return frame


@dataclass
class Porting(Elsewhere):
    """Kernels that keep what is said of products whose order in a library is not known; where not `in_blocks`,
    convolutions of floats are those of a library that lays no channels in blocks.
    """

    told: list[str] = field(default_factory=list)
    in_blocks: bool = True

    def unclaimed(self, error: Unimplemented) -> None:
        """Keep what the library's model says."""
        self.told.append(str(error))

    def instead(self, error: Unimplemented | UnknownTiming) -> Kernels:
        """Kernels for a node that the library's model refuses: those of AVX2."""
        if not self.runs_models or not isinstance(error, Unimplemented):
            raise error
        self.unclaimed(error)
        t = self.target
        return replace(self, target=Target.of(t.machine, "avx2", t.threads, t.engine, "fastest"))

    def convolution(self, src: Array, weights: Array, bias: Array | None = None, **options: Any) -> Array:
        """A convolution; blocks are for weights that are constants."""
        if self.in_blocks or not is_float(src.dtype):
            return super().convolution(src, weights, bias, **options)
        return replace(self, in_blocks=True, constant_weights=False).convolution(src, weights, bias, **options)


@dataclass(frozen=True, eq=False)
class _Ported:
    """One machine's run of all feeds: values by name, those of nodes that read the reference's, and costs."""

    name: str
    network: Network
    results: Sequence[NetworkResult]
    values: Sequence[Values]
    own: Mapping[str, float]  # by a node's first output: the share that differs, by itself
    exact: Mapping[str, float | None]  # cycles by kernels that part nowhere
    by_library: bool  # whether kernels are those of a library that runs models
    unclaimed: Sequence[str]

    @staticmethod
    def of(
        network: Network, target: Target, feeds: Sequence[Mapping[str, Array]], reference: _Ported | None
    ) -> _Ported:
        kernels = Porting(target, Attr())
        results, values = zip(*(_watched(network, kernels, feed) for feed in feeds), strict=True)
        own: dict[str, float] = {}
        if reference is not None and any(_apart(values, reference.values)):
            read = zip(feeds, reference.values, strict=True)
            given = [_watched(network, kernels, feed, instead)[1] for feed, instead in read]
            own = dict(_apart(given, reference.values))
        exact, told = _careful(network, target, feeds[0]), list(dict.fromkeys(kernels.told))
        return _Ported(target.machine.name, network, results, values, own, exact, kernels.runs_models, told)

    @property
    def outputs(self) -> list[Array]:
        """The model's outputs, those of all feeds."""
        return [np.asarray(values) for result in self.results for values in result.outputs.values()]

    def worth_a_row(self) -> Iterator[str]:
        """The first output of each node that multiplies, or differs by itself."""
        for run in self.results[0].nodes:
            if not run.free and (run.macs or run.node.op in INTEGER_PRODUCTS) or self.own.get(first_of(run.node)):
                yield first_of(run.node)

    def rows(self, reference: _Ported, told_of: set[str]) -> list[Row]:
        """A row for each of the nodes `told_of` that the reference has, too."""
        found = []
        for runs in zip(*(result.nodes for result in self.results), strict=True):
            first, name = runs[0], first_of(runs[0].node)
            if name not in told_of or name not in reference.values[0]:
                continue
            saturated, cycles, exact = _saturated(runs), _cycles(first), self.exact.get(name)
            blocks = self.by_library and _in_blocks(first.node)
            helps = (
                _helps(first.node, cycles, exact) if saturated else NO_BLOCKS if blocks and self.own.get(name) else ""
            )
            about = {
                "node": _name(first.node),
                "op": op_of_model(first.node),
                "machine": self.name,
                "implementation": first.implementation,
                "macs": first.macs,
                "own": self.own.get(name, 0.0),
                "types": _types(self.network, first.node) if first.node.op in INTEGER_PRODUCTS else first.dtype,
                "computes": next((call.compute_dtype for call in first.calls if call.macs), ""),
            }
            parts = _differences(*([_array(one[name]) for one in run.values] for run in (self, reference)))
            parts.pop("sqnr_db")
            told = exact if blocks or first.node.op in INTEGER_PRODUCTS else None
            costs = {"saturated": saturated, "cycles": cycles, "exact_cycles": told, "helps": helps}
            found.append(about | parts | costs)
        return found


def _watched(
    network: Network, kernels: Porting, feed: Mapping[str, Array], instead: Values | None = None
) -> tuple[NetworkResult, Values]:
    """A run, and the values of its nodes; later ones read `instead` of these."""
    values: dict[str, Any] = {}

    def watch(node: Node, given: Sequence[Any]) -> None:
        values.update(zip(node.outputs, given, strict=False))

    return network.run_by(kernels, feed, watch=watch, instead=instead), values


def _careful(network: Network, target: Target, feed: Mapping[str, Array]) -> dict[str, float | None]:
    """Cycles of each node by kernels that neither saturate nor have blocks; none where sizes hang on values."""
    kernels = Porting(target, Attr(exact_int8=True), values=False, in_blocks=False)
    try:
        priced = network.estimate_by(kernels, dict(feed))
    except SimdnnError:
        return {}
    return {first_of(run.node): _cycles(run) for run in priced.nodes}


def _apart(values: Sequence[Values], reference: Sequence[Values]) -> Iterator[tuple[str, float]]:
    """Names of values that differ from the reference, and the share of their elements that differ."""
    for name in values[0]:
        if (
            name
            and name in reference[0]
            and isinstance(values[0][name], np.ndarray)
            and values[0][name].dtype != object
        ):
            share = _differences(*([_array(one[name]) for one in run] for run in (values, reference)))["differs"]
            if share:
                yield name, share


def _array(value: Any) -> Array:
    return value if isinstance(value, np.ndarray) else np.zeros(0)


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


def _in_blocks(node: Node) -> bool:
    """Whether a node of floats may add up by blocks of channels."""
    return LAID in node.attributes or node.op in _LAID


def _differences(arrays: Sequence[Array], reference: Sequence[Array]) -> Row:
    """How much of some arrays is not what it is in others, by how much at most, and the error over the signal."""
    if any(x.shape != y.shape for x, y in zip(arrays, reference, strict=True)):
        return {"differs": 1.0, "max_difference": np.inf, "sqnr_db": np.nan}
    a, b = ([part.astype(np.float64) for part in parts] for parts in (arrays, reference))
    apart = np.concatenate([_distances(x, y) for x, y in zip(a, b, strict=True)])
    return {
        "differs": float((apart != 0).mean()) if apart.size else 0.0,
        "max_difference": float(apart.max(initial=0.0)),
        "sqnr_db": error_of(a, b)["sqnr_db"],
    }


def _distances(x: Array, y: Array) -> Array:
    """|x - y| of each element: 0 where both are not a number, or the same infinity, and infinite where one is."""
    alike = (x == y) | np.isnan(x) & np.isnan(y)
    with np.errstate(invalid="ignore"):
        found = np.where(alike, 0, np.abs(x - y)).reshape(-1)
    return np.where(np.isnan(found), np.inf, found)
