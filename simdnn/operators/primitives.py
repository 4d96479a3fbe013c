"""Primitives beside products: normalization, reductions, functions of elements, windows of images, conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isa_models.readings.arrays import Array
from simdnn.operators import turned
from simdnn.operators.draft import Ending, PostOps, Scales
from simdnn.operators.results import OperatorResult, Where, ran
from simdnn.operators.table import gathered
from simdnn.primitives.checks import keywords
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target


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
    condition)), and ("sum", scale, zero point), which adds what `into` holds. Between passes values are f32. Raises
    `InvalidArgument`.

    >>> import numpy as np
    >>> r = softmax(np.array([[0, 0, 0, 0]], np.float32), machine="zen4", dst="u8", scales={"dst": 1 / 256})
    >>> r.output.tolist(), r.cycles > 0
    ([[64, 64, 64, 64]], True)
    """
    end = Ending(dst, scales, post_ops, into)
    return ran(
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
    return ran(
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
    return ran("batch_normalization", sources, {"epsilon": epsilon}, end, (machine, isa, threads, engine, dispatch))


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
    return ran(
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
    return ran(
        "reduction",
        {"src": src},
        {"axes": axes, "algorithm": algorithm, "p": p, "eps": eps},
        end,
        (machine, isa, threads, engine, dispatch),
    )


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
    return ran(
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
    return ran("binary", sources, {"algorithm": algorithm}, end, (machine, isa, threads, engine, dispatch))


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
    return ran("prelu", {"src": src, "weights": weights}, {}, end, (machine, isa, threads, engine, dispatch))


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
    return ran("concat", {"sources": sources}, {"axis": axis}, end, (machine, isa, threads, engine, dispatch))


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
    return ran(
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
    end = Ending()
    return ran("shuffle", {"src": src}, {"group": group, "axis": axis}, end, (machine, isa, threads, engine, dispatch))


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
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """The greatest or the mean of each window of `src` (N, C, IH, IW): values (N, C, OH, OW) and cost.

    One and three spatial dimensions, too. `kernel`, `strides`, `padding` and `dilation` (1: dense taps) as
    `simdnn.convolution` has them. Means divide by all taps ("avg_include_padding") or by those inside
    ("avg_exclude_padding"); of integers they are rounded to nearest even. Types, `dst`, `scales`, `post_ops` and `into`
    as `simdnn.softmax` has them.

    >>> import numpy as np
    >>> image = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    >>> pooling(image, 2, "avg_exclude_padding", strides=2, machine="zen4").output.tolist()
    [[[[2, 4], [10, 12]]]]
    """
    end = Ending(dst, scales, post_ops, into)
    return ran(
        "pooling",
        {"src": src},
        {"kernel": kernel, "algorithm": algorithm, "strides": strides, "padding": padding, "dilation": dilation},
        end,
        (machine, isa, threads, engine, dispatch),
    )


@keywords
def resampling(
    src: Array,
    size: int | Sequence[int],
    algorithm: str = "nearest",
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
    """Images `src` (N, C, IH, IW) in another `size` (OH, OW): the nearest element, or a linear blend ("linear").

    One and three spatial dimensions, too. Types, `dst`, `scales`, `post_ops` and `into` as `simdnn.softmax` has them.
    """
    end = Ending(dst, scales, post_ops, into)
    return ran(
        "resampling",
        {"src": src},
        {"size": size, "algorithm": algorithm},
        end,
        (machine, isa, threads, engine, dispatch),
    )


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
    zero_points: Mapping[str, int] | None = None,
    machine: Where,
    isa: str | None = None,
    dst: str | None = None,
    scales: Mapping[str, Any] | None = None,
    post_ops: PostOps = (),
    into: Array | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult | Result:
    """A transposed convolution of `src` (N, IC, IH, IW) with `weights` (OC, IC/G, KH, KW): values and cost.

    One and three spatial dimensions, too. One matrix product makes what each source element adds to its window, and a
    pass adds the windows up. OH is (IH - 1) * stride - padding on both sides + dilation * (KH - 1) + 1 +
    output_padding. Types: f32, bf16 and f16, each with its own, f32 with all three; u8 or s8 with s8 weights, exact but
    for pairs that fast int8 saturates, `dst` f32 by default. `scales` of "src", "wei" (also f32 (OC,)) and "dst";
    integers have `zero_points` of "src" and "dst", also one a channel; `bias` is f32 (OC,). `post_ops` and `into` as
    `simdnn.softmax` has them. dispatch="onednn": integers and f16 with strides of 1 are a convolution of turned
    weights, and its `Result`; others are summed as that library's kernels do it.

    >>> import numpy as np
    >>> src, weights = np.ones((1, 4, 2, 2), np.float32), np.ones((3, 4, 2, 2), np.float32)
    >>> deconvolution(src, weights, strides=1, machine="zen4").output[0, 0].tolist()
    [[4.0, 8.0, 4.0], [8.0, 16.0, 8.0], [4.0, 8.0, 4.0]]
    """
    end = Ending(dst, scales, post_ops, into, zero_points)
    taps = {"strides": strides, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    sources = gathered("deconvolution", {"src": src, "weights": weights, "bias": bias})
    options = {"groups": groups, **taps}
    if turned.taken(sources, options, end, Target.of(machine, isa, threads, engine, dispatch)):
        where = {"machine": machine, "isa": isa, "threads": threads, "engine": engine, "dispatch": dispatch}
        return turned.run(sources, options, end, where)
    return ran("deconvolution", sources, options, end, (machine, isa, threads, engine, dispatch))


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
    return ran("conversion", {"src": src}, {}, end, (machine, isa, threads, engine, dispatch))
