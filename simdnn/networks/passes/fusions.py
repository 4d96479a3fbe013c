"""Patterns of f32 nodes that onnxruntime makes one node of: normalizations, Gelu, and a sum that is normalized.

Read in onnxruntime/core/optimizer (layer_norm_fusion.cc, gelu_fusion.cc, skip_layer_norm_fusion.cc), and seen in the
models that it writes when it has optimized one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from simdnn.networks.model import Graph, Node
from simdnn.networks.ops.registry import MICROSOFT
from simdnn.networks.passes.f16_casts import RUNNING
from simdnn.networks.passes.graph_rewriting import Rewriting, Shapes, first_of

_HAS_NORMALIZATION = 17  # the opset
_SQRT_2_PI, _CUBIC = math.sqrt(2 / math.pi), 0.044715  # of a Gelu by Tanh


def with_normal_forms(graph: Graph, kept: Sequence[str], shapes: Shapes) -> Graph:
    """The graph with LayerNormalization, SimplifiedLayerNormalization and Gelu in place of what they are made of."""
    return _Forms(graph, kept, shapes).run()


def with_layer_normalizations(graph: Graph, kept: Sequence[str], shapes: Shapes) -> Graph:
    """The graph with LayerNormalization alone in place of what it is made of, where the model's opset has it."""
    forms = _Forms(graph, kept, shapes)
    return forms.run((lambda node: forms.centred(node) if node.version >= _HAS_NORMALIZATION else None,))


def with_normalized_sums(graph: Graph, kept: Sequence[str], shapes: Shapes) -> Graph:
    """The graph with SkipLayerNormalization in place of a sum and its normalization."""
    return _Sums(graph, kept, shapes).run()


def _pairs(node: Node | None) -> list[tuple[str, str]]:
    """The two inputs of a node in either order; empty where it has more or fewer."""
    if node is None or len(node.inputs) != 2:
        return []
    first, second = node.inputs
    return [(first, second), (second, first)]


