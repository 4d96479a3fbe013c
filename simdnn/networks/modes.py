"""An ONNX model in precision modes: the model changed, or the kernels told, and what comes out beside f32."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

import isa_models
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from isa_models.formats import fmt
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.exactness import measures
from simdnn.late import frames, pd
from simdnn.networks.feeds import listed_feeds, overlap_of
from simdnn.networks.float16 import float16_report, transpile_float16
from simdnn.networks.graph_run import Watch
from simdnn.networks.judging import NO_FLOATS, Judging, Metric, error_of, floats_of
from simdnn.networks.load import graph_of
from simdnn.networks.mixed import Mixable, attr_of, mixable, placed, rewritten, storage_of
from simdnn.networks.model import Node
from simdnn.networks.narrow_weights import NarrowMode
from simdnn.networks.network import Network, load
from simdnn.networks.ops.quantized import stands_for
from simdnn.networks.ops.registry import QUANTIZED
from simdnn.networks.passes.qdq import fused
from simdnn.networks.precision import (
    ANY_ISA,
    GPUS,
    MODES,
    Mode,
    check_filters,
    check_groups,
    check_layers,
    choose,
    named_modes,
)
from simdnn.networks.quantize import STORING, quantize_onnx, ranges_of, why_floats
from simdnn.networks.quantized_writer import Ranges
from simdnn.networks.result import NetworkEstimate, NetworkResult
from simdnn.networks.runner import Frames, InMode, Row, check_scoped, computed, run_modes
from simdnn.networks.types import number
from simdnn.primitives import Attr
from simdnn.progress import Progress

if TYPE_CHECKING:
    import onnx

    Model = str | PathLike[str] | onnx.ModelProto | Network
#: of a model whose products are integer ones already: all kernels of the machine, nothing changed
STORED = Mode("as stored", "an integer model's own graph", "", "", ANY_ISA, gpus=GPUS)
_TOTALS_PRINTED = ("mode", "accuracy", "metric", "speed_up", "sqnr_db", "computes", "cycles", "bound", "departures")
_LAYERS_PRINTED = ("layer", "mode", "implementation", "cycles", "sqnr_db", "departures")
_EXACT = "icx"  # sums of integers are exact on any machine with VNNI


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A model and the feeds that its int8 forms take their ranges from; they are run once, when first needed."""

    model: Model
    feeds: Sequence[Mapping[str, Array]]
    overlap: str = ""  # where results are judged on some of these feeds, too: a sentence that says so
    known: Ranges | None = None  # ranges that are known already, in place of feeds

    @cached_property
    def is_integer(self) -> bool:
        """Whether the model is stored in integers, which no mode quantizes again."""
        return load(self.model).is_integer

    @cached_property
    def ranges(self) -> Ranges:
        return ranges_of(self.model, self.feeds) if self.known is None else self.known

    @cached_property
    def mixable(self) -> Mixable:
        """The model as recipes take it."""
        return mixable(self.model)


def in_recipe(calibrated: Calibrated, mode: Mode) -> Network:
    """The network of a recipe; `mixed.placed` says where its nodes run. `UnknownName` for a layer that is not there."""
    check_recipe(calibrated, mode)
    ranges = calibrated.ranges if any(one.is_integer for one in mode.parts) else {}
    with calibrated.mixable.shelf:
        made = rewritten(calibrated.mixable, mode, ranges)
        plain = graph_of(made, None)
        return Network(fused(plain), made, _plain=plain)  # what `load` checks beside this is known of the model


def check_recipe(calibrated: Calibrated, mode: Mode) -> None:
    """`UnknownName` for a layer that the model lacks, `InvalidArgument` where known ranges lack what a layer reads."""
    check_layers(mode, calibrated.mixable.layers)
    check_filters(mode, calibrated.mixable.convolutions)
    for one in mode.parts:
        check_groups(one)
    if calibrated.known is not None:
        _check_ranges(calibrated.mixable, mode, calibrated.known)


def _check_ranges(mixed: Mixable, mode: Mode, ranges: Ranges) -> None:
    """`InvalidArgument` where a layer is to be in integers and nothing tells the range of its source."""
    graph = mixed.model.graph
    runs = {name for node in graph.node for name in node.output} | {port.name for port in graph.input}
    for node in graph.node:
        own = node.name in mixed.layers and mode.of_layer(node.name).is_integer
        if own and node.input[0] in runs and node.input[0] not in ranges:
            said = f"layer {node.name!r} is to be in {mode.of_layer(node.name).name}, and the ranges lack its source"
            known = ", ".join(list(ranges)[:4]) or "none"
            raise InvalidArgument(f"{said} {node.input[0]!r} (they have {known}): are they of another model?")


