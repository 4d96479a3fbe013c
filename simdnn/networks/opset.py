"""A model brought to a newer operator set, where an old one lacks a type or an attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.networks.load import DOMAINS, onnx_package
from simdnn.networks.onnx_rewriting import bodies, names_read

if TYPE_CHECKING:
    import onnx

#: operators whose inference in onnx 1.23 ends the process where their input's type is not known, as behind trees
_UNSAFE = ("LabelEncoder", "DictVectorizer", "TreeEnsemble", "RegexFullMatch")
#: operators of onnxruntime, whose first output has the form of their first input
_OF_ONE_FORM = (
    "Gelu",
    "BiasGelu",
    "FastGelu",
    "QuickGelu",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)
_IR = 4  # the first version whose initializers need not be inputs as well
_SMALL = 1 << 10  # elements of an initializer that may be sizes, which shapes hang on


def version(model: onnx.ModelProto) -> int:
    """The opset of the standard operators."""
    return next((o.version for o in model.opset_import if o.domain in DOMAINS), 1)


def raised(model: onnx.ModelProto, least: int) -> tuple[onnx.ModelProto, str]:
    """The model at opset `least` or above, by onnx's own converter; where that fails, as it is, with the reason."""
    if version(model) >= least:
        return model, ""
    package = onnx_package()
    if model.ir_version < _IR:  # as the converter takes it where initializers are no inputs as well
        old, model = model, package.ModelProto()
        model.CopyFrom(old)
        model.ir_version = _IR
    try:
        made = package.version_converter.convert_version(model, least)
        package.shape_inference.infer_shapes(
            without_weights(made)
        )  # what the converter got wrong shows here rather than when it runs
    except Exception as error:  # the C++ side's errors have no documented type
        return model, " ".join(str(error).split())[:120]
    return made, ""


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as types and shapes are inferred of it: initializers that are large are inputs of their type and shape,
    and each node comes after those that it reads.

    Inference writes a model out and reads it again, which takes long where there are weights. Nodes and functions that
    it may not survive are left out.
    """
    package = onnx_package()
    made: onnx.ModelProto = package.ModelProto(ir_version=model.ir_version)
    made.opset_import.extend(model.opset_import)
    made.functions.extend(function for function in model.functions if all(map(_safe, function.node)))
    graph = model.graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    made.graph.node.extend(_as_inferred(node, made, kinds) for node in _in_order(graph.node) if _safe(node))
    for field in ("input", "output", "value_info", "sparse_initializer"):
        getattr(made.graph, field).extend(getattr(graph, field))
    made.graph.name = graph.name
    known = {port.name for port in graph.input}
    for tensor in graph.initializer:
        if sum(tensor.dims) <= _SMALL and len(tensor.dims) <= 1:
            made.graph.initializer.append(tensor)
        elif tensor.name not in known:
            made.graph.input.append(package.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return made


def _in_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """Nodes behind those that they read, as inference asks for; as they are where that holds, or for a circle."""
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    read = [{*node.input}.union(*map(names_read, bodies(node))) & maker.keys() for node in nodes]
    if all(maker[name] < i for i, names in enumerate(read) for name in names):
        return nodes
    ahead = {i: [maker[name] for name in names] for i, names in enumerate(read)}
    with suppress(CycleError):
        return [nodes[i] for i in TopologicalSorter(ahead).static_order()]
    return nodes


def check_types(model: onnx.ModelProto) -> None:
    """Raises `InvalidArgument` where ONNX's operators are given types that they do not take or do not join, which no
    runtime loads: f32 added to s64, a zero point of s8 beside integers of u8. Operators on sequences are not asked.
    """
    package, bare = onnx_package(), without_weights(model)
    kept = [node for node in bare.graph.node if node.domain in DOMAINS and "Sequence" not in node.op_type]
    del bare.graph.node[:]
    bare.graph.node.extend(kept)
    try:
        package.shape_inference.infer_shapes(bare, check_type=True)
    except Exception as error:  # the C++ side's errors have no documented type
        said = " ".join(str(error).split()).split("] ", 1)[-1][:200]
        if "inconsistent type" in said or "unsupported type" in said:
            raise InvalidArgument(f"types that do not fit: {said}") from None


def _safe(node: onnx.NodeProto) -> bool:
    """Whether inference survives a node, and those in graphs within."""
    graphs = [graph for of in node.attribute for graph in (of.g, *of.graphs)]
    return node.op_type not in _UNSAFE and all(_safe(inner) for graph in graphs for inner in graph.node)


def _as_inferred(node: onnx.NodeProto, model: onnx.ModelProto, kinds: Mapping[str, int]) -> onnx.NodeProto:
    """A node of the same sizes and types that onnx's inference knows, in place of some of onnxruntime's own; `kinds`
    are the types of initializers.
    """
    package = onnx_package()
    helper = package.helper
    if node.domain != "com.microsoft" or not node.input or not node.output:
        return node
    if node.op_type in _OF_ONE_FORM:
        one: onnx.NodeProto = helper.make_node("Identity", node.input[:1], node.output[:1])
        return one
    sizes = {a.name: a.i for a in node.attribute if a.name in ("K", "N")}
    if node.op_type != "MatMulNBits" or len(sizes) != 2 or len(node.input) < 3:
        return node
    weights = f"{node.output[0]}, its weights"
    kind = kinds.get(node.input[2], package.TensorProto.FLOAT)  # scales are of the source's type
    model.graph.input.append(helper.make_tensor_value_info(weights, kind, [sizes["K"], sizes["N"]]))
    product: onnx.NodeProto = helper.make_node("MatMul", [node.input[0], weights], node.output[:1])
    return product


def shapes_of(model: onnx.ModelProto, computed: Mapping[str, Array] | None = None) -> dict[str, tuple[int | str, ...]]:
    """The sizes of values as runtimes know them before a run, `computed` being values that they have by then; none of a
    model that ONNX's inference refuses.

    Numbers; the model's own names of open sizes, as far as operators hand them on without computing shapes; else "".
    """
    package, bare, held = onnx_package(), without_weights(model), computed or {}
    kept = [node for node in bare.graph.node if held.keys().isdisjoint(node.output)]
    del bare.graph.node[:]
    bare.graph.node.extend(kept)
    bare.graph.initializer.extend(package.numpy_helper.from_array(a, name) for name, a in held.items())
    if held:  # what the model says of sizes was inferred without them, perhaps
        _forget_inferred(bare.graph)
    try:
        plain, propagated = _inferred(bare)
    except Exception:  # what the C++ side raises has no documented type
        _forget_inferred(bare.graph)  # a converter to f16 leaves types that others disagree with
        try:
            plain, propagated = _inferred(bare)
        except Exception:
            return {}
    own = {size for sizes in _sizes(bare.graph).values() for size in sizes}
    known, found = _sizes(plain), _sizes(propagated)
    return {name: a.shape for name, a in held.items()} | {
        name: tuple(
            size if isinstance(size, int) or size in own and size == other else ""
            for size, other in zip(sizes, known.get(name, [""] * len(sizes)), strict=True)
        )
        for name, sizes in found.items()
    }


def _forget_inferred(graph: Any) -> None:
    """Leaves out what a graph says of values that ONNX's own operators make."""
    others = {name for node in graph.node if node.domain not in DOMAINS for name in node.output}
    said = [value for value in graph.value_info if value.name in others]
    del graph.value_info[:]
    graph.value_info.extend(said)


def _inferred(model: onnx.ModelProto) -> list[Any]:
    """A model's graph with the sizes of values, without and with those that hang on computed sizes."""
    infer = onnx_package().shape_inference.infer_shapes
    return [infer(model, data_prop=propagated).graph for propagated in (False, True)]


def _sizes(graph: Any) -> dict[str, list[int | str]]:
    """The sizes that a graph states, by value."""
    kinds = ((port.name, port.type.tensor_type) for port in (*graph.value_info, *graph.input, *graph.output))
    return {
        name: [d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim]
        for name, kind in kinds
        if kind.HasField("shape")
    }