class _Forms(Rewriting):
    def run(self, wanted: Sequence[Callable[[Node], Node | None]] = ()) -> Graph:
        for form in wanted or (self.centred, self.around_zero, self.gelu, self.gelu_by_tanh):
            for name, node in list(self.nodes.items()):
                if node.domain == "" and self.nodes.get(name) is node and (made := form(node)):
                    self.nodes[name] = made
        return self.rewritten()

    def with_line(self, node: Node | None, through: bool = False) -> Iterator[tuple[str, str]]:
        """An input beside a constant of one dimension, and that constant, which is cast as the model runs perhaps."""
        for name, line in _pairs(node):
            held = self.constants.get(self.ahead_of_cast(line) if through else line)
            if held is not None and held.ndim == 1:
                yield name, line

    def mean_of_squares(self, name: str, through: bool = False) -> tuple[str, float] | None:
        """The value that is squared, and epsilon, of sqrt(mean of squares over the last dimension + epsilon); numbers
        that are cast as the model runs count with `through`.
        """
        root = self.alone(name, "Sqrt")
        total = self.alone(root.inputs[0], "Add") if root else None
        for mean, epsilon in _pairs(total):
            epsilon = self.ahead_of_cast(epsilon) if through else epsilon
            power = self.alone(self.mean_of(mean), "Pow") if self.common(epsilon) else None
            exponent = power.inputs[1] if power is not None else ""
            if power is not None and self.is_number(self.ahead_of_cast(exponent) if through else exponent, 2):
                return power.inputs[0], float(self.constants[epsilon].reshape(()))
        return None

    def ahead_of_cast(self, name: str) -> str:
        """The constant that is cast to a value as the model runs; the value itself where it is something else."""
        node = self.nodes.get(name)
        return node.inputs[0] if node is not None and RUNNING in node.attributes else name

    def mean_of(self, name: str) -> str:
        """The value that another one is the mean of, over the last dimension, which is kept; "" of others."""
        node = self.alone(name, "ReduceMean")
        if node is None or not node.integer("keepdims", 1):
            return ""
        axes = node.get("axes")
        if len(node.inputs) > 1 and node.inputs[1] in self.constants:
            axes = self.constants[node.inputs[1]].reshape(-1).tolist()
        rank = len(self.shapes.get(node.inputs[0], ()))
        return node.inputs[0] if axes in ([-1], [rank - 1] if rank else [-1]) else ""

    def centred(self, node: Node) -> Node | None:
        """(x - mean) / deviation * scale + bias."""
        if node.op != "Add":
            return None
        for scaled, bias in self.with_line(node):
            for shared, scale in self.with_line(self.alone(scaled, "Mul")):
                ratio = self.alone(shared, "Div")
                found = self.mean_of_squares(ratio.inputs[1]) if ratio else None
                if ratio is None or found is None or found[0] != ratio.inputs[0]:
                    continue
                apart = self.nodes.get(found[0])
                if apart is None or apart.op != "Sub" or len(self.reading[found[0]]) != 2 or found[0] in self.kept:
                    continue
                if self.mean_of(apart.inputs[1]) != apart.inputs[0]:
                    continue
                self.drop(scaled, shared, *self.chain(ratio.inputs[1]), apart.inputs[1], found[0])
                return _form(node, "LayerNormalization", (apart.inputs[0], scale, bias), found[1])
        return None

    def around_zero(self, node: Node) -> Node | None:
        """x / deviation * scale, or x * (1 / deviation) * scale."""
        if node.op != "Mul":
            return None
        for shared, scale in self.with_line(node, through=True):
            ratio, product = self.alone(shared, "Div"), self.alone(shared, "Mul")
            for x, by in _pairs(product) or _pairs(ratio)[:1]:
                inverse = self.alone(by, "Div") if product else None
                if product and (inverse is None or not self.is_number(self.ahead_of_cast(inverse.inputs[0]), 1)):
                    continue
                deviation = inverse.inputs[1] if inverse else by
                found = self.mean_of_squares(deviation, through=True)
                if found is not None and found[0] == x:
                    self.drop(shared, *([by] if inverse else []), *self.chain(deviation))
                    return _form(node, "SimplifiedLayerNormalization", (x, scale), found[1])
        return None

    def gelu(self, node: Node) -> Node | None:
        """x * (erf(x / sqrt(2)) + 1) * 0.5, or x * 0.5 times the sum."""
        if node.op != "Mul":
            return None
        for first, second in _pairs(node):
            for x, other in _pairs(self.alone(first, "Mul")):
                halves = (second, other), (other, second)
                total = next((t for half, t in halves if self.is_number(half, 0.5) and self.erf_of(t) == x), "")
                if total:
                    self.drop(first, total, *self.erf_parts(total))
                    return Node(node.name, "Gelu", MICROSOFT, 1, (x,), node.outputs, {})
        return None

    def gelu_by_tanh(self, node: Node) -> Node | None:
        """x * 0.5 * (tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)) + 1), unless the model hands it out."""
        if node.op != "Mul" or node.outputs[0] in self.kept:
            return None
        for first, second in _pairs(node):
            for x, half in _pairs(self.alone(first, "Mul")):
                parts = self.tanh_parts(second, x) if self.is_number(half, 0.5) else []
                if parts:
                    self.drop(first, *parts)
                    return Node(node.name, "FastGelu", MICROSOFT, 1, (x,), node.outputs, {})
        return None

    def tanh_parts(self, name: str, x: str) -> list[str]:
        """The values of the second factor of such a Gelu, itself among them; empty where it is something else."""
        steps = ("Add", 1.0), ("Tanh", None), ("Mul", _SQRT_2_PI), ("Add", x), ("Mul", _CUBIC), ("Pow", 3.0)
        found = []
        for op, beside in steps:
            node = self.alone(name, op)
            if node is None:
                return []
            found.append(name)
            orders = _pairs(node) if op in ("Add", "Mul") else [(node.inputs[0], node.inputs[-1])]
            name = next((first for first, second in orders if self.matches(second, beside)), "")
        return found if name == x else []

    def matches(self, name: str, wanted: str | float | None) -> bool:
        """Whether a value is the one of that name, or one constant number; any is where nothing is wanted."""
        return wanted is None or (name == wanted if isinstance(wanted, str) else self.is_number(name, wanted))

    def erf_of(self, name: str) -> str:
        """The x of erf(x / sqrt(2)) + 1; "" of other values."""
        total = self.alone(name, "Add")
        for error, one in _pairs(total):
            found = self.alone(error, "Erf")
            ratio = self.alone(found.inputs[0], "Div") if found and self.is_number(one, 1) else None
            if ratio is not None and self.is_number(ratio.inputs[1], math.sqrt(2)):
                return ratio.inputs[0]
        return ""

    def erf_parts(self, name: str) -> list[str]:
        """The values that `erf_of` found, the sum apart."""
        error = next(each for each in self.nodes[name].inputs if self.alone(each, "Erf"))
        return [error, self.nodes[error].inputs[0]]

    def chain(self, deviation: str) -> list[str]:
        """The values between a square and its deviation."""
        total = self.nodes[deviation].inputs[0]
        mean = next(each for each in self.nodes[total].inputs if self.alone(each, "ReduceMean"))
        return [deviation, total, mean, self.nodes[mean].inputs[0]]

    def drop(self, *names: str) -> None:
        for name in names:
            self.nodes.pop(name, None)


