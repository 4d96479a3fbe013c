"""Graphs drawn from a seed: operators, shapes, types and attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from tests.networks import peer
from tests.networks.models import model

UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Abs",
    "Neg",
    "Softplus",
    "HardSwish",
    "Erf",
    "LeakyRelu",
    "Elu",
    "HardSigmoid",
    "Softsign",
    "Identity",
    "Floor",
    "Sign",
)
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


class Builder:
    """Grows a graph on (N, C, H, W) by one node at a time; `shape` is that of the last value."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(
            int(v) for v in (self.rng.integers(1, 3), self.rng.integers(1, 9), *self.rng.integers(4, 12, 2))
        )
        self.first = self.shape
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.last = "x"
        self.kept: list[tuple[str, tuple[int, ...]]] = []

    def put(self, op: str, *more: str, shape: tuple[int, ...] | None = None, **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.last, *more], [name], f"{op}{len(self.nodes)}", **attributes))
        self.last, self.shape = name, self.shape if shape is None else shape
        self.kept.append((name, self.shape))

    def constant(self, *shape: int, scale: float = 0.5) -> str:
        return self.hold((self.rng.normal(size=shape) * scale).astype(np.float32))

    def hold(self, values: np.ndarray[Any, Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def grow(self) -> None:
        getattr(self, str(self.rng.choice([n for n in dir(self) if n.startswith("add_")])))()

    def add_unary(self) -> None:
        self.put(str(self.rng.choice(UNARY)))

    def add_binary(self) -> None:
        shape = [n if self.rng.random() < 0.6 else 1 for n in self.shape]
        self.put(str(self.rng.choice(BINARY)), self.constant(*shape[int(self.rng.integers(0, 3)) :]))

    def add_skip(self) -> None:
        same = [name for name, shape in self.kept if shape == self.shape]
        if same:
            self.put("Add", str(self.rng.choice(same)))

    def add_conv(self) -> None:
        n, c, h, w = self.shape
        kernel = [int(v) for v in self.rng.integers(1, 4, 2)]
        strides, dilations = ([int(v) for v in self.rng.integers(1, 3, 2)] for _ in range(2))
        pads = [int(v) for v in self.rng.integers(0, 3, 4)]
        groups = int(self.rng.choice([g for g in (1, 2, c) if c % g == 0]))
        out = groups * int(self.rng.integers(1, 4))
        size = [
            (s + pads[i] + pads[i + 2] - (k - 1) * d - 1) // t + 1
            for i, (s, k, d, t) in enumerate(zip((h, w), kernel, dilations, strides, strict=True))
        ]
        if min(size) >= 1:
            weights = self.constant(out, c // groups, *kernel)
            more = [self.constant(out)] if self.rng.random() < 0.5 else []
            self.put(
                "Conv",
                weights,
                *more,
                shape=(n, out, *size),
                group=groups,
                strides=strides,
                dilations=dilations,
                pads=pads,
            )

    def add_transposed_conv(self) -> None:
        n, c, h, w = self.shape
        out, k, s = (int(v) for v in self.rng.integers(1, 4, 3))
        if h < 10:
            shape = (n, out, (h - 1) * s + k, (w - 1) * s + k)
            self.put("ConvTranspose", self.constant(c, out, k, k), shape=shape, strides=[s, s])

    def add_pool(self) -> None:
        n, c, h, w = self.shape
        op = str(self.rng.choice(["MaxPool", "AveragePool"]))
        k, s, p = int(self.rng.integers(2, 4)), int(self.rng.integers(1, 3)), int(self.rng.integers(0, 2))
        more = {"count_include_pad": int(self.rng.integers(0, 2))} if op == "AveragePool" else {}
        if min(h, w) + 2 * p >= k:
            out = [(v + 2 * p - k) // s + 1 for v in (h, w)]
            self.put(op, shape=(n, c, *out), kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, **more)

    def add_norm(self) -> None:
        c = self.shape[1]
        kind = int(self.rng.integers(0, 3))
        if kind == 0:
            mean, variance = self.constant(c), self.hold(self.rng.random(c).astype(np.float32) + 0.5)
            self.put("BatchNormalization", self.constant(c), self.constant(c), mean, variance)
        elif kind == 1:
            self.put("LayerNormalization", self.constant(self.shape[-1]), self.constant(self.shape[-1]), axis=-1)
        else:
            self.put("InstanceNormalization", self.constant(c), self.constant(c), epsilon=1e-2)

    def add_softmax(self) -> None:
        self.put(str(self.rng.choice(["Softmax", "LogSoftmax"])), axis=int(self.rng.integers(-4, 4)))

    def add_matmul(self) -> None:
        out = int(self.rng.integers(1, 20))
        self.put("MatMul", self.constant(self.shape[-1], out), shape=(*self.shape[:-1], out))

    def add_transpose(self) -> None:
        order = [int(v) for v in self.rng.permutation(4)]
        self.put("Transpose", shape=tuple(self.shape[i] for i in order), perm=order)

    def add_slice(self) -> None:
        axis = int(self.rng.integers(0, 4))
        size = self.shape[axis]
        if size > 2:
            first, step = int(self.rng.integers(0, size // 2)), int(self.rng.integers(1, 3))
            shape = list(self.shape)
            shape[axis] = len(range(first, size, step))
            ends = [self.hold(np.array([v], np.int64)) for v in (first, size, axis, step)]
            self.put("Slice", *ends, shape=tuple(shape))

    def add_pad(self) -> None:
        pads = self.rng.integers(0, 2, 8)
        shape = tuple(int(n + a + b) for n, a, b in zip(self.shape, pads[:4], pads[4:], strict=True))
        self.put("Pad", self.hold(pads.astype(np.int64)), shape=shape, mode=str(self.rng.choice(["constant", "edge"])))

    def add_reduce(self) -> None:
        axis = int(self.rng.integers(0, 4))
        shape = tuple(1 if i == axis else n for i, n in enumerate(self.shape))
        op = str(self.rng.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"]))
        self.put(op, shape=shape, axes=[axis], keepdims=1)

    def add_concat(self) -> None:
        axis = int(self.rng.integers(0, 4))
        shape = list(self.shape)
        shape[axis] = int(self.rng.integers(1, 4))
        total = tuple(n + shape[axis] if i == axis else n for i, n in enumerate(self.shape))
        self.put("Concat", self.constant(*shape), shape=total, axis=axis)

    def add_resize(self) -> None:
        if np.prod(self.shape) < 2000:
            scales = self.hold(np.array([1, 1, 2, 1.5], np.float32))
            shape = (*self.shape[:2], self.shape[2] * 2, int(self.shape[3] * 1.5))
            mode = str(self.rng.choice(["nearest", "linear"]))
            self.nodes.append(helper.make_node("Resize", [self.last, "", scales], [f"r{len(self.nodes)}"], mode=mode))
            self.last, self.shape = self.nodes[-1].output[0], shape


@dataclass(frozen=True)
class Drawn:
    """A model of one input and one output, and feeds for it."""

    model: Any
    feeds: dict[str, np.ndarray[Any, Any]]
    output: str

    def check(self, outputs: dict[str, np.ndarray[Any, Any]]) -> None:
        """The values are onnxruntime's within f32's rounding, by the largest of them."""
        got, wanted = outputs[self.output], peer.output(self.model, self.feeds, optimized=False)
        assert got.shape == wanted.shape
        largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5 * max(1.0, largest))


def draw(builder: Builder, nodes: int = 8, opset: int = 17) -> Drawn:
    """The graph that a builder makes when it has grown to so many nodes."""
    while len(builder.nodes) < nodes:
        builder.grow()
    made = model(builder.nodes, {"x": builder.first}, [builder.last], builder.constants, opset=opset)
    return Drawn(made, {"x": builder.rng.normal(size=builder.first).astype(np.float32)}, builder.last)
