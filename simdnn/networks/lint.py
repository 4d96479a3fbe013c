"""simdnn.lint: node by node, which kernel a library takes, whether that is its reference, and what integers lose.

Nothing of a model is run, but for an f32 run that int8 modes take their ranges from; what saturates is proved from the
weights, or shown by an input that does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import isa_models
import workloads
from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented, UnknownTiming
from isa_models.errors import shortly
from isa_models.isa import caps, implied
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.exactness.safety import verdict
from simdnn.kernels.common.problems import of_integers
from simdnn.late import frames, pd
from simdnn.libraries import UNTIMED
from simdnn.networks.feeds import listed_feeds, random_feeds, telling_open
from simdnn.networks.kernels import Kernels
from simdnn.networks.mixed import attr_of
from simdnn.networks.model import Node
from simdnn.networks.modes import STORED, Calibrated, in_mode
from simdnn.networks.network import Network, load
from simdnn.networks.ops.quantized import INTEGER_PRODUCTS
from simdnn.networks.ops.registry import op_of_model
from simdnn.networks.plain_weights import plain_cycles
from simdnn.networks.precision import MODES, Choice, Mode, choose, choose_each
from simdnn.networks.result import NodeRun
from simdnn.networks.sequential import prepare_layer
from simdnn.networks.tables import TableLayer, select
from simdnn.networks.unknown_orders import Elsewhere
from simdnn.primitives import Attr
from simdnn.primitives.checks import integer
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target
from simdnn.progress import Progress, each, shows
from workloads import ConvLayer

if TYPE_CHECKING:
    import onnx

    Model = str | PathLike[str] | onnx.ModelProto | Network
_NOT_KNOWN = "which kernel is the fastest is not known"
COLUMNS = (
    *("node", "op", "machine", "isa", "mode", "implementation", "reference", "saturates", "inexact"),
    *("cycles", "fastest_mode", "fastest_cycles", "macs", "witness", "note"),
    *("fastest_isa", "fastest_isa_cycles", "plain_tag", "plain_cycles"),
)
_OPEN = ("saturates", "inexact", "plain_tag")  # columns that may hold None
Row = dict[str, Any]
_WORTH = 1.05  # what takes more, over the cycles under another cap, is told so
_USUAL_MACHINE = "zen4"  # where none is named and it has the caps


@keywords
@shows
def lint(
    model: Model,
    *,
    machine: str | AnyMachine | Sequence[str | AnyMachine] | None = None,
    isa: str | Sequence[str] | None = None,
    modes: Sequence[str] | None = None,
    dispatch: str = "onednn",
    feeds: Mapping[str, Array] | Sequence[Mapping[str, Array]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The kernels of a model's nodes on some machines, or under some ISA caps: a row a node, machine, cap and mode.

    `model`: an ONNX file, `onnx.ModelProto` or loaded `Network`, or a layer table (its name or file), whose weights are
    known of a trained network alone. Where no machine is named, one that has all caps of `isa` is taken. `modes`: names
    of precision modes; None: those that make sense under the cap, of an integer model "as stored" and, where that need
    not be exact, "int8-exact".
    `dispatch`: "onednn", or "fastest"; GPUs always have the latter. `feeds` calibrate int8 modes (random ones,
    drawn from `seed`); `shapes` are sizes that the model leaves open (1).

    Columns: node, op, machine, isa, mode, implementation; reference (left to the library's reference implementation,
    a loop that can take a thousand times as long); saturates and inexact (of integers, for any source: True, `witness`
    then is one that saturates when it is run; False proved; None where it cannot be told, and inexact where there are
    no integers); cycles; fastest_mode and fastest_cycles (among the modes here, on this machine under this cap); macs;
    witness; note; fastest_isa and fastest_isa_cycles (among the caps here, in this mode); plain_tag and plain_cycles (a
    node's cycles where its products get weights in a plain layout, the better one, and pack them in every run; None
    where no kernel takes one). `attrs`: dispatch by machine, left_out (what a machine or cap lacks), taken_as_1 (open
    sizes).
    `progress`: as in `simdnn.progress`, a step a machine, cap and mode.
    Raises `InvalidArgument` where no machine has all the caps.

    >>> frame = lint("digits", isa=["avx512_core", "avx512_core_vnni"], modes=["int8-exact"])
    >>> frame[["node", "machine", "isa", "implementation", "reference", "saturates"]].values.tolist()[0]
    ['conv1', 'zen4', 'avx512_core', 'conv:avx512_core_int8_exact', False, False]
    """
    limits = _listed(isa)
    places = [
        (found, limit) for found in map(isa_models.machine, machines_for(machine, limits)) for limit in limits or [None]
    ]
    if not isinstance(shapes, Mapping | None):
        raise InvalidArgument(f"shapes={shapes!r:.60}; a dict of sizes by input name is needed")
    modes = None if modes is None else _listed(modes)
    subject = _subject(model, feeds, shapes or {}, integer("seed", seed, 0))
    rows: list[Row] = []
    rules: dict[str, str] = {}
    left_out: dict[str, str] = {}
    asked: list[tuple[AnyMachine, str, Mode, str]] = []
    for (where, limit), (chosen, lacking) in zip(places, _modes(places, modes, subject.is_integer), strict=True):
        rules[where.name] = "fastest" if isinstance(where, GpuMachine) else dispatch
        name = limit or str(STORED.isa(where))
        under = f" under {limit}" if len(limits) > 1 else ""
        left_out |= {f"{mode.name} on {where.name}{under}": reason for mode, reason in lacking.items()}
        asked += ((where, name, mode, cap) for mode, cap in chosen.items())
    for where, name, mode, cap in each(asked, lambda one: f"{one[0].name} {one[1]} {one[2].name}", progress):
        about = {"machine": where.name, "isa": name, "mode": mode.name}
        rows += (about | row for row in subject.rows(where, mode, cap, rules[where.name], threads))
    left_out |= subject.unfit
    frame = pd.DataFrame(_compared(rows), columns=list(COLUMNS)).astype(dict.fromkeys(_OPEN, object))
    frame.attrs.update(dispatch=rules, left_out=left_out, taken_as_1=subject.taken_as_1)
    return _shown(frame)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return frames.shown(frame, ["node", "isa", "mode", "implementation", "reference", "saturates", "inexact", "cycles"])