def in_mode(calibrated: Calibrated, mode: Mode, only: Sequence[str] = ("*",)) -> tuple[Network, Attr]:
    """The network and the attribute that put a model in a mode; `only`: patterns of nodes that are stored in it.

    `Unimplemented` where nothing of the model can be put in it, so that f32 is not shown under its name.
    """
    check_groups(mode)
    model = calibrated.model
    if mode.is_integer and calibrated.is_integer:
        return load(model), attr_of(mode)
    if mode.is_integer:
        narrow = quantize_onnx(model, calibrated.ranges, per_channel=not mode.per_tensor, sources=mode.src, only=only)
        if not any(node.op_type == "QuantizeLinear" for node in narrow.graph.node):
            why = why_floats(model, "a source that is empty, or computed from constants")
            raise Unimplemented(f"nothing here can be quantized: {why}")
        return load(narrow), attr_of(mode)
    if mode.stores:
        narrow = quantize_onnx(model, scheme="weights", only=only, **storage_of(mode))
        if not any(node.op_type in (*STORING, "DequantizeLinear") for node in narrow.graph.node):
            why = why_floats(model, "weights that a convolution keeps in this mode")
            more = "; what stores those of convolutions: f8-channel or s8-weights" if mode.narrow else ""
            raise Unimplemented(f"no weights here can be stored so: {why}{more}")
        return load(narrow), attr_of(mode)
    if mode.src in ("f16", "bf16"):
        narrow = transpile_float16(model, dtype=mode.src, only=only)
        if not _holds(narrow, mode.src):
            reason = next(iter(float16_report(narrow).kept.values()), "")
            works = f" ({reason}); what works: fpmath-{mode.src}" if reason else ": nothing is computed in f32"
            raise Unimplemented(f"nothing here can be {mode.src}{works}")
        return load(narrow), Attr()
    return load(model), attr_of(mode)


def kept(mode: Mode, network: Network) -> list[str]:
    """A note where a mode of products alone meets convolutions."""
    return NarrowMode.kept(mode.narrow, any(node.op == "Conv" for node in network.graph.nodes))


def at_work(
    calibrated: Calibrated, mode: Mode, machine: str | AnyMachine, isa: str | None
) -> tuple[Network, dict[str, Any]]:
    """The network of a mode or of a recipe, and the arguments of `Network.run` that put its kernels in it."""
    if not mode.layers:
        network, attr = in_mode(calibrated, mode)
        return network, {"attr": attr}
    network = in_recipe(calibrated, mode)
    return network, {"attr": Attr(), "placed": placed(network, mode, isa_models.machine(machine), isa)}


def _holds(model: onnx.ModelProto, dtype: str) -> bool:
    """Whether a parameter has a type, or a cast gives it."""
    wanted = number(fmt(dtype).dtype)
    casts = (node for node in model.graph.node if node.op_type == "Cast")
    given = (attribute.i for node in casts for attribute in node.attribute if attribute.name == "to")
    return wanted in {*(values.data_type for values in model.graph.initializer), *given}


