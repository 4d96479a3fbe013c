"""Primitives of images: windows, other sizes, normalized responses, transposed convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isa_models.readings.arrays import Array
from simdnn.operators import deconvolution_as_convolution
from simdnn.operators.graph_builder import Ending, PostOps, Scales
from simdnn.operators.results import OperatorResult, Where, computed
from simdnn.operators.table import gathered
from simdnn.primitives.checks import keywords
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target


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
    return computed(
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
    return computed(
        "resampling",
        {"src": src},
        {"size": size, "algorithm": algorithm},
        end,
        (machine, isa, threads, engine, dispatch),
    )


@keywords
def lrn(
    src: Array,
    size: int,
    algorithm: str = "across_channels",
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    machine: Where,
    isa: str | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
) -> OperatorResult:
    """Local response normalization of `src` (N, C, IH, IW): x / (k + alpha * m) ** beta, and cost.

    m is the mean of the squares of `size` neighbours: channels ("across_channels"), or pixels of one channel along each
    spatial axis ("within_channel"); beside the tensor there are zeros. Of an even `size` the last one counts as 0, as
    in oneDNN. One and three spatial dimensions, too; f32, bf16 or f16, which the destination has as well.

    >>> import numpy as np
    >>> image = np.array([3, 4, 0], np.float32).reshape(1, 3, 1, 1)
    >>> lrn(image, 3, alpha=3.0, beta=1.0, k=0.0, machine="zen4").output.ravel().tolist()
    [0.11999999731779099, 0.1599999964237213, 0.0]
    """
    how = {"size": size, "algorithm": algorithm, "alpha": alpha, "beta": beta, "k": k}
    return computed("lrn", {"src": src}, how, Ending(), (machine, isa, threads, engine, dispatch))


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
    integers have `zero_points` of "src" and "dst", also one a channel; `bias` (OC,) is f32, bf16, f16, s32, s8 or u8.
    `post_ops` and `into` as `simdnn.softmax` has them. dispatch="onednn": rows in memory stand for that library's own
    layouts (any), channels last for those on both sides; integers and f16 with strides of 1, floats with channels last,
    too, are a convolution of turned weights, and its `Result`; others are summed as that library's kernels do it.

    >>> import numpy as np
    >>> src, weights = np.ones((1, 4, 2, 2), np.float32), np.ones((3, 4, 2, 2), np.float32)
    >>> deconvolution(src, weights, strides=1, machine="zen4").output[0, 0].tolist()
    [[4.0, 8.0, 4.0], [8.0, 16.0, 8.0], [4.0, 8.0, 4.0]]
    """
    end = Ending(dst, scales, post_ops, into, zero_points)
    taps = {"strides": strides, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    sources = gathered("deconvolution", {"src": src, "weights": weights, "bias": bias})
    options = {"groups": groups, **taps}
    target = Target.of(machine, isa, threads, engine, dispatch)
    if deconvolution_as_convolution.taken(sources, options, end, target):
        return deconvolution_as_convolution.run(sources, options, end, target)
    return computed("deconvolution", sources, options, end, (machine, isa, threads, engine, dispatch))
