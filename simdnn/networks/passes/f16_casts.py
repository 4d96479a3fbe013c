"""f16 models as onnxruntime's CPU provider runs them: in f32 between casts, but for what has a kernel of f16.

Read in onnxruntime/core/optimizer/insert_cast_transformer.cc and fuse_initializers_transformer.cc, and in what 1.32.0
says of its kernels (`get_all_opkernel_def`):

1. A node without a kernel of f16 stands between casts. So does one that has a kernel, where all that makes its f16
   values and all that reads them stands between casts.
2. A cast down and the cast up behind it go, though the value was rounded by them. So does a cast of the model's own
   from f32 to f16 ahead of a cast that was put in, and a cast of its own from f16 to f32 behind one.
3. A constant that one such node alone reads is one of f32; what several read is cast as the model runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from simdnn.networks.model import RANDOM, Graph, Node, read_elsewhere, subgraphs
from simdnn.networks.ops.registry import MICROSOFT
from simdnn.networks.passes.element_types import Kinds, formal_types, kinds_of
from simdnn.networks.passes.f16_steps import with_bodies
from simdnn.networks.types import BF16, F16, F32, bits, is_float, is_signed, number

PREFIX = "InsertedPrecisionFreeCast_"  # as onnxruntime names them
_UP = "_up"  # behind those of casts to f32
INSERTED = "inserted"  # the attribute of a cast that was put in
RUNNING = "as the model runs"  # the attribute of a cast whose constant is none to kernels
#: operators with a kernel of f16, by domain, and the first opset that has it
_KERNELS: dict[str, dict[str, int]] = {
    "": {
        **dict.fromkeys(("BitCast", "Cast", "Compress", "Concat", "ConstantOfShape", "Constant", "DynamicSlice"), 1),
        **dict.fromkeys(("Flatten", "Gather", "GatherElements", "GatherND", "Identity", "If", "Loop", "Scan"), 1),
        **dict.fromkeys(("RandomNormalLike", "RandomUniformLike", "Reshape", "ReverseSequence", "Shape"), 1),
        **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND", "Shrink", "Sign", "Slice", "Split"), 1),
        **dict.fromkeys(("SplitToSequence", "SequenceAt", "SequenceConstruct", "SequenceInsert", "Squeeze"), 1),
        **dict.fromkeys(("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement"), 1),
        **dict.fromkeys(("TensorScatter", "Transpose", "Unsqueeze", "LayerNormalization", "Expand", "IsNaN"), 1),
        **dict.fromkeys(("SimplifiedLayerNormalization", "Mod", "Round"), 1),
        **dict.fromkeys(("Clip", "Max", "Min"), 12),
        **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), 19),
        **{"IsInf": 20, "Attention": 23, "RMSNormalization": 23, "RotaryEmbedding": 23, "Celu": 28},
    },
    MICROSOFT: dict.fromkeys(
        (
            *("ExpandDims", "GatherBlockQuantized", "GatherND", "GroupQueryAttention", "Inverse", "MatMulNBits"),
            *("QMoE", "RotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
            *("SparseAttention", "UnfoldTensor"),
        ),
        1,
    ),
}
_LAST_DROPOUT = 11  # the opset behind which Dropout has none
_NOT_OF_BF16 = (
    *("Attention", "DequantizeLinear", "Expand", "GatherBlockQuantized", "GroupQueryAttention", "Inverse", "Max"),
    *("MatMulNBits", "Min", "Mod", "QuantizeLinear", "RMSNormalization", "RotaryEmbedding", "Round", "SparseAttention"),
)


def has_kernel(node: Node) -> bool:
    """Whether the CPU provider has a kernel of f16."""
    if node.op == "Dropout" and not node.domain:
        return node.version <= _LAST_DROPOUT
    return node.version >= _KERNELS.get(node.domain, {}).get(node.op, node.version + 1)


def check_bf16(graph: Graph, kinds: Kinds) -> None:
    """`Unimplemented` naming the first node of bf16 that has no kernel: those get no casts."""
    for node in graph.nodes:
        if BF16 in map(kinds.get, (*node.inputs, *node.outputs)) and (node.op in _NOT_OF_BF16 or not has_kernel(node)):
            raise Unimplemented(
                f"{node}: onnxruntime's CPU provider has no kernel of bf16 for it, and puts no casts around one; what "
                "works: f16, and dispatch='fastest'"
            )


def with_casts(graph: Graph, kept: Sequence[str], outer: Kinds | None = None) -> tuple[Graph, dict[str, str]]:
    """The graph with the casts of f16 values, and of its f32 values those that stand in for one of f16, with that one;
    values named in `kept` stay of f16.
    """
    fixed = _fixed(graph, outer or {})
    casting = _Casting(with_bodies(graph, outer or {}, has_kernel), fixed, kept, outer or {})
    return casting.run(), casting.stands_for


def without_undone_casts(graph: Graph, kept: Sequence[str]) -> Graph:
    """A graph without f16, less casts that casts behind them undo or go beyond."""
    made = {node.outputs[0] for node in graph.nodes if node.op == "Cast" and not node.domain}
    if not any(node.op == "Cast" and node.inputs[0] in made for node in graph.nodes):
        return graph
    casting = _Casting(graph, _fixed(graph, {}), kept, {})
    return replace(graph, nodes=tuple(_without_pairs(graph.nodes, casting.held, casting.fixed, kinds_of(graph, {}))))


def _fixed(graph: Graph, outer: Kinds) -> set[str]:
    """Values that onnxruntime computes as it loads a model: what kernels make of constants alone."""
    kinds = kinds_of(graph, outer)
    found = set(graph.constants) - {port.name for port in graph.inputs} | {""}
    for node in graph.nodes:
        halves = F16 in map(kinds.get, (*node.inputs, *node.outputs))
        staying = node.op in (*RANDOM, "DequantizeLinear") or subgraphs(node) or halves and not has_kernel(node)
        if not staying and found.issuperset(node.inputs):
            found.update(node.outputs)
    return found


class _Casting:
    def __init__(self, graph: Graph, fixed: set[str], kept: Sequence[str], outer: Kinds) -> None:
        self.graph, self.fixed, self.outer, self.kinds = graph, fixed, outer, kinds_of(graph, outer)
        self.fixed |= graph.constants.keys() - {port.name for port in graph.inputs}  # those of bodies among them
        self.held = read_elsewhere(graph, kept)
        self.maker = {name: node for node in graph.nodes for name in node.outputs if name not in fixed}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.nodes: list[Node] = []
        self.up: dict[str, str] = {}
        self.stands_for: dict[str, str] = {}

    def run(self) -> Graph:
        alone = {id(node) for node in self.graph.nodes if self.isolated(node)}
        for node in self.graph.nodes:
            if id(node) in alone or self.needs_casts(node):
                self.between_casts(node)
            else:
                inner = {
                    k: with_casts(v, (), self.kinds)[0] for k, v in node.attributes.items() if isinstance(v, Graph)
                }
                self.nodes.append(replace(node, attributes={**node.attributes, **inner}) if inner else node)
        kinds = kinds_of(replace(self.graph, nodes=tuple(self.nodes)), self.outer)
        self.nodes = _without_pairs(self.nodes, self.held, self.fixed, kinds)
        return self.with_constants()

    def is_half(self, name: str) -> bool:
        return self.kinds.get(name) == F16

    def needs_casts(self, node: Node) -> bool:
        return any(map(self.is_half, node.inputs)) and not has_kernel(node) and not self.fixed.issuperset(node.outputs)

    def isolated(self, node: Node) -> bool:
        """Whether a node that has a kernel stands among those that have none; of a formal input that takes several the
        first is looked at.
        """
        if subgraphs(node) or not has_kernel(node) or self.held & set(node.outputs):
            return False
        takes, _ = formal_types(node.op, node.version, node.domain)
        halves = [name for name in node.inputs[: len(takes) or None] if self.is_half(name)]
        made = [name for name in node.outputs if self.is_half(name)]
        if not halves or not made or not any(name in self.maker for name in node.inputs):
            return False
        near = [self.maker[name] for name in halves if name in self.maker]
        return all(map(self.needs_casts, (*near, *(reader for name in made for reader in self.readers.get(name, [])))))

    def between_casts(self, node: Node) -> None:
        inputs = tuple(self.raised(name) if self.is_half(name) else name for name in node.inputs)
        outputs = tuple(PREFIX + name if self.is_half(name) else name for name in node.outputs)
        attributes = {k: 1 if k == "dtype" and v == number(F16) else v for k, v in node.attributes.items()}
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs, attributes=attributes))
        for name in filter(self.is_half, node.outputs):
            self.cast(PREFIX + name, name, F16, name)

    def raised(self, name: str) -> str:
        """The f32 value of one of f16."""
        if name not in self.up:
            self.up[name] = f"{PREFIX}{name}{_UP}"
            self.cast(name, self.up[name], F32, name)
        return self.up[name]

    def cast(self, source: str, target: str, kind: np.dtype[Any], of: str) -> None:
        """A cast between the value `of` f16 and the one of f32 that stands in for it."""
        self.stands_for[target if kind == F32 else source] = of
        name = f"{PREFIX}{of}{_UP if kind == F32 else ''}"
        self.nodes.append(Node(name, "Cast", "", 13, (source,), (target,), {"to": number(kind), INSERTED: 1}))

    def with_constants(self) -> Graph:
        """The graph whose constants are f32 where one node alone reads them so; others are cast as the model runs."""
        constants, left = dict(self.graph.constants), []
        uses = Counter(name for node in self.nodes for name in node.inputs)
        for node in self.nodes:
            if INSERTED not in node.attributes or node.inputs[0] not in self.fixed:
                left.append(node)
            elif uses[node.outputs[0]] > 1:
                left.append(replace(node, attributes={**node.attributes, RUNNING: 1}))
            elif node.inputs[0] in constants:
                constants[node.outputs[0]] = constants[node.inputs[0]].astype(F32)
            else:
                left.append(node)
        return replace(self.graph, nodes=tuple(left), constants=constants)


def _without_pairs(nodes: Sequence[Node], held: set[str], fixed: set[str], kinds: Kinds) -> list[Node]:
    """The nodes without casts that others behind them undo, as the remover of onnxruntime goes through them."""
    left = list(nodes)
    names: dict[str, str] = {}
    for cast in [node for node in nodes if node.op == "Cast" and not node.domain and node.outputs[0] not in fixed]:
        at = next((i for i, node in enumerate(left) if node.outputs == cast.outputs), None)
        if at is None:
            continue
        cast = left[at]
        source, target = cast.inputs[0], cast.outputs[0]
        behind = [node for node in left if target in node.inputs]
        casts = [node for node in behind if node.op == "Cast" and not node.domain]
        before, after = kinds.get(source), kinds.get(target)
        risky = _is_risky(before, after, cast)
        if risky and any(_is_risky(kinds.get(each.outputs[0]), after, each) for each in casts):
            continue
        undone = [each for each in casts if kinds.get(each.outputs[0]) == before and each.outputs[0] not in held]
        for each in undone:
            names = {each.outputs[0]: source}
            left = [_reading(node, names) for node in left if node is not each]
        truths = risky and any(kinds.get(each.outputs[0]) == np.bool_ for each in casts)  # of what becomes 0
        if casts and len(casts) == len(behind) and target not in held and not truths:
            left = [_reading(node, {target: source}) for node in left if node is not cast]
    return left


def _reading(node: Node, names: dict[str, str]) -> Node:
    """A node that reads other values in place of some."""
    if names.keys().isdisjoint(node.inputs):
        return node
    return replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))


def _has_length(kind: np.dtype[Any]) -> bool:
    """Whether onnxruntime compares a type's length with others': truth values, integers and floats of usual sizes."""
    return kind.kind == "b" or kind.kind != "O" and bits(kind) >= (16 if is_float(kind) else 8)


def _is_risky(before: np.dtype[Any] | None, after: np.dtype[Any] | None, cast: Node) -> bool:
    """Whether onnxruntime holds a cast that is in its way for one that loses something."""
    if before is None or after is None or not (_has_length(before) and _has_length(after)):
        return True
    floats = is_float(before), is_float(after)
    if floats == (True, False):
        return True
    sizes = tuple(1 if kind.kind == "b" else bits(kind) for kind in (before, after))
    if floats == (False, True):
        return before.kind != "b" and sizes[1] <= sizes[0]
    if floats == (False, False):
        if before.kind != "b" and not is_signed(after) and after.kind != "b" and is_signed(before):
            return True
        if before.kind != "b" and not is_signed(before) and is_signed(after):
            return sizes[1] <= sizes[0]
    both = {before.name, after.name} == {"float16", "bfloat16"}
    return both or sizes[0] > sizes[1] and INSERTED not in cast.attributes
