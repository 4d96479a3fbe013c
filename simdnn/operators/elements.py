"""Primitives of elements: functions, pairs, conversions, and those that only move or add up arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isa_models.readings.arrays import Array
from simdnn.operators.graph_builder import Ending, PostOps, Scales
from simdnn.operators.results import OperatorResult, Where, computed
from simdnn.primitives.checks import keywords


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
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """A function of each element by oneDNN's name: values of `src`'s shape, and cost.

    `alpha` and `beta` mean what they mean there: relu's slope below 0, clip's bounds, alpha x + beta of linear, alpha
    x**beta of pow, … Types, `dst`, `scales`, `post_ops` and `into` as `simdnn.softmax` has them.

    >>> import numpy as np
    >>> eltwise(np.array([-2, 0.5, 9], np.float32), "clip", 0, 6, machine="icx").output.tolist()
    [0.0, 0.5, 6.0]
    """
    end = Ending(dst, scales, post_ops, into)
    return computed(
        "eltwise",
        {"src": src},
        {"algorithm": algorithm, "alpha": alpha, "beta": beta},
        end,
        (machine, isa, threads, engine, dispatch),
    )


@keywords
def binary(
    src0: Array,
    src1: Array,
    algorithm: str,
    *,
    condition: Array | None = None,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """Two arrays that broadcast, element by element: add, sub, mul, div, max, min, a comparison (1 or 0), or "select".

    "select" takes src0 where `condition` (s8) is not 0, else src1. Types and `dst` (by default src0's), `post_ops` and
    `into` as `simdnn.softmax` has them; `scales` of "src0", "src1" and "dst".

    >>> import numpy as np
    >>> a, b = np.array([100, -100], np.int8), np.array([50, 50], np.int8)
    >>> binary(a, b, "add", machine="zen4").output.tolist()  # saturated
    [127, -50]
    """
    end = Ending(dst, scales, post_ops, into)
    sources = {"src0": src0, "src1": src1, "condition": condition}
    return computed("binary", sources, {"algorithm": algorithm}, end, (machine, isa, threads, engine, dispatch))


@keywords
def prelu(
    src: Array,
    weights: Array,
    *,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """x where it is above 0, else x times the weight that broadcasts to it: values of `src`'s shape, and cost.

    Types, `dst`, `post_ops` and `into` as `simdnn.softmax` has them.
    """
    end = Ending(dst, scales, post_ops, into)
    return computed("prelu", {"src": src, "weights": weights}, {}, end, (machine, isa, threads, engine, dispatch))


@keywords
def concat(
    sources: Sequence[Array],
    axis: int = 1,
    *,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """Arrays joined along `axis`, whose sizes alone may differ: values and cost.

    `dst` is by default the first source's type; where a source has another, or `scales` of "src0", "src1", … and "dst"
    ask for it, values pass through f32. Types, `post_ops` and `into` as `simdnn.softmax` has them.
    """
    end = Ending(dst, scales, post_ops, into)
    return computed("concat", {"sources": sources}, {"axis": axis}, end, (machine, isa, threads, engine, dispatch))


@keywords
def weighted_sum(
    sources: Sequence[Array],
    factors: Sequence[float] = (),
    *,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Scales | None = None,
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """Arrays of one shape times a factor each, added up in their order in f32: values and cost; oneDNN's primitive sum.

    Types, `dst` (by default the first source's), `post_ops` and `into` as `simdnn.softmax` has them.
    """
    end = Ending(dst, scales, post_ops, into)
    return computed(
        "weighted_sum", {"sources": sources}, {"factors": factors}, end, (machine, isa, threads, engine, dispatch)
    )


@keywords
def shuffle(
    src: Array,
    group: int,
    axis: int = 1,
    *,
    machine: Where,
    isa: str | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """Elements along `axis`, taken as rows of `group`, in the order of the columns: values of `src`'s shape, and cost.

    `src` and the destination have one type.
    """
    where = machine, isa, threads, engine, dispatch
    return computed("shuffle", {"src": src}, {"group": group, "axis": axis}, Ending(), where)


@keywords
def conversion(
    src: Array,
    *,
    zero_points: Mapping[str, Any] | None = None,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Mapping[str, Any] | None = None,
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """`src` in the type `dst`, times or over scales and moved by zero points: values of its shape, and cost.

    What is written is (x - zero_points["src"]) * scales["src"] * (1 / scales["dst"]) + zero_points["dst"] in f32,
    rounded once to nearest even and saturated where `dst` is of integers. Scales and zero points are numbers, or arrays
    that broadcast over the source, such as (C, 1, 1). Types (s4, u4 and f4_e2m1, too), `post_ops` (which stand before
    the destination's scale) and `into` as `simdnn.softmax` has them. `simdnn.reorder` makes kernels' layouts.

    >>> import numpy as np
    >>> x = np.array([-1, 0.26, 200], np.float32)
    >>> conversion(x, machine="zen4", dst="u8", scales={"dst": 0.5}, zero_points={"dst": 3}).output.tolist()
    [1, 4, 255]
    """
    end = Ending(dst, scales, post_ops, into, zero_points)
    return computed("conversion", {"src": src}, {}, end, (machine, isa, threads, engine, dispatch))
