"""simdnn.load: a network from an ONNX model, run operator after operator on a modelled machine."""

from __future__ import annotations

import html
from collections import ChainMap, Counter
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, SimdnnError, Unimplemented, UnknownTiming
from isa_models.alike import Alike
from isa_models.errors import some, unknown_name
from isa_models.readings.arrays import Array, unmasked
from simdnn.networks.fold import folded
from simdnn.networks.kernels import Call, Kernels, shaded, shadow
from simdnn.networks.load import Loaded, graph_of, read
from simdnn.networks.memo import Memo
from simdnn.networks.model import RANDOM, Graph, Node, Port, shorten, subgraphs
from simdnn.networks.ops import find, sequence
from simdnn.networks.ops.function import body
from simdnn.networks.ops.quantized import INTEGER_PRODUCTS
from simdnn.networks.precision import matches
from simdnn.networks.qdq import fused
from simdnn.networks.result import NetworkEstimate, NetworkResult, NodeRun, described
from simdnn.networks.types import bits, label
from simdnn.primitives import Attr
from simdnn.primitives.mathmode import FPMATH, cold_weights
from simdnn.primitives.run import Target, attr_of

if TYPE_CHECKING:
    import onnx

Watch = Callable[[Node, Sequence[Any]], None]


def load(source: str | PathLike[str] | onnx.ModelProto | Loaded) -> Network:
    """The network of an ONNX model: a path, an `onnx.ModelProto`, or a network, which is loaded again.

    BatchNormalization is folded into the convolution before it, and products of dequantized operands become integer
    ones. Raises `InvalidArgument` for what is no model, or a broken or hostile one, and `Unimplemented` where the
    `onnx` package is missing. Operators that are not known here are an error of `run`, before anything runs.

    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xy")
    >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "act")], "one", [x], [y])
    >>> result = load(helper.make_model(graph)).run({"x": np.array([-1, 2], np.float32)}, machine="zen4")
    >>> result.outputs["y"].tolist(), result.to_frame()["node"].tolist(), result.cycles > 0
    ([0.0, 2.0], ['act'], True)
    """
    model, folder = read(source)
    return Network(
        fused(graph_of(folded(model, folder), folder)), source.source if isinstance(source, Loaded) else source
    )


@dataclass(frozen=True)
class NodePlace:
    """Where one node runs: an ISA cap (None: all that the machine has), and what its kernels are allowed."""

    isa: str | None
    attr: Attr


