"""Recurrent layers: one product over all steps for the inputs, then a product and a few formulas for each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.kernels.common.expression import Element
from simdnn.libraries import Library
from simdnn.networks.between_products import Formula
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import has_kernel
from simdnn.networks.ops.linear import in_parts, products
from simdnn.networks.ops.registry import need, operator
from simdnn.networks.types import F32, label


def _activation(
    name: str, alpha: float | None, beta: float | None, gates: Mapping[str, Formula], fused: bool
) -> Formula:
    """An activation by ONNX's name; the names are not case-sensitive. `gates` are a library's own ones, which may not
    round multiply-adds once (`fused`).
    """
    a, b = alpha, beta

    def line(x: Element, slope: float, start: float) -> Element:
        return x.fma(slope, start) if fused else x * slope + start

    known: dict[str, Formula] = {
        "sigmoid": f.sigmoid,
        "tanh": f.tanh,
        "relu": lambda x: x.maximum(0.0),
        "affine": lambda x: line(x, 1.0 if a is None else a, 0.0 if b is None else b),
        "leakyrelu": lambda x: x.minimum(0.0).fma(0.01 if a is None else a, x.maximum(0.0)),
        "scaledtanh": lambda x: f.tanh(x * (1.0 if b is None else b)) * (1.0 if a is None else a),
        "hardsigmoid": lambda x: line(x, 0.2 if a is None else a, 0.5 if b is None else b).maximum(0.0).minimum(1.0),
        "elu": lambda x: f.expm1(x.minimum(0.0)).fma(1.0 if a is None else a, x.maximum(0.0)),
        "softsign": lambda x: x / (x.abs() + 1.0),
        "softplus": lambda x: x.maximum(0.0) + f.log(f.exp(-(x.abs())) + 1.0),
    }
    need(name.lower() in known, f"activation {name!r}; allowed: {', '.join(known)}")
    return gates.get(name.lower(), known[name.lower()])


def _last(name: str, act: Formula, library: Library | None) -> Formula:
    """An activation whose output a GRU multiplies by something in the same loop, where a library has one for that."""
    return library.gates.get(f"{name.lower()}, then times", act) if library else act


LSTM = ["Sigmoid", "Tanh", "Tanh"]  # activations
_WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")
_WITH_ALPHA = (*_WITH_BETA, "leakyrelu", "elu", "thresholdedrelu")


def _without_packing(k: Kernels, x: Array, weights: Array, first: Array | None) -> Array:
    """x times weights that lie as (N, K), added to `first`, which a single row starts from."""
    k = replace(k, constant_weights=False, transposed=("wei",))
    if first is not None and len(x) == 1:
        return products(k, x, weights, first[0])
    return products(k, x, weights) if first is None else in_parts(k, x, weights, 1.0, first)


class Layer:
    """The parts that the three recurrent operators share: directions, layouts, lengths, peeling of the parameters."""

    def __init__(
        self,
        k: Kernels,
        node: Node,
        gates: int,
        defaults: list[str],
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None,
        lengths: Array | None,
        starts: list[Array | None],
    ) -> None:
        if not has_kernel(x):
            raise Unimplemented(f"a recurrent layer of {label(x.dtype)}; f32, f16 and bf16 have kernels")
        self.k, self.batch_first = k, bool(node.integer("layout", 0))
        library = k.target.library if k.runs_models and x.dtype == F32 else None
        self.fused = library is None or library.fuses_functions
        self.plain = library is not None and gates == 1  # both biases ahead of the inputs' product, nothing packed
        library = None if self.plain else library
        self.onto_inputs = library is not None  # the state's product is added to the inputs', and then both biases
        self.x = x.transpose(1, 0, 2) if self.batch_first else x
        need(self.x.ndim == 3 and w.ndim == 3 and r.ndim == 3, f"shapes {x.shape}, {w.shape}, {r.shape}")
        self.w, self.r, self.gates = w, r, gates
        self._find_sizes(node)
        self.has_bias = bias is not None
        self.bias = np.zeros((len(w), 2 * gates * self.hidden), x.dtype) if bias is None else bias
        need(self.bias.shape == (len(w), 2 * gates * self.hidden), f"a bias of shape {self.bias.shape}")
        self.lengths = np.full(self.batch, self.steps, np.int64) if lengths is None else lengths.astype(np.int64)
        self.starts = [self._state(start) for start in starts]
        self._find_activations(node, defaults, library)
        self.clip = node.get("clip")

    def _find_sizes(self, node: Node) -> None:
        """Steps, batch, hidden size and directions, which the weights have to fit."""
        w, r, gates = self.w, self.r, self.gates
        self.steps, self.batch, _ = self.x.shape
        self.hidden = node.integer("hidden_size", r.shape[2])
        direction = node.text("direction", "forward")
        self.directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction, [])
        need(len(self.directions) == w.shape[0] == r.shape[0], f"direction={direction!r} with weights {w.shape}")
        need(
            w.shape[1:] == (gates * self.hidden, self.x.shape[2]) and r.shape[1:] == (gates * self.hidden, self.hidden),
            f"weights of shape {w.shape} and {r.shape} for hidden_size={self.hidden}",
        )

    def _state(self, given: Array | None) -> Array:
        """A state that the layer starts from: (directions, batch, hidden), zeros where none is given."""
        shape = (len(self.w), self.batch, self.hidden)
        if given is None:
            return np.zeros(shape, self.x.dtype)
        state = given.transpose(1, 0, 2) if self.batch_first else given
        need(state.shape == shape, f"an initial state of shape {state.shape}; {shape} is needed")
        return state

    def _find_activations(self, node: Node, defaults: list[str], library: Library | None) -> None:
        """The activations of all gates, and their forms for a last gate; numbers go to those that take some."""
        names = node.get("activations", defaults * len(self.directions))
        alphas, betas = (iter(node.get(n, [])) for n in ("activation_alpha", "activation_beta"))
        own = library.gates if library else {}
        if self.plain and self.k.target.library is not None:
            own = self.k.target.library.plain_gates
        self.activations = []
        for name in names:
            alpha = next(alphas, None) if name.lower() in _WITH_ALPHA else None
            beta = next(betas, None) if name.lower() in _WITH_BETA else None
            self.activations.append(_activation(name, alpha, beta, own, self.fused))
        self.last = [_last(n, act, library) for n, act in zip(names, self.activations, strict=True)]

    def clipped(self, v: Element) -> Element:
        return v if self.clip is None else v.minimum(float(self.clip)).maximum(-float(self.clip))

    def run(self, step: Callable[[int, Array, list[Array]], list[Array]], with_cell: bool) -> Any:
        """`step(direction, inputs' product at a time, states)` over time; the states of the last step of each row."""
        k, outputs, finals = self.k, [], []
        longest = int(self.lengths.max(initial=0)) if self.onto_inputs and k.values else self.steps
        for d, backwards in enumerate(self.directions):
            flat = self.of_inputs(np.ascontiguousarray(self.x[:longest]).reshape(longest * self.batch, -1), d)
            if not self.onto_inputs and not self.plain:
                flat = k.map(lambda v, b: v + b, flat, self.biases(d)[0], name="add")
            inputs = flat.reshape(longest, self.batch, -1)
            states = [start[d] for start in self.starts]
            lines = np.zeros((self.steps, self.batch, self.hidden), self.x.dtype)
            rows = np.arange(self.batch)
            for t in range(longest):
                lives = t < self.lengths
                place = np.where(lives, self.lengths - 1 - t, t) if backwards else np.full(self.batch, t)
                fresh = step(d, np.ascontiguousarray(inputs[place, rows]), self.met(t, states))
                states = [np.where(lives[:, None], new, old) for new, old in zip(fresh, states, strict=True)]
                lines[place, rows] = np.where(lives[:, None], fresh[0], 0)
            outputs.append(lines)
            finals.append(states)
        y = np.stack(outputs, 1)  # (steps, directions, batch, hidden)
        last = [np.stack([states[i] for states in finals]) for i in range(2 if with_cell else 1)]
        if self.batch_first:
            return y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in last)
        return y, *last

    def met(self, t: int, states: list[Array]) -> list[Array]:
        """The states of all rows ahead of step `t`; rows that have ended keep theirs, without effect on others."""
        return states

    def biases(self, d: int) -> tuple[Array, Array]:
        """The bias of the inputs' product, and the bias of the state's."""
        half = self.gates * self.hidden
        return self.bias[d, :half], self.bias[d, half:]

    def summands(self, d: int, now: Array, state: Array, rows: slice = slice(None)) -> tuple[Array, Array]:
        """Two summands ahead of activations, for some rows of the weights: inputs with their bias and the state's
        product with its own, or, in a library that adds one product to the other, both products and both biases.
        """
        if self.onto_inputs:
            return self.of_state(state, d, rows, now[:, rows]), self.both_biases(d)[rows]
        return now[:, rows], self.recurrent(d, state, rows)

    def both_biases(self, d: int) -> Array:
        """The sums of the two biases, made ahead of time."""
        found: Array = np.add(*self.biases(d))
        return found

    def recurrent(self, d: int, state: Array, rows: slice = slice(None)) -> Array:
        """The state's product with the recurrent weights, their bias added."""
        if self.plain:
            return _without_packing(self.k, state, self.r[d].T, None)
        bias = self.biases(d)[1][rows]
        if self.onto_inputs:
            first = np.broadcast_to(bias, (len(state), bias.size)) if self.has_bias else None
            return self.of_state(state, d, rows, first)
        return self.k.map(lambda v, b: v + b, self.of_state(state, d, rows), bias, name="add")

    def of_inputs(self, x: Array, d: int) -> Array:
        """The inputs of all steps times their weights."""
        if self.plain:
            first = np.broadcast_to(self.both_biases(d), (len(x), self.hidden))
            return _without_packing(self.k, x, self.w[d].T, first)
        return products(self._stored(self.k.constant_weights), x, self.w[d].T)

    def of_state(self, state: Array, d: int, rows: slice, first: Array | None = None) -> Array:
        """The state times some rows of its weights, added to `first`."""
        k, weights = self._stored(self.k.constant_bias), self.r[d][rows].T
        return products(k, state, weights) if first is None else in_parts(k, state, weights, 1.0, first)

    def _stored(self, constant: bool) -> Kernels:
        """The kernels for weights (N, K), which a library packs ahead of time where they are constants."""
        if not self.onto_inputs:
            return self.k
        return replace(self.k, constant_weights=constant, transposed=() if constant else ("wei",))

    def part(self, gates: Array, i: int) -> Array:
        return np.ascontiguousarray(gates[..., i * self.hidden : (i + 1) * self.hidden])

    def times_plus(self, a: Element, b: Element, c: Element) -> Element:
        """a * b + c, rounded once, or twice in a library that fuses nothing here."""
        return a.fma(b, c) if self.fused else a * b + c


