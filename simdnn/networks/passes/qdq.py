"""Quantize-dequantize models on integer kernels: products whose operands come from DequantizeLinear become one node.

DequantizeLinear -> Conv | MatMul | Gemm [-> Relu] [-> QuantizeLinear] is what quantization tools write for "this runs
in integers". The pattern is replaced, when a model is loaded, by an operator that hands scales and zero points to the
primitive, as a library that takes such graphs does. A convolution whose weights alone are dequantized becomes one that
has both, the integers and what they stand for: `ops.quantized.stored_convolution`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node
from simdnn.networks.onnx_rewriting import PRODUCTS
from simdnn.networks.types import label, limits

DOMAIN = "simdnn"
_STORED = ("s4", "u4", "s8", "u8", "s16", "u16")
BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


@dataclass(frozen=True)
class _Integers:
    """A dequantized value: the names of its integers, scale and zero point ("" where it has none)."""

    node: Node
    values: str
    scale: str
    zero: str


def fused(graph: Graph) -> Graph:
    """The graph with every product of dequantized operands as one integer node."""
    quantized = any(node.op == "DequantizeLinear" for node in graph.nodes)
    return _Fusion(_with_turned_weights(_without_copies(graph)) if quantized else graph).run()


def _with_turned_weights(graph: Graph) -> Graph:
    """The graph with constant integers that are dequantized and then transposed, as PyTorch exports weights (N, K), as
    integers that lie transposed.
    """
    constants, added = constants_of(graph), dict[str, Array]()
    makers = {node.outputs[0]: node for node in graph.nodes if node.op == "DequantizeLinear" and not node.domain}
    nodes = []
    for node in graph.nodes:
        stored = makers.get(node.inputs[0]) if node.op == "Transpose" and not node.domain else None
        values = None if stored is None else constants.get(stored.inputs[0])
        if stored is None or values is None or stored.get("block_size"):
            nodes.append(node)
            continue
        perm, name = node.integers("perm", list(range(values.ndim))[::-1]), f"{node.outputs[0]}, stored"
        added[name] = np.ascontiguousarray(values.transpose(perm))
        found = {**stored.attributes, "axis": perm.index(_axis(stored, values.ndim))} if values.ndim else {}
        nodes.append(
            replace(stored, name=node.name, inputs=(name, *stored.inputs[1:]), outputs=node.outputs, attributes=found)
        )
    return replace(graph, nodes=tuple(nodes), constants={**graph.constants, **added}) if added else graph


def _without_copies(graph: Graph) -> Graph:
    """The graph without the Identities that stand between a computed value and a QuantizeLinear, a Relu or a Clip: they
    would part a product from its quantizer. An Identity that makes an output, or a value for a graph inside, stays.
    """
    readers: dict[str, set[str]] = {}
    for node in graph.nodes:
        for name in node.reads:
            readers.setdefault(name, set()).add(node.op if name in node.inputs else "")
    known = {*graph.constants, *(port.name for port in (*graph.inputs, *graph.outputs))}
    alike: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        inputs = tuple(alike.get(name, name) for name in node.inputs)
        behind = readers.get(node.outputs[0], {""}) if node.op == "Identity" and not node.domain else {""}
        if behind <= {"QuantizeLinear", "Relu", "Clip"} and not known.intersection((*inputs, *node.outputs)):
            alike[node.outputs[0]] = inputs[0]
        else:
            nodes.append(node if inputs == node.inputs else replace(node, inputs=inputs))
    return replace(graph, nodes=tuple(nodes))


def constants_of(graph: Graph) -> dict[str, Array]:
    """Constants that no feed replaces, those that are nodes among them, and other names of them."""
    inputs = {port.name for port in graph.inputs}
    found = {n: a for n, a in graph.constants.items() if n not in inputs}
    for node in graph.nodes:
        if node.op == "Constant" and isinstance(node.get("value"), np.ndarray):
            found[node.outputs[0]] = node.get("value")
        if node.op == "Identity" and not node.domain and node.inputs[0] in found:
            found[node.outputs[0]] = found[node.inputs[0]]
    return found


class _Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker = {name: node for node in graph.nodes for name in node.outputs if name}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.reads:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {port.name for port in graph.outputs}
        self.constants = constants_of(graph)
        self.added: dict[str, Array] = {}
        self.gone: set[int] = set()
        for node in graph.nodes:
            if node.op == "QuantizeLinear" and node.outputs[0] not in self.outputs:
                self.quantize_ahead(node)

    def quantize_ahead(self, node: Node) -> None:
        """A QuantizeLinear of constants is a constant of 4, 8 or 16 bits."""
        given = [self.constants.get(name) for name in node.inputs]
        if node.get("block_size") or node.get("precision") or len(given) < 3 or any(v is None for v in given):
            return
        values, scale, zero = (np.asarray(v) for v in given)
        axis = _axis(node, values.ndim)
        across = scale.ndim == 1 and values.ndim and scale.size == values.shape[axis]
        floats = values.dtype == scale.dtype == np.float32
        if not floats or label(zero.dtype) not in _STORED or zero.size != scale.size or not (scale.size == 1 or across):
            return
        shape = [-1 if i == axis else 1 for i in range(values.ndim)] if scale.size > 1 else [1] * values.ndim
        with np.errstate(all="ignore"):
            total = np.rint(values / scale.reshape(shape)) + zero.reshape(shape).astype(np.float32)
        if np.isfinite(total).all():
            name = node.outputs[0]
            self.constants[name] = self.added[name] = np.clip(total, *limits(zero.dtype)).astype(zero.dtype)
            self.gone.add(id(node))

    def run(self) -> Graph:
        nodes = []
        replaced: dict[int, Node] = {}
        for node in self.graph.nodes:
            if node.op in PRODUCTS and not node.domain and (made := self.product(node)):
                replaced[id(node)] = made
        for node in self.graph.nodes:
            if id(node) not in self.gone:
                nodes.append(replaced.get(id(node), node))
        read = {name for node in nodes for name in node.reads} | self.outputs
        nodes = [n for n in nodes if n.op != "DequantizeLinear" or read & set(n.outputs)]
        return replace(self.graph, nodes=tuple(nodes), constants={**self.graph.constants, **self.added})

    def dequantized(self, name: str) -> _Integers | None:
        """Where a value comes from, if that is a DequantizeLinear with constant parameters and no blocks."""
        node = self.maker.get(name)
        if node is None or node.op != "DequantizeLinear" or node.get("block_size"):
            return None
        zero = node.inputs[2] if len(node.inputs) > 2 else ""
        fixed = node.inputs[1] in self.constants and (not zero or zero in self.constants)
        return _Integers(node, node.inputs[0], node.inputs[1], zero) if fixed else None

    def product(self, node: Node) -> Node | None:
        """The integer node that replaces a product; None where the pattern is another."""
        if len(node.inputs) < 2 or not node.outputs:
            return None
        x, w = (self.dequantized(name) for name in node.inputs[:2])
        if x is None and w is not None and node.op == "Conv":
            return self.stored(node, w)
        if x is None or w is None or self.constants[x.scale].size != 1 or not self.plain(node):
            return None
        turned = node.op == "Gemm" and bool(node.get("transB", 0))
        columns = self.columns(node, w, turned)
        bias = None if columns is None else self.bias(node, columns)
        if bias is None:
            return None
        weights, integers = self.constants.get(w.values), w.values
        if turned and weights is not None:
            integers = self.hold(f"{w.values}_t", np.ascontiguousarray(weights.T))
        relu, after = self.after(node)
        self.gone |= {id(n) for n in (relu, after) if n is not None}
        last = after or relu or node
        quantizes = ("", "") if after is None else (after.inputs[1], after.inputs[2] if len(after.inputs) > 2 else "")
        inputs = (x.values, x.scale, x.zero, integers, w.scale, w.zero, bias, *quantizes, self.integer_bias(node))
        attributes = dict(node.attributes) if node.op == "Conv" else {}
        attributes |= {"turned": 1, "stored": w.values} if turned else {}  # weights (N, K) in the model
        attributes |= {"transB": 1} if turned and weights is None else {}  # and here
        attributes |= {} if after is None else {"quantizes": after.inputs[0]}  # the tensor whose integers it gives
        attributes |= {
            "relu": int(relu is not None and relu.op == "Relu"),
            "requantize": int(after is not None),
            "of": node.op,
        }
        kind = "QConv" if node.op == "Conv" else "QMatMul"
        return Node(node.name, kind, DOMAIN, node.version, inputs, (last.outputs[0],), attributes)

    def columns(self, node: Node, w: _Integers, turned: bool) -> int | None:
        """Columns of a product's constant weights, 0 of computed ones; None where no integer product has such weights,
        scales or zero points.
        """
        weights, channels = self.constants.get(w.values), self.constants[w.scale]
        if w.zero and np.unique(self.constants[w.zero]).size > 1:
            return None
        if weights is None:
            return None if node.op == "Conv" or channels.size > 1 else 0
        if weights.dtype not in BYTES or node.op == "Conv" and weights.ndim not in (3, 4, 5):
            return None
        axis = 0 if node.op == "Conv" or turned else weights.ndim - 1
        return None if channels.size > 1 and _axis(w.node, weights.ndim) != axis else weights.shape[axis]

    def stored(self, node: Node, w: _Integers) -> Node | None:
        """A convolution of floats with constant integer weights, one scale or one a channel, and no zero point."""
        weights, scales = self.constants.get(w.values), self.constants[w.scale]
        zero = self.constants[w.zero] if w.zero else np.zeros(1, np.int8)
        channels = scales.size == 1 or weights is not None and _axis(w.node, weights.ndim) == 0
        if weights is None or weights.dtype.name not in ("int8", "int4") or not channels or zero.astype(np.int32).any():
            return None
        inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else "", w.values, w.scale)
        return Node(node.name, "StoredConv", DOMAIN, node.version, inputs, node.outputs[:1], node.attributes)

    def plain(self, node: Node) -> bool:
        """Whether a Gemm is a product and a bias."""
        if node.op != "Gemm":
            return True
        return not node.get("transA", 0) and node.get("alpha", 1.0) == node.get("beta", 1.0) == 1.0

    def bias(self, node: Node, channels: int) -> str | None:
        """The name of f32 bias values, one for each of some channels (0: not known); "" where there is none, None where
        they are something else.
        """
        if len(node.inputs) < 3 or not node.inputs[2]:
            return ""
        name = node.inputs[2]
        found = self.dequantized(name)
        integers = None if found is None else self.constants.get(found.values)
        given = self.constants.get(name, np.zeros(0)) if integers is None else integers
        if given.shape[-1:] != (given.size,) or given.size != channels and (channels or given.size == 1):
            return None
        if found is not None and integers is not None:
            values = integers.astype(np.float32) * self.constants[found.scale].astype(np.float32)
            return self.hold(f"{name}_f32", values.reshape(-1).astype(np.float32))
        return self.hold(f"{name}_flat", given.reshape(-1)) if given.dtype == np.float32 else None

    def integer_bias(self, node: Node) -> str:
        """The name of the integers that a bias is dequantized from; "" where there are none."""
        found = self.dequantized(node.inputs[2]) if len(node.inputs) > 2 else None
        if found is None or found.values not in self.constants:
            return ""
        return self.hold(f"{node.inputs[2]}_integers", self.constants[found.values].reshape(-1))

    def after(self, node: Node) -> tuple[Node | None, Node | None]:
        """A Relu, or a Clip that changes nothing, and a QuantizeLinear to 8 bits that follow, and that nobody else
        reads beside.
        """
        cut = None
        last = self.only_reader(node.outputs[0])
        if last is not None and last.op in ("Relu", "Clip"):
            cut, last = last, self.only_reader(last.outputs[0])
        after = last if last is not None and self.quantizes(last) else None
        if cut is not None and cut.op == "Clip" and (after is None or not self.covers(cut, after)):
            return None, None
        return cut, after

    def quantizes(self, node: Node) -> bool:
        """Whether a node is a QuantizeLinear to 8 bits with one constant scale and zero point."""
        if node.op != "QuantizeLinear" or node.get("block_size") or node.get("precision"):
            return False
        known = all(name in self.constants for name in node.inputs[1:])
        zero = self.constants.get(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1, np.uint8)
        small = zero is not None and zero.dtype in BYTES and zero.size == 1
        return known and small and self.constants[node.inputs[1]].size == 1

    def covers(self, clip: Node, after: Node) -> bool:
        """Whether a Clip leaves all that the integers of a QuantizeLinear behind it stand for."""
        bounds = [self.constants.get(name) for name in clip.inputs[1:3]]
        if len(bounds) < 2 or any(bound is None or bound.size != 1 for bound in bounds):
            return False
        scale = self.constants[after.inputs[1]].astype(np.float32).reshape(())
        zero = self.constants[after.inputs[2]] if len(after.inputs) > 2 else np.zeros(1, np.uint8)
        ends = [
            np.float32(end - int(zero.item())) * scale for end in (np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max)
        ]
        low, high = (bound.item() for bound in bounds if bound is not None)
        return bool(low <= min(ends) and max(ends) <= high)

    def only_reader(self, name: str) -> Node | None:
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def hold(self, name: str, values: Array) -> str:
        """A new constant."""
        while name in self.graph.constants or name in self.maker:
            name += "_"
        self.added[name] = values
        return name


def _axis(node: Node, rank: int) -> int:
    """The axis of a (de)quantization's scales, counted from the first."""
    try:
        return node.integer("axis", 1) % max(1, rank)
    except InvalidArgument as error:
        raise InvalidArgument(f"{node}: {error}") from error
