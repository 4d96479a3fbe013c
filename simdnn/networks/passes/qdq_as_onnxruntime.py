"""Quantize-dequantize graphs as onnxruntime runs them: its own operators on integers, in the types that it picks.

A tensor of s8 that one node alone reads becomes u8. DequantizeLinear -> operator -> QuantizeLinear becomes the operator
on integers (`OPERATORS`) where all its tensors have one type. A product of floats and dequantized weights becomes
MatMulNBits; one that a constant is added to, or multiplied by, a product with a bias or a factor. A convolution of
floats whose output one sum alone reads is formed onto the other summand. Products of dequantized operands are one node
already (`simdnn.networks.passes.qdq`), whose kernels ask for types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.ops.registry import MICROSOFT
from simdnn.networks.passes.common_subexpressions import once
from simdnn.networks.passes.constant_sizes import with_known_sizes
from simdnn.networks.passes.convolution_constants import with_constants_behind
from simdnn.networks.passes.element_types import kinds_of
from simdnn.networks.passes.f16_casts import check_bf16, with_casts, without_undone_casts
from simdnn.networks.passes.f16_steps import with_flat_products, with_plain_constants
from simdnn.networks.passes.few_bit_weights import FewBits
from simdnn.networks.passes.flattened_products import with_own_quantizers
from simdnn.networks.passes.fusions import with_layer_normalizations, with_normal_forms, with_normalized_sums
from simdnn.networks.passes.graph_rewriting import Shapes, first_of
from simdnn.networks.passes.moved_quantizers import MOVED, check_told_type
from simdnn.networks.passes.nchwc import ADDING, LAID, ImageBlocks
from simdnn.networks.passes.qdq import BYTES, DOMAIN
from simdnn.networks.passes.stored_weights import with_stored_weights
from simdnn.networks.passes.transposes import with_moved_transposes
from simdnn.networks.types import BF16, F16

#: operators of floats with one on integers, by the order of its inputs
ONE = ("AveragePool", "LeakyRelu", "GlobalAveragePool", "Sigmoid", "Softmax")
TWO = ("Add", "Mul")
OPERATORS = (*ONE, *TWO, "Concat")
#: operators whose arithmetic goes by the layout of channels
_TOLD = ("BatchNormalization", "Resize", "Upsample", "GlobalAveragePool", "AveragePool")


def as_run(graph: Graph, kept: Sequence[str] = (), shapes: Shapes | None = None, block: int = 16) -> Graph:
    """The graph with those patterns replaced; values named in `kept` stay as the model has them. `shapes`: what the
    model says of its values' sizes; `block`: channels that lie beside each other in the layout of images.
    """
    known = {} if shapes is None else shapes
    sized = with_known_sizes(with_plain_constants(once(graph, kept), kept), kept, known)
    kinds = kinds_of(sized, {})
    if BF16 in kinds.values():
        check_bf16(sized, kinds)
    if F16 in kinds.values():
        sized, known = _with_casts(sized, kept, known)
    else:
        sized, known = with_moved_transposes(without_undone_casts(sized, kept), kept, known)
    stored = with_stored_weights(with_constants_behind(sized, kept, known), kept)
    given = with_normal_forms(with_own_quantizers(stored, kept, known), kept, known)
    return with_normalized_sums(_Rewriting(given, kept, known, block).run(), kept, known)


def _with_casts(graph: Graph, kept: Sequence[str], shapes: Shapes) -> tuple[Graph, Shapes]:
    """An f16 graph with the casts that onnxruntime puts in, behind what it computes ahead in f16; and its sizes."""
    flat, known = with_flat_products(graph, kept, shapes)
    given = with_constants_behind(with_layer_normalizations(flat, kept, known), kept, known)
    given, known = with_moved_transposes(given, kept, known)
    made, stand_ins = with_casts(given, kept)
    return made, {**known, **{name: known[of] for name, of in stand_ins.items() if of in known}}


class _Rewriting(FewBits):
    def __init__(self, graph: Graph, kept: Sequence[str], shapes: Shapes, block: int = 16) -> None:
        super().__init__(graph, kept, shapes)
        self.block = block

    def run(self) -> Graph:
        for name in list(self.nodes):
            self.to_unsigned(name)
        for node in list(self.nodes.values()):
            stored = node.domain == DOMAIN and node.op == "QMatMul"
            if stored and (self.shared(node.inputs[4]) or self.several_read(node.inputs[3])):
                node = self.put(replace(node, attributes={**node.attributes, "shared": 1}))
            if node.domain == DOMAIN and node.op in ("QConv", "QMatMul"):
                node = self.selected(self.with_quantizers(node))
            node = self.with_gemm_sum(node) or node
            if (
                made := self.on_integers(node)
                or self.of_few_bits(node)
                or self.with_bias(node)
                or self.of_few_bits_with_bias(node)
                or self.with_sum(node)
                or self.of_scaled(node)
                or self.with_factor(node)
                or self.beside_sum(node)
                or self.onto_another(node)
                or self.laid(node)
                or self.of_convolution(node)
            ):
                self.put(made)
        for node in list(self.nodes.values()):
            node = self.turned(node) or node
            if made := self.of_transposed(node):
                self.put(made)
        return self.rewritten(("DequantizeLinear", "Transpose"))

    # -- what reads what ------------------------------------------------------------------------------------------
    def stored(self, name: str) -> tuple[str, str, str] | None:
        """The integers, scale and zero point, each one number, of a dequantized value."""
        node = self.nodes.get(name)
        if node is None or node.op != "DequantizeLinear" or len(node.inputs) < 3:
            return None
        return (node.inputs[0], node.inputs[1], node.inputs[2]) if self.common(*node.inputs[1:3]) else None

    # -- types ----------------------------------------------------------------------------------------------------
    def to_unsigned(self, name: str) -> None:
        """s8 integers that one node makes and one reads become u8, 128 more."""
        maker = self.nodes[name]
        place = {"QuantizeLinear": 2, "QConv": 8, "QMatMul": 8}.get(maker.op, len(maker.inputs))
        if name in self.kept or len(maker.inputs) <= place:
            return
        uses = [(self.nodes[n], at + 2) for n in self.reading.get(name, []) for at in self.places(self.nodes[n], name)]
        if len(uses) != 1:
            return
        reader, at = uses[0]
        same = len(reader.inputs) > at and self.common(maker.inputs[place], reader.inputs[at])
        values = [self.constants.get(node.inputs[i]) for node, i in ((maker, place), (reader, at)) if same]
        if not same or any(v is None or v.dtype != np.int8 for v in values):
            return
        if maker.get(MOVED):
            check_told_type(maker)
        shifted = self.hold(f"{name}_u8", np.asarray(values[0]).view(np.uint8) ^ np.uint8(128))
        for made, i in ((name, place), (first_of(reader), at)):
            inputs = self.nodes[made].inputs
            self.nodes[made] = replace(self.nodes[made], inputs=(*inputs[:i], shifted, *inputs[i + 1 :]))

    def places(self, reader: Node, name: str) -> list[int]:
        """Where a node reads integers with a scale and zero point behind them; once for each that it hands them to."""
        if reader.op == "DequantizeLinear":
            uses = len(self.reading.get(reader.outputs[0], [])) + (reader.outputs[0] in self.kept)
            return [0] * max(1, uses)
        triples = (0, 3) if reader.domain == DOMAIN and reader.op in ("QConv", "QMatMul") else ()
        found = [at for at in triples if reader.inputs[at] == name]
        return found or [-1, -1]  # of something else: not to be touched

    # -- patterns -------------------------------------------------------------------------------------------------
    def on_integers(self, node: Node) -> Node | None:
        """The operator on integers; None where types differ or the pattern is another."""
        if node.op not in OPERATORS or node.domain:
            return None
        last = self.only_reader(node.outputs[0])
        relu = last if last is not None and last.op == "Relu" else None
        last = self.only_reader(relu.outputs[0]) if relu is not None else last
        if last is None or last.op != "QuantizeLinear" or len(last.inputs) < 3 or not self.common(*last.inputs[1:]):
            return None
        sources = [self.stored(name) for name in node.inputs]
        if any(source is None for source in sources):
            return None
        triples = [source for source in sources if source is not None]
        target = tuple(last.inputs[1:3])
        zeros = [self.constants[name] for name in (target[1], *(zero for _, _, zero in triples))]
        if zeros[0].dtype not in BYTES or any(zero.dtype != zeros[0].dtype for zero in zeros):
            return None
        if relu is not None and int(zeros[0].item()) != np.iinfo(zeros[0].dtype).min:
            return None
        given = tuple(name for triple in triples for name in triple)
        inputs = (*target, *given) if node.op == "Concat" else (*given, *target)
        attributes = {**node.attributes, **({"opset": node.version} if node.op == "Softmax" else {})}
        for gone in (node, relu) if relu is not None else (node,):
            del self.nodes[first_of(gone)]
        op = f"QLinear{node.op}"
        return Node(node.name, op, MICROSOFT, 1, inputs, last.outputs, attributes)

    def with_factor(self, node: Node) -> Node | None:
        """A product of floats times one constant, or divided by it, as one with a factor."""
        if not _is_product(node):
            return None
        for op in ("Mul", "Div"):
            last, value = self.followed_by(node, op)
            factor = _factor(last, value, node.outputs[0]) if last is not None else None
            if last is not None and factor is not None:
                del self.nodes[first_of(node)]
                alpha = float(np.float32(node.number("alpha", 1.0)) * factor)
                made = Node(node.name, "FusedMatMul", MICROSOFT, 1, node.inputs, last.outputs, {"alpha": alpha})
                return self.with_factor(made) or made
        return None

    def of_scaled(self, node: Node) -> Node | None:
        """A product whose operands were scaled by one constant each, as one of what they were, with a factor."""
        if not _is_product(node):
            return None
        inputs, alpha = list(node.inputs), np.float32(node.number("alpha", 1.0))
        for at, name in enumerate(node.inputs):
            maker = self.nodes.get(name)
            if maker is None or maker.op not in ("Mul", "Div") or maker.domain or self.only_reader(name) is not node:
                continue
            value = next((self.constants[each] for each in maker.inputs if each in self.constants), None)
            left = next((each for each in maker.inputs if each not in self.constants), "")
            factor = _factor(maker, value, left) if left else None
            if factor is not None:
                inputs[at], alpha = left, alpha * factor
                del self.nodes[name]
        if tuple(inputs) == node.inputs:
            return None
        made = Node(node.name, "FusedMatMul", MICROSOFT, 1, tuple(inputs), node.outputs, {"alpha": float(alpha)})
        return self.with_factor(made) or made

    def of_transposed(self, node: Node) -> Node | None:
        """A product of floats that reads operands as they lie ahead of a Transpose."""
        if not (_is_product(node) or node.op == "Gemm" and not node.domain):
            return None
        inputs, found = list(node.inputs), dict(node.attributes)
        for at, side in enumerate("AB"):
            source, axes = self.ahead_of_transposes(node.inputs[at])
            turns = _turns(axes) if axes else None
            if turns is None or turns[1] and node.op == "Gemm":
                continue
            inputs[at], found[f"trans{side}"] = source, int(found.get(f"trans{side}", 0)) ^ turns[0]
            if turns[1]:
                found[f"transBatch{side}"] = 1
        if tuple(inputs) == node.inputs:
            return None
        if node.op == "Gemm":
            return replace(node, inputs=tuple(inputs), attributes=found)
        return Node(node.name, "FusedMatMul", MICROSOFT, 1, tuple(inputs), node.outputs, found)

    def turned(self, node: Node) -> Node | None:
        """A Gemm without a bias that one Transpose alone reads, as one of its operands the other way round."""
        if node.op != "Gemm" or node.domain or any(node.inputs[2:]):
            return None
        last = self.only_reader(first_of(node))
        if last is None or last.op != "Transpose" or last.domain or last.integers("perm", [1, 0]) != [1, 0]:
            return None
        turns = {f"trans{side}": 1 - node.integer(f"trans{other}", 0) for side, other in ("AB", "BA")}
        del self.nodes[first_of(node)]
        found = {**node.attributes, **turns}
        return self.put(Node(node.name, "Gemm", "", node.version, node.inputs[1::-1], last.outputs, found))

    @property
    def blocks(self) -> ImageBlocks:
        return ImageBlocks(self.nodes, self.constants, self.shapes, self.uses, self.block)

    def laid(self, node: Node) -> Node | None:
        """A node whose arithmetic is another on what lies in blocks of channels, as one that says so."""
        if node.op not in _TOLD or node.domain:
            return None
        inside = self.blocks.of(first_of(node))
        return None if inside is None else replace(node, attributes={**node.attributes, LAID: int(inside)})

    def onto_another(self, node: Node) -> Node | None:
        """A sum of two values that lie in blocks of channels, as the convolution that makes one, onto the other. Where
        other summands lie in none, a convolution in blocks is added by itself.
        """
        if node.op not in ADDING or node.domain:
            return None
        blocks = self.blocks
        kept = [blocks.of(name) for name in node.inputs]
        onto = kept == [True, True] and blocks.alike(node)
        apart = kept.count(False) == len(kept) - 1 or kept == [True, True] and not onto
        for name, inside in zip(node.inputs, kept, strict=True):
            conv = self.nodes.get(name)
            if conv is None or conv.op != "Conv" or not inside or self.only_reader(name) is not node:
                continue
            if apart or len(set(node.inputs)) == 1:
                self.nodes[name] = replace(conv, attributes={**conv.attributes, "apart": 1})
            elif onto:
                other = node.inputs[1 - node.inputs.index(name)]
                del self.nodes[name]
                inputs = (*conv.inputs[:2], conv.inputs[2] if len(conv.inputs) > 2 else "", other)
                return Node(node.name, "ConvOnto", DOMAIN, conv.version, inputs, node.outputs, conv.attributes)
        return self.begun_with_another(node, kept)

    def begun_with_another(self, node: Node, kept: Sequence[bool | None]) -> Node | None:
        """A sum of an image and a convolution that lies in no blocks and has a bias, as one that begins with the image:
        the first such convolution. Others are added by themselves.
        """
        apart = [name for name, inside in zip(node.inputs, kept, strict=True) if inside is False]
        names = [name for name in apart if self.alone(name, "Conv") is not None]
        sizes = [self.shapes.get(name) for name in node.inputs]
        alike = node.op == "Add" and len(set(sizes)) == 1 and sizes[0] is not None and len(sizes[0]) == 4
        made: Node | None = None
        for name in sorted(names, key=list(self.nodes).index):
            conv = self.nodes[name]
            if made is None and alike and "" not in (sizes[0] or ()) and len(conv.inputs) > 2 and conv.inputs[2]:
                other = node.inputs[1 - node.inputs.index(name)]
                found = {**conv.attributes, "in_blocks": 0}
                made = Node(node.name, "ConvOnto", DOMAIN, conv.version, (*conv.inputs[:3], other), node.outputs, found)
                del self.nodes[name]
            else:
                self.nodes[name] = replace(conv, attributes={**conv.attributes, "apart": 1})
        return made

    def ahead_of_transposes(self, name: str) -> tuple[str, list[int]]:
        """The value that some Transposes in a row read, and their permutation as one; empty where there are none."""
        axes: list[int] = []
        while (maker := self.nodes.get(name)) is not None and maker.op == "Transpose" and not maker.domain:
            own = maker.integers("perm", [1, 0])
            axes = [own[axis] for axis in axes] if axes else own
            name = maker.inputs[0]
        return name, axes


def _is_product(node: Node) -> bool:
    """Whether a node is a product of two operands, with a factor at most."""
    return node.op == "MatMul" and not node.domain or node.op == "FusedMatMul" and node.domain == MICROSOFT


def _factor(node: Node, value: Array | None, scaled: str) -> np.float32 | None:
    """The factor that a Mul or Div by a constant `value` puts on `scaled`; None where it is several numbers."""
    if value is None or value.size != 1 or value.dtype != np.float32 or node.op == "Div" and node.inputs[0] != scaled:
        return None
    one = np.float32(value.reshape(()))
    return one if node.op == "Mul" else np.float32(1) / one


def _turns(axes: Sequence[int]) -> tuple[int, int] | None:
    """Whether a permutation exchanges the last two dimensions, and whether it brings the first one to the place before
    the last; None where it does something else.

    >>> _turns([0, 2, 1]), _turns([1, 2, 0]), _turns([1, 0, 2]), _turns([0, 2, 3, 1])
    ((1, 0), (1, 1), (0, 1), None)
    """
    rank = len(axes)
    batch = list(range(rank - 2))
    if list(axes) == [*batch, rank - 1, rank - 2]:
        return 1, 0
    first = [axis + 1 for axis in batch]
    return (
        {(0, rank - 1): (0, 1), (rank - 1, 0): (1, 1)}.get((axes[-2], axes[-1])) if list(axes[:-2]) == first else None
    )