@keywords
def run_model(
    model: Model,
    feeds: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    modes: Mapping[Mode, str | None] | Sequence[str] | None = None,
    *,
    calibrate: Sequence[Mapping[str, Array]] | None = None,
    labels: Array | Sequence[int] | None = None,
    metric: Metric | None = None,
    machine: str | AnyMachine = "zen4",
    isa: str | None = None,
    values: bool = True,
    layers: bool = False,
    progress: Progress | None = None,
    fpmath_layers: str = "*",
    ranges: Ranges | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
) -> Frames:
    """An ONNX model in precision modes: `layers`, a row a node and mode, and `totals`, a row a mode with the errors of
    all outputs and the departures of the integer products. `simdnn run MODEL.onnx` prints them.

    `modes` are names, as `simdnn list modes` has them (None: those that make sense on the machine), or a dict that maps
    each mode to the ISA cap that it runs under; `isa` caps the f32 that others are compared with. `values=False`: the
    cost alone, for which shapes will do in place of arrays where no mode is calibrated. `layers`: errors of each node's
    output, too, for which all values of f32 are kept. `fpmath_layers`: in modes that are math modes, nodes whose names
    no pattern of this comma list matches stay strict. `ranges`: those of the f32 tensors, where they are known apart
    from the feeds.

    `feeds`: one, or several in a list: errors are over the outputs of all of them, costs and rows of nodes those of the
    first. `calibrate`: feeds that int8 modes take their ranges from, apart from those that judge (those themselves).
    `labels`: a class for each row of the first output over all feeds; the totals have `accuracy`, the share of rows
    whose largest value is at the label (which are the label, where the output is integers). `metric`: what it makes of
    the outputs, a dict by name, or a list of them where `feeds` is one, stands in the totals' `metric`.

    A model that is stored in integers has no f32: its first row, against which speed is told, is "as stored", its
    errors are against its own graph with exact sums, and a mode that gives the kernels and bits of another row has none
    of its own. What a mode changes nothing of, and what it was calibrated on, is in `note`; a mode that a node refuses
    has the reason in `refused`.

    >>> import workloads
    >>> from workloads.export import onnx_model
    >>> net = workloads.NETWORKS["digits"]()
    >>> found = run_model(onnx_model(net), {"images": net.test_images[:4]}, ["f32", "bf16"], machine="spr")
    >>> found.totals["mode"].tolist(), bool(found.totals["speed_up"].max() > 1)
    (['f32', 'bf16'], True)
    """
    given = listed_feeds("feeds", feeds)
    if modes is None:
        modes, _ = choose(isa_models.machine(machine), None, isa)
    elif not isinstance(modes, Mapping):
        modes = named_modes(isa_models.machine(machine), modes, isa, {**MODES, STORED.name: STORED})
    if not values and (labels is not None or metric):
        raise InvalidArgument("labels and metric judge values, which values=False leaves out")
    judge = Judging(None if labels is None else np.asarray(labels), metric, isinstance(feeds, Mapping))
    calibration = given if calibrate is None else calibrate
    calibrated = Calibrated(model, calibration, overlap_of(given, calibration) if values else "", ranges)
    where = {"machine": machine, "threads": threads, "dispatch": dispatch, "fpmath_layers": fpmath_layers}
    check_scoped([node.name for node in load(model).graph.nodes], fpmath_layers)
    for mode in modes:
        if mode.layers:
            check_recipe(calibrated, mode)
    part = ModelRun(calibrated, given, values, layers, isa, where, judge)
    if STORED in modes and not part.hides:
        raise InvalidArgument(f"mode {STORED.name!r} of a model in floats, which has none; its own mode is 'f32'")
    if part.hides:
        modes = {mode: cap for mode, cap in modes.items() if mode.name != "f32"}
    found = run_modes([part], modes, isa=isa, progress=progress)
    return Frames(_shown(found.layers, _LAYERS_PRINTED), _shown(found.totals, _TOTALS_PRINTED))


