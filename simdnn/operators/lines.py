"""Primitives along lines: softmax, normalizations, reductions."""

from __future__ import annotations

from collections.abc import Sequence

from isa_models.readings.arrays import Array
from simdnn.operators.graph_builder import Ending, PostOps, Scales
from simdnn.operators.results import OperatorResult, Where, computed
from simdnn.primitives.checks import keywords


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
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """e**x over its sum along `axis`, or the logarithm of that: values of `src`'s shape, and cost.

    `src` is an array of f32, bf16, f16, f8_e4m3, f8_e5m2, s8, u8 or s32; `dst` one of these types, by default the
    source's. `scales` are common numbers: {"src": s} multiplies what is read (oneDNN multiplies what comes of it, as a
    first post-operation ("linear", s) does), {"dst": s} divides what is written, which for integers is rounded to
    nearest even and saturated. `post_ops` stand between: functions of an element with their
    numbers ("relu", ("linear", 2, 1)), arrays that broadcast (("add", values), ("prelu", slopes), ("select", other,
    condition)), and ("sum", scale, zero point, type), which adds what `into` holds, of that type or the destination's.
    Between passes values are f32. Raises `InvalidArgument`.

    >>> import numpy as np
    >>> r = softmax(np.array([[0, 0, 0, 0]], np.float32), machine="zen4", dst="u8", scales={"dst": 1 / 256})
    >>> r.output.tolist(), r.cycles > 0
    ([[64, 64, 64, 64]], True)
    """
    end = Ending(dst, scales, post_ops, into)
    return computed(
        "softmax", {"src": src}, {"axis": axis, "logarithm": logarithm}, end, (machine, isa, threads, engine, dispatch)
    )


@keywords
def layer_normalization(
    src: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    mean: Array | None = None,
    variance: Array | None = None,
    epsilon: float = 1e-5,
    rms: bool = False,
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
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the last dimension: values and cost.

    `scale` and `shift` are f32 of the last dimension's size, `mean` and `variance`, where they are given, f32 of the
    others'. `rms`: no mean is subtracted, and squares take the variance's place. Types, `dst`, `scales`, `post_ops` and
    `into` as `simdnn.softmax` has them.
    """
    end = Ending(dst, scales, post_ops, into)
    sources = {"src": src, "scale": scale, "shift": shift, "mean": mean, "variance": variance}
    return computed(
        "layer_normalization", sources, {"epsilon": epsilon, "rms": rms}, end, (machine, isa, threads, engine, dispatch)
    )


@keywords
def batch_normalization(
    src: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    mean: Array | None = None,
    variance: Array | None = None,
    epsilon: float = 1e-5,
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
    """(x - mean) / sqrt(variance + epsilon) * scale + shift by channel of `src` (N, C, …): values and cost.

    All four are f32 (C,); without `mean` and `variance` the batch's own are found. Types, `dst`, `scales`, `post_ops`
    and `into` as `simdnn.softmax` has them.

    >>> import numpy as np
    >>> batch_normalization(np.array([[1], [3]], np.float32), epsilon=0, machine="zen4").output.tolist()
    [[-1.0], [1.0]]
    """
    end = Ending(dst, scales, post_ops, into)
    sources = {"src": src, "scale": scale, "shift": shift, "mean": mean, "variance": variance}
    where = machine, isa, threads, engine, dispatch
    return computed("batch_normalization", sources, {"epsilon": epsilon}, end, where)


@keywords
def group_normalization(
    src: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    groups: int,
    mean: Array | None = None,
    variance: Array | None = None,
    epsilon: float = 1e-5,
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
    """Each image's channels `src` (N, C, …) normalized in `groups` of neighbours: values and cost.

    `scale` and `shift` are f32 (C,), `mean` and `variance`, where they are given, f32 (N * groups,). Types, `dst`,
    `scales`, `post_ops` and `into` as `simdnn.softmax` has them.
    """
    end = Ending(dst, scales, post_ops, into)
    sources = {"src": src, "scale": scale, "shift": shift, "mean": mean, "variance": variance}
    return computed(
        "group_normalization",
        sources,
        {"groups": groups, "epsilon": epsilon},
        end,
        (machine, isa, threads, engine, dispatch),
    )


@keywords
def reduction(
    src: Array,
    axes: Sequence[int],
    algorithm: str = "sum",
    *,
    p: float = 1.0,
    eps: float = 0.0,
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
    """The sum, product ("mul"), extreme, mean or a norm of `src` along `axes`, which stay as dimensions of 1.

    Norms are oneDNN's: "norm_lp_max" and "norm_lp_sum" are the p-th root of sum |x|**p, brought together with `eps` by
    max or by addition; "norm_lp_power_p_max" and "norm_lp_power_p_sum" draw no root. Types, `dst`, `scales`, `post_ops`
    and `into` as `simdnn.softmax` has them.

    >>> import numpy as np
    >>> reduction(np.full((2, 3), 100, np.uint8), [1], machine="zen4", dst="s32").output.tolist()
    [[300], [300]]
    """
    end = Ending(dst, scales, post_ops, into)
    return computed(
        "reduction",
        {"src": src},
        {"axes": axes, "algorithm": algorithm, "p": p, "eps": eps},
        end,
        (machine, isa, threads, engine, dispatch),
    )
