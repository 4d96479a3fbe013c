"""The way from an ONNX file to a `Graph`, trusting nothing in it: one line says what is wrong, before anything runs."""

from __future__ import annotations

import heapq
import os
from collections import ChainMap
from collections.abc import Container, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workloads
from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import how_to_install, nearest, some
from isa_models.host.pipes import no_file
from isa_models.readings.arrays import Array, memory_bytes
from simdnn.kernels.common.weight_cache import fix
from simdnn.networks import schemas
from simdnn.networks.model import Graph, Node, Port
from simdnn.networks.model_size import DEPTH, check_size
from simdnn.networks.tensors import array_of, check_text, size_of
from simdnn.networks.types import element

if TYPE_CHECKING:
    import onnx

Scope = ChainMap[str, None]  # names that may be read, a map for each graph around
DOMAINS = ("", "ai.onnx")
_LONGEST_NAME = 255  # of a file
_LARGEST_FILE = (1 << 31) - 1  # bytes of a message that protobuf reads
#: what a model need not import: onnxruntime adds its own domain and the newest of those it knows (`Model::Model`)
_NOT_IMPORTED = {"com.microsoft": 1, "ai.onnx.ml": 5}


def onnx_package() -> Any:
    """The `onnx` package, or `Unimplemented` saying how to get it."""
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.shape_inference
        import onnx.version_converter
    except ImportError:
        raise Unimplemented(
            f"ONNX files need the onnx package, which is an optional part: {how_to_install('onnx')}"
        ) from None
    return onnx


class Loaded:
    """A loaded model. `source`: the model's path, or the onnx.ModelProto itself; None of what came from no model."""

    source: Any


def read(source: str | PathLike[str] | onnx.ModelProto | Loaded) -> tuple[onnx.ModelProto, Path | None]:
    """The parsed model, of a size that can be loaded, and the folder that it lies in (None for one in memory)."""
    onnx = onnx_package()
    if isinstance(source, Loaded):
        if source.source is None:
            raise InvalidArgument("a network that was loaded from no model; a path or an onnx.ModelProto is needed")
        return read(source.source)
    if isinstance(source, onnx.ModelProto):
        check_size(source)
        return source, None
    if not isinstance(source, str | PathLike):
        raise InvalidArgument(
            f"model of type {type(source).__name__}; a path, an onnx.ModelProto or a loaded network is needed"
        )
    path = Path(source)
    if not os.path.isfile(path):
        raise InvalidArgument(f"no model file {os.fspath(source)!r:.200}{instead(path)}")
    size = path.stat().st_size
    if size > _LARGEST_FILE:
        raise InvalidArgument(
            f"{path.name} has {size:.3g} bytes, and no ONNX file has 2 GiB: large tensors lie in a file beside it"
        )
    if size > memory_bytes() // 2:
        raise InvalidArgument(f"{path.name} has {size:.3g} bytes, more than half of this host's memory")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's DecodeError, whose module differs between its implementations
        reason = " ".join(str(error).split())[:80]
        raise InvalidArgument(f"{path.name} is no ONNX model, or it is truncated ({reason}){_exported(path)}") from None
    check_size(model)
    return model, path.parent


#: what makes ONNX files of models of other kinds, by the ends of their files' names
_EXPORTERS = {
    **dict.fromkeys((".pt", ".pth", ".safetensors"), "torch.onnx.export"),
    **dict.fromkeys((".tflite", ".pb", ".h5", ".keras"), "tf2onnx"),
    **dict.fromkeys((".pkl", ".joblib"), "skl2onnx"),
    **dict.fromkeys((".pdmodel", ".pdiparams"), "paddle2onnx"),
}
#: who makes files of models of their own, of ONNX files among others, by the ends of their names
_MADE_OF_ONNX = {
    ".xml": "OpenVINO",
    **dict.fromkeys((".engine", ".plan", ".trt"), "TensorRT"),
    ".ort": "onnxruntime",
    **dict.fromkeys((".mlmodel", ".mlpackage"), "Core ML"),
}


def _exported(path: Path) -> str:
    """The end of a message: who makes an ONNX file of a model of another kind; empty for names that say nothing."""
    end = path.suffix.lower()
    if exporter := _EXPORTERS.get(end):
        return f": {exporter} makes an ONNX file of such a model"
    if owner := _MADE_OF_ONNX.get(end):
        return f": {owner}'s own; the ONNX file that it was made of is needed, or one that the model is exported to"
    return ": workloads.gguf reads its tensors for simdnn.ggml_blocks, one by one" if end == ".gguf" else ""