# -- where and in which modes ------------------------------------------------------------------------------------------
def _listed(value: Any) -> list[Any]:
    """One or several, as a list."""
    if value is None:
        return []
    several = isinstance(value, Iterable) and not isinstance(value, str | PathLike)
    try:
        return list(dict.fromkeys(value)) if several else [value]
    except TypeError:
        raise InvalidArgument(f"{shortly(value)}; a name is needed, or a list of them") from None


def machines_for(machine: Any, limits: Sequence[str]) -> list[Any]:
    """The machines asked for, or one that has all the caps."""
    if found := _listed(machine):
        return found
    for limit in limits:
        implied(limit)  # the name of a cap
    for name in (_USUAL_MACHINE, *isa_models.machine_names()):
        if all(isa_models.cpu_machine(name).supports(limit) for limit in limits):
            return [name]
    raise InvalidArgument(f"isa={', '.join(limits)}; no machine here has all of them: ask for fewer, or name machines")


def _modes(places: Sequence[tuple[AnyMachine, str | None]], names: Sequence[str] | None, integer: bool) -> list[Choice]:
    """The modes in each place with the ISA cap of each, and those left out with the reason."""
    known = {STORED.name: STORED, **MODES} if integer else MODES
    if names is not None:
        return choose_each(places, names, known)
    return [_worth_a_look(machine, limit, integer, known) for machine, limit in places]


