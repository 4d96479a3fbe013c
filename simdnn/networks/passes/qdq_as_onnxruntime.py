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
from simdnn.networks.passes.convolution_constants import Convolutions, with_constants_behind
from simdnn.networks.passes.element_types import kinds_of
from simdnn.networks.passes.f16_casts import check_bf16, with_casts
from simdnn.networks.passes.f16_steps import with_flat_products, with_plain_constants
from simdnn.networks.passes.fusions import with_layer_normalizations, with_normal_forms, with_normalized_sums
from simdnn.networks.passes.graph_rewriting import Shapes, first_of
from simdnn.networks.passes.nchwc import ADDING, LAID, ImageBlocks
from simdnn.networks.passes.qdq import BYTES, DOMAIN
from simdnn.networks.passes.stored_weights import with_stored_weights
from simdnn.networks.passes.transposes import with_moved_transposes
from simdnn.networks.types import BF16, F16, bits, label, limits

#: operators of floats with one on integers, by the order of its inputs
ONE = ("AveragePool", "LeakyRelu", "GlobalAveragePool", "Sigmoid", "Softmax")
TWO = ("Add", "Mul")
OPERATORS = (*ONE, *TWO, "Concat")
_CODES = ("s8", "u8", "s4", "u4")
_BLOCK = 32  # of weights that have no blocks


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
        sized, known = with_moved_transposes(sized, kept, known)
    given = with_normal_forms(with_stored_weights(sized, kept), kept, known)
    return with_normalized_sums(_Rewriting(given, kept, known, block).run(), kept, known)


def _with_casts(graph: Graph, kept: Sequence[str], shapes: Shapes) -> tuple[Graph, Shapes]:
    """An f16 graph with the casts that onnxruntime puts in, behind what it computes ahead in f16; and its sizes."""
    flat, known = with_flat_products(graph, kept, shapes)
    given = with_constants_behind(with_layer_normalizations(flat, kept, known), kept, known)
    given, known = with_moved_transposes(given, kept, known)
    made, stand_ins = with_casts(given, kept)
    return made, {**known, **{name: known[of] for name, of in stand_ins.items() if of in known}}