@dataclass(frozen=True, eq=False)
class Network(Alike, Loaded):
    """A loaded program. `inputs` and `outputs` are its ports: name, type, dimensions."""

    graph: Graph
    source: Any = field(default=None, repr=False, compare=False)
    _folded: dict[Any, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    def __repr__(self) -> str:
        kinds = Counter(node.op for node in self.graph.nodes).most_common()
        counts = ", ".join(f"{count} {op}" for op, count in kinds[:3]) + (", …" if len(kinds) > 3 else "")
        ports = f"{_listed(self.inputs)} -> {_listed(self.outputs)}"
        return (
            f"Network({shorten(self.graph.name)!r}: {len(self.graph.nodes)} nodes ({counts}), {self.parameters:,} "
            f"parameters; {ports}; nodes in .graph)"
        )

    def _repr_html_(self) -> str:
        return f"<code>{html.escape(repr(self))}</code>"

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The types and shapes that a feed must hold."""
        return tuple(port for port in self.graph.inputs if port.name not in self.graph.constants)

    @property
    def outputs(self) -> tuple[Port, ...]:
        return self.graph.outputs

    @property
    def is_integer(self) -> bool:
        """Whether products here are stored as integer ones: what a tool has quantized."""

        def found(graph: Graph) -> bool:
            return any(node.op in INTEGER_PRODUCTS or any(map(found, subgraphs(node))) for node in graph.nodes)

        return found(self.graph)

    def sizes(self, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[dict[str, tuple[int, ...]], list[str]]:
        """A shape for each input, from `shapes` or the model, and which sizes that both leave open were taken as 1.

        Raises `InvalidArgument` for shapes of inputs that are not there, and for an input without a rank.
        """
        given, taken = dict(shapes or {}), []
        if unknown := [name for name in given if name not in {port.name for port in self.inputs}]:
            raise InvalidArgument(f"a shape for {unknown[0]!r}; the inputs are {', '.join(map(str, self.inputs))}")
        for port in self.inputs:
            if port.name not in given:
                if port.dims is None or port.kind != "tensor":
                    example = ",".join(map(str, port.example))
                    raise InvalidArgument(f"input {port} has no fixed rank; a shape is needed: {port.name}={example}")
                taken += [dim for dim in port.dims if isinstance(dim, str)]
                given[port.name] = port.example
        return {name: tuple(dims) for name, dims in given.items()}, list(dict.fromkeys(taken))

    @property
    def parameters(self) -> int:
        """Elements of all initializers."""
        return sum(a.size for a in self.graph.constants.values())

    def run(
        self,
        feeds: Mapping[str, Array],
        *,
        machine: str | PathLike[str] | Machine | GpuMachine,
        isa: str | None = None,
        attr: Attr | None = None,
        threads: int = 1,
        engine: str = "auto",
        dispatch: str = "fastest",
        fpmath_layers: str = "*",
        outputs: Sequence[str] | None = None,
        watch: Watch | None = None,
        placed: Mapping[str, NodePlace] | None = None,
        memo: Memo | None = None,
    ) -> NetworkResult:
        """Values and cost. `feeds` holds an array for each input; the other arguments are as in `simdnn.matmul`.

        `outputs` names what the result's `outputs` hold: outputs of the network, and values inside it (outputs of
        nodes, inputs, constants); None: the network's own. The whole network runs, and its cost is the same, whatever
        is named.

        Nodes whose names no pattern of the comma list `fpmath_layers` matches compute strictly, whatever `attr` allows.
        `placed`: nodes by name that run under an ISA cap and an attribute of their own, as those of a recipe do.
        `memo`: nodes that ran before, in other networks too, and are not run again.
        `watch(node, outputs)` is called as each node has run. Raises `InvalidArgument` for feeds that do not fit,
        `UnknownName` for an output that is not there, `Unimplemented` naming a node that no operator here can do.
        """
        fetched = self._fetched(outputs)
        kernels = kernels_of((machine, isa, threads, engine, dispatch), attr_of(attr))
        target = kernels.target
        self.check_operators()
        fed = self._fed(feeds)
        if kernels.on_gpu and memo is None:
            self._check_kernels(fed, replace(kernels, values=False, calls=[]), placed or {})
        values, nodes = self._execute(fed, kernels, watch, fpmath_layers, fetched, placed or {}, memo)
        return NetworkResult(target.machine, isa, target.threads, nodes, {name: values[name] for name in fetched})

    def estimate(
        self,
        feeds: Mapping[str, Array | Sequence[int]] | None = None,
        *,
        machine: str | PathLike[str] | Machine | GpuMachine,
        isa: str | None = None,
        attr: Attr | None = None,
        threads: int = 1,
        dispatch: str = "fastest",
        fpmath_layers: str = "*",
        placed: Mapping[str, NodePlace] | None = None,
    ) -> NetworkEstimate:
        """The cost alone. `feeds` may give an input's shape in place of its array, and leave out inputs whose shapes
        the model states. Values that decide shapes must be given.
        """
        kernels = kernels_of((machine, isa, threads, "auto", dispatch), attr_of(attr), values=False)
        return self.estimate_by(kernels, feeds, isa=isa, fpmath_layers=fpmath_layers, placed=placed)

    def estimate_by(
        self,
        kernels: Kernels,
        feeds: Mapping[str, Array | Sequence[int]] | None = None,
        *,
        isa: str | None = None,
        fpmath_layers: str = "*",
        watch: Watch | None = None,
        placed: Mapping[str, NodePlace] | None = None,
    ) -> NetworkEstimate:
        """The cost by kernels that compute no values, and may note more than `estimate` tells; `watch` as in `run`."""
        self.check_operators()
        _, nodes = self._execute(self._shadows(feeds or {}), kernels, watch, fpmath_layers, placed=placed or {})
        return NetworkEstimate(kernels.target.machine, isa, kernels.target.threads, nodes)

    def _check_kernels(self, fed: dict[str, Any], kernels: Kernels, placed: Mapping[str, NodePlace]) -> None:
        """`Unimplemented` naming a node that no kernel can do, before anything runs. What hangs on values, and what has
        no cost, may hide one.
        """
        with suppress(InvalidArgument, UnknownTiming):
            self._execute(fed, kernels, None, placed=placed)

    def check_operators(self) -> None:
        """`Unimplemented` naming the first node without an operator here."""

        def check(graph: Graph) -> None:
            for node in graph.nodes:
                find(node)
                for inner in subgraphs(node):
                    check(inner)

        check(self.graph)

    def _fetched(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The values that a run hands back, in the order asked for."""
        if names is None:
            return tuple(port.name for port in self.outputs)
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            example = [port.name for port in self.outputs[:1]]
            raise InvalidArgument(f"outputs={names!r}; a list of names is needed, e.g. {example}")
        inside = [name for node in self.graph.nodes for name in node.outputs if name]
        ports = [port.name for port in (*self.outputs, *self.graph.inputs)]
        known = dict.fromkeys((*ports, *inside, *self.graph.constants))
        for name in names:
            if name not in known:
                raise unknown_name("output", name, known)
        return tuple(dict.fromkeys(names))

    # -- feeds ---------------------------------------------------------------------------------------------------
    def _fed(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """The feed checked against names, types and dimensions."""
        if not isinstance(feeds, Mapping):
            raise InvalidArgument(f"feeds of type {type(feeds).__name__}; a dict of arrays by input name is needed")
        names = {port.name for port in self.graph.inputs}
        if unknown := [name for name in feeds if name not in names]:
            raise InvalidArgument(
                f"feed for {unknown[0]!r}; the inputs are {', '.join(map(str, self.inputs)) or 'none'}"
            )
        if missing := [port for port in self.inputs if port.name not in feeds]:
            raise InvalidArgument(f"no feed for {missing[0]}")
        sizes: dict[str, int] = {}
        found: dict[str, Any] = {}
        for port in self.graph.inputs:
            if port.name in feeds:
                found[port.name] = _checked(port, feeds[port.name], sizes)
        return found

    def _shadows(self, feeds: Mapping[str, Array | Sequence[int]]) -> dict[str, Any]:
        """Arrays that take no memory for shapes that are given or stated."""
        found: dict[str, Any] = {}
        for port in self.graph.inputs:
            given = feeds.get(port.name)
            if given is None and port.name in self.graph.constants:
                continue
            if isinstance(given, np.ndarray):
                found[port.name] = given
                continue
            dims = port.dims if given is None else tuple(given)
            if dims is None or any(not isinstance(d, int) or isinstance(d, bool) or d < 0 for d in dims):
                raise InvalidArgument(
                    f"input {port} has no fixed shape; give one, as in {{{port.name!r}: {port.example}}}"
                )
            found[port.name] = shadow([int(d) for d in dims], port.dtype or np.dtype(np.float32))
        checked = self._fed({name: found.get(name, np.zeros(0)) for name in {*feeds, *found}})
        return {name: found[name] for name in checked}

    # -- execution -----------------------------------------------------------------------------------------------
    def _execute(
        self,
        feeds: dict[str, Any],
        k: Kernels,
        watch: Watch | None,
        fpmath_layers: str = "*",
        fetched: Sequence[str] = (),
        placed: Mapping[str, NodePlace] = MappingProxyType({}),
        memo: Memo | None = None,
    ) -> tuple[dict[str, Any], tuple[NodeRun, ...]]:
        constant = set(self.graph.constants) - set(feeds)
        values: dict[str, Any] = {**self.graph.constants, **feeds}
        mode = FPMATH.effective(k.attr.fpmath)
        key = (k.target.machine, k.target.caps, k.target.dispatch, k.attr, mode, fpmath_layers, tuple(placed.items()))
        folded = self._folded.setdefault(key, {}) if not feeds.keys() & self.graph.constants.keys() else {}
        whole = replace(k, values=True, calls=[])
        allowed, strict = k.attr, replace(k.attr, fpmath="strict")
        apart = {at: _at(k, at) for at in set(placed.values())}
        cold = self._exceeds_caches(k.target.machine)
        last = _last_uses(self.graph, fetched)
        runs = []
        made = {name for node in self.graph.nodes for name in node.outputs}
        known = memo.constants(self.graph.constants) | memo.values(feeds) if memo else {}
        for position, node in enumerate(self.graph.nodes):
            fixed = _is_constant(node, constant)
            whole.held = k.held
            whole.attr = k.attr = allowed if matches(node.name, fpmath_layers) else strict
            if fixed:
                constant.update(node.outputs)
            from_memory = cold and not constant.isdisjoint(node.inputs)
            here = whole if fixed else apart[placed[node.name]] if node.name in placed else k
            here.constant_weights = len(node.inputs) < 2 or node.inputs[1] in constant
            calls: tuple[Call, ...] = ()
            at = memo.key(node, known, *_told(here), mode, from_memory, fixed) if memo else None
            if fixed and node.outputs[0] in folded:
                given = [folded.get(name) for name in node.outputs]
            elif memo and (kept := memo.given(at)):
                given, calls = kept
            else:
                here.held = k.held
                with cold_weights() if from_memory else nullcontext():
                    given = _ran(node, values, here)
                calls = () if fixed else tuple(k.calls)
                if memo:
                    memo.keep(at, given, calls)
            if fixed:
                folded.update(zip(node.outputs, given, strict=False))
            if memo:
                known |= memo.outputs(at, node)
            for name, value in zip(node.outputs, given, strict=False):
                values[name] = value
                k.held += _bytes(value)
            k.calls.clear()
            free = "constant" if fixed else "view" if not calls else ""
            runs.append(NodeRun(node, calls, *described(given[0] if given else None), free))
            if watch is not None:
                watch(node, given)
            for name in last[position]:
                gone = values.pop(name)
                k.held -= _bytes(gone) if name in made else 0
        return values, tuple(runs)

    def _exceeds_caches(self, machine: Machine | GpuMachine) -> bool:
        """Whether the constants are more than the last cache holds, so that each run reads them from memory."""
        copies = 1 if isinstance(machine, Machine) else machine.stacks
        most = machine.caches[-1].size_bytes * copies
        return sum(a.size * bits(a.dtype) for a in self.graph.constants.values()) > 8 * most


def _at(k: Kernels, place: NodePlace) -> Kernels:
    """The kernels of a node with a place of its own; calls are noted together."""
    t = k.target
    target = Target.of(t.machine, place.isa, t.threads, t.engine, t.dispatch)
    return replace(k, target=target, attr=place.attr)


def _told(k: Kernels) -> tuple[Hashable, ...]:
    """A key of the machine and of the options that its kernels differ in."""
    t = k.target
    ours = k.runs_models and k.constant_weights
    return t.machine, t.caps, t.threads, t.engine, t.dispatch, k.attr, ours


def kernels_of(where: tuple[Any, ...], attr: Attr, values: bool = True) -> Kernels:
    """The kernels of a machine, which with isa, threads, engine and dispatch makes up `where`."""
    return Kernels(Target.of(*where), attr, values)


def _listed(ports: Sequence[Port]) -> str:
    """The first ports, and how many more there are."""
    return some([shorten(str(port)) for port in ports], most=2) or "nothing"


def _bytes(value: Any) -> int:
    """The bytes that a value takes; a shadow takes nothing."""
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return value.nbytes if isinstance(value, np.ndarray) and 0 not in value.strides else 0


def _ran(node: Node, values: MutableMapping[str, Any], k: Kernels) -> list[Any]:
    """Run one node, by other kernels where `k` has some for what it refuses."""
    try:
        return _apply(node, values, k)
    except (Unimplemented, UnknownTiming) as error:
        return _apply(node, values, k.instead(error))


def _apply(node: Node, values: MutableMapping[str, Any], k: Kernels) -> list[Any]:
    """Run one node; errors name it."""
    k.body = lambda graph, inputs: _run_body(graph, inputs, values, k)
    try:
        operands = [values[name] if name else None for name in node.inputs]
        if any(isinstance(v, list) for v in operands) and node.op not in sequence.READERS:
            raise InvalidArgument("an input is a sequence; a tensor is needed")
        operator = find(node)
        if operator is None:
            found = tuple(_run_body(body(node, operands), None, values, k, node.outputs))
        else:
            found = operator(k, node, *operands)
    except SimdnnError as error:
        text = str(error)
        raise type(error)(text if text.startswith(str(node)) else f"{node}: {text}") from None
    except (
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        ZeroDivisionError,
        OverflowError,
        AttributeError,
        MemoryError,
    ) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InvalidArgument(f"{node}: {reason}") from error
    outputs = [
        np.asarray(v) if isinstance(v, np.generic) else v for v in (found if isinstance(found, tuple) else (found,))
    ]
    if not k.values:
        outputs = [shaded(v) if isinstance(v, np.ndarray) else v for v in outputs]
    wanted = len(node.outputs)
    if len(outputs) < wanted:
        raise InvalidArgument(f"{node}: it has {wanted} outputs, and the operator gives {len(outputs)}")
    return outputs[:wanted]


def _run_body(
    graph: Graph, inputs: Sequence[Any] | None, outer: MutableMapping[str, Any], k: Kernels, wanted: Sequence[str] = ()
) -> list[Any]:
    """The outputs of a body, or those of them that are `wanted`; without inputs it reads the names around it."""
    given = {} if inputs is None else dict(zip((p.name for p in graph.inputs), inputs, strict=True))
    values = ChainMap({**graph.constants, **given}, outer)  # a copy of all names takes longer than most bodies
    for node in graph.nodes:
        values.update(zip(node.outputs, _apply(node, values, k), strict=False))
    return [values.get(name) for name in wanted or [port.name for port in graph.outputs]]


def _is_constant(node: Node, constant: set[str]) -> bool:
    """Whether nothing that a node reads depends on a feed."""
    if node.op in RANDOM:
        return False
    reads = [*node.inputs, *(name for g in subgraphs(node) for name in g.outer)]
    return all(not name or name in constant for name in reads)


def _last_uses(graph: Graph, kept: Sequence[str]) -> list[list[str]]:
    """For each node the names that nobody reads after it, but for those that are to be kept."""
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        reads = [*node.inputs, *node.outputs, *(name for g in subgraphs(node) for name in g.outer)]
        last.update((name, position) for name in reads)
    keep = {port.name for port in graph.outputs} | {"", *kept}
    found: list[list[str]] = [[] for _ in graph.nodes]
    for name, position in last.items():
        if name not in keep:
            found[position].append(name)
    return found


def _checked(port: Port, value: object, sizes: dict[str, int]) -> Array | list[Array]:
    """One array of a feed; `sizes` collects what named dimensions stand for. A sequence is a list of arrays."""
    if port.kind == "sequence":
        if not isinstance(value, list) or not all(isinstance(part, np.ndarray) for part in value):
            raise InvalidArgument(f"feed for {port.name!r} is a {type(value).__name__}; a list of arrays is needed")
        return [unmasked(f"feed for {port.name!r}", part) for part in value]
    unmasked(f"feed for {port.name!r}", value)
    if not isinstance(value, np.ndarray):
        raise InvalidArgument(f"feed for {port.name!r} is a {type(value).__name__}; a NumPy array is needed")
    if (
        port.dtype is not None
        and value.dtype != port.dtype
        and not (port.dtype.kind == "O" and value.dtype.kind in "US")
    ):
        raise InvalidArgument(
            f"feed for {port.name!r} is {label(value.dtype)}; {label(port.dtype)} is needed (.astype({port.dtype}))"
        )
    if port.dims is not None and value.ndim != len(port.dims):
        raise InvalidArgument(f"feed for {port.name!r} has shape {value.shape}; {port} is needed")
    for size, dim in zip(value.shape, port.dims or (), strict=False):
        wanted = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
        if size != wanted:
            raise InvalidArgument(
                f"feed for {port.name!r} has shape {value.shape}; {port} is needed"
                + (f", with {dim}={wanted} from another input" if isinstance(dim, str) else "")
            )
    if value.dtype.kind in "OUS":
        return value.astype(object)
    return value.astype(value.dtype.newbyteorder("="), copy=False)