def _worth_a_look(machine: AnyMachine, limit: str | None, integer: bool, known: Mapping[str, Mode]) -> Choice:
    """The modes that make sense on a machine under a cap: none that does without what it has."""
    chosen, lacking = choose(machine, None, limit)
    best: dict[Any, int] = {}
    for mode, cap in chosen.items():
        best[_types(mode)] = max(best.get(_types(mode), -1), _rank(cap))
    chosen = {mode: cap for mode, cap in chosen.items() if _rank(cap) == best[_types(mode)]}
    if integer:
        lossy = any(mode.exact_int8 is False for mode in chosen)  # else the model as stored is exact
        exact = {mode: cap for mode, cap in chosen.items() if mode.exact_int8 and lossy}
        return choose(machine, [STORED.name], limit, known)[0] | exact, {}
    return chosen, lacking


def _types(mode: Mode) -> tuple[Any, ...]:
    """Fields that tell modes apart but for the kernels they may take: modes that do without what the cap has go."""
    return mode.src, mode.weights, mode.fpmath, mode.weight_group, mode.narrow, mode.zero_points, mode.per_tensor


def _rank(cap: str) -> int:
    return caps().index(cap) if cap in caps() else 0


# -- what is looked at -------------------------------------------------------------------------------------------------
def _subject(model: Any, feeds: Any, shapes: Mapping[str, Sequence[int]], seed: int) -> _Model | _Table:
    if isinstance(model, str) and model in workloads.REAL_NETWORKS and model not in workloads.names():
        model = workloads.REAL_NETWORKS[model].model()
    if isinstance(model, str) and (model in workloads.names() or model.endswith(".csv") or "." not in model):
        if seed:
            raise InvalidArgument(f"seed={seed}: nothing is drawn for a layer table")
        trained = workloads.NETWORKS[model]() if model in workloads.NETWORKS else None
        return _Table(workloads.load(model), trained)
    if seed and feeds is not None:
        raise InvalidArgument(f"seed={seed}: nothing is drawn where feeds are given")
    return _Model.of(model, feeds, shapes, seed)


@dataclass(frozen=True, eq=False)
class _Table:
    """A layer table; that of a trained network has its weights."""

    workload: workloads.Workload
    trained: workloads.Classifier | None = None
    is_integer: bool = False
    taken_as_1: tuple[str, ...] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)

    def weights(self, mode: Mode) -> dict[str, Array]:
        """The weights of an integer mode by layer, as far as they are known."""
        if self.trained is None or not mode.is_integer:
            return {}
        ready = (prepare_layer(one, mode, None, "f32", None) for one in self.trained.layers)
        return {one.layer.name: one.weights for one in ready}

    def rows(self, machine: Machine | GpuMachine, mode: Mode, cap: str, dispatch: str, threads: int) -> Iterator[Row]:
        """A row a layer, those of one shape once."""
        known = self.weights(mode)
        for layer in select(self.workload):
            job = TableLayer(layer, machine, ((mode, cap),), threads, False, dispatch, 0, frozenset())
            about = {"node": layer.name, "op": "Conv" if isinstance(layer, ConvLayer) else "MatMul"}
            met = _Met()
            try:
                found = job.estimated(mode, cap)
            except (Unimplemented, UnknownTiming) as error:
                name = "refused" if isinstance(error, Unimplemented) else "unknown"
                if isinstance(error, Unimplemented):
                    met.refused(error)
                else:
                    met.notes.append(f"{_NOT_KNOWN}: {error}")
                unknown = {"implementation": name, "saturates": None, "inexact": None, "cycles": None}
                yield about | met.row() | unknown | {"macs": layer.macs}
                continue
            met.products.append((found, known.get(layer.name)))
            cycles, note = _cycles(lambda found=found: found.cycles)  # type: ignore[misc]
            met.notes += note
            if cycles is not None:
                target = Target.of(machine, None if isinstance(machine, GpuMachine) else cap, threads, "auto", dispatch)
                met.plain.append((plain_cycles(found, target, attr_of(mode)), found))
            yield about | met.row(cycles) | {"macs": layer.macs, "implementation": found.implementation}


