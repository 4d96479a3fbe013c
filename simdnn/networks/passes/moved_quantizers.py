"""Quantizers that onnxruntime moves as it loads a model, before it looks for operators on integers.

Two pairs of QuantizeLinear and DequantizeLinear in a row become one, over the range that both have
(`DoubleQDQPairsRemover`); that one and a third become one after quantizers have moved. Behind a node that only moves
elements, a dequantized value is quantized and dequantized again; ahead of one that a QuantizeLinear reads, a value is
(`QDQPropagation`). So a product has its quantizers beside it although a Reshape, a Transpose, a Slice or a MaxPool
stands between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node, read_elsewhere
from simdnn.networks.passes.graph_rewriting import first_of
from simdnn.networks.passes.qdq import BYTES, constants_of
from simdnn.networks.types import F32

#: operators that quantizers are moved over, and from which version of them on
_MOVING = {"MaxPool": 12, "Reshape": 5, "Transpose": 1, "Squeeze": 1, "Unsqueeze": 1, "Slice": 1}
_TELLING = 21  # the first opset in which a QuantizeLinear says its type
MOVED = "moved"  # the attribute of a QuantizeLinear that goes by a DequantizeLinear, which says no type


def with_moved_quantizers(graph: Graph, kept: Sequence[str] = ()) -> tuple[Graph, dict[str, str]]:
    """The graph with quantizers where onnxruntime moves them, and its new values by the ones that they stand for."""
    if not any(node.op == "QuantizeLinear" for node in graph.nodes):
        return graph, {}
    moves = _MovedQuantizers(graph, kept)
    moved = moves.run()
    return (moved, moves.stand_ins) if moves.stand_ins or len(moves.nodes) < len(graph.nodes) else (graph, {})


def check_told_type(node: Node) -> None:
    """`Unimplemented` where onnxruntime makes u8 of s8 behind a quantizer that goes on saying s8."""
    if node.version >= _TELLING:
        raise Unimplemented(
            f"{node}: of opset {_TELLING} and above onnxruntime loads no model where it moves quantizers of s8 over a "
            "Reshape, Transpose or Slice, or to a product of three dimensions with a bias (output_dtype INT8 does not "
            "match y_zero_point type UINT8); what works: opset 20, or u8"
        )


class _MovedQuantizers:
    def __init__(self, graph: Graph, kept: Sequence[str]) -> None:
        self.kept = read_elsewhere(graph, kept)
        self.graph = graph = _without_copies(graph, self.kept)
        self.constants = constants_of(graph)
        self.nodes = {first_of(node): node for node in graph.nodes}
        self.ahead: dict[str, list[Node]] = {}  # new nodes behind the node that makes a value
        self.readers: dict[str, list[str]] = {}  # of each value: once for each time that a node reads it
        for node in graph.nodes:
            for name in filter(None, node.inputs):
                self.readers.setdefault(name, []).append(first_of(node))
        self.added: dict[str, Array] = {}
        self.stand_ins: dict[str, str] = {}

    def run(self) -> Graph:
        self.merged()
        for op, move in (("DequantizeLinear", self.forwards), ("QuantizeLinear", self.backwards)):
            for node in [node for node in self.nodes.values() if node.op == op]:
                if not node.domain and len(node.inputs) > 1 and self.numbers(node) is not None:
                    move(node)
        while self.merged():
            pass
        order = [first_of(node) for node in self.graph.nodes if first_of(node) in self.nodes]
        nodes = [node for name in order for node in (self.nodes[name], *self.ahead.get(name, ()))]
        return replace(self.graph, nodes=tuple(nodes), constants={**self.graph.constants, **self.added})

    def only_reader(self, name: str, op: str = "") -> Node | None:
        """The one node that reads a value, of an operator if that is said; None where others or the model do, too."""
        readers = self.readers.get(name, [])
        node = self.nodes.get(readers[0]) if len(readers) == 1 and name not in self.kept else None
        return node if node is not None and (not op or node.op == op) else None

    def numbers(self, node: Node) -> tuple[np.float32, Array] | None:
        """The constant scale and zero point of a quantizer, one of each; None where it has others."""
        if node.get("block_size") or any(name not in self.constants for name in node.inputs[1:]):
            return None
        scale, *zero = (self.constants[name] for name in node.inputs[1:3])
        if scale.size != 1 or scale.dtype != F32 or any(each.size != 1 for each in zero):
            return None
        return scale.reshape(-1)[0], (zero[0] if zero else np.zeros((), np.uint8)).reshape(())

    # -- two pairs ------------------------------------------------------------------------------------------------
    def merged(self) -> bool:
        """Make one of two pairs wherever they are in a row; a pair that was made is left as it is. Whether one was."""
        made: set[str] = set()
        for node in self.graph.nodes:
            if node.op == "DequantizeLinear" and first_of(node) in self.nodes and first_of(node) not in made:
                made.add(self.of_two_pairs(first_of(node)))
        return any(made)

    def of_two_pairs(self, name: str) -> str:
        """The first and the last of two pairs whose middle is a DequantizeLinear, of bytes that have one type: what the
        last makes; "" where there are none.
        """
        back = self.nodes[name]
        first = self.nodes.get(back.inputs[0])
        again = self.only_reader(name, "QuantizeLinear")
        last = None if again is None else self.only_reader(first_of(again), "DequantizeLinear")
        if first is None or again is None or last is None or first.op != "QuantizeLinear":
            return ""
        if self.only_reader(first_of(first)) is not back or any(len(n.inputs) < 3 for n in (first, back, again, last)):
            return ""
        pairs = [self.numbers(node) for node in (first, back, again, last)]
        one, two = (self.alike(*pairs[at : at + 2]) for at in (0, 2))
        if one is None or two is None or one[1].dtype != two[1].dtype or one[1].dtype not in BYTES:
            return ""
        if self.alike(one, two) is None:
            scale, zero = _common_range(one, two)
            held = tuple(f"{first_of(first)}, {part}" for part in ("scale of both", "zero point of both"))
            for key, value in zip(held, (scale, zero), strict=True):
                self.constants[key] = self.added[key] = np.asarray(value)
            first = replace(first, inputs=(first.inputs[0], *held))
            last = replace(last, inputs=(last.inputs[0], *held))
        self.nodes[first_of(first)] = first
        self.nodes[first_of(last)] = replace(last, inputs=(first_of(first), *last.inputs[1:]))
        self.readers[first_of(first)] = [first_of(last)]
        del self.nodes[name], self.nodes[first_of(again)]
        return first_of(last)

    @staticmethod
    def alike(
        one: tuple[np.float32, Array] | None, two: tuple[np.float32, Array] | None
    ) -> tuple[np.float32, Array] | None:
        """The scale and zero point of two quantizers that have the same ones."""
        if one is None or two is None or one[0] != two[0] or one[1].dtype != two[1].dtype or one[1] != two[1]:
            return None
        return one

    # -- moves ----------------------------------------------------------------------------------------------------
    def moving(self, node: Node | None) -> bool:
        """Whether quantizers move over a node."""
        return node is not None and not node.domain and node.version >= _MOVING.get(node.op, node.version + 1)

    def forwards(self, node: Node) -> None:
        """Quantize and dequantize what nodes that move the elements of a dequantized value make. Of several in a row,
        which may become one, the last says whether a model is loaded.
        """
        waiting = [] if first_of(node) in self.kept else list(self.readers.get(first_of(node), []))
        while waiting:
            name = waiting.pop()
            readers = self.readers.get(name, []) if name not in self.kept and self.moving(self.nodes.get(name)) else []
            if readers and all(self.nodes[each].op != "QuantizeLinear" for each in readers):
                on = all(self.moving(self.nodes[each]) for each in readers)
                self.insert(name, node, readers, {} if on else {MOVED: 1})
                waiting += readers

    def backwards(self, node: Node) -> None:
        """Quantize and dequantize what nodes that move elements for a QuantizeLinear read."""
        name, found = node.inputs[0], ""
        while self.only_reader(name) is not None and self.moving(maker := self.nodes.get(name)):
            assert maker is not None
            source = maker.inputs[0]
            before = self.nodes.get(source)
            if before is None or before.op == "DequantizeLinear" or self.only_reader(source) is None:
                break
            name = found = source
        if found:
            self.insert(found, node, self.readers[found], {})

    def insert(self, name: str, of: Node, readers: Sequence[str], told: Mapping[str, int]) -> None:
        """A pair behind a value, with the numbers of a quantizer, which some of its readers read in its place."""
        integers, floats = f"{name}, quantized", f"{name}, dequantized"
        numbers = of.inputs[1:]
        self.ahead[name] = [
            Node(of.name, "QuantizeLinear", "", of.version, (name, *numbers), (integers,), dict(told)),
            Node(of.name, "DequantizeLinear", "", of.version, (integers, *numbers), (floats,), {}),
        ]
        self.stand_ins |= {integers: name, floats: name}
        for reader in set(readers):
            node = self.nodes[reader]
            inputs = tuple(floats if each == name else each for each in node.inputs)
            self.nodes[reader] = replace(node, inputs=inputs)


def _without_copies(graph: Graph, kept: Collection[str]) -> Graph:
    """The graph without Identities of values inside."""
    same: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs)) if same else node
        if node.op == "Identity" and not node.domain and node.outputs[0] not in kept:
            same[node.outputs[0]] = node.inputs[0]
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if same else graph


def _common_range(one: tuple[np.float32, Array], two: tuple[np.float32, Array]) -> tuple[np.float32, Array]:
    """The scale and zero point of the numbers that both of two quantizers to bytes of one type have; `Unimplemented`
    where there are none.

    >>> scale, zero = _common_range((np.float32(1), np.uint8(0)), (np.float32(0.5), np.uint8(128)))
    >>> round(float(scale), 3), int(zero)
    (0.249, 0)
    """
    low, high = (np.float32(getattr(np.iinfo(one[1].dtype), end)) for end in ("min", "max"))
    ends = [[(end - np.float32(zero)) * scale for scale, zero in (one, two)] for end in (low, high)]
    least, greatest = max(ends[0]), min(ends[1])
    if least >= greatest:
        raise Unimplemented(
            f"two quantizers in a row, of {least:g} and above and of {greatest:g} and below: onnxruntime makes one of "
            "them over the range of both, and there is none; what works: ranges that meet"
        )
    scale = np.float32((greatest - least) / (high - low))
    place = low - least / scale
    return scale, np.asarray(np.trunc(place + np.copysign(np.float32(0.5), place))).astype(one[1].dtype)