def instead(path: Path) -> str:
    """The end of a message about a path that is no file: what it is, or the file beside it that may be meant."""
    if not path.name:
        return ""
    if os.path.exists(path) and not os.path.isfile(path):
        return f": it is {no_file(path)}; the path of a file is needed"
    if said := _exported(path):
        return said
    if str(path) in workloads.names():
        return f": it is a workload that ships, which `simdnn run {path}` knows; the path of a file is needed"
    beside = [one.name for one in path.parent.glob("*.onnx")] if os.path.isdir(path.parent) else []
    near = nearest(path.name[:_LONGEST_NAME], beside)
    return f": did you mean {str(path.with_name(near[0]))!r}?" if near else ""


def graph_of(model: onnx.ModelProto, folder: Path | None) -> Graph:
    """The model's graph, its functions expanded in place."""
    if not model.HasField("graph") or not (model.graph.output or model.graph.node):
        raise InvalidArgument("the model has no graph; is it an ONNX file?")
    if model.functions:
        try:
            model = inlined(model)
        except Exception as error:  # what the C++ side raises has no documented type
            raise InvalidArgument(
                f"the model's functions cannot be expanded: {' '.join(str(error).split())[:120]}"
            ) from None
    return _Loader(_opsets(model), folder).graph(model.graph, ChainMap(), 0)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its functions expanded in place, those of another operator set whose operators are the same in
    the model's included; onnx leaves them as they are.
    """
    package = onnx_package()
    made: onnx.ModelProto = package.ModelProto()
    made.CopyFrom(model)
    versions = {o.domain: o.version for o in made.opset_import}
    for function in made.functions:
        for own in function.opset_import:
            asked = versions.get(own.domain, own.version)
            if own.version != asked and all(_alike(n, own.version, asked) for n in function.node):
                own.version = asked
    made = package.inliner.inline_local_functions(made)
    return made


def _alike(node: onnx.NodeProto, version: int, other: int) -> bool:
    """Whether an operator of ONNX's own takes the same attributes and operands in two operator sets."""
    if node.domain not in DOMAINS:
        return True
    found = [schemas.find(node.op_type, each) for each in (version, other)]
    if None in found:
        return False
    shown = [([i.name for i in s.inputs], {n: str(a.default_value) for n, a in s.attributes.items()}) for s in found]
    return shown[0] == shown[1]


def _opsets(model: Any) -> dict[str, int]:
    newest = onnx_package().defs.onnx_opset_version()
    check_text(*(o.domain for o in model.opset_import))
    found = {("" if o.domain in DOMAINS else o.domain): o.version for o in model.opset_import}
    if not found:
        raise InvalidArgument("the model imports no operator set")
    version = found.setdefault("", 1)
    if not 1 <= version <= newest:
        raise InvalidArgument(f"opset {version}; the installed onnx package knows 1 to {newest}")
    return _NOT_IMPORTED | found