@operator("RNN")
def rnn(
    k: Kernels,
    node: Node,
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    start: Array | None = None,
) -> Any:
    layer = Layer(k, node, 1, ["Tanh"], x, w, r, bias, lengths, [start])

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        act = layer.activations[d]
        return [k.map(lambda a, b: act(layer.clipped(a + b)), *layer.summands(d, now, states[0]), name="rnn")]

    return layer.run(step, False)


@operator("GRU")
def gru(
    k: Kernels,
    node: Node,
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    start: Array | None = None,
) -> Any:
    """Gates in the order z, r, h."""
    layer = Layer(k, node, 3, ["Sigmoid", "Tanh"], x, w, r, bias, lengths, [start])
    before, h = bool(node.integer("linear_before_reset", 0)), layer.hidden

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        gate, reset_gate, act = layer.activations[2 * d], layer.last[2 * d], layer.last[2 * d + 1]
        a, b = layer.summands(d, now, states[0], slice(0, 2 * h))
        z, reset = (
            k.map(lambda a, b, f=f: f(layer.clipped(a + b)), layer.part(a, i), layer.part(b, i), name="gate")
            for i, f in ((0, gate), (1, reset_gate))
        )
        last = slice(2 * h, 3 * h)
        if before:
            hidden = layer.recurrent(d, states[0], last)
            given = [layer.part(now, 2), hidden, reset]
            if layer.onto_inputs:
                given.append(layer.biases(d)[0][last])

            def fresh_of(a: Element, b: Element, c: Element, *bias: Element) -> Element:
                total = layer.times_plus(c, b, a)
                return act(layer.clipped(total + bias[0] if bias else total))

            fresh = k.map(fresh_of, *given, name="gru")
        else:
            damped = k.map(lambda a, b: a * b, states[0], reset, name="mul")
            fresh = k.map(lambda a, b: act(layer.clipped(a + b)), *layer.summands(d, now, damped, last), name="gru")
        if not layer.fused:
            return [k.map(lambda u, n, o: (1.0 - u) * n + u * o, z, fresh, states[0], name="gru")]
        return [k.map(lambda u, n, o: u.fma(o - n, n), z, fresh, states[0], name="gru")]

    return layer.run(step, False)


