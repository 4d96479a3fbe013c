"""Primitives beside products: softmax, layer normalization, functions of elements, pooling, transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from isa_models import GpuMachine, Machine
from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph
from simdnn.networks.network import Network
from simdnn.networks.result import NetworkEstimate, NetworkResult
from simdnn.operators import graphs
from simdnn.operators.graphs import Scales
from simdnn.primitives.checks import keywords

Where = str | PathLike[str] | Machine | GpuMachine


@dataclass(frozen=True, eq=False, repr=False)
class OperatorEstimate(NetworkEstimate):
    """The cost of a primitive of a few passes; `to_frame` has a row a pass."""

    @property
    def implementation(self) -> str:
        """The kernels that run, in the order of their first call."""
        return " + ".join(dict.fromkeys(call.implementation for run in self.nodes for call in run.calls))


@dataclass(frozen=True, eq=False, repr=False)
class OperatorResult(OperatorEstimate, NetworkResult):
    """A primitive's `output`, with what it costs."""

    @property
    def output(self) -> Array:
        return self.outputs["dst"]


def _ran(graph: Graph, feeds: Mapping[str, Array | None], where: dict[str, Any]) -> OperatorResult:
    given = {name: array for name, array in feeds.items() if array is not None}
    found = Network(graph).run(given, **where)
    return OperatorResult(found.machine, found.isa, found.threads, found.nodes, found.outputs)


@keywords
def softmax(
    src: Array,
    axis: int = -1,
    *,
    logarithm: bool = False,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> OperatorResult:
    """e**x over its sum along `axis`, or the logarithm of that: values of `src`'s shape, and cost.

    `src` is an array of f32, bf16, f16, s8 or u8; `dst` one of these types, by default the source's. `scales` are
    common numbers: {"src": s} multiplies what is read, {"dst": s} divides what is written, which for s8 and u8 is
    rounded to nearest even and saturated. Between its four passes values are f32. Raises `InvalidArgument`.

    >>> import numpy as np
    >>> r = softmax(np.array([[0, 0, 0, 0]], np.float32), machine="zen4", dst="u8", scales={"dst": 1 / 256})
    >>> r.output.tolist(), r.cycles > 0
    ([[64, 64, 64, 64]], True)
    """
    graph = graphs.softmax(src, axis=axis, logarithm=logarithm, dst=dst, scales=scales)
    return _ran(graph, {"src": src}, {"machine": machine, "isa": isa, "threads": threads, "engine": engine})


@keywords
def layer_normalization(
    src: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    epsilon: float = 1e-5,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> OperatorResult:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension: values and cost.

    `scale` and `shift` are f32 of the last dimension's size. Types, `dst` and `scales` as `simdnn.softmax` has them.
    """
    graph = graphs.layer_normalization(src, scale, shift, epsilon=epsilon, dst=dst, scales=scales)
    where = {"machine": machine, "isa": isa, "threads": threads, "engine": engine}
    return _ran(graph, {"src": src, "scale": scale, "shift": shift}, where)


@keywords
def eltwise(
    src: Array,
    algorithm: str,
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> OperatorResult:
    """A function of each element by oneDNN's name: values of `src`'s shape, and cost.

    `alpha` and `beta` mean what they mean there: relu's slope below 0, clip's bounds, alpha x + beta of linear, alpha
    x**beta of pow, … Types, `dst` and `scales` as `simdnn.softmax` has them.

    >>> import numpy as np
    >>> eltwise(np.array([-2, 0.5, 9], np.float32), "clip", 0, 6, machine="icx").output.tolist()
    [0.0, 0.5, 6.0]
    """
    graph = graphs.eltwise(src, algorithm=algorithm, alpha=alpha, beta=beta, dst=dst, scales=scales)
    return _ran(graph, {"src": src}, {"machine": machine, "isa": isa, "threads": threads, "engine": engine})


@keywords
def binary(
    src0: Array,
    src1: Array,
    algorithm: str,
    *,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> OperatorResult:
    """Two arrays that broadcast, element by element: add, sub, mul, div, max, min, or a comparison (1 or 0).

    Types and `dst` (by default src0's) as `simdnn.softmax` has them; `scales` of "src0", "src1" and "dst".

    >>> import numpy as np
    >>> a, b = np.array([100, -100], np.int8), np.array([50, 50], np.int8)
    >>> binary(a, b, "add", machine="zen4").output.tolist()  # saturated
    [127, -50]
    """
    graph = graphs.binary(src0, src1, algorithm=algorithm, dst=dst, scales=scales)
    where = {"machine": machine, "isa": isa, "threads": threads, "engine": engine}
    return _ran(graph, {"src0": src0, "src1": src1}, where)


@keywords
def pooling(
    src: Array,
    kernel: int | Sequence[int],
    algorithm: str = "max",
    *,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> OperatorResult:
    """The greatest or the mean of each window of `src` (N, C, IH, IW): values (N, C, OH, OW) and cost.

    `kernel`, `strides`, `padding` and `dilation` (1: dense taps) as `simdnn.convolution` has them. Means divide by all
    taps ("avg_include_padding") or by those inside ("avg_exclude_padding"); of s8 and u8 they are rounded to nearest
    even. Types, `dst` and `scales` as `simdnn.softmax` has them.

    >>> import numpy as np
    >>> image = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    >>> pooling(image, 2, "avg_exclude_padding", strides=2, machine="zen4").output.tolist()
    [[[[2, 4], [10, 12]]]]
    """
    graph = graphs.pooling(
        src,
        kernel=kernel,
        algorithm=algorithm,
        strides=strides,
        padding=padding,
        dilation=dilation,
        dst=dst,
        scales=scales,
    )
    return _ran(graph, {"src": src}, {"machine": machine, "isa": isa, "threads": threads, "engine": engine})


@keywords
def deconvolution(
    src: Array,
    weights: Array,
    bias: Array | None = None,
    *,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    output_padding: int | Sequence[int] = 0,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    threads: int = 1,
    engine: str = "auto",
) -> OperatorResult:
    """A transposed convolution of `src` (N, IC, IH, IW) with `weights` (OC, IC/G, KH, KW): values and cost.

    One matrix product makes what each source element adds to its window, and a pass adds the windows up. OH is
    (IH - 1) * stride - padding on both sides + dilation * (KH - 1) + 1 + output_padding. Types: f32, bf16 and f16, each
    with its own; u8 or s8 with s8 weights, exact but for pairs that fast int8 saturates, `dst` f32 by default. `scales`
    of "src", "wei" and "dst" are common numbers; `bias` is f32 (OC,).

    >>> import numpy as np
    >>> src, weights = np.ones((1, 4, 2, 2), np.float32), np.ones((3, 4, 2, 2), np.float32)
    >>> deconvolution(src, weights, strides=1, machine="zen4").output[0, 0].tolist()
    [[4.0, 8.0, 4.0], [8.0, 16.0, 8.0], [4.0, 8.0, 4.0]]
    """
    graph = graphs.deconvolution(
        src,
        weights,
        bias,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
        output_padding=output_padding,
        dst=dst,
        scales=scales,
    )
    where = {"machine": machine, "isa": isa, "threads": threads, "engine": engine}
    return _ran(graph, {"src": src, "weights": weights, "bias": bias}, where)