class _Loader:
    def __init__(self, opsets: dict[str, int], folder: Path | None) -> None:
        self.opsets, self.folder = opsets, folder
        self.held = 0  # bytes of all tensors

    def graph(self, proto: Any, outer: Scope, depth: int) -> Graph:
        """A graph whose nodes may read names of `outer` ones."""
        if depth > DEPTH:
            raise InvalidArgument(f"graphs nested more than {DEPTH} deep")
        if proto.sparse_initializer:
            check_text(*(names := [sparse.values.name for sparse in proto.sparse_initializer]))
            raise Unimplemented(f"sparse initializers are not read, of {some(names)}; dense ones are")
        check_text(proto.name, *(t.name for t in (*proto.initializer, *proto.input, *proto.output)))
        constants: dict[str, Array] = {}
        for tensor in proto.initializer:
            if not tensor.name or tensor.name in constants:
                raise InvalidArgument(f"two initializers, or one without a name: {tensor.name!r:.60}")
            constants[tensor.name] = self.array(tensor)
            fix(constants[tensor.name])
        inputs = tuple(self.port(value) for value in proto.input)
        names = [port.name for port in inputs]
        if len(set(names)) != len(names):
            raise InvalidArgument(f"two inputs of one name among {names}")
        own = dict.fromkeys((*names, *constants))
        inside = outer.new_child({**own, **dict.fromkeys(name for node in proto.node for name in node.output)})
        nodes = [self.node(n, i, inside, depth) for i, n in enumerate(proto.node)]
        ordered = _ordered(nodes, outer.new_child(own), own.keys())
        outputs = tuple(self.port(value) for value in proto.output)
        for port in outputs:
            if port.name not in inside:
                raise InvalidArgument(f"output {port.name!r} of the graph comes from nowhere")
        return Graph(proto.name, inputs, outputs, ordered, constants)

    def array(self, tensor: Any) -> Array:
        """A tensor's array; many that lie in one file could take more memory than the file has bytes."""
        found = array_of(tensor, self.folder)
        self.held += found.nbytes
        if self.held > memory_bytes() // 2:
            raise InvalidArgument(
                f"the model's tensors take {self.held:.3g} bytes, up to {tensor.name!r:.60}: more "
                "than half of this host's memory"
            )
        return found

    def port(self, value: Any) -> Port:
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", None):
            return Port(value.name, None, None, str(kind).removesuffix("_type"))
        tensor = value.type.tensor_type
        dtype = element(tensor.elem_type) if tensor.elem_type else None
        if not tensor.HasField("shape"):
            return Port(value.name, dtype, None)
        dims: list[int | str] = []
        for i, dim in enumerate(tensor.shape.dim):
            check_text(dim.dim_param)
            stated = dim.HasField("dim_value") and dim.dim_value >= 0
            dims.append(dim.dim_value if stated else dim.dim_param or f"{value.name}_{i}")
        size_of(f"{value.name!r:.60}", tuple(d for d in dims if isinstance(d, int) and d != 0))
        return Port(value.name, dtype, tuple(dims))

    def node(self, proto: Any, position: int, known: Scope, depth: int) -> Node:
        names = (
            proto.name,
            proto.op_type,
            proto.domain,
            *proto.input,
            *proto.output,
            *(a.name for a in proto.attribute),
        )
        check_text(*names)
        domain = "" if proto.domain in DOMAINS else proto.domain
        name = proto.name or f"{proto.op_type}_{position}"
        if domain not in self.opsets:
            raise InvalidArgument(f"node {name!r:.60}: the model imports no operator set {domain!r:.60}")
        try:
            attributes = {a.name: self.attribute(a, known, depth) for a in proto.attribute}
        except (InvalidArgument, Unimplemented) as error:
            raise type(error)(f"node {name!r:.60}: {error}") from None
        version = self.opsets[domain]
        faults = (schemas.wrong_inputs, schemas.wrong_attributes)
        if why := next(filter(None, (fault(proto, version, domain) for fault in faults)), ""):
            raise InvalidArgument(f"node {name!r:.60} {why}")
        return Node(name, proto.op_type, domain, version, tuple(proto.input), tuple(proto.output), attributes, proto)

    def attribute(self, a: Any, known: Scope, depth: int) -> Any:
        """An attribute's value by its type (onnx.proto, AttributeProto.AttributeType)."""
        readers: dict[int, Any] = {
            1: lambda: float(a.f),
            2: lambda: int(a.i),
            3: lambda: a.s.decode("utf-8", "replace"),
            4: lambda: self.array(a.t),
            5: lambda: self.graph(a.g, known, depth + 1),
            6: lambda: [float(v) for v in a.floats],
            7: lambda: [int(v) for v in a.ints],
            8: lambda: [v.decode("utf-8", "replace") for v in a.strings],
            9: lambda: [self.array(t) for t in a.tensors],
            13: lambda: a.tp,
        }
        if a.ref_attr_name:
            raise InvalidArgument(f"attribute {a.name!r:.60} refers to a function's, outside of one")
        if a.type not in readers:
            raise Unimplemented(f"attribute {a.name!r:.60} of kind {a.type}; numbers, texts, tensors and graphs work")
        return readers[a.type]()


def _ordered(nodes: Sequence[Node], known: Scope, taken: Container[str]) -> tuple[Node, ...]:
    """The nodes so that each comes after those that it reads; the file's order wherever that works.

    `known` are all names that may be read from elsewhere, `taken` those of this graph, which no node may make again.
    """
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in maker or name in taken:
                raise InvalidArgument(f"{node} makes {name!r:.60}, which exists already")
            maker[name] = i
    readers: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for i, node in enumerate(nodes):
        for name in filter(None, node.reads):
            if name not in maker and name not in known:
                raise InvalidArgument(f"{node} reads {name!r:.60}, which nothing makes")
        for source in {maker[name] for name in node.reads if name in maker}:
            readers[source].append(i)
            missing[i] += 1
    ready = [i for i, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = next(node for node, count in zip(nodes, missing, strict=True) if count)
        raise InvalidArgument(f"the graph has a cycle through {stuck}")
    return tuple(nodes[i] for i in order)
