"""Nodes of an f32 model written anew in f16 (or bf16), casts between the two, and an account of what became narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import counted, some
from isa_models.readings.arrays import Array
from isa_models.records.display import InNotebooks
from simdnn.networks import large_tensors, schemas
from simdnn.networks.load import DOMAINS, onnx_package
from simdnn.networks.model import RANDOM
from simdnn.networks.onnx_rewriting import asked, bodies, fresh, names_read, node_name, refill
from simdnn.networks.opset import without_weights
from simdnn.networks.tensors import FLOAT16, array_of, packed
from simdnn.networks.types import number

if TYPE_CHECKING:
    pass

_F32 = 1  # TensorProto.FLOAT
#: inputs that say which shape comes out, by operator
_SHAPES = {
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1, 2),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "TopK": (1,),
    "Split": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "OneHot": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Loop": (0,),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "CenterCropPad": (1,),
    "AffineGrid": (1,),
    "MaxUnpool": (2,),
}
#: attributes that decide a type, of operators that make f32 without them
_TYPED = {
    **dict.fromkeys(("RandomNormal", "RandomUniform", "SequenceEmpty"), "dtype"),
    **dict.fromkeys(("BlackmanWindow", "HannWindow", "HammingWindow", "MelWeightMatrix"), "output_datatype"),
}


@dataclass(repr=False)
class Float16Report(InNotebooks):
    """An account of a transpilation. `overflow`: of each parameter how many finite values became infinite;
    `underflow`: how many became zero. `activations`: of each other tensor how many values of the calibration data
    become infinite.
    `kept` names the nodes that stay f32 with the reason.
    """

    dtype: str
    converted: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    parameters: int = 0
    overflow: dict[str, int] = field(default_factory=dict)
    underflow: dict[str, int] = field(default_factory=dict)
    activations: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """How many of each: a network has hundreds of nodes."""
        found = ", ".join(
            f"{name} {len(getattr(self, name))}" for name in ("kept", "overflow", "underflow", "activations")
        )
        return f"Float16Report({self.dtype}: {counted(len(self.converted), 'node')} converted; {found})"

    def _summary(self) -> dict[str, object]:
        kept = [f"{name} ({why})" for name, why in self.kept.items()]
        lists = {
            "converted": self.converted,
            "kept": kept,
            "overflow": [*self.overflow],
            "beyond it": [*self.activations],
        }
        told = {name: f"{len(of)}: {some(of, 4)}" for name, of in lists.items() if of}
        return {"report of": self.dtype, **told}


def narrowed(values: Array, dtype: str) -> tuple[Array, int, int]:
    """f32 values in a narrow type, nearest even; how many overflow, and how many vanish.

    >>> narrowed(np.array([65520, 1e-9, 1], np.float32), "f16")
    (array([inf,  0.,  1.], dtype=float16), 1, 1)
    """
    with np.errstate(over="ignore", under="ignore"):
        result = values.astype(FLOAT16[dtype])
    infinite = np.isinf(result.astype(np.float32)) & np.isfinite(values)
    return result, int(infinite.sum()), int(((result == 0) & (values != 0)).sum())


class Float16Writer:
    """One pass over the nodes. `narrow` and `wide` name, for each f32 value of the source model, the value that holds
    it in each type; a cast is put in when one is first needed that is missing.
    """

    def __init__(self, model: Any, dtype: str, keep: Mapping[str, str], only: Sequence[str], stuck: str) -> None:
        self.onnx = onnx_package()
        self.model, self.graph, self.dtype = model, model.graph, dtype
        self.element = number(FLOAT16[dtype])
        self.keep, self.wanted = keep, asked(only)
        self.stuck = stuck and f", and it cannot be raised: {stuck}"
        self.report = Float16Report(dtype)
        if not any(o.domain in DOMAINS for o in model.opset_import):  # casts are of this domain
            model.opset_import.append(self.onnx.helper.make_opsetid("", self.onnx.defs.onnx_opset_version()))
        self.opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
        self.types = types = self._types()
        self.read = names_read(self.graph)
        self.f32 = {name for name, kind in types.items() if kind == _F32}
        self.floats = {name for name, kind in types.items() if kind in (10, 11, 16)}  # f16, f64, bf16
        self.parameters = {t.name: t for t in self.graph.initializer if t.data_type == _F32}
        self.sizes = self._sizes()
        self.fixed = {v.name for v in self.graph.output} | self._captured()  # names that stay f32
        self.narrow: dict[str, str] = {}
        self.wide: dict[str, str] = {name: name for name in (*self.parameters, *(v.name for v in self.graph.input))}
        self.taken = {name for node in self.graph.node for name in (*node.input, *node.output)} | set(self.wide)
        self.nodes: list[Any] = []

    def run(self) -> Float16Report:
        for position, node in enumerate(list(self.graph.node)):
            name = node_name(node, position)
            if not self._touches_f32(node):
                self.nodes.append(node)
                continue
            if self._decides_a_type(node):
                self._keep(node)
                continue
            if reason := self._why_kept(node, name):
                self.report.kept[name] = reason
                self._keep(node)
            else:
                self.report.converted.append(name)
                self._convert(node)
        for output in self.graph.output:
            if output.name in self.narrow:
                self._wide(output.name)
        refill(self.graph.node, self.nodes)
        self._drop_unused()
        self._describe_values()
        return self.report

    # -- what is what --------------------------------------------------------------------------------------------
    def _types(self) -> dict[str, int]:
        """The element types of the graph's values, by type inference."""
        onnx = self.onnx
        try:
            graph = onnx.shape_inference.infer_shapes(without_weights(self.model)).graph
        except Exception as error:  # the C++ side's errors have no documented type
            raise InvalidArgument(f"types cannot be inferred: {' '.join(str(error).split())[:120]}") from None
        ports = (*graph.value_info, *graph.input, *graph.output)
        found = {v.name: v.type.tensor_type.elem_type for v in ports}
        return found | {t.name: t.data_type for t in graph.initializer}

    def _captured(self) -> set[str]:
        """Names of this graph that bodies of control flow read."""
        return {name for node in self.graph.node for body in bodies(node) for name in names_read(body)}

    def _sizes(self) -> set[str]:
        """Names that decide shapes and come from shapes and constants alone: f16 has no room for sizes above 2048."""
        maker = {name: node for node in self.graph.node for name in node.output}
        known = {t.name for t in self.graph.initializer} | {""}
        for node in self.graph.node:  # in an order that runs, as ONNX asks for
            random = node.op_type in RANDOM
            if node.op_type in ("Shape", "Size") or not random and known.issuperset(node.input):
                known.update(node.output)
        todo = [node.input[i] for node in self.graph.node for i in _SHAPES.get(node.op_type, ()) if i < len(node.input)]
        found: set[str] = set()
        while todo:
            name = todo.pop()
            if name in known and name not in found:
                found.add(name)
                if name in maker and maker[name].op_type not in ("Shape", "Size"):
                    todo += maker[name].input
        return found

    def _touches_f32(self, node: Any) -> bool:
        return any(name in self.f32 for name in (*node.input, *node.output)) or bool(bodies(node))

    def _decides_a_type(self, node: Any) -> bool:
        """A cast from f32, or between floats: somebody's decision, which stays. Casts of integers to f32 follow."""
        if node.op_type != "Cast":
            return False
        return node.input[0] in self.f32 or node.input[0] in self.floats

    def _why_kept(self, node: Any, name: str) -> str:
        """The reason why a node stays f32; empty where it is converted."""
        if not self.wanted(name):
            return "not in the part asked for"
        for key in (name, node.op_type):
            if key in self.keep:
                return self.keep[key]
        if any(name in self.sizes and name in self.f32 for name in node.output):
            return "it decides a shape"
        if bodies(node):
            return "bodies of control flow stay as they are"
        if node.op_type == "BitCast":
            return "its bits are f32's"
        if not all(self.types.get(name) for name in node.output if name in self.read):
            return "what it makes is no tensor of a known type"
        schema = self._schema(node)
        if schema is None:
            return f"no schema of {node.domain or 'ai.onnx'}::{node.op_type} says which types it takes"
        if not any(self._takes(schema, node, i) for i, n in enumerate(node.input) if n in self.f32) and not any(
            self._gives(schema, i) for i, n in enumerate(node.output) if n in self.f32
        ):
            return f"opset {self.opsets.get(node.domain, 1)} defines it without {self.dtype}{self.stuck}"
        if any(n in self.f32 and not self._gives(schema, i) for i, n in enumerate(node.output)):
            return f"its output is f32 in opset {self.opsets.get(node.domain, 1)}"
        return ""

    def _schema(self, node: Any) -> Any:
        version = self.opsets.get("" if node.domain == "ai.onnx" else node.domain)
        return version and schemas.find(node.op_type, version, node.domain)

    def _takes(self, schema: Any, node: Any, position: int) -> bool:
        """Whether an input may be of the narrow type."""
        return self._admits(schema, schema.inputs[min(position, len(schema.inputs) - 1)].type_str)

    def _gives(self, schema: Any, position: int) -> bool:
        return self._admits(schema, schema.outputs[min(position, len(schema.outputs) - 1)].type_str)

    def _admits(self, schema: Any, kind: str) -> bool:
        wanted = {"f16": "tensor(float16)", "bf16": "tensor(bfloat16)"}[self.dtype]
        for constraint in schema.type_constraints:
            if constraint.type_param_str == kind:
                return wanted in constraint.allowed_type_strs
        return kind == wanted

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _keep(self, node: Any) -> None:
        """An f32 node: its narrow inputs are cast back."""
        node.input[:] = [self._wide(name) if name in self.f32 else name for name in node.input]
        for name in [name for name in self.narrow if name in self.fixed] if bodies(node) else ():
            self._wide(name)  # a body may read it
        self.nodes.append(node)
        self.wide.update((name, name) for name in node.output if name in self.f32)

    def _convert(self, node: Any) -> None:
        """A node in the narrow type, on narrow inputs wherever its schema lets it."""
        schema = self._schema(node)
        names = []
        for i, name in enumerate(node.input):
            takes = name in self.f32 and self._takes(schema, node, i)
            names.append(self._narrow(name) if takes else self._wide(name) if name in self.f32 else name)
        node.input[:] = names
        self._convert_attributes(node)
        for i, name in enumerate(node.output):
            if name in self.f32:
                node.output[i] = fresh(f"{name}_{self.dtype}", self.taken) if name in self.fixed else name
                self.narrow[name] = node.output[i]
        self.nodes.append(node)

    def _convert_attributes(self, node: Any) -> None:
        """Attributes that decide the type of what a node makes; f32 is said where it is the default."""
        given = {attribute.name for attribute in node.attribute}
        if node.op_type in _TYPED and _TYPED[node.op_type] not in given:
            node.attribute.append(self.onnx.helper.make_attribute(_TYPED[node.op_type], _F32))
        if node.op_type == "ConstantOfShape" and "value" not in given:
            zero = self.onnx.numpy_helper.from_array(np.zeros(1, np.float32))
            node.attribute.append(self.onnx.helper.make_attribute("value", zero))
        for attribute in node.attribute:
            named = attribute.name in ("to", "dtype", "output_dtype", "output_datatype", "stash_type")
            if named and attribute.i == _F32:
                if attribute.name != "stash_type":  # that one is the type of statistics inside
                    attribute.i = self.element
            elif attribute.name == "value" and attribute.t.data_type == _F32:
                label = node.name or node.output[0]
                attribute.t.CopyFrom(self._converted(label, array_of(attribute.t, None), attribute.t.name))
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = np.array(
                    attribute.f if attribute.name == "value_float" else list(attribute.floats), np.float32
                )
                label = node.name or node.output[0]
                attribute.Clear()
                attribute.name, attribute.type = "value", self.onnx.AttributeProto.TENSOR
                attribute.t.CopyFrom(self._converted(label, numbers, ""))

    # -- values --------------------------------------------------------------------------------------------------
    def _narrow(self, name: str) -> str:
        """The narrow value of an f32 one: a parameter's copy, or a cast."""
        if name not in self.narrow:
            made = fresh(f"{name}_{self.dtype}", self.taken)
            if name in self.parameters:
                self.graph.initializer.append(self._converted(name, array_of(self.parameters[name], None), made))
            else:
                self._cast(self._wide(name), made, self.element)
            self.narrow[name] = made
        return self.narrow[name]

    def _wide(self, name: str) -> str:
        """The f32 value; a cast of the narrow one where there is no other."""
        if name not in self.wide:
            if name not in self.narrow:
                return name  # a value that nothing converted
            made = name if name in self.fixed else fresh(f"{name}_f32", self.taken)
            self._cast(self.narrow[name], made, _F32)
            self.wide[name] = made
        return self.wide[name]

    def _cast(self, source: str, target: str, element: int) -> None:
        name = fresh(f"cast_{target}", self.taken)
        self.nodes.append(self.onnx.helper.make_node("Cast", [source], [target], name, to=element))

    def _converted(self, label: str, values: Array, name: str) -> Any:
        """A narrow TensorProto; what overflows or vanishes is noted under `label`."""
        result, overflow, underflow = large_tensors.once(values, self.dtype, lambda: narrowed(values, self.dtype))
        self.report.parameters += 1
        if overflow:
            self.report.overflow[label] = overflow
        if underflow:
            self.report.underflow[label] = underflow
        here = large_tensors.named(self.onnx.TensorProto, name, result)
        if here is not None:
            return here
        return self.onnx.helper.make_tensor(name, self.element, values.shape, packed(result), raw=True)

    # -- at the end ----------------------------------------------------------------------------------------------
    def _drop_unused(self) -> None:
        """f32 parameters that nobody reads any more, with the inputs that older files repeat them as."""
        read = {name for node in self.graph.node for name in node.input} | self.fixed
        gone = {name for name in self.parameters if name not in read and name in self.narrow}
        for ports in (self.graph.initializer, self.graph.input):
            refill(ports, [port for port in ports if port.name not in gone])

    def _describe_values(self) -> None:
        """Types in value_info follow the values."""
        types = {narrow: self.element for wide, narrow in self.narrow.items() if wide not in self.parameters}
        for value in self.graph.value_info:
            if value.name in types:
                value.type.tensor_type.elem_type = types[value.name]
