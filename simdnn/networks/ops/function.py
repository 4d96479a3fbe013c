"""Operators that ONNX itself defines by a body of other operators: the body runs in their place.

Some bodies depend on the types of a node's inputs, so a body is made when the node first runs with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.networks import schemas
from simdnn.networks.model import Graph, Node
from simdnn.networks.types import number

if TYPE_CHECKING:
    import onnx

    from simdnn.networks.kernels import Kernels


def schema_of(node: Node) -> Any:
    """The ONNX schema of an operator that has a body, or None."""
    found = schemas.find(node.op, node.version, node.domain)
    return found if found and (found.has_function or found.has_context_dependent_function) else None


def body(node: Node, operands: Sequence[Array | None]) -> Graph:
    """The body as a graph with the node's own names for its inputs and outputs."""
    import onnx

    from simdnn.networks.load import graph_of

    schema = schema_of(node)
    inputs = [
        onnx.helper.make_tensor_value_info(name, number(a.dtype), a.shape)
        for name, a in {n: a for n, a in zip(node.inputs, operands, strict=True) if a is not None}.items()
    ]
    proto = _with_defaults(node, schema)
    function = _function(schema, node.version, proto, [_type(a) for a in operands])
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    function.domain, function.name = "simdnn.body", node.op  # not the operator itself once more
    proto.domain = function.domain
    imports = [*function.opset_import, onnx.helper.make_opsetid(function.domain, 1)]
    if not any(o.domain in ("", "ai.onnx") for o in imports):
        imports.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    graph = onnx.helper.make_graph([proto], node.op, inputs, outputs)
    model = onnx.helper.make_model(graph, functions=[function], opset_imports=imports)
    return graph_of(model, None)


def _type(a: Array | None) -> onnx.TypeProto:
    import onnx

    return onnx.TypeProto() if a is None else onnx.helper.make_tensor_type_proto(number(a.dtype), a.shape)


def _with_defaults(node: Node, schema: Any) -> onnx.NodeProto:
    """The node with every attribute that its schema has a default for."""
    import onnx

    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.input[:], proto.output[:] = node.inputs, node.outputs  # which passes may have renamed
    present = {a.name for a in proto.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.name:
            proto.attribute.append(attribute.default_value)
    return proto


def written_body(schema: Any, version: int) -> onnx.FunctionProto:
    """The body that a schema holds as it is, of the newest version that an opset has."""
    import onnx

    found = onnx.FunctionProto()
    found.ParseFromString(schema.get_function_with_opset_version(_newest(schema.function_opset_versions, version)))
    return found


def _newest(versions: Sequence[int], most: int) -> int:
    """The newest version up to an opset; the first where all are newer."""
    return max([version for version in versions if version <= most] or versions[:1])


def _function(schema: Any, version: int, proto: onnx.NodeProto, types: list[onnx.TypeProto]) -> onnx.FunctionProto:
    """The function of the newest version that the node's opset has."""
    import onnx

    found = onnx.FunctionProto()
    try:
        if schema.has_function:
            return written_body(schema, version)
        newest = _newest(schema.context_dependent_function_opset_versions, version)
        raw = [t.SerializeToString() for t in types]
        data = schema.get_context_dependent_function_with_opset_version(newest, proto.SerializeToString(), raw)
        found.ParseFromString(data)
    except Exception as error:  # what the C++ side raises has no documented type
        raise InvalidArgument(f"its body cannot be made: {' '.join(str(error).split())[:120]}") from None
    return found


def by_body(k: Kernels, node: Node, operands: Sequence[Array | None]) -> tuple[Any, ...]:
    """The outputs of a node by its body, for an operator that some library computes otherwise."""
    graph = body(node, operands)
    given = {name: a for name, a in zip(node.inputs, operands, strict=True) if a is not None}
    found = k.body(graph, [given[port.name] for port in graph.inputs])
    made = dict(zip((port.name for port in graph.outputs), found, strict=True))
    return tuple(made.get(name) for name in node.outputs)