def _form(node: Node, op: str, inputs: tuple[str, ...], epsilon: float) -> Node:
    return Node(node.name, op, "", 17, inputs, node.outputs, {"axis": -1, "epsilon": epsilon})


class _Sums(Rewriting):
    def run(self) -> Graph:
        for name, node in list(self.nodes.items()):
            if node.op == "LayerNormalization" and not node.domain and (made := self.of_sum(node)):
                self.nodes[name] = made
        return self.rewritten()

    def of_sum(self, node: Node) -> Node | None:
        """A sum of two values of three dimensions, normalized; one may have a bias, which is added behind both."""
        total = self.alone(node.inputs[0], "Add")
        if total is None or len(node.inputs) != 3 or len([name for name in node.outputs if name]) != 1:
            return None
        last = len(self.shapes.get(total.inputs[0], ())) - 1
        if node.integer("axis", -1) not in (-1, last) or not self.alike(*total.inputs):
            return None
        inputs: tuple[str, ...] = (*total.inputs, *node.inputs[1:])
        for at, name in enumerate(total.inputs):
            if parts := self.with_bias(name):
                inputs = (parts[0], total.inputs[1 - at], *node.inputs[1:], parts[1])
                break
        del self.nodes[first_of(total)]
        epsilon = {"epsilon": node.number("epsilon", 1e-5)}
        return Node(node.name, "SkipLayerNormalization", MICROSOFT, 1, inputs, node.outputs, epsilon)

    def with_bias(self, name: str) -> tuple[str, str] | None:
        """The summands of a value that one node alone reads: three dimensions, and a bias. Products take their bias for
        themselves where the model fixes their sizes, but for weights of few bits.
        """
        inner = self.nodes.get(name)
        if inner is None or self.only_reader(name) is None:
            return None
        if inner.op == "Add" and not inner.domain:
            if [len(self.shape_of(each) or ()) for each in inner.inputs] != [3, 1] or self.of_integers(inner.inputs[0]):
                return None
            del self.nodes[name]
            return inner.inputs[0], inner.inputs[1]
        if len(self.shape_of(name) or ()) != 3:
            return None
        if inner.op == "MatMulNBits" and inner.get("taken"):
            self.nodes[name] = replace(inner, inputs=inner.inputs[:5])
            return name, inner.inputs[5]
        if inner.op != "MatMulBias" or inner.integer("fixed", 1):
            return None
        self.nodes[name] = Node(inner.name, "MatMul", "", inner.version, inner.inputs[:2], inner.outputs, {})
        return name, inner.inputs[2]

    def of_integers(self, name: str) -> bool:
        """Whether a value is a product of integers as floats, times a scale, which takes a bias for itself."""
        scaled = self.alone(name, "Mul")
        casts = [self.alone(each, "Cast") for each in scaled.inputs] if scaled else []
        return any(cast is not None and self.alone(cast.inputs[0], "MatMulInteger") for cast in casts)

    def alike(self, *names: str) -> bool:
        """Whether two values have three sizes each, known by number or name, and the same ones."""
        first, second = (self.shape_of(name) for name in names)
        return first is not None and len(first) == 3 and "" not in first and first == second