@dataclass(frozen=True, eq=False)
class _Model:
    """An ONNX model and what its cost is told for. `unfit`: modes that nothing of it can be put in, with the reason."""

    network: Network
    calibrated: Calibrated
    sizes: Mapping[str, Any]
    taken_as_1: tuple[str, ...]
    prepared: dict[Mode, tuple[Network, Attr] | None] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(model: Model, feeds: Any, shapes: Mapping[str, Sequence[int]], seed: int) -> _Model:
        network = load(model)
        if feeds is None:
            sizes, taken = network.sizes(shapes)
            return _Model(network, Calibrated(model, [random_feeds(network, shapes, seed)]), sizes, tuple(taken))
        data = listed_feeds("feeds", feeds)
        return _Model(network, Calibrated(model, data), data[0], ())

    @property
    def is_integer(self) -> bool:
        return self.network.is_integer

    def rows(self, machine: Machine | GpuMachine, mode: Mode, cap: str, dispatch: str, threads: int) -> Iterator[Row]:
        """A row a node; none in a mode that nothing here can be put in."""
        if mode not in self.prepared:
            self.prepared[mode] = self._ready(mode)
        ready = self.prepared[mode]
        if ready is None:
            return
        network, attr = ready
        isa = None if isinstance(machine, GpuMachine) else cap
        kernels = Noting(Target.of(machine, isa, threads, "auto", dispatch), attr, values=False)
        met: list[_Met] = []
        constant = set(network.graph.constants)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)

            def watch(node: Node, given: Sequence[Any]) -> None:
                kernels.met.notes += [str(warning.message) for warning in caught]
                caught.clear()
                if set(node.inputs) <= constant | {""}:
                    constant.update(node.outputs)
                at = INTEGER_PRODUCTS.get(node.op)
                if at is not None and node.inputs[at] not in constant:
                    kernels.met.products = [(found, None) for found, _ in kernels.met.products]
                met.append(kernels.met)
                kernels.met = _Met()

            with telling_open(self.taken_as_1):
                runs = network.estimate_by(kernels, self.sizes, isa=isa, watch=watch).nodes
        for run, one in zip(runs, met, strict=True):
            one.products = [] if run.free else one.products
            cycles, note = _cycles(lambda run=run: run.cost.cycles)  # type: ignore[misc]
            one.notes += [*note, *_widened(run)]
            about = {"node": run.node.name, "op": op_of_model(run.node), "implementation": run.implementation}
            yield about | one.row(cycles) | {"macs": run.macs}

    def _ready(self, mode: Mode) -> tuple[Network, Attr] | None:
        """The model in a mode; None where it cannot be, which is noted."""
        try:
            with telling_open(self.taken_as_1):
                if mode.is_integer and not self.is_integer:
                    self._calibrate()
                return in_mode(self.calibrated, mode)
        except Unimplemented as error:
            self.unfit[mode.name] = str(error)
            return None

    def _calibrate(self) -> None:
        """Find the ranges of an int8 mode. `Unimplemented` where the feeds, which may be random, give none."""
        try:
            _ = self.calibrated.ranges
        except InvalidArgument as error:
            if "NaN" not in str(error):
                raise
            raise Unimplemented(f"{error}: feeds={{…}} (--feeds) of your own") from None