@operator("LSTM")
def lstm(
    k: Kernels,
    node: Node,
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    start: Array | None = None,
    cell: Array | None = None,
    peepholes: Array | None = None,
) -> Any:
    """Gates in the order i, o, f, c; peepholes in the order i, o, f."""
    layer = Layer(k, node, 4, LSTM, x, w, r, bias, lengths, [start, cell])
    return long_short(layer, k, node, peepholes)


def long_short(layer: Layer, k: Kernels, node: Node, peepholes: Array | None) -> Any:
    """A layer of long short-term memory, over all its steps."""
    coupled, kinds = bool(node.integer("input_forget", 0)), layer.x.dtype
    holes = np.zeros((len(layer.w), 3 * layer.hidden), kinds) if peepholes is None else peepholes
    need(holes.shape == (len(layer.w), 3 * layer.hidden), f"peepholes of shape {holes.shape}")

    def step(d: int, now: Array, states: list[Array]) -> list[Array]:
        gate, act, out = layer.activations[3 * d : 3 * d + 3]
        old, (outer, inner) = states[1], layer.summands(d, now, states[0])
        hole = [np.ascontiguousarray(holes[d, i * layer.hidden : (i + 1) * layer.hidden]) for i in range(3)]

        def opened(i: int, memory: Array, peep: Array) -> Array:
            parts = layer.part(outer, i), layer.part(inner, i)
            if peepholes is None:
                return k.map(lambda a, b: gate(layer.clipped(a + b)), *parts, name="gate")

            def peeped(a: Element, b: Element, c: Element, p: Element) -> Element:
                total = layer.times_plus(p, c, a) + b if layer.onto_inputs else p.fma(c, a + b)
                return gate(layer.clipped(total))

            return k.map(peeped, *parts, memory, peep, name="gate")

        i = opened(0, old, hole[0])
        forget = k.map(lambda v: 1.0 - v, i, name="sub") if coupled else opened(2, old, hole[2])
        c = k.map(lambda a, b: act(layer.clipped(a + b)), layer.part(outer, 3), layer.part(inner, 3), name="gate")
        memory = k.map(lambda g, m, a, b: layer.times_plus(g, m, a * b), forget, old, i, c, name="cell")
        o = opened(1, memory, hole[1])
        return [k.map(lambda g, m: g * out(m), o, memory, name="lstm"), memory]

    return layer.run(step, True)
