"""simdnn.load: a network from an ONNX model, run operator after operator on a modelled machine."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented, UnknownTiming
from isa_models.errors import counted, shortly, some, unknown_name
from isa_models.keywords import keywords
from isa_models.readings.arrays import Array, as_array, unmasked
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.networks.fold import folded
from simdnn.networks.graph_run import GraphRun, NodePlace, Watch
from simdnn.networks.kernels import Kernels
from simdnn.networks.load import Loaded, graph_of, read
from simdnn.networks.memo import Memo
from simdnn.networks.model import Graph, Port, shorten
from simdnn.networks.ops import find
from simdnn.networks.ops.quantized import INTEGER_PRODUCTS
from simdnn.networks.opset import check_types, shapes_of
from simdnn.networks.passes.constant_sizes import known_integers
from simdnn.networks.passes.graph_rewriting import Shapes
from simdnn.networks.passes.moved_quantizers import with_moved_quantizers
from simdnn.networks.passes.qdq import fused
from simdnn.networks.passes.qdq_as_onnxruntime import as_run
from simdnn.networks.result import NetworkEstimate, NetworkResult
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, label
from simdnn.primitives import Attr
from simdnn.primitives.run import Target, attr_of
from simdnn.progress import shown, working

if TYPE_CHECKING:
    import onnx

_MOST_ELEMENTS = 1 << 48  # of an input: more than any memory holds
_FOLDINGS = 10  # times that onnxruntime goes over a graph, folding constants


@keywords
@working("load")
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
    stepwise: dict[str, Array] = {}
    plain = graph_of(folded(model, folder, stepwise), folder)
    graph = fused(plain)
    check_types(model)
    return Network(graph, source.source if isinstance(source, Loaded) else source, stepwise, plain)


@dataclass(frozen=True, eq=False)
class Network(Alike, Loaded, InNotebooks):
    """A loaded program. `inputs` and `outputs` are its ports: name, type, dimensions."""

    graph: Graph
    source: Any = field(default=None, repr=False, compare=False)
    _stepwise: Mapping[str, Array] = field(
        default_factory=dict, repr=False, compare=False
    )  # constants as libraries fold
    _plain: Graph | None = field(default=None, repr=False, compare=False)  # the graph as the model has it
    _folded: dict[Any, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    _libraries: dict[Any, tuple[Graph, dict[Any, Any]]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.graph, Graph):
            raise InvalidArgument(
                f"graph={shortly(self.graph)} of Network; did you mean simdnn.load, which reads a model?"
            )

    def __repr__(self) -> str:
        kinds = Counter(node.op for node in self.graph.nodes).most_common()
        counts = ", ".join(f"{count} {op}" for op, count in kinds[:3]) + (", …" if len(kinds) > 3 else "")
        ports = f"{_listed(self.inputs)} -> {_listed(self.outputs)}"
        return (
            f"Network({shorten(self.graph.name)!r}: {counted(len(self.graph.nodes), 'node')} ({counts}), "
            f"{self.parameters:,} parameters; {ports}; nodes in .graph)"
        )

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

        return any(node.op in INTEGER_PRODUCTS for node in self.graph.every_node)

    def sizes(self, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[dict[str, tuple[int, ...]], list[str]]:
        """A shape for each input, and which sizes that `shapes` and the model leave open were taken as 1.

        `shapes`: of inputs by name, or one size for a name that the model has for it, as in {"N": [8]}.

        Raises `InvalidArgument` for shapes of inputs that are not there, and for an input without a rank.
        """
        given, taken, names = dict(shapes or {}), [], {port.name for port in self.inputs}
        left_open = {dim for port in self.inputs for dim in port.dims or () if isinstance(dim, str)} - names
        sizes = {name: given.pop(name)[0] for name in list(given) if name in left_open and len(given[name]) == 1}
        if unknown := [name for name in given if name not in names]:
            raise InvalidArgument(f"a shape for {unknown[0]!r}; the inputs are {', '.join(map(str, self.inputs))}")
        for port in self.inputs:
            if port.name not in given:
                if port.kind != "tensor":
                    raise InvalidArgument(
                        f"input {port.name!r} is a {port.kind}, and tensors alone are drawn: feeds say it"
                    )
                if port.dims is None:
                    example = ",".join(map(str, port.example))
                    raise InvalidArgument(f"input {port} has no fixed rank; a shape is needed: {port.name}={example}")
                taken += [dim for dim in port.dims if isinstance(dim, str) and dim not in sizes]
                given[port.name] = [
                    sizes.get(dim, one) if isinstance(dim, str) else one
                    for dim, one in zip(port.dims, port.example, strict=True)
                ]
        for port in self.inputs:
            _check_size(port, given[port.name])
        return {name: tuple(dims) for name, dims in given.items()}, list(dict.fromkeys(taken))

    @property
    def parameters(self) -> int:
        """Elements of all initializers."""
        return sum(a.size for a in self.graph.constants.values())

    @keywords
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
        ran_on = self._run_on(kernels, () if outputs is None else outputs)
        graph_run = GraphRun(*ran_on, fed, kernels, fpmath_layers, placed or {}, memo)
        with shown() as told:
            values, nodes = graph_run.run(watch, fetched, told)
        return NetworkResult(target.machine, isa, target.threads, nodes, {name: values[name] for name in fetched})

    def run_by(
        self,
        kernels: Kernels,
        feeds: Mapping[str, Array],
        *,
        watch: Watch | None = None,
        instead: Mapping[str, Any] | None = None,
    ) -> NetworkResult:
        """Values and cost by kernels that may note more than `run` tells, or take others for what they refuse. Nodes
        read the values `instead`, by name, of what those before them gave.
        """
        self.check_operators()
        graph_run = GraphRun(*self._run_on(kernels), self._fed(feeds), kernels, "*", {}, None)
        with shown() as told:
            values, nodes = graph_run.run(watch, told=told, instead=instead or {})
        outputs = {port.name: values[port.name] for port in self.outputs}
        return NetworkResult(kernels.target.machine, None, kernels.target.threads, nodes, outputs)

    @keywords
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
        fed = self._shadows(feeds or {})
        graph_run = GraphRun(*self._run_on(kernels), fed, kernels, fpmath_layers, placed or {}, None)
        with shown() as told:
            _, nodes = graph_run.run(watch, told=told)
        return NetworkEstimate(kernels.target.machine, isa, kernels.target.threads, nodes)

    def _run_on(self, kernels: Kernels, kept: Sequence[str] = ()) -> tuple[Graph, dict[Any, dict[str, Any]]]:
        """The graph as kernels run it, and what its constants have come to: a library that runs models has its own.

        Raises `Unimplemented` where a library has products with weights in blocks alone, and the model none of these.
        """
        of = kernels.target.library
        if of and of.blocks_alone and not any(node.op == "MulMat" for node in self.graph.every_node):
            works = "nodes ggml::MulMat, simdnn.matmul of such weights, and dispatch='fastest'"
            raise Unimplemented(f"{of.title} of a model that has no weights in its blocks; what works: {works}")
        if not kernels.runs_models:
            return self.graph, self._folded
        library = kernels.target.library
        block = library.block_of(kernels.target.caps) if library else 1
        known = (*kept, block)
        if known not in self._libraries:
            moved, new = with_moved_quantizers(self._plain or self.graph, kept)
            graph = fused(moved) if self._plain is not None and moved is not self._plain else self.graph
            shapes = self._shapes
            shapes = {**shapes, **{name: shapes[of] for name, of in new.items() if of in shapes}} if new else shapes
            own = {name: values for name, values in self._stepwise.items() if name in graph.constants}
            graph = replace(graph, constants={**graph.constants, **own}) if own else graph
            self._libraries[known] = as_run(graph, kept, shapes, block), {}
        return self._libraries[known]

    @functools.cached_property
    def _shapes(self) -> Shapes:
        """The sizes of values inside, as far as the model says them; none where its file is gone. What is computed of
        sizes makes more of them known, step by step as a runtime folds constants.
        """
        try:
            return {} if self.source is None else _folded_shapes(read(self.source)[0], self.graph)
        except InvalidArgument:
            return {}

    def _check_kernels(self, fed: dict[str, Any], kernels: Kernels, placed: Mapping[str, NodePlace]) -> None:
        """`Unimplemented` naming a node that no kernel can do, before anything runs. What hangs on values, and what has
        no cost, may hide one.
        """
        with suppress(InvalidArgument, UnknownTiming):
            GraphRun(*self._run_on(kernels), fed, kernels, "*", placed, None).run()

    def check_operators(self) -> None:
        """`Unimplemented` naming the first node without an operator here."""

        for node in self.graph.every_node:
            find(node)

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
            sizes = [int(d) for d in dims]
            _check_size(port, sizes)
            found[port.name] = shadow(sizes, port.dtype or F32)
        checked = self._fed({name: found.get(name, np.zeros(0)) for name in {*feeds, *found}})
        return {name: found[name] for name in checked}


def kernels_of(where: tuple[Any, ...], attr: Attr, values: bool = True) -> Kernels:
    """The kernels of a machine, which with isa, threads, engine and dispatch makes up `where`."""
    return Kernels(Target.of(*where), attr, values)


def _check_size(port: Port, dims: Sequence[int]) -> None:
    """`InvalidArgument` for a shape that is none, or that NumPy could not count the elements of."""
    if min(dims, default=0) < 0:
        raise InvalidArgument(f"input {port} of {','.join(map(str, dims))}; sizes of at least 0 are needed")
    if math.prod(max(1, dim) for dim in dims) > _MOST_ELEMENTS:
        raise InvalidArgument(f"input {port} of {'x'.join(map(str, dims))}; up to {_MOST_ELEMENTS} elements are taken")


def _listed(ports: Sequence[Port]) -> str:
    """The first ports, and how many more there are."""
    return some([shorten(str(port)) for port in ports], most=2) or "nothing"


def _checked(port: Port, value: object, sizes: dict[str, int]) -> Array | list[Array]:
    """One array of a feed; `sizes` collects what named dimensions stand for. A sequence is a list of arrays."""
    if port.kind == "sequence":
        if not isinstance(value, list) or not all(isinstance(part, np.ndarray) for part in value):
            raise InvalidArgument(f"feed for {port.name!r} is a {type(value).__name__}; a list of arrays is needed")
        return [unmasked(f"feed for {port.name!r}", part) for part in value]
    unmasked(f"feed for {port.name!r}", value)
    if not isinstance(value, np.ndarray):
        kind, how = type(value).__name__, as_array("it", value)
        raise InvalidArgument(f"feed for {port.name!r} is a {kind}; a NumPy array is needed: {how}")
    if (
        port.dtype is not None
        and value.dtype.newbyteorder("=") != port.dtype
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


def _folded_shapes(model: Any, graph: Graph) -> Shapes:
    """The sizes of values, also where they follow from integers computed from other sizes."""
    known = known_integers(graph, {})
    for _ in range(_FOLDINGS):
        shapes = shapes_of(model, known)
        more = known_integers(graph, shapes)
        if more.keys() == known.keys():
            break
        known = more
    return shapes