# -- what a node met ---------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class _Met:
    """The products of a node, each with its weights where those are constant, and what is to be said of them."""

    products: list[tuple[Estimate, Array | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plain: list[tuple[tuple[str, float] | None, Estimate]] = field(default_factory=list)

    def refused(self, error: Unimplemented) -> None:
        """The library refuses the node."""
        self.products.clear()
        self.plain.clear()
        self.notes.append(str(error))

    def row(self, cycles: float | None = None) -> Row:
        """Columns reference, saturates, inexact, witness, note, and of a node's cycles."""
        verdicts = [verdict(found, weights) for found, weights in self.products if of_integers(found.problem)]
        named = [f"the library's {found.library}" for found, _ in self.products if found.reference]
        notes = [*named, *(one.why for one in verdicts if one.why), *self.notes]
        return {
            "reference": bool(named),
            "saturates": _any([one.saturates for one in verdicts]) if verdicts else False,
            "inexact": _any([one.inexact for one in verdicts]) if verdicts else None,
            "witness": next((one.witness for one in verdicts if one.witness is not None), None),
            "note": "; ".join(dict.fromkeys(notes)),
            "cycles": cycles,
            **self._plain(cycles),
        }

    def _plain(self, cycles: float | None) -> Row:
        """Columns plain_tag and plain_cycles."""
        if cycles is None or not self.plain or not all(laid for laid, _ in self.plain):
            return {"plain_tag": None, "plain_cycles": None}
        more = sum(laid[1] - found.cycles for laid, found in self.plain if laid)
        tags = dict.fromkeys(laid[0] for laid, _ in self.plain if laid)
        return {"plain_tag": ", ".join(tags), "plain_cycles": cycles + more}


@dataclass
class Noting(Elsewhere):
    """Kernels that keep the products of a node, and leave to "fastest" what a library refuses."""

    met: _Met = field(default_factory=_Met)

    def unclaimed(self, error: Unimplemented) -> None:
        """A note of the node."""
        self.met.notes.append(str(error))

    def instead(self, error: Unimplemented | UnknownTiming) -> Kernels:
        """The fastest kernels in place of a library's; a choice without times where none is known to be."""
        if isinstance(error, UnknownTiming):
            if self.target.library is not None or self.on_gpu:
                raise error
            self.calls.clear()
            self.met.products.clear()
            self.met.notes.append(f"{_NOT_KNOWN}: {error}")
            return replace(self, target=replace(self.target, dispatch=UNTIMED))
        if self.target.library is None:
            raise error
        self.calls.clear()
        self.met.refused(error)
        return replace(self, target=replace(self.target, dispatch="fastest"))

    def _note_product(self, product: Estimate, weights: Array) -> None:
        super()._note_product(product, weights)
        self.met.products.append((product, weights))
        self.met.plain.append((plain_cycles(product, self.target, self.attr), product))


def _any(answers: Sequence[bool | None]) -> bool | None:
    """Whether one is True; None where that is not known of one."""
    return True if True in answers else None if None in answers else False


def _cycles(find: Callable[[], float]) -> tuple[float | None, list[str]]:
    """Cycles, or what is missing to tell them."""
    try:
        return find(), []
    except UnknownTiming as error:
        return None, [str(error)]


def _widened(run: NodeRun) -> list[str]:
    """Notes on a product of narrow floats that no kernel takes as they are."""
    wide = any(call.macs and call.compute_dtype == "f32" for call in run.calls)
    if not wide or not any(call.task == "convert" for call in run.calls):
        return []
    return [f"no kernel for {run.dtype}: converted to f32, multiplied, and converted back"]


def _compared(rows: list[Row]) -> list[Row]:
    """The rows with the fastest mode of their place, and under which other cap they would take less time."""
    places: dict[Any, Row] = {}
    limits: dict[Any, Row] = {}
    for row in rows:
        for group, key in ((places, ("node", "machine", "isa")), (limits, ("node", "machine", "mode"))):
            at = tuple(row[name] for name in key)
            if row["cycles"] is not None and (at not in group or row["cycles"] < group[at]["cycles"]):
                group[at] = row
    for row in rows:
        best, other = (
            group.get(tuple(row[name] for name in key), {})
            for group, key in ((places, ("node", "machine", "isa")), (limits, ("node", "machine", "mode")))
        )
        row |= {"fastest_mode": best.get("mode"), "fastest_cycles": best.get("cycles")}
        row |= {"fastest_isa": other.get("isa"), "fastest_isa_cycles": other.get("cycles")}
        if row["cycles"] and other and row["cycles"] > _WORTH * other["cycles"] > 0:
            told = f"{other['isa']} takes {other['cycles']:,.0f} cycles"
            row["note"] = "; ".join([*filter(None, [row["note"]]), told])
    return rows