class _Rewriting(Convolutions):
    def __init__(self, graph: Graph, kept: Sequence[str], shapes: Shapes, block: int = 16) -> None:
        super().__init__(graph, kept, shapes)
        self.block = block

    def run(self) -> Graph:
        for name in list(self.nodes):
            self.to_unsigned(name)
        for node in list(self.nodes.values()):
            if node.domain == DOMAIN and node.op == "QMatMul" and self.shared(node.inputs[4]):
                node = self.put(replace(node, attributes={**node.attributes, "shared": 1}))
            if node.domain == DOMAIN and node.op in ("QConv", "QMatMul"):
                node = self.with_quantizers(node)
            if (
                made := self.on_integers(node)
                or self.of_few_bits(node)
                or self.with_bias(node)
                or self.of_few_bits_with_bias(node)
                or self.of_scaled(node)
                or self.with_factor(node)
                or self.with_sum(node)
                or self.onto_another(node)
                or self.laid(node)
                or self.of_convolution(node)
            ):
                self.put(made)
        for node in list(self.nodes.values()):
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

    def shared(self, name: str) -> bool:
        """Whether a number is the value of another input in the graph, too: onnxruntime makes one constant of both."""
        value = self.constants.get(name)
        if value is None or value.size != 1:
            return False
        found = (self.constants.get(each) for node in self.graph.nodes for each in node.inputs)
        numbers = (a for a in found if a is not None and a.size == 1 and a.dtype == value.dtype)
        return sum(bool(a.item() == value.item()) for a in numbers) > 1

    def of_bytes(self, name: str) -> bool:
        """Whether a value was dequantized from integers of 8 bits."""
        node = self.nodes.get(name)
        if node is None or node.op != "DequantizeLinear":
            return False
        zero = self.constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        return zero is None or zero.dtype in BYTES

    def fixed(self, name: str) -> int:
        """Whether the model fixes all sizes of a value: of each where it fixes those of its inputs."""
        ports = [port for port in self.graph.inputs if port.name not in self.graph.constants]
        known = self.shapes.get(name, ("",))
        inputs = [size for port in ports for size in port.dims or ["?"]]
        return int(any(all(isinstance(size, int) for size in sizes) for sizes in (inputs, known)))

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

    def with_bias(self, node: Node) -> Node | None:
        """A product to which a constant of a number a column is added, as one that begins with a bias."""
        last, value = self.followed_by(node, "Add")
        if last is None or value is None or value.ndim != 1 or not _multiplies(node):
            return None
        weights = self.constants.get(node.inputs[3 if node.domain else 1])
        if weights is None or weights.ndim != 2 or len(value) != weights.shape[1] or value.dtype != np.float32:
            return None
        bias = next(name for name in last.inputs if name in self.constants)
        fixed = {"fixed": self.fixed(node.inputs[0])}
        del self.nodes[first_of(node)]
        if node.domain:  # of dequantized operands, in floats from now on
            inputs = (*node.inputs[:6], bias, *node.inputs[7:])
            found = {**node.attributes, "of": "Gemm", "added": 1, **fixed}
            made = replace(node, inputs=inputs, outputs=last.outputs, attributes=found)
            return self.requantized(made, value) or self.with_quantizers(made)
        return Node(node.name, "MatMulBias", DOMAIN, node.version, (*node.inputs, bias), last.outputs, fixed)

    def requantized(self, node: Node, bias: Array) -> Node | None:
        """A product of dequantized operands with a bias, to integers where one QuantizeLinear alone reads it, that of a
        matrix through a Relu that it makes needless, too: its bias, floats in the model, is integers then.
        """
        last, cut = self.only_reader(node.outputs[0]), False
        if last is not None and last.op == "Relu" and (reader := self.only_reader(last.outputs[0])) is not None:
            zero = self.constants.get(reader.inputs[2]) if len(reader.inputs) > 2 else None
            cut = zero is not None and zero.size == 1 and zero.dtype in BYTES and zero.item() == limits(zero.dtype)[0]
            last = reader if cut else last
        if last is None or last.op != "QuantizeLinear" or len(last.inputs) < 3 or not self.common(*last.inputs[1:3]):
            return None
        source, weights, zero = (self.constants.get(node.inputs[at]) for at in (1, 4, 2))
        if source is None or source.size != 1 or weights is None or zero is None:
            return None
        if self.constants[last.inputs[2]].dtype != zero.dtype:
            return None
        for name in {node.outputs[0], last.inputs[0]}:
            del self.nodes[name]
        scale = np.float32(source.reshape(())) * weights.reshape(-1).astype(np.float32)  # one, or one a column
        integers = self.hold(f"{node.outputs[0]}_bias", np.rint(bias / scale).astype(np.int32))
        inputs = (*node.inputs[:7], *last.inputs[1:3], integers)
        return replace(node, inputs=inputs, outputs=last.outputs, attributes={**node.attributes, "flat": int(cut)})

    def crowded(self, name: str) -> bool:
        """Whether a QuantizeLinear reads a value and others do, too: patterns with quantizers take no such product."""
        return self.uses(name) > 1 and any(node.op == "QuantizeLinear" for node in self.readers(name))

    def with_quantizers(self, node: Node) -> Node:
        """A product of dequantized operands that a QuantizeLinear reads: one on integers where that is alone, which an
        equal one hid until both were one, and gives the source's type of 8 bits; else one of floats. Of 16 bits
        MatMulNBits takes what is quantized to the same type alone. A Relu between that this makes needless is none.
        """
        if node.get("requantize"):
            return node
        name, relu = node.outputs[0], node.get("relu")
        readers = self.readers(name)
        if len(readers) == 1 and readers[0].op == "Relu" and self.only_reader(name):
            behind = self.only_reader(readers[0].outputs[0])
            readers, relu = ([] if behind is None else [behind]), 1
        last = next((reader for reader in readers if reader.op == "QuantizeLinear"), None)
        if last is None or relu and self.only_reader(last.inputs[0]) is None:
            return node
        source = self.constants[node.inputs[2]].dtype if node.inputs[2] else np.dtype(np.uint8)
        zeros = [self.constants.get(each.inputs[2]) if len(each.inputs) > 2 else None for each in readers]
        least = zeros[0] is not None and zeros[0].size == 1 and zeros[0].item() == limits(zeros[0].dtype)[0]
        alike = last.inputs[0] not in self.kept and all(zero is not None and zero.dtype == source for zero in zeros)
        alike = alike and all(reader.op == "QuantizeLinear" for reader in readers)
        if relu and not least and source in BYTES or alike and source not in BYTES and (least or not relu):
            return node
        more: dict[str, int | str] = {"floats": 1}
        if alike and source in BYTES and len(readers) == 1 and self.common(*last.inputs[1:3]):
            if last.inputs[0] != name:  # behind a Relu of its own
                return node
            node = replace(node, inputs=(*node.inputs[:7], *last.inputs[1:3], *node.inputs[9:]), outputs=last.outputs)
            more = {"requantize": 1, "quantizes": name}
            del self.nodes[name]
        return self.put(replace(node, attributes={**node.attributes, **more}))

    def with_sum(self, node: Node) -> Node | None:
        """A product of f32 by a matrix, and what is added to it: a line is a bias to begin with, and so is a matrix
        beside a source of two dimensions; others are added by themselves.
        """
        last = self.only_reader(node.outputs[0]) if node.op == "MatMul" and not node.domain else None
        if last is None or last.op != "Add" or last.domain:
            return None
        other = next((name for name in last.inputs if name != node.outputs[0]), node.outputs[0])
        a, b, c = (self.shape_of(name) for name in (*node.inputs, other))
        if a is None or b is None or c is None:
            return None
        inputs, flat, lines = (*node.inputs, other), len(a) == 2, len(b) == 2 and c[-1:] == b[-1:]
        if lines and len(c) == 1 and (flat or all(isinstance(size, int) for size in a)):
            del self.nodes[first_of(node)]
            return Node(node.name, "MatMulBias", DOMAIN, node.version, inputs, last.outputs, {"fixed": 1})
        if lines and flat and len(c) == 2 and c[0] in (1, a[0]):
            del self.nodes[first_of(node)]
            return Node(node.name, "Gemm", "", node.version, inputs, last.outputs, {})
        return replace(node, attributes={**node.attributes, "apart": 1})

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
                return Node(node.name, "FusedMatMul", MICROSOFT, 1, node.inputs, last.outputs, {"alpha": alpha})
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

    @property
    def blocks(self) -> ImageBlocks:
        return ImageBlocks(self.nodes, self.constants, self.shapes, self.uses, self.block)

    def laid(self, node: Node) -> Node | None:
        """A node whose arithmetic is another on what lies in blocks of channels, as one that says so."""
        if node.op not in ("BatchNormalization", "Resize", "Upsample", "GlobalAveragePool") or node.domain:
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
        return None

    def ahead_of_transposes(self, name: str) -> tuple[str, list[int]]:
        """The value that some Transposes in a row read, and their permutation as one; empty where there are none."""
        axes: list[int] = []
        while (maker := self.nodes.get(name)) is not None and maker.op == "Transpose" and not maker.domain:
            own = maker.integers("perm", [1, 0])
            axes = [own[axis] for axis in axes] if axes else own
            name = maker.inputs[0]
        return name, axes

    def of_few_bits(self, node: Node) -> Node | None:
        """MatMulNBits for floats times constant weights (K, N) that are dequantized by blocks, columns, or as one."""
        if node.op not in ("MatMul", "Gemm") or node.domain or len(node.inputs) < 2:
            return None
        weights = self.nodes.get(node.inputs[1])
        if weights is None or weights.op != "DequantizeLinear" or self.only_reader(node.inputs[1]) is None:
            return None
        if not all(name in self.constants for name in weights.inputs) or not _is_plain(node):
            return None
        codes, scale = (self.constants[name] for name in weights.inputs[:2])
        block, axis = int(weights.get("block_size", 0)), int(weights.get("axis", 1))
        blocked = block >= 16 and block & (block - 1) == 0 and axis == 0
        if codes.ndim != 2 or label(codes.dtype) not in _CODES or scale.dtype != np.float32:
            return None
        if self.shared(weights.inputs[1]) or self.of_bytes(node.inputs[0]) or self.crowded(node.outputs[0]):
            return None
        if block and not blocked or not block and scale.size > 1 and (axis % 2 != 1 or scale.ndim != 1):
            return None
        zero = self.constants[weights.inputs[2]] if len(weights.inputs) > 2 else None
        made = self.packed(node, codes, scale, zero, block or _BLOCK)
        return self.of_few_bits_with_bias(made, own=False) or made

    def of_few_bits_with_bias(self, node: Node, own: bool = True) -> Node | None:
        """MatMulNBits to which a constant of a number a column is added, as one with a bias. The model's `own` leaves
        it to a Gelu behind it, and a normalized sum may ask back what was "taken".
        """
        if node.op != "MatMulNBits" or node.domain != MICROSOFT or len(node.inputs) > 5 and node.inputs[5]:
            return None
        last, value = self.followed_by(node, "Add")
        if last is None or value is None or value.shape != (node.integer("N"),) or value.dtype != np.float32:
            return None
        reader = self.only_reader(last.outputs[0])
        if own and reader is not None and reader.op in ("Gelu", "FastGelu"):
            return None
        bias = next(name for name in last.inputs if name in self.constants)
        del self.nodes[first_of(node)]
        inputs, attributes = (*(*node.inputs, "", "", "")[:5], bias), {**node.attributes, "taken": int(own)}
        return replace(node, inputs=inputs, outputs=last.outputs, attributes=attributes)

    def packed(self, node: Node, codes: Array, scale: Array, zero: Array | None, block: int) -> Node:
        """The node, and its constants: codes of a column side by side, and scales and zero points of their blocks;
        signed codes without zero points have the operator's own.
        """
        of_middle = zero is None and limits(codes.dtype)[0] < 0
        zero = np.zeros(1, codes.dtype) if zero is None else zero
        k, n = codes.shape
        width, half, blocks = bits(codes.dtype), -limits(codes.dtype)[0], -(-k // block)
        spread = {"s": np.float32, "z": np.int16}
        columns = {"w": np.zeros((n, blocks * block), np.uint8)}
        columns["w"][:, :k] = (codes.astype(np.int16) + half).T
        for what, values in (("s", scale), ("z", zero)):
            each = np.broadcast_to(values if values.ndim == 2 else values.reshape(1, -1), (blocks, n))
            columns[what] = each.T.astype(spread[what])
        columns["z"] = (columns["z"] + half).astype(np.uint8)
        names = []
        for what, values in columns.items():
            stored = _nibbles(values) if width == 4 and what != "s" else values
            names.append(self.hold(f"{node.outputs[0]}_{what}", np.ascontiguousarray(stored)))
        attributes = {"K": k, "N": n, "bits": width, "block_size": block, "accuracy_level": 4}
        inputs = (node.inputs[0], names[0], names[1], "" if of_middle else names[2], "", *node.inputs[2:3])
        return Node(node.name, "MatMulNBits", MICROSOFT, 1, inputs, node.outputs, attributes)


def _multiplies(node: Node) -> bool:
    """Whether a node is a product without a bias, whose sums are floats."""
    if node.domain == DOMAIN:
        return node.op == "QMatMul" and node.get("of") == "MatMul" and not node.inputs[6] and not node.get("requantize")
    return node.op == "MatMul" and not node.domain


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


def _is_plain(node: Node) -> bool:
    factors = node.get("alpha", 1.0) == node.get("beta", 1.0) == 1.0
    return factors and not node.get("transA", 0) and not node.get("transB", 0)


def _nibbles(values: Array) -> Array:
    """Two values a byte, the first one in the lower half."""
    even = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
    packed: Array = (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)
    return packed