def _shown(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    return frames.shown(frame, [name for name in columns if name in frame])


@dataclass(frozen=True, eq=False)
class ModelRun:
    """An ONNX model and feeds as a `runner.Part`; `layers`: errors of nodes, too."""

    calibrated: Calibrated
    feeds: Sequence[Mapping[str, Any]]
    values: bool
    layers: bool
    isa: str | None
    where: Mapping[str, Any]
    judge: Judging
    name: str = "model"
    macs: int = 0
    refusals: tuple[type[SimdnnError], ...] = (SimdnnError,)

    @property
    def hides(self) -> bool:
        return self.calibrated.is_integer

    @property
    def base(self) -> Mode:
        return STORED if self.hides else MODES["f32"]

    def reference(self) -> Seen:
        """Values of a model with exact sums; those of f32 come from its own run."""
        seen = Seen(self.layers)
        if self.hides and self.values:
            self._exact(seen)
        return seen

    def in_mode(self, mode: Mode, isa: str | None, reference: Seen) -> InMode:
        """A row a node. The first mode fills a reference that is empty."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            network, how = at_work(self.calibrated, mode, self.where["machine"], isa)
            where = {**self.where, **how, "isa": isa}
            seen = Seen(self.layers)
            if not self.values:
                result = network.estimate(self.feeds[0], **where)
                rows, whole = node_rows(result), {}
            else:
                watch = seen.watching(network)
                result = network.run(self.feeds[0], watch=watch, **where)
                rest = [network.run(feed, **where) for feed in self.feeds[1:]]
                results = [result, *rest]
                seen.outputs = [values for one in results for values in floats_of(one)]
                if not reference.filled:
                    reference.take(seen)
                rows = node_rows(result, seen.errors(reference))
                whole = self.judge.row([one.outputs for one in results]) | error_of(seen.outputs, reference.outputs)
        run = InMode(rows, [{"computes": computes(result), **whole, "refused": ""}])
        run.ran = self._ran(result)
        run.notes += dict.fromkeys(str(w.message) for w in caught)
        run.notes += kept(mode, network)
        if self.values and not seen.outputs and mode == self.base:
            run.notes.append(NO_FLOATS)
        if np.isnan(whole.get("sqnr_db", 0.0)):
            run.notes.append("its outputs hold NaN or infinity, so there is no error to tell")
        takes = any(one.is_integer for one in mode.parts)
        itself = self.calibrated.overlap if self.calibrated.known is None else ""
        if takes and itself and not self.hides and self.values:
            run.notes.append(itself)
        return run

    def refused(self, mode: Mode, reason: str) -> InMode:
        return InMode([], [{"refused": reason}])

    def _ran(self, result: NetworkEstimate) -> tuple[Any, ...]:
        """Products, cycles and bits: equal where two modes are one."""
        calls = (call for run in result.nodes for call in run.calls)
        ran = round(result.cycles, 3), *((call.implementation, call.compute_dtype) for call in calls if call.macs)
        outputs = result.outputs.values() if isinstance(result, NetworkResult) else ()
        return *ran, *(v.tobytes() for v in outputs if isinstance(v, np.ndarray))

    def _exact(self, seen: Seen) -> None:
        """An integer model with exact sums; by a CPU where the machine lacks an integer kernel for one of them."""
        network, exact = load(self.calibrated.model), Attr(exact_int8=True)
        where = {**self.where, "isa": self.isa}
        for feed in self.feeds:
            watch = None if seen.filled else seen.watching(network)
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                try:
                    found = network.run(feed, attr=exact, watch=watch, **where)
                except (RuntimeWarning, Unimplemented):
                    warnings.simplefilter("ignore", RuntimeWarning)
                    where = {"machine": _EXACT}
                    found = network.run(feed, attr=exact, watch=watch, **where)
            seen.outputs += floats_of(found)
            seen.filled = True


def node_rows(result: NetworkEstimate, errors: Mapping[str, Row] | None = None) -> list[Row]:
    """A row a node: its cost; of a result the departures from exact integers, and the `errors` of those known by name.

    The columns are those of the layers of a table, as far as nodes have them.
    """
    rows: list[Row] = []
    for run in result.nodes:
        time_us = run.cost.seconds * 1e6
        row: Row = {"layer": run.node.name, "op": run.node.op, "count": 1, "implementation": run.implementation}
        row |= {
            "compute_dtype": computed((call.compute_dtype, call.macs) for call in run.calls),
            "macs": run.macs,
            "cycles": run.cost.cycles,
            "time_us": time_us,
            "gops": 2e-3 * run.macs / time_us if time_us else 0.0,
            "bound": run.cost.bound,
            "confidence": run.cost.confidence,
        }
        if errors is not None:
            row |= errors.get(run.node.name, {})
        if isinstance(result, NetworkResult):
            counts = measures.departures((call.departed, 1) for call in run.calls if call.departed)
            row |= counts | {"departures": measures.departed_text(counts)}
        rows.append(row | {"refused": ""})
    return rows


def computes(result: NetworkEstimate) -> str:
    """The types of a network's products, by multiply-accumulates."""
    return computed((call.compute_dtype, call.macs) for run in result.nodes for call in run.calls)


class Seen:
    """Values of one run: those of its outputs, and where `nodes` are asked for of every node, as real numbers.

    Modes rewrite graphs, so that a node is known by the tensor that it gives, or stands for where it gives integers.
    """

    def __init__(self, nodes: bool) -> None:
        self.nodes = nodes
        self.outputs: list[Array] = []  # those in floats; there may be none
        self.filled = False
        self._tensors: dict[str, Array] = {}
        self._named: dict[str, str] = {}  # the tensor of each node
        self._cut: set[str] = set()  # nodes that a Relu is part of

    def take(self, other: Seen) -> None:
        """Become another one's values."""
        self.outputs, self._tensors, self._named, self._cut = other.outputs, other._tensors, other._named, other._cut
        self.filled = True

    def watching(self, network: Network) -> Watch | None:
        """The function that a run calls after each node; it begins anew."""
        self._tensors.clear()
        self._named.clear()
        self._cut.clear()

        def watch(node: Node, given: Sequence[Any]) -> None:
            found = stands_for(node, given[0], network.graph.constants) if given else None
            if found is not None:
                self._named[node.name] = found[0]
                self._tensors[found[0]] = found[1]
            if node.op in QUANTIZED and node.integer("relu", 0):
                self._cut.add(node.name)

        return watch if self.nodes else None

    def errors(self, reference: Seen) -> dict[str, Row] | None:
        """Errors of each node's output against a reference that has it in the same shape; None where not asked for."""
        if not self.nodes:
            return None
        found: dict[str, Row] = {}
        for name, tensor in self._named.items():
            wanted = reference._tensors.get(tensor)
            alike = (name in self._cut) == (name in reference._cut)
            if wanted is None and alike:  # an output that a node of its own casts to its type: its maker keeps its name
                wanted = reference._tensors.get(reference._named.get(name, ""))
            values = self._tensors[tensor]
            if wanted is not None and wanted.shape == values.shape and values.size:
                found[name] = dict(measures.errors(values, wanted))
        return found
